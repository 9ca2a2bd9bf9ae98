"""One daemon for a workspace: a lock that the kernel frees.

Invariants
- The lock is a flock, held for life on a CLOEXEC descriptor; a killed
  daemon's is free at once, whatever stands in the file.
- Nothing forks without exec: a forked child would keep it (04).
- What is written in the file is information for a person, never a decision.
- Who only wants to know takes a shared lock for an instant; `acquire` tries
  for `PATIENCE` seconds, so that such a look never stops a daemon's start.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from daemon.errors import AlreadyRunning

PATIENCE = 0.3
_PAUSE = 0.01


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds the lock, as far as the file tells; `pid` is None when it does not tell.

    boot_id and start_ticks (see proc(5), field 22 of stat) tell whether the
    process of that number is still the same one.
    """

    pid: int | None = None
    boot_id: str = ""
    start_ticks: int | None = None


class Lock:
    """Held from `acquire` until `release` or the end of the process."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    @classmethod
    def acquire(cls, path: Path, patience: float = PATIENCE) -> Lock:
        """Take the lock. Raises `AlreadyRunning`, naming the pid, when another process has it."""
        deadline = time.monotonic() + patience
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                if time.monotonic() >= deadline:
                    raise _already_running(path) from None
                time.sleep(_PAUSE)
                continue
            except BaseException:
                os.close(fd)
                raise
            lock = cls(path, fd)
            if lock.intact():
                lock._inform()
                return lock
            # The file was replaced between open and flock: this lock guards nothing.
            os.close(fd)

    def intact(self) -> bool:
        """Whether the file at the path is still the locked one; if not, a second daemon could start."""
        try:
            there = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(self._fd))

    def release(self) -> None:
        """Give it back; the file stays, since unlinking it would let two hold "the" lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _inform(self) -> None:
        about = {"pid": os.getpid(), "boot_id": boot_id(), "start_ticks": start_ticks(os.getpid())}
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, json.dumps(about).encode() + b"\n", 0)
        except OSError:
            # A full disk must not stop a daemon that has work to settle; the lock itself is held.
            return


def holder(path: Path) -> Holder | None:
    """Who holds the lock; None when it is free. Never waits, and creates nothing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(fd)
    finally:
        os.close(fd)
    return None


def boot_id() -> str:
    """The kernel's name for this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int:
    """When that process started, in clock ticks since the boot. Raises `OSError` if there is none."""
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    # The name in parentheses may hold anything, also ")".
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def _already_running(path: Path) -> AlreadyRunning:
    there = holder(path)
    who = f" (pid {there.pid})" if there and there.pid else ""
    return AlreadyRunning(
        f"a daemon is already running in {path.parent.parent}{who}",
        "look at it with `mh`, end it with `mh down`",
    )


def _read(fd: int) -> Holder:
    try:
        about = json.loads(os.pread(fd, 4096, 0))
        return Holder(int(about["pid"]), str(about["boot_id"]), int(about["start_ticks"]))
    except (ValueError, KeyError, TypeError):
        # Seen between flock and write, or after a full disk: it is held all the same.
        return Holder()
