"""What a bad disk or a strange hand leaves behind: nothing is run twice, and nothing stops the others."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from daemon.errors import NotNow
from daemon.kernel import claimed
from daemon.kernel.clock import Now, stamp
from daemon.kernel.settling import Settler
from daemon.spool.sessions import Claim, Sessions
from daemon.spool.store import numbered, reason_name
from daemon.supervisor import Supervisor
from daemon.tracks import thread
from tests.crash.lives import track
from tests.crash.stage import Part
from tests.crash.world import Life, Mutant, StepFiles, World, rows

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
    world = a_world(ws, Part(lasts=20))
    steps(world, 3)
    world.put("queued/one.md", world.life.drop["queued/one.md"] + b"\nmore words\n")
    steps(world, 80)
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
    """Taken at once it would lie where the running track expects its own file, which was deleted."""
    world = a_world(ws, Part(lasts=None))
    steps(world, 3)
    (world.workspace.active / "one.md").unlink()
    world.put("queued/one.md", track("something else"))
    steps(world, 2)
    assert world.exists("queued/one.md")
    steps(world)
    assert (world.workspace.failed / "one.md").read_bytes().count(b"words of one") == 1
    assert b"something else" in (world.workspace.done / "one.md").read_bytes()


def test_a_late_save_of_an_old_buffer_does_not_undo_a_reply(ws: Path) -> None:
    world = a_world(ws, Part())
    steps(world, 20)
    done = world.workspace.done / "one.md"
    done.write_bytes(done.read_bytes() + b"\na reply\n")
    world.move("done/one.md", "queued/one.md")
    steps(world, 20)
    session = next(world.workspace.sessions.glob("one-2-*"))
    # As a crash leaves it that came while another one was kept: the session is settled, and nobody tidies it.
    half = session / ".late-save-0123456789ab.md.0123456789ab.tmp"
    half.write_bytes(b"from an o")
    world.put("active/one.md", world.life.drop["queued/one.md"] + b"\nfrom an old buffer\n")
    steps(world, 20)
    assert not half.exists()
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


# -- odd entries ---------------------------------------------------------------------------------------


def make_odd(path: Path, kind: str) -> None:
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/etc/hostname" if kind == "symlink" else path.name)


ODD = ("directory", "fifo", "symlink", "loop")


def warnings(world: World, event: str) -> int:
    return sum(1 for level, name, _ in world.notebook.rows if (level, name) == ("warning", event))


def errors(world: World) -> list[tuple[str, dict[str, object]]]:
    return [(event, facts) for level, event, facts in world.notebook.rows if level == "error"]


def is_parked(world: World, item: str) -> bool:
    waiting = world.supervisor._status._state["waiting"]
    return any(wait["subject"].startswith(item) and wait["needs_you"] for wait in waiting)


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("beside", ["beside a file", "alone"])
def test_an_odd_entry_among_the_reasons_stops_nothing(ws: Path, kind: str, beside: str) -> None:
    world = a_world(ws, Part(lasts=4))
    if beside != "alone":
        world.put("failed/x.md", b"put there by hand\n")
    make_odd(world.workspace.failed / "x.md.why.txt", kind)
    world.boot(None)
    steps(world)
    assert world.exists("done/one.md")
    assert world.exists("done/other.md")
    assert world.supervisor.degraded is None
    assert os.path.lexists(world.workspace.failed / "x.md.why.txt")
    assert warnings(world, "left alone") == 1
    assert not errors(world)


@pytest.mark.parametrize("kind", ODD)
def test_a_bad_file_is_refused_where_an_odd_entry_has_the_name_of_its_reason(ws: Path, kind: str) -> None:
    world = a_world(ws, Part())
    make_odd(world.workspace.failed / "bad.md.why.txt", kind)
    world.put("queued/bad.md", b"---\nfoo: [\n---\nx\n")
    steps(world)
    assert world.exists("failed/bad~2.md")
    assert "bad.md was not run" in (world.workspace.failed / "bad~2.md.why.txt").read_text()


def test_a_running_track_is_stopped_while_the_folders_cannot_be_looked_at(ws: Path) -> None:
    world = a_world(ws, Part(lasts=None))
    steps(world, 3)

    def cannot(wall: float) -> None:
        raise OSError(5, "Input/output error", "tracks/queued")

    world.parts.store.scan = cannot  # type: ignore[method-assign]
    world.put("queued/late.md", track("late"))
    name = "00000000000000000000-interrupt-00000000.json"
    (world.workspace.requests / name).write_text('{"v": 1, "verb": "interrupt", "track": "one"}')
    steps(world, 60)
    assert world.exists("failed/one.md")
    assert world.exists("queued/late.md")
    assert world.supervisor._status._state["phase"] == "degraded"
    del world.parts.store.scan
    steps(world, 60)
    assert world.exists("done/late.md")
    assert world.supervisor._status._state["phase"] == "running"


@pytest.mark.parametrize("gone", ["md-db", "md-db/evals"])
def test_a_database_that_goes_away_is_made_again(ws: Path, gone: str) -> None:
    world = a_world(ws, Part(lasts=3))
    steps(world, 3)
    shutil.rmtree(world.workspace.root / gone)
    steps(world)
    assert world.exists("done/one.md")
    assert [row["track_id"] for row in rows(next(world.workspace.evals.glob("*.jsonl")))].count("one") == 1


@pytest.mark.parametrize("kind", ["file", "loop"])
def test_what_is_no_database_holds_no_slot(ws: Path, kind: str) -> None:
    world = a_world(ws, Part(lasts=3))
    steps(world, 3)
    shutil.rmtree(world.workspace.mddb)
    if kind == "file":
        world.workspace.mddb.write_bytes(b"")
    else:
        make_odd(world.workspace.mddb, kind)
    steps(world, 60)
    assert world.exists("done/one.md")
    assert not world.parts.sessions.open()
    assert any(event == "given up" for event, _ in errors(world))


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("which", ["journal", "evals"])
def test_an_odd_entry_in_the_place_of_a_history_is_put_aside(ws: Path, kind: str, which: str) -> None:
    world = a_world(ws, Part(lasts=6))
    steps(world, 4)
    month = world.workspace.evals / f"{stamp(world.now().wall)[:7]}.jsonl"
    path = world.workspace.journal if which == "journal" else month
    path.unlink(missing_ok=True)
    make_odd(path, kind)
    steps(world)
    assert world.exists("done/one.md")
    assert os.path.lexists(f"{path}.odd-1")
    assert not os.path.lexists(f"{path}.odd-2")
    assert any("one" in str(row) for row in rows(path))
    assert warnings(world, "no file that takes lines") == 1
    world.boot(None)
    steps(world, 3)
    assert not world.parts.sessions.open()


def test_a_file_that_has_grown_too_large_goes_to_failed_and_the_track_ends(ws: Path) -> None:
    world = a_world(ws, Part(lasts=6))
    steps(world, 3)
    with open(world.workspace.active / "one.md", "r+b") as file:
        file.truncate((64 << 20) + 1)
    steps(world)
    assert (world.workspace.failed / "one.md").stat().st_size > 64 << 20
    assert b"words of one" in (world.workspace.done / "one.md").read_bytes()
    assert not world.parts.sessions.open()


@pytest.mark.parametrize("kind", ODD)
def test_an_odd_entry_that_has_the_settled_name_is_no_reason_to_wait(ws: Path, kind: str) -> None:
    """Also where the settle is carried out by the next daemon."""
    world = a_world(ws, Part(lasts=4))
    steps(world, 3)
    make_odd(world.workspace.done / "one.md", kind)
    with open(world.workspace.active / "one.md", "ab"):
        steps(world, 10)
        assert world.exists("active/one.md")
    world.boot(None)
    steps(world)
    assert b"answer of one" in (world.workspace.done / "one~2.md").read_bytes()
    assert not world.parts.sessions.open()


@pytest.mark.parametrize("name", ["result.md", "settle.json", "settled", "outcome.json"])
def test_a_directory_in_the_place_of_a_record_is_put_aside(ws: Path, name: str) -> None:
    world = a_world(ws, Part(lasts=4))
    steps(world, 3)
    session = session_of(world, "one")
    (session / name).mkdir()
    (session / name / "full").touch()
    steps(world, 60)
    assert world.exists("done/one.md")
    assert not world.parts.sessions.open()
    assert (session / f"{name}.odd-1" / "full").exists()


class Immutable(StepFiles):
    """One file that may not be touched, as after `chattr +i`: by its path below tracks/."""

    place = ""

    def before(self, name: str, *args: object) -> None:
        super().before(name, *args)
        if (
            self.place
            and name in ("move", "exchange", "replace")
            and any(str(arg).endswith(f"tracks/{self.place}") for arg in args)
        ):
            raise PermissionError(1, "Operation not permitted", str(args[0]), None, str(args[1]))


def test_a_waiting_file_that_may_not_be_moved_degrades_nothing(
    ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Immutable, "place", "queued/one.md")
    world = World(ws, Life("fixed", {"queued/one.md": track("one"), **OTHER}, {}), Mutant(files=Immutable))
    world.boot(None)
    for _ in range(20):
        world.step()
        assert world.supervisor.degraded is None
    assert world.exists("done/other.md")
    assert world.exists("queued/one.md")
    (wait,) = world.supervisor._status._state["waiting"]
    assert "Operation not permitted" in wait["reason"]
    assert wait["needs_you"]
    monkeypatch.setattr(Immutable, "place", "")
    steps(world, 60)
    assert world.exists("done/one.md")


def test_an_active_file_that_may_not_be_moved_frees_its_slot(
    ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(
        ws,
        Life("fixed", {"queued/one.md": track("one"), **OTHER}, {}, {"one": Part(lasts=4)}),
        Mutant(files=Immutable),
    )
    world.boot(None)
    steps(world, 3)
    monkeypatch.setattr(Immutable, "place", "active/one.md")
    for _ in range(80):
        world.step()
        assert world.supervisor.degraded is None
    assert not world.parts.sessions.open()
    assert world.exists("active/one.md")
    assert b"answer of one" in (world.workspace.done / "one.md").read_bytes()
    assert any(event == "given up" for event, _ in errors(world))
    assert rows(world.workspace.journal)[-1]["to"] == "done"
    monkeypatch.setattr(Immutable, "place", "")
    steps(world, 80)
    assert not world.exists("active/one.md")
    assert world.stage.runs.total() == 2
    assert (world.workspace.done / "one.md").read_bytes().count(b"answer of one") == 1


class OnlyOnce(Sessions):
    def begin(self, claim: Claim, spec: bytes) -> None:
        if claim.attempt > 1:
            raise ValueError("no")
        super().begin(claim, spec)


def test_another_attempt_that_cannot_be_begun_ends_the_track(ws: Path) -> None:
    life = Life("once", {"queued/two.md": track("two", done_when="[{run: 'false'}]"), **OTHER}, {})
    world = World(ws, life, Mutant(sessions=OnlyOnce))
    world.boot(None)
    steps(world, 80)
    assert world.exists("failed/two.md")
    assert world.exists("done/other.md")
    assert not world.parts.sessions.open()
    settled = json.loads((session_of(world, "two") / "settle.json").read_bytes())
    assert settled["destination"] == "failed"
    assert "no other attempt could be begun" in settled["why"]
    assert world.stage.runs.total() == 2


@pytest.mark.parametrize("length", [255, 253, 251, 245, 240])
@pytest.mark.parametrize("letter", ["x", "ü", "日"])
def test_a_name_as_long_as_a_name_can_be(ws: Path, length: int, letter: str) -> None:
    width = len(letter.encode())
    name = "a" * ((length - 3) % width) + letter * ((length - 3) // width) + ".md"
    bad = f"b{name[1:]}" if name[0] == "a" else f"{name[:-4]}{'y' * width}.md"
    life = Life("long", {f"queued/{name}": track("long"), f"queued/{bad}": b"---\nfoo: [\n---\nx\n"}, {})
    world = World(ws, life)
    world.boot(None)
    steps(world)
    assert world.exists(f"done/{name}")
    assert world.exists(f"failed/{bad}")
    assert "was not run" in (world.workspace.failed / reason_name(bad)).read_text()
    world.put(f"queued/{name}", track("another text"))
    world.put(f"queued/{bad}", b"---\nbar: [\n---\nx\n")
    steps(world)
    world.boot(None)
    steps(world, 10)
    assert sorted(os.listdir(world.workspace.done)) == sorted([name, numbered(name, 2)])
    assert sorted(os.listdir(world.workspace.failed)) == sorted(
        found for file in (bad, numbered(bad, 2)) for found in (file, reason_name(file))
    )
    refused = [row["file"] for row in rows(world.workspace.journal) if row["to"] == "failed"]
    assert refused == [bad, numbered(bad, 2)]
    assert not errors(world)


def test_news_that_cannot_be_told_are_news_and_end_nothing(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_world(ws, Part())
    supervisor, began = world.supervisor, time.monotonic()
    waited: list[float] = []

    def no_news() -> bool:
        raise PermissionError(13, "Permission denied", str(ws))

    def rest(until: float) -> None:
        waited.append(until - time.monotonic())

    monkeypatch.setattr(Supervisor, "_news", lambda self: no_news())
    monkeypatch.setattr(Supervisor, "_rest", lambda self, until: rest(until))
    for number in range(1, 8):
        supervisor.flag.set()
        supervisor._sleep(began + 60.0)
        assert len(waited) == number
    assert all(wait > 1.0 for wait in waited)  # it does not spin
    assert waited[-1] > waited[0]
    steps(world)
    assert world.exists("done/one.md")
    assert supervisor._faults == 0


def test_a_clock_that_steps_back_at_the_end_makes_no_end_be_judged_again(
    ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then everything that the daemon writes looks older than the runner's end."""
    carried_out, failing = Settler.roll_forward, [True, True]

    def refusing(settler: Settler, session: str, now: Now) -> None:
        if failing:
            failing.pop()
            raise NotNow("somebody has it open")
        carried_out(settler, session, now)

    monkeypatch.setattr(claimed, "_since_the_end", lambda session, name: False)
    monkeypatch.setattr(Settler, "roll_forward", refusing)
    world = a_world(ws, Part())
    steps(world, 20)
    assert world.exists("done/one.md")
    assert world.parts.sessions.open() == []
    assert not list(world.workspace.sessions.glob("*/*.odd-*"))


def test_a_track_that_is_dropped_again_is_run_also_when_the_clock_was_set_back(ws: Path) -> None:
    """By the clock it came before its own end: no late save of an editor can be told from that."""
    world = a_world(ws, Part())
    steps(world, 20)
    assert world.exists("done/one.md")
    world.skew = -3 * 3600.0
    steps(world, 100)
    world.put("queued/one.md", world.life.drop["queued/one.md"])
    steps(world)
    assert sum(name.startswith("one-") for name in world.stage.runs) == 2
    assert world.exists("done/one~2.md")
