"""Whatever stands in a field, nothing escapes from a reader; and each real file goes to its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from adapters.transcripts.account import Account
from adapters.transcripts.formats import HEAD, head_of, reader_of, store_of
from adapters.transcripts.reader import Reader
from adapters.transcripts.readers import gemini, opencode, pi, qwen

AT = {"timestamp": "2026-01-01T00:00:00.000Z"}
MADE = {"created": 1700000000000, "updated": 1700000000001, "start": 1700000000000}
FILE = {"id": "i", "sessionID": "s", "messageID": "m", "time": MADE}
CACHED = {"input": 9, "output": 2, "reasoning": 1, "cache": {"read": 1, "write": 1}}
STATE = {
    "status": "completed",
    "input": {},
    "output": "",
    "metadata": {"exit": 1, "sessionId": "c"},
    "time": MADE,
}
STEP = FILE | {"type": "step-finish", "reason": "stop", "tokens": CACHED, "cost": 0.5}
TOOL = FILE | {"type": "tool", "callID": "c", "tool": "task", "state": STATE}
ANSWER = FILE | {"role": "assistant", "modelID": "m", "tokens": CACHED, "cost": 1, "summary": True}
FAILED = ANSWER | {"tokens": {}, "error": {"name": "APIError", "data": {"message": "m", "statusCode": 429}}}
EXPORT = {
    "info": {"id": "s", "directory": "/", "time": MADE},
    "messages": [{"info": ANSWER, "parts": [STEP, TOOL]}],
}
RUN = {"sessionID": "s", "timestamp": 1700000000000}
TOLD = AT | {"id": "g", "type": "gemini", "content": [{"text": "x"}], "thoughts": [{"subject": "s"}]}
USED = {"input": 9, "output": 2, "cached": 1, "thoughts": 1, "tool": 1, "total": 13}
ASKED = TOLD | {"tokens": USED, "toolCalls": [{"id": "t", "name": "n", "status": "error", "result": []}]}
GEMINI = {"sessionId": "s", "startTime": "x", "lastUpdated": "x", "kind": "main", "messages": [ASKED]}
STATS = {"total_tokens": 9, "input_tokens": 7, "output_tokens": 1, "cached": 1}
CHAT = AT | {"uuid": "u", "sessionId": "s", "forkedFrom": {"sessionId": "f"}}
PARTS = {
    "parts": [{"text": "x"}, {"functionCall": {"id": "c", "args": {}}}, {"functionResponse": {"id": "c"}}]
}
META = {"promptTokenCount": 9, "candidatesTokenCount": 2, "thoughtsTokenCount": 1, "totalTokenCount": 12}
TELEMETRY = {"uiEvent": {"event.name": "qwen-code.api_response", "input_token_count": 9, "model": "m"}}
LINE = AT | {"session_id": "s", "uuid": "u"}
BLOCKS = [
    {"type": "text", "text": "x"},
    {"type": "tool_use", "id": "t", "input": {}},
    {"type": "tool_result"},
]
COUNTS = {"input_tokens": 9, "output_tokens": 2, "cache_read_input_tokens": 1, "total_tokens": 11}
PRICED = {"input": 9, "output": 2, "cacheRead": 1, "cacheWrite": 1, "cost": {"total": 1}}
CONTENT = [{"type": "toolCall", "id": "t", "arguments": {}}, {"type": "thinking", "thinking": "x"}]
PI = {
    "role": "assistant",
    "content": CONTENT,
    "usage": PRICED,
    "stopReason": "error",
    "errorMessage": "e",
} | AT
RESULT = {"role": "toolResult", "toolCallId": "t", "isError": True, "content": []} | AT

#: Records of which each field is replaced by what nobody expects there.
SAMPLES: dict[type[Reader], list[dict[str, Any]]] = {
    opencode.Run: [
        RUN | {"type": "step_finish", "part": STEP},
        RUN | {"type": "tool_use", "part": TOOL},
        RUN | {"type": "error", "error": FAILED["error"]},
        ANSWER | {"tool_calls": [{"id": "t", "name": "n", "arguments": {}}], "content": "x"},
    ],
    opencode.Export: [EXPORT, STEP, TOOL, ANSWER, FAILED, EXPORT["info"]],
    gemini.Document: [GEMINI, ASKED],
    gemini.Log: [
        GEMINI,
        ASKED,
        {"$set": {"messages": [ASKED]}},
        TOLD | {"type": "error"},
        TOLD | {"type": "info"},
    ],
    gemini.Stream: [
        AT | {"type": "result", "status": "error", "error": {"type": "x", "message": "m"}, "stats": STATS},
        AT | {"type": "result", "status": "success", "stats": STATS | {"models": {"m": STATS}}},
        AT | {"type": "tool_use", "tool_name": "n", "tool_id": "t", "parameters": {}},
        AT | {"type": "message", "role": "user", "content": "x"},
    ],
    qwen.Chat: [
        CHAT | {"type": "assistant", "message": PARTS, "usageMetadata": META},
        CHAT | {"type": "user", "message": PARTS},
        CHAT | {"type": "tool_result", "message": PARTS, "toolCallResult": {"status": "error"}},
        CHAT | {"type": "system", "subtype": "ui_telemetry", "systemPayload": TELEMETRY, "forkedFrom": None},
    ],
    qwen.Stream: [
        LINE | {"type": "system", "subtype": "session_start", "data": {"protocol_version": 2, "cwd": "/"}},
        LINE | {"type": "assistant", "message": {"id": "m", "content": BLOCKS, "usage": COUNTS}},
        LINE | {"type": "user", "message": {"content": BLOCKS}},
        LINE
        | {"type": "result", "is_error": True, "error": {"message": "m"}, "usage": COUNTS, "num_turns": 1},
    ],
    qwen.Paw: [
        {
            "agent": {
                "_sys_prompt": "",
                "memory": {"content": [[AT | {"role": "assistant", "content": BLOCKS}, []]]},
            }
        }
    ],
    pi.Session: [
        AT | {"type": "message", "id": "i", "message": PI},
        AT | {"type": "message", "message": RESULT},
    ],
    pi.Stream: [
        {"type": "message_end", "message": PI},
        {"type": "turn_end", "message": PI, "toolResults": [RESULT]},
        {"type": "agent_end", "messages": [PI]},
        {"type": "compaction_end", "result": {"firstKeptEntryId": "x"}},
    ],
}
ODD = (
    None,
    True,
    0,
    -1,
    2**70,
    float("inf"),
    float("nan"),
    "",
    "x",
    "\ud800",
    [],
    [None],
    ["x"],
    [[]],
    [{}],
    {},
    {"x": 1},
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each container and key in a value, at all depths."""
    for key in (
        list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    ):
        yield value, key
        yield from places(value[key])


