"""The line of input understands what a terminal sends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.lineedit import Interrupt, Leave, Line, Submit, columns, cut


def typed(*keys: bytes) -> Line:
    line = Line()
    for key in keys:
        assert line.feed(key) == []
    return line


LEFT, RIGHT, HOME, END, DELETE = b"\x1b[D", b"\x1b[C", b"\x1b[H", b"\x1b[F", b"\x1b[3~"


@pytest.mark.parametrize(
    ("keys", "text", "cursor"),
    [
        ([b"gr\xc3\xbc\xc3\x9fe"], "grüße", 5),
        ([b"\xc3", b"\xbc"], "ü", 1),
        ([b"abc", b"\x7f"], "ab", 2),
        ([b"u\xcc\x88", b"\x7f"], "", 0),
        ([b"one two", b"\x17"], "one ", 4),
        ([b"one two  ", b"\x17"], "one ", 4),
        ([b"one two", b"\x15"], "", 0),
        ([b"abc", LEFT, LEFT, b"X"], "aXbc", 2),
        ([b"abc", LEFT, b"\x7f"], "ac", 1),
        ([b"abc", HOME, DELETE], "bc", 0),
        ([b"abc", HOME, RIGHT, b"\x0b"], "a", 1),
        ([b"abc", HOME, b"X", END, b"Y"], "XabcY", 5),
        ([b"abc", b"\x1bOD", b"X"], "abXc", 3),
        ([b"ab", b"\x1b", b"[D", b"X"], "aXb", 2),
        ([b"\x1b[1;5P", b"\x1b[15~", b"a"], "a", 1),
        ([b"a\x13\x1a\x1c\x04b"], "ab", 2),
        ([b"", b"\x7f", LEFT, RIGHT, DELETE, b"\x17"], "", 0),
        ([b"\x1b[200~one\rtwo\x1b[201~"], "one\ntwo", 7),
        ([b"\xff\xfea"], "\ufffd\ufffda", 3),
    ],
)
def test_editing(keys: list[bytes], text: str, cursor: int) -> None:
    line = typed(*keys)
    assert (line.text, line.cursor) == (text, cursor)


def test_enter_takes_the_text() -> None:
    line = Line()
    assert line.feed(b"hello\rwor") == [Submit("hello")]
    assert line.text == "wor"


def test_control_keys_are_told() -> None:
    assert Line().feed(b"\x03\x03\x11") == [Interrupt(), Interrupt(), Leave()]


@given(st.lists(st.binary(max_size=8), max_size=30))
def test_any_bytes_leave_it_whole(chunks: list[bytes]) -> None:
    line = Line()
    for chunk in chunks:
        line.feed(chunk)
        assert 0 <= line.cursor <= len(line.text)
        shown, cursor = line.view(20)
        assert columns(shown) <= 20
        assert 0 <= cursor <= 20


def test_a_large_paste_is_taken_at_once() -> None:
    line = typed(b"\x1b[200~" + b"word " * 200_000 + b"\x1b[201~")
    assert len(line.text) == 1_000_000
    assert line.view(80)[1] <= 80


def test_columns_of_wide_and_combining_characters() -> None:
    assert columns("漢字") == 4
    assert columns("u\u0308") == 1
    assert cut("漢字漢字", 5) == "漢字"
