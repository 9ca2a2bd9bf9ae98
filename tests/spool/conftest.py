"""A spool of each shape, and another program that has a file open."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from daemon.durable import Files
from daemon.spool.exchange import Exchange
from daemon.spool.sessions import Sessions
from daemon.spool.states import STATES
from daemon.spool.store import Store


class TracedFiles(Files):
    """The real ones; `trace` is what was announced, and `hooks` are called at that moment."""

    def __init__(self) -> None:
        super().__init__()
        self.trace: list[str] = []
        self.hooks: dict[str, object] = {}

    def before(self, name: str, *args: object) -> None:
        self._at(f"before {name}", args)

    def after(self, name: str, *args: object) -> None:
        self._at(f"after {name}", args)

    def _at(self, label: str, args: tuple[object, ...]) -> None:
        last = args[-1] if name_only(args) else args[0] if args else ""
        self.trace.append(f"{label} {Path(str(last)).name}")
        hook = self.hooks.pop(label, None)
        if callable(hook):
            hook()


def name_only(args: tuple[object, ...]) -> bool:
    return len(args) == 2 and all(isinstance(arg, Path) for arg in args)


@dataclass
class Spool:
    """A root with the four folders, and where its sessions are."""

    root: Path
    files: TracedFiles
    store: Store
    sessions: Sessions
    exchange: Exchange

    def put(self, state: str, name: str, data: bytes = b"do it\n") -> Path:
        path = self.root / state / name
        path.write_bytes(data)
        return path


@pytest.fixture(params=["tracks", "packets"])
def spool(request: pytest.FixtureRequest, tmp_path: Path) -> Spool:
    if request.param == "tracks":
        root, sessions = tmp_path / "tracks", tmp_path / "sessions"
    else:
        root, sessions = tmp_path / "runs/first/packets", tmp_path / "runs/first/sessions"
    for folder in (*STATES, ".tmp", ".displaced"):
        (root / folder).mkdir(parents=True)
    sessions.mkdir()
    files = TracedFiles()
    return Spool(
        root, files, Store(root, files), Sessions(sessions, files), Exchange(root / ".displaced", files)
    )


WRITER = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | (os.O_TRUNC if sys.argv[2] == "truncate" else 0))
print("open", flush=True)
for line in sys.stdin:
    os.lseek(fd, 0, os.SEEK_END)
    os.write(fd, line.encode())
    print("written", flush=True)
"""


class Writer:
    """Another process that opens a file for writing, and writes a line when told to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def has_opened(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "open\n"

    def write(self, line: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "written\n"

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait() == 0


@contextmanager
def writer(path: Path, mode: str = "") -> Iterator[Writer]:
    """`has_opened` waits for it: it may be kept waiting by a lease."""
    argv = [sys.executable, "-I", "-S", "-c", WRITER, str(path), mode]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Writer(process)
        finally:
            process.kill()
