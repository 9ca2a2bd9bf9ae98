"""One row for each session, whatever crashes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daemon.durable import Files
from daemon.kernel.evals import TAIL, Evals
from daemon.kernel.starting import provenance

ROW = {"session_id": "one-1-0123456789ab", "settled_at": "2026-12-01T14:06:21.123Z", "cost_usd": None}


@pytest.fixture
def evals(tmp_path: Path) -> Evals:
    return Evals(tmp_path, Files())


def rows(path: Path) -> list[dict[str, object]]:
    found = []
    for line in path.read_bytes().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def test_a_row_goes_into_its_month(evals: Evals, tmp_path: Path) -> None:
    evals.write(ROW, sure=True)
    evals.write({**ROW, "session_id": "b", "settled_at": "2027-01-01T00:00:00.000Z"}, sure=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2026-12.jsonl", "2027-01.jsonl"]
    assert rows(tmp_path / "2026-12.jsonl") == [ROW]


def test_after_a_crash_it_is_written_once_however_often_asked(evals: Evals, tmp_path: Path) -> None:
    for _ in range(3):
        evals.write(ROW, sure=False)
    evals.write({**ROW, "session_id": "one-2-0123456789ab"}, sure=False)
    assert [row["session_id"] for row in rows(tmp_path / "2026-12.jsonl")] == [
        "one-1-0123456789ab",
        "one-2-0123456789ab",
    ]


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_last_line_is_ended_and_the_row_written_whole(evals: Evals, tmp_path: Path, cut: int) -> None:
    evals.write({**ROW, "session_id": "before"}, sure=True)
    evals.write(ROW, sure=True)
    path = tmp_path / "2026-12.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    evals.write(ROW, sure=False)
    evals.write(ROW, sure=False)
    assert [row["session_id"] for row in rows(path)] == ["before", ROW["session_id"]]


def test_a_line_that_lacks_only_its_end_is_not_written_twice(evals: Evals, tmp_path: Path) -> None:
    path = tmp_path / "2026-12.jsonl"
    path.write_bytes(json.dumps(ROW).encode())
    evals.write(ROW, sure=False)
    evals.write({**ROW, "session_id": "next"}, sure=False)
    assert [row["session_id"] for row in rows(path)] == [ROW["session_id"], "next"]


@pytest.mark.parametrize(
    "garbage", [b"\n\n", b"[]\n", b"null\n", b"{\n", b"\xff\x00\n", b"[" * 20_000 + b"\n"]
)
def test_lines_that_are_no_rows_are_passed_over(evals: Evals, tmp_path: Path, garbage: bytes) -> None:
    (tmp_path / "2026-12.jsonl").write_bytes(garbage)
    evals.write(ROW, sure=False)
    evals.write(ROW, sure=False)
    assert (tmp_path / "2026-12.jsonl").read_bytes().count(b"one-1-0123456789ab") == 1


def test_a_large_month_is_searched_from_its_end(evals: Evals, tmp_path: Path) -> None:
    path = tmp_path / "2026-12.jsonl"
    other = json.dumps({**ROW, "session_id": "x" * 1000}).encode() + b"\n"
    path.write_bytes(other * (TAIL // len(other) + 100))
    size = path.stat().st_size
    evals.write(ROW, sure=False)
    evals.write(ROW, sure=False)
    assert path.stat().st_size - size == len(json.dumps(ROW)) + 1


def test_what_has_no_utf8_form_is_no_reason_to_lose_a_row(evals: Evals, tmp_path: Path) -> None:
    evals.write({**ROW, "kind": "\udcff"}, sure=True)
    assert len(rows(tmp_path / "2026-12.jsonl")) == 1


def test_a_record_that_somebody_changed_is_read_as_far_as_it_is_one(tmp_path: Path) -> None:
    for raw in (
        {"told": 5},
        {"told": [5, {"path": "a"}], "missed": "x", "context": [], "revision": 3},
        [],
        "x",
        None,
    ):
        (tmp_path / "launch.json").write_text(json.dumps({"instruction": raw}))
        found = provenance(tmp_path)
        assert found == {} or all(isinstance(each, dict) for each in (*found["told"], *found["missed"]))
        assert found == {} or (found["revision"] is None and isinstance(found["context"], dict))
