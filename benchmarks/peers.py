"""The peers, each with a queue of its own in a directory of its own.

What they do less: nq syncs nothing to disk, has no recovery and runs one job at a time in each queue
directory; task-spooler keeps its queue in the memory of its server. Neither verifies what came out, keeps
a work directory for each job, or opens a window on it. They are here because they are the quick and good
ones, and show what a queue need not cost.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.process import kill_all, listener


class Nq:
    name = "nq"
    #: In the environment of everything that it starts.
    variable = "NQDIR"

    def __init__(self, home: Path, slots: int = 1) -> None:
        self.home = home
        self.mark = str(home / "queue")
        (home / "queue").mkdir()
        self.env = {"PATH": os.environ["PATH"], self.variable: self.mark, "HOME": str(home)}

    def add(self, *command: str) -> None:
        subprocess.run(
            ["nq", "-q", *command], env=self.env, cwd=self.home, check=True, capture_output=True, timeout=60
        )

    def start(self) -> None:
        """There is no daemon: each job waits for the ones before it by itself."""

    def worker(self) -> int:
        """The process of the job that runs now; its number ends the name of the job's file, which is executable."""
        for name in sorted(os.listdir(self.mark)):
            path = Path(self.mark) / name
            if name.startswith(",") and os.access(path, os.X_OK):
                return int(name.rsplit(".", 1)[1])
        raise LookupError("no job runs")

    def daemon(self) -> int:
        return self.worker()

    def listing(self) -> list[str]:
        return ["nq", "-t"]

    def close(self) -> None:
        kill_all(f"{self.variable}={self.mark}")


class Tsp:
    name = "task-spooler"
    variable = "TS_SOCKET"

    def __init__(self, home: Path, slots: int = 1) -> None:
        self.home = home
        self.mark = str(home / "tsp.sock")
        (home / "out").mkdir()
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            self.variable: self.mark,
            "TS_SLOTS": str(slots),
            "TS_MAXCONN": "1000",
            "TS_MAXFINISHED": "100000",
            "TS_SAVELIST": str(home / "saved"),
            "TMPDIR": str(home / "out"),
        }
        self.start()

    def add(self, *command: str) -> None:
        subprocess.run(
            ["tsp", *command], env=self.env, cwd=self.home, check=True, capture_output=True, timeout=60
        )

    def start(self) -> None:
        subprocess.run(["tsp"], env=self.env, cwd=self.home, check=True, capture_output=True, timeout=60)

    def daemon(self) -> int:
        found = listener(Path(self.mark))
        if found is None:
            raise LookupError("no server listens")
        return found

    def listing(self) -> list[str]:
        return ["tsp", "-l"]

    def close(self) -> None:
        kill_all(f"{self.variable}={self.mark}")


Peer = Nq | Tsp


@contextlib.contextmanager
def peer(kind: type[Nq] | type[Tsp], slots: int = 1) -> Iterator[Peer]:
    home = Path(tempfile.mkdtemp(prefix="mh-bench-"))
    made = kind(home, slots)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(home, ignore_errors=True)
