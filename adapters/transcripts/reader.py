"""The port of a transcript's format, and what readers of lines and of documents share.

A reader is pure: bytes in, events out; no files, no clock. One instance reads
one file. It is found by the entry point group ``megaharness.transcripts``, so
that a new harness brings its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, Protocol

from adapters.transcripts.events import Counted, Event, Read, Skipped, shapeless
from adapters.transcripts.lines import BOM, SHAPES, Lines, Malformed, parse

#: Bytes that are read and parsed before what they say is used. Measured: what was parsed must still be in the
#: processor's cache then; 1 MiB takes half as long again.
PIECE = 64 * 1024

#: Bytes of the largest transcript that is one JSON document: it has to be parsed whole.
LARGEST = 512 * 1024 * 1024

#: More tokens, calls or dollars than this were used by nobody: such a number is a broken one, and unknown.
MOST = 10**15


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a file, for telling its format.

    path: as given, with ``/``; a hint, never proof.
    records: the objects of the first complete lines.
    document: the whole file, if it is one JSON value; None: it is not, or was not asked.
    data: the first bytes.
    """

    path: str
    data: bytes
    records: Sequence[dict[str, Any]] = ()
    document: Any = None


Copies = Literal["anywhere", "forked", "nowhere"]


class Reader(Protocol):
    """Reads one file of one format.

    format: the format's name, ``claude-code`` for example. Formats with the
        same word before the first hyphen are of one harness and may describe
        one session.
    whole: the file is one document: an addition cannot be read alone.
    copies: where a call of another session may be found again under the same
        key: ``anywhere`` (its key is unique in the world), in a session that
        was ``forked`` from it, or nowhere.
    """

    format: ClassVar[str]
    whole: ClassVar[bool]
    copies: ClassVar[Copies]

    @classmethod
    def claims(cls, head: Head) -> int:
        """How sure it is that the file is of its format: 0 not at all, 100 certain."""
        ...

    def __init__(self, content: bool = True) -> None: ...

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete. They follow those of the last call."""
        ...

    def close(self) -> list[Event]:
        """The events of what is left; nothing is fed after it."""
        ...


class Span:
    """Knows the times of the first and the last record that had one."""

    first: str | None = None
    last: str | None = None

    def saw(self, at: str | None) -> str | None:
        """Note a record's time, which `instant` has made, and give it back."""
        if at is None:
            return None
        first, last = self.first, self.last
        if first is None or last is None:
            self.first = self.last = at
        elif len(at) == len(last) == len(first):
            if at > last:
                self.last = at
            elif at < first:
                self.first = at
        elif earlier(last, at):
            self.last = at
        elif earlier(at, first):
            self.first = at
        return at

    def at(self, value: object) -> str | None:
        """A record's time, noted: `instant` and `saw` in one."""
        first, last = self.first, self.last
        # Written out for the form that nearly every line has: it is asked once for each of them.
        if (
            type(value) is str
            and last is not None
            and first is not None
            and len(value) == len(last) == len(first)
            and value[-1] == "Z"
            and value[0] <= "9"
        ):
            if value > last:
                self.last = value
            elif value < first:
                self.first = value
            return value
        return None if value is None else self.saw(instant(value))

    def read(self, records: int) -> Read:
        """What was read by now."""
        return Read(records, self.first, self.last)


