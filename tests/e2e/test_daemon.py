"""The daemon itself: readiness, degraded mode, refusals to start, quiet, and one faulty track among others."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from datetime import datetime

import pytest

pytestmark = pytest.mark.slow

TRACK = "---\nharness_id: shell\n---\n```sh\necho ok\n```\n"


def foreground(bench, **env: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "daemon", "--root", str(bench.root), "up"],
        env={**bench.env, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    bench.started.append(child.pid)
    return child


def test_systemd_is_told_ready_status_watchdog_and_stopping(bench, waiting):
    path = bench.home / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        listener.settimeout(30)
        child = foreground(bench, NOTIFY_SOCKET=str(path), WATCHDOG_USEC="400000", WATCHDOG_PID="")
        said: list[str] = []

        def hear(what: str) -> None:
            while not any(line.startswith(what) for line in said):
                said.append(listener.recv(4096).decode())

        hear("READY=1")
        hear("STATUS=running: 0 of 3 slots")
        said.clear()
        hear("WATCHDOG=1")
        child.send_signal(signal.SIGTERM)
        hear("STOPPING=1")
        assert child.wait(20) == 0
        # A child must not speak for the daemon.
        bench.drop("env.md", "---\nharness_id: shell\n---\n```sh\nenv\n```\n")
        child = foreground(bench, NOTIFY_SOCKET=str(path))
        bench.settled("env.md")
        events = (bench.session("env.md") / "events.jsonl").read_text()
        assert "NOTIFY_SOCKET" not in events
        assert "hunter2" not in events
        assert "MEGAHARNESS_SESSION=env-1-" in events


def test_an_idle_daemon_does_nothing_and_its_own_writes_do_not_wake_it(bench, waiting):
    bench.up()
    bench.drop("one.md", TRACK)
    bench.settled("one.md")
    waiting(lambda: os.listdir(bench.root / "tracks/.displaced") == [], "late saves are looked at")
    time.sleep(1)
    before = bench.state()
    after = waiting(
        lambda: (now := bench.state())["ticks"] > before["ticks"] + 1 and now, "rescans are written down"
    )
    seconds = seconds_between(before["last_tick"], after["last_tick"])
    # One rescan every five seconds, a look at the windows once a minute, and nothing else.
    assert after["ticks"] - before["ticks"] <= seconds / 5 + 2


def seconds_between(one: str, other: str) -> float:
    return (datetime.fromisoformat(other) - datetime.fromisoformat(one)).total_seconds()


def test_a_faulty_track_is_parked_and_the_others_run(bench, waiting):
    bench.up()
    bench.drop("odd.md", "---\nharness_id: shell\n---\n```sh\nsleep 300\n```\n")
    session = bench.session("odd.md")
    waiting((session / "started.json").exists, "it runs")
    bench.mh("down")
    (session / "claim.json").write_text('{"v": 1, "session": "torn')
    bench.up()
    bench.drop("other.md", TRACK)
    assert bench.settled("other.md") == "done"
    needs = json.dumps(bench.view()["needs_you"])
    assert "parked" in needs
    assert "claim.json" in needs
    pid = bench.state()["pid"]
    assert os.path.exists(f"/proc/{pid}"), "the daemon lives on"


def test_it_does_not_start_where_others_may_write(bench):
    os.chmod(bench.root / "tracks/queued", 0o777)
    said = bench.mh("up", code=78)
    assert "queued" in said
    assert "chmod" in said
    os.chmod(bench.root / "tracks/queued", 0o700)
    (bench.root / "megaharness.toml").write_text("[limits]\nslot = 3\n")
    said = bench.mh("up", "-d", code=78)
    assert "slots" in said
    assert "line 2" in said or ":2" in said


def test_without_its_watcher_everything_works_only_slower(bench, waiting):
    """inotify's limits used up: scans alone find the file."""
    script = (
        "import sys, threading\n"
        "from pathlib import Path\n"
        "from daemon import assembly\n"
        "def broken(*a): raise OSError(24, 'inotify instance limit reached')\n"
        "assembly.Watcher = broken\n"
        f"sys.exit(assembly.supervise(Path({str(bench.root)!r})))\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script], env=bench.env, start_new_session=True)
    bench.started.append(child.pid)
    bench.drop("scan.md", TRACK)
    assert bench.settled("scan.md") == "done"
    assert "no watcher" in bench.trouble()
    child.terminate()
    assert child.wait(30) == 0


def test_help_names_only_what_works_and_a_stranger_understands_it(bench):
    said = bench.mh("--help")
    for verb in (
        "drop",
        "attach",
        "why",
        "up",
        "down",
        "show",
        "log",
        "interrupt",
        "requeue",
        "init",
        "doctor",
    ):
        assert verb in said
        assert "Usage: " in bench.mh(verb, "--help")
    for later in ("swap", "diff", "hold"):
        assert f"\n  {later} " not in said
    assert "run commands as you" in said
    assert "Did you mean `mh drop`" in bench.mh("dorp", code=2)
    assert "_MH_COMPLETE" in bench.mh("completion", "bash")


def test_doctor(bench):
    assert "ERROR" not in bench.mh("doctor")
    (bench.root / "megaharness.toml").write_text(
        'prefer = ["nosuch"]\n[harness.nosuch]\nargv = ["no-such-program-here"]\n'
    )
    said = bench.mh("doctor", code=1)
    assert "no-such-program-here" in said


def test_a_moved_workspace_ends_its_daemon_and_the_next_one_takes_over(bench, waiting):
    pid = bench.up()
    gate, begun = bench.home / "gate", bench.home / "begun"
    bench.drop(
        "runs.md",
        "---\nharness_id: shell\n---\n"
        f"```sh\ntouch {begun}\nuntil [ -e {gate} ]; do sleep 0.05; done\necho ok\n```\n",
    )
    waiting(begun.exists, "it runs")
    moved = bench.root.with_name("moved")
    bench.root.rename(moved)
    waiting(lambda: not os.path.exists(f"/proc/{pid}") or cmdline_gone(pid), "the old daemon ends", 40)
    moved.rename(bench.root)
    bench.up()
    gate.touch()
    assert bench.settled("runs.md") == "done", bench.text("failed", "runs.md")


def cmdline_gone(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "Z"


def test_folders_that_were_removed_are_made_again(bench, waiting):
    bench.up()
    for name in ("requests", "failed", ".tmp"):
        (bench.root / "tracks" / name).rmdir()
    waiting(lambda: (bench.root / "tracks/requests").is_dir(), "it is made again", 30)
    bench.drop("after.md", TRACK)
    assert bench.settled("after.md") == "done"
    assert bench.view()["daemon"]["phase"] == "running"
