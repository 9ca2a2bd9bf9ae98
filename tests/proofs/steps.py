"""Random stories of a person and a daemon that is stopped, refused and restarted meanwhile (tests/crash/steps.py)."""

from __future__ import annotations

from tests.crash.steps import tell
from tests.proofs.proof import Proof, Report


def run(size: int, seed: int) -> Report:
    tally, broken = tell(size, seed)
    gestures = ", ".join(f"{count} {name}" for name, count in tally.rules.most_common())
    return Report(
        tally.steps, broken, [f"{tally.lives} stories, {tally.crashes} ticks without a daemon", gestures]
    )


PROOF = Proof(
    name="steps",
    text="a person's gestures in any order, each with or without a crash",
    unit="gestures in all",
    daily=1500,
    usual=5000,
    large=50_000,
    run=run,
)
