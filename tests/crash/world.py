"""A small world in which the daemon can be stopped at any file operation.

The supervisor, the spool and the kernel are the real ones, over real files.
Played are the clock, the terminal with its runners, the place where a track
works (stage.py), and the person (lives.py).

A *point* is one announcement of `daemon.durable.Files`: before or after an
operation, or inside one ("open", "write", "fsync"). A *case* (cases.py) is one
life with faults at given points; `check` says afterwards what is not as it
must be.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from adapters.runner import take_gate
from daemon.config import Settings
from daemon.durable import Files
from daemon.kernel.claiming import Claimer
from daemon.kernel.clock import Now
from daemon.kernel.enact import Enactor
from daemon.kernel.evals import Evals
from daemon.kernel.late import LateSaves
from daemon.kernel.observe import Observer
from daemon.kernel.parts import Parts
from daemon.kernel.route import Harnesses, Router
from daemon.kernel.settling import Settler
from daemon.layout import Workspace
from daemon.notify import Notifier
from daemon.spool import frontmatter
from daemon.spool.claim import Stillness
from daemon.spool.exchange import Exchange
from daemon.spool.journal import Journal
from daemon.spool.sessions import STAYS, Sessions
from daemon.spool.store import Store
from daemon.supervisor import Supervisor
from daemon.tracks import thread
from daemon.tracks.machine import BLOCKED
from daemon.workspace import directories
from tests.crash.stage import Notebook, NowPool, OneHarness, Part, Places, Stage


class Crash(BaseException):
    """The machine stops here. Not an Exception, so that nothing between the operation and the world takes it."""


Kind = Literal["crash", "torn", "errno", "act"]


@dataclass(frozen=True)
class Fault:
    """What happens at point number `at`, counted from the start of that daemon.

    lasts: with "errno", how many further operations fail too.
    act: with "act", what a person does at this very moment.
    """

    at: int
    kind: Kind = "crash"
    errno: int = 0
    lasts: int = 0
    act: Callable[[World], None] | None = None

    def __str__(self) -> str:
        detail = f" {os.strerror(self.errno)} x{self.lasts + 1}" if self.errno else ""
        detail += f" {self.act.__name__}" if self.act is not None else ""
        return f"{self.kind}@{self.at}{detail}"


class StepFiles(Files):
    """Counts points, and stops or fails at one of them."""

    def __init__(self, world: World, fault: Fault | None) -> None:
        super().__init__()
        self._world = world
        self._fault = fault
        self._data = b""
        self.points: list[str] = []
        self.fired = False

    def create(self, path: Path, data: bytes, mode: int = 0o600) -> None:
        self._data = data
        super().create(path, data, mode)

    def append(self, path: Path, data: bytes) -> None:
        self._data = data
        super().append(path, data)

    def before(self, name: str, *args: object) -> None:
        self._point(f"before {name}", name, args)

    def after(self, name: str, *args: object) -> None:
        self._point(f"after {name}", name, args)

    def _point(self, label: str, name: str, args: Sequence[object]) -> None:
        self.points.append(label)
        self._world.on_point()
        fault = self._fault
        if fault is None:
            return
        number = len(self.points) - 1
        if fault.kind == "errno":
            if fault.at <= number <= fault.at + fault.lasts and label.startswith("before"):
                self.fired = True
                if name == "write":
                    self._tear(args[0])
                raise OSError(fault.errno, os.strerror(fault.errno), str(args[0]))
        elif number == fault.at:
            self.fired = True
            if fault.kind == "act":
                assert fault.act is not None
                fault.act(self._world)
                return
            if fault.kind == "torn":
                self._tear(args[0])
            raise Crash

    def _tear(self, path: object) -> None:
        """Half of the bytes get to the disk."""
        assert isinstance(path, Path)
        fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.write(fd, self._data[: len(self._data) // 2])
        os.close(fd)


# -- a life ----------------------------------------------------------------------------------------


@dataclass
class Pin:
    """An editor that has found the file's inode, opens it when it may, and writes after some points."""

    fd: int
    data: bytes
    holds: int
    writer: int = -1


@dataclass(frozen=True)
class Deed:
    """What a person does once, as soon as `when` holds."""

    when: Callable[[World], bool]
    do: Callable[[World], None]


