"""How many tiny jobs a second when many come at once, and where the time of one goes."""

from __future__ import annotations

import itertools
import os
import statistics
import time

from benchmarks.figure import Figure
from benchmarks.peers import Nq, Tsp, peer
from benchmarks.process import run_time, wait
from benchmarks.scene import Scene, scene

GROUP = "many tiny jobs at once"
PHASES = "where the time of one tiny track goes"
#: The files of a session in the order in which they come, and what lies between each and the one before.
STEPS = (
    ("claim.json", None),
    ("place.json", "the claim carried out, its work directory"),
    ("launch.json", "the brief and the order of its start"),
    ("started.json", "window, Python of the runner, start gate"),
    ("exit.json", "the job itself, and what it printed put on disk"),
    ("leftovers.json", "the end noticed, what is uncommitted listed"),
    ("outcome.json", "checks and commit"),
    ("settle.json", "the result put together, the intent"),
    ("settled", "result, eval row, move, journal"),
)


def measure(count: int, slots: int) -> list[Figure]:
    found = []
    with scene(slots) as here:
        here.up()
        names = [f"t{number}" for number in range(count)]
        before, began = run_time(here.pid), time.monotonic()
        for name in names:
            here.drop(name)
        here.settle(names)
        took = time.monotonic() - began
        used = (run_time(here.pid) - before) / took * 100
        found.append(
            Figure(
                GROUP,
                f"megaHarness, {slots} slots",
                "1/s",
                count / took,
                note=f"{count} tracks, each on disk and verified",
            )
        )
        found.append(
            Figure(
                GROUP,
                "its daemon meanwhile",
                "% cpu",
                used,
                note="the rest is git, tmux, the runners and the disk",
            )
        )
        found += _phases(here, names)
        job = here.home / "stamp"
        for kind, note in (
            (Nq, "one after the other, nothing on disk for sure"),
            (Tsp, "the queue in memory"),
        ):
            with peer(kind, slots) as other:
                mark = other.home / "marks"
                mark.mkdir()
                script = other.home / "job"
                script.write_text(f"#!/bin/sh\n{job} > {mark}/$1\n")
                script.chmod(0o755)
                began = time.monotonic()
                for number in range(count):
                    other.add(str(script), str(number))
                wait(lambda mark=mark: len(os.listdir(mark)) == count, f"the jobs of {kind.name}", 300)  # type: ignore[misc]
                found.append(
                    Figure(
                        GROUP,
                        f"{kind.name}, {slots if kind is Tsp else 1} slots",
                        "1/s",
                        count / (time.monotonic() - began),
                        note=note,
                    )
                )
    return found


def _phases(here: Scene, names: list[str]) -> list[Figure]:
    """By the ctime of each session's files."""
    spans: dict[str, list[float]] = {}
    whole = []
    for name in names:
        directory = here.session(name)
        times = [(what, os.lstat(directory / file).st_ctime_ns / 1e6) for file, what in STEPS]
        whole.append(times[-1][1] - times[0][1])
        for (_, before), (what, after) in itertools.pairwise(times):
            if what is not None:
                spans.setdefault(what, []).append(after - before)
    found = [
        Figure(PHASES, what, "ms", statistics.mean(values), note="mean") for what, values in spans.items()
    ]
    return [
        *found,
        Figure(
            PHASES,
            "together, from the claim on",
            "ms",
            statistics.mean(whole),
            note="mean, all slots at work",
        ),
    ]
