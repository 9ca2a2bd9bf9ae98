"""Following a growing transcript: what is there costs once, what is added costs what it is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from adapters.transcripts.events import Event
from adapters.transcripts.follow import Following
from adapters.transcripts.readers.claude_code import ClaudeCode
from tests.transcripts.claude import assistant
from tests.transcripts.counting import figures, lines


class Counting(ClaudeCode):
    """Remembers how many bytes it was given."""

    fed = 0

    def feed(self, data: bytes) -> list[Event]:
        Counting.fed += len(data)
        return super().feed(data)


def test_each_look_reads_what_was_added(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    following = Following(path, Counting)
    assert following.look() is False
    path.write_bytes(b"")
    for n in range(50):
        Counting.fed = 0
        added = lines(assistant(f"m{n}", f"r{n}"))
        with path.open("ab") as file:
            file.write(added)
        assert following.look() is True
        assert Counting.fed == len(added)
        assert following.look() is False
        assert Counting.fed == len(added)
        assert following.figures().turns == n + 1
    # Only how it ended is not told before its end.
    right = figures(path.read_bytes(), ClaudeCode)
    assert replace(following.figures(), ending=right.ending, endings=right.endings) == right


@given(st.lists(st.integers(1, 400), min_size=1, max_size=30))
def test_a_writer_that_is_interrupted_anywhere(sizes: list[int]) -> None:
    import tempfile

    data = lines(*(assistant(f"m{n}", f"r{n}", tool=f"t{n}") for n in range(5)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.jsonl"
        path.touch()
        following = Following(path, ClaudeCode)
        written = 0
        for size in sizes:
            with path.open("ab") as file:
                file.write(data[written : written + size])
            written += size
            following.look()
            whole = data[:written].count(b"\n")
            found = following.figures()
            assert (found.turns, found.tool_calls, found.skipped_lines) == (whole, whole, 0)


def test_a_file_that_is_replaced_is_read_anew_and_nothing_is_counted_twice(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(lines(assistant("m1", "r1"), assistant("m2", "r2")))
    following = Following(path, ClaudeCode)
    following.look()
    other = tmp_path / "new"
    other.write_bytes(lines(assistant("m2", "r2"), assistant("m3", "r3"), assistant("m4", "r4")))
    other.replace(path)
    following.look()
    assert following.figures().turns == 4
    path.unlink()
    assert following.look() is False
    assert following.figures().turns == 4


def test_a_document_is_read_whole_when_it_changed(tmp_path: Path) -> None:
    from adapters.transcripts.events import Call, Tokens
    from adapters.transcripts.reader import DocumentReader

    class Document(DocumentReader):
        format = "test"

        def document(self, value: object, out: list[Event]) -> None:
            assert isinstance(value, list)
            out += [Call(str(n), None, None, "m", Tokens(each)) for n, each in enumerate(value)]

    path = tmp_path / "d.json"
    path.write_text("[1, 2")
    following = Following(path, Document)
    assert following.look() is True
    assert following.figures().turns == 0
    path.write_text(json.dumps([1, 2, 3]))
    assert following.look() is True
    assert following.look() is False
    assert (following.figures().turns, following.figures().tokens.input) == (3, 6)


def test_a_document_that_is_being_written_leaves_no_mark(tmp_path: Path) -> None:
    from adapters.transcripts.readers.gemini import Document

    message = {"id": "m", "type": "gemini", "content": "x", "timestamp": "2026-03-01T10:00:00Z"}
    message |= {"model": "g", "tokens": {"input": 5, "output": 3, "cached": 0, "thoughts": 0, "total": 8}}
    data = json.dumps({"sessionId": "s", "projectHash": "p", "messages": [message]}).encode()
    path = tmp_path / "session.json"
    following = Following(path, Document)
    for size in (len(data) // 2, len(data) - 1, len(data)):
        path.write_bytes(data[:size])
        following.look()
    found = following.figures()
    assert (found.tokens.input, found.tokens.output, found.lower_bounds, found.skipped_lines) == (5, 3, (), 0)
