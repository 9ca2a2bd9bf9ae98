"""A session's directory as its readers and its enders see it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from adapters import session
from adapters.errors import TerminalError
from adapters.ports import Cancelled, Ended, Lost, NotStarted, Order, Running, Window
from adapters.testing import wait_for

EXIT = {
    "v": 1,
    "code": 0,
    "signal": None,
    "reason": "exited",
    "error": "",
    "started_at": "2026-12-01T14:06:21.123Z",
    "ended_at": "2026-12-01T14:06:22.123Z",
    "wall_s": 1.0,
    "bytes": 12,
    "strays": 1,
}


class Publishing:
    """A publish that notes what it wrote, and can fail at the n-th file."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.written: list[str] = []
        self.fails_at = fails_at

    def __call__(self, path: Path, data: bytes, *, mode: int = 0o600) -> None:
        if len(self.written) == self.fails_at:
            raise OSError(28, "No space left on device")
        self.written.append(path.name)
        temp = path.with_name(f".{path.name}.tmp")
        temp.touch(mode)
        temp.write_bytes(data)
        temp.rename(path)


class NoTerminal:
    """Notes what is opened, and starts nothing."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, str, list[str]]] = []

    def ensure(self) -> None:
        raise TerminalError("there is none")

    def open(self, track: str, name: str, argv: Sequence[str]) -> None:
        self.opened.append((track, name, list(argv)))

    def windows(self) -> list[Window]:
        return []

    def close(self, track: str, name: str) -> None:
        raise TerminalError("there is none")

    def attach_argv(self, track: str, name: str | None = None) -> list[str]:
        return []


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / f"lab-1-{os.urandom(6).hex()}"
    place.mkdir()
    (place / "brief.md").write_bytes(b"the brief\n")
    yield place
    session.force(place)


def order_for(place: Path, **more: Any) -> Order:
    return Order(
        place, place.name, "lab", 1, "a title", place.parent, env={"PATH": os.environ["PATH"]}, **more
    )


def run(place: Path, argv: list[str]) -> subprocess.Popen[bytes]:
    launch = session.Launch(argv=argv, interrupt=(("TERM", 0.3),))
    session.write_launch(order_for(place), launch, Publishing())
    return subprocess.Popen(session.runner_argv(place), stdin=subprocess.DEVNULL, start_new_session=True)


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def started(place: Path, **facts: Any) -> None:
    record = {"v": 1, "by": "runner", "pid": 1, "start_ticks": 1, "boot_id": boot_id(), "at": "x", **facts}
    (place / "started.json").write_text(json.dumps(record))


@contextlib.contextmanager
def held(place: Path) -> Iterator[None]:
    """The lock as a runner has it."""
    with open(place / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# --- status -----------------------------------------------------------------


def test_a_directory_without_started_json_is_not_started(place: Path) -> None:
    assert session.status(place) == NotStarted()
    session.write_launch(order_for(place), session.Launch(argv=["true"]), Publishing())
    (place / "place.json").write_text("{}")
    assert session.status(place) == NotStarted()
    # A runner on its way to the gate; another one beside it would do no harm.
    with held(place):
        assert session.status(place) == NotStarted()


def test_an_end_that_was_recorded_is_the_end(place: Path) -> None:
    started(place, boot_id="another")
    (place / "exit.json").write_text(json.dumps(EXIT))
    end = Ended(0, None, "exited", "", "2026-12-01T14:06:21.123Z", "2026-12-01T14:06:22.123Z", 1.0, 12, 1)
    assert session.status(place) == end
    (place / "started.json").unlink()
    assert session.status(place) == end


def test_an_end_counts_only_once_the_runner_let_go(place: Path) -> None:
    """The agent can write an exit.json into its own session's directory."""
    started(place)
    (place / "exit.json").write_text(json.dumps(EXIT))
    with held(place):
        assert isinstance(session.status(place), Running)
    assert isinstance(session.status(place), Ended)


@pytest.mark.parametrize("trace", session.TRACES)
def test_without_started_json_the_traces_of_a_run_speak(place: Path, trace: str) -> None:
    terminal, publish = NoTerminal(), Publishing()
    (place / trace).touch()
    with held(place):
        assert session.status(place) == Running(pid=0, started_at="")
    assert session.status(place) == Lost("started.json is gone, and it has run")
    session.start(order_for(place), session.Launch(argv=["true"]), terminal, publish)
    assert (terminal.opened, publish.written) == ([], [])


