"""Qwen Code: chat files and ``-o stream-json``; and the sessions of QwenPaw, which is another program.

What the formats do that a count has to know:

- In a chat file an ``assistant`` record is one model call; the same uuid may
  come twice, its thoughts first and without usage. ``promptTokenCount``
  includes the cache. ``candidatesTokenCount`` includes the thoughts (the
  providers of OpenAI's protocol) or not (Gemini's): ``totalTokenCount`` tells.
- ``rewind`` begins a new branch; what the old one cost stays paid.
- A fork's copied records say ``forkedFrom``.
- A sub-agent's records stand in a file of their own, under the id of the
  session; they say ``agentId``. That file does not say how the session ended.
- ``ui_telemetry`` has an ``api_response`` for each answer of a provider, the
  calls without a record (titles, checks) among them: a second witness.
- The stream looks like Claude Code's and is not: input includes the cache,
  usage has ``total_tokens``, and of the several lines of one call only the
  last has usage; the others say 0.
- ``result.usage`` is that of the session so far, over a resume too.
- The stream shows no thoughts' tokens.
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
    Noted,
    Opened,
    Prompt,
    Said,
    Silent,
    Tokens,
    ToolCall,
    ToolResult,
)
from adapters.transcripts.reader import (
    Copies,
    DocumentReader,
    Head,
    LineReader,
    count,
    instant,
    mapping,
    minus,
    words,
)
from adapters.transcripts.readers.endings import failure
from adapters.transcripts.readers.keys import own


class Chat(LineReader):
    """A chat file, ``~/.qwen/projects/*/chats/*.jsonl``, or that of a sub-agent."""

    format: ClassVar[str] = "qwen-chat"
    copies: ClassVar[Copies] = "forked"

    def __init__(self, content: bool = True) -> None:
        super().__init__(content)
        self._session: str | None = None
        self._closing: Ending | None = None

    @classmethod
    def claims(cls, head: Head) -> int:
        for o in head.records:
            if isinstance(o.get("sessionId"), str) and isinstance(o.get("uuid"), str):
                parts = mapping(o.get("message")).get("parts")
                if isinstance(parts, list) or "systemPayload" in o or "usageMetadata" in o:
                    return 95
        return 0

    def record(self, o: dict[str, Any], line: int, out: list[Event]) -> None:
        at = instant(o.get("timestamp"))
        self.saw(at)
        session = words(o.get("sessionId"))
        if session != self._session and session is not None:
            self._session = session
            forked = words(mapping(o.get("forkedFrom")).get("sessionId"))
            out.append(
                Opened(
                    session=session,
                    harness="qwen-code",
                    version=words(o.get("version")),
                    cwd=words(o.get("cwd")),
                    inside=words(o.get("agentId")),
                    forked=forked,
                )
            )
        key = words(o.get("uuid")) or own(o)
        side = words(o.get("agentId")) or ""
        match o.get("type"):
            case "assistant":
                self._assistant(o, key, at, side, out)
            case "user":
                self._user(o, key, at, side, out)
            case "tool_result":
                self._result(o, key, at, side, out)
            case "system":
                self._system(o, key, at, out)
            case _:
                pass

    def _assistant(self, o: dict[str, Any], key: str, at: str | None, side: str, out: list[Event]) -> None:
        model, tokens = words(o.get("model")), _metadata(o.get("usageMetadata"))
        inherited = "forkedFrom" in o
        out.append(Call(key, None, at, model, tokens, side, inherited=inherited))
        self._closing = None if side else Ending("clean", "", "", 0, at)
        for place, part in enumerate(_parts(o)):
            asked = part.get("functionCall")
            if type(asked) is dict:
                self._closing = None
                tool = words(asked.get("id")) or f"{key}.{place}"
                arguments = asked.get("args") if self.content else None
                name = str(asked.get("name"))
                out.append(ToolCall(tool, at, name, arguments, key, side, inherited=inherited))
            elif self.content and type(part.get("text")) is str:
                out.append(Said(key, at, part["text"], side, part.get("thought") is True))

    def _user(self, o: dict[str, Any], key: str, at: str | None, side: str, out: list[Event]) -> None:
        self._closing = None
        text = None
        if self.content:
            text = "\n".join(part["text"] for part in _parts(o) if type(part.get("text")) is str)
        by = "user" if o.get("provenance") in (None, "real_user") else "system"
        out.append(Prompt(key, at, text, side, by, "forkedFrom" in o))

    def _result(self, o: dict[str, Any], key: str, at: str | None, side: str, out: list[Event]) -> None:
        result = mapping(o.get("toolCallResult"))
        status = result.get("status")
        failed = {"success": False, "error": True}.get(str(status))
        for place, part in enumerate(_parts(o)):
            given = part.get("functionResponse")
            if type(given) is dict:
                tool = words(given.get("id")) or words(result.get("callId")) or f"{key}.{place}"
                response = given.get("response") if self.content else None
                out.append(ToolResult(tool, at, response, failed, side))

    def _system(self, o: dict[str, Any], key: str, at: str | None, out: list[Event]) -> None:
        payload = mapping(o.get("systemPayload"))
        match o.get("subtype"):
            case "ui_telemetry" if "forkedFrom" not in o:
                self._telemetry(mapping(payload.get("uiEvent")), key, at, out)
            case "chat_compression" if "forkedFrom" not in o:
                out.append(Compacted(key, at))
            case "rewind" if "forkedFrom" not in o:
                out.append(Counted("rewinds", key))
            case "custom_title":
                out.append(Opened(title=words(payload.get("customTitle"))))
            case _:
                pass

    def _telemetry(self, event: dict[str, Any], key: str, at: str | None, out: list[Event]) -> None:
        match event.get("event.name"):
            case "qwen-code.api_response" if event.get("subagent_name") or event.get("subagentId"):
                out.append(Counted("answers to sub-agents", key))
                out.append(Noted("sub-agents made calls; what they used is in files of their own"))
            case "qwen-code.api_response":
                model, tokens = words(event.get("model")), _telemetered(event)
                if tokens is not None:
                    # Each is a stretch: so it counts in a fork too.
                    out.append(Counter("api", at, None, ((model or "", tokens, None),), calls=1, stretch=key))
            case "qwen-code.api_error":
                out.append(Counted("failed calls", key))
                text = words(event.get("error")) or words(event.get("error_message")) or "api_error"
                self._closing = failure(count(event.get("status_code")), text, at, 0)
            case _:
                pass

    def ended(self, out: list[Event]) -> None:
        if self._closing is not None:
            out.append(self._closing)


class Stream(LineReader):
    """The stream of ``qwen -o stream-json``, and what the terminal writes to ``--json-file``."""

    format: ClassVar[str] = "qwen-stream"

    def __init__(self, content: bool = True) -> None:
        super().__init__(content)
        self._session: str | None = None
        self._answers = 0
        self._counted = False

    @classmethod
    def claims(cls, head: Head) -> int:
        sure = 0
        for o in head.records:
            kind, subtype = o.get("type"), o.get("subtype")
            if not isinstance(o.get("session_id"), str):
                continue
            if kind == "system" and (
                "qwen_code_version" in o or (subtype == "session_start" and "protocol_version" in _data(o))
            ):
                return 95
            used = {"assistant": mapping(o.get("message")), "result": o}.get(str(kind), {}).get("usage")
            if "total_tokens" in mapping(used):
                sure = 80
        return sure

    def record(self, o: dict[str, Any], line: int, out: list[Event]) -> None:
        at = instant(o.get("timestamp"))
        self.saw(at)
        session = words(o.get("session_id"))
        if session != self._session and session is not None:
            self._session = session
            own = o | _data(o)
            out.append(
                Opened(
                    session=session,
                    harness="qwen-code",
                    version=words(own.get("qwen_code_version")),
                    model=words(own.get("model")),
                    cwd=words(own.get("cwd")),
                )
            )
        kind = o.get("type")
        if kind == "assistant":
            self._assistant(o, at, out)
        elif kind == "user":
            self._user(o, at, out)
        elif kind == "result":
            self._result(o, at, out)

    def _assistant(self, o: dict[str, Any], at: str | None, out: list[Event]) -> None:
        message = mapping(o.get("message"))
        key = words(message.get("id")) or words(o.get("uuid")) or own(o)
        side = words(o.get("parent_tool_use_id")) or ""
        tokens = _usage(message.get("usage"))
        self._answers += 1
        if tokens is not None:
            self._counted = True
            stop = words(message.get("stop_reason"))
            out.append(Call(key, None, at, words(message.get("model")), tokens, side, stop))
        content = message.get("content")
        if self.content and type(content) is str:
            out.append(Said(key, at, content, side))
        for place, block in enumerate(content if type(content) is list else ()):
            kind = block.get("type")
            if kind == "tool_use":
                tool = words(block.get("id")) or f"{key}.{place}"
                asked = block.get("input") if self.content else None
                out.append(ToolCall(tool, at, str(block.get("name")), asked, key, side))
            elif self.content and kind in ("text", "thinking") and type(block.get(kind)) is str:
                out.append(Said(key, at, block[kind], side, kind == "thinking"))

    def _user(self, o: dict[str, Any], at: str | None, out: list[Event]) -> None:
        side = words(o.get("parent_tool_use_id")) or ""
        content = mapping(o.get("message")).get("content")
        key = words(o.get("uuid")) or own(o)
        blocks = [block for block in content if type(block) is dict] if type(content) is list else []
        results = [block for block in blocks if block.get("type") == "tool_result"]
        for place, block in enumerate(results):
            tool = words(block.get("tool_use_id")) or f"{key}.{place}"
            given = block.get("content") if self.content else None
            out.append(ToolResult(tool, at, given, block.get("is_error") is True, side))
        if not results:
            out.append(Prompt(key, at, content if self.content else None, side))

    def _result(self, o: dict[str, Any], at: str | None, out: list[Event]) -> None:
        tokens, turns = _usage(o.get("usage")), count(o.get("num_turns"))
        self._counted = self._counted or bool(turns)
        out.append(Counter(f"session {o.get('session_id')}", at, tokens, calls=turns))
        for denied in o.get("permission_denials") or ():
            out.append(Counted("denied tool calls", str(mapping(denied).get("tool_use_id") or denied)))
        out.append(_ending(o, at))

    def ended(self, out: list[Event]) -> None:
        if self._answers and not self._counted:
            out.append(Silent("turns"))


class Paw(DocumentReader):
    """A session of QwenPaw: the memory of its agent. It has no tokens."""

    format: ClassVar[str] = "qwenpaw"

    @classmethod
    def claims(cls, head: Head) -> int:
        agent = mapping(mapping(head.document).get("agent"))
        memory = mapping(agent.get("memory")).get("content")
        return 80 if isinstance(memory, list) and ("_sys_prompt" in agent or "toolkit" in agent) else 0

    def document(self, value: Any, out: list[Event]) -> None:
        out.append(Opened(harness="qwenpaw"))
        for place, entry in enumerate(value["agent"]["memory"]["content"]):
            message = mapping(entry[0] if type(entry) is list and entry else entry)
            at = instant(message.get("timestamp"))
            self.saw(at)
            self.records += 1
            self._message(message, words(message.get("id")) or f"message {place}", at, out)

    def _message(self, message: dict[str, Any], key: str, at: str | None, out: list[Event]) -> None:
        content = message.get("content")
        if message.get("role") == "user":
            out.append(Prompt(key, at, content if self.content else None))
        elif message.get("role") == "assistant":
            out.append(Call(key, None, at, None, None))
        for place, block in enumerate(content if type(content) is list else ()):
            kind = block.get("type")
            tool = words(block.get("id")) or f"{key}.{place}"
            if kind == "tool_use":
                asked = block.get("input") if self.content else None
                out.append(ToolCall(tool, at, str(block.get("name")), asked, key))
            elif kind == "tool_result":
                out.append(ToolResult(tool, at, block.get("output") if self.content else None, None))
            elif self.content and kind == "text" and message.get("role") == "assistant":
                out.append(Said(key, at, str(block.get("text"))))


def _parts(o: dict[str, Any]) -> list[dict[str, Any]]:
    parts = mapping(o.get("message")).get("parts")
    return [part for part in parts if type(part) is dict] if type(parts) is list else []


def _data(o: dict[str, Any]) -> dict[str, Any]:
    """The fields of a ``system`` line of the terminal; it may keep them in ``data``."""
    return mapping(o.get("data")) or o


def _metadata(said: object) -> Tokens | None:
    """``usageMetadata`` of a chat's record."""
    if type(said) is not dict:
        return None
    return _of(
        count(said.get("promptTokenCount")),
        count(said.get("cachedContentTokenCount")),
        count(said.get("candidatesTokenCount")),
        count(said.get("thoughtsTokenCount")),
        count(said.get("totalTokenCount")),
    )


def _telemetered(event: dict[str, Any]) -> Tokens | None:
    return _of(
        count(event.get("input_token_count")),
        count(event.get("cached_content_token_count")),
        count(event.get("output_token_count")),
        count(event.get("thoughts_token_count")),
        count(event.get("total_token_count")),
    )


def _of(
    whole: int | None, cached: int | None, output: int | None, thoughts: int | None, total: int | None
) -> Tokens | None:
    """Tokens of one call; thoughts are in the output unless the total says that they are beside it."""
    if not any((whole, cached, output, thoughts)):
        return None
    if thoughts and output is not None and minus(total, whole) == output + thoughts:
        output += thoughts
    return Tokens(minus(whole, cached), cached, None, output, thoughts)


def _usage(said: object) -> Tokens | None:
    """``usage`` of a line of the stream; all 0 says that another line of the call has it."""
    if type(said) is not dict:
        return None
    whole, output = count(said.get("input_tokens")), count(said.get("output_tokens"))
    cached = count(said.get("cache_read_input_tokens"))
    if not any((whole, cached, output)):
        return None
    return Tokens(minus(whole, cached), cached, None, output)


def _ending(o: dict[str, Any], at: str | None) -> Ending:
    subtype = words(o.get("subtype")) or "result"
    error = o.get("error")
    text = words(mapping(error).get("message")) or words(error) or words(o.get("result")) or subtype
    if not o.get("is_error"):
        return Ending("clean", "", text, 2, at)
    low = text.lower()
    if subtype == "error_max_turns" or "max session turns" in low:
        return Ending("budget", "turns", text, 2, at)
    if "cancelled" in low or "aborted" in low:
        return Ending("interrupt", "user", text, 2, at)
    return failure(None, text, at, 2, subtype)
