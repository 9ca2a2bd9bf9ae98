"""Odd hands at work on a real daemon: permissions that are taken, names at the limit, strange things among the files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon.spool.store import numbered, reason_name
from daemon.tracks import requests
from tests.e2e.conftest import Bench, alive

pytestmark = pytest.mark.slow


def track(script: str, keys: str = "") -> str:
    return f"---\nharness_id: shell\n{keys}---\n# t\n\n```bash\n{script}\n```\n"


class Person(Bench):
    """An ordinary user's workspace: permissions that are taken bind whoever works in it, also where that is root."""

    under = (
        ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")
        if os.geteuid() == 0
        else ()
    )


@pytest.fixture
def person() -> Iterator[Person]:
    home = Path(tempfile.mkdtemp(prefix="mh-odd-"))
    made = Person(home, home / "ws")
    made.mh("init")
    yield made
    for path in (made.root / "sessions").iterdir():
        path.chmod(0o700)
    made.close()
    shutil.rmtree(home, ignore_errors=True)


def needs(bench: Bench, text: str) -> bool:
    return text in json.dumps(bench.view()["needs_you"])


def test_an_agent_that_shuts_its_own_session_stops_nobody_else(person: Person, waiting: Any) -> None:
    pid = person.up()
    person.drop("shut.md", track(f"chmod 0 {person.root}/sessions/$MEGAHARNESS_SESSION; sleep 300"))
    session = person.session("shut.md")
    waiting(lambda: session.stat().st_mode & 0o777 == 0, "it has shut its session")
    waiting(lambda: needs(person, f"chmod 700 sessions/{session.name}"), "a person is told")
    person.drop("other.md", track("echo ok"))
    assert person.settled("other.md") == "done", person.trouble()
    assert alive(pid)
    # The next daemon knows no more, and works as well.
    person.mh("down")
    pid = person.up()
    waiting(lambda: needs(person, f"chmod 700 sessions/{session.name}"), "a person is told again")
    person.drop("third.md", track("echo ok"))
    waiting(lambda: "third.md" in person.folder("done"), f"the third; {person.trouble()}")
    # It can be stopped, and ends when it is open again.
    person.mh("stop", "shut")
    waiting(lambda: person.view()["daemon"]["slots"]["used"] == 0, "nothing runs")
    session.chmod(0o700)
    assert person.settled("shut.md") == "failed", person.trouble()
    assert alive(pid)
    assert len(person.sessions_named("shut.md")) == 1


@pytest.mark.parametrize("mode", [0o000, 0o300, 0o500, 0o600])
def test_a_settled_session_that_is_shut_is_not_settled_again(person: Person, waiting: Any, mode: int) -> None:
    person.up()
    person.drop("one.md", track("echo ok"))
    assert person.settled("one.md") == "done"
    session = person.session("one.md")
    person.mh("down")
    session.chmod(mode)
    person.up()
    person.drop("two.md", track("echo ok"))
    waiting(lambda: "two.md" in person.folder("done"), f"the other one; {person.trouble()}")
    session.chmod(0o700)
    waiting(lambda: not person.view()["needs_you"], f"all is well; {person.trouble()}")
    assert person.folder("done") == ["one.md", "two.md"]
    assert person.text("done", "one.md").count("<!-- megaharness: result") == 1


def test_a_folder_that_cannot_be_looked_at_does_not_end_the_daemon(person: Person, waiting: Any) -> None:
    pid = person.up()
    person.drop("runs.md", track("sleep 300"))
    waiting(lambda: (person.session("runs.md") / "started.json").exists(), "it runs")
    for folder in ("tracks/failed", "tracks/requests", ".megaharness", "tracks/queued"):
        path = person.root / folder
        path.chmod(0)
        try:
            if folder == ".megaharness":
                time.sleep(7.0)  # longer than between two scans: nothing can be said in there
            else:
                waiting(lambda: person.state()["phase"] == "degraded", "it says so")
            assert alive(pid)
            if folder == "tracks/queued":
                requests.write(
                    person.root / "tracks/requests", path.parent / ".tmp", "interrupt", track="runs"
                )
                waiting(lambda: person.folder("failed") == ["runs.md"], f"stopped; {person.trouble()}")
        finally:
            path.chmod(0o700)
        waiting(lambda: person.state()["phase"] == "running", "it is well again")
    person.drop("after.md", track("echo ok"))
    assert person.settled("after.md") == "done"
    assert alive(pid)


