"""The power goes at any moment: a disk of each kind, what has reached it by then, and the recovery from that.

Of the daemon with `mh drop` (tests/crash/power.py), sometimes again in its recovery, and of the real runner
(tests/crash/runners.py). `python -m tests.proofs.power_cut` runs it in a mount namespace.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import stat
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.crash import mounts, runners
from tests.crash.power import Cut, Lab, points, sample
from tests.proofs.proof import Proof, Report

#: How many cuts of one life.
TOGETHER = 8
MUTANTS = ("files", "directories", "runner")


def run(size: int, seed: int, *, kinds: tuple[str, ...] = tuple(mounts.KINDS), without: str = "") -> Report:
    """`without`: broken on purpose, nothing of that kind is synced."""
    words = ["--size", str(size), "--seed", str(seed), *kinds]
    if without:
        words += ["--without", without]
    return Report(**json.loads(mounts.alone("tests.proofs.power_cut", *words)))


def _daemon(lab: Lab, rng: random.Random, size: int, report: Report, moments: tuple[int, list[int]]) -> int:
    """Cuts of lives, and of every third recovery once more. Returns how many of them were in a recovery."""
    points, acknowledged = moments
    left, again, length = size, 0, points // 2
    while left > 0:
        cuts: list[tuple[Cut, bool]] = [
            (cut, False) for cut in lab.live(sample(rng, points, acknowledged, min(left, TOGETHER)))
        ]
        while cuts:
            cut, recovering = cuts.pop()
            left -= 1
            again += recovering
            deeper = [rng.randrange(length)] if not recovering and left > len(cuts) and left % 3 == 0 else []
            wrong, more, length = lab.recover(cut, deeper)
            length = max(length, 1)
            cuts += [(each, True) for each in more]
            report.cases += 1
            if wrong:
                report.broken.append("\n    ".join(wrong))
    return again


def _runner(
    lab: Lab,
    rng: random.Random,
    size: int,
    report: Report,
    moments: list[runners.Stop],
    injected: tuple[str, ...],
) -> None:
    for stop in [moments[-1], *rng.choices(moments, k=size - 1)]:
        wrong = runners.cut(lab.new, stop, lab.path, *injected)
        report.cases += 1
        if wrong:
            report.broken.append("\n    ".join(wrong))


def _sync_no(what: str) -> None:
    real = os.fsync

    def fsync(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode) != (what == "directories"):
            real(fd)

    os.fsync = fsync


def main() -> None:
    mounts.end_with_parent()
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--without", choices=MUTANTS)
    parser.add_argument("kinds", nargs="+", choices=list(mounts.KINDS))
    given = parser.parse_args()
    os.umask(0o077)
    injected = ("fsync:retval=0",) if given.without == "runner" else ()
    if given.without in ("files", "directories"):
        _sync_no(given.without)
    of_runner = given.size if given.without == "runner" else 0 if given.without else -(-given.size // 4)
    report, of_life = Report(), points()
    stops = runners.stops() if of_runner else []
    with tempfile.TemporaryDirectory(prefix="mh-power-", dir=mounts.room()) as folder:
        for name in given.kinds:
            rng = random.Random(f"{given.seed} {name}")
            lab = Lab(mounts.KINDS[name], Path(folder))
            again = _daemon(lab, rng, given.size - of_runner, report, of_life)
            if of_runner:
                _runner(lab, rng, of_runner, report, stops, injected)
            report.notes.append(
                f"{name} {given.size} cuts ({given.size - of_runner} of the daemon, {again} of them in its recovery,"
                f" {of_runner} of a runner)"
            )
    print(json.dumps(asdict(report)))


PROOF = Proof(
    name="power-cut",
    text="the power goes: the disk as it was then is mounted and recovered",
    unit="cuts of each file system (ext4, xfs, btrfs)",
    daily=4,
    usual=25,
    large=100,
    run=run,
    floor=lambda size: size * len(mounts.KINDS),
    needs={**mounts.NEEDS, **runners.NEEDS, **{kind.make[0]: kind.package for kind in mounts.KINDS.values()}},
    root=True,
)

if __name__ == "__main__":
    main()
