"""Wakes when a chosen file appears in a workspace: how a kill is aimed at a phase."""

from __future__ import annotations

import ctypes
import os
import select
import struct
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_CREATE, _MOVED_TO = 0x100, 0x80
_HEAD = struct.Struct("iIII")  # inotify(7): wd, mask, cookie, len


class Moments:
    """Files that appear: (folder, name). `folder` is a folder of tracks/, or the name of a session."""

    def __init__(self, root: Path) -> None:
        self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._folders: dict[int, str] = {}
        self._seen: deque[tuple[str, str]] = deque()
        self._sessions = root / "sessions"
        for folder in ("active", "done", "failed", ".displaced"):
            self._watch(root / "tracks" / folder, folder)
        self._watch(self._sessions, "sessions")

    def close(self) -> None:
        os.close(self._fd)

    def forget(self) -> None:
        """What has appeared until now is no moment any more."""
        self._read()
        self._seen.clear()

    def wait(self, wanted: Callable[[str, str], bool], seconds: float) -> tuple[str, str] | None:
        """The next one that is wanted; None: it did not come in time."""
        until = time.monotonic() + seconds
        while True:
            self._read()
            while self._seen:
                moment = self._seen.popleft()
                if wanted(*moment):
                    return moment
            left = until - time.monotonic()
            if left <= 0:
                return None
            select.select([self._fd], [], [], left)

    def _watch(self, path: Path, folder: str) -> None:
        wd = _libc.inotify_add_watch(self._fd, os.fsencode(path), _CREATE | _MOVED_TO)
        if wd < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch", str(path))
        self._folders[wd] = folder

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._fd, 1 << 16)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                wd, _, _, length = _HEAD.unpack_from(data, at)
                name = os.fsdecode(data[at + _HEAD.size : at + _HEAD.size + length].rstrip(b"\0"))
                at += _HEAD.size + length
                folder = self._folders.get(wd, "")
                if folder == "sessions":
                    self._session(name)
                else:
                    self._seen.append((folder, name))

    def _session(self, name: str) -> None:
        """A new one: what came into it before it was watched has appeared too."""
        try:
            self._watch(self._sessions / name, name)
            self._seen.extend((name, found) for found in os.listdir(self._sessions / name))
        except FileNotFoundError:
            pass  # it was not claimed before a kill, and the next daemon has tidied it away
