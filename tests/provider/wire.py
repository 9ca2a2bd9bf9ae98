"""Three protocols of model providers: how each says an answer.

Each protocol is a class with the same four methods; the server knows no more
of them. Numbers of usage are said as the real providers say them: Anthropic's
parts of the prompt do not overlap, OpenAI's input includes what was cached.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Protocol

from tests.provider.script import Step, Text, Thinking, Tool, Usage

#: An event of a stream: its name (None: it has none) and its data.
Event = tuple[str | None, Any]


class Wire(Protocol):
    """One protocol."""

    def opening(self, body: dict[str, Any]) -> str:
        """What was said before the model first answered: the lane of a conversation is told by it."""
        ...

    def stream(self, body: dict[str, Any], step: Step, name: str) -> Iterator[Event]:
        """The events of an answer; `name` is unique among all answers."""
        ...

    def whole(self, body: dict[str, Any], step: Step, name: str) -> Any:
        """The answer in one piece."""
        ...

    def error(self, status: int, text: str) -> Any:
        """An error's body."""
        ...

    def begun(self, usage: Usage) -> Usage:
        """The usage that a stream has said before its first block."""
        ...


class Anthropic:
    """Messages: ``POST …/v1/messages``."""

    def opening(self, body: dict[str, Any]) -> str:
        return _until_answered(body.get("messages"))

    def stream(self, body: dict[str, Any], step: Step, name: str) -> Iterator[Event]:
        message = self.whole(body, step, name)
        blocks = message["content"]
        start = {**message, "content": [], "stop_reason": None, "usage": self._usage(self.begun(step.usage))}
        yield "message_start", {"type": "message_start", "message": start}
        for index, block in enumerate(blocks):
            match block["type"]:
                case "text":
                    empty: dict[str, Any] = {**block, "text": ""}
                    deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
                case "thinking":
                    empty = {**block, "thinking": "", "signature": ""}
                    deltas = [
                        {"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"])
                    ]
                    deltas.append({"type": "signature_delta", "signature": block["signature"]})
                case _:
                    empty = {**block, "input": {}}
                    deltas = [
                        {"type": "input_json_delta", "partial_json": piece}
                        for piece in _pieces(json.dumps(block["input"]))
                    ]
            place = {"index": index}
            yield (
                "content_block_start",
                {"type": "content_block_start", **place, "content_block": empty},
            )
            for delta in deltas:
                yield "content_block_delta", {"type": "content_block_delta", **place, "delta": delta}
            yield "content_block_stop", {"type": "content_block_stop", **place}
        delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        yield "message_delta", {"type": "message_delta", "delta": delta, "usage": message["usage"]}
        yield "message_stop", {"type": "message_stop"}

    def whole(self, body: dict[str, Any], step: Step, name: str) -> Any:
        return {
            "id": f"msg_{name}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "content": [self._block(body, block, f"{name}_{n}") for n, block in enumerate(step.blocks)],
            "stop_reason": "tool_use" if step.asks else "end_turn",
            "stop_sequence": None,
            "usage": self._usage(step.usage),
        }

    def error(self, status: int, text: str) -> Any:
        kinds = {
            400: "invalid_request_error",
            401: "authentication_error",
            403: "permission_error",
            404: "not_found_error",
            429: "rate_limit_error",
            529: "overloaded_error",
        }
        return {"type": "error", "error": {"type": kinds.get(status, "api_error"), "message": text}}

    def begun(self, usage: Usage) -> Usage:
        return Usage(usage.fresh, usage.cached, usage.created, usage.created_1h, output=1)

    def _usage(self, usage: Usage) -> dict[str, Any]:
        return {
            "input_tokens": usage.fresh,
            "cache_read_input_tokens": usage.cached,
            "cache_creation_input_tokens": usage.created,
            "cache_creation": {
                "ephemeral_5m_input_tokens": usage.created - usage.created_1h,
                "ephemeral_1h_input_tokens": usage.created_1h,
            },
            "output_tokens": usage.output,
            "output_tokens_details": {"thinking_tokens": usage.reasoning},
            "service_tier": "standard",
        }

    def _block(self, body: dict[str, Any], block: Text | Thinking | Tool, name: str) -> dict[str, Any]:
        match block:
            case Text(text):
                return {"type": "text", "text": text}
            case Thinking(text):
                return {"type": "thinking", "thinking": text, "signature": f"sig{name}"}
            case Tool(tool):
                return {
                    "type": "tool_use",
                    "id": f"toolu_{name}",
                    "name": tool,
                    "input": dict(block.asked(body)),
                }


