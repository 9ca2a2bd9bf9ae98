"""What systemd hears, on a real datagram socket."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.notify import VARIABLES, Notifier


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    named = request.param == "path"
    address = str(tmp_path / "n") if named else f"@mh-test-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(address if named else "\0" + address[1:])
        s.settimeout(5)
        yield s, address


def test_each_word_arrives(systemd: tuple[socket.socket, str]) -> None:
    s, address = systemd
    notifier = Notifier.from_environ({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "3000000"})
    notifier.ready()
    notifier.status("2 of 3 slots\nREADY=0")
    notifier.watchdog()
    notifier.stopping()
    said = [s.recv(4096) for _ in range(4)]
    assert said == [b"READY=1", b"STATUS=2 of 3 slots READY=0", b"WATCHDOG=1", b"STOPPING=1"]
    assert notifier.unsent == 0


def test_a_status_is_said_once(systemd: tuple[socket.socket, str]) -> None:
    s, address = systemd
    notifier = Notifier.from_environ({"NOTIFY_SOCKET": address})
    for text in ("idle", "idle", " idle ", "busy"):
        notifier.status(text)
    notifier.stopping()
    assert [s.recv(4096) for _ in range(3)] == [b"STATUS=idle", b"STATUS=busy", b"STOPPING=1"]


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1234"}])
def test_without_a_socket_nothing_happens(environ: dict[str, str]) -> None:
    notifier = Notifier.from_environ({**environ, "WATCHDOG_USEC": "1000"})
    assert notifier == Notifier()
    notifier.ready()
    notifier.status("x")
    notifier.watchdog()
    assert notifier.unsent == 0


def test_a_socket_that_went_away_is_counted_and_said_again_later(tmp_path: Path) -> None:
    address = tmp_path / "n"
    notifier = Notifier.from_environ({"NOTIFY_SOCKET": str(address)})
    notifier.status("idle")
    assert notifier.unsent == 1
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(str(address))
        s.settimeout(5)
        notifier.status("idle")
        assert s.recv(4096) == b"STATUS=idle"


def test_a_full_socket_never_blocks(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(str(tmp_path / "n"))
        notifier = Notifier.from_environ({"NOTIFY_SOCKET": str(tmp_path / "n"), "WATCHDOG_USEC": "10"})
        for _ in range(20_000):
            notifier.watchdog()
            if notifier.unsent:
                break
        assert notifier.unsent == 1


@pytest.mark.parametrize(
    ("environ", "interval"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "²"}, None),
        ({}, None),
    ],
)
def test_the_interval_is_half_of_what_is_allowed(environ: dict[str, str], interval: float | None) -> None:
    assert Notifier.from_environ({"NOTIFY_SOCKET": "/x", **environ}).interval == interval


def test_the_names_to_keep_from_children_are_all_that_is_read() -> None:
    class Recorded(dict[str, str]):
        def get(self, key: str, default: str = "") -> str:  # type: ignore[override]
            asked.add(key)
            return super().get(key, default)

    asked: set[str] = set()
    Notifier.from_environ(Recorded(NOTIFY_SOCKET="/x"))
    assert asked == set(VARIABLES)
