"""The contract of the harness port as tests, for our adapters and for yours.

    class TestMine(HarnessContract):
        def make_harness(self):
            return Mine()

        def brief_succeed(self): ...

Inherit in a pytest test class and say how your harness is brought to do what
each test needs: the ``brief_*`` methods return a brief, bytes. What cannot be
produced is declared in `cannot`, with a reason, and is skipped with it. The
tests run real sessions: the runner, and a real tmux on a socket of its own
as well as `DirectTerminal`, which needs no tmux.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest

from adapters import session
from adapters.errors import AdapterError, HarnessMissing, TerminalError
from adapters.ports import (
    Cancelled,
    Collected,
    Ended,
    Harness,
    NotStarted,
    Order,
    Running,
    Status,
    Terminal,
    Window,
)
from adapters.terminals.tmux import Tmux

MARKER = "MEGAHARNESS_SESSION"
SECRET = "sk-contract-5f0c1e7a9b"

T = TypeVar("T")


def wait_for(condition: Callable[[], T | None], what: str, seconds: float = 60.0) -> T:
    """The first value of `condition` that is true. Fails with `what` when there was none in time."""
    until = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > until:
            pytest.fail(f"waited {seconds:g} s for {what}")
        time.sleep(0.01)


def publish(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """A `Publish` for tests: temp, fsync, rename, fsync of the directory."""
    fd, temp = tempfile.mkstemp(dir=path.parent, prefix=".publish-")
    with os.fdopen(fd, "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temp, path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class DirectTerminal:
    """A terminal without a screen: each window is a detached process. For tests and machines without tmux."""

    def __init__(self) -> None:
        self._children: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def ensure(self) -> None:
        """Nothing to start."""

    def open(self, track: str, name: str, argv: Sequence[str]) -> None:
        with self._lock:
            if (track, name) in self._children:
                return
            # As clean as tmux's: nothing of the starter's environment may reach a session.
            env = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
            null = subprocess.DEVNULL
            self._children[track, name] = subprocess.Popen(
                argv, stdin=null, stdout=null, stderr=null, env=env, cwd="/", start_new_session=True
            )

    def windows(self) -> list[Window]:
        with self._lock:
            return [
                Window(track, name, f"%{child.pid}", child.pid, child.poll() is not None, watched=False)
                for (track, name), child in self._children.items()
            ]

    def close(self, track: str, name: str) -> None:
        """What closing a pane does: SIGHUP to the process that was started in it."""
        with self._lock:
            child = self._children.pop((track, name), None)
        if child is not None and child.poll() is None:
            child.send_signal(signal.SIGHUP)

    def attach_argv(self, track: str, name: str | None = None) -> list[str]:
        raise TerminalError("a DirectTerminal cannot be attached to", "use tmux to look at a session")


@dataclass
class Bench:
    """What one test of the contract works with."""

    harness: Harness
    terminal: Terminal
    root: Path
    orders: list[Order] = field(default_factory=list)

    def order(self, brief: bytes, *, model: str | None = None) -> Order:
        """A session directory with this brief and an order for it; nothing is started."""
        number = len(self.orders) + 1
        track = f"contract-{number}"
        session_id = f"{track}-1-{os.urandom(6).hex()}"
        directory = self.root / "sessions" / session_id
        directory.mkdir(parents=True, mode=0o700)
        (directory / "brief.md").write_bytes(brief)
        workdir = self.root / f"work {number} ü"
        workdir.mkdir()
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.root),
            "LANG": "C.UTF-8",
            "CONTRACT_KEY": SECRET,
            "CONTRACT_ODD": "ü \n'\"$(touch x)",
        }
        title = "A title; #(touch x)"
        order = Order(directory, session_id, track, 1, title, workdir, model, env, wall_s=120.0)
        self.orders.append(order)
        return order

    def spawn(self, order: Order) -> None:
        self.harness.spawn(order, self.terminal, publish)

    def run(self, brief: bytes) -> tuple[Order, Ended]:
        """A session from its start to its end."""
        order = self.order(brief)
        self.spawn(order)
        return order, self.ended(order)

    def ended(self, order: Order) -> Ended:
        def look() -> Ended | None:
            status = self.harness.status(order.session)
            return status if isinstance(status, Ended) else None

        return wait_for(look, f"the end of {order.session_id}")

    def processes(self, order: Order) -> list[int]:
        """The living processes with this session's marker."""
        return marked(order.session_id)

    def clean_up(self) -> None:
        """End what a failed test left running; only processes with a marker of ours."""
        for order in self.orders:
            session.interrupt(order.session, "the test is over")
            session.force(order.session)


