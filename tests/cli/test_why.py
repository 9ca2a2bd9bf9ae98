"""Reasons, with and without a daemon."""

from __future__ import annotations

import json
import os
import time

import pytest

from adapters.testing import wait_for
from daemon.cli import deciding
from daemon.layout import Workspace

pytestmark = pytest.mark.slow

SHELL = "---\nharness_id: shell\n{}---\n# A title\n\n```sh\n{}\n```\n"


def quiet(place) -> None:
    """The files have been left alone for long enough, whatever that is."""
    wait_for(
        lambda: all("it is its turn" in row["reason"] or row["needs_you"] for row in waiting(place)), "quiet"
    )


def waiting(place):
    seen = place.json()
    return seen["waiting"] + seen["needs_you"]


def test_without_a_daemon_the_view_gives_the_same_reasons(place):
    place.queue("ready.md", SHELL.format("", "echo x"))
    place.queue("nobody.md", SHELL.format("after: nowhere\n", "echo x"))
    place.queue("bad.md", "---\npriorty: 1\n---\nx\n")
    quiet(place)
    seen = place.json()
    assert {row["subject"] for row in seen["needs_you"]} == {"nobody.md", "bad.md"}
    assert [row["subject"] for row in seen["waiting"]] == ["ready.md"]
    text = place.mh()
    assert text.index("NEEDS YOU") < text.index("no track with this id") < text.index("WAITING")
    assert "it is its turn: started when the daemon runs" in text
    assert sorted(os.listdir(place.queued)) == ["bad.md", "nobody.md", "ready.md"], "looking changes nothing"
    assert os.listdir(place.root / "sessions") == []


def test_with_very_many_files_only_the_names(place):
    for number in range(101):
        (place.queued / f"many-{number:03}.md").write_text("x\n")
    seen = place.json()
    assert seen["waiting"] == []
    assert seen["queued_total"] == 101
    assert "many-000" in place.mh()


def test_settings_that_cannot_be_used_are_told_by_the_view(place):
    place.queue("x.md", "x\n")
    place.settings.write_text("[limits]\nslots = true\nminuts = 3\n")
    text = place.mh()
    assert text.splitlines()[1] == "settings cannot be used: mh doctor"
    assert "  x" in text
    rows = [row for row in json.loads(place.mh("doctor", "--json", code=1)) if row["what"] == "settings"]
    assert len(rows) == 2, "one row for each fault"


def test_what_ended_without_a_daemon_is_told_in_words(place):
    gate = place.home / "gate"
    place.mh("up", "-d")
    place.queue(
        "long.md", SHELL.format("", f"echo begun; until [ -e {gate} ]; do sleep 0.05; done; echo over")
    )
    (session,) = wait_for(lambda: list((place.root / "sessions").glob("long-*")), "the claim")
    wait_for((session / "started.json").exists, "the start")
    place.mh("down")
    assert "mh attach long" in place.mh()
    gate.touch()
    wait_for((session / "exit.json").exists, "the end")
    wait_for(lambda: place.json()["running"][0]["phase"] == "has ended", "the runner to go")
    said = "has ended; it is judged when the daemon runs"
    assert said in place.mh()
    assert said in place.mh("why", "long")
    assert "mh attach" not in place.mh()
    assert "has ended and is not settled yet" in place.mh("attach", "long")


def test_a_failed_check_has_the_end_of_its_output_below_it(place):
    place.mh("up", "-d")
    check = "done_when:\n  - run: seq 1 8; exit 3\n"
    place.queue("red.md", SHELL.format(check, "echo done"))
    assert place.settled("red.md") == "failed"
    text = place.mh("why", "red")
    lines = text.splitlines()
    assert lines[0] == "red (failed): incomplete: 1 of 1 check failed"
    assert lines[1] == "  check failed: run: seq 1 8; exit 3 (exit 3)"
    assert lines[2].startswith("    … 3 lines more: sessions/red-1-")
    assert lines[2].endswith("/receipts/01.json")
    assert (place.root / lines[2].split(": ")[1]).is_file()
    assert [line.strip() for line in lines[3:8]] == ["4", "5", "6", "7", "8"]
    assert lines[8] == (
        f"  it would only run again as it is: correct {place.root}/tracks/failed/red.md, then mh requeue red"
    )


