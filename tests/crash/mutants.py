"""Broken protocols, each with what finds it. A proof that lets one of these pass proves nothing.

To add one: the broken part as a subclass, and a row in MUTANTS that names its killer. A killer gets a mutant and
returns what is wrong with it as sentences; of the real protocol (`REAL`) it must find nothing.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from adapters import session as live
from adapters.ports import NotStarted
from daemon.durable import Opened, operation, write_all
from daemon.kernel.claiming import Claimer
from daemon.kernel.clock import Now
from daemon.kernel.edits import Edits
from daemon.kernel.evals import Evals
from daemon.kernel.history import History
from daemon.kernel.late import LateSaves
from daemon.kernel.observe import Observer
from daemon.kernel.parts import Parts
from daemon.kernel.settling import Settler
from daemon.spool import claim as claiming
from daemon.spool import frontmatter
from daemon.spool.claim import Quiet, Stillness, Stirring
from daemon.spool.exchange import Exchange, Merge
from daemon.spool.sessions import STAYS, Claim, Sessions, Settlement, _encode_claim, encode
from daemon.spool.states import ACTIVE, DONE, FAILED, QUEUED, State
from daemon.spool.store import Entry, Store, reason_name
from daemon.tracks import thread
from tests.crash.cases import case, crashes, edits, memory_dir, points_of, refusals
from tests.crash.forgetful import PowerWorld, cuts
from tests.crash.lives import LIVES
from tests.crash.steps import opened, tell
from tests.crash.world import Fault, Life, Mutant, StepFiles, World

Patch = Callable[[bytes], bytes]


class PlainRename(StepFiles):
    """Overwrites what has the name already."""

    @operation
    def move(self, old: Path, new: Path) -> None:
        os.rename(old, new)


class ClaimAfterSpawn(Sessions):
    """``claim.json`` only once the window is open."""

    def begin(self, claim: Claim, spec: bytes) -> None:
        self._files.make_dir(self.path(claim.session))
        self._files.publish(self.path(claim.session) / "spec.md", spec)
        self._know(claim)

    def spawned(self, session: str) -> None:
        self._files.publish(self.path(session) / "claim.json", _encode_claim(self._claims[session]))


class NotAdopted(Sessions):
    """A claim whose directory could not be synced is forgotten, though its file is there."""

    def _know(self, claim: Claim) -> None:
        if sys.exc_info()[0] is None:
            super()._know(claim)


class DroppedAtOnce(Exchange):
    """What came out of a swap is not looked at again."""

    def rewrite(self, path: Path, session: str, patch: Patch, *, merging: bool = False) -> bytes:
        new = super().rewrite(path, session, patch, merging=merging)
        for name in os.listdir(self._displaced):
            self._files.unlink(self._displaced / name)
        return new


class NamedBeforeWhole(Exchange):
    """The temp of a swap has its final name while it is written."""

    def _make(self, stem: str, new: bytes, mode: int) -> Path:
        temp = self._displaced / f"{stem}.{os.urandom(6).hex()}.md"
        self._files.create(temp, new, mode)
        return temp


class InPlace(Exchange):
    """Writes into the file itself."""

    def rewrite(self, path: Path, session: str, patch: Patch, *, merging: bool = False) -> bytes:
        new = patch(self._files.read(path))
        self._files.before("rewrite", path)
        path.write_bytes(new)
        return new


class SecondEval(Evals):
    """Writes the row without a look."""

    def write(self, row: object, *, sure: bool) -> None:
        super().write(row, sure=True)  # type: ignore[arg-type]


class WithoutMarker(Settler):
    """Appends the result each time."""

    def patched(self, data: bytes, block: thread.Facts, result: str) -> bytes:
        return frontmatter.append(thread.rendered(data, block), result)


class MovesTwice(Settler):
    """Does not look whether the file was moved before the crash."""

    def _already_there(self, known: Claim, state: State) -> str | None:
        return None

    def _bring(self, known: Claim) -> tuple[State, str]:
        path = self._parts.store.path("active", known.name)
        if not path.exists():
            self._restore(known, path)
        return "active", known.name


class WritesIntoQueued(Claimer):
    """Marks the file before it is taken."""

    def claim(self, entry: Entry, now: Now) -> None:
        path = self._parts.store.path(entry.state, entry.name)
        if b"taken" not in path.read_bytes():
            path.write_bytes(path.read_bytes() + b"taken\n")
        super().claim(entry, now)


class RunsLateSaves(LateSaves):
    """Leaves an editor's late save to be claimed."""

    def set_aside(self, name: str, state: State, session: str) -> None:
        claimer = Claimer(self._parts, self._observer, History(self._parts))
        claimer.claim(self._parts.store.entries(state)[name], Now(0.0, 0.0))


