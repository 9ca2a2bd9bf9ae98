"""The database that comes with the program is what agents of most people are told at night."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from daemon.durable import Files
from daemon.mddb import checkup
from daemon.mddb.compose import compose
from daemon.mddb.library import Library, Unrecorded
from daemon.mddb.resolver import PHASES, Context
from daemon.mddb.schema import Doc
from daemon.tracks import thread
from daemon.workspace import STARTER

FAMILY = ("claude-code", "openclaude", "codex")


@pytest.fixture(scope="module")
def library() -> Library:
    return Library(STARTER / "md-db", Files(), Unrecorded())


@pytest.fixture(scope="module")
def docs(library: Library) -> dict[str, Doc]:
    return library.documents()


def test_nothing_is_wrong_with_it(library: Library, docs: dict[str, Doc]) -> None:
    assert [(path, doc.problems) for path, doc in docs.items() if doc.problems] == []
    assert list(checkup.examine(docs, FAMILY, library.strays())) == []


def test_every_harness_is_told_one_contract_in_every_phase(docs: dict[str, Doc]) -> None:
    for harness, phase in itertools.product((*FAMILY, "aider"), PHASES):
        text = compose(docs.values(), Context(harness, phase=phase)).text("instruction")
        assert text.count("# When you are done") == (phase != "review"), (harness, phase)
        assert "# Working unattended" in text
        assert thread.BLOCKED in text


def test_the_way_to_ask_is_the_one_that_the_daemon_recognises(docs: dict[str, Doc]) -> None:
    """The example line of the text, as the last line of an answer, is a question."""
    lines = docs["instructions/working-unattended.md"].body.splitlines()
    (example,) = [line for line in lines if line.startswith(thread.BLOCKED)]
    assert thread.asked(f"I did what I could.\n\n{example}\n") == example.removeprefix(thread.BLOCKED).strip()


@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(FAMILY, 2)))
def test_there_is_a_translation_between_each_two(docs: dict[str, Doc], before: str, after: str) -> None:
    found = compose(docs.values(), Context(after, phase="swap", from_harness=before))
    assert [each.path for each in found.told if each.part == "translation"] == [
        f"instructions/harness-translation-{before}-{after}.md"
    ]
    assert compose(docs.values(), Context(after)).text("translation") == ""


def test_the_policy_that_is_shipped(library: Library) -> None:
    assert "codex/gpt-5.4" in (library.denied(Context("claude-code", "gpt-5.4"), told=True) or "")
    assert library.denied(Context("codex", "gpt-5.4"), told=True) is None
    assert library.denied(Context("openclaude", "gpt-5.4"), told=True) is None
    assert library.denied(Context("claude-code", "opus"), told=True) is None


def test_one_project_works_as_it_is_and_the_other_shows_a_repository(library: Library) -> None:
    research, service = library.project("research"), library.project("example-service")
    assert research is not None
    assert research.repository is None
    assert research.done_when
    assert service is not None
    assert service.repository is not None


def test_an_ordinary_session_is_not_told_a_book(docs: dict[str, Doc]) -> None:
    for harness in (*FAMILY, "aider"):
        assert len(compose(docs.values(), Context(harness)).text("instruction").split()) < 1000


def test_the_link_in_the_repository_leads_to_it() -> None:
    assert (Path(__file__).parents[2] / "md-db").resolve() == (STARTER / "md-db").resolve()
