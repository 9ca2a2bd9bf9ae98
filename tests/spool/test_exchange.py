"""Rewriting a file that a person may be saving at this very moment, and losing neither side."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from daemon.errors import NotNow
from daemon.spool.exchange import QUIET, Exchange, content_hash
from tests.spool.conftest import Spool, writer
from tests.spool.test_claim import wait_for_lease_break

SESSION = "a-1-0123456789ab"


def stamped(data: bytes) -> bytes:
    """What the daemon does to a file in these tests: one line on top, once."""
    return data if data.startswith(b"stamp\n") else b"stamp\n" + data


@dataclass
class Merged:
    """What the sweep handed over: (session, their bytes, hash of ours), and which of it was to be run."""

    calls: list[tuple[str, bytes, str]] = field(default_factory=list)
    again: list[bytes] = field(default_factory=list)

    def __call__(self, session: str, theirs: bytes, ours: str, again: bool) -> None:
        self.calls.append((session, theirs, ours))
        if again:
            self.again.append(theirs)

    @property
    def texts(self) -> list[bytes]:
        return [theirs for _, theirs, _ in self.calls]


@pytest.fixture
def path(spool: Spool) -> Path:
    return spool.put("active", "a.md", b"task\n")


def displaced(spool: Spool) -> list[Path]:
    return sorted((spool.root / ".displaced").iterdir())


def later() -> float:
    return time.time() + QUIET + 1


def save_by_rename(spool: Spool, path: Path, data: bytes) -> None:
    temp = spool.root.parent / "save.tmp"
    temp.write_bytes(data)
    temp.rename(path)


# -- the rewrite -----------------------------------------------------------------------------------


def test_the_content_changes_and_what_was_there_lies_aside(spool: Spool, path: Path) -> None:
    path.chmod(0o640)
    inode = path.stat().st_ino
    old = os.umask(0o022)
    try:
        assert spool.exchange.rewrite(path, SESSION, stamped) == b"stamp\ntask\n"
    finally:
        os.umask(old)
    assert path.read_bytes() == b"stamp\ntask\n"
    assert path.stat().st_mode & 0o777 == 0o640
    (aside,) = displaced(spool)
    assert (aside.stat().st_ino, aside.read_bytes()) == (inode, b"task\n")
    session, ours, base, _, ending = aside.name.split(".")
    assert (session, ours, base, ending) == (
        SESSION,
        content_hash(b"stamp\ntask\n"),
        content_hash(b"task\n"),
        "md",
    )


def test_nothing_to_change_writes_nothing(spool: Spool, path: Path) -> None:
    spool.exchange.rewrite(path, SESSION, lambda data: data)
    assert displaced(spool) == []
    assert [row for row in spool.files.trace if "open" not in row] == []


def test_the_temp_gets_its_name_when_it_is_whole(spool: Spool, path: Path) -> None:
    """A torn one under the final name would pass for a person's text after a crash."""
    spool.exchange.rewrite(path, SESSION, stamped)
    rows = [row for row in spool.files.trace if SESSION in row]
    assert rows[0].startswith(f"before create .{SESSION}")
    assert rows.index(next(row for row in rows if row.startswith("before replace"))) > rows.index(
        next(row for row in rows if row.startswith("after create"))
    )


def test_the_swap_is_synced_on_both_sides(spool: Spool, path: Path) -> None:
    spool.exchange.rewrite(path, SESSION, stamped)
    after = spool.files.trace[[row.split()[1] for row in spool.files.trace].index("exchange") :]
    assert {"after sync_dir active", "after sync_dir .displaced"} <= set(after)


def test_a_file_that_somebody_writes_is_left_for_now(spool: Spool, path: Path) -> None:
    with writer(path) as other:
        other.has_opened()
        with pytest.raises(NotNow, match="open for writing"):
            spool.exchange.rewrite(path, SESSION, stamped)
        other.close()
    assert path.read_bytes() == b"task\n"
    assert displaced(spool) == []