@dataclass(frozen=True)
class Life:
    """One story.

    drop: folder/name -> bytes, there from the beginning.
    expect: folder/name of every file at the end -> attempts (sessions) that really ran for it.
    """

    name: str
    drop: dict[str, bytes]
    expect: dict[str, int]
    parts: dict[str, Part] = field(default_factory=dict)
    deeds: tuple[Deed, ...] = ()
    refused: frozenset[str] = frozenset()
    #: (track, value) of every label that a person gave.
    labels: frozenset[tuple[str, str]] = frozenset()
    #: track -> words that its agent must have heard, in a message or in its brief.
    heard: dict[str, str] = field(default_factory=dict)
    #: The person deletes the file, or saves another version of it: what another editor saved into it before is
    #: gone by their own hand, or makes a track of its own.
    alone: bool = False


@dataclass(frozen=True)
class Mutant:
    """A broken protocol: which part is put in the place of the real one."""

    name: str = ""
    files: type[StepFiles] = StepFiles
    exchange: type[Exchange] = Exchange
    sessions: type[Sessions] = Sessions
    claimer: type[Claimer] = Claimer
    settler: type[Settler] = Settler
    late: type[LateSaves] = LateSaves
    store: type[Store] = Store
    evals: type[Evals] = Evals
    observer: type[Observer] = Observer
    stillness: type[Stillness] = Stillness
    gate: bool = True
    #: Of the real runner: makes started.json in the current directory.
    runner_gate: Callable[[], bool] = take_gate


REAL = Mutant()
RESULT = b"<!-- megaharness: result"
MAX_STEPS = 400
#: Steps without anything to do after which a deed has missed its moment.
MISSED = 20
SETTINGS = Settings.model_validate({"limits": {"slots": 2, "attempts": 2}})


