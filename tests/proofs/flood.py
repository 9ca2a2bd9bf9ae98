"""Thousands of files dropped at once by rename: every one of them runs, exactly once.

Small floods are wholly real: daemon, tmux, runners. In a large one, which would take hours, the terminal with its
runners is played (tests/crash/stage.py), and the supervisor, the watcher and the spool are real. It is dropped
while the process is stopped, so that the kernel's queue of events overflows and the watcher misses most of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from daemon.config import Settings
from daemon.kernel.clock import Now
from daemon.notify import Notifier
from daemon.spool.states import STATES
from daemon.spool.watcher import Watcher
from daemon.supervisor import Supervisor
from tests.crash.cases import memory_dir
from tests.crash.lives import track
from tests.crash.world import Fault, Life, World, check
from tests.e2e.conftest import Bench
from tests.proofs.proof import Proof, Report

#: Up to so many files the flood is wholly real.
REAL = 1000
#: Tracks at once: of real ones, and of played ones (each holds a descriptor).
SLOTS, PLAYED_SLOTS = 8, 300
#: Seconds without an end of any track after which it hangs; on a busy machine three hundred at once take long.
HANGS = 600.0
#: How many events the kernel keeps (fs.inotify.max_queued_events).
QUEUE = Path("/proc/sys/fs/inotify/max_queued_events")

TEXT = """---
harness_id: shell
---
# {name}

```bash
echo run >> {counter}
echo counted
```
"""

#: Stops the process that is named, renames everything from one directory into another, and lets it go on.
DROP = """
import os, signal, sys
parent, source, target = int(sys.argv[1]), sys.argv[2], sys.argv[3]
names = os.listdir(source)
if parent: os.kill(parent, signal.SIGSTOP)
try:
    for name in names: os.rename(f"{source}/{name}", f"{target}/{name}")
finally:
    if parent: os.kill(parent, signal.SIGCONT)
"""


def _drop(stopped: int, source: Path, target: Path) -> None:
    subprocess.run(
        [sys.executable, "-I", "-S", "-c", DROP, str(stopped), source, target], check=True, timeout=120
    )


class Counting(Watcher):
    """How often the kernel's queue has overflowed."""

    overflows = 0

    def _overflowed(self) -> None:
        self.overflows += 1
        super()._overflowed()


class Flooded(World):
    """The crash world with the real watcher, and the real clock."""

    def boot(self, fault: Fault | None) -> None:
        super().boot(fault)
        workspace, flag = self.workspace, threading.Event()
        self.parts.settings = Settings.model_validate({"limits": {"slots": PLAYED_SLOTS}})
        folders = frozenset({*(workspace.tracks / state for state in STATES), workspace.requests})
        self.watcher = Counting(workspace.tracks, folders, workspace.wake, flag)
        self.supervisor = Supervisor(self.parts, flag, lambda: self.watcher, Notifier())
        self.supervisor.recover(self.now())
        self.supervisor._check_watcher()

    def now(self) -> Now:
        return Now(time.monotonic(), time.time())

    def settled(self) -> int:
        return len(os.listdir(self.workspace.done)) + len(os.listdir(self.workspace.failed))

    def flow(self, count: int) -> None:
        """Until everything has settled."""
        known, moved = 0, time.monotonic()
        while (settled := self.settled()) < count or not self.idle():
            if settled > known:
                known, moved = settled, time.monotonic()
            if time.monotonic() - moved > HANGS:
                self.faults.append(f"it hangs: {settled} of {count} have ended")
                return
            self.stage.step()
            due = self.supervisor.turn(self.now())
            if not self.stage.busy:
                self.supervisor._sleep(min(due, time.monotonic() + 0.1))


def played(size: int) -> Report:
    home = Path(tempfile.mkdtemp(prefix="mh-fl-", dir=memory_dir()))
    old = os.umask(0o077)
    world = None
    try:
        names = [f"f{number}" for number in range(size)]
        life = Life("flood", {}, {f"done/{name}.md": 1 for name in names})
        world = Flooded(home / "w", life)
        world.words = [(name, f"words of {name}") for name in names]
        source = world.workspace.tmp / "flood"
        source.mkdir()
        for name in names:
            (source / f"{name}.md").write_bytes(track(name))
        world.boot(None)
        _drop(os.getpid(), source, world.workspace.queued)
        source.rmdir()
        world.flow(size)
        report = Report(world.stage.runs.total(), check(world))
        overflows = world.watcher.overflows
        report.notes.append(f"runners played, {overflows} overflows of the kernel's queue of events")
        if size > int(QUEUE.read_text()) and not overflows:
            report.broken.append("the kernel's queue of events did not overflow")
        return report
    finally:
        os.umask(old)
        if world is not None:
            world.watcher.stop()
        shutil.rmtree(home, ignore_errors=True)


def real(size: int) -> Report:
    home = Path(tempfile.mkdtemp(prefix="mh-fl-", dir=memory_dir()))
    bench = Bench(home, home / "w")
    try:
        bench.mh("init")
        settings = bench.root / "megaharness.toml"
        settings.write_text(settings.read_text().replace("# slots = 3", f"slots = {SLOTS}"))
        source, counters = bench.root / "tracks/.tmp/flood", home / "counters"
        source.mkdir()
        counters.mkdir()
        names = [f"f{number}.md" for number in range(size)]
        for name in names:
            (source / name).write_text(TEXT.format(name=name, counter=counters / name))
        bench.up()
        _drop(0, source, bench.root / "tracks/queued")
        report = Report()
        known, moved = 0, time.monotonic()
        while (settled := len(list((bench.root / "sessions").glob("*/settled")))) < size:
            if settled > known:
                known, moved = settled, time.monotonic()
            if time.monotonic() - moved > HANGS:
                report.broken.append(f"it hangs: {settled} of {size} have ended; {bench.trouble()}")
                break
            time.sleep(0.05)
        done, evals = bench.folder("done"), Counter(row["track_id"] for row in bench.rows())
        moves = Counter((row["name"], row["to"]) for row in bench.journal())
        for name in names:
            ran = (counters / name).read_text() if (counters / name).exists() else ""
            report.cases += ran == "run\n"
            facts = (
                ran,
                name in done,
                evals[name.removesuffix(".md")],
                moves[name, "active"],
                moves[name, "done"],
            )
            if facts != ("run\n", True, 1, 1, 1):
                report.broken.append(f"{name}: ran, done, eval rows, journal lines: {facts}")
            elif bench.text("done", name).count("<!-- megaharness: result") != 1:
                report.broken.append(f"{name}: its result does not stand once in the file")
        left = bench.folder("queued") + bench.folder("active") + bench.folder("failed")
        if left or len(done) != size:
            report.broken.append(f"left: {left}; {len(done)} are done")
        report.notes.append("wholly real")
        return report
    finally:
        bench.close()
        shutil.rmtree(home, ignore_errors=True)


def run(size: int, seed: int) -> Report:
    return real(size) if size <= REAL else played(size)


PROOF = Proof(
    name="flood",
    text="files dropped at once by rename: all run, each once",
    unit=f"files (up to {REAL} wholly real)",
    daily=100,
    usual=300,
    large=17_000,
    run=run,
    needs={"tmux": "tmux", "git": "git"},
)
