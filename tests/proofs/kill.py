"""kill -9 again and again: the real daemon, tmux, runners and viewers; nothing lost, nothing twice.

A kill is aimed: it falls when a chosen file appears, and some moments later, so that each phase of a track is hit;
others fall at any time. Some hit the runner, the tmux server or the viewer as well. The daemons are forks of one
parent (warm.py), every sixteenth is a whole `mh up`. The workspaces are in memory: kill -9 takes nothing that was
written from a file system, and an fsync that costs nothing makes the moments shorter, not longer.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import pytest

from adapters.session import MARKER
from adapters.testing import wait_for
from daemon.errors import AlreadyRunning
from daemon.kernel.contract import TRIES
from tests.crash.cases import memory_dir
from tests.e2e.conftest import Bench, alive, cmdline
from tests.proofs.moments import Moments
from tests.proofs.proof import Proof, Report
from tests.proofs.warm import Warm

#: Kills in one workspace at the most; then everything in it is looked at, and the next one is made.
BATCH = 250
#: Workspaces at once: most of a track's time is spent waiting for processes.
LANES = 3
#: Tracks at once, of those that run without being aimed at, and of all.
TRACKS, MOST = 4, 12
#: Seconds in which the file that a kill waits for must appear; then it falls all the same.
PATIENCE = 2.0
PHASES = ("claiming", "starting", "running", "concluding", "settling", "idle")
#: The fewest kills of which each phase must be one; and how many more are aimed at a phase that chance left out.
ENOUGH, MORE = 30, 40

TEXT = """---
harness_id: shell
done_when:
  - {check}
---
# {name}

