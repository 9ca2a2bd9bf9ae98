"""What is wrong and would be found out at night only: told by up, doctor and the view."""

from __future__ import annotations

import json
import os
import re

import pytest

from adapters.testing import wait_for

pytestmark = pytest.mark.slow

SHELL = "---\nharness_id: shell\n{}---\n```sh\n{}\n```\n"
FAULTY = """\
prefer = ["nobody"]
[harness.one]
argv = ["sh", "{breif}"]
[harness.two]
argv = ["sh"]
modle = "x"
[harness.three]
[harness.fine]
argv = ["sh", "{brief}"]
[harness.absent]
argv = ["no-such-program-here"]
"""


def rows(place, code: int = 0):
    return json.loads(place.mh("doctor", "--json", code=code))


def test_up_tells_of_every_harness_that_doctor_calls_an_error(place):
    place.settings.write_text(FAULTY)
    faulty = {row["what"] for row in rows(place, 1) if row["level"] == "ERROR"}
    assert faulty == {"harness one", "harness two", "harness three", "harness nobody"}
    said = place.mh("up", "-d").splitlines()
    told = {line.split(": ")[1] for line in said if line.startswith("mh: ")}
    assert told == faulty
    assert len([line for line in said if line.startswith("mh: ")]) == len(faulty)
    assert "did you mean 'brief'?" in "\n".join(said)
    again = place.mh("up", "-d", code=3)
    assert "already running" in again
    assert "harness one" not in again


def test_a_variable_that_the_daemon_lacks_is_told_by_name_and_never_by_value(place):
    place.settings.write_text(
        '[harness.mine]\nargv = ["true"]\npass_env = ["HAVE_IT", "LACK_IT", "SET_IT"]\nenv = {SET_IT = "1"}\n'
    )
    place.env["HAVE_IT"] = "its-value"
    lack = "harness mine: pass_env names LACK_IT, which is not in the daemon's environment"

    def warned() -> list[str]:
        found = [row for row in rows(place) if row["what"] == "harness mine" and row["level"] == "WARN"]
        assert "its-value" not in json.dumps(found)
        return [row["message"] for row in found]

    assert warned() == [lack.partition(": ")[2]]
    said = place.mh("up", "-d")
    assert f"mh: {lack}\n" in said
    assert "HAVE_IT" not in said
    # What counts is the environment of the daemon that runs, not that of whoever asks.
    place.env["LACK_IT"] = "now"
    assert len(warned()) == 1
    place.mh("down")
    assert warned() == []
    assert "mh: " not in place.mh("up", "-d")
    del place.env["LACK_IT"]
    assert warned() == []


def test_up_in_the_foreground_tells_it_too(place):
    place.settings.write_text('[harness.one]\nargv = ["sh", "{breif}"]\n')
    os.chmod(place.queued, 0o777)  # it does not start like this, so the test need not end it
    said = place.mh("up", code=78)
    assert said.startswith("mh: harness one: ")


def test_files_that_are_not_taken_have_one_line_in_the_view(place):
    for name in ("notes.txt", ".hidden", "a.md~", ".a.md.swp", "x.swp", "4913", "#a.md#", "UP.MD"):
        (place.queued / name).write_text("x\n")
    (place.queued / "dir.md").mkdir()
    lines = [line for line in place.mh().splitlines() if "not taken" in line]
    assert lines == [
        "2 files in tracks/queued/ are not taken: UP.MD, notes.txt (only names ending in .md are; mh doctor)"
    ]
    assert place.json()["ignored"] == ["UP.MD", "notes.txt"]
    (place.queued / "UP.MD").unlink()
    assert "1 file in tracks/queued/ is not taken: notes.txt (" in place.mh()
    said = place.mh("doctor")
    assert said.count("dir.md") == 1
    assert "ignored: notes.txt\n" in said
    (place.queued / "sub").mkdir()
    assert "2 names in tracks/queued/ are not taken: notes.txt, sub/ (" in place.mh()
    (place.queued / "sub").rmdir()
    (place.queued / "notes.txt").unlink()
    assert "not taken" not in place.mh()


def times(data: object, key: str = ""):
    match data:
        case dict():
            for name, value in data.items():
                yield from times(value, name)
        case list():
            for value in data:
                yield from times(value, key)
        case str() if re.match(r"\d{4}-\d\d-\d\d", data):
            yield key, data
        case int() | float() if data > 1e9:
            yield key, str(data)


@pytest.mark.parametrize("daemon", [True, False])
def test_every_time_in_json_is_utc(place, daemon):
    place.env["TZ"] = "Asia/Tokyo"
    gate = place.home / "gate"
    place.mh("up", "-d")
    place.queue("old.md", SHELL.format("", "exit 7"))
    place.settled("old.md")
    place.queue("now.md", SHELL.format("", f"until [ -e {gate} ]; do sleep 0.05; done"))
    wait_for(lambda: list((place.root / "sessions").glob("now-*/started.json")), "the start")
    place.queue("far.md", SHELL.format("after: 2099-01-01T09:00\n", "echo x"))
    wait_for(lambda: "waits until" in place.mh("why", "far"), "the reason")
    if not daemon:
        place.mh("down")
    found = [
        *times(place.json()),
        *times(place.json("why", "far")),
        *times(place.json("why", "now")),
        *times(place.json("show", "old")),
        *times(place.json("show", "now")),
        *times(rows(place)),
    ]
    gate.touch()
    assert {"at", "since", "until", "claimed_at", "settled_at"} <= {key for key, _ in found}
    for key, text in found:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", text), (key, text)
    assert place.json("why", "far")["until"].startswith("2099-01-01T00:00")


def test_a_program_that_may_not_be_executed_says_how_to_change_that(place):
    agent = place.home / "my agent"
    agent.write_text("#!/bin/sh\n")
    place.settings.write_text(f'[harness.mine]\nargv = ["{agent}"]\n')
    for said in (place.mh("doctor"), place.mh("drop", "x", "-H", "mine")):
        assert "is there and cannot be executed" in said
        assert f"chmod +x '{agent}'" in said
        assert "install it" not in said
    agent.chmod(0o755)
    assert "chmod" not in place.mh("doctor")


@pytest.mark.parametrize(("slots", "said"), [(1, "1 slot"), (2, "2 slots")])
def test_one_is_not_plural(place, slots, said):
    place.settings.write_text(f"[limits]\nslots = {slots}\nminutes = 1\n")
    assert f"{said}, 1 minute a track\n" in place.mh("doctor")
    assert f"), {said}: " in place.mh("up", "-d")
    assert f"0 of {said}   " in place.mh()


def test_only_the_default_workspace_is_made_at_first_use(place):
    del place.env["MEGAHARNESS_ROOT"]
    for verb in (("up", "-d"), ("drop", "x", "-H", "shell")):
        said = place.mh("--root", str(place.home / "gone"), *verb, code=2)
        assert f"make one: mh init {place.home}/gone" in said
        said = " ".join(place.mh(verb[0], "--help").split())
        assert "The workspace ~/megaharness is made if" in said
    assert "made a workspace: " in place.mh("drop", "x", "-H", "shell")
    assert (place.home / "megaharness/tracks/queued/x.md").exists()
