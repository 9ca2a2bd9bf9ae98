"""The file operations: whole or not there, never over something, never through something."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from select import select

import pytest

from daemon.durable import Files
from daemon.errors import NotNow


class Failing(Files):
    """Refuses at one point."""

    def __init__(self, at: str, number: int = errno.ENOSPC) -> None:
        super().__init__()
        self._at = at
        self._number = number

    def before(self, name: str, *args: object) -> None:
        if name == self._at:
            raise OSError(self._number, os.strerror(self._number), str(args[0]))


class Told(Files):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def before(self, name: str, *args: object) -> None:
        self.told.append(f"before {name}")

    def after(self, name: str, *args: object) -> None:
        self.told.append(f"after {name}")


def test_create_makes_a_private_file_and_never_replaces_one(tmp_path: Path) -> None:
    path = tmp_path / "a"
    Files().create(path, b"one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        Files().create(path, b"two")
    assert path.read_bytes() == b"one"


def test_create_does_not_follow_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(FileExistsError):
        Files().create(tmp_path / "link", b"x")
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("at", ["write", "fsync"])
def test_a_refused_create_leaves_nothing(tmp_path: Path, at: str) -> None:
    with pytest.raises(OSError, match="No space"):
        Failing(at).create(tmp_path / "a", b"x")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("at", ["create", "write", "fsync", "replace"])
def test_a_refused_publish_leaves_the_old_file_and_no_temp(tmp_path: Path, at: str) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(OSError, match="No space"):
        Failing(at).publish(tmp_path / "a", b"new")
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_publish_is_announced_in_the_order_that_makes_it_durable(tmp_path: Path) -> None:
    files = Told()
    files.publish(tmp_path / "a", b"x")
    assert [told for told in files.told if told.startswith("before")] == [
        f"before {name}" for name in ("create", "write", "fsync", "replace", "sync_dir")
    ]


def test_every_operation_is_announced_before_and_after(tmp_path: Path) -> None:
    files = Told()
    one, other = tmp_path / "one", tmp_path / "other"
    steps: list[tuple[str, Callable[[], None]]] = [
        ("create", lambda: files.create(one, b"1")),
        ("move", lambda: files.move(one, other)),
        ("create", lambda: files.create(one, b"2")),
        ("exchange", lambda: files.exchange(one, other)),
        ("replace", lambda: files.replace(one, other)),
        ("append", lambda: files.append(other, b"3\n")),
        ("unlink", lambda: files.unlink(other)),
        ("make_dir", lambda: files.make_dir(tmp_path / "d")),
        ("sync_dir", lambda: files.sync_dir(tmp_path)),
    ]
    for name, step in steps:
        files.told.clear()
        step()
        assert files.told[0] == f"before {name}"
        assert files.told[-1] == f"after {name}"


def test_move_never_overwrites(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"1")
    other.write_bytes(b"2")
    with pytest.raises(FileExistsError):
        Files().move(one, other)
    assert (one.read_bytes(), other.read_bytes()) == (b"1", b"2")
    other.unlink()
    Files().move(one, other)
    assert other.read_bytes() == b"1"


def test_move_names_the_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        Files().move(tmp_path / "gone", tmp_path / "b")
    assert caught.value.filename == str(tmp_path / "gone")


def test_exchange_swaps_both(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"1")
    other.write_bytes(b"2")
    Files().exchange(one, other)
    assert (one.read_bytes(), other.read_bytes()) == (b"2", b"1")


def test_unlink_of_what_is_gone_is_fine(tmp_path: Path) -> None:
    Files().unlink(tmp_path / "gone")


def test_make_dirs_makes_the_missing_ones_private(tmp_path: Path) -> None:
    Files().make_dirs(tmp_path / "a/b/c")
    Files().make_dirs(tmp_path / "a/b/c")
    assert stat.S_IMODE((tmp_path / "a/b").stat().st_mode) == 0o700


def test_the_name_of_a_new_file_of_lines_is_synced_before_its_first_line(tmp_path: Path) -> None:
    files = Told()
    files.append(tmp_path / "log", b"one\n")
    order = [
        "before append",
        "before sync_dir",
        "after sync_dir",
        "before write",
        "before fsync",
        "after append",
    ]
    assert files.told == order
    files.told.clear()
    files.append(tmp_path / "log", b"two\n")
    assert files.told == ["before append", "before write", "before fsync", "after append"]


def test_a_probe_that_could_not_be_removed_goes_with_the_next_wherever_it_looks(tmp_path: Path) -> None:
    class Stuck(Files):
        left = 0

        def before(self, name: str, *args: object) -> None:
            self.left += name == "unlink"
            if name == "unlink" and self.left == 2:
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(args[0]))

    (tmp_path / "other").mkdir()
    files = Stuck()
    with pytest.raises(OSError):
        files.probe(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    files.probe(tmp_path / "other")
    assert list(tmp_path.rglob("*")) == [tmp_path / "other"]


def test_what_a_stopped_probe_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in (".probe.0123456789ab.tmp", ".probe.tmp", "a.md"):
        (tmp_path / name).touch()
    Files().clear_probes(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".probe.tmp", "a.md"]


@pytest.mark.parametrize(
    ("there", "wanted"), [(b"", b"new\n"), (b"old\n", b"old\nnew\n"), (b'{"to', b'{"to\nnew\n')]
)
def test_append_ends_a_torn_line_first(tmp_path: Path, there: bytes, wanted: bytes) -> None:
    (tmp_path / "log").write_bytes(there)
    Files().append(tmp_path / "log", b"new\n")
    assert (tmp_path / "log").read_bytes() == wanted


# -- opening ---------------------------------------------------------------------------------------


def _symlink(path: Path) -> None:
    (path.parent / "target").write_bytes(b"x")
    path.symlink_to(path.parent / "target")


@pytest.mark.parametrize(
    ("make", "error"),
    [(_symlink, OSError), (os.mkfifo, NotNow), (Path.mkdir, NotNow)],
    ids=["symlink", "fifo", "directory"],
)
def test_only_a_regular_file_is_opened(
    tmp_path: Path, make: Callable[[Path], None], error: type[Exception]
) -> None:
    make(tmp_path / "odd.md")
    with pytest.raises(error), Files().opened(tmp_path / "odd.md"):
        pass


def test_a_device_is_not_opened() -> None:
    with pytest.raises(NotNow, match="regular"), Files().opened(Path("/dev/null")):
        pass


def test_nothing_stays_open(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    os.mkfifo(tmp_path / "fifo")
    before = os.listdir("/proc/self/fd")
    with Files().opened(tmp_path / "a") as opened:
        opened.lease()
    with pytest.raises(NotNow), Files().opened(tmp_path / "fifo"):
        pass
    assert os.listdir("/proc/self/fd") == before


def test_read_stops_one_byte_after_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    assert Files().read(tmp_path / "a", 4) == b"01234"
    assert Files().read(tmp_path / "a") == b"0123456789"


# -- leases ----------------------------------------------------------------------------------------

OPEN = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY)
print("open", flush=True)
sys.stdin.read()
"""


