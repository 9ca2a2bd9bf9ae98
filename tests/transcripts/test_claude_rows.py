"""Rows of Claude Code 2.1.332 as the real program writes them, cut down to what a reader looks at."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adapters.transcripts.account import Account, Figures
from adapters.transcripts.events import Event
from adapters.transcripts.readers.claude_code import ClaudeCode


def events(*rows: dict[str, Any]) -> list[Event]:
    reader = ClaudeCode()
    return reader.feed(b"".join(json.dumps(row).encode() + b"\n" for row in rows)) + reader.close()


def figures(*rows: dict[str, Any]) -> Figures:
    account = Account()
    account.add(events(*rows))
    return account.figures()


def usage(fresh: int, output: int, **more: object) -> dict[str, Any]:
    return {"input_tokens": fresh, "output_tokens": output, **more}


def said(name: str, fresh: int, output: int, **more: object) -> dict[str, Any]:
    block = {"type": "tool_use", "id": f"toolu_{name}", "name": "Bash", "input": {}}
    message = {"id": f"msg_{name}", "model": "m", "content": [block], "stop_reason": "tool_use"}
    message["usage"] = usage(fresh, output)
    return {"type": "assistant", "uuid": name, "requestId": f"req_{name}", "message": message, **more}


def of_model(fresh: int, output: int, cost: float, **more: object) -> dict[str, Any]:
    return {"m": {"inputTokens": fresh, "outputTokens": output, "costUSD": cost, **more}}


def test_a_fork_says_of_copied_rows_whose_request_they_were() -> None:
    found = figures(
        {"type": "mode", "sessionId": "fork"},
        said("a", 10, 1, sessionId="fork", requestSessionId="parent", version="2.1.332"),
        said("b", 20, 2, sessionId="fork", version="2.1.332"),
        {"type": "cost-state", "sessionId": "fork", "totalCostUSD": 3, "modelUsage": of_model(30, 3, 3)},
    )
    assert (found.opened.session, found.opened.forked) == ("fork", "parent")
    assert (found.tokens.input, found.tokens.output, found.turns, found.tool_calls) == (20, 2, 1, 1)
    assert (found.inherited.input, found.inherited.output) == (10, 1)
    assert found.cost_reported is None


def test_a_row_of_the_sessions_own_request_is_no_copy() -> None:
    found = figures(said("a", 10, 1, sessionId="one", requestSessionId="one"))
    assert (found.turns, found.opened.forked) == (1, None)


def test_the_first_row_has_no_version_and_a_later_one_has() -> None:
    found = figures(
        {"type": "mode", "sessionId": "one"},
        said("a", 10, 1, sessionId="one", version="2.1.332", cwd="/w"),
    )
    assert (found.opened.session, found.opened.version, found.opened.cwd) == ("one", "2.1.332", "/w")


@pytest.mark.parametrize("side_first", [True, False])
def test_a_session_is_not_inside_its_own_sub_agent(side_first: bool) -> None:
    side = said("s", 5, 1, sessionId="one", version="2.1.332", isSidechain=True, agentId="agent")
    main = [
        {"type": "mode", "sessionId": "one"},
        said("a", 1, 1, sessionId="one", version="2.1.332", cwd="/w"),
    ]
    assert figures(side).opened.inside == "agent"
    account = Account()
    for rows in ([side], main) if side_first else (main, [side]):
        account.add(events(*rows))
    found = account.figures()
    assert (found.opened.session, found.opened.inside, found.opened.cwd) == ("one", None, "/w")
    assert (found.turns, found.turns_subagents) == (2, 1)


def test_a_result_says_what_its_process_has_added() -> None:
    """modelUsage of a resumed process holds what the earlier ones used."""
    result = {
        "type": "result",
        "subtype": "success",
        "session_id": "one",
        "usage": usage(20, 2),
        "total_cost_usd": 3.0,
        "modelUsage": of_model(30, 3, 3.0),
    }
    first = {**result, "uuid": "r1", "model_usage_since_last_result": of_model(25, 2, 2.0)}
    second = {
        **result,
        "uuid": "r2",
        "usage": usage(1, 1),
        "model_usage_since_last_result": of_model(1, 1, 0.5),
    }
    found = figures(first, second, first)
    assert (found.tokens.input, found.tokens.output, found.cost_reported) == (26, 3, 2.5)
    found = figures({**result, "uuid": "r1"})
    assert (found.tokens.input, found.cost_reported) == (30, 3.0)


def test_thinking_is_known_where_it_is_not_0_and_the_hour_of_a_cache_too() -> None:
    row = said("a", 10, 9, sessionId="one")
    row["message"]["usage"]["output_tokens_details"] = {"thinking_tokens": 4}
    assert figures(row).tokens.reasoning == 4
    row["message"]["usage"]["output_tokens_details"] = {"thinking_tokens": 0}
    assert figures(row).tokens.reasoning is None
    models = of_model(10, 9, 1.0, thinkingTokens=4, cacheCreationEphemeral1hInputTokens=7)
    (share,) = figures({"type": "cost-state", "modelUsage": models}).models
    assert (share.tokens.reasoning, share.tokens.created_1h) == (4, 7)


def test_a_stream_with_a_sub_agent_shows_not_all_of_its_calls() -> None:
    started = {"type": "system", "subtype": "task_started", "task_type": "local_agent", "session_id": "one"}
    found = figures(started, said("a", 10, 1, session_id="one"))
    assert found.turns == 1
    assert found.lower_bounds == ("turns",)
    deeper = figures({**started, "spawn_depth": 2}, said("a", 10, 1, session_id="one"))
    assert deeper.lower_bounds == ("turns", "tool_calls")
    assert "turns" not in figures({**started, "task_type": "local_bash"}, said("a", 1, 1)).lower_bounds


def test_what_the_program_tells_itself_is_no_prompt_of_a_person() -> None:
    """The end of a sub-agent in the background is told to the model as a user's message."""
    prompt = {"type": "user", "sessionId": "one", "message": {"role": "user", "content": "go"}}
    told = {**prompt, "uuid": "n", "promptSource": "system", "origin": {"kind": "task-notification"}}
    assert figures({**prompt, "uuid": "p", "promptSource": "sdk"}, told).prompts == 1
    summary = {**prompt, "uuid": "s", "isSynthetic": True, "isReplay": False}
    assert figures({**prompt, "uuid": "p"}, summary).prompts == 1


