"""What a save of a person's means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.tracks import thread
from daemon.tracks.changes import MESSAGE_LIMIT, Change, compare, contract
from daemon.tracks.track import load

FACTS = thread.Facts("t", "active", "t-1-0123456789ab", 1, "fake", "now")
TRACK = "---\nharness_id: fake\ndone_when: [{exists: a}, it is nice]\nbudget: {minutes: 3}\n---\n# Title\n\nDo it.\n"


def changed(before: str, after: str) -> Change:
    return compare(load(before.encode(), "t.md"), load(after.encode(), "t.md"))


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ("Do it.\n", "Do it.\n\nIn blue.\n", Change("In blue.")),
        ("Do it.\n", "Do it.\r\nIn blue.", Change("In blue.")),
        ("Do it.\n", "Do it.  \n\n\n", Change()),
        ("minutes: 3", "minutes: 4", Change(keys=("budget",))),
        ("harness_id: fake", "harness_id: fake/big", Change(harness="fake/big")),
        ("harness_id: fake\n", "", Change(harness="any harness")),
        ("harness_id: fake", "priority: 2\nharness_id: fake\nafter: x", Change(keys=("priority",), idle=("after",))),
        ("harness_id: fake", "# a comment\nharness_id: 'fake'", Change()),
        ("exists: a", "exists: b", Change(keys=("done_when",))),
    ],
)
def test_a_change(old: str, new: str, change: Change) -> None:
    assert changed(TRACK, TRACK.replace(old, new)) == change


def test_a_word_in_the_middle_is_told_as_a_difference() -> None:
    told = changed(TRACK, TRACK.replace("Do it.", "Do it all.")).message
    assert "-Do it.\n+Do it all." in told
    longer = changed(TRACK, TRACK.replace("Do it.\n", "Do it.x\n")).message
    assert "+Do it.x" in longer, "a longer last line is no text of its own"


def test_the_daemon_s_own_block_and_result_are_no_change() -> None:
    with_block = thread.rendered(TRACK.encode(), FACTS)
    result = thread.render_result(thread.Result(FACTS.session, 1, "done: clean", "> no\nBLOCKED: what?"))
    whole = thread.with_result(with_block, FACTS.session, result).decode()
    assert not changed(TRACK, whole)
    assert changed(TRACK, whole + "\nA reply.\n") == Change("A reply.")
    question = thread.render_question(thread.Question(FACTS.session, 1, "BLOCKED: what?", "mh reply t TEXT"))
    asked = thread.with_result(with_block, FACTS.session, question).decode()
    assert not changed(TRACK, asked)
    assert changed(asked, asked + "an answer\n") == Change("an answer")
    assert changed(asked, TRACK + "\nfrom an old buffer\n") == Change("from an old buffer")


def test_a_very_long_message_is_cut_and_says_so() -> None:
    told = changed(TRACK, TRACK + "\n" + "x" * (2 * MESSAGE_LIMIT)).message
    assert len(told) < MESSAGE_LIMIT + 200
    assert "characters more: they stand in the file" in told


_words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=30)


@given(_words, _words)
def test_what_is_appended_is_the_message(body: str, more: str) -> None:
    before = load(f"# T\n\n{body}\n".encode(), "t.md")
    after = load(f"# T\n\n{body}\n\n{more}\n".encode(), "t.md")
    assert compare(before, after).message == more.strip()
    assert not compare(before, before)


def test_a_contract_that_grew_and_one_that_did_not() -> None:
    claimed = load(TRACK.encode(), "t.md").track

    def now(text: str):  # noqa: ANN202
        return load(TRACK.replace("{exists: a}", text).encode(), "t.md").track

    assert contract(claimed, claimed, "at") is None
    grown = contract(claimed, now("{exists: a}, {run: x}"), "at")
    assert grown is not None
    assert grown.only_added
    other = contract(claimed, now("{exists: b}"), "at")
    assert other is not None
    assert (other.only_added, other.was) == (False, ("exists: a", "it is nice"))


@pytest.mark.parametrize(
    ("answer", "question"),
    [
        (None, None),
        ("all done", None),
        ("BLOCKED: which?", "which?"),
        ("I looked.\n\n  BLOCKED: which?  \n\n", "which?"),
        ("BLOCKED: which?\nnever mind, it is done", None),
        ("which one?\nBLOCKED:", "which one?"),
        ("BLOCKED:", "it did not say what"),
        ("it was BLOCKED: by me", None),
    ],
)
def test_only_the_last_line_asks(answer: str | None, question: str | None) -> None:
    assert thread.asked(answer) == question
