"""What is left after kill -9: a queue with some jobs done, one running, the rest waiting.

Twice for each system: its daemon alone (nq has none: the process of the running job), and every process
that it started, as at a logout or a power cut without the disk's part. Then it is started again as its
manual says, and the jobs' own log tells what ran, what ran twice and what never came.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers import Nq, Tsp, peer
from benchmarks.process import kill, kill_all, wait
from benchmarks.scene import scene

JOBS = 12
#: How long one job takes (s), and after how many ended ones the kill comes.
LASTS, AFTER = 0.4, 3
#: Seconds in which nothing more has happened: then that was all.
QUIET = 6.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """done: jobs that ended. twice: started more than once. cut: begun, never ended. never: not even begun.

    told: of those that did not end, how many the system itself names as ended badly.
    """

    system: str
    killed: str
    jobs: int
    done: int
    twice: int
    cut: int
    never: int
    told: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _job(home: Path) -> tuple[Path, Path]:
    log = home / "ran"
    log.touch()
    job = home / "job"
    job.write_text(f"#!/bin/sh\necho begin $1 >> {log}\nsleep {LASTS}\necho end $1 >> {log}\necho done\n")
    job.chmod(0o755)
    return log, job


def _counts(log: Path) -> tuple[Counter[str], Counter[str]]:
    begun: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    for line in log.read_text().splitlines():
        word, _, number = line.partition(" ")
        (begun if word == "begin" else ended)[number] += 1
    return begun, ended


def _play(
    system: str,
    killed: str,
    log: Path,
    strike: Callable[[], None],
    again: Callable[[], None],
    told: Callable[[], int],
) -> Outcome:
    wait(
        lambda: len(_counts(log)[1]) >= AFTER and len(_counts(log)[0]) > len(_counts(log)[1]),
        "jobs under way",
    )
    strike()
    again()
    size, since = -1, time.monotonic()
    while time.monotonic() - since < QUIET and len(_counts(log)[1]) < JOBS:
        if log.stat().st_size != size:
            size, since = log.stat().st_size, time.monotonic()
        time.sleep(0.05)
    begun, ended = _counts(log)
    return Outcome(
        system,
        killed,
        JOBS,
        done=len(ended),
        twice=sum(1 for times in begun.values() if times > 1),
        cut=len(set(begun) - set(ended)),
        never=JOBS - len(begun),
        told=told(),
    )


def measure() -> list[Outcome]:
    found = []
    for everything in (False, True):
        found.append(_ours(everything))
        found.append(_nq(everything))
        found.append(_tsp(everything))
    return found


def _ours(everything: bool) -> Outcome:
    with scene(1) as here:
        log, job = _job(here.home)
        argv = ["/bin/sh", "-c", f'exec {job} $(sed -n s/^number://p "$1")', "job", "{brief}"]
        with (here.root / "megaharness.toml").open("a") as settings:
            settings.write(f"[harness.job]\nargv = {json.dumps(argv)}\n")  # also TOML
        here.up()
        for number in range(JOBS):
            here.drop(f"j{number:02}", f"---\nharness_id: job\n---\nnumber:{number}\n")

        def strike() -> None:
            kill(here.pid)
            if everything:
                kill_all(str(here.home))

        def told() -> int:
            return len([path for path in here.folder("failed").iterdir() if path.suffix == ".md"])

        return _play(
            "megaHarness",
            "everything" if everything else "the daemon",
            log,
            strike,
            lambda: here.up() and None,
            told,
        )


def _nq(everything: bool) -> Outcome:
    with peer(Nq) as other:
        assert isinstance(other, Nq)
        log, job = _job(other.home)
        for number in range(JOBS):
            other.add(str(job), str(number))

        def strike() -> None:
            if everything:
                other.close()
            else:
                kill(other.worker())

        # `nq -t` tells whether something still runs or waits, not how it ended; the output files tell it.
        def told() -> int:
            return sum(
                1
                for path in Path(other.mark).glob(",*")
                if "[exited with status" in path.read_text() and "status 0" not in path.read_text()
            )

        return _play(
            "nq",
            "everything" if everything else "the running job's process (no daemon)",
            log,
            strike,
            other.start,
            told,
        )


def _tsp(everything: bool) -> Outcome:
    with peer(Tsp) as other:
        assert isinstance(other, Tsp)
        log, job = _job(other.home)
        for number in range(JOBS):
            other.add(str(job), str(number))

        def strike() -> None:
            if everything:
                other.close()
            else:
                kill(other.daemon())

        def told() -> int:
            rows = subprocess.run(
                other.listing(), env=other.env, capture_output=True, text=True, check=False
            ).stdout
            return sum(1 for row in rows.splitlines()[1:] if " finished " in row and row.split()[3] != "0")

        return _play(
            "task-spooler", "everything" if everything else "the server", log, strike, other.start, told
        )


def table(outcomes: list[Outcome]) -> str:
    lines = [
        f"{'after kill -9, started again':52}{'jobs':>6}{'ended':>7}{'twice':>7}{'cut off':>9}{'never':>7}{'told':>6}"
    ]
    for each in outcomes:
        numbers = f"{each.jobs:6}{each.done:7}{each.twice:7}{each.cut:9}{each.never:7}{each.told:6}"
        lines.append(f"  {f'{each.system}: {each.killed}':50}{numbers}")
    return "\n".join(lines) + "\n"
