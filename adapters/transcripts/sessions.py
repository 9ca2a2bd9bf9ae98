"""From files and folders to sessions: which files belong together, in which order they are counted.

A session may be several files: its own, those of its sub-agents, the stream
that was recorded of it. A file may hold what another session did: a fork
begins with a copy. Both are told by ids that stand in the files; names are
hints for looking, never proof.

Files are read in pieces and never written.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from adapters.transcripts import formats
from adapters.transcripts.account import Account, Figures
from adapters.transcripts.events import (
    Call,
    Ending,
    Event,
    Opened,
    Prompt,
    Read,
    Said,
    Skipped,
    ToolCall,
    ToolResult,
)
from adapters.transcripts.lines import LONGEST, Lines
from adapters.transcripts.reader import LARGEST, PIECE, Copies, Head, Reader, Span

#: Lines that are looked at for the first object.
MANY: Final = 20_000

_SQLITE = b"SQLite format 3\0"
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"PK\x03\x04", b"BZh")


@dataclass(frozen=True, slots=True)
class Unread:
    """A file that is no transcript, or cannot be read; `why` is a sentence's end."""

    path: Path
    why: str


@dataclass(slots=True)
class Source:
    """One transcript, and what its beginning says of it."""

    path: Path
    format: str
    copies: Copies
    opened: Opened
    first: str | None

    @property
    def harness(self) -> str:
        return self.format.partition("-")[0]

    def events(self, content: bool) -> Iterator[list[Event]]:
        """All events, piece by piece. Raises OSError."""
        raise NotImplementedError


@dataclass(slots=True)
class File(Source):
    """A file that is one transcript."""

    reader: type[Reader]

    def events(self, content: bool) -> Iterator[list[Event]]:
        reader = self.reader(content)
        with self.path.open("rb", buffering=0) as file:
            while data := file.read(PIECE):
                yield reader.feed(data)
        yield reader.close()


@dataclass(slots=True)
class Stored(Source):
    """One session of a store.

    name: what the store calls it.
    held: its events, until they are asked for: a store that is read again for
        each of its sessions takes as many times as long.
    """

    store: type[formats.Store]
    name: str
    held: list[Event] | None

    def events(self, content: bool) -> Iterator[list[Event]]:
        if self.held is not None and not content:
            held, self.held = self.held, None
            yield held
            return
        for name, events in self.store.sessions(self.path, content):
            if name == self.name:
                yield list(events)
                return


@dataclass(slots=True)
class Session:
    """The files of one session; `family`: the session at the root of its forks."""

    id: str | None
    harness: str
    sources: list[Source] = field(default_factory=list)
    parent: str | None = None
    family: str | None = None

    @property
    def first(self) -> str:
        return min((source.first for source in self.sources if source.first), default="")

    @property
    def paths(self) -> list[Path]:
        return [source.path for source in self.sources]

    def events(self, content: bool) -> Iterator[list[Event]]:
        """The events of all its files, those of sub-agents marked as theirs. Raises OSError."""
        for source in self.sources:
            side = source.opened.inside if source.opened.session != self.id else None
            for events in source.events(content):
                # How a sub-agent ended is not how its session did.
                own = (
                    [beside(event, side) for event in events if type(event) is not Ending] if side else events
                )
                yield own


@dataclass(frozen=True, slots=True)
class Measured:
    """A session and its figures. error: why a file of it could not be read to its end."""

    session: Session
    figures: Figures
    formats: tuple[str, ...]
    error: str = ""


def beside(event: Event, side: str) -> Event:
    """The event as one of a sub-agent."""
    if isinstance(event, (Call, ToolCall, ToolResult, Prompt, Said)) and not event.side:
        return event._replace(side=side)
    return event


def find(paths: Iterable[Path]) -> Iterator[Source | Unread]:
    """The transcripts among these files and in these folders, and what is none.

    A file brings those of its sub-agents along. A path that was given twice
    is read once.
    """
    seen: set[tuple[int, int]] = set()
    agents: _Agents = {}
    for path in paths:
        for found in _under(path, agents):
            try:
                state = found.stat()
            except OSError as error:
                yield Unread(found, error.strerror or str(error))
                continue
            if not (stat.S_ISREG(state.st_mode) or stat.S_ISDIR(state.st_mode)):
                yield Unread(found, "not a file")  # a pipe would be waited for, and a device never ends
            elif (state.st_dev, state.st_ino) not in seen:
                seen.add((state.st_dev, state.st_ino))
                yield from _sources(found)