```bash
echo run >> {counter}
sleep {seconds}
echo done > out.txt
echo counted
```
"""


@dataclass(frozen=True)
class Aim:
    """What a kill waits for, how long it may dally after it (s), and how many tracks are dropped for it."""

    phase: str
    wanted: Callable[[str, str], bool]
    dallies: float
    drops: int = 0


def _named(*names: str) -> Callable[[str, str], bool]:
    return lambda folder, name: name in names


AIMS = (
    Aim("claiming", lambda folder, name: folder == "active" or name == "spec.md", 0.01, 2),
    Aim("starting", _named("claim.json", "place.json", "brief.md", "launch.json", "env.json"), 0.03, 1),
    Aim("running", _named("started.json", "events.jsonl"), 0.1),
    Aim("concluding", _named("exit.json", "leftovers.json", "receipts", "outcome.json"), 0.03),
    Aim("settling", lambda folder, name: name in ("result.md", "settle.json") or folder == "done", 0.002),
    Aim("at any time", lambda folder, name: False, 0.0),
)
#: Of so many kills one waits until nothing is left to do.
IDLE_EVERY = 30
#: Of so many kills, how many hit something else too.
VICTIMS = {"runner": 12, "tmux": 4, "viewer": 4}
OF = 100


@dataclass
class Figures:
    """What was hit, over all workspaces."""

    kills: int = 0
    phases: Counter[str] = field(default_factory=Counter)
    victims: Counter[str] = field(default_factory=Counter)
    cold: int = 0
    tracks: int = 0
    lost: int = 0
    unjudged: int = 0
    missed: int = 0
    refused: int = 0
    broken: list[str] = field(default_factory=list)

    def add(self, other: Figures) -> None:
        self.kills += other.kills
        self.phases += other.phases
        self.victims += other.victims
        self.cold += other.cold
        self.tracks += other.tracks
        self.lost += other.lost
        self.unjudged += other.unjudged
        self.missed += other.missed
        self.refused += other.refused
        self.broken += other.broken

    def note(self) -> str:
        phases = ", ".join(f"{name} {count}" for name, count in sorted(self.phases.items()))
        victims = ", ".join(f"{name} {self.victims[name]}" for name in VICTIMS)
        return (
            f"by phase: {phases}; killed too: {victims}; {self.tracks} tracks, {self.lost} of them lost with their "
            f"runner, {self.unjudged} whose check was killed {TRIES} times; {self.cold} daemons started cold, {self.refused} "
            f"refused while a fork of the one before held its lock"
        )


class Field:
    """One workspace in which daemons are killed."""

    def __init__(self, home: Path, chance: random.Random, figures: Figures, mark: str) -> None:
        self.bench = Bench(home, home / "w")
        self.bench.mh("init")
        settings = self.bench.root / "megaharness.toml"
        settings.write_text(settings.read_text().replace("# slots = 3", f"slots = {TRACKS + 3}"))
        self.counters = home / "counters"
        self.counters.mkdir()
        self.chance = chance
        self.figures = figures
        self.mark = mark
        self.dropped: list[str] = []
        self.hit: set[str] = set()
        self.pid = 0
        self._handle = -1
        self.born = 0.0
        self._child: subprocess.Popen[bytes] | None = None
        self.warm = Warm(self.bench.root, self.bench.env)
        self.moments = Moments(self.bench.root)

    def close(self) -> None:
        self.moments.close()
        self.warm.close()
        self.bench.close()

    # -- the daemon

    def start(self, *, cold: bool) -> None:
        self.born = time.time()
        if cold:
            self.figures.cold += 1
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "daemon", "--root", str(self.bench.root), "up"],
                env=self.bench.env,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self.pid = self._child.pid
        else:
            self._child = None
            self.pid = self.warm.start()
        # Not by its number: that of a daemon that has ended may be another process's by now.
        self._handle = os.pidfd_open(self.pid)
        self.bench.started.append(self.pid)

    def is_ready(self) -> bool:
        """It has looked at everything once, and watches: what is renamed in from now on is taken at once."""
        if select.select([self._handle], [], [], 0)[0]:
            if (code := self._ended()) != AlreadyRunning.exit_code:
                raise AssertionError(f"the daemon ended by itself with {code}: {self.bench.trouble()}")
            # What the killed one had just forked holds its lock until it has become another program.
            self.figures.refused += 1
            self.start(cold=False)
            return False
        try:
            state = json.loads((self.bench.root / ".megaharness/daemon.json").read_bytes())
        except FileNotFoundError:
            return False
        return bool(state["pid"] == self.pid)

    def end(self, number: int = signal.SIGKILL) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, number)
        code = self._ended()
        if code == AlreadyRunning.exit_code:
            self.figures.refused += 1
        elif code != (-number if number == signal.SIGKILL else 0):
            self.figures.broken.append(f"a daemon ended with {code}: {self.bench.trouble()}")

    def _ended(self) -> int:
        code = self._child.wait() if self._child is not None else self.warm.ended()
        os.close(self._handle)
        return code

    # -- the tracks

    def open_sessions(self) -> dict[str, str]:
        """Session -> the name of its file ("" before its claim), of those that are not settled."""
        found = {}
        for session in os.listdir(self.bench.root / "sessions"):
            path = self.bench.root / "sessions" / session
            if not (path / "settled").exists():
                try:
                    found[session] = str(json.loads((path / "claim.json").read_bytes())["name"])
                except FileNotFoundError:
                    found[session] = ""
        return found

    def fill(self, least: int) -> None:
        """Drop tracks: so many, and more where few are left."""
        tracks = self.bench.root / "tracks"
        there = len([name for state in ("queued", "active") for name in os.listdir(tracks / state)])
        for _ in range(max(TRACKS - there, min(least, MOST - there))):
            name = f"t{self.mark}-{len(self.dropped)}.md"
            check = "run: test -f out.txt" if self.chance.random() < 0.2 else "exists: out.txt"
            seconds = self.chance.choice(("0", "0", "0.05", "0.3"))
            self.bench.drop(
                name, TEXT.format(check=check, name=name, counter=self.counters / name, seconds=seconds)
            )
            self.dropped.append(name)

    def is_idle(self) -> bool:
        tracks = self.bench.root / "tracks"
        return not (
            os.listdir(tracks / "queued") or os.listdir(tracks / "active") or any(self.open_sessions())
        )

    # -- the kills

    def kill(self, number: int, aim: Aim, *, idle: bool) -> None:
        self.moments.forget()
        self.start(cold=number % 16 == 8)
        if aim.phase == "at any time" and not idle:
            # From the first moment on, so also before it is ready.
            time.sleep(self.chance.random() * 0.1)
            if self.chance.random() < 0.5 and alive(self.pid):
                self.fill(aim.drops)
                time.sleep(self.chance.random() * 0.3)
            moment = None
        else:
            wait_for(self.is_ready, f"the daemon is ready; {self.bench.trouble()}")
            if idle:
                wait_for(self.is_idle, f"nothing is left to do; {self.bench.trouble()}")
                moment = None
            else:
                self.fill(aim.drops)
                moment = self.moments.wait(aim.wanted, PATIENCE)
                self.figures.missed += moment is None
                time.sleep(self.chance.random() * self.chance.random() * aim.dallies)
        self.strike(moment)

    def strike(self, moment: tuple[str, str] | None) -> None:
        """Kill the daemon, perhaps something else as well, and note the phase."""
        lot, victim = self.chance.random() * OF, ""
        for name, share in VICTIMS.items():
            if 0 <= lot < share:
                victim = name
            lot -= share
        first = self.chance.random() < 0.5
        if victim and first:
            self._kill_too(victim)
        self.end()
        phase = self._phase(moment, time.time())
        if victim and not first:
            self._kill_too(victim)
        self.figures.phases[phase] += 1
        self.figures.kills += 1

    def _kill_too(self, victim: str) -> None:
        sessions = self.bench.root / "sessions"
        running = [
            session
            for session in self.open_sessions()
            if (sessions / session / "started.json").exists()
            and not (sessions / session / "exit.json").exists()
        ]
        if victim == "tmux":
            for socket in self.bench.runtime.glob("*.sock"):
                told = subprocess.run(
                    ["tmux", "-N", "-S", str(socket), "display-message", "-p", "#{pid}"],
                    capture_output=True,
                    timeout=10,
                    check=False,
                )
                if told.returncode == 0:
                    os.kill(int(told.stdout), signal.SIGKILL)
                    self.figures.victims["tmux"] += 1
        elif running:
            session = self.chance.choice(running)
            try:
                runner = int(json.loads((sessions / session / "started.json").read_bytes())["pid"])
                pid = runner if victim == "runner" else self._viewer_of(runner)
                if pid is None or session not in cmdline(pid):
                    return
                if victim == "runner":
                    self.hit.add(session)
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, FileNotFoundError):
                return  # it had just ended
            self.figures.victims[victim] += 1

    def _viewer_of(self, runner: int) -> int | None:
        children = Path(f"/proc/{runner}/task/{runner}/children").read_text().split()
        return next((int(pid) for pid in children if "adapters.viewer" in cmdline(int(pid))), None)

    def _phase(self, moment: tuple[str, str] | None, killed: float) -> str:
        """What was on disk when the kill fell: of the track that it was aimed at, else of the one touched last."""
        root = self.bench.root
        sessions = self.open_sessions()
        phases = {session: self._phase_of(session, killed) for session in sessions}
        # One that an earlier kill left there unclaimed lies still for three seconds first.
        active = [
            entry.name
            for entry in os.scandir(root / "tracks/active")
            if entry.name not in sessions.values() and entry.stat().st_ctime >= self.born
        ]
        if active:
            return "claiming"
        if moment is not None:
            folder, name = moment
            if folder in phases:
                return phases[folder]
            if (session := next((each for each in sessions if sessions[each] == name), None)) is not None:
                return phases[session]
        if phases:
            return phases[max(phases, key=lambda session: (root / "sessions" / session).stat().st_ctime)]
        return "waiting" if os.listdir(root / "tracks/queued") else "idle"

    def _phase_of(self, session: str, killed: float) -> str:
        path = self.bench.root / "sessions" / session
        for name, phase in (
            ("settle.json", "settling"),
            ("exit.json", "concluding"),
            ("started.json", "running"),
            ("claim.json", "starting"),
        ):
            with contextlib.suppress(FileNotFoundError):
                if (path / name).stat().st_ctime <= killed:
                    return phase
        return "claiming"

    def _unjudged(self, session: str) -> bool:
        """Whether its check was given up because the daemon was killed so often while it ran."""
        path = self.bench.root / "sessions" / session / "receipts/01.json"
        try:
            told = str(json.loads(path.read_bytes())["detail"])
        except FileNotFoundError:
            return False
        return told == f"not run again: the daemon ended {TRIES} times while it ran"

    # -- what must hold

    def conclude(self) -> None:
        """Let everything come to its end, and look at it."""
        self.start(cold=False)
        try:
            wait_for(self.is_idle, "the end of every track", 120.0)
        except pytest.fail.Exception:
            left = {state: self.bench.folder(state) for state in ("queued", "active")}
            self.figures.broken.append(
                f"it does not come to an end: {left}, {self.open_sessions()}; {self.bench.trouble()}"
            )
        self.end(signal.SIGTERM)
        self.figures.tracks += len(self.dropped)
        self.figures.broken += self.wrong()

    def wrong(self) -> list[str]:
        found: list[str] = []
        bench = self.bench
        session_of: dict[str, list[str]] = {}
        for path in (bench.root / "sessions").iterdir():
            name = str(json.loads((path / "claim.json").read_bytes())["name"])
            session_of.setdefault(name, []).append(path.name)
        rows = {row["session_id"]: row for row in bench.rows()}
        evals = Counter(row["track_id"] for row in bench.rows())
        moves = Counter((row["name"], row["to"]) for row in bench.journal())
        place = {
            name: state for state in ("queued", "active", "done", "failed") for name in bench.folder(state)
        }
        for name in self.dropped:
            state, sessions = place.pop(name, "nowhere"), session_of.pop(name, [])
            if len(sessions) != 1:
                found.append(f"{name}: sessions {sessions}")
                continue
            hit = sessions[0] in self.hit
            runs = (self.counters / name).read_text() if (self.counters / name).exists() else ""
            termination = str(rows.get(sessions[0], {}).get("termination"))
            lost = hit and state == "failed" and termination.startswith("lost")
            self.figures.lost += lost
            unjudged = (
                state == "failed" and termination.startswith("incomplete") and self._unjudged(sessions[0])
            )
            self.figures.unjudged += unjudged
            if state != "done" and not lost and not unjudged:
                found.append(
                    f"{name}: in {state}/, {termination}; its runner was killed: {hit}; {bench.text(state, name)}"
                )
            if runs != "run\n" and not (lost and runs == ""):
                found.append(f"{name}: ran {runs.count('run')} times; its runner was killed: {hit}")
            if evals[name.removesuffix(".md")] != 1:
                found.append(f"{name}: {evals[name.removesuffix('.md')]} eval rows")
            if state in ("done", "failed"):
                results = bench.text(state, name).count("<!-- megaharness: result")
                if results != 1:
                    found.append(f"{name}: its result stands {results} times in the file")
            if (lines := (moves.pop((name, "active"), 0), moves.pop((name, state), 0))) != (1, 1):
                found.append(f"{name}: {lines[0]} journal lines to active, {lines[1]} to {state}")
        if place or session_of or moves:
            found.append(f"left: files {place}, sessions {session_of}, journal {dict(moves)}")
        if evals.total() != len(self.dropped):
            found.append(f"{evals.total()} eval rows of {len(self.dropped)} tracks")
        if swaps := os.listdir(bench.root / "tracks/.displaced"):
            self.figures.broken.extend(f"left in .displaced: {name}" for name in swaps if not _settles(name))
        found += [f"it lives on: {line}" for line in survivors(bench.root)]
        return [f"{line} ({self.mark})" for line in found]


def _settles(name: str) -> bool:
    """Whether what was swapped out is only waiting to be looked at once more: it is three seconds old at the least."""
    return name.count(".") == 4


def survivors(root: Path) -> list[str]:
    """Processes that carry the marker of one of this workspace's sessions."""
    sessions = set(os.listdir(root / "sessions"))
    found = []
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        marks = [
            os.fsdecode(word).partition("=")[2] for word in environ if word.startswith(f"{MARKER}=".encode())
        ]
        if sessions & set(marks) and alive(pid):
            found.append(f"{pid} {cmdline(pid)}")
    return found


