"""A workspace of its own for each test, and `mh` as a process in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.testing import wait_for

#: The scripts of the environment in which the tests run.
BIN = Path(sys.executable).parent


class Place:
    """One workspace; the path is short, for the socket in it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / "ws"
        self.queued = self.root / "tracks/queued"
        self.settings = self.root / "megaharness.toml"
        self.env = {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_RUNTIME_DIR": str(home / "run"),
            "MEGAHARNESS_ROOT": str(self.root),
        }
        (home / "run").mkdir(mode=0o700)

    def mh(self, *words: str, code: int = 0, text: str | None = None) -> str:
        """What `mh` printed (both streams); its exit code must be as said."""
        ran = subprocess.run(
            [sys.executable, "-P", "-m", "daemon", *words],
            env=self.env,
            cwd=self.home,
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode == code, f"mh {words} ended with {ran.returncode}:\n{ran.stdout}"
        return ran.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.mh(*words, "--json"))

    def complete(self, *words: str) -> list[tuple[str, str]]:
        """(type, value) of what `mh WORDS<TAB>` offers; the last word is the one that is being typed."""
        ran = subprocess.run(
            [BIN / "mh"],
            env={
                **self.env,
                "_MH_COMPLETE": "bash_complete",
                "COMP_WORDS": " ".join(["mh", *words]),
                "COMP_CWORD": str(len(words)),
            },
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ran.stderr == ""
        return [(kind, value) for kind, _, value in (line.partition(",") for line in ran.stdout.splitlines())]

    def values(self, *words: str) -> list[str]:
        return [value for _, value in self.complete(*words)]

    def queue(self, name: str, text: str) -> None:
        temp = self.root / "tracks/.tmp" / f"test-{name}"
        temp.write_text(text)
        temp.rename(self.queued / name)

    def settled(self, name: str) -> str:
        """The folder, once its session is closed."""

        def where() -> str:
            for state in ("done", "failed"):
                if (self.root / "tracks" / state / name).exists():
                    return state
            return ""

        state = wait_for(where, f"{name} to be settled")
        wait_for(
            lambda: all((path / "settled").exists() for path in (self.root / "sessions").iterdir()),
            "its session to be closed",
        )
        return str(state)

    def close(self) -> None:
        from daemon.layout import Workspace
        from daemon.lock import holder

        # What waits for it in a test that failed must not wait for ever.
        (self.home / "gate").touch()
        if holder(Workspace(self.root).lock) is not None:
            self.mh("down")
        for socket in (self.home / "run").glob("*.sock"):
            subprocess.run(
                ["tmux", "-N", "-S", str(socket), "kill-server"], capture_output=True, timeout=10, check=False
            )


@pytest.fixture
def place() -> Iterator[Place]:
    home = Path(tempfile.mkdtemp(prefix="mh-cli-"))
    made = Place(home)
    made.mh("init", str(made.root))
    yield made
    made.close()
    shutil.rmtree(home, ignore_errors=True)
