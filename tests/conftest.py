"""The order of the tests, and places with a real git."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from daemon.kernel.scratch import Place, Scratch

Git = Callable[..., str]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Proofs, then what else is slow: with several processes the small ones fill what is left at the end."""
    items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in ("proof", "slow")])


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


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """A program that leaves a file RAN in `tmp_path` when it is run, and works as a filter."""
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    program = bin_dir / "evil"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> {tmp_path}/RAN\ncat\n')
    program.chmod(0o755)
    return program
