"""The crash world with a life of the daemon in a process of its own, which strace kills at a system call.

Two things are killed so: the daemon (the runners are played on this side and
outlive it) and the real runner (the daemon lives on). Afterwards the world
goes on without strace until nothing is left to do, and `check` says what does
not hold. Where `tests.crash.world` stops at the operations of `Files`, this
also stops at those that go round it.

Run as a program, it forks: it has to be one thread, which a test runner is not.

    python -m tests.crash.killed daemon 25      a quarter of all calls
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from adapters import session as live
from adapters.fake import Fake
from adapters.ports import Ended, Harness, Lost, NotStarted, Order, Running, Status, Window
from daemon.durable import Files
from tests.crash.cases import memory_dir
from tests.crash.lives import LIVES, track
from tests.crash.stage import OneHarness, Stage
from tests.crash.world import REAL, Life, Mutant, StepFiles, World, check

#: Everything that changes a file, its name or who may have it open.
CALLS = (
    "openat", "write", "pwrite64", "rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat",
    "mkdir", "mkdirat", "rmdir", "symlink", "symlinkat", "fsync", "fdatasync", "truncate", "ftruncate", "utimensat",
    "chmod", "fchmod", "fchmodat", "fcntl", "flock", "close",
)  # fmt: skip
#: And what else a runner must be killed at.
PROCESS_CALLS = ("clone", "fork", "vfork", "clone3", "poll", "wait4", "pipe2", "prctl", "chdir")
#: Lives of the daemon whose person acts by what this side can see.
NAMES = (
    "checks",
    "attempts",
    "dropped into active",
    "edited",
    "interrupted",
    "interrupted before it started",
    "name taken",
    "lost",
    "saved late into active",
    "deleted while it ran",
)
BOUND_S = 60.0
_LINE = re.compile(r"^(?:\d+ +)?(\w+)\((.*)")
_PATHS = re.compile(r'"([^"]+)"|\d<([^>]+)>')


#: Calls of one kind -> their numbers, counted from 1.
Calls = dict[str, list[int]]


def calls_in(log: Path, root: str) -> Calls:
    """The numbers of the calls in a log of strace, without those on files of the system: nothing changes there."""
    counted: Counter[str] = Counter()
    found: Calls = {}
    for line in log.read_text("utf-8", "replace").splitlines():
        if match := _LINE.match(line):
            call, rest = match.groups()
            counted[call] += 1
            paths = [path for pair in _PATHS.findall(rest) for path in pair if path]
            if (
                counted[call] == 1
                or not paths
                or any(path.startswith(root) or path[0] != "/" for path in paths)
            ):
                found.setdefault(call, []).append(counted[call])
    return found


def wait_until(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + BOUND_S
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError(what)
        time.sleep(0.0005)


@contextlib.contextmanager
def a_world(life: Life, mutant: Mutant = REAL) -> Iterator[World]:
    root = Path(tempfile.mkdtemp(prefix="mh-killed-", dir=memory_dir()))
    old = os.umask(0o077)
    try:
        yield World(root / "w", life, mutant)
    finally:
        os.umask(old)
        shutil.rmtree(root)


# -- the daemon is killed --------------------------------------------------------------------------


class Wire:
    """One side of the talk between the daemon's process and the world around it: a JSON text per line."""

    def __init__(self, end: socket.socket) -> None:
        self._file = end.makefile("rwb", buffering=0)
        end.close()

    def send(self, *words: object) -> None:
        self._file.write(json.dumps(words, default=repr).encode() + b"\n")

    def receive(self) -> list[Any] | None:
        """None: the other side is gone."""
        try:
            line = self._file.readline()
        except ConnectionResetError:
            return None
        if not line.endswith(b"\n"):
            return None
        found: list[Any] = json.loads(line)
        return found

    def ask(self, *words: object) -> Any:
        self.send(*words)
        answer = self.receive()
        if answer is None:
            os._exit(3)
        return answer[0]

    def close(self) -> None:
        self._file.close()


