"""The runner on real processes, real pipes, real signals and a real terminal."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from adapters import session
from adapters.ports import Cancelled, Ended, Lost, NotStarted, Order, Running
from adapters.terminals.tmux import Tmux
from adapters.testing import publish, wait_for

pytestmark = pytest.mark.slow

SECRET = "sk-runner-0b1946ac92492d23"


class Lab:
    """Sessions in a directory of their own; ends whatever it started."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runners: list[subprocess.Popen[bytes]] = []
        self.sessions: list[Path] = []
        self.terminals: list[Tmux] = []

    def session(
        self,
        argv: list[str],
        *,
        env: dict[str, str] | None = None,
        wall_s: float | None = None,
        **launch: Any,
    ) -> Path:
        place = self.root / "sessions" / f"lab-{len(self.sessions) + 1}-{os.urandom(6).hex()}"
        work = self.root / "work"
        place.mkdir(parents=True)
        work.mkdir(exist_ok=True)
        (place / "brief.md").write_bytes(b"the brief\n")
        self.sessions.append(place)
        order = Order(
            session=place,
            session_id=place.name,
            track_id="lab",
            attempt=1,
            title="a title",
            workdir=work,
            env={"PATH": os.environ["PATH"], **(env or {})},
            wall_s=wall_s,
            wake=self.root / "wake",
        )
        launch.setdefault("interrupt", (("INT", 0.3), ("TERM", 0.3)))
        assert session.write_launch(order, session.Launch(argv=argv, **launch), publish)
        return place

    def start(self, place: Path, *before: str, **popen: Any) -> subprocess.Popen[bytes]:
        runner = subprocess.Popen(
            [*before, *session.runner_argv(place)],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            **popen,
        )
        self.runners.append(runner)
        return runner

    def run(self, argv: list[str], **launch: Any) -> tuple[Path, dict[str, Any]]:
        place = self.session(argv, **launch)
        runner = self.start(place)
        runner.wait(30)
        return place, self.exit_of(place)

    def exit_of(self, place: Path) -> dict[str, Any]:
        found = session.read_json(place / "exit.json")
        assert found is not None, (place / "runner.log").read_text()
        return found

    def pane(self, place: Path) -> Tmux:
        terminal = Tmux(self.root / "s")
        self.terminals.append(terminal)
        terminal.open("lab", place.name, session.runner_argv(place))
        return terminal

    def tmux(self, *words: str) -> str:
        return subprocess.run(
            ["tmux", "-N", "-S", self.root / "s", *words], check=True, capture_output=True, text=True
        ).stdout

    def clean(self) -> None:
        for terminal in self.terminals:
            terminal.kill_server()
        for place in self.sessions:
            with contextlib.suppress(FileNotFoundError):
                session.force(place)
        for runner in self.runners:
            runner.kill()
            runner.wait()


@pytest.fixture
def lab() -> Iterator[Lab]:
    # Short: the path of a tmux socket has 107 bytes.
    root = Path(tempfile.mkdtemp(prefix="mh-", dir="/tmp"))
    lab = Lab(root)
    try:
        yield lab
    finally:
        lab.clean()
        shutil.rmtree(root)


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def numbers(path: Path, count: int) -> list[int]:
    """The pids that a harness wrote into a file, one a line."""

    def there() -> list[int] | None:
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [int(line) for line in lines] if len(lines) >= count else None

    return wait_for(there, f"{count} lines in {path}")


# --- the gate ---------------------------------------------------------------


def test_of_eight_runners_one_runs_the_harness(lab: Lab) -> None:
    place = lab.session(["sh", "-c", "echo ran >> ran; sleep 0.3"])
    runners = [lab.start(place) for _ in range(8)]
    assert [runner.wait(20) for runner in runners] == [0] * 8
    assert (lab.root / "work" / "ran").read_text() == "ran\n"
    assert lab.exit_of(place)["code"] == 0
    assert not [name for name in os.listdir(place) if name.startswith(".started")]


def test_a_second_run_of_an_ended_session_runs_nothing(lab: Lab) -> None:
    place, before = lab.run(["sh", "-c", "echo ran >> ran"])
    assert lab.start(place).wait(20) == 0
    assert (lab.root / "work" / "ran").read_text() == "ran\n"
    assert lab.exit_of(place) == before


@pytest.mark.parametrize("trace", session.TRACES)
def test_where_traces_of_a_run_are_nothing_runs_again(lab: Lab, trace: str) -> None:
    place = lab.session(["sh", "-c", "touch ran"])
    (place / trace).touch()
    assert lab.start(place).wait(20) == 0
    assert not (place / "started.json").exists()
    assert not (lab.root / "work" / "ran").exists()


def test_a_session_that_lost_its_started_json_does_not_run_again(lab: Lab) -> None:
    place, before = lab.run(["sh", "-c", "echo ran >> ran"])
    (place / "started.json").unlink()
    assert isinstance(session.status(place), Ended)
    (place / "exit.json").rename(lab.root / "exit.json")
    assert isinstance(session.status(place), Lost)
    for name in ("events.jsonl", "stderr.log", "heartbeat.json"):
        (place / name).unlink()
    assert isinstance(session.status(place), Lost)  # its environment was taken
    assert lab.start(place).wait(20) == 0
    assert (lab.root / "work" / "ran").read_text() == "ran\n"
    assert before["code"] == 0


def test_without_a_launch_the_end_says_so(lab: Lab) -> None:
    place = lab.session(["true"])
    (place / "launch.json").unlink()
    lab.start(place).wait(20)
    assert lab.exit_of(place)["reason"] == "failed"


def test_cancelled_before_the_start_runs_nothing(lab: Lab) -> None:
    place = lab.session(["sh", "-c", "touch ran"])
    session.interrupt(place, "not wanted any more")
    assert session.status(place) == Cancelled("not wanted any more")
    assert lab.start(place).wait(20) == 0
    assert session.status(place) == Cancelled("not wanted any more")
    assert not (lab.root / "work" / "ran").exists()
    assert not (place / "env.json").exists()


