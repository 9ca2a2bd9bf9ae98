"""Aider: ``.aider.chat.history.md`` and ``--llm-history-file``.

What the formats do that a count has to know:

- One file holds every chat of a directory, each under a line with its start.
- After each message the program writes what it sent and received, beginning
  with ``Tokens:``; from 1000 on as ``1.2k``, from 10000 on as ``12k``. The
  sums are near, not exact.
- ``sent`` is the whole prompt, cache hits and writes included.
- The cost of a session begins again with each chat; it is less rounded than
  the sum of its messages.
- Calls that were interrupted, and those for commit messages and summaries,
  leave no line. There are no tools: edits are read from the text.
- A repeated line is a repeated message: its number is part of its key.
- Times have no zone.
"""

from __future__ import annotations

import re
from typing import ClassVar

from adapters.transcripts.events import (
    Call,
    Counted,
    Counter,
    Ending,
    Event,
    Noted,
    Opened,
    Prompt,
    Said,
    Silent,
)
from adapters.transcripts.lines import LONGEST
from adapters.transcripts.reader import Head, Span, instant
from adapters.transcripts.readers import litellm

_STARTED = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
_NUMBER = r"(\d[\d,]{0,14}(?:\.\d{1,6})?[kM]?)"
_DOLLARS = r"\$(\d{1,12}(?:\.\d{1,12})?)"
_TOKENS = re.compile(rf"> Tokens: {_NUMBER} sent(.*?), {_NUMBER} received\.", re.ASCII)
_CACHE = re.compile(rf"{_NUMBER} cache (hit|write)", re.ASCII)
_COST = re.compile(rf"Cost: {_DOLLARS} message, {_DOLLARS} session\.", re.ASCII)
_MODEL = re.compile(r"> (?:Main model|Models?): (\S+)")
_VERSION = re.compile(r"> Aider v(\S+)")
_ERROR = re.compile(r"> (?:litellm|openai|anthropic)\.(?:\w+\.)*(\w+)")
_INTERRUPTED = re.compile(r"> *\^C|> KeyboardInterrupt")
_ROUNDED = re.compile(r"\d[kM]\b")
_SCALE = {"k": 1000, "M": 1000000}


class _Lines:
    """A reader of lines of text: a subclass says what one means in `line`."""

    whole: ClassVar[bool] = False

    def __init__(self, content: bool = True) -> None:
        self.content = content
        self.number = 0
        self.span = Span()
        self._rest = b""

    def line(self, text: str, out: list[Event]) -> None:
        raise NotImplementedError

    def ended(self, out: list[Event]) -> None:
        raise NotImplementedError

    def feed(self, data: bytes) -> list[Event]:
        out: list[Event] = []
        pieces = (self._rest + data).split(b"\n")
        self._rest = pieces.pop()[-LONGEST:]
        for piece in pieces:
            self._line(piece, out)
        out.append(self.span.read(len(pieces)))
        return out

    def close(self) -> list[Event]:
        out: list[Event] = []
        if self._rest:
            self._line(self._rest, out)
        self.ended(out)
        out.append(self.span.read(1 if self._rest else 0))
        return out

    def _line(self, piece: bytes, out: list[Event]) -> None:
        self.number += 1
        self.line(piece.decode("utf-8", "replace").rstrip("\r "), out)


class History(_Lines):
    """``.aider.chat.history.md``."""

    format: ClassVar[str] = "aider"

    def __init__(self, content: bool = True) -> None:
        super().__init__(content)
        self._chat = ""
        self._at: str | None = None
        self._model: str | None = None
        self._prompt: list[str] = []
        self._answer: list[str] = []
        self._ending: Ending | None = None
        self._unpaid = False

    @classmethod
    def claims(cls, head: Head) -> int:
        start = head.data.lstrip(b"\xef\xbb\xbf \t\r\n")[:64].decode("utf-8", "replace")
        return 95 if _STARTED.match(start) else 0

    def line(self, text: str, out: list[Event]) -> None:
        if text.startswith("#### "):
            self._prompt.append(text[5:])
            return
        self._asked(out)
        unpaid, self._unpaid = self._unpaid, False
        if unpaid and (found := _COST.match(text.removeprefix("> "))):
            self._cost(found, out)
        elif not text.startswith(("> ", "# aider")):
            if self.content:
                self._answer.append(text)
        elif found := _STARTED.match(text):
            self._started(found.group(1), out)
        elif found := _TOKENS.match(text):
            self._tokens(found, text, out)
        elif found := _MODEL.match(text):
            self._model = found.group(1)
        elif found := _VERSION.match(text):
            out.append(Opened(version=found.group(1)))
        elif found := _ERROR.match(text):
            self._ending = litellm.failure(found.group(1), text[2:], 1, self._at)
        elif _INTERRUPTED.match(text):
            self._ending = Ending("interrupt", "user", text[2:], 1, self._at)
        elif text.startswith("> Applied edit to "):
            out.append(Counted("edits", f"line {self.number}"))

    def _started(self, when: str, out: list[Event]) -> None:
        self._chat, self._at = when, self.span.saw(instant(when))
        self._ending = None
        out += (Opened(harness="aider"), Silent("turns"), Silent("tool calls"), Counted("chats", when))

    def _asked(self, out: list[Event]) -> None:
        """Lines of a prompt that stand together are one."""
        if self._prompt:
            text = "\n".join(self._prompt) if self.content else None
            out.append(Prompt(f"line {self.number}", self._at, text))
            self._prompt.clear()

    def _tokens(self, found: re.Match[str], text: str, out: list[Event]) -> None:
        key = f"{self._chat} line {self.number}"
        parts = {kind: _number(each) for each, kind in _CACHE.findall(found.group(2))}
        tokens = litellm.split(
            _number(found.group(1)), parts.get("hit"), parts.get("write"), _number(found.group(3)), None
        )
        if _ROUNDED.search(found.group(0)):
            out.append(Noted("token counts of 1000 and more are rounded by the program that wrote them"))
        out.append(Call(key, None, self._at, self._model, tokens))
        answer = "\n".join(self._answer).strip()
        self._answer.clear()
        if answer:
            out.append(Said(key, self._at, answer))
        if cost := _COST.search(text):
            self._cost(cost, out)
        self._unpaid = cost is None  # beside both cache counts it has the next line, which is not quoted
        self._ending = Ending("clean", "", "", 0, self._at)

    def _cost(self, found: re.Match[str], out: list[Event]) -> None:
        out.append(Counter(f"chat {self._chat}", self._at, None, (), float(found.group(2))))

    def ended(self, out: list[Event]) -> None:
        self._asked(out)
        if self._ending is not None:
            out.append(self._ending)


def _number(text: str) -> int:
    scale = _SCALE.get(text[-1], 1)
    return round(float(text.rstrip("kM").replace(",", "")) * scale)


class LlmHistory(_Lines):
    """``--llm-history-file``: prompts and responses in full, without tokens."""

    format: ClassVar[str] = "aider-llm"

    @classmethod
    def claims(cls, head: Head) -> int:
        return 90 if re.match(rb"TO LLM \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\r?\n", head.data) else 0

    def line(self, text: str, out: list[Event]) -> None:
        for mark in ("TO LLM ", "LLM RESPONSE "):
            if text.startswith(mark) and (at := instant(text[len(mark) :])):
                self.span.saw(at)
                if mark == "LLM RESPONSE ":
                    out.append(Call(f"{text} line {self.number}", None, at, None, None))
                else:
                    out.append(Counted("requests", f"line {self.number}"))

    def ended(self, out: list[Event]) -> None:
        out += (Opened(harness="aider"), Silent("tool calls"))
