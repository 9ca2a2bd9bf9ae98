"""Qwen Code: chat files and streams; and QwenPaw, which is another program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.transcripts.events import ToolCall, ToolResult
from adapters.transcripts.formats import head_of
from adapters.transcripts.readers.claude_code import ClaudeCode
from adapters.transcripts.readers.qwen import Chat, Paw, Stream
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


def chat(n: int, kind: str, *parts: Any, **others: Any) -> Any:
    """A record of a chat file."""
    told: Any = {
        "uuid": f"r{n}",
        "parentUuid": f"r{n - 1}" if n > 1 else None,
        "sessionId": "s",
        "timestamp": f"2026-08-17T13:00:{n:02}.000Z",
        "type": kind,
        "cwd": "/w",
        "version": "0.24.4",
    }
    if parts:
        told["message"] = {"role": "model" if kind == "assistant" else "user", "parts": list(parts)}
    return told | others


def used(whole: int, output: int, cached: int = 0, thoughts: int = 0, total: int | None = None) -> Any:
    return {
        "promptTokenCount": whole,
        "cachedContentTokenCount": cached,
        "candidatesTokenCount": output,
        "thoughtsTokenCount": thoughts,
        "totalTokenCount": whole + output if total is None else total,
    }


def asks(tool: str) -> Any:
    return {"functionCall": {"id": tool, "name": "run_shell_command", "args": {"command": "ls"}}}


def gave(n: int, tool: str, status: str, **others: Any) -> Any:
    part = {"functionResponse": {"id": tool, "name": "run_shell_command", "response": {"output": "a"}}}
    return chat(n, "tool_result", part, toolCallResult={"callId": tool, "status": status}, **others)


def telemetry(n: int, name: str, **fields: Any) -> Any:
    event = {"event.name": f"qwen-code.{name}"} | fields
    return chat(n, "system", subtype="ui_telemetry", systemPayload={"uiEvent": event})


def answer(n: int, whole: int, output: int, cached: int = 0, **others: Any) -> Any:
    counts = {
        "input_token_count": whole,
        "output_token_count": output,
        "cached_content_token_count": cached,
        "thoughts_token_count": 0,
        "total_token_count": whole + output,
    }
    return telemetry(n, "api_response", model="m", **counts, **others)


CHAT: list[Any] = [
    chat(1, "user", {"text": "look"}),
    chat(2, "assistant", {"text": "hm", "thought": True}),
    chat(2, "assistant", asks("t1"), asks("t2"), model="m", usageMetadata=used(1000, 35, 600, 20)),
    gave(3, "t1", "success"),
    gave(4, "t2", "error"),
    chat(5, "assistant", {"text": "done"}, model="m", usageMetadata=used(1100, 5, 900)),
]


def ended(each: Any) -> Any:
    return each.ending and (each.ending.kind, each.ending.code)


def check(each: Any) -> None:
    tokens = each.tokens
    assert (tokens.input, tokens.cached, tokens.created, tokens.uncached) == (2100, 1500, None, 600)
    assert (tokens.output, tokens.reasoning, each.cost_reported) == (40, 20, None)
    assert (each.turns, each.tool_calls, each.tool_errors, each.prompts) == (2, 2, 1, 1)
    assert [(share.name, share.calls) for share in each.models] == [("m", 2)]
    assert (each.opened.session, each.opened.harness, each.opened.version) == ("s", "qwen-code", "0.24.4")
    assert (each.opened.cwd, ended(each)) == ("/w", ("clean", ""))
    assert each.lower_bounds == ()


def test_a_chat_has_its_calls() -> None:
    name, each = read(lines(*CHAT))
    assert name == "qwen-chat"
    check(each)


@given(again=repeats, order=st.randoms())
def test_repeated_lines_of_a_chat_in_any_order_change_nothing(
    again: list[tuple[int, int]], order: Any
) -> None:
    records = [*CHAT, answer(6, 2200, 50), answer(7, 30, 3)]
    once = counted(figures(events(Chat, lines(*records))))
    assert counted(figures(events(Chat, repeated(records, again)))) == once
    rest = [json.loads(line) for line in repeated(records, again).splitlines()]
    order.shuffle(rest)
    assert counted(figures(events(Chat, lines(*rest)))) == once


def test_thoughts_beside_the_output_are_output() -> None:
    """The total tells: 100 + 30 + 20, not 100 + 30."""
    for total, output in ((130, 30), (150, 50), (None, 30)):
        counts = used(100, 30, 0, 20, total)
        each = read(lines(CHAT[0], chat(2, "assistant", {"text": "so"}, usageMetadata=counts)))[1]
        assert (each.tokens.input, each.tokens.output, each.tokens.reasoning) == (100, output, 20)


def test_a_rewound_branch_stays_paid() -> None:
    back = chat(6, "system", subtype="rewind", systemPayload={"targetUuid": "r1"}, parentUuid="r1")
    more = [
        chat(7, "user", {"text": "again"}),
        chat(8, "assistant", {"text": "so"}, usageMetadata=used(50, 5)),
    ]
    each = read(lines(*CHAT, back, *more))[1]
    assert (each.turns, each.tokens.input, each.tokens.output, each.prompts) == (3, 2150, 45, 2)
    assert each.counts == {"rewinds": 1}


@pytest.mark.parametrize("counts", [None, {}, used(0, 0), "none", {"promptTokenCount": None}])
def test_a_call_without_usage_used_what_nobody_knows(counts: Any) -> None:
    each = read(lines(CHAT[0], chat(2, "assistant", {"text": "so"}, usageMetadata=counts)))[1]
    assert (each.tokens.input, each.tokens.output, each.tokens.reasoning) == (None, None, None)
    assert (each.turns, each.calls_without_usage) == (1, 1)


def test_telemetry_knows_calls_without_a_record() -> None:
    records = [*CHAT, answer(6, 1000, 35, 600), answer(7, 1100, 5, 900), answer(8, 10, 2)]
    each = read(lines(*records))[1]
    assert (each.turns, each.tokens.input, each.tokens.cached, each.tokens.output) == (3, 2110, 1500, 42)
    assert (each.main.input, each.lower_bounds) == (2100, ())


def test_what_telemetry_says_of_sub_agents_is_in_their_files() -> None:
    each = read(lines(*CHAT, answer(6, 9000, 35, subagent_name="x")))[1]
    assert each.counts == {"answers to sub-agents": 1}
    assert len(each.notes) == 1
    check(each)


def test_a_sub_agents_file_is_of_its_session(tmp_path: Path) -> None:
    """It was cut off; its session was not."""
    own = [
        chat(31, "user", {"text": "look there"}, agentId="a", isSidechain=True),
        chat(32, "assistant", asks("t8"), agentId="a", isSidechain=True, usageMetadata=used(50, 5)),
        gave(33, "t8", "error", agentId="a", isSidechain=True),
    ]
    (tmp_path / "s.jsonl").write_bytes(lines(*CHAT))
    (tmp_path / "subagents").mkdir()
    (tmp_path / "subagents/a.jsonl").write_bytes(lines(*own))
    (one,) = measured(tmp_path)
    each = one.figures
    assert (each.turns, each.turns_subagents, each.tool_calls, each.tool_calls_subagents) == (3, 1, 3, 1)
    assert (each.main.input, each.subagents.input, each.prompts, each.tool_errors) == (2100, 50, 1, 2)
    assert ended(each) == ("clean", "")
    alone = read(lines(*own, chat(34, "assistant", {"text": "so"}, agentId="a")))[1]
    assert (alone.turns_subagents, alone.ending) == (2, None)


def test_a_fork_counts_what_it_did_itself(tmp_path: Path) -> None:
    origin = {"forkedFrom": {"sessionId": "s", "messageUuid": "x"}}
    copied = [each | {"sessionId": "s2"} | origin for each in [*CHAT, answer(6, 2100, 40, 1500)]]
    own = [
        chat(8, "user", {"text": "on"}),
        chat(9, "assistant", asks("t9"), usageMetadata=used(10, 1)),
        answer(10, 10, 1),
        answer(11, 5, 1),
    ]
    fork = [*copied, *(each | {"sessionId": "s2"} for each in own)]
    each = read(lines(*fork))[1]
    assert each.opened.forked == "s"
    assert (each.tool_calls, each.tokens.input, each.tokens.output) == (1, 15, 2)
    assert (each.turns, each.tool_errors, each.inherited.input, each.prompts) == (2, 0, 2100, 1)
    (tmp_path / "s.jsonl").write_bytes(lines(*CHAT))
    (tmp_path / "s2.jsonl").write_bytes(lines(*fork))
    one, two = measured(tmp_path)
    check(one.figures)
    assert (two.session.parent, two.figures.prompts, two.figures.turns) == ("s", 1, 2)


@pytest.mark.parametrize(
    ("last", "ending"),
    [
        ([chat(6, "user", {"text": "on"})], None),
        ([chat(6, "assistant", asks("t9"))], None),
        ([telemetry(6, "api_error", error="x", status_code=429)], ("limit", "429")),
        ([telemetry(6, "api_error", error_message="401 Unauthorized")], ("auth", "401")),
        ([telemetry(6, "api_error", error="x"), chat(7, "assistant", {"text": "so"})], ("clean", "")),
    ],
)
def test_the_last_record_of_a_chat_says_how_it_ended(last: list[Any], ending: Any) -> None:
    each = read(lines(*CHAT, *last))[1]
    assert ended(each) == ending
    assert each.counts.get("failed calls", 0) == ("systemPayload" in last[0])


def test_titles_summaries_and_others_prompts_are_told() -> None:
    title = {"customTitle": "T", "titleSource": "auto"}
    each = read(
        lines(
            *CHAT,
            chat(6, "system", subtype="custom_title", systemPayload=title),
            chat(7, "system", subtype="chat_compression", systemPayload={}),
            chat(8, "user", {"text": "hook"}, provenance="hook"),
        )
    )[1]
    assert (each.opened.title, each.compactions, each.prompts) == ("T", 1, 1)


def live(n: int, message: str, *blocks: Any, **usage: int) -> Any:
    """A line of the assistant; the usage of most is 0."""
    counts = {"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 0, "total_tokens": 0} | usage
    inner = {
        "id": message,
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": list(blocks),
        "stop_reason": None,
        "usage": counts,
    }
    return {
        "type": "assistant",
        "uuid": f"l{n}",
        "session_id": "s",
        "parent_tool_use_id": None,
        "message": inner,
    }


def back(n: int, tool: str, failed: bool) -> Any:
    block = {"type": "tool_result", "tool_use_id": tool, "is_error": failed, "content": "a"}
    return {
        "type": "user",
        "uuid": f"l{n}",
        "session_id": "s",
        "parent_tool_use_id": None,
        "message": {"role": "user", "content": [block]},
    }


def use(tool: str) -> Any:
    return {"type": "tool_use", "id": tool, "name": "run_shell_command", "input": {"command": "ls"}}


TEXT = {"type": "text", "text": "so"}
INIT = {
    "type": "system",
    "subtype": "init",
    "uuid": "l0",
    "session_id": "s",
    "cwd": "/w",
    "tools": ["run_shell_command"],
    "model": "m",
    "permission_mode": "yolo",
    "qwen_code_version": "0.24.4",
}
DONE = {
    "type": "result",
    "subtype": "success",
    "uuid": "l9",
    "session_id": "s",
    "is_error": False,
    "duration_ms": 744,
    "num_turns": 2,
    "result": "done",
    "usage": {
        "input_tokens": 2110,
        "output_tokens": 42,
        "cache_read_input_tokens": 1500,
        "total_tokens": 2152,
    },
    "permission_denials": [],
}
STREAM: list[Any] = [
    INIT,
    live(1, "m1", {"type": "thinking", "thinking": "hm"}),
    live(2, "m1", TEXT),
    live(
        3,
        "m1",
        use("t1"),
        use("t2"),
        input_tokens=1000,
        output_tokens=35,
        cache_read_input_tokens=600,
        total_tokens=1035,
    ),
    back(4, "t1", False),
    back(5, "t2", True),
    live(6, "m2", TEXT, input_tokens=1100, output_tokens=5, cache_read_input_tokens=900, total_tokens=1105),
    DONE,
]


def test_a_stream_counts_calls_and_what_the_result_says() -> None:
    """The result has a helper's call, with 10 and 2 tokens, that has no line."""
    name, each = read(lines(*STREAM))
    tokens = each.tokens
    assert name == "qwen-stream"
    assert (tokens.input, tokens.cached, tokens.created, tokens.output) == (2110, 1500, None, 42)
    assert (tokens.reasoning, each.main.input, each.main.output) == (None, 2100, 40)
    assert (each.turns, each.tool_calls, each.tool_errors, each.prompts) == (2, 2, 1, 0)
    assert (each.opened.session, each.opened.version, each.opened.model) == ("s", "0.24.4", "m")
    assert ended(each) == ("clean", "")