@pytest.mark.parametrize("kind", ["directory", "fifo", "symlink"])
def test_an_odd_entry_among_the_reasons_does_not_keep_the_daemon_from_starting(
    bench: Bench, kind: str
) -> None:
    for name in ("alone.md", "beside.md"):
        reason = bench.root / "tracks/failed" / f"{name}.why.txt"
        if kind == "directory":
            reason.mkdir()
        elif kind == "fifo":
            os.mkfifo(reason)
        else:
            reason.symlink_to("/etc/hostname")
    (bench.root / "tracks/failed/beside.md").write_text("put there\n")
    bench.up()
    bench.drop("one.md", track("echo ok"))
    assert bench.settled("one.md") == "done", bench.trouble()
    assert bench.state()["phase"] == "running"
    assert "put there by hand" in bench.mh()
    bench.mh("why", "beside")


def test_names_at_the_limit_are_settled_refused_and_shown(bench: Bench, waiting: Any) -> None:
    good, bad = "x" * 252 + ".md", "y" * 252 + ".md"
    bench.up()
    _drop(bench, good, track("exit 3"))
    assert bench.settled(good) == "failed", bench.trouble()
    _drop(bench, good, track("echo another text; exit 4"))
    waiting(lambda: numbered(good, 2) in bench.folder("failed"), f"the second; {bench.trouble()}")
    _drop(bench, bad, "---\nprioritty: 3\n---\nx\n")
    waiting(lambda: bad in bench.folder("failed"), f"the refusal; {bench.trouble()}", 30)
    assert "prioritty" in bench.text("failed", reason_name(bad))
    assert "prioritty" in bench.mh()
    assert "prioritty" in bench.mh("why", "y" * 20)
    for row in bench.view()["failed"]:
        bench.mh("why", f"tracks/failed/{row['name']}")


def _drop(bench: Bench, name: str, text: str) -> None:
    temp = bench.root / "tracks/.tmp/test-long.md"
    temp.write_text(text)
    temp.rename(bench.root / "tracks/queued" / name)


def test_immutable_files_hold_themselves_alone(bench: Bench, waiting: Any) -> None:
    probe = bench.home / "probe"
    probe.touch()
    if (
        os.geteuid() != 0
        or subprocess.run(["chattr", "+i", probe], capture_output=True, check=False).returncode
    ):
        pytest.skip("chattr needs root and a file system that knows it")
    subprocess.run(["chattr", "-i", probe], check=True)
    waits, runs = bench.root / "tracks/queued/waits.md", bench.root / "tracks/active/runs.md"
    bench.up()
    try:
        waits.write_text(track("echo ok"))  # within the seconds in which it must be left alone
        subprocess.run(["chattr", "+i", waits], check=True)
        bench.drop("runs.md", track(f"chattr +i {runs}; echo ok"))
        bench.drop("other.md", track("echo ok"))
        assert bench.settled("other.md") == "done", bench.trouble()
        waiting(lambda: "runs.md" in bench.folder("done"), f"it is given up; {bench.trouble()}", 90)
        waiting(lambda: bench.state()["slots"]["used"] == 0, "its slot is free")
        assert "degraded" not in bench.trouble()
        assert "Operation not permitted" in json.dumps(bench.view())
    finally:
        for path in (waits, runs):
            subprocess.run(["chattr", "-i", path], capture_output=True, check=False)