#: The files ``agent-*.jsonl`` of a folder, by the session that they say they belong to.
_Agents = dict[Path, dict[str, list[Path]]]


def _under(path: Path, agents: _Agents) -> Iterator[Path]:
    """The files and stores at a path: itself, or what lies below it, by name."""
    if not os.path.isdir(path):
        yield path
        if os.path.isfile(path):
            yield from _of_sub_agents(path, agents)
        return
    waiting = [(path, True)]  # no calls inside calls: folders may lie deeper than those may
    while waiting:
        path, folder = waiting.pop()
        if not folder or formats.store_of(path) is not None:
            yield path
            continue
        try:
            with os.scandir(path) as found:
                entries = sorted(found, key=lambda entry: entry.name, reverse=True)
        except OSError:
            yield path
            continue
        for entry in entries:
            try:
                folder = entry.is_dir(follow_symlinks=False)
                if folder or entry.is_file(follow_symlinks=False):
                    waiting.append((Path(entry.path), folder))
            except OSError:
                waiting.append((Path(entry.path), False))


def _of_sub_agents(path: Path, agents: _Agents) -> Iterator[Path]:
    """Files that a harness keeps beside a session's own: those whose content says that they belong to it."""
    below = [*path.parent.glob(f"{_literal(path.stem)}/subagents/**/*.jsonl")]
    beside_it: dict[str, list[Path]] = {}
    if not path.name.startswith("agent-"):
        if path.parent not in agents:
            agents[path.parent] = _by_session(path.parent.glob("agent-*.jsonl"))
        beside_it = agents[path.parent]
    own = next(iter(_sources(path)), None) if below or beside_it else None
    if isinstance(own, Source) and (session := own.opened.session) is not None:
        yield from sorted([*_by_session(below).get(session, ()), *beside_it.get(session, ())])


def _by_session(paths: Iterable[Path]) -> dict[str, list[Path]]:
    out: dict[str, list[Path]] = {}
    for path in paths:
        # Nothing else is opened: a pipe would be waited for.
        source = next(iter(_sources(path)), None) if os.path.isfile(path) else None
        if isinstance(source, Source) and source.opened.session is not None:
            out.setdefault(source.opened.session, []).append(path)
    return out


def _literal(name: str) -> str:
    return "".join(f"[{each}]" if each in "*?[" else each for each in name)


def _sources(path: Path) -> Iterator[Source | Unread]:
    try:
        if path.is_dir():
            store = formats.store_of(path)
            if store is None:
                yield Unread(path, "a folder that cannot be listed")
                return
            yield from _of_store(path, store)
            return
        head = _head(path)
    except OSError as error:
        yield Unread(path, error.strerror or str(error))
        return
    if isinstance(head, Unread):
        yield head
        return
    if head.data.startswith(_SQLITE):
        store = formats.store_of(path)
        if store is not None:
            yield from _of_store(path, store)
        else:
            yield Unread(path, "a database of no known format")
        return
    reader = formats.reader_of(head)
    if reader is None:
        yield Unread(path, "no known format")
        return
    opened, first = _begins(reader(False), head)
    yield File(path, reader.format, reader.copies, opened, first, reader)


def _of_store(path: Path, store: type[formats.Store]) -> Iterator[Source | Unread]:
    """Every session of a store."""
    found = False
    for name, events in store.sessions(path, False):
        held = list(events)
        opened, first = _opened(held)
        if opened.session is None:
            opened = opened._replace(session=name)
        found = True
        yield Stored(path, store.format, "nowhere", opened, first, store, name, held)
    if not found:
        yield Unread(path, f"a store of {store.format} without a session")


def _head(path: Path) -> Head | Unread:
    """The beginning of a file: enough to tell its format. Raises OSError."""
    with path.open("rb", buffering=0) as file:
        data = file.read(formats.HEAD)
        if not data:
            return Unread(path, "empty")
        size = os.fstat(file.fileno()).st_size
        if data.startswith(_SQLITE):
            return Head(path.as_posix(), data)
        if data.startswith(_COMPRESSED):
            return Unread(path, "compressed: unpack it first")
        if b"\0" in data and not data.strip(b"\0"):
            return Unread(path, "zero bytes")
        head = formats.head_of(path.as_posix(), data, whole=size <= len(data))
        if head.records or size <= len(data) or formats.reader_of(head) is not None:
            return head
        # Not one whole line: a very long one, or a document of many lines.
        document = formats.may_be_document(data)
        limit = LARGEST if document else LONGEST
        pieces = [data]
        have = len(data)
        # Each line is looked at once, and so many of them: a file without one object in those is no transcript.
        lines = Lines()
        lines.feed(data)
        while have <= limit and (piece := file.read(PIECE)):
            pieces.append(piece)
            have += len(piece)
            if lines.number < MANY and (records := lines.feed(piece)):
                objects = [value for _, value in records]
                if formats.reader_of(Head(path.as_posix(), data, objects)) is not None:
                    return Head(path.as_posix(), b"".join(pieces), objects)
            if lines.number >= MANY and not document:
                break
        data = b"".join(pieces)
        whole = have >= size
        if lines.number < MANY:
            return formats.head_of(path.as_posix(), data, whole)
        return Head(path.as_posix(), data, document=formats.document_of(data) if whole else None)


