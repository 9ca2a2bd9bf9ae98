"""Where the file of an open session is now, and what a person means by having moved it there.

    active/, also under another name   it is worked on
    queued/                            interrupt it, and do it again
    done/                              "I say it is done"
    failed/                            interrupt it
    nowhere for 5 s                    interrupt it; the last known text goes to failed/
    nowhere, and others with it        a checkout or a sync program at work: nobody's wish, a person is asked

The file's own block says whose it is, as a hint: nothing is done because of it but to interrupt. A copy has the same
block; so what is not the very file that was seen last counts only when nothing has come back to active/ for 5 s.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from daemon.errors import DocumentError, NotNow
from daemon.faults import is_forbidden
from daemon.kernel.claimed import spec
from daemon.kernel.clock import Now, seconds
from daemon.kernel.memory import Peek
from daemon.kernel.parts import Parts
from daemon.spool.sessions import Claim, encode, parse
from daemon.spool.states import ACTIVE, DONE, FAILED, QUEUED, State
from daemon.spool.store import Entry, is_regular, same_name
from daemon.tracks import thread
from daemon.tracks.machine import Wish

#: Seconds for which a file may be away: an editor between two steps of its save.
GRACE = 5.0
#: How large a file may be to be looked into (bytes).
LIMIT = 64 << 20

#: Seconds for which times of files, and the clock, may be off.
SLACK = 300.0

VANISHED = "vanished.json"
TOGETHER = "its file vanished together with others (a git checkout?), so nothing was ended: put them back"


def is_of(known: Claim, session: str | None) -> bool:
    """Whether a block that names this session is that of the track, as it is worked on now."""
    ref = parse(session) if session else None
    return ref is not None and ref.item == known.item and known.round <= ref.attempt <= known.attempt


def belongs(parts: Parts, known: Claim, name: str, data: bytes, *, named: bool = False) -> bool:
    """Whether this is the track's own file. Raises DocumentError, OSError.

    It says so itself, in its block. With `named` one whose block is missing, or is what it was when it was claimed, is
    it, too, if it has the name and begins as the track does: a crash came before the block was written, or an editor
    has saved what it had from before.
    """
    session = thread.block_session(data)
    if not named or not same_name(name, known.name):
        return is_of(known, session)
    claimed = spec(parts, known)
    ref = parse(session) if session else None
    earlier = ref is not None and ref.item == known.item and ref.attempt < known.round
    if session is not None and not earlier and session != thread.block_session(claimed):
        return is_of(known, session)
    return thread.begins_like(data, claimed)


def _moved_since(known: Claim) -> float:
    """What lay in a settled folder before then (seconds since the epoch) was not moved there while it was open."""
    return min(time.time(), seconds(known.claimed_at)) - SLACK


def by_name(known: Claim, state: State, path: Path) -> bool:
    """Whether a file here may be the track's by its name: what lay in a settled folder before is somebody else's.

    Raises OSError.
    """
    return state == QUEUED or os.lstat(path).st_ctime >= _moved_since(known)


class Whereabouts:
    def __init__(self, parts: Parts, peek: Callable[[Entry], Peek]) -> None:
        self._parts = parts
        self._peek = peek

    def name(self, known: Claim, held: set[str], now: Now) -> str:
        """The name of its file in active/, which a person may have renamed there."""
        entries, missing = self._parts.store.entries(ACTIVE), self._parts.memory.missing
        if known.name in entries:
            return known.name
        waited = known.session in missing and now.mono - missing[known.session][0] >= GRACE
        for entry in entries.values():
            if not waited and not self._is_it(known, entry.inode):
                continue
            if entry.name not in held and is_of(known, self._block(entry)):
                self._parts.sessions.rename(known.session, entry.name)
                return entry.name
        return known.name

    def _is_it(self, known: Claim, inode: int) -> bool:
        """Whether this is the very file that was seen last, as far as that is known: a copy is not."""
        seen = self._parts.memory.seen.get(known.session)
        return seen is None or seen[0] == inode

    def _block(self, entry: Entry) -> str | None:
        if entry.kind != "file":
            return None
        try:
            return self._peek(entry).block_session
        except (NotNow, OSError):
            return None

    def remember(self) -> None:
        """Write down which files vanished together, for a daemon that comes after a crash. Raises OSError."""
        memory, files = self._parts.memory, self._parts.files
        for session in memory.together - memory.marked:
            files.publish(self._parts.sessions.path(session) / VANISHED, encode({"why": TOGETHER}))
            memory.marked.add(session)
        for session in memory.marked - memory.together:
            files.unlink(self._parts.sessions.path(session) / VANISHED)
            memory.marked.discard(session)

    def note(self, known: Claim, now: Now) -> OSError | None:
        """Remember whether it is away, before it is asked about any of them. Returns why nobody can say that now."""
        memory, session = self._parts.memory, known.session
        if known.name in self._parts.store.entries(ACTIVE):
            home = None
            memory.missing.pop(session, None)
            memory.together.discard(session)
            memory.searched.pop(session, None)
        else:
            try:
                home = self._home(known)
            except OSError as error:
                # What was known stays, and no time counts.
                memory.missing.pop(session, None)
                memory.searched.pop(session, None)
                return error
            if home is not None and self._is_moved(known, home):
                memory.missing.pop(session, None)
            elif session not in memory.missing:
                memory.missing[session] = (now.mono, now.wall)
                if os.path.lexists(self._parts.sessions.path(session) / VANISHED):
                    memory.together.add(session)
                    memory.marked.add(session)
        if home is None:
            memory.homes.pop(session, None)
        else:
            memory.homes[session] = home
        return None

    def wish(self, known: Claim, now: Now) -> Wish | None:
        """What a person wants with it, by where they put it; None: nothing, or nobody knows yet."""
        missing = self._parts.memory.missing.get(known.session)
        if missing is not None and now.mono - missing[0] < GRACE:
            return None
        match self._parts.memory.homes.get(known.session):
            case ("done", _):
                return Wish("done", "you moved it to done/")
            case ("failed", _):
                return Wish("failed", "you moved it to failed/")
            case ("queued", _):
                return Wish("queued", "you moved it back to queued/")
        if missing is None or self._is_riddle(known):
            return None
        return Wish("failed", f"you deleted it at {time.strftime('%H:%M', time.localtime(missing[1]))}")

    def away_until(self, known: Claim, now: Now) -> float | None:
        """When its absence counts (monotonic s); None: it is there, or that is no question of time."""
        missing = self._parts.memory.missing.get(known.session)
        if missing is None or self._is_riddle(known) or now.mono - missing[0] >= GRACE:
            return None
        return missing[0] + GRACE

    def _is_riddle(self, known: Claim) -> bool:
        """Whether others vanished with it: then it stays one, until the file comes back."""
        memory, session = self._parts.memory, known.session
        since = memory.missing[session][0]
        if session in memory.homes:
            return False
        others = [
            at for other, (at, _) in memory.missing.items() if other != session and other not in memory.homes
        ]
        if any(abs(at - since) <= GRACE for at in others):
            memory.together.add(session)
        return session in memory.together

    def _is_moved(self, known: Claim, home: tuple[State, str]) -> bool:
        try:
            return self._is_it(known, os.lstat(self._parts.store.path(*home)).st_ino)
        except OSError:
            return False

    def puzzle(self, known: Claim) -> str:
        return TOGETHER if known.session in self._parts.memory.together else ""

    def _home(self, known: Claim) -> tuple[State, str] | None:
        before = self._parts.memory.homes.get(known.session)
        if before is not None and self._is_there(before, known):
            return before
        found: tuple[State, str] | None = None
        for place in self._places(known):
            if self._is_there(place, known):
                if self._is_moved(known, place):
                    return place
                found = found or place  # perhaps a copy
        return found

    def _places(self, known: Claim) -> Iterator[tuple[State, str]]:
        """Where it can be, the likely ones first: a copy of it mostly has another name."""
        memory, store = self._parts.memory, self._parts.store
        queued = store.entries(QUEUED)
        versions = (store.version(DONE), store.version(FAILED))
        searched = memory.searched.get(known.session) == versions
        if known.name in queued:
            yield QUEUED, known.name
        if not searched:
            yield from ((state, known.name) for state in (DONE, FAILED) if known.name in store.names(state))
        for (state, name), peek in memory.peeks.items():
            if state == QUEUED and name in queued and is_of(known, peek.block_session):
                yield QUEUED, name
        if not searched:
            yield from self._new(known, (DONE, FAILED))
            memory.searched[known.session] = versions

    def _new(self, known: Claim, states: Iterable[State]) -> Iterator[tuple[State, str]]:
        """Files that came into these folders since it was claimed: a rename changes the ctime."""
        since = _moved_since(known)
        for state in states:
            for name in self._parts.store.names(state):
                try:
                    changed = os.lstat(self._parts.store.path(state, name)).st_ctime
                except OSError:
                    continue
                if changed >= since and name.endswith(".md"):
                    yield state, name

    def _is_there(self, place: tuple[State, str], known: Claim) -> bool:
        """Raises OSError when it cannot be looked into now."""
        path = self._parts.store.path(*place)
        try:
            if not is_regular(path) or os.lstat(path).st_size > LIMIT:
                return False
            named = by_name(known, place[0], path)
            return belongs(self._parts, known, path.name, self._parts.files.read(path), named=named)
        except (NotNow, DocumentError, FileNotFoundError):
            return False
        except PermissionError:
            if not is_forbidden(path):
                raise
            return False  # it says nothing
