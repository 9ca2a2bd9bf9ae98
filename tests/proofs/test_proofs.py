"""Every proof at its size for every day. MEGAHARNESS_SEED repeats a run."""

from __future__ import annotations

import os
import time

import pytest

from tests.proofs.proof import Proof, everything, prove

pytestmark = [pytest.mark.slow, pytest.mark.proof]

SEED = int(os.environ.get("MEGAHARNESS_SEED") or time.time_ns() % 100_000)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("proof", everything().values(), ids=lambda proof: proof.name)
def test_proof(proof: Proof, capsys: pytest.CaptureFixture[str]) -> None:
    if why := proof.obstacle():
        pytest.skip(why)
    outcome = prove(proof, proof.daily, SEED)
    with capsys.disabled():
        print(f"\n{outcome.line()}")
    assert outcome.report.broken == [], f"seed {SEED}\n" + "\n".join(outcome.report.broken[:10])
    assert outcome.held, outcome.line()
