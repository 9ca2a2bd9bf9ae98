"""Stop, refuse or save at every file operation of several lives (tests/crash)."""

from __future__ import annotations

from tests.crash.cases import METHODS, Method, explore
from tests.proofs.proof import Proof, Report


def _proof(method: Method) -> Proof:
    def run(size: int, seed: int) -> Report:
        tally = explore(method, size)
        return Report(tally.cases, [str(broken) for broken in tally.broken])

    return Proof(
        name=method.name,
        text=method.text,
        unit="depth: 1 a sample, 2 every operation and a sample of pairs, 3 every pair of operations (hours)",
        daily=1,
        usual=2,
        large=2,
        run=run,
        floor=lambda size: method.floors[size - 1],
    )


PROOFS = tuple(_proof(method) for method in METHODS.values())
