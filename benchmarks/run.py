"""How quick it is, measured against the floor in the same run; prints ratios, asserts nothing.

    ./scripts/bench [--drops N] [--idle SECONDS] [--json]

The floor of a start is what nothing can undercut: one ``tmux new-window``
that starts an empty ``python3 -I -S``, plus the fsyncs of the protocol.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

TRACK = "---\nharness_id: stamp\n---\nNote when you were started.\n"
#: fsync calls between the rename into queued/ and the harness's first instruction, counted with strace.
FSYNCS = 20


@dataclass(frozen=True)
class Figure:
    """values in milliseconds (or as the unit says); floor: the peer's median in the same run."""

    name: str
    unit: str
    p50: float
    p95: float
    floor: float | None = None

    def line(self) -> str:
        ratio = f"{self.p50 / self.floor:6.2f} x   (floor {self.floor:.1f} {self.unit})" if self.floor else ""
        return f"{self.name:44} {self.p50:9.1f} {self.p95:9.1f} {self.unit:4} {ratio}"


class Scene:
    """A workspace with a daemon, and a plain tmux server beside it."""

    def __init__(self, home: Path) -> None:
        self.root = home / "ws"
        runtime = home / "run"
        runtime.mkdir(mode=0o700)
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_RUNTIME_DIR": str(runtime),
        }
        self.socket = runtime / "floor.sock"
        self.runtime = runtime
        self.mh("init")
        agent = home / "stamp"
        agent.write_text("#!/bin/sh\nexec date +%s.%N\n")
        agent.chmod(0o755)
        settings = f'[limits]\nslots = 4\n[harness.stamp]\nargv = ["{agent}", "{{brief}}"]\n'
        (self.root / "megaharness.toml").write_text(settings)
        self.mh("up", "-d")
        self.pid = int(json.loads((self.root / ".megaharness/daemon.json").read_text())["pid"])
        self.tmux("-f", "/dev/null", "new-session", "-d", "-s", "floor")
        self.tmux("set", "-g", "remain-on-exit", "on")

    def mh(self, *args: str) -> None:
        subprocess.run(
            [sys.executable, "-P", "-m", "daemon", "--root", str(self.root), *args],
            env=self.env,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def tmux(self, *args: str) -> None:
        subprocess.run(["tmux", "-S", str(self.socket), *args], env=self.env, check=True, capture_output=True)

    def close(self) -> None:
        os.kill(self.pid, signal.SIGTERM)
        for socket in self.runtime.glob("*.sock"):
            subprocess.run(["tmux", "-N", "-S", str(socket), "kill-server"], capture_output=True, check=False)


def drops(scene: Scene, count: int) -> list[float]:
    """Milliseconds from the rename into queued/ to the harness's own clock at its start."""
    found = []
    for number in range(count):
        temp = scene.root / f"tracks/.tmp/b{number}"
        temp.write_text(TRACK)
        began = time.time()
        temp.rename(scene.root / f"tracks/queued/b{number}.md")
        done = scene.root / f"tracks/done/b{number}.md"
        wait(done.exists)
        (session,) = (scene.root / "sessions").glob(f"b{number}-1-*")
        found.append((float((session / "events.jsonl").read_text()) - began) * 1000)
        time.sleep(0.05)
    return found


def floor(scene: Scene, count: int) -> list[float]:
    """Milliseconds for a new window with an empty Python that notes its start, plus the fsyncs."""
    found = []
    for number in range(count):
        note = scene.root.parent / f"note{number}"
        program = f"import time; open({str(note)!r}, 'w').write(str(time.time()))"
        began = time.time()
        with open(scene.root.parent / "synced", "ab") as file:
            for _ in range(FSYNCS):
                file.write(b"x" * 200)
                file.flush()
                os.fsync(file.fileno())
        scene.tmux("new-window", "-d", "--", sys.executable, "-I", "-S", "-c", program)
        wait(lambda note=note: note.exists() and note.read_text())
        found.append((float(note.read_text()) - began) * 1000)
    return found


def wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("not within 60 s")
        time.sleep(0.002)


def commands(argv: list[str], env: dict[str, str], count: int) -> list[float]:
    found = []
    for _ in range(count):
        began = time.perf_counter()
        subprocess.run(argv, env=env, check=True, stdout=subprocess.DEVNULL)
        found.append((time.perf_counter() - began) * 1000)
    return found


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> float:
    """MiB"""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def figure(name: str, unit: str, values: list[float], peer: list[float] | None = None) -> Figure:
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return Figure(name, unit, statistics.median(values), p95, statistics.median(peer) if peer else None)


def measure(scene: Scene, count: int, idle: float) -> list[Figure]:
    peers = floor(scene, count)
    started = drops(scene, count)
    found = [figure("drop to harness started", "ms", started, peers)]
    view = [sys.executable, "-P", "-m", "daemon", "--root", str(scene.root)]
    bare = {**scene.env, "MEGAHARNESS_ROOT": str(scene.root)}
    empty = commands([sys.executable, "-c", "pass"], scene.env, count)
    found.append(figure("bare mh (against an empty Python)", "ms", commands(view[:4], bare, count), empty))
    before, began = cpu(scene.pid), time.monotonic()
    time.sleep(idle)
    share = (cpu(scene.pid) - before) / (time.monotonic() - began) * 100
    found.append(figure("idle daemon, share of one core", "%", [share]))
    found.append(figure("idle daemon, resident memory", "MiB", [resident(scene.pid)]))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--drops", type=int, default=30)
    parser.add_argument("--idle", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="mh-bench-"))
    scene = Scene(home)
    try:
        figures = measure(scene, chosen.drops, chosen.idle)
    finally:
        scene.close()
        shutil.rmtree(home, ignore_errors=True)
    if chosen.json:
        print(json.dumps([asdict(each) for each in figures], indent=2))
        return 0
    print(f"{'':44} {'p50':>9} {'p95':>9}")
    for each in figures:
        print(each.line())
    return 0


if __name__ == "__main__":
    sys.exit(main())
