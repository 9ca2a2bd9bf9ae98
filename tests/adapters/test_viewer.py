"""What a person sees in the pane, and that nothing they press there stops an agent."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters import session
from adapters.fake import Fake
from adapters.harnesses.shell import Shell
from adapters.ports import Harness, Order, Running
from adapters.terminals.tmux import Tmux
from adapters.testing import Bench, wait_for

pytestmark = pytest.mark.slow

VIEWER = [sys.executable, "-P", "-m", "adapters.viewer"]


class Pane:
    """A live session of a harness in a tmux of its own, through a person's eyes and keys."""

    def __init__(self, tmux: Tmux, tmp_path: Path) -> None:
        self.tmux = tmux
        self.tmp_path = tmp_path
        self.bench: Bench | None = None

    def start(self, harness: Harness, brief: str) -> Order:
        self.bench = Bench(harness, self.tmux, self.tmp_path)
        order = self.bench.order(brief.encode())
        self.bench.spawn(order)
        return order

    def call(self, *words: str) -> str:
        run = ["tmux", "-N", "-S", str(self.tmux.socket), *words]
        return subprocess.run(run, capture_output=True, text=True, check=True).stdout

    def press(self, *keys: str) -> None:
        self.call("send-keys", "-t", self.id, *keys)

    def type(self, text: str) -> None:
        self.call("send-keys", "-t", self.id, "-l", text)

    @property
    def id(self) -> str:
        return self.tmux.windows()[0].pane

    @property
    def text(self) -> str:
        """The history and the screen, wrapped lines joined."""
        return self.call("capture-pane", "-p", "-J", "-S", "-", "-t", self.id)

    def shows(self, pattern: str) -> str:
        found = wait_for(lambda: re.search(pattern, self.text), f"{pattern!r} in the pane")
        return found[0]


@pytest.fixture
def pane(tmp_path: Path) -> Iterator[Pane]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    folder = Path(tempfile.mkdtemp(prefix="mh-"))
    tmux = Tmux(folder / "s")
    tmux.ensure()
    pane = Pane(tmux, tmp_path)
    try:
        yield pane
    finally:
        if pane.bench is not None:
            pane.bench.clean_up()
        tmux.kill_server()
        shutil.rmtree(folder)


def fake(*directives: str) -> str:
    return "\n".join(["```fake", *directives, "```", ""])


def is_running(pane: Pane, order: Order) -> bool:
    assert pane.bench is not None
    return isinstance(pane.bench.harness.status(order.session), Running)


# -- in a real pane ---------------------------------------------------------------


def test_the_stream_is_shown_and_its_end(pane: Pane) -> None:
    order = pane.start(
        Fake(), fake("say grüße 漢字", "garbage 300", "err a warning", "huge 3000000", "say over")
    )
    pane.shows(r"ended: exit 0 after \d s")
    shown = pane.text
    assert "grüße 漢字" in shown
    assert "a warning" in shown
    assert "(2,996,000 more characters)" in shown
    assert shown.index("grüße") < shown.index("more characters") < shown.index("over") < shown.index("ended:")
    assert "> " not in shown.splitlines()  # the line of input is gone
    assert order.session.joinpath("runner.log").read_text() == ""


def test_what_is_typed_reaches_the_harness(pane: Pane) -> None:
    order = pane.start(Fake(), fake("say ready", "read", "sleep 60"))
    pane.shows("ready")
    pane.type("grüße von müra")
    pane.press("BSpace", "Left", "BSpace")
    pane.type("i")
    pane.press("Enter")
    pane.shows("got: grüße von mir")
    pane.shows(r"reached it · contract-1-1-\w+ · fake · 0 min · .* · Ctrl-Q leaves")
    (message,) = [each for each in session.delivered(order.session) if each.by == "viewer"]
    assert message.text == "grüße von mir"


def test_no_single_key_stops_an_agent(pane: Pane) -> None:
    order = pane.start(Fake(), fake("lines 100000 0.01"))
    pane.shows("line 5 of")
    for key in ("C-s", "C-z", "C-\\", "C-d", "C-c"):
        pane.press(key)
    pane.shows("press Ctrl-C again to interrupt this track")
    before = (order.session / "events.jsonl").stat().st_size
    wait_for(lambda: (order.session / "events.jsonl").stat().st_size > before + 2000, "more of the stream")
    last = json.loads((order.session / "events.jsonl").read_bytes().splitlines()[-2])["text"]
    pane.shows(last)  # it goes on on the screen too
    assert is_running(pane, order)
    assert not (order.session / "interrupt.json").exists()


def test_ctrl_c_twice_interrupts(pane: Pane) -> None:
    order = pane.start(Fake(), fake("say ready", "sleep 60"))
    pane.shows("ready")
    pane.press("C-c", "C-c")
    pane.shows(r"ended: signal 2 \(interrupted\)")
    assert json.loads((order.session / "interrupt.json").read_bytes())["why"] == "Ctrl-C twice in the pane"


