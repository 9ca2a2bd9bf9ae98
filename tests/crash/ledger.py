"""What a person has done, and what may come of it: the model that random stories (steps.py) are held against.

Every text that is dropped carries a mark (``t3t``), every save a word (``w7w``). For each mark the ledger knows how
many files there may be at the end and how often it may have been claimed; for each word whether it is still owed.
Where a gesture leaves the daemon two right answers, the span is widened; else both ends move.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.crash.stage import Part

WORD = re.compile(rb"w[0-9]+w")
MARK = re.compile(rb"t[0-9]+t")
#: kind -> how its agent behaves. A track's kind is the beginning of its name.
KINDS = {
    "plain": Part(),
    "slow": Part(delay=6),
    "long": Part(lasts=9),
    "writes": Part(writes="out.txt"),
    "stubborn": Part(),
    "dies": Part(dies=True),
    "hangs": Part(lasts=None),
    "asks": Part(asks="which?"),
}
CHECKED = ("writes", "stubborn")
#: How many sessions a claim of this kind comes to: at least, and at most. Who asked once asks no more.
LEAST = {"stubborn": 2}
MOST = {"stubborn": 2, "asks": 2}
#: Where it ends when nobody interrupts it.
ENDS = {"stubborn": "failed", "dies": "failed", "hangs": ""}


class ByKind(dict[str, Part]):
    """What the agent of a track does, by the beginning of the track's id."""

    def get(self, track: str, default: Part | None = None) -> Part:  # type: ignore[override]
        return KINDS.get(track.split("-")[0], Part())


@dataclass
class Span:
    low: int = 0
    high: int = 0

    def move(self, low: int, high: int) -> None:
        self.low = max(0, self.low + low)
        self.high = max(self.low, self.high + high)

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self.low <= number <= self.high


@dataclass
class Task:
    """One text with its copies.

    files: how many lie in the folders at the end. claims: how often one was taken.
    bad: it cannot be read. saved: every version of it that the person saved.
    loose: a file of it was made where the daemon may take it for an edit or for a track.
    rough: a person saved over what the daemon had written into it, or deleted it.
    """

    mark: bytes
    kind: str
    bad: bool = False
    files: Span = field(default_factory=Span)
    claims: Span = field(default_factory=Span)
    saved: set[bytes] = field(default_factory=set)
    loose: bool = False
    rough: bool = False
    interrupted: bool = False

    def more(self, *, files: int = 0, claims: int = 0) -> None:
        """A file or a claim that must come of it."""
        self.files.move(files, files)
        self.claims.move(claims, claims)

    def perhaps(self, *, files: int = 0, claims: int = 0) -> None:
        """One that may come of it, or (negative) may not."""
        self.files.move(min(files, 0), max(files, 0))
        self.claims.move(min(claims, 0), max(claims, 0))

    def less(self, *, files: int = 0, claims: int = 0) -> None:
        """One that does not come of it any more."""
        if self.loose:
            self.perhaps(files=-files, claims=-claims)
        else:
            self.more(files=-files, claims=-claims)


def words(data: bytes) -> set[bytes]:
    return set(WORD.findall(data))


def mark_of(data: bytes) -> bytes:
    found = MARK.search(data)
    return found[0] if found else b""


class Ledger:
    def __init__(self) -> None:
        self.tasks: dict[bytes, Task] = {}
        #: Words that must stand in a file, be kept beside it, or wait in .displaced.
        self.owed: set[bytes] = set()
        #: Words that a person has overwritten once and saved again from an old buffer, or that stand in a copy:
        #: the text as it was claimed may be all that has them.
        self.kept: set[bytes] = set()
        self._gone: set[bytes] = set()
        self._count = 0

    def number(self) -> int:
        self._count += 1
        return self._count

    def word(self) -> bytes:
        return b"w%dw" % self.number()

    def new(self, kind: str, *, bad: bool = False) -> Task:
        task = Task(b"t%dt" % self.number(), kind, bad)
        self.tasks[task.mark] = task
        return task

    def of(self, data: bytes) -> Task:
        return self.tasks[mark_of(data)]

    def text(self, task: Task) -> bytes:
        """What a person drops for it. A broken one has an unclosed list in its frontmatter."""
        head = b"harness_id: [fake\n" if task.bad else b"harness_id: fake\n"
        if task.kind in CHECKED:
            head += b"done_when: [{exists: out.txt}]\n"
        return b"---\n%b---\n# Task %b\n\n%b\n" % (head, task.mark, self.word())

    def saved(self, before: bytes, after: bytes, elsewhere: Iterable[bytes]) -> None:
        """A person put `after` where `before` was: what they overwrote with their own hand is not owed any more."""
        lost = words(before) - words(after)
        others = {word for data in elsewhere for word in words(data)} if lost else set()
        for word in lost:
            self.owed.discard(word)
            self.kept.discard(word)
            (self.kept if word in others else self._gone).add(word)
        for word in words(after):
            if word in self._gone or word in self.kept:
                self._gone.discard(word)
                self.kept.add(word)
            else:
                self.owed.add(word)
        if after and (mark := mark_of(after)):
            self.tasks[mark].saved.add(after)
