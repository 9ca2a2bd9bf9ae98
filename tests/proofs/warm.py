"""Starts daemons without the half second in which Python reads their modules.

A parent has read them once; each daemon is a fork of it that is led out of its terminal and its pipes and then
does what `mh up` does. From there on nothing is shared: the lock, the threads and the files are the daemon's own,
and kill -9 ends it as it ends any.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


class Warm:
    """One parent; at most one of its daemons is alive at a time."""

    def __init__(self, root: Path, env: dict[str, str]) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-P", __file__, str(root)],
            env=env,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def start(self) -> int:
        """A daemon's pid."""
        assert self._parent.stdin is not None
        self._parent.stdin.write("start\n")
        self._parent.stdin.flush()
        return int(self._line())

    def ended(self) -> int:
        """Wait for the end of the daemon that was started last; its exit code, below zero for a signal."""
        return os.waitstatus_to_exitcode(int(self._line()))

    def _line(self) -> str:
        assert self._parent.stdout is not None
        line = self._parent.stdout.readline()
        if not line:
            raise RuntimeError(f"the parent of the daemons has ended with {self._parent.wait()}")
        return line

    def close(self) -> None:
        self._parent.kill()
        self._parent.wait()
        for pipe in (self._parent.stdin, self._parent.stdout):
            assert pipe is not None
            pipe.close()


def serve(root: Path) -> None:
    """Fork a daemon for each line; tell its pid, and its wait status when it has ended."""
    from adapters.registry import Registry
    from daemon.assembly import supervise

    Registry({}).get("shell")  # what is read at the first use
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                os.setsid()
                null = os.open("/dev/null", os.O_RDWR)
                for fd in (0, 1, 2):
                    os.dup2(null, fd)
                os.close(null)
                code = supervise(root)
            finally:
                os._exit(code)
        print(pid, flush=True)
        print(os.waitpid(pid, 0)[1], flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