class FarStage:
    """The terminal as the daemon's process has it: the runners are on the other side."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.on_open: Callable[[str], None] = lambda _: None

    def ensure(self) -> None: ...

    def open(self, track: str, name: str, argv: Sequence[str]) -> None:
        if self._wire.ask("open", track, name, argv[-1]):
            self.on_open(name)

    def windows(self) -> list[Window]:
        return [Window(track, name, "%0", 1, False, False) for track, name in self._wire.ask("windows")]

    def close(self, track: str, name: str) -> None:
        self._wire.ask("close", track, name)

    def attach_argv(self, track: str, name: str | None = None) -> list[str]:
        return []


def _be_the_daemon(world: World, wire: Wire) -> None:
    """One life of the daemon in this process, until nothing is left to do."""
    world.stage = FarStage(wire)  # type: ignore[assignment]
    told = 0
    world.boot(None)
    while True:
        troubles = [row for row in world.notebook.rows if row[0] != "info" or row[1] == "parked"]
        mono = wire.ask("turned", world.has_nothing_to_do(), troubles[told:])
        told = len(troubles)
        if mono is None:
            return
        world.mono = mono
        world.supervisor.turn(world.now())


def _be_around(world: World, wire: Wire) -> None:
    """The world around that life, until the daemon ends or is killed."""
    steps = 0
    stage = world.stage
    while (said := wire.receive()) is not None:
        match said:
            case ["open", str(track), str(name), str(session)]:
                known = any(window.name == name for window in stage.windows())
                stage.open(track, name, [session])
                wire.send(not known)
            case ["windows"]:
                wire.send([[window.track, window.name] for window in stage.windows()])
            case ["close", str(track), str(name)]:
                stage.close(track, name)
                wire.send(None)
            case ["turned", bool(idle), list(troubles)]:
                world.notebook.rows += [tuple(row) for row in troubles]
                world.look_at_queue()
                steps += 1
                if steps > 400:
                    world.faults.append("the life in the other process does not come to an end")
                    return
                if idle and not world.around():
                    wire.send(None)
                else:
                    world.go_on()
                    wire.send(world.mono)
            case ["failed", str(text)]:
                world.faults.append(text)


def live_apart(world: World, *strace: str) -> bool:
    """A life of the daemon in a process of its own under strace; returns whether it was killed.

    What happens around it happens here, and goes on when it is dead.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            ours.close()
            wire = Wire(theirs)
            os.kill(os.getpid(), signal.SIGSTOP)
            try:
                _be_the_daemon(world, wire)
                code = 0
            except Exception:  # noqa: BLE001  # the other side tells it
                wire.send("failed", traceback.format_exc()[-2000:])
        finally:
            os._exit(code)
    theirs.close()
    os.waitpid(pid, os.WUNTRACED)
    tracer = subprocess.Popen(["strace", "-qq", *strace, "-p", str(pid)], stderr=subprocess.PIPE)
    wire = Wire(ours)
    try:
        # A stopped process makes no call before its tracer lets it.
        wait_until(lambda: _tracer_of(pid) == tracer.pid, "strace to take it")
        os.kill(pid, signal.SIGCONT)
        _be_around(world, wire)
    finally:
        wire.close()
        with contextlib.suppress(ProcessLookupError):
            if sys.exc_info()[0] is not None or world.faults:
                os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        _, words = tracer.communicate(timeout=BOUND_S)
    if words.strip():
        raise RuntimeError(f"strace: {words.decode()}")
    killed = os.WIFSIGNALED(status)
    if not killed and os.WEXITSTATUS(status) and not world.faults:
        world.faults.append(f"the daemon's process ended with {os.WEXITSTATUS(status)}")
    return killed


def _tracer_of(pid: int) -> int:
    return int(re.search(r"^TracerPid:\s*(\d+)", Path(f"/proc/{pid}/status").read_text(), re.M)[1])  # type: ignore[index]


def count_daemon_calls(life: Life) -> Calls:
    """The calls of a life in which nothing is killed."""
    with a_world(life) as world:
        log = world.workspace.root / "strace"
        if live_apart(world, "-y", "-o", str(log), "-e", f"trace={','.join(CALLS)}"):
            raise AssertionError(f"{life.name} was killed, and by nobody")
        calls = calls_in(log, str(world.workspace.root))
        log.unlink()
        world.live([])
        if wrong := check(world):
            raise AssertionError(f"{life.name}, not killed: {wrong}")
        return calls


def kill_daemon(life: Life, call: str, when: int, mutant: Mutant = REAL) -> tuple[bool, list[str]]:
    """Whether the kill came, and what is wrong after the recovery."""
    with a_world(life, mutant) as world:
        inject = ("-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={when}")
        killed = live_apart(world, *inject)
        world.look_at_queue()
        world.stage.lose_windows()
        world.mono += 1.0
        world.live([])
        return killed, check(world)


# -- what goes round Files -------------------------------------------------------------------------

MARK = "/mh-operation/"


class MarkedFiles(StepFiles):
    """Leaves a mark in the trace where each operation of the class begins and ends."""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in _OPERATIONS:
            return found

        def marked(*args: Any, **kwargs: Any) -> Any:
            os.access(f"{MARK}begin", os.F_OK)
            try:
                return found(*args, **kwargs)
            finally:
                os.access(f"{MARK}end", os.F_OK)

        return marked


_OPERATIONS = frozenset(name for name, value in vars(Files).items() if hasattr(value, "__wrapped__")) - {
    "opened"
}
_WRITES = re.compile(r"O_(WRONLY|RDWR|CREAT|TRUNC|APPEND)")


