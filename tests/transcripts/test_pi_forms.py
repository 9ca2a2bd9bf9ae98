"""pi: session files of all versions, the stream of JSON, relatives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.transcripts.events import ToolCall, ToolResult
from adapters.transcripts.readers.pi import Session, Stream
from tests.transcripts.counting import measured
from tests.transcripts.reading import (
    broken,
    counted,
    events,
    figures,
    format_of,
    lines,
    read,
    repeated,
    repeats,
    survives,
)

BORN = 1790000000000


def usage(fresh: int, output: int, cached: int = 0, created: int = 0, price: float = 0.0) -> Any:
    return {
        "input": fresh,
        "output": output,
        "cacheRead": cached,
        "cacheWrite": created,
        "totalTokens": fresh + output + cached + created,
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": price},
    }


def asked(n: int, text: str = "look") -> Any:
    return {"role": "user", "content": [{"type": "text", "text": text}], "timestamp": BORN + n}


def said(n: int, used: Any, stop: str = "stop", *blocks: Any, **others: Any) -> Any:
    return {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "so"}, *blocks],
        "api": "anthropic-messages",
        "provider": "anthropic",
        "model": "m",
        "usage": used,
        "stopReason": stop,
        "timestamp": BORN + n,
    } | others


def call(tool: str) -> Any:
    return {"type": "toolCall", "id": tool, "name": "bash", "arguments": {"command": "ls"}}


def result(n: int, tool: str, failed: bool) -> Any:
    return {
        "role": "toolResult",
        "toolCallId": tool,
        "toolName": "bash",
        "content": [{"type": "text", "text": "a"}],
        "isError": failed,
        "timestamp": BORN + n,
    }


TALK = [
    asked(1),
    said(2, usage(10, 5, 100, 20, 0.25), "toolUse", call("t1"), call("t2")),
    result(3, "t1", False),
    result(4, "t2", True),
    said(5, usage(1, 7, 120, 0, 0.5)),
]


def session(version: int, talk: list[Any] = TALK, name: str = "s", **header: Any) -> list[Any]:
    """A session file of that version: entries have ids since the second."""
    entries: list[Any] = []
    for place, message in enumerate(talk):
        entry: Any = {"type": "message", "timestamp": f"2026-09-21T14:13:2{place}.000Z", "message": message}
        if version > 1:
            entry |= {"id": f"e{place}", "parentId": f"e{place - 1}" if place else None}
        entries.append(entry)
    first = {"type": "session", "id": name, "timestamp": "2026-09-21T14:13:19.000Z", "cwd": "/w"} | header
    return [first | ({"version": version} if version > 1 else {"provider": "anthropic"}), *entries]


def stream(talk: list[Any] = TALK) -> list[Any]:
    """A stream: each message grows, ends, and is told again at the end of its turn and of everything."""
    out: list[Any] = [
        {"type": "session", "version": 3, "id": "s", "timestamp": "2026-09-21T14:13:19.000Z", "cwd": "/w"},
        {"type": "agent_start"},
    ]
    for message in talk:
        begun = message | ({"usage": usage(0, 0)} if message["role"] == "assistant" else {})
        out.append({"type": "message_start", "message": begun})
        if message["role"] == "assistant":
            out.insert(-1, {"type": "turn_start"})
            out.append({"type": "message_update", "message": begun})
        out.append({"type": "message_end", "message": message})
        if message["role"] == "toolResult":
            out.append(
                {
                    "type": "tool_execution_end",
                    "toolCallId": message["toolCallId"],
                    "toolName": "bash",
                    "result": {"content": message["content"]},
                    "isError": message["isError"],
                }
            )
        if message["role"] == "assistant":
            results = [each for each in talk if each["role"] == "toolResult"]
            out.append(
                {
                    "type": "turn_end",
                    "message": message,
                    "toolResults": results if message["stopReason"] == "toolUse" else [],
                }
            )
    return [*out, {"type": "agent_end", "messages": talk}]


def check(each: Any) -> None:
    tokens = each.tokens
    assert (tokens.input, tokens.cached, tokens.created, tokens.uncached) == (251, 220, 20, 11)
    assert (tokens.output, tokens.reasoning, each.cost_reported) == (12, None, 0.75)
    assert (each.turns, each.tool_calls, each.tool_errors, each.prompts) == (2, 2, 1, 1)
    assert (each.opened.session, each.opened.harness, each.opened.cwd) == ("s", "pi", "/w")
    assert [(share.name, share.calls) for share in each.models] == [("m", 2)]
    assert (each.ending.kind, each.ending.code) == ("clean", "stop")
    assert each.lower_bounds == ()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_session_of_every_version_has_the_same_figures(version: int) -> None:
    name, each = read(lines(*session(version)))
    assert name == "pi-session"
    check(each)


def test_a_stream_counts_each_message_once() -> None:
    name, each = read(lines(*stream()))
    assert name == "pi-stream"
    check(each)


def test_a_stream_whose_lines_were_lost_is_completed_by_what_is_told_again() -> None:
    check(read(lines(*(each for each in stream() if each["type"] != "message_end")))[1])


def test_a_stream_that_was_cut_in_a_turn_says_nothing_of_its_end() -> None:
    cut = stream()[:9]
    assert cut[-1]["type"] == "turn_end"
    each = read(lines(*cut))[1]
    assert (each.turns, each.tool_calls, each.ending) == (1, 2, None)


@given(again=repeats, order=st.randoms())
def test_repeated_lines_in_any_order_change_nothing(again: list[tuple[int, int]], order: Any) -> None:
    for reader, records in ((Session, session(3)), (Session, session(1)), (Stream, stream())):
        once = counted(figures(events(reader, lines(*records))))
        assert counted(figures(events(reader, repeated(records, again)))) == once
        rest = [json.loads(line) for line in repeated(records, again).splitlines()]
        order.shuffle(rest)
        assert counted(figures(events(reader, lines(*rest)))) == once


@pytest.mark.parametrize(
    ("message", "ending", "turns", "failed"),
    [
        (said(6, usage(0, 0), "aborted", errorMessage="Request was aborted"), ("interrupt", "aborted"), 3, 0),
        (said(6, usage(0, 0), "error", errorMessage="401 Unauthorized"), ("auth", "401"), 2, 1),
        (said(6, usage(0, 0), "error", errorMessage="429: rate limit"), ("limit", "usage"), 2, 1),
        (said(6, usage(0, 0), "error", errorMessage="it broke"), ("provider", "error"), 2, 1),
        (said(6, usage(3, 1), "error", errorMessage="it broke"), ("provider", "error"), 3, 0),
        (said(6, usage(3, 1), "length"), ("provider", "length"), 3, 0),
    ],
)
@pytest.mark.parametrize("form", [lambda talk: session(3, talk), stream])
def test_the_last_message_says_how_it_ended(
    form: Any, message: Any, ending: tuple[str, str], turns: int, failed: int
) -> None:
    each = read(lines(*form([*TALK, message])))[1]
    assert (each.ending.kind, each.ending.code) == ending  # type: ignore[union-attr]
    assert (each.turns, each.counts.get("failed calls", 0)) == (turns, failed)


def test_an_aborted_call_used_what_nobody_knows() -> None:
    each = read(lines(*session(3, [asked(1), said(2, usage(0, 0), "aborted")])))[1]
    assert (each.tokens.input, each.tokens.output, each.cost_reported) == (None, None, None)
    assert (each.turns, each.calls_without_usage) == (1, 1)


def test_a_prompt_that_nobody_answered_is_no_clean_end() -> None:
    assert read(lines(*session(3, [*TALK, asked(6)])))[1].ending is None


def test_a_fork_counts_what_it_did_itself(tmp_path: Path) -> None:
    more = said(9, usage(2, 3, 300, 0, 0.125))
    path = "/home/u/.pi/agent/sessions/--w--/2026-09-21T14-13-19-000Z_s.jsonl"
    (tmp_path / "one.jsonl").write_bytes(lines(*session(3)))
    (tmp_path / "two.jsonl").write_bytes(
        lines(*session(3, [*TALK, asked(8), more], "s2", parentSession=path))
    )
    one, two = measured(tmp_path)
    check(one.figures)
    assert (one.session.id, two.session.id, two.session.parent) == ("s", "s2", "s")
    assert (two.figures.turns, two.figures.tool_calls, two.figures.prompts) == (1, 0, 1)
    assert (two.figures.tokens.input, two.figures.tokens.output) == (302, 3)
    assert (two.figures.inherited.input, two.figures.cost_reported) == (251, 0.125)


def test_a_session_and_its_stream_are_one(tmp_path: Path) -> None:
    (tmp_path / "file.jsonl").write_bytes(lines(*session(3)))
    (tmp_path / "stream.jsonl").write_bytes(lines(*stream()))
    (one,) = measured(tmp_path)
    assert one.formats == ("pi-session", "pi-stream")
    check(one.figures)


def test_summaries_names_and_commands_are_told() -> None:
    more: list[Any] = [
        {
            "type": "compaction",
            "id": "c",
            "timestamp": "2026-09-21T14:14:00.000Z",
            "summary": "x",
            "firstKeptEntryId": "e3",
        },
        {"type": "branch_summary", "id": "b", "timestamp": "2026-09-21T14:14:01.000Z", "summary": "x"},
        {"type": "session_info", "id": "i", "timestamp": "2026-09-21T14:14:02.000Z", "name": "N"},
        {
            "type": "message",
            "id": "x",
            "timestamp": "2026-09-21T14:14:03.000Z",
            "message": {"role": "bashExecution", "command": "ls", "output": "", "timestamp": BORN + 50},
        },
    ]
    each = read(lines(*session(3), *more))[1]
    assert (each.compactions, each.opened.title) == (1, "N")
    assert each.counts == {"branch summaries": 1, "commands of the user": 1}
    check(each)


def test_a_stream_tells_its_summaries_and_retries() -> None:
    done = {"type": "compaction_end", "result": {"firstKeptEntryId": "e3"}, "aborted": False}
    other = {"type": "auto_compaction_end", "result": None, "aborted": True}
    again = {"type": "auto_retry_start", "attempt": 1, "maxAttempts": 3, "delayMs": 2000}
    each = read(lines(*stream(), done, done, other, again))[1]
    assert (each.compactions, each.counts) == (1, {"retries": 1})
    check(each)


def test_what_openclaw_says_itself_is_no_model_call() -> None:
    mirror = said(6, usage(0, 0), provider="openclaw", model="delivery-mirror")
    each = read(lines(*session(3, [*TALK, mirror])))[1]
    assert each.counts == {"mirrored messages": 1}
    check(each)


def test_without_content_no_text_is_kept() -> None:
    for reader, records in ((Session, session(3)), (Stream, stream())):
        found = events(reader, lines(*records), content=False)
        assert not any(getattr(each, "text", None) for each in found if type(each).__name__ != "Ending")
        assert not any(each.arguments for each in found if isinstance(each, ToolCall))
        assert not any(each.content for each in found if isinstance(each, ToolResult))


@pytest.mark.parametrize(
    ("name", "turns", "tools", "prompts"),
    [
        ("*openclaw__schema_drift*", 1, 1, 1),
        ("*openclaw__small*", 1, 1, 1),
        ("*omp-legacy*", 0, 0, 0),
        ("*_pi-fixture*", 1, 0, 0),
    ],
)
def test_sessions_of_the_corpus_without_usage(
    corpus: Path, name: str, turns: int, tools: int, prompts: int
) -> None:
    (path,) = (corpus / "b_pi").glob(name)
    form, each = read(path)
    assert form == "pi-session"
    assert (each.turns, each.tool_calls, each.prompts) == (turns, tools, prompts)
    assert (each.tokens.input, each.tokens.output, each.cost_reported) == (None, None, None)


def test_the_large_session_of_the_corpus(corpus: Path) -> None:
    """Counted apart: 453 messages of the assistant, of which 14 were aborted without usage; the one that failed had some."""
    (path,) = (corpus / "b_pi").glob("*large-session*")
    form, each = read(path)
    assert form == "pi-session"
    tokens = each.tokens
    assert (tokens.uncached, tokens.cached, tokens.created, tokens.output) == (1049, 43229469, 4296232, 83156)
    assert (each.turns, each.calls_without_usage, each.counts) == (453, 14, {})
    assert (each.tool_calls, each.tool_errors) == (391, 19)
    assert each.cost_reported == pytest.approx(30.3301977)
    assert each.lower_bounds == ("input", "output", "cost")


def test_the_stream_of_the_corpus(corpus: Path) -> None:
    """Counted apart: four messages of the assistant by their times, each told two or three times."""
    (path,) = (corpus / "c_streamjson_other").glob("*pi_print*")
    form, each = read(path)
    assert form == "pi-stream"
    assert (each.tokens.input, each.tokens.cached, each.tokens.output) == (2650, 0, 406)
    assert (each.turns, each.tool_calls, each.tool_errors) == (4, 1, 0)
    assert each.cost_reported == pytest.approx(0.003462)


def test_what_others_write_is_not_claimed(corpus: Path) -> None:
    (path,) = (corpus / "b_pi").glob("*personal_assistant*")
    assert format_of(path) not in ("pi-session", "pi-stream")
    assert format_of(lines({"type": "session", "id": "x"}, {"type": "message", "message": {}})) is None
    assert format_of(lines({"type": "message", "timestamp": "x", "message": {"role": "assistant"}})) is None


@given(value=broken(session(3)))
def test_any_shape_of_a_session_is_survived(value: Any) -> None:
    survives(value, as_lines=True)
    figures(events(Session, lines(*value) if isinstance(value, list) else b""))


@given(value=broken(stream()))
def test_any_shape_of_a_stream_is_survived(value: Any) -> None:
    survives(value, as_lines=True)
    figures(events(Stream, lines(*value) if isinstance(value, list) else b""))
