"""Transcripts read whole, for tests of their figures: ours, and those of the corpus beside the repository."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from adapters.transcripts.account import Account, Figures
from adapters.transcripts.events import Event
from adapters.transcripts.formats import head_of, reader_of, store_of
from adapters.transcripts.reader import Reader

CORPUS = Path(__file__).parents[2].parent / "shared/corpus"


def corpus(pattern: str) -> Path:
    """The one file of the corpus that the pattern matches."""
    if not CORPUS.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"{CORPUS} is missing, and CI has to have it")
        pytest.skip(f"{CORPUS} is missing")
    (found,) = CORPUS.glob(pattern)
    return found


def lines(*records: Any) -> bytes:
    """JSON lines; bytes stay as they are."""
    return b"".join(
        (each if isinstance(each, bytes) else json.dumps(each).encode()) + b"\n" for each in records
    )


def document(value: Any) -> bytes:
    return json.dumps(value).encode()


def events(reader: type[Reader], data: bytes, piece: int = 0, content: bool = True) -> list[Event]:
    made = reader(content)  # type: ignore[call-arg]
    out: list[Event] = []
    for start in range(0, len(data), piece or max(1, len(data))):
        out += made.feed(data[start : start + (piece or len(data))])
    return out + made.close()


def figures(each: Iterable[Event]) -> Figures:
    account = Account()
    account.add(each)
    return account.figures()


def read(source: Path | bytes, name: str = "file") -> tuple[str, Figures]:
    """The format that is found and the figures; they are the same without content, and from small pieces."""
    data = source if isinstance(source, bytes) else source.read_bytes()
    reader = reader_of(head_of(name, data, True))
    assert reader is not None
    whole = figures(events(reader, data))
    for other in (events(reader, data, 777), events(reader, data, content=False)):
        assert counted(figures(other)) == counted(whole)
        assert figures(other).ending == whole.ending
    return reader.format, whole


def stored(path: Path) -> tuple[str, dict[str, Figures]]:
    """The store that is found, and the figures of its sessions."""
    store = store_of(path)
    assert store is not None
    for name, each in store.sessions(path, False):
        assert name
        figures(each)
    return store.format, {name: figures(each) for name, each in store.sessions(path, True)}


def format_of(source: Path | bytes, name: str = "file") -> str | None:
    data = source if isinstance(source, bytes) else source.read_bytes()
    reader = reader_of(head_of(name, data, True))
    return reader.format if reader else None


def counted(each: Figures) -> tuple[object, ...]:
    """What a repeated line must not change."""
    return (
        each.tokens,
        each.main,
        each.subagents,
        each.turns,
        each.turns_subagents,
        each.tool_calls,
        each.tool_errors,
        each.cost_reported,
        each.lower_bounds,
    )


#: Which lines to repeat, and where to put them.
repeats = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)), max_size=20)


def repeated(records: Sequence[Any], again: Sequence[tuple[int, int]]) -> bytes:
    """The records as lines, some of them again, later than they stood."""
    out = list(records)
    for which, where in again:
        record = records[which % len(records)]
        first = out.index(record) + 1
        out.insert(first + where % (len(out) - first + 1), record)
    return lines(*out)


_junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def broken(draw: st.DrawFn, value: Any) -> Any:
    """The value with something else in a few of its places."""
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 3))):
        place = value
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if not isinstance(place[key], (dict, list)) or draw(st.booleans()):
                place[key] = draw(_junk)
                break
            place = place[key]
    return value


def survives(value: Any, as_lines: bool = False) -> None:
    """Every reader may be asked about it, and the one that claims it reads it without an exception."""
    data = lines(*value) if as_lines else document(value)
    reader = reader_of(head_of("file", data, True))
    if reader is not None:
        figures(events(reader, data))
