"""OpenCode: ``run --format json``, ``export``, the files of older versions and the database of newer ones.

What the formats do that a count has to know:

- A model call is a part ``step-finish`` of an assistant message. A message of
  today has one, one of 2025 several, and then its own tokens are those of the
  last. The message is the call's key and the part its member; a message's own
  tokens count only for what its steps do not say.
- ``input`` is without what was read from and written to a cache, ``output``
  without reasoning. Where ``total`` says that output includes it, it does.
- Tokens that are all 0 are none: the message was begun, or the provider kept
  silent. Of a message with an error it is the call that failed.
- A sub-agent is a session of its own with a ``parentID``. The live stream
  does not show it.
- A fork copies messages under new ids, with their old times: a message that is
  older than its session was made in another, and so were its tools.
- A command that the user ran himself is a message of the assistant without
  tokens; the prompt before it, which nobody typed, says what it is.
- A command that failed is ``completed`` with ``metadata.exit``.
- No event says how a run ended: its last step or error does.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import quote

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
    Skipped,
    Tokens,
    ToolCall,
    ToolResult,
    shapeless,
)
from adapters.transcripts.lines import SHAPES, Malformed, parse
from adapters.transcripts.reader import (
    DocumentReader,
    Head,
    LineReader,
    Span,
    count,
    earlier,
    instant,
    mapping,
    minus,
    money,
    words,
)
from adapters.transcripts.readers.endings import failure

_EVENTS: Final = ("step_start", "step_finish", "tool_use", "text", "reasoning")
_PARTS: Final = (
    "text",
    "reasoning",
    "tool",
    "file",
    "step-start",
    "step-finish",
    "patch",
    "snapshot",
    "agent",
    "subtask",
    "retry",
    "compaction",
)
#: What OpenCode says in the prompt's place before a command of the user.
_COMMAND: Final = "The following tool was executed by the user"
#: So many files of a store are looked at; the first may be torn.
_LOOKED_AT: Final = 20
#: A message and its parts.
_Message = tuple[dict[str, Any], list[dict[str, Any]]]


class Run(LineReader):
    """The stream of ``opencode run --format json``, and messages written one a line."""

    format: ClassVar[str] = "opencode-run"

    def __init__(self, content: bool = True) -> None:
        super().__init__(content)
        self._session: str | None = None
        self._teller = _Teller(content)
        self._closing: Ending | None = None

    @classmethod
    def claims(cls, head: Head) -> int:
        sure = 0
        for o in head.records:
            if not isinstance(o.get("sessionID"), str):
                continue
            if o.get("type") in _EVENTS and isinstance(o.get("part"), dict):
                return 90
            if o.get("type") == "error" and isinstance(o.get("error"), dict):
                sure = max(sure, 70)
            elif _is_message(o):
                sure = max(sure, 40)
        return sure

    def record(self, o: dict[str, Any], line: int, out: list[Event]) -> None:
        at = instant(o.get("timestamp"))
        self.saw(at)
        session = words(o.get("sessionID"))
        if session != self._session and session is not None:
            self._session = session
            out.append(Opened(session=session, harness="opencode"))
        part = o.get("part")
        if type(part) is dict:
            self._part(o.get("type"), part, at, out)
        elif o.get("type") == "error":
            error = mapping(o.get("error"))
            out.append(Counted("errors", f"{session}:{at}:{error.get('name')}"))
            self._closing = _error(error, at)
        elif "role" in o:
            self._teller.message(o, (), out)
            self.saw(instant(mapping(o.get("time")).get("created")))

    def _part(self, kind: object, part: dict[str, Any], at: str | None, out: list[Event]) -> None:
        _part(part, at, out, self.content)
        if kind == "step_finish":
            self._closing = _finish(words(part.get("reason")), at)
        elif kind == "step_start":
            self._closing = None
        elif kind == "tool_use" and _child(part):
            out.append(Noted("sub-agents ran in sessions of their own, which this stream does not show"))

    def ended(self, out: list[Event]) -> None:
        if self._closing is not None:
            out.append(self._closing)


class Export(DocumentReader):
    """What ``opencode export`` writes, a list of messages as the server gives it, or one file of the store alone."""

    format: ClassVar[str] = "opencode-export"

    @classmethod
    def claims(cls, head: Head) -> int:
        value = head.document
        if isinstance(value, list):
            return 80 if value and all(_is_exported(each) for each in value) else 0
        if not isinstance(value, dict):
            return 0
        if isinstance(value.get("info"), dict) and isinstance(value.get("messages"), list):
            return 90 if all(_is_exported(each) for each in value["messages"]) else 0
        if _is_message(value) or _is_session(value):
            return 75
        return (75 if "messageID" in value else 45) if _is_part(value) else 0

    def document(self, value: Any, out: list[Event]) -> None:
        if isinstance(value, list):
            value = {"messages": value}
        info: dict[str, Any] = {}
        messages: list[_Message] = []
        if "messages" in value:
            info = mapping(value.get("info"))
            messages = [(each["info"], each["parts"]) for each in value["messages"]]
        elif _is_session(value):
            info = value
        else:
            out.append(Opened(session=words(value.get("sessionID")), harness="opencode"))
            messages = [(value, []) if _is_message(value) else ({}, [value])]
        out += _told(info, messages, self.content)


class Files:
    """The directory ``storage`` of OpenCode before 1.2: ``session``, ``message`` and ``part``, a file for each.

    It may be given itself or by the directory that holds it. Links are not
    followed, so that nothing outside is read.
    """

    format: ClassVar[str] = "opencode-files"

    @classmethod
    def claims(cls, path: Path) -> int:
        root = _storage(path)
        if root is None:
            return 0
        if any(_is_message(_loaded(file)) for file in islice(_files(root / "message", 2), _LOOKED_AT)):
            return 85
        if any(_is_session(_loaded(file)) for file in islice(_files(root / "session", 2), _LOOKED_AT)):
            return 70
        return 0

    @classmethod
    def sessions(cls, path: Path, content: bool) -> Iterator[tuple[str, Iterable[Event]]]:
        root = _storage(path)
        if root is None:
            return
        infos: dict[str, tuple[dict[str, Any], list[Event]]] = {}
        for file in _files(root / "session", 2):
            skipped: list[Event] = []
            info = _loaded(file, skipped)
            infos[words(info.get("id")) or file.stem] = (info, skipped)
        messages = {folder.name: list(_files(folder, 1)) for folder in _folders(root / "message")}
        parts = {folder.name: folder for folder in _folders(root / "part")}
        strays = _strays(parts, {file.stem for files in messages.values() for file in files})
        for session in sorted({*infos, *messages, *strays}):
            info, out = infos.get(session, ({}, []))
            where = (messages.get(session, []), parts, strays.get(session, []))
            yield session, _from_files(info or {"id": session}, where, content, out)


class Database:
    """The database ``opencode.db`` of OpenCode from 1.2 on, or the directory that holds it. Only read."""

    format: ClassVar[str] = "opencode-db"

    @classmethod
    def claims(cls, path: Path) -> int:
        file = path / "opencode.db" if path.is_dir() else path
        try:
            if not file.is_file():  # a pipe would be waited for
                return 0
            with file.open("rb") as stream:
                if stream.read(16) != b"SQLite format 3\0":
                    return 0
            with closing(_connected(file)):
                return 95
        except (OSError, sqlite3.Error):
            return 0

    @classmethod
    def sessions(cls, path: Path, content: bool) -> Iterator[tuple[str, Iterable[Event]]]:
        file = path / "opencode.db" if path.is_dir() else path
        session = file.name
        try:
            with closing(_connected(file)) as base:
                for row in _rows(base, "SELECT * FROM session ORDER BY id"):
                    session = str(row["id"])
                    yield session, _lazily(base, row, content)
        except (*SHAPES, sqlite3.Error, OSError) as error:
            yield session, [Skipped(None, f"the database could not be read: {error}", torn=True)]


def _told(info: dict[str, Any], messages: Iterable[_Message], content: bool) -> list[Event]:
    """The events of a session: what is known of it, and its messages with their parts.

    A message without fields stands for one that was not found.
    """
    out: list[Event] = []
    teller = _Teller(content)
    if info:
        teller.session(info, out)
    for message, parts in messages:
        try:
            if message:
                teller.message(message, parts, out)
            else:
                for part in parts:
                    _part(part, None, out, content)
        except SHAPES as error:
            out.append(shapeless(None, error, str(message.get("id"))))
    teller.end(out)
    return out


class _Teller(Span):
    """Tells a session, message by message."""

    def __init__(self, content: bool) -> None:
        self.records = 0
        self._content = content
        self._born: str | None = None
        self._total: Counter | None = None
        self._closing: tuple[str, Ending | None] = ("", None)
        self._commands: set[str] = set()

    def session(self, info: dict[str, Any], out: list[Event]) -> None:
        session = words(info.get("id"))
        at = instant(mapping(info.get("time")).get("updated"))
        self._born = instant(mapping(info.get("time")).get("created"))
        out.append(
            Opened(
                session=session,
                harness="opencode",
                version=words(info.get("version")),
                cwd=words(info.get("directory")),
                title=words(info.get("title")),
                inside=words(info.get("parentID")),
            )
        )
        tokens, cost = _tokens(info.get("tokens")), money(info.get("cost"))
        if tokens is not None:
            self._total = Counter(f"session {session}", at, tokens, cost=cost)

    def message(self, info: dict[str, Any], parts: Iterable[dict[str, Any]], out: list[Event]) -> None:
        """One message. Its time is that of its parts too, where they have none."""
        time = mapping(info.get("time"))
        at = instant(time.get("created"))
        self.records += 1
        self.saw(at)
        self.saw(instant(time.get("completed")))
        key = str(info.get("id"))
        role = info.get("role")
        if role == "assistant":
            self._assistant(key, info, at, parts, out)
        elif role == "user":
            parts = list(parts)
            if any(part.get("synthetic") and part.get("text") == _COMMAND for part in parts):
                self._commands.add(key)
            out.append(_prompt(key, at, info, parts, self._content)._replace(inherited=self._inherited(at)))
            self._closes(at, None)
        elif role == "tool":
            result = info.get("content") if self._content else None
            out.append(ToolResult(str(info.get("tool_call_id")), at, result, None))
        else:
            # Its record was lost; what it used may stand in its parts.
            for part in parts:
                _part(part, at, out, self._content, key)

    def _inherited(self, at: str | None) -> bool:
        return at is not None and self._born is not None and earlier(at, self._born)

    def _closes(self, at: str | None, ending: Ending | None) -> None:
        """The latest message says how it ended."""
        if (at or "")[:-1] >= self._closing[0]:
            self._closing = ((at or "")[:-1], ending)

    def _assistant(
        self,
        key: str,
        info: dict[str, Any],
        at: str | None,
        parts: Iterable[dict[str, Any]],
        out: list[Event],
    ) -> None:
        model = words(info.get("modelID")) or words(mapping(info.get("model")).get("modelID"))
        inherited = self._inherited(at)
        if inherited:
            self._total = None
        tokens, error = _tokens(info.get("tokens")), info.get("error")
        if tokens is None and info.get("parentID") in self._commands:
            out.append(Counted("commands of the user", key))
            return
        aborted = mapping(error).get("name") == "MessageAbortedError"
        if tokens is None and error and not aborted:
            out.append(Counted("failed calls", key))
        else:
            finish = words(info.get("finish"))
            cost = money(info.get("cost")) if tokens is not None else None
            out.append(Call(key, None, at, model, tokens, "", finish, cost, True, inherited))
        for part in parts:
            _part(part, at, out, self._content, key, model, inherited)
        if info.get("summary") is True and not inherited:
            out.append(Compacted(words(info.get("parentID")) or key, at))
        _flat(key, info, at, out, self._content)
        self._closes(at, _error(mapping(error), at) if error else _finish(words(info.get("finish")), at))

    def end(self, out: list[Event]) -> None:
        """What can be said only when all messages were told."""
        if self._total is not None:
            out.append(self._total)
        if self._closing[1] is not None:
            out.append(self._closing[1])
        out.append(self.read(self.records))


def _part(
    part: dict[str, Any],
    at: str | None,
    out: list[Event],
    content: bool,
    message: str | None = None,
    model: str | None = None,
    inherited: bool = False,
) -> None:
    """Append what a part of an assistant's message says."""
    kind = part.get("type")
    key = words(part.get("id"))
    message = message or words(part.get("messageID")) or str(part.get("sessionID"))
    time = mapping(part.get("time"))
    at = instant(time.get("start")) or at
    if kind == "step-finish":
        tokens = _tokens(part.get("tokens"))
        member = key or f"{at}:{part.get('tokens')}"
        reason, cost = words(part.get("reason")), money(part.get("cost"))
        out.append(Call(message, member, at, model, tokens, "", reason, cost, True, inherited))
    elif kind == "tool":
        _tool(part, key or f"{message}:{part.get('callID')}", message, at, out, content, inherited)
    elif kind == "compaction" and not inherited:
        out.append(Compacted(message, at))
    elif kind == "retry":
        out.append(Counted("retries", key or f"{message}:{part.get('attempt')}"))
    elif content and kind in ("text", "reasoning") and type(part.get("text")) is str:
        out.append(Said(message, at, part["text"], "", kind == "reasoning"))


