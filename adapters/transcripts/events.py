"""What a transcript says, whatever harness wrote it.

A reader turns the bytes of one format into these events; the accounting
(`adapters.transcripts.account`) turns events into figures and
`adapters.transcripts.trajectory` turns them into a trajectory. Neither knows
any format, and no reader knows what is done with its events.

A transcript repeats itself: lines of one response, echoes, copies in a fork,
the same counter written again. A reader does not have to remember what it has
said. It names each thing by a key, and the accounting counts each key once.
"""

from __future__ import annotations

from typing import NamedTuple


class Tokens(NamedTuple):
    """Tokens of one model call, in parts that do not overlap but for the last two. None: unknown.

    fresh: input that was neither read from nor written to a cache.
    cached: input read from a cache.
    created: input written to a cache.
    output: everything the model wrote, its reasoning included.
    reasoning: the part of `output` that is reasoning.
    created_1h: the part of `created` that is kept for an hour, which costs more.

    ``fresh + cached + created`` is ``gen_ai.usage.input_tokens`` of the
    OpenTelemetry conventions: the whole prompt.
    """

    fresh: int | None = None
    cached: int | None = None
    created: int | None = None
    output: int | None = None
    reasoning: int | None = None
    created_1h: int | None = None


UNKNOWN = Tokens()


class Opened(NamedTuple):
    """What the transcript says of its session. Every field may be None; later ones complete earlier ones.

    inside: marks a sub-agent: the session that it has come from, or its own
        name, where it writes under the id of that session. Beside that
        session's own transcript it says nothing of it.
    forked: the session whose history this one began with.
    """

    session: str | None = None
    harness: str | None = None
    version: str | None = None
    model: str | None = None
    cwd: str | None = None
    title: str | None = None
    inside: str | None = None
    forked: str | None = None


class Prompt(NamedTuple):
    """Something said to the agent by a person, or by a program in a person's place.

    by: ``user``, or ``system`` for what the harness itself put in.
    inherited: it was said in another session and copied into this one.
    """

    key: str
    at: str | None
    text: object
    side: str = ""
    by: str = "user"
    inherited: bool = False


class Call(NamedTuple):
    """One model call, or one sighting of it: each field's largest value counts.

    key: names the call; the same key again is the same call.
    member: tells calls apart that share a key; None where the format or a
        gateway leaves it out, and then the key alone decides.
    side: the sub-agent that made it; empty for the main conversation.
    stop: why the model stopped, in the provider's word; None: not said (yet).
    cost: US dollars, as the harness reports it for this call alone.
    final: False: the output count may be that of an unfinished stream.
    inherited: it was made in another session and copied into this one.
    """

    key: str
    member: str | None
    at: str | None
    model: str | None
    tokens: Tokens | None
    side: str = ""
    stop: str | None = None
    cost: float | None = None
    final: bool = True
    inherited: bool = False


class Said(NamedTuple):
    """Text that the agent wrote; `thought`: reasoning that it showed.

    call: the key of the call that it came from; None: of the one whose
        tokens are told beside it, with no prompt and no tool's result between.
    """

    call: str | None
    at: str | None
    text: str
    side: str = ""
    thought: bool = False


class ToolCall(NamedTuple):
    """The agent asked for a tool.

    call: as in `Said`.
    server: the provider ran it, not the harness.
    inherited: it was asked for in another session and copied into this one.
    """

    key: str
    at: str | None
    name: str
    arguments: object
    call: str | None
    side: str = ""
    server: bool = False
    inherited: bool = False


class ToolResult(NamedTuple):
    """What a tool gave back. `key` is that of its ToolCall.

    failed: None if the format does not say.
    agent: the `side` of the sub-agent that the tool ran, where it is told here.
    """

    key: str
    at: str | None
    content: object
    failed: bool | None
    side: str = ""
    agent: str | None = None


class Counter(NamedTuple):
    """A counter of the harness that only grows, over turns, and over resume and fork too: its largest value counts.

    key: which counter; several in one session are added.
    models: what it says of each model: name, tokens, US dollars.
    calls: model calls, as the harness counts them.
    stretch: names a stretch of the counter, and all else is what it grew in
        this stretch alone. The stretches of a counter are added; of their sum
        and its own value the larger counts. Empty: its value.
    """

    key: str
    at: str | None
    tokens: Tokens | None
    models: tuple[tuple[str, Tokens, float | None], ...] = ()
    cost: float | None = None
    calls: int | None = None
    stretch: str = ""


class Turn(NamedTuple):
    """The harness's account of one turn of the main conversation, without sub-agents.

    Its output is final where the sightings of the calls are not.
    """

    key: str
    at: str | None
    tokens: Tokens | None


class Ending(NamedTuple):
    """A word of the harness about how it ended: kind and code of `adapters.ports.Termination`.

    weight: of several the heaviest counts, of equals the last. 0: what the
        last lines let one guess, 1: said, 2: said at the end of real work.
    """

    kind: str
    code: str
    text: str
    weight: int
    at: str | None = None


class Compacted(NamedTuple):
    """The conversation was replaced by a summary."""

    key: str
    at: str | None


class Counted(NamedTuple):
    """Something that the format has a name for: shown as it is, in no sum.

    key: counted once for each; None: so many `times` more, whatever they were.
    """

    what: str
    key: str | int | None
    times: int = 1


class Silent(NamedTuple):
    """The transcript does not show all of this: what is counted of it is a lower bound at best.

    ``turns``, ``tool calls``, ``input`` or ``output``.
    """

    what: str


class Skipped(NamedTuple):
    """A line (from 1; None: no single one) that was not read, and why.

    torn: the end of the file is missing.
    lost: it was a record, of a shape that no reader knows; it may have held a
        call.
    """

    line: int | None
    why: str
    torn: bool = False
    lost: bool = False


def shapeless(line: int | None, error: Exception, what: str = "") -> Skipped:
    """A record that a reader could not make sense of; `what`: which one, where it has a name."""
    return Skipped(line, f"of an unknown shape: {what + ': ' if what else ''}{error}", lost=True)


class Noted(NamedTuple):
    """A fact that a reader of the figures should know."""

    text: str


class Read(NamedTuple):
    """How much was read since the last of these: records, and the times of the first and last of them."""

    records: int
    first: str | None
    last: str | None


Event = (
    Opened
    | Prompt
    | Call
    | Said
    | ToolCall
    | ToolResult
    | Counter
    | Turn
    | Ending
    | Compacted
    | Counted
    | Silent
    | Skipped
    | Noted
    | Read
)
