"""A workspace of its own for each test, driven as a person does: through `mh` and files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.testing import wait_for

REPOSITORY = Path(__file__).resolve().parents[2]


class Bench:
    """One workspace, its environment, and what tests do with them."""

    #: A program, with its arguments, under which every `mh` runs.
    under: tuple[str, ...] = ()

    def __init__(self, home: Path, root: Path) -> None:
        self.home = home
        self.root = root
        self.runtime = home / "run"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "SECRET_OF_THE_DAEMON": "hunter2-never-pass-on",
        }
        self.runtime.mkdir(mode=0o700)
        self.started: list[int] = []

    # -- the command line

    def mh(
        self, *args: str, code: int = 0, stdin: str | None = None, env: dict[str, str] | None = None
    ) -> str:
        """Run `mh`; its exit code must be as said. Returns what it printed (both streams)."""
        done = subprocess.run(
            [*self.under, sys.executable, "-P", "-m", "daemon", "--root", str(self.root), *args],
            env={**self.env, **(env or {})},
            cwd=self.home,
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, f"mh {args} ended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    def json(self, *args: str) -> Any:
        return json.loads(self.mh(*args, "--json"))

    def view(self) -> Any:
        return json.loads(self.mh("--json"))

    # -- the daemon

    def up(self) -> int:
        self.mh("up", "-d")
        pid = int(json.loads((self.root / ".megaharness/daemon.json").read_text())["pid"])
        self.started.append(pid)
        return pid

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / ".megaharness/daemon.json").read_text())
        return found

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        os.kill(pid, number)
        wait_for(lambda: not alive(pid), f"the end of {pid}")

    # -- files

    def drop(self, name: str, text: str) -> Path:
        """Drop a file as rsync and editors do: written beside, renamed in."""
        temp = self.root / "tracks/.tmp" / f"test-{name}"
        temp.write_text(text)
        target = self.root / "tracks/queued" / name
        temp.rename(target)
        return target

    def folder(self, state: str) -> list[str]:
        return sorted(os.listdir(self.root / "tracks" / state))

    def settled(self, name: str, seconds: float = 60.0) -> str:
        """Wait until the file is settled with its marker written; returns the folder."""

        def where() -> str | None:
            for state in ("done", "failed"):
                if (self.root / "tracks" / state / name).exists():
                    return state
            return None

        state = wait_for(where, f"{name} settled; {self.trouble()}", seconds)
        wait_for(
            lambda: all((path / "settled").exists() for path in self.sessions_named(name)), f"{name} closed"
        )
        return str(state)

    def sessions_named(self, name: str) -> list[Path]:
        found = []
        for path in sorted((self.root / "sessions").iterdir()):
            try:
                claimed = json.loads((path / "claim.json").read_text())["name"]
            except (FileNotFoundError, ValueError):
                continue
            if claimed == name:
                found.append(path)
        return found

    def session(self, name: str) -> Path:
        return wait_for(lambda: (self.sessions_named(name) or [None])[-1], f"a session of {name}")  # type: ignore[no-any-return]

    def text(self, state: str, name: str) -> str:
        return (self.root / "tracks" / state / name).read_text()

    def rows(self) -> list[dict[str, Any]]:
        return [
            json.loads(line)
            for path in sorted((self.root / "md-db/evals").glob("*.jsonl"))
            for line in path.read_text().splitlines()
        ]

    def journal(self) -> list[dict[str, Any]]:
        path = self.root / "tracks/journal.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def trouble(self) -> str:
        log = self.root / ".megaharness/log/daemon.jsonl"
        return log.read_text()[-3000:] if log.exists() else "no log"

    # -- the end

    def close(self) -> None:
        """End everything that this workspace started, and only that."""
        for pid in self.started:
            if alive(pid) and str(self.root) in cmdline(pid):
                os.kill(pid, signal.SIGKILL)
        from adapters import session

        for path in (self.root / "sessions").iterdir() if (self.root / "sessions").is_dir() else []:
            if (path / "started.json").exists() and not (path / "exit.json").exists():
                session.force(path)
            session.reap(path.name, grace_s=0.1)
        for socket in self.runtime.glob("*.sock"):
            subprocess.run(
                ["tmux", "-N", "-S", str(socket), "kill-server"], capture_output=True, timeout=10, check=False
            )


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def cmdline(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


@pytest.fixture
def make_bench() -> Iterator[Callable[[str], Bench]]:
    """Make a bench whose workspace has the given directory name. Short paths: sockets have 107 bytes."""
    made: list[Bench] = []
    homes: list[Path] = []

    def make(name: str = "ws") -> Bench:
        home = Path(tempfile.mkdtemp(prefix="mh-e2e-"))
        homes.append(home)
        bench = Bench(home, home / name)
        bench.mh("init")
        made.append(bench)
        return bench

    yield make
    for bench in made:
        bench.close()
    for home in homes:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def bench(make_bench: Callable[[str], Bench]) -> Bench:
    return make_bench("ws")


@pytest.fixture
def waiting() -> Callable[..., Any]:
    return wait_for
