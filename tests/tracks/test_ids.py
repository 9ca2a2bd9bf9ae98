from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daemon.tracks import ids
from daemon.tracks.track import TrackId, parse_after


@pytest.mark.parametrize(
    ("text", "id_"),
    [
        ("Round tax per line item", "round-tax-per-line-item"),
        ("Über größere Äpfel", "ueber-groessere-aepfel"),
        ("u\u0308ber", "ueber"),
        ("Crème brûlée à la carte", "creme-brulee-a-la-carte"),
        ("Łódź, Ærø", "lodz-aero"),
        ("a/b", "a-b"),
        ("../../etc/passwd", "etc-passwd"),
        ("#(touch x) $(y) `z`; w", "touch-x-y-z-w"),
        ("don't", "dont"),
        ("-_-a--b__c-", "a-b-c"),
        ("🚀 deploy", "deploy"),
        ("2026-12-02 meeting", "2026-12-02-meeting"),
        ("2026-12-02", "t-2026-12-02"),
        ("22:30", "t-22-30"),
        ("10pm", "t-10pm"),
        ("2026-12-02T06:00Z", "t-2026-12-02t06-00z"),
        ("1234", "t-1234"),
        ("x" * 48, "x" * 48),
    ],
)
def test_slug(text: str, id_: str) -> None:
    assert ids.slug(text) == id_


@pytest.mark.parametrize("text", ["", "🚀", "修复登录问题", "Привет", "---", "\ud800", "修复 bug"])
def test_what_is_lost_is_told_apart_by_a_hash(text: str) -> None:
    assert re.fullmatch("(t|bug)-[0-9a-f]{8}", ids.slug(text))
    assert ids.slug(text) != ids.slug(text + "修")


def test_long_titles_that_differ_at_the_end_do_not_collide() -> None:
    first, second = ids.slug("word " * 60 + "a"), ids.slug("word " * 60 + "b")
    assert first != second
    assert len(first) <= 48
    assert first.startswith("word-word-")


@given(st.text() | st.from_regex(r"\A[0-9:\-tzhapm ]{1,60}\Z") | st.from_regex(r"\A[0-9]{30,60}[a-z]{0,5}\Z"))
@example("1" * 45 + "-word-6")  # its hash has digits only
@example("ﷺ" * 20)
def test_a_slug_is_an_id_and_stays_itself(text: str) -> None:
    id_ = ids.slug(text)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", id_)
    assert 1 <= len(id_) <= 48
    assert re.search("[a-z]", id_)
    assert ids.is_id(id_)
    assert ids.slug(id_) == id_
    assert parse_after(id_, 0.0) == TrackId(id_)


@given(st.text(), st.integers(1, 999_999), st.text("0123456789abcdef", min_size=12, max_size=12))
@example("a-1-000000000000", 2, "0" * 12)
def test_session_ids_come_apart_again(text: str, attempt: int, random12: str) -> None:
    track = ids.slug(text)
    session = ids.session_id(track, attempt, random12)
    assert session == f"{track}-{attempt}-{random12}"
    assert ids.parse_session_id(session) == (track, attempt, random12)


@pytest.mark.parametrize(
    "text",
    ["", "a", "a-1", "a-1-00000000000", "a-x-000000000000", "A-1-000000000000", "a--1-000000000000",
     "-1-000000000000", "a-1-00000000000G", "a-1-000000000000\n", "a-٣-000000000000", f"{'a' * 49}-1-000000000000"],
)  # fmt: skip
def test_what_is_no_session_id(text: str) -> None:
    assert ids.parse_session_id(text) is None


@pytest.mark.parametrize(
    "parts", [("a b", 1, "0" * 12), ("a", -1, "0" * 12), ("a", 1, "0" * 11), ("a", 1, "F" * 12)]
)
def test_no_session_id_of_bad_parts(parts: tuple[str, int, str]) -> None:
    with pytest.raises(ValueError, match="no session id"):
        ids.session_id(*parts)
