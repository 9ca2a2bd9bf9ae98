"""pi, its relatives and OpenClaw: session files (versions 1 to 3) and ``--mode json``.

What the formats do that a count has to know:

- An assistant's message is one model call. Its own fields name it, above all
  its ``timestamp``: entries have ids since version 2 only, and the stream has
  none. A fork copies entries as they are, so that the key is the same there;
  it names what it was forked from by the path of that file.
- ``input`` is without what was read from and written to a cache; ``output``
  includes reasoning. ``cost.total`` is the call's price.
- The stream gives each message many times: ``message_start`` and ``_update``
  while it grows, then ``message_end``, ``turn_end`` and ``agent_end``. The
  latter three are the same message; the first two may have no usage yet.
- Usage that is all 0 is unknown. With an error it is a request that no model
  answered: it is counted as such and is no model call.
- Models ``delivery-mirror`` and ``gateway-injected`` of OpenClaw are the
  program speaking.
- The exit code of ``--mode json`` is always 0: the last message says how it
  ended.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from adapters.transcripts.events import (
    Call,
    Compacted,
    Counted,
    Ending,
    Event,
    Opened,
    Prompt,
    Said,
    Tokens,
    ToolCall,
    ToolResult,
)
from adapters.transcripts.reader import Copies, Head, LineReader, count, instant, mapping, money, words
from adapters.transcripts.readers.endings import failure
from adapters.transcripts.readers.keys import own

_MIRRORS: Final = ("delivery-mirror", "gateway-injected")
_STREAM: Final = (
    "agent_start",
    "agent_end",
    "turn_end",
    "message_start",
    "message_update",
    "message_end",
    "tool_execution_start",
    "tool_execution_end",
)


class _Pi(LineReader):
    """What sessions and streams share: messages."""

    copies: ClassVar[Copies] = "forked"

    def __init__(self, content: bool = True) -> None:
        super().__init__(content)
        self._closing: Ending | None = None

    def _opened(self, o: dict[str, Any], out: list[Event]) -> None:
        out.append(
            Opened(
                session=words(o.get("id")),
                harness="pi",
                model=words(o.get("modelId")),
                cwd=words(o.get("cwd")),
                title=words(o.get("title")),
                forked=_parent(words(o.get("parentSession")) or words(o.get("branchedFrom"))),
            )
        )

    def _message(
        self, message: dict[str, Any], name: str, at: str | None, out: list[Event], texts: bool
    ) -> None:
        """Append what a message says; `name` is that of its entry."""
        made = instant(message.get("timestamp"))
        self.saw(made)
        if not name and made is None:
            name = own(message)
        at = at or made
        match message.get("role"):
            case "assistant":
                self._assistant(message, _key(message, name), at, out, texts)
            case "user":
                self._closing = None
                text = message.get("content") if texts else None
                out.append(Prompt(f"{made or name}:user", at, text))
            case "toolResult":
                tool = words(message.get("toolCallId")) or name or own(message)
                failed = message.get("isError")
                given = message.get("content") if texts else None
                out.append(ToolResult(tool, at, given, failed if type(failed) is bool else None))
            case "bashExecution":
                out.append(Counted("commands of the user", made or name))
            case _:
                pass

    def _assistant(
        self, message: dict[str, Any], key: str, at: str | None, out: list[Event], texts: bool
    ) -> None:
        model = words(message.get("model"))
        if model in _MIRRORS and message.get("provider") == "openclaw":
            out.append(Counted("mirrored messages", key))
            return
        tokens, stop = _tokens(message.get("usage")), words(message.get("stopReason"))
        if tokens is None and stop == "error":
            out.append(Counted("failed calls", key))
        else:
            cost = mapping(_used(message).get("cost")).get("total")
            price = money(cost) if tokens is not None else None
            out.append(Call(key, None, at, model, tokens, "", stop, price))
        self._closing = _ending(stop, words(message.get("errorMessage")), at)
        content = message.get("content")
        if type(content) is str and texts:
            out.append(Said(key, at, content))
        for place, block in enumerate(content if type(content) is list else ()):
            kind = block.get("type")
            if kind == "toolCall":
                tool = words(block.get("id")) or f"{key}.{place}"
                asked = block.get("arguments") if texts else None
                out.append(ToolCall(tool, at, str(block.get("name")), asked, key))
            elif texts and kind in ("text", "thinking") and type(block.get(kind)) is str:
                out.append(Said(key, at, block[kind], "", kind == "thinking"))

    def ended(self, out: list[Event]) -> None:
        if self._closing is not None:
            out.append(self._closing)


class Session(_Pi):
    """A session file: a header, then one entry a line, as a list or (from version 2) a tree."""

    format: ClassVar[str] = "pi-session"
    copies: ClassVar[Copies] = "forked"

    @classmethod
    def claims(cls, head: Head) -> int:
        sure = 0
        for o in head.records:
            kind = o.get("type")
            if kind == "session" and isinstance(o.get("id"), str) and "cwd" in o and "timestamp" in o:
                sure = max(sure, 75)
            elif kind == "message" and "timestamp" in o and _is_own(mapping(o.get("message"))):
                sure = max(sure, 60)
            elif kind in _STREAM:
                return 0
        return sure

    def record(self, o: dict[str, Any], line: int, out: list[Event]) -> None:
        at = instant(o.get("timestamp"))
        self.saw(at)
        key = words(o.get("id")) or at or own(o)
        match o.get("type"):
            case "session":
                self._opened(o, out)
            case "message":
                self._message(mapping(o.get("message")), f"{key}:{at}", at, out, self.content)
            case "compaction":
                out.append(Compacted(key, at))
            case "branch_summary":
                out.append(Counted("branch summaries", key))
            case "session_info":
                out.append(Opened(title=words(o.get("name"))))
            case _:
                pass


class Stream(_Pi):
    """The stream of ``pi --mode json``."""

    format: ClassVar[str] = "pi-stream"

    @classmethod
    def claims(cls, head: Head) -> int:
        sure = 0
        for o in head.records:
            kind = o.get("type")
            role = mapping(o.get("message")).get("role")
            if kind in ("message_start", "message_update", "message_end", "turn_end") and isinstance(
                role, str
            ):
                return 90
            if kind == "tool_execution_start" and "toolCallId" in o:
                return 90
            if kind == "agent_start" or (kind == "agent_end" and isinstance(o.get("messages"), list)):
                sure = max(sure, 80)
        return sure

    def record(self, o: dict[str, Any], line: int, out: list[Event]) -> None:
        kind = o.get("type")
        at = instant(o.get("timestamp"))
        self.saw(at)
        match kind:
            case "message_end":
                self._message(mapping(o.get("message")), "", at, out, self.content)
            case "turn_end":
                self._again([o.get("message"), *(o.get("toolResults") or ())], at, out)
            case "agent_end":
                self._again(o.get("messages") or (), at, out)
            case "session":
                self._opened(o, out)
            case "tool_execution_end":
                tool = words(o.get("toolCallId")) or own(o)
                failed = o.get("isError")
                given = o.get("result") if self.content else None
                out.append(ToolResult(tool, None, given, failed if type(failed) is bool else None))
            case "auto_retry_start":
                out.append(Counted("retries", f"line {line}"))
            case "auto_compaction_end" | "compaction_end":
                result = mapping(o.get("result"))
                if result and not o.get("aborted"):
                    out.append(Compacted(words(result.get("firstKeptEntryId")) or own(o), None))
            case _:
                pass

    def _again(self, messages: Any, at: str | None, out: list[Event]) -> None:
        """Messages that were told before, if their lines were not lost; only what has a key is told again."""
        for message in messages:
            if type(message) is dict and "timestamp" in message:
                self._message(message, "", at, out, texts=False)


def _parent(path: str | None) -> str | None:
    """The id of the session in a file ``<time>_<id>.jsonl``."""
    if path is None:
        return None
    name = path.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".jsonl")
    return name.split("_", 1)[-1] or None


def _is_own(message: dict[str, Any]) -> bool:
    """Other programs write messages too; these are pi's words."""
    if message.get("role") == "toolResult":
        return "toolCallId" in message
    return message.get("role") == "assistant" and ("stopReason" in message or "cacheRead" in _used(message))


