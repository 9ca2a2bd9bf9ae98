"""When a file may be taken, and the taking. Real files, real leases, real programs that write."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from daemon.errors import NotNow
from daemon.spool.claim import (
    FILE_LIMIT,
    LOCK_EXPIRES,
    Quiet,
    Stillness,
    Stirring,
    editor_lock,
    odd,
    read_in_place,
    take,
)
from daemon.spool.states import ACTIVE, QUEUED
from daemon.spool.store import Entry
from tests.spool.conftest import Spool, writer


def look(spool: Spool, name: str = "a.md", state: str = QUEUED) -> Entry:
    spool.store.scan(time.time())
    return spool.store.entries(state)[name]  # type: ignore[arg-type]


# -- quiet -----------------------------------------------------------------------------------------


def test_a_file_is_quiet_three_seconds_after_its_last_change(spool: Spool) -> None:
    spool.put("queued", "a.md")
    entry = look(spool)
    changed = entry.ctime_ns / 1e9
    still = Stillness()
    early = still.judge(entry, 100.0, changed + 1.0, None)
    assert isinstance(early, Stirring)
    assert early.until == pytest.approx(102.0)
    assert still.judge(entry, 102.0, changed + 3.0, None) == Quiet()


def test_a_renamed_file_is_quiet_at_once_until_it_changes(spool: Spool) -> None:
    path = spool.put("queued", "a.md")
    entry = look(spool)
    still = Stillness()
    still.arrived(QUEUED, "a.md", entry.ctime_ns)
    wall = entry.ctime_ns / 1e9
    assert still.judge(entry, 100.0, wall, ".a.md.swp") == Quiet()
    time.sleep(0.02)
    path.write_bytes(b"more")
    assert isinstance(still.judge(look(spool), 100.0, wall, None), Stirring)


def test_the_mtime_that_rsync_sets_back_does_not_count(spool: Spool) -> None:
    path = spool.put("queued", "a.md")
    os.utime(path, (1, 1))
    entry = look(spool)
    assert entry.mtime == 1
    assert isinstance(Stillness().judge(entry, 100.0, time.time(), None), Stirring)


def test_two_appends_in_a_row_are_caught_by_the_ctime_alone(spool: Spool) -> None:
    path = spool.put("queued", "a.md")
    still, wall = Stillness(), path.stat().st_ctime
    assert isinstance(still.judge(look(spool), 100.0, wall + 1, None), Stirring)
    with path.open("ab") as file:
        file.write(b"second line\n")
    entry = look(spool)
    with spool.files.opened(path) as opened:
        opened.lease()  # nobody holds it open between the two: a lease says nothing
    later = entry.ctime_ns / 1e9 + 0.5
    mono = 100.0 + later - (wall + 1)
    left = still.judge(entry, mono, later, None)
    assert isinstance(left, Stirring)
    assert left.until == pytest.approx(mono + 2.5)


def test_a_clock_that_is_set_back_does_not_keep_a_file_waiting(spool: Spool) -> None:
    spool.put("queued", "a.md")
    entry = look(spool)
    long_ago = entry.ctime_ns / 1e9 - 86400
    still = Stillness()
    assert isinstance(still.judge(entry, 100.0, long_ago, None), Stirring)
    assert isinstance(still.judge(entry, 102.9, long_ago, None), Stirring)
    assert still.judge(entry, 103.0, long_ago, None) == Quiet()


@pytest.mark.parametrize("step", [3 * 3600.0, -3 * 3600.0, 86_400.0, 1.5], ids=str)
def test_a_clock_that_is_set_makes_no_file_quiet_early_or_late(spool: Spool, step: float) -> None:
    spool.put("queued", "a.md")
    entry = look(spool)
    changed = entry.ctime_ns / 1e9
    still = Stillness()
    assert isinstance(still.judge(entry, 100.0, changed + 0.5, None), Stirring)
    for mono in (100.2, 101.5, 102.4):
        assert isinstance(still.judge(entry, mono, changed + step + mono - 99.5, None), Stirring), mono
    assert still.judge(entry, 103.0, changed + step + 3.5, None) == Quiet()
    # What is written after it is judged as ever.
    later = replace(entry, ctime_ns=int((changed + step + 10) * 1e9))
    assert isinstance(still.judge(later, 110.0, changed + step + 10.5, None), Stirring)
    assert still.judge(later, 112.6, changed + step + 13.1, None) == Quiet()


def test_a_file_that_came_just_before_the_clock_was_set_is_not_old(spool: Spool) -> None:
    spool.put("queued", "a.md")
    entry = look(spool)
    changed = entry.ctime_ns / 1e9
    still = Stillness()
    other = replace(entry, name="b.md", ctime_ns=entry.ctime_ns - 10**12)
    assert still.judge(other, 99.0, changed - 1.0, None) == Quiet()
    assert still.unchanged_for(entry, 101.0, changed + 7200.0) == 0.0
    assert still.unchanged_for(entry, 111.0, changed + 7210.0) == 10.0
    assert still.unchanged_for(other, 111.0, changed + 7210.0) == 12.0


def test_an_editor_keeps_a_file_waiting(spool: Spool) -> None:
    spool.put("queued", "a.md")
    entry = look(spool)
    waits = Stillness().judge(entry, 100.0, entry.ctime_ns / 1e9 + 60, ".a.md.swp")
    assert isinstance(waits, Stirring)
    assert waits.until is None
    assert "open in an editor" in waits.why


def test_what_is_gone_is_forgotten(spool: Spool) -> None:
    spool.put("queued", "a.md")
    entry = look(spool)
    still, wall = Stillness(), entry.ctime_ns / 1e9 - 5
    still.arrived(QUEUED, "a.md", entry.ctime_ns)
    still.since(entry, 100.0)
    still.forget(QUEUED, "a.md")
    assert isinstance(still.judge(entry, 200.0, wall, None), Stirring)


# -- editors' lock files ---------------------------------------------------------------------------


def vim_swap(pid: int, host: str) -> bytes:
    """The head of block zero as vim 9.0 on Debian 12 writes it."""
    head = b"b0VIM 9.0\0\0\0" + struct.pack("<III", 4096, 1796136524, 1720833) + struct.pack("<I", pid)
    return (head + b"root".ljust(40, b"\0") + host.encode().ljust(40, b"\0")).ljust(4096, b"\0")


def dead_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


def lock_of(spool: Spool, name: str, wall: float | None = None) -> str | None:
    spool.store.scan(time.time())
    folder = spool.root / "queued"
    return editor_lock(folder, name, spool.store.others(QUEUED), time.time() if wall is None else wall)


HOST = os.uname().nodename


@pytest.mark.parametrize("pid", [os.getpid, dead_pid], ids=["live", "dead"])
def test_vims_swap_file_counts_while_vim_lives(spool: Spool, pid: Callable[[], int]) -> None:
    spool.put("queued", ".a.md.swp", vim_swap(pid(), HOST))
    assert (lock_of(spool, "a.md") == ".a.md.swp") is (pid is os.getpid)


@pytest.mark.parametrize("pid", [os.getpid, dead_pid], ids=["live", "dead"])
def test_emacs_lock_counts_while_emacs_lives(spool: Spool, pid: Callable[[], int]) -> None:
    (spool.root / "queued/.#a.md").symlink_to(f"me@{HOST}.{pid()}:1796136524")
    assert (lock_of(spool, "a.md") == ".#a.md") is (pid is os.getpid)


@pytest.mark.parametrize(
    "content",
    [vim_swap(1, "another-machine"), b"", b"b0VIM 9.0", os.urandom(200)],
    ids=["other machine", "empty", "torn", "noise"],
)
def test_a_lock_whose_owner_cannot_be_told_expires(spool: Spool, content: bytes) -> None:
    path = spool.put("queued", ".a.md.swp", content)
    made = path.stat().st_mtime
    assert lock_of(spool, "a.md", made + LOCK_EXPIRES - 1) == ".a.md.swp"
    assert lock_of(spool, "a.md", made + LOCK_EXPIRES + 1) is None


def test_an_office_lock_counts(spool: Spool) -> None:
    spool.put("queued", ".~lock.a.md#", b",me,host,01.12.2026 14:00,file:///x;")
    assert lock_of(spool, "a.md") == ".~lock.a.md#"


def test_a_lock_of_another_file_does_not_count(spool: Spool) -> None:
    spool.put("queued", ".b.md.swp", vim_swap(os.getpid(), HOST))
    assert lock_of(spool, "a.md") is None


def test_a_fifo_in_the_place_of_a_lock_does_not_block(spool: Spool) -> None:
    os.mkfifo(spool.root / "queued/.a.md.swp")
    assert lock_of(spool, "a.md") == ".a.md.swp"


# -- odd entries -----------------------------------------------------------------------------------


def test_an_ordinary_file_is_not_odd(spool: Spool) -> None:
    spool.put("queued", "a.md")
    assert odd(look(spool), os.geteuid()) is None


def test_what_is_not_a_file_is_never_taken(spool: Spool) -> None:
    queued = spool.root / "queued"
    (queued / "symlink.md").symlink_to("/etc/passwd")
    (queued / "directory.md").mkdir()
    os.mkfifo(queued / "fifo.md")
    for kind in ("symlink", "directory", "fifo"):
        assert f"it is a {kind}" in str(odd(look(spool, f"{kind}.md"), os.geteuid()))
    device = replace(look(spool, "fifo.md"), kind="device")
    assert "it is a device" in str(odd(device, os.geteuid()))


def test_a_hard_link_is_left_alone(spool: Spool) -> None:
    path = spool.put("queued", "a.md")
    os.link(path, spool.root / "elsewhere")
    assert "2 hard links" in str(odd(look(spool), os.geteuid()))


def test_a_file_of_another_user_names_the_chown(spool: Spool) -> None:
    path = spool.put("queued", "a.md")
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
        entry, uid = look(spool), 0
    else:
        entry, uid = look(spool), os.geteuid() + 1
    assert f"chown {uid} queued/a.md" in str(odd(entry, uid))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device")
def test_a_device_is_seen_as_one(spool: Spool) -> None:
    try:
        os.mknod(spool.root / "queued/null.md", 0o20600, os.makedev(1, 3))
    except PermissionError:
        entry = replace(look_at_fifo(spool), kind="device")
    else:
        entry = look(spool, "null.md")
    assert entry.kind == "device"
    assert odd(entry, 0) is not None


def look_at_fifo(spool: Spool) -> Entry:
    os.mkfifo(spool.root / "queued/fifo.md")
    return look(spool, "fifo.md")


# -- taking ----------------------------------------------------------------------------------------


def test_taking_moves_the_file_and_reads_what_was_moved(spool: Spool) -> None:
    path = spool.put("queued", "a.md", b"do this\n")
    inode = path.stat().st_ino
    assert take(spool.store, look(spool)) == ("a.md", b"do this\n")
    assert not path.exists()
    active = spool.root / "active/a.md"
    assert (active.stat().st_ino, active.read_bytes()) == (inode, b"do this\n")


def test_a_taken_name_gets_a_number(spool: Spool) -> None:
    spool.put("active", "a.md", b"other")
    spool.put("queued", "a.md", b"mine")
    assert take(spool.store, look(spool)) == ("a~2.md", b"mine")
    assert (spool.root / "active/a.md").read_bytes() == b"other"


def test_a_name_that_an_open_session_expects_is_not_given_away(spool: Spool) -> None:
    spool.put("queued", "a.md", b"mine")
    assert take(spool.store, look(spool), {"a.md", "a~2.md"}) == ("a~3.md", b"mine")


def test_reading_stops_at_the_limit(spool: Spool) -> None:
    spool.put("queued", "a.md", b"x" * (FILE_LIMIT + 10))
    _, data = take(spool.store, look(spool))
    assert len(data) == FILE_LIMIT + 1


def test_a_file_that_changed_since_the_look_stays(spool: Spool) -> None:
    path = spool.put("queued", "a.md", b"old")
    entry = look(spool)
    time.sleep(0.02)
    path.write_bytes(b"new")
    with pytest.raises(NotNow, match="just changed"):
        take(spool.store, entry)
    assert path.read_bytes() == b"new"


def test_a_file_that_somebody_writes_stays_untouched(spool: Spool) -> None:
    path = spool.put("queued", "a.md", b"half")
    entry = look(spool)
    with writer(path) as other:
        other.has_opened()
        with pytest.raises(NotNow, match="open for writing"):
            take(spool.store, entry)
        assert path.exists()
        other.write(" and the rest")
        other.close()
    assert take(spool.store, look(spool))[1] == b"half and the rest\n"


def test_a_writer_in_the_middle_of_the_taking_is_waited_for(spool: Spool) -> None:
    """It opened before the rename and was kept waiting by the lease: its bytes go into the file that was moved."""
    path = spool.put("queued", "a.md", b"first\n")
    entry = look(spool)
    with ExitStack() as stack:
        others = []

        def open_it() -> None:
            other = stack.enter_context(writer(path))
            others.append(other)
            wait_for_lease_break(path)

        spool.files.hooks["before move"] = open_it
        with pytest.raises(NotNow, match="being saved"):
            take(spool.store, entry)
        (other,) = others
        other.has_opened()
        other.write("second")
        other.close()
    active = look(spool, state=ACTIVE)
    assert not path.exists()
    assert read_in_place(spool.store, active) == b"first\nsecond\n"


def wait_for_lease_break(path: Path) -> None:
    """/proc/locks shows a lease that somebody wants broken as BREAKING."""
    inode, deadline = str(path.stat().st_ino), time.monotonic() + 20
    while not any(
        "LEASE" in line and "BREAKING" in line and line.split()[5].endswith(f":{inode}")
        for line in Path("/proc/locks").read_text().splitlines()
    ):
        assert time.monotonic() < deadline, "no lease is being broken"
        time.sleep(0.01)


def test_a_save_by_rename_in_the_middle_of_the_taking_is_what_counts(spool: Spool) -> None:
    spool.put("queued", "a.md", b"old")
    entry = look(spool)

    def save() -> None:
        temp = spool.root / ".tmp/save"
        temp.write_bytes(b"new")
        temp.rename(spool.root / "queued/a.md")

    spool.files.hooks["before move"] = save
    with pytest.raises(NotNow, match="being saved"):
        take(spool.store, entry)
    assert read_in_place(spool.store, look(spool, state=ACTIVE)) == b"new"


def test_a_symlink_put_there_after_the_look_is_not_followed(spool: Spool) -> None:
    path = spool.put("queued", "a.md", b"x")
    secret = spool.root / "secret"
    secret.write_bytes(b"secret")
    entry = look(spool)
    path.unlink()
    path.symlink_to(secret)
    with pytest.raises(OSError, match="symbolic links"):
        take(spool.store, entry)
    assert path.is_symlink()


def test_a_fifo_put_there_after_the_look_does_not_block(spool: Spool) -> None:
    path = spool.put("queued", "a.md", b"x")
    entry = look(spool)
    path.unlink()
    os.mkfifo(path)
    caught: list[BaseException] = []

    def run() -> None:
        try:
            take(spool.store, entry)
        except NotNow as error:
            caught.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(20)
    assert len(caught) == 1


def test_taking_in_place_syncs_the_folders_first(spool: Spool) -> None:
    """A crash may have come between the rename and its fsync: claim.json must not be on disk before it."""
    spool.put("active", "a.md", b"x")
    assert read_in_place(spool.store, look(spool, state=ACTIVE)) == b"x"
    assert [row for row in spool.files.trace if row.startswith("after sync_dir")] == [
        "after sync_dir queued",
        "after sync_dir active",
    ]


def test_taking_in_place_waits_for_a_writer(spool: Spool) -> None:
    path = spool.put("active", "a.md", b"x")
    entry = look(spool, state=ACTIVE)
    with writer(path) as other:
        other.has_opened()
        with pytest.raises(NotNow, match="open for writing"):
            read_in_place(spool.store, entry)