@pytest.mark.parametrize("reader", SAMPLES)
def test_nothing_escapes(reader: Any) -> None:
    for sample in SAMPLES[reader]:
        for place in range(len(list(places(sample)))):
            for odd in ODD:
                record = deepcopy(sample)
                holder, key = list(places(record))[place]
                holder[key] = odd
                data = json.dumps(record).encode() + b"\n"
                reader.claims(head_of("x", data, whole=True))
                account = Account()
                for content in (True, False):
                    each = reader(content)
                    account.add(each.feed(data))
                    account.add(each.close())
                account.figures()


OWN = {
    "b_opencode": {"opencode-run", "opencode-export"},
    "b_gemini": {"gemini-session", "gemini-log"},
    "b_qwen": {"qwen-chat", "qwenpaw"},
    "b_pi": {"pi-session", "exported"},
}


def test_no_file_of_another_harness_is_claimed(corpus: Path) -> None:
    formats = {each.format for each in SAMPLES} | {"opencode-files", "opencode-db"}
    for file in corpus.rglob("*"):
        folder = file.relative_to(corpus).parts[0]
        if file.is_dir() or folder in ("d_md", "e_batch") or "." in folder:
            continue
        assert store_of(file) is None
        with file.open("rb") as stream:
            data = stream.read(HEAD)
        found = reader_of(head_of(str(file), data, file.stat().st_size <= HEAD))
        if folder in OWN:
            assert found is not None, file
            assert found.format in OWN[folder], file
        elif found is not None and folder != "c_streamjson_other":
            assert found.format not in formats, file
