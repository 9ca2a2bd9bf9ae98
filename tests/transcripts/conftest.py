"""The corpus of real transcripts and the inputs of public bug reports; both lie beside the repository."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from adapters.transcripts.account import Account, Figures
from adapters.transcripts.formats import HEAD, head_of, reader_of
from adapters.transcripts.reader import Reader

SHARED = Path(__file__).resolve().parents[2].parent / "shared"


@pytest.fixture(scope="session")
def corpus() -> Path:
    return _there("corpus")


@pytest.fixture(scope="session")
def inputs() -> Path:
    return _there("cases/inputs")


def _there(name: str) -> Path:
    path = SHARED / name
    if not path.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"{path} is not here, and CI requires it")
        pytest.skip(f"../shared/{name} is not here: a public clone has not got it")
    return path


def measured(reader: type[Reader], data: bytes, content: bool = True) -> Figures:
    """The figures of what this reader reads in `data`."""
    each = reader(content)
    account = Account()
    account.add(each.feed(data))
    account.add(each.close())
    return account.figures()


def claimed(data: bytes) -> type[Reader] | None:
    """The reader that is surest of a file with these bytes."""
    return reader_of(head_of("", data[:HEAD], len(data) <= HEAD))


@pytest.fixture(scope="session")
def figures() -> Callable[..., Figures]:
    """Figures of a reader and bytes, or records that are written one a line."""

    def of(reader: type[Reader], given: bytes | Iterable[dict[str, Any]], content: bool = True) -> Figures:
        data = given if isinstance(given, bytes) else b"".join(json.dumps(o).encode() + b"\n" for o in given)
        return measured(reader, data, content)

    return of


@pytest.fixture(scope="session")
def real(corpus: Path) -> Callable[[str, type[Reader]], Figures]:
    """Figures of the one file of the corpus that fits a pattern, after its reader was found by itself."""

    def of(pattern: str, reader: type[Reader]) -> Figures:
        (file,) = corpus.glob(pattern)
        data = file.read_bytes()
        assert claimed(data) is reader
        found = measured(reader, data)
        quick = measured(reader, data, content=False)
        assert quick == found
        return found

    return of


@pytest.fixture(scope="session")
def claims() -> Callable[[bytes], type[Reader] | None]:
    return claimed
