"""A real daemon whose clock is set by hours while tracks wait, run and settle."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from adapters.testing import wait_for
from tests.e2e.conftest import Bench

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

HOUR = 3600
# libfaketime makes an absolute clock_nanosleep(2) of the monotonic clock, which time.sleep calls, fail with EINVAL;
# select(2) waits as well. What it shows of a file's times it would shift too: NO_FAKE_STAT.
DAEMON = """
import select, sys, time
from pathlib import Path
time.sleep = lambda seconds: select.select([], [], [], seconds)
from daemon.assembly import supervise
sys.exit(supervise(Path(sys.argv[1])))
"""


class Clocked(Bench):
    """The daemon has a clock of its own, which can be set while it runs. Children have it too."""

    zone = "UTC"

    def set_clock(self, by: float) -> None:
        """From now on the daemon's clock is off by so much."""
        temp = self.home / "clock.new"
        temp.write_text(f"{by:+.0f}\n")
        temp.rename(self.home / "clock")

    def up(self) -> int:
        (library,) = Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
        env = {
            **self.env,
            "TZ": self.zone,
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self.home / "clock"),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
        with open(self.home / "up.log", "ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-P", "-c", DAEMON, str(self.root)],
                env=env,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.started.append(child.pid)
        wait_for(lambda: self.state()["pid"] == child.pid if self._has_state() else None, "the daemon")
        return child.pid

    def _has_state(self) -> bool:
        return (self.root / ".megaharness/daemon.json").exists()

    def clock(self) -> float:
        """The daemon's own time, as it wrote it down last."""
        return datetime.fromisoformat(self.state()["last_tick"]).timestamp()

    def seen(self, by: float) -> None:
        """Wait until the daemon has looked around with its clock set so."""
        wait_for(
            lambda: abs(self.clock() - time.time() - by) < 60, f"a tick with the new time; {self.trouble()}"
        )

    def set_and_seen(self, by: float) -> None:
        self.set_clock(by)
        # Litter is ignored, and a reason to look around at once.
        litter = self.root / "tracks/queued" / f"{time.monotonic_ns()}.txt"
        litter.touch()
        litter.unlink()
        self.seen(by)


