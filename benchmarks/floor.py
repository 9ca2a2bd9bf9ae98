"""The floor of a start: what nothing that keeps the same promises with the same parts can undercut.

One `tmux new-window` that starts an empty `python3 -I -S`, and the protocol's writes: so many small files
are made, synced, renamed and their directory synced between the rename into queued/ and the harness's first
instruction. Both are done here and now, on the same disk, so that a ratio means something anywhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.process import wait

#: fsync calls from the rename into queued/ to the first instruction of the harness: two for each file that is
#: published (claim, spec, place, brief, environment, launch, start gate), and those of the moves and of the journal.
FSYNCS = 20


class Floor:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.socket = home / "floor.sock"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
        }
        self.tmux("-f", "/dev/null", "new-session", "-d", "-s", "floor", "exec sleep 100000")
        self.tmux("set", "-g", "remain-on-exit", "off")

    def tmux(self, *args: str) -> None:
        subprocess.run(["tmux", "-S", str(self.socket), *args], env=self.env, check=True, capture_output=True)

    def once(self, number: int) -> float:
        """Milliseconds."""
        note = self.home / f"note{number}"
        program = f"import time; open({str(note)!r}, 'w').write(str(time.time()))"
        began = time.time()
        self.sync()
        self.tmux("new-window", "-d", "--", sys.executable, "-I", "-S", "-c", program)
        wait(lambda: note.exists() and note.read_text(), "the floor's window")
        return (float(note.read_text()) - began) * 1000

    def sync(self) -> None:
        for number in range(FSYNCS // 2):
            temp, path = self.home / f"temp{number}", self.home / f"file{number}"
            fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.write(fd, b"x" * 300)
            os.fsync(fd)
            os.close(fd)
            temp.rename(path)
            fd = os.open(self.home, os.O_RDONLY | os.O_DIRECTORY)
            os.fsync(fd)
            os.close(fd)

    def syncs(self) -> float:
        """Milliseconds of the writes alone."""
        began = time.perf_counter()
        self.sync()
        return (time.perf_counter() - began) * 1000

    def close(self) -> None:
        subprocess.run(
            ["tmux", "-N", "-S", str(self.socket), "kill-server"], capture_output=True, check=False
        )