def test_interrupt_json_without_a_signal_ends_it_before_the_harness(lab: Lab) -> None:
    # Who wanted to interrupt died between writing and signalling.
    place = lab.session(["sh", "-c", "touch ran"])
    (place / "interrupt.json").write_text('{"v": 1}')
    lab.start(place).wait(20)
    ended = lab.exit_of(place)
    assert (ended["reason"], ended["code"], ended["signal"]) == ("interrupted", None, None)
    assert "before the harness was started" in ended["error"]
    assert not (lab.root / "work" / "ran").exists()


# --- how it ended -----------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "code", "number", "mirrored"),
    [
        ("exit 0", 0, None, 0),
        ("exit 7", 7, None, 7),
        ("exit 255", 255, None, 255),
        ("kill -KILL $$", None, 9, 137),
        ("kill -TERM $$", None, 15, 143),
        ("exit 137", 137, None, 137),
    ],
)
def test_exit_and_signal_are_told_apart(
    lab: Lab, script: str, code: int | None, number: int | None, mirrored: int
) -> None:
    place = lab.session(["sh", "-c", script])
    assert lab.start(place).wait(20) == mirrored
    status = session.status(place)
    assert isinstance(status, Ended)
    assert (status.code, status.signal, status.reason, status.error) == (code, number, "exited", "")
    assert status.started_at <= status.ended_at
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", status.ended_at)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["mh-no-such-program"], "no such program in PATH"),
        (["/nowhere/at-all"], "there is no such file"),
        (["/etc/passwd"], "is not executable"),
        (["./no-interpreter"], "interpreter that its first line names does not exist"),
        (["./no-magic"], "not a program that this machine can run"),
        (["true", "x" * 200_000], "131072 in one argument"),
        (["true", "a\0b"], "null byte"),
    ],
)
def test_a_program_that_cannot_be_started_is_a_sentence(lab: Lab, argv: list[str], says: str) -> None:
    work = lab.root / "work"
    work.mkdir()
    for name, content in (("no-interpreter", b"#!/nowhere/sh\n"), ("no-magic", b"\x00\x01\x02")):
        (work / name).write_bytes(content)
        (work / name).chmod(0o755)
    place = lab.session(argv)
    assert lab.start(place).wait(20) == 127
    status = session.status(place)
    assert isinstance(status, Ended)
    assert (status.code, status.signal, status.reason) == (None, None, "failed")
    assert says in status.error
    assert argv[0] in status.error


def test_a_missing_work_directory_is_a_sentence(lab: Lab) -> None:
    place = lab.session(["true"])
    (lab.root / "work").rmdir()
    lab.start(place).wait(20)
    ended = lab.exit_of(place)
    assert ended["reason"] == "failed"
    assert "'true'" in ended["error"]
    assert str(lab.root / "work") in ended["error"]


@pytest.mark.parametrize("broken", ["launch.json", "env.json"])
@pytest.mark.parametrize("content", [b"", b"[]", b'{"v": 1'])
def test_a_broken_session_directory_is_recorded(lab: Lab, broken: str, content: bytes) -> None:
    place = lab.session(["true"])
    (place / broken).write_bytes(content)
    lab.start(place).wait(20)
    ended = lab.exit_of(place)
    assert ended["reason"] == "failed"
    assert ended["error"]


# --- the stream -------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"no final newline", id="no-newline"),
        pytest.param(bytes(range(256)) * 64 + b"\xff\xfe\x00\r\n\x1b]0;x\x07", id="garbage"),
        pytest.param(b"0123456789abcde\n" * 327_680, id="5MB"),
        pytest.param(b"x" * 3_000_000 + b"\n" + b"after\n", id="3MB-line"),
    ],
)
@pytest.mark.parametrize("stdin", ["null", "pipe"])
def test_the_stream_is_kept_byte_for_byte(lab: Lab, data: bytes, stdin: str) -> None:
    source = lab.root / "data"
    source.write_bytes(data)
    place, ended = lab.run(
        ["sh", "-c", f"cat {source}; cat {source} >&2"], stdin=stdin, turn_end="never", stdin_idle_s=0.1
    )
    assert (place / "events.jsonl").read_bytes() == data
    assert (place / "stderr.log").read_bytes() == data
    assert (ended["bytes"], ended["dropped"], ended["error"]) == (len(data), 0, "")


def test_beyond_max_bytes_is_counted_and_the_harness_goes_on(lab: Lab) -> None:
    place, ended = lab.run(python("print('x' * 999_999); open('finished', 'w')"), max_bytes=1000)
    assert (place / "events.jsonl").read_bytes() == b"x" * 1000
    assert (ended["code"], ended["bytes"], ended["dropped"]) == (0, 1_000_000, 999_000)
    assert "999000 bytes were not kept" in ended["error"]
    assert (lab.root / "work" / "finished").exists()


def test_the_brief_is_standard_input_to_its_last_byte(lab: Lab) -> None:
    place = lab.session(["cat"], stdin="brief")
    brief = "Ümläut-漢字 '\"$(touch x)`\n".encode() * 40_000
    (place / "brief.md").write_bytes(brief)
    lab.start(place).wait(20)
    assert (place / "events.jsonl").read_bytes() == brief


def test_a_holder_of_the_pipe_outside_the_tree_does_not_delay_the_end(lab: Lab) -> None:
    place = lab.session(["sh", "-c", "echo $$ > pid; until [ -e go ]; do sleep 0.01; done"])
    runner = lab.start(place)
    (pid,) = numbers(lab.root / "work" / "pid", 1)
    with open(f"/proc/{pid}/fd/1", "wb"):
        (lab.root / "work" / "go").touch()
        runner.wait(5)
    assert lab.exit_of(place)["code"] == 0


@pytest.fixture
def small_disk(lab: Lab) -> Iterator[Path]:
    """A file system of 256 KiB, below the sessions of the lab."""
    place = lab.root / "sessions"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        reason = f"cannot mount a tmpfs here: {mounted.stderr.strip()}"
        if "CI" in os.environ:
            pytest.fail(reason)
        pytest.skip(reason)
    try:
        yield place
    finally:
        lab.clean()
        lab.sessions.clear()
        subprocess.run(["umount", "-l", place], check=True)


