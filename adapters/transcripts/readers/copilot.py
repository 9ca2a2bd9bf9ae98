"""Copilot CLI: ``events.jsonl`` of a session.

What the format does that a count has to know:

- A response is an ``assistant.message``, with its output alone; what went in
  is said once, when the program ends (``session.shutdown``), for each model.
- Input in ``modelMetrics`` includes cached tokens, in ``tokenDetails`` it
  does not. A session that was resumed has several of them, one for each
  start of the program.
- A tool is named by the response, by its start and by its end.
- What has a ``parentToolCallId`` was done by a sub-agent.
"""

from __future__ import annotations

from typing import Any, ClassVar

from adapters.transcripts.events import (
    Call,
    Compacted,
    Counted,
    Counter,
    Ending,
    Event,
    Opened,
    Prompt,
    Said,
    Tokens,
    ToolCall,
    ToolResult,
)
from adapters.transcripts.reader import Head, LineReader, count, instant, mapping, words
from adapters.transcripts.readers.endings import by_status
from adapters.transcripts.readers.litellm import known, split


class Copilot(LineReader):
    """One session of Copilot CLI."""

    format: ClassVar[str] = "copilot"

    def __init__(self, content: bool = True) -> None:
        super().__init__(content)
        self._model: str | None = None
        self._ending: Ending | None = None

    @classmethod
    def claims(cls, head: Head) -> int:
        for o in head.records:
            kind = o.get("type")
            if type(kind) is not str or type(o.get("data")) is not dict or "parentId" not in o:
                continue
            if kind.startswith(("session.", "assistant.", "user.message", "tool.execution_")):
                return 85
        return 0

    def record(self, o: dict[str, Any], line: int, out: list[Event]) -> None:
        at = instant(o.get("timestamp"))
        self.saw(at)
        data = mapping(o.get("data"))
        key = words(o.get("id")) or f"line {line}"
        side = words(data.get("parentToolCallId")) or ""
        match o.get("type"):
            case "session.start" | "session.resume":
                self._start(data, out)
            case "session.model_change":
                self._model = words(data.get("newModel")) or self._model
            case "user.message":
                out.append(Prompt(key, at, data.get("content") if self.content else None, side))
            case "assistant.message":
                self._message(data, key, at, side, out)
            case "tool.execution_start":
                tool = words(data.get("toolCallId")) or key
                asked = data.get("arguments") if self.content else None
                out.append(ToolCall(tool, at, str(data.get("toolName")), asked, None, side))
            case "tool.execution_complete":
                tool = words(data.get("toolCallId")) or key
                result = mapping(data.get("result")).get("content") if self.content else None
                success = data.get("success")
                out.append(ToolResult(tool, at, result, not success if type(success) is bool else None, side))
            case "session.compaction_complete":
                out.append(Compacted(key, at))
            case "session.truncation":
                out.append(Counted("truncations", key))
            case "subagent.started":
                out.append(Counted("sub-agents", words(data.get("toolCallId")) or key))
            case "session.shutdown":
                self._shutdown(data, at, out)
            case kind:
                self._ends(kind, data, at)

    def _start(self, data: dict[str, Any], out: list[Event]) -> None:
        self._model = words(data.get("selectedModel")) or self._model
        out.append(
            Opened(
                session=words(data.get("sessionId")),
                harness="copilot",
                version=words(data.get("copilotVersion")),
                model=words(data.get("selectedModel")),
                cwd=words(mapping(data.get("context")).get("cwd")),
            )
        )

    def _message(self, data: dict[str, Any], key: str, at: str | None, side: str, out: list[Event]) -> None:
        call = words(data.get("apiCallId")) or words(data.get("messageId")) or key
        model = words(data.get("model")) or (None if side else self._model)
        output = count(data.get("outputTokens"))
        out.append(Call(call, None, at, model, None if output is None else Tokens(output=output), side))
        if self.content:
            for name, thought in (("reasoningText", True), ("content", False)):
                text = words(data.get(name))
                if text:
                    out.append(Said(call, at, text, side, thought))
        for nth, tool in enumerate(data.get("toolRequests") or ()):
            asked = mapping(tool).get("arguments") if self.content else None
            name = words(mapping(tool).get("toolCallId")) or f"{key}.{nth}"
            out.append(ToolCall(name, at, str(mapping(tool).get("name")), asked, call, side))

    def _shutdown(self, data: dict[str, Any], at: str | None, out: list[Event]) -> None:
        models, calls = [], 0
        for name, each in mapping(data.get("modelMetrics")).items():
            requests = mapping(each).get("requests")
            calls += count(mapping(requests).get("count") if type(requests) is dict else requests) or 0
            usage = mapping(mapping(each).get("usage"))
            tokens = split(
                count(usage.get("inputTokens")),
                count(usage.get("cacheReadTokens")),
                count(usage.get("cacheWriteTokens")),
                count(usage.get("outputTokens")),
                count(usage.get("reasoningTokens")),
            )
            if known(tokens):
                models.append((name, tokens, None))
        details = mapping(data.get("tokenDetails"))
        parts = ("input", "cache_read", "cache_write", "output")
        whole = Tokens(*(count(mapping(details.get(part)).get("tokenCount")) for part in parts))
        start = f"start {data.get('sessionStartTime')}"
        out.append(
            Counter(
                start, at, None if models or not known(whole) else whole, tuple(models), None, calls or None
            )
        )
        if data.get("shutdownType") == "error":
            self._ending = Ending("crash", "error", words(data.get("errorReason")) or "error", 1, at)

    def _ends(self, kind: object, data: dict[str, Any], at: str | None) -> None:
        text = words(data.get("message")) or words(data.get("reason")) or ""
        if kind == "session.error":
            status = count(data.get("statusCode"))
            code = by_status(status) if status else ("provider", words(data.get("errorType")) or "error")
            self._ending = Ending(*code, text, 1, at)
        elif kind == "abort":
            self._ending = Ending("interrupt", "abort", text, 1, at)
        elif kind == "assistant.turn_end":
            self._ending = Ending("clean", "", "", 0, at)

    def ended(self, out: list[Event]) -> None:
        if self._ending is not None:
            out.append(self._ending)
