"""What an ended session amounts to: real sessions of the fake agent, real checks, real commits."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from adapters import session as live
from adapters.fake import Fake
from adapters.harnesses.shell import Shell
from adapters.ports import Cancelled as NeverStarted
from adapters.ports import Collected, Ended, Harness, Lost, Status
from adapters.testing import DirectTerminal, marked, wait_for
from daemon.durable import Files
from daemon.git import Repository
from daemon.kernel.concluding import Conclude, Concluded, conclude
from daemon.kernel.contract import Cancelled
from daemon.kernel.scratch import Scratch
from daemon.kernel.starting import Start, find_place, start
from daemon.spool.sessions import Claim
from daemon.tracks.machine import judge
from daemon.tracks.track import load

pytestmark = pytest.mark.slow


@dataclass
class Desk:
    """Runs a task to its end and concludes it."""

    root: Path
    scratch: Scratch
    terminal: DirectTerminal = field(default_factory=DirectTerminal)
    files: Files = field(default_factory=Files)
    made: list[Path] = field(default_factory=list)

    def begin(
        self, task: str, harness: Harness | None = None, *, contract: str = "", wall_s: float = 60.0
    ) -> Conclude:
        """A started session, and the order to conclude it (its status still to be filled in)."""
        number = len(self.made) + 1
        session = self.root / "sessions" / f"one-{number}-{secrets.token_hex(6)}"
        session.mkdir(parents=True, mode=0o700)
        self.made.append(session)
        claim = Claim(session.name, f"one-{number}", "one.md", number, number, "2026-12-01T14:06:21.123Z")
        head = f"---\ndone_when:\n{contract}---\n" if contract else ""
        loaded = load(f"{head}{task}".encode(), "one.md")
        env = {"PATH": os.environ["PATH"], "HOME": str(self.root)}
        harness = harness or Fake()
        wake = self.root / "wake"
        order = Start(session, claim, loaded, harness, None, env, wall_s, wake, (), False)
        start(order, self.scratch, self.terminal, self.files.publish)
        checks, event = loaded.track.done_when, threading.Event()
        return Conclude(session, claim, checks, harness, live.status(session), env, 20.0, None, event)

    def ended(self, order: Conclude) -> Conclude:
        def look() -> Status | None:
            found = live.status(order.session)
            return found if isinstance(found, Ended | NeverStarted | Lost) else None

        return replace(order, status=wait_for(look, "the end"))

    def run(self, *directives: str, contract: str = "") -> Conclude:
        return self.ended(self.begin(fake(*directives), contract=contract))

    def conclude(self, order: Conclude) -> Concluded:
        return conclude(order, self.scratch, self.files.publish, live.reap, self.files.make_dirs)

    def work(self, order: Conclude) -> Path:
        place = find_place(order.session)
        assert place is not None
        return place.path


def fake(*directives: str) -> str:
    lines = "\n".join(directives)
    return f"```fake\n{lines}\n```\n"


@pytest.fixture
def desk(tmp_path: Path, scratch: Scratch) -> Iterator[Desk]:
    desk = Desk(tmp_path, scratch)
    yield desk
    for session in desk.made:
        live.interrupt(session, "the test is over")
        live.force(session)


def ending(found: Concluded) -> str:
    return f"{found.conclusion.kind}/{found.conclusion.code}".rstrip("/")


def destination(found: Concluded) -> tuple[str, str]:
    verdict = judge(found.conclusion, used=1, allowed=2)
    return verdict.termination, verdict.destination


# --- what it amounts to -------------------------------------------------------------------------------------


def test_an_answer_and_a_diff(desk: Desk) -> None:
    order = desk.run("write a.txt hello", "say all done", "usage 10 20 0.5")
    found = desk.conclude(order)
    assert destination(found) == ("clean", "done")
    assert found.collected.answer == "all done"
    assert found.collected.usage.input_tokens == 10
    assert found.conclusion.produced
    assert found.outcome is not None
    assert found.outcome.files == ("a.txt",)
    assert found.ended == order.status
    assert found.receipts == ()
    assert found.notes == ()


def test_neither_answer_nor_diff_is_no_op(desk: Desk) -> None:
    assert destination(desk.conclude(desk.run())) == ("no_op", "failed")


def test_an_answer_alone_is_something(desk: Desk) -> None:
    assert destination(desk.conclude(desk.run("say 42"))) == ("clean", "done")


def test_a_lie_about_being_done(desk: Desk) -> None:
    found = desk.conclude(desk.run("say all tests pass", contract="- run: test -e missing\n- it is nice\n"))
    assert [receipt.passed for receipt in found.receipts] == [False, None]
    assert destination(found) == ("incomplete", "stays")
    assert found.conclusion.unchecked == 0


def test_a_script_that_fails_its_checks_is_not_run_again(desk: Desk) -> None:
    order = desk.begin("```sh\necho hello\n```\n", Shell(), contract="- run: 'false'\n")
    found = desk.conclude(desk.ended(order))
    assert found.collected.answer == "hello"
    assert destination(found) == ("incomplete", "failed")


@pytest.mark.parametrize(
    ("directive", "kind"),
    [("exit 7", "crash/exit_7"), ("signal 9", "crash/signal_9"), ("end limit five_hour", "limit/five_hour")],
)
def test_other_ends_run_no_checks_and_keep_the_work(desk: Desk, directive: str, kind: str) -> None:
    order = desk.run("write a.txt hello", directive, contract="- run: touch never\n- exists: a.txt\n- nice\n")
    found = desk.conclude(order)
    assert ending(found) == kind
    assert found.receipts == ()
    assert found.conclusion.unchecked == 2
    assert found.outcome is not None
    assert found.outcome.files == ("a.txt",)
    assert not (desk.work(order) / "never").exists()


def test_interrupted_says_who_and_why(desk: Desk) -> None:
    order = desk.begin(fake("write a.txt hello", "say on it", "sleep 600"))
    wait_for((desk.work(order) / "a.txt").exists, "its first deed")
    live.interrupt(order.session, "wrong branch")
    found = desk.conclude(desk.ended(order))
    assert ending(found) == "interrupt/by_person"
    assert found.conclusion.why == "wrong branch"
    assert found.outcome is not None
    assert found.outcome.files == ("a.txt",)


def test_longer_than_its_minutes(desk: Desk) -> None:
    found = desk.conclude(desk.ended(desk.begin(fake("sleep 600"), wall_s=0.6)))
    assert ending(found) == "budget/minutes"
    assert "0.01 minutes" in found.conclusion.why


def test_its_runner_was_told_to_end_by_somebody_else(desk: Desk) -> None:
    order = desk.begin(fake("write a.txt x", "sleep 600"))
    wait_for((desk.work(order) / "a.txt").exists, "its first deed")
    running = live.status(order.session)
    os.kill(running.pid, signal.SIGTERM)  # type: ignore[union-attr]
    found = desk.conclude(desk.ended(order))
    assert ending(found) == "crash/terminated"


def test_lost(desk: Desk) -> None:
    order = desk.begin(fake("write a.txt x", "sleep 600"))
    wait_for((desk.work(order) / "a.txt").exists, "its first deed")
    running = live.status(order.session)
    os.kill(running.pid, signal.SIGKILL)  # type: ignore[union-attr]
    order = desk.ended(order)
    assert isinstance(order.status, Lost)
    live.reap(order.claim.session)
    assert marked(order.claim.session) == []
    found = desk.conclude(order)
    assert ending(found) == "lost"
    assert "runner" in found.conclusion.why
    assert found.outcome is not None
    assert found.outcome.files == ("a.txt",)
    assert found.ended is None


def test_a_program_that_cannot_be_started(desk: Desk) -> None:
    order = desk.begin(fake("say x"))
    desk.ended(order)
    status = Ended(None, None, "failed", error="[Errno 8] Exec format error")
    found = desk.conclude(replace(order, status=status))
    assert ending(found) == "setup/spawn"
    assert "Exec format" in found.conclusion.why


@pytest.mark.parametrize(
    ("why", "kind", "said"),
    [
        ("setup/brief: no block: at all", "setup/brief", "no block: at all"),
        ("setup/runner: 5 tries", "setup/runner", "5 tries"),
        ("not now: later", "interrupt/by_person", "not now: later"),
        ("", "interrupt/by_person", ""),
    ],
)
def test_cancelled_before_it_started(desk: Desk, tmp_path: Path, why: str, kind: str, said: str) -> None:
    session = tmp_path / "sessions" / f"one-1-{secrets.token_hex(6)}"
    session.mkdir(parents=True)
    claim = Claim(session.name, "one", "one.md", 1, 1, "2026-12-01T14:06:21.123Z")
    checks = load(b"---\ndone_when: [{run: touch never}]\n---\nx\n", "one.md").track.done_when
    order = Conclude(session, claim, checks, Fake(), NeverStarted(why), {}, 5.0, None, threading.Event())
    found = desk.conclude(order)
    assert ending(found) == kind
    assert found.conclusion.why == said
    assert (found.place, found.outcome, found.ended) == (None, None, None)
    assert found.conclusion.unchecked == 1


# --- an adapter that is gone, or at fault -------------------------------------------------------------------


def test_a_harness_that_is_not_in_the_settings_any_more(desk: Desk) -> None:
    order = desk.run("write a.txt x", "say done", contract="- exists: a.txt\n")
    found = desk.conclude(replace(order, harness=None))
    assert ending(found) == "lost/no_adapter"
    assert "settings" in found.notes[0]
    assert found.outcome is not None
    assert found.outcome.files == ("a.txt",)
    assert not found.conclusion.feedback


class Faulty(Fake):
    def collect(self, session_dir: Path) -> Collected:
        raise KeyError("a surprise")


class FullDisk(Fake):
    def collect(self, session_dir: Path) -> Collected:
        raise OSError(28, "No space left on device")


def test_an_adapter_that_fails_holds_no_slot(desk: Desk) -> None:
    order = desk.run("write a.txt x")
    found = desk.conclude(replace(order, harness=Faulty()))
    assert ending(found) == "lost/adapter"
    assert "a surprise" in found.notes[0]
    assert destination(found) == ("lost/adapter", "failed")


def test_the_disk_is_not_the_adapters_fault(desk: Desk) -> None:
    order = desk.run("say x")
    with pytest.raises(OSError, match="No space"):
        desk.conclude(replace(order, harness=FullDisk()))


# --- checks and what they leave -----------------------------------------------------------------------------

CONTRACT = "- run: date > artefact; echo x >> count; test -e a.txt\n- exists: artefact\n- changed: '*.txt'\n- clean: true\n"


def test_what_a_check_makes_is_not_committed_and_does_not_spoil_clean(desk: Desk) -> None:
    order = desk.run("write a.txt x", "say done", contract=CONTRACT)
    found = desk.conclude(order)
    assert [receipt.passed for receipt in found.receipts] == [True, True, True, False]
    assert found.receipts[3].detail == "1 path was not committed: a.txt"
    assert found.outcome is not None
    assert found.outcome.files == ("a.txt",)
    assert found.place is not None
    assert Repository(found.place.path).text("ls-tree", "-r", "--name-only", "HEAD") == "a.txt"
    assert (found.place.path / "artefact").exists()


@pytest.mark.parametrize(
    "lose",
    [
        (),
        ("outcome.json",),
        ("outcome.json", "receipts/01.json"),
        ("outcome.json", "receipts/01.json", "receipts/02.json", "receipts/03.json", "receipts/04.json"),
    ],
)
def test_stopped_at_any_step_and_repeated_it_is_the_same(desk: Desk, lose: tuple[str, ...]) -> None:
    order = desk.run("write a.txt x", "say done", contract=CONTRACT)
    first = desk.conclude(order)
    for name in lose:
        (order.session / name).unlink()
    second = desk.conclude(order)
    assert second.conclusion == first.conclusion
    assert second.outcome == first.outcome
    assert second.collected == first.collected
    ran = (desk.work(order) / "count").read_text()
    assert ran == ("x\nx\n" if "receipts/01.json" in lose else "x\n")


def test_without_a_word_from_git_nothing_is_verified_and_nothing_lost(desk: Desk) -> None:
    order = desk.run("write a.txt x", contract="- clean: true\n- changed: '**'\n- exists: a.txt\n")
    work = desk.work(order)
    (work / ".git").rename(work / "not-git")
    found = desk.conclude(order)
    assert [receipt.passed for receipt in found.receipts] == [False, False, True]
    assert found.outcome is None
    assert str(work) in found.notes[0]
    assert (work / "a.txt").exists()


def test_work_that_cannot_be_committed_is_still_work(desk: Desk) -> None:
    order = desk.run("write a.txt x")
    work = desk.work(order)
    (work / ".git" / "refs" / "heads" / "mh").rename(work / ".git" / "refs" / "heads" / "old")
    (work / ".git" / "refs" / "heads" / "mh").write_text("a file where a directory must be\n")
    found = desk.conclude(order)
    assert found.outcome is None
    assert "could not be committed" in found.notes[0]
    assert found.conclusion.produced


def test_names_without_a_utf8_form_come_through(desk: Desk) -> None:
    order = desk.begin(
        "```sh\nprintf x > \"$(printf '\\377\\nx')\"\n```\n", Shell(), contract="- clean: true\n"
    )
    found = desk.conclude(desk.ended(order))
    assert found.outcome is not None
    assert found.outcome.files == ("\udcff\nx",)
    assert desk.conclude(desk.ended(order)).outcome == found.outcome


def test_the_receipt_names_the_commit_that_was_checked(desk: Desk) -> None:
    order = desk.begin(
        "```sh\ngit -c user.name=a -c user.email=b commit -q --allow-empty -m x; git rev-parse HEAD\n```\n",
        Shell(),
        contract="- run: git rev-parse HEAD\n",
    )
    found = desk.conclude(desk.ended(order))
    head = found.receipts[0].tail.strip()
    assert head == (found.collected.answer or "").strip()
    assert head in (order.session / "receipts" / "01.json").read_text()


# --- stopped by a person --------------------------------------------------------------------------------------


def test_stopped_no_checks_are_run_and_the_work_is_kept(desk: Desk) -> None:
    order = desk.run("write a.txt x", "say done", contract="- run: touch never\n")
    found = desk.conclude(replace(order, stopped="enough"))
    assert ending(found) == "interrupt/by_person"
    assert found.conclusion.why == "enough"
    assert not (desk.work(order) / "never").exists()
    assert found.outcome is not None
    assert found.outcome.files == ("a.txt",)


def test_cancelled_while_checks_run_nothing_is_decided_and_it_can_be_concluded_again(desk: Desk) -> None:
    order = desk.run("write a.txt x", contract="- run: 'true'\n- run: sleep 600\n")
    raised: list[BaseException] = []

    def attempt() -> None:
        try:
            desk.conclude(order)
        except Cancelled as error:
            raised.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    wait_for((order.session / "receipts" / "01.json").exists, "the first receipt")
    wait_for(lambda: marked(order.claim.session), "the second check")
    order.cancelled.set()
    thread.join(10)
    assert len(raised) == 1
    assert marked(order.claim.session) == []
    assert not (order.session / "outcome.json").exists()
    again = desk.conclude(replace(order, stopped="enough", cancelled=threading.Event()))
    assert ending(again) == "interrupt/by_person"


# --- what an agent put in the way -----------------------------------------------------------------------------


def bury(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


IN_THE_WAY = {
    "a directory": lambda path: path.mkdir(),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nowhere/at/all"),
    "a link to what cannot be read": lambda path: path.symlink_to("/proc/self/mem"),
    "a pipe": lambda path: os.mkfifo(path),
    "a link to what never ends": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("put", IN_THE_WAY.values(), ids=IN_THE_WAY.keys())
@pytest.mark.parametrize(("directive", "kind"), [("say x", "clean"), ("exit 7", "crash/exit_7")])
def test_events_that_are_no_file_are_an_answer_and_not_the_disk(
    desk: Desk, put: Callable[[Path], None], directive: str, kind: str
) -> None:
    order = desk.run("write a.txt x", directive)
    bury(order.session / "events.jsonl")
    put(order.session / "events.jsonl")
    found = desk.conclude(order)
    assert ending(found) == kind
    assert found.notes == ("Its answer could not be read: events.jsonl is not a plain file.",)
    assert found.outcome is not None
    assert found.outcome.files == ("a.txt",)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (Ended(0, None, "exited"), "clean"),
        (Ended(7, None, "exited"), "crash/exit_7"),
        (Ended(None, 9, "exited"), "crash/signal_9"),
        (Lost("its runner is gone"), "lost"),
    ],
)
@pytest.mark.parametrize("number", [2, 13, 20, 21, 40])
def test_what_cannot_be_read_leaves_the_runners_word(
    desk: Desk, status: Status, kind: str, number: int
) -> None:
    class Unreadable(Fake):
        def collect(self, session_dir: Path) -> Collected:
            raise OSError(number, os.strerror(number), str(session_dir / "events.jsonl"))

    order = desk.run("write a.txt x")
    found = desk.conclude(replace(order, harness=Unreadable(), status=status))
    assert ending(found) == kind
    assert found.collected.answer is None
    assert "answer could not be read" in found.notes[0]
    assert os.strerror(number) in found.notes[0]


GARBAGE = [b"", b"{}", b"[]", b"null", b'{"paths": 7}', b'{"paths": [["a"]]}', b'{"paths": [[1, 2]]}']
GARBAGE += [b'{"commit": 1, "files": [], "diffstat": "", "left_out": []}', b'{"commit": "x", "files": [1]}']


@pytest.mark.parametrize("name", ["leftovers.json", "outcome.json", "receipts/01.json"])
@pytest.mark.parametrize("left", GARBAGE)
def test_garbage_in_the_daemons_files_is_made_anew(desk: Desk, name: str, left: bytes) -> None:
    order = desk.run("write a.txt x", contract="- exists: a.txt\n")
    (order.session / "receipts").mkdir()
    (order.session / name).write_bytes(left)
    found = desk.conclude(order)
    assert destination(found) == ("clean", "done")
    assert found.outcome is not None
    assert found.outcome.files == ("a.txt",)
    assert desk.conclude(order).outcome == found.outcome


@pytest.mark.parametrize("name", ["leftovers.json", "outcome.json", "receipts/01.json"])
def test_a_directory_where_a_file_belongs_holds_nothing_up(desk: Desk, name: str) -> None:
    order = desk.run("write a.txt x", contract="- exists: a.txt\n")
    (order.session / name / "x").mkdir(parents=True)
    found = desk.conclude(order)
    assert destination(found) == ("clean", "done")
    assert found.outcome is not None
    assert found.outcome.files == ("a.txt",)
    assert (order.session / name).is_file()
    assert (order.session / f"{name}.odd-1" / "x").is_dir()


def test_a_file_where_the_receipts_belong_holds_nothing_up(desk: Desk) -> None:
    order = desk.run("write a.txt x", contract="- run: 'true'\n- exists: a.txt\n")
    (order.session / "receipts").write_text("a file")
    found = desk.conclude(order)
    assert [receipt.passed for receipt in found.receipts] == [False, True]
    assert "could not be kept" in found.receipts[0].detail
    assert ending(found) == "clean"


@pytest.mark.parametrize("left", [b"{}", b"{", b'{"path": [], "branch": 1, "base": null}'])
def test_a_damaged_place_is_said_and_nothing_is_checked(desk: Desk, left: bytes) -> None:
    order = desk.run("write a.txt x", contract="- run: 'true'\n")
    (order.session / "place.json").write_bytes(left)
    found = desk.conclude(order)
    assert found.place is None
    assert "place.json" in found.notes[0]
    assert destination(found) == ("incomplete", "failed")


@pytest.mark.parametrize("remembered", [True, False])
def test_only_the_place_that_was_given_is_worked_in(desk: Desk, tmp_path: Path, remembered: bool) -> None:
    order = desk.run("write a.txt x", "say done", contract="- exists: a.txt\n")
    given = find_place(order.session)
    real = tmp_path / "real"
    real.mkdir()
    (real / "a.txt").touch()
    assert given is not None
    (order.session / "place.json").write_bytes(replace(given, path=real).encode())
    found = desk.conclude(replace(order, place=given if remembered else None))
    assert found.place == (given if remembered else None)
    assert destination(found) == (("clean", "done") if remembered else ("incomplete", "failed"))
    assert os.listdir(real) == ["a.txt"]


def test_a_contract_that_nobody_knows_any_more_is_not_met(desk: Desk) -> None:
    order = desk.run("write a.txt x", "say done")
    found = desk.conclude(replace(order, contract="unknown"))
    assert destination(found) == ("incomplete/contract", "failed")
    assert "spec.md" in found.conclusion.why
    assert found.outcome is not None
    assert found.outcome.files == ("a.txt",)


def test_a_contract_that_was_put_back_is_told(desk: Desk) -> None:
    found = desk.conclude(replace(desk.run("say done"), contract="restored"))
    assert destination(found) == ("clean", "done")
    assert "spec.md was changed" in found.notes[0]


NO_GIT = {
    "gone": lambda path: None,
    "a file": lambda path: path.write_text("x"),
    "a fifo": lambda path: os.mkfifo(path),
    "a link": lambda path: path.symlink_to("elsewhere"),
}


@pytest.mark.parametrize("put", NO_GIT.values(), ids=NO_GIT.keys())
def test_without_git_the_files_that_lie_there_are_work(desk: Desk, put: Callable[[Path], object]) -> None:
    order = desk.run("write a.txt x", "write deep/b.txt y")
    git = desk.work(order) / ".git"
    shutil.rmtree(git)
    put(git)
    found = desk.conclude(order)
    assert destination(found) == ("clean", "done")
    assert found.notes[0].startswith("What changed could not be listed: ")
    assert found.notes[0].endswith(f"; 2 files lie in {desk.work(order)}.")


def test_without_git_and_without_files_it_is_no_op(desk: Desk) -> None:
    order = desk.run()
    shutil.rmtree(desk.work(order) / ".git")
    assert destination(desk.conclude(order)) == ("no_op", "failed")


def test_too_many_programs_in_the_configuration_hold_no_slot(desk: Desk) -> None:
    order = desk.run("write a.txt x")
    with open(desk.work(order) / ".git" / "config", "a") as config:
        config.writelines(f'[filter "x{number}"]\n\tclean = false\n' for number in range(40_000))
    found = desk.conclude(order)
    assert destination(found) == ("clean", "done")
    assert ".git/config) names 4000" in found.notes[0]
