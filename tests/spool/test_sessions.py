"""The session directories: the claim is durable first, and what ended is over for ever."""

from __future__ import annotations

import errno
import os
import subprocess
from dataclasses import replace

import pytest

from daemon.spool.sessions import STAYS, Claim, Sessions, Settlement, make, parse, read_json
from tests.spool.conftest import Spool


def a_claim(item: str = "fix-tax", attempt: int = 1, **extra: object) -> Claim:
    session = make(item, attempt).id
    return Claim(session, item, f"{item}.md", attempt, 1, "2026-12-01T14:00:00.000Z", extra)


def a_settlement(claim: Claim, destination: str = "done") -> Settlement:
    return Settlement(
        claim.session, claim.item, "clean", destination, "2026-12-01T15:00:00.000Z", "why", {"a": 1}
    )


def again(spool: Spool) -> Sessions:
    """The sessions as the next daemon finds them."""
    found = Sessions(spool.sessions.root, spool.files)
    found.load()
    return found


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("item", ["a", "fix-tax", "a-1", "a-1-2", "x" * 48])
def test_a_session_id_can_be_taken_apart(item: str) -> None:
    ref = make(item, 7)
    assert parse(ref.id) == ref
    assert (ref.item, ref.attempt, len(ref.hex)) == (item, 7, 12)


def test_no_session_id_comes_twice() -> None:
    assert len({make("a", 1).id for _ in range(1000)}) == 1000


@pytest.mark.parametrize("name", ["a", "a-1", "a-1-xyz", ".tmp", "a-1-0123456789AB", "A-1-0123456789ab"])
def test_other_names_are_none(name: str) -> None:
    assert parse(name) is None


# -- the claim -------------------------------------------------------------------------------------


def test_a_claim_comes_back_as_it_was(spool: Spool) -> None:
    claim = a_claim(harness="fake", title="Steuer 税")
    spool.sessions.begin(claim, b"\xff bytes as they were\r\n")
    found = again(spool)
    assert found.claim(claim.session) == claim
    assert found.current("fix-tax") == parse(claim.session)
    assert (found.path(claim.session) / "spec.md").read_bytes() == b"\xff bytes as they were\r\n"


def test_the_claim_is_the_last_to_be_written_and_everything_is_synced(spool: Spool) -> None:
    claim = a_claim()
    spool.sessions.begin(claim, b"x")
    steps = [row for row in spool.files.trace if row.split()[1] in ("make_dir", "replace", "sync_dir")]
    assert [row for row in steps if row.startswith("after")] == [
        f"after make_dir {claim.session}",
        "after sync_dir sessions",
        "after replace spec.md",
        f"after sync_dir {claim.session}",
        "after replace claim.json",
        f"after sync_dir {claim.session}",
    ]


POINTS = ["make_dir", "sync_dir", "create", "write", "fsync", "replace"]


@pytest.mark.parametrize("point", POINTS)
def test_a_refused_claim_leaves_nothing_behind(spool: Spool, point: str) -> None:
    def refuse() -> None:
        raise OSError(28, "No space left on device")

    spool.files.hooks[f"before {point}"] = refuse
    with pytest.raises(OSError, match="No space"):
        spool.sessions.begin(a_claim(), b"x")
    assert os.listdir(spool.sessions.root) == []
    assert spool.sessions.open() == []


def test_a_claim_that_got_its_name_stands_though_the_sync_was_refused(spool: Spool) -> None:
    """Forgotten, it would be claimed again in this life and found twice in the next: two runs of one task."""

    def refuse() -> None:
        raise OSError(5, "Input/output error")

    def third_sync() -> None:
        spool.files.hooks["before sync_dir"] = refuse

    def second_replace() -> None:
        spool.files.hooks["after replace"] = third_sync

    spool.files.hooks["after replace"] = second_replace
    claim = a_claim()
    with pytest.raises(OSError, match="Input/output"):
        spool.sessions.begin(claim, b"x")
    assert spool.sessions.current("fix-tax") == parse(claim.session)
    assert again(spool).current("fix-tax") == parse(claim.session)


def test_a_directory_without_a_claim_is_cleared(spool: Spool) -> None:
    path = spool.sessions.root / make("a", 1).id
    path.mkdir()
    (path / "spec.md").write_bytes(b"x")
    (path / ".claim.json.0123456789ab.tmp").write_bytes(b"{")
    assert again(spool).open() == []
    assert not path.exists()


