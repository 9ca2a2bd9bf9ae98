"""From events to figures: one set of rules for all formats. Pure.

- A call counts once, by its key; each of its fields counts with the largest
  value that was seen, whatever the order. Neither the sum nor the first.
- What a harness reports (a turn's usage, a counter) is a second witness. Of
  the two the larger is taken, of input and of output: a transcript may hold
  placeholders and miss calls, a report may miss turns.
- What another session did, whose history this one began with, is in no
  figure but `Figures.inherited`. A sighting that is no copy decides: then it
  was done here. A counter that goes on from the other session's value says
  nothing of this one; what it grew here does.
- What is not known is None. What is known in part is a lower bound, and
  `Figures.lower_bounds` names it.

Everything is kept up to date while events come in, so that `figures` costs
what there are models, turns and failed tools, not what there was of a
session. Memory grows with the number of calls and tools (some hundred bytes
each), not with their size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import Final, NamedTuple

from adapters.transcripts.events import (
    UNKNOWN,
    Call,
    Compacted,
    Counted,
    Counter,
    Ending,
    Event,
    Noted,
    Opened,
    Prompt,
    Read,
    Silent,
    Skipped,
    Tokens,
    ToolCall,
    ToolResult,
    Turn,
)
from adapters.transcripts.reader import Span

#: Of the lines that were not read, so many are named; all are counted.
NAMED: Final = 100


@dataclass(frozen=True, slots=True)
class Usage:
    """Sums of tokens. `input` is the whole prompt, cached and cache-creating tokens included."""

    input: int | None = None
    cached: int | None = None
    created: int | None = None
    output: int | None = None
    reasoning: int | None = None

    @classmethod
    def of(cls, tokens: Tokens) -> Usage:
        parts = [part for part in tokens[:3] if part is not None]
        return cls(sum(parts) if parts else None, *tokens[1:5])

    @property
    def uncached(self) -> int | None:
        """Input that was neither read from nor written to a cache."""
        if self.input is None:
            return None
        return self.input - (self.cached or 0) - (self.created or 0)


@dataclass(frozen=True, slots=True)
class Share:
    """What one model was used for. name None: the transcript does not say which model. cost: as reported."""

    name: str | None
    calls: int | None
    tokens: Tokens
    cost: float | None = None

    @property
    def usage(self) -> Usage:
        return Usage.of(self.tokens)


@dataclass(frozen=True, slots=True)
class Figures:
    """What is known of one session.

    tokens: everything that was used, by the best witness of each field.
    main, subagents: of it, what calls with a line of their own were seen to
        use. The rest left no line (titles, retries, summaries).
    inherited: used by another session, whose history this one began with;
        in no other figure.
    turns: model calls; None if the format does not show them.
    cost_reported: US dollars by the harness's own account.
    lower_bounds: the names of figures that may be too small.
    ending: how it ended, as far as the transcript says.
    counts: things that the format has names for.
    skipped: the first `NAMED` lines that were not read; `skipped_lines` counts all.
    """

    opened: Opened
    tokens: Usage
    main: Usage
    subagents: Usage
    inherited: Usage
    turns: int | None
    turns_subagents: int
    calls_without_usage: int
    tool_calls: int | None
    tool_calls_subagents: int
    tool_errors: int | None
    prompts: int
    compactions: int
    models: tuple[Share, ...]
    cost_reported: float | None
    first: str | None
    last: str | None
    ending: Ending | None
    endings: tuple[Ending, ...]
    records: int
    skipped_lines: int
    skipped: tuple[Skipped, ...]
    torn: int
    counts: Mapping[str, int]
    lower_bounds: tuple[str, ...]
    notes: tuple[str, ...]


class _Slot:
    """One call as far as it was seen."""

    __slots__ = ("calls", "cost", "final", "inherited", "member", "model", "side", "tokens")

    def __init__(self, call: Call) -> None:
        self.member = call.member
        self.tokens = call.tokens
        self.model = call.model
        self.side = bool(call.side)
        self.final = call.final
        self.cost = call.cost
        self.inherited = call.inherited
        self.calls = 1


class _Group:
    """Calls that share a key and differ in their member.

    A sighting without a member is one of them, nobody can say which: it adds
    what it has beyond all of them together.
    """

    __slots__ = ("excess", "members")

    def __init__(self, *slots: _Slot) -> None:
        self.members = {slot.member: slot for slot in slots}
        self.excess: _Slot | None = None


@dataclass(slots=True)
class _Sum:
    """Tokens added up, and of how many calls each field was known."""

    calls: int = 0
    tokens: list[int] = field(default_factory=lambda: [0] * 6)
    known: list[int] = field(default_factory=lambda: [0] * 6)
    blind: int = 0
    unfinished: int = 0
    cost: float = 0.0
    priced: int = 0

    def add(self, slot: _Slot, sign: int) -> None:
        self.calls += sign * slot.calls
        if not slot.final:
            self.unfinished += sign
        if slot.cost is not None:
            self.cost += sign * slot.cost
            self.priced += sign
        if slot.tokens is None:
            self.blind += sign
            return
        tokens, known = self.tokens, self.known
        for place, value in enumerate(slot.tokens):
            if value is not None:
                tokens[place] += sign * value
                known[place] += sign

    @property
    def total(self) -> Tokens:
        return Tokens(
            *(value if known else None for value, known in zip(self.tokens, self.known, strict=True))
        )


class _Counted(NamedTuple):
    """What a counter says, or a stretch of it, or several together."""

    tokens: Tokens = UNKNOWN
    models: Mapping[str, tuple[Tokens, float | None]] = MappingProxyType({})
    cost: float | None = None
    calls: int | None = None

    @classmethod
    def of(cls, counter: Counter) -> _Counted:
        models = {name: (tokens, cost) for name, tokens, cost in counter.models}
        return cls(counter.tokens or UNKNOWN, models, counter.cost, counter.calls)

    @property
    def everything(self) -> Tokens:
        return total((self.tokens, *(tokens for tokens, _ in self.models.values())))

    def plus(self, other: _Counted) -> _Counted:
        return self._with(other, lambda a, b: total((a, b)), lambda a, b: a + b)

    def largest(self, other: _Counted) -> _Counted:
        return self._with(other, largest, max)

    def _with(
        self,
        other: _Counted,
        tokens: Callable[[Tokens, Tokens], Tokens],
        number: Callable[[float, float], float],
    ) -> _Counted:
        def either(a: float | None, b: float | None) -> float | None:
            return b if a is None else a if b is None else number(a, b)

        models = dict(self.models)
        for name, (theirs, paid) in other.models.items():
            mine, cost = models.get(name, (UNKNOWN, None))
            models[name] = (tokens(mine, theirs), either(cost, paid))
        calls = either(self.calls, other.calls)
        return _Counted(
            tokens(self.tokens, other.tokens),
            models,
            either(self.cost, other.cost),
            None if calls is None else int(calls),
        )


class Account:
    """Counts the events of one session, in any order and however often they come.

    `others`: what other sessions have done (`made` of their accounts), of
    which this one may hold copies: calls, tools, prompts, summaries. Such a
    thing is inherited, not done here.
    """

    def __init__(self, others: Set[int] = frozenset()) -> None:
        self._others = others
        self._calls: dict[int, _Slot | _Group] = {}
        self._grouped: dict[int, _Group] = {}
        self._sums: dict[tuple[str | None, bool], _Sum] = {}
        self._inherited = _Sum()
        self._tools: dict[int, int] = {}
        self._tool_counts = [0] * 4
        self._failed: set[int] = set()
        self._judged = False
        self._results = False
        self._prompts: set[int] = set()
        self._compactions: set[int] = set()
        self._counted: dict[str, set[int]] = {}
        self._tallies: dict[str, int] = {}
        self._turns: dict[int, Tokens] = {}
        self._counters: dict[str, dict[str, _Counted]] = {}
        self._endings: list[Ending] = []
        self._ending: Ending | None = None
        self._opened = self._within = Opened()
        self._silent: set[str] = set()
        self._span = Span()
        self._records = 0
        self._skipped: list[Skipped] = []
        self._skipped_lines = 0
        self._torn = 0
        self._notes: dict[str, None] = {}

    def add(self, events: Iterable[Event]) -> None:
        """Count these. The same events again change nothing but the number of records."""
        for event in events:
            kind = type(event)
            if kind is Call:
                self._call(event)  # type: ignore[arg-type]
            elif kind is ToolCall:
                self._tool(event)  # type: ignore[arg-type]
            elif kind is ToolResult:
                self._result(event)  # type: ignore[arg-type]
            elif kind is Counted:
                self._count(event)  # type: ignore[arg-type]
            else:
                self._other(event)

    def _call(self, call: Call) -> None:
        name = hash(call.key)
        if self._others and hash((name, call.member)) in self._others:
            call = call._replace(inherited=True)
        known = self._calls.get(name)
        if known is None:
            self._calls[name] = slot = _Slot(call)
            self._sum(slot).add(slot, 1)
        elif type(known) is _Slot:
            if known.member == call.member:
                self._see(known, call)
            else:
                self._calls[name] = group = _Group(known)
                self._join(group, call)
        else:
            self._join(known, call)  # type: ignore[arg-type]

    def _see(self, slot: _Slot, call: Call) -> None:
        """Merge a sighting into what is known of a call."""
        tokens = slot.tokens
        told = (call.tokens, call.final, call.model, bool(call.side), call.cost, call.inherited)
        if told == (tokens, slot.final, slot.model, slot.side, None, slot.inherited):
            return
        if call.tokens is not None and call.tokens != tokens:
            tokens = call.tokens if tokens is None else largest(tokens, call.tokens)
        final = slot.final or call.final
        side = slot.side and bool(call.side)
        model = slot.model or call.model
        cost = slot.cost if call.cost is None else max(call.cost, slot.cost or 0.0)
        inherited = slot.inherited and call.inherited
        had = (slot.tokens, slot.final, slot.side, slot.model, slot.cost, slot.inherited)
        if (tokens, final, side, model, cost, inherited) == had:
            return
        self._sum(slot).add(slot, -1)
        slot.tokens, slot.final, slot.side, slot.model, slot.cost = tokens, final, side, model, cost
        slot.inherited = inherited
        self._sum(slot).add(slot, 1)

    def _join(self, group: _Group, call: Call) -> None:
        if group.excess is not None:
            self._sum(group.excess).add(group.excess, -1)
            group.excess = None
        unnamed = group.members.get(None)
        if unnamed is not None and unnamed.calls:
            self._sum(unnamed).add(unnamed, -1)
            unnamed.calls = 0
        slot = group.members.get(call.member)
        if slot is None:
            slot = group.members[call.member] = _Slot(call)
            if call.member is None:
                slot.calls = 0
            else:
                self._sum(slot).add(slot, 1)
        elif call.member is None:
            if call.tokens is not None:
                slot.tokens = call.tokens if slot.tokens is None else largest(slot.tokens, call.tokens)
        else:
            self._see(slot, call)
        # What it has beyond its members is asked when there are figures to make: now would look at all of them.
        self._grouped[id(group)] = group

    def _absorb(self, group: _Group) -> None:
        """What the sighting without a member has beyond the others, as a call that counts for none."""
        unnamed = group.members.get(None)
        if unnamed is None or unnamed.tokens is None:
            return
        named = [slot for slot in group.members.values() if slot.member is not None]
        have = _Sum()
        for slot in named:
            have.add(slot, 1)
        beyond = [
            None if mine is None else max(0, mine - sum_)
            for mine, sum_ in zip(unnamed.tokens, have.tokens, strict=True)
        ]
        if any(beyond):
            # It belongs to the last of them by name, which does not depend on the order of sightings.
            host = max(named, key=lambda slot: str(slot.member))
            excess = _Slot(Call("", None, None, host.model, Tokens(*beyond), "side" if host.side else ""))
            excess.calls, excess.inherited = 0, host.inherited
            group.excess = excess
            self._sum(excess).add(excess, 1)

    def _sum(self, slot: _Slot) -> _Sum:
        if slot.inherited:
            return self._inherited
        key = (slot.model, slot.side)
        found = self._sums.get(key)
        if found is None:
            found = self._sums[key] = _Sum()
        return found

    def _tool(self, tool: ToolCall) -> None:
        name = hash(tool.key)
        if tool.server:
            self._counted.setdefault("server tool calls", set()).add(name)
            return
        # Two marks, which a sighting without them takes away: of a sub-agent, inherited.
        inherited = tool.inherited or name in self._others or self._is_copy(tool.call)
        marks = bool(tool.side) | inherited << 1
        before = self._tools.get(name)
        if before is not None:
            marks &= before
            self._tool_counts[before] -= 1
        self._tools[name] = marks
        self._tool_counts[marks] += 1

    def _is_copy(self, call: str | None) -> bool:
        """Whether this call was made in another session, as far as it was seen."""
        known = self._calls.get(hash(call)) if self._others and call is not None else None
        return isinstance(known, _Slot) and known.inherited

    def _result(self, result: ToolResult) -> None:
        self._results = True
        if result.failed is not None:
            self._judged = True
            if result.failed and hash(result.key) not in self._others:
                self._failed.add(hash(result.key))

    def _count(self, counted: Counted) -> None:
        what, key, times = counted
        if key is None:
            self._tallies[what] = self._tallies.get(what, 0) + times
        else:
            self._counted.setdefault(what, set()).add(hash(key))

    def _other(self, event: Event) -> None:
        match event:
            case Read(records, first, last):
                self._records += records
                self._span.saw(first)
                self._span.saw(last)
            case Prompt(key, side=side, by=by, inherited=inherited):
                if not (side or inherited) and by == "user" and hash(key) not in self._others:
                    self._prompts.add(hash(key))
            case Turn(key, _, tokens):
                if tokens is not None:
                    name = hash(key)
                    self._turns[name] = largest(self._turns.get(name, UNKNOWN), tokens)
            case Counter():
                self._counter(event)
            case Compacted(key):
                if hash(key) not in self._others:
                    self._compactions.add(hash(key))
            case Ending():
                self._ended(event)
            case Opened():
                self._open(event)
            case Silent(what):
                self._silent.add(what)
            case Skipped():
                self._skipped_lines += 1
                self._torn += event.torn
                if len(self._skipped) < NAMED:
                    self._skipped.append(event)
            case Noted(text):
                self._notes[text] = None
            case _:
                pass

    def _counter(self, counter: Counter) -> None:
        stretches = self._counters.setdefault(counter.key, {})
        had = stretches.get(counter.stretch)
        now = _Counted.of(counter)
        stretches[counter.stretch] = now if had is None else had.largest(now)

    def _ended(self, ending: Ending) -> None:
        if len(self._endings) < NAMED and ending not in self._endings:
            self._endings.append(ending)
        if self._ending is None or ending.weight >= self._ending.weight:
            self._ending = ending

    def _open(self, opened: Opened) -> None:
        """A sub-agent's file beside its session's says nothing of the session."""
        if opened.inside is None:
            self._opened = _completed(self._opened, opened)
        else:
            self._within = _completed(self._within, opened)

    def made(self, named_only: bool) -> Iterator[int]:
        """What this session has done, for the accounts of sessions that may hold copies of it.

        named_only: of calls only those with a member, and no tools. A key
            alone may be used again by a gateway for another call of another
            session; the tools of a call are copied with it.
        """
        yield from chain(() if named_only else self._tools, self._prompts, self._compactions)
        for key, known in self._calls.items():
            for slot in known.members.values() if isinstance(known, _Group) else (known,):
                if slot.member is not None or not named_only:
                    yield hash((key, slot.member))

    @property
    def opened(self) -> Opened:
        return self._opened if self._opened.session is not None else _completed(self._within, self._opened)

    def figures(self) -> Figures:
        """What is known by now."""
        for group in self._grouped.values():
            self._absorb(group)
        self._grouped.clear()
        main, sides = _Sum(), _Sum()
        shares: dict[str | None, _Sum] = {}
        for (model, side), each in self._sums.items():
            if each.calls or any(each.tokens):
                _pour(each, sides if side else main)
                _pour(each, shares.setdefault(model, _Sum()))
        turns = total(self._turns.values())
        conversation = better(main.total, turns)
        seen = total((conversation, sides.total))
        counter = self._grown()
        counted = counter.everything
        everything = better(seen, counted)
        calls = main.calls + sides.calls
        silent = self._silent
        cost, partly = self._cost(main, sides, counter.cost)
        tools = self._tool_counts[0] + self._tool_counts[1]
        failed = sum(1 for name in self._failed if self._tools.get(name, 0) < 2)  # not inherited
        # Tokens were used, and nothing that used them is shown: a result alone. A synthetic record is no call.
        hidden = not (calls or counter.calls or "synthetic" in self._counted) and any(everything[:4])
        figures = Figures(
            opened=self.opened,
            tokens=Usage.of(everything),
            main=Usage.of(conversation),
            subagents=Usage.of(sides.total),
            inherited=Usage.of(self._inherited.total),
            turns=max(calls, counter.calls or 0) or (None if hidden or "turns" in silent else 0),
            turns_subagents=sides.calls,
            calls_without_usage=main.blind + sides.blind,
            tool_calls=tools or (None if hidden or "tool calls" in silent else 0),
            tool_calls_subagents=self._tool_counts[1],
            tool_errors=failed if self._judged or not (self._results or tools) else None,
            prompts=len(self._prompts),
            compactions=len(self._compactions),
            models=self._shares(shares, seen, counter),
            cost_reported=cost,
            first=self._span.first,
            last=self._span.last,
            ending=self._ending,
            endings=tuple(self._endings),
            records=self._records,
            skipped_lines=self._skipped_lines,
            skipped=tuple(self._skipped),
            torn=self._torn,
            counts=dict(
                sorted((self._tallies | {name: len(keys) for name, keys in self._counted.items()}).items())
            ),
            lower_bounds=(),
            notes=tuple(self._notes),
        )
        bounds = self._lower_bounds(figures, main, sides, turns, counter, partly)
        return replace(figures, lower_bounds=bounds)

    def _lower_bounds(
        self, figures: Figures, main: _Sum, sides: _Sum, turns: Tokens, counter: _Counted, partly: bool
    ) -> tuple[str, ...]:
        """Which figures may be too small, and so are."""
        names = []
        counted, seen = counter.everything, Usage.of(total((main.total, sides.total)))
        blind = main.blind + sides.blind
        for name, place in (("input", 0), ("output", 3)):
            witness = counted[place] is not None or (turns[place] is not None and not sides.calls)
            known = main.known[place] + sides.known[place]
            missing = blind or (known and known < main.calls + sides.calls)
            unfinished = name == "output" and main.unfinished + sides.unfinished
            hidden = name in self._silent or (not witness and (missing or unfinished))
            if getattr(figures.tokens, name) is not None and hidden:
                names.append(name)
        # What a counter knows beyond the calls was used by calls that left no line: titles, summaries, retries.
        unseen = (counted[0] or 0) + (counted[1] or 0) + (counted[2] or 0) > (seen.input or 0)
        if figures.turns and ("turns" in self._silent or (unseen and counter.calls is None)):
            names.append("turns")
        if "tool calls" in self._silent and figures.tool_calls:
            names.append("tool_calls")
        if partly:
            names.append("cost")
        if self._torn or self._skipped_lines:
            names.extend(
                name for name in ("input", "output") if name not in names and self._hides(name, figures)
            )
        return tuple(names)

    def _hides(self, name: str, figures: Figures) -> bool:
        """A line that began as a record and could not be read may have held a call."""
        lost = any(each.torn or each.lost for each in self._skipped)
        return lost and getattr(figures.tokens, name) is not None

    def _grown(self) -> _Counted:
        """All counters together, as far as they are of this session alone."""
        sums = _Counted()
        forked = self.opened.forked is not None or self._inherited.calls > 0
        for stretches in self._counters.values():
            grown = _Counted()
            for stretch, each in stretches.items():
                if stretch:
                    grown = grown.plus(each)
            whole = stretches.get("")
            sums = sums.plus(grown if whole is None or forked else grown.largest(whole))
        return sums

    def _cost(self, main: _Sum, sides: _Sum, by_counter: float | None) -> tuple[float | None, bool]:
        """US dollars as reported, and whether calls are missing in it. 0 beside tokens is no price."""
        by_calls = main.cost + sides.cost if main.priced + sides.priced else None
        known = [each for each in (by_counter, by_calls) if each]
        if not known:
            return None, False
        partly = by_counter is None and main.priced + sides.priced < main.calls + sides.calls
        return max(known), partly

    def _shares(self, shares: dict[str | None, _Sum], seen: Tokens, counter: _Counted) -> tuple[Share, ...]:
        """Each model's part, by the witness that saw more."""
        if counter.models and size(counter.everything) >= size(seen):
            out = [
                Share(name, shares[name].calls if name in shares else None, tokens, cost)
                for name, (tokens, cost) in counter.models.items()
            ]
        else:
            out = [Share(name, each.calls, each.total, each.cost or None) for name, each in shares.items()]
            if not out and counter.tokens != UNKNOWN:
                out = [Share(self.opened.model, None, counter.tokens)]
        return tuple(sorted(out, key=lambda share: (-size(share.tokens), share.name or "")))


