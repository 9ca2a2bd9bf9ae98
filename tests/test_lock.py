"""One daemon: what the kernel's lock keeps, with real processes."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from daemon.errors import AlreadyRunning
from daemon.lock import Holder, Lock, boot_id, holder, start_ticks

HOLD = "import sys, time; from pathlib import Path; from daemon.lock import Lock; "
HOLD += "lock = Lock.acquire(Path(sys.argv[1])); print('held', flush=True); "


@contextmanager
def other_daemon(path: Path, then: str = "time.sleep(60)") -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", HOLD + then, str(path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "ws" / ".megaharness").mkdir(parents=True)
    return tmp_path / "ws" / ".megaharness" / "lock"


def test_a_second_daemon_is_told_who_the_first_is(path: Path) -> None:
    with other_daemon(path) as first:
        with pytest.raises(AlreadyRunning) as refused:
            Lock.acquire(path)
        assert f"pid {first.pid}" in str(refused.value)
        assert str(path.parent.parent) in str(refused.value)
        assert refused.value.exit_code == 3
        assert holder(path) == Holder(first.pid, boot_id(), start_ticks(first.pid))


def test_a_killed_daemon_holds_nothing(path: Path) -> None:
    with other_daemon(path) as first:
        first.send_signal(signal.SIGKILL)
        first.wait(10)
        assert str(first.pid) in path.read_text()
        assert holder(path) is None
        Lock.acquire(path).release()


def test_a_started_program_does_not_keep_it(path: Path) -> None:
    then = "import subprocess; null = subprocess.DEVNULL; "
    then += "p = subprocess.Popen(['sleep', '60'], stdout=null, close_fds=False); "
    then += "print(p.pid, flush=True); time.sleep(60)"
    with other_daemon(path, then) as first:
        assert first.stdout is not None
        child = int(first.stdout.readline())
        first.kill()
        first.wait(10)
        try:
            assert os.path.exists(f"/proc/{child}")
            assert holder(path) is None
        finally:
            os.kill(child, signal.SIGKILL)


def test_looking_never_stops_a_start(path: Path) -> None:
    Lock.acquire(path).release()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            holder(path)

    onlookers = [threading.Thread(target=look) for _ in range(4)]
    for each in onlookers:
        each.start()
    try:
        for _ in range(50):
            Lock.acquire(path, patience=30).release()
    finally:
        stop.set()
        for each in onlookers:
            each.join()


def test_a_look_that_lasts_is_waited_for(path: Path) -> None:
    path.touch()
    fd = os.open(path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_SH)
    closing = threading.Timer(0.05, os.close, [fd])
    closing.start()
    Lock.acquire(path, patience=30).release()
    closing.join()


def test_looking_makes_no_file(path: Path) -> None:
    assert holder(path) is None
    assert not path.exists()


def test_what_stands_in_the_file_decides_nothing(path: Path) -> None:
    path.write_text(f'{{"pid": {os.getpid()}}}')
    assert holder(path) is None
    lock = Lock.acquire(path)
    for content in ("", "{", "[]", "garbage", '{"pid": "x"}'):
        path.write_text(content)
        assert holder(path) == Holder()
    with pytest.raises(AlreadyRunning, match="already running"):
        Lock.acquire(path, patience=0)
    lock.release()
    assert holder(path) is None


def test_a_replaced_file_is_noticed(path: Path) -> None:
    lock = Lock.acquire(path)
    assert lock.intact()
    path.rename(path.with_name("gone"))
    assert not lock.intact()
    path.touch()
    assert not lock.intact()
    lock.release()


def test_it_is_private_and_no_link_is_followed(path: Path, tmp_path: Path) -> None:
    Lock.acquire(path).release()
    assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        Lock.acquire(path)
    assert not (tmp_path / "elsewhere").exists()


def test_releasing_twice_closes_nothing_else(path: Path) -> None:
    lock = Lock.acquire(path)
    lock.release()
    fd = os.open(path, os.O_RDONLY)
    lock.release()
    os.fstat(fd)
    os.close(fd)
