"""ATIF: the fixtures are valid by the models of the `atif` package."""

from __future__ import annotations

from typing import Any

import atif
import pytest
from hypothesis import given

from adapters.transcripts.events import Opened
from tests.transcripts.reading import broken, document, format_of, read, survives


def metrics(prompt: int, cached: int, output: int, cost: float | None = None, **extra: int) -> Any:
    known = {"prompt_tokens": prompt, "cached_tokens": cached, "completion_tokens": output}
    return known | ({"cost_usd": cost} if cost is not None else {}) | ({"extra": extra} if extra else {})


def agent(n: int, used: Any = None, **others: Any) -> Any:
    step = {"step_id": n, "timestamp": f"2026-11-01T10:00:{n:02}Z", "source": "agent", "message": "so"}
    return step | ({"metrics": used} if used else {}) | others


def tools(*names: str) -> Any:
    return {
        "tool_calls": [
            {"tool_call_id": name, "function_name": "bash", "arguments": {"command": "ls"}} for name in names
        ],
        "observation": {"results": [{"source_call_id": name, "content": "x"} for name in names]},
    }


def trajectory(*steps: Any, **others: Any) -> Any:
    return {
        "schema_version": "ATIF-v1.8",
        "session_id": "s",
        "trajectory_id": "t",
        "agent": {"name": "a", "version": "1", "model_name": "m"},
        "steps": list(steps),
    } | others


def figures(value: Any) -> Any:
    atif.Trajectory.model_validate(value)
    name, each = read(document(value))
    assert name == "atif"
    return each


RUN = [
    {"step_id": 1, "source": "system", "message": "you are"},
    {"step_id": 2, "source": "user", "message": "fix it"},
    agent(
        3, metrics(100, 40, 10, 0.1, cache_creation_input_tokens=20, reasoning_tokens=4), **tools("c1", "c2")
    ),
    agent(4, llm_call_count=0, **tools("c1")),
    agent(5, metrics(300, 200, 30, 0.2), llm_call_count=3, model_name="n"),
]


def test_steps_are_calls_and_their_metrics_add_up() -> None:
    each = figures(trajectory(*RUN))
    assert (each.tokens.input, each.tokens.cached, each.tokens.created) == (400, 240, 20)
    assert (each.tokens.output, each.tokens.reasoning) == (40, 4)
    assert (each.turns, each.tool_calls, each.prompts) == (4, 3, 1)
    assert each.cost_reported == pytest.approx(0.3)
    assert each.opened == Opened("s", "a", "1", "m")
    assert (each.first, each.last) == ("2026-11-01T10:00:03Z", "2026-11-01T10:00:05Z")
    assert {share.name: share.calls for share in each.models} == {"m": 1, "n": 1}
    assert each.ending is None


def test_a_total_is_a_second_witness() -> None:
    final = {
        "total_prompt_tokens": 500,
        "total_cached_tokens": 300,
        "total_completion_tokens": 35,
        "total_cost_usd": 0.5,
    }
    each = figures(trajectory(*RUN, final_metrics=final))
    assert (each.tokens.input, each.tokens.output, each.cost_reported) == (500, 40, 0.5)
    bare = figures(trajectory(agent(1), agent(2), final_metrics=final))
    assert (bare.tokens.input, bare.tokens.cached, bare.tokens.output, bare.turns) == (500, 300, 35, 2)
    assert bare.lower_bounds == ()


def test_what_was_copied_is_inherited() -> None:
    copied = agent(1, metrics(1000, 0, 100), is_copied_context=True, **tools("c0"))
    asked = {"step_id": 2, "source": "user", "message": "old", "is_copied_context": True}
    each = figures(
        trajectory(copied, asked, agent(3, metrics(10, 0, 1)), final_metrics={"total_prompt_tokens": 1010})
    )
    assert (each.tokens.input, each.tokens.output, each.turns, each.tool_calls, each.prompts) == (
        10,
        1,
        1,
        0,
        0,
    )
    assert (each.inherited.input, each.inherited.output) == (1000, 100)


def test_sub_agents_are_sides() -> None:
    inner = trajectory(agent(1, metrics(7, 0, 7)), trajectory_id="inner")
    counted = trajectory(
        agent(1, metrics(50, 0, 5), **tools("c1")), trajectory_id="sub", subagent_trajectories=[inner]
    )
    total = trajectory(
        agent(1),
        agent(2),
        trajectory_id="bare",
        final_metrics={"total_prompt_tokens": 80, "total_completion_tokens": 8},
    )
    each = figures(trajectory(*RUN, subagent_trajectories=[counted, total]))
    assert (each.tokens.input, each.tokens.output) == (400 + 57 + 80, 40 + 12 + 8)
    assert (each.subagents.input, each.main.input) == (137, 400)
    assert (each.turns, each.turns_subagents, each.tool_calls, each.tool_calls_subagents) == (8, 4, 4, 1)
    assert each.prompts == 1


def test_missing_metrics_are_unknown() -> None:
    each = figures(trajectory(agent(1), agent(2)))
    assert (each.tokens.input, each.tokens.output, each.cost_reported, each.turns) == (None, None, None, 2)


@pytest.mark.parametrize("version", ["1.0", "1.3", "1.5", "1.6", "1.7", "1.8"])
def test_every_version_is_claimed(version: str) -> None:
    assert figures(trajectory(*RUN[:2], schema_version=f"ATIF-v{version}")).prompts == 1


def test_parts_of_a_message_and_a_continuation_are_read() -> None:
    parts = [
        {"type": "text", "text": "a"},
        {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}},
    ]
    each = figures(
        trajectory(agent(1, message=parts, reasoning_content="hm"), continued_trajectory_ref="next.json")
    )
    assert each.notes == ("it goes on in next.json",)


def test_other_documents_are_not_claimed() -> None:
    assert format_of(document({"schema_version": "1.0", "steps": []})) is None
    assert format_of(document({"steps": [], "session_id": "s"})) is None


@given(value=broken(trajectory(*RUN, subagent_trajectories=[trajectory(agent(1, metrics(1, 0, 1)))])))
def test_any_shape_is_survived(value: Any) -> None:
    survives(value)
