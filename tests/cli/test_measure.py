"""`mh measure` and `mh trajectory`: what a person sees, what a program reads, what is said of bad input."""

from __future__ import annotations

import json
import os
import re
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
    """Not on a terminal: all columns, as wide as they are."""
    head, one, two, sums, *rest = place.mh("measure", str(folder)).splitlines()
    assert head.split() == [
        *("SESSION", "PROJECT", "HARNESS", "MODEL", "TURNS", "TOOLS", "FAILED", "INPUT", "CACHED", "CREATED"),
        *("OUTPUT", "COST", "ENDED", "FIRST", "MINUTES"),
    ]
    assert one.split() == [
        *(
            "s1",
            "w",
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
    assert two.split()[:7] == ["s2", "-", "claude-code", r"new-model\x1b[31m", "1", "0", "0"]
    assert "clean/end_turn?" in two
    assert sums.split() == ["2", "sessions", "4", "1", "1", "640", "500", "100", "≥1,062", "≥~$0.03"]
    text = "\n".join(rest)
    assert re.search(r"^claude-opus-4-6 +2 +620 .*≥1,005 +\d+% +≥~\$0.03$", text, re.MULTILINE)
    assert re.search(r"^claude-haiku-4-5 +1 +10 ", text, re.MULTILINE)
    assert "INPUT includes CACHED and CREATED; FAILED: tool calls that failed. -: not known." in text
    assert "≥ a lower bound" in text
    assert "? guessed from the last lines" in text
    assert "~ estimated: prices 2026-02-28." in text
    assert (
        r"4% of the tokens have no price: new-model\x1b[31m. [prices] in megaharness.toml takes them." in text
    )
    assert "line not read: ~/projects/-w/s1.jsonl:5: no JSON: Expecting value at column 1" in text
    assert "1 file is no transcript; --json has the names." in text
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160, 200])
def test_it_fits_the_terminal_and_says_what_it_left_out(place: Place, folder: Path, width: int) -> None:
    place.env["COLUMNS"] = str(width)
    lines = place.mh("measure", str(folder)).splitlines()
    tables = [line for line in lines if re.match(r"SESSION|MODEL|s1|s2|2 sess|claude-|new-", line)]
    assert all(len(line) <= width for line in tables)
    shown = set(lines[0].split())
    assert {"SESSION", "MODEL", "TURNS", "INPUT", "OUTPUT", "COST"} <= shown
    missing = {
        "PROJECT",
        "HARNESS",
        "TOOLS",
        "FAILED",
        "CACHED",
        "CREATED",
        "ENDED",
        "FIRST",
        "MINUTES",
    } - shown
    (said,) = [line for line in lines if line.startswith("(not shown")][:1] or [""]
    assert all(name in said for name in missing)
    assert ("CACHED" in "".join(line for line in lines if line.startswith("INPUT includes"))) == (
        "CACHED" in lines[0] or "CACHED" in "".join(line for line in lines if line.startswith("MODEL"))
    )


def test_the_order_of_the_lines(place: Place, folder: Path) -> None:
    def order(*words: str) -> list[str]:
        return [
            each["session_id"]
            for each in json.loads(place.mh("measure", "--json", *words, str(folder)))["sessions"]
        ]

    assert order() == ["s1", "s2"]
    for name in ("cost", "input", "output", "turns"):
        assert order("--sort", name) == ["s2", "s1"]


def test_sessions_in_which_nothing_is_to_be_seen(place: Place, folder: Path) -> None:
    (folder / "s4.jsonl").write_bytes(lines(prompt() | {"sessionId": "s4"}))
    said = place.mh("measure", str(folder))
    assert "s4" not in said
    assert "1 session without a call, a tool or a token is left out; --json has all." in said
    assert len(json.loads(place.mh("measure", "--json", str(folder)))["sessions"]) == 3


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
    assert place.mh("measure", str(empty), code=1).startswith(f"no transcript was found in {empty}\n")
    (place.home / "x.jsonl.gz").write_bytes(b"\x1f\x8b" + bytes(20))
    assert "x.jsonl.gz: compressed: unpack it first" in place.mh(
        "measure", str(place.home / "x.jsonl.gz"), code=1
    )
    # One that was named and cannot be measured is an error, though the other can.
    assert "s2" in place.mh("measure", str(folder / "s2.jsonl"), str(folder / "notes.txt"), code=1)
    said = place.mh("measure", code=2)
    assert "which files or folders?" in said
    (place.home / ".codex/sessions").mkdir(parents=True)
    assert "for example: mh measure ~/.codex/sessions" in place.mh("measure", code=2)


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
    assert place.mh("trajectory", str(folder / "s1.jsonl"), "-o", str(out)) == f"wrote {out}: 3 steps\n"
    assert json.loads(out.read_bytes()) == shown
    assert [each.name for each in place.home.iterdir() if each.name.startswith(".")] == []
    link = place.home / "link.json"
    link.symlink_to(out)
    place.mh("trajectory", str(folder / "s2.jsonl"), "-o", str(link))
    assert link.is_symlink()
    assert json.loads(out.read_bytes())["session_id"] == "s2"
    place.mh("trajectory", str(folder / "s2.jsonl"), "-o", "/dev/null")
    assert not os.path.isfile("/dev/null")
    own = (folder / "s2.jsonl").read_bytes()
    hard = folder.parent / "hard.jsonl"
    hard.hardlink_to(folder / "s2.jsonl")
    for target in (folder / "s2.jsonl", hard):
        assert "is the transcript itself" in place.mh(
            "trajectory", str(folder / "s2.jsonl"), "-o", str(target), code=2
        )
    assert (folder / "s2.jsonl").read_bytes() == own
    assert f"there is no folder {folder}/no" in place.mh(
        "trajectory", str(folder / "s2.jsonl"), "-o", str(folder / "no/t"), code=2
    )
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
    said = place.mh("trajectory", str(folder / "notes.txt"), code=2)
    assert "no known format" in said
    assert "the formats that are known: aider, " in said
    assert "there is no" in place.mh("trajectory", str(folder / "gone"), code=2)


def test_a_trajectory_is_a_transcript_too(place: Place, folder: Path) -> None:
    out = place.home / "t.json"
    place.mh("trajectory", str(folder / "s1.jsonl"), "-o", str(out))
    first = json.loads(place.mh("measure", "--json", str(folder / "s1.jsonl")))["sessions"][0]
    again = json.loads(place.mh("measure", "--json", str(out)))["sessions"][0]
    for name in ("input", "cached", "output"):
        assert again["tokens"][name] == first["tokens"][name], name
    assert (again["turns"], again["tool_calls"]) == (first["turns"], first["tool_calls"])