def test_a_harness_that_takes_no_messages_keeps_them(pane: Pane) -> None:
    order = pane.start(Shell(), "```sh\necho ready\nsleep 60\n```\n")
    pane.shows("ready")
    pane.type("use the other table")
    pane.press("Enter")
    pane.shows("kept for the next attempt")
    (kept,) = (order.session / "inbox" / "text").glob("*.json")
    assert json.loads(kept.read_bytes())["text"] == "use the other table"
    assert [message.text for message in session.waiting(order.session)] == ["use the other table"]
    assert not (order.session / "inbox" / kept.stem).exists()
    assert is_running(pane, order)


def test_a_pasted_text_is_one_message(pane: Pane) -> None:
    order = pane.start(Fake(), fake("say ready", "read", "sleep 60"))
    pane.shows("ready")
    pane.call("set-buffer", "one\ntwo")
    pane.call("paste-buffer", "-p", "-r", "-t", pane.id)
    pane.shows("> one⏎two")
    pane.press("Enter")
    pane.shows("got: one")
    assert "one\ntwo" in [message.text for message in session.delivered(order.session)]


def test_an_unsent_text_is_not_lost_from_sight(pane: Pane) -> None:
    order = pane.start(Fake(), fake("say ready", "sleep 60"))
    pane.shows("ready")
    pane.type("half a thought")
    pane.shows("> half a thought")
    session.interrupt(order.session, "from elsewhere")
    pane.shows("not sent: half a thought")


def test_a_killed_viewer_comes_back_and_the_session_goes_on(pane: Pane) -> None:
    order = pane.start(Fake(), fake("say ready", "sleep 60"))
    pane.shows("ready")

    def viewer() -> int | None:
        record = json.loads((order.session / "heartbeat.json").read_bytes())
        children = subprocess.run(
            ["pgrep", "-P", str(pane.tmux.windows()[0].pid)], capture_output=True, text=True
        )
        others = {int(pid) for pid in children.stdout.split()} - {record["harness_pid"]}
        return others.pop() if others else None

    first = wait_for(viewer, "the viewer")
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: (viewer() or first) != first, "another viewer")
    pane.type("still here")
    pane.shows("> still here")
    assert is_running(pane, order)


@pytest.mark.parametrize("size", [(50, 12), (20, 4), (220, 60)])
def test_another_size_shows_the_last_lines_again(pane: Pane, size: tuple[int, int]) -> None:
    pane.start(Fake(), fake("lines 40", "say " + "long " * 60, "say the last", "sleep 60"))
    pane.shows("the last")
    pane.type("abc")
    pane.call("resize-window", "-t", pane.id, "-x", str(size[0]), "-y", str(size[1]))

    def screen() -> list[str]:
        return pane.call("capture-pane", "-p", "-t", pane.id).splitlines()

    def is_drawn() -> bool:
        rows = screen()
        bars = len(rows) == size[1] and rows[-1] == "> abc" and rows[-2].startswith(" contract-1-1-")
        return bars and "the last" in rows[:-2]

    wait_for(is_drawn, "the last lines, the status and the line of input")
    pane.type("d")
    pane.shows("> abcd")


def test_a_hundred_thousand_lines_are_shown_quickly(pane: Pane) -> None:
    pane.start(Fake(), fake("lines 100000", "sleep 60"))
    began = time.monotonic()
    pane.shows("line 100000 of 100000")
    assert time.monotonic() - began < 60  # it hangs, or it does not: no measure of speed
    pane.type("quick")
    pane.shows("> quick")


# -- on a terminal of our own, with a session that is only files ---------------------


def session_of_files(tmp_path: Path, events: bytes, harness: str = "fake", **exit_: object) -> Path:
    directory = tmp_path / "track-1-0123456789ab"
    directory.mkdir()
    launch = {"v": 1, "session_id": directory.name, "harness": harness, "model": None, "stdin": "null"}
    (directory / "launch.json").write_text(json.dumps(launch))
    (directory / "events.jsonl").write_bytes(events)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    started = {
        "v": 1,
        "by": "runner",
        "pid": 1,
        "start_ticks": 1,
        "boot_id": boot,
        "at": "2026-12-01T14:06:21.123Z",
    }
    (directory / "started.json").write_text(json.dumps(started))
    if exit_:
        end = {"v": 1, "code": 0, "signal": None, "reason": "exited", "wall_s": 12.3, **exit_}
        (directory / "exit.json").write_text(json.dumps(end))
    return directory


def plainly(directory: Path, *how: str) -> str:
    run = subprocess.run(
        [*VIEWER, "--plain", *how, str(directory)], capture_output=True, timeout=60, check=True
    )
    assert run.stderr == b""
    return run.stdout.decode()


