"""Real places and real processes; each test ends what it started, by its marker."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adapters.session import reap
from daemon.kernel.scratch import Place, Scratch

Git = Callable[..., str]


@pytest.fixture
def session_id() -> Iterator[str]:
    name = f"t-1-{secrets.token_hex(6)}"
    yield name
    reap(name, grace_s=0.0)


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    return Scratch(lambda name: tmp_path / "scratch" / name)


@pytest.fixture
def place(scratch: Scratch) -> Place:
    return scratch.provision("one", fresh=False)


@pytest.fixture
def agent_git(tmp_path: Path) -> Git:
    """Git as an agent calls it: with the repository's own configuration, as somebody else."""
    home = tmp_path / "agent-home"
    home.mkdir()

    def git(path: Path, *args: str, **extra: str) -> str:
        env = {"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": str(home)}
        env |= {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        done = subprocess.run(["git", *args], cwd=path, env=env | extra, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
        return done.stdout.decode("utf-8", "replace").strip()

    return git
