"""Gestures with the file of an active track, at the moments at which they are hardest to get right."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from adapters import session as live
from daemon.kernel.clock import Now
from daemon.spool.sessions import Claim, Settlement
from daemon.tracks.machine import Attempt
from tests.crash.lives import track
from tests.crash.stage import Part
from tests.crash.world import Crash, Life, World


def world_of(root: Path, *stems: str, **parts: Part) -> World:
    drop = {f"queued/{stem}.md": track(stem) for stem in stems}
    world = World(root, Life("gestures", drop, {}, parts=parts))
    world.boot(None)
    return world


def until(world: World, holds: Callable[[], bool], limit: int = 60) -> None:
    for _ in range(limit):
        if holds():
            return
        world.step()
    raise AssertionError(f"it did not come to that: {world.supervisor._status._state}")


def steps(world: World, count: int) -> None:
    for _ in range(count):
        world.step()


def sessions(world: World, stem: str) -> list[Path]:
    found = world.workspace.sessions.glob(f"{stem}-*")
    return sorted(found, key=lambda path: int(path.name.rsplit("-", 2)[1]))


def edits(session: Path) -> list[Path]:
    return sorted((session / "edits").glob("*.json"))


def append(world: World, stem: str, text: str) -> None:
    data = (world.workspace.active / f"{stem}.md").read_bytes()
    world.put(f"active/{stem}.md", data + f"\n{text}\n".encode())


def asks(world: World, stem: str) -> None:
    path = world.workspace.active / f"{stem}.md"
    until(world, lambda: path.exists() and b"megaharness: question" in path.read_bytes())


def test_a_broken_save_after_a_message_keeps_a_new_daemon_from_nothing(tmp_path: Path) -> None:
    world = world_of(tmp_path, "a", a=Part(lasts=None))
    until(world, lambda: world.running("a"))
    append(world, "a", "hello")
    until(world, lambda: edits(sessions(world, "a")[0]) != [])
    path = world.workspace.active / "a.md"
    world.put("active/a.md", path.read_bytes().replace(b"harness_id", b"harness_od"))
    steps(world, 10)
    world.boot(None)
    steps(world, 10)
    world.go_on()
    now = world.now()
    assert world.supervisor.turn(now) > now.mono, "it rests until something changes"


def test_what_is_saved_on_the_way_to_the_start_gate_is_told_behind_it(tmp_path: Path) -> None:
    world = world_of(tmp_path, "a", a=Part(lasts=None, delay=9))
    until(world, lambda: [(path / "launch.json").exists() for path in sessions(world, "a")] == [True])
    append(world, "a", "in blue")
    path = world.workspace.active / "a.md"
    world.put("active/a.md", path.read_bytes().replace(b": fake", b": fake\nbudget: {minutes: 5}", 1))
    (session,) = sessions(world, "a")
    until(world, lambda: edits(session) != [])
    assert not (session / "started.json").exists()
    until(world, lambda: world.running("a"))
    steps(world, 10)
    name = json.loads(edits(session)[0].read_text())["name"]
    assert (session.name, name) in world.stage.heard
    assert json.loads((session / "limits.json").read_text())["wall_s"] == 300


def test_a_message_that_a_crash_kept_from_the_inbox_is_told_with_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(tmp_path, "a", a=Part(lasts=None))
    until(world, lambda: world.running("a"))
    append(world, "a", "first")
    with monkeypatch.context() as patch:
        patch.setattr(live, "message", _crash)
        with pytest.raises(Crash):
            steps(world, 20)
    append(world, "a", "second")
    world.boot(None)
    steps(world, 20)
    (session,) = sessions(world, "a")
    names = [json.loads(path.read_text())["name"] for path in edits(session)]
    assert [name for _, name in world.stage.heard][1:] == names
    assert len(names) == 2


def _crash(*_: object, **__: object) -> None:
    raise Crash


def test_a_track_that_asks_and_is_deleted_is_not_begun_again(tmp_path: Path) -> None:
    world = world_of(tmp_path, "a", a=Part(asks="which?"))
    asks(world, "a")
    (world.workspace.active / "a.md").unlink()
    until(world, lambda: world.exists("failed/a.md"))
    first, second = sessions(world, "a")
    until(world, (second / "settled").exists)
    assert dict(world.stage.runs) == {first.name: 1}


def test_a_crash_while_it_goes_on_leaves_no_question_that_waits_for_a_slot(tmp_path: Path) -> None:
    world = world_of(tmp_path, "a", "b", a=Part(asks="which?"), b=Part(lasts=None))
    asks(world, "a")
    until(world, lambda: world.running("b"))
    world.stage._parts["a"] = Part(lasts=None)
    append(world, "a", "the left one")
    world.parts.sessions.close = _crash  # type: ignore[method-assign]
    with pytest.raises(Crash):
        steps(world, 20)
    world.boot(None)
    steps(world, 10)
    first, _ = sessions(world, "a")
    assert world.running("a")
    assert (first / "settled").exists()


def test_a_question_comes_into_a_file_that_was_away_when_it_was_asked(tmp_path: Path) -> None:
    world = world_of(tmp_path, "a", a=Part(lasts=8, asks="which?"))
    until(world, lambda: world.running("a"))
    path, elsewhere = world.workspace.active / "a.md", tmp_path / "elsewhere"
    intend = world.parts.sessions.intend

    def away(settlement: Settlement) -> None:
        path.rename(elsewhere)  # an editor is between two steps of its save
        intend(settlement)

    world.parts.sessions.intend = away  # type: ignore[method-assign]
    until(world, elsewhere.exists)
    elsewhere.rename(path)
    asks(world, "a")
    assert path.read_bytes().count(b"megaharness: question") == 1
    rows = (world.workspace.tracks / "journal.jsonl").read_text().splitlines()
    assert [json.loads(row)["to"] for row in rows] == ["active", "stays"]


@pytest.mark.parametrize("place", ["queued/copy.md", "done/copy.md", "failed/a.md", "active/copy.md"])
def test_a_copy_is_not_taken_for_a_file_that_an_editor_puts_away_for_a_moment(
    tmp_path: Path, place: str
) -> None:
    world = world_of(tmp_path, "a", "b", a=Part(lasts=None), b=Part(lasts=None))
    until(world, lambda: world.running("a") and world.running("b"))
    steps(world, 8)
    path = world.workspace.active / "a.md"
    text = path.read_bytes()
    (world.workspace.tracks / place).write_bytes(text)
    steps(world, 8)
    path.rename(path.with_name("a.md~"))
    world.supervisor._scan_due = 0.0
    steps(world, 2)
    path.write_bytes(text)
    steps(world, 10)
    (session,) = sessions(world, "a")
    assert not (session / "interrupt.json").exists()
    known = world.parts.sessions.claim(session.name)
    assert known is not None
    assert known.name == "a.md"


def test_a_file_that_a_sync_program_moves_by_a_copy_is_moved(tmp_path: Path) -> None:
    world = world_of(tmp_path, "a", a=Part(lasts=None))
    until(world, lambda: world.running("a"))
    steps(world, 8)
    path = world.workspace.active / "a.md"
    (world.workspace.done / "a.md").write_bytes(path.read_bytes())
    path.unlink()
    (session,) = sessions(world, "a")
    until(world, (session / "settled").exists)
    assert not world.exists("failed/a.md")
    assert b"you moved it to done/" in (world.workspace.done / "a.md").read_bytes()


def test_a_file_that_was_moved_and_renamed_hours_ago_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon was down meanwhile."""
    world = world_of(tmp_path, "a", a=Part(lasts=None))
    until(world, lambda: world.running("a"))
    steps(world, 2)
    world.move("active/a.md", "done/a better name.md")
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + 9 * 3600)
    world.boot(None)
    until(world, lambda: not world.parts.sessions.open())
    assert sorted(os.listdir(world.workspace.done)) == ["a better name.md"]
    assert list(world.workspace.failed.glob("*.md")) == []
    assert b"megaharness: result" in (world.workspace.done / "a better name.md").read_bytes()


