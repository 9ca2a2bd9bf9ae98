"""From the rename into queued/ (for a peer: from its command) to the job's own clock at its start."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.figure import Figure, percentile, spread
from benchmarks.floor import Floor
from benchmarks.peers import Nq, Tsp, peer
from benchmarks.process import wait
from benchmarks.scene import scene

GROUP = "drop to job started, one at a time"
PACE = 0.05


def measure(count: int) -> list[Figure]:
    with scene() as here:
        here.up()
        floor = Floor(here.runtime)
        floors, syncs, ours = [], [], []
        try:
            # In turns: whatever else the machine does falls on both.
            for number in range(count):
                floors.append(floor.once(number))
                syncs.append(floor.syncs())
                name = f"b{number}"
                began = here.drop(name)
                wait(lambda name=name: here.closed(name) and (here.session(name) / "settled").exists(), name)  # type: ignore[misc]
                ours.append((float((here.session(name) / "events.jsonl").read_text()) - began) * 1000)
                time.sleep(PACE)
        finally:
            floor.close()
        found = [
            spread(GROUP, "the floor: window, empty Python, fsyncs", "ms", floors),
            spread(GROUP, "of it the fsyncs", "ms", syncs),
        ]
        wanted = 2 * percentile(floors, 0.95)
        found.append(
            spread(
                GROUP,
                "megaHarness",
                "ms",
                ours,
                ratio=percentile(ours, 0.95) / percentile(floors, 0.95),
                target="p95 below twice the floor's",
                holds=percentile(ours, 0.95) < wanted,
            )
        )
        stamp = here.home / "stamp"
        for kind, note in ((Nq, "no fsync, no recovery, one at a time"), (Tsp, "the queue is in memory")):
            with peer(kind) as other:
                found.append(spread(GROUP, kind.name, "ms", _peer(other, stamp, count), note=note))
    return found


def _peer(other: Nq | Tsp, stamp: Path, count: int) -> list[float]:
    note, found = other.home / "clock", []
    job = other.home / "job"
    job.write_text(f"#!/bin/sh\n{stamp} > {note}.new && mv {note}.new {note}\n")
    job.chmod(0o755)
    for _ in range(count):
        began = time.time()
        other.add(str(job))
        wait(note.exists, f"a job of {other.name}")
        found.append((float(note.read_text()) - began) * 1000)
        note.unlink()
        time.sleep(PACE)
    return found