def test_on_a_full_disk_the_harness_goes_on_and_the_loss_is_named(lab: Lab, small_disk: Path) -> None:
    place = lab.session(
        python(
            "import os, time\n"
            "for i in range(400): print('x' * 9_999, flush=True)\n"
            "open('written', 'w')\n"
            "while not os.path.exists('go'): time.sleep(0.01)\n"
            "print('y' * 99)\n"
            "print('the last words')"
        )
    )
    runner = lab.start(place)
    wait_for((lab.root / "work" / "written").exists, "the harness to go on")
    with contextlib.suppress(OSError), open(small_disk / "ballast", "wb", buffering=0) as file:
        while True:
            file.write(b"z")
    (lab.root / "work" / "go").touch()
    runner.wait(20)
    ended = lab.exit_of(place)
    assert ended["code"] == 0
    assert ended["bytes"] == 400 * 10_000 + 100 + 15
    kept = (place / "events.jsonl").stat().st_size
    assert ended["dropped"] >= ended["bytes"] - kept > 3_000_000
    assert "No space left on device" in ended["error"]


def test_the_record_of_the_end_is_tried_until_it_can_be_written(lab: Lab) -> None:
    place = lab.session(["sh", "-c", "touch ready; until [ -e go ]; do sleep 0.01; done"])
    runner = lab.start(place)
    wait_for((lab.root / "work" / "ready").exists, "the harness")
    (place / ".exit.tmp").unlink()
    (place / ".exit.tmp").mkdir()
    (lab.root / "work" / "go").touch()
    log = place / "runner.log"
    wait_for(lambda: log.read_text().count("exit.json cannot be written yet") >= 2, "two tries")
    runner.terminate()
    assert isinstance(session.status(place), Running)
    (place / ".exit.tmp").rmdir()
    runner.wait(20)
    ended = lab.exit_of(place)
    assert (ended["code"], ended["reason"]) == (0, "exited")


WAITS = ["sh", "-c", "touch ready; until [ -e go ]; do sleep 0.01; done; exit 3"]


def test_a_forged_end_is_replaced_by_the_true_one(lab: Lab) -> None:
    place = lab.session(WAITS)
    runner = lab.start(place)
    wait_for((lab.root / "work" / "ready").exists, "the harness")
    forged = {"v": 1, "code": 0, "signal": None, "reason": "exited"}
    (place / "exit.json").write_text(json.dumps(forged))
    assert isinstance(session.status(place), Running)
    (lab.root / "work" / "go").touch()
    runner.wait(20)
    status = session.status(place)
    assert isinstance(status, Ended)
    assert status.code == 3


@pytest.mark.parametrize("name", ["exit.json", ".exit.tmp"])
def test_what_never_lets_the_end_be_recorded_is_not_waited_for(lab: Lab, name: str) -> None:
    place = lab.session(WAITS)
    runner = lab.start(place)
    wait_for((lab.root / "work" / "ready").exists, "the harness")
    (place / name).unlink(missing_ok=True)
    (place / name).mkdir()
    (lab.root / "work" / "go").touch()
    assert runner.wait(20) == 3
    assert "exit.json cannot be written: " in (place / "runner.log").read_text()
    assert isinstance(session.status(place), Lost)


@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_a_runner_neither_waits_for_nor_writes_through_what_an_agent_put_there(lab: Lab, kind: str) -> None:
    place = lab.session(WAITS, wall_s=1.0)
    precious = lab.root / "precious"
    precious.write_text("words")
    runner = lab.start(place)
    wait_for((lab.root / "work" / "ready").exists, "the harness")
    for name in (".heartbeat.tmp", ".exit.tmp"):
        (place / name).unlink(missing_ok=True)
        if kind == "fifo":
            os.mkfifo(place / name)
        else:
            (place / name).symlink_to(precious)
    runner.wait(20)
    assert precious.read_text() == "words"
    assert isinstance(session.status(place), Lost)
    assert "exit.json cannot be written: " in (place / "runner.log").read_text()


def test_an_inbox_that_was_replaced_does_not_keep_the_end_from_being_recorded(lab: Lab) -> None:
    place = lab.session(WAITS, stdin="pipe")
    runner = lab.start(place)
    wait_for((lab.root / "work" / "ready").exists, "the harness")
    shutil.rmtree(place / "inbox")
    (place / "inbox").touch()
    (lab.root / "work" / "go").touch()
    runner.wait(20)
    assert lab.exit_of(place)["code"] == 3


def test_the_lock_is_free_before_the_end_is_announced(lab: Lab) -> None:
    if shutil.which("strace") is None:
        if "CI" in os.environ:
            pytest.fail("strace is not installed")
        pytest.skip("strace is not installed")
    trace = lab.root / "trace"
    place = lab.session(["true"])
    calls = "openat,rename,renameat,renameat2,fsync,flock"
    lab.start(place, "strace", "-qq", "-y", "-e", f"trace={calls}", "-o", str(trace)).wait(30)
    text = trace.read_text()
    end = text.rindex('"exit.json"')
    synced = text.index(f"<{place}>) = 0", end)
    freed = text.index("LOCK_UN", synced)
    assert str(lab.root / "wake") in text[freed:]


def test_after_a_gap_the_stream_goes_on_with_a_whole_line(lab: Lab, small_disk: Path) -> None:
    place = lab.session(
        python(
            "import os, time\n"
            "for i in range(100): print('x' * 9_999, flush=True)\n"
            "open('written', 'w')\n"
            "while not os.path.exists('go'): time.sleep(0.01)\n"
            "print('first after', flush=True)\n"
            "print('second after', flush=True)"
        )
    )
    (small_disk / "ballast").write_bytes(b"z" * 100_000)
    runner = lab.start(place)
    wait_for((lab.root / "work" / "written").exists, "the harness to go on")
    (small_disk / "ballast").unlink()
    (lab.root / "work" / "go").touch()
    runner.wait(20)
    lines = (place / "events.jsonl").read_bytes().split(b"\n")
    assert lines[-2:] == [b"second after", b""] or lines[-3:] == [b"first after", b"second after", b""]
    assert lab.exit_of(place)["dropped"] > 0