@given(again=repeats, order=st.randoms())
def test_repeated_lines_of_a_stream_in_any_order_change_nothing(
    again: list[tuple[int, int]], order: Any
) -> None:
    once = counted(figures(events(Stream, lines(*STREAM))))
    assert counted(figures(events(Stream, repeated(STREAM, again)))) == once
    rest = [json.loads(line) for line in repeated(STREAM, again).splitlines()]
    order.shuffle(rest)
    assert counted(figures(events(Stream, lines(*rest)))) == once


def test_a_resumed_session_counts_once() -> None:
    usage = {
        "input_tokens": 2170,
        "output_tokens": 43,
        "cache_read_input_tokens": 1500,
        "total_tokens": 2213,
    }
    more = live(11, "m3", TEXT, input_tokens=60, output_tokens=1, total_tokens=61)
    each = read(lines(*STREAM, INIT, more, DONE | {"usage": usage, "num_turns": 1}))[1]
    assert (each.turns, each.tokens.input, each.tokens.output) == (3, 2170, 43)


def test_a_sub_agents_lines_are_its_own() -> None:
    sub = [
        each | {"parent_tool_use_id": "t1"}
        for each in (
            live(21, "x1", use("t7"), input_tokens=50, output_tokens=5, total_tokens=55),
            back(22, "t7", True),
        )
    ]
    each = read(lines(*STREAM[:4], *sub, *STREAM[4:-1]))[1]
    assert (each.turns, each.turns_subagents, each.tool_calls, each.tool_calls_subagents) == (3, 1, 3, 1)
    assert (each.main.input, each.subagents.input) == (2100, 50)


