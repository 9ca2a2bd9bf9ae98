"""What the daemon remembers between two ticks. Nothing that matters after a crash: files say the rest."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from daemon.errors import Problem
from daemon.kernel.concluding import Concluded
from daemon.kernel.scratch import Place
from daemon.spool.states import State
from daemon.tracks.machine import Parked, Pause
from daemon.tracks.track import Time, TrackId


@dataclass(frozen=True, slots=True)
class Peek:
    """A queued file as it was read last: what its place in the queue depends on, or what is wrong with it.

    Its text is not kept: there may be a hundred thousand of these.
    """

    signature: tuple[int, int, int]
    #: Whether it is a track; if not, its problems say why.
    readable: bool = False
    harness_id: str | None = None
    model_id: str | None = None
    project_id: str | None = None
    kind: str | None = None
    priority: int = 0
    block_id: str | None = None
    #: The session that the file's block names. A hint where its file is, never more.
    block_session: str = ""
    problems: tuple[Problem, ...] = ()
    empty: bool = False
    after: tuple[Time | TrackId, ...] = ()


@dataclass(frozen=True, slots=True)
class Edit:
    """One version of its file that a person saved while a track was active, as ``edits/<number>.json`` keeps it.

    data: the file, byte for byte. message: what the agent is to be told, and name: as which message of the inbox;
    briefed: it was saved before the start, so the brief has it. harness: another one that was asked for.
    """

    number: int
    at: str
    data: bytes
    message: str = ""
    name: str = ""
    briefed: bool = False
    keys: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    harness: str | None = None


@dataclass(slots=True)
class Memory:
    peeks: dict[tuple[str, str], Peek] = field(default_factory=dict)
    arrivals: dict[tuple[State, str], int] = field(default_factory=dict)
    next_arrival: int = 0
    #: Sessions with a start or a conclusion at work in the pool.
    starting: set[str] = field(default_factory=set)
    concluding: dict[str, threading.Event] = field(default_factory=dict)
    concluded: dict[str, Concluded] = field(default_factory=dict)
    start_tries: dict[str, int] = field(default_factory=dict)
    retry_at: dict[str, float] = field(default_factory=dict)
    start_failed: dict[str, str] = field(default_factory=dict)
    #: Sessions that get no window, and why: the terminal's fault, not theirs.
    windowless: dict[str, str] = field(default_factory=dict)
    stopped_at: dict[str, float] = field(default_factory=dict)
    #: Sessions seen running: their output alone is no reason for a tick.
    running: set[str] = field(default_factory=set)
    #: Sessions that this daemon has started or seen running, and not begun to conclude: what only the daemon
    #: writes at the end of a session is not there yet, and who has written it is somebody else.
    watched: set[str] = field(default_factory=set)
    #: Sessions whose intent (``settle.json``) this daemon has written.
    intended: set[str] = field(default_factory=set)
    #: Where they work, as it was given to them.
    places: dict[str, Place] = field(default_factory=dict)
    #: What ``spec.md`` said at the claim, by its hash: of the sessions that are open.
    specs: dict[str, bytes] = field(default_factory=dict)
    #: The signature of each open session's file whose text has been taken in.
    seen: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    edits: dict[str, tuple[Edit, ...]] = field(default_factory=dict)
    #: Read from disk after a restart: their last message may not be in the inbox.
    undelivered: set[str] = field(default_factory=set)
    #: Since when a session that is judged waits for somebody to end their typing (monotonic s).
    waiting_since: dict[str, float] = field(default_factory=dict)
    #: Since when the file of an open session is in none of the folders: (monotonic s, wall s).
    missing: dict[str, tuple[float, float]] = field(default_factory=dict)
    #: Files that vanished together with others: nobody's wish.
    together: set[str] = field(default_factory=set)
    #: Of these, the ones whose directory says so (``vanished.json``), for the next daemon.
    marked: set[str] = field(default_factory=set)
    #: Sessions that ask and whose question is not in the file, which was away: what lay in its place instead.
    unasked: dict[str, tuple[int, int, int] | None] = field(default_factory=dict)
    #: Where a person has moved the file of an open session: (state, name).
    homes: dict[str, tuple[State, str]] = field(default_factory=dict)
    #: The versions of done/ and failed/ in which a missing file was not found.
    searched: dict[str, tuple[int, int]] = field(default_factory=dict)
    forced: set[str] = field(default_factory=set)
    reaping: set[str] = field(default_factory=set)
    reaped: set[str] = field(default_factory=set)
    #: Found with an intent at start, or after a failed try: rows of history may be written already.
    unsure: set[str] = field(default_factory=set)
    pauses: dict[str, Pause] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    #: Of the failures those that were its own, and not the disk's or an editor's: what it is given up for.
    own_failures: dict[str, int] = field(default_factory=dict)
    parked: dict[str, tuple[Parked, object]] = field(default_factory=dict)

    def forget_session(self, session: str) -> None:
        for known in (
            self.concluding,
            self.concluded,
            self.start_tries,
            self.retry_at,
            self.start_failed,
            self.windowless,
            self.stopped_at,
            self.pauses,
            self.failures,
            self.own_failures,
            self.places,
            self.seen,
            self.edits,
            self.missing,
            self.homes,
            self.searched,
            self.unasked,
            self.waiting_since,
        ):
            known.pop(session, None)
        for names in (
            self.starting,
            self.running,
            self.watched,
            self.intended,
            self.forced,
            self.reaping,
            self.reaped,
            self.unsure,
            self.undelivered,
            self.together,
            self.marked,
        ):
            names.discard(session)