def largest(a: Tokens, b: Tokens) -> Tokens:
    """The larger of each field; a known one over an unknown."""
    if a == b:
        return a
    return Tokens(*(y if x is None else x if y is None else max(x, y) for x, y in zip(a, b, strict=True)))


def better(a: Tokens, b: Tokens) -> Tokens:
    """Of two witnesses of the same calls the one that saw more: of the input as a whole, and of the output.

    A part of the input that the other one alone knows is taken out of
    `fresh`, where it is then.
    """
    source, other = (a, b) if _seen(a) >= _seen(b) else (b, a)
    fresh, parts = source.fresh, [source.cached, source.created]
    for place, known in enumerate((other.cached, other.created)):
        if parts[place] is None and known is not None and fresh is not None:
            parts[place] = min(known, fresh)
            fresh -= min(known, fresh)
    most = largest(a, b)
    return Tokens(fresh, parts[0], parts[1], most.output, most.reasoning, source.created_1h)


def _seen(tokens: Tokens) -> tuple[int, int]:
    """How much input, and how many of its parts are known."""
    return sum(value or 0 for value in tokens[:3]), sum(value is not None for value in tokens[:3])


def total(each: Iterable[Tokens]) -> Tokens:
    """The sum of each field; None where none is known."""
    sums: list[int | None] = [None] * 6
    for tokens in each:
        for place, value in enumerate(tokens):
            if value is not None:
                sums[place] = value + (sums[place] or 0)
    return Tokens(*sums)


def _completed(had: Opened, new: Opened) -> Opened:
    return Opened(*(a if a is not None else b for a, b in zip(had, new, strict=True)))


def _pour(source: _Sum, into: _Sum) -> None:
    into.calls += source.calls
    into.blind += source.blind
    into.unfinished += source.unfinished
    into.cost += source.cost
    into.priced += source.priced
    for place in range(6):
        into.tokens[place] += source.tokens[place]
        into.known[place] += source.known[place]


def size(tokens: Tokens) -> int:
    """Everything that was used, as far as it is known."""
    return sum(value or 0 for value in tokens[:4])
