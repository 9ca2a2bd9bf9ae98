"""Every case of the enumeration: which faults are tried at which points, and how many at which depth."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.lives import LIVES
from tests.crash.world import FAILING, REAL, Fault, Life, Mutant, Pin, StepFiles, World, check


@dataclass(frozen=True)
class Broken:
    """A case in which something did not hold."""

    life: str
    faults: str
    points: str
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.life}: {self.faults} ({self.points})\n    " + "\n    ".join(self.wrong)


def memory_dir() -> str | None:
    """A directory in memory where fsync costs nothing; None: the ordinary place for temporary files."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def case(
    life: Life,
    faults: Sequence[Fault],
    mutant: Mutant = REAL,
    world: Callable[[Path, Life, Mutant], World] = World,
) -> tuple[list[StepFiles], list[str]]:
    """One life with these faults. Returns the counters of its daemons and what is wrong afterwards."""
    root = Path(tempfile.mkdtemp(prefix="mh-crash-", dir=memory_dir()))
    old = os.umask(0o077)
    try:
        played = world(root / "w", life, mutant)
        counters = played.live(faults)
        return counters, check(played)
    finally:
        os.umask(old)
        shutil.rmtree(root)


def points_of(life: Life, mutant: Mutant = REAL) -> list[str]:
    """The points of a life without faults."""
    counters, _ = case(life, [], mutant)
    return counters[0].points


def crashes(points: Sequence[str]) -> list[Fault]:
    """A crash at each point, and one in the middle of each write."""
    torn = [Fault(number, "torn") for number, label in enumerate(points) if label == "before write"]
    return [Fault(number) for number in range(len(points))] + torn


def refusals(points: Sequence[str]) -> list[Fault]:
    """Each operation refused by the disk, once and for a while."""
    return [
        Fault(number, "errno", errno=errno, lasts=lasts)
        for number, label in enumerate(points)
        if label.startswith("before")
        for errno in FAILING
        for lasts in (0, 6, 40)
    ]


def _open_to_edit(world: World) -> Iterator[tuple[str, Path]]:
    for state in ("active", "done", "failed"):
        for path in sorted((world.workspace.tracks / state).glob("*.md")):
            place = f"{state}/{path.name}"
            if path.stem not in world.life.refused and world.life.expect.get(place) != -1:
                yield place, path


def save_by_rename(world: World) -> None:
    """A person's editor saves over the file where it lies, by rename."""
    for place, path in _open_to_edit(world):
        word = f"typed into {path.stem}"
        world.saves[path.stem.split("~")[0]] += 1
        world.put(place, path.read_bytes() + f"\n{word}\n".encode(), word)


def _save_in_place(world: World, holds: int) -> None:
    for _, path in _open_to_edit(world):
        word = f"typed into {path.stem}"
        data = path.read_bytes() + f"\n{word}\n".encode()
        world.words.append((path.stem.split("~")[0], word))
        world.saves[path.stem.split("~")[0]] += 1
        world.pins.append(Pin(os.open(path, os.O_PATH | os.O_NOFOLLOW), data, holds))
    world.on_point()


def save_in_place(world: World) -> None:
    """A person's editor has opened the file where it lies, and writes into it as soon as it may."""
    _save_in_place(world, 0)


def save_slowly(world: World) -> None:
    """The same, and it holds the file open for a while before it writes."""
    _save_in_place(world, 15)


def edits(points: Sequence[str]) -> list[Fault]:
    """A person saves at each point."""
    return [
        Fault(number, "act", act=act)
        for number in range(len(points))
        for act in (save_by_rename, save_in_place, save_slowly)
    ]


@dataclass
class Tally:
    """How many cases were tried, how long they took, and what broke."""

    cases: int = 0
    seconds: float = 0.0
    broken: list[Broken] = field(default_factory=list)

    def run(self, life: Life, faults: Sequence[Fault], labels: str, mutant: Mutant = REAL) -> list[StepFiles]:
        began = time.monotonic()
        counters, wrong = case(life, faults, mutant)
        self.seconds += time.monotonic() - began
        self.cases += 1
        if wrong:
            self.broken.append(Broken(life.name, ", ".join(map(str, faults)), labels, tuple(wrong)))
        return counters


@dataclass(frozen=True)
class Method:
    """One way to go through the cases. every: of how many cases one is tried, by depth; floors: the fewest that count."""

    name: str
    text: str
    every: tuple[int, int, int]
    floors: tuple[int, int, int]


METHODS = {
    method.name: method
    for method in (
        Method("crash", "stopped at every file operation", (17, 1, 1), (370, 3400, 3400)),
        Method("crash-twice", "stopped again inside the recovery", (97, 7, 1), (220, 10_000, 500_000)),
        Method("errno", "every file operation refused by the disk", (149, 7, 1), (300, 3300, 23_000)),
        Method("edit", "a person saves at every file operation", (41, 1, 1), (240, 8800, 8800)),
    )
}
DEPTHS = (1, 2, 3)


def explore(method: Method, depth: int, lives: Sequence[Life] = LIVES) -> Tally:
    """All cases of a method at a depth: 1 a sample for every day, 2 the whole and a sample of the square, 3 all."""
    tally, every = Tally(), method.every[depth - 1]
    for offset, life in enumerate(lives):
        points = points_of(life)
        first = {"errno": refusals, "edit": edits}.get(method.name, crashes)(points)
        if method.name == "edit" and life.alone:
            continue
        for fault in first[offset % every :: every]:
            counters = tally.run(life, [fault], points[fault.at])
            if method.name != "crash-twice":
                continue
            again = counters[1].points
            for second in crashes(again)[offset % every :: every]:
                tally.run(life, [fault, second], f"{points[fault.at]}; {again[second.at]}")
    return tally