def bypasses(life: Life) -> Counter[str]:
    """What changed a file of the workspace without going through `Files`: call and path, made general."""
    changing = [call for call in CALLS if call not in ("close", "fcntl", "flock")]
    with a_world(life, replace(REAL, files=MarkedFiles)) as world:
        log = Path(tempfile.mkstemp(prefix="mh-killed-")[1])
        try:
            live_apart(
                world,
                "-y",
                "-s",
                "300",
                "-o",
                str(log),
                "-e",
                f"trace={','.join(changing)},access,faccessat2",
            )
            lines = log.read_text("utf-8", "replace").splitlines()
        finally:
            log.unlink()
        world.live([])
        if wrong := check(world):
            raise AssertionError(f"{life.name}, not killed: {wrong}")
        root = str(world.workspace.root)
    found: Counter[str] = Counter()
    depth = 0
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            continue
        call, rest = match.groups()
        if MARK in rest:
            depth += 1 if f"{MARK}begin" in rest else -1
        elif (
            not depth
            and root in rest
            and call not in ("access", "faccessat2")
            and (call != "openat" or _WRITES.search(rest))
        ):
            path = re.findall(re.escape(root) + r"/([^\">]+)", rest)[-1]
            found[f"{call} {_general(path)}"] += 1
    return found


def _general(path: str) -> str:
    path = re.sub(r"\.tmp-[0-9]+-[0-9a-f]{16}", ".tmp", path)
    return re.sub(r"-[0-9]+-[0-9a-f]{12}", "-N", path)


# -- the runner is killed --------------------------------------------------------------------------


class Appends(Fake):
    """An agent that writes its session's name down, says so, and ends; with `told`, after a message."""

    program = "sh"

    def __init__(self, told: bool) -> None:
        self._told = told

    def command(self, order: Order) -> live.Launch:
        ran = 'echo $MEGAHARNESS_SESSION >> ../../ran; echo \'{"type": "result", "text": "ran", "turns": 1}\''
        if self._told:
            return live.Launch(["sh", "-c", f"read -r line; {ran}"], stdin="pipe", first_message=b"do it\n")
        return live.Launch(["sh", "-c", ran], stdin="null")


class OneRealHarness(OneHarness):
    def __init__(self, told: bool) -> None:
        self._fake: Harness = Appends(told)


class RealStage(Stage):
    """A terminal that starts real runners; the first one under strace.

    Time stands still for the daemon while a runner is at work, so that it looks at what a killed one has left.
    """

    def __init__(self, before: Sequence[str]) -> None:
        super().__init__({})
        self._before = tuple(before)
        self._at_work: list[tuple[subprocess.Popen[bytes], str, Path]] = []
        #: How the daemon's own reading has it after the first one's death.
        self.read: Status | None = None
        self.killed = False

    def open(self, track: str, name: str, argv: Sequence[str]) -> None:
        if name in self._windows:
            return
        self._windows[name] = track
        runner = subprocess.Popen([*self._before, *argv], stdin=subprocess.DEVNULL, start_new_session=True)
        self._before = ()
        self._at_work.append((runner, name, Path(argv[-1])))
        self.on_open(name)

    @property
    def busy(self) -> bool:
        return bool(self._at_work)

    def step(self) -> None:
        for runner, name, session in self._at_work:
            code = runner.wait(BOUND_S)
            self._windows.pop(name, None)
            # Killed right after its fork, its child passes for it until it is the harness.
            wait_until(lambda session=session: not isinstance(live.status(session), Running), "its death")  # type: ignore[misc]
            if self.read is None:
                self.read = live.status(session)
                self.killed = code < 0 or code == 128 + signal.SIGKILL
        self._at_work.clear()


_RUNNERS_TEMP = re.compile(r"\.(heartbeat|exit|started-\d+-\d+)\.tmp")
RUNNERS_LIFE = Life("the runner", {"queued/one.md": track("one")}, {"done/one.md": 1})


def _live_with_runner(world: World, told: bool, before: Sequence[str]) -> tuple[RealStage, list[str]]:
    world.stage = stage = RealStage(before)
    world.harnesses = OneRealHarness(told)
    world.reap = lambda session: live.reap(session, grace_s=0.0)
    world.live([])
    ran = world.workspace.root / "ran"
    stage.runs.update(ran.read_text().split() if ran.exists() else ())
    return stage, _wrong_with_runner(world, stage)


