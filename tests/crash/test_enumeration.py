"""Nothing lost, nothing twice: the daemon is stopped at every file operation of several lives.

The cases themselves are proofs (tests/proofs/enumeration.py); here are the lives without faults, and broken
protocols that the cases must find.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from daemon.durable import operation
from daemon.kernel.claiming import Claimer
from daemon.kernel.clock import Now
from daemon.kernel.evals import Evals
from daemon.kernel.history import History
from daemon.kernel.late import LateSaves
from daemon.kernel.settling import Settler
from daemon.spool import frontmatter
from daemon.spool.exchange import Exchange
from daemon.spool.sessions import Claim, Sessions, _encode_claim
from daemon.spool.states import State
from daemon.spool.store import Entry
from daemon.tracks import thread
from tests.crash.cases import case, crashes, edits, points_of, refusals
from tests.crash.lives import LIVES
from tests.crash.world import Fault, Life, Mutant, StepFiles

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.name)
def test_a_life_without_faults_ends_as_told(life: Life) -> None:
    _, wrong = case(life, [])
    assert wrong == []


# -- broken protocols: the enumeration must find each of them ----------------------------------------


Patch = Callable[[bytes], bytes]


class PlainRename(StepFiles):
    """Overwrites what has the name already."""

    @operation
    def move(self, old: Path, new: Path) -> None:
        os.rename(old, new)


class ClaimAfterSpawn(Sessions):
    """``claim.json`` only once the window is open."""

    def begin(self, claim: Claim, spec: bytes) -> None:
        self._files.make_dir(self.path(claim.session))
        self._files.publish(self.path(claim.session) / "spec.md", spec)
        self._know(claim)

    def spawned(self, session: str) -> None:
        self._files.publish(self.path(session) / "claim.json", _encode_claim(self._claims[session]))


class NotAdopted(Sessions):
    """A claim whose directory could not be synced is forgotten, though its file is there."""

    def _know(self, claim: Claim) -> None:
        import sys

        if sys.exc_info()[0] is None:
            super()._know(claim)


class DroppedAtOnce(Exchange):
    """What came out of a swap is not looked at again."""

    def rewrite(self, path: Path, session: str, patch: Patch, *, merging: bool = False) -> bytes:
        new = super().rewrite(path, session, patch, merging=merging)
        for name in os.listdir(self._displaced):
            self._files.unlink(self._displaced / name)
        return new


class NamedBeforeWhole(Exchange):
    """The temp of a swap has its final name while it is written."""

    def _make(self, stem: str, new: bytes, mode: int) -> Path:
        temp = self._displaced / f"{stem}.{os.urandom(6).hex()}.md"
        self._files.create(temp, new, mode)
        return temp


class InPlace(Exchange):
    """Writes into the file itself."""

    def rewrite(self, path: Path, session: str, patch: Patch, *, merging: bool = False) -> bytes:
        new = patch(self._files.read(path))
        self._files.before("rewrite", path)
        path.write_bytes(new)
        return new


class SecondEval(Evals):
    """Writes the row without a look."""

    def write(self, row: object, *, sure: bool) -> None:
        super().write(row, sure=True)  # type: ignore[arg-type]


class WithoutMarker(Settler):
    """Appends the result each time."""

    def patched(self, data: bytes, block: thread.Facts, result: str) -> bytes:
        return frontmatter.append(thread.rendered(data, block), result)


class MovesTwice(Settler):
    """Does not look whether the file was moved before the crash."""

    def _already_there(self, known: Claim, state: State) -> str | None:
        return None

    def _bring(self, known: Claim) -> tuple[State, str]:
        path = self._parts.store.path("active", known.name)
        if not path.exists():
            self._restore(known, path)
        return "active", known.name


class WritesIntoQueued(Claimer):
    """Marks the file before it is taken."""

    def claim(self, entry: Entry, now: Now) -> None:
        path = self._parts.store.path(entry.state, entry.name)
        if b"taken" not in path.read_bytes():
            path.write_bytes(path.read_bytes() + b"taken\n")
        super().claim(entry, now)


class RunsLateSaves(LateSaves):
    """Leaves an editor's late save to be claimed."""

    def set_aside(self, name: str, state: State, session: str) -> None:
        claimer = Claimer(self._parts, self._observer, History(self._parts))
        claimer.claim(self._parts.store.entries(state)[name], Now(0.0, 0.0))


Faults = Callable[[Sequence[str]], list[Fault]]
MUTANTS: tuple[tuple[Mutant, str, Faults], ...] = (
    (Mutant("plain rename", files=PlainRename), "name taken", crashes),
    (Mutant("no start gate", gate=False), "checks", crashes),
    (Mutant("claim.json after the spawn", sessions=ClaimAfterSpawn), "checks", crashes),
    (Mutant("a claim forgotten", sessions=NotAdopted), "after", refusals),
    (Mutant("displaced file dropped at once", exchange=DroppedAtOnce), "edited", edits),
    (Mutant("swap temp named before it is whole", exchange=NamedBeforeWhole), "edited", crashes),
    (Mutant("rewritten in place", exchange=InPlace), "edited", edits),
    (Mutant("eval row without a look", evals=SecondEval), "attempts", crashes),
    (Mutant("result without marker", settler=WithoutMarker), "attempts", crashes),
    (Mutant("moved twice", settler=MovesTwice), "after", crashes),
    (Mutant("writes into queued", claimer=WritesIntoQueued), "after", crashes),
    (Mutant("late saves are run", late=RunsLateSaves), "saved late into active", crashes),
)


@pytest.mark.parametrize(
    ("mutant", "life", "faults"), MUTANTS, ids=lambda value: getattr(value, "name", None)
)
def test_a_broken_protocol_is_found(mutant: Mutant, life: str, faults: Faults) -> None:
    story = next(each for each in LIVES if each.name == life)
    points = points_of(story, mutant)
    for fault in faults(points):
        _, wrong = case(story, [fault], mutant)
        if wrong:
            return
    pytest.fail(f"{len(faults(points))} cases, and nothing was found")
