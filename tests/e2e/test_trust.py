"""What an agent, or a disk, can put in the daemon's way: nothing is believed that the daemon did not write itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import alive

pytestmark = pytest.mark.slow

SESSION = 'S="$ROOT/sessions/$MEGAHARNESS_SESSION"\n'
PROOF = "done_when:\n  - run: test -f proof\n"


def script(root: Path, lines: str, keys: str = "") -> str:
    return f"---\nharness_id: shell\n{keys}---\n# t\n\n```bash\nROOT={root}\n{SESSION}{lines}\n```\n"


def work(bench, name: str) -> Path:
    return Path(json.loads((bench.session(name) / "launch.json").read_text())["cwd"])


# --- a disk that is full ----------------------------------------------------------------------------------


@pytest.fixture
def small(make_bench: Callable[..., object], tmp_path: Path) -> Iterator[object]:
    """A bench whose scratch repositories lie on a disk of their own, of 1 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    bench = make_bench("ws")
    disk = bench.home / "state"
    disk.mkdir(mode=0o700, exist_ok=True)
    options = "size=1m,nr_inodes=3000,mode=0700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], check=True)
    try:
        yield bench
    finally:
        bench.close()
        subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with open(filler, "wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(4096))
    return filler


def test_a_full_disk_for_scratch_burns_no_track(small, waiting):
    bench, disk = small, small.home / "state"
    bench.up()
    bench.drop("first.md", script(bench.root, "echo hi"))
    assert bench.settled("first.md") == "done", bench.trouble()
    filler = fill(disk)
    names = [f"t{number}.md" for number in range(4)]
    for name in names:
        bench.drop(name, script(bench.root, "echo hi"))
    waiting(lambda: bench.state()["phase"] == "degraded", "it is degraded")
    assert bench.folder("failed") == []
    waiting(lambda: not list(disk.rglob(".new-*")), "nothing half made is left")
    filler.unlink()
    for name in names:
        assert bench.settled(name, 90) == "done", bench.trouble()
    waiting(lambda: bench.view()["daemon"]["phase"] == "running", "it is no longer degraded")


def test_a_full_disk_at_the_end_loses_no_commit(small, waiting):
    bench, disk = small, small.home / "state"
    bench.up()
    lines = f"echo important > work.txt\nhead -c 5M /dev/zero > {disk}/filler\necho said"
    bench.drop("a.md", script(bench.root, lines, "done_when:\n  - run: test -f work.txt\n"))
    waiting(lambda: bench.state()["phase"] == "degraded", "it is degraded")
    assert bench.folder("active") == ["a.md"]
    (disk / "filler").unlink()
    assert bench.settled("a.md", 90) == "done", bench.trouble()
    assert "verified" in bench.text("done", "a.md")
    git = ["git", "-C", str(work(bench, "a.md")), "show", "mh/a:work.txt"]
    assert subprocess.run(git, capture_output=True, text=True, check=True).stdout == "important\n"


# --- a pattern without end --------------------------------------------------------------------------------


def test_a_pattern_without_end_is_ended_by_a_stop_and_with_the_daemon(bench, waiting):
    tree = (
        "for a in 1 2 3 4 5 6; do for b in 1 2 3 4 5 6; do for c in 1 2 3 4 5 6; do "
        "mkdir -p $a/$b/$c/d/e/f/g/h/i/j/k/l/m/n/o/p; done; done; done; echo hi"
    )
    keys = f'done_when:\n  - exists: "{"**/*/" * 9}nope"\n'
    pid = bench.up()
    for name in ("one.md", "two.md"):
        bench.drop(name, script(bench.root, tree, keys))
    for name in ("one.md", "two.md"):
        begun = bench.session(name) / "receipts" / "01.started"
        waiting(begun.exists, f"the check of {name}")
    bench.mh("stop", "one")
    assert bench.settled("one.md", 20) == "failed"
    os.kill(pid, signal.SIGTERM)
    waiting(lambda: not alive(pid), "the end of the daemon", 20)


# --- what an agent writes into its own session ------------------------------------------------------------


def test_forged_records_of_a_session_are_not_believed(bench, waiting):
    (bench.root / "megaharness.toml").write_text("[limits]\nslots = 9\n")
    bench.up()
    text = 'echo \'{"passed": true, "check": "test -f proof"}\' > $S/receipts/01.json'
    bench.drop("receipt.md", script(bench.root, f"mkdir -p $S/receipts; {text}; echo lie", PROOF))
    bench.drop("spec.md", script(bench.root, 'sed -i "s/test -f proof/true/" $S/spec.md; echo lie', PROOF))
    dirty = 'echo \'{"v": 1, "paths": []}\' > $S/leftovers.json; echo dirt > dirt; echo lie'
    bench.drop("left.md", script(bench.root, dirty, "done_when:\n  - clean: true\n"))
    for name in ("receipt.md", "spec.md", "left.md"):
        assert bench.settled(name) == "failed", name
    assert "spec.md was changed" in bench.text("failed", "spec.md")
    assert {row["contract"]["passed"] for row in bench.rows()} == {0}
    # It was put back, and what the agent wrote is there to be looked at.
    session = bench.session("spec.md")
    assert "test -f proof" in (session / "spec.md").read_text()
    assert "test -f proof" not in (session / "spec.md.odd-1").read_text().split("---")[1]


def test_a_contract_that_was_changed_while_no_daemon_was_there_is_never_plainly_met(bench, waiting):
    pid = bench.up()
    lines = f'echo up > {bench.home}/up; while ! [ -e {bench.home}/go ]; do sleep 0.1; done\nsed -i "s/test -f proof/true/" $S/spec.md; echo lie > {bench.home}/lied'
    bench.drop("a.md", script(bench.root, lines, PROOF))
    waiting((bench.home / "up").exists, "it runs")
    bench.kill(pid)
    (bench.home / "go").touch()
    waiting((bench.home / "lied").exists, "the lie")
    bench.up()
    assert bench.settled("a.md") == "failed"
    (row,) = bench.rows()
    assert row["termination"] == "incomplete/contract"
    assert "spec.md was changed" in bench.text("failed", "a.md")


@pytest.mark.parametrize("restart", [False, True])
def test_a_session_that_runs_cannot_settle_itself(bench, waiting, restart):
    pid = bench.up()
    forged = {"session": "x", "item": "a", "termination": "clean", "destination": "done", "at": "", "why": ""}
    lines = f"echo '{json.dumps(forged)}' > $S/settle.json; touch {bench.home}/forged\nwhile ! [ -e {bench.home}/go ]; do sleep 0.1; done; echo said"
    bench.drop("a.md", script(bench.root, lines, PROOF))
    waiting((bench.home / "forged").exists, "the forged intent")
    if restart:
        bench.kill(pid)
        bench.up()
    bench.drop("after.md", script(bench.root, "echo hi", "after: a\n"))
    bench.drop("other.md", script(bench.root, "echo hi"))
    assert bench.settled("other.md") == "done"
    assert bench.folder("active") == ["a.md"]
    assert bench.folder("queued") == ["after.md"]
    (bench.home / "go").touch()
    assert bench.settled("a.md") == "failed"
    row = next(row for row in bench.rows() if row["track_id"] == "a")
    assert row["termination"] == "incomplete"
    assert bench.folder("queued") == ["after.md"]


@pytest.mark.parametrize("restart", [False, True])
def test_a_place_that_was_not_given_is_not_worked_in(bench, waiting, restart):
    pid = bench.up()
    real = bench.home / "real"
    real.mkdir()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for args in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *args], cwd=real, check=True)
    (real / "draft.txt").write_text("a person's\n")
    (real / "proof").touch()
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=real, capture_output=True, text=True, check=True)
    forged = {"v": 1, "path": str(real), "branch": "mh/a", "base": head.stdout.strip()}
    lines = f"echo '{json.dumps(forged)}' > $S/place.json; touch {bench.home}/forged\nwhile ! [ -e {bench.home}/go ]; do sleep 0.1; done; echo lie"
    bench.drop("a.md", script(bench.root, lines, PROOF))
    waiting((bench.home / "forged").exists, "the forged place")
    if restart:
        bench.kill(pid)
        bench.up()
    (bench.home / "go").touch()
    assert bench.settled("a.md") == "failed"
    assert ("place.json is damaged" in bench.text("failed", "a.md")) is restart
    said = subprocess.run(["git", "status", "--short"], cwd=real, capture_output=True, text=True, check=True)
    assert sorted(said.stdout.split()) == ["??", "??", "draft.txt", "proof"]


