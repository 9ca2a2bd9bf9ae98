"""What megaHarness asks of a harness and of a terminal.

Everything a harness author needs is in this module: plain data and two
protocols, no daemon. A harness is one file behind five verbs (`spawn`,
`status`, `interrupt`, `collect`, `capabilities`), found by the entry point
group ``megaharness.adapters`` and proven by the suite in `adapters.testing`.

A session is a directory. The runner (`adapters/runner.py`) keeps the harness
alive and records what happened there; every other process only reads it.
Nobody needs a handle, a socket or a parent: any process that can read the
directory can say how the session stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Protocol

Kind = Literal[
    "clean",
    "incomplete",
    "no_op",
    "limit",
    "auth",
    "budget",
    "interrupt",
    "swapped",
    "setup",
    "provider",
    "stall",
    "crash",
    "lost",
    "refused",
]

#: What each kind says, for people. Where the track's file lands is the daemon's decision.
KINDS: Final[Mapping[Kind, str]] = {
    "clean": "it ended by itself, and the contract is met, or there was nothing to check",
    "incomplete": "it ended by itself, and checks of the contract failed",
    "no_op": "it ended by itself with neither a change nor an answer, and there was nothing to check",
    "limit": "the provider's usage limit was reached",
    "auth": "a login or key was refused",
    "budget": "it used more than the track or the settings allow",
    "interrupt": "a person or a rule stopped it",
    "swapped": "it ended so that another session could go on",
    "setup": "it could not be started",
    "provider": "the provider failed for good",
    "stall": "it made no progress",
    "crash": "the harness died by itself: an exit code other than 0, or a signal",
    "lost": "how it ended is unknown: nothing recorded it",
    "refused": "the file itself was bad; nothing was run",
}


@dataclass(frozen=True, slots=True)
class Termination:
    """How a session ended: a closed kind and an open code, shown as ``kind/code``."""

    kind: Kind
    code: str = ""

    def __str__(self) -> str:
        return f"{self.kind}/{self.code}" if self.code else self.kind


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a harness can do. Declared, never assumed.

    steer: takes a message while it runs (through the session's inbox).
    resume: can continue the same conversation in a later session.
    feedback: another attempt whose brief holds the failed checks can end
        differently. False for a script: it would only run again.
    prose: reads its brief as instructions. False: it gets the track's body
        alone, as a script is run and not read.
    by_default: may be chosen for a track that names no harness.
    instructions: takes standing instructions apart from the task, as a system
        prompt: they are then in `Order.instructions`, else in the brief.
    skills: loads skills itself, from the folder `Order.skills`; else those
        that apply are written out in what it is told.
    """

    steer: bool = False
    resume: bool = False
    feedback: bool = True
    prose: bool = True
    by_default: bool = True
    instructions: bool = False
    skills: bool = False


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether a harness can be started here. `problem` and `hint` are sentences for a person."""

    found: bool
    version: str | None = None
    problem: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """One session to be started.

    session: the session directory; exists, writable, the brief is already in
        it as ``brief.md``, byte for byte what the harness is to get.
    workdir: where the harness works.
    env: the whole environment of the harness (an allow-list made by the
        kernel); the adapter may add to it, the runner adds
        ``MEGAHARNESS_SESSION``.
    wall_s: seconds of wall clock after which the runner ends it; None: never.
    wake: a file that the runner touches when something happened.
    instructions: a file with the standing instructions, not empty; None: there
        are none, or the harness takes none apart (`Capabilities`).
    skills: a folder with one folder for each skill, ``NAME/SKILL.md`` in it;
        None: there are none, or the harness loads none itself.
    provenance: where the instructions come from, as JSON data for launch.json.
    """

    session: Path
    session_id: str
    track_id: str
    attempt: int
    title: str
    workdir: Path
    model: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    wall_s: float | None = None
    wake: Path | None = None
    instructions: Path | None = None
    skills: Path | None = None
    provenance: Mapping[str, object] | None = None

    @property
    def brief(self) -> Path:
        return self.session / "brief.md"


@dataclass(frozen=True, slots=True)
class NotStarted:
    """Nothing has passed the start gate yet. It may be started, once."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The gate was closed before a runner came: nothing ran, nothing will."""

    why: str


