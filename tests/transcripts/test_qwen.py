"""Qwen Code: chats and streams; QwenPaw."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.transcripts.account import Figures
from adapters.transcripts.readers.claude_code import ClaudeCode
from adapters.transcripts.readers.qwen import Chat, Paw, Stream


def line(uuid: str, kind: str, **more: Any) -> dict:
    at = f"2026-01-01T00:00:{len(uuid):02}.000Z"
    return {
        "uuid": uuid,
        "parentUuid": None,
        "sessionId": "s1",
        "timestamp": at,
        "type": kind,
        "cwd": "/w",
        "version": "0.24.4",
    } | more


def parts(role: str, *each: dict) -> dict:
    return {"message": {"role": role, "parts": list(each)}}


def used(prompt: int, cached: int, output: int, thoughts: int, total: int) -> dict:
    return {
        "usageMetadata": {
            "promptTokenCount": prompt,
            "cachedContentTokenCount": cached,
            "candidatesTokenCount": output,
            "thoughtsTokenCount": thoughts,
            "totalTokenCount": total,
        }
    }


def telemetry(uuid: str, **event: Any) -> dict:
    return line(uuid, "system", subtype="ui_telemetry", systemPayload={"uiEvent": event})


def answered(uuid: str, prompt: int, cached: int, output: int, thoughts: int) -> dict:
    counts = {
        "input_token_count": prompt,
        "cached_content_token_count": cached,
        "output_token_count": output,
        "thoughts_token_count": thoughts,
        "total_token_count": prompt + output,
    }
    return telemetry(uuid, **{"event.name": "qwen-code.api_response", "model": "m"}, **counts)


CALL = {"functionCall": {"id": "t1", "name": "run_shell_command", "args": {}}}
FAILED = line("r", "tool_result", toolCallResult={"callId": "t1", "status": "error"}) | parts(
    "user", {"functionResponse": {"id": "t1", "name": "run_shell_command", "response": {}}}
)
CHAT = [
    line("u", "user") | parts("user", {"text": "do"}),
    line("aa", "assistant", model="m") | parts("model", {"text": "hm", "thought": True}),
    line("aa", "assistant", model="m") | parts("model", CALL) | used(1000, 200, 50, 20, 1050),
    FAILED,
    line("w", "system", subtype="rewind", systemPayload={"targetUuid": "u"}),
    line("aaa", "assistant", model="m") | parts("model", {"text": "ok"}) | used(1100, 900, 5, 0, 1105),
]
#: The calls above, and a title that left no record.
TOLD = [answered("x", 1000, 200, 50, 20), answered("xx", 1100, 900, 5, 0), answered("xxx", 10, 0, 2, 0)]


def said(id: str, block: dict, fresh: int = 0, output: int = 0, read: int | None = None) -> dict:
    usage = {"input_tokens": fresh, "output_tokens": output}
    if read is not None:
        usage |= {"cache_read_input_tokens": read, "total_tokens": fresh + output}
    message = {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [block],
        "usage": usage,
    }
    return {
        "type": "assistant",
        "uuid": id,
        "session_id": "s1",
        "parent_tool_use_id": None,
        "message": message,
    }


STREAM = [
    {
        "type": "system",
        "subtype": "init",
        "uuid": "i",
        "session_id": "s1",
        "cwd": "/w",
        "model": "m",
        "qwen_code_version": "0.24.4",
    },
    said("a", {"type": "thinking", "thinking": "hm"}),
    said("b", {"type": "tool_use", "id": "t1", "name": "run_shell_command", "input": {}}, 1000, 50, 200),
    {
        "type": "user",
        "uuid": "r",
        "session_id": "s1",
        "message": {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": ""}],
        },
    },
    said("c", {"type": "thinking", "thinking": "so"}),
    said("d", {"type": "text", "text": "ok"}, 1100, 5, 900),
    {
        "type": "result",
        "subtype": "success",
        "uuid": "z",
        "session_id": "s1",
        "is_error": False,
        "num_turns": 2,
        "result": "ok",
        "usage": {
            "input_tokens": 2110,
            "output_tokens": 57,
            "cache_read_input_tokens": 1100,
            "total_tokens": 2167,
        },
        "permission_denials": [],
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


EXPECTED = (2100, 1100, 55, 20, 2, 1, 1, 1)


def test_a_chat(figures: Callable[..., Figures]) -> None:
    found = figures(Chat, CHAT)
    assert numbers(found) == EXPECTED
    assert (found.opened.session, found.opened.version, found.ending.kind) == ("s1", "0.24.4", "clean")


def test_telemetry_is_a_second_witness_and_no_second_sum(figures: Callable[..., Figures]) -> None:
    assert numbers(figures(Chat, CHAT + TOLD[:2])) == EXPECTED
    assert numbers(figures(Chat, CHAT + TOLD)) == (2110, 1100, 57, 20, 3, 1, 1, 1)


def test_thoughts_beside_the_output_are_added_where_the_total_says_so(
    figures: Callable[..., Figures],
) -> None:
    of_gemini = line("aa", "assistant") | parts("model", {"text": "ok"}) | used(1000, 0, 30, 20, 1050)
    assert figures(Chat, [of_gemini]).tokens.output == 50


def test_what_a_fork_copied_was_used_elsewhere(figures: Callable[..., Figures]) -> None:
    copied = [o | {"forkedFrom": {"sessionId": "s0"}} for o in CHAT + TOLD]
    own = line("aaaa", "assistant") | parts("model", {"text": "ok"}) | used(7, 0, 3, 0, 10)
    found = figures(Chat, [*copied, own])
    assert (found.tokens.input, found.tokens.output, found.turns, found.inherited.input) == (7, 3, 1, 2100)
    assert found.opened.forked == "s0"


def test_a_request_that_failed(figures: Callable[..., Figures]) -> None:
    error = telemetry("e", **{"event.name": "qwen-code.api_error", "status_code": 429, "error": "Too many"})
    found = figures(Chat, [CHAT[0], error])
    assert (found.ending.kind, found.ending.code, found.turns) == ("limit", "429", 0)


def test_a_stream(figures: Callable[..., Figures]) -> None:
    found = figures(Stream, STREAM)
    assert numbers(found) == (2110, 1100, 57, None, 2, 1, 1, 0), "the result knows of a call without a line"
    assert (found.main.input, found.main.output) == (2100, 55)
    assert found.ending.kind == "clean"


def test_a_stream_that_was_cut_off_has_its_calls(figures: Callable[..., Figures]) -> None:
    found = figures(Stream, STREAM[:-1])
    assert (found.tokens.input, found.tokens.output, found.turns, found.ending) == (2100, 55, 2, None)


def test_a_provider_that_says_no_usage_leaves_it_unknown(figures: Callable[..., Figures]) -> None:
    found = figures(Stream, [STREAM[0], said("a", {"type": "text", "text": "ok"})])
    assert (found.tokens.input, found.turns) == (None, None)


@pytest.mark.parametrize(
    ("subtype", "text", "kind", "code"),
    [
        ("error_during_execution", "[API Error: 401 no]", "auth", "401"),
        ("error_during_execution", "[API Error: 429 slow down]", "limit", "429"),
        (
            "error_during_execution",
            "Model stream ended without a finish reason.",
            "provider",
            "error_during_execution",
        ),
        ("error_max_turns", "Reached max session turns", "budget", "turns"),
    ],
)
def test_how_it_ended(figures: Callable[..., Figures], subtype: str, text: str, kind: str, code: str) -> None:
    last = STREAM[-1] | {"subtype": subtype, "is_error": True, "result": None, "error": {"message": text}}
    found = figures(Stream, [*STREAM[:-1], last])
    assert (found.ending.kind, found.ending.code) == (kind, code)


def test_qwen_and_claude_code_are_told_from_each_other(claims: Any) -> None:
    def lines(*records: dict) -> bytes:
        return b"".join(json.dumps(o).encode() + b"\n" for o in records)

    assert claims(lines(*STREAM)) is Stream
    assert claims(lines(STREAM[2])) is Stream
    assert claims(lines(STREAM[-1])) is Stream
    assert claims(lines(*CHAT)) is Chat
    claude = {
        "type": "system",
        "subtype": "init",
        "session_id": "s",
        "tools": [],
        "model": "m",
        "permissionMode": "default",
    }
    usage = {"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 3}
    assert (
        claims(
            lines(claude, said("a", {"type": "text", "text": "x"}) | {"message": {"id": "m", "usage": usage}})
        )
        is ClaudeCode
    )


@given(st.lists(st.integers(0, len(CHAT + TOLD) - 1)), st.integers())
def test_no_order_and_no_repetition_changes_a_chat(figures: Any, again: list[int], seed: int) -> None:
    every = CHAT + TOLD
    records = [*every, *(every[place] for place in again)]
    Random(seed).shuffle(records)
    assert numbers(figures(Chat, records)) == (2110, 1100, 57, 20, 3, 1, 1, 1)


@given(st.lists(st.integers(0, len(STREAM) - 1)), st.integers())
def test_no_order_and_no_repetition_changes_a_stream(figures: Any, again: list[int], seed: int) -> None:
    records = [*STREAM, *(STREAM[place] for place in again)]
    Random(seed).shuffle(records)
    assert numbers(figures(Stream, records)) == (2110, 1100, 57, None, 2, 1, 1, 0)


def test_a_real_chat_with_a_branch_that_was_left(real: Callable[..., Figures]) -> None:
    """Counted apart: uuids of assistant records are 2 (one of them twice); one has usage, 12 and 4."""
    found = real("b_qwen/*000000000004.jsonl", Chat)
    assert numbers(found) == (12, None, 4, None, 2, 1, None, 2)
    assert found.lower_bounds == ("input", "output")
    assert found.counts == {"rewinds": 1}


@pytest.mark.parametrize(
    ("name", "turns", "tools", "prompts"),
    [("console__default*", 1, 0, 1), ("main_main", 2, 1, 1), ("empty", 0, 0, 0)],
)
def test_real_ones_of_qwenpaw(
    real: Callable[..., Figures], name: str, turns: int, tools: int, prompts: int
) -> None:
    found = real(f"b_qwen/*{name}.json", Paw)
    assert (found.tokens.input, found.turns, found.tool_calls, found.prompts) == (None, turns, tools, prompts)