def test_an_environment_that_was_taken_is_a_trace(place: Path) -> None:
    session.write_launch(order_for(place), session.Launch(argv=["true"]), Publishing())
    (place / "env.json").unlink()
    assert session.status(place) == Lost("started.json is gone, and it has run")


def test_a_cancellation_of_what_has_run_is_not_believed(place: Path) -> None:
    session.cancel(place, "forged")
    (place / "events.jsonl").touch()
    with held(place):
        assert isinstance(session.status(place), Running)
    assert isinstance(session.status(place), Lost)


@pytest.mark.parametrize("name", ["started.json", "exit.json", "heartbeat.json", "events.jsonl", "lock"])
@pytest.mark.parametrize("kind", ["directory", "fifo", "link", "endless", "huge"])
@pytest.mark.parametrize("begun", [True, False])
def test_nothing_in_the_place_of_a_file_makes_it_raise_or_wait(
    place: Path, name: str, kind: str, begun: bool
) -> None:
    if begun:
        started(place)
    path = place / name
    path.unlink(missing_ok=True)
    match kind:
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "link":
            (place.parent / "forged").write_text(json.dumps(EXIT))
            path.symlink_to(place.parent / "forged")
        case "endless":
            path.symlink_to("/dev/zero")
        case "huge":
            path.touch()
            os.truncate(path, 1 << 40)
    expected = Lost if begun or name != "lock" else NotStarted
    assert isinstance(session.status(place), expected)
    session.interrupt(place, "enough")
    assert session.force(place) == 0


@pytest.mark.parametrize("wall", ["1" + "0" * 400, "Infinity", "NaN", "-1", '"long"', "1e999"])
def test_an_odd_duration_is_none(place: Path, wall: str) -> None:
    started(place)
    (place / "exit.json").write_text(json.dumps(EXIT).replace('"wall_s": 1.0', f'"wall_s": {wall}'))
    ended = session.status(place)
    assert isinstance(ended, Ended)
    assert ended.wall_s >= 0.0
    assert ended.wall_s < float("inf")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 200,
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"v": 1}',
        json.dumps({**EXIT, "reason": "gave up"}).encode(),
        json.dumps({**EXIT, "code": "0"}).encode(),
        json.dumps({**EXIT, "code": True}).encode(),
        json.dumps({**EXIT, "code": None}).encode(),
        json.dumps({**EXIT, "signal": 9}).encode(),
    ],
)
def test_an_end_that_cannot_be_read_is_lost_with_a_reason(place: Path, content: bytes) -> None:
    started(place)
    (place / "exit.json").write_bytes(content)
    assert session.status(place) == Lost("exit.json is there and cannot be read")


def test_odd_values_beside_the_end_do_not_hide_it(place: Path) -> None:
    started(place)
    (place / "exit.json").write_text(json.dumps({**EXIT, "wall_s": "long", "bytes": None, "strays": 1.5}))
    ended = session.status(place)
    assert isinstance(ended, Ended)
    assert (ended.code, ended.wall_s, ended.bytes, ended.strays) == (0, 0.0, 0, 0)


def test_free_lock_and_no_end_is_lost(place: Path) -> None:
    started(place)
    assert isinstance(session.status(place), Lost)  # there is not even a lock
    (place / "lock").touch()
    assert session.status(place) == Lost("its runner is gone and left no exit.json")


def test_another_boot_is_lost_and_says_so(place: Path) -> None:
    started(place, boot_id="another")
    status = session.status(place)
    assert isinstance(status, Lost)
    assert status.other_boot


@pytest.mark.parametrize(
    "facts", [{"boot_id": "garbled"}, {"pid": None}, {"pid": "x", "at": ["x"]}, {"by": 7}]
)
def test_a_garbled_started_json_does_not_outweigh_the_lock(place: Path, facts: dict[str, Any]) -> None:
    started(place, **facts)
    with held(place):
        assert isinstance(session.status(place), Running)