class BytesNotSynced(StepFiles):
    """A new file gets its name before its bytes are on disk."""

    @operation
    def create(self, path: Path, data: bytes, mode: int = 0o600) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            write_all(fd, data)
        finally:
            os.close(fd)


class NamesNotSynced(StepFiles):
    """No fsync of any directory."""

    def sync_dir(self, path: Path) -> None:
        return


class LinesNotSynced(StepFiles):
    """Lines of history are left to the system."""

    @operation
    def append(self, path: Path, data: bytes) -> None:
        with open(path, "ab") as file:
            file.write(data)


class FirstLineNotSynced(StepFiles):
    """The bytes of a line, and not the name of a file that it is the first of."""

    @operation
    def append(self, path: Path, data: bytes) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            write_all(fd, data)
            self.before("fsync", path)
            os.fsync(fd)
        finally:
            os.close(fd)


class TornLineLeft(StepFiles):
    """The next line is written right behind half of another."""

    @operation
    def append(self, path: Path, data: bytes) -> None:
        self._data = data
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            if not os.fstat(fd).st_size:
                self.sync_dir(path.parent)
            self.before("write", path)
            write_all(fd, data)
            self.before("fsync", path)
            os.fsync(fd)
        finally:
            os.close(fd)


class OpenedWithoutLease(Opened):
    def lease(self) -> None:
        return


class NoLease(StepFiles):
    """Nobody asks whether a file is open for writing in another program."""

    @contextlib.contextmanager
    def opened(self, path: Path) -> Iterator[Opened]:
        with super().opened(path) as opened:
            opened.__class__ = OpenedWithoutLease
            yield opened


class DeletedUnread(Exchange):
    """A displaced file goes once it was quiet, whatever is in it."""

    def _look(self, name: str, wall: float, merge: Merge) -> bool:
        return super()._look(name, wall, lambda session, theirs, ours, again: None)


class LaterWins(LateSaves):
    """Of two texts that cannot be merged, the one that came late is dropped."""

    def merge(self, session: str, theirs: bytes, ours: str, again: bool) -> None:
        folder = self._parts.sessions.path(session)
        before = set(os.listdir(folder))
        super().merge(session, theirs, ours, again)
        for name in set(os.listdir(folder)) - before:
            if name.startswith("late-save-"):
                os.unlink(folder / name)


class ClaimBeforeSpec(Sessions):
    """The claim stands before the text that was claimed is kept."""

    def begin(self, claim: Claim, spec: bytes) -> None:
        path = self.path(claim.session)
        self._files.make_dir(path)
        self._files.sync_dir(self.root)
        self._files.publish(path / "claim.json", _encode_claim(claim))
        self._files.publish(path / "spec.md", spec)
        self._know(claim)


class TempsLeft(Sessions):
    """What a crash left half-written in a session's directory stays there."""

    def _clear_temps(self, path: Path) -> bool:
        return True


class IntentNotSynced(Sessions):
    """``settle.json`` is written, and its name is not on disk when the file moves."""

    def intend(self, settlement: Settlement) -> None:
        fields = ("session", "item", "termination", "destination", "at", "why")
        record = {name: getattr(settlement, name) for name in fields} | {"extra": dict(settlement.extra)}
        self._files.create(self.path(settlement.session) / "settle.json", encode(record))
        self._settlements[settlement.session] = settlement


