"""Gemini CLI: documents, the update log, streams."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.transcripts.account import Figures
from adapters.transcripts.readers.gemini import Document, Log, Stream

USED = {"input": 1000, "output": 30, "cached": 900, "thoughts": 20, "tool": 5, "total": 1055}
TOOL = {"id": "t1", "name": "run_shell_command", "args": {"command": "false"}}
BEGUN = {"id": "g1", "timestamp": "2026-01-01T00:00:01.000Z", "type": "gemini", "content": "", "model": "m"}
DONE = BEGUN | {"tokens": USED, "toolCalls": [TOOL | {"status": "error", "result": []}]}
SECOND = {
    "id": "g2",
    "timestamp": "2026-01-01T00:00:02.000Z",
    "type": "gemini",
    "content": [{"text": "done"}],
    "model": "m",
    "tokens": {"input": 1100, "output": 5, "cached": 0, "thoughts": 0, "tool": 0, "total": 1105},
}
USER = {"id": "u1", "timestamp": "2026-01-01T00:00:00.000Z", "type": "user", "content": "do"}
HEADER = {
    "sessionId": "s1",
    "projectHash": "h",
    "startTime": "2026-01-01T00:00:00.000Z",
    "lastUpdated": "2026-01-01T00:00:00.000Z",
}
LOG = [
    HEADER,
    USER,
    BEGUN,
    {"$set": {"lastUpdated": "2026-01-01T00:00:03.000Z"}},
    BEGUN | {"tokens": USED},
    BEGUN | {"tokens": USED, "toolCalls": [TOOL]},
    DONE,
    SECOND,
    {"$set": {"messages": [USER, DONE]}},
    {"$rewindTo": "g2"},
]
STREAM = [
    {"type": "init", "timestamp": "2026-01-01T00:00:00.000Z", "session_id": "s1", "model": "m"},
    {"type": "message", "timestamp": "2026-01-01T00:00:01.000Z", "role": "user", "content": "do"},
    {
        "type": "message",
        "timestamp": "2026-01-01T00:00:02.000Z",
        "role": "assistant",
        "content": "o",
        "delta": True,
    },
    {
        "type": "message",
        "timestamp": "2026-01-01T00:00:02.100Z",
        "role": "assistant",
        "content": "k",
        "delta": True,
    },
    {
        "type": "tool_use",
        "timestamp": "2026-01-01T00:00:03.000Z",
        "tool_name": "x",
        "tool_id": "t1",
        "parameters": {},
    },
    {
        "type": "tool_result",
        "timestamp": "2026-01-01T00:00:04.000Z",
        "tool_id": "t1",
        "status": "error",
        "output": "",
    },
    {
        "type": "result",
        "timestamp": "2026-01-01T00:00:05.000Z",
        "status": "success",
        "stats": {
            "total_tokens": 2155,
            "input_tokens": 2100,
            "output_tokens": 35,
            "cached": 1100,
            "input": 1000,
            "duration_ms": 115,
            "tool_calls": 1,
        },
    },
]


def numbers(f: Figures) -> tuple:
    used = f.tokens
    return (
        used.input,
        used.cached,
        used.output,
        used.reasoning,
        f.turns,
        f.tool_calls,
        f.tool_errors,
        f.prompts,
    )


#: 1000 + 5 + 1100, 900, 30 + 20 + 5, 20: two calls.
EXPECTED = (2105, 900, 55, 20, 2, 1, 1, 1)
EXPECTED_OF_STREAM = (2100, 1100, 55, 20, None, 1, 1, 1)


def test_a_log_and_its_document_say_the_same(figures: Callable[..., Figures], claims: Any) -> None:
    assert numbers(figures(Log, LOG)) == EXPECTED
    document = json.dumps(HEADER | {"messages": [USER, DONE, SECOND]}, indent=1).encode()
    assert claims(document) is Document
    found = figures(Document, document)
    assert numbers(found) == EXPECTED
    assert (found.records, found.opened.session, found.ending.kind) == (3, "s1", "clean")


def test_a_stream(figures: Callable[..., Figures], claims: Any) -> None:
    found = figures(Stream, STREAM)
    assert numbers(found) == EXPECTED_OF_STREAM
    assert (found.ending.kind, found.ending.weight) == ("clean", 2)


def test_a_stream_that_was_cut_off_has_no_ending(figures: Callable[..., Figures]) -> None:
    found = figures(Stream, STREAM[:-1])
    assert (found.ending, found.tokens.input, found.turns) == (None, None, None)


def test_models_of_a_run_are_not_added_to_its_sum(figures: Callable[..., Figures]) -> None:
    stats = STREAM[-1]["stats"]
    half = {"total_tokens": 1000, "input_tokens": 900, "output_tokens": 100, "cached": 0}
    rest = {"total_tokens": 1155, "input_tokens": 1200, "output_tokens": 0, "cached": 1100}
    models = STREAM[-1] | {"stats": stats | {"models": {"a": half, "b": rest | {"total_tokens": 1250}}}}
    found = figures(Stream, [*STREAM[:-1], models])
    assert (found.tokens.input, found.tokens.cached, found.tokens.output) == (2100, 1100, 150)
    assert {share.name for share in found.models} == {"a", "b"}


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        ({"type": "FatalTurnLimitedError", "message": "too many"}, "budget", "turns"),
        ({"type": "FatalAuthenticationError", "message": "no"}, "auth", "401"),
        ({"type": "ApiError", "message": "got status: 429 Too Many Requests"}, "limit", "429"),
        ({"message": "RESOURCE_EXHAUSTED"}, "limit", "usage"),
        ({"message": "Model stream ended with empty response text."}, "provider", "error"),
    ],
)
def test_how_it_ended(figures: Callable[..., Figures], error: dict, kind: str, code: str) -> None:
    found = figures(Stream, [*STREAM[:-1], STREAM[-1] | {"status": "error", "error": error}])
    assert (found.ending.kind, found.ending.code) == (kind, code)
    assert found.tokens.input == 2100


@given(st.lists(st.integers(0, len(LOG) - 1)), st.integers())
def test_no_order_and_no_repetition_changes_a_log(figures: Any, again: list[int], seed: int) -> None:
    records = [*LOG, *(LOG[place] for place in again)]
    Random(seed).shuffle(records)
    assert numbers(figures(Log, records)) == EXPECTED


@given(st.lists(st.integers(0, len(STREAM) - 1)), st.integers())
def test_no_order_and_no_repetition_changes_a_stream(figures: Any, again: list[int], seed: int) -> None:
    records = [*STREAM, *(STREAM[place] for place in again)]
    Random(seed).shuffle(records)
    assert numbers(figures(Stream, records)) == EXPECTED_OF_STREAM


@pytest.mark.parametrize(
    ("pattern", "reader", "expected"),
    [
        # Counted apart: sums over messages of type gemini, output + thoughts; each total is input + output + thoughts.
        ("*lanegrid*gemini_session.json", Document, (67273, 43377, 677, 377, 7, 5, 0, 2)),
        ("*453aa339.json", Document, (21694, 4029, 563, 486, 4, 3, 0, 1)),
        ("*a63242d9.json", Document, (4657, 0, 20 + 131, 131, 1, 1, 1, 1)),
        ("*359abdd0.json", Document, (5131 + 5181, 0, 25 + 301, 208 + 93, 2, 1, 0, 1)),
        ("*tool-result-cancelled.json", Document, (5689, 5519, 43 + 54, 54, 1, 1, None, 0)),
        ("*jsonl_v040.jsonl", Log, (11855 + 12069, 11502, 81 + 147, 0, 2, 1, 0, 1)),
        ("*gemini__tool_calls.json", Document, (None, None, None, None, 1, 1, 0, 1)),
        ("*system_messages.json", Document, (None, None, None, None, 0, 0, 0, 0)),
    ],
)
def test_real_ones(real: Callable[..., Figures], pattern: str, reader: Any, expected: tuple) -> None:
    assert numbers(real(f"b_gemini/{pattern}", reader)) == expected