@pytest.fixture
def clocked() -> Iterator[Clocked]:
    if not list(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")):
        assert not os.environ.get("CI"), "faketime is missing"
        pytest.skip("faketime is not installed")
    home = Path(tempfile.mkdtemp(prefix="mh-clock-"))
    made = Clocked(home, home / "ws")
    made.mh("init")
    made.set_clock(0)
    yield made
    made.close()
    shutil.rmtree(home, ignore_errors=True)


def track(script: str, keys: str = "") -> str:
    return f"---\nharness_id: shell\n{keys}---\n# t\n\n```sh\n{script}\n```\n"


def ran(bench: Bench) -> list[str]:
    path = bench.home / "ran"
    return path.read_text().split() if path.exists() else []


def test_tracks_run_once_and_in_the_order_of_their_arrival_while_the_clock_jumps(
    clocked: Clocked, waiting: Any
) -> None:
    (clocked.root / "megaharness.toml").write_text("[limits]\nslots = 1\n")
    clocked.up()
    gate, log = clocked.home / "gate", clocked.home / "ran"
    clocked.drop("first.md", track(f"echo first >> {log}; until [ -e {gate} ]; do sleep 0.1; done; echo ok"))
    waiting(lambda: ran(clocked) == ["first"], f"it runs; {clocked.trouble()}")
    by = 0
    for name, jump in (("b", 5 * HOUR), ("a", -9 * HOUR), ("c", 26 * HOUR)):
        clocked.drop(f"{name}.md", track(f"echo {name} | tee -a {log}"))
        waiting(lambda name=name: "free slot" in clocked.mh("why", name), "it waits for the slot")
        by += jump
        clocked.set_and_seen(by)
    assert ran(clocked) == ["first"]
    gate.touch()
    for name in ("first", "b", "a", "c"):
        assert clocked.settled(f"{name}.md") == "done", clocked.trouble()
    assert ran(clocked) == ["first", "b", "a", "c"]
    assert len(clocked.rows()) == 4
    assert clocked.view()["needs_you"] == []


def test_a_time_is_waited_for_by_the_clock_as_it_is_now(clocked: Clocked, waiting: Any) -> None:
    clocked.up()
    log = clocked.home / "ran"
    at = datetime.fromtimestamp(time.time() + 2 * HOUR).astimezone().isoformat(timespec="seconds")
    clocked.drop("later.md", track(f"echo later | tee -a {log}", f'after: "{at}"\n'))
    waiting(lambda: f"waits until {at}" in clocked.mh("why", "later"), "the reason")
    for by in (HOUR, -20 * HOUR, 1.9 * HOUR):
        clocked.set_and_seen(by)
        assert ran(clocked) == []
        assert clocked.folder("queued") == ["later.md"]
    clocked.set_clock(2.1 * HOUR)
    assert clocked.settled("later.md") == "done", clocked.trouble()
    clocked.set_and_seen(-20 * HOUR)  # before its time once more
    assert ran(clocked) == ["later"]
    assert len(clocked.rows()) == 1


def test_a_time_of_day_on_the_night_of_a_clock_change(clocked: Clocked, waiting: Any) -> None:
    """Saved at 22:00 on the evening before: 02:30 does not occur, and is 03:30 of summer time."""
    clocked.zone = "Europe/Berlin"
    zone = ZoneInfo("Europe/Berlin")
    saved = datetime(2026, 3, 28, 22, 0, tzinfo=zone).timestamp()
    due = datetime(2026, 3, 29, 3, 30, tzinfo=zone).timestamp()
    assert due - saved == 4.5 * HOUR
    clocked.set_clock(saved - time.time())
    clocked.up()
    log = clocked.home / "ran"
    temp = clocked.root / "tracks/.tmp/night.md"
    temp.write_text(track(f"echo night | tee -a {log}", "after: 02:30\n"))
    os.utime(temp, (saved, saved))
    temp.rename(clocked.root / "tracks/queued/night.md")
    waiting(lambda: "waits until 02:30" in clocked.mh("why", "night"), "the reason")
    clocked.set_and_seen(due - 600 - time.time())
    assert ran(clocked) == []
    clocked.set_clock(due + 1 - time.time())
    assert clocked.settled("night.md") == "done", clocked.trouble()
    assert ran(clocked) == ["night"]


def test_hours_that_the_clock_jumps_are_no_hours_of_a_budget(clocked: Clocked, waiting: Any) -> None:
    clocked.up()
    gate, log = clocked.home / "gate", clocked.home / "ran"
    clocked.drop(
        "long.md",
        track(
            f"echo long >> {log}; until [ -e {gate} ]; do sleep 0.1; done; echo ok", "budget: {minutes: 30}\n"
        ),
    )
    waiting(lambda: ran(clocked) == ["long"], f"it runs; {clocked.trouble()}")
    for by in (7 * HOUR, -7 * HOUR):
        clocked.set_and_seen(by)
        assert not (clocked.session("long.md") / "exit.json").exists()
    gate.touch()
    assert clocked.settled("long.md") == "done", clocked.trouble()
    assert clocked.rows()[0]["termination"] == "clean"


def test_a_bad_file_is_shown_before_it_is_refused_whatever_the_clock_does(
    clocked: Clocked, waiting: Any
) -> None:
    clocked.up()
    clocked.drop("bad.md", "---\npriority: high\n---\nx\n")
    waiting(lambda: "priority" in clocked.mh(), "it is shown")
    clocked.set_and_seen(-5 * HOUR)
    assert clocked.settled("bad.md") == "failed", clocked.trouble()
    assert "line 2" in clocked.text("failed", "bad.md.why.txt")
