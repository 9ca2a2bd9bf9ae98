"""Hermes: session documents, ``sessions export``, ``usage.json`` of ``-z``, and its database.

What the formats do that a count has to know:

- Messages have no tokens; the session has them, with ``api_call_count``.
- ``input_tokens`` excludes cached ones.
- A long session is split when it is compacted; the new one names the old as
  its parent, and begins with counters of its own.
- ``end_reason`` is ``agent_close`` after success and after an error, and NULL
  after a kill: only the words of ``usage.json`` say how it ended.
- ``usage.json`` is all null after an interrupt, and missing after a kill.
- The database is in WAL mode and may be written while it is read.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from adapters.transcripts.events import (
    Call,
    Counter,
    Ending,
    Event,
    Opened,
    Prompt,
    Said,
    Silent,
    Skipped,
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
    Span,
    count,
    instant,
    mapping,
    money,
    words,
)
from adapters.transcripts.readers import litellm

_MAGIC = b"SQLite format 3\0"
_SESSION = frozenset(("id", "source", "started_at"))
_MESSAGE = frozenset(("session_id", "role", "tool_calls"))
#: Columns that only a trajectory needs.
_TEXTS = frozenset(
    (
        "content",
        "reasoning",
        "reasoning_content",
        "reasoning_details",
        "codex_reasoning_items",
        "codex_message_items",
    )
)


class Document(DocumentReader):
    """A session as Hermes keeps it in ``sessions/``."""

    format: ClassVar[str] = "hermes"

    @classmethod
    def claims(cls, head: Head) -> int:
        value = mapping(head.document)
        own = "session_start" in value and ("platform" in value or "last_updated" in value)
        return 85 if own and words(value.get("session_id")) and type(value.get("messages")) is list else 0

    def document(self, value: Any, out: list[Event]) -> None:
        span = Span()
        _session(value, value["messages"], self.content, span, out)
        out.append(span.read(len(value["messages"])))


class Export(LineReader):
    """``hermes sessions export --format jsonl``: a line is a session, its messages in it."""

    format: ClassVar[str] = "hermes-export"

    @classmethod
    def claims(cls, head: Head) -> int:
        for o in head.records:
            counts = "api_call_count" in o or "message_count" in o or "end_reason" in o
            if counts and o.keys() >= _SESSION and type(o.get("messages")) is list:
                return 90
        return 0

    def record(self, o: dict[str, Any], line: int, out: list[Event]) -> None:
        if type(o.get("messages")) is not list:
            return
        span = Span()
        _session(o, o["messages"], self.content, span, out)
        self.saw(span.first)
        self.saw(span.last)


class Usage(DocumentReader):
    """``usage.json``, which ``hermes -z --usage-file`` leaves."""

    format: ClassVar[str] = "hermes-usage"

    @classmethod
    def claims(cls, head: Head) -> int:
        keys = mapping(head.document).keys()
        return 85 if keys >= {"api_calls", "input_tokens", "output_tokens", "session_id", "failed"} else 0

    def document(self, value: Any, out: list[Event]) -> None:
        session, model = words(value.get("session_id")), words(value.get("model"))
        out += (Opened(session=session, harness="hermes", model=model), Silent("turns"), Silent("tool calls"))
        _count(value, session, count(value.get("api_calls")), out)
        text = words(value.get("failure")) or words(value.get("error")) or ""
        if value.get("failed") is True:
            name = text.partition(":")[0]
            out.append(litellm.failure(name, text) or Ending("provider", "error", text, 1))
        elif value.get("completed") is True:
            out.append(Ending("clean", "", text, 1))
        out.append(Span().read(1))


class Database:
    """``state.db``, or the home directory that has it: a `Store`. Opened for reading alone."""

    format: ClassVar[str] = "hermes-database"

    @classmethod
    def claims(cls, path: Path) -> int:
        try:
            file = _file(path)
            if not file.is_file():  # a pipe would be waited for
                return 0
            with file.open("rb") as opened:
                if opened.read(len(_MAGIC)) != _MAGIC:
                    return 0
            with _Reading(file) as database:
                own = (
                    _columns(database, "sessions") >= _SESSION and _columns(database, "messages") >= _MESSAGE
                )
                return 90 if own else 0
        except (OSError, sqlite3.Error):
            return 0

    @classmethod
    def sessions(cls, path: Path, content: bool) -> Iterator[tuple[str, Iterable[Event]]]:
        try:
            with _Reading(_file(path)) as database:
                rows = _rows(database, "SELECT * FROM sessions ORDER BY started_at, id")
                columns = _columns(database, "messages")
                names = sorted(columns if content else columns - _TEXTS)
                chosen = ", ".join(f'"{name}"' for name in names)
                order = "id" if "id" in names else "rowid"
                for row in rows:
                    yield str(row.get("id")), _of_row(database, row, chosen, order, content)
        except (OSError, sqlite3.Error) as error:
            yield path.name, [Skipped(None, f"{path.name}: {error}", torn=True)]


def _file(path: Path) -> Path:
    return path / "state.db" if path.is_dir() else path


class _Reading:
    """A connection that cannot write."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __enter__(self) -> sqlite3.Connection:
        uri = f"file:{quote(str(self._file.absolute()))}?mode=ro"
        try:
            self._database = self._open(uri)
        except sqlite3.OperationalError:
            # Without its log beside it, and in a directory that is not ours to write, it has to be as it is.
            if Path(f"{self._file}-wal").exists():
                raise
            self._database = self._open(f"{uri}&immutable=1")
        return self._database

    def _open(self, uri: str) -> sqlite3.Connection:
        database = sqlite3.connect(uri, uri=True, timeout=5.0)
        database.text_factory = lambda data: data.decode("utf-8", "replace")
        try:
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error:
            database.close()
            raise
        return database

    def __exit__(self, *_: object) -> None:
        self._database.close()


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    return {str(row[1]) for row in database.execute(f"PRAGMA table_info({table})")}


