"""Following a file that grows: each line once, in bounded memory, woken by the kernel."""

from __future__ import annotations

import select
from pathlib import Path

import pytest

from adapters.follow import Lines, Wake


def everything(lines: Lines, budget: int = 1 << 20) -> list[bytes]:
    found = lines.read(budget)
    while lines.waiting:
        found += lines.read(budget)
    return found


@pytest.mark.parametrize("budget", [1, 3, 7, 1000])
def test_each_line_comes_once(tmp_path: Path, budget: int) -> None:
    file = tmp_path / "events.jsonl"
    file.write_bytes(b"one\n\ntwo\nthr")
    lines = Lines(file)
    assert everything(lines, budget) == [b"one", b"", b"two"]
    with file.open("ab") as more:
        more.write(b"ee\nfour")
    assert everything(lines, budget) == [b"three"]
    assert lines.rest() == [b"four"]
    assert lines.rest() == []


def test_a_missing_file_is_waited_for(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "events.jsonl")
    assert everything(lines) == []
    (tmp_path / "events.jsonl").write_bytes(b"now\n")
    assert everything(lines) == [b"now"]


def test_an_absurd_line_is_cut_and_told(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_bytes(b"x" * 5000 + b"\nnext\n")
    first, second = everything(Lines(file, limit=1000), 300)
    assert first == b"x" * 1000 + " … (4,000 more bytes)".encode()
    assert second == b"next"


def test_a_backlog_is_skipped_to_a_whole_line(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_bytes(b"".join(b"line %d\n" % number for number in range(10_000)))
    lines = Lines(file, keep=1000)
    found = everything(lines)
    assert found[-1] == b"line 9999"
    assert 80 < len(found) < 120
    assert all(line.startswith(b"line ") for line in found)
    assert lines.skipped > 80_000


def test_wake_is_readable_when_something_changes(tmp_path: Path) -> None:
    wake = Wake()
    wake.watch(tmp_path / "not there yet")
    wake.watch(tmp_path)
    try:
        assert wake.available
        assert select.select([wake.fileno()], [], [], 0)[0] == []
        (tmp_path / "events.jsonl").write_bytes(b"x")
        assert select.select([wake.fileno()], [], [], 5)[0] == [wake.fileno()]
        wake.drain()
        assert select.select([wake.fileno()], [], [], 0)[0] == []
    finally:
        wake.close()