def test_a_writer_that_comes_while_it_is_patched_goes_first(spool: Spool, path: Path) -> None:
    with ExitStack() as stack:
        others = []

        def open_it() -> None:
            others.append(stack.enter_context(writer(path)))
            wait_for_lease_break(path)

        spool.files.hooks["after create"] = open_it
        with pytest.raises(NotNow, match="being saved"):
            spool.exchange.rewrite(path, SESSION, stamped)
        (other,) = others
        other.has_opened()
        other.write("more")
        other.close()
    assert displaced(spool) == []
    assert spool.exchange.rewrite(path, SESSION, stamped) == b"stamp\ntask\nmore\n"


def test_a_save_by_rename_between_read_and_swap_is_patched_in_its_turn(spool: Spool, path: Path) -> None:
    spool.files.hooks["before exchange"] = lambda: save_by_rename(spool, path, b"task, edited\n")
    assert spool.exchange.rewrite(path, SESSION, stamped) == b"stamp\ntask, edited\n"
    assert path.read_bytes() == b"stamp\ntask, edited\n"


def test_a_second_save_during_the_first_merge_is_not_overwritten(spool: Spool, path: Path) -> None:
    def second() -> None:
        spool.files.hooks["before exchange"] = lambda: save_by_rename(spool, path, b"third\n")

    def first() -> None:
        save_by_rename(spool, path, b"second\n")
        spool.files.hooks["after exchange"] = second

    spool.files.hooks["before exchange"] = first
    assert spool.exchange.rewrite(path, SESSION, stamped) == b"stamp\nthird\n"
    merged = Merged()
    spool.exchange.sweep(later(), merged)
    assert b"second\n" in merged.texts


def test_a_save_right_after_the_swap_is_not_overwritten_by_the_one_before(spool: Spool, path: Path) -> None:
    """It replaces what we had put there: it is patched itself, and the save before it goes to the merge."""

    def saved_again() -> None:
        save_by_rename(spool, path, b"newest\n")

    def first() -> None:
        save_by_rename(spool, path, b"second\n")
        spool.files.hooks["after exchange"] = saved_again

    spool.files.hooks["before exchange"] = first
    assert spool.exchange.rewrite(path, SESSION, stamped) == b"stamp\nnewest\n"
    merged = Merged()
    spool.exchange.sweep(later(), merged)
    assert merged.texts == [b"second\n"]


def test_who_saves_without_end_is_left_for_now(spool: Spool, path: Path) -> None:
    count = 0

    def save() -> None:
        nonlocal count
        count += 1
        save_by_rename(spool, path, f"save {count}\n".encode())
        spool.files.hooks["before exchange"] = save

    spool.files.hooks["before exchange"] = save
    with pytest.raises(NotNow, match="faster"):
        spool.exchange.rewrite(path, SESSION, stamped)
    spool.files.hooks.clear()
    merged = Merged()
    spool.exchange.sweep(later(), merged)
    assert {f"save {count}\n".encode()} <= {*merged.texts, path.read_bytes().removeprefix(b"stamp\n")}


def test_a_file_that_is_moved_away_is_left_for_now(spool: Spool, path: Path) -> None:
    spool.files.hooks["before exchange"] = lambda: path.rename(spool.root / "done/a.md")
    with pytest.raises(NotNow, match="moved away"):
        spool.exchange.rewrite(path, SESSION, stamped)
    assert (spool.root / "done/a.md").read_bytes() == b"task\n"
    assert displaced(spool) == []


def test_a_symlink_is_not_written_through(spool: Spool, path: Path) -> None:
    target = spool.root.parent / "target"
    path.rename(target)
    path.symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        spool.exchange.rewrite(path, SESSION, stamped)
    assert target.read_bytes() == b"task\n"