def _tool(
    part: dict[str, Any],
    key: str,
    message: str,
    at: str | None,
    out: list[Event],
    content: bool,
    inherited: bool,
) -> None:
    state = mapping(part.get("state"))
    time = mapping(state.get("time"))
    began = instant(time.get("start")) or at
    asked = state.get("input") if content else None
    out.append(ToolCall(key, began, str(part.get("tool")), asked, message, inherited=inherited))
    status = str(state.get("status")).lower()
    if status in ("completed", "error"):
        metadata = mapping(state.get("metadata"))
        code = metadata.get("exit", metadata.get("exitCode"))
        failed = status == "error" or (type(code) is int and code != 0)
        given = state.get("output", state.get("error")) if content else None
        out.append(ToolResult(key, instant(time.get("end")) or at, given, failed))
    if not inherited and (child := _child(part)):
        out.append(Counted("sub-agent sessions", child))


def _child(part: dict[str, Any]) -> str | None:
    """The session of the sub-agent that this tool call began."""
    metadata = mapping(mapping(part.get("state")).get("metadata"))
    return words(metadata.get("sessionId")) if part.get("tool") == "task" else None


def _prompt(
    key: str, at: str | None, info: dict[str, Any], parts: list[dict[str, Any]], content: bool
) -> Prompt:
    """A user's message; one that has only what OpenCode put there is the system's."""
    own = [part for part in parts if not part.get("synthetic") and part.get("type") != "compaction"]
    text: object = None
    if content:
        texts = [part["text"] for part in own or parts if type(part.get("text")) is str]
        text = "\n".join(texts) if texts else info.get("content")
    return Prompt(key, at, text, "", "user" if own or not parts else "system")


