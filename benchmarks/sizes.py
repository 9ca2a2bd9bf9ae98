"""A queue of 100,000 files, and 50 sessions at once."""

from __future__ import annotations

import json
import time

from benchmarks.figure import Figure
from benchmarks.process import resident, run_time, share, wait
from benchmarks.scene import LONG, scene

GROUP = "a large queue"
MANY = "many sessions"


def large(count: int, seconds: float) -> list[Figure]:
    with scene(2) as here:
        here.fill(queued=count, text=LONG)
        began = time.monotonic()
        here.up()
        ready = time.monotonic() - began
        wait(lambda: list((here.root / "sessions").glob("*/started.json")), "the first session", 600, 0.01)
        first = time.monotonic() - began
        what = f"{count:,} queued files"
        found = [
            Figure(GROUP, f"{what}: start until it is ready", "s", ready, target="seconds", holds=ready < 10),
            Figure(
                GROUP,
                f"{what}: start until the first one runs",
                "s",
                first,
                target="seconds",
                holds=first < 10,
            ),
        ]
        state = here.root / ".megaharness/daemon.json"
        wait(lambda: json.loads(state.read_text()).get("reading", 0) == 0, "all files read", 1200, 0.2)
        found.append(Figure(GROUP, "until every file has been read", "s", time.monotonic() - began))
        time.sleep(5)
        found.append(Figure(GROUP, "at rest", "% cpu", share(here.pid, seconds)))
        found.append(Figure(GROUP, "resident memory", "MB", resident(here.pid)))
        before, ticks = run_time(here.pid), json.loads(state.read_text())["ticks"]
        for number in range(20):
            here.drop(f"more-{number}", LONG)
            time.sleep(0.25)
        wait(lambda: json.loads(state.read_text())["waiting_total"] >= count + 18, "the drops seen", 60, 0.05)
        more = max(1, json.loads(state.read_text())["ticks"] - ticks)
        found.append(
            Figure(
                GROUP,
                "a tick with one file more",
                "ms",
                (run_time(here.pid) - before) / more * 1000,
                note=f"{more} ticks",
            )
        )
    return found


def many(count: int) -> list[Figure]:
    with scene(count) as here:
        here.up()
        empty = resident(here.pid)
        for number in range(count):
            here.drop(f"live-{number}", LONG)
        wait(
            lambda: len(list((here.root / "sessions").glob("*/started.json"))) == count,
            "all of them run",
            300,
            0.1,
        )
        time.sleep(5)
        mine = resident(here.pid)
        return [
            Figure(MANY, "the daemon alone", "MB", empty),
            Figure(MANY, f"with {count} live sessions", "MB", mine, target="below 80 MB", holds=mine < 80),
            Figure(MANY, f"with {count} live sessions, at rest", "% cpu", share(here.pid, 15)),
        ]
