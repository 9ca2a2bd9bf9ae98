"""What the daemon would do now: observed and decided as it does, and carried out by nobody.

Imported only when it is needed: it loads the settings and the adapters.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_never

from daemon import log
from daemon.assembly import assemble
from daemon.config import Settings
from daemon.kernel.clock import Now, stamp
from daemon.kernel.observe import Observer
from daemon.layout import Workspace
from daemon.tracks.actions import (
    Action,
    Claim,
    Conclude,
    GoOn,
    Reap,
    Refuse,
    RollForward,
    SetAside,
    Settle,
    Start,
    Stop,
    TakeEdit,
    Wait,
)
from daemon.tracks.machine import Limits, decide

#: Until it is running again, everything that is due waits for it.
NO_DAEMON = "when the daemon runs"
DAEMON = "as soon as the daemon looks"


class _NoPool:
    """Nothing is started from here."""

    def submit(self, kind: str, session: str, work: Callable[[], object]) -> None:
        raise AssertionError("looking starts nothing")

    def drain(self) -> list[tuple[str, str, object]]:
        return []

    def pending(self) -> bool:
        return False

    def close(self) -> None:
        return


@dataclass(frozen=True, slots=True)
class Decided:
    """subject: a file's name, a session or a track. The rest is as `Wait` says it; until is ISO 8601, UTC."""

    subject: str
    reason: str
    until: str | None = None
    unblock: str = ""
    needs_you: bool = False

    def row(self) -> dict[str, Any]:
        return {slot: getattr(self, slot) for slot in self.__slots__}


def look(place: Workspace, *, daemon: bool) -> list[Decided]:
    """One sentence for each file that waits and each session that is open. Raises SettingsError."""
    settings = Settings.load(place.settings)
    # A fault of ours comes as a reason to wait; nobody reads a log here.
    log.setup(None, level="critical")
    parts = assemble(place, settings, _NoPool(), log.get("look"))
    now = Now(time.monotonic(), time.time())
    parts.sessions.load(clear=False)
    parts.store.scan(now.wall)
    observer = Observer(parts)
    world = observer.observe(now)
    if observer.room.unread:
        # Some were judged before what they wait for had been read.
        world = observer.observe(now)
    actions = decide(world, Limits(settings.limits.slots, settings.limits.attempts), now.mono)
    return [_said(action, now, DAEMON if daemon else NO_DAEMON) for action in actions]


def _said(action: Action, now: Now, when: str) -> Decided:
    match action:
        case Wait(subject, reason, until, unblock, needs_you):
            moment = None if until is None else stamp(now.wall + until - now.mono)
            return Decided(subject, reason, moment, unblock, needs_you)
        case Refuse(name, _, why):
            return Decided(name, why, unblock="correct the file and save it", needs_you=True)
        case Claim(name):
            return Decided(name, f"it is its turn: started {when}")
        case SetAside(name):
            return Decided(
                name, f"was saved again after it had been claimed: merged as text, not run, {when}"
            )
        case TakeEdit(session):
            return Decided(session, f"its file was edited; what changed is taken in {when}")
        case GoOn(session):
            return Decided(session, f"goes on {when}")
        case Start(session):
            return Decided(session, f"is claimed: started {when}")
        case Stop(session, why):
            return Decided(session, f"is to be ended ({why}): {when}")
        case Reap(session):
            return Decided(session, f"nothing recorded how it ended; settled as lost {when}")
        case Conclude(session):
            return Decided(session, f"has ended; it is judged {when}")
        case Settle(session, termination):
            return Decided(session, f"has been judged ({termination}); it is settled {when}")
        case RollForward(session):
            return Decided(session, f"has been judged; its file is moved to its folder {when}")
    assert_never(action)