@contextlib.contextmanager
def held(directory: Path) -> Iterator[Path]:
    """As if a runner lived: the session's lock is held."""
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield directory


def test_plain_prints_the_stream_and_its_end(tmp_path: Path) -> None:
    events = b'{"type": "say", "text": "gr\\u00fc\\u00dfe"}\nno json \x1b[31mred\xff\nno newline'
    assert plainly(session_of_files(tmp_path, events, code=7)) == (
        "grüße\nno json red\ufffd\nno newline\nended: exit 7 after 12 s\n"
    )


def test_a_harness_that_is_not_installed_any_more_is_shown_as_text(tmp_path: Path) -> None:
    directory = session_of_files(tmp_path, b'{"type": "say"}\n', "gone-since", code=0)
    assert plainly(directory).startswith('{"type": "say"}\n')


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"code": None, "signal": 9}, "ended: signal 9 after 12 s"),
        (
            {"code": None, "signal": 15, "reason": "wall", "wall_s": 7200},
            "ended: signal 15 (out of time) after 120 min",
        ),
        (
            {"code": None, "reason": "failed", "error": "no such file"},
            "ended: it could not be started: no such file",
        ),
        ({}, "ended: nobody knows how (its runner is gone and left no exit.json)"),
    ],
)
def test_each_end_is_told(tmp_path: Path, record: dict[str, object], said: str) -> None:
    assert plainly(session_of_files(tmp_path, b"", **record)) == said + "\n"


def test_plain_follows_a_live_session(tmp_path: Path, pane: Pane) -> None:
    order = pane.start(Fake(), fake("say one", "sleep 0.5", "say two"))
    assert plainly(order.session).splitlines()[:2] == ["one", "two"]


def test_plain_so_far_does_not_wait(tmp_path: Path) -> None:
    with held(session_of_files(tmp_path, b"line\n")) as directory:
        assert plainly(directory, "--so-far") == "line\n"
        assert isinstance(session.status(directory), Running)


def test_plain_is_quiet_when_nobody_reads(tmp_path: Path) -> None:
    directory = session_of_files(tmp_path, b"line\n" * 100_000, code=0)
    command = " ".join([*VIEWER, "--plain", str(directory)])
    run = subprocess.run(
        ["bash", "-c", f"{command} | head -n 1; exit ${{PIPESTATUS[0]}}"], capture_output=True, timeout=60
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, b"line\n", b"")


def test_no_directory_is_told(tmp_path: Path) -> None:
    run = subprocess.run([*VIEWER, str(tmp_path / "none")], capture_output=True, text=True, timeout=60)
    assert run.returncode == 2
    assert "SESSION_DIR" in run.stderr


def test_a_large_stream_takes_little_memory(tmp_path: Path) -> None:
    directory = session_of_files(
        tmp_path, b'{"type": "say", "text": "%s"}\n' % (b"x" * 200) * 300_000, code=0
    )
    with (directory / "events.jsonl").open("ab") as file:
        file.write(b"y" * 50_000_000 + b"\nlast\n")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))

    run = [*VIEWER, "--plain", str(directory)]
    with subprocess.Popen(run, stdout=subprocess.PIPE, preexec_fn=limit) as process:
        assert process.stdout is not None
        lines = sum(1 for _ in process.stdout)
    assert process.returncode == 0
    assert lines == 300_003


def test_the_terminal_is_given_back_and_the_end_comes_by_itself(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    try:
        with held(session_of_files(tmp_path, b"line\n")) as directory:
            viewer = subprocess.Popen([*VIEWER, str(directory)], stdin=theirs, stdout=theirs, stderr=theirs)
            wait_for(lambda: termios.tcgetattr(theirs) != before, "raw mode")
            flags = termios.tcgetattr(theirs)
            assert not flags[0] & termios.IXON
            assert not flags[3] & (termios.ISIG | termios.ICANON | termios.ECHO)
            end = {"v": 1, "code": 0, "signal": None, "reason": "exited", "wall_s": 12}
            (directory / "exit.tmp").write_text(json.dumps(end))
            (directory / "exit.tmp").rename(directory / "exit.json")
        os.truncate(directory / "lock", 0)  # as the runner does when it has let go of it
        assert viewer.wait(20.0) == 0
        assert termios.tcgetattr(theirs) == before
        shown = os.read(ours, 1 << 16).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert "ended: exit 0 after 12 s" in shown


def test_it_ends_with_its_terminal(tmp_path: Path) -> None:
    with held(session_of_files(tmp_path, b"line\n")) as directory:
        ours, theirs = pty.openpty()
        null = subprocess.DEVNULL
        viewer = subprocess.Popen([*VIEWER, str(directory)], stdin=theirs, stdout=theirs, stderr=null)
        os.close(theirs)
        shown = b""
        while b"line" not in shown:
            shown += os.read(ours, 1 << 16)
        os.close(ours)
        assert viewer.wait(5.0) == 0