def test_a_file_that_is_too_large_is_left_alone(
    spool: Spool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.spool.exchange.LIMIT", 100)
    path.write_bytes(b"x" * 101)
    with pytest.raises(NotNow, match="larger than"):
        spool.exchange.rewrite(path, SESSION, stamped)
    assert path.read_bytes() == b"x" * 101


@pytest.mark.parametrize("point", ["create", "write", "fsync", "replace", "exchange"])
def test_a_refusing_disk_changes_nothing(spool: Spool, path: Path, point: str) -> None:
    def refuse() -> None:
        raise OSError(28, "No space left on device")

    spool.files.hooks[f"before {point}"] = refuse
    with pytest.raises(OSError, match="No space"):
        spool.exchange.rewrite(path, SESSION, stamped)
    assert path.read_bytes() == b"task\n"
    merged = Merged()
    spool.exchange.sweep(later(), merged)
    assert merged.calls == []
    assert displaced(spool) == []


@pytest.mark.parametrize("point", ["write", "replace"])
def test_what_a_disk_without_writes_kept_goes_with_the_next_sweep(
    spool: Spool, path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """A disk that has become read-only lets the temp of a swap neither be finished nor be removed."""
    spool.exchange.sweep(later(), Merged())

    def refuse(*args: object) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", refuse)
        spool.files.hooks[f"before {point}"] = refuse
        with pytest.raises(OSError, match="Read-only"):
            spool.exchange.rewrite(path, SESSION, stamped)
        assert len(displaced(spool)) == 1
    assert spool.exchange.fresh
    merged = Merged()
    spool.exchange.sweep(later(), merged)
    assert merged.calls == []
    assert displaced(spool) == []


# -- the sweep -------------------------------------------------------------------------------------


def test_a_displaced_file_that_nobody_touched_goes_after_a_while(spool: Spool, path: Path) -> None:
    merged = Merged()
    assert spool.exchange.sweep(time.time(), merged) is None
    spool.exchange.rewrite(path, SESSION, stamped)
    assert spool.exchange.fresh
    assert spool.exchange.sweep(time.time(), merged) == QUIET
    assert not spool.exchange.fresh
    assert len(displaced(spool)) == 1
    assert spool.exchange.sweep(later(), merged) is None
    assert displaced(spool) == []
    assert merged.calls == []


def test_what_a_writer_wrote_into_the_old_file_is_merged(spool: Spool, path: Path) -> None:
    with path.open("ab") as held:  # opened before, and kept
        os.rename(path, path.with_name("b.md"))
        os.rename(path.with_name("b.md"), path)
        with pytest.raises(NotNow):
            spool.exchange.rewrite(path, SESSION, stamped)
        held.close()
    with ExitStack() as stack:
        others = []

        def open_it() -> None:
            others.append(stack.enter_context(writer(path)))
            wait_for_lease_break(path)

        spool.files.hooks["before exchange"] = open_it  # it found the old inode, and waits for our lease
        assert spool.exchange.rewrite(path, SESSION, stamped) == b"stamp\ntask\n"
        (other,) = others
        other.has_opened()
        merged = Merged()
        assert spool.exchange.sweep(later(), merged) == QUIET  # it holds the file open
        other.write("late words")
        assert spool.exchange.sweep(later(), merged) == QUIET
        assert merged.calls == []
        other.close()
    assert spool.exchange.sweep(later(), merged) is None
    assert merged.calls == [(SESSION, b"task\nlate words\n", content_hash(b"stamp\ntask\n"))]
    assert displaced(spool) == []


def test_a_displaced_file_with_our_own_hash_is_deleted(spool: Spool) -> None:
    ours = b"stamp\ntask\n"
    name = f"{SESSION}.{content_hash(ours)}.{content_hash(b'task')}.abcdef.md"
    (spool.root / ".displaced" / name).write_bytes(ours)
    merged = Merged()
    assert spool.exchange.sweep(later(), merged) is None
    assert merged.calls == []
    assert displaced(spool) == []


def test_a_torn_temp_is_never_taken_for_a_persons_text(spool: Spool) -> None:
    name = f".{SESSION}.{content_hash(b'whole')}.{content_hash(b'task')}.abcdef.md"
    (spool.root / ".displaced" / name).write_bytes(b"wh")
    merged = Merged()
    spool.exchange.sweep(later(), merged)
    assert merged.calls == []
    assert displaced(spool) == []


def test_a_displaced_file_outlives_a_crash_and_is_merged_by_the_next_daemon(spool: Spool, path: Path) -> None:
    spool.exchange.rewrite(path, SESSION, stamped)
    (aside,) = displaced(spool)
    aside.write_bytes(b"task\nlate\n")
    merged = Merged()
    following = Exchange(spool.root / ".displaced", spool.files)
    following.sweep(later(), merged)
    assert merged.texts == [b"task\nlate\n"]
    assert displaced(spool) == []


def test_what_cannot_be_merged_now_stays_and_keeps_no_other_waiting(spool: Spool) -> None:
    names = [f"{session}.{'0' * 32}.{'1' * 32}.abc.md" for session in ("a-1-0", "b-1-0")]
    for name in names:
        (spool.root / ".displaced" / name).write_bytes(name.encode())
    seen = []

    def merge(session: str, theirs: bytes, ours: str, again: bool) -> None:
        seen.append(session)
        if session == "a-1-0":
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        spool.exchange.sweep(later(), merge)
    assert seen == ["a-1-0", "b-1-0"]
    assert [aside.name for aside in displaced(spool)] == names[:1]
    merged = Merged()
    spool.exchange.sweep(later(), merged)
    assert merged.texts == [names[0].encode()]


def test_a_busy_target_is_tried_again(spool: Spool) -> None:
    (spool.root / ".displaced" / f"{SESSION}.0.1.abc.md").write_bytes(b"words")

    def busy(session: str, theirs: bytes, ours: str, again: bool) -> None:
        raise NotNow("open for writing")

    assert spool.exchange.sweep(later(), busy) == QUIET
    assert len(displaced(spool)) == 1


def test_a_save_during_the_merge_is_looked_at_again(spool: Spool) -> None:
    aside = spool.root / ".displaced" / f"{SESSION}.0.1.abc.md"
    aside.write_bytes(b"words\n")
    seen: list[bytes] = []
    with ExitStack() as stack:

        def merge(session: str, theirs: bytes, ours: str, again: bool) -> None:
            seen.append(theirs)
            if len(seen) == 1:
                others.append(stack.enter_context(writer(aside)))
                wait_for_lease_break(aside)

        others: list[object] = []
        assert spool.exchange.sweep(later(), merge) == QUIET
        (other,) = others
        other.has_opened()  # type: ignore[attr-defined]
        other.write("more")  # type: ignore[attr-defined]
        other.close()  # type: ignore[attr-defined]
    assert spool.exchange.sweep(later(), merge) is None
    assert seen == [b"words\n", b"words\nmore\n"]


def test_a_late_save_beside_a_merged_one_is_told_apart(spool: Spool, path: Path) -> None:
    """It was made from a text without the other one: what lies there now is not ours alone."""
    spool.exchange.rewrite(path, SESSION, lambda _: b"task\nwords of another editor\n", merging=True)
    (aside,) = displaced(spool)
    aside.write_bytes(b"task\nlate\n")
    merged = Merged()
    spool.exchange.sweep(later(), merged)
    assert merged.calls == [(SESSION, b"task\nlate\n", "")]


def test_a_late_save_after_a_save_in_between_is_told_apart(spool: Spool, path: Path) -> None:
    spool.files.hooks["before exchange"] = lambda: save_by_rename(spool, path, b"task, edited\n")
    spool.exchange.rewrite(path, SESSION, stamped)
    ours = next(aside for aside in displaced(spool) if aside.read_bytes() == b"stamp\ntask\n")
    ours.write_bytes(b"stamp\ntask\nlate\n")
    merged = Merged()
    spool.exchange.sweep(later(), merged)
    assert (SESSION, b"stamp\ntask\nlate\n", "") in merged.calls


@pytest.mark.parametrize("name", ["late-save-abc.md", "notes", "a.b.c.d.e.f"])
def test_what_is_not_ours_is_left_alone(spool: Spool, name: str) -> None:
    (spool.root / ".displaced" / name).write_bytes(b"x")
    merged = Merged()
    assert spool.exchange.sweep(later(), merged) is None
    assert merged.calls == []
    assert [aside.name for aside in displaced(spool)] == [name]


@pytest.mark.parametrize("again", [False, True])
def test_what_is_set_aside_is_merged_by_the_sweep(spool: Spool, path: Path, again: bool) -> None:
    spool.exchange.sweep(later(), Merged())
    spool.exchange.set_aside(path, SESSION, again=again)
    assert not path.exists()
    merged = Merged()
    spool.exchange.sweep(later(), merged)
    assert merged.calls == [(SESSION, b"task\n", "")]
    assert merged.again == ([b"task\n"] if again else [])
    assert displaced(spool) == []
