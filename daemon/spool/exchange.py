"""Rewrite a file that a person may be saving at this very moment, and lose neither side.

Invariants kept here:

* the rewritten file is whole at every moment, under its own name;
* what was at the path comes out into ``.displaced/`` and is looked at before it goes: what a person
  wrote there, before or after the swap, is merged, and only then removed;
* the name of a displaced file says what it must contain if nobody touched it, and where it came from:
  ``<session>.<hash of ours>.<hash of what we read>.<random>.md``; so nothing has to be remembered over a
  crash. It gets that name when it is whole; until then its name begins with a dot, and it may be deleted.
"""

from __future__ import annotations

import contextlib
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
#: Before the hash of ours: it holds a text of a person that was not in what we read.
MERGED = "merged-"
#: In place of the hash of what we read: a person saved it, where it was to be run.
AGAIN = "again-"

Merge = Callable[[str, bytes, str, bool], None]


def content_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


class Exchange:
    def __init__(self, displaced: Path, files: Files) -> None:
        self._displaced = displaced
        self._files = files
        self._pending: set[str] | None = None
        #: Something was displaced since the last sweep.
        self.fresh = False

    def rewrite(
        self, path: Path, session: str, patch: Callable[[bytes], bytes], *, merging: bool = False
    ) -> bytes:
        """Replace the file's content by `patch` of it; returns what is there now.

        merging: `patch` brings in another text of a person. Then a save that
        went into the old file knows nothing of that text, and must not take
        the new file for something that only we have written.

        Raises NotNow (nothing changed) when somebody has it open for
        writing. A save that comes in between is patched in its turn; one that
        cannot be any more is merged by the sweep.
        """
        ours: bytes | None = None
        theirs = b""
        for _ in range(8):
            with self._files.opened(path) as opened:
                opened.lease()
                old = opened.read(LIMIT)
                if len(old) > LIMIT:
                    raise NotNow(f"{path.name} is larger than {LIMIT >> 20} MB; megaHarness leaves it alone")
                # What we put there a moment ago gives way to the save that it displaced, and to no other.
                merging = merging or old == ours
                new = patch(theirs if old == ours else old)
                if new == old:
                    return old
                stem = f"{session}.{MERGED if merging else ''}{content_hash(new)}.{content_hash(old)}"
                temp = self._make(stem, new, opened.stat.st_mode & 0o777)
                if opened.lease_broken():
                    self._remember(temp)
                    self._files.unlink(temp)
                    raise NotNow(f"{path.name} is being saved in another program")
                try:
                    self._files.exchange(temp, path)
                except FileNotFoundError:
                    # It was moved away between the read and the swap.
                    self._files.unlink(temp)
                    raise NotNow(f"{path.name} was moved away") from None
                finally:
                    # Whatever happened: what lies there is looked at before it goes.
                    self._remember(temp)
            self._files.sync_dir(path.parent)
            self._files.sync_dir(self._displaced)
            came_out = self._come_out(temp)
            if came_out in (None, old):
                return new
            # A save by rename fell between read and swap.
            ours, theirs = new, came_out
        raise NotNow(f"{path.name} changes faster than it can be rewritten")

    def _come_out(self, temp: Path) -> bytes | None:
        """What was at the path. None: a program is writing it, so it is no text yet, and the sweep waits for it."""
        with self._files.opened(temp) as opened:
            try:
                opened.lease()
            except NotNow:
                return None
            return opened.read(LIMIT)

    def _make(self, stem: str, new: bytes, mode: int) -> Path:
        """The temp to swap with. It gets its name when it is whole: a torn one must never pass for a person's text."""
        temp = self._displaced / f"{stem}.{secrets.token_hex(6)}.md"
        making = self._displaced / f".{temp.name}"
        try:
            self._files.create(making, new, mode)
            self._files.replace(making, temp)
        except OSError:
            # A disk that takes no writes lets nothing be removed either.
            self._remember(making)
            with contextlib.suppress(OSError):
                os.unlink(making)
            raise
        return temp

    def _remember(self, path: Path) -> None:
        """The next sweep looks at it."""
        if self._pending is not None:
            self._pending.add(path.name)
        self.fresh = True

    def set_aside(self, path: Path, session: str, *, again: bool) -> None:
        """Take a file away whose text the next sweep is to merge: it came after its item was taken or settled."""
        origin = AGAIN if again else MERGED
        aside = self._displaced / f"{session}.{MERGED}.{origin}.{secrets.token_hex(6)}.md"
        self._remember(aside)
        self._files.move(path, aside)
        self._files.sync_dir(self._displaced)
        self._files.sync_dir(path.parent)

    def sweep(self, wall: float, merge: Merge) -> float | None:
        """Look at displaced files; returns the seconds until the next look, None when none is left.

        `merge(session, theirs, ours, again)` is called for a file that holds
        something that nobody has seen yet: `theirs` its bytes, `ours` the
        `content_hash` of what we had put in its place ("" when that held
        another text of a person), `again` as it was set aside. When it
        returns, the text is safe elsewhere and the file goes; after a crash
        it may be called once more.
        """
        self.fresh = False
        if self._pending is None:
            self._pending = set(os.listdir(self._displaced))
        fault: Exception | None = None
        for name in sorted(self._pending):
            try:
                if self._look(name, wall, merge):
                    self._pending.discard(name)
            except Exception as error:  # noqa: BLE001  # one that cannot be merged keeps no other waiting
                fault = fault or error
        if fault is not None:
            raise fault
        return QUIET if self._pending else None

    def _look(self, name: str, wall: float, merge: Merge) -> bool:
        """Judge one displaced file; False: later."""
        path = self._displaced / name
        if name.startswith("."):
            self._files.unlink(path)  # it was never swapped
            return True
        parts = name.split(".")
        if len(parts) != 5:
            return True  # not ours; leave it alone
        if not os.path.lexists(path):
            return True
        session, base = parts[0], parts[2]
        ours = parts[1].removeprefix(MERGED)
        try:
            with self._files.opened(path) as opened:
                if 0 <= wall - opened.stat.st_ctime < QUIET:
                    return False
                opened.lease()
                content = opened.read(LIMIT)
                if content_hash(content) not in (ours, base):
                    merge(session, content, "" if parts[1].startswith(MERGED) else ours, base == AGAIN)
                # The lease is held to here: nobody can have written since it was read.
                if opened.lease_broken():
                    return False
                self._files.unlink(path)
        except NotNow:
            return False
        return True
