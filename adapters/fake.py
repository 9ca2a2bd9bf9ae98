"""A harness for tests: it does what the brief says, good or bad.

The program is `adapters.fake_agent`; its directives are the reference of what
it can do. It takes messages while it runs, reports tokens and terminations as
a real agent does, and is never chosen unless a track names it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from adapters import fake_agent, session
from adapters.command import CommandHarness
from adapters.plain import decode, plain
from adapters.ports import Capabilities, Collected, Ended, Kind, Order, Termination, Usage


class Fake(CommandHarness):
    """Plays an agent. Only when a track names it."""

    name = "fake"
    can = Capabilities(steer=True, by_default=False)
    program = sys.executable

    def command(self, order: Order) -> session.Launch:
        brief = order.brief.read_bytes().decode("utf-8", "surrogateescape")
        return session.Launch(
            [self.program, "-I", "-S", str(Path(fake_agent.__file__).resolve())],
            stdin="pipe",
            first_message=self.encode(brief),
            turn_end=fake_agent.TURN_END,
            stdin_idle_s=0.5,
            interrupt=(("INT", 1.0), ("TERM", 1.0)),
        )

    def encode(self, text: str) -> bytes:
        return json.dumps({"type": "user", "text": text}).encode() + b"\n"

    def render(self, line: bytes) -> str | None:
        event = _event(line)
        match event.get("type"):
            case "say":
                return plain(str(event.get("text")))
            case "result":
                return f"── turn {event.get('turns')} ended"
            case _:
                return decode(line)

    def answer(self, session_dir: Path) -> str | None:
        """The text of the last result, else the last thing that it said."""
        said = None
        for event in _events(session_dir):
            if event.get("type") in ("say", "result") and event.get("text"):
                said = plain(str(event["text"]))
        return said

    def termination(self, status: Ended, session_dir: Path) -> Termination:
        ended = super().termination(status, session_dir)
        result = _last_result(session_dir)
        if ended.kind == "clean" and result.get("kind") in get_args(Kind):
            return Termination(result["kind"], str(result.get("code", "")))
        return ended

    def collect(self, session_dir: Path) -> Collected:
        result = _last_result(session_dir)
        usage = Usage(
            input_tokens=result.get("input_tokens"),
            output_tokens=result.get("output_tokens"),
            cost_usd=result.get("cost_usd"),
            turns=result.get("turns"),
        )
        return replace(super().collect(session_dir), usage=usage, harness_version=None)


def _event(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def _events(session_dir: Path) -> Iterator[dict[str, Any]]:
    try:
        with (session_dir / "events.jsonl").open("rb") as stream:
            yield from map(_event, stream)
    except FileNotFoundError:
        return


def _last_result(session_dir: Path) -> dict[str, Any]:
    last: dict[str, Any] = {}
    for event in _events(session_dir):
        if event.get("type") == "result":
            last = event
    return last
