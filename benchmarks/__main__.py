"""How quick it is and how much it takes, beside its peers and the floor, all in the same run.

    ./scripts/bench [--quick] [--json FILE] [--only NAME]...

Prints figures; asserts nothing: the exit code says only whether everything could be measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import drops, idle, mddb, sizes, survival, throughput, transcripts
from benchmarks.figure import Figure, table


@dataclass(frozen=True, slots=True)
class Counts:
    drops: int = 200
    tracks: int = 200
    slots: int = 4
    seconds: float = 60.0
    views: int = 30
    files: int = 100_000
    sessions: int = 50
    megabytes: int = 100
    documents: int = 5_000
    rounds: int = 7


QUICK = Counts(
    drops=25,
    tracks=40,
    seconds=15.0,
    views=10,
    files=10_000,
    sessions=10,
    megabytes=30,
    documents=1_000,
    rounds=3,
)


def parts(counts: Counts) -> dict[str, Callable[[], list[Figure]]]:
    return {
        "drops": lambda: drops.measure(counts.drops),
        "throughput": lambda: throughput.measure(counts.tracks, counts.slots),
        "idle": lambda: idle.measure(counts.seconds, counts.views),
        "files": lambda: sizes.large(counts.files, counts.seconds),
        "sessions": lambda: sizes.many(counts.sessions),
        "database": lambda: mddb.measure(counts.documents, counts.rounds),
        "transcripts": lambda: transcripts.measure(counts.megabytes, counts.rounds),
    }


def machine() -> str:
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    system = f"Linux {platform.release()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} x {model}, {system}, load {os.getloadavg()[0]:.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*parts(QUICK), "survival"]
    parser.add_argument("--quick", action="store_true", help="small counts: a few minutes in all")
    parser.add_argument("--only", action="append", choices=names, help="only this part; may be repeated")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there, too")
    for name, kind in Counts.__annotations__.items():
        parser.add_argument(
            f"--{name}", type=float if kind == "float" else int, help=f"default {getattr(Counts(), name)}"
        )
    chosen = parser.parse_args()
    base = QUICK if chosen.quick else Counts()
    given = {name: getattr(chosen, name) for name in Counts.__annotations__}
    counts = Counts(
        **{name: getattr(base, name) if value is None else value for name, value in given.items()}
    )
    wanted = chosen.only or names
    print(f"{machine()}\n{counts}\n")
    figures: list[Figure] = []
    for name, measure in parts(counts).items():
        if name in wanted:
            found = measure()
            print(table(found), flush=True)
            figures += found
    outcomes = survival.measure() if "survival" in wanted else []
    if outcomes:
        print(survival.table(outcomes))
    if chosen.json:
        record = {
            "machine": machine(),
            "figures": [each.as_dict() for each in figures],
            "survival": [each.as_dict() for each in outcomes],
        }
        chosen.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