# --- the tree ---------------------------------------------------------------

TREE = """
import os, signal, subprocess, sys, time
def note():
    with open("pids", "a") as file: file.write(f"{os.getpid()}\\n")
sleeper = [sys.executable, "-I", "-S", "-c", "import time, os; open('pids', 'a').write(f'{os.getpid()}\\\\n'); time.sleep(600)"]
subprocess.Popen(sleeper)
subprocess.Popen(["setsid", *sleeper])
subprocess.Popen(["nohup", *sleeper], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
subprocess.Popen(["env", "-i", "setsid", *sleeper])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        note()
        time.sleep(600)
    os._exit(0)
while len(open("pids").read().split("\\n")) < 6 if os.path.exists("pids") else True: time.sleep(0.01)
"""


def test_what_outlives_the_harness_is_ended_and_counted(lab: Lab) -> None:
    place, ended = lab.run(python(TREE + "sys.exit(3)"))
    pids = numbers(lab.root / "work" / "pids", 5)
    assert not [pid for pid in pids if alive(pid)]
    assert (ended["code"], ended["reason"], ended["strays"]) == (3, "exited", 5)
    assert session.status(place) == Ended(
        3, None, "exited", "", ended["started_at"], ended["ended_at"], ended["wall_s"], 0, 5
    )


def test_interrupt_ends_the_whole_tree_and_twice_is_fine(lab: Lab) -> None:
    place = lab.session(python(TREE + "time.sleep(600)"))
    runner = lab.start(place)
    pids = numbers(lab.root / "work" / "pids", 5)
    session.interrupt(place, "enough")
    session.interrupt(place, "again")
    runner.wait(20)
    session.interrupt(place, "and again")
    assert not [pid for pid in pids if alive(pid)]
    ended = lab.exit_of(place)
    assert (ended["signal"], ended["reason"]) == (signal.SIGINT, "interrupted")
    assert session.read_json(place / "interrupt.json") == {
        "v": 1,
        "why": "enough",
        "at": session.read_json(place / "interrupt.json")["at"],  # type: ignore[index]
    }


def test_a_harness_may_end_well_when_interrupted(lab: Lab) -> None:
    place = lab.session(
        ["sh", "-c", "trap 'echo bye; exit 5' INT; touch ready; while :; do sleep 0.01; done"]
    )
    runner = lab.start(place)
    wait_for((lab.root / "work" / "ready").exists, "the trap")
    session.interrupt(place, "enough")
    runner.wait(20)
    assert (place / "events.jsonl").read_bytes() == b"bye\n"
    ended = lab.exit_of(place)
    assert (ended["code"], ended["reason"]) == (5, "interrupted")


def test_sigterm_from_somebody_else_is_terminated(lab: Lab) -> None:
    place = lab.session(["sleep", "600"])
    runner = lab.start(place)
    wait_for(lambda: isinstance(session.status(place), Running), "the start")
    runner.terminate()
    runner.terminate()
    runner.wait(20)
    assert lab.exit_of(place)["reason"] == "terminated"


IGNORES = """
import signal, time
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)
open("ready", "w")
time.sleep(600)
"""


def test_a_harness_that_ignores_everything_is_killed(lab: Lab) -> None:
    place = lab.session(python(IGNORES))
    runner = lab.start(place)
    wait_for((lab.root / "work" / "ready").exists, "the harness")
    session.interrupt(place, "enough")
    runner.wait(20)
    ended = lab.exit_of(place)
    assert (ended["signal"], ended["reason"]) == (signal.SIGKILL, "interrupted")
    assert ended["wall_s"] >= 0.6  # both steps of the sequence had their time


def test_term_reaches_what_the_harness_waits_for_outside_of_its_group(lab: Lab) -> None:
    # What is ignored stays so in a child, and sh cannot take it back: env can.
    child = "env --default-signal=INT,TERM setsid -w sh -c 'touch ready; exec sleep 600'"
    place = lab.session(
        ["sh", "-c", f"trap '' INT TERM; {child}; echo bye"], interrupt=(("INT", 0.1), ("TERM", 10.0))
    )
    runner = lab.start(place)
    wait_for((lab.root / "work" / "ready").exists, "the harness")
    session.interrupt(place, "enough")
    runner.wait(20)
    assert (place / "events.jsonl").read_bytes() == b"bye\n"
    assert lab.exit_of(place)["code"] == 0


def test_a_stopped_harness_is_ended(lab: Lab) -> None:
    place = lab.session(["sh", "-c", "kill -STOP $$"])
    runner = lab.start(place)
    wait_for(
        lambda: any(p.status() == psutil.STATUS_STOPPED for p in psutil.Process(runner.pid).children()),
        "the stop",
    )
    session.interrupt(place, "enough")
    runner.wait(20)
    assert lab.exit_of(place)["signal"] == signal.SIGKILL


def test_the_wall_clock_ends_it(lab: Lab) -> None:
    place, ended = lab.run(["sleep", "600"], wall_s=0.4)
    assert (ended["reason"], ended["signal"]) == ("wall", signal.SIGINT)
    assert 0.4 <= ended["wall_s"] < 5
    assert isinstance(session.status(place), Ended)


def test_a_chain_that_forks_faster_than_it_can_be_listed_is_ended(lab: Lab) -> None:
    place = lab.session(
        python(
            "import os, time\n"
            "if os.fork() == 0:\n"
            "    os.setsid()\n"
            "    open('chain', 'w')\n"
            "    until = time.monotonic() + 60\n"
            "    while time.monotonic() < until and not os.path.exists('stop'):\n"
            "        if os.fork(): os._exit(0)\n"
            "    open('survived', 'w')\n"
            "while not os.path.exists('chain'): time.sleep(0.01)"
        )
    )
    lab.start(place).wait(25)
    (lab.root / "work" / "stop").touch()
    ended = lab.exit_of(place)
    assert (ended["code"], ended["error"]) == (0, "")
    assert ended["strays"] >= 1
    time.sleep(0.2)  # nothing to wait for: a link that lived would write the file
    assert not (lab.root / "work" / "survived").exists()


