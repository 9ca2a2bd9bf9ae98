"""Saves that an editor can make at just the wrong moment, each of which was once mishandled."""

from __future__ import annotations

import errno
import os
import time
from io import BufferedRandom
from pathlib import Path

import pytest

from daemon.durable import Files
from daemon.spool.exchange import Exchange
from tests.crash.cases import case, points_of
from tests.crash.lives import LIVES, track
from tests.crash.stage import Part
from tests.crash.test_damage import a_world, steps
from tests.crash.world import Fault, Life, World


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    return tmp_path / "w"


def test_a_requeued_file_that_its_editor_makes_again_in_queued_is_an_edit(ws: Path) -> None:
    """Its buffer has a block of ours: that of the session before the requeue."""
    # Long enough for the quiet that is waited for when the machine stood still: then no time of a file counts.
    world = a_world(ws, Part(lasts=20))
    steps(world, 60)
    done = world.workspace.done / "one.md"
    done.write_bytes(done.read_bytes() + b"\nonce more\n")
    world.move("done/one.md", "queued/one.md")
    buffer = (world.workspace.queued / "one.md").read_bytes()
    for _ in range(14):
        steps(world, 1)
        if world.running("one"):
            break
    assert world.running("one")
    world.put("queued/one.md", buffer + b"\nand this\n")
    steps(world, 60)
    assert [name for name in os.listdir(world.workspace.done) if name.startswith("one")] == ["one.md"]
    assert done.read_bytes().count(b"and this") == 1
    assert sum(name.startswith("one-") for name in world.stage.runs) == 2
    assert os.listdir(world.workspace.queued) == []


def test_a_copy_of_a_settled_file_under_its_name_is_still_a_track_of_its_own(ws: Path) -> None:
    world = a_world(ws, Part())
    steps(world, 20)
    world.put("queued/one.md", (world.workspace.done / "one.md").read_bytes() + b"\na copy\n")
    steps(world, 20)
    assert (world.workspace.done / "one~2.md").exists()


@pytest.mark.parametrize("place", ["queued", "active"])
def test_a_half_written_file_that_is_held_open_is_not_refused(ws: Path, place: str) -> None:
    world = World(ws, Life("half", {}, {}))
    world.boot(None)
    whole = track("half")
    path = world.workspace.tracks / place / "half.md"
    with open(path, "wb") as file:
        file.write(whole[:10])
        file.flush()
        steps(world, 30)
        assert path.exists()
        file.write(whole[10:])
    steps(world, 30)
    assert world.exists("done/half.md")


def _saved(world: World) -> None:
    path = world.workspace.active / "one.md"
    if path.exists():
        path.write_bytes(world.life.drop["queued/one.md"] + b"\nfrom an old buffer\n")


def test_an_older_text_saved_just_before_the_move_does_not_take_the_result_away(ws: Path) -> None:
    """It is saved at each point between the result's exchange and the move."""
    life = Life("late", {"queued/one.md": track("one")}, {}, {"one": Part()})
    whole = World(ws, life)
    whole.boot(None)
    steps(whole, 20)
    points = whole.files.points
    last = len(points) - 1 - points[::-1].index("before exchange")
    tried = 0
    for at in range(last + 1, len(points)):
        if points[at] == "after move":
            break
        world = World(ws.parent / f"w{at}", life)
        world.boot(Fault(at, "act", act=_saved))
        steps(world, 20)
        data = (world.workspace.done / "one.md").read_bytes()
        if b"from an old buffer" in data:
            tried += 1
            assert data.count(b"<!-- megaharness: result") == 1
    assert tried > 0


class Interrupting(Files):
    """As soon as the lease is given back, a program that waited for it truncates the file and writes a half."""

    def __init__(self, displaced: Path) -> None:
        super().__init__()
        self.displaced = displaced
        self.writer: BufferedRandom | None = None

    def before(self, name: str, *args: object) -> None:
        if name == "sync_dir" and self.writer is None:
            (came_out,) = self.displaced.iterdir()
            self.writer = open(came_out, "r+b")  # noqa: SIM115  # it stays open
            self.writer.truncate(0)
            self.writer.write(b"half of ")
            self.writer.flush()


def test_what_comes_out_of_an_exchange_half_written_is_waited_for(tmp_path: Path) -> None:
    displaced, path = tmp_path / "displaced", tmp_path / "one.md"
    displaced.mkdir()
    path.write_bytes(b"old\n")
    files = Interrupting(displaced)
    exchange = Exchange(displaced, files)
    merged: list[bytes] = []

    def merge(session: str, theirs: bytes, ours: str, again: bool) -> None:
        merged.append(theirs)

    exchange.rewrite(path, "one-1-0123456789ab", lambda data: data + b"ours\n")
    assert path.read_bytes() == b"old\nours\n"
    assert files.writer is not None
    later = time.time() + 60
    exchange.sweep(later, merge)
    assert merged == []
    files.writer.write(b"a text\n")
    files.writer.close()
    exchange.sweep(later, merge)
    assert merged == [b"half of a text\n"]
    assert os.listdir(displaced) == []


@pytest.mark.slow
def test_a_message_is_heard_however_long_the_disk_refuses(ws: Path) -> None:
    """It was saved while the disk refused, and the session ended meanwhile: it is settled when the file was looked at."""
    life = next(life for life in LIVES if life.name == "told too late")
    befores = [number for number, label in enumerate(points_of(life)) if label.startswith("before")]
    tried = befores[::3]
    for number in tried:
        _, wrong = case(life, [Fault(number, "errno", errno=errno.EIO, lasts=60)])
        assert wrong == [], number
    assert len(tried) > 40