def _open_for_writing(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", OPEN, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_no_lease_while_another_program_has_it_open_for_writing(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(b"x")
    with _open_for_writing(path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        with Files().opened(path) as opened, pytest.raises(NotNow, match=r"a\.md is open for writing"):
            opened.lease()
        process.kill()
    with Files().opened(path) as opened:
        opened.lease()
        assert opened.leased


def test_a_writer_that_comes_waits_for_the_lease_and_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(b"x")
    with ExitStack() as stack:
        opened = stack.enter_context(Files().opened(path))
        opened.lease()
        assert not opened.lease_broken()
        process = _open_for_writing(path)
        try:
            deadline = time.monotonic() + 20
            while not opened.lease_broken():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert process.stdout is not None
            assert select([process.stdout], [], [], 0.1)[0] == []
            stack.close()
            assert process.stdout.readline() == "open\n"
        finally:
            process.kill()
            process.communicate()


def test_the_signal_of_a_broken_lease_does_not_end_the_process() -> None:
    Files()
    assert signal.getsignal(signal.SIGIO) is signal.SIG_IGN


# -- a failed fsync --------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ["create", "publish", "append", "sync_dir"])
def test_a_failed_fsync_is_never_retried_on_the_same_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    """The kernel tells a failure once: a second fsync of that descriptor succeeds, and the data is not on disk."""
    target = tmp_path if act == "sync_dir" else tmp_path / "a"
    words = () if act == "sync_dir" else (b"words\n",)
    synced: list[tuple[int, int]] = []

    def refuse(fd: int) -> None:
        synced.append((fd, os.fstat(fd).st_ino))
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        with pytest.raises(OSError, match="Input/output"):
            getattr(Files(), act)(target, *words)
    assert len(synced) == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(synced[0][0])
    if act in ("create", "publish"):
        assert os.listdir(tmp_path) == []  # what could not be synced is not taken for whole by anybody
    getattr(Files(), act)(target, *words)
    if words:
        assert target.read_bytes().endswith(b"words\n")


class _Stopped(Exception):
    pass


def test_a_file_is_supplanted_without_a_moment_in_which_neither_has_the_name(tmp_path: Path) -> None:
    class Watched(Files):
        stop_at, count = 99, 0

        def before(self, op: str, *paths: Path) -> None:
            self.count += 1
            if self.count > self.stop_at:
                raise _Stopped

    path = tmp_path / "spec.md"
    steps = 0
    while True:
        path.unlink(missing_ok=True)
        path.write_text("theirs")
        files = Watched()
        files.stop_at = steps
        try:
            files.supplant(path, b"ours")
            break
        except _Stopped:
            assert path.read_text() in ("theirs", "ours")
        for left in tmp_path.glob("*.odd-*"):
            left.unlink()
        steps += 1
    assert steps >= 4
    assert path.read_text() == "ours"
    assert [left.read_text() for left in tmp_path.glob("*.odd-*")] == ["theirs"]


@pytest.mark.parametrize("there", ["nothing", "directory", "link"])
def test_what_is_supplanted_may_be_anything(tmp_path: Path, there: str) -> None:
    path = tmp_path / "spec.md"
    if there == "directory":
        path.mkdir()
    elif there == "link":
        path.symlink_to("nowhere")
    (tmp_path / "spec.md.odd-1").write_text("an older one")
    Files().supplant(path, b"ours")
    assert path.read_bytes() == b"ours"
    assert (tmp_path / "spec.md.odd-1").read_text() == "an older one"
    assert os.path.lexists(tmp_path / "spec.md.odd-2") == (there != "nothing")
