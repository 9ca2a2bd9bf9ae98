"""The power goes: a life on a disk of its own, what has reached that disk at one moment, and the recovery from it.

`Ledger` is what the daemon, its runners and `mh drop` may rely on at a moment: every file that was published, every
line that was appended, every move that was done, every drop that was acknowledged. `Wake` is the world after the cut.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from adapters.session import status
from daemon.cli import drop
from daemon.spool.sessions import read_json
from daemon.spool.states import State
from daemon.spool.store import Store
from tests.crash import mounts
from tests.crash.lives import CHECK, track
from tests.crash.mounts import Image
from tests.crash.stage import Hands, Part
from tests.crash.world import Deed, Fault, Life, Mutant, StepFiles, World, check

DROPS = {
    "good.md": track("good", done_when=f"[{CHECK}]"),
    "bad.md": b"---\nharness_id: [\n---\nx\n",
    "dead.md": track("dead"),
    "second.md": track("second", priority="5"),
    "stubborn.md": track("stubborn", done_when=f"[{CHECK}]"),
    "slow.md": track("slow"),
}
PARTS = {"good": Part(writes="out.txt", delay=2), "dead": Part(dies=True), "slow": Part(lasts=6)}
REFUSED = frozenset({"bad"})
#: Made by the daemon or a runner in a session's directory, and whole as soon as they have these names.
RECORDS = ("claim.json", "settle.json", "settled", "started.json", "exit.json", "launch.json", "place.json")


@dataclass
class Ledger:
    """What must be on the disk, whatever happens now. Paths are relative to the workspace.

    files: published and since then touched by nobody. lines: appended. places: "done/a.md" after the move there.
    drops: acknowledged by `mh drop`. runs: how often the agent of a session was started.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    lines: set[tuple[str, bytes]] = field(default_factory=set)
    places: set[str] = field(default_factory=set)
    drops: set[str] = field(default_factory=set)
    runs: Counter[str] = field(default_factory=Counter)
    ended: set[str] = field(default_factory=set)

    def copy(self) -> Ledger:
        return Ledger(
            dict(self.files),
            set(self.lines),
            set(self.places),
            set(self.drops),
            Counter(self.runs),
            set(self.ended),
        )

    def missing(self, root: Path) -> Iterator[str]:
        """What is not there although it must be."""
        for name, data in self.files.items():
            try:
                if (found := (root / name).read_bytes()) != data:
                    yield f"{name} was published with {len(data)} bytes and has {len(found)}, or others"
            except FileNotFoundError:
                # The runner has taken a message.
                if not (root / name).parent.joinpath("delivered", Path(name).name).exists():
                    yield f"{name} was published and is not there"
        for name, line in sorted(self.lines):
            if not (root / name).exists() or line not in (root / name).read_bytes():
                yield f"{name} has lost the line {line[:100]!r}"
        for place in sorted(self.places):
            if not (root / "tracks" / place).exists():
                yield f"it was moved to {place} and is not there"
        for session in self.runs:
            if not (root / "sessions" / session / "started.json").exists():
                yield f"{session} has run and has no started.json"
        for session in self.ended:
            if read_json(root / "sessions" / session / "exit.json") is None:
                yield f"{session} has ended and has no exit.json"


class Booked(StepFiles):
    """Writes down what each operation promises, once it has returned."""

    def __init__(self, world: World, fault: Fault | None) -> None:
        super().__init__(world, fault)
        assert isinstance(world, PowerWorld)
        self._power = world
        self.ledger = world.ledger

    def _point(self, label: str, name: str, args: object) -> None:
        super()._point(label, name, args)  # type: ignore[arg-type]
        self._power.passed(len(self.points) - 1, label)

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self._power.workspace.root))

    def forget(self, *paths: Path) -> None:
        """From now on it may be there or not."""
        for path in paths:
            self.ledger.files.pop(self._name(path), None)
            self.ledger.places.discard(f"{path.parent.name}/{path.name}")

    def publish(self, path: Path, data: bytes, *, mode: int = 0o600) -> None:
        self.forget(path)
        super().publish(path, data, mode=mode)
        if path.name != "env.json":  # a runner removes it
            self.ledger.files[self._name(path)] = data

    def append(self, path: Path, data: bytes) -> None:
        super().append(path, data)
        self.ledger.lines.add((self._name(path), data.strip()))

    def move(self, old: Path, new: Path) -> None:
        self.forget(old, new)
        super().move(old, new)

    def unlink(self, path: Path) -> None:
        self.forget(path)
        super().unlink(path)


