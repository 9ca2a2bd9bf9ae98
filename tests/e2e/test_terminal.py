"""What a person sees: panes, keys, a tmux server that dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

LONG = "---\nharness_id: shell\n---\n# Long\n\n```bash\nfor n in $(seq 200); do echo line $n; sleep 0.1; done\n```\n"


class Person:
    """Somebody at a terminal: a tmux server of their own in which they type."""

    def __init__(self, bench) -> None:
        self.bench = bench
        self.socket = bench.runtime / "person.sock"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-s", "me", "-x", "120", "-y", "40")

    def tmux(self, *args: str) -> str:
        return subprocess.run(
            ["tmux", "-S", str(self.socket), *args],
            env=self.bench.env,
            capture_output=True,
            text=True,
            check=True,
            timeout=20,
        ).stdout

    def types(self, text: str) -> None:
        self.tmux("send-keys", "-t", "me", "-l", text)
        self.tmux("send-keys", "-t", "me", "Enter")

    def presses(self, *keys: str) -> None:
        self.tmux("send-keys", "-t", "me", *keys)

    def sees(self) -> str:
        return self.tmux("capture-pane", "-p", "-t", "me")

    def mh(self, *args: str) -> None:
        command = " ".join([sys.executable, "-P", "-m", "daemon", "--root", str(self.bench.root), *args])
        # Outside a tmux of their own, as in a plain terminal.
        self.types(f"env -u TMUX {command}")


@pytest.fixture
def person(bench):
    return Person(bench)


def own_socket(bench) -> Path:
    (found,) = list(bench.runtime.glob("mh-*.sock"))
    return found


def server_pid(socket: Path) -> int:
    return int(
        subprocess.run(
            ["tmux", "-N", "-S", str(socket), "display-message", "-p", "#{pid}"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )


def size(session: Path) -> int:
    path = session / "events.jsonl"
    return path.stat().st_size if path.exists() else 0


def test_attach_shows_the_stream_and_no_key_stops_it(bench, person, waiting):
    bench.up()
    bench.drop("long.md", LONG)
    session = bench.session("long.md")
    waiting(lambda: size(session) > 50, "output")
    person.mh("attach", "long")
    waiting(lambda: "line " in person.sees() and "Ctrl-Q" in person.sees(), "the pane")
    for keys in ("C-s", "C-c", "C-z", "C-\\"):
        before = size(session)
        person.presses(keys)
        waiting(lambda: size(session) > before + 20, f"it goes on after {keys}")  # noqa: B023
    person.presses("C-q")
    waiting(lambda: "detached" in person.sees(), "Ctrl-Q leaves")
    assert not (session / "exit.json").exists()
    assert not (session / "interrupt.json").exists()


def test_a_killed_tmux_server_stops_no_session_and_attach_shows_it_again(bench, person, waiting):
    bench.up()
    bench.drop("long.md", LONG)
    session = bench.session("long.md")
    waiting(lambda: size(session) > 50, "output")
    os.kill(server_pid(own_socket(bench)), signal.SIGKILL)
    before = size(session)
    waiting(lambda: size(session) > before + 50, "it goes on without a terminal")
    person.mh("attach", "long")
    waiting(lambda: "line " in person.sees() and "Ctrl-Q" in person.sees(), "it is shown again")
    person.presses("C-q")
    # And new tracks get a server again.
    bench.drop("next.md", "---\nharness_id: shell\n---\n```sh\necho ok\n```\n")
    assert bench.settled("next.md") == "done"


def test_a_stopped_tmux_server_is_shown_as_degraded_and_what_waits_for_it_runs_once(bench, waiting):
    bench.up()
    bench.drop("first.md", "---\nharness_id: shell\n---\n```sh\necho ok\n```\n")
    bench.settled("first.md")
    server = server_pid(own_socket(bench))
    os.kill(server, signal.SIGSTOP)
    try:
        bench.drop("next.md", "---\nharness_id: shell\n---\n```sh\necho ok\n```\n")
        waiting(lambda: "did not answer" in str(bench.json()["daemon"]["degraded"]), "it is told")
        assert "did not answer" in bench.mh("why", "next")
        assert "degraded" in bench.mh()
    finally:
        os.kill(server, signal.SIGCONT)
    assert bench.settled("next.md") == "done"
    assert len(bench.sessions_named("next.md")) == 1
    waiting(lambda: bench.json()["daemon"]["degraded"] is None, "and forgotten")


def test_ctrl_c_twice_interrupts(bench, person, waiting):
    bench.up()
    bench.drop("long.md", LONG)
    session = bench.session("long.md")
    waiting(lambda: size(session) > 50, "output")
    person.mh("attach")
    waiting(lambda: "line " in person.sees(), "the pane")
    person.presses("C-c")
    waiting(lambda: "again" in person.sees(), "it asks")
    person.presses("C-c")
    assert bench.settled("long.md") == "failed"
    assert bench.rows()[0]["termination"] == "interrupt/by_person"


def test_the_server_knows_no_secret_of_the_daemon(bench):
    bench.up()
    bench.drop("x.md", "---\nharness_id: shell\n---\n```sh\necho ok\n```\n")
    bench.settled("x.md")
    shown = subprocess.run(
        ["tmux", "-N", "-S", str(own_socket(bench)), "show-environment", "-g"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "hunter2" not in shown
    for path in (bench.root / "sessions").rglob("*"):
        if path.is_file():
            assert b"hunter2" not in path.read_bytes(), path


def test_what_is_typed_in_the_pane_is_not_lost(bench, person, waiting):
    """A harness that takes no messages: the words are in the result and in the next attempt's brief."""
    gate = bench.home / "gate"
    agent = bench.home / "agent"
    agent.write_text(f'#!/bin/sh\necho working\nuntil [ -e {gate} ]; do sleep 0.05; done\necho "I am done"\n')
    agent.chmod(0o755)
    (bench.root / "megaharness.toml").write_text(f'[harness.mine]\nargv = ["{agent}", "{{brief}}"]\n')
    bench.up()
    bench.drop("deaf.md", "---\nharness_id: mine\ndone_when:\n  - run: test -f never\n---\nDo it\n")
    session = bench.session("deaf.md")
    waiting(lambda: size(session) > 5, "output")
    person.mh("attach", "deaf")
    waiting(lambda: "working" in person.sees() and "Ctrl-Q" in person.sees(), "the pane")
    person.types("please write a test too")
    waiting(lambda: list((session / "inbox/text").glob("*.json")), "it is kept")
    person.presses("C-q")
    gate.touch()
    assert bench.settled("deaf.md") == "failed"
    second = bench.sessions_named("deaf.md")[1]
    assert "please write a test too" in (second / "brief.md").read_text()
    assert "Typed in the pane:\n\n> please write a test too" in bench.text("failed", "deaf.md")

    def brief(number: int) -> str:
        found = waiting(lambda: bench.sessions_named("deaf.md")[number - 1 : number], f"attempt {number}")[0]
        waiting((found / "brief.md").exists, "its brief")
        return (found / "brief.md").read_text()

    bench.mh("requeue", "deaf")
    again = brief(3)
    assert "please write a test too" in again  # two attempts later, and once
    assert again.count("please write a test too") == 1
    assert "go on from there" in again
    bench.settled("deaf.md")
    bench.mh("requeue", "deaf", "--fresh")
    for number in (5, 6):  # the fresh one, and the one after it
        afresh = brief(number)
        assert "please write a test too" not in afresh
        assert ("left open" in afresh, "go on from there" in afresh) == (number == 6, number == 6)


def test_what_is_typed_comes_back_into_the_file(bench, person, waiting):
    bench.up()
    bench.drop("long.md", LONG)
    session = bench.session("long.md")
    waiting(lambda: size(session) > 50, "output")
    person.mh("attach")
    waiting(lambda: "line " in person.sees(), "the pane")
    person.types("mind the gap")
    waiting(lambda: list((session / "inbox/text").glob("*.json")), "it is kept")
    bench.mh("stop", "long")
    bench.settled("long.md")
    assert "Typed in the pane:\n\n> mind the gap" in bench.text("failed", "long.md")
