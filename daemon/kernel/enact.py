"""Carry out what the machine decided: boring, in order, each step safe to repeat.

Claim:   rename (commit) -> claim.json -> journal -> render the block      claiming.py
Start:   place.json -> brief.md -> launch.json -> pane                     starting.py, in the pool
End:     leftovers.json -> receipts/ -> outcome.json                       concluding.py, in the pool
Settle:  result.md -> settle.json (intent) -> append the result
         -> eval row -> rename (commit) -> journal -> settled              settling.py
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

from adapters import session as live
from adapters.errors import AdapterError, BriefUnusable, HarnessMissing, TerminalError
from adapters.ports import Harness
from daemon.durable import DISK_ERRORS, ONE_FILE
from daemon.errors import NotNow
from daemon.git import GitError
from daemon.kernel import concluding, starting
from daemon.kernel.claimed import asked, claim_of, intact, restored, set_aside, status_of
from daemon.kernel.claiming import Claimer
from daemon.kernel.clock import Now
from daemon.kernel.contract import Cancelled
from daemon.kernel.edits import contract_of, loaded
from daemon.kernel.history import History
from daemon.kernel.late import LateSaves
from daemon.kernel.observe import Observer
from daemon.kernel.parts import Outcome, Parts
from daemon.kernel.scratch import Place
from daemon.kernel.settling import Settler
from daemon.mddb.resolver import DatabaseFault
from daemon.spool.sessions import Claim
from daemon.tracks import actions
from daemon.tracks.actions import Action
from daemon.tracks.machine import BLOCKED, Pause

#: Seconds to wait before a failed action is tried again: doubled each time, up to the last.
BACKOFF = (1.0, 60.0)
#: After so many failures in a row a person is told; after so many, half a minute, the session ends as lost.
STUCK, GIVE_UP = 3, 6
#: Seconds in which a runner is expected at the start gate before its window is opened again.
START_WAIT = 10.0


class DiskFault(Exception):
    """The disk refused: no new claims until it takes writes again."""

    def __init__(self, error: OSError, place: Path | None = None) -> None:
        super().__init__(f"{error.strerror or error}: {error.filename or 'a file of the workspace'}")
        #: The folder in which it refused.
        self.place = place or (Path(str(error.filename)).parent if error.filename else None)


class Enactor:
    def __init__(
        self,
        parts: Parts,
        observer: Observer,
        *,
        claimer: type[Claimer] = Claimer,
        settler: type[Settler] = Settler,
        late: type[LateSaves] = LateSaves,
    ) -> None:
        self._parts = parts
        self._observer = observer
        self.history = History(parts)
        self._claimer = claimer(parts, observer, self.history)
        self._settler = settler(parts, self.history, observer.edits)
        self.late = late(parts, observer, self._settler)

    def enact(self, action: Action, now: Now) -> None:
        """Do one action. A failure is noted and tried again later; only DiskFault gets out."""
        subject = str(getattr(action, "session", None) or getattr(action, "name", ""))
        name = type(action).__name__
        try:
            self._do(action, now)
        except NotNow as error:
            self._pause(name, subject, now, str(error), quick=True)
        except Exception as error:  # noqa: BLE001  # whatever it is, the loop goes on
            self._failed(name, subject, error, now)
        else:
            # Of what the pool does, only its result says whether it worked.
            if not isinstance(action, actions.Start | actions.Reap | actions.Conclude):
                self._worked(subject)

    def remember(self, now: Now) -> None:
        """What the last look found and the next daemon must know. Raises DiskFault."""
        try:
            self._observer.whereabouts.remember()
        except OSError as error:
            self._failed("remember", "files that vanished", error, now)

    def _do(self, action: Action, now: Now) -> None:
        match action:
            case actions.Claim(name, state):
                self._claimer.claim(self._parts.store.entries(state)[name], now)
            case actions.Refuse(name, state, why):
                self._claimer.refuse(name, state, why, now)
            case actions.Start(session):
                self._start(session, now)
            case actions.Stop(session, why, force):
                self._stop(session, why, force, now)
            case actions.Reap(session):
                self._parts.memory.reaping.add(session)
                self._submit("reap", session, lambda: self._parts.reap(session))
            case actions.Conclude(session):
                self._conclude(session, now)
            case actions.Settle():
                self._settler.settle(action, now)
            case actions.TakeEdit(session):
                self._observer.edits.take(claim_of(self._parts, session), now)
            case actions.GoOn(session):
                self._settler.go_on(session, now)
            case actions.SetAside(name, state, session):
                self.late.set_aside(name, state, session)
            case actions.RollForward(session):
                self._parts.memory.unsure.add(session)
                self._settler.roll_forward(session, now)
            case actions.Wait():
                return

    def _pause(self, action: str, subject: str, now: Now, why: str, *, quick: bool = False) -> int:
        """Try it again later; returns how often it has failed in a row."""
        memory = self._parts.memory
        count = memory.failures.get(subject, 0)
        # A file that somebody has open is no failure: no reason to wait longer and longer.
        count = max(count, min(count + 1, STUCK)) if quick else count + 1
        memory.failures[subject] = count
        wait = 0.5 if quick else min(BACKOFF[0] * 2.0 ** (count - 1), BACKOFF[1])
        memory.pauses[subject] = Pause(now.mono + wait, why, action, stuck=count >= STUCK)
        return count

    def _failed(self, action: str, subject: str, error: BaseException, now: Now) -> None:
        """Something went wrong that may pass. What does not pass must not hold a slot for ever. Raises DiskFault."""
        memory = self._parts.memory
        where = f" ({error.filename})" if isinstance(error, OSError) and error.filename else ""
        words = (
            error.strerror or str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        )
        self._pause(action, subject, now, f"{words}{where}")
        place = self.refusing(error)
        disk = place is not None
        if disk or (isinstance(error, OSError) and error.errno in ONE_FILE):
            self._parts.log.warning("failed", action=action, subject=subject, error=str(error))
        else:
            self._parts.log.error("failed", action=action, subject=subject, exc_info=error)
        # A disk that refuses will take writes again, and refuses everybody: no reason to give this one up.
        count = memory.own_failures[subject] = memory.own_failures.get(subject, 0) + (not disk)
        if count >= GIVE_UP and not disk and action in ("Start", "Conclude", "Settle"):
            self._give_up(subject, f"{words}{where}")
        if count >= GIVE_UP and not disk and action == "RollForward":
            try:
                self._settler.give_up(subject, f"{words}{where}", now)
            except Exception as last:  # not even that: it is tried again, and a person is told
                self._parts.log.error("failed", action="give up", subject=subject, exc_info=last)
        if isinstance(error, OSError) and disk:
            # Not the track's fault: a start is tried for as long as it takes.
            memory.start_tries.pop(subject, None)
            raise DiskFault(error, place) from error

    def refusing(self, error: BaseException) -> Path | None:
        """The folder in which the disk refuses everybody; None when the error is another one, or one file's own.

        A file that may not be touched (chmod, chattr) is no reason to stop the others: only where the folder
        takes no new file either is it the disk's.
        """
        if not isinstance(error, OSError) or error.errno not in DISK_ERRORS:
            return None
        paths = [Path(str(name)) for name in (error.filename, error.filename2) if name]
        if error.errno not in ONE_FILE:
            # A session's own directory may be settled and closed before the disk takes writes again.
            inside = bool(paths) and self._parts.workspace.sessions in paths[0].parents
            if inside:
                return self._parts.workspace.sessions
            return paths[0].parent if paths else self._parts.workspace.tmp
        folders = [self._ours(path) for path in paths] or [self._parts.workspace.tmp]
        return next((folder for folder in folders if not self._parts.files.takes_writes(folder)), None)

    def _ours(self, path: Path) -> Path:
        """The daemon's folder in which to try whether the disk takes writes, for something that it refused."""
        workspace = self._parts.workspace
        if workspace.root not in path.parents:
            place = workspace.scratch("x").parent  # where tracks work, perhaps on another disk
            return next(folder for folder in (place, *place.parents) if os.path.isdir(folder))
        if workspace.sessions in path.parents:
            return workspace.sessions
        own = (*workspace.folders, workspace.tracks, workspace.displaced, workspace.evals)
        # Never queued/: the daemon does not write there.
        return path.parent if path.parent in own and path.parent != workspace.queued else workspace.tmp

    def _give_up(self, session: str, why: str) -> None:
        """What it takes to judge this session cannot be read or written: it ends as lost, and frees its slot."""
        path = self._parts.sessions.path(session)
        with contextlib.suppress(OSError):
            self._parts.files.make_dirs(path)
            live.cancel(path, why)
        with contextlib.suppress(OSError):
            set_aside(self._parts, session)
        self._parts.memory.watched.discard(session)
        self._submit("reap", session, lambda: self._parts.reap(session))
        self._parts.memory.starting.discard(session)
        self._parts.memory.concluded[session] = concluding.given_up(why)
        self._worked(session)
        self._parts.log.error("given up", session=session, why=why)

    def _worked(self, subject: str) -> None:
        self._parts.memory.failures.pop(subject, None)
        self._parts.memory.own_failures.pop(subject, None)
        self._parts.memory.pauses.pop(subject, None)

    def _submit(self, kind: str, session: str, work: Callable[[], Outcome]) -> None:
        self._parts.pool.submit(kind, session, work)

    # -- start ------------------------------------------------------------------------------------------

    def _harness(self, known: Claim) -> Harness:
        return self._parts.harnesses.get(str(known.extra.get("harness", "")))

    def _environment(self, known: Claim) -> dict[str, str]:
        table = self._parts.settings.table(str(known.extra.get("harness", "")))
        return starting.environment(table.env, tuple(table.pass_env))

    def _earlier(self, known: Claim) -> tuple[Path, ...]:
        """The track's sessions before this one, newest first; none from before a fresh start."""
        sessions = self._parts.sessions
        found: list[Path] = []
        for ref in reversed(sessions.of(known.item)):
            if ref.attempt < known.attempt:
                found.append(sessions.path(ref.id))
                claim = sessions.claim(ref.id)
                if claim is not None and claim.extra.get("fresh"):
                    break
        return tuple(found)

    def _start(self, session: str, now: Now) -> None:
        parts, memory = self._parts, self._parts.memory
        known = claim_of(parts, session)
        if not intact(parts, known):
            memory.start_failed[session] = "setup/contract: its spec.md is not what was claimed any more"
            return
        track = loaded(parts, known)
        minutes = track.track.budget.minutes or float(parts.settings.limits.minutes)
        model = known.extra.get("model")
        try:
            harness = self._harness(known)
        except AdapterError as error:
            self._start_failed(session, error, now)
            return
        order = starting.Start(
            session=parts.sessions.path(session),
            claim=known,
            loaded=track,
            harness=harness,
            model=str(model) if model else None,
            env=self._environment(known),
            wall_s=minutes * 60.0,
            wake=parts.workspace.wake_file(session),
            earlier=self._earlier(known),
            fresh=bool(known.extra.get("fresh")),
        )
        memory.starting.add(session)
        memory.watched.add(session)
        memory.start_tries[session] = memory.start_tries.get(session, 0) + 1
        memory.retry_at[session] = now.mono + START_WAIT
        self._submit(
            "start",
            session,
            lambda: starting.start(order, parts.scratch, parts.terminal, parts.files.publish, parts.resolver),
        )

    # -- results of the pool ----------------------------------------------------------------------------

    def take(self, kind: str, session: str, result: Outcome | BaseException, now: Now) -> None:
        """Take in what the pool has finished. Raises DiskFault."""
        memory = self._parts.memory
        if kind == "start":
            memory.starting.discard(session)
            memory.windowless.pop(session, None)
            if isinstance(result, BaseException):
                self._start_failed(session, result, now)
            else:
                assert isinstance(result, Place)
                memory.places[session] = result
                self._worked(session)
        elif kind == "reap":
            memory.reaping.discard(session)
            if isinstance(result, BaseException):
                self._failed("Reap", session, result, now)
            else:
                memory.reaped.add(session)
                self._worked(session)
        elif kind == "conclude":
            memory.concluding.pop(session, None)
            if isinstance(result, Cancelled):
                return
            if isinstance(result, concluding.Concluded):
                memory.concluded[session] = result
                self._worked(session)
            else:
                assert isinstance(result, BaseException)
                self._failed("Conclude", session, result, now)
        elif kind == "force" and isinstance(result, BaseException):
            memory.forced.discard(session)
            self._failed("Stop", session, result, now)
        elif isinstance(result, BaseException):
            self._parts.log.warning("failed", action=kind, error=str(result))

    def _start_failed(self, session: str, error: BaseException, now: Now) -> None:
        memory = self._parts.memory
        hint = f" ({error.hint})" if isinstance(error, AdapterError) and error.hint else ""
        match error:
            case TerminalError():
                # Not the track's fault, and it may pass: try for as long as it takes.
                memory.start_tries[session] = 0
                memory.windowless[session] = f"{error}{hint}"
                self._pause("Start", session, now, f"{error}{hint}")
            case DatabaseFault():
                # Nor is this: somebody is writing the database, and what waits goes on when it can be read.
                memory.start_tries[session] = 0
                self._pause("Start", session, now, f"{error} ({error.hint})")
            case HarnessMissing():
                memory.start_failed[session] = f"setup/harness_missing: {error}{hint}"
            case BriefUnusable():
                memory.start_failed[session] = f"setup/brief: {error}{hint}"
            case AdapterError():
                memory.start_failed[session] = f"setup/harness: {error}{hint}"
            case GitError():
                memory.start_failed[session] = f"setup/git: {error}{f' ({error.hint})' if error.hint else ''}"
            case _:
                self._failed("Start", session, error, now)
                return
        self._parts.log.warning("not started", session=session, why=f"{error}{hint}")

    # -- stop -------------------------------------------------------------------------------------------

    def _stop(self, session: str, why: str, force: bool, now: Now) -> None:
        memory = self._parts.memory
        path = self._parts.sessions.path(session)
        if session in memory.concluding:
            memory.concluding[session].set()
            return
        if force:
            memory.forced.add(session)
            self._submit("force", session, lambda: live.force(path))
            return
        live.interrupt(path, why)
        memory.stopped_at.setdefault(session, now.mono)
        self._parts.log.info("interrupted", session=session, why=why)

    # -- conclude ---------------------------------------------------------------------------------------

    def _conclude(self, session: str, now: Now) -> None:
        parts = self._parts
        known = claim_of(parts, session)
        try:
            harness: Harness | None = self._harness(known)
        except AdapterError:
            harness = None
        set_aside(parts, session)
        changed = restored(parts, known)
        sure = intact(parts, known)
        cancelled = threading.Event()
        stops = asked(parts, "interrupt", known.item)
        wish = self._observer.wish(known, now)
        stopped = (stops[0].why or "interrupted") if stops else wish.why if wish is not None else None
        order = concluding.Conclude(
            session=parts.sessions.path(session),
            claim=known,
            checks=loaded(parts, known).track.done_when if sure else (),
            contract="unknown" if not sure else "restored" if changed else "",
            changed=contract_of(parts, known) if sure else None,
            place=parts.memory.places.get(session),
            harness=harness,
            status=status_of(parts, session),
            env=self._environment(known),
            check_seconds=parts.settings.limits.check_minutes * 60.0,
            stopped=stopped,
            cancelled=cancelled,
            before=tuple(self._untold(known)),
        )
        parts.memory.concluding[session] = cancelled
        self._submit(
            "conclude",
            session,
            lambda: concluding.conclude(
                order, parts.scratch, parts.files.publish, parts.reap, parts.files.make_dirs
            ),
        )

    def _untold(self, known: Claim) -> list[Path]:
        """The sessions of this stay in active/ of which the file says nothing yet, oldest first."""
        found: list[Path] = []
        for ref in self._parts.sessions.of(known.item):
            if known.round <= ref.attempt < known.attempt:
                intent = self._parts.sessions.settlement(ref.id)
                if intent is not None and intent.termination == BLOCKED:
                    found.clear()  # its question, and all before it, stand there
                else:
                    found.append(self._parts.sessions.path(ref.id))
        return found

    def cancel_checks(self) -> None:
        """The daemon ends: checks are run again by the next one."""
        for event in self._parts.memory.concluding.values():
            event.set()