@pytest.mark.parametrize("to", ["queued", "done", "failed", ""])
def test_what_a_person_does_with_the_file_just_before_it_is_settled_counts(tmp_path: Path, to: str) -> None:
    """No event has told of it, and no scan: it is seen by the last look alone."""
    world = world_of(tmp_path, "a", a=Part(lasts=4))
    observer, concluded = world.supervisor._observer, world.parts.memory.concluded
    attempt, moved = observer._attempt, []

    def as_late_as_can_be(known: Claim, now: Now) -> Attempt:
        if concluded and not moved:
            moved.append(to)
            world.move("active/a.md", f"{to}/a.md" if to else "../a.md")
        return attempt(known, now)

    observer._attempt = as_late_as_can_be  # type: ignore[method-assign]
    until(world, lambda: moved != [])
    assert world.parts.sessions.open() != [], "it is not settled as if nothing had been done"
    until(world, world.has_nothing_to_do)
    state = "done" if to in ("queued", "done") else "failed"
    assert [path.name for path in world.workspace.tracks.glob("*/a.md")] == ["a.md"]
    assert (world.workspace.tracks / state / "a.md").exists()
    assert len(sessions(world, "a")) == (2 if to == "queued" else 1)


def test_a_copy_of_a_moved_file_is_another_track(tmp_path: Path) -> None:
    world = world_of(tmp_path, "a", "b", a=Part(lasts=None), b=Part(lasts=None))
    until(world, lambda: world.running("a") and world.running("b"))
    steps(world, 8)
    path, moved = world.workspace.active / "a.md", world.workspace.failed / "moved.md"
    world.put("queued/copy.md", path.read_bytes())
    world.supervisor._scan_due = 0.0
    until(world, lambda: ("queued", "copy.md") in world.parts.memory.peeks)
    assert world.exists("queued/copy.md")  # there is no slot for it
    path.rename(moved)
    (session,) = sessions(world, "a")
    until(world, (session / "settled").exists)
    assert b"you moved it to failed/" in moved.read_bytes()
    assert b"status: failed" in moved.read_bytes()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EACCES], ids=errno.errorcode.get)