class World:
    def __init__(self, root: Path, life: Life, mutant: Mutant = REAL) -> None:
        self.workspace = Workspace(root)
        self.life = life
        self.mutant = mutant
        self.mono = 100.0
        self.skew = 0.0  # by how much the clock was set
        self.stage = Stage(life.parts, gate=mutant.gate)
        self.harnesses: Harnesses = OneHarness()
        self.reap: Callable[[str], int] = lambda session: 0
        self.notebook = Notebook()
        self.words: list[tuple[str, str]] = []  # (track file stem, what a person wrote)
        self.saves: Counter[str] = Counter()  # track file stem -> saves that may each be worth an attempt
        self.queued: dict[str, tuple[int, bytes]] = {}
        self.faults: list[str] = []
        #: Whether somebody moves the files of settled sessions about, too.
        self.restless = False
        self.pins: list[Pin] = []
        self.deeds = list(life.deeds)
        self._quiet_for = 0
        for directory in directories(self.workspace):
            directory.mkdir(parents=True, exist_ok=True)
        (root / "places").mkdir(exist_ok=True)
        for place, data in life.drop.items():
            stem = Path(place).stem
            own = stem not in life.refused and life.expect.get(place) != -1
            self.put(place, data, f"words of {stem}" if own else "")

    # the person

    def put(self, place: str, data: bytes, word: str = "") -> None:
        """Write a file as a careful program does: temp, rename."""
        path = self.workspace.tracks / place
        temp = self.workspace.root / "person.tmp"
        temp.write_bytes(data)
        temp.rename(path)
        if place.startswith("queued/"):
            self.queued[path.name] = (path.stat().st_ino, data)
        if word:
            self.words.append((path.stem.split("~")[0], word))

    def move(self, old: str, new: str) -> None:
        path = self.workspace.tracks / new
        (self.workspace.tracks / old).rename(path)
        if new.startswith("queued/"):
            self.queued[path.name] = (path.stat().st_ino, path.read_bytes())

    def exists(self, place: str) -> bool:
        return (self.workspace.tracks / place).exists()

    def running(self, track: str) -> bool:
        return any(runner.session.name.startswith(f"{track}-") for runner in self.stage._running)

    # the daemon

    def now(self) -> Now:
        return Now(self.mono, time.time() + self.mono + self.skew)

    def boot(self, fault: Fault | None) -> None:
        workspace = self.workspace
        self.files = files = self.mutant.files(self, fault)
        parts = Parts(
            workspace=workspace,
            settings=SETTINGS,
            files=files,
            store=self.mutant.store(workspace.tracks, files),
            sessions=self.mutant.sessions(workspace.sessions, files),
            journal=Journal(workspace.journal, files),
            evals=self.mutant.evals(workspace.evals, files),
            exchange=self.mutant.exchange(workspace.displaced, files),
            scratch=Places(workspace.root / "places"),  # type: ignore[arg-type]
            harnesses=self.harnesses,
            router=Router(self.harnesses, ()),
            terminal=self.stage,
            pool=NowPool(),
            reap=self.reap,
            log=self.notebook,
            uid=os.geteuid(),
            stillness=self.mutant.stillness(),
        )
        self.stage.on_open = self._window_opened
        self.supervisor = Supervisor(parts, threading.Event(), None, Notifier())
        self.supervisor._observer = self.mutant.observer(parts)
        self.supervisor._enactor = Enactor(
            parts,
            self.supervisor._observer,
            claimer=self.mutant.claimer,
            settler=self.mutant.settler,
            late=self.mutant.late,
        )
        self.parts = parts
        self.supervisor.recover(self.now())

    def _window_opened(self, session: str) -> None:
        """No file operation, but the moment at which a runner is on its way and has not come to the gate."""
        self.files.after("window", session)
        getattr(self.parts.sessions, "spawned", lambda name: None)(session)

    def step(self) -> None:
        if self.supervisor.degraded is not None:
            self.mono = max(self.mono, self.supervisor.degraded.until - 1.0)
        self.go_on()
        self.supervisor.turn(self.now())
        self.look_at_queue()

    def go_on(self) -> None:
        """What happens around the daemon from one of its turns to the next."""
        self.mono += 1.0
        for deed in list(self.deeds):
            if not self.pins and deed.when(self):  # a person does not work against their own open editor
                self.deeds.remove(deed)
                deed.do(self)
        self.stage.step()
        self.on_point()

    def idle(self) -> bool:
        """A deed whose moment has not come long after all else is done never comes: a refusing disk delayed it."""
        if self.pins or self.stage.busy or not self.has_nothing_to_do():
            self._quiet_for = 0
            return False
        self._quiet_for += 1
        return not self.deeds or self._quiet_for > MISSED

    def around(self) -> bool:
        """Whether something is still to happen around the daemon."""
        return bool(self.deeds or self.pins or self.stage.busy)

    def has_nothing_to_do(self) -> bool:
        """Whether the daemon is done with all that there is."""
        tracks = self.workspace.tracks
        return not (
            self.parts.sessions.open()
            or os.listdir(tracks / "queued")
            or os.listdir(tracks / "active")
            or os.listdir(tracks / ".displaced")
            or self.supervisor.degraded
        )

    def live(self, faults: Sequence[Fault]) -> list[StepFiles]:
        """A life from wherever the files stand; each fault belongs to one daemon. Returns their counters."""
        left = list(faults)
        counters = []
        while True:
            fault = left.pop(0) if left else None
            try:
                self.boot(fault)
                counters.append(self.files)
                for _ in range(MAX_STEPS):
                    self.step()
                    if self.idle():
                        break
                else:
                    self.faults.append(f"it does not come to an end: {self._why()}")
            except Crash:
                if len(counters) == 0 or counters[-1] is not self.files:
                    counters.append(self.files)
                self.look_at_queue()
                self.stage.lose_windows()
                self.mono += 1.0
                continue
            break
        # Long afterwards: whatever lies around now is left for ever.
        self.mono += 3600.0
        self.boot(None)
        for _ in range(3):
            self.step()
        return counters

    def _why(self) -> str:
        state = self.supervisor._status._state
        return f"{state.get('running')} {state.get('waiting')}; degraded {self.supervisor.degraded}"

    # what is looked at on the way

    def look_at_queue(self) -> None:
        """Nobody but the person writes into queued/."""
        for name, (inode, data) in list(self.queued.items()):
            path = self.workspace.queued / name
            try:
                there = path.read_bytes()
                if there.count(RESULT) > data.count(RESULT):
                    # Sent back while it ran: taken out, given its result, and put back by a rename.
                    self.queued[name] = (path.stat().st_ino, there)
                elif path.stat().st_ino != inode or there != data:
                    self.faults.append(f"queued/{name} was written by the daemon")
            except FileNotFoundError:
                del self.queued[name]  # it was taken: what lies there later is another file

    def on_point(self) -> None:
        """A writer that a lease keeps waiting goes on as soon as it may, in the file that it had opened."""
        for pin in list(self.pins):
            if pin.writer < 0:
                try:
                    pin.writer = os.open(f"/proc/self/fd/{pin.fd}", os.O_WRONLY | os.O_NONBLOCK)
                except BlockingIOError:
                    continue
            if pin.holds > 0:
                pin.holds -= 1
                continue
            os.ftruncate(pin.writer, 0)
            os.write(pin.writer, pin.data)
            os.close(pin.writer)
            os.close(pin.fd)
            self.pins.remove(pin)


