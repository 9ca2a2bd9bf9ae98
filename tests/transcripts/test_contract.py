"""Every reader that is installed keeps the contract of readers, on the real files of the corpus."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.transcripts import formats, sessions
from adapters.transcripts.reader import Reader
from adapters.transcripts.testing import ReaderContract
from tests.transcripts.conftest import SHARED
from tests.transcripts.counting import lines

CORPUS = SHARED / "corpus"

GEMINI = lines(
    {"type": "init", "timestamp": "2026-03-01T10:00:00Z", "session_id": "g1", "model": "gemini-2.5-pro"},
    {"type": "message", "role": "user", "content": "go"},
    {"type": "message", "role": "assistant", "content": "will ", "delta": True},
    {"type": "tool_use", "tool_name": "run_shell_command", "tool_id": "r1", "parameters": {"command": "ls"}},
    {"type": "tool_result", "tool_id": "r1", "status": "success", "output": ""},
    {
        "type": "result",
        "status": "success",
        "stats": {
            "total_tokens": 2155,
            "input_tokens": 2100,
            "output_tokens": 35,
            "cached": 1100,
            "input": 1000,
        },
    },
)
QWEN = lines(
    {
        "type": "system",
        "subtype": "init",
        "session_id": "q1",
        "model": "qwen3-coder",
        "qwen_code_version": "0.24.4",
    },
    {
        "type": "assistant",
        "session_id": "q1",
        "message": {
            "id": "m1",
            "type": "message",
            "role": "assistant",
            "model": "qwen3-coder",
            "content": [{"type": "text", "text": "hello"}],
            "usage": {
                "input_tokens": 2100,
                "output_tokens": 55,
                "cache_read_input_tokens": 1100,
                "total_tokens": 2155,
            },
        },
    },
    {
        "type": "result",
        "subtype": "success",
        "session_id": "q1",
        "is_error": False,
        "num_turns": 1,
        "result": "done",
        "usage": {
            "input_tokens": 2100,
            "output_tokens": 55,
            "cache_read_input_tokens": 1100,
            "total_tokens": 2155,
        },
    },
)
CURSOR = lines(
    {
        "type": "system",
        "subtype": "init",
        "session_id": "c1",
        "model": "m",
        "permissionMode": "default",
        "apiKeySource": "env",
    },
    {
        "type": "tool_call",
        "subtype": "started",
        "call_id": "t1",
        "tool_call": {"shellToolCall": {"args": {"command": "ls"}}},
    },
    {
        "type": "tool_call",
        "subtype": "completed",
        "call_id": "t1",
        "tool_call": {"shellToolCall": {"result": {"success": {"exitCode": 0}}}},
    },
    {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "duration_ms": 5,
        "duration_api_ms": 5,
        "result": "ok",
        "session_id": "c1",
        "request_id": "r",
    },
)
ATIF = json.dumps(
    {
        "schema_version": "ATIF-v1.6",
        "session_id": "a1",
        "agent": {"name": "x", "version": "1", "model_name": "m"},
        "steps": [
            {"step_id": 1, "source": "user", "message": "go"},
            {
                "step_id": 2,
                "source": "agent",
                "message": "so",
                "tool_calls": [{"tool_call_id": "t1", "function_name": "bash", "arguments": {}}],
                "observation": {"results": [{"source_call_id": "t1", "content": "x"}]},
                "metrics": {"prompt_tokens": 10, "completion_tokens": 2, "cached_tokens": 4},
            },
        ],
    }
).encode()
AIDER = b"""
# aider chat started at 2026-03-01 10:00:00

#### fix it

Done.

> Tokens: 692 sent, 10 received. Cost: $0.01 message, $0.01 session.
"""

#: Small ones of our own, where the corpus has none.
OWN = {"gemini-stream": GEMINI, "qwen-stream": QWEN, "cursor-stream": CURSOR, "atif": ATIF, "aider": AIDER}

#: Tested in files of their own alone: they are read by the same code as another form that is tested here.
WITHOUT = {"aider-llm", "hermes-export", "hermes-usage", "openhands-stream"}


def samples() -> Iterator[tuple[type[Reader], list[bytes], str]]:
    """Of each format some files, the smallest and a larger one, or one of our own."""
    found: dict[type[Reader], list[Path]] = {}
    if CORPUS.is_dir():
        for each in sessions.find([CORPUS]):
            if isinstance(each, sessions.File):
                found.setdefault(each.reader, []).append(each.path)
    for reader, paths in found.items():
        paths.sort(key=lambda path: (path.stat().st_size, path))
        yield reader, [path.read_bytes() for path in (paths[0], paths[len(paths) // 2])], paths[0].name
    for reader in formats.known()[0]:
        if reader not in found and reader.format in OWN:
            yield (
                reader,
                [OWN[reader.format]],
                ".aider.chat.history.md" if reader.format == "aider" else "session",
            )


CASES = list(samples())


@pytest.mark.skipif(not CORPUS.is_dir() and not os.environ.get("CI"), reason="../shared/corpus is not here")
def test_every_reader_is_tested() -> None:
    tested = {reader.format for reader, _, _ in CASES}
    assert {reader.format for reader in formats.known()[0]} - tested <= WITHOUT


@pytest.mark.parametrize(("reader", "data", "name"), CASES, ids=[reader.format for reader, _, _ in CASES])
@pytest.mark.parametrize("rule", [name for name in dir(ReaderContract) if name.startswith("test_")])
def test_contract(reader: type[Reader], data: list[bytes], name: str, rule: str) -> None:
    contract = ReaderContract()
    contract.reader = reader  # type: ignore[misc]
    contract.samples = data  # type: ignore[misc]
    contract.name = name  # type: ignore[misc]
    contract.repeats = reader.format != "aider"  # type: ignore[misc]  # it reads prose
    contract.unordered = reader.format == "claude-code"  # type: ignore[misc]
    getattr(contract, rule)()