class BookedStore(Store):
    def move(
        self, name: str, old: State, new: State, *, to: str | None = None, avoid: Collection[str] = ()
    ) -> str:
        target = super().move(name, old, new, to=to, avoid=avoid)
        assert isinstance(self.files, Booked)
        self.files.ledger.places.add(f"{new}/{target}")
        return target


class Synced(Hands):
    """A played runner that writes as adapters/runner.py does, and can be stopped as well."""

    def __init__(self, world: World) -> None:
        self._world = world

    def write(self, path: Path, text: str) -> None:
        self._world.files.before("runner write", path)
        with open(path, "wb") as file:
            file.write(text.encode())
            file.flush()
            self._world.files.before("runner fsync", path)
            os.fsync(file.fileno())

    def link(self, old: Path, new: Path) -> None:
        self._world.files.before("runner link", new)
        os.link(old, new)
        self._sync(new.parent)

    def replace(self, old: Path, new: Path) -> None:
        self._world.files.before("runner replace", new)
        old.rename(new)
        self._sync(new.parent)

    def _sync(self, folder: Path) -> None:
        self._world.files.before("runner sync", folder)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _drop(name: str) -> Callable[[World], None]:
    def do(world: World) -> None:
        assert isinstance(world, PowerWorld)
        path = drop.publish(world.workspace, name, DROPS[name], world.files)
        world.queued[name] = (path.stat().st_ino, DROPS[name])
        world.ledger.drops.add(name)
        world.ledger.places.add(f"queued/{name}")
        world.acknowledged.append(len(world.files.points))

    return do


def _after(seconds: float) -> Callable[[World], bool]:
    return lambda world: world.mono >= 100.0 + seconds


def life(*, drops: bool) -> Life:
    deeds = tuple(Deed(_after(2.0 * number), _drop(name)) for number, name in enumerate(DROPS, 1))
    return Life("power", {}, {}, PARTS, deeds if drops else (), REFUSED)


class PowerWorld(World):
    """on_cut is called at every point that is in `cuts`, with what was being done."""

    def __init__(self, root: Path, story: Life, ledger: Ledger) -> None:
        self.ledger = ledger
        self.cuts: set[int] = set()
        self.on_cut: Callable[[str], None] = lambda label: None
        #: The number of the point that follows each acknowledged drop.
        self.acknowledged: list[int] = []
        super().__init__(root, story, Mutant("power", files=Booked, store=BookedStore))
        self.stage.hands = Synced(self)
        self.stage.runs = ledger.runs
        self.stage.ended = ledger.ended

    def passed(self, number: int, label: str) -> None:
        if number in self.cuts:
            self.cuts.discard(number)
            self.on_cut(f"{label} ({number})")


@dataclass(frozen=True)
class Cut:
    """The disk as it was when the power went, and what must be on it."""

    image: Image
    ledger: Ledger
    label: str


def points() -> tuple[int, list[int]]:
    """How many points a life has, and which of them follow an acknowledged drop."""
    with tempfile.TemporaryDirectory(prefix="mh-power-", dir=mounts.room()) as folder:
        world = PowerWorld(Path(folder) / "w", life(drops=True), Ledger())
        counters = world.live([])
        world.stage.lose_runners()
    return len(counters[0].points), world.acknowledged