def test_zombies_of_a_tree_that_forks_a_lot_are_reaped(lab: Lab) -> None:
    place = lab.session(
        ["sh", "-c", "i=0; while [ $i -lt 400 ]; do (true &); i=$((i+1)); done; touch done; sleep 600"]
    )
    runner = lab.start(place)
    wait_for((lab.root / "work" / "done").exists, "400 orphans")

    def two_left() -> bool:
        return len(psutil.Process(runner.pid).children()) == 1

    wait_for(two_left, "the orphans to be reaped")
    session.interrupt(place, "enough")
    runner.wait(20)
    assert lab.exit_of(place)["strays"] == 0


def test_after_kill_9_of_the_runner_it_is_lost_and_reap_ends_the_rest(lab: Lab) -> None:
    place = lab.session(python(TREE + "note(); time.sleep(600)"))
    runner = lab.start(place)
    pids = numbers(lab.root / "work" / "pids", 6)
    runner.kill()
    runner.wait()
    status = session.status(place)
    assert isinstance(status, Lost)
    assert not status.other_boot
    # One of them has no marker and its parent is alive: it is found by descent.
    assert session.reap(place.name, grace_s=0.3) == 6
    assert not [pid for pid in pids if alive(pid)]
    assert session.reap(place.name) == 0


# --- standard input ---------------------------------------------------------


def test_a_megabyte_reaches_a_slow_reader(lab: Lab) -> None:
    slow = """
import os, time, hashlib
digest, count = hashlib.sha256(), 0
while data := os.read(0, 30_000):
    digest.update(data); count += len(data); time.sleep(0.002)
    if count >= 1_000_006: break
print(count, digest.hexdigest())
"""
    first = os.urandom(1_000_000)
    place = lab.session([sys.executable, "-I", "-c", slow], stdin="pipe", first_message=first)
    runner = lab.start(place)
    name = session.message(place, b"second", "second", by="a test")
    runner.wait(30)
    import hashlib

    assert (place / "events.jsonl").read_text().split() == [
        "1000006",
        hashlib.sha256(first + b"second").hexdigest(),
    ]
    assert [each.name for each in session.delivered(place)] == [session.FIRST_MESSAGE, name]
    assert session.delivered(place)[1].text == "second"
    assert lab.exit_of(place)["undelivered"] == 0


def test_a_harness_that_reads_nothing_blocks_nothing(lab: Lab) -> None:
    place = lab.session(["sleep", "600"], stdin="pipe", first_message=b"x" * 1_000_000)
    runner = lab.start(place)
    wait_for(lambda: isinstance(session.status(place), Running), "the start")
    session.message(place, b"late", "late", by="a test")
    session.interrupt(place, "enough")
    runner.wait(20)
    assert session.delivered(place) == []
    assert lab.exit_of(place)["undelivered"] == 2


def test_a_closed_standard_input_leaves_messages_undelivered(lab: Lab) -> None:
    place = lab.session(
        ["sh", "-c", "exec 0<&-; touch closed; until [ -e go ]; do sleep 0.01; done; echo fine"], stdin="pipe"
    )
    runner = lab.start(place)
    wait_for((lab.root / "work" / "closed").exists, "the harness")
    session.message(place, b"hello\n", "hello", by="a test")
    time.sleep(0.05)  # nothing to wait for: it must not be delivered
    (lab.root / "work" / "go").touch()
    runner.wait(20)
    ended = lab.exit_of(place)
    assert (ended["code"], ended["undelivered"]) == (0, 1)
    assert (place / "events.jsonl").read_bytes() == b"fine\n"


ECHO = """
import sys
for line in sys.stdin:
    print("got", line.strip(), flush=True)
    print('{"type":"turn_end"}', flush=True)
print("eof")
"""


def test_standard_input_is_closed_after_the_end_of_the_turn(lab: Lab) -> None:
    place, ended = lab.run(
        python(ECHO), stdin="pipe", turn_end='"type":"turn_end"', stdin_idle_s=0.2, first_message=b"one\n"
    )
    assert (place / "events.jsonl").read_bytes() == b'got one\n{"type":"turn_end"}\neof\n'
    assert ended["code"] == 0


def test_a_message_within_the_idle_time_begins_another_turn(lab: Lab) -> None:
    place = lab.session(
        python(ECHO), stdin="pipe", turn_end="turn_end", stdin_idle_s=1.5, first_message=b"one\n"
    )
    runner = lab.start(place)
    events = place / "events.jsonl"
    wait_for(lambda: events.exists() and b"turn_end" in events.read_bytes(), "the first turn")
    session.message(place, b"two\n", "two", by="a test")
    wait_for(lambda: b"got two" in events.read_bytes(), "the second turn")
    runner.wait(20)
    assert events.read_bytes().endswith(b'got two\n{"type":"turn_end"}\neof\n')


def test_standard_input_stays_open_while_another_turn_is_worked_on(lab: Lab) -> None:
    code = """
import os, select
while data := os.read(0, 1000):
    if data == b"two\\n" and select.select([0], [], [], 1.0)[0]: print("closed too early")
    print("turn_end", flush=True)
"""
    place = lab.session(
        python(code), stdin="pipe", turn_end="turn_end", stdin_idle_s=0.4, first_message=b"one\n"
    )
    runner = lab.start(place)
    events = place / "events.jsonl"
    wait_for(lambda: events.exists() and b"turn_end" in events.read_bytes(), "the first turn")
    session.message(place, b"two\n", "two", by="a test")
    runner.wait(20)
    assert events.read_bytes() == b"turn_end\nturn_end\n"