def test_a_stream_that_was_cut_before_any_usage_knows_none() -> None:
    each = read(lines(*STREAM[:3]))[1]
    assert (each.tokens.input, each.tokens.output, each.turns, each.ending) == (None, None, None, None)


ZERO = dict.fromkeys(DONE["usage"], 0)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        ({"message": "[API Error: 401 Unauthorized]"}, ("auth", "401")),
        ({"message": "[API Error: Too Many Requests]"}, ("limit", "usage")),
        ({"message": "Reached max session turns for this session."}, ("budget", "turns")),
        ({"message": "Operation cancelled."}, ("interrupt", "user")),
        ({"message": "it broke"}, ("provider", "error_during_execution")),
        (None, ("provider", "error_during_execution")),
    ],
)
def test_a_result_with_an_error_says_how_it_ended(error: Any, ending: tuple[str, str]) -> None:
    result = {name: value for name, value in DONE.items() if name != "result"}
    result |= {"subtype": "error_during_execution", "is_error": True, "usage": ZERO, "num_turns": 1}
    each = read(lines(INIT, result | {"error": error}))[1]
    assert ended(each) == ending
    assert (each.turns, each.tokens.input, each.tokens.output) == (1, None, None)


def test_denied_tools_are_told() -> None:
    denied = [{"tool_name": "x", "tool_use_id": "t2", "tool_input": {}}]
    each = read(lines(*STREAM[:-1], DONE | {"permission_denials": denied}))[1]
    assert each.counts == {"denied tool calls": 1}


