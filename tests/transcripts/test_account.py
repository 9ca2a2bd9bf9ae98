"""What counting must keep, whatever the order and however often: on small sessions of our own and on real ones."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.transcripts.account import Account, Usage
from adapters.transcripts.events import Call, Counter, Silent, Tokens, ToolCall, ToolResult, Turn
from adapters.transcripts.readers.claude_code import ClaudeCode
from adapters.transcripts.readers.codex import Rollout
from tests.transcripts.claude import answered, assistant, prompt, result
from tests.transcripts.counting import figures, lines, totals

keys = st.sampled_from(["m1", "m2", "m3", None])
records = st.one_of(
    st.builds(
        assistant,
        keys,
        st.sampled_from(["r1", "r2", None]),
        output=st.none() | st.integers(0, 99),
        cached=st.integers(0, 9),
        side=st.booleans(),
        tool=st.sampled_from(["t1", "t2", None]),
        stop=st.sampled_from([None, "end_turn"]),
        model=st.sampled_from(["claude-opus-4-6", "claude-haiku-4-5", "<synthetic>"]),
    ),
    st.builds(answered, st.sampled_from(["t1", "t2"]), st.sampled_from([True, False, None])),
    st.builds(prompt, st.sampled_from(["go", "on"]), st.sampled_from(["p1", "p2"])),
)


@given(st.lists(records, max_size=12), st.data())
def test_repeating_and_shuffling_change_nothing(session: list[dict[str, Any]], data: st.DataObject) -> None:
    once = figures(lines(*session), ClaudeCode)
    again = session + [each for each in session if data.draw(st.booleans())]
    order = data.draw(st.randoms())
    order.shuffle(again)
    twice = figures(lines(*again), ClaudeCode)
    # Which of two models a response is given to that names two is the one thing that order decides.
    if len(
        {(m["message"].get("id"), m["message"]["model"]) for m in session if m["type"] == "assistant"}
    ) == len({m["message"].get("id") for m in session if m["type"] == "assistant"}):
        assert totals(twice) == totals(once)
    assert twice.tokens == once.tokens
    assert (twice.turns, twice.tool_calls, twice.tool_errors, twice.prompts) == (
        once.turns,
        once.tool_calls,
        once.tool_errors,
        once.prompts,
    )


@given(st.lists(records, max_size=12), st.integers(1, 200))
def test_the_pieces_in_which_it_comes_change_nothing(session: list[dict[str, Any]], piece: int) -> None:
    data = lines(*session)
    assert figures(data, ClaudeCode, piece) == figures(data, ClaudeCode)


@given(st.lists(records, max_size=10), st.lists(records, max_size=5))
def test_figures_never_shrink(session: list[dict[str, Any]], more: list[dict[str, Any]]) -> None:
    one, two = figures(lines(*session), ClaudeCode), figures(lines(*session, *more), ClaudeCode)
    for name in ("input", "cached", "created", "output"):
        assert (getattr(two.tokens, name) or 0) >= (getattr(one.tokens, name) or 0)
    assert (two.turns or 0) >= (one.turns or 0)


REAL = [
    "a_claude/marot_spotter__test__fixtures__transcripts__subagent.jsonl",
    "a_claude/d-kimuson_claude-code-viewer__mock-global-claude-dir__projects__sample-project__fe5e1c67-53e7-4862-81ae-d0e013e3270b.jsonl",
    "a_claude/daaain_claude-code-log__test__test_data__edge_cases.jsonl",
    "c_streamjson/link-assistant_hive-mind__issue-724__solution-draft-1.jsonl",
    "c_streamjson/littlebearapps_untether__tests__fixtures__claude_stream_json_session.jsonl",
]


@pytest.mark.parametrize("name", REAL, ids=[name[-30:] for name in REAL])
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.randoms(use_true_random=False))
def test_real_sessions_repeated_and_shuffled(name: str, corpus: Path, order: random.Random) -> None:
    rows = [row + b"\n" for row in (corpus / name).read_bytes().split(b"\n") if row]
    once = figures(b"".join(rows), ClaudeCode)
    again = rows + order.sample(rows, len(rows) // 3)
    order.shuffle(again)
    assert totals(figures(b"".join(again), ClaudeCode)) == totals(once)


def test_a_real_rollout_of_which_lines_come_again(corpus: Path) -> None:
    """A rollout is in order, and what it repeats it repeats later."""
    (path,) = (corpus / "b_codex").glob("yoavf*")
    rows = [row + b"\n" for row in path.read_bytes().split(b"\n") if row]
    once = figures(b"".join(rows), Rollout)
    for seed in range(20):
        order = random.Random(seed)
        again = []
        for n, row in enumerate(rows):
            again += [row, *order.sample(rows[: n + 1], min(n, order.choice([0, 0, 1, 3])))]
        found = figures(b"".join(again), Rollout)
        assert (found.tokens, found.turns, found.tool_calls) == (once.tokens, once.turns, once.tool_calls)


def test_a_report_is_a_second_witness_and_the_larger_of_both_counts() -> None:
    seen = [assistant("m1", "r1", output=1, stop=None, cached=9), assistant("a1", "r2", output=2, side=True)]
    usage = {
        "input_tokens": 10,
        "output_tokens": 50,
        "cache_read_input_tokens": 9,
        "cache_creation_input_tokens": 0,
    }
    found = figures(lines(*seen, result(usage=usage)), ClaudeCode)
    assert (found.main.output, found.subagents.output, found.tokens.output) == (50, 2, 52)
    models = {
        "claude-opus-4-6": {"inputTokens": 30, "outputTokens": 60, "cacheReadInputTokens": 9, "costUSD": 0.5}
    }
    found = figures(lines(*seen, result(usage=usage, modelUsage=models, total_cost_usd=0.5)), ClaudeCode)
    assert found.tokens == Usage(39, 9, 0, 60, None)
    assert found.cost_reported == 0.5
    assert "output" not in found.lower_bounds


def test_counters_that_go_on_over_resume_are_not_added() -> None:
    def models(n: int) -> dict[str, Any]:
        return {"modelUsage": {"m": {"inputTokens": 10 * n, "outputTokens": n}}, "total_cost_usd": 0.1 * n}

    records = [result(uuid=str(n), **models(n)) for n in (1, 2, 3)]
    for order in (records, records[::-1], records * 2):
        found = figures(lines(*order), ClaudeCode)
        assert (found.tokens.input, found.tokens.output) == (30, 3)
        assert found.cost_reported == pytest.approx(0.3)


def test_a_spurious_result_that_reports_nothing_takes_nothing_away() -> None:
    models = {"m": {"inputTokens": 10, "outputTokens": 5}}
    good = result(uuid="1", modelUsage=models, total_cost_usd=0.5)
    bad = result(uuid="2", is_error=True, num_turns=0, modelUsage={}, total_cost_usd=0)
    again = result(uuid="3", modelUsage={"m": {"inputTokens": 20, "outputTokens": 9}}, total_cost_usd=0.8)
    found = figures(lines(good, bad, again), ClaudeCode)
    assert (found.tokens.input, found.tokens.output, found.cost_reported) == (20, 9, 0.8)


def test_what_nobody_says_is_unknown() -> None:
    account = Account()
    found = account.figures()
    assert found.tokens == Usage()
    assert (found.first, found.last, found.ending, found.cost_reported) == (None, None, None, None)
    account.add([Silent("turns"), Silent("tool calls")])
    assert (account.figures().turns, account.figures().tool_calls) == (None, None)
    account.add([ToolCall("t", None, "x", None, None)])
    found = account.figures()
    assert (found.tool_calls, found.lower_bounds) == (1, ("tool_calls",))
    account.add([ToolResult("t", None, "?", None)])
    assert account.figures().tool_errors is None


def test_a_cost_of_0_beside_tokens_is_no_price() -> None:
    account = Account()
    account.add(
        [Call("a", None, None, "m", Tokens(5, 0, 0, 5), cost=0.0), Counter("c", None, None, cost=0.0)]
    )
    assert account.figures().cost_reported is None


def test_a_cost_that_is_reported_for_some_calls_is_a_lower_bound() -> None:
    account = Account()
    account.add(
        [Call("a", None, None, "m", Tokens(5, 0, 0, 5), cost=0.25), Call("b", None, None, "m", Tokens(1))]
    )
    found = account.figures()
    assert (found.cost_reported, "cost" in found.lower_bounds) == (0.25, True)


def test_what_another_session_made_is_inherited() -> None:
    first, second = Account(), Account()
    calls = [Call(key, "r", None, "m", Tokens(1, 0, 0, 1)) for key in "abc"]
    tools = [ToolCall("s", None, "x", None, "a"), ToolCall("t", None, "x", None, "c")]
    first.add([*calls[:2], tools[0]])
    others = set(first.made(named_only=True))
    second = Account(others)
    second.add([*calls, *tools])
    found = second.figures()
    assert (found.turns, found.tool_calls) == (1, 1)
    assert (found.tokens.output, found.inherited.output) == (1, 2)


def test_a_tools_id_that_a_gateway_uses_again_is_no_copy() -> None:
    first, second = Account(), Account()
    first.add([Call("a", "r1", None, "m", Tokens(1)), ToolCall("call_0", None, "x", None, "a")])
    second = Account(set(first.made(named_only=True)))
    second.add([Call("b", "r2", None, "m", Tokens(1)), ToolCall("call_0", None, "x", None, "b")])
    second.add([ToolResult("call_0", None, "?", True)])
    assert (second.figures().tool_calls, second.figures().tool_errors) == (1, 1)


def test_a_key_that_a_gateway_uses_again_is_no_copy() -> None:
    first = Account()
    first.add([Call("msg_1", None, None, "m", Tokens(1))])
    second = Account(set(first.made(named_only=True)))
    second.add([Call("msg_1", None, None, "m", Tokens(5))])
    assert (second.figures().turns, second.figures().tokens.input) == (1, 5)


def test_a_torn_end_makes_lower_bounds() -> None:
    whole = lines(assistant("m1"), assistant("m2", "r2"))
    found = figures(whole[:-20], ClaudeCode)
    assert (found.torn, found.turns) == (1, 1)
    assert set(found.lower_bounds) == {"input", "output"}
    assert found.skipped[0].line == 2


def test_the_turn_of_one_result_is_counted_once() -> None:
    account = Account()
    account.add([Turn("1", None, Tokens(5, None, None, 7))] * 3)
    assert account.figures().tokens == Usage(5, None, None, 7, None)


def test_many_skipped_lines_are_counted_and_the_first_named() -> None:
    found = figures(b"noise\n" * 5000 + json.dumps(assistant()).encode(), ClaudeCode)
    assert (found.skipped_lines, len(found.skipped)) == (5000, 100)


def test_one_key_with_many_members_costs_what_they_are() -> None:
    account = Account()
    begun = time.perf_counter()
    account.add(Call("m", f"r{nth}", None, "m", Tokens(1, output=1)) for nth in range(30_000))
    account.add([Call("m", None, None, "m", Tokens(40_000, output=1))])
    assert account.figures().tokens.input == 40_000
    assert account.figures().turns == 30_000
    assert time.perf_counter() - begun < 5
