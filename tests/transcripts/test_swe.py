"""mini-swe-agent and SWE-agent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from adapters.transcripts.reader import mapping
from tests.transcripts.reading import broken, corpus, document, format_of, read, survives


def answer(n: int, actions: int = 1, prompt: int = 100, cached: int = 0) -> Any:
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    return {
        "role": "assistant",
        "content": "so",
        "extra": {
            "actions": [{"command": "ls", "tool_call_id": f"call_{place}"} for place in range(actions)],
            "response": {"id": f"chat-{n}", "model": "m", "usage": usage},
            "cost": 0.01,
            "timestamp": 1790000000 + n,
        },
    }


def observed(place: int, code: int = 0) -> Any:
    return {
        "role": "tool",
        "tool_call_id": f"call_{place}",
        "content": "x",
        "extra": {"returncode": code, "timestamp": 1790000100},
    }


def run(status: str, **others: Any) -> Any:
    return {
        "trajectory_format": "mini-swe-agent-1.1",
        "info": {
            "exit_status": status,
            "submission": "diff",
            "mini_version": "2.4.6",
            "model_stats": {"api_calls": 4, "instance_cost": 0.05},
            "config": {"agent": {"step_limit": 40, "cost_limit": 3.0}, "model": {"model_name": "openai/m"}},
        }
        | others,
        "messages": [
            {"role": "system", "content": "you are"},
            {"role": "user", "content": "fix it"},
            answer(1),
            observed(0),
            {"role": "user", "content": "one action, please", "extra": {"interrupt_type": "FormatError"}},
            answer(2, 2, 200, 150),
            observed(1, 1),
            observed(0),
            answer(3, 1, 300, 200),
            {"role": "exit", "content": "diff", "extra": {"exit_status": status, "submission": "diff"}},
        ],
    }


def test_a_run_of_mini() -> None:
    name, each = read(document(run("Submitted")))
    assert name == "mini-swe-agent"
    assert (each.tokens.input, each.tokens.cached, each.tokens.output) == (600, 350, 30)
    assert (each.turns, each.tool_calls, each.tool_errors, each.prompts) == (4, 4, 1, 1)
    assert each.cost_reported == 0.05
    assert each.lower_bounds == ("input", "output")  # the answer that was no action left no usage
    assert (each.opened.version, each.opened.model) == ("2.4.6", "openai/m")
    assert (each.first, each.last) == ("2026-09-21T14:13:21.000Z", "2026-09-21T14:15:00.000Z")


@pytest.mark.parametrize(
    ("status", "others", "ending"),
    [
        ("Submitted", {}, ("clean", "")),
        ("LimitsExceeded", {}, ("budget", "turns")),
        ("LimitsExceeded", {"model_stats": {"api_calls": 4, "instance_cost": 3.1}}, ("budget", "usd")),
        ("TimeExceeded", {}, ("budget", "minutes")),
        ("RepeatedFormatError", {}, ("stall", "RepeatedFormatError")),
        ("AuthenticationError", {}, ("auth", "401")),
        ("litellm.RateLimitError", {}, ("limit", "429")),
        ("ContextWindowExceededError", {}, ("provider", "context")),
        ("KeyboardInterrupt", {}, ("interrupt", "KeyboardInterrupt")),
        ("ZeroDivisionError", {}, ("crash", "ZeroDivisionError")),
        ("", {}, None),
    ],
)
def test_how_a_run_of_mini_ended(status: str, others: Any, ending: tuple[str, str] | None) -> None:
    each = read(document(run(status, **others)))[1]
    assert (each.ending and (each.ending.kind, each.ending.code)) == ending


def test_a_run_over_the_responses_api() -> None:
    usage = {"input_tokens": 50, "input_tokens_details": {"cached_tokens": 20}, "output_tokens": 5}
    made = run("Submitted") | {
        "messages": [
            {"role": "user", "content": "fix it"},
            {
                "object": "response",
                "id": "r1",
                "usage": usage,
                "output": [],
                "extra": {"actions": [{"command": "ls", "tool_call_id": "c"}]},
            },
            {"type": "function_call_output", "call_id": "c", "output": "x", "extra": {"returncode": 1}},
        ]
    }
    each = read(document(made))[1]
    assert (each.tokens.input, each.tokens.cached, each.tokens.output) == (50, 20, 5)
    assert (each.tool_calls, each.tool_errors) == (1, 1)


def test_messages_of_mini_that_are_a_plain_list() -> None:
    """Ten answers with one block each; two commands gave 1."""
    name, each = read(corpus("b_traj/*mini-swe-agent*"))
    assert name == "mini-swe-agent"
    assert (each.turns, each.tool_calls, each.tool_errors, each.prompts) == (10, 10, 2, 1)
    assert (each.tokens.input, each.tokens.output, each.cost_reported, each.ending) == (
        None,
        None,
        None,
        None,
    )


def test_lists_of_messages_of_others_are_not_claimed() -> None:
    talk = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
    ]
    assert format_of(document(talk)) is None
    assert format_of(document([])) is None


def traj(status: str = "submitted", **stats: Any) -> Any:
    step = {
        "action": "ls -la\n",
        "observation": "x",
        "response": "so\n```\nls -la\n```",
        "thought": "so",
        "state": "{}",
    }
    return {
        "environment": "e",
        "trajectory": [
            step,
            step | {"action": ""},
            {"action": "submit", "observation": "", "response": "", "thought": "limit"},
        ],
        "history": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "see how", "is_demo": True},
            {"role": "assistant", "content": "shown", "is_demo": True},
            {"role": "user", "content": "fix it"},
            {"role": "assistant", "content": "so"},
            {"role": "user", "content": "x"},
        ],
        "info": {"exit_status": status, "submission": "diff", "model_stats": stats},
    }


def test_a_run_of_swe_agent() -> None:
    stats = {
        "tokens_sent": 1000,
        "tokens_received": 50,
        "api_calls": 3,
        "instance_cost": 0.2,
        "total_cost": 9.0,
    }
    name, each = read(document(traj(**stats)))
    assert name == "swe-agent"
    assert (each.tokens.input, each.tokens.cached, each.tokens.output) == (1000, None, 50)
    assert (each.turns, each.tool_calls, each.prompts, each.cost_reported) == (3, 2, 1, 0.2)
    assert each.tool_errors is None
    assert each.notes == ()


def test_statistics_of_zeros_are_unknown() -> None:
    each = read(document(traj(tokens_sent=0, tokens_received=0, api_calls=0, instance_cost=0)))[1]
    assert (each.tokens.input, each.tokens.output, each.cost_reported, each.turns) == (None, None, None, 2)
    assert len(each.notes) == 1


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        ("submitted", ("clean", "")),
        ("submitted (exit_cost)", ("budget", "usd")),
        ("exit_cost", ("budget", "usd")),
        ("submitted (exit_context)", ("provider", "context")),
        ("exit_format", ("stall", "exit_format")),
        ("exit_api", ("provider", "error")),
        ("exit_novel", ("crash", "exit_novel")),
    ],
)
def test_how_a_run_of_swe_agent_ended(status: str, ending: tuple[str, str]) -> None:
    end = read(document(traj(status)))[1].ending
    assert end is not None
    assert (end.kind, end.code) == ending


@pytest.mark.parametrize(
    ("pattern", "steps"),
    [
        ("*BabyTimeCapsule*", 9),
        ("*eps.traj", 14),
        ("*katy*", 18),
        ("*i_got_id*", 21),
        ("*ac53752a*", 12),
        ("*b227c946*", 11),
        ("*bcd55c68*", 12),
        ("*da31b291*", 11),
    ],
)
def test_trajectories_of_the_corpus(pattern: str, steps: int) -> None:
    """Each has as many answers in its history as steps; all statistics are zero."""
    name, each = read(corpus(f"b_traj/{pattern}"))
    assert name == "swe-agent"
    assert (each.turns, each.tool_calls, each.prompts) == (steps, steps, 1)
    assert (each.tokens.input, each.tokens.output, each.cost_reported) == (None, None, None)
    assert each.ending is not None
    assert each.ending.kind == "clean"
    assert len(each.notes) == 1


@given(value=broken(run("Submitted")))
def test_any_shape_of_mini_is_survived(value: Any) -> None:
    survives(value)
    survives(mapping(value).get("messages"))


@given(value=broken(traj(tokens_sent=1)))
def test_any_shape_of_swe_agent_is_survived(value: Any) -> None:
    survives(value)
