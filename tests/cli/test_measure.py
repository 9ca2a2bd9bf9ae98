"""`mh measure` and `mh trajectory`: what a person sees, what a program reads, what is said of bad input."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Place
from tests.transcripts.claude import answered, assistant, prompt, result
from tests.transcripts.counting import lines

KEY = "sk-" + "ant-api03-" + "A1b2C3d4E5f6" * 4


@pytest.fixture
def folder(place: Place) -> Path:
    """Two sessions, one with a sub-agent, and a file that is none."""
    home = place.home / "projects" / "-w"
    (home / "s1" / "subagents").mkdir(parents=True)
    (home / "s1.jsonl").write_bytes(
        lines(
            prompt(f"use {KEY}"),
            assistant("m1", "r1", output=1000, cached=500, created=100, tool="t1", cwd="/w", version="2.1.0"),
            answered("t1", True),
            assistant("m2", "r2", output=5, stop=None, at="2026-03-01T10:30:00Z"),
        )
        + b"noise\n"
    )
    (home / "s1" / "subagents" / "agent-1.jsonl").write_bytes(
        lines(assistant("a1", "r3", output=7, side=True, agentId="1", model="claude-haiku-4-5"))
    )
    (home / "s2.jsonl").write_bytes(
        lines(
            assistant(
                "m9", "r9", output=50, session="s2", model="new-model\x1b[31m", at="2026-03-02T10:00:00Z"
            )
        )
    )
    (home / "notes.txt").write_text("no transcript")
    return home


def test_the_table(place: Place, folder: Path) -> None:
    place.env["COLUMNS"] = "220"
    head, one, two, sums, *rest = place.mh("measure", str(folder)).splitlines()
    assert head.split() == [
        *("SESSION", "HARNESS", "MODEL", "TURNS", "TOOLS", "FAILED", "INPUT", "CACHED", "CREATED", "OUTPUT"),
        *("COST", "ENDED", "FIRST", "MINUTES"),
    ]
    assert one.split() == [
        *(
            "s1",
            "claude-code",
            "claude-opus-4-6",
            "+1",
            "3",
            "1",
            "1",
            "630",
            "500",
            "100",
            "≥1,012",
            "≥~$0.03",
        ),
        *("-", "2026-03-01", "09:59", "31.0"),
    ]
    assert two.split()[:6] == ["s2", "claude-code", r"new-model\x1b[31m", "1", "0", "0"]
    assert sums.split() == ["2", "sessions", "4", "1", "1", "640", "500", "100", "≥1,062", "≥~$0.03"]
    text = "\n".join(rest)
    assert "MODEL" in text
    assert "claude-haiku-4-5" in text
    assert "INPUT includes CACHED and CREATED" in text
    assert "≥ a lower bound" in text
    assert "~ estimated: prices 2026-02-28." in text
    assert r"No price is known for new-model\x1b[31m: [prices] in megaharness.toml takes one." in text
    assert f"not read: {folder}/s1.jsonl:5: no JSON: Expecting value at column 1" in text
    assert f"not measured: {folder}/notes.txt: no known format" in text
    assert "\x1b" not in text


def test_a_narrow_terminal_loses_the_columns_that_matter_least(place: Place, folder: Path) -> None:
    place.env["COLUMNS"] = "100"
    head, *rows = place.mh("measure", str(folder)).splitlines()
    assert "MINUTES" not in head
    assert "OUTPUT" in head
    assert all(len(row) <= 130 for row in rows[:3])


def test_the_json(place: Place, folder: Path) -> None:
    told = json.loads(place.mh("measure", "--json", str(folder)))
    one, two = told["sessions"]
    assert one["tokens"] == {
        "input": 630,
        "uncached": 30,
        "cached": 500,
        "cache_created": 100,
        "output": 1012,
        "reasoning": None,
    }
    assert one["tokens_subagents"]["output"] == 7
    assert (one["turns"], one["turns_subagents"], one["tool_calls"], one["tool_errors"]) == (3, 1, 1, 1)
    assert one["lower_bounds"] == ["output", "cost"]
    assert [model["model"] for model in one["models"]] == ["claude-opus-4-6", "claude-haiku-4-5"]
    assert (one["cwd"], one["harness_version"]) == ("/w", "2.1.0")
    assert one["skipped"] == [{"line": 5, "why": "no JSON: Expecting value at column 1", "torn": False}]
    assert two["cost_usd"] is None
    assert two["cost_unpriced_models"] == ["new-model\x1b[31m"]
    assert two["termination"] == {
        "kind": "clean",
        "code": "end_turn",
        "text": "hello",
        "at": "2026-03-02T10:00:00Z",
        "basis": "last lines",
    }
    assert told["totals"]["tokens"]["input"] == 640
    assert told["totals"]["lower_bounds"] == ["cost", "output"]
    assert told["not_read"] == [{"file": str(folder / "notes.txt"), "why": "no known format"}]


def test_prices_of_the_settings(place: Place, folder: Path) -> None:
    place.settings.write_text('[prices."new-*"]\ninput = 1_000_000\noutput = 0\nas_of = 2026-12-01\n')
    told = json.loads(place.mh("measure", "--json", str(folder / "s2.jsonl")))
    (one,) = told["sessions"]
    assert (one["cost_usd"], one["cost_basis"]) == (10.0, "prices 2026-12-01")
    place.settings.write_text('[prices.x]\ninput = "1"\noutptu = 2\n')
    said = place.mh("measure", str(folder), code=78)
    assert "megaharness.toml:2: prices.x.input" in said
    assert "the nearest is prices.x.output" in said
    assert "prices.x.output: must be set" in said


def test_it_needs_no_workspace_and_makes_none(place: Place, folder: Path) -> None:
    shutil.rmtree(place.root)
    assert "s1" in place.mh("measure", str(folder))
    assert "hello" in place.mh("trajectory", "--md", str(folder / "s1.jsonl"))
    assert not place.root.exists()


def test_what_cannot_be_measured(place: Place, folder: Path) -> None:
    assert "notes.txt: no known format" in place.mh("measure", str(folder / "notes.txt"), code=1)
    assert "gone: No such file or directory" in place.mh("measure", str(place.home / "gone"), code=1)
    empty = place.home / "empty"
    empty.mkdir()
    assert place.mh("measure", str(empty), code=1) == "no transcript was found\n"
    # One that was named and cannot be measured is an error, though the other can.
    assert "s2" in place.mh("measure", str(folder / "s2.jsonl"), str(folder / "notes.txt"), code=1)
    assert "Missing argument" in place.mh("measure", code=2)


def test_a_reader_that_has_seen_enough(place: Place, folder: Path) -> None:
    import subprocess
    import sys

    argv = [sys.executable, "-P", "-m", "daemon", "measure", "--json", str(folder)]
    with subprocess.Popen(argv, env=place.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as ran:
        assert ran.stdout is not None
        assert ran.stderr is not None
        ran.stdout.close()
        assert b"Traceback" not in ran.stderr.read()


def test_secrets_are_taken_out(place: Place, folder: Path) -> None:
    place.env["MY_SECRET"] = "correct-horse"
    path = folder / "s3.jsonl"
    path.write_bytes(
        lines(
            prompt(f"{KEY} and correct-horse") | {"sessionId": "s3"},
            assistant(session="s3"),
            result(session_id="s3", result="correct-horse"),
        )
    )
    for words in (["trajectory"], ["trajectory", "--md"], ["measure", "--json"]):
        assert "correct-horse" in place.mh(*words, str(path))
        said = place.mh(*words, "--redact", "--secret-env", "MY_SECRET", str(path))
        assert KEY not in said
        assert "correct-horse" not in said
        assert "[redacted]" in said
        json.loads(said) if "--md" not in words else None
    assert "add --redact" in place.mh("measure", "--secret-env", "MY_SECRET", str(path), code=2)
    assert "no environment variable NOPE" in place.mh(
        "measure", "--redact", "--secret-env", "NOPE", str(path), code=2
    )
    place.env["SHORT"] = "abc"
    assert "too short" in place.mh("measure", "--redact", "--secret-env", "SHORT", str(path), code=2)


def test_a_trajectory_goes_to_the_screen_or_to_a_file(place: Place, folder: Path) -> None:
    shown: dict[str, Any] = json.loads(place.mh("trajectory", str(folder / "s1.jsonl")))
    assert shown["schema_version"] == "ATIF-v1.7"
    assert shown["final_metrics"]["extra"]["megaharness"]["tokens"]["input"] == 630
    assert shown["subagent_trajectories"][0]["trajectory_id"] == "1"
    out = place.home / "out.json"
    assert place.mh("trajectory", str(folder / "s1.jsonl"), "-o", str(out)) == ""
    assert json.loads(out.read_bytes()) == shown
    assert [each.name for each in place.home.iterdir() if each.name.startswith(".")] == []
    link = place.home / "link.json"
    link.symlink_to(out)
    place.mh("trajectory", str(folder / "s2.jsonl"), "-o", str(link))
    assert link.is_symlink()
    assert json.loads(out.read_bytes())["session_id"] == "s2"
    place.mh("trajectory", str(folder / "s2.jsonl"), "-o", "/dev/null")
    assert not os.path.isfile("/dev/null")
    assert "is a folder" in place.mh("trajectory", str(folder / "s2.jsonl"), "-o", str(folder), code=2)
    before = (folder / "s2.jsonl").read_bytes()
    said = place.mh("trajectory", str(folder / "s2.jsonl"), "-o", str(folder / "s2.jsonl"), code=2)
    assert "is the transcript itself" in said
    assert (folder / "s2.jsonl").read_bytes() == before


def test_one_session_is_chosen(place: Place, folder: Path) -> None:
    said = place.mh("trajectory", str(folder), code=2)
    assert "has 2 sessions: s1, s2" in said
    assert f"mh trajectory {folder} --session s1" in said
    assert json.loads(place.mh("trajectory", str(folder), "--session", "s2"))["session_id"] == "s2"
    assert "no session s9" in place.mh("trajectory", str(folder), "--session", "s9", code=2)
    assert "no known format" in place.mh("trajectory", str(folder / "notes.txt"), code=2)
    assert "there is no" in place.mh("trajectory", str(folder / "gone"), code=2)


def test_a_trajectory_is_a_transcript_too(place: Place, folder: Path) -> None:
    out = place.home / "t.json"
    place.mh("trajectory", str(folder / "s1.jsonl"), "-o", str(out))
    first = json.loads(place.mh("measure", "--json", str(folder / "s1.jsonl")))["sessions"][0]
    again = json.loads(place.mh("measure", "--json", str(out)))["sessions"][0]
    for name in ("input", "cached", "output"):
        assert again["tokens"][name] == first["tokens"][name], name
    assert (again["turns"], again["tool_calls"]) == (first["turns"], first["tool_calls"])