def test_without_an_end_of_turn_standard_input_stays_open(lab: Lab) -> None:
    place = lab.session(python(ECHO), stdin="pipe", stdin_idle_s=0.05, first_message=b"one\n")
    lab.start(place)
    events = place / "events.jsonl"
    wait_for(lambda: events.exists() and b"turn_end" in events.read_bytes(), "the first turn")
    time.sleep(0.3)  # nothing to wait for: it must not end
    assert isinstance(session.status(place), Running)


def test_odd_things_in_the_inbox_are_left_alone(lab: Lab) -> None:
    place = lab.session(
        python(ECHO), stdin="pipe", turn_end="turn_end", stdin_idle_s=0.3, first_message=b"one\n"
    )
    inbox = place / "inbox"
    (inbox / ".tmp-half").write_bytes(b"half")
    (inbox / "directory").mkdir()
    (inbox / "link").symlink_to("/etc/passwd")
    os.mkfifo(inbox / "fifo")
    lab.start(place).wait(20)
    assert (place / "events.jsonl").read_bytes() == b'got one\n{"type":"turn_end"}\neof\n'
    assert sorted(os.listdir(inbox)) == [".tmp-half", "delivered", "directory", "fifo", "link", "text"]


# --- environment and secrets ------------------------------------------------


def test_the_environment_is_exactly_the_given_one_and_the_marker(lab: Lab) -> None:
    given = {"SECRET_KEY": SECRET, "ODD": "a\nb=c 'd' $(x)", "BYTES": os.fsdecode(b"\xff\xfe"), "EMPTY": ""}
    place = lab.session(["/usr/bin/env", "-0"], env=given)
    lab.start(place, env={**os.environ, "LEAKS": "from the starter"}).wait(20)
    got = dict(item.split(b"=", 1) for item in (place / "events.jsonl").read_bytes().split(b"\0") if item)
    want = {**given, "PATH": os.environ["PATH"], "MEGAHARNESS_SESSION": place.name}
    assert got == {os.fsencode(k): os.fsencode(v) for k, v in want.items()}


def test_a_secret_is_nowhere_but_in_the_harness(lab: Lab) -> None:
    place = lab.session(["sh", "-c", "touch ready; sleep 600"], env={"SECRET_KEY": SECRET})
    assert (place / "env.json").stat().st_mode & 0o777 == 0o600
    runner = lab.start(place)
    wait_for((lab.root / "work" / "ready").exists, "the harness")
    assert not (place / "env.json").exists()
    for path in place.rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes(), path
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            assert SECRET not in " ".join(process.cmdline())
    assert SECRET not in str(psutil.Process(runner.pid).environ())
    assert session.read_json(place / "launch.json")["env_names"] == [  # type: ignore[index]
        "MEGAHARNESS_SESSION",
        "PATH",
        "SECRET_KEY",
    ]


def test_files_are_the_owners_alone(lab: Lab) -> None:
    place, _ = lab.run(["true"])
    for name in ("events.jsonl", "stderr.log", "exit.json", "started.json", "heartbeat.json", "lock"):
        assert (place / name).stat().st_mode & 0o077 == 0, name


def test_the_harness_has_no_terminal_and_default_signals(lab: Lab) -> None:
    code = """
import os, signal
print(os.getsid(0) == os.getpid() == os.getpgrp())
try: os.open("/dev/tty", os.O_RDWR)
except OSError as error: print("no terminal")
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
ignored = int(status["SigIgn"], 16)
print([s.name for s in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP) if ignored >> (s - 1) & 1])
print(status["SigBlk"].strip("0"), sorted(map(int, os.listdir("/proc/self/fd")))[:3])
"""
    place = lab.session(python(code))
    lab.pane(place)
    wait_for(lambda: isinstance(session.status(place), Ended), "the end")
    assert (place / "events.jsonl").read_text() == "True\nno terminal\n[]\n [0, 1, 2]\n"


def test_no_descriptor_of_the_starter_reaches_the_harness(lab: Lab) -> None:
    reader, writer = os.pipe()
    try:
        place = lab.session(["sh", "-c", "ls /proc/self/fd | wc -l"])
        lab.start(place, pass_fds=[writer]).wait(20)
    finally:
        os.close(reader)
        os.close(writer)
    assert (place / "events.jsonl").read_text().strip() == "4"  # 0, 1, 2 and the directory itself


# --- signs of life ----------------------------------------------------------


def test_the_wake_file_is_touched_at_start_output_and_end(lab: Lab) -> None:
    wake = lab.root / "wake"
    place = lab.session(
        ["sh", "-c", "until [ -e go ]; do sleep 0.01; done; echo x; until [ -e end ]; do sleep 0.01; done"]
    )
    runner = lab.start(place)
    for step in ("go", "end"):
        wait_for(wake.exists, f"the touch before {step}")
        wake.unlink()
        (lab.root / "work" / step).touch()
    wait_for(wake.exists, "the touch at the end")
    runner.wait(20)


def test_a_wake_file_that_cannot_be_made_does_not_matter(lab: Lab) -> None:
    place = lab.session(["echo", "x"])
    launch = json.loads((place / "launch.json").read_bytes())
    (place / "launch.json").write_text(json.dumps({**launch, "wake": "/nowhere/wake"}))
    lab.start(place).wait(20)
    assert lab.exit_of(place)["code"] == 0


def test_the_heartbeat_says_what_goes_on(lab: Lab) -> None:
    place = lab.session(["sh", "-c", "sleep 600"])
    runner = lab.start(place)
    beat = wait_for(
        lambda: (b := session.read_json(place / "heartbeat.json")) and b["phase"] == "running" and b,
        "the beat",
    )
    assert beat["harness_pid"] in [child.pid for child in psutil.Process(runner.pid).children()]
    assert beat["viewer_pid"] is None
    session.interrupt(place, "enough")
    runner.wait(20)
    assert session.read_json(place / "heartbeat.json")["phase"] == "ending"  # type: ignore[index]