class Responses:
    """OpenAI Responses: ``POST …/v1/responses``."""

    def opening(self, body: dict[str, Any]) -> str:
        return _until_answered(body.get("input"))

    def stream(self, body: dict[str, Any], step: Step, name: str) -> Iterator[Event]:
        response = self.whole(body, step, name)
        begun = {**response, "status": "in_progress", "output": [], "usage": None}
        yield self._event("response.created", response=begun)
        for index, item in enumerate(response["output"]):
            place = {"output_index": index, "item_id": item["id"]}
            yield self._event("response.output_item.added", output_index=index, item=self._empty(item))
            if item["type"] == "message":
                for piece in _pieces(item["content"][0]["text"]):
                    yield self._event("response.output_text.delta", **place, content_index=0, delta=piece)
            yield self._event("response.output_item.done", output_index=index, item=item)
        yield self._event("response.completed", response=response)

    def whole(self, body: dict[str, Any], step: Step, name: str) -> Any:
        return {
            "id": f"resp_{name}",
            "object": "response",
            "status": "completed",
            "model": body.get("model"),
            "output": [self._item(body, block, f"{name}_{n}") for n, block in enumerate(step.blocks)],
            "usage": {
                "input_tokens": step.usage.input,
                "input_tokens_details": {
                    "cached_tokens": step.usage.cached,
                    "cache_write_tokens": step.usage.created,
                },
                "output_tokens": step.usage.output,
                "output_tokens_details": {"reasoning_tokens": step.usage.reasoning},
                "total_tokens": step.usage.input + step.usage.output,
            },
        }

    def error(self, status: int, text: str) -> Any:
        return _openai_error(status, text)

    def begun(self, usage: Usage) -> Usage:
        return Usage()

    def _event(self, kind: str, **data: Any) -> Event:
        return kind, {"type": kind, **data}

    def _empty(self, item: dict[str, Any]) -> dict[str, Any]:
        return {**item, "content": []} if item["type"] == "message" else item

    def _item(self, body: dict[str, Any], block: Text | Thinking | Tool, name: str) -> dict[str, Any]:
        match block:
            case Text(text):
                content = [{"type": "output_text", "text": text, "annotations": []}]
                return {"type": "message", "id": f"item_{name}", "role": "assistant", "content": content}
            case Thinking(text):
                summary = [{"type": "summary_text", "text": text}]
                return {"type": "reasoning", "id": f"item_{name}", "summary": summary}
            case Tool(tool):
                # A tool of a namespace is named NAMESPACE/TOOL in a script.
                space, _, tool = tool.rpartition("/")
                return {
                    "type": "function_call",
                    "id": f"item_{name}",
                    "call_id": f"call_{name}",
                    **({"namespace": space} if space else {}),
                    "name": tool,
                    "arguments": json.dumps(block.asked(body)),
                }


class Chat:
    """OpenAI chat completions: ``POST …/v1/chat/completions``."""

    def opening(self, body: dict[str, Any]) -> str:
        return _until_answered(body.get("messages"))

    def stream(self, body: dict[str, Any], step: Step, name: str) -> Iterator[Event]:
        whole = self.whole(body, step, name)
        (choice,) = whole.pop("choices")
        usage = whole.pop("usage")
        head = {**whole, "object": "chat.completion.chunk"}

        def chunk(delta: dict[str, Any], finish: str | None = None) -> Event:
            return None, {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

        message = choice["message"]
        yield chunk({"role": "assistant", "content": ""})
        for field in ("reasoning_content", "content"):
            for piece in _pieces(message.get(field) or ""):
                yield chunk({field: piece})
        for index, call in enumerate(message.get("tool_calls", ())):
            yield chunk({"tool_calls": [{"index": index, **call}]})
        yield chunk({}, choice["finish_reason"])
        yield None, {**head, "choices": [], "usage": usage}
        yield None, "[DONE]"

    def whole(self, body: dict[str, Any], step: Step, name: str) -> Any:
        calls = [
            {
                "id": f"call_{name}_{n}",
                "type": "function",
                "function": {"name": block.name, "arguments": json.dumps(block.asked(body))},
            }
            for n, block in enumerate(step.blocks)
            if isinstance(block, Tool)
        ]
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "\n".join(block.text for block in step.blocks if isinstance(block, Text)),
        }
        thought = "\n".join(block.text for block in step.blocks if isinstance(block, Thinking))
        if thought:
            message["reasoning_content"] = thought
        if calls:
            message["tool_calls"] = calls
        usage = step.usage
        return {
            "id": f"chatcmpl-{name}",
            "object": "chat.completion",
            "created": 1,
            "model": body.get("model"),
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
            "usage": {
                "prompt_tokens": usage.input,
                "prompt_tokens_details": {"cached_tokens": usage.cached},
                "completion_tokens": usage.output,
                "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
                "total_tokens": usage.input + usage.output,
            },
        }

    def error(self, status: int, text: str) -> Any:
        return _openai_error(status, text)

    def begun(self, usage: Usage) -> Usage:
        return Usage()


#: By the end of the address that is asked.
WIRES: dict[str, Wire] = {
    "/v1/messages": Anthropic(),
    "/v1/responses": Responses(),
    "/v1/chat/completions": Chat(),
}


def _until_answered(messages: Any) -> str:
    opening = []
    for message in messages or ():
        if message.get("role") == "assistant" or "call" in str(message.get("type")):
            break
        opening.append(json.dumps(message.get("content"), ensure_ascii=False))
    return "\n".join(opening)


def _openai_error(status: int, text: str) -> Any:
    codes = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": text, "type": kind, "code": codes.get(status)}}


def _pieces(text: str) -> list[str]:
    half = len(text) // 2
    return [piece for piece in (text[:half], text[half:]) if piece]