@pytest.mark.parametrize("clear", [True, False])
@pytest.mark.parametrize("name", ["events.jsonl", "started.json", "lock", "brief.md", ".started-1-2.tmp"])
def test_a_session_whose_claim_is_gone_is_open_and_kept(spool: Spool, name: str, clear: bool) -> None:
    """Forgotten, its item would be started a second time."""
    ref = make("a", 1)
    path = spool.sessions.root / ref.id
    path.mkdir()
    for each in (name, "spec.md"):
        (path / each).write_bytes(b"x")
    found = Sessions(spool.sessions.root, spool.files)
    found.load(clear=clear)
    assert sorted(os.listdir(path)) == sorted([name, "spec.md"])
    assert found.open() == [ref]
    assert found.current("a") == found.newest("a") == ref
    assert found.claim(ref.id) is None


def test_a_session_that_is_over_needs_no_claim(spool: Spool) -> None:
    claim = a_claim()
    spool.sessions.begin(claim, b"x")
    spool.sessions.close(claim.session, "done", "fix-tax.md", "2026-12-01T15:00:00.000Z")
    (spool.sessions.path(claim.session) / "claim.json").unlink()
    assert again(spool).open() == []
    assert again(spool).newest("fix-tax") == parse(claim.session)


@pytest.mark.parametrize("kind", ["link", "dangling", "directory", "fifo"])
def test_a_claim_that_is_no_file_is_none_and_is_kept(spool: Spool, kind: str) -> None:
    claim = a_claim()
    spool.sessions.begin(claim, b"x")
    path = spool.sessions.path(claim.session) / "claim.json"
    path.rename(spool.root / "elsewhere")
    match kind:
        case "link":
            path.symlink_to(spool.root / "elsewhere")
        case "dangling":
            path.symlink_to(spool.root / "nowhere")
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
    found = again(spool)
    assert found.claim(claim.session) is None
    assert [ref.id for ref in found.open()] == [claim.session]


def test_who_only_looks_clears_nothing(spool: Spool) -> None:
    path = spool.sessions.root / make("a", 1).id
    path.mkdir()
    found = Sessions(spool.sessions.root, spool.files)
    found.load(clear=False)
    assert path.exists()


def test_a_disk_that_takes_no_writes_does_not_keep_them_from_being_read(spool: Spool) -> None:
    claim = a_claim()
    spool.sessions.begin(claim, b"x")
    (spool.sessions.root / make("b", 1).id).mkdir()
    (spool.sessions.root / make("b", 1).id).mkdir()

    def refuse() -> None:
        raise OSError(30, "Read-only file system")

    spool.files.hooks["before unlink"] = refuse
    assert [ref.id for ref in again(spool).open()] == [claim.session]


def test_temps_of_the_daemon_go_at_the_start_and_those_of_a_runner_stay(spool: Spool) -> None:
    claim = a_claim()
    spool.sessions.begin(claim, b"x")
    path = spool.sessions.path(claim.session)
    (path / "receipts").mkdir()
    for name in (".settle.json.0123456789ab.tmp", "receipts/.01.json.0123456789ab.tmp"):
        (path / name).write_bytes(b"{")
    for name in (".heartbeat.tmp", ".exit.tmp", ".started-123-456.tmp"):
        (path / name).write_bytes(b"{")
    again(spool)
    left = {name for name in os.listdir(path) if name.startswith(".")} | set(os.listdir(path / "receipts"))
    assert left == {".heartbeat.tmp", ".exit.tmp", ".started-123-456.tmp"}


def test_temps_of_a_process_that_is_gone_go_and_those_of_one_at_work_stay(spool: Spool) -> None:
    """Whoever stops a session or writes to it makes its files itself, and can be killed at it."""
    claim = a_claim()
    spool.sessions.begin(claim, b"x")
    path = spool.sessions.path(claim.session)
    (path / "inbox/text").mkdir(parents=True)
    gone = subprocess.Popen(["true"])
    gone.wait()
    for folder in (path, path / "inbox", path / "inbox/text"):
        for pid in (gone.pid, os.getpid()):
            (folder / f".tmp-{pid}-0123456789abcdef").write_bytes(b"{")
    again(spool)
    for folder in (path, path / "inbox", path / "inbox/text"):
        left = [name for name in os.listdir(folder) if name.startswith(".")]
        assert left == [f".tmp-{os.getpid()}-0123456789abcdef"]


def test_a_temp_that_the_disk_did_not_let_go_at_the_start_goes_before_its_session_is_settled(
    spool: Spool,
) -> None:
    claim = a_claim()
    spool.sessions.begin(claim, b"x")
    temp = spool.sessions.path(claim.session) / ".leftovers.json.0123456789ab.tmp"
    temp.touch()

    def refuse() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    spool.files.hooks["before unlink"] = refuse
    found = again(spool)
    assert temp.exists()
    found.intend(a_settlement(claim))
    found.close(claim.session, "done", claim.name, "2026-12-01T15:00:00.000Z")
    assert not temp.exists()