def _flat(key: str, info: dict[str, Any], at: str | None, out: list[Event], content: bool) -> None:
    """Text and tools inside the message itself, as some exporters write them."""
    if content and type(info.get("content")) is str:
        out.append(Said(key, at, info["content"]))
    for place, call in enumerate(info.get("tool_calls") or ()):
        tool = words(call.get("id")) or f"{key}.{place}"
        out.append(ToolCall(tool, at, str(call.get("name")), call.get("arguments") if content else None, key))


def _tokens(said: object) -> Tokens | None:
    """Tokens of a step, a message or a session; all 0 is what is written before anything is known."""
    if type(said) is not dict:
        return None
    cache = mapping(said.get("cache"))
    fresh, output = count(said.get("input")), count(said.get("output"))
    cached, created = count(cache.get("read")), count(cache.get("write"))
    reasoning = count(said.get("reasoning"))
    if not any((fresh, output, cached, created, reasoning)):
        return None
    if output is not None and reasoning:
        parts = (fresh or 0) + (cached or 0) + (created or 0)
        included = minus(count(said.get("total")), parts) == output
        output += 0 if included else reasoning
    return Tokens(fresh, cached, created, output, reasoning)


def _finish(reason: str | None, at: str | None) -> Ending | None:
    """What the last step lets one say."""
    match reason:
        case "stop":
            return Ending("clean", "stop", "", 0, at)
        case "length" | "content-filter" | "unknown" | "error" | "other":
            return Ending("provider", reason, "", 0, at)
        case _:
            return None


