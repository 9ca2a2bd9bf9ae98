"""Sessions of one family: what a fork has copied, and counters that go on from another session's value."""

from __future__ import annotations

import itertools

import pytest

from adapters.transcripts.account import Account, Figures
from adapters.transcripts.events import (
    Call,
    Compacted,
    Counter,
    Event,
    Opened,
    Prompt,
    Tokens,
    ToolCall,
    ToolResult,
)


def tokens(fresh: int, output: int) -> Tokens:
    return Tokens(fresh, 0, 0, output)


def call(key: str, fresh: int, output: int, inherited: bool = False) -> Call:
    return Call(key, None, None, "m", tokens(fresh, output), inherited=inherited)


def tool(key: str, inherited: bool = False, side: str = "") -> ToolCall:
    return ToolCall(key, None, "Bash", None, None, side, inherited=inherited)


def figures(*events: Event, others: frozenset[int] = frozenset()) -> Figures:
    account = Account(others)
    account.add(events)
    return account.figures()


COPIED = (call("a", 10, 1, True), tool("t", True), ToolResult("t", None, None, True))
OWN = (call("b", 20, 2), tool("u"), ToolResult("u", None, None, True))


@pytest.mark.parametrize("events", list(itertools.permutations(COPIED + OWN))[::17])
def test_what_was_copied_is_told_apart_in_any_order_and_however_often(events: tuple[Event, ...]) -> None:
    found = figures(*events, *reversed(events))
    assert (found.tokens.input, found.tokens.output, found.turns) == (20, 2, 1)
    assert (found.inherited.input, found.inherited.output) == (10, 1)
    assert (found.tool_calls, found.tool_errors) == (1, 1)


@pytest.mark.parametrize("copy_first", [True, False])
def test_a_sighting_that_is_no_copy_decides(copy_first: bool) -> None:
    """Parent and fork in one account: everything was done here, once."""
    copies = (call("a", 10, 1, True), tool("t", True))
    parent = (call("a", 10, 1), tool("t"))
    found = figures(*(copies + parent if copy_first else parent + copies))
    assert (found.tokens.input, found.turns, found.tool_calls, found.inherited.input) == (10, 1, 1, None)


def test_what_another_session_did_is_inherited_though_no_row_says_so() -> None:
    parent = Account()
    done = (
        Prompt("p", None, "go"),
        call("a", 10, 1),
        tool("t"),
        ToolResult("t", None, None, True),
        Compacted("c", None),
    )
    parent.add(done)
    found = figures(*done, Prompt("q", None, "on"), *OWN, others=parent.keys)
    assert (found.tokens.input, found.inherited.input, found.turns) == (20, 10, 1)
    assert (found.tool_calls, found.tool_errors, found.prompts, found.compactions) == (1, 1, 1, 0)


def test_a_sub_agents_tool_is_the_main_conversations_if_it_is_seen_there() -> None:
    found = figures(tool("t", side="s"), tool("u", side="s"), tool("t"))
    assert (found.tool_calls, found.tool_calls_subagents) == (2, 1)


def grown(stretch: str, fresh: int, output: int, cost: float) -> Counter:
    return Counter("process", None, None, (("m", tokens(fresh, output), cost),), cost, stretch=stretch)


def test_stretches_of_a_counter_are_added_and_each_counts_once() -> None:
    found = figures(grown("one", 10, 1, 0.5), grown("two", 20, 2, 0.25), grown("one", 10, 1, 0.5))
    assert (found.tokens.input, found.tokens.output, found.cost_reported) == (30, 3, 0.75)
    assert [(share.name, share.usage.input, share.cost) for share in found.models] == [("m", 30, 0.75)]


def test_of_a_counter_and_its_stretches_the_larger_counts() -> None:
    """A session file has the value, the streams of its processes have stretches: never both together."""
    for whole, expected in ((50, 50), (20, 30)):
        found = figures(grown("", whole, 3, 1.0), grown("one", 10, 1, 0.5), grown("two", 20, 2, 0.25))
        assert (found.tokens.input, found.cost_reported) == (expected, 1.0)


def test_a_counter_that_a_fork_has_inherited_says_nothing_of_it() -> None:
    found = figures(Opened(session="f", forked="p"), *COPIED, *OWN, grown("", 30, 3, 0.9))
    assert (found.tokens.input, found.cost_reported) == (20, None)
    found = figures(*COPIED, *OWN, grown("", 30, 3, 0.9), grown("one", 21, 2, 0.6))
    assert (found.tokens.input, found.cost_reported) == (21, 0.6)


def test_what_a_counter_knows_beyond_the_calls_was_used_by_calls_without_a_line() -> None:
    """A title, a summary, a broken try: how many there were nobody says."""
    assert figures(call("a", 10, 1), grown("", 10, 1, 0.5)).lower_bounds == ()
    assert figures(call("a", 10, 1), grown("", 15, 2, 0.5)).lower_bounds == ("turns",)
    # The output alone may have been a placeholder.
    assert figures(call("a", 10, 1), grown("", 10, 2, 0.5)).lower_bounds == ()
