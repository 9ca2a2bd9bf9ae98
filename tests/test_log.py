"""The log: whole lines, no secrets, and never an exception."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from daemon import log
from daemon.log import REDACTED, RotatedFile


@pytest.fixture(autouse=True)
def _structlog_as_it_was() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "daemon.jsonl"


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_is_one_json_object_with_time_level_and_part(path: Path) -> None:
    log.setup(path, terminal=io.StringIO())
    log.get("loop").warning("claimed", track="a\nb", place=Path("/x"), raw=b"\xff", odd="\udc80")
    (row,) = rows(path)
    assert row.pop("at").endswith("Z")
    assert row == {
        "event": "claimed",
        "level": "warning",
        "part": "loop",
        "track": "a\nb",
        "place": "/x",
        "raw": "b'\\xff'",
        "odd": "\udc80",
    }
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_exception_is_written_with_its_traceback(path: Path) -> None:
    log.setup(path, terminal=io.StringIO())
    try:
        raise RuntimeError("disk on fire")
    except RuntimeError:
        log.get("loop").exception("tick failed")
    (row,) = rows(path)
    assert "RuntimeError: disk on fire" in row["exception"]
    assert row["level"] == "error"


def test_the_level_is_kept(path: Path) -> None:
    log.setup(path, terminal=io.StringIO(), level="warning")
    log.get("loop").info("quiet")
    assert not path.exists()


def test_secrets_are_not_written_anywhere(path: Path) -> None:
    terminal = io.StringIO()
    log.setup(path, terminal=terminal)
    log.get("x").info(
        "spawn",
        token="hush",
        env={"OPENAI_API_KEY": "hush", "PATH": "/bin", "deep": [{"Authorization": "hush"}]},
        passwords_tried=2,
        input_tokens=7,
        monkey="visible",
    )
    assert "hush" not in path.read_text() + terminal.getvalue()
    (row,) = rows(path)
    assert row["token"] == row["env"]["OPENAI_API_KEY"] == REDACTED
    assert row["env"]["PATH"] == "/bin"
    assert row["input_tokens"] == 7
    assert row["monkey"] == "visible"


def test_a_terminal_shows_control_characters_and_does_not_obey_them(path: Path) -> None:
    terminal = io.StringIO()
    log.setup(path, terminal=terminal)
    log.get("x").info("title \x1b]0;owned\x07", name="\x9b31m\r")
    shown = terminal.getvalue()
    assert not {"\x1b", "\x07", "\x9b", "\r"} & set(shown)
    assert "\\x1b]0;owned\\x07" in shown
    assert rows(path)[0]["event"] == "title \x1b]0;owned\x07"


def test_a_terminal_that_went_away_stops_nothing(path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as terminal:
        sinks = log.setup(path, terminal=terminal)
        log.get("x").info("one")
        terminal_closed = io.StringIO()
        terminal_closed.close()
        sinks.terminal = terminal_closed
        log.get("x").info("two")
        assert sinks.dropped_on_terminal == 2
        # what is left in the pipe's buffer must not be flushed into the broken pipe at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), write)
    assert [r["event"] for r in rows(path)] == ["one", "two"]


def test_a_full_disk_stops_nothing_and_is_counted(path: Path) -> None:
    path.symlink_to("/dev/full")
    sinks = log.setup(Path("/dev/full"), terminal=io.StringIO())
    assert sinks.file is not None
    for _ in range(3):
        log.get("x").info("lost")
    assert sinks.file.dropped == 3
    path.unlink()
    sinks.file.path = path
    log.get("x").info("back")
    log.get("x").info("on")
    assert [(r["event"], r.get("dropped_before")) for r in rows(path)] == [("back", 3), ("on", None)]


def test_a_missing_directory_stops_nothing(path: Path) -> None:
    file = RotatedFile(path.parent / "gone" / "log")
    assert not file.write(b"x")
    assert file.dropped == 1
    (path.parent / "gone").mkdir()
    assert file.write(b"y")
    assert file.path.read_bytes() == b"y\n"


def test_a_torn_line_is_ended_before_the_next(path: Path) -> None:
    code = """
import resource, sys
from pathlib import Path
from daemon.log import RotatedFile
file = RotatedFile(Path(sys.argv[1]))
assert file.write(b"a" * 9)
resource.setrlimit(resource.RLIMIT_FSIZE, (14, resource.RLIM_INFINITY))
assert not file.write(b"b" * 9)
assert not file.write(b"c" * 9)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
assert file.write(b"d" * 9)
print(file.dropped)
"""
    ran = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("2\n", "")
    assert path.read_text().splitlines() == ["aaaaaaaaa", "bbbb", "ddddddddd"]


def test_files_are_capped_and_the_oldest_goes(path: Path) -> None:
    file = RotatedFile(path, max_bytes=100, keep=2)
    for n in range(60):
        assert file.write(b"%09d" % n)
    file.close()
    names = sorted(p.name for p in path.parent.iterdir())
    assert names == ["daemon.jsonl", "daemon.jsonl.1", "daemon.jsonl.2"]
    kept = b"".join(p.read_bytes() for p in (path.with_name(names[2]), path.with_name(names[1]), path))
    assert kept.split() == [b"%09d" % n for n in range(30, 60)]
    assert all(p.stat().st_size <= 100 and p.stat().st_mode & 0o077 == 0 for p in path.parent.iterdir())


def test_a_line_longer_than_a_file_is_kept(path: Path) -> None:
    file = RotatedFile(path, max_bytes=10, keep=1)
    assert file.write(b"x" * 50)
    assert file.write(b"y")
    assert path.with_name("daemon.jsonl.1").read_bytes() == b"x" * 50 + b"\n"
    assert path.read_bytes() == b"y\n"


def test_threads_write_whole_lines(path: Path) -> None:
    log.setup(path, terminal=io.StringIO())

    def write(n: int) -> None:
        logger = log.get(f"thread-{n}")
        for i in range(200):
            logger.info("x" * 100, i=i)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(rows(path)) == 800


def test_importing_it_does_not_load_structlog() -> None:
    code = "import sys, daemon.log; print('structlog' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
