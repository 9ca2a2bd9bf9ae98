"""Formats with few numbers or none: Amp, Factory Droid, Grok, HAIL, and what session searchers export.

What they do that a count has to know:

- Amp streams as Claude Code does, but its messages have no id; its sessions
  are called ``T-``.
- Droid's records have ids; its tokens are in another file.
- Grok's responses have neither ids nor times: those that say the same count once.
- HAIL is the record of another harness, converted; its totals are 0 where
  that one's were not read.
- Exports in the manner of Claude Code (``agentSlug``) have texts alone, and
  tools as records of their own.
"""

from __future__ import annotations

from typing import Any, ClassVar

from adapters.transcripts.events import (
    Call,
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
)
from adapters.transcripts.reader import Head, LineReader, count, instant, mapping, words
from adapters.transcripts.readers.claude_code import ClaudeCode
from adapters.transcripts.readers.keys import own
from adapters.transcripts.readers.litellm import known


class Amp(ClaudeCode):
    """``amp --execute --stream-json``."""

    format: ClassVar[str] = "amp"

    @classmethod
    def claims(cls, head: Head) -> int:
        kinds = ("system", "assistant", "user", "result")
        own_ = (str(o.get("session_id", "")).startswith("T-") for o in head.records if o.get("type") in kinds)
        return 80 if any(own_) else 0

    def record(self, o: dict[str, Any], line: int, out: list[Event]) -> None:
        message = o.get("message")
        if o.get("type") == "assistant" and type(message) is dict and not message.get("id"):
            message["id"] = own(o)
        out.append(Opened(harness="amp"))
        super().record(o, line, out)


class _Blocks(LineReader):
    """Messages whose content is blocks of text, ``tool_use`` and ``tool_result``."""

    def message(self, key: str, at: str | None, message: dict[str, Any], out: list[Event]) -> None:
        content = message.get("content")
        blocks = content if type(content) is list else [{"type": "text", "text": content}]
        if message.get("role") == "assistant":
            out.append(Call(key, None, at, words(message.get("model")), None))
        results = False
        for place, block in enumerate(each for each in blocks if type(each) is dict):
            match block.get("type"):
                case "tool_use":
                    asked = block.get("input") if self.content else None
                    tool = words(block.get("id")) or f"{key}.{place}"
                    out.append(ToolCall(tool, at, str(block.get("name")), asked, key))
                case "tool_result":
                    results = True
                    failed = block.get("is_error")
                    result = block.get("content") if self.content else None
                    judged = failed if type(failed) is bool else None
                    out.append(ToolResult(str(block.get("tool_use_id")), at, result, judged))
                case "text" | "thinking" as kind if self.content and message.get("role") == "assistant":
                    text = words(block.get(kind))
                    if text:
                        out.append(Said(key, at, text, thought=kind == "thinking"))
                case _:
                    pass
        if message.get("role") == "user" and not results:
            out.append(Prompt(key, at, content if self.content else None))


class Droid(_Blocks):
    """A session of Factory Droid."""

    format: ClassVar[str] = "droid"

    @classmethod
    def claims(cls, head: Head) -> int:
        starts = (o for o in head.records if o.get("type") == "session_start")
        return 80 if any("id" in o and ("owner" in o or "sessionTitle" in o) for o in starts) else 0

    def record(self, o: dict[str, Any], line: int, out: list[Event]) -> None:
        at = instant(o.get("timestamp"))
        self.saw(at)
        if o.get("type") == "session_start":
            title = words(o.get("sessionTitle")) or words(o.get("title"))
            version = words(o.get("version"))
            out.append(Opened(words(o.get("id")), "droid", version, cwd=words(o.get("cwd")), title=title))
        elif o.get("type") == "message":
            self.message(words(o.get("id")) or own(o), at, mapping(o.get("message")), out)


class Exported(_Blocks):
    """A session of any harness as a session searcher writes it."""

    format: ClassVar[str] = "exported"

    @classmethod
    def claims(cls, head: Head) -> int:
        return 70 if any(cls._is_own(o) for o in head.records) else 0

    @staticmethod
    def _is_own(o: dict[str, Any]) -> bool:
        named = words(o.get("agentSlug")) or (words(o.get("agent")) if "workspace" in o else None)
        known_ = o.get("type") in ("user", "assistant", "tool") and "sessionId" in o and "uuid" in o
        return (
            named is not None
            and not named.startswith("claude")
            and known_
            and type(o.get("message")) is dict
            and "requestId" not in o
        )

    def record(self, o: dict[str, Any], line: int, out: list[Event]) -> None:
        at = instant(o.get("timestamp"))
        self.saw(at)
        key, message = words(o.get("uuid")) or own(o), mapping(o.get("message"))
        out.append(
            Opened(
                words(o.get("sessionId")),
                (words(o.get("agentSlug")) or words(o.get("agent")) or "").replace("_", "-") or None,
                words(o.get("version")),
                cwd=words(o.get("cwd")) or words(o.get("workspace")),
            )
        )
        if o.get("type") == "tool":
            asked, result = message.get("tool_input"), message.get("tool_output")
            name = str(message.get("tool_name"))
            out.append(ToolCall(key, at, name, asked if self.content else None, None))
            status = words(message.get("status"))
            failed = status != "success" if status else None
            out.append(ToolResult(key, at, result if self.content else None, failed))
        else:
            self.message(key, at, message, out)


