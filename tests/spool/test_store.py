"""The four folders: looking at them, and the one rename that is a transition. On both shapes of root."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from daemon.errors import IllegalTransition
from daemon.spool.states import ACTIVE, DONE, QUEUED, STATES, TRANSITIONS, State
from daemon.spool.store import is_litter, numbered, reason_name, same_name
from tests.spool.conftest import Spool

LITTER = [
    "x.txt",
    ".x.md",
    ".x.md.swp",
    "4913",
    "x.md~",
    "#x.md#",
    ".#x.md",
    "x.md.tmp",
    "x.md.part",
    "x.crdownload",
    "._x.md",
    "x.sync-conflict-20261201-140000-ABCDEFG.md",
    ".hidden.md",
    "x",
    "x.MD",
    "x.md.why.txt",
]


# -- looking ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LITTER)
def test_what_editors_and_sync_programs_leave_is_no_item(name: str) -> None:
    assert is_litter(name)


@pytest.mark.parametrize("name", ["x.md", "a b.md", "日本.md", "-x.md", "x~2.md", "tmp.md", "x.part.md"])
def test_ordinary_names_are_items(name: str) -> None:
    assert not is_litter(name)


def test_a_scan_opens_nothing_and_says_what_lies_where(spool: Spool) -> None:
    spool.put("queued", "a.md", b"12345")
    spool.put("active", "b.md")
    spool.put("queued", ".a.md.swp")
    spool.store.scan(time.time())
    entry = spool.store.entries(QUEUED)["a.md"]
    assert (entry.size, entry.kind, entry.uid, entry.links) == (5, "file", os.geteuid(), 1)
    assert spool.store.names(ACTIVE) == {"b.md"}
    assert spool.store.others(QUEUED) == {".a.md.swp"}
    assert spool.files.trace == []


def test_a_scan_tells_files_from_everything_else(spool: Spool) -> None:
    queued = spool.root / "queued"
    spool.put("queued", "file.md")
    (queued / "symlink.md").symlink_to(queued / "file.md")
    (queued / "directory.md").mkdir()
    os.mkfifo(queued / "fifo.md")
    spool.store.scan(time.time())
    kinds = {entry.kind for name, entry in spool.store.entries(QUEUED).items() if entry.kind == name[:-3]}
    assert kinds == {"file", "symlink", "directory", "fifo"}


def test_settled_folders_are_not_listed_again_while_unchanged(spool: Spool) -> None:
    done = spool.root / "done"
    spool.put("done", "old.md")
    os.utime(done, ns=(10**18, 10**18))
    spool.store.scan(time.time())
    spool.put("done", "unseen.md")
    os.utime(done, ns=(10**18, 10**18))
    spool.store.scan(time.time())
    assert spool.store.names(DONE) == {"old.md"}
    os.utime(done, ns=(10**18, 10**18 + 1))
    spool.store.scan(time.time())
    assert spool.store.names(DONE) == {"old.md", "unseen.md"}


def test_a_settled_folder_that_changed_just_now_is_listed_again(spool: Spool) -> None:
    """Two changes within one clock tick of the file system have one mtime."""
    done = spool.root / "done"
    spool.put("done", "first.md")
    stamp = done.stat().st_mtime_ns
    spool.store.scan(stamp / 1e9 + 0.5)
    spool.put("done", "second.md")
    os.utime(done, ns=(stamp, stamp))
    spool.store.scan(stamp / 1e9 + 1.0)
    assert spool.store.names(DONE) == {"first.md", "second.md"}


def test_the_signature_changes_with_every_kind_of_save(spool: Spool) -> None:
    path = spool.put("queued", "a.md", b"12345")
    seen = set()
    for change in (
        lambda: None,
        lambda: path.write_bytes(b"54321"),
        lambda: os.utime(path, (1, 1)),
        lambda: path.chmod(0o640),
        lambda: (spool.root / ".tmp/new").write_bytes(b"12345") and (spool.root / ".tmp/new").rename(path),
    ):
        time.sleep(0.02)
        change()
        spool.store.scan(time.time())
        seen.add(spool.store.entries(QUEUED)["a.md"].signature)
    assert len(seen) == 5


@pytest.mark.parametrize("state", STATES)
def test_an_event_about_a_foreign_change_is_news(spool: Spool, state: State) -> None:
    spool.store.scan(time.time())
    path = spool.put(state, "a.md")
    assert spool.store.differs(path)
    spool.store.look([path])
    assert not spool.store.differs(path)
    path.unlink()
    assert spool.store.differs(path)
    spool.store.look([path])
    assert not spool.store.differs(path)
    assert "a.md" not in spool.store.names(state)


def test_an_editors_lock_file_is_news_too(spool: Spool) -> None:
    spool.store.scan(time.time())
    lock = spool.put("queued", ".a.md.swp")
    assert spool.store.differs(lock)
    spool.store.look([lock])
    assert not spool.store.differs(lock)


def test_what_lies_elsewhere_is_never_news(spool: Spool) -> None:
    spool.store.scan(time.time())
    for path in (spool.root / "journal.jsonl", spool.root / ".tmp/x.md", spool.root / "queued/deep/x.md"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
        assert not spool.store.differs(path)


# -- moving ----------------------------------------------------------------------------------------


def test_a_move_is_no_news_and_both_folders_are_synced(spool: Spool) -> None:
    spool.put("queued", "a.md")
    spool.store.scan(time.time())
    assert spool.store.move("a.md", QUEUED, ACTIVE) == "a.md"
    assert not spool.store.differs(spool.root / "queued/a.md")
    assert not spool.store.differs(spool.root / "active/a.md")
    assert spool.files.trace == [
        "before move a.md",
        "after move a.md",
        "before sync_dir queued",
        "after sync_dir queued",
        "before sync_dir active",
        "after sync_dir active",
    ]


def test_a_move_whose_sync_is_refused_is_seen_all_the_same(spool: Spool) -> None:
    spool.put("queued", "a.md")
    spool.store.scan(time.time())

    def refuse() -> None:
        raise OSError(5, "Input/output error")

    spool.files.hooks["before sync_dir"] = refuse
    with pytest.raises(OSError, match="Input"):
        spool.store.move("a.md", QUEUED, ACTIVE)
    assert spool.store.names(ACTIVE) == {"a.md"}
    assert spool.store.names(QUEUED) == frozenset()


def test_a_settled_file_is_never_overwritten(spool: Spool) -> None:
    spool.put("done", "a.md", b"first")
    spool.put("done", "a~2.md", b"second")
    spool.put("active", "a.md", b"third")
    assert spool.store.move("a.md", ACTIVE, DONE) == "a~3.md"
    assert [(spool.root / "done" / numbered("a.md", n)).read_bytes() for n in (1, 2, 3)] == [
        b"first",
        b"second",
        b"third",
    ]


def test_a_file_is_put_back_untouched_or_not_at_all(spool: Spool) -> None:
    path = spool.put("queued", "a.md", b"\xef\xbb\xbfas it was\r\n")
    before = (path.stat().st_ino, path.read_bytes(), path.stat().st_mtime_ns)
    spool.store.move("a.md", QUEUED, ACTIVE)
    spool.store.move("a.md", ACTIVE, QUEUED, to="a.md")
    assert (path.stat().st_ino, path.read_bytes(), path.stat().st_mtime_ns) == before
    spool.store.move("a.md", QUEUED, ACTIVE)
    spool.put("queued", "a.md", b"another")
    with pytest.raises(FileExistsError):
        spool.store.move("a.md", ACTIVE, QUEUED, to="a.md")
    assert path.read_bytes() == b"another"


@pytest.mark.parametrize(
    ("old", "new"), [(old, new) for old in STATES for new in STATES if (old, new) not in TRANSITIONS]
)
def test_no_other_move_than_the_legal_ones(spool: Spool, old: State, new: State) -> None:
    spool.put(old, "a.md")
    with pytest.raises(IllegalTransition):
        spool.store.move("a.md", old, new)
    assert (spool.root / old / "a.md").exists()


def test_a_directory_that_is_named_like_an_item_is_only_moved(spool: Spool) -> None:
    (spool.root / "queued/d.md").mkdir()
    spool.store.scan(time.time())
    assert spool.store.entries(QUEUED)["d.md"].kind == "directory"


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("a.md", True),
        ("a~2.md", True),
        ("a~10.md", True),
        ("a~x.md", False),
        ("ab.md", False),
        ("a.txt", False),
    ],
)
def test_names_that_one_name_can_become(name: str, same: bool) -> None:
    assert same_name(name, "a.md") is same


# -- refusing --------------------------------------------------------------------------------------


def test_a_refused_file_keeps_its_bytes_and_its_reason_lies_beside_it(spool: Spool) -> None:
    path = spool.put("queued", "bad.md", b"---\nx: [\n")
    inode = path.stat().st_ino
    spool.store.scan(time.time())
    assert spool.store.refuse("bad.md", "line 2") == "bad.md"
    failed = spool.root / "failed"
    assert ((failed / "bad.md").stat().st_ino, (failed / "bad.md").read_bytes()) == (inode, b"---\nx: [\n")
    assert (failed / "bad.md.why.txt").read_text() == "line 2"
    assert not any(spool.store.differs(failed / name) for name in ("bad.md", "bad.md.why.txt"))
    assert os.listdir(spool.root / ".tmp") == []


def test_the_reason_is_there_before_the_file(spool: Spool) -> None:
    spool.put("queued", "bad.md")
    spool.store.refuse("bad.md", "because")
    moves = [row for row in spool.files.trace if row.startswith(("after replace", "before move"))]
    assert moves == ["after replace bad.md.why.txt", "before move bad.md"]


def test_a_second_refusal_of_the_name_gets_a_number(spool: Spool) -> None:
    spool.put("failed", "bad.md", b"first")
    spool.put("failed", "bad.md.why.txt", b"first reason")
    spool.put("queued", "bad.md", b"second")
    assert spool.store.refuse("bad.md", "second reason") == "bad~2.md"
    assert (spool.root / "failed/bad.md.why.txt").read_bytes() == b"first reason"
    assert (spool.root / "failed/bad~2.md.why.txt").read_bytes() == b"second reason"


def test_a_reason_goes_when_its_file_has_gone(spool: Spool) -> None:
    for name in ("here.md", "here.md.why.txt", "gone.md.why.txt", "notes.txt"):
        spool.put("failed", name)
    spool.store.scan(time.time())
    spool.store.clear_reasons()
    assert sorted(os.listdir(spool.root / "failed")) == ["here.md", "here.md.why.txt", "notes.txt"]
    assert not spool.store.differs(spool.root / "failed/gone.md.why.txt")


def test_a_refused_refusal_leaves_no_temp(spool: Spool) -> None:
    spool.put("queued", "bad.md")

    def refuse() -> None:
        raise OSError(28, "No space left on device")

    spool.files.hooks["before replace"] = refuse
    with pytest.raises(OSError, match="No space"):
        spool.store.refuse("bad.md", "because")
    assert os.listdir(spool.root / ".tmp") == []
    assert os.listdir(spool.root / "failed") == []
    assert (spool.root / "queued/bad.md").exists()


# -- temps -----------------------------------------------------------------------------------------


def test_temps_of_a_crash_go_after_ten_minutes(spool: Spool) -> None:
    temp: Path = spool.root / ".tmp/drop.md"
    temp.write_bytes(b"x")
    (spool.root / ".tmp/directory").mkdir()
    now = temp.stat().st_ctime
    spool.store.clear_temps(now + 599)
    assert temp.exists()
    spool.store.clear_temps(now + 601)
    assert os.listdir(spool.root / ".tmp") == ["directory"]


# -- names at the limit ------------------------------------------------------------------------------


STEMS = ["x" * 252, "ü" * 126, "日" * 84, "a" + "🚀" * 62, "\udcff" * 252, "x" * 247, "a b", "a~2", "a\nb"]


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("number", [2, 9, 10, 9999])
def test_a_number_always_fits_and_is_known_as_the_same_name(stem: str, number: int) -> None:
    name = f"{stem}.md"
    other = numbered(name, number)
    assert len(os.fsencode(other)) <= 255
    assert other.endswith(f"~{number}.md")
    assert stem.startswith(other.removesuffix(f"~{number}.md"))
    assert same_name(other, name)
    assert same_name(name, name)
    assert not same_name(other, f"z{name[1:]}")
    assert not same_name(f"{stem[:-1]}q~{number}.md", name)


def test_a_name_without_its_number_is_another() -> None:
    assert not same_name("a.md", "a~2.md")
    assert not same_name("ab~2.md", "a.md")
    assert not same_name("a~.md", "a.md")


@pytest.mark.parametrize("stem", STEMS)
def test_a_reason_has_a_name_that_fits_and_is_no_other_files(stem: str) -> None:
    names = [f"{stem}.md", numbered(f"{stem}.md", 2), f"{stem[:-1]}q.md"]
    reasons = {reason_name(name) for name in names}
    assert len(reasons) == 3
    for reason in reasons:
        assert len(os.fsencode(reason)) <= 255
        assert reason.endswith(".md.why.txt")
        assert is_litter(reason)


def test_the_reason_of_an_ordinary_name_stands_beside_it() -> None:
    assert reason_name("a.md") == "a.md.why.txt"
    assert reason_name(f"{'x' * 244}.md") == f"{'x' * 244}.md.why.txt"


@pytest.mark.parametrize("letter", ["x", "ü", "日"])
def test_a_file_of_the_longest_name_moves_beside_another_and_keeps_its_reason(
    spool: Spool, letter: str
) -> None:
    name = f"{letter * (252 // len(letter.encode()))}.md"
    for state in ("failed", "queued"):
        spool.put(state, name, state.encode())
    spool.store.scan(time.time())
    target = spool.store.refuse(name, "because")
    assert target == numbered(name, 2)
    assert (spool.root / "failed" / target).read_bytes() == b"queued"
    spool.store.scan(time.time())
    assert spool.store.clear_reasons() == []
    assert (spool.root / "failed" / reason_name(target)).read_text() == "because"
    (spool.root / "failed" / target).unlink()
    spool.store.scan(time.time())
    assert spool.store.clear_reasons() == []
    assert os.listdir(spool.root / "failed") == [name]


def test_what_is_no_file_among_the_reasons_is_left_and_told(spool: Spool) -> None:
    failed = spool.root / "failed"
    (failed / "a.md.why.txt").mkdir()
    (failed / "b.md.why.txt").symlink_to("/etc/hostname")
    os.mkfifo(failed / "c.md.why.txt")
    spool.put("failed", "d.md.why.txt")
    spool.store.scan(time.time())
    assert sorted(spool.store.clear_reasons()) == ["a.md.why.txt", "b.md.why.txt", "c.md.why.txt"]
    assert sorted(os.listdir(failed)) == ["a.md.why.txt", "b.md.why.txt", "c.md.why.txt"]


def test_a_reason_that_cannot_be_removed_stops_nothing(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    spool.put("failed", "a.md.why.txt")
    spool.put("failed", "b.md.why.txt")
    spool.store.scan(time.time())
    unlink = spool.files.unlink

    def refused(path: Path) -> None:
        if path.name.startswith("a"):
            raise PermissionError(1, "Operation not permitted", str(path))
        unlink(path)

    monkeypatch.setattr(spool.files, "unlink", refused)
    assert spool.store.clear_reasons() == ["a.md.why.txt"]
    assert os.listdir(spool.root / "failed") == ["a.md.why.txt"]
