"""Gemini CLI: session documents, the log of updates, streams."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.transcripts.events import ToolCall, ToolResult
from adapters.transcripts.readers.gemini import Document, Log, Stream
from tests.transcripts.counting import measured
from tests.transcripts.reading import (
    broken,
    counted,
    document,
    events,
    figures,
    format_of,
    lines,
    read,
    repeated,
    repeats,
    survives,
)


def at(n: int) -> str:
    return f"2026-04-29T21:39:{n:02}.000Z"


def tokens(whole: int, output: int, cached: int = 0, thoughts: int = 0, tool: int = 0) -> Any:
    return {
        "input": whole,
        "output": output,
        "cached": cached,
        "thoughts": thoughts,
        "tool": tool,
        "total": whole + output + thoughts + tool,
    }


def asked(n: int, **others: Any) -> Any:
    return {"id": f"u{n}", "timestamp": at(n), "type": "user", "content": [{"text": "look"}]} | others


def answered(n: int, used: Any = None, text: str = "", *tools: Any, **others: Any) -> Any:
    told: Any = {"id": f"g{n}", "timestamp": at(n), "type": "gemini", "content": text, "model": "m"}
    if used is not None:
        told["tokens"] = used
    if tools:
        told["toolCalls"] = list(tools)
    return told | others


def note(n: int, kind: str, text: str) -> Any:
    return {"id": f"n{n}", "timestamp": at(n), "type": kind, "content": text}


def tool(name: str, status: str) -> Any:
    given = [{"functionResponse": {"id": name, "name": "run", "response": {"output": "a"}}}]
    return {"id": name, "name": "run", "args": {"command": "ls"}, "status": status} | (
        {"result": given} if status != "executing" else {}
    )


HEAD = {
    "sessionId": "s",
    "projectHash": "h",
    "startTime": at(0),
    "lastUpdated": at(0),
}
THOUGHT = {"subject": "Planning", "description": "to look", "timestamp": at(1)}
FIRST = answered(
    2,
    tokens(1000, 30, 600, 54, 7),
    "",
    tool("t1", "success"),
    tool("t2", "error"),
    tool("t3", "cancelled"),
    thoughts=[THOUGHT],
)
SECOND = answered(5, tokens(1100, 5, 900, 0, 0), "done")
TALK = [asked(1), FIRST, SECOND]
#: As the program writes it: a message again and again, while more of it becomes known.
LOG: list[Any] = [
    HEAD | {"kind": "main"},
    asked(1),
    {"$set": {"lastUpdated": at(1)}},
    answered(2, None, "", thoughts=[THOUGHT]),
    answered(2, tokens(1000, 30, 600, 54, 7)),
    answered(2, tokens(1000, 30, 600, 54, 7), "", tool("t1", "executing")),
    FIRST,
    {"$set": {"lastUpdated": at(3)}},
    SECOND,
    {"$set": {"summary": "to look", "lastUpdated": at(6)}},
]


def ended(each: Any) -> Any:
    return each.ending and (each.ending.kind, each.ending.code)


def check(each: Any) -> None:
    """Fresh: 1000 - 600 + 7 of a tool, and 1100 - 900; output with its thoughts."""
    used = each.tokens
    assert (used.input, used.cached, used.created, used.uncached) == (2107, 1500, None, 607)
    assert (used.output, used.reasoning, each.cost_reported) == (89, 54, None)
    assert (each.turns, each.tool_calls, each.tool_errors, each.prompts) == (2, 3, 1, 1)
    assert [(share.name, share.calls) for share in each.models] == [("m", 2)]
    assert (each.opened.session, each.opened.harness, each.opened.inside) == ("s", "gemini", None)
    assert ended(each) == ("clean", "")
    assert each.lower_bounds == ()


def test_a_document_has_its_calls() -> None:
    name, each = read(document(HEAD | {"messages": TALK}))
    assert name == "gemini-session"
    check(each)


def test_a_log_counts_a_message_that_is_written_again_once() -> None:
    name, each = read(lines(*LOG))
    assert name == "gemini-log"
    check(each)


def test_messages_that_the_log_replaces_stay_paid() -> None:
    """Compression leaves the model less; rewinding takes answers back."""
    kept = {"$set": {"messages": [SECOND, answered(7, tokens(10, 1), "so")], "lastUpdated": at(7)}}
    each = read(lines(*LOG, kept, {"$rewindTo": "u1"}))[1]
    assert (each.turns, each.tokens.input, each.tokens.output, each.counts) == (3, 2117, 90, {"rewinds": 1})


@given(again=repeats, order=st.randoms())
def test_repeated_lines_of_a_log_in_any_order_change_nothing(
    again: list[tuple[int, int]], order: Any
) -> None:
    once = counted(figures(events(Log, lines(*LOG))))
    assert counted(figures(events(Log, repeated(LOG, again)))) == once
    rest = [json.loads(line) for line in repeated(LOG, again).splitlines()]
    order.shuffle(rest)
    assert counted(figures(events(Log, lines(*rest)))) == once


@pytest.mark.parametrize("form", ["document", "log"])
@pytest.mark.parametrize(
    ("last", "ending"),
    [
        ([asked(7)], None),
        ([answered(7, tokens(1, 1), "so", tool("t9", "success"))], None),
        ([note(7, "info", "Request cancelled.")], ("interrupt", "user")),
        ([note(7, "info", "Update available")], ("clean", "")),
        ([note(7, "warning", "Slow")], ("clean", "")),
        ([note(7, "error", "[API Error: 429 RESOURCE_EXHAUSTED]")], ("limit", "429")),
        ([note(7, "error", "API key not valid")], ("auth", "401")),
        ([note(7, "error", "it broke")], ("provider", "error")),
        ([note(7, "error", "it broke"), asked(8), answered(9, tokens(1, 1), "so")], ("clean", "")),
    ],
)
def test_the_last_message_says_how_it_ended(form: str, last: list[Any], ending: Any) -> None:
    data = lines(*LOG, *last) if form == "log" else document(HEAD | {"messages": [*TALK, *last]})
    each = read(data)[1]
    assert ended(each) == ending
    assert each.counts.get("errors", 0) == sum(message["type"] == "error" for message in last)


def test_a_summary_is_told() -> None:
    told = note(7, "info", "Chat history compressed from 9000 to 700 tokens.")
    assert read(lines(*LOG, told, told))[1].compactions == 1


@pytest.mark.parametrize("used", [None, tokens(0, 0), {}, {"input": None}, "none"])
def test_a_call_without_usage_used_what_nobody_knows(used: Any) -> None:
    each = read(document(HEAD | {"messages": [asked(1), answered(2, used, "so")]}))[1]
    assert (each.tokens.input, each.tokens.output, each.tokens.reasoning) == (None, None, None)
    assert (each.turns, each.calls_without_usage) == (1, 1)


def test_one_message_of_an_odd_shape_does_not_lose_the_others() -> None:
    odd = answered(3, tokens(9, 9), "so", toolCalls=7)
    each = read(document(HEAD | {"messages": [TALK[0], odd, *TALK[1:]]}))[1]
    assert (each.turns, each.tool_calls, each.skipped_lines) == (3, 3, 1)
    assert each.tokens.input == 2116


def test_a_sub_agent_is_of_its_session(tmp_path: Path) -> None:
    """It failed; its session did not."""
    own = [
        HEAD | {"sessionId": "a", "kind": "subagent", "parentSessionId": "s"},
        answered(3, tokens(50, 5), "", tool("t8", "success"), id="a1"),
        note(4, "error", "it broke"),
    ]
    (tmp_path / "main.jsonl").write_bytes(lines(*LOG))
    (tmp_path / "sub.jsonl").write_bytes(lines(*own))
    (one,) = measured(tmp_path)
    each = one.figures
    assert (each.turns, each.turns_subagents, each.tool_calls, each.tool_calls_subagents) == (3, 1, 4, 1)
    assert (each.main.input, each.subagents.input, each.prompts) == (2107, 50, 1)
    assert ended(each) == ("clean", "")


STATS = {
    "total_tokens": 2155,
    "input_tokens": 2100,
    "output_tokens": 35,
    "cached": 1100,
    "input": 1000,
    "duration_ms": 115,
    "tool_calls": 1,
}
MODELS = {
    "m": STATS | {"total_tokens": 2000, "input_tokens": 1950, "output_tokens": 30, "cached": 1000},
    "n": STATS | {"total_tokens": 155, "input_tokens": 150, "output_tokens": 5, "cached": 100},
}
DONE = {"type": "result", "timestamp": at(9), "status": "success", "stats": STATS | {"models": MODELS}}
STREAM: list[Any] = [
    {"type": "init", "timestamp": at(0), "session_id": "s", "model": "m"},
    {"type": "message", "timestamp": at(1), "role": "user", "content": "look"},
    {"type": "message", "timestamp": at(2), "role": "assistant", "content": "will ", "delta": True},
    {"type": "message", "timestamp": at(2), "role": "assistant", "content": "do", "delta": True},
    {"type": "tool_use", "timestamp": at(3), "tool_name": "run", "tool_id": "t1", "parameters": {"x": 1}},
    {"type": "tool_result", "timestamp": at(4), "tool_id": "t1", "status": "success", "output": "a"},
    {"type": "tool_use", "timestamp": at(5), "tool_name": "run", "tool_id": "t2", "parameters": {"x": 2}},
    {"type": "tool_result", "timestamp": at(6), "tool_id": "t2", "status": "error", "error": {"type": "e"}},
    DONE,
]


@pytest.mark.parametrize("stats", [STATS, STATS | {"models": MODELS}, STATS | {"models": {"m": {}}}])
def test_a_stream_has_the_tokens_of_its_result(stats: Any) -> None:
    """Thoughts are what is left: 2155 - 2100 - 35."""
    name, each = read(lines(*STREAM[:-1], DONE | {"stats": stats}))
    used = each.tokens
    assert name == "gemini-stream"
    assert (used.input, used.cached, used.uncached, used.output, used.reasoning) == (2100, 1100, 1000, 55, 20)
    assert (each.turns, each.tool_calls, each.tool_errors, each.prompts) == (None, 2, 1, 1)
    assert ended(each) == ("clean", "")
    assert (each.opened.session, each.opened.model) == ("s", "m")
    assert each.lower_bounds == ()


def test_a_stream_tells_each_models_part() -> None:
    each = read(lines(*STREAM))[1]
    assert [(share.name, share.calls, share.usage.input, share.usage.output) for share in each.models] == [
        ("m", None, 1950, 50),
        ("n", None, 150, 5),
    ]


@pytest.mark.parametrize("first", [0, 4])
def test_a_stream_without_result_was_cut_off(first: int) -> None:
    name, each = read(lines(*STREAM[first:-1]))
    assert name == "gemini-stream"
    assert (each.tokens.input, each.tokens.output, each.turns, each.ending) == (None, None, None, None)
    assert (each.tool_calls, each.tool_errors) == (2, 1)


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        ({"type": "FatalTurnLimitedError", "message": "x"}, ("budget", "turns")),
        ({"type": "FatalAuthenticationError", "message": "x"}, ("auth", "401")),
        ({"type": "FatalCancellationError", "message": "x"}, ("interrupt", "user")),
        ({"type": "Error", "message": "[API Error: status 429]"}, ("limit", "429")),
        ({"type": "Error", "message": "it broke"}, ("provider", "error")),
        (None, ("provider", "error")),
    ],
)
def test_a_result_with_an_error_says_how_it_ended(error: Any, ending: tuple[str, str]) -> None:
    none = dict.fromkeys(STATS, 0) | {"models": {}}
    end = DONE | {"status": "error", "error": error, "stats": none}
    told = {"type": "error", "timestamp": at(8), "severity": "error", "message": "x"}
    each = read(lines(*STREAM[:2], told, end))[1]
    assert ended(each) == ending
    assert each.counts == {"errors": 1}
    assert (each.tokens.input, each.tokens.output, each.tokens.reasoning) == (None, None, None)


def test_the_results_of_two_runs_are_added() -> None:
    more = DONE | {"timestamp": at(30), "stats": STATS | {"duration_ms": 9}}
    each = read(lines(*STREAM, STREAM[0], more, more))[1]
    assert (each.tokens.input, each.tokens.cached, each.tokens.output) == (4200, 2200, 110)


@given(again=repeats, order=st.randoms())
def test_repeated_lines_of_a_stream_in_any_order_change_nothing(
    again: list[tuple[int, int]], order: Any
) -> None:
    unnamed = {"type": "tool_use", "timestamp": at(7), "tool_name": "run", "parameters": {}}
    records = [*STREAM, unnamed]
    once = counted(figures(events(Stream, lines(*records))))
    assert counted(figures(events(Stream, repeated(records, again)))) == once
    rest = [json.loads(line) for line in repeated(records, again).splitlines()]
    order.shuffle(rest)
    assert counted(figures(events(Stream, lines(*rest)))) == once


def test_without_content_no_text_is_kept() -> None:
    for reader, data in (
        (Document, document(HEAD | {"messages": TALK})),
        (Log, lines(*LOG)),
        (Stream, lines(*STREAM)),
    ):
        found = events(reader, data, content=False)
        assert not any(getattr(each, "text", None) for each in found)
        assert not any(each.arguments for each in found if isinstance(each, ToolCall))
        assert not any(each.content for each in found if isinstance(each, ToolResult))


#: Counted apart: whole input, cached, output with thoughts, thoughts; calls, tools, failed ones, prompts.
CORPUS: list[tuple[str, str, Any, tuple[int, int, int | None, int], Any]] = [
    ("jsonl_v040*", "log", (23924, 11502, 228, 0), (2, 1, 0, 1), ("clean", "")),
    ("small.json", "session", (10, 0, 5, 0), (1, 0, 0, 1), ("clean", "")),
    ("*453aa339*", "session", (21694, 4029, 563, 486), (4, 3, 0, 1), ("clean", "")),
    ("*9c9a14e1*", "session", (11068, 0, 363, 319), (2, 1, 0, 1), ("clean", "")),
    ("*a63242d9*", "session", (4657, 0, 151, 131), (1, 1, 1, 1), None),
    ("*359abdd0*", "session", (10312, 0, 326, 301), (2, 1, 0, 1), ("clean", "")),
    ("*cancelled*", "session", (5689, 5519, 97, 54), (1, 1, None, 0), None),
    ("*result-success*", "session", (5377, 0, 57, 36), (1, 1, 0, 0), None),
    ("*agtrace*", "session", (67273, 43377, 677, 377), (7, 5, 0, 2), ("clean", "")),
    ("*session-parts*", "session", (None, None, None, None), (1, 0, 0, 1), ("clean", "")),
    ("*thinking_only*", "session", (None, None, None, None), (1, 0, 0, 1), ("clean", "")),
    ("*tool_calls.json", "session", (None, None, None, None), (1, 1, 0, 1), None),
    ("*system_messages*", "session", (None, None, None, None), (0, 0, 0, 0), ("provider", "error")),
]


@pytest.mark.parametrize(("name", "form", "used", "numbers", "ending"), CORPUS)
def test_sessions_of_the_corpus(
    corpus: Path, name: str, form: str, used: Any, numbers: Any, ending: Any
) -> None:
    (path,) = (corpus / "b_gemini").glob(name if name.startswith("*") else f"*__{name}")
    found, each = read(path)
    assert found == f"gemini-{form}"
    told = each.tokens
    assert (told.input, told.cached, told.output, told.reasoning) == used
    assert (each.turns, each.tool_calls, each.tool_errors, each.prompts) == numbers
    assert ended(each) == ending


def test_what_others_write_is_not_claimed() -> None:
    assert format_of(lines({"type": "init", "subtype": "x", "session_id": "s"})) is None
    assert format_of(lines({"type": "message", "role": "user", "content": "x"})) != "gemini-stream"
    assert format_of(document({"sessionId": "s", "messages": []})) is None
    assert format_of(document({"messages": TALK})) is None


@given(value=broken(LOG))
def test_any_shape_of_a_log_is_survived(value: Any) -> None:
    survives(value, as_lines=True)
    figures(events(Log, lines(*value) if isinstance(value, list) else b""))


@given(value=broken(STREAM))
def test_any_shape_of_a_stream_is_survived(value: Any) -> None:
    survives(value, as_lines=True)
    figures(events(Stream, lines(*value) if isinstance(value, list) else b""))


@given(value=broken(HEAD | {"messages": TALK}))
def test_any_shape_of_a_document_is_survived(value: Any) -> None:
    survives(value)
    figures(events(Document, document(value)))