def test_what_the_terminal_writes_is_a_stream() -> None:
    started = {
        "type": "system",
        "subtype": "session_start",
        "session_id": "s",
        "data": {"session_id": "s", "cwd": "/w", "protocol_version": 2},
    }
    asked = {"type": "user", "uuid": "p", "session_id": "s", "message": {"role": "user", "content": "look"}}
    name, each = read(lines(started, asked, *STREAM[1:-1]))
    assert (name, each.opened.cwd, each.prompts) == ("qwen-stream", "/w", 1)
    assert (each.turns, each.tokens.input, each.tokens.output, each.ending) == (2, 2100, 40, None)


CLAUDE_USAGE = {
    "input_tokens": 3,
    "output_tokens": 5,
    "cache_read_input_tokens": 7,
    "cache_creation_input_tokens": 9,
}
CLAUDE: list[Any] = [
    {"type": "system", "subtype": "init", "session_id": "s", "cwd": "/w", "tools": ["Bash"], "model": "m"},
    {
        "type": "assistant",
        "session_id": "s",
        "message": {"id": "m", "role": "assistant", "content": [TEXT], "usage": CLAUDE_USAGE},
    },
    {"type": "result", "subtype": "success", "session_id": "s", "is_error": False, "usage": CLAUDE_USAGE},
]


