"""Follows growing files, in bounded memory, woken by the kernel."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

LINE_LIMIT = 4 << 20  # one event of an agent may hold a whole file; more than this is a fault of its own


class Lines:
    """The complete lines of a file that grows, in order, each once.

    keep: when more than this many unread bytes wait, the oldest are skipped
    so that about `keep` are left, and `skipped` counts them. None: nothing is skipped.
    """

    def __init__(self, path: Path, *, keep: int | None = None, limit: int = LINE_LIMIT) -> None:
        self.path = path
        self.size = 0
        self.skipped = 0
        self._keep = keep
        self._limit = limit
        self._file: int | None = None
        self._offset = 0
        self._partial = bytearray()
        self._overlong = 0
        self._torn = False

    def read(self, budget: int = 1 << 20) -> list[bytes]:
        """The lines of the next `budget` bytes. [] does not mean the end: see `waiting`."""
        if not self._open():
            return []
        assert self._file is not None
        self.size = os.fstat(self._file).st_size
        if self._keep is not None and self.size - self._offset > 2 * self._keep:
            self._skip_to(self.size - self._keep)
        data = os.pread(self._file, budget, self._offset)
        self._offset += len(data)
        if self._torn and data:
            _, newline, data = data.partition(b"\n")
            self._torn = not newline
        *complete, rest = data.split(b"\n")
        lines = []
        for part in complete:
            self._add(part)
            lines.append(self._finish())
        self._add(rest)
        return lines

    @property
    def waiting(self) -> bool:
        """Whether there were unread bytes when it was last read."""
        return self._offset < self.size

    def rest(self) -> list[bytes]:
        """The last line if it has no newline: for when the file has ended."""
        return [self._finish()] if self._partial else []

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> bool:
        if self._file is None:
            try:
                self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
        return True

    def _skip_to(self, offset: int) -> None:
        self.skipped += offset - self._offset + len(self._partial)
        self._offset = offset
        self._partial.clear()
        self._overlong = 0
        self._torn = True

    def _add(self, part: bytes) -> None:
        room = self._limit - len(self._partial)
        self._partial += part[:room]
        self._overlong += max(0, len(part) - room)

    def _finish(self) -> bytes:
        line = bytes(self._partial)
        if self._overlong:
            line += f" … ({self._overlong:,} more bytes)".encode()
        self._partial.clear()
        self._overlong = 0
        return line


_CREATE, _MODIFY, _MOVED_TO = 0x100, 0x2, 0x80


class Wake:
    """Becomes readable when something changes in a watched directory (inotify).

    `available` is False where the kernel gives no more of them: then poll.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        self._watched: set[Path] = set()
        self.available = self._fd >= 0

    def fileno(self) -> int:
        return self._fd

    def watch(self, directory: Path) -> None:
        """Watch a directory once it is there; cheap to repeat."""
        if not self.available or directory in self._watched or not directory.is_dir():
            return
        mask = _CREATE | _MODIFY | _MOVED_TO
        if self._libc.inotify_add_watch(self._fd, os.fsencode(directory), mask) >= 0:
            self._watched.add(directory)
        elif not self._watched:
            self.close()

    def drain(self) -> None:
        """Forget what happened so far."""
        if not self.available:
            return
        try:
            while os.read(self._fd, 1 << 16):
                pass
        except BlockingIOError:
            return

    def close(self) -> None:
        if self.available:
            os.close(self._fd)
            self.available = False
