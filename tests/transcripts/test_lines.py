"""Lines of a growing file: what may stand between, before and instead of the records."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.transcripts.lines import Lines, Malformed, parse


def read(*pieces: bytes) -> tuple[list[tuple[int, dict[str, Any]]], list[tuple[int | None, str, bool]]]:
    lines = Lines()
    got = [each for piece in pieces for each in lines.feed(piece)] + lines.close()
    return got, [(each.line, each.why, each.torn) for each in lines.skipped]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(st.dictionaries(st.text(), json_values, max_size=4)),
    st.data(),
    st.sampled_from([b"\n", b"\r\n"]),
)
def test_whatever_the_pieces_the_lines_are_the_same(
    records: list[dict[str, Any]], data: st.DataObject, end: bytes
) -> None:
    text = b"".join(
        json.dumps(each, ensure_ascii=data.draw(st.booleans())).encode("utf-8", "replace") + end
        for each in records
    )
    pieces = []
    while text:
        size = data.draw(st.integers(1, len(text)))
        pieces.append(text[:size])
        text = text[size:]
    got, skipped = read(*pieces)
    assert skipped == []
    assert [number for number, _ in got] == list(range(1, len(records) + 1))
    if not any("?" in json.dumps(value) for _, value in got):
        assert [json.dumps(value) for _, value in got] == [json.dumps(each) for each in records]


@pytest.mark.parametrize("begin", [b"\xef\xbb\xbf", b"\n\n", b"\r\n", b" \t\n", b"\xef\xbb\xbf\r\n"])
def test_a_mark_or_empty_lines_at_the_beginning(begin: bytes) -> None:
    got, skipped = read(begin + b'{"a":1}\n')
    assert [value for _, value in got] == [{"a": 1}]
    assert skipped == []


def test_a_line_separator_of_unicode_is_a_character() -> None:
    got, _ = read('{"a":"one\u2028two\u2029three\x85four"}\n'.encode())
    assert got == [(1, {"a": "one\u2028two\u2029three\x85four"})]


def test_the_last_line_may_lack_its_end() -> None:
    assert read(b'{"a":1}\n{"b":2}') == ([(1, {"a": 1}), (2, {"b": 2})], [])


@pytest.mark.parametrize("cut", [b'{"b":', b'{"b":"x', b'{"b":1', b"[1,", b'  {"b'])
def test_a_torn_end_is_said_with_its_line(cut: bytes) -> None:
    got, skipped = read(b'{"a":1}\n' + cut)
    assert got == [(1, {"a": 1})]
    ((line, why, torn),) = skipped
    assert (line, torn) == (2, True)
    assert why.startswith("cut off: ")


def test_noise_at_the_end_is_not_torn() -> None:
    assert read(b'{"a":1}\nEXIT=0')[1][0][2] is False


def test_zero_bytes_after_a_power_cut() -> None:
    got, skipped = read(b'{"a":1}\n\0\0\0\0\n{"b":2}\n' + b"\0" * 50)
    assert [value for _, value in got] == [{"a": 1}, {"b": 2}]
    assert [(line, why) for line, why, _ in skipped] == [(2, "zero bytes"), (4, "zero bytes")]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a":18446744073709551616}', 2**64),
        (b'{"a":123456789012345678901234567890}', 123456789012345678901234567890),
        (b'{"a":"\\udcb2"}', "\udcb2"),
        (b'{"a":"\xff"}', "\ufffd"),
        (b'{"a":1e999}', float("inf")),
        (b'{"a":1,"a":2}', 2),
    ],
)
def test_what_a_fast_parser_refuses_is_read_by_the_other(text: bytes, value: object) -> None:
    got, skipped = read(text + b"\n")
    assert got == [(1, {"a": value})]
    assert skipped == []


def test_not_a_number_is_read() -> None:
    ((_, value),), _ = read(b'{"a":NaN}\n')
    assert value["a"] != value["a"]


@pytest.mark.parametrize(
    "text", [b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 100_000, b"1" * 5000, b'{"a":' + b"1" * 5000 + b"}"]
)
def test_what_nobody_can_read_is_refused_with_a_word(text: bytes) -> None:
    with pytest.raises(Malformed, match=r"nested too deeply|no JSON"):
        parse(text)


@given(st.binary(max_size=300))
def test_no_bytes_crash_it(data: bytes) -> None:
    got, skipped = read(data[:100], data[100:])
    assert all(type(value) is dict for _, value in got)
    assert all(why for _, why, _ in skipped)
