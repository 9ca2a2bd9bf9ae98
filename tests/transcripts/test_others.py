"""Copilot, Kimi, Amp, Droid, Grok, HAIL and exported sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.transcripts.formats import head_of, known, store_of
from adapters.transcripts.reader import Reader
from adapters.transcripts.readers.copilot import Copilot
from adapters.transcripts.readers.kimi import Kimi
from adapters.transcripts.readers.others import Amp, Droid, Exported, Grok, Hail
from tests.transcripts.reading import (
    CORPUS,
    broken,
    corpus,
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


def copilot(n: int, kind: str, **data: Any) -> Any:
    return {
        "type": kind,
        "data": data,
        "id": f"e{n}",
        "timestamp": f"2026-11-01T10:00:{n:02}.000Z",
        "parentId": None,
    }


def request(n: int) -> Any:
    return [{"toolCallId": f"c{n}", "name": "bash", "arguments": {"command": "ls"}}]


USED = {"inputTokens": 100, "cacheReadTokens": 60, "cacheWriteTokens": 0, "outputTokens": 17}
COPILOT = [
    copilot(1, "session.start", sessionId="s", copilotVersion="1", selectedModel="m", context={"cwd": "/w"}),
    copilot(2, "user.message", content="look"),
    copilot(3, "assistant.message", messageId="m1", toolRequests=request(1), outputTokens=10),
    copilot(4, "tool.execution_start", toolCallId="c1", toolName="bash", arguments={}),
    copilot(5, "tool.execution_complete", toolCallId="c1", success=False, result={"content": "x"}),
    copilot(
        6, "assistant.message", messageId="m2", parentToolCallId="c1", toolRequests=request(2), outputTokens=3
    ),
    copilot(7, "assistant.message", messageId="m3", toolRequests=[], outputTokens=4),
    copilot(8, "assistant.turn_end", turnId="0"),
    copilot(
        9,
        "session.shutdown",
        sessionStartTime=1,
        modelMetrics={"m": {"requests": {"count": 4}, "usage": USED}},
    ),
]
KIMI_USAGE = {"inputOther": 10, "output": 5, "inputCacheRead": 100, "inputCacheCreation": 1}


def kimi(n: int, kind: str, **event: Any) -> Any:
    return {"type": "context.append_loop_event", "event": {"type": kind} | event, "time": 1790000000000 + n}


KIMI = [
    {"type": "config.update", "modelAlias": "m", "cwd": "/w", "time": 1790000000000},
    {"type": "turn.prompt", "input": [], "origin": {"kind": "user"}, "time": 1790000000001},
    kimi(2, "tool.call", toolCallId="Bash_0", turnId="0", name="Bash", args={}),
    kimi(3, "tool.result", toolCallId="Bash_0", result={"output": "x", "isError": True}),
    kimi(4, "step.end", uuid="u1", usage=KIMI_USAGE, finishReason="tool_use"),
    {"type": "usage.record", "model": "m", "usage": KIMI_USAGE, "time": 1790000000005},
    kimi(6, "tool.call", toolCallId="Bash_0", turnId="1", name="Bash", args={}),
    kimi(7, "step.end", uuid="u2", usage=KIMI_USAGE, finishReason="end_turn"),
    {"type": "usage.record", "model": "m", "usage": KIMI_USAGE, "time": 1790000000008},
    {
        "type": "usage.record",
        "model": "m",
        "usage": KIMI_USAGE,
        "usageScope": "session",
        "time": 1790000000009,
    },
]


def amp(kind: str, **others: Any) -> Any:
    return {"type": kind, "session_id": "T-1"} | others


AMP = [
    amp("system", subtype="init", cwd="/w", tools=[]),
    amp(
        "assistant",
        message={
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}],
            "usage": {"input_tokens": 10, "output_tokens": 2},
        },
    ),
    amp(
        "user",
        message={
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x", "is_error": True}],
        },
    ),
    amp(
        "assistant",
        message={
            "role": "assistant",
            "content": [{"type": "text", "text": "done"}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 20, "output_tokens": 3},
        },
    ),
    amp("result", subtype="success", is_error=False, result="done", num_turns=2),
]


def droid(n: int, role: str, *content: Any) -> Any:
    return {
        "type": "message",
        "id": f"m{n}",
        "timestamp": f"2026-11-01T10:00:{n:02}Z",
        "message": {"role": role, "content": list(content)},
    }


DROID = [
    {"type": "session_start", "id": "s", "title": "t", "owner": "o", "cwd": "/w"},
    droid(1, "user", {"type": "text", "text": "look"}),
    droid(2, "assistant", {"type": "tool_use", "id": "t1", "name": "Execute", "input": {}}),
    droid(3, "user", {"type": "tool_result", "tool_use_id": "t1", "content": "x", "is_error": True}),
    droid(4, "assistant", {"type": "text", "text": "done"}),
]
GROK = [
    {"type": "user", "content": "where", "synthetic_reason": "environment_context"},
    {"type": "user", "content": "look", "prompt_index": 0},
    {
        "type": "assistant",
        "content": "so",
        "model_id": "m",
        "tool_calls": [{"id": "c1", "name": "read", "arguments": "{}"}],
    },
    {"type": "tool_result", "tool_call_id": "c1", "content": "x"},
    {"type": "backend_tool_call", "kind": {"tool_type": "web_search", "id": "w1", "action": {}}},
    {"type": "assistant", "content": "done", "model_id": "m"},
]


def hail(n: int, kind: str, **data: Any) -> Any:
    return {
        "type": "event",
        "event_id": f"e{n}",
        "timestamp": f"2026-11-01T10:00:{n:02}Z",
        "event_type": {"type": kind, "data": data},
        "content": {"blocks": []},
    }


HAIL = [
    {
        "type": "header",
        "version": "hail-1.0.0",
        "session_id": "s",
        "agent": {"tool": "codex", "model": "m"},
        "context": {"title": "t"},
    },
    hail(1, "UserMessage"),
    hail(2, "ShellCommand", command="ls"),
    hail(3, "ToolResult", call_id="e2", is_error=True),
    hail(4, "TaskEnd", summary="done"),
    {"type": "stats", "total_input_tokens": 100, "total_output_tokens": 5},
]


def exported(n: int, kind: str, **message: Any) -> Any:
    return {
        "sessionId": "s",
        "agentSlug": "cline",
        "type": kind,
        "uuid": f"u{n}",
        "timestamp": f"2026-11-01T10:00:{n:02}Z",
        "message": {"role": kind} | message,
    }


EXPORTED = [
    exported(1, "user", content="look"),
    exported(2, "assistant", content="so"),
    exported(3, "tool", tool_name="read", tool_input={}, tool_output="x", status="error"),
]

#: Reader, records, and: input, cached, output, turns, tool calls, tool errors, prompts.
RUNS: list[tuple[type[Reader], list[Any], tuple[int | None, ...]]] = [
    (Copilot, COPILOT, (100, 60, 17, 4, 2, 1, 1)),
    (Kimi, KIMI, (333, 300, 15, 2, 2, 1, 1)),
    (Amp, AMP, (30, None, 5, 2, 1, 1, 0)),
    (Droid, DROID, (None, None, None, 2, 1, 1, 1)),
    (Grok, GROK, (None, None, None, 2, 1, None, 1)),
    (Hail, HAIL, (100, None, 5, None, 1, 1, 1)),
    (Exported, EXPORTED, (None, None, None, 1, 1, 1, 1)),
]


@pytest.mark.parametrize(("reader", "run", "wanted"), RUNS, ids=[each[0].format for each in RUNS])
def test_what_is_counted(reader: type[Reader], run: list[Any], wanted: tuple[int | None, ...]) -> None:
    name, each = read(lines(*run))
    assert name == reader.format
    tokens = (each.tokens.input, each.tokens.cached, each.tokens.output)
    assert (*tokens, each.turns, each.tool_calls, each.tool_errors, each.prompts) == wanted


@given(which=st.sampled_from(RUNS), again=repeats)
@example(which=RUNS[1], again=[(7643, 171)])
def test_repeated_lines_change_nothing(which: Any, again: list[tuple[int, int]]) -> None:
    reader, run, _ = which
    assert counted(figures(events(reader, repeated(run, again)))) == counted(
        figures(events(reader, lines(*run)))
    )


@given(data=st.data(), which=st.sampled_from(RUNS))
def test_any_shape_is_survived(data: st.DataObject, which: Any) -> None:
    survives(data.draw(broken(which[1])), as_lines=True)


@given(st.binary(max_size=200))
def test_any_bytes_are_survived(data: bytes) -> None:
    head = head_of("file", data, True)
    for reader in known()[0]:
        figures(events(reader, data))
        assert reader.claims(head) in range(101)


def test_a_sub_agent_of_copilot_is_a_side() -> None:
    each = read(lines(*COPILOT))[1]
    assert (each.turns_subagents, each.subagents.output, each.tool_calls_subagents) == (1, 3, 1)
    assert each.ending is not None
    assert each.ending.kind == "clean"


@pytest.mark.parametrize(
    ("last", "ending"),
    [
        (copilot(20, "session.error", errorType="query", message="x", statusCode=401), ("auth", "401")),
        (copilot(20, "session.error", errorType="query", message="x", statusCode=429), ("limit", "429")),
        (copilot(20, "session.error", errorType="query", message="x"), ("provider", "query")),
        (copilot(20, "abort", reason="user"), ("interrupt", "abort")),
    ],
)
def test_how_copilot_ended(last: Any, ending: tuple[str, str]) -> None:
    end = read(lines(*COPILOT, last))[1].ending
    assert end is not None
    assert (end.kind, end.code) == ending


def test_sessions_of_copilot_of_the_corpus() -> None:
    """Counted apart: distinct message ids, distinct tool ids; 100 + 5 in and 15 out are the shutdown's own words."""
    name, each = read(corpus("b_other_agents/*copilot__small*"))
    assert name == "copilot"
    assert (each.tokens.input, each.tokens.cached, each.tokens.output) == (105, 5, 15)
    assert (each.turns, each.tool_calls, each.tool_errors) == (3, 2, 1)
    each = read(corpus("b_other_agents/*copilot__subdir*"))[1]
    assert (each.tokens.input, each.tokens.output, each.turns, each.tool_calls, each.tool_errors) == (
        None,
        26,
        2,
        1,
        0,
    )