class SettledFirst(Settler):
    """The marker that nothing is left to do, before the file moves."""

    def roll_forward(self, session: str, now: Now) -> None:
        settlement = self._parts.sessions.settlement(session)
        assert settlement is not None
        if settlement.destination != STAYS:
            known = self._parts.sessions.claim(session)
            assert known is not None
            self._parts.files.publish(
                self._parts.sessions.path(session) / "settled",
                encode({"state": settlement.destination, "name": known.name, "at": settlement.at}),
            )
        super().roll_forward(session, now)


class SureHistory(History):
    def settled(self, known: Claim, settlement: Settlement, state: str, now: Now, *, sure: bool) -> None:
        super().settled(known, settlement, state, now, sure=True)


class HistoryWithoutALook(Settler):
    """The journal's line is written again after a crash."""

    def __init__(self, parts: Parts, history: History, edits: Edits) -> None:
        super().__init__(parts, SureHistory(parts), edits)


class ReasonNotSynced(Store):
    """The reason is written first, and may get to the disk last."""

    def refuse(self, name: str, why: str, state: State = QUEUED) -> str:
        target = self.free_name(FAILED, name)
        temp = self.root / ".tmp" / reason_name(target)
        self.files.create(temp, why.encode())
        self.files.replace(temp, self.path(FAILED, reason_name(target)))
        return self.move(name, state, FAILED, to=target)


class ReasonAfterwards(Store):
    """A bad file is moved first and told why later."""

    def refuse(self, name: str, why: str, state: State = QUEUED) -> str:
        target = self.move(name, state, FAILED)
        self.files.create(self.path(FAILED, reason_name(target)), why.encode())
        return target


class NameOfAnother(Claimer):
    """A file may get the name under which an open session expects its own."""

    def _take(self, entry: Entry) -> tuple[str, bytes]:
        return claiming.take(self._parts.store, entry)


class TakenUnseen(Claimer):
    """What was read before the rename counts, whatever was renamed."""

    def _take(self, entry: Entry) -> tuple[str, bytes]:
        store = self._parts.store
        data = store.files.read(store.path(QUEUED, entry.name))
        return store.move(entry.name, QUEUED, ACTIVE), data


class SessionOfTheBlock(Claimer):
    """A file goes on with the session that its block names."""

    def claim(self, entry: Entry, now: Now) -> None:
        data = self._parts.store.path(entry.state, entry.name).read_bytes()
        with contextlib.suppress(Exception):
            session = thread.block_session(data)
            settlement = self._parts.sessions.settlement(session) if session else None
            if settlement is not None and settlement.destination in (DONE, FAILED):
                name = self._parts.store.move(entry.name, QUEUED, ACTIVE)
                self._parts.store.move(name, ACTIVE, DONE)
                return
        super().claim(entry, now)


class IdOfTheBlock(Claimer):
    """A file is the track that its block names, also when another file is."""

    def _owned(self, item: str) -> bool:
        return False


class BlockBelieved(Observer):
    """A file whose block says ``done`` is done."""

    def observe(self, now: Now, *, claim: bool = True, closed: str = "") -> object:  # type: ignore[override]
        for ref in self._parts.sessions.open():
            known = self._parts.sessions.claim(ref.id)
            if known is None or self._parts.sessions.settlement(ref.id) is not None:
                continue
            path = self._parts.store.path(ACTIVE, known.name)
            if path.exists() and b"\n  status: done\n" in path.read_bytes():
                self._parts.sessions.intend(
                    Settlement(ref.id, known.item, "clean", DONE, known.claimed_at, extra={})
                )
                self._parts.memory.intended.add(ref.id)
        return super().observe(now, claim=claim, closed=closed)