class Grok(LineReader):
    """``chat_history.jsonl`` of Grok."""

    format: ClassVar[str] = "grok"

    def __init__(self, content: bool = True) -> None:
        super().__init__(content)
        self._begun = False
        self._thoughts: list[str] = []

    @classmethod
    def claims(cls, head: Head) -> int:
        for o in head.records:
            if o.get("type") == "assistant" and "model_id" in o and "message" not in o:
                return 85
            if o.get("type") == "backend_tool_call" and type(o.get("kind")) is dict:
                return 80
        return 0

    def record(self, o: dict[str, Any], line: int, out: list[Event]) -> None:
        if not self._begun:
            self._begun = True
            out += (Opened(harness="grok"), Silent("turns"))
        match o.get("type"):
            case "user" | "system" as kind:
                by = "system" if kind == "system" or "synthetic_reason" in o else "user"
                out.append(Prompt(own(o), None, o.get("content") if self.content else None, by=by))
            case "reasoning" if self.content:
                texts = (words(mapping(each).get("text")) for each in o.get("summary") or ())
                self._thoughts += [text for text in texts if text]
            case "assistant":
                self._answer(o, out)
            case "tool_result":
                result = o.get("content") if self.content else None
                out.append(ToolResult(str(o.get("tool_call_id")), None, result, None))
            case "backend_tool_call":
                kind = mapping(o.get("kind"))
                asked = kind.get("action") if self.content else None
                key = words(kind.get("id")) or own(o)
                out.append(ToolCall(key, None, str(kind.get("tool_type")), asked, None, server=True))
            case _:
                pass

    def _answer(self, o: dict[str, Any], out: list[Event]) -> None:
        tools = [each for each in o.get("tool_calls") or () if type(each) is dict]
        key = (words(tools[0].get("id")) if tools else None) or own(o)
        model = words(o.get("model_id"))
        out += (Opened(model=model), Call(key, None, None, model, None))
        out += (Said(key, None, thought, thought=True) for thought in self._thoughts)
        self._thoughts.clear()
        text = words(o.get("content"))
        if self.content and text:
            out.append(Said(key, None, text))
        for nth, tool in enumerate(tools):
            name = words(tool.get("id")) or f"{key}.{nth}"
            asked = tool.get("arguments") if self.content else None
            out.append(ToolCall(name, None, str(tool.get("name")), asked, key))


_TALK = frozenset(
    (
        "AgentMessage",
        "Custom",
        "SystemMessage",
        "TaskEnd",
        "TaskStart",
        "Thinking",
        "ToolResult",
        "UserMessage",
    )
)


class Hail(LineReader):
    """A session as HAIL has it: a header, events, statistics."""

    format: ClassVar[str] = "hail"

    @classmethod
    def claims(cls, head: Head) -> int:
        own_ = (
            str(o.get("version", "")).startswith("hail-") for o in head.records if o.get("type") == "header"
        )
        return 95 if any(own_) else 0

    def record(self, o: dict[str, Any], line: int, out: list[Event]) -> None:
        at = instant(o.get("timestamp"))
        self.saw(at)
        match o.get("type"):
            case "header":
                agent, context = mapping(o.get("agent")), mapping(o.get("context"))
                cwd = words(mapping(context.get("attributes")).get("cwd"))
                title, model = words(context.get("title")), words(agent.get("model"))
                version = words(agent.get("tool_version"))
                out.append(
                    Opened(words(o.get("session_id")), words(agent.get("tool")), version, model, cwd, title)
                )
                out.append(Silent("turns"))
            case "event":
                self._event(words(o.get("event_id")) or own(o), mapping(o.get("event_type")), o, at, out)
            case "stats":
                tokens = Tokens(
                    fresh=count(o.get("total_input_tokens")), output=count(o.get("total_output_tokens"))
                )
                if known(tokens):
                    out.append(Counter("session", at, tokens))
            case _:
                pass

    def _event(
        self, key: str, kind: dict[str, Any], o: dict[str, Any], at: str | None, out: list[Event]
    ) -> None:
        name, data = str(kind.get("type")), mapping(kind.get("data"))
        blocks = mapping(o.get("content")).get("blocks") if self.content else None
        texts = (words(mapping(block).get("text")) for block in blocks or ())
        text = "\n".join(each for each in texts if each)
        if name == "UserMessage":
            out.append(Prompt(key, at, text if self.content else None))
        elif name in ("AgentMessage", "Thinking") and text:
            out.append(Said(key, at, text, thought=name == "Thinking"))
        elif name == "ToolResult":
            failed = data.get("is_error")
            asked = words(data.get("call_id"))
            if asked:
                out.append(ToolResult(asked, at, text or None, failed if type(failed) is bool else None))
        elif name == "TaskEnd":
            out.append(Ending("clean", "", words(data.get("summary")) or "", 0, at))
        elif name not in _TALK:
            out.append(
                ToolCall(key, at, words(data.get("name")) or name, data if self.content else None, None)
            )
