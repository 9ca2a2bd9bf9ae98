"""`mh attach` on a real terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import sys
import termios
import time

import pytest

from adapters.testing import wait_for

pytestmark = pytest.mark.slow

TRACK = (
    "---\nharness_id: shell\ndone_when:\n  - run: {}\n---\n```sh\nuntil [ -e {} ]; do sleep 0.05; done\n```\n"
)


class Screen:
    """`mh WORDS` on a terminal of its own."""

    def __init__(self, place, *words: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(place.home)
            os.execve(sys.executable, [sys.executable, "-P", "-m", "daemon", *words], place.env)
        termios.tcsetwinsize(self.fd, (40, 140))
        self.text = ""

    def until(self, done, seconds: float = 60.0) -> str:
        """What was printed until `done` of it, or until the program has ended."""
        end = time.monotonic() + seconds
        while not done(self.text):
            assert time.monotonic() < end, self.text[-2000:]
            if not select.select([self.fd], [], [], 0.2)[0]:
                continue
            try:
                data = os.read(self.fd, 1 << 16)
            except OSError:  # the terminal has no other end any more
                break
            if not data:
                break
            self.text += data.decode("utf-8", "replace")
        return re.sub(r"\x1b[\[(][0-9;?>]*[A-Za-z]?", "", self.text)

    def close(self) -> int:
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ("test 1 -eq 1", "poem: done, verified: 1 check"),
        ("test 1 -eq 2", "poem: failed, 0 of 1 check passed: mh why poem"),
    ],
)
def test_what_ended_while_it_was_watched_says_how_afterwards(place, check, said):
    gate = place.home / "gate"
    place.mh("up", "-d")
    place.queue("poem.md", TRACK.format(check, gate))
    wait_for(lambda: list((place.root / "sessions").glob("poem-*/started.json")), "the start")
    screen = Screen(place, "attach", "poem")
    screen.until(lambda text: "Ctrl-Q" in text)
    gate.touch()
    screen.until(lambda text: "ended: exit 0" in text)
    place.settled("poem.md")
    os.write(screen.fd, b"\x11")
    lines = screen.until(lambda _: False).splitlines()
    assert screen.close() == 0
    assert lines[-1] == said


def test_who_leaves_is_told_nothing_of_an_end(place):
    gate = place.home / "gate"
    place.mh("up", "-d")
    place.queue("poem.md", TRACK.format("true", gate))
    wait_for(lambda: list((place.root / "sessions").glob("poem-*/started.json")), "the start")
    screen = Screen(place, "attach", "poem")
    screen.until(lambda text: "Ctrl-Q" in text)
    os.write(screen.fd, b"\x11")
    text = screen.until(lambda _: False)
    assert screen.close() == 0
    assert "poem: " not in text.splitlines()[-1]
