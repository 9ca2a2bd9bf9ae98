"""What it costs when nothing happens: processor time, memory, and how long the bare `mh` takes."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.figure import Figure, percentile, spread
from benchmarks.peers import Tsp, peer
from benchmarks.process import resident, share, wait
from benchmarks.scene import LONG, Scene, scene

GROUP = "at rest"
VIEW = "the bare mh"


def commands(argv: list[str], env: dict[str, str], count: int) -> list[float]:
    found = []
    for _ in range(count):
        began = time.perf_counter()
        subprocess.run(argv, env=env, check=True, stdout=subprocess.DEVNULL)
        found.append((time.perf_counter() - began) * 1000)
    return found


def _view(here: Scene, count: int, what: str) -> list[Figure]:
    empty = commands([sys.executable, "-c", "pass"], here.env, count)
    ours = commands(here.argv, here.env, count)
    p95 = percentile(ours, 0.95)
    return [
        spread(VIEW, f"an empty Python ({what})", "ms", empty),
        spread(
            VIEW,
            f"mh ({what})",
            "ms",
            ours,
            ratio=percentile(ours, 0.5) / percentile(empty, 0.5),
            target="p95 below 150 ms",
            holds=p95 < 150,
        ),
    ]


def measure(seconds: float, views: int, *, done: int = 10_000, waiting: int = 1_000) -> list[Figure]:
    found = []
    with scene(1) as here:
        found += _view(here, views, "no daemon, empty")
        here.up()
        time.sleep(2)
        found.append(Figure(GROUP, "daemon, empty workspace", "% cpu", share(here.pid, seconds)))
        found += _view(here, views, "empty")
    with scene(1) as here:
        here.fill(done=done, queued=waiting + 1, text=LONG)
        here.up()
        wait(lambda: list((here.root / "sessions").glob("new-*/started.json")), "one track running", step=0.1)
        time.sleep(5)
        used = share(here.pid, seconds)
        what = f"daemon, {done:,} done and {waiting:,} waiting"
        found.append(Figure(GROUP, what, "% cpu", used, target="below 0.5 %", holds=used < 0.5))
        found.append(Figure(GROUP, what, "MB", resident(here.pid)))
        found += _view(here, views, f"{done:,} done, {waiting:,} waiting")
    with peer(Tsp) as other:
        # Each waiting job of it is a process that holds a connection, so fewer.
        some = min(waiting, 200)
        other.add("sleep", "100000")
        for _ in range(some):
            other.add("true")
        found.append(
            Figure(GROUP, f"task-spooler, {some:,} waiting", "% cpu", share(other.daemon(), seconds))
        )
        found.append(Figure(GROUP, f"task-spooler, {some:,} waiting", "MB", resident(other.daemon())))
        found.append(
            spread(VIEW, f"tsp -l ({some:,} waiting)", "ms", commands(other.listing(), other.env, views))
        )
    return found