def _error(error: dict[str, Any], at: str | None) -> Ending:
    name = words(error.get("name")) or "error"
    data = mapping(error.get("data"))
    text = words(data.get("message")) or words(error.get("message")) or name
    match name:
        case "MessageAbortedError":
            return Ending("interrupt", "aborted", text, 1, at)
        case "ProviderAuthError":
            return Ending("auth", "401", text, 1, at)
        case "MessageOutputLengthError":
            return Ending("provider", "length", text, 1, at)
        case "ContextOverflowError":
            return Ending("provider", "context", text, 1, at)
        case _:
            return failure(count(data.get("statusCode")), text, at, 1, name)


def _is_message(value: object) -> bool:
    o = mapping(value)
    return (
        o.get("role") in ("user", "assistant", "tool")
        and isinstance(o.get("id"), str)
        and isinstance(o.get("sessionID"), str)
        and "created" in mapping(o.get("time"))
    )


def _is_exported(value: object) -> bool:
    o = mapping(value)
    return isinstance(o.get("parts"), list) and mapping(o.get("info")).get("role") in ("user", "assistant")


def _is_session(value: object) -> bool:
    o = mapping(value)
    times = mapping(o.get("time"))
    return isinstance(o.get("id"), str) and isinstance(o.get("directory"), str) and "updated" in times


