"""Cursor: streams, transcripts, conversations of the editor."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from adapters.transcripts.events import Ending
from adapters.transcripts.readers.cursor import Stream, Transcript
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
    survives,
)

OPEN = {
    "type": "system",
    "subtype": "init",
    "session_id": "s",
    "model": "m",
    "cwd": "/w",
    "permissionMode": "default",
    "apiKeySource": "env",
}
ASKED = {
    "type": "user",
    "message": {"role": "user", "content": [{"type": "text", "text": "look"}]},
    "session_id": "s",
}


def said(text: str, **others: Any) -> Any:
    return {
        "type": "assistant",
        "message": {"role": "assistant", "content": [{"type": "text", "text": text}]},
        "session_id": "s",
    } | others


def tool(n: int, subtype: str, body: Any) -> Any:
    return {
        "type": "tool_call",
        "subtype": subtype,
        "call_id": f"c{n}",
        "tool_call": body,
        "session_id": "s",
        "timestamp_ms": 1790000000000 + n,
    }


DONE = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "duration_ms": 1,
    "result": "done",
    "session_id": "s",
    "request_id": "r",
}
USED = {"inputTokens": 10, "outputTokens": 5, "cacheReadTokens": 100, "cacheWriteTokens": 20}
SHELL = {"shellToolCall": {"args": {"command": "ls"}}}
RUN = [
    OPEN,
    ASKED,
    said("so", model_call_id="m1"),
    tool(1, "started", SHELL),
    tool(1, "completed", {"shellToolCall": {"args": {}, "result": {"success": {"exitCode": 2}}}}),
    tool(2, "started", {"readToolCall": {"args": {"path": "a"}}}),
    tool(2, "completed", {"readToolCall": {"args": {"path": "a"}, "result": {"success": {"content": "x"}}}}),
    tool(
        3, "completed", {"tool": {"case": "editToolCall", "value": {"args": {}, "result": {"rejected": {}}}}}
    ),
    said("done", model_call_id="m2"),
    DONE | {"usage": USED},
]


def test_a_stream_counts_tools_and_what_the_result_says() -> None:
    name, each = read(lines(*RUN))
    assert name == "cursor-stream"
    assert (each.tokens.input, each.tokens.cached, each.tokens.created, each.tokens.output) == (
        130,
        100,
        20,
        5,
    )
    assert (each.turns, each.tool_calls, each.tool_errors, each.prompts) == (2, 3, 2, 1)
    assert each.lower_bounds == ("turns",)
    assert each.ending == Ending("clean", "", "done", 1)
    assert (each.opened.session, each.opened.model, each.opened.cwd) == ("s", "m", "/w")


def test_an_older_stream_knows_neither_tokens_nor_calls() -> None:
    each = read(lines(OPEN, ASKED, said("so"), *RUN[3:5], DONE))[1]
    assert (each.tokens.input, each.tokens.output, each.turns, each.tool_calls) == (None, None, None, 1)
    assert each.lower_bounds == ()


@pytest.mark.parametrize(
    ("text", "ending"),
    [("Unauthorized (401)", ("auth", "401")), ("HTTP 429", ("limit", "429")), ("odd", ("provider", "error"))],
)
def test_a_failure_is_told_by_its_words(text: str, ending: tuple[str, str]) -> None:
    end = read(lines(OPEN, DONE | {"subtype": "error", "is_error": True, "result": text}))[1].ending
    assert end is not None
    assert (end.kind, end.code) == ending


def test_a_stream_that_was_cut_says_nothing_of_its_end() -> None:
    assert read(lines(*RUN[:-1]))[1].ending is None


@given(again=repeats)
def test_repeated_lines_of_a_stream_change_nothing(again: list[tuple[int, int]]) -> None:
    assert counted(figures(events(Stream, repeated(RUN, again)))) == counted(
        figures(events(Stream, lines(*RUN)))
    )


TALK: list[Any] = [
    {"role": "user", "message": {"content": [{"type": "text", "text": "look"}]}},
    {
        "role": "assistant",
        "message": {
            "content": [
                {"type": "text", "text": "so"},
                {"type": "tool_use", "name": "Shell", "input": {"command": "ls"}},
            ]
        },
    },
    {
        "role": "assistant",
        "message": {"content": [{"type": "tool_use", "id": "t2", "name": "Read", "input": {}}]},
    },
    {
        "role": "user",
        "message": {
            "content": [{"type": "tool_result", "tool_use_id": "t2", "content": "x", "is_error": True}]
        },
    },
    {"type": "turn_ended", "status": "aborted"},
]


def test_a_transcript_gives_lower_bounds() -> None:
    name, each = read(lines(*TALK))
    assert name == "cursor-transcript"
    assert (each.turns, each.tool_calls, each.tool_errors, each.prompts, each.tokens.input) == (
        2,
        2,
        1,
        1,
        None,
    )
    assert each.lower_bounds == ("turns", "tool_calls")
    assert each.ending == Ending("interrupt", "aborted", "aborted", 1)


@given(again=repeats)
def test_repeated_lines_of_a_transcript_change_nothing(again: list[tuple[int, int]]) -> None:
    assert counted(figures(events(Transcript, repeated(TALK, again)))) == counted(
        figures(events(Transcript, lines(*TALK)))
    )


@pytest.mark.parametrize(
    ("pattern", "turns", "tools", "prompts"),
    [
        ("*847ad017*", 1, None, 1),
        ("*subagent-session*", 2, 1, 1),
        ("*test-session*", 4, 2, 2),
        ("*cursor__large*", 5, 2, 3),
        ("*cursor__small*", 2, 1, 2),
        ("*child*", 1, None, 1),
    ],
)
def test_transcripts_of_the_corpus(pattern: str, turns: int, tools: int | None, prompts: int) -> None:
    """Counted apart: records of the assistant, and their blocks of tool_use."""
    name, each = read(corpus(f"b_cursor/{pattern}"))
    assert name == "cursor-transcript"
    assert (each.turns, each.tool_calls, each.prompts) == (turns, tools, prompts)


@pytest.mark.parametrize(
    ("pattern", "tools", "prompts", "first"),
    [
        ("*headers_only*", None, 1, "2023-11-14T22:13:20.000Z"),
        ("*bubbles*", 1, 1, None),
        ("*composer_data*", None, 0, "2026-02-16T09:30:00.000Z"),
    ],
)
def test_conversations_of_the_corpus(
    pattern: str, tools: int | None, prompts: int, first: str | None
) -> None:
    name, each = read(corpus(f"b_cursor/{pattern}"))
    assert name == "cursor-composer"
    assert (each.turns, each.tool_calls, each.prompts, each.tokens.input) == (None, tools, prompts, None)
    assert each.first == first


COMPOSER: Any = {
    "composerId": "c",
    "name": "n",
    "createdAt": 1790000000000,
    "usageData": {"m": {"costInCents": 12, "amount": 1}},
    "conversation": [
        {"type": 1, "bubbleId": "b1", "text": "look"},
        {"type": 2, "bubbleId": "b2", "text": "so", "tokenCount": {"inputTokens": 100, "outputTokens": 5}},
        {
            "type": 2,
            "bubbleId": "b3",
            "tokenCount": {"inputTokens": 0, "outputTokens": 0},
            "toolFormerData": {"name": "edit", "toolCallId": "t", "status": "error", "rawArgs": "{"},
        },
    ],
}


def test_a_conversation_that_counts_its_tokens() -> None:
    name, each = read(document(COMPOSER))
    assert name == "cursor-composer"
    assert (each.tokens.input, each.tokens.output, each.turns) == (100, 5, 1)
    assert (each.tool_calls, each.tool_errors, each.cost_reported) == (1, 1, 0.12)
    assert each.lower_bounds == ("turns", "tool_calls")


def test_what_others_write_is_not_claimed() -> None:
    claude = OPEN | {"tools": ["Bash"], "uuid": "u"}
    assert format_of(lines(claude, said("x", uuid="v"))) == "claude-code"
    assert format_of(lines({"role": "user", "content": "x"}, {"role": "assistant", "content": "y"})) is None
    assert format_of(lines(*TALK[:2], {"type": "other"})) is None


@given(value=broken(RUN))
def test_any_shape_of_a_stream_is_survived(value: Any) -> None:
    survives(value, as_lines=True)


@given(value=broken(TALK))
def test_any_shape_of_a_transcript_is_survived(value: Any) -> None:
    survives(value, as_lines=True)


@given(value=broken(COMPOSER))
def test_any_shape_of_a_conversation_is_survived(value: Any) -> None:
    survives(value)
