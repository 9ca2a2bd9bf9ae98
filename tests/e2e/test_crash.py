"""kill -9 of the daemon, with the real daemon, tmux and runner: nothing lost, nothing twice.

The loop that kills again and again is a proof (tests/proofs/kill.py).
"""

from __future__ import annotations

import json
import os
import signal

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
