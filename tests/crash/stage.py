"""What is played in the crash world: the pool, the log, the places, and a terminal whose runners outlive the daemon."""

from __future__ import annotations

import fcntl
import json
import os
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapters.errors import HarnessUnknown
from adapters.fake import Fake
from adapters.ports import Harness, Window
from daemon.kernel.scratch import Leftover, Outcome, Place


class NowPool:
    """Does the work at once, in the loop's own thread: the order of operations is the same each time."""

    def __init__(self) -> None:
        self._results: list[tuple[str, str, object]] = []

    def submit(self, kind: str, session: str, work: Callable[[], object]) -> None:
        try:
            self._results.append((kind, session, work()))
        except Exception as error:  # noqa: BLE001  # as the real pool does; a Crash passes
            self._results.append((kind, session, error))

    def drain(self) -> list[tuple[str, str, Any]]:
        found, self._results = self._results, []
        return found

    def pending(self) -> bool:
        return bool(self._results)

    def close(self) -> None:
        self._results.clear()


class Notebook:
    """The log; errors in it are faults of the program."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, dict[str, object]]] = []

    def info(self, event: str, **facts: object) -> None:
        self.rows.append(("info", event, facts))

    def warning(self, event: str, **facts: object) -> None:
        self.rows.append(("warning", event, facts))

    def error(self, event: str, **facts: object) -> None:
        if facts.get("exc_info") is True:
            facts["traceback"] = traceback.format_exc()
        self.rows.append(("error", event, facts))


class OneHarness:
    """Knows `fake` only."""

    def __init__(self) -> None:
        self._fake = Fake()

    def get(self, name: str) -> Harness:
        if name != "fake":
            raise HarnessUnknown(f"no harness {name!r}", "")
        return self._fake


class Places:
    """Where tracks work: plain directories; what stands in them is what came out."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def taken(self, track: str) -> bool:
        return os.path.lexists(self._home / track)

    def provision(self, track: str, *, fresh: bool) -> Place:
        path = self._home / track
        path.mkdir(parents=True, exist_ok=True)
        return Place(path, f"mh/{track}", "0" * 40)

    def owns(self, place: Place, track: str) -> bool:
        return place.path == self._home / track

    def leftovers(self, place: Place) -> list[Leftover]:
        return [Leftover(name) for name in sorted(os.listdir(place.path))]

    def changed(self, place: Place, leftovers: Sequence[Leftover]) -> list[str]:
        return [entry.path for entry in leftovers]

    def head(self, place: Place) -> str:
        return place.base

    def commit(self, place: Place, leftovers: Sequence[Leftover], message: str) -> Outcome:
        return Outcome("1" * 40, tuple(entry.path for entry in leftovers), "", ())


@dataclass
class Part:
    """How the agent of one track behaves. lasts: steps of the world; None: until it is interrupted.

    asks: what its first session asks.
    """

    lasts: int | None = 1
    delay: int = 0
    writes: str = ""
    dies: bool = False
    asks: str = ""


@dataclass
class _Runner:
    session: Path
    part: Part
    waits: int
    lock: int = -1
    age: int = 0


