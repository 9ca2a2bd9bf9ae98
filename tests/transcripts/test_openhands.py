"""OpenHands: what is counted of its five forms. Numbers of the corpus were added up by a separate script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from adapters.transcripts.events import Ending
from adapters.transcripts.readers.openhands import Evaluation, Stream
from tests.transcripts.reading import (
    broken,
    corpus,
    counted,
    document,
    events,
    figures,
    format_of,
    lines,
    read,
    repeated,
    repeats,
    stored,
    survives,
)


def at(second: int) -> str:
    return f"2026-11-01T10:00:{second:02}.000000"


def action(n: int, tool: str = "terminal", response: str | None = None, kind: str = "TerminalAction") -> Any:
    return {
        "id": f"action-{n}",
        "timestamp": at(n),
        "source": "agent",
        "kind": "ActionEvent",
        "thought": [{"type": "text", "text": "so"}],
        "action": {"command": "ls", "kind": kind},
        "tool_name": tool,
        "tool_call_id": f"call_{n}",
        "llm_response_id": response or f"response-{n}",
    }


def seen(n: int, code: int = 0) -> Any:
    return {
        "id": f"seen-{n}",
        "timestamp": at(n + 1),
        "source": "environment",
        "kind": "ObservationEvent",
        "tool_name": "terminal",
        "tool_call_id": f"call_{n}",
        "action_id": f"action-{n}",
        "observation": {
            "content": [{"type": "text", "text": "x"}],
            "exit_code": code,
            "kind": "TerminalObservation",
        },
    }


ASKED = {
    "id": "asked",
    "timestamp": at(0),
    "source": "user",
    "kind": "MessageEvent",
    "llm_message": {"role": "user", "content": [{"type": "text", "text": "do it"}]},
}
REFUSED = {
    "id": "refused",
    "timestamp": at(30),
    "source": "environment",
    "kind": "ConversationErrorEvent",
    "code": "AuthenticationError",
    "detail": "litellm.AuthenticationError: no such key",
}
FINISHED = action(9, "finish", kind="FinishAction")
RUN = [ASKED, action(1), seen(1), action(2), action(3, response="response-2"), seen(2, 1), seen(3), FINISHED]


def usage(response: str, prompt: int, cached: int, output: int, reasoning: int = 0) -> Any:
    return {
        "model": "openai/m",
        "prompt_tokens": prompt,
        "cache_read_tokens": cached,
        "cache_write_tokens": 0,
        "completion_tokens": output,
        "reasoning_tokens": reasoning,
        "response_id": response,
    }


def metrics(calls: list[Any], cost: float) -> Any:
    names = (
        "prompt_tokens",
        "cache_read_tokens",
        "cache_write_tokens",
        "completion_tokens",
        "reasoning_tokens",
    )
    whole = {name: sum(each[name] for each in calls) for name in names}
    return {
        "model_name": "openai/m",
        "accumulated_cost": cost,
        "accumulated_token_usage": whole | {"model": "openai/m"},
        "token_usages": calls,
    }


AGENT = [
    usage("response-1", 100, 0, 10),
    usage("response-2", 200, 90, 20, 5),
    usage("response-9", 300, 180, 30),
]


def state(status: str = "finished", **others: Any) -> Any:
    return {
        "id": "0a0b0c0d-0000-4000-8000-000000000001",
        "execution_status": status,
        "agent": {"llm": {"model": "openai/m"}},
        "workspace": {"working_dir": "/w"},
        "stats": {
            "usage_to_metrics": {
                "agent": metrics(AGENT, 0.25),
                "condenser": metrics([usage("response-c", 50, 0, 5)], 0.05),
            }
        },
    } | others


def conversation(path: Path, base: Any, run: list[Any]) -> Path:
    (path / "events").mkdir(parents=True)
    for place, event in enumerate(run):
        (path / "events" / f"event-{place:05}-{event['id']}.json").write_text(json.dumps(event))
    if base is not None:
        (path / "base_state.json").write_text(base if isinstance(base, str) else json.dumps(base))
    return path


def test_a_conversation_has_its_tokens_from_the_state_and_its_tools_from_the_events(tmp_path: Path) -> None:
    path = conversation(tmp_path / "0a0b", state(), RUN)
    name, sessions = stored(path)
    (each,) = sessions.values()
    assert name == "openhands"
    assert list(sessions) == ["0a0b0c0d-0000-4000-8000-000000000001"]
    assert (each.tokens.input, each.tokens.cached, each.tokens.output, each.tokens.reasoning) == (
        650,
        270,
        65,
        5,
    )
    assert (each.turns, each.tool_calls, each.tool_errors, each.prompts) == (4, 4, 1, 1)
    assert each.cost_reported == pytest.approx(0.30)
    assert each.ending == Ending("clean", "", "finished", 1, "2026-11-01T10:00:09.000Z")
    assert (each.first, each.last) == ("2026-11-01T10:00:00.000Z", "2026-11-01T10:00:09.000Z")
    assert each.opened.cwd == "/w"
    assert each.lower_bounds == ()
    assert [share.name for share in each.models] == ["openai/m"]


def test_the_directory_of_all_conversations_has_each_of_them(tmp_path: Path) -> None:
    conversation(tmp_path / "one", state(), RUN)
    conversation(tmp_path / "two", state(id="two"), [ASKED])
    (tmp_path / "other").mkdir()
    _, sessions = stored(tmp_path)
    assert [each.tool_calls for each in sessions.values()] == [4, 0]


def test_one_id_for_all_responses_does_not_make_one_call_of_them(tmp_path: Path) -> None:
    calls = [usage("same", 10, 0, 1), usage("same", 20, 0, 2)]
    base = state(stats={"usage_to_metrics": {"agent": metrics(calls, 0.0)}})
    path = conversation(tmp_path / "c", base, [action(1, response="same"), action(2, response="same")])
    (each,) = stored(path)[1].values()
    assert (each.turns, each.tokens.input, each.tokens.output) == (2, 30, 3)
    assert each.cost_reported is None


@pytest.mark.parametrize(
    ("status", "error", "ending"),
    [
        ("error", REFUSED, ("auth", "401")),
        ("error", REFUSED | {"code": "MaxIterationsReached", "detail": "limit (3)"}, ("budget", "turns")),
        ("error", REFUSED | {"code": "RateLimitError", "detail": "slow down"}, ("limit", "429")),
        ("error", REFUSED | {"code": "Odd", "detail": "?"}, ("crash", "Odd")),
        ("stuck", None, ("stall", "stuck")),
        ("paused", None, ("interrupt", "paused")),
        ("running", None, None),
        ("running", REFUSED, ("auth", "401")),
        ("finished", REFUSED, ("clean", "")),
    ],
)
def test_the_ending_is_the_state_and_the_last_error(
    tmp_path: Path, status: str, error: Any, ending: tuple[str, str] | None
) -> None:
    path = conversation(tmp_path / "c", state(status), [ASKED, *([error] if error else [])])
    (each,) = stored(path)[1].values()
    assert (each.ending and (each.ending.kind, each.ending.code)) == ending


@pytest.mark.parametrize(
    "base",
    [
        '{"id": "x", "stats": {"usa',
        "[]",
        '{"stats": {"usage_to_metrics": {"agent": {"token_usages": [3]}}}}',
        None,
    ],
)
def test_what_cannot_be_read_is_said_and_the_rest_is_counted(tmp_path: Path, base: str | None) -> None:
    path = conversation(tmp_path / "c", base, RUN)
    (path / "events" / "event-00099-torn.json").write_text('{"id": "torn", "kind": "Ac')
    (path / "events" / "event-00100-odd.json").write_text("[1]")
    (path / "events" / "event-00101-odd.json").mkdir()
    (each,) = stored(path)[1].values()
    assert (each.turns, each.tool_calls) == (3, 4)
    assert each.torn >= 1
    assert each.tokens.input is None


def test_a_stream_counts_responses_and_actions_and_skips_the_text_between() -> None:
    data = lines(b"Loading...", *RUN[:3], b"\x1b[1mbanner\x1b[0m", *RUN[3:])
    name, each = read(data)
    assert name == "openhands-stream"
    assert (each.turns, each.tool_calls, each.tool_errors, each.prompts) == (3, 4, 1, 1)
    assert (each.tokens.input, each.tokens.output) == (None, None)
    assert each.skipped_lines == 2
    assert each.ending is not None
    assert each.ending.kind == "clean"
    assert read(lines(*RUN[:3], REFUSED))[1].ending == Ending(
        "auth", "401", REFUSED["detail"], 1, "2026-11-01T10:00:30.000Z"
    )


def test_a_stream_that_tells_its_state_has_tokens() -> None:
    update = {
        "id": "u",
        "timestamp": at(40),
        "source": "environment",
        "kind": "ConversationStateUpdateEvent",
        "key": "full_state",
        "value": state("finished"),
    }
    _, each = read(lines(*RUN, update))
    assert (each.turns, each.tokens.input, each.tokens.output) == (4, 650, 65)


@given(again=repeats)
def test_repeated_lines_of_a_stream_change_nothing(again: list[tuple[int, int]]) -> None:
    assert counted(figures(events(Stream, repeated(RUN, again)))) == counted(
        figures(events(Stream, lines(*RUN)))
    )


def instance(name: str, error: str | None = None) -> Any:
    def old(n: int, **others: Any) -> Any:
        return {"id": n, "timestamp": at(n), "source": "agent"} | others

    def called(n: int) -> Any:
        return {
            "tool_call_metadata": {
                "function_name": "execute_bash",
                "tool_call_id": f"toolu_{n:02}",
                "model_response": {
                    "id": f"{name}-{n}",
                    "model": "m",
                    "usage": {"prompt_tokens": 100 * n, "completion_tokens": n},
                },
            }
        }

    return {
        "instance_id": name,
        "metadata": {"agent_class": "CodeActAgent", "llm_config": {"model": "openai/m"}},
        "error": error,
        "history": [
            old(0, action="system", args={"content": "you are"}),
            old(1, source="user", action="message", args={"content": "fix it"}),
            old(2, action="run", args={"command": "ls"}, **called(1)),
            old(3, observation="run", cause=2, content="x", success=False, **called(1)),
            old(4, action="finish", args={}, **called(2)),
        ],
        "metrics": {
            "accumulated_cost": 0.5,
            "accumulated_token_usage": {"prompt_tokens": 300, "completion_tokens": 3},
            "token_usages": [
                {
                    "model": "openai/m",
                    "prompt_tokens": 100,
                    "completion_tokens": 1,
                    "response_id": f"{name}-1",
                },
                {
                    "model": "openai/m",
                    "prompt_tokens": 200,
                    "completion_tokens": 2,
                    "response_id": f"{name}-2",
                },
            ],
        },
    }


def test_an_evaluation_adds_its_instances_up() -> None:
    name, each = read(
        lines(instance("a"), instance("b", "RuntimeError: Agent reached maximum iteration in headless mode"))
    )
    assert name == "openhands-evaluation"
    assert (each.tokens.input, each.tokens.output, each.turns, each.tool_calls) == (600, 6, 4, 4)
    assert (each.tool_errors, each.prompts, each.cost_reported) == (2, 2, 1.0)
    assert [(end.kind, end.code) for end in each.endings] == [("clean", ""), ("budget", "turns")]
    assert each.counts["instances"] == 2


@given(again=repeats)
def test_repeated_instances_change_nothing(again: list[tuple[int, int]]) -> None:
    run = [instance("a"), instance("b")]
    assert counted(figures(events(Evaluation, repeated(run, again)))) == counted(
        figures(events(Evaluation, lines(*run)))
    )


def test_the_evaluation_of_the_corpus() -> None:
    """Added up apart: token_usages of each record, the usage of each response id in its history, actions with a call."""
    name, each = read(corpus("b_openhands/*output.jsonl"))
    assert name == "openhands-evaluation"
    assert (each.tokens.input, each.tokens.cached, each.tokens.output) == (
        565158 + 410169 + 938015,
        0,
        2558 + 5156 + 5627,
    )
    assert (each.turns, each.tool_calls, each.tool_errors, each.prompts) == (23 + 33 + 49, 105, 19, 3)
    assert (each.first, each.last) == ("2025-04-30T16:32:54.707Z", "2025-04-30T18:04:10.527Z")
    assert [(end.kind, end.code) for end in each.endings] == [
        ("clean", ""),
        ("clean", ""),
        ("budget", "turns"),
    ]
    assert each.cost_reported is None  # 0.0 beside tokens is no price


def test_a_logged_call_of_the_corpus() -> None:
    name, each = read(corpus("b_openhands/*llm-logs*"))
    assert name == "openhands-call"
    assert (each.tokens.input, each.tokens.cached, each.tokens.created, each.tokens.output) == (
        6277,
        0,
        0,
        131,
    )
    assert (each.turns, each.tool_calls) == (1, 1)
    assert each.cost_reported == pytest.approx(0.020796)
    assert each.last == "2025-09-04T19:43:56.544Z"


@pytest.mark.parametrize(("pattern", "tools"), [("*events_search*", 1), ("*trajectory_download*", 2)])
def test_downloaded_events_of_the_corpus(pattern: str, tools: int) -> None:
    name, each = read(corpus(f"b_openhands/{pattern}"))
    assert name == "openhands-trajectory"
    assert (each.turns, each.tool_calls, each.tokens.input, each.first) == (None, tools, None, None)


def test_downloaded_events_of_the_sdk() -> None:
    name, each = read(document({"items": RUN, "next_page_id": None}))
    assert name == "openhands-trajectory"
    assert (each.turns, each.tool_calls, each.tool_errors) == (3, 4, 1)


def test_documents_of_others_are_not_claimed() -> None:
    for value in (
        {"items": [{"id": 1, "timestamp": 2}]},
        [],
        [{"action": "x"}],
        {"messages": [], "response": {}},
    ):
        assert format_of(document(value)) is None


@given(value=broken(RUN))
def test_any_shape_is_survived(value: Any) -> None:
    survives(value, as_lines=True)
    survives(value)


@given(value=broken([instance("a")]))
def test_any_shape_of_an_instance_is_survived(value: Any) -> None:
    survives(value, as_lines=True)
    survives(value[0]["history"] if isinstance(value[0], dict) and "history" in value[0] else value)
