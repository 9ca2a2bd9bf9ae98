"""A harness that is a command: the place to start from when you write your own.

    class Mine(CommandHarness):
        name = "mine"
        program = "mine"

        def command(self, order):
            return session.Launch([self.program, "--file", str(order.brief)])

That is a whole adapter. Override `answer` and `termination` to read the
command's own account of itself, `render` to show its stream, `can` and
`encode` if it takes messages on standard input. Register the class under the
entry point group ``megaharness.adapters`` and inherit
`adapters.testing.HarnessContract` to prove it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Self

from adapters import session
from adapters.errors import AdapterError, HarnessMisconfigured, HarnessMissing
from adapters.plain import decode, tail
from adapters.ports import (
    Cancelled,
    Capabilities,
    Collected,
    Ended,
    Lost,
    NotStarted,
    Order,
    Probe,
    Publish,
    Running,
    Status,
    Terminal,
    Termination,
)
from adapters.registry import nearest


class CommandHarness(ABC):
    """Gives every verb of the port to a command with pipes; a subclass says which command."""

    name: str
    program: str  # its name on the PATH, or its absolute path
    hint: str = ""  # how to install it
    can: Capabilities = Capabilities()

    @abstractmethod
    def command(self, order: Order) -> session.Launch:
        """What is to be started for this order. Raises `BriefUnusable` if it cannot take the brief."""

    @classmethod
    def from_settings(cls, name: str, settings: Mapping[str, object]) -> Self:
        """Made from its ``[harness.NAME]`` table; here there is no key that it knows."""
        check_settings(name, settings, ())
        return cls()

    def answer(self, session_dir: Path) -> str | None:
        """The last message of the agent: the end of what it printed."""
        return tail(session_dir / "events.jsonl")

    def termination(self, status: Ended, session_dir: Path) -> Termination:
        """How a session that ran came to its end."""
        match status:
            case Ended(reason="exited", code=0):
                return Termination("clean")
            case Ended(reason="exited", signal=None):
                return Termination("crash", f"exit_{status.code}")
            case Ended(reason="exited"):
                return Termination("crash", f"signal_{status.signal}")
            case Ended(reason="interrupted"):
                return Termination("interrupt")
            case Ended(reason="wall"):
                return Termination("budget", "minutes")
            case Ended(reason="terminated"):
                return Termination("crash", "terminated")
            case _:
                return Termination("setup", "not_started")

    # -- the port -----------------------------------------------------------

    def capabilities(self) -> Capabilities:
        return self.can

    def probe(self) -> Probe:
        try:
            self.locate(os.environ.get("PATH"))
        except HarnessMissing as missing:
            return Probe(found=False, problem=str(missing), hint=missing.hint)
        return Probe(found=True)

    def spawn(self, order: Order, terminal: Terminal, publish: Publish) -> None:
        if not isinstance(session.status(order.session), NotStarted):
            return
        launch = self.command(order)
        # The path that was found is the one that runs, whatever happens to the PATH meanwhile.
        program = self.locate({**order.env, **launch.env}.get("PATH"))
        viewer = [sys.executable, "-P", "-m", "adapters.viewer", str(order.session.absolute())]
        launch = replace(
            launch,
            harness=self.name,
            argv=[program, *launch.argv[1:]],
            viewer=launch.viewer or viewer,
        )
        session.start(order, launch, terminal, publish)

    def status(self, session_dir: Path) -> Status:
        return session.status(session_dir)

    def interrupt(self, session_dir: Path, why: str) -> None:
        session.interrupt(session_dir, why)

    def collect(self, session_dir: Path) -> Collected:
        match session.status(session_dir):
            case Ended() as ended:
                return Collected(self.termination(ended, session_dir), self.answer(session_dir))
            case Lost(other_boot=other_boot):
                code = "other_boot" if other_boot else ""
                return Collected(Termination("lost", code), self.answer(session_dir))
            case Cancelled():
                return Collected(Termination("interrupt", "cancelled"), None)
            case NotStarted() | Running():
                raise AdapterError(f"the session {session_dir.name} has not ended; nothing to collect yet")

    def render(self, line: bytes) -> str | None:
        return decode(line)

    def encode(self, text: str) -> bytes:
        return text.encode() + b"\n"

    # -- for subclasses -----------------------------------------------------

    def locate(self, path: str | None) -> str:
        """The program's absolute path on this PATH. Raises `HarnessMissing` with how to get it."""
        program = str(Path(self.program).expanduser()) if self.program.startswith("~") else self.program
        found = shutil.which(program, path=path)
        if found is None:
            if there := shutil.which(program, mode=os.F_OK, path=path):
                raise HarnessMissing(
                    f"{self.name}: the program {there} is there and cannot be executed",
                    f"chmod +x {shlex.quote(there)}",
                )
            where = "is not there" if "/" in program else "is not on the PATH"
            raise HarnessMissing(
                f"{self.name}: the program {program!r} {where}",
                self.hint or f"install it, or give its absolute path in [harness.{self.name}]",
            )
        return found


def check_settings(name: str, settings: Mapping[str, object], known: Iterable[str]) -> None:
    """Raises `HarnessMisconfigured` for a key that the adapter does not know, naming the nearest."""
    keys = list(known)
    for key in settings:
        if key not in keys:
            has = f"it knows {', '.join(keys)}" if keys else "it has no settings"
            raise HarnessMisconfigured(f"[harness.{name}] has no key {key!r}{nearest(key, keys)}", has)
