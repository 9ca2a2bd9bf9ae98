"""The disk refuses for a while, for real: it is full, it has no inodes left, it is mounted read-only (tests/crash/spells.py).

`python -m tests.proofs.refusing_disk` runs it in a mount namespace.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from dataclasses import asdict
from pathlib import Path

from daemon.durable import write_all
from daemon.spool.sessions import Sessions, encode
from tests.crash import mounts, spells
from tests.crash.world import REAL, Mutant, StepFiles
from tests.proofs.proof import Proof, Report


class InPlace(StepFiles):
    """A record is written under its own name."""

    def publish(self, path: Path, data: bytes, *, mode: int = 0o600) -> None:
        self.unlink(path)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            self.before("write", path)
            write_all(fd, data)
        finally:
            os.close(fd)


class Untidy(Sessions):
    """What a disk that refused would not let be removed stays in its session."""

    def close(self, session: str, state: str, name: str, at: str) -> None:
        record = {"state": state, "name": name, "at": at}
        self._files.publish(self.path(session) / "settled", encode(record))
        self._open.pop(session, None)


MUTANTS = {
    mutant.name: mutant
    for mutant in (REAL, Mutant("written in place", files=InPlace), Mutant("untidy", sessions=Untidy))
}


def look(size: int, seed: int, *kinds: str, mutant: str = "") -> Report:
    words = ["--size", str(size), "--seed", str(seed), "--mutant", mutant, *kinds]
    return Report(**json.loads(mounts.alone("tests.proofs.refusing_disk", *words)))


def main() -> None:
    mounts.end_with_parent()
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--mutant", choices=list(MUTANTS), default="")
    parser.add_argument("kinds", nargs="+", choices=list(spells.KINDS))
    given = parser.parse_args()
    os.umask(0o077)
    report = Report()
    for name in given.kinds:
        rng = random.Random(f"{given.seed} {name}")
        tally = spells.explore(spells.KINDS[name], rng, given.size, MUTANTS[given.mutant])
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
        daily=60,
        usual=600,
        large=5000,
        run=lambda size, seed: look(size, seed, "1 MiB", "100 inodes"),
        floor=lambda size: 2 * size,
        needs=mounts.NEEDS,
        root=True,
    ),
    Proof(
        name="read-only",
        text="the workspace is mounted read-only for a while",
        unit="cases",
        daily=75,
        usual=600,
        large=5000,
        run=lambda size, seed: look(size, seed, "read-only"),
        needs=mounts.NEEDS,
        root=True,
    ),
)

if __name__ == "__main__":
    main()
