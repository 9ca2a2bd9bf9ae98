"""Which project a track is of, and what that adds to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.durable import Files
from daemon.kernel.projects import frozen, misspelt, refusals, understood, with_address
from daemon.mddb.library import Library, Unrecorded
from daemon.mddb.resolver import DatabaseFault
from daemon.spool.sessions import Claim
from daemon.tracks.track import Exists, Run, addressed, load


@pytest.fixture
def library(tmp_path: Path) -> Library:
    folder = tmp_path / "md-db/projects"
    folder.mkdir(parents=True)
    (folder / "notes.md").write_text("---\ndone_when: [{exists: notes.md}, {run: make}]\n---\nText.\n")
    (folder / "shop.md").write_text("---\nrepository: ~/src/shop\n---\n")
    (folder / "odd.md").write_text("---\nrepositry: x\n---\n")
    return Library(tmp_path / "md-db", Files(), Unrecorded())


@pytest.mark.parametrize(
    ("body", "project"),
    [
        ("notes: write it down", "notes"),
        ("\n\n# notes: write it down\n", "notes"),
        ("\ufeffnotes: x", "notes"),
        ("notes:\nwrite", "notes"),
        ("a.b-c_d: x", "a.b-c_d"),
        ("https://example.org", None),
        ("Notes: x", None),
        ("first\nnotes: x", None),
        ("- notes: x", None),
        ("notes : x", None),
        ("", None),
    ],
)
def test_a_first_line_that_names_a_project(body: str, project: str | None) -> None:
    assert addressed(body) == project


def test_it_counts_only_where_there_is_such_a_project_and_none_is_named(library: Library) -> None:
    def project(text: str) -> str | None:
        return with_address(load(text.encode(), "a.md"), library).track.project_id

    assert project("notes: write") == "notes"
    assert project("todo: write") is None
    assert project("---\nproject: shop\n---\nnotes: write") == "shop"
    assert project("odd: write") == "odd"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("notes: write", None),
        ("no project", None),
        ("odd: its document has a fault, which is no fault of this file", None),
        ("shop: write", "the project shop has a repository (~/src/shop), which cannot be worked in yet"),
        ("---\nproject: shp\n---\nx", "line 2, project: there is no such project (write shop)"),
        (
            "---\nproject_id: zebra\n---\nx",
            "make md-db/projects/zebra.md, or take the line out; there are notes, odd, shop",
        ),
        ("---\nproject_id: ~/src/shop\n---\nx", "line 2, project_id: a repository cannot be worked in yet"),
        ("---\nproject_id: ../x\n---\nx", "a repository cannot be worked in yet"),
    ],
)
def test_what_cannot_be_worked_in_is_refused(library: Library, text: str, said: str | None) -> None:
    found = list(map(str, refusals(with_address(load(text.encode(), "a.md"), library), library)))
    assert len(found) == (said is not None)
    assert said is None or said in found[0]


def test_a_claim_keeps_what_the_project_demanded(library: Library) -> None:
    text = b"---\ndone_when: [{run: make}, {run: pytest}]\n---\nnotes: write"
    extra = frozen(with_address(load(text, "a.md"), library), library)
    (library.root / "projects/notes.md").write_text("Nothing any more.\n")
    loaded = understood(text, Claim("s", "a", "a.md", 1, 1, "", extra))
    assert loaded.track.project_id == "notes"
    assert loaded.track.done_when == (Run("make"), Run("pytest"), Exists("notes.md"))
    plain = understood(text, Claim("s", "a", "a.md", 1, 1, ""))
    assert plain.track.done_when == (Run("make"), Run("pytest"))


def test_a_project_that_cannot_be_read_is_claimed_for_nobody(library: Library) -> None:
    with pytest.raises(DatabaseFault, match=r"projects/odd\.md: line 2, repositry"):
        frozen(with_address(load(b"odd: x", "a.md"), library), library)


@pytest.mark.parametrize("text", ["shpo: x", "Shop: x", "shop:x", "shop : x", "# Notes: x"])
def test_a_first_line_that_nearly_names_a_project_is_told(library: Library, text: str) -> None:
    assert "names no project; for " in misspelt(with_address(load(text.encode(), "a.md"), library), library)


@pytest.mark.parametrize(
    "text", ["shop: x", "todo: x", "no project", "---\nproject: notes\n---\nshpo: x", "https://x"]
)
def test_any_other_first_line_is_not(library: Library, text: str) -> None:
    assert misspelt(with_address(load(text.encode(), "a.md"), library), library) == ""