def _is_part(value: dict[str, Any]) -> bool:
    named = isinstance(value.get("messageID"), str) or "start" in mapping(value.get("time"))
    return isinstance(value.get("id"), str) and value.get("type") in _PARTS and named


def _storage(path: Path) -> Path | None:
    """The directory with ``message`` and ``session`` or ``part``."""
    for root in (path, path / "storage"):
        if (root / "message").is_dir() and ((root / "session").is_dir() or (root / "part").is_dir()):
            return root
    return None


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _folders(folder: Path) -> list[Path]:
    return [Path(entry.path) for entry in _entries(folder) if entry.is_dir(follow_symlinks=False)]


def _files(folder: Path, deep: int) -> Iterator[Path]:
    """The JSON files in a folder, `deep` levels down at most."""
    for entry in _entries(folder):
        if entry.is_dir(follow_symlinks=False):
            if deep > 1:
                yield from _files(Path(entry.path), deep - 1)
        elif entry.name.endswith(".json") and entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


def _loaded(file: Path, out: list[Event] | None = None) -> dict[str, Any]:
    """The object in a file; an empty one if there is none, and `out` gets why."""
    try:
        value = parse(file.read_bytes())
        why = "" if isinstance(value, dict) else "not an object"
    except (OSError, Malformed) as error:
        value, why = {}, str(error)
    if why and out is not None:
        out.append(Skipped(None, f"{file.name}: {why}", torn=True))
    return mapping(value)


def _strays(parts: dict[str, Path], messages: set[str]) -> dict[str, list[str]]:
    """Folders of parts that no message's file is named for, by the session that their parts name.

    Nobody's: a session of that folder's name.
    """
    strays: dict[str, list[str]] = {}
    for name in sorted(set(parts) - messages):
        named = (words(_loaded(file).get("sessionID")) for file in _files(parts[name], 1))
        session = next((each for each in named if each), name)
        strays.setdefault(session, []).append(name)
    return strays


