"""A start, from nothing to a runner, stopped and repeated at every step."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from adapters import session as live
from adapters.errors import AdapterError, BriefUnusable
from adapters.fake import Fake
from adapters.harnesses.generic import Generic
from adapters.harnesses.shell import Shell
from adapters.ports import Ended, Harness, NotStarted, Publish
from adapters.testing import DirectTerminal, wait_for
from daemon.durable import Files
from daemon.git import GitError
from daemon.kernel.contract import Receipt
from daemon.kernel.scratch import Scratch
from daemon.kernel.starting import (
    Start,
    environment,
    failed_receipts,
    find_place,
    phase_after,
    provenance,
    start,
    typed,
)
from daemon.mddb.library import Library, Unrecorded
from daemon.mddb.resolver import DatabaseFault, Nothing, Resolver
from daemon.spool.sessions import Claim
from daemon.tracks.track import load

pytestmark = pytest.mark.slow

TASK = b"---\ndone_when:\n- run: test -e out\n---\n# Do it\n\n```fake\nappend out ran\nkeep brief\nsay done\n```\n"


@dataclass
class Desk:
    """Makes orders, and starts them."""

    root: Path
    scratch: Scratch
    terminal: DirectTerminal = field(default_factory=DirectTerminal)
    files: Files = field(default_factory=Files)
    made: list[Path] = field(default_factory=list)
    database: Resolver = field(default_factory=Nothing)

    def library(self, **documents: str) -> Path:
        """From here on it is asked what these instructions say. Returns where they lie."""
        folder = self.root / "ws/md-db/instructions"
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in documents.items():
            (folder / f"{name}.md").write_text(text)
        self.database = Library(folder.parent, self.files, Unrecorded())
        return folder

    def order(
        self, attempt: int = 1, *, task: bytes = TASK, harness: Harness | None = None, **facts: object
    ) -> Start:
        session = self.root / "sessions" / f"one-{attempt}-{secrets.token_hex(6)}"
        session.mkdir(parents=True, mode=0o700, exist_ok=True)
        self.made.append(session)
        claim = Claim(session.name, "one", "one.md", attempt, 1, "2026-12-01T14:06:21.123Z")
        order = Start(
            session=session,
            claim=claim,
            loaded=load(task, "one.md"),
            harness=harness or Fake(),
            model=None,
            env={"PATH": os.environ["PATH"], "HOME": str(self.root)},
            wall_s=60.0,
            wake=self.root / f"wake-{attempt}",
            earlier=(),
            fresh=False,
        )
        return replace(order, **facts)  # type: ignore[arg-type]

    def start(self, order: Start, publish: Publish | None = None) -> None:
        start(order, self.scratch, self.terminal, publish or self.files.publish, self.database)

    def ended(self, order: Start) -> Ended:
        def look() -> Ended | None:
            found = live.status(order.session)
            return found if isinstance(found, Ended) else None

        return wait_for(look, "the end")


@pytest.fixture
def desk(tmp_path: Path, scratch: Scratch) -> Iterator[Desk]:
    desk = Desk(tmp_path, scratch)
    yield desk
    for session in desk.made:
        live.interrupt(session, "the test is over")
        live.force(session)


def test_a_start_leads_to_a_running_harness_in_a_place_of_its_own(desk: Desk) -> None:
    order = desk.order()
    desk.start(order)
    ended = desk.ended(order)
    assert (ended.code, ended.reason) == (0, "exited")
    place = find_place(order.session)
    assert place is not None
    assert (place.path / "out").read_text() == "ran\n"
    assert (place.path / "brief").read_bytes() == (order.session / "brief.md").read_bytes()
    assert b"run: test -e out" in (place.path / "brief").read_bytes()


class DiesAt(Exception):
    pass


@pytest.mark.parametrize("step", range(8))
def test_stopped_at_any_step_and_repeated_it_runs_once(desk: Desk, step: int) -> None:
    order = desk.order()
    count = 0

    def publish(path: Path, data: bytes, *, mode: int = 0o600) -> None:
        nonlocal count
        if count == step:
            raise DiesAt(path.name)
        count += 1
        desk.files.publish(path, data, mode=mode)

    try:
        start(order, desk.scratch, desk.terminal, publish)
    except DiesAt:
        assert isinstance(live.status(order.session), NotStarted)
    for _ in range(3):
        desk.start(order)
    assert desk.ended(order).code == 0
    desk.start(order)
    place = find_place(order.session)
    assert place is not None
    assert (place.path / "out").read_text() == "ran\n"
    assert [path.name for path in place.path.parent.iterdir()] == ["one"]


def test_a_start_repeated_while_it_runs_changes_nothing(desk: Desk) -> None:
    order = desk.order(task=b"```fake\nappend out ran\nsleep 600\n```\n")
    desk.start(order)
    place = find_place(order.session)
    assert place is not None
    wait_for((place.path / "out").exists, "its first deed")
    before = {
        path.name: path.read_bytes() for path in order.session.glob("*.json") if path.name != "heartbeat.json"
    }
    desk.start(order)
    after = {
        path.name: path.read_bytes() for path in order.session.glob("*.json") if path.name != "heartbeat.json"
    }
    assert after == before
    assert (place.path / "out").read_text() == "ran\n"


def receipt(desk: Desk, session: Path, number: int, passed: bool) -> None:
    (session / "receipts").mkdir(exist_ok=True)
    content = Receipt(number, f"run: check {number}", passed, exit=int(not passed), tail="boom\n").encode(
        "0" * 40
    )
    desk.files.publish(session / "receipts" / f"{number:02}.json", content)


def test_the_next_attempt_works_where_the_last_one_did_and_hears_what_failed(desk: Desk) -> None:
    first = desk.order()
    desk.start(first)
    desk.ended(first)
    receipt(desk, first.session, 1, True)
    receipt(desk, first.session, 2, False)
    second = desk.order(2, earlier=(first.session,))
    desk.start(second)
    desk.ended(second)
    assert find_place(second.session) == find_place(first.session)
    brief = (second.session / "brief.md").read_text()
    assert "`run: check 2` failed" in brief
    assert "check 1" not in brief
    assert [found.number for found in failed_receipts(first.session)] == [2]


def test_one_that_was_stopped_before_it_started_breaks_no_chain(desk: Desk) -> None:
    first = desk.order()
    fresh = desk.order(2, earlier=(first.session,), fresh=True)
    desk.start(first)
    desk.start(fresh)
    receipt(desk, fresh.session, 1, False)
    never = desk.order(3)
    last = desk.order(4, earlier=(never.session, fresh.session, first.session))
    desk.start(last)
    assert find_place(last.session) == find_place(fresh.session)
    assert find_place(fresh.session) != find_place(first.session)
    assert "`run: check 1` failed" in (last.session / "brief.md").read_text()


def test_a_place_that_somebody_removed_is_made_anew(desk: Desk, tmp_path: Path) -> None:
    first = desk.order()
    desk.start(first)
    desk.ended(first)
    place = find_place(first.session)
    assert place is not None
    place.path.rename(tmp_path / "away")
    second = desk.order(2, earlier=(first.session,))
    desk.start(second)
    assert desk.ended(second).code == 0
    assert (place.path / "out").read_text() == "ran\n"


def test_a_place_that_the_last_attempt_was_not_given_is_not_gone_on_in(desk: Desk, tmp_path: Path) -> None:
    first = desk.order()
    desk.start(first)
    desk.ended(first)
    place = find_place(first.session)
    assert place is not None
    (tmp_path / "real").mkdir()
    (first.session / "place.json").write_bytes(replace(place, path=tmp_path / "real").encode())
    second = desk.order(2, earlier=(first.session,))
    assert start(second, desk.scratch, desk.terminal, desk.files.publish) == place
    assert find_place(second.session) == place


def test_a_script_gets_its_body_alone(desk: Desk) -> None:
    task = b"---\ndone_when: [nice]\n---\n```sh\necho hello > out\n```\n"
    order = desk.order(task=task, harness=Shell())
    desk.start(order)
    assert desk.ended(order).code == 0
    assert (order.session / "brief.md").read_bytes() == b"```sh\necho hello > out\n```\n"


def test_what_stands_in_the_way_is_said_and_nothing_was_started(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "scratch" / "one").mkdir(parents=True)
    with pytest.raises(GitError):
        desk.start(desk.order())
    order = desk.order(2, fresh=True, task=b"no block\n", harness=Shell())
    with pytest.raises((BriefUnusable, AdapterError)):
        desk.start(order)
    assert isinstance(live.status(order.session), NotStarted)
    assert desk.terminal.windows() == []


def test_the_environment_holds_what_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "CLAUDECODE",
        "TMUX",
        "VIRTUAL_ENV",
        "GIT_DIR",
        "SSH_AUTH_SOCK",
        "AWS_SECRET_ACCESS_KEY",
        "NOTIFY_SOCKET",
    ):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    env = environment({"PATH": "/mine", "NEW": "1"}, ("SSH_AUTH_SOCK", "NOT_THERE"))
    assert env["PATH"] == "/mine"
    assert env["NEW"] == "1"
    assert env["SSH_AUTH_SOCK"] == "x"
    assert env["LC_ALL"] == "C.UTF-8"
    assert not {
        "CLAUDECODE",
        "TMUX",
        "VIRTUAL_ENV",
        "GIT_DIR",
        "AWS_SECRET_ACCESS_KEY",
        "NOTIFY_SOCKET",
        "NOT_THERE",
    } & set(env)


@pytest.mark.parametrize("torn", [b"", b"{", b"[]", b'{"path": "/x"'])
def test_a_torn_place_is_none(tmp_path: Path, torn: bytes) -> None:
    (tmp_path / "place.json").write_bytes(torn)
    assert find_place(tmp_path) is None


# --- what stands where the daemon's files belong ----------------------------------------------------------


@pytest.mark.parametrize("left", ["{}", "[]", '{"path": 7, "branch": "b", "base": "c"}', "{", ""])
def test_a_damaged_place_is_no_place(tmp_path: Path, left: str) -> None:
    (tmp_path / "place.json").write_text(left)
    assert find_place(tmp_path) is None


def test_receipts_that_are_none_are_read_past(tmp_path: Path) -> None:
    assert failed_receipts(tmp_path) == []
    folder = tmp_path / "receipts"
    folder.mkdir()
    (folder / "notes.json").write_text('{"passed": false}')
    (folder / "01.json").write_text('{"passed": "no"}')
    (folder / "02.json").mkdir()
    (folder / "03.json").write_text('{"passed": false, "check": "run: x"}')
    assert [(receipt.number, receipt.text) for receipt in failed_receipts(tmp_path)] == [(3, "run: x")]
    other = tmp_path / "other"
    other.mkdir()
    (other / "receipts").write_text("a file")
    assert failed_receipts(other) == []


def test_an_inbox_that_is_a_file_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "inbox").write_text("a file")
    assert typed(tmp_path) == []


# -- what it is told -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", range(8))
def test_what_the_harness_got_is_what_the_record_says_though_the_database_changed_meanwhile(
    desk: Desk, step: int
) -> None:
    folder = desk.library(a="Be quick.")
    order, count = desk.order(), 0

    def publish(path: Path, data: bytes, *, mode: int = 0o600) -> None:
        nonlocal count
        if count == step:
            raise DiesAt(path.name)
        count += 1
        desk.files.publish(path, data, mode=mode)

    try:
        desk.start(order, publish)
    except DiesAt:
        assert isinstance(live.status(order.session), NotStarted)
    (folder / "a.md").write_text("Be slow.")
    (folder / "b.md").write_text("Be kind.")
    for _ in range(2):
        desk.start(order)
    desk.ended(order)
    place = find_place(order.session)
    assert place is not None
    got = (place.path / "brief").read_text()
    assert got == (order.session / "brief.md").read_text()
    told = [each["path"] for each in provenance(order.session)["told"]]
    if "Be quick" in got:
        assert told == ["instructions/a.md"]
    else:
        assert "Be slow.\n\nBe kind." in got
        assert told == ["instructions/a.md", "instructions/b.md"]


def test_a_harness_that_reads_no_instructions_gets_the_task_alone(desk: Desk) -> None:
    desk.library(a="Be quick.")
    order = desk.order(task=b"```sh\ntrue\n```\n", harness=Shell())
    desk.start(order)
    desk.ended(order)
    assert (order.session / "brief.md").read_bytes() == b"```sh\ntrue\n```\n"
    assert provenance(order.session) == {}


def test_nothing_is_started_half_told(desk: Desk) -> None:
    folder = desk.library(a="Be quick.", b="---\nordr: 1\n---\nBe kind.")
    order = desk.order()
    with pytest.raises(DatabaseFault, match=r"md-db/instructions/b\.md: line 2, ordr: there is no key"):
        desk.start(order)
    assert isinstance(live.status(order.session), NotStarted)
    assert not (order.session / "brief.md").exists()
    (folder / "b.md").write_text("Be kind.")
    desk.start(order)
    assert desk.ended(order).code == 0


@pytest.mark.parametrize(
    ("ends", "phase"),
    [
        ([], ("spawn", "")),
        (["interrupt/cancelled"], ("spawn", "")),
        (["incomplete"], ("retry", "")),
        (["crash/exit_1"], ("retry", "")),
        (["blocked"], ("resume", "")),
        (["clean"], ("resume", "")),
        (["limit/five_hours"], ("resume", "")),
        (["interrupt"], ("resume", "")),
        (["swapped"], ("swap", "codex")),
        (["interrupt/cancelled", "incomplete", "clean"], ("retry", "")),
    ],
)
def test_what_a_session_is_to_those_before_it(
    tmp_path: Path, ends: list[str], phase: tuple[str, str]
) -> None:
    earlier = []
    for number, end in enumerate(ends):
        session = tmp_path / str(number)
        session.mkdir()
        (session / "settle.json").write_text(json.dumps({"termination": end}))
        (session / "claim.json").write_text(json.dumps({"extra": {"harness": "codex"}}))
        earlier.append(session)
    assert phase_after(earlier) == phase


def test_a_start_that_is_repeated_leaves_nothing_of_an_earlier_state(desk: Desk) -> None:
    folder = desk.library(a="---\napplies_when: {harness_id: native}\n---\nOld rule.")
    skill = folder.parent / "skills/old"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("Old skill.")
    (skill / "extra.sh").write_text("true")
    harness = Generic.from_settings("native", {"argv": ["cat", "{brief}", "{instructions}", "{skills}"]})
    order = desk.order(harness=harness)

    def publish(path: Path, data: bytes, *, mode: int = 0o600) -> None:
        if path.name == "brief.md":
            raise DiesAt(path.name)
        desk.files.publish(path, data, mode=mode)

    with pytest.raises(DiesAt):
        desk.start(order, publish)
    assert (order.session / "skills/old/extra.sh").exists()
    (folder / "a.md").unlink()
    shutil.rmtree(skill)
    desk.start(order)
    desk.ended(order)
    assert provenance(order.session)["told"] == []
    assert not (order.session / "instructions.md").exists()
    assert list((order.session / "skills").iterdir()) == []
