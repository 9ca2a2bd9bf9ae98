"""The loop: observe, decide, enact.

    while not told to end:
        look at what changed            (events are hints; a scan every few seconds is the truth)
        observe -> decide -> enact      (the first time after a crash this is the recovery)
        sleep until something changes or the next deadline

One thread owns all state. Signal handlers, the watcher and the pool only set
a flag; time enters at `tick`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from adapters import session as live
from daemon.kernel import windows
from daemon.kernel.clock import Now
from daemon.kernel.enact import DiskFault, Enactor
from daemon.kernel.observe import Observer
from daemon.kernel.parts import Parts
from daemon.notify import Notifier
from daemon.spool.sessions import is_shut
from daemon.spool.states import ACTIVE, QUEUED, State
from daemon.spool.watcher import Notes, Watcher
from daemon.status import NAMED, Status
from daemon.tracks import requests
from daemon.tracks.actions import Action, Wait
from daemon.tracks.machine import Blocked, Candidate, Limits, decide
from daemon.workspace import directories

#: Seconds between two scans; longer when a scan itself takes long.
RESCAN = 5.0
#: How many times as long as the last one took is between two scans that look at every file that waits: without a
#: watcher, and with one, which tells of what is saved in place, so that names are enough in between.
SPARE = (50, 500)
#: Seconds between two tries of a disk that refused.
PROBE = (2.0, 60.0)
#: Faults of the loop itself in a row after which it ends, for systemd to start it anew.
FAULTS = 5
EXIT_FAULTS = 70
#: Seconds after which a request to begin afresh is void when no file has the id.
VOID = 3600.0
#: Seconds between two looks at the windows.
WINDOW_LOOK = 60.0
#: Names that are ignored, of which it is remembered that they were told.
MAX_TOLD = 1000


@dataclass(slots=True)
class Degraded:
    """The disk refuses. `until`: when it is tried next (monotonic s). place: the folder that is tried."""

    reason: str
    since: float
    until: float
    place: Path
    tries: int = 1


@dataclass(slots=True)
class Supervisor:
    """`watch` makes a watcher, or raises OSError (then everything works by scans, slower)."""

    parts: Parts
    flag: threading.Event
    watch: Callable[[], Watcher] | None
    notifier: Notifier
    #: Whether the workspace is still ours alone.
    guard: Callable[[], bool] = lambda: True
    exit_code: int = 0
    draining: bool = False
    stopping: bool = False
    degraded: Degraded | None = None
    _observer: Observer = field(init=False)
    _enactor: Enactor = field(init=False)
    _watcher: Watcher | None = None
    _notes: Notes = field(default_factory=Notes)
    _scan_due: float = 0.0
    _whole_due: float = 0.0
    _sweep_due: float | None = 0.0
    _windows_due: float = 0.0
    _faults: int = 0
    #: Why the folders could not be looked at, and how often in a row.
    _blind: str = ""
    #: Whether a drain has something to wait for: what asks a person may take days.
    _at_work: bool = True
    _blinks: int = 0
    #: Names among the tracks that were told to be no tracks.
    _ignored: dict[State, set[str]] = field(default_factory=lambda: {QUEUED: set(), ACTIVE: set()})
    _status: Status = field(init=False)

    def __post_init__(self) -> None:
        self._observer = Observer(self.parts, NAMED)
        self._enactor = Enactor(self.parts, self._observer)
        self._status = Status(self.parts, self.notifier)

    # -- the loop --------------------------------------------------------------------------------

    def run(self) -> int:
        """Until told to end. Sessions live on. Returns the exit code."""
        self._begin()
        ready = False
        try:
            while not self.stopping:
                now = Now(time.monotonic(), time.time())
                due = self.turn(now)
                if not ready:
                    self.notifier.ready()
                    ready = True
                self.notifier.watchdog()
                if self.draining and not self._at_work:
                    break
                self._sleep(due)
        except _TooManyFaults:
            return EXIT_FAULTS
        finally:
            self._end()
        return self.exit_code

    def turn(self, now: Now) -> float:
        """One tick, and what to do when the loop itself is at fault. Returns the next deadline (monotonic s)."""
        if not self._is_ours():
            # The lock's file was removed, or the workspace moved: a second daemon could start, and two must
            # never work.
            self.parts.log.error("the lock is gone", path=str(self.parts.workspace.lock))
            self.stopping = True
            self.exit_code = EXIT_FAULTS
            return now.mono
        try:
            due = self.tick(now)
        except Exception as error:
            due = self._fault(now, error)
            if not isinstance(error, OSError) and self._faults >= FAULTS:
                raise _TooManyFaults from error
            return due
        self._faults = 0
        return due

    def _is_ours(self) -> bool:
        try:
            return self.guard()
        except OSError:
            return True  # its folder is shut: no second daemon gets at it either

    def _fault(self, now: Now, error: Exception) -> float:
        """The loop itself failed. Returns when it goes on (monotonic s)."""
        self._faults += 1
        self.parts.log.error("the loop failed", faults=self._faults, traceback=traceback.format_exc())
        if isinstance(error, OSError) and (place := self._enactor.refusing(error)) is not None:
            self._degrade(now, f"{error.strerror or error} ({error.filename})", place)
        self._scan_due = self._whole_due = now.mono  # look at everything again, the lock first
        self._status.fault(now, f"the loop failed: {error}")
        return now.mono + min(2.0**self._faults, 30.0)

    def tick(self, now: Now) -> float:
        """Observe, decide, enact. Returns when to do it again at the latest (monotonic s)."""
        self._status.ticks += 1
        self._see(now)
        for kind, session, result in self.parts.pool.drain():
            with self._disk(now):
                self._enactor.take(kind, session, result, now)
        self._requests(now)
        self._probe(now)
        self._sweep(now)
        closed = "the daemon is draining: it ends when the running tracks have" if self.draining else ""
        if self.degraded is not None:
            closed = f"nothing is started: {self.degraded.reason}"
        elif self._blind:
            closed = f"nothing is started: {self._blind}"
        world = self._observer.observe(now, claim=not closed, closed=closed)
        limits = Limits(self.parts.settings.limits.slots, self.parts.settings.limits.attempts)
        due = decide(world, limits, now.mono)
        self._at_work = any(not isinstance(each, Candidate | Blocked) for each in world.observed)
        again = False
        with self._disk(now):
            self._enactor.remember(now)
        for action in due:
            if not isinstance(action, Wait):
                again = True
                with self._disk(now):
                    self._enactor.enact(action, now)
        self._status.publish(now, world, due, self._phase(), self._reason(), self._observer)
        self._tidy_windows(now)
        return now.mono if again else self._next(now, due)

    def _phase(self) -> str:
        return "degraded" if self._reason() else "draining" if self.draining else "running"

    def _reason(self) -> str | None:
        """Why not everything works: the disk refuses, the folders cannot be looked at, or no window can be had."""
        if self.degraded is not None:
            return self.degraded.reason
        if self._blind:
            return self._blind
        return next(iter(self.parts.memory.windowless.values()), None)

    def _next(self, now: Now, due: list[Action]) -> float:
        moments = [self._scan_due]
        again = self._observer.again(now.mono)
        if again is not None and again <= now.mono:
            return now.mono
        moments += [again] if again is not None else []
        moments += [action.until for action in due if isinstance(action, Wait) and action.until is not None]
        if self._sweep_due is not None:
            moments.append(self._sweep_due)
        if self.degraded is not None:
            moments.append(self.degraded.until)
        # A deadline that has passed waits for something else: no reason to look again and again.
        return min(moment for moment in moments if moment > now.mono)

    def _sleep(self, due: float) -> None:
        """Until the deadline or real news: what the daemon wrote itself is none."""
        while not self.stopping:
            left = due - time.monotonic()
            if self.notifier.interval is not None:
                left = min(left, self.notifier.interval)
            if left > 0 and not self.flag.wait(left):
                if time.monotonic() >= due:
                    return
                self.notifier.watchdog()
                continue
            self.flag.clear()
            if left <= 0:
                return
            try:
                news = self._news()
            except Exception as error:  # noqa: BLE001  # that it cannot be told is news
                self._rest(self._fault(Now(time.monotonic(), time.time()), error))
                return
            if news:
                return
            self._status.glances += 1

    def _rest(self, until: float) -> None:
        """Wait without a look at what is new: the look failed, and would fail again at once."""
        while not self.stopping and (left := until - time.monotonic()) > 0:
            self.flag.wait(min(left, self.notifier.interval or left))
            self.flag.clear()
            self.notifier.watchdog()

    def _news(self) -> bool:
        """Whether the watcher or the pool has something that the last tick does not know."""
        if self.parts.pool.pending():
            return True
        if self._watcher is None:
            return self.stopping
        notes = self._watcher.drain()
        self._notes.paths |= notes.paths
        self._notes.arrived |= notes.arrived
        self._notes.overflow |= notes.overflow
        if self._notes.overflow or any(self._is_news(path) for path in self._notes.paths):
            return True
        self._notes = Notes()
        return False

    def _is_news(self, path: Path) -> bool:
        workspace = self.parts.workspace
        if path.parent == workspace.wake:
            # Output alone changes nothing that is decided.
            session = path.name
            return session not in self.parts.memory.running or os.path.lexists(
                workspace.sessions / session / "exit.json"
            )
        if path.parent == workspace.requests:
            return os.path.lexists(path)
        return self.parts.store.differs(path)

    # -- looking ---------------------------------------------------------------------------------

    def _see(self, now: Now) -> None:
        """Look. Where that fails nothing new is begun, and what runs is served from what was seen before."""
        try:
            self._look(now)
            self._tell_ignored()
        except OSError as error:
            if not self._is_ours():
                raise  # it is not our workspace any more: nothing is served
            self._blinks += 1
            blind = f"{error.strerror or error} ({error.filename})"
            if blind != self._blind:
                self.parts.log.error("cannot look", reason=blind, exc_info=error)
                self.notifier.status(f"degraded: {blind}")
            self._blind = blind
            self._scan_due = now.mono + min(2.0**self._blinks, 30.0)

    def _tell_ignored(self) -> None:
        """One line for each name among the tracks that is left alone."""
        for state in (QUEUED, ACTIVE):
            names = dict.fromkeys(self.parts.store.others(state), "litter")
            names |= {e.name: e.kind for e in self.parts.store.entries(state).values() if e.kind != "file"}
            for name in sorted(names.keys() - self._ignored[state]):
                tell = self.parts.log.info if names[name] == "litter" else self.parts.log.warning
                tell("ignored", path=f"{state}/{name}", what=names[name])
            # An editor's file comes and goes with every save: it is told once.
            self._ignored[state] |= names.keys()
            if len(self._ignored[state]) > MAX_TOLD:
                self._ignored[state] = set(names)

    def _look(self, now: Now) -> None:
        notes, self._notes = self._notes, Notes()
        if self._watcher is not None:
            more = self._watcher.drain()
            notes.paths |= more.paths
            notes.arrived |= more.arrived
            notes.overflow |= more.overflow
        if now.mono >= self._scan_due or notes.overflow:
            began = time.monotonic()
            self._make_folders()
            os.listdir(self.parts.workspace.requests)  # nobody could ask for anything
            told = self._watcher is not None and self._watcher.alive()
            whole = not told or notes.overflow or now.mono >= self._whole_due
            if whole:
                self.parts.store.scan(now.wall)
            else:
                self.parts.store.scan_names(now.wall)
                self.parts.store.look(notes.paths)
            self._enactor.history.clear_reasons()
            if self._blind:
                self.parts.log.info("looks again")
            self._blind, self._blinks = "", 0
            took = time.monotonic() - began
            if whole:
                self._whole_due = now.mono + max(RESCAN, SPARE[told] * took)
            self._scan_due = now.mono + (max(RESCAN, SPARE[0] * took) if not told else RESCAN)
            self._check_watcher()
        else:
            self.parts.store.look(notes.paths)
        for path in notes.arrived:
            if path.parent == self.parts.workspace.queued:
                entry = self.parts.store.entries("queued").get(path.name)
                if entry is not None:
                    self.parts.stillness.arrived("queued", path.name, entry.ctime_ns)
                    self._observer.room.touch([("queued", path.name)])

    def _make_folders(self) -> None:
        """A folder of the queue that somebody removed is made again; what lay in it is theirs to bring back."""
        workspace = self.parts.workspace
        for folder in (
            *workspace.folders,
            workspace.tmp,
            workspace.displaced,
            workspace.wake,
            workspace.requests,
        ):
            self._make(folder)
        # No track waits for the database, and git may have put something else there.
        with contextlib.suppress(OSError):
            self._make(workspace.evals)

    def _make(self, folder: Path) -> None:
        if not os.path.isdir(folder):
            self.parts.files.make_dirs(folder)
            self.parts.log.warning("folder was gone", path=str(folder))

    def _check_watcher(self) -> None:
        if self.watch is None or (self._watcher is not None and self._watcher.alive()):
            return
        if self._watcher is not None:
            self.parts.log.warning(
                "watcher died", why="a watched directory was removed; a new one is started"
            )
            self._watcher.stop()
            self._watcher = None
        try:
            watcher = self.watch()
            watcher.start()
        except OSError as error:
            # inotify limits: events are only hints, scans go on.
            self.parts.log.warning("no watcher", why=str(error))
            return
        self._watcher = watcher
        self.parts.store.scan(time.time())

    # -- the disk --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _disk(self, now: Now) -> Any:
        try:
            yield
        except DiskFault as fault:
            self._degrade(now, str(fault), fault.place)

    def _degrade(self, now: Now, reason: str, place: Path | None = None) -> None:
        temps = self.parts.store.root / ".tmp"
        if self.degraded is None:
            self.degraded = Degraded(reason, now.wall, now.mono + PROBE[0], place or temps)
            self.parts.log.error("degraded", reason=reason)
            self.notifier.status(f"degraded: {reason}")
        else:
            self.degraded.reason = reason
            self.degraded.place = place or self.degraded.place

    def _probe(self, now: Now) -> None:
        """Whether the disk takes writes again."""
        if self.degraded is None or now.mono < self.degraded.until:
            return
        place, temps = self.degraded.place, self.parts.store.root / ".tmp"
        # What a crash leaves of a probe is looked for in these folders.
        own = directories(self.parts.workspace)
        place = next((folder for folder in (place, *place.parents) if folder in own), place)
        if not os.path.isdir(place) or place == self.parts.workspace.queued:  # where the daemon never writes
            place = temps
        try:
            self.parts.files.probe(place)
            self._recover_history(now)
        except OSError as error:
            self.degraded.tries += 1
            self.degraded.until = now.mono + min(PROBE[0] * 2.0 ** (self.degraded.tries - 1), PROBE[1])
            self.degraded.reason = f"{error.strerror or error} ({error.filename})"
            return
        self.parts.log.info("recovered", after_s=round(now.wall - self.degraded.since, 1))
        self.degraded = None

    # -- what is asked of the daemon itself ------------------------------------------------------

    def _requests(self, now: Now) -> None:
        for request in requests.load(self.parts.workspace.requests):
            match request:
                case requests.BadRequest(path, why):
                    self.parts.log.warning("bad request", file=path.name, why=why)
                    with self._disk(now), contextlib.suppress(OSError):
                        self.parts.files.unlink(path)
                case requests.Request(verb="down"):
                    # One that was meant for an earlier daemon is void.
                    with contextlib.suppress(OSError):
                        self.parts.files.unlink(request.path)
                    if request.pid == os.getpid():
                        self.draining = self.draining or request.drain
                        self.stopping = self.stopping or not request.drain
                case requests.Request(verb="interrupt"):
                    if not self._has_session(request.track):
                        self.parts.log.info("nothing to interrupt", track=request.track)
                        with contextlib.suppress(OSError):
                            self.parts.files.unlink(request.path)
                    self._force_shut(request.track)
                case requests.Request(verb="fresh"):
                    if self._carried_out(request) or self._is_void(request, now):
                        with contextlib.suppress(OSError):
                            self.parts.files.unlink(request.path)

    def _carried_out(self, request: requests.Request) -> bool:
        """Whether a claim names it already: a crash came before it was removed."""
        claims = (self.parts.sessions.claim(ref.id) for ref in self.parts.sessions.of(request.track)[-1:])
        return any(
            known is not None and request.path.name in known.extra.get("fresh", []) for known in claims
        )

    def _is_void(self, request: requests.Request, now: Now) -> bool:
        """Whether nothing that could be claimed afresh has its id, and has not had for long: its file was deleted."""
        if self._observer.has(request.track) or self._has_session(request.track):
            return False
        try:
            return now.wall - request.path.stat().st_mtime > VOID
        except FileNotFoundError:
            return False

    def _force_shut(self, track: str) -> None:
        """End a session whose directory its agent has shut: nothing can be asked of its runner there.

        How it ended is told, and the request served, when the directory is open again.
        """
        for ref in self.parts.sessions.open():
            path = self.parts.sessions.path(ref.id)
            if ref.item == track and ref.id not in self.parts.memory.forced and is_shut(path):
                self.parts.memory.forced.add(ref.id)
                self.parts.pool.submit("force", ref.id, lambda path=path: live.force(path))  # type: ignore[misc]

    def _has_session(self, track: str) -> bool:
        return any(ref.item == track for ref in self.parts.sessions.open())

    # -- late saves, windows ---------------------------------------------------------------------

    def _sweep(self, now: Now) -> None:
        if self.parts.exchange.fresh:
            self._sweep_due = min(self._sweep_due or now.mono + 1e9, now.mono)
        if self._sweep_due is None or now.mono < self._sweep_due:
            return
        try:
            wait = self.parts.exchange.sweep(now.wall, self._enactor.late.merge)
        except Exception as error:  # noqa: BLE001  # the file stays, and is looked at again
            self.parts.log.error("late saves", error=str(error), traceback=traceback.format_exc())
            wait = 5.0
        self._sweep_due = None if wait is None else now.mono + wait

    def _tidy_windows(self, now: Now) -> None:
        if now.mono >= self._windows_due:
            self._windows_due = now.mono + WINDOW_LOOK
            self.parts.pool.submit("windows", "", lambda: windows.tidy(self.parts, now.wall))

    # -- beginning and end -----------------------------------------------------------------------

    def _begin(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._told_to_end)
        now = Now(time.monotonic(), time.time())
        self.recover(now)
        self._check_watcher()
        self.parts.log.info("started", pid=os.getpid(), root=str(self.parts.workspace.root))

    def recover(self, now: Now) -> None:
        """What is read once at start. Everything else the first tick finds."""
        self.parts.sessions.load()
        with contextlib.suppress(OSError):  # the first tick looks again, and says what is in the way
            self.parts.store.scan(now.wall)
        try:
            self._recover_history(now)
        except OSError as error:
            self._degrade(now, str(DiskFault(error)), self._enactor.refusing(error))

    def _recover_history(self, now: Now) -> None:
        """Make up for lines that are missing. Raises OSError for the disk; one file's own trouble is only told."""
        try:
            self._enactor.history.recover(now)
        except OSError as error:
            if self._enactor.refusing(error) is not None:
                raise
            self.parts.log.warning("history not made up for", why=str(error))

    def _told_to_end(self, number: int, frame: FrameType | None) -> None:
        self.stopping = True
        self.flag.set()

    def _end(self) -> None:
        self.notifier.stopping()
        self._enactor.cancel_checks()
        if self._watcher is not None:
            self._watcher.stop()
        self.parts.pool.close()
        now = Now(time.monotonic(), time.time())
        self._status.end(now)
        self.parts.log.info("ended", ticks=self._status.ticks, sessions=len(self.parts.sessions.open()))


class _TooManyFaults(Exception):
    pass
