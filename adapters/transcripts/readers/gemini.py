"""Gemini CLI: session documents, the update log that followed them, and ``-o stream-json``.

What the formats do that a count has to know:

- A message of type ``gemini`` is one model call. ``input`` includes what was
  read from the cache, ``output`` is without thoughts, ``tool`` is what a tool
  of the provider put into the prompt.
- The log writes a message again, under its id, whenever something of it
  becomes known: its tools, their results, its tokens. The largest counts.
- ``$set`` changes the session, or replaces the messages that the model sees;
  ``$rewindTo`` takes messages back. What they cost stays paid.
- In the stream only ``result`` has tokens, those of the run. It has the total
  of the output and not of the thoughts: they are what is left of the sum.
- The stream has no number of model calls.
- A stream that ends without ``result`` was cut off, whatever the exit code.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

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
    Silent,
    Tokens,
    ToolCall,
    ToolResult,
    shapeless,
)
from adapters.transcripts.lines import SHAPES
from adapters.transcripts.reader import (
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

_TYPES: Final = ("user", "gemini", "info", "error", "warning")


class Document(DocumentReader):
    """A session file of 2025, or one message of it."""

    format: ClassVar[str] = "gemini-session"

    @classmethod
    def claims(cls, head: Head) -> int:
        value = head.document
        if not isinstance(value, dict):
            return 0
        if isinstance(value.get("messages"), list):
            # Surer than the log, which a document on one line looks like.
            return 95 if _is_session(value) and all(map(_is_message, value["messages"])) else 0
        return 60 if _is_message(value) and value["type"] == "gemini" else 0

    def document(self, value: Any, out: list[Event]) -> None:
        teller = _Teller(self.content)
        if "messages" in value:
            teller.session(value, out)
        for message in value.get("messages", [value]):
            self.records += 1
            try:
                self.saw(teller.message(message, out))
            except SHAPES as error:
                out.append(shapeless(None, error, str(message.get("id"))))
        teller.end(out)


class Log(LineReader):
    """A session file of today: one line of what it is, then its messages, again and again."""

    format: ClassVar[str] = "gemini-log"

    def __init__(self, content: bool = True) -> None:
        super().__init__(content)
        self._teller = _Teller(content)

    @classmethod
    def claims(cls, head: Head) -> int:
        for o in head.records:
            if _is_session(o) and ("projectHash" in o or "kind" in o):
                return 90
        return 65 if any(_is_message(o) and o["type"] == "gemini" for o in head.records) else 0

    def record(self, o: dict[str, Any], line: int, out: list[Event]) -> None:
        if _is_message(o):
            self.saw(self._teller.message(o, out))
            return
        change = mapping(o.get("$set"))
        if "sessionId" in o:
            self._teller.session(o, out)
        elif change:
            self.saw(instant(change.get("lastUpdated")))
        elif "$rewindTo" in o:
            out.append(Counted("rewinds", f"line {line}"))
        for message in change.get("messages", o.get("messages")) or ():
            if _is_message(message):
                self.saw(self._teller.message(message, out))

    def ended(self, out: list[Event]) -> None:
        self._teller.end(out)


class Stream(LineReader):
    """The stream of ``gemini -o stream-json``."""

    format: ClassVar[str] = "gemini-stream"

    def __init__(self, content: bool = True) -> None:
        super().__init__(content)
        self._session: str | None = None
        self._begun = False

    @classmethod
    def claims(cls, head: Head) -> int:
        sure = 0
        for o in head.records:
            kind = o.get("type")
            if kind == "init" and isinstance(o.get("session_id"), str) and "subtype" not in o:
                return 85
            if kind == "result" and isinstance(o.get("stats"), dict) and "status" in o:
                sure = max(sure, 80)
            elif (kind == "tool_use" and "tool_name" in o and "tool_id" in o) or (
                kind == "tool_result" and "tool_id" in o and "status" in o
            ):
                sure = max(sure, 70)
            elif kind == "message" and isinstance(o.get("content"), str) and "role" in o and "timestamp" in o:
                sure = max(sure, 30)
        return sure

    def record(self, o: dict[str, Any], line: int, out: list[Event]) -> None:
        at = instant(o.get("timestamp"))
        self.saw(at)
        if not self._begun:
            self._begun = True
            out.append(Silent("turns"))
        kind = o.get("type")
        if kind == "init":
            self._session = words(o.get("session_id"))
            out.append(Opened(session=self._session, harness="gemini", model=words(o.get("model"))))
        elif kind == "message":
            self._message(o, line, at, out)
        elif kind == "tool_use":
            key = words(o.get("tool_id")) or own(o)
            asked = o.get("parameters") if self.content else None
            out.append(ToolCall(key, at, str(o.get("tool_name")), asked, None))
        elif kind == "tool_result":
            key = words(o.get("tool_id")) or own(o)
            given = o.get("output", o.get("error")) if self.content else None
            out.append(ToolResult(key, at, given, _failed(o.get("status"))))
        elif kind == "error":
            out.append(Counted("errors", f"{at}:{o.get('message')}"))
        elif kind == "result":
            self._result(o, at, out)

    def _message(self, o: dict[str, Any], line: int, at: str | None, out: list[Event]) -> None:
        text = o.get("content")
        if o.get("role") == "user":
            out.append(Prompt(f"{at or line}:{hash(str(text))}", at, text if self.content else None))
        elif self.content and type(text) is str:
            out.append(Said(f"run {self._session}", at, text))

    def _result(self, o: dict[str, Any], at: str | None, out: list[Event]) -> None:
        stats = mapping(o.get("stats"))
        # The stats are those of one run; a resumed one has a result of its own.
        key = f"result {at}:{stats.get('duration_ms')}:{stats.get('total_tokens')}"
        tokens = _of_run(stats)
        models = {name: _of_run(mapping(each)) for name, each in mapping(stats.get("models")).items()}
        if models and not any(used is None for used in models.values()):
            told = tuple((name, used, None) for name, used in models.items() if used is not None)
            out.append(Counter(key, at, None, told))
        elif tokens is not None:
            out.append(Counter(key, at, tokens))
        if o.get("status") == "success":
            out.append(Ending("clean", "", "", 2, at))
        else:
            error = mapping(o.get("error"))
            out.append(_refused(words(error.get("type")), words(error.get("message")) or "error", at))


class _Teller:
    """Tells a session, message by message; a message may come again."""

    def __init__(self, content: bool) -> None:
        self._content = content
        self._closing: tuple[str, Ending | None] = ("", None)

    def session(self, o: dict[str, Any], out: list[Event]) -> None:
        kind = words(o.get("kind"))
        out.append(
            Opened(
                session=words(o.get("sessionId")),
                harness="gemini",
                title=words(o.get("summary")),
                inside=words(o.get("parentSessionId")) or (kind if kind == "subagent" else None),
            )
        )

    def message(self, o: dict[str, Any], out: list[Event]) -> str | None:
        """Append what a message says; returns its time."""
        at = instant(o.get("timestamp"))
        key = str(o["id"])
        kind = o["type"]
        ending: Ending | None = None
        if kind == "gemini":
            ending = self._answer(o, key, at, out)
        elif kind == "user":
            text = _text(o.get("content")) if self._content else None
            out.append(Prompt(key, at, text))
        elif kind == "error":
            out.append(Counted("errors", key))
            ending = failure(None, _text(o.get("content")), at, 0)
        elif kind == "info":
            text = _text(o.get("content"))
            if "compressed" in text:
                out.append(Compacted(key, at))
            ending = Ending("interrupt", "user", text, 0, at) if text == "Request cancelled." else None
        if (kind not in ("info", "warning") or ending) and (at or "")[:-1] >= self._closing[0]:
            self._closing = ((at or "")[:-1], ending)
        return at

    def _answer(self, o: dict[str, Any], key: str, at: str | None, out: list[Event]) -> Ending | None:
        model = words(o.get("model"))
        out.append(Call(key, None, at, model, _tokens(o.get("tokens"))))
        text = o.get("content")
        if self._content:
            for thought in map(mapping, o.get("thoughts") or ()):
                said = ": ".join(
                    each for each in (thought.get("subject"), thought.get("description")) if type(each) is str
                )
                out.append(Said(key, instant(thought.get("timestamp")) or at, said, "", thought=True))
            if text:
                out.append(Said(key, at, _text(text)))
        tools = o.get("toolCalls") or ()
        for place, tool in enumerate(map(mapping, tools)):
            self._tool(tool, words(tool.get("id")) or f"{key}.{place}", key, at, out)
        return Ending("clean", "", "", 0, at) if text and not tools else None

    def _tool(self, tool: dict[str, Any], key: str, call: str, at: str | None, out: list[Event]) -> None:
        asked = tool.get("args") if self._content else None
        out.append(ToolCall(key, at, str(tool.get("name")), asked, call))
        if "result" in tool or tool.get("status") in ("success", "error", "cancelled"):
            given = tool.get("result", tool.get("resultDisplay")) if self._content else None
            when = instant(tool.get("timestamp")) or at
            out.append(ToolResult(key, when, given, _failed(tool.get("status"))))

    def end(self, out: list[Event]) -> None:
        if self._closing[1] is not None:
            out.append(self._closing[1])


def _is_session(o: dict[str, Any]) -> bool:
    return isinstance(o.get("sessionId"), str) and "startTime" in o and "lastUpdated" in o


def _is_message(value: object) -> bool:
    o = mapping(value)
    return o.get("type") in _TYPES and isinstance(o.get("id"), str) and "timestamp" in o and "content" in o


def _tokens(said: object) -> Tokens | None:
    if type(said) is not dict:
        return None
    whole, cached, tool = (count(said.get(name)) for name in ("input", "cached", "tool"))
    output, thoughts = count(said.get("output")), count(said.get("thoughts"))
    if not any((whole, cached, tool, output, thoughts)):
        return None
    fresh = minus(whole, cached)
    return Tokens(
        None if fresh is None else fresh + (tool or 0),
        cached,
        None,
        None if output is None else output + (thoughts or 0),
        thoughts,
    )


def _of_run(stats: dict[str, Any]) -> Tokens | None:
    """Tokens of ``stats``, or of one of its models; all 0 is what a run has that no model answered."""
    whole, cached = count(stats.get("input_tokens")), count(stats.get("cached"))
    total, output = count(stats.get("total_tokens")), count(stats.get("output_tokens"))
    if not any((whole, cached, total, output)):
        return None
    if total is None or whole is None:
        return Tokens(minus(whole, cached), cached, None, output)
    thoughts = None if output is None else minus(total, whole, output)
    return Tokens(minus(whole, cached), cached, None, minus(total, whole), thoughts)


def _failed(status: object) -> bool | None:
    """A call that a person cancelled did not fail, nor succeed."""
    return {"success": False, "error": True}.get(str(status))


def _refused(kind: str | None, text: str, at: str | None) -> Ending:
    match kind:
        case "FatalTurnLimitedError":
            return Ending("budget", "turns", text, 2, at)
        case "FatalAuthenticationError":
            return Ending("auth", "401", text, 2, at)
        case "FatalCancellationError":
            return Ending("interrupt", "user", text, 2, at)
        case _:
            return failure(None, text, at, 2)


def _text(content: object) -> str:
    """The text of a message: a string, or parts of which some have text."""
    if type(content) is str:
        return content
    if type(content) is not list:
        return ""
    texts = (part.get("text") if type(part) is dict else part for part in content)
    return "\n".join(text for text in texts if type(text) is str)
