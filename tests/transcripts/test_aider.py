"""Aider: the chat history and the model log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.transcripts.events import Ending, Said
from adapters.transcripts.readers.aider import History
from tests.transcripts.reading import corpus, events, figures, format_of, read

CHAT = """
# aider chat started at 2026-11-01 10:00:00

> Aider v0.86.2
> Model: openai/m with diff edit format

#### fix it
#### please

I see.

```python
x = 1
```

> Tokens: 692 sent, 10 received. Cost: $0.01 message, $0.01 session.
> Applied edit to a.py

#### again

> Tokens: 2.5k sent, 1.2k cache write, 1.0k cache hit, 123 received.
Cost: $0.0051 message, $0.02 session.
"""


def test_a_chat_is_counted_by_its_reports() -> None:
    name, each = read(CHAT.encode())
    assert name == "aider"
    assert (each.tokens.input, each.tokens.cached, each.tokens.created, each.tokens.output) == (
        3192,
        1000,
        1200,
        133,
    )
    assert (each.turns, each.tool_calls, each.prompts, each.counts["edits"]) == (2, None, 2, 1)
    assert each.cost_reported == 0.02
    assert each.lower_bounds == ("turns",)
    assert len(each.notes) == 1
    assert "rounded" in each.notes[0]
    assert (each.first, each.ending) == (
        "2026-11-01T10:00:00.000Z",
        Ending("clean", "", "", 0, "2026-11-01T10:00:00.000Z"),
    )
    assert (each.opened.harness, each.opened.version) == ("aider", "0.86.2")
    assert [share.name for share in each.models] == ["openai/m"]


def test_exact_numbers_are_not_called_rounded() -> None:
    each = read(b"# aider chat started at 2026-11-01 10:00:00\n\n> Tokens: 692 sent, 10 received.\n")[1]
    assert (each.tokens.input, each.tokens.output, each.cost_reported, each.notes) == (692, 10, None, ())


def test_a_second_chat_adds_its_own_cost() -> None:
    second = CHAT.replace("10:00:00", "11:00:00").replace("$0.02 session", "$0.04 session")
    each = read((CHAT + second).encode())[1]
    assert (each.turns, each.counts["chats"], each.last) == (4, 2, "2026-11-01T11:00:00.000Z")
    assert each.cost_reported == pytest.approx(0.06)


def test_the_answer_is_the_text_before_its_report() -> None:
    said = [each.text for each in events(History, CHAT.encode()) if isinstance(each, Said)]
    assert said == ["I see.\n\n```python\nx = 1\n```"]
    assert not any(isinstance(each, Said) for each in events(History, CHAT.encode(), content=False))


@pytest.mark.parametrize(
    ("line", "ending"),
    [
        ("> litellm.AuthenticationError: AuthenticationError: no key", ("auth", "401")),
        ("> litellm.RateLimitError: slow down", ("limit", "429")),
        ("> litellm.exceptions.InternalServerError: broke", ("provider", "500")),
        ("> ^C again to exit", ("interrupt", "user")),
    ],
)
def test_an_error_after_the_last_report_is_the_ending(line: str, ending: tuple[str, str]) -> None:
    end = read(f"{CHAT}\n#### more\n\n{line}\n".encode())[1].ending
    assert end is not None
    assert (end.kind, end.code) == ending
    assert read(f"{CHAT}\n{line}\n> Tokens: 1 sent, 1 received.\n".encode())[1].ending == Ending(
        "clean", "", "", 0, "2026-11-01T10:00:00.000Z"
    )


def test_the_model_log_shows_calls_alone() -> None:
    data = b"TO LLM 2026-11-01T10:00:00\n-------\nUSER hi\nLLM RESPONSE 2026-11-01T10:00:05\nASSISTANT hello\nLLM RESPONSE of old\n"
    name, each = read(data)
    assert name == "aider-llm"
    assert (each.turns, each.tokens.input, each.tool_calls, each.counts["requests"]) == (1, None, None, 1)
    assert (each.first, each.last) == ("2026-11-01T10:00:00.000Z", "2026-11-01T10:00:05.000Z")


def test_other_markdown_is_not_claimed() -> None:
    for text in (b"# notes\n\n> Tokens: 1 sent, 1 received.\n", b"TO LLM or not\n", b""):
        assert format_of(text) is None


def test_an_exported_session_of_the_corpus_is_read_as_what_it_is() -> None:
    """Counted apart: 13 records of the assistant, 1 tool, 11 of the user; none has usage."""
    name, each = read(corpus("b_aider/*aider_bugfix*"))
    assert name == "exported"
    assert (each.turns, each.tool_calls, each.prompts, each.tokens.input) == (13, 1, 11, None)
    assert (each.opened.harness, each.opened.version) == ("aider", "0.50.0")


#: Reports with anything in place of their numbers.
odd = st.builds(
    "> Tokens: {} sent, {} cache hit, {} received. Cost: ${} message, ${} session.".format,
    *[st.text("0123456789.,kM", max_size=9)] * 5,
)


@given(st.lists(st.sampled_from(CHAT.splitlines()) | odd | st.text(max_size=20), max_size=30))
def test_any_text_is_survived(lines: list[str]) -> None:
    data = "\n".join(["# aider chat started at 2026-11-01 10:00:00", *lines]).encode("utf-8", "replace")
    whole = figures(events(History, data))
    assert figures(events(History, data, 3)).tokens == whole.tokens
