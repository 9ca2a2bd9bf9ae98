"""Tells systemd how the daemon is: ready, stopping, alive, and one line of status.

The protocol is one datagram of ``NAME=value`` lines to the socket named in
``$NOTIFY_SOCKET`` (sd_notify(3)); started by hand there is none, and nothing
happens. A message that cannot be sent is counted, never raised: the daemon
does not die of its supervisor's socket.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

# Kept from every child: with them a harness could speak for the daemon.
VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


@dataclass(slots=True)
class Notifier:
    """Where to send, and how often the watchdog wants to hear.

    interval: seconds between two `watchdog` calls, half of what systemd
        allows; None when it does not watch this process.
    """

    address: str | None = None
    interval: float | None = None
    unsent: int = field(default=0, init=False)
    _status: str = field(default="", init=False)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Notifier:
        address = environ.get("NOTIFY_SOCKET", "")
        if address[:1] not in ("/", "@"):
            return cls()
        return cls(address, _interval(environ))

    def ready(self) -> None:
        self._send("READY=1")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def status(self, text: str) -> None:
        """One line for ``systemctl status``; sent only when it changed."""
        line = " ".join(text.split())
        if line != self._status and self._send(f"STATUS={line}"):
            self._status = line

    def watchdog(self) -> None:
        """To be called from the loop itself, so that a hung loop is noticed."""
        if self.interval is not None:
            self._send("WATCHDOG=1")

    def _send(self, message: str) -> bool:
        if self.address is None:
            return False
        # "@" stands for the null byte with which an abstract address begins.
        address = "\0" + self.address[1:] if self.address[0] == "@" else self.address
        data = message.encode("utf-8", "replace")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as s:
                s.setblocking(False)
                return s.sendto(data, address) == len(data)
        except OSError:
            self.unsent += 1
            return False


def _interval(environ: Mapping[str, str]) -> float | None:
    microseconds, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not (microseconds.isascii() and microseconds.isdigit()) or int(microseconds) == 0:
        return None
    if pid and pid != str(os.getpid()):
        return None
    return int(microseconds) / 2_000_000
