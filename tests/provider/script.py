"""What the scripted provider is to answer, and what it has billed.

A run plays one script: each request takes the next step of its lane. A lane
is the main conversation, or one of `sides`: conversations that open with a
marker, as a sub-agent's does whose prompt holds it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one response, or a sum of them.

    fresh, cached, created: the parts of the prompt; they do not overlap.
    created_1h: the part of `created` that is kept for an hour.
    reasoning: the part of `output` that is reasoning.
    """

    fresh: int = 0
    cached: int = 0
    created: int = 0
    created_1h: int = 0
    output: int = 0
    reasoning: int = 0

    @property
    def input(self) -> int:
        return self.fresh + self.cached + self.created

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.fresh + other.fresh,
            self.cached + other.cached,
            self.created + other.created,
            self.created_1h + other.created_1h,
            self.output + other.output,
            self.reasoning + other.reasoning,
        )


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    text: str


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool call. Its arguments may depend on the request that it answers: an agent's id, for example."""

    name: str
    arguments: Mapping[str, object] | Callable[[Mapping[str, Any]], Mapping[str, object]]

    def asked(self, body: Mapping[str, Any]) -> Mapping[str, object]:
        return self.arguments(body) if callable(self.arguments) else self.arguments


@dataclass(frozen=True, slots=True)
class Step:
    """One answer.

    status: other than 200 is an error, which costs nothing.
    retry_after: seconds, of an error.
    cut: the stream breaks off inside the first block, before its final usage.
    """

    blocks: Sequence[Text | Thinking | Tool] = ()
    usage: Usage = field(default_factory=Usage)
    status: int = 200
    retry_after: int | None = None
    cut: bool = False

    @property
    def asks(self) -> bool:
        """Whether it asks for a tool."""
        return any(isinstance(block, Tool) for block in self.blocks)


def say(text: str, usage: Usage) -> Step:
    """A step that says this and no more."""
    return Step((Text(text),), usage)


def fail(status: int, retry_after: int | None = None) -> Step:
    """A step that is an error of the provider."""
    return Step(status=status, retry_after=retry_after)


@dataclass(frozen=True, slots=True)
class Charge:
    """One response that was sent. cut: it broke off, and its usage is what had been said of it by then."""

    model: str
    lane: str
    usage: Usage
    tools: int = 0
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Bill:
    """What was sent: whole responses, broken ones, and errors, which cost nothing.

    surprises: requests that the script had no answer for; a test wants none.
    """

    charges: tuple[Charge, ...] = ()
    errors: int = 0
    surprises: tuple[str, ...] = ()

    def __add__(self, other: Bill) -> Bill:
        return Bill(
            self.charges + other.charges, self.errors + other.errors, self.surprises + other.surprises
        )

    def of(self, lane: str | None = None, model: str | None = None) -> Bill:
        """The part of a lane (empty: the main conversation), of a model, or of both."""
        return Bill(
            tuple(
                charge
                for charge in self.charges
                if lane in (None, charge.lane) and model in (None, charge.model)
            )
        )

    @property
    def whole(self) -> tuple[Charge, ...]:
        return tuple(charge for charge in self.charges if not charge.cut)

    @property
    def usage(self) -> Usage:
        return sum((charge.usage for charge in self.whole), Usage())

    @property
    def calls(self) -> int:
        return len(self.whole)

    @property
    def tools(self) -> int:
        """Tools that were asked for."""
        return sum(charge.tools for charge in self.whole)

    @property
    def models(self) -> dict[str, Usage]:
        names = dict.fromkeys(charge.model for charge in self.whole)
        return {name: self.of(model=name).usage for name in names}


class Run:
    """One script being played, at an address of its own."""

    def __init__(
        self, name: str, address: str, steps: Sequence[Step], sides: Mapping[str, Sequence[Step]]
    ) -> None:
        self.name = name
        self.address = address
        self._steps = {"": list(steps), **{marker: list(each) for marker, each in sides.items()}}
        self._taken = dict.fromkeys(self._steps, 0)
        self._lock = threading.Lock()
        self._bill = Bill()
        #: The bodies of all requests, in the order in which they came.
        self.requests: list[dict[str, object]] = []

    @property
    def bill(self) -> Bill:
        with self._lock:
            return self._bill

    @property
    def left(self) -> dict[str, int]:
        """How many steps of each lane nobody has asked for."""
        with self._lock:
            return {
                lane: len(steps) - self._taken[lane]
                for lane, steps in self._steps.items()
                if len(steps) > self._taken[lane]
            }

    def next(self, opening: str, body: dict[str, object]) -> tuple[str, int, Step | None]:
        """The lane of a conversation that opens so, the number of its next step, and the step. None: none is left."""
        lane = next((marker for marker in self._steps if marker and marker in opening), "")
        with self._lock:
            self.requests.append(body)
            number = self._taken[lane]
            if number >= len(self._steps[lane]):
                self.surprise(f"request {number + 1} of lane {lane!r}")
                return lane, number, None
            self._taken[lane] = number + 1
            return lane, number, self._steps[lane][number]

    def charge(self, charge: Charge) -> None:
        with self._lock:
            self._bill += Bill((charge,))

    def refused(self) -> None:
        with self._lock:
            self._bill += Bill(errors=1)

    def surprise(self, what: str) -> None:
        self._bill += Bill(surprises=(what,))