def test_a_spawn_that_was_repeated_late_leaves_no_environment(lab: Lab) -> None:
    place = lab.session(["sh", "-c", "touch ready; until [ -e go ]; do sleep 0.01; done"])
    runner = lab.start(place)
    wait_for((lab.root / "work" / "ready").exists, "the harness")
    (place / "env.json").write_text("{}")
    (lab.root / "work" / "go").touch()
    runner.wait(20)
    assert not (place / "env.json").exists()


# --- durability -------------------------------------------------------------


def test_the_gate_and_the_end_are_synced_before_they_count(lab: Lab) -> None:
    if shutil.which("strace") is None:
        if "CI" in os.environ:
            pytest.fail("strace is not installed")
        pytest.skip("strace is not installed")
    trace = lab.root / "trace"
    place = lab.session(["echo", "the answer"])
    calls = "openat,fsync,rename,renameat,renameat2,link,linkat,close,write,execve"
    lab.start(place, "strace", "-qq", "-y", "-s", "20", "-e", f"trace={calls}", "-o", str(trace)).wait(30)
    lines = trace.read_text().splitlines()

    def at(*patterns: str) -> list[int]:
        """Where these stand, each after the one before."""
        found: list[int] = []
        begin = 0
        for pattern in patterns:
            begin = next((i for i in range(begin, len(lines)) if re.search(pattern, lines[i])), -1) + 1
            assert begin, f"{pattern} is not in the trace after {found}: " + "\n".join(lines[-60:])
            found.append(begin - 1)
        return found

    directory = re.escape(str(place))
    at(r"fsync\(\d+<.*/\.started-", r'link.*"started\.json"\) += 0', rf"fsync\(\d+<{directory}>\)")
    at(
        r"fsync\(\d+<.*/events\.jsonl>\) += 0",
        r"write\(\d+<.*/\.exit\.tmp>",
        r"fsync\(\d+<.*/\.exit\.tmp>\) += 0",
        r'rename.*"\.exit\.tmp".*"exit\.json"\) += 0',
        rf"fsync\(\d+<{directory}>\) += 0",
    )


def test_interrupted_right_behind_the_gate_it_is_recorded(lab: Lab) -> None:
    if shutil.which("strace") is None:
        if "CI" in os.environ:
            pytest.fail("strace is not installed")
        pytest.skip("strace is not installed")
    place = lab.session(["sh", "-c", "touch ran"])
    slow = ("strace", "-qq", "-o", "/dev/null", "-e", "inject=link:delay_exit=700000")
    runner = lab.start(place, *slow)
    wait_for(lambda: isinstance(session.status(place), Running), "the gate")
    session.interrupt(place, "at once")
    runner.wait(20)
    ended = lab.exit_of(place)
    assert (ended["reason"], ended["code"]) == ("interrupted", None)
    assert not (lab.root / "work" / "ran").exists()


def test_killed_between_fork_and_exec_it_is_lost_only_when_its_harness_can_be_found(lab: Lab) -> None:
    if shutil.which("strace") is None:
        if "CI" in os.environ:
            pytest.fail("strace is not installed")
        pytest.skip("strace is not installed")
    place = lab.session(["sleep", "600"])
    slow = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=execve:delay_enter=1500000")
    lab.start(place, *slow)
    running = wait_for(lambda: isinstance(s := session.status(place), Running) and s, "the gate")
    runner = psutil.Process(running.pid)
    wait_for(lambda: runner.children(), "the fork")
    runner.kill()
    wait_for(lambda: not alive(running.pid), "its death")
    wait_for(lambda: isinstance(session.status(place), Lost), "the exec")
    assert session.reap(place.name, grace_s=0.0) == 1


@pytest.mark.parametrize(
    "call", ["link", "fsync", "rename", "unlink", "write", "clone,vfork,fork", "poll,wait4"]
)
def test_killed_at_any_call_it_ran_at_most_once_and_is_never_taken_for_ended(lab: Lab, call: str) -> None:
    if shutil.which("strace") is None:
        if "CI" in os.environ:
            pytest.fail("strace is not installed")
        pytest.skip("strace is not installed")
    outcomes = []
    for when in range(1, 40):
        place = lab.session(["sh", "-c", f"echo ran >> ran-{when}"])
        inject = f"inject={call}:signal=SIGKILL:when={when}"
        killed = lab.start(place, "strace", "-qq", "-o", "/dev/null", "-e", inject).wait(30) != 0
        session.reap(place.name, grace_s=0.0)
        before = session.status(place)
        lab.start(place).wait(30)  # whoever starts it again
        after = session.status(place)
        ran = lab.root / "work" / f"ran-{when}"
        assert not ran.exists() or ran.read_text() == "ran\n"
        match before:
            case NotStarted():
                assert isinstance(after, Ended)
                assert ran.exists()
            case Ended():
                assert before.code == 0
                assert after == before
                assert ran.exists()
            case _:
                assert isinstance(before, Lost)
                assert after == before
        outcomes.append(type(before))
        if not killed:
            break
    assert outcomes[-1] is Ended
    assert len(outcomes) > 1
    assert Lost in outcomes or call == "link"


# --- the terminal -----------------------------------------------------------

COUNTS = """
import sys, time
i = 0
while True:
    i += 1
    print(i, flush=True)
    time.sleep(0.01)
"""
VIEWER = """
import os, sys, time
open(sys.argv[1] + "/viewers", "a").write(f"{os.getpid()}\\n")
i = 0
while not os.path.exists(sys.argv[1] + "/exit.json"):
    i += 1
    print("seen", i, flush=True)
    time.sleep(0.005)
print("last line")
"""


def viewer(place_of: Path) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", VIEWER, str(place_of)]


def grows(path: Path, by: int = 20) -> None:
    size = path.stat().st_size if path.exists() else 0
    wait_for(lambda: path.exists() and path.stat().st_size > size + by, f"{path.name} to grow")


