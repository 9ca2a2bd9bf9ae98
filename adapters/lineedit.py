"""One line that a person types, from the bytes of a terminal in raw mode."""

from __future__ import annotations

import codecs
import re
import unicodedata
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Submit:
    """Enter was pressed."""

    text: str


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Ctrl-Q."""


Event = Submit | Interrupt | Leave

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[ -~])")
_TEXT = re.compile(r"[^\x00-\x1f\x7f-\x9f]+")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?\Z")
_KEYS = {
    "\x1b[D": "left", "\x1bOD": "left", "\x02": "left",
    "\x1b[C": "right", "\x1bOC": "right", "\x06": "right",
    "\x1b[H": "home", "\x1bOH": "home", "\x1b[1~": "home", "\x01": "home",
    "\x1b[F": "end", "\x1bOF": "end", "\x1b[4~": "end", "\x05": "end",
    "\x1b[3~": "delete", "\x04": "delete",
    "\x7f": "backspace", "\x08": "backspace",
    "\x15": "kill_left", "\x0b": "kill_right", "\x17": "kill_word",
}  # fmt: skip
_PASTE, _PASTED = "\x1b[200~", "\x1b[201~"


class Line:
    """The text so far and where the cursor is in it. A pasted newline belongs to the text."""

    def __init__(self) -> None:
        self.text = ""
        self.cursor = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = ""
        self._pasting = False

    def feed(self, data: bytes) -> list[Event]:
        """Take bytes from the terminal; what they asked for, in order."""
        events: list[Event] = []
        stream = self._pending + self._decoder.decode(data)
        at = 0
        while at < len(stream):
            if stream[at] == "\x1b":
                if _UNFINISHED.match(stream, at):
                    break
                escape = _ESCAPE.match(stream, at)
                key = escape[0] if escape else "\x1b"
            elif typed := _TEXT.match(stream, at):
                key = typed[0]
            else:
                key = stream[at]
            at += len(key)
            event = self._key(key)
            if event is not None:
                events.append(event)
        self._pending = stream[at:]
        return events

    def take(self) -> str:
        """The text, which is then empty."""
        text, self.text, self.cursor = self.text, "", 0
        return text

    def view(self, width: int) -> tuple[str, int]:
        """The part around the cursor that fits into `width` columns, and the cursor's column in it."""
        shown = self.text.replace("\n", "⏎")
        start = max(0, self.cursor - width)
        while start < self.cursor and columns(shown[start : self.cursor]) >= width:
            start += 1
        end = start
        used = 0
        while end < len(shown) and used + columns(shown[end]) <= width:
            used += columns(shown[end])
            end += 1
        return shown[start:end], columns(shown[start : self.cursor])

    def _key(self, key: str) -> Event | None:
        if key in (_PASTE, _PASTED):
            self._pasting = key == _PASTE
        elif self._pasting and key in "\r\n":
            self._insert("\n")
        elif key in "\r\n":
            return Submit(self.take())
        elif key == "\x03":
            return Interrupt()
        elif key == "\x11":
            return Leave()
        elif key in _KEYS:
            self._edit(_KEYS[key])
        elif key == "\t":
            self._insert(" ")
        elif _TEXT.match(key):
            self._insert(key)
        return None

    def _insert(self, text: str) -> None:
        self.text = self.text[: self.cursor] + text + self.text[self.cursor :]
        self.cursor += len(text)

    def _edit(self, action: str) -> None:
        before, after = self.text[: self.cursor], self.text[self.cursor :]
        match action:
            case "left":
                self.cursor = len(_without_last(before))
            case "right":
                self.cursor += len(after) - len(_without_first(after))
            case "home":
                self.cursor = 0
            case "end":
                self.cursor = len(self.text)
            case "delete":
                self.text = before + _without_first(after)
            case "backspace":
                self._keep_left(_without_last(before), after)
            case "kill_left":
                self._keep_left("", after)
            case "kill_word":
                self._keep_left(re.sub(r"\S*\s*\Z", "", before), after)
            case "kill_right":
                self.text = before

    def _keep_left(self, before: str, after: str) -> None:
        self.text = before + after
        self.cursor = len(before)


def columns(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.category(char) in ("Mn", "Me", "Cf")
        else 2
        if unicodedata.east_asian_width(char) in "WF"
        else 1
        for char in text
    )


def cut(text: str, width: int) -> str:
    """As much of the text as fits into `width` columns."""
    while columns(text) > width:
        text = text[: min(len(text) - 1, width)]
    return text


def _without_last(text: str) -> str:
    end = len(text) - 1
    while end > 0 and unicodedata.combining(text[end]):
        end -= 1
    return text[: max(end, 0)]


def _without_first(text: str) -> str:
    start = 1
    while start < len(text) and unicodedata.combining(text[start]):
        start += 1
    return text[start:]
