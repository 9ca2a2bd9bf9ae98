"""The real daemon, tmux and runner on a disk that refuses for a while, and where it does not start at all."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.testing import wait_for
from tests.crash.spells import Full, NoInodes
from tests.e2e.conftest import Bench

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root"),
]

TRACK = "---\nharness_id: shell\n---\n```sh\necho ok\n```\n"
GATED = """---
harness_id: shell
---
```sh
echo counted
echo run >> {counter}
until [ -e {gate} ]; do sleep 0.05; done
```
"""


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, timeout=60)


@pytest.fixture
def on_disk(make_bench: Callable[[str], Bench]) -> Iterator[Callable[[str], Bench]]:
    """A workspace on a tmpfs with these options."""
    mounted: list[Bench] = []

    def make(options: str) -> Bench:
        bench = make_bench("full")
        _mount("-t", "tmpfs", "-o", f"mode=0700,{options}", "tmpfs", str(bench.root))
        mounted.append(bench)
        bench.mh("init")
        return bench

    yield make
    for bench in mounted:
        bench.close()
        subprocess.run(["umount", "-l", str(bench.root)], check=True, timeout=60)


def _shut(folder: Path) -> bool:
    """Whether this mount takes no writes now: the kernel refuses that while a file in it is open for writing."""
    argv = ["mount", "-o", "remount,ro,bind", str(folder)]
    return subprocess.run(argv, capture_output=True, check=False, timeout=60).returncode == 0


@contextlib.contextmanager
def read_only(*folders: Path) -> Iterator[None]:
    """These folders take no writes: a read-only mount of each lies over it."""
    laid: list[Path] = []
    try:
        for folder in folders:
            _mount("--bind", str(folder), str(folder))
            laid.append(folder)
            wait_for(lambda folder=folder: _shut(folder), f"nobody writes in {folder}")
        yield
    finally:
        for folder in laid:
            subprocess.run(["umount", "-l", str(folder)], check=True, timeout=60)


def _counted(bench: Bench) -> str:
    return GATED.format(counter=bench.home / "counter", gate=bench.home / "gate")


def _is_told(bench: Bench, why: str) -> bool:
    return f"degraded: {why}" in bench.mh()


@pytest.mark.parametrize("moment", ["before it is taken", "while it runs"])
@pytest.mark.parametrize(
    ("options", "spell"), [("size=1m", Full()), ("nr_inodes=200", NoInodes())], ids=["1 MiB", "200 inodes"]
)
def test_a_disk_that_fills_up_is_waited_for(
    on_disk: Callable[[str], Bench], waiting: Any, options: str, spell: Full | NoInodes, moment: str
) -> None:
    bench = on_disk(options)
    bench.up()
    if moment == "while it runs":
        bench.drop("first.md", _counted(bench))
        waiting((bench.home / "counter").exists, "the run")
    waits = bench.root / "tracks/.tmp/waits.md"
    waits.write_text(TRACK)
    spell.begin(bench.root)
    waits.rename(bench.root / "tracks/queued/waits.md")
    (bench.home / "gate").touch()
    waiting(lambda: _is_told(bench, "No space left on device"), "it says that the disk is full")
    assert bench.folder("done") == []
    spell.end(bench.root)
    assert bench.settled("waits.md") == "done", bench.trouble()
    if moment == "while it runs":
        assert bench.settled("first.md") == "done", bench.trouble()
        assert (bench.home / "counter").read_text() == "run\n"
    waiting(lambda: bench.view()["daemon"]["phase"] == "running", "it is no longer degraded")
    assert all(len(bench.sessions_named(name)) == 1 for name in bench.folder("done"))


def test_a_workspace_that_turns_read_only_is_waited_for(bench: Bench, waiting: Any) -> None:
    bench.up()
    bench.drop("first.md", _counted(bench))
    waiting((bench.home / "counter").exists, "the run")
    bench.drop("second.md", TRACK)
    assert bench.settled("second.md") == "done"
    (bench.root / "tracks/.tmp/waits.md").write_text(TRACK)
    (bench.root / "tracks/.tmp/waits.md").rename(bench.root / "tracks/queued/waits.md")
    with read_only(bench.root / "tracks", bench.root / "sessions"):
        (bench.home / "gate").touch()
        waiting(lambda: _is_told(bench, "Read-only file system"), "it says that the disk is read-only")
    for name in ("first.md", "waits.md"):
        assert bench.settled(name) == "done", bench.trouble()
        assert len(bench.sessions_named(name)) == 1
    assert (bench.home / "counter").read_text() == "run\n"
    waiting(lambda: bench.view()["daemon"]["phase"] == "running", "it is no longer degraded")


def test_it_does_not_start_where_no_file_can_be_renamed_between_the_folders(bench: Bench) -> None:
    done = bench.root / "tracks/done"
    _mount("-t", "tmpfs", "-o", "mode=0700", "tmpfs", str(done))
    try:
        said = bench.mh("up", code=78)
    finally:
        subprocess.run(["umount", str(done)], check=True, timeout=60)
    assert f"{done} is on another file system or mount than" in said
    assert "put all folders of tracks/ on one file system" in said


def test_it_does_not_start_on_a_network_file_system(bench: Bench) -> None:
    """The kernel's word for where the workspace lies is played to be one of the network's."""
    script = (
        "import sys\n"
        "from daemon import workspace as ws\n"
        "from daemon.layout import Workspace\n"
        "place = Workspace(ws.Path(sys.argv[2])).queued\n"
        "kind = ws._mount_types()[ws._place(place)[1]]\n"
        "ws.check_start.__kwdefaults__['network'] = frozenset({kind})\n"
        "sys.argv = ['mh', '--root', sys.argv[2], 'up']\n"
        "from daemon.cli import main\n"
        "sys.exit(main())\n"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-c", script, "--root", str(bench.root)],
        env=bench.env,
        cwd=bench.home,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 78, ran.stdout + ran.stderr
    assert "is on a network file system" in ran.stderr
    assert "keep the workspace on a local disk" in ran.stderr
