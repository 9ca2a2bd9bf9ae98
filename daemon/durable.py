"""Every file operation on which "nothing lost, nothing twice" rests, in one small class.

Invariants kept here:

* a published file is whole and on disk, or it is not there (temp, fsync, rename, fsync of the directory);
* a move between folders never overwrites (``renameat2(RENAME_NOREPLACE)``);
* a rewrite of a file that a person may be editing swaps, so that what was there comes out and can be
  looked at (``RENAME_EXCHANGE``);
* a file is never opened through a symlink, and never blocks on a fifo.

Each operation calls `before` and `after` on itself. They do nothing here; a
test's subclass stops the world there, which is how the protocol is proven.

Source of the calls: renameat2(2), fcntl(2) "Leases", open(2). Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import re
import secrets
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from daemon.errors import NotNow

RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2
AT_FDCWD = -100

#: The disk is the problem, not the track: claims stop, and start again when it has gone.
DISK_ERRORS = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EIO,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.EMFILE,
        errno.ENFILE,
    }
)
#: Of these, what one file alone can be the reason of: its permissions, or an attribute (chattr).
ONE_FILE = frozenset({errno.EACCES, errno.EPERM})

_PROBE = re.compile(r"\.probe\.[0-9a-f]{12}\.tmp")

_libc = ctypes.CDLL(None, use_errno=True)

P = ParamSpec("P")
R = TypeVar("R")


def operation(
    method: Callable[Concatenate[Files, P], R],
) -> Callable[Concatenate[Files, P], R]:
    """Let a test stop the world before and after this method."""

    @functools.wraps(method)
    def stepped(self: Files, *args: P.args, **kwargs: P.kwargs) -> R:
        self.before(method.__name__, *args)
        result = method(self, *args, **kwargs)
        self.after(method.__name__, *args)
        return result

    return stepped  # type: ignore[return-value]  # `wraps` forgets that self is positional


def _beside(path: Path, put: Callable[[Path], None]) -> Path:
    """Put something at the first of ``<name>.odd-1``, ``-2``, ... that is free. Returns where."""
    number = 1
    while True:
        aside = path.with_name(f"{path.name}.odd-{number}")
        try:
            put(aside)
        except FileExistsError:
            number += 1
            continue
        return aside


def _renameat2(old: Path, new: Path, flags: int) -> None:
    if _libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(old), None, str(new))


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


class Opened:
    """A regular file open for reading, perhaps under a read lease."""

    def __init__(self, fd: int, path: Path) -> None:
        self.fd = fd
        self.path = path
        self.stat = os.fstat(fd)
        self.leased = False

    def lease(self) -> None:
        """Take a read lease: from here on a writer waits for us.

        Raises NotNow when somebody has the file open for writing. Where the
        file system has no leases nothing happens: the ctime rule stands alone.
        """
        try:
            fcntl.fcntl(self.fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError as error:
            if error.errno == errno.EAGAIN:
                raise NotNow(f"{self.path.name} is open for writing in another program") from error
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.EACCES, errno.ENOLCK):
                raise
        else:
            self.leased = True

    def lease_broken(self) -> bool:
        """Whether somebody asked to write since the lease was granted (and waits now)."""
        return self.leased and fcntl.fcntl(self.fd, fcntl.F_GETLEASE) != fcntl.F_RDLCK

    def read(self, limit: int) -> bytes:
        """The whole content from the start; at most `limit` + 1 bytes."""
        parts, offset = [], 0
        while offset <= limit:
            part = os.pread(self.fd, min(1 << 20, limit + 1 - offset), offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
        return b"".join(parts)

    def close(self) -> None:
        os.close(self.fd)  # releases the lease too


class Files:
    """The only hands that touch the spool."""

    def __init__(self) -> None:
        # A lease break is announced by SIGIO, whose default is to end the process.
        with contextlib.suppress(ValueError):  # not the main thread: the main thread has done it
            signal.signal(signal.SIGIO, signal.SIG_IGN)
        self._mark = secrets.token_hex(6)
        #: Files of `probe` that may still be there.
        self._probes: set[Path] = set()

    def before(self, name: str, *args: object) -> None:
        """A test stops here."""

    def after(self, name: str, *args: object) -> None:
        """And here."""

    # -- reading -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def opened(self, path: Path) -> Iterator[Opened]:
        """Open a regular file for reading, never through a symlink. Raises OSError, NotNow."""
        self.before("open", path)
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            opened = Opened(fd, path)
            if not stat.S_ISREG(opened.stat.st_mode):
                raise NotNow(f"{path.name} is not a regular file")
        except BaseException:
            os.close(fd)
            raise
        try:
            yield opened
        finally:
            opened.close()

    def read(self, path: Path, limit: int = 64 << 20) -> bytes:
        with self.opened(path) as opened:
            return opened.read(limit)

    # -- single steps --------------------------------------------------------------------------

    @operation
    def create(self, path: Path, data: bytes, mode: int = 0o600) -> None:
        """Make a new file, whole and on disk; an existing one is an error (FileExistsError).

        When the disk refuses, no part of it is left.
        """
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            self.before("write", path)
            write_all(fd, data)
            self.before("fsync", path)
            os.fsync(fd)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        finally:
            os.close(fd)

    @operation
    def replace(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    @operation
    def move(self, old: Path, new: Path) -> None:
        """Rename, never over something: FileExistsError if `new` is there."""
        _renameat2(old, new, RENAME_NOREPLACE)

    @operation
    def exchange(self, one: Path, other: Path) -> None:
        """Both paths swap their files, at once."""
        _renameat2(one, other, RENAME_EXCHANGE)

    @operation
    def unlink(self, path: Path) -> None:
        """Remove a file; it may be gone already."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    @operation
    def sync_dir(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    @operation
    def make_dir(self, path: Path) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)

    @operation
    def append(self, path: Path, data: bytes) -> None:
        """Add whole lines to an append-only file, on disk; a torn last line of a crash is ended first."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                data = b"\n" + data
            if not size:
                self.sync_dir(path.parent)  # it may be new: a synced line is nothing without a synced name
            self.before("write", path)
            write_all(fd, data)
            self.before("fsync", path)
            os.fsync(fd)
        finally:
            os.close(fd)

    # -- made of steps -------------------------------------------------------------------------

    def publish(self, path: Path, data: bytes, *, mode: int = 0o600) -> None:
        """Make or replace a file so that a reader sees the old one or the new one, whole."""
        temp = path.parent / f".{path.name}.{secrets.token_hex(6)}.tmp"
        try:
            self.create(temp, data, mode)
            try:
                self.replace(temp, path)
            except IsADirectoryError:
                # Not ours, and nothing that can be written over: an agent can make one in its session.
                self.put_aside(path)
                self.replace(temp, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temp)
            raise
        self.sync_dir(path.parent)

    def put_aside(self, path: Path) -> Path:
        """Make way: what lies there is called ``<name>.odd-1`` from now on. Returns where it is."""
        aside = _beside(path, lambda aside: self.move(path, aside))
        self.sync_dir(path.parent)
        return aside

    def supplant(self, path: Path, data: bytes) -> None:
        """`publish`, but what lies there is kept, as ``<name>.odd-1``: whatever happens, one of them has the name."""
        aside = _beside(path, lambda aside: self.create(aside, data))
        try:
            self.exchange(aside, path)
        except FileNotFoundError:
            self.move(aside, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(aside)
            raise
        self.sync_dir(path.parent)

    def probe(self, folder: Path) -> None:
        """Make a small file here, on disk, and remove it. Raises OSError: the disk takes no writes."""
        path = folder / f".probe.{self._mark}.tmp"
        # The same name each time: what one try could not remove, the next one does, wherever it looks.
        for left in self._probes - {path}:
            with contextlib.suppress(OSError):
                self.unlink(left)
                self._probes.discard(left)
        self._probes.add(path)
        self.unlink(path)
        self.create(path, b"x" * 4096)
        self.unlink(path)
        self._probes.discard(path)

    def clear_probes(self, folder: Path) -> None:
        """Remove what a daemon that was stopped in the middle of a `probe` has left here. One that stays is litter."""
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                if _PROBE.fullmatch(name):
                    self.unlink(folder / name)

    def takes_writes(self, folder: Path) -> bool:
        """Whether the disk takes a new file here. A folder that is not there says nothing against the disk."""
        try:
            self.probe(folder)
        except OSError as error:
            return error.errno not in DISK_ERRORS
        return True

    def make_dirs(self, path: Path) -> None:
        """Make a directory and its missing parents, on disk."""
        if not os.path.isdir(path):
            self.make_dirs(path.parent)
            self.make_dir(path)
            self.sync_dir(path.parent)
