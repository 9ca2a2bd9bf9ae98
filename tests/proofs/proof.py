"""One way to prove that nothing is lost and nothing runs twice, at any size.

A proof is a module beside this one with a `PROOF`. `scripts/test` runs each at its size for every day,
`scripts/proofs` at sizes given on the command line; both print the number of cases and hold it against a floor,
so that a proof that tries nothing is none.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Report:
    """What a run tried and found.

    broken: one text for each case in which something did not hold. notes: what else is worth a line, such as the
    phases that were hit.
    """

    cases: int = 0
    broken: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Proof:
    """unit: what a size counts ("kills", "cuts of each file system").

    daily, usual, large: the sizes of `scripts/test`, of `scripts/proofs`, and of the run whose figures are published.
    run: (size, seed) -> Report. floor: the fewest cases that a size must come to.
    needs: command -> Debian package, of what it calls. root: it mounts.
    """

    name: str
    text: str
    unit: str
    daily: int
    usual: int
    large: int
    run: Callable[[int, int], Report]
    floor: Callable[[int], int] = lambda size: size
    needs: dict[str, str] = field(default_factory=dict)
    root: bool = False

    def obstacle(self) -> str | None:
        """Why it cannot be run by this user."""
        return f"{self.name} mounts file systems: only as root" if self.root and os.geteuid() != 0 else None


@dataclass(frozen=True)
class Outcome:
    """One run, as it is printed."""

    proof: Proof
    size: int
    seed: int
    report: Report
    seconds: float

    @property
    def held(self) -> bool:
        return not self.report.broken and self.report.cases >= self.proof.floor(self.size)

    def line(self) -> str:
        found = "held"
        if self.report.broken:
            found = f"{len(self.report.broken)} BROKEN"
        elif not self.held:
            found = "TOO FEW"
        notes = "".join(f"; {note}" for note in self.report.notes)
        return (
            f"{self.proof.name}: {self.proof.text}: {self.report.cases} cases in {self.seconds:.1f} s "
            f"(floor {self.proof.floor(self.size)}, seed {self.seed}): {found}{notes}"
        )


def prove(proof: Proof, size: int, seed: int) -> Outcome:
    began = time.monotonic()
    report = proof.run(size, seed)
    return Outcome(proof, size, seed, report, time.monotonic() - began)


def everything() -> dict[str, Proof]:
    """Every proof, by name."""
    found: dict[str, Proof] = {}
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name.startswith("test_") or module.name == "proof":
            continue
        for value in vars(importlib.import_module(f"tests.proofs.{module.name}")).values():
            for proof in value if isinstance(value, tuple) else (value,):
                if isinstance(proof, Proof):
                    found[proof.name] = proof
    return dict(sorted(found.items()))