@pytest.mark.parametrize("damage", ["gone", "replaced", "directory", "fifo", "link"])
@pytest.mark.parametrize("known", [True, False])
def test_a_runner_whose_lock_was_taken_away_is_still_running(place: Path, damage: str, known: bool) -> None:
    runner = run(place, ["sleep", "600"])
    wait_for(lambda: b'"running"' in content(place / "heartbeat.json"), "the harness")
    if not known:
        (place / "started.json").unlink()
    (place / "lock").unlink()
    match damage:
        case "replaced":
            (place / "lock").touch()
        case "directory":
            (place / "lock").mkdir()
        case "fifo":
            os.mkfifo(place / "lock")
        case "link":
            (place / "lock").symlink_to("/dev/null")
    assert isinstance(session.status(place), Running)
    session.interrupt(place, "enough")
    runner.wait(20)
    ended = session.status(place)
    assert isinstance(ended, Ended)
    assert ended.reason == "interrupted"


def test_a_runner_without_started_json_is_forced(place: Path) -> None:
    runner = run(place, ["sleep", "600"])
    wait_for(lambda: b'"running"' in content(place / "heartbeat.json"), "the harness")
    (harness,) = psutil.Process(runner.pid).children()
    (place / "started.json").unlink()
    # Nor is the name of another session believed.
    (place / "launch.json").write_text('{"session_id": "lab-1-another"}')
    os.kill(runner.pid, signal.SIGSTOP)
    assert session.force(place) == 1
    assert runner.wait(20) == -signal.SIGKILL
    assert not harness.is_running() or harness.status() == "zombie"
    assert session.status(place) == Lost("started.json is gone, and it has run")