def lane(kills: int, seed: int, mark: str) -> Figures:
    """So many kills in one workspace, and a look at it."""
    chance, figures = random.Random(f"{seed} {mark}"), Figures()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # and end what was started
    home = Path(tempfile.mkdtemp(prefix="mh-k-", dir=memory_dir()))
    arena = None
    try:
        arena = Field(home, chance, figures, f"{seed}-{mark}")
        for number in range(kills):
            aim = AIMS[number % len(AIMS)]
            # Where chance has left a phase behind, it is aimed at more often.
            if number % 2:
                aim = min(AIMS[:-1], key=lambda aim: figures.phases[aim.phase])
            arena.kill(number, aim, idle=number % IDLE_EVERY == IDLE_EVERY // 2)
        more = 0
        while (
            kills >= ENOUGH
            and more < MORE
            and (missing := [aim for aim in AIMS[:-1] if not figures.phases[aim.phase]])
        ):
            arena.kill(kills + more, missing[0], idle=False)
            more += 1
        arena.conclude()
    finally:
        if arena is not None:
            arena.close()
        shutil.rmtree(home, ignore_errors=True)
    return figures


def apart(kills: int, seed: int, mark: str) -> Figures:
    """A lane in a process of its own: what it forks are its own descriptors, and its end ends no other."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(lane, kills, seed, mark).result()
        except BrokenProcessPool:
            return Figures(
                broken=[f"the process of workspace {mark} was killed from outside: nothing is known of it"]
            )


def run(size: int, seed: int) -> Report:
    figures, began = Figures(), time.monotonic()
    # At least ENOUGH in each workspace, as far as there are so many.
    batch = min(BATCH, max(ENOUGH, -(-size // LANES)))
    parts = [min(batch, size - start) for start in range(0, size, batch)]
    with ThreadPoolExecutor(LANES) as pool:
        lanes = [pool.submit(apart, part, seed, str(number)) for number, part in enumerate(parts)]
        for finished in as_completed(lanes):
            figures.add(finished.result())
            if size > BATCH:
                spent = time.monotonic() - began
                print(
                    f"{figures.kills} of {size} kills in {spent:.0f} s ({spent / max(1, figures.kills):.2f} s each), "
                    f"{len(figures.broken)} broken, {figures.missed} fell late; {figures.note()}",
                    file=sys.stderr,
                    flush=True,
                )
                for line in finished.result().broken[:5]:
                    print(f"  {line[:4000]}", file=sys.stderr, flush=True)
    if size >= ENOUGH:
        figures.broken += [f"no kill fell into {phase}" for phase in PHASES if not figures.phases[phase]]
    return Report(figures.kills, figures.broken, [figures.note()])


PROOF = Proof(
    name="kill",
    text="kill -9 of the daemon, and of runners, tmux and viewers, in each phase",
    unit="kills",
    daily=40,
    usual=200,
    large=10_000,
    run=run,
    needs={"tmux": "tmux", "git": "git", "flock": "util-linux", "ps": "procps"},
)
