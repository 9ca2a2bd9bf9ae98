"""Real editors save at every file operation: what was typed stands in the file or in the session, and runs once."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from tests.crash.cases import memory_dir
from tests.crash.editors import EDITORS, Desk, Editor, Holder, Plan, Sed
from tests.crash.lives import CHECK, LIVES, track
from tests.crash.stage import Part
from tests.crash.world import REAL, Fault, Life, Mutant, World
from tests.proofs.proof import Proof, Report

#: The fewest cases that all operations come to.
ALL = 2000
DAILY = 150
#: Cases at once: most of the time is spent waiting for the editor.
LANES = 3

ONE = Life(
    "one",
    {"queued/one.md": track("one", done_when=f"[{CHECK}]")},
    {"done/one.md": 1},
    {"one": Part(writes="out.txt", lasts=4)},
)
AGAIN = next(life for life in LIVES if life.name == "requeued")
#: Life, its track, and when the file is opened.
SCENES = (
    (ONE, "one", "queued"),
    (ONE, "one", "active"),
    (ONE, "one", "then"),
    (AGAIN, "again", "requeued"),
)


def _save(world: World) -> None:
    assert isinstance(world, Desk)
    world.strike()


class Look(Desk):
    """Nothing is saved: where the file would be opened, and how many operations there are."""

    _between = False

    def strike(self) -> None: ...

    def go_on(self) -> None:
        self._between = True
        super().go_on()
        self._between = False

    def _open(self) -> None:
        if self.opened_at is None:
            # Between two operations the last one has passed: it could not save there yet.
            self.opened_at = len(self.files.points) - (not self._between)


def play(
    life: Life, stem: str, plan: Plan, at: int | None, mutant: Mutant = REAL, desk: type[Desk] = Desk
) -> tuple[Desk, list[str], list[str]]:
    """One life in which the editor saves at point number `at`. Returns it, its points, and what does not hold."""
    home = Path(tempfile.mkdtemp(prefix="mh-ed-", dir=memory_dir()))
    old = os.umask(0o077)
    world = None
    try:
        world = desk(home / "w", life, stem, plan, mutant)
        counters = world.live([Fault(at, "act", act=_save)] if at is not None else [])
        return world, counters[0].points, world.wrong()
    finally:
        os.umask(old)
        if world is not None:
            world.close()
        shutil.rmtree(home, ignore_errors=True)


@dataclass(frozen=True)
class Case:
    """An editor that saves at point number `at`, which is called `label`."""

    life: Life
    stem: str
    plan: Plan
    at: int
    label: str

    def __str__(self) -> str:
        return f"{self.life.name}: {self.plan}, saves at {self.at} ({self.label})"

    @property
    def is_close(self) -> bool:
        """Whether the daemon has the track's file in its hands just then."""
        return any(word in self.label for word in ("exchange", "move", "rewrite"))


def cases(editors: Sequence[type[Editor]] = EDITORS, mutant: Mutant = REAL) -> Iterator[Case]:
    """Every editor, in every scene, at every operation after it has opened the file."""
    for life, stem, opening in SCENES:
        world, points, wrong = play(life, stem, Plan(editors[0], opening), None, mutant, Look)
        if mutant is REAL and wrong:
            raise AssertionError(f"{life.name} without a save: {wrong}")
        for at in range(world.opened_at or 0, len(points)):
            for editor in editors:
                # These two read nothing beforehand: where the file has gone they find none, or make another one.
                if opening == "then" or editor not in (Sed, Holder):
                    yield Case(life, stem, Plan(editor, opening), at, points[at])


#: All cases, for the processes that are forked below: a life cannot be sent to another one.
_found: list[Case] = []


def _try(number: int) -> tuple[bool, bool, bool, list[str]]:
    """Whether it saved, whether a lease kept it waiting, or it wrote over the very move; and what does not hold."""
    case = _found[number]
    world, _, wrong = play(case.life, case.stem, case.plan, case.at)
    return world.settled == "saved", world.kept_waiting, world.over_the_move, wrong


def run(size: int, seed: int) -> Report:
    report, saves, kept, over = Report(), Counter[str](), 0, 0
    _found[:] = cases()
    numbers = list(range(len(_found)))
    random.Random(seed).shuffle(numbers)
    # In a sample every other one is a close one.
    close = [number for number in numbers if _found[number].is_close][: size // 2]
    picked = [*close, *(number for number in numbers if number not in set(close))][:size]
    with ProcessPoolExecutor(LANES, mp_context=get_context("fork")) as pool:
        for number, (saved, waited, crossed, wrong) in zip(
            picked, pool.map(_try, picked, chunksize=4), strict=True
        ):
            case = _found[number]
            report.cases += 1
            saves[case.plan.editor.__name__] += saved
            kept += waited
            over += crossed
            if wrong:
                report.broken.append(f"{case}\n    " + "\n    ".join(wrong))
    missing = [editor.__name__ for editor in EDITORS if not saves[editor.__name__]]
    if size >= DAILY and missing:
        report.broken.append(f"never saved: {', '.join(missing)}")
    report.notes.append(
        f"saves: {', '.join(f'{name} {count}' for name, count in sorted(saves.items()))}; "
        f"{kept} were kept waiting by a lease, {over} "
        f"wrote an older text over the result while the file was moved; {len(_found)} cases are all"
    )
    return report


PROOF = Proof(
    name="editors",
    text="vim, nano, sed -i, rsync and others save at a file operation",
    unit="cases, of every editor at every operation",
    daily=DAILY,
    usual=1000,
    large=100_000,
    run=run,
    floor=lambda size: min(size, ALL),
    needs={"vim": "vim", "nano": "nano", "sed": "sed", "rsync": "rsync"},
)
