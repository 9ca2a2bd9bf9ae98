"""Every odd input of the protocol (docs/explanation/durability.md), one outcome each, by a real daemon."""

from __future__ import annotations

import ast
import json
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Bench, alive

ROOT = Path(__file__).resolve().parents[2]
HERE = "e2e/test_odd_inputs.py"

#: What may lie in queued/ -> the tests that say what becomes of it.
TABLE: dict[str, tuple[str, ...]] = {
    "half-written": (
        "e2e/test_files.py::test_a_file_saved_in_place_waits_until_it_is_quiet_and_whole",
        "spool/test_claim.py::test_two_appends_in_a_row_are_caught_by_the_ctime_alone",
        "spool/test_claim.py::test_a_file_that_somebody_writes_stays_untouched",
    ),
    "parse error": (
        "e2e/test_life.py::test_a_bad_file_is_refused_with_line_and_way_out_and_its_bytes_stay",
        "e2e/test_life.py::test_a_bad_file_that_is_corrected_in_time_runs",
        f"{HERE}::test_what_cannot_be_read_is_refused_with_its_place_and_keeps_its_bytes",
    ),
    "litter": (
        "spool/test_store.py::test_what_editors_and_sync_programs_leave_is_no_item",
        f"{HERE}::test_litter_is_ignored_with_one_line_in_the_log",
    ),
    "symlink, fifo, device, socket, directory": (
        "spool/test_claim.py::test_what_is_not_a_file_is_never_taken",
        "spool/test_claim.py::test_a_device_is_seen_as_one",
        "spool/test_claim.py::test_a_symlink_put_there_after_the_look_is_not_followed",
        "spool/test_claim.py::test_a_fifo_put_there_after_the_look_does_not_block",
        f"{HERE}::test_what_is_no_file_is_ignored_with_a_warning_and_never_opened_through",
    ),
    "empty": (
        "tracks/test_track.py::test_empty_is_said_and_no_error",
        f"{HERE}::test_an_empty_file_is_refused_after_a_minute_and_not_before",
        f"{HERE}::test_an_empty_file_that_is_filled_in_time_runs",
    ),
    "unclosed, no mapping, key twice, alias, tag, merge key, too deep, too large, not UTF-8, NUL": (
        "spool/test_frontmatter.py::test_refusals_name_the_line",
        "spool/test_frontmatter.py::test_limits_of_size",
        "spool/test_frontmatter.py::test_bytes_that_are_no_text_are_named_by_offset",
        f"{HERE}::test_what_cannot_be_read_is_refused_with_its_place_and_keeps_its_bytes",
    ),
    "BOM, CRLF": (
        "e2e/test_cases.py::test_case_30_is_run_as_its_plain_form_is_and_keeps_its_line_ends",
        "spool/test_corpus.py::test_a_mark_and_other_line_ends_change_nothing_that_it_says",
    ),
    "two tracks with one id": (
        "e2e/test_files.py::test_two_files_with_one_id_get_two",
        f"{HERE}::test_an_id_is_taken_while_a_session_or_a_place_has_it",
    ),
    "clock": (
        "e2e/test_clock.py::test_tracks_run_once_and_in_the_order_of_their_arrival_while_the_clock_jumps",
        "spool/test_claim.py::test_a_clock_that_is_set_makes_no_file_quiet_early_or_late",
        "crash/test_damage.py::test_a_track_that_is_dropped_again_is_run_also_when_the_clock_was_set_back",
    ),
    "ENOSPC, EDQUOT, EIO, EROFS, EACCES": (
        "e2e/test_disk.py::test_a_disk_that_fills_up_is_waited_for",
        "e2e/test_odd.py::test_a_folder_that_cannot_be_looked_at_does_not_end_the_daemon",
        "test_init.py::test_a_disk_in_trouble_is_no_reason_not_to_start",
    ),
    "EXDEV, world-writable, network": (
        "test_init.py::test_real_mounts",
        "test_init.py::test_a_folder_that_others_can_write_is_refused",
        "test_init.py::test_the_type_of_a_mount_is_the_kernels_word",
        "e2e/test_daemon.py::test_it_does_not_start_where_others_may_write",
    ),
}


@pytest.mark.parametrize("item", TABLE)
def test_every_odd_input_has_its_tests(item: str) -> None:
    assert TABLE[item]
    for test in TABLE[item]:
        path, _, name = test.partition("::")
        tree = ast.parse((ROOT / "tests" / path).read_text())
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, test


