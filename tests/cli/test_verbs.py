"""show, doctor, down, interrupt, attach: what they say."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from adapters.testing import wait_for

pytestmark = pytest.mark.slow

HOW_TO = Path(__file__).resolve().parents[2] / "docs/how-to/use-any-agent.md"
SHELL = "---\nharness_id: shell\n---\n```sh\n{}\n```\n"


def test_show_lists_every_attempt(place):
    place.mh("up", "-d")
    place.queue(
        "liar.md",
        "---\nharness_id: fake\ndone_when:\n  - run: test -f never.txt\n---\n```fake\nsay All done.\n```\n",
    )
    assert place.settled("liar.md") == "failed"
    attempts = place.json("show", "liar")["attempts"]
    assert [row["attempt"] for row in attempts] == [1, 2]
    assert {row["termination"] for row in attempts} == {"incomplete"}
    text = place.mh("show", "liar")
    for row in attempts:
        assert row["session"] in text
    assert text.count("incomplete (0 of 1 check passed)") == 2


def test_down_with_drain_says_what_it_waited_for(place):
    place.settings.write_text("[limits]\nslots = 1\n")
    gate = place.home / "gate"
    place.mh("up", "-d")
    place.queue("one.md", SHELL.format(f"until [ -e {gate} ]; do sleep 0.05; done; echo x"))
    wait_for(lambda: list((place.root / "sessions").glob("one-*/started.json")), "the start")
    place.queue("two.md", SHELL.format("echo x"))
    gate.touch()
    # Which of them it still took, is for the daemon to say.
    said = place.mh("down", "--drain").splitlines()[-1]
    left = len(list(place.queued.iterdir()))
    still = f"; {left} still waiting in tracks/queued/" if left else ""
    assert said == f"ended; every running track has been settled{still}"


def test_interrupt_of_a_queued_one_says_how_to_take_it_back(place):
    place.queue("x.md", "x\n")
    said = place.mh("interrupt", "x", code=2)
    assert f"to take it back: rm {place.queued}/x.md, or move it elsewhere" in said


def test_attach_says_first_that_it_has_ended(place):
    place.mh("up", "-d")
    place.queue("x.md", SHELL.format("echo here it is"))
    assert place.settled("x.md") == "done"
    said = place.mh("attach", "x")
    assert said.splitlines()[0] == "mh: x has ended and lies in tracks/done/; this is its log"
    assert "here it is" in said


def test_an_empty_workspace_names_the_first_steps(place):
    said = place.mh()
    assert "mh drop TASK.md" in said
    assert "-H" in said
    assert "shell" in said
    assert "megaharness.toml" in said


def test_doctor_names_what_is_ignored_and_counts_in_english(place):
    (place.queued / "notes.txt").write_text("x\n")
    (place.queued / "sub").mkdir()
    place.mh("up", "-d")
    rows = json.loads(place.mh("doctor", "--json"))
    assert [(row["level"], row["message"]) for row in rows if row["what"] == "queued"] == [
        ("WARN", "ignored: notes.txt, sub/")
    ]
    place.queue("x.md", SHELL.format("echo x"))
    place.settled("x.md")
    (server,) = [row for row in json.loads(place.mh("doctor", "--json")) if row["what"] == "tmux server"]
    assert "1 track, 1 window (" in server["message"] or "0 tracks, 0 windows" in server["message"]


def test_doctor_warns_of_a_model_that_nobody_names(place):
    place.settings.write_text('[harness.mine]\nargv = ["true", "{model}", "{brief}"]\n')
    (row,) = [row for row in json.loads(place.mh("doctor", "--json")) if row["what"] == "harness mine"]
    assert row["level"] == "WARN"
    assert "{model}" in row["message"]
    place.settings.write_text('[harness.mine]\nargv = ["true", "{model}"]\nmodel = "m"\n')
    (row,) = [row for row in json.loads(place.mh("doctor", "--json")) if row["what"] == "harness mine"]
    assert row["level"] == "OK"


def test_the_smallest_agent_of_the_documentation_runs_as_it_stands_there(place):
    part = HOW_TO.read_text().split("## The smallest agent")[1]
    script = part.split("```sh\n")[1].split("```")[0]
    agent = place.home / "bin/my-agent"
    agent.parent.mkdir()
    agent.write_text(script)
    agent.chmod(0o755)
    place.settings.write_text(part.split("```toml\n")[1].split("```")[0])
    place.mh("up", "-d")
    place.mh("drop", "Count me", "-H", "mine", "--check", "test -s words.txt")
    assert place.settled("count-me.md") == "done"
    assert re.search(r"> The brief has \d+ words\.", (place.root / "tracks/done/count-me.md").read_text())


def test_doctor_examines_the_database(place):
    def database() -> list[tuple[str, str, str]]:
        rows = json.loads(place.mh("doctor", "--json", code=code))
        return [(row["level"], row["message"], row["fix"]) for row in rows if row["what"] == "database"]

    folder = place.root / "md-db/instructions"
    (folder / "asking.md").write_text("End with BLOCKED: and your question.\n")
    code = 0
    ((level, message, _),) = database()
    assert level == "OK"
    assert "instructions" in message
    (folder / "slip.md").write_text("---\napplies_when: {harness_id: Mine}\n---\nText.\n")
    (folder / "rule.mdc").write_text("Text.\n")
    place.settings.write_text('[harness.mine]\nargv = ["true", "{brief}"]\n')
    first, second, third = database()
    assert first == (
        "WARN",
        "md-db/instructions/slip.md, line 2: no harness is called `Mine`",
        "write `mine`",
    )
    assert second == (
        "WARN",
        "md-db/instructions/rule.mdc: this is no document: nothing of it is ever told",
        "rename it to rule.md",
    )
    assert third[0] == "OK"
    code = 1
    (folder / "bad.md").write_text("---\nordr: 1\nglobs: *.py\n---\nText.\n")
    assert database()[0][:2] == (
        "ERROR",
        "md-db/instructions/bad.md, line 3: globs: a value that begins with * must be in quotes",
    )
    assert "md-db/instructions/bad.md, line 3" in place.mh("doctor", code=1)


def test_doctor_tells_what_of_a_skill_reaches_no_agent_and_what_is_not_recorded(place):
    skill = place.root / "md-db/skills/mine"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("How to.\n")
    (skill / "names").symlink_to("/etc/passwd")
    lock = place.root / ".git/refs/megaharness/md-db.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    os.utime(lock, (1, 1))
    said = place.mh("doctor")
    assert "md-db/skills/mine/names reaches no agent: a link that leads out of md-db" in said
    assert f"what agents are told is not recorded: {lock}" in said