def test_the_session_of_kimi_of_the_corpus() -> None:
    """Counted apart from its usage.record lines; the reader takes step.end."""
    name, each = read(corpus("b_other_agents/*kimi__subagent*"))
    assert name == "kimi"
    assert (each.tokens.input, each.tokens.cached, each.tokens.created, each.tokens.output) == (
        12905 + 28416,
        28416,
        0,
        330,
    )
    assert (each.turns, each.tool_calls, each.prompts) == (3, 2, 0)
    assert each.opened.model == "moonshot-ai/kimi-k2.7-code"
    assert format_of(corpus("b_other_agents/*kimi__assistant_tools*")) is None


def test_the_stream_of_amp_of_the_corpus() -> None:
    name, each = read(corpus("c_streamjson_other/*amp_stream*"))
    assert name == "amp"
    assert (each.tokens.input, each.tokens.output, each.turns, each.tool_calls) == (150, 30, 2, 1)
    assert each.opened.harness == "amp"
    assert each.ending is not None
    assert each.ending.kind == "clean"


@pytest.mark.parametrize(
    ("pattern", "name", "turns", "tools", "prompts"),
    [
        ("*droid__session_store_large*", "droid", 4, 1, 2),
        ("*droid__session_store_schema*", "droid", 1, 0, 1),
        ("*grok*", "grok", 2, 2, 2),
        ("*hail*", "hail", None, 26, 1),
        ("*amp_data*", "exported", 11, 0, 10),
        ("*cline*", "exported", 6, 17, 2),
    ],
)
def test_sessions_without_tokens_of_the_corpus(
    pattern: str, name: str, turns: int | None, tools: int, prompts: int
) -> None:
    found, each = read(corpus(f"b_other_agents/{pattern}"))
    assert (found, each.turns, each.tool_calls, each.prompts) == (name, turns, tools, prompts)
    assert (each.tokens.input, each.tokens.output) == (None, None)


