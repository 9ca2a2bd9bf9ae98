"""What a bad disk or a strange hand leaves behind: nothing is run twice, and nothing stops the others."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from daemon.tracks import thread
from tests.crash.lives import track
from tests.crash.stage import Part
from tests.crash.world import Life, World, rows

OTHER = {"queued/other.md": track("other")}


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    return tmp_path / "w"


def a_world(root: Path, part: Part) -> World:
    life = Life("damage", {"queued/one.md": track("one"), **OTHER}, {}, {"one": part})
    world = World(root, life)
    world.boot(None)
    return world


def session_of(world: World, item: str) -> Path:
    (found,) = world.workspace.sessions.glob(f"{item}-*")
    return found


def steps(world: World, count: int = 30) -> None:
    for _ in range(count):
        world.step()


def test_a_claim_that_cannot_be_read_starts_nothing_beside_it(ws: Path) -> None:
    world = a_world(ws, Part(lasts=None))
    steps(world, 3)
    (session_of(world, "one") / "claim.json").write_bytes(b"")
    world.boot(None)
    steps(world)
    assert world.stage.runs.total() == 2
    assert world.exists("active/one.md")
    assert world.exists("done/other.md")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"reason": 7}', b"\xff"])
def test_an_exit_that_cannot_be_read_is_an_unknown_outcome(ws: Path, content: bytes) -> None:
    world = a_world(ws, Part(dies=True))
    steps(world, 2)
    (session_of(world, "one") / "exit.json").write_bytes(content)
    steps(world)
    assert world.exists("failed/one.md")
    settled = json.loads((session_of(world, "one") / "settle.json").read_bytes())
    assert settled["termination"].startswith("lost")
    assert world.stage.runs.total() == 2


@pytest.mark.parametrize("name", ["place.json", "leftovers.json", "outcome.json"])
def test_a_torn_file_of_a_session_does_not_stop_its_end(ws: Path, name: str) -> None:
    world = a_world(ws, Part(lasts=4))
    steps(world, 3)
    (session_of(world, "one") / name).write_bytes(b"{")
    world.boot(None)
    steps(world, 60)
    assert not world.exists("active/one.md")
    assert world.exists("done/other.md")
    assert world.stage.runs.total() == 2


def test_a_session_of_another_boot_is_lost(ws: Path) -> None:
    world = a_world(ws, Part(lasts=None))
    steps(world, 3)
    started = session_of(world, "one") / "started.json"
    started.write_text(json.dumps({"v": 1, "by": "runner", "boot_id": "another", "at": ""}))
    (started.parent / "lock").unlink()  # a reboot has freed it
    world.boot(None)
    steps(world)
    assert world.exists("failed/one.md")
    assert world.stage.runs.total() == 2


def test_the_block_is_only_a_rendering(ws: Path) -> None:
    """What an agent writes about itself into its file decides nothing."""
    world = a_world(ws, Part(lasts=8))
    steps(world, 3)
    path = world.workspace.active / "one.md"
    text = path.read_text()
    assert "status: active" in text
    path.write_text(text.replace("status: active", "status: done").replace("attempt: 1", "attempt: 9"))
    world.boot(None)
    steps(world, 2)
    assert world.exists("active/one.md")
    steps(world)
    text = (world.workspace.done / "one.md").read_text()
    assert "attempt: 1\n" in text
    assert world.stage.runs.total() == 2


def test_a_session_named_in_a_file_is_not_taken_from_it(ws: Path) -> None:
    world = a_world(ws, Part())
    steps(world)
    text = (world.workspace.done / "one.md").read_bytes()
    world.put("queued/stranger.md", text)
    steps(world)
    assert world.exists("done/stranger.md")
    assert {path.name.rsplit("-", 1)[0] for path in world.workspace.sessions.iterdir()} == {
        "one-1",
        "other-1",
        "stranger-1",
    }


def test_a_folder_that_is_gone_is_made_again_and_stops_nothing(ws: Path) -> None:
    world = a_world(ws, Part())
    world.workspace.failed.rmdir()
    world.workspace.requests.rmdir()
    steps(world, 60)
    assert world.workspace.failed.is_dir()
    assert world.workspace.requests.is_dir()
    assert world.supervisor.degraded is None
    assert world.exists("done/one.md")
    assert world.exists("done/other.md")


def test_an_edit_of_the_running_track_in_queued_is_no_second_one(ws: Path) -> None:
    """An editor that had the file open re-creates it where it was."""
    world = a_world(ws, Part(lasts=6))
    steps(world, 3)
    world.put("queued/one.md", world.life.drop["queued/one.md"] + b"\nmore words\n")
    steps(world, 60)
    assert not world.exists("queued/one.md")
    assert world.workspace.done.joinpath("one.md").read_bytes().count(b"more words") == 1
    assert sum(name.startswith("one-") for name in world.stage.runs) == 1


@pytest.mark.parametrize(
    ("saved", "runs"),
    [
        pytest.param(lambda text: text, 1, id="as it was"),
        pytest.param(lambda text: text + b"\nmore words\n", 2, id="with more words"),
        pytest.param(
            lambda text: text.replace(b"---\n#", b"done_when: [{run: 'true'}]\n---\n#", 1), 2, id="contract"
        ),
    ],
)
def test_what_is_saved_to_queued_just_after_its_end_goes_on_when_it_says_something_new(
    ws: Path, saved: Callable[[bytes], bytes], runs: int
) -> None:
    world = a_world(ws, Part())
    steps(world, 20)
    assert world.exists("done/one.md")
    theirs = saved(world.life.drop["queued/one.md"])
    world.put("queued/one.md", theirs)
    steps(world, 60)
    assert sum(name.startswith("one-") for name in world.stage.runs) == runs
    assert sorted(os.listdir(world.workspace.queued)) == []
    assert [name for name in os.listdir(world.workspace.done) if name.startswith("one")] == ["one.md"]
    data = world.workspace.done.joinpath("one.md").read_bytes()
    assert thread.own_text(data) == thread.own_text(theirs)
    assert len(thread.results(data)) == runs
    newest = world.parts.sessions.newest("one")
    assert newest is not None
    # What the file says is what was run.
    ran = (world.parts.sessions.path(newest.id) / "spec.md").read_bytes()
    assert thread.own_text(ran) == thread.own_text(data)


def test_what_a_settled_file_cannot_take_is_a_track_of_its_own(ws: Path) -> None:
    """It was replied to meanwhile: neither text may win, and neither is lost."""
    world = a_world(ws, Part())
    steps(world, 20)
    done = world.workspace.done / "one.md"
    done.write_bytes(done.read_bytes() + b"\na reply\n")
    world.put("queued/one.md", world.life.drop["queued/one.md"] + b"\nmore words\n")
    steps(world, 60)
    assert b"a reply" in done.read_bytes()
    assert b"more words" in (world.workspace.done / "one~2.md").read_bytes()
    assert not list(world.workspace.sessions.glob("*/late-save-*.md"))


def test_another_text_waits_for_a_name_that_is_still_in_use(ws: Path) -> None:
    """Taken at once it would lie where the running track expects its own file."""
    world = a_world(ws, Part(lasts=6))
    steps(world, 3)
    (world.workspace.active / "one.md").unlink()
    world.put("queued/one.md", track("something else"))
    steps(world, 2)
    assert world.exists("queued/one.md")
    steps(world)
    assert (world.workspace.done / "one.md").read_bytes().count(b"words of one") == 1
    assert b"something else" in (world.workspace.done / "one~2.md").read_bytes()


def test_a_late_save_of_an_old_buffer_does_not_undo_a_reply(ws: Path) -> None:
    world = a_world(ws, Part())
    steps(world, 20)
    done = world.workspace.done / "one.md"
    done.write_bytes(done.read_bytes() + b"\na reply\n")
    world.move("done/one.md", "queued/one.md")
    steps(world, 20)
    world.put("active/one.md", world.life.drop["queued/one.md"] + b"\nfrom an old buffer\n")
    steps(world, 20)
    text = done.read_bytes()
    assert b"a reply" in text
    assert text.count(b"<!-- megaharness: result") == 2
    (kept,) = world.workspace.sessions.glob("one-2-*/late-save-*.md")
    assert b"from an old buffer" in kept.read_bytes()
    assert world.stage.runs.total() == 3


def test_every_transition_has_one_line(ws: Path) -> None:
    world = a_world(ws, Part())
    steps(world, 20)
    assert [(row["name"], row["from"], row["to"]) for row in rows(world.workspace.journal)] == [
        ("one.md", "queued", "active"),
        ("other.md", "queued", "active"),
        ("one.md", "active", "done"),
        ("other.md", "active", "done"),
    ]
