"""Set the clock while tracks wait, run and settle (the crash world; a real daemon does it in tests/e2e/test_clock.py)."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tests.crash.cases import memory_dir
from tests.crash.lives import track
from tests.crash.stage import Part
from tests.crash.world import Crash, Deed, Life, World, check, rows
from tests.proofs.proof import Proof, Report

HOUR = 3600.0
STEPS = (1.0, 40.0, 0.6 * HOUR, HOUR, 3 * HOUR, 26 * HOUR, 400 * 24 * HOUR)
#: What waits for a time: seconds from the beginning.
TIMED = {"soon": 30.0, "noon": 2 * HOUR, "late": 5 * HOUR}
#: In the order of their arrival, which is not that of their names.
IN_TURN = ("c", "a", "d", "b")
#: The first two fill both slots while the others come.
PARTS = {"c": Part(lasts=9), "a": Part(lasts=8, delay=1), "d": Part(lasts=2, delay=2), "b": Part()}


@dataclass(frozen=True)
class Set:
    """The clock is set by so many seconds before this step of the world; died: while no daemon is there."""

    step: int
    by: float
    died: bool

    def __str__(self) -> str:
        return f"{self.by:+.0f} s before step {self.step}{' with no daemon there' if self.died else ''}"


class ClockWorld(World):
    def __init__(self, root: Path, sets: list[Set]) -> None:
        self._start = time.time() + 100.0
        drop = {f"queued/{stem}.md": self._timed(stem) for stem in TIMED}
        drop["queued/bad.md"] = b"---\nharness_id: [\n---\nx\n"
        expect = {f"done/{stem}.md": 1 for stem in (*TIMED, *IN_TURN, "next")} | {"failed/bad.md": 0}
        deeds = tuple(Deed(self._at(1 + n), self._drop(stem)) for n, stem in enumerate(IN_TURN))
        followed = Deed(self._at(2), self._drop("next", after=IN_TURN[-1]))
        life = Life("clock", drop, expect, PARTS, (*deeds, followed), frozenset({"bad"}))
        self._sets = sorted(sets, key=lambda each: each.step)
        self._step = 0
        super().__init__(root, life)

    def _at(self, step: int) -> Callable[[World], bool]:
        return lambda world: self._step >= step

    def _timed(self, stem: str) -> bytes:
        at = datetime.fromtimestamp(self._start + TIMED[stem]).astimezone().isoformat()
        return track(stem, after=f'"{at}"')

    def _drop(self, stem: str, **keys: str) -> Callable[[World], None]:
        def do(world: World) -> None:
            world.put(f"queued/{stem}.md", track(stem, **keys), f"words of {stem}")
            world.life.drop[f"queued/{stem}.md"] = track(stem, **keys)

        return do

    def go_on(self) -> None:
        self._step += 1
        if self._step > 60 and not self.around():
            self.mono += max(600.0, -self.skew / 100.0)  # only times are waited for
        while self._sets and self._step >= self._sets[0].step:
            done = self._sets.pop(0)
            self.skew += done.by
            if done.died:
                raise Crash
        super().go_on()

    def wrong(self) -> list[str]:
        """What does not hold, the order and the times of the claims among it."""
        claims = {
            row["name"].removesuffix(".md"): datetime.fromisoformat(row["at"]).timestamp()
            for row in rows(self.workspace.journal)
            if row["to"] == "active"
        }
        found = check(self)
        order = [stem for stem in claims if stem in IN_TURN]
        if order != list(IN_TURN):
            found.append(f"taken in the order {order}")
        for stem, seconds in TIMED.items():
            if stem in claims and claims[stem] < self._start + seconds - 0.001:
                found.append(f"{stem} was taken before its time")
        return found


def _case(sets: list[Set]) -> list[str]:
    root = Path(tempfile.mkdtemp(prefix="mh-clock-", dir=memory_dir()))
    old = os.umask(0o077)
    try:
        world = ClockWorld(root / "w", sets)
        world.live([])
        return world.wrong()
    finally:
        os.umask(old)
        shutil.rmtree(root)


def run(size: int, seed: int) -> Report:
    dice = random.Random(seed)
    report = Report()
    died = forward = 0
    while report.cases < size:
        sets = [
            Set(dice.randrange(1, 24), dice.choice(STEPS) * dice.choice((1, -1)), dice.random() < 0.3)
            for _ in range(dice.randint(1, 4))
        ]
        report.cases += len(sets)
        died += sum(each.died for each in sets)
        forward += sum(each.by > 0 for each in sets)
        if wrong := _case(sets):
            report.broken.append(f"{', '.join(map(str, sets))}: " + "\n    ".join(wrong))
    report.notes.append(
        f"{forward} forwards, {report.cases - forward} backwards, {died} with no daemon there"
    )
    return report


PROOF = Proof(
    name="clock",
    text="the clock set by seconds to a year while tracks wait, run and settle",
    unit="times that it is set",
    daily=60,
    usual=1000,
    large=5000,
    run=run,
)