class ByMtime(Stillness):
    """Quiet by the time that rsync and ``cp -p`` set back."""

    def judge(self, entry: Entry, mono: float, wall: float, lock: str | None) -> Quiet | Stirring:
        return (
            Quiet()
            if wall - entry.mtime >= claiming.QUIET_SECONDS
            else super().judge(entry, mono, wall, lock)
        )


class LocksIgnored(Stillness):
    """An editor's lock file says nothing."""

    def judge(self, entry: Entry, mono: float, wall: float, lock: str | None) -> Quiet | Stirring:
        return super().judge(entry, mono, wall, None)


def exclusive_gate() -> bool:
    """O_EXCL alone: the name is there before the bytes are."""
    try:
        fd = os.open("started.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return False
    os.write(fd, json.dumps({"v": 1, "by": "runner"}).encode())
    os.close(fd)
    return True


def open_gate() -> bool:
    """Whoever comes runs."""
    Path("started.json").write_bytes(json.dumps({"v": 1, "by": "runner"}).encode())
    return True


# -- killers ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Killer:
    """What finds a broken protocol. run: a mutant in, what is wrong with it out."""

    name: str
    run: Callable[[Mutant], list[str]]


Faults = Callable[[Sequence[str]], list[Fault]]


def _life(name: str) -> Life:
    return next(life for life in LIVES if life.name == name)


def untroubled(life: str) -> Killer:
    """A life without faults."""
    return Killer(f"life {life!r}", lambda mutant: case(_life(life), [], mutant)[1])


def enumeration(life: str, faults: Faults, world: Callable[[Path, Life, Mutant], World] = World) -> Killer:
    """Every fault of a kind at every point of one life."""

    def run(mutant: Mutant) -> list[str]:
        story = _life(life)
        # What holds is gone through as a whole by the proofs of that kind; here a sample shows that nothing cries wolf.
        for fault in faults(points_of(story, mutant))[:: 4 if mutant == Mutant() else 1]:
            _, wrong = case(story, [fault], mutant, world)
            if wrong:
                return [str(fault), *wrong]
        return []

    way = "cache-loss" if world is PowerWorld else "enumeration"
    return Killer(f"{way}: {life!r}, {getattr(faults, '__name__', faults)}", run)


def refused_once(points: Sequence[str]) -> list[Fault]:
    """Each operation refused by a full disk, once."""
    return [fault for fault in refusals(points) if (fault.errno, fault.lasts) == (errno.ENOSPC, 0)]


def agent_writes_done(world: World) -> None:
    """An agent sets the status in its own file."""
    for path in sorted(world.workspace.active.glob("*.md")):
        data = path.read_bytes()
        if b"  status: active\n" in data:
            world.put(f"active/{path.name}", data.replace(b"  status: active\n", b"  status: done\n"))


def lies(points: Sequence[str]) -> list[Fault]:
    return [Fault(number, "act", act=agent_writes_done) for number in range(len(points))]


def saved_in_queued(world: World) -> None:
    """A person's editor saves over a waiting file, by rename."""
    for path in sorted(world.workspace.queued.glob("*.md")):
        if path.stem not in world.life.refused:
            word = f"typed into {path.stem}"
            world.put(f"queued/{path.name}", path.read_bytes() + f"\n{word}\n".encode(), word)


def saves_in_queued(points: Sequence[str]) -> list[Fault]:
    return [Fault(number, "act", act=saved_in_queued) for number in range(len(points))]


def _saved_while_taken(mutant: Mutant) -> list[str]:
    """A person saves over a file that is being taken: what is run is what lies there."""
    story = _life("checks")
    for fault in saves_in_queued(points_of(story, mutant)):
        with tempfile.TemporaryDirectory(prefix="mh-crash-", dir=memory_dir()) as root:
            world = World(Path(root) / "w", story, mutant)
            world.live([fault])
            run = b"".join(path.read_bytes() for path in world.workspace.sessions.glob("*/spec.md"))
        for _, word in world.words:
            if word.startswith("typed") and word.encode() not in run:
                return [str(fault), f"saved in queued/, and not run: {word!r}"]
    return []


def _old_buffer(mutant: Mutant) -> list[str]:
    """A buffer from before a reply is saved where the file was: neither text may win by itself."""
    with opened(mutant) as scene:
        task = scene.ledger.new("plain")
        task.more(files=1, claims=2)
        scene.save("queued/plain-1.md", scene.ledger.text(task))
        old = next(iter(task.saved))
        for number in (1, 2):
            while scene.free("done/plain-1.md") or scene.worked_on("plain-1.md"):
                scene.tick()
            if number == 1:
                (done,) = scene.docs("done")
                scene.save(done.place, done.data + scene.ledger.word() + b"\n")
                scene.shift(done, "queued/plain-1.md")
        scene.save("active/plain-1.md", old + scene.ledger.word() + b"\n")
        return scene.rest()


def _steps(mutant: Mutant) -> list[str]:
    return tell(STEPS, 1, mutant, shorten=False)[1]


STEPS = 400
steps = Killer(f"steps: {STEPS} gestures", _steps)


def _namesake(mutant: Mutant) -> list[str]:
    """A person takes the file of a running track away while another of its name is being taken."""
    for moment in range(NAMESAKE_POINTS):
        with opened(mutant) as scene:
            for number in (1, 2):
                task = scene.ledger.new("long")
                task.more(files=1, claims=1)
                task.rough = task.interrupted = number == 1
                scene.save("queued/long-1.md", scene.ledger.text(task))
                while number == 1 and scene.worked_on("long-1.md") is None:
                    scene.tick()
            own = next(doc for doc in scene.docs("active") if doc.name == "long-1.md")
            scene.at(moment, functools.partial(scene.remove, own))
            scene.tick()
            if wrong := [*scene.look(), *scene.rest()]:
                return [f"at operation {moment}", *wrong]
    return []


NAMESAKE_POINTS = 12
old_buffer = Killer("an old buffer is saved after a reply", _old_buffer)
namesake = Killer("a file is removed while its namesake is taken", _namesake)


def _gate_cut(mutant: Mutant) -> list[str]:
    """The runner dies in its first write at the gate: nothing has run, and nobody may believe that it has."""
    with tempfile.TemporaryDirectory(prefix="mh-gate-", dir=memory_dir()) as name:
        child = os.fork()
        if child == 0:
            os.chdir(name)
            os.write = lambda fd, data: os._exit(9)  # type: ignore[assignment,misc]
            mutant.runner_gate()
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != 9:
            return [f"the gate wrote nothing ({status})"]
        found = live.status(Path(name))
        return [] if isinstance(found, NotStarted) else [f"taken for a passed gate: {found}"]


def _gate_twice(mutant: Mutant) -> list[str]:
    """Two runners come to the gate one after the other."""
    with tempfile.TemporaryDirectory(prefix="mh-gate-", dir=memory_dir()) as name, contextlib.chdir(name):
        passed = [mutant.runner_gate(), mutant.runner_gate()]
    return [] if passed == [True, False] else [f"passed the gate: {passed}"]


gate_cut = Killer("a runner that dies while it writes started.json", _gate_cut)
gate_twice = Killer("two runners at one gate", _gate_twice)


def _entry(mtime: float) -> Entry:
    wall = time.time()
    return Entry(QUEUED, "a.md", 1, int(wall * 1e9), mtime, 10, os.geteuid(), 1, "file")


def _copied_with_its_time(mutant: Mutant) -> list[str]:
    entry = _entry(mtime=0.0)
    found = mutant.stillness().judge(entry, 100.0, entry.ctime_ns / 1e9 + 1.0, None)
    return [] if isinstance(found, Stirring) else ["a file that `cp -p` is writing is taken"]


def _locked(mutant: Mutant) -> list[str]:
    entry = _entry(mtime=0.0)
    found = mutant.stillness().judge(entry, 100.0, entry.ctime_ns / 1e9 + 10.0, ".a.md.swp")
    return [] if isinstance(found, Stirring) else ["a file that is open in an editor is taken"]


saved_while_taken = Killer("a person saves over a file that is being taken", _saved_while_taken)
copied_with_its_time = Killer("a file that was just written, with an old mtime", _copied_with_its_time)
locked = Killer("an editor's swap file beside a file", _locked)


MUTANTS: tuple[tuple[Mutant, Killer], ...] = (
    (Mutant("plain rename", files=PlainRename), enumeration("name taken", crashes)),
    (Mutant("no start gate", gate=False), steps),
    (Mutant("no gate in the runner", runner_gate=open_gate), gate_twice),
    (Mutant("gate by O_EXCL", runner_gate=exclusive_gate), gate_cut),
    (Mutant("claim.json after the spawn", sessions=ClaimAfterSpawn), enumeration("checks", crashes)),
    (Mutant("claim.json before spec.md", sessions=ClaimBeforeSpec), enumeration("checks", crashes)),
    (Mutant("a claim forgotten", sessions=NotAdopted), enumeration("after", refused_once)),
    (Mutant("temps left", sessions=TempsLeft), enumeration("checks", crashes)),
    (Mutant("displaced file dropped at once", exchange=DroppedAtOnce), enumeration("edited", edits)),
    (Mutant("displaced file deleted unread", exchange=DeletedUnread), enumeration("edited", edits)),
    (Mutant("swap temp named before it is whole", exchange=NamedBeforeWhole), enumeration("edited", crashes)),
    (Mutant("rewritten in place", exchange=InPlace), enumeration("edited", edits)),
    (Mutant("no lease", files=NoLease), enumeration("edited", edits)),
    (Mutant("of two texts one dropped", late=LaterWins), old_buffer),
    (Mutant("eval row without a look", evals=SecondEval), enumeration("attempts", crashes)),
    (Mutant("journal line without a look", settler=HistoryWithoutALook), enumeration("attempts", crashes)),
    (Mutant("result without marker", settler=WithoutMarker), enumeration("attempts", crashes)),
    (Mutant("moved twice", settler=MovesTwice), enumeration("after", crashes)),
    (Mutant("settled before it is", settler=SettledFirst), enumeration("checks", crashes)),
    (Mutant("reason after the move", store=ReasonAfterwards), enumeration("checks", crashes)),
    (Mutant("torn line left", files=TornLineLeft), enumeration("checks", crashes)),
    (Mutant("writes into queued", claimer=WritesIntoQueued), enumeration("after", crashes)),
    (Mutant("late saves are run", late=RunsLateSaves), enumeration("saved late into active", crashes)),
    (Mutant("taken unseen", claimer=TakenUnseen), saved_while_taken),
    (Mutant("the name of another", claimer=NameOfAnother), namesake),
    (Mutant("session taken from the block", claimer=SessionOfTheBlock), untroubled("requeued")),
    (Mutant("id taken from the block", claimer=IdOfTheBlock), untroubled("copied")),
    (Mutant("block believed", observer=BlockBelieved), enumeration("lost", lies)),
    (Mutant("mtime for ctime", stillness=ByMtime), copied_with_its_time),
    (Mutant("lock files ignored", stillness=LocksIgnored), locked),
    (Mutant("no fsync of files", files=BytesNotSynced), enumeration("checks", cuts, PowerWorld)),
    (Mutant("no fsync of directories", files=NamesNotSynced), enumeration("checks", cuts, PowerWorld)),
    (Mutant("no fsync of lines", files=LinesNotSynced), enumeration("checks", cuts, PowerWorld)),
    (Mutant("no fsync of a line's file", files=FirstLineNotSynced), enumeration("checks", cuts, PowerWorld)),
    (Mutant("no fsync of a reason", store=ReasonNotSynced), enumeration("checks", cuts, PowerWorld)),
    (Mutant("intent not synced", sessions=IntentNotSynced), enumeration("checks", cuts, PowerWorld)),
)