@dataclass(frozen=True, slots=True)
class Running:
    """A runner holds the session's lock. `pid` is the runner's."""

    pid: int
    started_at: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The harness ended and the runner recorded it.

    Exactly one of `code` (exit status, 0 to 255) and `signal` (number) is
    set, unless it never started, when both are None and `error` says why.

    reason: ``exited`` by itself, ``interrupted`` by us, ``wall`` clock,
        ``terminated``: the runner itself was told to end by somebody else,
        ``failed``: the program could not be started.
    """

    code: int | None
    signal: int | None
    reason: Literal["exited", "interrupted", "wall", "terminated", "failed"]
    error: str = ""
    started_at: str = ""
    ended_at: str = ""
    wall_s: float = 0.0
    bytes: int = 0
    strays: int = 0


@dataclass(frozen=True, slots=True)
class Lost:
    """It passed the gate, nobody holds the lock, and no readable end was recorded."""

    why: str
    other_boot: bool = False


Status = NotStarted | Cancelled | Running | Ended | Lost


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and money of one session. None is unknown, never 0."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    turns: int | None = None
    tool_calls: int | None = None
    cost_usd: float | None = None
    cost_basis: str | None = None


@dataclass(frozen=True, slots=True)
class Collected:
    """What a session left: how it ended by the harness's own account, and its answer.

    answer: the agent's last message, control sequences removed; None if it said nothing.
    termination: ``clean`` means only that the harness ended by itself without
        an error; whether the work is done is for the checks to say.
    """

    termination: Termination
    answer: str | None
    usage: Usage = Usage()
    harness_version: str | None = None


class Publish(Protocol):
    """Write a file durably: afterwards it is there and whole, or it is not there."""

    def __call__(self, path: Path, data: bytes, *, mode: int = 0o600) -> None: ...


@dataclass(frozen=True, slots=True)
class Window:
    """One window of the terminal: its tmux session is the track id, its name the session id."""

    track: str
    name: str
    pane: str
    pid: int
    dead: bool
    watched: bool


class Terminal(Protocol):
    """Where sessions can be seen. Nothing depends on it: a session outlives its terminal."""

    def ensure(self) -> None:
        """Start the terminal's server if it is not there. Raises `TerminalError`."""
        ...

    def open(self, track: str, name: str, argv: Sequence[str]) -> None:
        """Run argv in a window of that name; nothing happens if it is there already."""
        ...

    def windows(self) -> list[Window]:
        """All windows; [] when there is no server."""
        ...

    def close(self, track: str, name: str) -> None:
        """Close a window; nothing happens if it is gone."""
        ...

    def attach_argv(self, track: str, name: str | None = None) -> list[str]:
        """The command that shows this track to a person."""
        ...


class Harness(Protocol):
    """The port. See `adapters.testing.HarnessContract` for what each verb must keep."""

    @property
    def name(self) -> str: ...

    def capabilities(self) -> Capabilities: ...

    def probe(self) -> Probe:
        """Look whether it is installed here; quick, no network, never raises."""
        ...

    def spawn(self, order: Order, terminal: Terminal, publish: Publish) -> None:
        """Start the session, or do nothing if it was started before.

        Writes ``launch.json`` (and the environment as a 0600 file that the
        runner removes) and opens a window with the runner. Safe to repeat
        after a crash at any point: the start gate lets one runner through.
        Raises `HarnessMissing` (with a hint) before anything was started,
        `TerminalError` when no window can be had.
        """
        ...

    def status(self, session: Path) -> Status:
        """How the session stands. From files and the kernel's lock only."""
        ...

    def interrupt(self, session: Path, why: str) -> None:
        """End it: the whole tree, or the start if it has not started. Returns at once; twice is fine."""
        ...

    def collect(self, session: Path) -> Collected:
        """Read what an ended session left. Reads only; twice is equal."""
        ...

    def render(self, line: bytes) -> str | None:
        """One line of the harness's stream as text for a person; None: show nothing."""
        ...

    def encode(self, text: str) -> bytes:
        """A person's message as bytes for the harness's standard input (steer only)."""
        ...
