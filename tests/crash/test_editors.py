"""Real editors beside the daemon: their lock counts, and protocols that would lose what they save are found out.

The cases themselves are a proof (tests/proofs/editors.py).
"""

from __future__ import annotations

import shutil

import pytest

from tests.crash.editors import Desk, Plan, Slow, VimIntoBare, VimSwap
from tests.crash.mutants import DroppedAtOnce, InPlace
from tests.crash.world import Mutant
from tests.proofs.editors import ONE, cases, play

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("vim") is None, reason="vim is not installed"),
]


class Watched(Desk):
    """Notes where the file is when its editor saves."""

    lay = ""

    def strike(self) -> None:
        if not self.told:
            self.lay = "queued" if self.exists("queued/one.md") else "elsewhere"
        super().strike()


def test_what_is_open_in_vim_is_not_taken_before_it_is_closed() -> None:
    world, _, wrong = play(ONE, "one", Plan(VimSwap, "queued"), None, desk=Watched)
    assert isinstance(world, Watched)
    assert (world.lay, world.settled, wrong) == ("queued", "saved", [])


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant("rewritten in place", exchange=InPlace),
        Mutant("displaced file dropped at once", exchange=DroppedAtOnce),
    ],
    ids=lambda mutant: mutant.name,
)
def test_a_broken_protocol_loses_what_an_editor_saves(mutant: Mutant) -> None:
    tried = 0
    for case in cases((VimIntoBare, Slow), mutant):
        if not case.is_close:
            continue
        tried += 1
        _, _, wrong = play(case.life, case.stem, case.plan, case.at, mutant)
        if any(line.startswith("lost") for line in wrong):
            return
    pytest.fail(f"{tried} cases, and nothing was lost")
