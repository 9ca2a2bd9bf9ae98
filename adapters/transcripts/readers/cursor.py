"""Cursor: ``-p --output-format stream-json``, agent transcripts, and conversations of the editor.

What the formats do that a count has to know:

- No format shows its model calls, and one response may be cut into several
  pieces: calls that have a name are a lower bound.
- In a stream a tool call is two events with one ``call_id``; tokens stand in
  ``result``, in newer builds alone, in parts that do not overlap.
- When it fails it writes no ``result`` at all.
- Records of a transcript have neither id nor time. What says the same is
  taken for the same, so its counts are lower bounds.
- A bubble of the editor has ``tokenCount``, 0/0 where nobody counted.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from adapters.transcripts.events import (
    Call,
    Counted,
    Counter,
    Ending,
    Event,
    Opened,
    Prompt,
    Said,
    Silent,
    Tokens,
    ToolCall,
    ToolResult,
    Turn,
)
from adapters.transcripts.lines import Malformed, parse
from adapters.transcripts.reader import (
    DocumentReader,
    Head,
    LineReader,
    Span,
    count,
    instant,
    mapping,
    money,
    words,
)
from adapters.transcripts.readers.endings import by_status
from adapters.transcripts.readers.keys import own
from adapters.transcripts.readers.litellm import known

_STATUS = re.compile(r"\b(401|403|429|5\d\d)\b")


class Stream(LineReader):
    """``cursor-agent -p --output-format stream-json``."""

    format: ClassVar[str] = "cursor-stream"

    def __init__(self, content: bool = True) -> None:
        super().__init__(content)
        self._session: str | None = None
        self._begun = False

    @classmethod
    def claims(cls, head: Head) -> int:
        sure = 0
        for o in head.records:
            kind, subtype = o.get("type"), o.get("subtype")
            if kind == "tool_call" and subtype in ("started", "completed") and "call_id" in o:
                return 90
            if kind == "system" and subtype == "init" and o.keys() >= {"apiKeySource", "permissionMode"}:
                # Claude Code's names its tools and has an id.
                sure = max(sure, 0 if "tools" in o or "uuid" in o else 75)
            elif kind == "result" and "request_id" in o and "uuid" not in o and "num_turns" not in o:
                sure = max(sure, 65)
        return sure

    def record(self, o: dict[str, Any], line: int, out: list[Event]) -> None:
        at = instant(o.get("timestamp_ms"))
        self.saw(at)
        if not self._begun:
            self._begun = True
            out += (Opened(harness="cursor"), Silent("turns"))
        session = words(o.get("session_id"))
        if session and session != self._session:
            self._session = session
            out.append(Opened(session=session))
        call = words(o.get("model_call_id"))
        if call:
            out.append(Call(call, None, at, None, None))
        match o.get("type"):
            case "system":
                out.append(Opened(model=words(o.get("model")), cwd=words(o.get("cwd"))))
            case "user":
                text = _text(mapping(o.get("message")).get("content"))
                out.append(Prompt(own(session, text, at), at, text if self.content else None))
            case "assistant":
                text = _text(mapping(o.get("message")).get("content")) if self.content else ""
                if text:
                    out.append(Said(call or "", at, text))
            case "thinking":
                thought = words(o.get("text"))
                if self.content and thought:
                    out.append(Said(call or "", at, thought, thought=True))
            case "tool_call":
                self._tool(o, call, at, out)
            case "result":
                self._result(o, at, out)
            case _:
                pass

    def _tool(self, o: dict[str, Any], call: str | None, at: str | None, out: list[Event]) -> None:
        name, body = _named(o)
        arguments = body.get("args")
        key = words(o.get("call_id")) or own(name, arguments)
        asked = arguments if self.content else None
        if name == "mcp":
            name = words(mapping(arguments).get("toolName")) or words(mapping(arguments).get("name")) or name
        out.append(ToolCall(key, at, name, asked, call))
        if o.get("subtype") == "completed":
            result = body.get("result")
            out.append(ToolResult(key, at, result if self.content else None, _failed(result)))

    def _result(self, o: dict[str, Any], at: str | None, out: list[Event]) -> None:
        usage = mapping(o.get("usage"))
        if usage:
            tokens = Tokens(
                count(usage.get("inputTokens")),
                count(usage.get("cacheReadTokens")),
                count(usage.get("cacheWriteTokens")),
                count(usage.get("outputTokens")),
            )
            out.append(Turn(words(o.get("request_id")) or own(o), at, tokens))
        text = words(o.get("result")) or str(o.get("subtype"))
        if o.get("is_error") or o.get("subtype") != "success":
            found = _STATUS.search(text)
            kind, code = by_status(int(found.group(1))) if found else ("provider", "error")
            out.append(Ending(kind, code, text, 1, at))
        else:
            out.append(Ending("clean", "", text, 1, at))


def _named(o: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A tool's name and what it was asked: ``{"shellToolCall": {..}}``, or the case and value of it."""
    tool = mapping(o.get("tool_call"))
    case = mapping(tool.get("tool")) or mapping(o.get("tool"))
    if words(case.get("case")):
        return str(case["case"]).removesuffix("ToolCall"), mapping(case.get("value"))
    for name, body in tool.items():
        if type(body) is dict:
            return name.removesuffix("ToolCall"), body
    return "tool", {}


