"""What the kernel says about a process, and how one of ours is ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def wait(condition: Callable[[], object], what: str, seconds: float = 60.0, step: float = 0.002) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(step)


def cpu(pid: int) -> float:
    """Seconds of processor time that it has used, its ended children left out."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def share(pid: int, seconds: float) -> float:
    """Percent of one core over this time. Finer than the clock of /proc/PID/stat where the kernel keeps it."""
    before, began = run_time(pid), time.monotonic()
    time.sleep(seconds)
    return (run_time(pid) - before) / (time.monotonic() - began) * 100


def run_time(pid: int) -> float:
    """Seconds on a processor, all threads (schedstat has nanoseconds)."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        return (
            sum(int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0]) for task in tasks)
            / 1e9
        )
    except FileNotFoundError:
        return cpu(pid)


def resident(pid: int) -> float:
    """Resident memory (MB)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def with_environment(word: str) -> Iterator[int]:
    """The processes whose environment holds this word: a path of ours alone names none of anybody else's."""
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            environment = Path(f"/proc/{name}/environ").read_bytes()
        except OSError:
            continue
        if os.fsencode(word) in environment:
            yield int(name)


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    wait(lambda: not alive(pid), f"the end of {pid}")


def kill_all(word: str) -> None:
    """Everything that was started with this word in its environment, until nothing of it is left."""
    while pids := [pid for pid in with_environment(word) if alive(pid)]:
        for pid in pids:
            kill(pid)


def listener(path: Path) -> int | None:
    """The process that listens at this socket."""
    inode = None
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if len(fields) == 8 and fields[7] == str(path) and fields[3] == "00010000":
            inode = f"socket:[{fields[6]}]"
    for name in os.listdir("/proc") if inode else ():
        try:
            if name.isdigit() and any(
                os.readlink(f"/proc/{name}/fd/{fd}") == inode for fd in os.listdir(f"/proc/{name}/fd")
            ):
                return int(name)
        except OSError:
            continue
    return None