class LineReader(Span):
    """A reader of JSON lines: a subclass says what one object means in `record`.

    content: False leaves out what only a trajectory needs (texts, arguments,
        results), which makes it faster.
    tally: how many records there were of what; told as `Counted` without keys.
    """

    format: ClassVar[str]
    whole: ClassVar[bool] = False
    copies: ClassVar[Copies] = "nowhere"

    def __init__(self, content: bool = True) -> None:
        self.content = content
        self.tally: defaultdict[str, int] = defaultdict(int)
        self._lines = Lines()

    def record(self, o: dict[str, Any], line: int, out: list[Event]) -> None:
        """Append the events of one object to `out`."""
        raise NotImplementedError

    def ended(self, out: list[Event]) -> None:
        """Append what can be said only when everything was read."""

    def feed(self, data: bytes) -> list[Event]:
        out: list[Event] = []
        # In small pieces: what was parsed is used before the next pushes it out of the processor's cache.
        for start in range(0, len(data), PIECE):
            piece = data if len(data) <= PIECE else data[start : start + PIECE]
            self._told(self._lines.each(piece, self.record, out), out)
        return out

    def close(self) -> list[Event]:
        out: list[Event] = []
        last = self._lines.close()
        for number, o in last:
            try:
                self.record(o, number, out)
            except SHAPES as error:
                out.append(shapeless(number, error))
        self._told(len(last), out)
        self.ended(out)
        return out

    def _told(self, records: int, out: list[Event]) -> None:
        """What is said once for many lines."""
        if self._lines.skipped:
            out.extend(self._lines.skipped)
            self._lines.skipped.clear()
        if self.tally:
            out.extend(Counted(what, None, times) for what, times in self.tally.items())
            self.tally.clear()
        out.append(self.read(records))


class DocumentReader(Span):
    """A reader of one JSON document: a subclass says what it means in `document`.

    records: what `document` counts as such: messages, for example.
    """

    format: ClassVar[str]
    whole: ClassVar[bool] = True
    copies: ClassVar[Copies] = "nowhere"

    def __init__(self, content: bool = True) -> None:
        self.content = content
        self.records = 0
        self._pieces: list[bytes] = []
        self._size = 0

    def document(self, value: Any, out: list[Event]) -> None:
        """Append the events of the document to `out`."""
        raise NotImplementedError

    def feed(self, data: bytes) -> list[Event]:
        if self._size <= LARGEST:
            self._pieces.append(data)
        self._size += len(data)
        return []

    def close(self) -> list[Event]:
        out: list[Event] = []
        if self._size > LARGEST:
            out.append(Skipped(None, f"{self._size} bytes; documents over {LARGEST} are not read"))
            return out
        data = b"".join(self._pieces)
        self._pieces.clear()
        try:
            value = parse(data.removeprefix(BOM))
        except Malformed as error:
            out.append(Skipped(None, f"cut off or {error}", torn=True))
            return out
        try:
            self.document(value, out)
        except SHAPES as error:
            out.append(shapeless(None, error))
        out.append(self.read(self.records))
        return out


def instant(value: object) -> str | None:
    """A time as ISO 8601 in UTC with ``Z``; None if it is none.

    Text with ``Z`` stays as it is; another zone is converted; text without a
    zone is taken for UTC (the harnesses that write it mean it so). Numbers
    are seconds or, from 1e11 on, milliseconds since 1970.
    """
    if type(value) is str:
        if value[-1:] == "Z" and value[:1].isdigit():
            return value
        return _converted(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            moment = datetime.fromtimestamp(value / 1000 if value >= 1e11 else value, UTC)
        except (ValueError, OverflowError, OSError):
            return None
        return _written(moment) if value > 0 else None
    return None


def _converted(text: str) -> str | None:
    try:
        moment = datetime.fromisoformat(text)
        return _written(moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC))
    except (ValueError, OverflowError):  # OverflowError: in UTC it is before the year 1, or after 9999
        return None


def _written(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def earlier(a: str, b: str) -> bool:
    """Whether instant `a` is before `b`; without ``Z`` the text of a whole second sorts before its parts."""
    return a[:-1] < b[:-1]


def count(value: object) -> int | None:
    """A number of tokens, calls or turns; None for everything that cannot be one."""
    if type(value) is int:
        return value if 0 <= value <= MOST else None
    if type(value) is float and 0 <= value <= MOST and value.is_integer():
        return int(value)
    return None


def money(value: object) -> float | None:
    """US dollars; None for everything that cannot be an amount."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= MOST:
        return float(value)
    return None


def words(value: object) -> str | None:
    """Text that is not empty, else None."""
    return value if isinstance(value, str) and value else None


def mapping(value: object) -> dict[str, Any]:
    """The object, or an empty one in place of anything else."""
    return value if isinstance(value, dict) else {}


def minus(total: int | None, *parts: int | None) -> int | None:
    """What is left of a total without its known parts; never below 0, None if the total is unknown."""
    if total is None:
        return None
    return max(0, total - sum(part for part in parts if part is not None))