def _wrong_with_runner(world: World, stage: RealStage) -> list[str]:
    """What does not hold after a life in which the first runner was killed, or was not."""
    wrong = []
    folder = "done" if world.exists("done/one.md") else "failed"
    settled = [world.parts.sessions.settlement(name) for name in os.listdir(world.workspace.sessions)]
    endings = [known.termination for known in settled if known is not None]
    count = stage.runs.total()
    match stage.read:
        case NotStarted() if stage.killed:
            expected = ("done", ["clean"], (1,))
        case Ended():
            expected = ("done", ["clean"], (1,))
        case Lost() if stage.killed:
            expected = ("failed", ["lost"], (0, 1))
        case other:
            return [f"after its death it reads {other} (killed: {stage.killed})"]
    if (folder, endings) != expected[:2] or count not in expected[2]:
        wrong.append(f"read as {stage.read}: {folder}, {endings}, ran {count} times; expected {expected}")
    if stage.killed:
        # What a killed runner was about to publish stays where it is: small, and never read.
        for temp in world.workspace.sessions.glob("*/.*"):
            if _RUNNERS_TEMP.fullmatch(temp.name):
                temp.unlink()
    world.life = replace(world.life, expect={f"{folder}/one.md": count})
    return wrong + check(world)


def count_runner_calls(told: bool) -> Calls:
    with a_world(RUNNERS_LIFE) as world:
        log = Path(tempfile.mkstemp(prefix="mh-killed-")[1])
        try:
            wanted = f"trace={','.join(CALLS + PROCESS_CALLS)}"
            _, wrong = _live_with_runner(world, told, ["strace", "-qq", "-y", "-o", str(log), "-e", wanted])
            if wrong:
                raise AssertionError(f"a runner that is not killed: {wrong}")
            return calls_in(log, str(world.workspace.root))
        finally:
            log.unlink()


def kill_runner(told: bool, call: str, when: int) -> tuple[bool, str, list[str]]:
    """Whether the kill came, how the session read then, and what is wrong at the end."""
    with a_world(RUNNERS_LIFE) as world:
        inject = ["-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={when}"]
        stage, wrong = _live_with_runner(world, told, ["strace", "-qq", "-o", "/dev/null", *inject])
        return stage.killed, type(stage.read).__name__, wrong


# -- all of them -----------------------------------------------------------------------------------


def spread(calls: Calls, percent: int, offset: int, *, each: bool) -> list[tuple[str, int]]:
    """So many of a hundred of all calls, evenly. each: of each kind one at least."""
    everything = [(call, number) for call in sorted(calls) for number in calls[call]]
    step = 100 / percent
    places = {int(offset % step + n * step) for n in range(len(everything))}
    taken = {everything[place] for place in places if place < len(everything)}
    if each:
        taken |= {(call, numbers[offset % len(numbers)]) for call, numbers in calls.items()}
    return sorted(taken)


def lives() -> list[Life]:
    known = {life.name: life for life in LIVES}
    return [known[name] for name in NAMES]


def all_daemon(percent: int, seed: int) -> dict[str, Any]:
    kills: Counter[str] = Counter()
    broken = []
    for number, life in enumerate(lives()):
        for call, when in spread(
            count_daemon_calls(life), percent, seed + number, each=number == seed % len(NAMES)
        ):
            killed, wrong = kill_daemon(life, call, when)
            kills[call] += killed
            if wrong:
                broken.append(f"{life.name}: killed at {call} number {when}: " + "\n    ".join(wrong))
                print(broken[-1], file=sys.stderr, flush=True)
    return {"kills": kills, "broken": broken}


def all_runner(percent: int, seed: int) -> dict[str, Any]:
    kills: Counter[str] = Counter()
    readings: Counter[str] = Counter()
    broken = []
    for told in (False, True):
        calls = count_runner_calls(told)
        taken = spread(calls, percent, seed + told, each=told == bool(seed % 2))
        # Few calls come after exit.json, and how many come before it is not always the same: one of them in any case.
        for call, when in sorted({*taken, ("fsync", calls["fsync"][-1])}):
            killed, reading, wrong = kill_runner(told, call, when)
            kills[call] += killed
            readings[reading] += killed
            if wrong:
                broken.append(f"told {told}: killed at {call} number {when}: " + "\n    ".join(wrong))
    # One reading that never came would be a case that is not tried.
    broken += [f"never read as {name}" for name in ("NotStarted", "Lost", "Ended") if not readings[name]]
    return {"kills": kills, "broken": broken, "readings": readings}


def all_bypasses(percent: int, seed: int) -> dict[str, Any]:
    found: Counter[str] = Counter()
    for life in lives():
        found += bypasses(life)
    return {"found": found}


def main(what: str, percent: str = "100", seed: str = "0") -> None:
    run = {"daemon": all_daemon, "runner": all_runner, "bypasses": all_bypasses}[what]
    print(json.dumps(run(int(percent), int(seed))))


if __name__ == "__main__":
    main(*sys.argv[1:])