def _used(message: dict[str, Any]) -> dict[str, Any]:
    return mapping(message.get("usage"))


def _key(message: dict[str, Any], name: str) -> str:
    """Names a call by what the message says of itself, wherever it is copied to."""
    answer, made = words(message.get("responseId")), message.get("timestamp")
    if answer is None and made is None:
        return name
    usage = _used(message)
    numbers = "/".join(str(usage.get(name)) for name in ("input", "output", "cacheRead", "cacheWrite"))
    return f"{answer}:{made}:{message.get('model')}:{numbers}"


def _tokens(usage: object) -> Tokens | None:
    if type(usage) is not dict:
        return None
    tokens = Tokens(
        count(usage.get("input")),
        count(usage.get("cacheRead")),
        count(usage.get("cacheWrite")),
        count(usage.get("output")),
        count(usage.get("reasoning")),
    )
    return tokens if any(tokens) else None


def _ending(stop: str | None, error: str | None, at: str | None) -> Ending | None:
    match stop:
        case "stop":
            return Ending("clean", "stop", "", 1, at)
        case "length":
            return Ending("provider", "length", error or "", 1, at)
        case "aborted":
            return Ending("interrupt", "aborted", error or "", 1, at)
        case "error":
            return failure(None, error or "error", at)
        case _:
            return None
