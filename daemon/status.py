"""``.megaharness/daemon.json``: what the daemon decided at its last tick, for views.

A rendering: nothing is read back, and losing it costs nothing.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from daemon.kernel.clock import Now, stamp
from daemon.kernel.observe import Observer
from daemon.kernel.parts import Parts
from daemon.lock import boot_id
from daemon.notify import Notifier
from daemon.tracks.actions import Action, Wait
from daemon.tracks.machine import Live, Over, Session, Settling, Unknown, Unstarted, World

SESSIONS = (Unstarted, Live, Unknown, Over, Settling)
PHASES: dict[type[Session], str] = {Unstarted: "starting", Live: "running", Over: "checking"}
#: How many waiting tracks are named; all are counted.
NAMED = 200
#: Seconds after which it is written again though nothing has changed, as a sign of life.
BEAT = 10.0


class Status:
    """ticks, glances: how often the loop looked at the world, and how often it saw that there was no news."""

    def __init__(self, parts: Parts, notifier: Notifier) -> None:
        self._parts = parts
        self._notifier = notifier
        self._started_at = stamp(time.time())
        # Settings are read once: a view can tell that they have changed since.
        self._settings_mtime_ns = mtime_ns(parts.workspace.settings)
        self._state: dict[str, Any] = {}
        self._written_at = float("-inf")
        self.ticks = 0
        self.glances = 0

    def publish(
        self,
        now: Now,
        world: World,
        due: list[Action],
        phase: str,
        degraded: str | None,
        observer: Observer,
    ) -> None:
        """Write it when something has changed, or as a sign of life."""
        waits = [action for action in due if isinstance(action, Wait)]
        sessions = [observed for observed in world.observed if isinstance(observed, SESSIONS)]
        total = self._parts.settings.limits.slots
        state = {
            "v": 1,
            "pid": os.getpid(),
            "boot_id": boot_id(),
            "phase": phase,
            "degraded": degraded,
            "started_at": self._started_at,
            "settings_mtime_ns": self._settings_mtime_ns,
            "slots": {"used": len(sessions), "total": total},
            "running": [self._session(observed, waits) for observed in sessions],
            "waiting": [_waiting(wait, now) for wait in waits[:NAMED]],
            "waiting_total": len(waits) + observer.hidden,
            "reading": observer.room.unread,
        }
        if state != self._state or now.mono - self._written_at >= BEAT:
            self._state = state
            self._write(now)
        self._notifier.status(
            f"{phase}: {len(sessions)} of {total} slots, {len(waits) - len(sessions) + observer.hidden} waiting"
        )

    def fault(self, now: Now, reason: str) -> None:
        """The tick itself failed: what was decided last is not true any more."""
        if self._state:
            self._state = {**self._state, "phase": "degraded", "degraded": reason}
            self._write(now)

    def end(self, now: Now) -> None:
        """The last word: the daemon has ended, its sessions go on."""
        if self._state:
            self._state["phase"] = "ended"
            self._write(now)

    def _write(self, now: Now) -> None:
        full = {**self._state, "last_tick": stamp(now.wall), "ticks": self.ticks, "glances": self.glances}
        path = self._parts.workspace.daemon_json
        temp = path.with_suffix(".json.tmp")
        try:
            temp.write_bytes(json.dumps(full, ensure_ascii=False).encode("utf-8", "replace"))
            temp.rename(path)
        except OSError as error:
            self._parts.log.warning("status not written", why=str(error))
        self._written_at = now.mono

    def _session(self, observed: Session, waits: list[Wait]) -> dict[str, Any]:
        attempt = observed.attempt
        known = self._parts.sessions.claim(attempt.session)
        extra = known.extra if known else {}
        return {
            "id": attempt.track,
            "name": attempt.name,
            "session": attempt.session,
            "attempt": attempt.number,
            "harness": attempt.harness,
            "model": extra.get("model"),
            "title": extra.get("title", ""),
            "since": known.claimed_at if known else None,
            "phase": PHASES.get(type(observed), "settling"),
            "note": next((wait.reason for wait in waits if wait.subject == attempt.track), ""),
        }


def mtime_ns(path: Path) -> int | None:
    """None when there is no such file."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def _waiting(wait: Wait, now: Now) -> dict[str, Any]:
    until = None if wait.until is None else stamp(round(now.wall + wait.until - now.mono))
    return {
        "subject": wait.subject,
        "reason": wait.reason,
        "until": until,
        "unblock": wait.unblock,
        "needs_you": wait.needs_you,
    }