def test_a_crash_shows_what_was_printed_last_and_then_the_way_out(place):
    place.mh("up", "-d")
    place.queue("dies.md", SHELL.format("", "echo no such luck >&2; exit 7"))
    assert place.settled("dies.md") == "failed"
    text = place.mh("why", "dies")
    assert text.startswith("dies (failed): crash/exit_7")
    assert 0 < text.index("    no such luck") < text.index("correct ") < text.index("mh requeue dies")


def test_a_refused_file_is_told_once_and_without_empty_lines(place):
    place.mh("up", "-d")
    place.queue("bad.md", "---\npriorty: 1\nharnes_id: x\n---\nx\n")
    os.utime(place.queued / "bad.md")
    assert place.settled("bad.md") == "failed"
    wait_for((place.root / "tracks/failed/bad.md.why.txt").exists, "the reason")
    text = place.mh("why", "bad")
    assert all(line.strip() for line in text.splitlines())
    assert text.count("line 2") == text.count("line 3") == 1
    assert text.lower().count("correct") == 1


def test_looked_at_again_is_said_of_times_that_are_near(place):
    place.queue("far.md", SHELL.format("after: 2099-01-01T00:00\n", "echo x"))
    soon = time.strftime("%Y-%m-%dT%H:%M", time.localtime(time.time() + 7200))
    place.queue("near.md", SHELL.format(f"after: {soon}\n", "echo x"))
    place.queue("lost.md", "---\nharness_id: nobody\n---\nx\n")
    wait_for(lambda: "waits until" in place.mh("why", "far"), "the reason")
    wait_for(lambda: "waits until" in place.mh("why", "near"), "the reason")
    wait_for(lambda: "no harness" in place.mh("why", "lost"), "the reason")
    assert "looked at again" not in place.mh("why", "far")
    assert f"looked at again: {soon[:10]}" in place.mh("why", "near")
    assert "looked at again" not in place.mh("why", "lost")


def test_a_crash_that_names_nothing_says_where_to_look(place):
    kill = place.home / "kill"
    kill.write_text('#!/bin/sh\nkill "-$(grep -x "[0-9][0-9]*" "$1")" $$\n')
    kill.chmod(0o755)
    place.settings.write_text(
        f'[harness.mine]\nargv = ["{kill}", "{{brief}}"]\n[harness.dumb]\nargv = ["false"]\n'
    )
    place.mh("up", "-d")
    for number, said in ((9, "memory"), (11, "signal 11 ended it; ")):
        place.mh("drop", f"{number}", "-H", "mine", "--name", f"s{number}")
        assert place.settled(f"s{number}.md") == "failed"
        text = place.mh("why", f"s{number}")
        assert text.startswith(f"s{number} (failed): crash/signal_{number}")
        assert said in text
        assert text.count(f"mh log s{number}") == 1
        assert text.index("mh log") < text.index(f"mh requeue s{number}")
        assert "put right what it names" not in text
    place.mh("drop", "x", "-H", "dumb")
    assert place.settled("x.md") == "failed"
    assert "it named no cause; its output: mh log x, its command: mh show x; " in place.mh("why", "x")


def test_two_that_wait_for_each_other_are_told_without_a_daemon(place, monkeypatch):
    """Whichever is looked at first, the other one has not been read then."""
    for one, other in (("hen", "egg"), ("egg", "hen")):
        (place.queued / f"{one}.md").write_text(f"---\nharness_id: shell\nafter: {other}\n---\nx\n")
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + 3600)  # they have been quiet for long
    rows = {row.subject: row for row in deciding.look(Workspace(place.root), daemon=False)}
    assert {name: (row.reason, row.needs_you) for name, row in rows.items()} == {
        "hen.md": ("waits for egg, which waits for this one", True),
        "egg.md": ("waits for hen, which waits for this one", True),
    }
