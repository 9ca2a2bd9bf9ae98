"""No control sequence gets through, and no text is lost."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.plain import decode, plain, tail


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("grüße 漢字 🦀\n\tnext", "grüße 漢字 🦀\n\tnext"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]52;c;ZXZpbA==\x1b\\text", "text"),
        ("\x1b]8;;http://example.org\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0~~\x1b\\text", "text"),
        ("\x9b31mred\x9b0m", "red"),
        ("\x1b(0lqk\x1b(B", "lqk"),
        ("\x1b7\x1b8\x1bc", ""),
        ("a\x00b\x07c\x7fd", "abcd"),
        ("\x1b[", ""),
        ("\x1b]never closed\nnext line", "\nnext line"),
        ("10 %\r50 %\r100 %", "100 %"),
        ("dos\r\nlines\r\n", "dos\nlines\n"),
        ("user\u202enimda", "usernimda"),
        ("half \udcb2 pair", "half  pair"),
    ],
)
def test_plain(printed: str, shown: str) -> None:
    assert plain(printed) == shown


@given(st.text())
def test_nothing_that_controls_a_terminal_is_left(text: str) -> None:
    shown = plain(text)
    assert not [
        char for char in shown if char != "\n" and char != "\t" and (ord(char) < 32 or 127 <= ord(char) < 160)
    ]
    shown.encode()


@given(st.binary())
def test_any_bytes_can_be_shown(raw: bytes) -> None:
    decode(raw).encode()


@pytest.mark.parametrize("unit", ["\x1b]", "\x1b[", "\x1bP;", "\r", "\x9b1;"])
def test_hostile_output_takes_linear_time(unit: str) -> None:
    began = time.process_time()
    plain(unit * 500_000)
    assert time.process_time() - began < 60  # it hangs, or it does not: no measure of speed


def test_tail_is_cut_at_a_line(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text("".join(f"line {number} ü\n" for number in range(100_000)))
    end = tail(file, 4000)
    assert end is not None
    assert end.startswith("line 99")
    assert end.endswith("line 99999 ü")
    assert 3900 < len(end) <= 4000


def test_tail_of_one_endless_line_is_its_end(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text("x" * 500_000 + "the end")
    end = tail(file, 4000)
    assert end is not None
    assert len(end) == 4000
    assert end.endswith("the end")


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\x1b[0m\n"])
def test_nothing_said_is_none(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "events.jsonl"
    file.write_bytes(content)
    assert tail(file) is None
    assert tail(tmp_path / "missing") is None