def content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\0\0"])
def test_a_started_json_that_cannot_be_read_never_raises(place: Path, content: bytes) -> None:
    (place / "started.json").write_bytes(content)
    (place / "lock").touch()
    assert isinstance(session.status(place), Lost)
    session.interrupt(place, "enough")
    with open(place / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert isinstance(session.status(place), Running)
        session.interrupt(place, "enough")


def test_looking_keeps_nothing_and_two_that_look_do_not_see_each_other(place: Path) -> None:
    started(place)
    (place / "lock").touch()
    before = len(os.listdir("/proc/self/fd"))
    with open(place / "lock") as another_that_looks:
        fcntl.flock(another_that_looks, fcntl.LOCK_SH | fcntl.LOCK_NB)
        assert isinstance(session.status(place), Lost)
    assert len(os.listdir("/proc/self/fd")) == before
    with open(place / "lock") as runner:
        fcntl.flock(runner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert isinstance(session.status(place), Running)


def test_running_is_seen_by_another_process(place: Path) -> None:
    runner = run(place, ["sleep", "600"])
    wait_for(lambda: isinstance(session.status(place), Running), "the start")
    code = (
        "import sys, pathlib; from adapters import session; print(session.status(pathlib.Path(sys.argv[1])))"
    )
    root = Path(session.__file__).parents[1]
    said = subprocess.run(
        [sys.executable, "-c", code, place], cwd=root, capture_output=True, text=True, check=True
    ).stdout
    assert f"Running(pid={runner.pid}," in said
    session.interrupt(place, "enough")
    runner.wait(20)


# --- ending it --------------------------------------------------------------


def test_the_gate_is_closed_once(place: Path) -> None:
    assert session.cancel(place, "first")
    assert not session.cancel(place, "second")
    assert session.status(place) == Cancelled("first")
    assert sorted(os.listdir(place)) == ["brief.md", "started.json"]


def test_a_recycled_pid_is_not_signalled(place: Path) -> None:
    bystander = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        with open(place / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            started(place, pid=bystander.pid, start_ticks=12345)
            assert isinstance(session.status(place), Running)
            session.interrupt(place, "enough")
            session.force(place)
            ticks = int(Path(f"/proc/{bystander.pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
            started(place, pid=bystander.pid, start_ticks=ticks, boot_id="another")
            session.interrupt(place, "enough")
            session.force(place)
        time.sleep(0.05)  # nothing to wait for: no signal must come
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.parametrize("pid", [0, 1, -1, True, "7", None, 2**40, 1.5])
def test_a_nonsense_pid_is_not_signalled(place: Path, pid: Any) -> None:
    started(place, pid=pid)
    with open(place / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        session.interrupt(place, "enough")
    assert session.force(place) == 0


def test_interrupting_what_is_over_changes_nothing(place: Path) -> None:
    started(place)
    (place / "exit.json").write_text(json.dumps(EXIT))
    session.interrupt(place, "late")
    assert not (place / "interrupt.json").exists()


def test_interrupt_races_with_the_start(place: Path) -> None:
    """Whoever wins the gate: it ends, and either nothing ran or it was interrupted."""
    outcomes = set()
    for number in range(20):
        here = place / f"race-{number}"
        here.mkdir()
        runner = run(here, ["sleep", "600"])
        time.sleep(number * 0.003)
        session.interrupt(here, "enough")
        runner.wait(20)
        status = session.status(here)
        assert isinstance(status, Cancelled | Ended)
        assert not isinstance(status, Ended) or status.reason == "interrupted"
        outcomes.add(type(status))
    assert outcomes == {Cancelled, Ended}


def test_a_stopped_runner_is_forced(place: Path) -> None:
    runner = run(place, ["sh", "-c", "sleep 600 & echo x > ready; wait"])
    wait_for((place.parent / "ready").exists, "the harness")
    children = psutil.Process(runner.pid).children(recursive=True)
    os.kill(runner.pid, signal.SIGSTOP)
    session.interrupt(place, "enough")
    assert isinstance(session.status(place), Running)
    assert session.force(place) == len(children) == 2
    assert isinstance(session.status(place), Lost)
    runner.wait(20)
    assert not [child for child in children if child.is_running() and child.status() != "zombie"]
    assert session.force(place) == 0


def test_reap_ends_its_own_session_alone(tmp_path: Path) -> None:
    def start(marker: str, code: str = "import time; time.sleep(600)") -> subprocess.Popen[bytes]:
        env = {"A": "b", session.MARKER: marker, "Z": f"x{session.MARKER}=lab-1-aaa"}
        return subprocess.Popen([sys.executable, "-I", "-S", "-c", code], env=env, start_new_session=True)

    ready = tmp_path / "ready"
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"open({str(ready)!r}, 'w'); time.sleep(600)"
    )
    ours = [start("lab-1-aaa"), start("lab-1-aaa", stubborn)]
    others = [start("lab-1-aaab"), start("lab-1-aa"), start("xlab-1-aaa"), start("")]
    try:
        wait_for(ready.exists, "the stubborn one")
        assert session.reap("lab-1-aaa", grace_s=0.2) == 2
        assert [process.wait(5) for process in ours] == [-signal.SIGTERM, -signal.SIGKILL]
        assert [process.poll() for process in others] == [None] * 4
    finally:
        for process in ours + others:
            process.kill()
            process.wait()


def test_reap_never_ends_itself_or_what_is_above_it(tmp_path: Path) -> None:
    root = Path(session.__file__).parents[1]
    inner = "from adapters import session; print(session.reap('lab-1-self', grace_s=0.1))"
    outer = (
        "import subprocess, sys; bystander = subprocess.Popen(['sleep', '600']);"
        f"print(subprocess.run([sys.executable, '-c', {inner!r}], capture_output=True, text=True, check=True).stdout);"
        "print(bystander.wait())"
    )
    env = {**os.environ, session.MARKER: "lab-1-self"}
    done = subprocess.run(
        [sys.executable, "-c", outer], cwd=root, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "-15"]


# --- start ------------------------------------------------------------------


def test_start_opens_one_window_with_the_runner(place: Path) -> None:
    terminal, publish = NoTerminal(), Publishing()
    launch = session.Launch(argv=["true"], harness="fake", harness_version="1", viewer=["v"], env={"B": "c"})
    session.start(order_for(place, model="m", wall_s=5.0, wake=Path("/w")), launch, terminal, publish)
    assert terminal.opened == [("lab", place.name, session.runner_argv(place))]
    assert publish.written == ["env.json", "launch.json"]
    assert session.read_json(place / "launch.json") == {
        "v": 1,
        "session_id": place.name,
        "track_id": "lab",
        "attempt": 1,
        "title": "a title",
        "harness": "fake",
        "harness_version": "1",
        "model": "m",
        "argv": ["true"],
        "cwd": str(place.parent),
        "env_names": ["B", "MEGAHARNESS_SESSION", "PATH"],
        "stdin": "null",
        "turn_end": None,
        "stdin_idle_s": 2.0,
        "wall_s": 5.0,
        "interrupt": [["INT", 5.0], ["TERM", 5.0]],
        "wake": "/w",
        "viewer": ["v"],
        "max_bytes": 1 << 30,
        "instruction": None,
    }
    assert session.read_json(place / "env.json") == {"PATH": os.environ["PATH"], "B": "c"}
    assert (place / "env.json").stat().st_mode & 0o777 == 0o600


def test_a_session_that_was_started_is_not_touched(place: Path) -> None:
    terminal, publish = NoTerminal(), Publishing()
    session.cancel(place, "no")
    session.start(order_for(place), session.Launch(argv=["true"]), terminal, publish)
    assert (terminal.opened, publish.written) == ([], [])


@pytest.mark.parametrize("crash", range(4))
def test_start_is_repeated_after_a_crash_at_any_file(place: Path, crash: int) -> None:
    terminal = NoTerminal()
    launch = session.Launch(argv=["true"], stdin="pipe", first_message=b"brief")
    with contextlib.suppress(OSError):
        session.start(order_for(place), launch, terminal, Publishing(fails_at=crash))
    session.start(order_for(place), launch, terminal, Publishing())
    assert terminal.opened[-1] == ("lab", place.name, session.runner_argv(place))
    assert [each.name for each in session.waiting(place)] == [session.FIRST_MESSAGE]
    assert (place / "env.json").exists()


def test_the_brief_is_not_put_into_the_inbox_twice(place: Path) -> None:
    launch = session.Launch(argv=["true"], stdin="pipe", first_message=b"brief")
    session.write_launch(order_for(place), launch, Publishing())
    (place / "inbox" / session.FIRST_MESSAGE).rename(place / "inbox" / "delivered" / session.FIRST_MESSAGE)
    session.write_launch(order_for(place), launch, Publishing())
    assert not (place / "inbox" / session.FIRST_MESSAGE).exists()


def test_an_environment_that_came_too_late_is_removed(place: Path) -> None:
    class Slow(Publishing):
        def __call__(self, path: Path, data: bytes, *, mode: int = 0o600) -> None:
            if path.name == "env.json":
                session.cancel(place, "meanwhile")
            super().__call__(path, data, mode=mode)

    session.write_launch(order_for(place), session.Launch(argv=["true"]), Slow())
    assert not (place / "env.json").exists()


# --- messages ---------------------------------------------------------------


def test_messages_sort_by_arrival_even_when_the_clock_goes_back(place: Path) -> None:
    first = session.message(place, b"1\n", "one", by="viewer")
    future = f"{2**62:020d}-00000000"
    os.rename(place / "inbox" / first, place / "inbox" / "delivered" / future)
    second = session.message(place, b"2\n", "two", by="viewer")
    third = session.message(place, b"3\n", "three\n'\"", by="daemon")
    assert first < future < second < third
    assert [(each.text, each.by) for each in session.waiting(place) if each.name > future] == [
        ("two", "viewer"),
        ("three\n'\"", "daemon"),
    ]
    assert [each.name for each in session.delivered(place)] == [future]
    assert (place / "inbox" / second).read_bytes() == b"2\n"
    assert not [name for name in os.listdir(place / "inbox") if name.startswith(".")]


def test_a_message_for_a_harness_that_cannot_be_steered_waits(place: Path) -> None:
    name = session.message(place, None, "later", by="viewer")
    assert [(each.name, each.text) for each in session.waiting(place)] == [(name, "later")]
    assert not (place / "inbox" / name).exists()


def test_a_session_without_an_inbox_has_no_messages(place: Path) -> None:
    assert session.waiting(place) == session.delivered(place) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"1", b"[" * 100_000])
def test_json_that_is_torn_or_something_else_is_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    assert session.read_json(path) is None
    path.write_bytes(content)
    assert session.read_json(path) is None
    assert session.read_json(tmp_path) is None


def test_an_inbox_that_is_no_directory_has_no_messages(place: Path) -> None:
    (place / "inbox").touch()
    assert session.waiting(place) == session.delivered(place) == []
