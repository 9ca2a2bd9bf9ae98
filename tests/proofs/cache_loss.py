"""A power cut at the file operations of several lives, on a disk that forgets what was not synced (tests/crash/forgetful.py)."""

from __future__ import annotations

from pathlib import Path

from tests.crash.cases import case, points_of
from tests.crash.forgetful import PowerWorld, cuts
from tests.crash.lives import LIVES
from tests.crash.world import Life, Mutant
from tests.proofs.proof import Proof, Report

#: How many points all lives have together, at least.
ALL = 3500


def run(size: int, seed: int) -> Report:
    """`size` cuts, spread over all of them from a place that the seed gives."""
    found = [
        (life, cut, label)
        for life in LIVES
        for points in [points_of(life)]
        for cut, label in zip(cuts(points), points, strict=True)
    ]
    every = max(1, len(found) // size)
    report, lost = Report(), 0
    for life, cut, label in found[seed % every :: every][: max(size, 1)]:
        worlds: list[PowerWorld] = []

        def make(root: Path, life: Life, mutant: Mutant, worlds: list[PowerWorld] = worlds) -> PowerWorld:
            worlds.append(PowerWorld(root, life, mutant))
            return worlds[-1]

        _, wrong = case(life, [cut], world=make)
        report.cases += 1
        lost += worlds[0].cache.lost
        if wrong:
            report.broken.append(f"{life.name}: {cut} ({label})\n    " + "\n    ".join(wrong))
    report.notes.append(f"{lost} operations forgotten")
    return report


PROOF = Proof(
    name="cache-loss",
    text="a power cut at file operations, on a disk that forgets what was not synced",
    unit="cuts",
    daily=300,
    usual=ALL,
    large=ALL,
    run=run,
    floor=lambda size: min(size, ALL),
)
