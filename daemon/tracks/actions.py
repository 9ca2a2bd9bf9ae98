"""What the machine can ask for. Plain data; every action may be repeated without harm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from daemon.spool.states import State

Destination = Literal["done", "failed", "queued", "stays"]


@dataclass(frozen=True, slots=True)
class Claim:
    """queued -> active (or a file lying in active/ without a session): take a slot for it."""

    name: str
    state: State


@dataclass(frozen=True, slots=True)
class Refuse:
    """The file itself is bad: queued -> failed, bytes untouched, the reason beside it."""

    name: str
    state: State
    why: str


@dataclass(frozen=True, slots=True)
class Start:
    """Provision, brief and spawn the session; once, however often asked."""

    session: str


@dataclass(frozen=True, slots=True)
class Stop:
    """End the session: interrupt what runs, or close the gate before it runs."""

    session: str
    why: str
    force: bool = False


@dataclass(frozen=True, slots=True)
class Reap:
    """Nobody holds the session's lock: end whatever of its tree is left."""

    session: str


@dataclass(frozen=True, slots=True)
class Conclude:
    """Collect, list what is uncommitted, run the checks, commit."""

    session: str


@dataclass(frozen=True, slots=True)
class Settle:
    """Write the intent and carry it out."""

    session: str
    termination: str
    destination: Destination
    why: str = ""


@dataclass(frozen=True, slots=True)
class RollForward:
    """An intent is there: carry out what a crash left undone."""

    session: str


@dataclass(frozen=True, slots=True)
class SetAside:
    """A late save of a track's file, into active/ or queued/: it is merged as text and not run."""

    name: str
    state: State
    session: str


@dataclass(frozen=True, slots=True)
class TakeEdit:
    """A person has saved the file of an open session: keep what changed, and bring it to the session."""

    session: str


@dataclass(frozen=True, slots=True)
class GoOn:
    """A session that asked has its answer, or a person wants no more of it: begin the next one."""

    session: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do now. The one current reason, when that may change by itself, and what a person can do.

    until: monotonic seconds; None: when something changes.
    needs_you: a person has to act, or nothing will happen.
    """

    subject: str
    reason: str
    until: float | None = None
    unblock: str = ""
    needs_you: bool = False


Action = (
    Claim | Refuse | Start | Stop | Reap | Conclude | Settle | RollForward | SetAside | TakeEdit | GoOn | Wait
)
