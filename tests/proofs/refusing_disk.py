"""The disk refuses for a while, for real: it is full, it has no inodes left, it is mounted read-only (tests/crash/spells.py).

`python -m tests.proofs.refusing_disk` runs it in a mount namespace.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from collections.abc import Callable
from dataclasses import asdict

from tests.crash import mounts, spells
from tests.proofs.proof import Proof, Report


def _run(*kinds: str) -> Callable[[int, int], Report]:
    def run(size: int, seed: int) -> Report:
        words = ["--size", str(size), "--seed", str(seed), *kinds]
        return Report(**json.loads(mounts.alone("tests.proofs.refusing_disk", *words)))

    return run


def main() -> None:
    mounts.end_with_parent()
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("kinds", nargs="+", choices=list(spells.KINDS))
    given = parser.parse_args()
    os.umask(0o077)
    report = Report()
    for name in given.kinds:
        tally = spells.explore(spells.KINDS[name], random.Random(f"{given.seed} {name}"), given.size)
        report.cases += tally.cases
        report.broken += tally.broken
        report.notes.append(f"{name}: {tally.cases}, degraded and recovered in {tally.told}")
        if tally.told * 5 < tally.cases:
            report.broken.append(f"{name}: the disk refused in {tally.told} of {tally.cases} cases only")
    print(json.dumps(asdict(report)))


PROOFS = (
    Proof(
        name="small-disk",
        text="a file system of 1 MiB, and one of 100 inodes, fills up",
        unit="cases of each of the two",
        daily=150,
        usual=1500,
        large=10_000,
        run=_run("1 MiB", "100 inodes"),
        floor=lambda size: 2 * size,
        needs=mounts.NEEDS,
        root=True,
    ),
    Proof(
        name="read-only",
        text="the workspace is mounted read-only for a while",
        unit="cases",
        daily=150,
        usual=1500,
        large=10_000,
        run=_run("read-only"),
        needs=mounts.NEEDS,
        root=True,
    ),
)

if __name__ == "__main__":
    main()
