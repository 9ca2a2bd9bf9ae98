"""What waits costs nothing until something changes: counted in looks and reads, not in times."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from daemon.kernel.room import SLICE, Judged, Key, Room
from daemon.spool.states import QUEUED, State
from daemon.spool.store import Entry, Store
from daemon.tracks.machine import Candidate, Hold
from tests.crash.lives import track
from tests.crash.stage import Part
from tests.crash.world import Life, Mutant, World


class CountingStore(Store):
    looked: Counter[str]

    def _stat(self, state: State, name: str) -> Entry | None:
        self.looked = getattr(self, "looked", Counter())
        self.looked[name] += 1
        return super()._stat(state, name)


def world_of(root: Path, drop: dict[str, bytes], **parts: Part) -> World:
    world = World(root, Life("waiting", drop, {}, parts=parts), Mutant(store=CountingStore))
    world.boot(None)
    return world


def steps(world: World, count: int) -> None:
    for _ in range(count):
        world.step()


def reads(world: World) -> int:
    return world.files.points.count("before open")


def judged(world: World) -> Counter[str]:
    """Count from here on how often each file is judged."""
    found: Counter[str] = Counter()
    observer = world.supervisor._observer
    inner = observer._candidate

    def counting(entry: Entry, *args: object) -> Candidate | None:
        found[entry.name] += 1
        return inner(entry, *args)  # type: ignore[arg-type]

    observer._candidate = counting  # type: ignore[method-assign,assignment]
    return found


@pytest.fixture
def waiting(tmp_path: Path) -> World:
    """Both slots are taken; of the others half wait for a slot, half for a track that is never dropped."""
    drop = {f"queued/a{number}.md": track(f"a{number}", priority="9") for number in range(2)}
    drop |= {f"queued/s{number:02}.md": track(f"s{number}") for number in range(20)}
    drop |= {f"queued/w{number:02}.md": track(f"w{number}", after="nobody") for number in range(20)}
    world = world_of(tmp_path, drop, a0=Part(lasts=None), a1=Part(lasts=None))
    steps(world, 10)
    assert world.running("a0")
    assert world.running("a1")
    return world


def test_a_tick_does_not_read_what_has_not_changed(waiting: World) -> None:
    before, counts = reads(waiting), judged(waiting)
    steps(waiting, 30)
    assert reads(waiting) == before
    assert not counts


def test_a_changed_file_is_judged_and_no_other(waiting: World) -> None:
    counts = judged(waiting)
    waiting.put("queued/s07.md", track("s07", after="nobody"))
    steps(waiting, 12)
    assert set(counts) == {"s07.md"}
    rows = {row["subject"]: row["reason"] for row in waiting.supervisor._status._state["waiting"]}
    assert rows["s07.md"].startswith("waits for nobody")
    assert rows["s08.md"] == "waits for a free slot"


def test_a_free_slot_has_only_the_next_one_judged(waiting: World) -> None:
    counts = judged(waiting)
    waiting.stage._parts["s00"] = Part(lasts=None)
    (waiting.workspace.requests / "1-interrupt.json").write_text(
        '{"v": 1, "verb": "interrupt", "track": "a0"}'
    )
    steps(waiting, 12)
    assert waiting.running("s00")
    assert {name for name in counts if name.startswith("s")} == {"s00.md"}


def test_who_waits_for_a_track_hears_of_its_end(waiting: World) -> None:
    waiting.put("queued/last.md", track("last", after="s00", priority="8"))
    (waiting.workspace.requests / "1-interrupt.json").write_text(
        '{"v": 1, "verb": "interrupt", "track": "a0"}'
    )
    steps(waiting, 40)
    assert waiting.exists("done/s00.md")
    assert waiting.exists("done/last.md")


def test_an_identical_scan_makes_no_entry_anew(waiting: World) -> None:
    store = waiting.parts.store
    before = dict(store.entries(QUEUED))
    store.changes()
    store.scan(waiting.now().wall)
    assert all(store.entries(QUEUED)[name] is entry for name, entry in before.items())
    assert not store.changes()


def test_names_alone_cost_no_look_at_each_file(waiting: World) -> None:
    store = waiting.parts.store
    assert isinstance(store, CountingStore)
    store.scan(waiting.now().wall)
    store.looked.clear()
    store.scan_names(waiting.now().wall)
    assert not store.looked
    waiting.put("queued/new.md", track("new"))
    store.scan_names(waiting.now().wall)
    assert set(store.looked) == {"new.md"}
    assert store.changes() == {(QUEUED, "new.md")}


def test_an_editors_file_beside_one_is_a_change_of_that_one(waiting: World) -> None:
    store = waiting.parts.store
    store.changes()
    lock = waiting.workspace.queued / ".s03.md.swp"
    lock.write_bytes(b"")
    store.look([lock])
    assert store.changes() == {(QUEUED, "s03.md")}
    lock.unlink()
    store.scan(waiting.now().wall)
    assert store.changes() == {(QUEUED, "s03.md")}


def test_after_a_fault_of_the_look_everything_is_looked_at_again(waiting: World) -> None:
    observer = waiting.supervisor._observer
    waiting.put("queued/b.md", track("b", after="nobody"))
    room = observer.room
    observer._judge = None  # type: ignore[method-assign,assignment]
    for _ in range(12):
        if observer.room is room:
            steps(waiting, 1)
    del observer._judge
    assert observer.room is not room
    counts = judged(waiting)
    steps(waiting, 12)
    assert set(counts) >= {"b.md", "s00.md", "w00.md"}
    assert len(waiting.supervisor._status._state["waiting"]) >= 41


# -- the room alone --------------------------------------------------------------------------------


def found(key: Key, *, hold: bool = False, priority: int = 0) -> Judged:
    holds = (Hold("waits", 50.0),) if hold else ()
    candidate = Candidate(key[1], key[0], int(key[1]), priority, holds=holds)
    return Judged(candidate, 50.0 if hold else None)


def test_a_long_queue_is_read_in_slices_and_the_first_are_due_at_once() -> None:
    room = Room(10)
    keys: list[Key] = [(QUEUED, str(number)) for number in range(3 * SLICE)]
    room.touch(keys)
    listed = room.look(0.0, 2, found)
    assert [each.name for each in listed if isinstance(each, Candidate)] == [str(n) for n in range(10)]
    assert room.unread == 2 * SLICE
    assert room.again(0.0) == 0.0
    room.touch([(QUEUED, "99999")])
    seen: list[Key] = []
    room.look(0.0, 2, lambda key: seen.append(key) or found(key))  # type: ignore[func-returns-value]
    assert seen.index((QUEUED, "99999")) < 5  # before what is still unread
    room.look(0.0, 2, found)
    room.look(0.0, 2, found)
    assert room.unread == 0
    assert room.again(0.0) is None


def test_a_moment_that_comes_has_its_file_judged_again() -> None:
    room = Room(10)
    room.touch([(QUEUED, "1"), (QUEUED, "2")])
    room.look(0.0, 0, lambda key: found(key, hold=key[1] == "1"))
    assert room.again(0.0) == 50.0
    seen: list[Key] = []
    room.look(50.0, 0, lambda key: seen.append(key) or found(key))  # type: ignore[func-returns-value]
    assert seen == [(QUEUED, "1")]


def test_what_is_due_was_judged_in_this_look_and_another_takes_its_place() -> None:
    room = Room(0)
    room.touch([(QUEUED, str(number)) for number in range(5)])
    room.look(0.0, 0, found)
    # The first two are not free any more, though nobody told of it.
    listed = room.look(0.0, 2, lambda key: found(key, hold=key[1] in "01"))
    assert [each.name for each in listed if isinstance(each, Candidate)] == ["2", "3"]


def test_the_order_is_by_priority_and_then_by_arrival() -> None:
    room = Room(None)
    room.touch([(QUEUED, str(number)) for number in range(6)])
    listed = room.look(0.0, 0, lambda key: found(key, priority=int(key[1]) % 2))
    assert [each.name for each in listed if isinstance(each, Candidate)] == ["1", "3", "5", "0", "2", "4"]


def test_a_time_of_day_comes_when_the_clock_says_so(tmp_path: Path) -> None:
    """A machine that slept has a wall clock that went on and a monotonic one that did not."""
    world = world_of(tmp_path, {})
    at = time.strftime("%Y-%m-%dT%H:%M", time.localtime(world.now().wall + 7200))
    world.put("queued/late.md", track("late", after=at))
    steps(world, 10)
    assert world.exists("queued/late.md")
    world.skew += 8000
    steps(world, 15)
    assert world.exists("done/late.md")


def needs_you(world: World) -> dict[str, str]:
    """The files that need a person, and why."""
    waits = world.supervisor._status._state["waiting"]
    return {row["subject"]: row["reason"] for row in waits if row["needs_you"]}


@pytest.mark.parametrize("count", [2, 3])
def test_all_of_those_that_wait_for_each_other_are_told_whoever_is_read_first(
    tmp_path: Path, count: int
) -> None:
    drop = {f"queued/t{n}.md": track(f"t{n}", after=f"t{(n + 1) % count}") for n in range(count)}
    world = world_of(tmp_path, drop)
    steps(world, 3)
    assert needs_you(world) == {
        f"t{n}.md": f"waits for t{(n + 1) % count}, which waits for this one" for n in range(count)
    }
    counted = judged(world)
    steps(world, 10)
    assert not counted, "that they are in a circle is no news to each other"


def test_who_was_in_a_circle_is_told_when_it_is_opened_and_closed_again(tmp_path: Path) -> None:
    world = world_of(tmp_path, {"queued/a.md": track("a", after="b"), "queued/b.md": track("b", after="a")})
    steps(world, 3)
    assert set(needs_you(world)) == {"a.md", "b.md"}
    world.put("queued/b.md", track("b", after="2099-01-01"))
    steps(world, 12)
    assert needs_you(world) == {}
    world.put("queued/b.md", track("b", after="a"))
    steps(world, 12)
    assert set(needs_you(world)) == {"a.md", "b.md"}
