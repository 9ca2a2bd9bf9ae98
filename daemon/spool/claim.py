"""When a file may be taken, and the taking.

Quiet means: it was renamed in within the watched tree and its ctime is still
the one seen then, or its ctime is at least 3 s old and no editor has a lock
file beside it; and in every case a read lease is granted. The ctime, not the
mtime: rsync and ``cp -p`` set the mtime back. "Parses" is not "complete".
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from daemon.errors import NotNow
from daemon.spool.states import ACTIVE, QUEUED, State
from daemon.spool.store import Entry, Store

QUIET_SECONDS = 3.0
#: The two clocks never part by more (s) unless one of them was set.
CLOCK_STEP = 0.5
#: An editor's lock file whose owner cannot be told counts for this long (s).
LOCK_EXPIRES = 12 * 3600.0
FILE_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class Quiet:
    """It may be taken now."""


@dataclass(frozen=True, slots=True)
class Stirring:
    """Not yet: look again at `until` (monotonic s); None: when something changes."""

    until: float | None
    why: str


class Stillness:
    """Remembers since when each file has not changed.

    A ctime is a time of the wall clock. One that is set forward makes every file look old, so from then on only
    what was changed after it is judged by its ctime, and all else by the monotonic clock since we saw it first.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[State, str], tuple[tuple[int, int, int], float]] = {}
        self._arrived: dict[tuple[State, str], int] = {}
        self._offset: float | None = None
        self._steady_since = float("-inf")

    def arrived(self, state: State, name: str, ctime_ns: int) -> None:
        """It was renamed in, whole, within the watched tree."""
        self._arrived[state, name] = ctime_ns

    def since(self, entry: Entry, mono: float) -> float:
        """Monotonic time since when the file is as it is, as far as we know."""
        key = (entry.state, entry.name)
        known = self._seen.get(key)
        if known is None or known[0] != entry.signature:
            self._seen[key] = known = (entry.signature, mono)
        return known[1]

    def unchanged_for(self, entry: Entry, mono: float, wall: float) -> float:
        """Seconds for which it has certainly not changed."""
        seen = mono - self.since(entry, mono)
        self._notice_steps(mono, wall)
        changed = entry.ctime_ns / 1e9
        return seen if changed < self._steady_since else max(seen, wall - changed)

    def _notice_steps(self, mono: float, wall: float) -> None:
        offset = wall - mono
        if self._offset is not None and abs(offset - self._offset) > CLOCK_STEP:
            self._steady_since = wall
        self._offset = offset

    def forget(self, state: State, name: str) -> None:
        """It is not there any more."""
        self._seen.pop((state, name), None)
        self._arrived.pop((state, name), None)

    def judge(self, entry: Entry, mono: float, wall: float, lock: str | None) -> Quiet | Stirring:
        still = self.unchanged_for(entry, mono, wall)
        if self._arrived.get((entry.state, entry.name)) == entry.ctime_ns:
            return Quiet()
        if lock is not None:
            return Stirring(None, f"open in an editor ({lock} lies beside it)")
        if still >= QUIET_SECONDS:
            return Quiet()
        return Stirring(mono + QUIET_SECONDS - still, "changed less than 3 s ago")


def editor_lock(folder: Path, name: str, others: frozenset[str], wall: float) -> str | None:
    """The name of a live editor's swap or lock file beside `name`, or None."""
    for candidate in (f".{name}.swp", f".#{name}", f".~lock.{name}#"):
        if candidate in others and not _stale(folder / candidate, wall):
            return candidate
    return None


def _stale(lock: Path, wall: float) -> bool:
    try:
        found = os.lstat(lock)
    except FileNotFoundError:
        return True
    pid = _owner(lock)
    if pid is not None:
        return not os.path.exists(f"/proc/{pid}")
    return wall - found.st_mtime > LOCK_EXPIRES


def _owner(lock: Path) -> int | None:
    """The process that made the lock, where it is told and was made on this machine.

    vim's swap file has the pid as 32 bits at offset 24 and the host name from
    offset 68 (block zero in vim's memline.c); Emacs' lock is a symlink to
    ``user@host.pid:boot``.
    """
    try:
        if lock.name.startswith(".#"):
            target = os.readlink(lock)
            owner, _, rest = target.rpartition(".")
            return int(rest.split(":")[0]) if owner.endswith(f"@{os.uname().nodename}") else None
        if lock.name.endswith(".swp"):
            with open(lock, "rb", opener=lambda p, f: os.open(p, f | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
                head = file.read(108)
            if (
                head[:2] == b"b0"
                and head[68:108].split(b"\0")[0].decode("utf-8", "replace") == os.uname().nodename
            ):
                return int(struct.unpack_from("<I", head, 24)[0])
    except (OSError, ValueError, struct.error):
        return None
    return None


def odd(entry: Entry, uid: int) -> str | None:
    """Why this directory entry is never taken; None when it is an ordinary file of ours."""
    if entry.kind != "file":
        return f"it is a {entry.kind}, not a file; megaHarness never opens one"
    if entry.uid != uid:
        return (
            f"it belongs to user {entry.uid}, not to you ({uid}); take it over with: "
            f"chown {uid} {entry.state}/{entry.name}"
        )
    if entry.links > 1:
        return f"it has {entry.links} hard links, so a change here would change another file; copy it instead"
    return None


def take(store: Store, entry: Entry, held: Collection[str] = ()) -> tuple[str, bytes]:
    """queued -> active; returns the name it has there and the bytes that were read under the lease.

    held: the names under which open sessions expect their own files, there or not: it gets none of them.
    Raises NotNow when somebody writes, or it is no longer the file that was
    looked at. When it was saved around the rename the file stays in active/
    without a session, and is taken there once it is quiet.
    """
    path = store.path(QUEUED, entry.name)
    with store.files.opened(path) as opened:
        now = opened.stat
        if (now.st_ino, now.st_ctime_ns, now.st_size) != entry.signature:
            raise NotNow(f"{entry.name} has just changed")
        opened.lease()
        name = store.move(entry.name, QUEUED, ACTIVE, avoid=held)
        data = opened.read(FILE_LIMIT)
        # A save by rename after the look moved another file than the one that is open here.
        if opened.lease_broken() or not _is_at(store.path(ACTIVE, name), now):
            raise NotNow(f"{entry.name} is being saved in another program")
    return name, data


def _is_at(path: Path, seen: os.stat_result) -> bool:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return (found.st_ino, found.st_dev) == (seen.st_ino, seen.st_dev)


def read_in_place(store: Store, entry: Entry) -> bytes:
    """Read a file that lies in active/ without a session, under a lease. Raises NotNow.

    A crash may have come between its rename and the fsync of the folders, which a claim must stand on.
    """
    store.sync(QUEUED, ACTIVE)
    with store.files.opened(store.path(entry.state, entry.name)) as opened:
        now = opened.stat
        if (now.st_ino, now.st_ctime_ns, now.st_size) != entry.signature:
            raise NotNow(f"{entry.name} has just changed")
        opened.lease()
        data = opened.read(FILE_LIMIT)
        if opened.lease_broken():
            raise NotNow(f"{entry.name} is being saved in another program")
    return data
