"""Measuring a transcript while it grows: each look costs what was added."""

from __future__ import annotations

import os
from pathlib import Path

from adapters.transcripts.account import Account, Figures
from adapters.transcripts.events import Skipped
from adapters.transcripts.reader import PIECE, Reader


class Following:
    """The figures of one file that somebody else writes.

    A file that became shorter, or was replaced, is read anew into the same
    account: what was counted once is neither lost nor counted again. A line
    that has not ended yet waits for its end.
    """

    def __init__(self, path: Path, reader: type[Reader]) -> None:
        self.path = path
        self._make = reader
        self._account = Account()
        self._start()

    def _start(self) -> None:
        self._reader = self._make(False)
        self._offset = 0
        self._inode = 0
        self._read = (0, 0)

    def look(self) -> bool:
        """Read what was added; whether there was anything. A missing file has nothing yet. Raises OSError."""
        try:
            file = self.path.open("rb", buffering=0)
        except FileNotFoundError:
            return False
        with file:
            state = os.fstat(file.fileno())
            if self._inode and (state.st_ino != self._inode or state.st_size < self._offset):
                self._start()
            self._inode = state.st_ino
            if self._make.whole:
                return self._whole(file.fileno(), state)
            if state.st_size == self._offset:
                return False
            file.seek(self._offset)
            while data := file.read(PIECE):
                self._offset += len(data)
                self._account.add(self._reader.feed(data))
        return True

    def _whole(self, fd: int, state: os.stat_result) -> bool:
        """A document is written anew each time, and can only be read whole."""
        if (state.st_mtime_ns, state.st_size) == self._read:
            return False
        self._read = (state.st_mtime_ns, state.st_size)
        reader = self._make(False)
        while data := os.read(fd, PIECE):
            self._account.add(reader.feed(data))
        events = reader.close()
        if not any(isinstance(each, Skipped) and each.torn for each in events):
            self._account.add(events)  # else somebody is still writing it, and it is looked at again
        return True

    def figures(self) -> Figures:
        """What is known by now."""
        return self._account.figures()