@pytest.mark.parametrize("with_viewer", [False, True])
def test_no_key_in_the_pane_stops_it(lab: Lab, with_viewer: bool) -> None:
    seen = lab.root / "seen"
    seen.mkdir()
    place = lab.session(python(COUNTS), viewer=viewer(seen) if with_viewer else ())
    lab.pane(place)
    events = place / "events.jsonl"
    grows(events)
    if with_viewer:
        numbers(seen / "viewers", 1)
    pid = session.status(place).pid  # type: ignore[union-attr]
    for key in ("C-c", "C-z", "C-\\", "C-d", "C-s", "C-c", "C-z"):
        lab.tmux("send-keys", "-t", "=lab:", key)
        grows(events)
        assert psutil.Process(pid).status() != psutil.STATUS_STOPPED
    # Still stopped by Ctrl-S: the end is recorded all the same.
    lab.tmux("send-keys", "-t", "=lab:", "C-s")
    session.interrupt(place, "enough")
    wait_for(lambda: isinstance(session.status(place), Ended), "the end")
    assert lab.exit_of(place)["reason"] == "interrupted"
    wait_for(lambda: not alive(pid), "the runner to leave")


def test_the_death_of_the_tmux_server_changes_nothing(lab: Lab) -> None:
    seen = lab.root / "seen"
    seen.mkdir()
    place = lab.session(python(COUNTS), viewer=viewer(seen))
    terminal = lab.pane(place)
    grows(place / "events.jsonl")
    numbers(seen / "viewers", 1)
    server = int(lab.tmux("display-message", "-p", "#{pid}"))
    os.kill(server, signal.SIGKILL)
    wait_for(lambda: not alive(server), "the server's death")
    assert terminal.windows() == []
    grows(place / "events.jsonl")
    grows(place / "events.jsonl")
    running = session.status(place)
    assert isinstance(running, Running)
    assert psutil.Process(running.pid).cpu_percent(1.5) < 50  # it does not spin on the lost terminal
    assert len(numbers(seen / "viewers", 1)) == 1  # and starts no viewer on it
    session.interrupt(place, "enough")
    wait_for(lambda: isinstance(session.status(place), Ended), "the end")
    assert lab.exit_of(place)["reason"] == "interrupted"


def test_a_viewer_that_dies_is_started_again(lab: Lab) -> None:
    seen = lab.root / "seen"
    seen.mkdir()
    place = lab.session(python(COUNTS), viewer=viewer(seen))
    lab.pane(place)
    (first,) = numbers(seen / "viewers", 1)
    os.kill(first, signal.SIGKILL)
    second = numbers(seen / "viewers", 2)[1]
    assert alive(second)
    assert os.getpgid(second) == session.status(place).pid  # type: ignore[union-attr]
    session.interrupt(place, "enough")
    wait_for(lambda: isinstance(session.status(place), Ended), "the end")
    assert lab.exit_of(place)["strays"] == 0
    (seen / "exit.json").touch()
    wait_for(lambda: not alive(second), "the viewer to leave")


def test_a_viewer_that_cannot_be_started_is_tried_again_and_does_not_matter(lab: Lab) -> None:
    place = lab.session(["sh", "-c", "sleep 1.5"], viewer=["/nowhere/viewer"])
    lab.pane(place)
    wait_for(lambda: isinstance(session.status(place), Ended), "the end")
    assert lab.exit_of(place)["code"] == 0
    assert (place / "runner.log").read_text().count("the viewer cannot be started") == 2


def test_a_viewer_that_does_not_leave_is_made_to(lab: Lab) -> None:
    place = lab.session(
        ["sleep", "0.3"],
        viewer=python(
            "import os, signal, time\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            f"open({str(lab.root / 'v')!r}, 'w').write(f'{{os.getpid()}}\\n')\n"
            "time.sleep(600)"
        ),
    )
    lab.pane(place)
    (pid,) = numbers(lab.root / "v", 1)
    wait_for(lambda: isinstance(session.status(place), Ended), "the end")
    assert alive(pid)  # the end does not wait for the viewer, which has ten seconds
    wait_for(lambda: not alive(pid), "the viewer's end")
    assert lab.exit_of(place)["strays"] == 0


def test_the_viewer_has_the_terminal_and_a_clean_environment(lab: Lab) -> None:
    out = lab.root / "v"
    code = (
        "import os, json\n"
        "facts = dict(tty=[os.isatty(n) for n in (0, 1, 2)], env=dict(os.environ), cwd=os.getcwd(),\n"
        "             fg=os.tcgetpgrp(0) == os.getpgrp())\n"
        f"open({str(out) + '.tmp'!r}, 'w').write(json.dumps(facts))\n"
        f"os.rename({str(out) + '.tmp'!r}, {str(out)!r})"
    )
    place = lab.session(["sleep", "0.5"], env={"SECRET_KEY": SECRET}, viewer=python(code))
    lab.pane(place)
    wait_for(out.exists, "the viewer")
    facts = json.loads(out.read_text())
    assert facts["tty"] == [True] * 3
    assert facts["fg"]
    assert facts["cwd"] == "/"
    assert facts["env"]["TERM"] == "tmux-256color"
    assert "SECRET_KEY" not in facts["env"]
    assert "MEGAHARNESS_SESSION" not in facts["env"]


def test_a_program_that_cannot_be_started_is_still_shown(lab: Lab) -> None:
    seen = lab.root / "seen"
    seen.mkdir()
    (seen / "exit.json").touch()
    place = lab.session(["mh-no-such-program"], viewer=viewer(seen))
    lab.pane(place)
    numbers(seen / "viewers", 1)
    wait_for(lambda: "last line" in lab.tmux("capture-pane", "-p", "-t", "=lab:"), "the viewer's last line")


def test_two_that_interrupt_at_once_are_one_interrupt(lab: Lab) -> None:
    place = lab.session(["sleep", "600"])
    runner = lab.start(place)
    threads = [threading.Thread(target=session.interrupt, args=(place, f"by {n}")) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runner.wait(20)
    status = session.status(place)
    assert isinstance(status, Cancelled) or (isinstance(status, Ended) and status.reason == "interrupted")
