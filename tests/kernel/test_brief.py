"""What a harness is told."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from daemon.kernel.brief import EMPTY, compose
from daemon.kernel.contract import Receipt
from daemon.tracks import thread
from daemon.tracks.thread import Result
from daemon.tracks.track import Exists, Prose, Run

SCRIPT = "```sh\necho 'ü' \"$(date)\"\n```\n"


def result(session: str = "one-1-0123456789ab", attempt: int = 1) -> str:
    return thread.render_result(Result(session, attempt, "failed: incomplete", "I am done"))


def test_a_script_is_given_byte_for_byte_and_nothing_else() -> None:
    body = f"\n\n  {SCRIPT}\r\n"
    assert compose(body, [Run("false")], [Receipt(1, "run: false", False)], prose=False) == body


def test_a_script_never_has_our_results_in_it() -> None:
    body = f"{SCRIPT}\n{result()}\nmore\n"
    assert compose(body, [], [], prose=False) == f"{SCRIPT}\n\nmore\n"


def test_the_task_alone() -> None:
    assert compose("# Do it\n\nplease\n", [], [], prose=True) == (
        f"# Do it\n\nplease\n\n## Where you are\n\n{EMPTY}\n"
    )


def test_everything_in_its_place() -> None:
    body = f"# Do it\n\n{result()}\nmake it blue\n\n{result('one-2-0123456789ab', 2)}\nand bigger\n"
    text = compose(
        body,
        [Run("pytest -q"), Exists("a b/*"), Prose("it is\nnice")],
        [Receipt(1, "run: pytest -q", False, exit=1, detail="exit 1", tail="E   assert\n> 1\n")],
        prose=True,
    )
    parts = [
        "# Do it",
        "make it blue",
        "and bigger",
        "`run: pytest -q` failed: exit 1",
        "> E   assert",
        "## Done when",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert "- check: `run: pytest -q`\n- check: `exists: a b/*`\n- it is\n  nice\n" in text
    assert "I am done" not in text
    assert "megaharness:" not in text
    assert text.endswith(f"{EMPTY}\n")


def test_a_command_is_neither_folded_nor_cut() -> None:
    command = "set -e\ncd src\n" + "x" * 500 + "\n```\necho `date`"
    text = compose("task", [Run(command)], [], prose=True)
    inside = text.split("````\n")[1].split("  ````")[0]
    assert (
        "".join(line.removeprefix("  ") for line in inside.splitlines(keepends=True)) == f"run: {command}\n"
    )


def test_a_failed_check_shows_the_end_of_what_it_printed() -> None:
    receipt = Receipt(1, "run: x", False, tail="beginning\n" + "y" * 5000 + "\nend")
    text = compose("task", [], [receipt], prose=True)
    assert "  > end" in text
    assert "beginning" not in text
    assert "not met" in text


@given(st.text(max_size=200).filter(lambda text: len(thread.pieces(text)) == 1))
def test_a_persons_words_are_in_the_brief_as_they_were_written(body: str) -> None:
    assert compose(body, [], [], prose=True).startswith(body.strip("\n"))
    assert compose(body, [], [], prose=False) == body