def _begins(reader: Reader, head: Head) -> tuple[Opened, str | None]:
    events = reader.feed(head.data)
    if reader.whole:
        events += reader.close()
    return _opened(events)


def _opened(events: Iterable[Event]) -> tuple[Opened, str | None]:
    """What these events say of their session, and when it began."""
    account, span = Account(), Span()
    for event in events:
        if isinstance(event, Opened):
            account.add((event,))
        elif isinstance(event, Read):
            span.saw(event.first)
    return account.opened, span.first


def gather(sources: Iterable[Source]) -> list[Session]:
    """Sources to sessions: forks after what they were forked from, else the earliest first."""
    sessions: dict[tuple[str, str], Session] = {}
    sources = list(sources)
    ids = {(source.harness, source.opened.session) for source in sources}
    inside = {
        (source.harness, source.opened.session): source.opened.inside
        for source in sources
        if (source.harness, source.opened.inside) in ids
    }
    for source in sources:
        opened = source.opened
        name = opened.session
        outer, within = opened.inside, {name}
        while (source.harness, outer) in ids and outer is not None and outer not in within:
            within.add(outer)
            name = outer  # a sub-agent with an id of its own, or one of such a one
            outer = inside.get((source.harness, outer))
        key = (source.harness, name or str(source.path))
        session = sessions.setdefault(key, Session(name, source.harness))
        session.sources.append(source)
        if opened.forked is not None and opened.session == name:
            session.parent = opened.forked
    return _ordered(sessions)


def _ordered(sessions: dict[tuple[str, str], Session]) -> list[Session]:
    """A fork's parent first; each gets the root of its forks as its family.

    A parent is named by its id, or by the name of its file.
    """
    by_file = {(each.harness, path.name): each for each in sessions.values() for path in each.paths}
    by_time = sorted(
        sessions.values(), key=lambda each: (not each.first, each.first, str(each.sources[0].path))
    )
    out: dict[int, Session] = {}

    for each in by_time:
        line: dict[int, Session] = {}  # from a fork up to what it began with; they may go round in a circle
        above, family = each, ""
        while id(above) not in out and id(above) not in line:
            line[id(above)] = above
            family = above.id or str(above.sources[0].path)
            if above.parent is None:
                break
            parent = sessions.get((above.harness, above.parent)) or by_file.get(
                (above.harness, Path(above.parent).name)
            )
            if parent is None:
                family = above.parent
                break
            above = parent
        if id(above) in out:
            family = above.family or ""
        for session in reversed(line.values()):
            session.family = family
            out[id(session)] = session
            # A sub-agent's calls are the session's own when its own file has them too: its own first.
            session.sources.sort(key=lambda source: (source.opened.inside is not None, str(source.path)))
    return list(out.values())


def measure(sessions: Iterable[Session]) -> Iterator[Measured]:
    """The figures of each session; what one of them made, none that copied it is charged with."""
    made: dict[str, set[int]] = {}
    for session in sessions:
        copies = {source.copies for source in session.sources} - {"nowhere"}
        scope = session.harness if "anywhere" in copies else f"{session.harness}/{session.family}"
        account = Account(made.get(scope, set()) if copies else set())
        error = ""
        try:
            for events in session.events(content=False):
                account.add(events)
        except OSError as problem:
            error = f"{problem.filename or session.sources[0].path}: {problem.strerror or problem}"
            account.add([Skipped(None, f"cannot be read: {problem.strerror or problem}", torn=True)])
        if copies:
            made.setdefault(scope, set()).update(account.made("anywhere" in copies))
        used = dict.fromkeys(source.format for source in session.sources)
        yield Measured(session, account.figures(), tuple(used), error)