def rows(path: Path) -> list[dict[str, Any]]:
    found = []
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def check(world: World) -> list[str]:
    """Every invariant that does not hold, as a sentence."""
    wrong = list(world.faults)
    life, workspace = world.life, world.workspace
    tracks = workspace.tracks
    files = {
        f"{state}/{name}": tracks / state / name
        for state in ("queued", "active", "done", "failed")
        for name in os.listdir(tracks / state)
        if name.endswith(".md")
    }
    if set(files) != set(life.expect):
        wrong.append(f"files: {sorted(files)}, expected {sorted(life.expect)}")
        return wrong
    sessions = world.parts.sessions
    kept = b"".join(path.read_bytes() for path in workspace.sessions.glob("*/late-save-*.md"))
    own_files = {place: path for place, path in files.items() if life.expect[place] >= 0}
    texts = {path.stem.split("~")[0]: path.read_bytes() for path in own_files.values()}
    for stem, word in world.words:
        own = b"" if stem in life.refused else thread.own_text(texts[stem])[1].encode()
        if word.encode() not in own + kept + (texts[stem] if stem in life.refused else b""):
            wrong.append(f"lost: {word!r} of {stem}")
    ran: Counter[str] = Counter()
    for session, count in world.stage.runs.items():
        item = session.rsplit("-", 2)[0]
        ran[item] += 1
        if count > 1:
            wrong.append(f"{session} ran {count} times")
    wrong += sessions_wrong(world)
    journal = rows(workspace.journal)
    written = [row for path in workspace.evals.iterdir() for row in rows(path)]
    labels = Counter((row["track_id"], row["value"]) for row in written if row["type"] == "label")
    if labels != Counter(dict.fromkeys(life.labels, 1)):
        wrong.append(f"labels {dict(labels)}, expected {sorted(life.labels)}")
    for session in os.listdir(workspace.sessions):
        settlement, known = sessions.settlement(session), sessions.claim(session)
        if settlement is None or known is None:
            continue  # told by `sessions_wrong`
        stem = known.name[: -len(".md")].split("~")[0]
        marks = len(
            re.findall(
                rb"(?m)^<!-- megaharness: (?:result|question), attempt \d+, " + session.encode(), texts[stem]
            )
        )
        if marks != (settlement.destination != STAYS or settlement.termination == BLOCKED):
            wrong.append(f"{session}: its result stands {marks} times in the file")
    for session, number in Counter(world.stage.heard).items():
        if number > 1:
            wrong.append(f"{session} was told {number} times")
    for item, word in life.heard.items():
        told = b"".join(path.read_bytes() for path in workspace.sessions.glob(f"{item}-*/inbox/delivered/*"))
        told += b"".join(path.read_bytes() for path in workspace.sessions.glob(f"{item}-*/brief.md"))
        if word.encode() not in told:
            wrong.append(f"{item} never heard {word!r}")
    for place, attempts in life.expect.items():
        path = files[place]
        stem = path.stem.split("~")[0]
        if stem in life.refused:
            if path.read_bytes() != next(data for name, data in life.drop.items() if Path(name).stem == stem):
                wrong.append(f"{place}: a refused file was changed")
            count = sum(
                1 for row in journal if row.get("termination") == "refused" and row.get("name") == path.name
            )
            if count != 1:
                wrong.append(f"{place}: {count} rows of its refusal")
            if not (path.parent / f"{path.name}.why.txt").exists():
                wrong.append(f"{place}: no reason beside it")
            continue
        if attempts < 0:  # a bystander
            if path.read_bytes() != life.drop[place]:
                wrong.append(f"{place} was changed")
            continue
        item = stem
        if not attempts <= ran[item] <= attempts + world.saves[item]:
            wrong.append(f"{item}: {ran[item]} sessions ran, expected {attempts}")
        block = frontmatter.read(path.read_bytes()).meta.get("megaharness")
        if not isinstance(block, dict) or block.get("status") != path.parent.name:
            wrong.append(f"{place}: its block says {block}")
    return wrong + litter(world)