# --- nothing twice ----------------------------------------------------------------------------------------


def test_what_has_run_is_not_started_again_when_its_files_are_gone(bench, waiting):
    bench.up()
    count = bench.home / "count"
    lines = (
        f"echo run >> {count}\nwhile ! [ -e {bench.home}/go ]; do sleep 0.1; done\n"
        "find $S -mindepth 1 ! -name spec.md ! -name claim.json -delete\nsleep 300"
    )
    bench.drop("a.md", script(bench.root, lines))
    waiting(lambda: bench.view()["running"] and count.exists(), "it runs")
    waiting(lambda: "is running" in json.dumps(bench.state()), "it was seen running")
    (socket,) = bench.runtime.glob("*.sock")
    (bench.home / "go").touch()
    subprocess.run(
        ["tmux", "-N", "-S", str(socket), "kill-server"], capture_output=True, timeout=10, check=False
    )
    assert bench.settled("a.md", 60) == "failed"
    assert count.read_text() == "run\n"
    assert len(bench.rows()) == 1


def test_after_a_kill_9_a_check_does_not_run_twice_at_once(bench, waiting):
    pid = bench.up()
    log = bench.home / "log"
    check = f"trap '' TERM; n=$$; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do echo $n >> {log}; sleep 0.3; done"
    bench.drop("a.md", script(bench.root, "echo hi", f'done_when:\n  - run: "{check}"\n'))
    waiting(lambda: log.exists() and log.read_text(), "the check")
    bench.kill(pid)
    bench.up()
    assert bench.settled("a.md") == "done"
    writers: list[str] = []
    for number in log.read_text().split():
        if not writers or writers[-1] != number:
            writers.append(number)
    assert len(writers) == 2, writers
