"""Rewrite a file that a person may be saving at this very moment, and lose neither side.

Invariants kept here:

* the rewritten file is whole at every moment, under its own name;
* what was at the path comes out into ``.displaced/`` and is looked at before it goes: what a person
  wrote there, before or after the swap, is merged, and only then removed;
* the name of a displaced file says what it must contain if nobody touched it:
  ``<session>.<hash of ours>.<hash of what we read>.<random>``; so nothing has to be remembered over a crash.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from daemon.durable import Files
from daemon.errors import NotNow

#: Seconds a displaced file must have been left alone before it is judged: an editor that had it open,
#: or was blocked by our lease, writes into it after the swap.
QUIET = 3.0
LIMIT = 64 << 20

Merge = Callable[[str, bytes, str], None]


def content_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


class Exchange:
    def __init__(self, displaced: Path, files: Files) -> None:
        self._displaced = displaced
        self._files = files
        self._pending: set[str] | None = None
        #: Something was displaced since the last sweep.
        self.fresh = False

    def rewrite(self, path: Path, session: str, patch: Callable[[bytes], bytes]) -> bytes:
        """Replace the file's content by `patch` of it; returns what is there now.

        Raises NotNow (nothing changed) when somebody has it open for
        writing. A save that comes in between is patched in its turn.
        """
        for _ in range(8):
            with self._files.opened(path) as opened:
                opened.lease()
                old = opened.read(LIMIT)
                new = patch(old)
                if new == old:
                    return old
                temp = self._displaced / (
                    f"{session}.{content_hash(new)}.{content_hash(old)}.{secrets.token_hex(6)}.md"
                )
                self._files.create(temp, new, opened.stat.st_mode & 0o777)
                if opened.lease_broken():
                    self._files.unlink(temp)
                    raise NotNow(f"{path.name} is being saved in another program")
                try:
                    self._files.exchange(temp, path)
                except FileNotFoundError:
                    # It was moved away between the read and the swap.
                    self._files.unlink(temp)
                    raise NotNow(f"{path.name} was moved away") from None
                if self._pending is not None:
                    self._pending.add(temp.name)
                self.fresh = True
            self._files.sync_dir(path.parent)
            self._files.sync_dir(self._displaced)
            came_out = self._files.read(temp)
            if came_out == old:
                return new
            # A save by rename fell between read and swap. Its text is in `temp`; ours is at the path.
            # Merging it is what the sweep does anyway; do it at once, so that the result is complete.
            self._merge_now(path, session, came_out, patch)
            return self._files.read(path)
        raise NotNow(f"{path.name} changes faster than it can be rewritten")

    def _merge_now(self, path: Path, session: str, theirs: bytes, patch: Callable[[bytes], bytes]) -> None:
        def on_top(_: bytes) -> bytes:
            return patch(theirs)

        self.rewrite(path, session, on_top)

    def sweep(self, wall: float, merge: Merge) -> float | None:
        """Look at displaced files; returns the seconds until the next look, None when none is left.

        `merge(session, theirs, ours)` is called for a file that holds
        something that nobody has seen yet: `theirs` its bytes, `ours` the
        `content_hash` of what we had put in its place. When it returns, the
        text is safe elsewhere and the file goes.
        """
        self.fresh = False
        if self._pending is None:
            self._pending = set(os.listdir(self._displaced))
        for name in sorted(self._pending):
            if self._look(name, wall, merge):
                self._pending.discard(name)
        return QUIET if self._pending else None

    def _look(self, name: str, wall: float, merge: Merge) -> bool:
        path = self._displaced / name
        parts = name.split(".")
        try:
            with self._files.opened(path) as opened:
                quiet_for = wall - opened.stat.st_ctime
                if 0 <= quiet_for < QUIET:
                    return False
                try:
                    opened.lease()
                except NotNow:
                    return False
                content = opened.read(LIMIT)
        except FileNotFoundError:
            return True
        if len(parts) < 4:
            return True  # not ours; leave it alone
        session, ours, base = parts[0], parts[1], parts[2]
        if content_hash(content) not in (ours, base):
            merge(session, content, ours)
        self._files.unlink(path)
        return True