TRACK = b"---\nharness_id: shell\n---\n```sh\necho ok\n```\n"
#: name -> bytes, and what the reason must name: a line, or the byte.
UNREADABLE: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "unclosed": (b"---\nharness_id: shell\n\n```sh\necho ok\n```\n", ("line 1", "unclosed")),
    "list": (b"---\n- a\n---\nx\n", ("line 2", "not `key: value`")),
    "scalar": (b"---\njust text\n---\nx\n", ("line 2", "not `key: value`")),
    "braces": (b"---\n{harness_id: shell}\n---\nx\n", ("line 2", "braces")),
    "twice": (b"---\nkind: a\nkind: b\n---\nx\n", ("lines 2 and 3",)),
    "alias": (b"---\nkind: *a\n---\nx\n", ("line 2", "alias")),
    "anchor": (b"---\nkind: &a b\n---\nx\n", ("line 2", "anchor")),
    "tag": (b"---\nharness_id: !shell\n---\nx\n", ("line 2", 'harness_id: "!shell"')),
    "merge": (b"---\n<<: {kind: fix}\n---\nx\n", ("line 2", "merge")),
    "deep": (b"---\nkind: " + b"[" * 51 + b"]" * 51 + b"\n---\nx\n", ("line 2", "50 deep")),
    "front": (b"---\nnote: " + b"x" * (64 << 10) + b"\n---\nx\n", ("line 1", "65536")),
    "large": (TRACK + b"x" * (1 << 20), ("1048576",)),
    "latin": (TRACK + b"gr\xfc\xdfe\n", ("byte 46", "UTF-8")),
    "utf-16": (TRACK.decode().encode("utf-16"), ("byte 0", "UTF-16")),
    "nul": (TRACK + b"a\0b\n", ("byte 45", "NUL")),
    "bidi": (b"---\nkind: a\xe2\x80\xa8b\n---\nx\n", ("line 2", "U+2028")),
    "dashes": (b"----\nharness_id: shell\n----\nx\n", ("line 1", "three dashes")),
    "toml": (b'+++\nharness_id = "shell"\n+++\nx\n', ("line 1", "TOML")),
    "tab": (b"---\nscope:\n\t- a\n---\nx\n", ("line 3", "tab")),
}


def put(bench: Bench, name: str, data: bytes) -> Path:
    temp = bench.root / "tracks/.tmp" / f"test-{name}"
    temp.write_bytes(data)
    target = bench.root / "tracks/queued" / name
    temp.rename(target)
    return target


def log_of(bench: Bench) -> list[dict[str, Any]]:
    path = bench.root / ".megaharness/log/daemon.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_what_cannot_be_read_is_refused_with_its_place_and_keeps_its_bytes(
    bench: Bench, waiting: Any
) -> None:
    bench.up()
    for name, (data, _) in UNREADABLE.items():
        put(bench, f"{name}.md", data)
    put(bench, "good.md", TRACK)
    assert bench.settled("good.md") == "done", bench.trouble()
    names = {f"{name}.md" for name in UNREADABLE}
    waiting(lambda: names <= set(bench.folder("failed")), f"all are refused; {bench.folder('queued')}")
    for name, (data, says) in UNREADABLE.items():
        assert (bench.root / "tracks/failed" / f"{name}.md").read_bytes() == data, name
        why = bench.text("failed", f"{name}.md.why.txt")
        for part in says:
            assert part in why, (name, why)
    assert [row["track_id"] for row in bench.rows()] == ["good"]


LITTER = (
    ".x.md.swp", ".x.md.swx", ".x.md.swo", "4913", "x.md~", "#x.md#", ".#x.md", "a.tmp", "a.md.tmp", "b.part", "b.md.part",
    "c.crdownload", "._d.md", "e.sync-conflict-20261201-140000-ABCDEFG.md", ".hidden.md", "notes.txt", "x.MD", "x",
)  # fmt: skip


@pytest.mark.slow
def test_litter_is_ignored_with_one_line_in_the_log(bench: Bench, waiting: Any) -> None:
    never = bench.home / "never"
    script = f"---\nharness_id: shell\n---\n```sh\ntouch {never}\n```\n".encode()
    bench.up()
    for name in LITTER:
        (bench.root / "tracks/queued" / name).write_bytes(script)
    os.symlink("nobody@nowhere.1:1", bench.root / "tracks/queued/.#emacs.md")
    names = {*LITTER, ".#emacs.md"}
    put(bench, "real.md", TRACK)
    assert bench.settled("real.md") == "done", bench.trouble()

    def told() -> list[str]:
        return [row["path"] for row in log_of(bench) if row["event"] == "ignored"]

    waiting(lambda: set(told()) >= {f"queued/{name}" for name in names}, f"each is told; {told()}")
    # Touched again, and looked at again: told once.
    for name in LITTER:
        (bench.root / "tracks/queued" / name).write_bytes(script + b"\n")
    put(bench, "again.md", TRACK)
    assert bench.settled("again.md") == "done", bench.trouble()
    assert sorted(told()) == sorted(f"queued/{name}" for name in names)
    assert set(bench.folder("queued")) == names
    assert not never.exists()
    assert bench.view()["needs_you"] == []