class Lab:
    """Lives and recoveries on one kind of file system, with power cuts in them."""

    def __init__(self, kind: mounts.Kind, folder: Path) -> None:
        self.kind = kind
        self._folder = folder
        self._serial = 0
        self._new = Image.make(kind, folder / f"{kind.name}.new")
        with self._new.mounted() as root:
            PowerWorld(root / "w", life(drops=True), Ledger())

    @property
    def new(self) -> Image:
        return self._new

    def path(self) -> Path:
        """The name of another image."""
        self._serial += 1
        return self._folder / f"{self.kind.name}.{self._serial}"

    def live(self, cuts: Iterable[int]) -> list[Cut]:
        """A life from the beginning, cut at these points."""
        image = self._new.copy(self.path())
        with image.mounted() as root:
            world = PowerWorld(root / "w", life(drops=True), Ledger())
            made = self._cut(world, image, cuts)
            world.live([])
            world.stage.lose_runners()
        image.remove()
        return made

    def _cut(self, world: PowerWorld, image: Image, cuts: Iterable[int]) -> list[Cut]:
        made: list[Cut] = []

        def on_cut(label: str) -> None:
            made.append(Cut(image.copy(self.path()), world.ledger.copy(), label))

        world.cuts, world.on_cut = set(cuts), on_cut
        return made

    def recover(self, cut: Cut, again: Iterable[int] = ()) -> tuple[list[str], list[Cut], int]:
        """Mount it, look what is missing, let the real code recover to its end, and look again.

        again: at which points of the recovery the power goes once more. Returns what is wrong, those cuts, and how
        many points the recovery had.
        """
        with cut.image.mounted() as root:
            workspace = root / "w"
            wrong = [*cut.ledger.missing(workspace), *_torn(workspace)]
            cuts, length = [], 0
            if not wrong:  # what is lost already does not come back, and waiting for it takes long
                lost = _unfinished(workspace, cut.ledger)
                world = PowerWorld(workspace, life(drops=False), cut.ledger.copy())
                cuts = self._cut(world, cut.image, again)
                length = len(world.live([])[0].points)
                world.stage.lose_runners()
                wrong += _afterwards(world, cut.ledger, lost)
        cut.image.remove()
        return [f"{self.kind.name}, cut {cut.label}: {each}" for each in wrong], cuts, length


def _torn(root: Path) -> Iterator[str]:
    """Records that have their names and are not whole."""
    for path in sorted((root / "sessions").glob("*/*")):
        if path.name in RECORDS and read_json(path) is None:
            yield f"{path.relative_to(root)} is not whole: {path.read_bytes()[:60]!r}"
    for session in sorted((root / "sessions").iterdir()):
        status(session)  # raises nothing, whatever is there


def _unfinished(root: Path, ledger: Ledger) -> set[str]:
    """Sessions that ran and of which the disk does not know how they ended."""
    return {name for name in ledger.runs if not (root / "sessions" / name / "exit.json").exists()}


def _afterwards(world: PowerWorld, before: Ledger, lost: set[str]) -> list[str]:
    tracks = world.workspace.tracks
    found: dict[str, str] = {}
    wrong = []
    for state in ("queued", "active", "done", "failed"):
        for name in sorted(os.listdir(tracks / state)):
            if not name.endswith(".md"):
                continue
            if name in found:
                wrong.append(f"{name} is in {found[name]} and in {state}")
            found[name] = state
    wrong += [f"lost: {name}" for name in sorted(before.drops - set(found))]
    wrong += [f"nobody dropped {name}" for name in sorted(set(found) - set(DROPS))]
    for session in sorted(before.runs):
        settlement = world.parts.sessions.settlement(session)
        if settlement is None:
            wrong.append(f"{session} ran before the cut and is not settled")
        elif (settlement.termination == "lost") != (session in lost):
            wrong.append(
                f"{session} ended as {settlement.termination}, its exit.json was{' not' * (session in lost)} there"
            )
    if wrong:
        return wrong
    for path in world.workspace.sessions.glob("*/.*"):
        if path.name == ".exit.tmp" or path.name.startswith(".started-"):
            path.unlink()  # of a runner that the cut ended: nobody takes it for anything, and nobody needs to clear it
    ran = Counter(session.rsplit("-", 2)[0] for session in world.stage.runs)
    world.life = replace(
        world.life,
        drop={f"queued/{name}": data for name, data in DROPS.items()},
        expect={f"{state}/{name}": ran[name.removesuffix(".md")] for name, state in found.items()},
    )
    world.words = [
        (stem, f"words of {stem}") for stem in (name[:-3] for name in found) if stem not in REFUSED
    ]
    for name, state in found.items():
        stem = name.removesuffix(".md")
        if stem not in REFUSED and ran[stem] == 0:
            wrong.append(f"{name} is in {state} and never ran")
        if state not in ("done", "failed"):
            wrong.append(f"{name} stays in {state}")
    return wrong + check(world)


def sample(rng: random.Random, points: int, acknowledged: list[int], count: int) -> set[int]:
    """Where to cut: half anywhere, half right behind an acknowledged drop."""
    behind = rng.sample(acknowledged, min(len(acknowledged), count // 2))
    return set(behind) | set(rng.sample(range(points), count - len(behind)))
