"""What an agent is told comes from md-db, and every word of it can be accounted for, live and later."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from adapters.testing import wait_for

pytestmark = pytest.mark.slow

CAT = f"""
[harness.reader]
argv = ["cat", "{{brief}}"]

[harness.native]
argv = ["{sys.executable}", "-c", "import pathlib, sys; print(pathlib.Path(sys.argv[1]).read_text() + '=====');\
 print(sorted(str(p.relative_to(sys.argv[3])) for p in pathlib.Path(sys.argv[3]).rglob('*.md')));\
 print('=====' + pathlib.Path(sys.argv[2]).read_text())", "{{instructions}}", "{{brief}}", "{{skills}}"]
"""


@pytest.fixture
def base(bench):
    """A workspace with two harnesses that show what they get, and a small database of its own."""
    with (bench.root / "megaharness.toml").open("a") as settings:
        settings.write(CAT)
    for path in sorted((bench.root / "md-db").rglob("*.md")):
        path.unlink()
    document(bench, "instructions/always.md", "Never push.")
    document(bench, "instructions/reader.md", "---\napplies_when: {harness: reader}\n---\nRead slowly.")
    document(
        bench, "instructions/other.md", "---\napplies_when: {harness: codex, kind: fix}\n---\nNot for you."
    )
    return bench


def document(bench, path, text):
    file = bench.root / "md-db" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")
    return file


def git(bench, *args):
    return subprocess.run(
        ["git", "-C", str(bench.root), "-c", "user.name=p", "-c", "user.email=p@localhost", *args],
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def session(bench, track):
    return bench.root / "sessions" / bench.json("show", track)["session"]


def test_what_it_was_told_is_recorded_and_can_be_built_again_a_week_later(base):
    base.up()
    base.drop("one.md", "---\nharness_id: reader\n---\n# Do it\n\nplease\n")
    assert base.settled("one.md") == "done"
    brief = (session(base, "one") / "brief.md").read_text()
    assert brief.startswith(
        "<instructions>\nNever push.\n\nRead slowly.\n</instructions>\n\n<task>\n# Do it\n\nplease\n</task>\n"
    )
    live = base.json("resolve", "one")
    assert live["brief"] == brief
    assert [each["path"] for each in live["record"]["told"]] == [
        "instructions/always.md",
        "instructions/reader.md",
    ]
    assert live["record"]["missed"] == [
        {
            "path": "instructions/other.md",
            "sha": live["record"]["missed"][0]["sha"],
            "reason": "harness_id is reader, not codex; kind is unknown, not fix",
            "clauses": 2,
        }
    ]
    (row,) = base.rows()
    assert [each["path"] for each in row["mddb"]] == ["instructions/always.md", "instructions/reader.md"]
    assert row["mddb_revision"] == live["record"]["revision"]

    # A week of work on the database, committed or not, and the daemon is another one.
    base.mh("down")
    document(base, "instructions/always.md", "Push whatever you like.")
    git(base, "add", "md-db")
    git(base, "commit", "-qm", "a change of mind")
    (base.root / "md-db/instructions/reader.md").unlink()
    git(base, "gc", "--prune=now", "--quiet")
    later = base.json("resolve", "one")
    assert later["brief"] == brief
    assert later["rebuilt"] is True
    told = base.mh("resolve", "one", "--explain")
    revision = live["record"]["revision"][:12]
    assert f"changed since: mh mddb diff instructions/always.md {revision}" in told
    assert f"gone since: mh mddb show instructions/reader.md {revision}" in told
    assert "harness_id is reader" in told
    assert "the same text, byte for byte" in told
    assert base.mh("mddb", "show", "instructions/reader.md", revision).endswith("Read slowly.\n")
    now = base.mh("resolve", "one", "--now")
    assert "Push whatever you like." in now
    assert "Read slowly." not in now


def test_a_harness_with_a_place_for_it_gets_instructions_and_skills_apart(base):
    document(
        base,
        "skills/fix/SKILL.md",
        "---\nname: fix\ndescription: how to fix\napplies_when: {kind: fix}\n---\nFind the cause.",
    )
    document(base, "skills/fix/notes/more.md", "more")
    base.up()
    base.drop("one.md", "---\nharness_id: native\nkind: fix\n---\n# Do it\n")
    assert base.settled("one.md") == "done"
    said = (session(base, "one") / "events.jsonl").read_text()
    instructions, skills, brief = said.split("=====")
    assert instructions.strip() == "<instructions>\nNever push.\n</instructions>"
    assert skills.strip() == "['fix/SKILL.md', 'fix/notes/more.md']"
    assert brief.startswith("# Do it\n")
    assert "Never push" not in brief
    assert base.json("resolve", "one")["rebuilt"] is True
    assert base.mh("resolve", "one").startswith(
        "==> skills/, which the harness loads itself <==\nskills/fix/SKILL.md\n\n==> instructions.md <==\n"
    )
    assert "; the harness loads it itself, from a folder" in base.mh("resolve", "one", "--explain")


def test_what_never_started_was_told_nothing(base):
    with (base.root / "megaharness.toml").open("a") as settings:
        settings.write('\n[harness.choosy]\nargv = ["cat", "{brief}", "{model}"]\n')
    base.up()
    base.drop("one.md", "---\nharness_id: choosy\n---\n# Do it\n")
    assert base.settled("one.md") == "failed"
    assert "attempt 1 of one was never told anything" in base.mh("resolve", "one", "--attempt", "1", code=2)
    told = base.mh("resolve", "one", "--explain")
    assert "one, attempt 2: choosy" in told
    assert "not told yet" in told


def test_skills_are_written_out_where_the_harness_loads_none(base):
    document(
        base, "skills/fix.md", "---\ndescription: how to fix\napplies_when: {kind: fix}\n---\nFind the cause."
    )
    document(base, "skills/draw/SKILL.md", "---\nname: draw\ndescription: how to draw\n---\nA long text.")
    base.up()
    base.drop("one.md", "---\nharness_id: reader\nkind: fix\n---\n# Do it\n")
    assert base.settled("one.md") == "done"
    place = session(base, "one")
    brief = (place / "brief.md").read_text()
    assert "<skills>\n# fix\n\nFind the cause.\n\nBefore you do what one of these is for" in brief
    listed = place / "skills/draw/SKILL.md"
    assert f"- **draw**: how to draw (`{listed}`)" in brief
    assert listed.read_text().endswith("A long text.\n")
    assert "A long text" not in brief
    assert base.json("resolve", "one")["rebuilt"] is True


def test_the_next_attempt_is_told_as_such(base):
    document(base, "instructions/again.md", "---\napplies_when: {phase: retry}\n---\nIt failed before.")
    base.up()
    base.drop("one.md", "---\nharness_id: reader\ndone_when: [{run: test -e never}]\n---\n# Do it\n")
    assert base.settled("one.md") == "failed"
    first, second = (base.mh("resolve", "one", "--attempt", str(n)) for n in (1, 2))
    assert "It failed before." not in first
    assert "It failed before." in second
    assert "`run: test -e never` failed" in second
    assert "phase retry" in base.mh("resolve", "one", "--explain")


def test_nothing_starts_half_told_and_what_waits_goes_on_when_it_can_be_read(base):
    broken = document(
        base, "instructions/broken.md", "---\napplies_when: {harness_id: rea*, kindd: fix}\n---\nBe kind."
    )
    base.up()
    base.drop("one.md", "---\nharness_id: reader\n---\n# Do it\n")
    base.drop("script.md", "---\nharness_id: shell\n---\n```sh\necho hi\n```\n")
    assert base.settled("script.md") == "done"
    why = wait_for(
        lambda: (text := base.mh("why", "one")) and "instructions/broken.md" in text and text, "a reason"
    )
    assert "line 2, applies_when.kindd: there is no dimension `kindd` (write `kind`)" in why
    assert (base.root / "tracks/queued/one.md").exists()
    assert "ERROR" in base.mh("doctor", code=1)
    broken.write_text(broken.read_text().replace("kindd: fix", 'kind: "*"'))
    assert base.settled("one.md", seconds=90) == "done"
    assert "Be kind." in base.mh("resolve", "one")


def test_a_document_that_does_not_concern_it_may_be_broken(base):
    document(base, "instructions/broken.md", "---\napplies_when: {harness_id: codex}\nordr: 1\n---\nBe kind.")
    base.up()
    base.drop("one.md", "---\nharness_id: reader\n---\n# Do it\n")
    assert base.settled("one.md") == "done"


def test_a_first_line_picks_a_project_and_its_checks_are_added(base):
    document(
        base,
        "projects/notes.md",
        "---\ndone_when:\n  - exists: notes.md\n---\nEverything goes into `notes.md`.",
    )
    base.up()
    base.drop("one.md", "notes: write it down\n")
    base.mh("drop", "notes: another one", "-H", "reader", "--name", "two")
    assert base.settled("two.md") == "failed"
    brief = base.mh("resolve", "two")
    assert "<project>\nEverything goes into `notes.md`.\n</project>" in brief
    assert "- check: `exists: notes.md`" in brief
    (row, *_) = base.rows()
    assert (row["project_id"], row["termination"], row["contract"]["checks"]) == ("notes", "incomplete", 1)
    # What a project demanded when its track was claimed holds for that track, whatever its document says now.
    document(base, "projects/notes.md", "Anything goes.")
    assert "exists: notes.md" in base.mh("resolve", "two")


def test_a_project_with_a_repository_is_refused_for_now_and_an_unknown_one_with_the_nearest(base):
    document(base, "projects/shop.md", "---\nrepository: ~/src/shop\n---\nA shop.")
    base.up()
    said = base.mh("drop", "shop: round the tax", "-H", "reader", code=2)
    assert "has a repository (~/src/shop), which cannot be worked in yet" in said
    base.drop("two.md", "---\nproject_id: shp\nharness_id: reader\n---\n# Do it\n")
    assert base.settled("two.md") == "failed"
    assert "write shop" in (base.root / "tracks/failed/two.md.why.txt").read_text()


def test_the_policy_forbids_a_route(base):
    document(
        base,
        "instructions/router-policy.md",
        '---\ndeny:\n  - {harness_id: native, model_id: "gpt-*", why: it speaks another API}\n---\n',
    )
    base.up()
    base.drop("one.md", "---\nharness_id: native/gpt-5.4\n---\n# Do it\n")
    why = wait_for(lambda: (text := base.mh("why", "one")) and "forbids" in text and text, "a reason")
    assert (
        "the policy forbids native/gpt-5.4: it speaks another API (md-db/instructions/router-policy.md, line 3)"
        in why
    )


def test_an_agent_that_writes_into_its_own_record_is_settled_and_not_believed(base):
    base.up()
    for number, told in enumerate(("5", "null", '"x"', "[5]", '[{"path": "\\u001b[31m", "sha": "0"}]')):
        track = f"one{number}"
        base.drop(f"{track}.md", "---\nharness_id: reader\n---\n# Do it\n")
        assert base.settled(f"{track}.md") == "done"
        launch = session(base, track) / "launch.json"
        raw = json.loads(launch.read_text())
        raw["instruction"] |= {
            "told": json.loads(told),
            "missed": json.loads(told),
            "context": json.loads(told),
        }
        launch.write_text(json.dumps(raw))
        assert base.json("resolve", track)["rebuilt"] is not True
        for words in (["resolve", track, "--explain"], ["why", track], ["show", track]):
            assert "\x1b" not in base.mh(*words)


def test_a_record_that_names_less_than_was_told_is_not_believed(base):
    base.up()
    base.drop("one.md", "---\nharness_id: reader\n---\n# Do it\n")
    assert base.settled("one.md") == "done"
    launch = session(base, "one") / "launch.json"
    raw = json.loads(launch.read_text())
    raw["instruction"]["told"].pop()
    launch.write_text(json.dumps(raw))
    answer = base.json("resolve", "one")
    assert (answer["rebuilt"], answer["doubt"]) == (
        False,
        "the record names other documents than apply at that commit",
    )
    raw["instruction"]["context"] = {"harness_id": "codex", "phase": "spawn"}
    launch.write_text(json.dumps(raw))
    assert base.json("resolve", "one")["rebuilt"] is False