ENDLESS = b'{"session": "x", "item": "x", "name": "x", "attempt": Infinity, "round": 1, "claimed_at": ""}'


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"session": "x"}', b"\xff\xfe", ENDLESS])
def test_a_claim_that_cannot_be_read_is_none_and_is_kept(spool: Spool, content: bytes) -> None:
    claim = a_claim()
    spool.sessions.begin(claim, b"x")
    (spool.sessions.path(claim.session) / "claim.json").write_bytes(content)
    found = again(spool)
    assert found.claim(claim.session) is None
    assert [ref.id for ref in found.open()] == [claim.session]


# -- the end ---------------------------------------------------------------------------------------


def test_a_session_with_an_intent_is_open_and_not_current(spool: Spool) -> None:
    claim = a_claim()
    spool.sessions.begin(claim, b"x")
    spool.sessions.intend(a_settlement(claim))
    for sessions in (spool.sessions, again(spool)):
        assert sessions.current("fix-tax") is None
        assert [ref.id for ref in sessions.open()] == [claim.session]
        assert sessions.settlement(claim.session) == a_settlement(claim)
        assert sessions.place(claim.session) is None


def test_a_settled_session_is_over(spool: Spool) -> None:
    claim = a_claim()
    spool.sessions.begin(claim, b"x")
    spool.sessions.intend(a_settlement(claim))
    spool.sessions.close(claim.session, "done", "fix-tax~2.md", "2026-12-01T15:00:00.000Z")
    for sessions in (spool.sessions, again(spool)):
        assert sessions.open() == []
        assert sessions.current("fix-tax") is None
        assert sessions.newest("fix-tax") == parse(claim.session)
        assert sessions.place(claim.session) == ("done", "fix-tax~2.md")


def test_the_next_attempt_is_the_current_one(spool: Spool) -> None:
    first = a_claim()
    spool.sessions.begin(first, b"x")
    spool.sessions.intend(a_settlement(first, STAYS))
    second = replace(a_claim(attempt=2), round=1)
    spool.sessions.begin(second, b"x")
    for sessions in (spool.sessions, again(spool)):
        # A crash may leave both open: the first still has to be carried out.
        assert {ref.id for ref in sessions.open()} == {first.session, second.session}
        assert sessions.current("fix-tax") == parse(second.session)
        assert [ref.attempt for ref in sessions.of("fix-tax")] == [1, 2]


def test_attempts_are_in_the_order_of_their_numbers(spool: Spool) -> None:
    for attempt in (10, 9, 2):
        spool.sessions.begin(a_claim(attempt=attempt), b"x")
    assert [ref.attempt for ref in again(spool).of("fix-tax")] == [2, 9, 10]
    assert set(again(spool).items()) == {"fix-tax"}


def test_an_intent_that_got_its_name_counts_though_the_sync_was_refused(spool: Spool) -> None:
    claim = a_claim()
    spool.sessions.begin(claim, b"x")

    def refuse() -> None:
        raise OSError(5, "Input/output error")

    spool.files.hooks["before sync_dir"] = refuse
    with pytest.raises(OSError, match="Input/output"):
        spool.sessions.intend(a_settlement(claim))
    assert spool.sessions.settlement(claim.session) == a_settlement(claim)


def test_a_torn_intent_is_none(spool: Spool) -> None:
    claim = a_claim()
    spool.sessions.begin(claim, b"x")
    (spool.sessions.path(claim.session) / "settle.json").write_bytes(b'{"session": "fi')
    assert again(spool).settlement(claim.session) is None
    assert again(spool).current("fix-tax") == parse(claim.session)


def test_other_things_beside_the_sessions_are_left_alone(spool: Spool) -> None:
    root = spool.sessions.root
    (root / "notes").mkdir()
    (root / make("a", 1).id).write_bytes(b"a file")
    (root / make("b", 1).id).symlink_to("/etc")
    assert again(spool).open() == []
    assert len(os.listdir(root)) == 3


def test_what_is_no_object_is_no_record(spool: Spool) -> None:
    path = spool.root / "x.json"
    assert read_json(path) is None
    path.write_bytes(b"[1]")
    assert read_json(path) is None
    path.write_bytes(b'{"a": 1}')
    assert read_json(path) == {"a": 1}


def test_a_temp_that_a_refusing_disk_left_goes_with_the_end(spool: Spool) -> None:
    """One of env.json holds what is secret."""
    claim = a_claim()
    spool.sessions.begin(claim, b"x")
    left = spool.sessions.path(claim.session) / ".env.json.0123456789ab.tmp"
    left.write_bytes(b"{}")
    spool.sessions.intend(a_settlement(claim))
    spool.sessions.close(claim.session, "done", "fix-tax.md", "2026-12-01T15:00:00.000Z")
    assert not left.exists()
