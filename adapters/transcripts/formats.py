"""The formats that are known, and which of them a file is of.

Readers and stores are found by the entry point group
``megaharness.transcripts``, ours as anybody's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, TypeVar

from adapters.transcripts.events import Event
from adapters.transcripts.lines import BOM, SHAPES, Lines, Malformed, parse
from adapters.transcripts.reader import Head, Reader

GROUP: Final = "megaharness.transcripts"

#: Bytes that are looked at to tell a format; more if the first line is longer.
HEAD: Final = 64 * 1024

T = TypeVar("T")


class Store(Protocol):
    """A place where a harness keeps many sessions in many files, or in a database.

    It is the one kind of reader that opens files itself, and only those under
    the path that it claimed.
    """

    format: ClassVar[str]

    @classmethod
    def claims(cls, path: Path) -> int:
        """How sure it is that this directory or file is such a store: 0 not at all, 100 certain."""
        ...

    @classmethod
    def sessions(cls, path: Path, content: bool) -> Iterator[tuple[str, Iterable[Event]]]:
        """Each session's id and events. What cannot be read is a `Skipped` among them."""
        ...


@cache
def known() -> tuple[tuple[type[Reader], ...], tuple[type[Store], ...]]:
    """All readers and all stores that are installed, by the name of their entry point."""
    readers: dict[str, type[Reader]] = {}
    stores: dict[str, type[Store]] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        found = entry.load()
        if hasattr(found, "sessions"):
            stores[entry.value] = found
        else:
            readers[entry.value] = found
    return tuple(readers.values()), tuple(stores.values())


def reader_of(head: Head) -> type[Reader] | None:
    """The reader that is surest of a file with this head; None if none is."""
    return _surest(known()[0], lambda reader: reader.claims(head))


def store_of(path: Path) -> type[Store] | None:
    """The store that is surest of a directory or file; None if none is."""
    return _surest(known()[1], lambda store: store.claims(path))


def _surest(kinds: Iterable[T], claims: Callable[[T], int]) -> T | None:
    """The one that is surest; what has a shape that one never saw, or cannot be looked at, is not its."""
    best, most = None, 0
    for kind in kinds:
        try:
            sure = claims(kind)
        except (*SHAPES, OSError):
            continue
        if sure > most:
            best, most = kind, sure
    return best


def head_of(path: str, data: bytes, whole: bool) -> Head:
    """The head of a file that begins with `data`; `whole`: there is no more of it."""
    lines = Lines()
    records = [value for _, value in lines.feed(data)]
    if whole:
        records += [value for _, value in lines.close()]
    return Head(path, data, records, document_of(data) if whole else None)


def may_be_document(data: bytes) -> bool:
    """Whether these bytes begin as an object or an array does."""
    return data.lstrip(BOM + b" \t\r\n")[:1] in (b"{", b"[")


def document_of(data: bytes) -> Any:
    """The object or the array that a whole file is; None if it is none."""
    if not may_be_document(data):
        return None
    try:
        return parse(data.removeprefix(BOM))
    except Malformed:
        return None