class Hands:
    """How a played runner touches the disk. As it is, nothing need outlive a power cut."""

    def write(self, path: Path, text: str) -> None:
        path.write_text(text)

    def link(self, old: Path, new: Path) -> None:
        os.link(old, new)

    def replace(self, old: Path, new: Path) -> None:
        old.rename(new)

    def lock(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


class Stage:
    """The terminal and its runners. It goes on while the daemon is dead.

    gate: False is the broken protocol in which a runner does not look whether another one came first.
    """

    def __init__(self, parts: dict[str, Part], *, gate: bool = True) -> None:
        self.hands = Hands()
        self._parts = parts
        self._gate = gate
        self._windows: dict[str, str] = {}
        self._coming: list[_Runner] = []
        self._running: list[_Runner] = []
        self.runs: Counter[str] = Counter()
        #: (session, message) of everything that an agent has got, in order.
        self.heard: list[tuple[str, str]] = []
        #: Sessions whose exit.json is written.
        self.ended: set[str] = set()
        self.on_open: Callable[[str], None] = lambda _: None

    # the port

    def ensure(self) -> None: ...

    def open(self, track: str, name: str, argv: Sequence[str]) -> None:
        if name in self._windows:
            return
        self._windows[name] = track
        part = self._parts.get(track, Part())
        self._coming.append(_Runner(Path(argv[-1]), part, part.delay))
        self.on_open(name)

    def windows(self) -> list[Window]:
        return [Window(track, name, "%0", 1, False, False) for name, track in self._windows.items()]

    def close(self, track: str, name: str) -> None:
        self._windows.pop(name, None)

    def attach_argv(self, track: str, name: str | None = None) -> list[str]:
        return []

    # the world

    def lose_windows(self) -> None:
        """The terminal's server died; runners that are on their way still come."""
        self._windows.clear()

    @property
    def busy(self) -> bool:
        return bool(self._coming or self._running)

    def lose_runners(self) -> None:
        """Every runner is gone, as after a power cut."""
        for runner in self._running:
            os.close(runner.lock)
        self._running.clear()
        self._coming.clear()

    def step(self) -> None:
        for runner in list(self._running):
            try:
                self._play(runner)
            except OSError:
                continue  # the disk refuses: it tries again until it can write down how it ended
        for runner in list(self._coming):
            if runner.waits:
                runner.waits -= 1
                continue
            self._coming.remove(runner)
            try:
                entered = self._enter(runner)
            except OSError:
                self._leave(runner)
                continue
            if entered:
                self._running.append(runner)

    def _leave(self, runner: _Runner) -> None:
        """The disk refused before the gate: it ends, and its window closes."""
        if runner.lock >= 0:
            os.close(runner.lock)
        self._windows.pop(runner.session.name, None)

    def _enter(self, runner: _Runner) -> bool:
        session = runner.session
        runner.lock = self.hands.lock(session / "lock")
        try:
            fcntl.flock(runner.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            temp = session / f".started-{session.name[-6:]}-{self.runs.total()}.tmp"
            try:
                record = {"v": 1, "by": "runner", "at": "2026-12-01T14:00:00.000Z"}
                self.hands.write(temp, json.dumps(record))
                self.hands.link(temp, session / "started.json")
            finally:
                temp.unlink(missing_ok=True)
        except (BlockingIOError, FileExistsError):
            if self._gate:
                os.close(runner.lock)
                return False
        (session / "env.json").unlink(missing_ok=True)
        self.runs[session.name] += 1
        return True

    def _play(self, runner: _Runner) -> None:
        runner.age += 1
        self._listen(runner.session)
        interrupted = (runner.session / "interrupt.json").exists()
        if not interrupted and (runner.part.lasts is None or runner.age < runner.part.lasts):
            return
        if not runner.part.dies:
            self._end(runner, interrupted)
        self._running.remove(runner)
        os.close(runner.lock)

    def _end(self, runner: _Runner, interrupted: bool) -> None:
        launch = json.loads((runner.session / "launch.json").read_bytes())
        if runner.part.writes:
            (Path(launch["cwd"]) / runner.part.writes).write_text("done\n")
        text = f"answer of {runner.session.name}"
        if runner.part.asks and launch["attempt"] == 1:
            text += f"\n\nBLOCKED: {runner.part.asks}"
        answer = {"type": "result", "text": text, "turns": 1}
        self.hands.write(runner.session / "events.jsonl", json.dumps(answer) + "\n")
        exit_record = {
            "v": 1,
            "code": None if interrupted else 0,
            "signal": 2 if interrupted else None,
            "reason": "interrupted" if interrupted else "exited",
            "error": "",
            "started_at": "2026-12-01T14:00:00.000Z",
            "ended_at": "2026-12-01T14:00:01.000Z",
            "wall_s": 1.0,
            "bytes": 1,
        }
        temp = runner.session / ".exit.tmp"
        self.hands.write(temp, json.dumps(exit_record))
        self.hands.replace(temp, runner.session / "exit.json")
        self.ended.add(runner.session.name)

    def _listen(self, session: Path) -> None:
        """Take what is in the inbox, as the runner does once the harness has it."""
        inbox = session / "inbox"
        for path in sorted(inbox.iterdir()) if inbox.is_dir() else ():
            if path.is_file() and not path.name.startswith("."):
                self.heard.append((session.name, path.name))
                path.rename(inbox / "delivered" / path.name)
