"""From bytes in any pieces to JSON objects with line numbers.

Lines end at ``\\n`` and nowhere else: U+2028 is a character of a text, and a
text may hold it. What is not an object is skipped and said, with its number.
A line has no size to fear up to `LONGEST`; a longer one is dropped while it
is read, so that memory stays bounded, and said too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import msgspec

from adapters.transcripts.events import Event, Skipped, shapeless

#: Bytes of the longest line that is read. Real ones of 12 MB have been seen (tool results).
LONGEST = 64 * 1024 * 1024

BOM = b"\xef\xbb\xbf"
_decode = msgspec.json.Decoder().decode


#: What an unexpected shape of a record raises; nothing else is taken for one.
SHAPES: Final = (TypeError, ValueError, AttributeError, KeyError, IndexError, RecursionError, OverflowError)


class Malformed(ValueError):
    """Not a JSON object; the message says what it is instead."""


def parse(line: bytes | str) -> Any:
    """One JSON value, exactly: integers of any size, lone surrogates, NaN, and bytes that are not UTF-8.

    The fast parser refuses what the standard one accepts, so the latter is
    asked before a line is given up. Raises `Malformed`.
    """
    try:
        return _decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        pass
    try:
        return json.loads(line if isinstance(line, str) else line.decode("utf-8", "replace"))
    except RecursionError:
        raise Malformed("it is nested too deeply") from None
    except ValueError as error:
        raise Malformed(_said(line, error)) from None


def _said(line: bytes | str, error: ValueError) -> str:
    if isinstance(line, bytes) and not line.strip(b"\0 \t\r"):
        return "zero bytes"
    if isinstance(error, json.JSONDecodeError):
        return f"no JSON: {error.msg} at column {error.colno}"
    return f"no JSON: {error}"  # an integer of more digits than Python converts


Take = Callable[[dict[str, Any], int, list[Event]], None]


class Lines:
    """The lines of one growing file.

    feed() takes what was added, in any pieces, and gives the objects of the
    lines that are complete; close() gives the last one, which may lack its
    line end. `number` is that of the last complete line, `skipped` what was
    not read since somebody last took it.
    """

    def __init__(self, longest: int = LONGEST) -> None:
        self.number = 0
        self.skipped: list[Skipped] = []
        self._longest = longest
        self._rest: list[bytes] = []
        self._size = 0
        self._dropping = False

    def feed(self, data: bytes) -> list[tuple[int, dict[str, Any]]]:
        """The objects of the lines that `data` completes, with their numbers (from 1)."""
        got: list[tuple[int, dict[str, Any]]] = []
        self.each(data, lambda value, number, _: got.append((number, value)), [])
        return got

    def each(self, data: bytes, take: Take, out: list[Event]) -> int:
        """Hand to `take` each object of the lines that `data` completes, and how many there were.

        One loop, for what is done for every line: an object that `take` cannot
        make sense of is lost alone, and said.
        """
        pieces = data.split(b"\n")
        last = pieces.pop()
        count = 0
        if pieces:
            if self._rest or self._dropping:
                pieces[0] = self._complete(pieces[0])
            number = self.number
            for piece in pieces:
                number += 1
                try:
                    value = _decode(piece)
                except (msgspec.MsgspecError, RecursionError):
                    if not piece or piece.isspace():
                        continue
                    value = self._slowly(number, piece)
                    if value is None:
                        continue
                if type(value) is dict:
                    count += 1
                    try:
                        take(value, number, out)
                    except SHAPES as error:
                        self.skipped.append(shapeless(number, error))
                else:
                    self._refuse(number, value)
            self.number = number
        self._keep(last)
        return count

    def close(self) -> list[tuple[int, dict[str, Any]]]:
        """The object of a last line without a line end; what cannot be read of it is torn."""
        piece = self._complete(b"")
        number = self.number + 1
        if not piece or piece.isspace():
            return []
        self.number = number
        try:
            value = parse(piece.removeprefix(BOM) if number == 1 else piece)
        except Malformed as error:
            # Noise is not torn: a torn record began as one.
            torn = piece.lstrip()[:1] in b"{["
            self.skipped.append(Skipped(number, f"cut off: {error}" if torn else str(error), torn=torn))
            return []
        if type(value) is dict:
            return [(number, value)]
        self._refuse(number, value)
        return []

    @property
    def held(self) -> int:
        """Bytes of a line that has begun and not ended."""
        return sum(map(len, self._rest))

    def _slowly(self, number: int, piece: bytes) -> Any:
        if number == 1:
            piece = piece.removeprefix(BOM)
            if not piece.strip():
                return None
        try:
            return parse(piece)
        except Malformed as error:
            self.skipped.append(Skipped(number, str(error)))
            return None

    def _refuse(self, number: int, value: object) -> None:
        kinds = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
        self.skipped.append(Skipped(number, f"{kinds.get(type(value), 'null')}, not an object"))

    def _keep(self, piece: bytes) -> None:
        if not piece:
            return
        self._size += len(piece)
        if self._size > self._longest:
            self._dropping = True
            self._rest.clear()
        else:
            self._rest.append(piece)

    def _complete(self, piece: bytes) -> bytes:
        """The whole line that ends with `piece`, or nothing if it is too long to be read."""
        self._keep(piece)
        size, dropped = self._size, self._dropping
        line = b"".join(self._rest)
        self._rest.clear()
        self._size, self._dropping = 0, False
        if dropped:
            why = f"{size} bytes long; lines over {self._longest} are not read"
            self.skipped.append(Skipped(self.number + 1, why))
            return b""
        return line