def sessions_wrong(world: World) -> list[str]:
    """Every session that is not settled, or is not told of exactly once, as sentences."""
    wrong: list[str] = []
    workspace, sessions = world.workspace, world.parts.sessions
    journal = rows(workspace.journal)
    written = [row for path in workspace.evals.iterdir() for row in rows(path)]
    evals = Counter(row["session_id"] for row in written if row["type"] == "session")
    counted = Counter((row.get("session"), row["to"]) for row in journal)
    found = set(os.listdir(workspace.sessions))
    for session in found:
        names = set(os.listdir(workspace.sessions / session))
        if temps := {name for name in names if name.startswith(".")}:
            wrong.append(f"{session}: left {temps}")
        if not {"claim.json", "settle.json", "settled", "spec.md"} <= names:
            wrong.append(f"{session}: not settled ({sorted(names)})")
            continue
        settlement = sessions.settlement(session)
        known = sessions.claim(session)
        if settlement is None or known is None:
            wrong.append(f"{session}: its claim.json or settle.json cannot be read")
            continue
        if evals[session] != 1:
            wrong.append(f"{session}: {evals[session]} eval rows")
        ends = [
            to for (known_as, to), number in counted.items() if known_as == session for _ in range(number)
        ]
        ends = [to for to in ends if to != "active"]
        # A person may have moved it since the intent was written: it is told where it was found, each time.
        once = len(ends) == 1 or (world.restless and ends and len(set(ends)) == len(ends))
        if not once or (settlement.destination == STAYS) != (ends == [STAYS]):
            wrong.append(f"{session}: rows to {ends}, and its intent was {settlement.destination}")
        if counted[session, "active"] != (known.attempt == known.round):
            wrong.append(f"{session}: {counted[session, 'active']} claim rows")
    if set(evals) - found:
        wrong.append(f"eval rows of unknown sessions: {set(evals) - found}")
    return wrong


def litter(world: World) -> list[str]:
    """What is left over, and what the log calls a fault of the program, as sentences."""
    wrong: list[str] = []
    workspace = world.workspace
    tracks = workspace.tracks
    for folder in (".tmp", ".displaced"):
        if left := os.listdir(tracks / folder):
            wrong.append(f"left in {folder}: {left}")
    for folder in ("active", "done", "failed"):
        if left := [name for name in os.listdir(tracks / folder) if name.startswith(".")]:
            wrong.append(f"left in {folder}: {left}")
    for place in os.listdir(tracks / "failed"):
        if place.endswith(".why.txt") and not (tracks / "failed" / place[: -len(".why.txt")]).exists():
            wrong.append(f"a reason without a file: {place}")
    if left := os.listdir(workspace.wake):
        wrong.append(f"left in wake: {left}")
    if left := os.listdir(workspace.requests):
        wrong.append(f"left in requests: {left}")
    for level, event, facts in world.notebook.rows:
        if event == "parked" or (level == "error" and not _is_disk(facts)):
            wrong.append(f"{event}: {facts}"[-1500:])
    return wrong


def _is_disk(facts: dict[str, object]) -> bool:
    text = str(facts.get("exc_info", "")) + str(facts.get("reason", "")) + str(facts.get("traceback", ""))
    return any(os.strerror(number) in text for number in FAILING) or "[Errno" in text


FAILING = (28, 5, 13, 30)  # ENOSPC, EIO, EACCES, EROFS
