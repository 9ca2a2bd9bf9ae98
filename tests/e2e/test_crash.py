"""kill -9 of the daemon, with the real daemon, tmux and runner: nothing lost, nothing twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

COUNTING = """---
harness_id: shell
done_when:
  - run: test -f out.txt
---
# Count

```bash
echo run >> {counter}
until [ -e {gate} ]; do sleep 0.05; done
echo done > out.txt
echo counted
```
"""


def counting(bench, *, open_gate: bool = False) -> str:
    """A track that notes each run, and goes on when the gate is opened."""
    gate = bench.home / "gate"
    if open_gate:
        gate.touch()
    return COUNTING.format(counter=bench.home / "counter", gate=gate)


def test_kill_9_while_it_runs_and_the_next_daemon_adopts_it(bench, waiting):
    counter = bench.home / "counter"
    pid = bench.up()
    bench.drop("count.md", counting(bench))
    waiting(counter.exists, "the run")
    bench.kill(pid)
    assert "not running" in bench.mh()
    bench.up()
    assert bench.view()["running"][0]["id"] == "count"
    (bench.home / "gate").touch()
    assert bench.settled("count.md") == "done"
    assert counter.read_text() == "run\n"
    assert len(bench.rows()) == 1


def test_what_ended_while_nobody_was_there_is_settled(bench, waiting):
    counter = bench.home / "counter"
    pid = bench.up()
    bench.drop("count.md", counting(bench))
    waiting(counter.exists, "the run")
    bench.kill(pid)
    session = bench.session("count.md")
    (bench.home / "gate").touch()
    waiting((session / "exit.json").exists, "its end without a daemon")
    bench.up()
    assert bench.settled("count.md") == "done"
    assert counter.read_text() == "run\n"


def test_sigterm_and_down_leave_sessions_running_and_drain_waits(bench, waiting):
    counter = bench.home / "counter"
    pid = bench.up()
    bench.drop("count.md", counting(bench))
    waiting(counter.exists, "the run")
    bench.kill(pid, signal.SIGTERM)
    session = bench.session("count.md")
    assert not (session / "exit.json").exists(), "SIGTERM of the daemon ended the session"
    bench.up()
    assert "1 running on without it: count" in bench.mh("down")
    assert not (session / "exit.json").exists()
    bench.up()
    bench.drop("next.md", counting(bench))
    waiting(lambda: bench.sessions_named("next.md"), "the second is claimed")
    (bench.home / "gate").touch()
    assert "every running track has been settled" in bench.mh("down", "--drain")
    assert bench.folder("active") == []
    assert bench.folder("done") == ["count.md", "next.md"]
    assert "no daemon running" in bench.mh("down", code=3)


def test_the_runner_was_killed_too_so_the_outcome_is_lost_and_nothing_runs_again(bench, waiting):
    counter = bench.home / "counter"
    pid = bench.up()
    bench.drop("count.md", counting(bench))
    waiting(counter.exists, "the run")
    session = bench.session("count.md")
    bench.kill(pid)
    runner = json.loads((session / "started.json").read_text())["pid"]
    os.kill(runner, signal.SIGKILL)
    bench.up()
    assert bench.settled("count.md") == "failed"
    assert bench.rows()[0]["termination"] == "lost"
    assert counter.read_text() == "run\n"
    from adapters.session import reap

    assert reap(session.name) == 0, "the harness outlived its runner and was not ended"


def test_after_another_boot_it_is_lost(bench, waiting):
    """The boot id in started.json is the only witness: give it that of another boot."""
    counter = bench.home / "counter"
    pid = bench.up()
    bench.drop("count.md", counting(bench))
    waiting(counter.exists, "the run")
    session = bench.session("count.md")
    bench.kill(pid)
    started = json.loads((session / "started.json").read_text())
    os.kill(started["pid"], signal.SIGKILL)
    started["boot_id"] = "00000000-0000-0000-0000-000000000000"
    (session / "started.json").write_text(json.dumps(started))
    bench.up()
    assert bench.settled("count.md") == "failed"
    assert bench.rows()[0]["termination"] == "lost"
    assert "started again" in bench.text("failed", "count.md")


def test_two_daemons(bench):
    bench.up()
    assert "already running" in bench.mh("up", "-d", code=3)
    assert "already running" in bench.mh("up", code=3)


def phase_of(bench) -> str:
    """What was on disk for the newest session when the kill fell."""
    sessions = sorted((bench.root / "sessions").iterdir(), key=lambda path: path.stat().st_mtime)
    unsettled = [path for path in sessions if not (path / "settled").exists()]
    if not unsettled:
        return "idle"
    newest = unsettled[-1]
    for name, phase in (
        ("settle.json", "settling"),
        ("exit.json", "concluding"),
        ("started.json", "running"),
        ("claim.json", "starting"),
    ):
        if (newest / name).exists():
            return phase
    return "claiming"


def test_kill_9_again_and_again_at_any_moment(bench, waiting):
    """Every track ends once, whatever phase the kills fall into."""
    kills = int(os.environ.get("MEGAHARNESS_KILLS", "25"))
    seed = int(os.environ.get("MEGAHARNESS_SEED", str(time.time_ns() % 100_000)))
    chance = random.Random(seed)
    counters = bench.home / "counters"
    counters.mkdir()
    phases: Counter[str] = Counter()
    dropped: list[str] = []
    for number in range(kills):
        for part in "ab":
            name = f"t{number}{part}.md"
            text = COUNTING.format(counter=counters / name, gate=bench.home)
            bench.drop(
                name,
                text.replace(
                    "done > out", f"done; sleep {chance.choice(['0', '0.05', '0.3'])}; echo done > out"
                ),
            )
            dropped.append(name)
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "daemon", "--root", str(bench.root), "up"],
            env=bench.env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        bench.started.append(child.pid)
        ready = bench.root / ".megaharness/daemon.json"
        waiting(lambda: child.poll() is not None or str(child.pid) in _text(ready), "it runs")  # noqa: B023
        time.sleep(chance.random() * 0.5)
        child.kill()
        child.wait()
        phases[phase_of(bench)] += 1
    bench.up()
    for name in dropped:
        assert bench.settled(name, 120) == "done", f"seed {seed}: {bench.text('failed', name)}"
    twice = {path.name: path.read_text() for path in counters.iterdir() if path.read_text() != "run\n"}
    assert twice == {}, f"seed {seed}: ran not exactly once"
    assert len(list(counters.iterdir())) == len(dropped)
    rows = Counter(row["track_id"] for row in bench.rows())
    assert rows == Counter(name.removesuffix(".md") for name in dropped), f"seed {seed}: eval rows"
    for name in dropped:
        assert bench.text("done", name).count("<!-- megaharness: result") == 1
    moves = Counter((row["id"], row["to"]) for row in bench.journal())
    assert set(moves.values()) == {1}, f"seed {seed}: journal {[k for k, v in moves.items() if v > 1]}"
    assert bench.folder("active") == bench.folder("queued") == []
    print(f"{kills} kills, seed {seed}, phases: {dict(phases)}")
    assert kills < 20 or len(phases) >= 2, f"the kills all fell into one phase: {phases}"


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