def test_the_last_delta_of_a_message_makes_its_call_final() -> None:
    """It has no request id; the blocks before it have."""
    row = said("a", 10, 1, session_id="one")
    row["message"]["stop_reason"] = None
    assert figures(row).lower_bounds == ("output",)
    event = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage(10, 8)}
    delta = {"type": "stream_event", "event": event, "api_message_id": "msg_a", "session_id": "one"}
    found = figures(row, delta)
    assert (found.turns, found.tokens.output, found.lower_bounds) == (1, 8, ())


def test_a_session_files_last_error_has_its_status_in_a_field() -> None:
    content = [{"type": "text", "text": "API Error: Request rejected (429) · slow down"}]
    message = {"id": "m", "model": "<synthetic>", "content": content, "stop_reason": "stop_sequence"}
    row = {"type": "assistant", "sessionId": "one", "message": message, "isApiErrorMessage": True}
    ending = figures({**row, "apiErrorStatus": 429, "error": "rate_limit"}).ending
    assert ending is not None
    assert (ending.kind, ending.code) == ("limit", "429")


def test_numbers_and_times_that_cannot_be_are_unknown_and_never_fatal() -> None:
    huge = 10**400
    bad = said("a", 1e308, huge, timestamp="0001-01-01T00:00:00+14:00")  # type: ignore[arg-type]
    late = said("b", 5, 7, timestamp="9999-12-31T23:59:59-14:00")
    end = {"type": "result", "subtype": "success", "session_id": "s", "total_cost_usd": huge}
    found = figures(bad, late, end)
    assert (found.tokens.input, found.tokens.output, found.cost_reported) == (5, 7, None)
    assert (found.turns, found.lower_bounds) == (2, ("input", "output"))
