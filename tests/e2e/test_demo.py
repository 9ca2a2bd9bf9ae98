"""scripts/demo is what a newcomer runs first: it has to come out as it says, also when its daemon is killed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]


def _demo(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environ = {
        **os.environ,
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "MEGAHARNESS_DEMO_PYTHON": sys.executable,
    }
    environ.pop("MEGAHARNESS_ROOT", None)
    return subprocess.run(
        [str(REPOSITORY / "scripts" / "demo"), *options],
        env=environ,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.timeout(300)
def test_the_demo_finishes_although_its_daemon_is_killed(tmp_path: Path) -> None:
    ran = _demo(tmp_path, "--crash", str(tmp_path / "demo"))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "not as expected" not in ran.stderr
    assert re.search(r"kill -9 \d+, the daemon, while tracks are running", ran.stderr)
    assert re.search(r"without a daemon count-primes went on: \d+ lines before, \d+ now", ran.stderr)
    assert f"--root {tmp_path}/demo/demo-1 attach count-primes" in ran.stdout

    tracks = tmp_path / "demo" / "demo-1" / "tracks"
    assert sorted(path.name for path in (tracks / "done").glob("*.md")) == [
        "announce.md",
        "count-primes.md",
        "files-or-database.md",
        "leap-years.md",
        "poem.md",
    ]
    assert sorted(path.name for path in (tracks / "failed").iterdir()) == [
        "mistyped.md",
        "mistyped.md.why.txt",
        "wrong-sum.md",
    ]
    assert "line 3" in (tracks / "failed" / "mistyped.md.why.txt").read_text()
    assert (tracks / "failed" / "mistyped.md").read_bytes() == (
        REPOSITORY / "scripts/demo.d/tracks/mistyped.md"
    ).read_bytes()
    assert "sum.txt says 4950" in (tracks / "failed" / "wrong-sum.md").read_text()

    # Two daemons, one session: what was running was taken over, not started again.
    rows = [json.loads(line) for line in (tracks / "journal.jsonl").read_text().splitlines()]
    assert [row["to"] for row in rows if row.get("id") == "count-primes"] == ["active", "done"]
    log = (tmp_path / "demo/demo-1/.megaharness/log/daemon.jsonl").read_text().splitlines()
    assert sum(json.loads(line)["event"] == "started" for line in log) == 2

    # Nothing goes on running.
    left = subprocess.run(
        ["pgrep", "-f", str(tmp_path / "demo")], capture_output=True, text=True, check=False
    )
    assert left.stdout == ""


def test_an_unknown_option_starts_nothing(tmp_path: Path) -> None:
    ran = _demo(tmp_path, "--fast")
    assert ran.returncode == 1
    assert "there is no option --fast" in ran.stderr
    assert list(tmp_path.iterdir()) == []
