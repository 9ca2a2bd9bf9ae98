"""A workspace with a daemon of its own, in a directory of its own, driven through `mh` and files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.process import alive, kill_all, wait

#: Prints its own clock and ends: `date` is exec'd, so one process is all there is.
STAMP = "#!/bin/sh\nexec date +%s.%N\n"
SLEEP = "#!/bin/sh\nexec sleep 100000\n"
TRACK = "---\nharness_id: stamp\n---\nNote when you were started.\n"
LONG = "---\nharness_id: long\n---\nGo on.\n"


class Scene:
    def __init__(self, home: Path, slots: int) -> None:
        self.home = home
        self.root = home / "ws"
        self.runtime = home / "run"
        self.runtime.mkdir(mode=0o700)
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "MEGAHARNESS_ROOT": str(self.root),
        }
        self.pid = 0
        self.mh("init")
        settings = f"[limits]\nslots = {slots}\n"
        for name, text in (("stamp", STAMP), ("long", SLEEP)):
            program = self.program(name, text)
            settings += f'[harness.{name}]\nargv = ["{program}", "{{brief}}"]\n'
        (self.root / "megaharness.toml").write_text(settings)

    def program(self, name: str, text: str) -> Path:
        path = self.home / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    @property
    def argv(self) -> list[str]:
        return [sys.executable, "-P", "-m", "daemon"]

    def mh(self, *args: str) -> str:
        done = subprocess.run(
            [*self.argv, *args],
            env=self.env,
            cwd=self.home,
            check=False,
            capture_output=True,
            text=True,
            timeout=600,
        )
        if done.returncode != 0:
            raise RuntimeError(
                f"mh {' '.join(args)} ended with {done.returncode}: {done.stdout}{done.stderr}"
            )
        return done.stdout

    def up(self) -> int:
        self.mh("up", "-d")
        self.pid = int(json.loads((self.root / ".megaharness/daemon.json").read_text())["pid"])
        return self.pid

    def folder(self, state: str) -> Path:
        return self.root / "tracks" / state

    def drop(self, name: str, text: str = TRACK) -> float:
        """As rsync and editors do: written beside, renamed in. Returns the clock at the rename."""
        temp = self.root / "tracks/.tmp" / f"bench-{name}"
        temp.write_text(text)
        at = time.time()
        temp.rename(self.folder("queued") / f"{name}.md")
        return at

    def session(self, track: str) -> Path:
        (found,) = (self.root / "sessions").glob(f"{track}-1-*")
        return found

    def closed(self, name: str) -> bool:
        return (self.folder("done") / f"{name}.md").exists()

    def settle(self, names: list[str], seconds: float = 600.0) -> None:
        """Wait until the sessions of these tracks have their last file."""
        left = set(names)

        def over() -> bool:
            here = set(os.listdir(self.folder("done")))
            for name in [name for name in left if f"{name}.md" in here]:
                if (self.session(name) / "settled").exists():
                    left.discard(name)
            return not left

        wait(over, f"{len(left)} tracks settled", seconds, 0.02)

    def fill(self, *, done: int = 0, queued: int = 0, text: str = TRACK) -> None:
        """Settled tracks with their sessions, and waiting ones, written by hand and not on disk for sure."""
        old = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        journal = []
        for number in range(done):
            name, session = f"old-{number}", f"old-{number}-1-{number:012x}"
            block = f"megaharness:\n  id: {name}\n  status: done\n  session: {session}\n  attempt: 1\n"
            (self.folder("done") / f"{name}.md").write_text(f"---\n{block}---\nAn old task, done long ago.\n")
            directory = self.root / "sessions" / session
            directory.mkdir()
            common = {"v": 1, "session": session, "item": name}
            claim = {"name": f"{name}.md", "attempt": 1, "round": 1, "claimed_at": old, "extra": {}}
            (directory / "claim.json").write_text(json.dumps(common | claim))
            intent = {"termination": "clean", "destination": "done", "at": old, "why": "", "extra": {}}
            (directory / "settle.json").write_text(json.dumps(common | intent))
            settled = {"v": 1, "state": "done", "name": f"{name}.md", "at": old}
            (directory / "settled").write_text(json.dumps(settled))
            row = {
                "at": old,
                "id": name,
                "name": f"{name}.md",
                "session": session,
                "from": "active",
                "to": "done",
                "by": "daemon",
                "why": "clean",
                "termination": "clean",
            }
            journal.append(json.dumps(row) + "\n")
        with (self.root / "tracks/journal.jsonl").open("a") as file:
            file.writelines(journal)
        for number in range(queued):
            (self.folder("queued") / f"new-{number}.md").write_text(text)

    def close(self) -> None:
        if self.pid and alive(self.pid):
            os.kill(self.pid, signal.SIGTERM)
            wait(lambda: not alive(self.pid), "the end of the daemon")
        for socket in self.runtime.glob("*.sock"):
            subprocess.run(["tmux", "-N", "-S", str(socket), "kill-server"], capture_output=True, check=False)
        kill_all(str(self.home))


@contextmanager
def scene(slots: int = 4) -> Iterator[Scene]:
    home = Path(tempfile.mkdtemp(prefix="mh-bench-"))
    made = Scene(home, slots)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(home, ignore_errors=True)