@pytest.mark.slow
def test_what_is_no_file_is_ignored_with_a_warning_and_never_opened_through(
    bench: Bench, waiting: Any
) -> None:
    queued, never = bench.root / "tracks/queued", bench.home / "never"
    outside = bench.home / "outside.md"
    outside.write_text(f"---\nharness_id: shell\n---\n```sh\ntouch {never}\n```\n")
    pid = bench.up()
    os.mkfifo(queued / "fifo.md")
    (queued / "directory.md").mkdir()
    (queued / "directory.md/inner.md").write_text(outside.read_text())
    (queued / "symlink.md").symlink_to(outside)
    (queued / "dangling.md").symlink_to(bench.home / "nowhere")
    wanted = {
        "fifo.md": "fifo",
        "directory.md": "directory",
        "symlink.md": "symlink",
        "dangling.md": "symlink",
    }
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(queued / "socket.md"))
    wanted["socket.md"] = "device"
    if os.geteuid() == 0:
        os.mknod(queued / "device.md", stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero: has no end
        wanted["device.md"] = "device"
    before = set(os.listdir(queued))
    put(bench, "real.md", TRACK)
    assert bench.settled("real.md") == "done", bench.trouble()
    waiting(lambda: set(wanted) <= {row["subject"] for row in bench.view()["needs_you"]}, "a person is told")
    reasons = {row["subject"]: row["reason"] for row in bench.view()["needs_you"]}
    for name, kind in wanted.items():
        assert kind in reasons[name], name
        lines = [
            row for row in log_of(bench) if row["event"] == "ignored" and row["path"] == f"queued/{name}"
        ]
        assert [(row["level"], row["what"]) for row in lines] == [("warning", kind)], name
    assert set(os.listdir(queued)) == before
    assert not never.exists()
    assert alive(pid)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_empty_file_is_refused_after_a_minute_and_not_before(bench: Bench, waiting: Any) -> None:
    bench.up()
    empty: dict[str, bytes] = {
        "nothing.md": b"",
        "blank.md": b"\xef\xbb\xbf\r\n \t\n",
        "keys.md": b"---\nkind: fix\n---\n\n",
    }
    for name, data in empty.items():
        put(bench, name, data)
    # A parse error that came later is refused first: an empty file is waited for longer.
    put(bench, "bad.md", b"---\nkind: *a\n---\nx\n")
    waiting(lambda: "bad.md" in bench.folder("failed"), "the parse error is refused")
    assert set(bench.folder("queued")) == set(empty)
    shown = {row["subject"]: row["reason"] for row in bench.view()["needs_you"]}
    for name in empty:
        assert "the file is empty" in shown[name]
    waiting(lambda: set(empty) <= set(bench.folder("failed")), "they are refused", 120.0)
    for name, data in empty.items():
        assert (bench.root / "tracks/failed" / name).read_bytes() == data
        assert "write what is to be done" in bench.text("failed", f"{name}.why.txt")
        changed = (bench.root / "tracks/failed" / name).stat()
        assert changed.st_ctime - changed.st_mtime >= 59  # its content came, then it was moved
    assert bench.rows() == []


@pytest.mark.slow
def test_an_empty_file_that_is_filled_in_time_runs(bench: Bench, waiting: Any) -> None:
    bench.up()
    path = put(bench, "later.md", b"")
    waiting(lambda: "the file is empty" in json.dumps(bench.view()["needs_you"]), "it is shown")
    path.write_bytes(TRACK)
    assert bench.settled("later.md") == "done", bench.trouble()


def _a_session(bench: Bench) -> None:
    put(bench, "taken.md", TRACK)
    assert bench.settled("taken.md") == "done"
    (bench.root / "tracks/done/taken.md").unlink()


def _a_place(bench: Bench) -> None:
    put(bench, "beside.md", TRACK)
    assert bench.settled("beside.md") == "done"
    Path(bench.json("show", "beside")["work"]).with_name("taken").mkdir()


@pytest.mark.slow
@pytest.mark.parametrize("by", [_a_session, _a_place], ids=["a session", "a place of work"])
def test_an_id_is_taken_while_a_session_or_a_place_has_it(bench: Bench, by: Callable[[Bench], None]) -> None:
    bench.up()
    by(bench)
    earlier = len(bench.rows())
    put(bench, "Taken.md", TRACK.replace(b"echo ok", b"echo another"))
    assert bench.settled("Taken.md") == "done", bench.trouble()
    assert [row["track_id"] for row in bench.rows()[earlier:]] == ["taken-2"]