def _failed(result: object) -> bool | None:
    outcome = mapping(result)
    if "success" in outcome:
        code = mapping(outcome["success"]).get("exitCode")
        return type(code) is int and code != 0
    return True if outcome else None


class Transcript(LineReader):
    """``agent-transcripts/*.jsonl``: what was said, and the tools that were asked for."""

    format: ClassVar[str] = "cursor-transcript"

    def __init__(self, content: bool = True) -> None:
        super().__init__(content)
        self._begun = False

    @classmethod
    def claims(cls, head: Head) -> int:
        said = [o for o in head.records if _is_said(o)]
        others = [o for o in head.records if not _is_said(o) and o.get("type") != "turn_ended"]
        return 70 if said and not others else 0

    def record(self, o: dict[str, Any], line: int, out: list[Event]) -> None:
        if not self._begun:
            self._begun = True
            out += (Opened(harness="cursor"), Silent("turns"), Silent("tool calls"))
        if o.get("type") == "turn_ended":
            out.append(_ended(words(o.get("status")) or "", words(o.get("error")) or ""))
            return
        blocks = [each for each in mapping(o.get("message")).get("content") or () if type(each) is dict]
        key = own(o)
        if o.get("role") == "assistant":
            out.append(Call(key, None, None, None, None))
            self._answer(key, blocks, out)
        elif o.get("role") == "user":
            results = [block for block in blocks if block.get("type") == "tool_result"]
            for block in results:
                result = block.get("content") if self.content else None
                failed = block.get("is_error")
                out.append(
                    ToolResult(
                        str(block.get("tool_use_id")), None, result, failed if type(failed) is bool else None
                    )
                )
            if not results:
                out.append(Prompt(key, None, _text(blocks) if self.content else None))

    def _answer(self, key: str, blocks: list[dict[str, Any]], out: list[Event]) -> None:
        for place, block in enumerate(blocks):
            if block.get("type") == "tool_use":
                asked = block.get("input") if self.content else None
                tool = words(block.get("id")) or f"{key}.{place}"
                out.append(ToolCall(tool, None, str(block.get("name")), asked, key))
            elif self.content:
                thought = block.get("type") == "thinking"
                text = words(block.get("thinking" if thought else "text"))
                if text:
                    out.append(Said(key, None, text, thought=thought))


def _is_said(o: dict[str, Any]) -> bool:
    content = mapping(o.get("message")).get("content")
    return (
        o.get("role") in ("user", "assistant") and type(content) is list and "type" not in o and "id" not in o
    )


def _ended(status: str, error: str) -> Ending:
    if status in ("success", "completed"):
        return Ending("clean", "", status, 1)
    if status in ("aborted", "cancelled", "canceled", "interrupted"):
        return Ending("interrupt", status, error or status, 1)
    found = _STATUS.search(error)
    kind, code = by_status(int(found.group(1))) if found else ("provider", status or "error")
    return Ending(kind, code, error or status, 1)