def test_a_text_that_cannot_be_read_just_now_is_not_lost(tmp_path: Path, number: int) -> None:
    world = world_of(tmp_path, "a", a=Part(lasts=None))
    until(world, lambda: world.running("a"))
    steps(world, 8)
    (session,) = sessions(world, "a")
    text = (session / "spec.md").read_bytes()
    world.boot(None)  # remembers nothing
    (world.workspace.active / "a.md").unlink()
    read, refused = world.files.read, 0

    def refuse(path: Path, limit: int = 64 << 20) -> bytes:
        nonlocal refused
        if path == session / "spec.md" and refused < 3:
            refused += 1
            raise OSError(number, os.strerror(number), str(path))
        return read(path, limit)

    world.files.read = refuse  # type: ignore[method-assign]
    until(world, lambda: world.exists("failed/a.md"))
    assert refused == 3
    assert text.split(b"---\n")[-1] in (world.workspace.failed / "a.md").read_bytes()


def test_a_record_of_an_edit_that_the_agent_made_is_a_changed_contract_too(tmp_path: Path) -> None:
    world = World(
        tmp_path,
        Life("forged", {"queued/a.md": track("a", done_when="[{exists: never}]")}, {}, {"a": Part(lasts=14)}),
    )
    world.boot(None)
    until(world, lambda: world.running("a"))
    session, path = sessions(world, "a")[0], world.workspace.active / "a.md"
    text = path.read_text().replace("exists: never", "run: 'true'")
    (session / "edits").mkdir()
    record = {"number": 1, "at": "2026-01-01T00:00:00Z", "text": text, "message": "", "name": "", "keys": []}
    (session / "edits/0001.json").write_text(json.dumps(record))
    path.write_text(text)
    world.boot(None)
    until(world, lambda: world.exists("done/a.md"))
    result = (world.workspace.done / "a.md").read_text()
    assert "contract changed" in result
    assert "verified" not in result
