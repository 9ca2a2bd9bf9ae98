"""Records of Claude Code, small ones of our own."""

from __future__ import annotations

from typing import Any


def assistant(
    key: str | None = "m1",
    request: str | None = "r1",
    *,
    output: int | None = 5,
    fresh: int = 10,
    created: int = 0,
    cached: int = 0,
    side: bool = False,
    tool: str | None = None,
    stop: str | None = "end_turn",
    at: str = "2026-03-01T10:00:00Z",
    session: str = "s1",
    model: str = "claude-opus-4-6",
    **more: Any,
) -> dict[str, Any]:
    usage = {"input_tokens": fresh, "cache_creation_input_tokens": created, "cache_read_input_tokens": cached}
    block = {"type": "text", "text": "hello"}
    if tool is not None:
        block = {"type": "tool_use", "id": tool, "name": "Bash", "input": {"command": "ls"}}
    message: dict[str, Any] = {"role": "assistant", "model": model, "content": [block], "stop_reason": stop}
    if key is not None:
        message["id"] = key
    if output is not None:
        message["usage"] = usage | {"output_tokens": output}
    record = {
        "type": "assistant",
        "uuid": f"u-{key}-{request}-{tool}-{output}",
        "sessionId": session,
        "isSidechain": side,
        "timestamp": at,
        "message": message,
        **more,
    }
    if request is not None:
        record["requestId"] = request
    return record


def answered(tool: str, failed: bool | None = None, **more: Any) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": tool, "content": "done"}
    if failed is not None:
        block["is_error"] = failed
    return {
        "type": "user",
        "uuid": f"u-{tool}",
        "sessionId": "s1",
        "isSidechain": False,
        "timestamp": "2026-03-01T10:00:01Z",
        "message": {"role": "user", "content": [block]},
        **more,
    }


def prompt(text: str = "go", uuid: str = "p1") -> dict[str, Any]:
    return {
        "type": "user",
        "uuid": uuid,
        "sessionId": "s1",
        "isSidechain": False,
        "timestamp": "2026-03-01T09:59:00Z",
        "message": {"role": "user", "content": text},
    }


def result(**more: Any) -> dict[str, Any]:
    return {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "num_turns": 1,
        "result": "ok",
        "session_id": "s1",
        **more,
    }
