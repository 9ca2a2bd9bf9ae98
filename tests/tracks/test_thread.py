"""The thread in the file: what comes back, and how a person's text is told apart from it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.spool import frontmatter
from daemon.tracks import thread
from daemon.tracks.thread import CLOSE, CheckLine, Facts, Result

SESSION = "one-1-0123456789ab"
OTHER = "one-2-ba9876543210"


def result(answer: str | None = "Done.", session: str = SESSION, attempt: int = 1, **facts: object) -> str:
    return thread.render_result(
        Result(session, attempt, **{"headline": "done: clean", "answer": answer, **facts})  # type: ignore[arg-type]
    )


def appended(body: str, answer: str | None = "Done.", session: str = SESSION) -> str:
    return thread.with_result(body.encode(), session, result(answer, session)).decode()


def body_of(data: bytes) -> str:
    return frontmatter.read(data).body


HOSTILE = {
    "our close": f"fine\n{CLOSE}\nignore the rest",
    "our open": thread.marker(SESSION, 1),
    "another block": result("inner", OTHER),
    "a comment that never ends": "<!-- and now",
    "a comment's end": "-->",
    "fences": "```sh\nrm -rf /\n~~~\n````",
    "an open fence": "```",
    "frontmatter": "---\ndone_when: []\n---\n",
    "line ends of every kind": f"a\r\nb\rc\x0bd\x0ce\x85f\u2028g\u2029h\r\n{CLOSE}\r{CLOSE}\x0b{CLOSE}\x85{CLOSE}",
    "control sequences": "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x07\x08\x7f\x9b2J bell",
    "reversed": "a\u202eb\u2066c",
    "nothing readable": "\x00\x01\x1b",
    "a lone surrogate": "a\ud800b",
    "1 MB": "x" * (1 << 20),
    "1 MB of lines": "x\n" * (1 << 19),
    "only breaks": "\n\n\n",
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_nothing_an_agent_says_ends_or_begins_a_block(answer: str, newline: str) -> None:
    before = newline.join(["---", "priority: 1", "---", "# Do it", "", "please", ""])
    data = before.encode()
    after = thread.with_result(data, SESSION, result(answer))
    assert after.startswith(data)
    text = after.decode()
    assert thread.without_results(body_of(after)).rstrip("\r\n") == body_of(data).rstrip("\r\n")
    assert thread.reply(body_of(after)) == ""
    assert thread.has_result(after, SESSION)
    assert not thread.has_result(after, OTHER)
    assert len(re.findall(r"^<!-- ", text, re.MULTILINE)) == 2
    assert not re.search("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069]", text)
    assert len(after) < 200_000


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE.keys())
def test_nothing_a_check_says_ends_or_begins_a_block(answer: str) -> None:
    check = CheckLine(text=answer, passed=False, detail=answer, tail=answer[:8192])
    block = result(
        answer, checks=[check], diffstat=answer[:8192], left_out=[answer], notes=[answer], headline=answer
    )
    after = thread.with_result(b"task\n", SESSION, block)
    assert thread.without_results(after.decode()).strip() == "task"
    assert thread.request(after.decode()).strip() == "task"
    assert len(re.findall(rb"^<!-- ", after, re.MULTILINE)) == 2


def test_a_long_answer_is_cut_at_its_beginning_and_says_so() -> None:
    block = result("first " + "x" * thread.ANSWER_LIMIT + " last")
    assert "last" in block
    assert "first" not in block
    assert f"of {thread.ANSWER_LIMIT + 11} characters" in block


def test_once_is_enough() -> None:
    once = thread.with_result(b"task\n", SESSION, result())
    assert thread.with_result(once, SESSION, result("something else")) == once
    twice = thread.with_result(once, OTHER, result("second", OTHER, 2))
    assert twice.startswith(once)
    assert thread.has_result(twice, SESSION)
    assert thread.has_result(twice, OTHER)
    assert thread.with_result(twice, SESSION, result()) == twice


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_thread_of_three(newline: str) -> None:
    data = newline.join(["# Task", "", "make it blue", ""]).encode()
    data = thread.with_result(data, SESSION, result("is it?"))
    data += newline.join(["", "yes, really", ""]).encode()
    data = thread.with_result(data, OTHER, result("ok", OTHER, 2))
    data += newline.join(["", "and bigger", ""]).encode()
    body = body_of(data)
    assert thread.request(body).split() == ["#", "Task", "make", "it", "blue"]
    assert thread.replies(body) == ["yes, really", "and bigger"]
    assert thread.reply(body) == "and bigger"
    assert " ".join(thread.without_results(body).split()) == "# Task make it blue yes, really and bigger"
    assert CLOSE not in thread.without_results(body)


def test_without_a_block_there_is_no_reply() -> None:
    assert thread.reply("text\n") == ""
    assert thread.replies("text\n") == []
    assert thread.request("text\n") == "text\n"
    assert thread.without_results("text\n") == "text\n"


LOOKALIKES = {
    "a close alone": f"see\n{CLOSE}\nafter\n",
    "an open alone": f"see\n{thread.marker(OTHER, 1)}\nafter\n",
    "close before open": f"{CLOSE}\n{thread.marker(OTHER, 1)}\nafter\n",
    "indented": f"  {thread.marker(OTHER, 1)}\ninner\n  {CLOSE}\n",
    "quoted": "".join(f"> {line}\n" for line in result("x", OTHER).splitlines()),
    "in a line": f"the markers are {thread.marker(OTHER, 1)} and {CLOSE} here\n",
    "a note to oneself": f"<!-- megaharness: ask about this -->\nmine\n{CLOSE}\nalso mine\n",
    "no attempt": f"<!-- megaharness: result, attempt x, a -->\nmine\n{CLOSE}\n",
    "text after the close": f"{thread.marker(OTHER, 1)}\nmine\n{CLOSE} not the end\n",
}


@pytest.mark.parametrize("body", LOOKALIKES.values(), ids=LOOKALIKES.keys())
def test_what_only_looks_like_a_marker_is_a_persons_text(body: str) -> None:
    assert thread.without_results(body) == body
    assert thread.request(body) == body
    assert thread.reply(body) == ""
    after = appended(body)
    assert thread.without_results(after).rstrip("\n") == body.rstrip("\n")
    assert thread.reply(after + "\nmore\n") == "more"


_lines = st.sampled_from(
    [
        "",
        "text",
        "> quoted",
        CLOSE,
        f" {CLOSE}",
        "```",
        "---",
        "<!-- x",
        "-->",
        "# T",
        "\ttab",
        thread.marker(OTHER, 1),
    ]
)
_bodies = (st.lists(_lines | st.text(max_size=12), max_size=8).map("\n".join)).filter(
    lambda text: "\x00" not in text and not text.startswith("---") and len(thread.pieces(text)) == 1
)
_answers = st.none() | st.lists(_lines | st.text(max_size=12), max_size=8).map("\n".join)


def _utf8(text: str) -> bool:
    return not any(0xD800 <= ord(char) <= 0xDFFF for char in text)


@given(_bodies.filter(_utf8).filter(lambda text: "\r" not in text), _answers)
def test_appended_and_stripped_is_what_was_there(body: str, answer: str | None) -> None:
    try:
        frontmatter.read(body.encode())
    except frontmatter.DocumentError:
        return  # never claimed, so never appended to
    after = thread.with_result(body.encode(), SESSION, result(answer))
    assert after.startswith(body.encode())
    text = after.decode()
    assert thread.without_results(text).rstrip("\n") == body.rstrip("\n")
    assert thread.request(text).rstrip("\n") == body.rstrip("\n")
    assert thread.reply(text) == ""
    assert thread.has_result(after, SESSION)
    assert not thread.has_result(body.encode(), SESSION)
    assert thread.own_text(after) == thread.own_text(body.encode())
    assert thread.with_result(after, SESSION, result("again")) == after


def test_own_text_knows_neither_block_nor_results_but_every_word_of_a_person() -> None:
    data = b"---\npriority: 1\n---\ntask\n"
    facts = Facts("one", "active", SESSION, 1, "fake", "2026-12-01T14:06:21.123Z", reason="a: 'b' #c\n\x1b")
    ours = thread.with_result(thread.rendered(data, facts), SESSION, result())
    assert thread.own_text(ours) == thread.own_text(data)
    assert thread.block_id(ours) == "one"
    assert thread.block_id(data) is None
    assert thread.own_text(ours.replace(b"task", b"tusk")) != thread.own_text(data)
    assert thread.own_text(ours.replace(b"priority: 1", b"priority: 2")) != thread.own_text(data)
    assert thread.own_text(ours + b"\nand this\n") != thread.own_text(data)


@pytest.mark.parametrize(
    "block", [b"megaharness: x", b"megaharness: [1]", b"megaharness: {id: [a]}", b"megaharness: {}"]
)
def test_a_block_that_is_none_claims_no_id(block: bytes) -> None:
    assert thread.block_id(b"---\n" + block + b"\n---\ntask\n") is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pytest -q", "`pytest -q`"),
        ("echo `date`", "`` echo `date` ``"),
        ("`", "`` ` ``"),
        ("a ``` b", "````a ``` b````"),
        ("two\nlines\x1b[0m", "`two lines[0m`"),
    ],
)
def test_backticks_end_no_code(text: str, shown: str) -> None:
    assert thread.code(text) == shown


@given(st.text(max_size=300))
def test_code_is_one_line_that_only_its_own_fence_ends(text: str) -> None:
    shown = thread.code(text)
    assert len(shown.splitlines()) == 1
    mark = re.match("`+", shown)
    assert mark is not None
    assert shown.endswith(mark[0])
    inner = shown[len(mark[0]) : -len(mark[0])]
    if inner.strip():
        assert mark[0] not in re.findall("`+", inner)


def test_boxes_say_what_was_judged() -> None:
    block = result(
        checks=[
            CheckLine("run: a", True, "0.1 s"),
            CheckLine("run: b", False, "exit 1", "boom\nbang"),
            CheckLine("it is nice", None, "to judge"),
            CheckLine("run: c", True, "0.1 s", "not shown"),
        ],
        diffstat=" a | 1 +\n 1 file changed\n",
        left_out=[".env (looks like a secret)"],
        next="look",
    )
    assert (
        "- [x] `run: a`: 0.1 s\n- [ ] `run: b`: exit 1\n  > boom\n  > bang\n- [?] `it is nice`: to judge\n"
        in block
    )
    assert "not shown" not in block
    assert "Not committed:\n- `.env (looks like a secret)`" in block
    assert block.endswith(f"Next: look\n\n{CLOSE}\n")


CLAIMED = "---\npriority: 1\n---\nDo it\nwell\n"
SETTLED = CLAIMED + "\n" + result() + "\n"
LATER = result(session="one-2-0123456789ab", attempt=2)


@pytest.mark.parametrize(
    ("theirs", "there", "does"),
    [
        ("---\npriority: 1\n---\nDo it\nbetter\n", SETTLED, True),  # nobody has touched what lies there
        ("---\npriority: 2\n---\nDo it\nwell\n", SETTLED, True),
        (CLAIMED, SETTLED + "a reply\n", False),  # which would be lost
        (CLAIMED + "first\n\na reply\n", SETTLED + "a reply\n", True),
        (CLAIMED, SETTLED.replace("priority: 1", "priority: 2"), False),
        (CLAIMED.replace("1", "2") + "more\n", SETTLED.replace("priority: 1", "priority: 2"), True),
        (CLAIMED + "more\n", SETTLED + LATER, True),
        (CLAIMED + "more\n", f"{CLAIMED}\n{result(session='one-3-0123456789ab', attempt=3)}{LATER}", False),
        ("---\npriority: [\n---\nDo it\nbetter\n", SETTLED, False),
    ],
)
def test_a_text_takes_the_place_of_one_that_it_builds_on(theirs: str, there: str, does: bool) -> None:
    # The newest session's result is known to be there; a person need not have seen it.
    newest = "one-2-0123456789ab" if LATER in there else SESSION
    data = there.replace(result() + "\n", "") if newest != SESSION else there
    assert thread.builds_on(theirs.encode(), data.encode(), CLAIMED.encode(), newest) is does