def test_nothing_of_the_corpus_is_claimed_for_another_harness() -> None:
    """A folder has the formats of its harness, and the exports that session searchers made of it."""
    own = {
        "a_claude": {"claude-code"},
        "a_claude_records": {"claude-code"},
        "b_aider": {"exported"},
        "b_codex": {"codex-rollout", "codex-exec", "exported"},
        "b_cursor": {"cursor-transcript", "cursor-composer", "exported"},
        "b_hermes": {"hermes"},
        "b_openhands": {"openhands-evaluation", "openhands-call", "openhands-trajectory"},
        "b_other_agents": {"copilot", "droid", "exported", "grok", "hail", "kimi"},
        "b_traj": {"swe-agent", "mini-swe-agent"},
    }
    ours = {each.format for each in known()[0] if each.__module__.rpartition(".")[2] in MODULES}
    corpus("README.md")
    for path in sorted(CORPUS.rglob("*")):
        folder = path.relative_to(CORPUS).parts[0]
        if not path.is_file() or folder in ("d_md", "e_batch") or path.parent == CORPUS:
            continue
        data = path.read_bytes()
        found = format_of(data, str(path))
        if folder in own:
            assert found in own[folder] | {None}, path
        elif folder == "c_streamjson_other" and "amp_stream" in path.name:
            assert found == "amp"
        else:
            assert found not in ours - {"exported"}, path
        store = store_of(path)
        assert store is None or store.__module__.rpartition(".")[2] not in MODULES, path


MODULES = ("aider", "atif", "copilot", "cursor", "hermes", "kimi", "mini", "openhands", "others", "swe_agent")


def test_a_directory_of_anything_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    assert store_of(tmp_path) is None
