"""The disk refuses for a while, for real: a small file system that is full or out of inodes, a mount that is read-only.

A *spell* begins at any point of a life and lasts some turns of the daemon, which may also be stopped and started anew in
it. What must hold afterwards is what must hold for a life without any; what must hold meanwhile is looked at on the way (`Spelled`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.crash import mounts
from tests.crash.cases import Broken
from tests.crash.lives import LIVES
from tests.crash.stage import Hands
from tests.crash.world import REAL, Crash, Fault, Life, Mutant, World, check

#: Lives in which the person does something while a short run lasts, which a disk that refuses can keep them from.
PERSONAL = frozenset({"edited", "deleted while it ran"})
SPELLS = tuple(life for life in LIVES if life.name not in PERSONAL)


class Spell:
    """How the disk refuses. strerror: what everybody is told then."""

    strerror = os.strerror(errno.ENOSPC)

    def begin(self, root: Path) -> bool:
        """False: not yet; it is tried again at the next point."""
        raise NotImplementedError

    def end(self, root: Path) -> None:
        raise NotImplementedError


class Full(Spell):
    """No block is left, or only some. spare: how many pages."""

    def __init__(self, spare: int = 0) -> None:
        self._spare = spare

    def begin(self, root: Path) -> bool:
        fd = os.open(root / "filler", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            with contextlib.suppress(OSError):  # ENOSPC
                while True:
                    os.write(fd, b"x" * 4096)
            os.ftruncate(fd, max(0, os.fstat(fd).st_size - self._spare * 4096))
        finally:
            os.close(fd)
        return True

    def end(self, root: Path) -> None:
        (root / "filler").unlink()


class NoInodes(Spell):
    """No file can be made, or only some."""

    def __init__(self, spare: int = 0) -> None:
        self._spare = spare

    def begin(self, root: Path) -> bool:
        folder = root / "fillers"
        folder.mkdir()
        made: list[Path] = []
        with contextlib.suppress(OSError):  # ENOSPC
            while True:
                path = folder / str(len(made))
                path.touch()
                made.append(path)
        for path in made[: self._spare]:
            path.unlink()
        return True

    def end(self, root: Path) -> None:
        for path in (root / "fillers").iterdir():
            path.unlink()
        (root / "fillers").rmdir()


class ReadOnly(Spell):
    """The mount takes no writes. It cannot be made so while a file in it is open for writing."""

    strerror = os.strerror(errno.EROFS)

    def begin(self, root: Path) -> bool:
        try:
            mounts.read_only(root, True)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False
        return True

    def end(self, root: Path) -> None:
        mounts.read_only(root, False)


class ReadOnlyHands(Hands):
    """A played runner that holds its lock by a descriptor for reading: a mount with none for writing can be shut."""

    def lock(self, path: Path) -> int:
        fd = super().lock(path)
        try:
            return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(fd)


@dataclass(frozen=True)
class Case:
    """at: the point at which the spell begins. turns: how long it lasts. crash: after how many points in it the
    daemon is stopped and started anew; 0: never.
    """

    name: str
    spell: Spell
    at: int
    turns: int
    crash: int

    def __str__(self) -> str:
        stopped = f", stopped {self.crash} points into it" if self.crash else ""
        return f"{self.name} at {self.at} for {self.turns} turns{stopped}"


class Spelled(World):
    """A world whose disk refuses for a while. `told`: whether it came to a refusal at all."""

    def __init__(self, root: Path, disk: Path, life: Life, case: Case, mutant: Mutant = REAL) -> None:
        self._case = case
        self._disk = disk
        self._due = False
        self._on = False
        self._turns = case.turns
        self._crash_in = case.crash
        self.told = False
        super().__init__(root, life, mutant)
        if isinstance(case.spell, ReadOnly):
            self.stage.hands = ReadOnlyHands()
        opened = self.stage.open

        def open_window(track: str, name: str, argv: Sequence[str]) -> None:
            if self._on and self.supervisor.degraded is not None:
                self.faults.append(f"{name} was started on a disk that refuses")
            opened(track, name, argv)

        self.stage.open = open_window  # type: ignore[method-assign]

    def begin_spell(self) -> None:
        self._due = True
        self.on_point()

    def on_point(self) -> None:
        super().on_point()
        if self._due:
            self._due = False
            self._on = self._case.spell.begin(self._disk)
            self._due = not self._on
        elif self._on and self._crash_in:
            self._crash_in -= 1
            if not self._crash_in:
                raise Crash

    def step(self) -> None:
        # A person who cannot save tries again when there is room.
        held: list[object] = []
        if self._on:
            held, self.deeds = list(self.deeds), []
        known = self._claimed() if self._on and self.supervisor.degraded is not None else None
        try:
            super().step()
        finally:
            self.deeds += held  # type: ignore[arg-type]
        if not self._on:
            return
        if known is not None and self.supervisor.degraded is not None and (new := self._claimed() - known):
            self.faults.append(f"claimed on a disk that refuses: {new}")
        self._turns -= 1
        if self._turns <= 0:
            self._end()

    def _claimed(self) -> set[str]:
        return {path.name for path in self.workspace.active.iterdir()}

    def _end(self) -> None:
        """There is room again. Until now it must have said what was wrong, if anything was refused."""
        refused = [
            facts
            for level, event, facts in self.notebook.rows
            if event == "failed" and self._is_refusal(facts)
        ]
        said = [facts for level, event, facts in self.notebook.rows if event in ("degraded", "cannot look")]
        self.told = bool(said)
        if refused and not said:
            self.faults.append(f"refused, and it was not said: {refused[0]}")
        if (degraded := self.supervisor.degraded) is not None:
            state = self.supervisor._status._state
            if state.get("phase") != "degraded" or self._case.spell.strerror not in str(
                state.get("degraded")
            ):
                self.faults.append(
                    f"degraded, and its status says {state.get('phase')} {state.get('degraded')}"
                )
            if self._case.spell.strerror not in degraded.reason:
                self.faults.append(f"degraded for another reason: {degraded.reason}")
        self._on = False
        self._case.spell.end(self._disk)

    def clear(self) -> None:
        """Leave the disk empty for the next one."""
        if self._on:
            self._on = False
            self._case.spell.end(self._disk)
        shutil.rmtree(self.workspace.root)

    def _is_refusal(self, facts: dict[str, object]) -> bool:
        return self._case.spell.strerror in str(facts.get("error"))

    def idle(self) -> bool:
        return not self._on and super().idle()


def begin_spell(world: World) -> None:
    """The disk begins to refuse."""
    assert isinstance(world, Spelled)
    world.begin_spell()


@contextlib.contextmanager
def bound(folder: Path) -> Iterator[Path]:
    """The same folder by a mount of its own."""
    source = folder / "source"
    target = folder / "mounted"
    source.mkdir()
    target.mkdir()
    mounts.mount(str(source), target, "", mounts.MS_BIND, "")
    try:
        yield target
    finally:
        mounts.unmount(target)


@contextlib.contextmanager
def disk(options: str, *, bind: bool) -> Iterator[Path]:
    with mounts.tmpfs(options) as root:
        if bind:
            with bound(root) as target:
                yield target
        else:
            yield root


def run(root: Path, life: Life, case: Case, mutant: Mutant = REAL) -> tuple[list[str], bool, int]:
    """One life on the disk `root` with a spell in it. What is wrong, whether it was told, how many points it had."""
    world = Spelled(root / "w", root, life, case, mutant)
    try:
        fault = Fault(case.at, "act", act=begin_spell) if case.at >= 0 else None
        counters = world.live([fault] if fault else [])
        if world.deeds:
            # It had ended before there was room for the person to do it: what would have come of it is not owed.
            world.life = replace(life, expect={place: min(runs, 1) for place, runs in life.expect.items()})
        wrong = check(world)
        if case.at >= 0 and not counters[0].fired:
            wrong.append(f"there is no point {case.at}")
    finally:
        world.stage.lose_runners()
        world.clear()
    return wrong, world.told, len(counters[0].points)


@dataclass(frozen=True)
class Kind:
    """One sort of disk and of spells on it."""

    name: str
    options: str
    make: Callable[[random.Random], Spell]


KINDS = {
    kind.name: kind
    for kind in (
        Kind("1 MiB", "size=1m", lambda rng: Full(rng.choice((0, 0, 1, 3)))),
        Kind("100 inodes", "nr_inodes=100", lambda rng: NoInodes(rng.choice((0, 0, 1, 3)))),
        Kind("read-only", "size=4m", lambda rng: ReadOnly()),
    )
}
TURNS = (1, 2, 5, 12)


@dataclass
class Tally:
    cases: int
    told: int
    broken: list[str]


def explore(kind: Kind, rng: random.Random, size: int, mutant: Mutant = REAL) -> Tally:
    """Spells at points that are drawn from all lives."""
    tally = Tally(0, 0, [])
    quiet = Case("nothing", kind.make(rng), -1, 0, 0)
    with disk(kind.options, bind=isinstance(quiet.spell, ReadOnly)) as root:
        points = {life.name: run(root, life, quiet, mutant)[2] for life in SPELLS}
        for number in range(size):
            life = SPELLS[number % len(SPELLS)]
            case = Case(
                kind.name,
                kind.make(rng),
                rng.randrange(points[life.name]),
                rng.choice(TURNS),
                rng.choice((0, 0, rng.randrange(1, 60))),
            )
            wrong, told, _ = run(root, life, case, mutant)
            tally.cases += 1
            tally.told += told
            if wrong:
                tally.broken.append(str(Broken(life.name, str(case), "", tuple(wrong))))
    return tally