def _given(files: list[Path], parts: dict[str, Path], strays: list[str], out: list[Event]) -> list[_Message]:
    """A session's messages with their parts, and the parts without a message."""
    given: list[_Message] = []
    told: set[str] = set()
    for file in files:
        message = _loaded(file, out)
        names = {file.stem, str(message.get("id"))} & set(parts)
        told |= names
        given.append((message, [_loaded(part, out) for name in names for part in _files(parts[name], 1)]))
    for name in strays:
        if name not in told:
            alone = [{"messageID": name} | _loaded(part, out) for part in _files(parts[name], 1)]
            given.append(({}, alone))
    return given


def _from_files(
    info: dict[str, Any],
    where: tuple[list[Path], dict[str, Path], list[str]],
    content: bool,
    out: list[Event],
) -> Iterator[Event]:
    """The events of a session; its files are read when they are asked for."""
    given = _given(*where, out)
    yield from out
    yield from _told(info, given, content)


def _connected(file: Path) -> sqlite3.Connection:
    """A connection that cannot write. Raises `sqlite3.Error` if it is not a database of OpenCode.

    Where not even the index of a write-ahead log can be made, the database is
    read as it is, unless there is a log: it would be old.
    """
    place = f"file:{quote(os.fsencode(file.resolve()))}?mode=ro"
    log = file.with_name(file.name + "-wal")
    modes = [""] if log.exists() and log.stat().st_size else ["", "&immutable=1"]
    for mode in modes:
        base = sqlite3.connect(place + mode, uri=True, isolation_level=None)
        base.row_factory = sqlite3.Row
        base.text_factory = lambda text: text.decode("utf-8", "replace")
        try:
            base.execute("BEGIN")
            tables = {row[0] for row in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        except sqlite3.Error:
            base.close()
            if mode == modes[-1]:
                raise
            continue
        if not {"session", "message", "part"} <= tables:
            base.close()
            raise sqlite3.DatabaseError("it has no tables session, message and part")
        return base
    raise AssertionError("unreachable")


def _rows(base: sqlite3.Connection, query: str, *values: str) -> Iterator[dict[str, Any]]:
    for row in base.execute(query, values):
        yield dict(row)


def _lazily(base: sqlite3.Connection, row: dict[str, Any], content: bool) -> Iterator[Event]:
    """The events of one row, which are read when they are asked for; what cannot be read is said."""
    try:
        yield from _stored(base, row, content)
    except (*SHAPES, sqlite3.Error) as error:
        yield Skipped(None, f"the database could not be read: {error}", torn=True)


def _stored(base: sqlite3.Connection, row: dict[str, Any], content: bool) -> list[Event]:
    """The events of one row of the table ``session``."""
    out: list[Event] = []
    session = str(row["id"])
    info = {
        "id": session,
        "parentID": row.get("parent_id"),
        "directory": row.get("directory"),
        "title": row.get("title"),
        "version": row.get("version"),
        "cost": row.get("cost"),
        "time": {"created": row.get("time_created"), "updated": row.get("time_updated")},
        "tokens": {
            "input": row.get("tokens_input"),
            "output": row.get("tokens_output"),
            "reasoning": row.get("tokens_reasoning"),
            "cache": {"read": row.get("tokens_cache_read"), "write": row.get("tokens_cache_write")},
        },
    }
    parts: dict[str, list[dict[str, Any]]] = {}
    for part in _rows(base, "SELECT * FROM part WHERE session_id = ? ORDER BY id", session):
        parts.setdefault(str(part.get("message_id")), []).append(_data(part, out))
    messages = [
        (_data(each, out), parts.pop(str(each["id"]), []))
        for each in _rows(base, "SELECT * FROM message WHERE session_id = ? ORDER BY id", session)
    ]
    messages += [({}, alone) for alone in parts.values()]
    return out + _told(info, messages, content)


def _data(row: dict[str, Any], out: list[Event]) -> dict[str, Any]:
    """The object in a row's column ``data``, with the ids that stand in columns of their own."""
    own = {"id": row["id"], "sessionID": row.get("session_id")}
    if "message_id" in row:
        own["messageID"] = row["message_id"]
    data = row.get("data")
    try:
        return own | mapping(parse(data if isinstance(data, bytes) else str(data).encode()))
    except Malformed as error:
        out.append(Skipped(None, f"{row['id']}: {error}", torn=True))
        return own