def marked(session_id: str) -> list[int]:
    """The living processes that have the marker of this session in their environment."""
    needle = f"{MARKER}={session_id}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if needle in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def session_ids(pids: Sequence[int]) -> set[int]:
    """The sessions (setsid) that these processes are in; one that ended meanwhile is in none."""
    found = set()
    for pid in pids:
        try:
            found.add(os.getsid(pid))
        except ProcessLookupError:
            continue
    return found


VERBATIM = {
    "umlauts": "Zeile mit Umlaut ä, ß und 漢字 🦀\n".encode(),
    "newlines": b"one\n\n\n  two\n\tthree\r\nfour\n",
    "quotes": b'it\'s "quoted" and \\"escaped\\" and \'\'\' and """ and `ticks`\n',
    "substitution": b"$(touch x) `touch x` ${HOME} ; touch x & #(touch x) %s {brief} {{x}} !!\n",
    "leading dash": b"- [ ] do the thing\n--version should print 1.2\n",
    "one megabyte": b"- 0123456789 abcdef ghijkl mnop\n" * (1 << 15),
}


class HarnessContract:
    """What every harness must keep. See the module for how to use it."""

    cannot: ClassVar[Mapping[str, str]] = {}
    """What it cannot be brought to do and why; keys: succeed, exit_7, signal, tree, verbatim, missing."""

    terminals: ClassVar[Sequence[str]] = ("tmux", "direct")
    tree_size: ClassVar[int] = 4
    """How many processes with the marker `brief_tree` has at least, the harness itself included."""

    # -- what an adapter's author gives --------------------------------------

    def make_harness(self, tmp_path: Path) -> Harness:
        """The harness under test; it can be pickled, as another process gets it that way."""
        raise NotImplementedError

    def make_missing(self, tmp_path: Path) -> Harness:
        """The same harness on a machine where its program is not installed."""
        raise NotImplementedError

    def brief_succeed(self) -> bytes:
        """It appends one line to the file ``ran`` in the work directory and answers ``done``."""
        raise NotImplementedError

    def brief_exit_7(self) -> bytes:
        """It exits with 7."""
        raise NotImplementedError

    def brief_signal(self) -> bytes:
        """It dies by SIGKILL."""
        raise NotImplementedError

    def brief_tree(self) -> bytes:
        """It starts children, with setsid and with nohup too, and runs for minutes."""
        raise NotImplementedError

    def brief_verbatim(self, text: bytes) -> bytes:
        """It contains `text`, and makes the harness write what it got to ``seen`` in the work directory."""
        raise NotImplementedError

    def brief_standing(self) -> bytes:
        """It makes the harness write the standing instructions that it has to ``instructed`` in the work directory,
        and the names of the skills that it finds, a line each, to ``skilled``.

        Only for a harness that says it takes them (`Capabilities.instructions`, `Capabilities.skills`).
        """
        raise NotImplementedError

    def extra_env(self, order: Order) -> Mapping[str, str]:
        """What the adapter adds to the environment."""
        return {}

    # -- fixtures -------------------------------------------------------------

    @pytest.fixture(params=["tmux", "direct"])
    def terminal(self, request: pytest.FixtureRequest) -> Iterator[Terminal]:
        if request.param not in self.terminals:
            pytest.skip(f"this class runs on {', '.join(self.terminals)}")
        if request.param == "direct":
            yield DirectTerminal()
            return
        if shutil.which("tmux") is None:
            pytest.skip("tmux is not installed")
        # Not in tmp_path: the path of a socket has at most 107 bytes.
        folder = Path(tempfile.mkdtemp(prefix="mh-"))
        tmux = Tmux(folder / "s")
        try:
            tmux.ensure()
            yield tmux
        finally:
            tmux.kill_server()
            shutil.rmtree(folder, ignore_errors=True)

    @pytest.fixture
    def bench(self, terminal: Terminal, tmp_path: Path) -> Iterator[Bench]:
        bench = Bench(self.make_harness(tmp_path), terminal, tmp_path)
        yield bench
        bench.clean_up()

    def _needs(self, what: str) -> None:
        if what in self.cannot:
            pytest.skip(self.cannot[what])

    # -- how it ends ----------------------------------------------------------

    def test_success_is_told(self, bench: Bench) -> None:
        self._needs("succeed")
        order, ended = bench.run(self.brief_succeed())
        assert (ended.code, ended.signal, ended.reason) == (0, None, "exited")
        collected = bench.harness.collect(order.session)
        assert collected.termination.kind == "clean"
        assert "done" in (collected.answer or "")
        assert (order.workdir / "ran").read_text().count("\n") == 1

    def test_exit_code_is_told(self, bench: Bench) -> None:
        self._needs("exit_7")
        order, ended = bench.run(self.brief_exit_7())
        assert (ended.code, ended.signal, ended.reason) == (7, None, "exited")
        assert bench.harness.collect(order.session).termination.kind != "clean"

    def test_death_by_signal_is_told(self, bench: Bench) -> None:
        self._needs("signal")
        order, ended = bench.run(self.brief_signal())
        assert (ended.code, ended.signal, ended.reason) == (None, signal.SIGKILL, "exited")
        assert bench.harness.collect(order.session).termination.kind != "clean"

    # -- the brief --------------------------------------------------------------

    @pytest.mark.parametrize("text", VERBATIM)
    def test_brief_arrives_verbatim(self, bench: Bench, text: str) -> None:
        self.check_verbatim(bench, VERBATIM[text])

    def check_verbatim(self, bench: Bench, text: bytes) -> None:
        """The harness sees these bytes, and nothing in them was executed on the way."""
        self._needs("verbatim")
        brief = self.brief_verbatim(text)
        order, ended = bench.run(brief)
        assert ended.code == 0, (order.session / "stderr.log").read_text()
        seen = (order.workdir / "seen").read_bytes()
        assert text in seen, f"{len(seen)} bytes arrived: {seen[:200]!r}"
        assert order.brief.read_bytes() == brief
        assert not (order.workdir / "x").exists()
        assert not (order.session / "x").exists()

    def test_it_takes_what_it_says_that_it_takes(self, bench: Bench) -> None:
        """Instructions and skills arrive apart from the brief, and only where the adapter says so."""
        can = bench.harness.capabilities()
        if not (can.instructions or can.skills):
            self._needs("succeed")
            order, ended = bench.run(self.brief_succeed())
            assert ended.code == 0
            launched = (order.session / "launch.json").read_text()
            assert "instructions.md" not in launched
            return
        order = bench.order(self.brief_standing())
        text = "Never push; `$(touch x)`.\nÜberall.\n"
        (order.session / "instructions.md").write_text(text)
        skill = order.session / "skills/find-the-cause"
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text("---\nname: find-the-cause\ndescription: how\n---\nLook.\n")
        order = replace(
            order,
            instructions=order.session / "instructions.md" if can.instructions else None,
            skills=order.session / "skills" if can.skills else None,
            provenance={"told": []},
        )
        bench.spawn(order)
        assert bench.ended(order).code == 0, (order.session / "stderr.log").read_text()
        if can.instructions:
            assert text.strip() in (order.workdir / "instructed").read_text()
        if can.skills:
            assert "find-the-cause" in (order.workdir / "skilled").read_text().split()
        assert session.read_json(order.session / "launch.json")["instruction"] == {"told": []}  # type: ignore[index]
        assert not (order.workdir / "x").exists()

    # -- started once -------------------------------------------------------------

    def test_spawn_twice_runs_once(self, bench: Bench) -> None:
        self._needs("succeed")
        order = bench.order(self.brief_succeed())
        bench.spawn(order)
        bench.spawn(order)
        ended = bench.ended(order)
        bench.spawn(order)  # over is over
        assert bench.harness.status(order.session) == ended
        assert (order.workdir / "ran").read_text().count("\n") == 1

    def test_concurrent_spawns_run_once(self, bench: Bench) -> None:
        self._needs("succeed")
        order = bench.order(self.brief_succeed())
        start = threading.Barrier(4)
        errors: list[Exception] = []

        def spawn() -> None:
            start.wait()
            try:
                bench.spawn(order)
            except Exception as error:  # noqa: BLE001 a thread's exception must reach the test
                errors.append(error)

        threads = [threading.Thread(target=spawn) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        bench.ended(order)
        assert (order.workdir / "ran").read_text().count("\n") == 1

    def test_interrupted_before_the_start_it_never_runs(self, bench: Bench) -> None:
        self._needs("succeed")
        order = bench.order(self.brief_succeed())
        assert isinstance(bench.harness.status(order.session), NotStarted)
        bench.harness.interrupt(order.session, "changed my mind")
        assert isinstance(bench.harness.status(order.session), Cancelled)
        bench.spawn(order)
        assert isinstance(bench.harness.status(order.session), Cancelled)
        assert bench.processes(order) == []
        assert not (order.workdir / "ran").exists()
        assert bench.harness.collect(order.session).termination.kind == "interrupt"

    def test_missing_program_is_an_error_with_a_hint(self, terminal: Terminal, tmp_path: Path) -> None:
        self._needs("missing")
        bench = Bench(self.make_missing(tmp_path), terminal, tmp_path)
        probe = bench.harness.probe()
        assert not probe.found
        assert probe.problem
        assert probe.hint
        order = bench.order(self.brief_succeed())
        with pytest.raises(HarnessMissing) as caught:
            bench.spawn(order)
        assert caught.value.hint
        assert isinstance(bench.harness.status(order.session), NotStarted)
        assert terminal.windows() == []
        assert [each.name for each in order.session.iterdir()] == ["brief.md"]

    # -- interrupt ------------------------------------------------------------------

    def _running_tree(self, bench: Bench) -> Order:
        self._needs("tree")
        order = bench.order(self.brief_tree())
        bench.spawn(order)

        def grown() -> bool:
            pids = bench.processes(order)
            return len(pids) >= self.tree_size and len(session_ids(pids)) > 1

        wait_for(grown, f"{self.tree_size} processes, one of them started with setsid")
        assert isinstance(bench.harness.status(order.session), Running)
        return order

    def test_interrupt_ends_the_whole_tree(self, bench: Bench) -> None:
        order = self._running_tree(bench)
        bench.harness.interrupt(order.session, "enough")
        bench.harness.interrupt(order.session, "enough, again")
        ended = bench.ended(order)
        assert ended.reason == "interrupted"
        assert bench.processes(order) == []
        assert bench.harness.collect(order.session).termination.kind == "interrupt"
        bench.harness.interrupt(order.session, "after the end")
        assert bench.harness.status(order.session) == ended

    # -- read by anybody, at any time -------------------------------------------------

    def test_collect_twice_is_equal(self, bench: Bench) -> None:
        self._needs("succeed")
        order, _ = bench.run(self.brief_succeed())
        before = _snapshot(order.session)
        first = bench.harness.collect(order.session)
        assert bench.harness.collect(order.session) == first
        assert _snapshot(order.session) == before

    def test_another_process_reads_the_same(self, bench: Bench) -> None:
        self._needs("succeed")
        order = bench.order(self.brief_succeed())
        assert _elsewhere(bench.harness, order)[0] == NotStarted()
        bench.spawn(order)
        bench.ended(order)
        here = bench.harness.status(order.session), bench.harness.collect(order.session)
        assert _elsewhere(bench.harness, order) == here

    def test_collect_of_a_running_session_is_an_error(self, bench: Bench) -> None:
        order = self._running_tree(bench)
        with pytest.raises(AdapterError):
            bench.harness.collect(order.session)

    # -- what it gets -------------------------------------------------------------------

    def test_environment_is_what_was_ordered(self, bench: Bench) -> None:
        order = self._running_tree(bench)
        raw = Path(f"/proc/{_harness_pid(order)}/environ").read_bytes()
        env = dict(entry.split("=", 1) for entry in raw.decode().split("\0") if entry)
        assert env == {**order.env, **self.extra_env(order), MARKER: order.session_id}

    def test_no_secret_on_a_command_line_or_in_the_record(self, bench: Bench) -> None:
        order = self._running_tree(bench)
        looked_at = 0
        for pid in bench.processes(order):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended since it was listed
            assert SECRET.encode() not in line
            looked_at += 1
        assert looked_at
        for file in order.session.iterdir():
            if file.is_file():
                assert SECRET.encode() not in file.read_bytes(), file.name

    def test_render_takes_anything(self, bench: Bench) -> None:
        odd = (b"", b"\x1b[31mred", b"\xff\xfe", b"[1, 2]", b"42", b'{"type": 1}', b'"\\udcb2"')
        for line in (*odd, b"[" * 100_000):
            shown = bench.harness.render(line)
            assert shown is None or isinstance(shown, str)

    def test_message_reaches_it_or_is_kept(self, bench: Bench) -> None:
        """Whatever a person types, it is not lost: steered harnesses get it, for others it waits."""
        order = self._running_tree(bench)
        if bench.harness.capabilities().steer:
            name = session.message(order.session, bench.harness.encode("hallo ü"), "hallo ü", "test")
            wait_for((order.session / "inbox" / "delivered" / name).exists, "the message's delivery")
            return
        session.message(order.session, None, "hallo ü", "test")
        bench.harness.interrupt(order.session, "enough")
        bench.ended(order)
        assert [message.text for message in session.waiting(order.session)] == ["hallo ü"]
        assert session.delivered(order.session) == []


def _harness_pid(order: Order) -> int:
    def look() -> int | None:
        try:
            pid = json.loads((order.session / "heartbeat.json").read_bytes())["harness_pid"]
        except (OSError, ValueError):
            return None
        return int(pid) if pid else None

    return wait_for(look, "the harness's pid in heartbeat.json")


def _snapshot(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path): path.read_bytes() for path in files}


_READER = """
import pickle, sys
from pathlib import Path
from adapters.ports import NotStarted
harness = pickle.load(sys.stdin.buffer)
status = harness.status(Path(sys.argv[1]))
collected = None if isinstance(status, NotStarted) else harness.collect(Path(sys.argv[1]))
sys.stdout.buffer.write(pickle.dumps((status, collected)))
"""


def _elsewhere(harness: Harness, order: Order) -> tuple[Status, Collected | None]:
    """Status and collect by a Python process that knows nothing but the session directory."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _READER, str(order.session)],
        input=pickle.dumps(harness),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        check=True,
        cwd="/",
    )
    status, collected = pickle.loads(done.stdout)
    return status, collected
