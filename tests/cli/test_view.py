"""What the bare `mh` reads of a large workspace, and of settings that set nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from daemon import config
from daemon.cli import view
from daemon.layout import Workspace


class Large:
    """More settled files than are asked for their time one by one."""

    def __init__(self, root: Path, state: str = "done") -> None:
        self.workspace = Workspace(root)
        self.folder = self.workspace.tracks / state
        self.folder.mkdir(parents=True)
        self.workspace.sessions.mkdir()
        self.state = state
        for number in range(view.ASKED + 1):
            (self.folder / f"old-{number}.md").write_text("an old one\n")

    def settle(self, track: str, name: str, *, to: str = "") -> None:
        session = f"{track}-1-{'0' * 12}"
        directory = self.workspace.sessions / session
        directory.mkdir()
        (directory / "settled").write_text(json.dumps({"state": self.state, "name": name}))
        (directory / "settle.json").write_text(json.dumps({"item": track, "termination": "clean"}))
        self.row({"id": track, "session": session, "to": to or self.state})
        if not to:
            (self.folder / name).write_text(f"---\nmegaharness:\n  session: {session}\n---\n")

    def row(self, row: dict[str, str]) -> None:
        with self.workspace.journal.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def newest(self, count: int = 3) -> list[tuple[str, str]]:
        names = frozenset(os.listdir(self.folder))
        return [(row.name, row.id) for row in view.newest(self.workspace, self.state, names, count)]  # type: ignore[arg-type]


@pytest.fixture
def large(tmp_path: Path) -> Large:
    return Large(tmp_path)


def test_the_newest_of_a_large_folder_are_those_of_the_journal(large: Large) -> None:
    for track, name in (("a", "a.md"), ("b", "b~2.md"), ("c", "c.md"), ("d", "d.md")):
        large.settle(track, name)
    large.row({"id": "e", "session": "e-1-000000000000", "to": "active"})
    assert large.newest() == [("d.md", "d"), ("c.md", "c"), ("b~2.md", "b")]


def test_what_was_taken_away_since_or_settled_elsewhere_is_not_among_them(large: Large) -> None:
    for track in "abcdef":
        large.settle(track, f"{track}.md")
    large.settle("x", "x.md", to="failed")
    (large.folder / "d.md").unlink()
    assert [name for name, _ in large.newest()] == ["f.md", "e.md", "c.md"]


def test_a_refused_one_is_found_by_the_file_that_its_row_names(tmp_path: Path) -> None:
    large = Large(tmp_path, "failed")
    for name in ("one", "two", "three"):
        (large.folder / f"{name}.md").write_text("---\n")
        large.row({"name": f"{name}-as-dropped.md", "to": "failed", "file": f"{name}.md"})
    assert [name for name, _ in large.newest()] == ["three.md", "two.md", "one.md"]


@pytest.mark.parametrize("journal", ["", "no row\n[]\n", '{"to": "done", "session": 7, "file": ["x"]}\n'])
def test_without_enough_rows_every_file_is_asked(large: Large, journal: str) -> None:
    large.workspace.journal.write_text(journal)
    large.settle("a", "a.md")
    (large.folder / "by-hand.md").write_text("put there\n")
    assert [name for name, _ in large.newest(2)] == ["by-hand.md", "a.md"]


def test_of_a_small_folder_every_file_is_asked(tmp_path: Path) -> None:
    large = Large(tmp_path)
    for number in range(2, view.ASKED + 1):
        (large.folder / f"old-{number}.md").unlink()
    for track in "abc":
        large.settle(track, f"{track}.md")
    (large.folder / "by-hand.md").write_text("put there\n")
    assert [name for name, _ in large.newest(2)] == ["by-hand.md", "c.md"]


@pytest.mark.parametrize(
    ("text", "usable"),
    [
        (config.starter(), True),
        ("", True),
        ("[limits]\nslots = 2\n", True),
        ("[limits]\nslots = 'many'\n", False),
        ("# nothing\nlimits\n", False),
        ("[limit]\n", False),
    ],
)
def test_settings_of_which_no_daemon_has_told_are_looked_at(tmp_path: Path, text: str, usable: bool) -> None:
    workspace = Workspace(tmp_path)
    workspace.settings.write_text(text)
    assert view._usable(workspace, {}) is usable
