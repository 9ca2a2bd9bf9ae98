"""The watcher: a hint about every change that matters, and about nothing else. The real watchdog."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from daemon.durable import Files
from daemon.spool.states import ACTIVE, QUEUED, STATES
from daemon.spool.store import Store
from daemon.spool.watcher import Notes, Watcher


class Watched:
    def __init__(self, root: Path) -> None:
        self.tracks, self.wake = root / "tracks", root / "wake"
        for folder in (*STATES, "requests", ".tmp"):
            (self.tracks / folder).mkdir(parents=True)
        self.wake.mkdir()
        self.store = Store(self.tracks, Files())
        self.store.scan(time.time())
        self.flag = threading.Event()
        folders = frozenset(self.tracks / name for name in (*STATES, "requests"))
        self.watcher = Watcher(self.tracks, folders, self.wake, self.flag)
        self.watcher.start()
        self.seen = Notes()

    def drain(self) -> None:
        notes = self.watcher.drain()
        self.seen.paths |= notes.paths
        self.seen.arrived |= notes.arrived
        self.seen.overflow |= notes.overflow

    def wait(self, condition: Callable[[Notes], bool]) -> Notes:
        deadline = time.monotonic() + 20
        while not condition(self.seen):
            assert time.monotonic() < deadline, f"only saw {self.seen}"
            self.flag.wait(0.05)
            self.flag.clear()
            self.drain()
        return self.seen

    def settle(self) -> Notes:
        """Until everything so far has been reported: a last event of our own comes after all others."""
        marker = self.tracks / "requests" / f"marker-{time.monotonic_ns()}"
        marker.write_bytes(b"")
        marker.unlink()
        self.wait(lambda notes: marker in notes.paths)
        self.seen.paths = {path for path in self.seen.paths if not path.name.startswith("marker-")}
        return self.seen


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    yield watched
    watched.watcher.stop()


def test_a_file_written_in_place_is_news_and_has_not_arrived(watched: Watched) -> None:
    path = watched.tracks / "queued/a.md"
    path.write_bytes(b"x")
    notes = watched.wait(lambda notes: path in notes.paths)
    assert path not in notes.arrived


def test_a_rename_within_the_watched_tree_is_an_arrival_at_once(watched: Watched) -> None:
    temp, path = watched.tracks / ".tmp/a", watched.tracks / "queued/a.md"
    temp.write_bytes(b"x")
    temp.rename(path)
    assert path in watched.wait(lambda notes: path in notes.paths).arrived


def test_a_move_in_from_outside_is_no_arrival(watched: Watched, tmp_path: Path) -> None:
    """It cannot be told from a file that is being made."""
    outside, path = tmp_path / "a", watched.tracks / "queued/a.md"
    outside.write_bytes(b"x")
    outside.rename(path)
    assert path not in watched.wait(lambda notes: path in notes.paths).arrived


def test_moves_out_and_deletions_are_news(watched: Watched, tmp_path: Path) -> None:
    moved, deleted = watched.tracks / "active/a.md", watched.tracks / "active/b.md"
    for path in (moved, deleted):
        path.write_bytes(b"x")
    watched.settle()
    watched.seen.paths.clear()
    moved.rename(tmp_path / "a.md")
    deleted.unlink()
    watched.wait(lambda notes: {moved, deleted} <= notes.paths)


def test_a_move_between_two_folders_names_both(watched: Watched) -> None:
    old, new = watched.tracks / "queued/a.md", watched.tracks / "active/a.md"
    old.write_bytes(b"x")
    watched.settle()
    watched.seen.paths.clear()
    old.rename(new)
    assert new in watched.wait(lambda notes: {old, new} <= notes.paths).arrived


def test_temps_and_what_lies_deeper_wake_nobody(watched: Watched) -> None:
    (watched.tracks / ".tmp/a").write_bytes(b"x")
    (watched.tracks / "journal.jsonl").write_bytes(b"x")
    (watched.tracks / "queued/deep").mkdir()
    (watched.tracks / "queued/deep/a.md").write_bytes(b"x")
    assert watched.settle().paths <= {watched.tracks / "queued/deep"}


def test_reading_wakes_nobody(watched: Watched) -> None:
    path = watched.tracks / "queued/a.md"
    path.write_bytes(b"x")
    watched.settle()
    watched.seen.paths.clear()
    for _ in range(10):
        path.read_bytes()
        os.listdir(path.parent)
        watched.store.scan(time.time())
    assert watched.settle().paths == set()


def test_a_runner_wakes_by_touching_and_tidying_up_wakes_nobody(watched: Watched) -> None:
    wake = watched.wake / "a-1-0123456789ab"
    wake.touch()
    watched.wait(lambda notes: wake in notes.paths)
    watched.settle()
    watched.seen.paths.clear()
    wake.unlink()
    assert watched.settle().paths == set()


def test_what_the_store_does_itself_is_no_news(watched: Watched) -> None:
    path = watched.tracks / "queued/a.md"
    path.write_bytes(b"x")
    watched.store.scan(time.time())
    watched.settle()
    watched.seen.paths.clear()
    name = watched.store.move("a.md", QUEUED, ACTIVE)
    paths = watched.settle().paths
    assert paths == {path, watched.tracks / "active" / name}
    assert not any(watched.store.differs(each) for each in paths)


def test_what_the_store_refuses_is_no_news(watched: Watched) -> None:
    (watched.tracks / "queued/bad.md").write_bytes(b"x")
    watched.store.scan(time.time())
    watched.settle()
    watched.seen.paths.clear()
    watched.store.refuse("bad.md", "because")
    paths = watched.settle().paths
    assert watched.tracks / "failed/bad.md" in paths
    assert not any(watched.store.differs(each) for each in paths)


def test_lost_events_are_told_by_watchdogs_log_and_force_a_scan(watched: Watched) -> None:
    log = logging.getLogger("watchdog.observers.inotify_c")
    log.warning("Inotify queue overflowed; filesystem events were lost")
    assert watched.wait(lambda notes: notes.overflow).overflow
    assert not watched.watcher.drain().overflow


def test_other_warnings_of_watchdog_force_nothing(watched: Watched) -> None:
    logging.getLogger("watchdog.observers.inotify_c").warning("something else")
    assert not watched.settle().overflow


def test_a_stopped_watcher_listens_no_more(watched: Watched) -> None:
    handlers = logging.getLogger("watchdog.observers.inotify_c").handlers
    assert len(handlers) == 1
    watched.watcher.stop()
    assert handlers == []
    assert not watched.watcher.alive()


def test_a_folder_that_is_removed_and_made_again_is_watched_again(watched: Watched) -> None:
    folder = watched.tracks / "queued"
    shutil.rmtree(folder)
    watched.settle()
    folder.mkdir()
    deadline = time.monotonic() + 20
    number = 0
    while True:  # watchdog follows the new directory a moment later; a scan has what came before
        number += 1
        path = folder / f"{number}.md"
        path.write_bytes(b"x")
        watched.drain()
        if path in watched.settle().paths:
            return
        assert time.monotonic() < deadline, "the new folder is not watched"


def test_a_root_that_is_removed_is_noticed(watched: Watched) -> None:
    shutil.rmtree(watched.tracks)
    deadline = time.monotonic() + 20
    while watched.watcher.alive():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_missing_root_is_an_error_at_the_start(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path / "none", frozenset(), tmp_path, threading.Event())
    with pytest.raises(OSError, match="No such file"):
        watcher.start()
    watcher.stop()