def test_the_streams_of_qwen_code_and_claude_code_are_told_apart() -> None:
    for records in (STREAM, STREAM[:2], STREAM[1:], STREAM[-1:], STREAM[3:4]):
        head = head_of("file", lines(*records), True)
        assert Stream.claims(head) > ClaudeCode.claims(head)
        assert format_of(lines(*records)) == "qwen-stream"
    for records in (CLAUDE, CLAUDE[:1], CLAUDE[1:], CLAUDE[2:]):
        head = head_of("file", lines(*records), True)
        assert (Stream.claims(head), Chat.claims(head)) == (0, 0)
        assert format_of(lines(*records)) == "claude-code"
    for place in range(1, len(CHAT) + 1):
        assert format_of(lines(*CHAT[:place])) == "qwen-chat"


PAW: Any = {
    "agent": {
        "memory": {
            "content": [
                [{"id": "a", "role": "user", "content": [TEXT], "timestamp": "2026-03-16 09:00:00.000"}, []],
                [
                    {
                        "id": "b",
                        "role": "assistant",
                        "content": [
                            {"type": "tool_use", "id": "t", "name": "x", "input": {"y": 1}},
                            TEXT,
                        ],
                    },
                    [],
                ],
                [
                    {
                        "id": "c",
                        "role": "system",
                        "content": [{"type": "tool_result", "id": "t", "output": "z"}],
                    },
                    [],
                ],
            ]
        },
        "_sys_prompt": "x",
    }
}


def test_a_session_of_qwenpaw() -> None:
    name, each = read(document(PAW))
    assert name == "qwenpaw"
    assert (each.turns, each.tool_calls, each.prompts, each.tokens.input) == (1, 1, 1, None)
    assert each.first == "2026-03-16T09:00:00.000Z"


def test_without_content_no_text_is_kept() -> None:
    for reader, data in ((Chat, lines(*CHAT)), (Stream, lines(*STREAM)), (Paw, document(PAW))):
        found = events(reader, data, content=False)
        assert not any(getattr(each, "text", None) for each in found if type(each).__name__ != "Ending")
        assert not any(each.arguments for each in found if isinstance(each, ToolCall))
        assert not any(each.content for each in found if isinstance(each, ToolResult))


@pytest.mark.parametrize(
    ("name", "form", "numbers", "input_", "output"),
    [
        ("*00000002.jsonl", "qwen-chat", (0, 0, 1), None, None),
        ("*00000003.jsonl", "qwen-chat", (0, 0, 1), None, None),
        ("*00000004.jsonl", "qwen-chat", (2, 1, 2), 12, 4),
        ("*default_17*", "qwenpaw", (1, 0, 1), None, None),
        ("*main_main*", "qwenpaw", (2, 1, 1), None, None),
        ("*empty*", "qwenpaw", (0, 0, 0), None, None),
    ],
)
def test_sessions_of_the_corpus(
    corpus: Path, name: str, form: str, numbers: Any, input_: int | None, output: int | None
) -> None:
    """Counted apart: records of the assistant by uuid, and their parts; only one has usage."""
    (path,) = (corpus / "b_qwen").glob(name)
    found, each = read(path)
    assert found == form
    assert (each.turns, each.tool_calls, each.prompts) == numbers
    assert (each.tokens.input, each.tokens.output) == (input_, output)


def test_the_rewound_chat_of_the_corpus(corpus: Path) -> None:
    (path,) = (corpus / "b_qwen").glob("*00000004.jsonl")
    each = read(path)[1]
    assert each.counts == {"rewinds": 1}
    assert [(share.name, share.calls) for share in each.models] == [
        ("synthetic-active-model", 1),
        ("synthetic-dead-model", 1),
    ]
    assert each.lower_bounds == ("input", "output")


@given(value=broken(CHAT))
def test_any_shape_of_a_chat_is_survived(value: Any) -> None:
    survives(value, as_lines=True)
    figures(events(Chat, lines(*value) if isinstance(value, list) else b""))


@given(value=broken(STREAM))
def test_any_shape_of_a_stream_is_survived(value: Any) -> None:
    survives(value, as_lines=True)
    figures(events(Stream, lines(*value) if isinstance(value, list) else b""))


@given(value=broken(PAW))
def test_any_shape_of_qwenpaw_is_survived(value: Any) -> None:
    survives(value)
    figures(events(Paw, document(value)))
