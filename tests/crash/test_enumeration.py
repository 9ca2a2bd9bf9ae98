"""Nothing lost, nothing twice: the daemon is stopped at every file operation of several lives.

The cases themselves are proofs (tests/proofs/enumeration.py); here are the lives without faults, and the broken
protocols (mutants.py) that the proofs must find.
"""

from __future__ import annotations

import pytest

from tests.crash.cases import case
from tests.crash.lives import LIVES
from tests.crash.mutants import MUTANTS, Killer
from tests.crash.world import REAL, Life, Mutant

# Some go through hundreds of cases: the bound only says that it hangs.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

#: How many broken protocols are told apart at least.
FLOOR = 20


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.name)
def test_a_life_without_faults_ends_as_told(life: Life) -> None:
    _, wrong = case(life, [])
    assert wrong == []


@pytest.mark.parametrize(("mutant", "killer"), MUTANTS, ids=lambda value: value.name)
def test_a_broken_protocol_is_found(mutant: Mutant, killer: Killer) -> None:
    assert killer.run(mutant), f"{killer.name} finds nothing"


@pytest.mark.parametrize(
    "killer", {killer.name: killer for _, killer in MUTANTS}.values(), ids=lambda value: value.name
)
def test_the_real_protocol_passes_what_finds_the_broken_ones(killer: Killer) -> None:
    assert killer.run(REAL) == []


def test_there_are_enough_broken_protocols(capsys: pytest.CaptureFixture[str]) -> None:
    names = {mutant.name for mutant, _ in MUTANTS}
    with capsys.disabled():
        print(
            f"\nmutants: {len(names)} broken protocols, {len({killer.name for _, killer in MUTANTS})} killers (floor {FLOOR})"
        )
    assert len(names) == len(MUTANTS) >= FLOOR
