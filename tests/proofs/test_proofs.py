"""Every proof at its size for every day: the same cases each time. MEGAHARNESS_SEED=N tries others."""

from __future__ import annotations

import os

import pytest

from tests.proofs.proof import Proof, everything, prove

pytestmark = [pytest.mark.slow, pytest.mark.proof]

SEED = int(os.environ.get("MEGAHARNESS_SEED") or 1)


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