def _rows(database: sqlite3.Connection, query: str, *values: object) -> list[dict[str, Any]]:
    cursor = database.execute(query, values)
    names = [each[0] for each in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _of_row(
    database: sqlite3.Connection, row: dict[str, Any], chosen: str, order: str, content: bool
) -> list[Event]:
    out: list[Event] = []
    span = Span()
    messages: list[dict[str, Any]] = []
    try:
        query = f"SELECT {chosen} FROM messages WHERE session_id = ? ORDER BY {order}"
        messages = _rows(database, query, row.get("id"))
        _session(row, messages, content, span, out)
    except sqlite3.Error as error:
        out.append(Skipped(None, f"messages: {error}", torn=True))
    except SHAPES as error:
        out.append(shapeless(None, error))
    out.append(span.read(len(messages)))
    return out


def _session(o: dict[str, Any], messages: list[Any], content: bool, span: Span, out: list[Event]) -> None:
    """What a session says, wherever it was kept."""
    session = words(o.get("session_id")) or words(o.get("id"))
    model = words(o.get("model"))
    for name in ("session_start", "started_at", "last_updated", "ended_at"):
        span.saw(instant(o.get(name)))
    out.append(
        Opened(
            session=session,
            harness="hermes",
            model=model,
            cwd=words(o.get("cwd")) or words(mapping(o.get("model_config")).get("cwd")),
            title=words(o.get("title")),
            forked=words(o.get("parent_session_id")),
        )
    )
    talk = _Talk(content, session, model)
    for place, message in enumerate(messages):
        if type(message) is dict:
            at = span.saw(instant(message.get("timestamp")))
            talk.message(place, message, at, out)
    _count(o, session, count(o.get("api_call_count")), out)


def _count(o: dict[str, Any], session: str | None, calls: int | None, out: list[Event]) -> None:
    """The session's own counters. Zeros beside messages are those of a version that kept none."""
    tokens = Tokens(
        count(o.get("input_tokens")),
        count(o.get("cache_read_tokens")),
        count(o.get("cache_write_tokens")),
        count(o.get("output_tokens")),
        count(o.get("reasoning_tokens")),
    )
    cost = money(o.get("actual_cost_usd")) or money(o.get("estimated_cost_usd"))
    known = litellm.known(tokens)
    if known or calls or cost:
        out.append(Counter(f"session {session}", None, tokens if known else None, (), cost, calls or None))


class _Talk:
    """The messages of one session, one after the other."""

    def __init__(self, content: bool, session: str | None, model: str | None) -> None:
        self._content = content
        self._session = session
        self._model = model
        self._call = ""
        self._asked: set[str] = set()

    def message(self, place: int, o: dict[str, Any], at: str | None, out: list[Event]) -> None:
        key = f"{self._session}:{o.get('id', place)}"
        text = o.get("content") if self._content else None
        match o.get("role"):
            case "user":
                out.append(Prompt(key, at, text))
            case "system":
                out.append(Prompt(key, at, text, by="system"))
            case "assistant":
                self._call = key
                out.append(Call(key, None, at, self._model, None, stop=words(o.get("finish_reason"))))
                thought = words(o.get("reasoning_content")) or words(o.get("reasoning"))
                if self._content and thought:
                    out.append(Said(key, at, thought, thought=True))
                if type(text) is str and text:
                    out.append(Said(key, at, text))
                self._tools(key, o.get("tool_calls"), at, out)
            case "tool":
                tool = words(o.get("tool_call_id")) or key
                name = words(o.get("tool_name")) or words(o.get("name")) or "tool"
                if tool not in self._asked:
                    out.append(ToolCall(f"{self._session}:{tool}", at, name, None, self._call))
                out.append(ToolResult(f"{self._session}:{tool}", at, text, None))
            case _:
                pass

    def _tools(self, key: str, tools: object, at: str | None, out: list[Event]) -> None:
        for nth, tool in enumerate(_value(tools) or ()):
            if type(tool) is dict:
                name = words(tool.get("id")) or words(tool.get("call_id")) or f"{key}.{nth}"
                self._asked.add(name)
                function = mapping(tool.get("function"))
                asked = _value(function.get("arguments")) if self._content else None
                out.append(ToolCall(f"{self._session}:{name}", at, str(function.get("name")), asked, key))


def _value(value: object) -> Any:
    """JSON in a string, as the database and the arguments are kept; anything else as it is."""
    if type(value) is str:
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value
