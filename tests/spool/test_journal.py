"""The journal: one whole line for each transition, and a torn one harms no other."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from daemon.durable import Files
from daemon.spool.journal import Journal, put_aside, tail_rows


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.jsonl", Files())


def test_rows_come_back_in_order(journal: Journal) -> None:
    for number in range(3):
        journal.write({"session": f"s{number}", "to": "done"})
    assert [row["session"] for row in tail_rows(journal.path)] == ["s0", "s1", "s2"]


def test_no_journal_has_no_rows(journal: Journal) -> None:
    assert list(tail_rows(journal.path)) == []
    assert not journal.has("s", "done")


def test_a_transition_is_found_by_session_and_state(journal: Journal) -> None:
    journal.write({"session": "s", "to": "active"})
    assert journal.has("s", "active")
    assert not journal.has("s", "done")
    assert not journal.has("t", "active")


@pytest.mark.parametrize("torn", [b'{"session": "t', b"\xff\xfe", b"[1, 2]\n", b"\n", b"[" * 100_000])
def test_a_torn_line_harms_no_other(journal: Journal, torn: bytes) -> None:
    journal.write({"session": "before", "to": "done"})
    with journal.path.open("ab") as file:
        file.write(torn)
    journal.write({"session": "after", "to": "done"})
    assert [row["session"] for row in tail_rows(journal.path)] == ["before", "after"]


def test_a_row_whose_line_end_was_swallowed_counts_once(journal: Journal) -> None:
    journal.write({"session": "s", "to": "done"})
    journal.path.write_bytes(journal.path.read_bytes().rstrip(b"\n"))
    assert journal.has("s", "done")
    journal.write({"session": "t", "to": "done"})
    assert [row["session"] for row in tail_rows(journal.path)] == ["s", "t"]


def test_only_the_tail_is_read_and_its_first_half_line_is_skipped(journal: Journal) -> None:
    for number in range(100):
        journal.write({"session": f"s{number:03}", "to": "done"})
    line = len(journal.path.read_bytes()) // 100
    rows = list(tail_rows(journal.path, line * 10 + 5))
    assert [row["session"] for row in rows] == [f"s{number:03}" for number in range(90, 100)]


def test_names_that_are_not_text_are_written_all_the_same(journal: Journal) -> None:
    journal.write({"name": b"\xff.md".decode("utf-8", "surrogateescape"), "to": "failed"})
    assert [row["name"] for row in tail_rows(journal.path)] == ["?.md"]
    assert json.loads(journal.path.read_bytes())["to"] == "failed"


def test_a_line_break_in_a_reason_stays_one_line(journal: Journal) -> None:
    journal.write({"session": "s", "to": "failed", "why": "one\ntwo\r\u2028three"})
    assert journal.path.read_bytes().count(b"\n") == 1
    assert [row["why"] for row in tail_rows(journal.path)] == ["one\ntwo\r\u2028three"]


@pytest.mark.parametrize("kind", ["directory", "fifo", "symlink"])
def test_what_takes_no_lines_is_put_aside(journal: Journal, tmp_path: Path, kind: str) -> None:
    for number in (1, 2):
        if kind == "directory":
            journal.path.mkdir()
        elif kind == "fifo":
            os.mkfifo(journal.path)
        else:
            journal.path.symlink_to(tmp_path / "elsewhere")
        assert list(tail_rows(journal.path)) == []
        assert put_aside(journal.path, Files()) == journal.path.with_name(f"{journal.path.name}.odd-{number}")
    assert put_aside(journal.path, Files()) is None
    journal.write({"session": "s"})
    assert put_aside(journal.path, Files()) is None
    assert [row["session"] for row in tail_rows(journal.path)] == ["s"]
