"""What every reader of transcripts must keep, as a class of tests to inherit.

    class TestMine(ReaderContract):
        reader = Mine
        samples = [Path("session.jsonl").read_bytes()]

No sample is compared with anything but itself: that its numbers are right is
for tests of your own to say.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, ClassVar

from adapters.transcripts import formats
from adapters.transcripts.account import Account, Figures
from adapters.transcripts.events import Call, Event, Prompt, Said, ToolCall, ToolResult
from adapters.transcripts.reader import Reader

#: What may stand where something else is expected.
_ODD: tuple[Any, ...] = (None, True, -1, 2**70, 0.5, "", "x", [], [[]], {}, {"x": None}, float("inf"))


class ReaderContract:
    """reader: the class. samples: the bytes of whole files of its format.

    name: what such a file is called, for formats that cannot do without.
    repeats: lines may be written again; False for text that is no records.
    unordered: lines may come in any order; False for formats that count up.
    """

    reader: ClassVar[type[Reader]]
    samples: ClassVar[list[bytes]]
    name: ClassVar[str] = "session"
    repeats: ClassVar[bool] = True
    unordered: ClassVar[bool] = False

    def test_it_claims_its_samples_before_all_others(self) -> None:
        for sample in self.samples:
            assert formats.reader_of(formats.head_of(self.name, sample, whole=True)) is self.reader

    def test_it_claims_nothing_else(self) -> None:
        for other in (b"", b"# Notes\n\nNothing.\n", b'{"a": 1}\n', b"[1, 2]", b"\0" * 50, b"\xff\xfe\n{"):
            assert self.reader.claims(formats.head_of(self.name, other, whole=True)) == 0

    def test_the_pieces_in_which_it_comes_change_nothing(self) -> None:
        for sample in self.samples:
            right = figures(self.reader, sample)
            for size in (1 + len(sample) // 3, 1000, 61):
                pieces = [sample[start : start + size] for start in range(0, len(sample), size)]
                assert figures(self.reader, *pieces) == right

    def test_what_is_written_again_is_counted_once(self) -> None:
        for sample in self.samples:
            right = counted(figures(self.reader, sample))
            events = told(self.reader, sample)
            account = Account()
            account.add(events)
            account.add(events)
            assert counted(account.figures()) == right
            if self.repeats and not self.reader.whole:
                for seed in range(5):
                    assert (
                        counted(figures(self.reader, _again(sample, random.Random(seed), self.unordered)))
                        == right
                    )

    def test_without_content_it_counts_the_same_and_carries_no_text(self) -> None:
        for sample in self.samples:
            account = Account()
            events = told(self.reader, sample, content=False)
            account.add(events)
            assert counted(account.figures()) == counted(figures(self.reader, sample, content=True))
            for event in events:
                match event:
                    case Said():
                        raise AssertionError(f"a text although none was asked for: {event.text[:60]!r}")
                    case ToolCall(arguments=carried) | ToolResult(content=carried) | Prompt(text=carried):
                        assert carried is None
                    case _:
                        pass

    def test_numbers_are_numbers_or_unknown(self) -> None:
        for sample in self.samples:
            for event in told(self.reader, sample):
                if isinstance(event, Call) and event.tokens is not None:
                    assert all(part is None or (type(part) is int and part >= 0) for part in event.tokens)

    def test_no_shape_and_no_bytes_make_it_raise(self) -> None:
        for sample in self.samples:
            for seed in range(30):
                for broken in _broken(sample[:200_000], random.Random(seed)):
                    figures(self.reader, broken)


def told(reader: type[Reader], *pieces: bytes, content: bool = True) -> list[Event]:
    """All events of a file that comes in these pieces."""
    one = reader(content)
    return [event for piece in pieces for event in one.feed(piece)] + one.close()


def figures(reader: type[Reader], *pieces: bytes, content: bool = False) -> Figures:
    """Its figures."""
    account = Account()
    account.add(told(reader, *pieces, content=content))
    return account.figures()


def counted(found: Figures) -> tuple[object, ...]:
    """What repeating must not change."""
    return (found.tokens, found.main, found.subagents, found.turns, found.tool_calls, found.cost_reported)


def _again(sample: bytes, order: random.Random, unordered: bool) -> bytes:
    """Some lines once more, later; or all in another order."""
    rows = [row for row in sample.split(b"\n") if row.strip()]
    out = []
    for n, row in enumerate(rows):
        out.append(row)
        if order.random() < 0.3:
            out.append(rows[order.randint(0, n)])
    if unordered:
        order.shuffle(out)
    return b"\n".join(out) + b"\n"


def _broken(sample: bytes, chance: random.Random) -> Iterator[bytes]:
    """The sample with a value of another kind somewhere, cut off, and with bytes changed."""
    yield sample[: chance.randint(0, len(sample))]
    bytes_ = bytearray(sample)
    for _ in range(chance.randint(1, 20)):
        bytes_[chance.randrange(len(bytes_))] = chance.randrange(256)
    yield bytes(bytes_)
    rows = sample.split(b"\n")
    row = chance.randrange(len(rows))
    for place, text in ((row, rows[row]), (None, sample)):
        try:
            value = json.loads(text)
        except ValueError:
            continue
        changed = json.dumps(_changed(value, chance)).encode()
        yield changed if place is None else b"\n".join([*rows[:place], changed, *rows[place + 1 :]])


def _changed(value: Any, chance: random.Random, depth: int = 0) -> Any:
    """The value with something odd somewhere in it."""
    if depth and chance.random() < 0.25:
        return chance.choice(_ODD)
    if isinstance(value, dict) and value:
        key = chance.choice(list(value))
        return {**value, key: _changed(value[key], chance, depth + 1)}
    if isinstance(value, list) and value:
        place = chance.randrange(len(value))
        return [*value[:place], _changed(value[place], chance, depth + 1), *value[place + 1 :]]
    return chance.choice(_ODD)