class Composer(DocumentReader):
    """A conversation of the editor: ``composerData``, its bubbles, or both, as they are exported."""

    format: ClassVar[str] = "cursor-composer"

    @classmethod
    def claims(cls, head: Head) -> int:
        value = mapping(head.document)
        composer = mapping(value.get("composer_data")) or value
        if "fullConversationHeadersOnly" in composer or (
            "composerId" in composer and "conversation" in composer
        ):
            return 90
        return 90 if value and all(name.startswith("bubbleId:") for name in value) else 0

    def document(self, value: Any, out: list[Event]) -> None:
        composer = mapping(value.get("composer_data")) or value
        span = Span()
        for name in ("createdAt", "lastUpdatedAt"):
            span.saw(instant(composer.get(name)))
        name = words(composer.get("composerId")) or str(value.get("composer_key", "")).partition(":")[2]
        model = words(mapping(composer.get("modelConfig")).get("modelName"))
        out += (
            Opened(name or None, "cursor", model=model, title=words(composer.get("name"))),
            Silent("turns"),
            Silent("tool calls"),
        )
        bubbles = _bubbles(value, composer)
        for key, bubble in bubbles:
            at = span.saw(instant(bubble.get("createdAt", bubble.get("timestamp"))))
            self._bubble(key, bubble, at, out)
        for header in composer.get("fullConversationHeadersOnly") or ():
            out.append(Counted("bubbles", str(mapping(header).get("bubbleId"))))
        cents = [
            money(mapping(each).get("costInCents")) for each in mapping(composer.get("usageData")).values()
        ]
        if any(cents):
            out.append(Counter("composer", None, None, (), sum(each or 0.0 for each in cents) / 100))
        out.append(span.read(len(bubbles)))

    def _bubble(self, key: str, bubble: dict[str, Any], at: str | None, out: list[Event]) -> None:
        text = words(bubble.get("text")) or words(bubble.get("rawText")) or words(bubble.get("content"))
        if bubble.get("type") == 1:
            out.append(Prompt(key, at, text if self.content else None))
            return
        usage = mapping(bubble.get("tokenCount"))
        tokens = Tokens(fresh=count(usage.get("inputTokens")), output=count(usage.get("outputTokens")))
        if known(tokens):
            model = words(mapping(bubble.get("modelInfo")).get("modelName")) or words(bubble.get("modelType"))
            out.append(Call(key, None, at, model, tokens))
        if self.content and text:
            out.append(Said(key, at, text))
        tool = mapping(bubble.get("toolFormerData"))
        if words(tool.get("name")):
            asked = _value(tool.get("rawArgs", tool.get("params"))) if self.content else None
            out.append(ToolCall(words(tool.get("toolCallId")) or key, at, tool["name"], asked, key))
            status = tool.get("status")
            if status in ("completed", "error", "cancelled"):
                result = _value(tool.get("result")) if self.content else None
                out.append(
                    ToolResult(words(tool.get("toolCallId")) or key, at, result, status != "completed")
                )


def _bubbles(value: dict[str, Any], composer: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The bubbles of a document, by their id."""
    rows = value.get("bubble_rows")
    found: list[tuple[object, object]] = [
        (name, each) for name, each in value.items() if name.startswith("bubbleId:")
    ]
    found += [
        (mapping(row).get("key"), mapping(row).get("value")) for row in (rows if type(rows) is list else ())
    ]
    inline = composer.get("conversation")
    found += [(mapping(each).get("bubbleId"), each) for each in (inline if type(inline) is list else ())]
    return [
        (words(each.get("bubbleId")) or str(name).rpartition(":")[2], each)
        for name, each in found
        if type(each) is dict
    ]


def _text(content: object) -> str:
    if type(content) is str:
        return content
    texts = (each.get("text") for each in content if type(each) is dict) if type(content) is list else ()
    return "\n".join(text for text in texts if type(text) is str)


def _value(value: object) -> object:
    """JSON in a string; anything else as it is."""
    if type(value) is str:
        try:
            return parse(value.encode("utf-8", "surrogatepass"))
        except Malformed:
            return value
    return value
