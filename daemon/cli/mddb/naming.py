"""Which document a person means by a path."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from pathlib import Path

from daemon.errors import UsageError
from daemon.git import GitError
from daemon.layout import Workspace
from daemon.mddb.revisions import Revisions


def paths(mddb: Path) -> list[str]:
    """Every Markdown file of md-db but the hidden ones, relative to it."""
    return sorted(_walk(mddb))


def _walk(mddb: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(mddb):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.endswith(".md") and not name.startswith("."):
                yield Path(folder, name).relative_to(mddb).as_posix()


def document(place: Workspace, revisions: Revisions, text: str, *, gone: bool) -> str:
    """The path below md-db that is meant: of a file that is there, or (`gone`) was.

    A file in the working directory comes before one of that path below md-db. Raises UsageError.
    """
    candidates = list(dict.fromkeys(_candidates(place, text)))
    for path in candidates:
        if (place.mddb / path).is_file():
            return path
    if gone and candidates:
        try:
            was = next((path for path in candidates if revisions.log(path, 1)), None)
        except GitError:
            was = None  # without a repository there is only what is there
        if was is not None:
            return was
    there = paths(place.mddb)
    if os.path.lexists(Path.cwd() / text) and not candidates:
        raise UsageError(f"{text} is not in {place.mddb}", "`mh mddb list` lists the documents")
    raise UsageError(f"there is no document {text!r} in {place.mddb}", _near(text, there))


def _candidates(place: Workspace, text: str) -> Iterator[str]:
    """What it could mean, the likeliest first."""
    if not text or "\0" in text:
        return
    here = Path(os.path.normpath(Path.cwd() / text))
    for path in (here, Path(os.path.realpath(here.parent)) / here.name):
        for folder in (place.mddb, Path(os.path.realpath(place.mddb))):
            if path.is_relative_to(folder) and path != folder:
                yield from _spelt(path.relative_to(folder).as_posix())
    plain = os.path.normpath(text.removeprefix("./").removeprefix("md-db/"))
    if not plain.startswith(("/", "..")) and plain != ".":
        yield from _spelt(plain)


def _spelt(path: str) -> Iterator[str]:
    yield path
    if not path.endswith(".md"):
        yield f"{path}.md"
        yield f"{path}/SKILL.md"


def _near(text: str, there: list[str]) -> str:
    wanted = text.removeprefix("md-db/")
    near = difflib.get_close_matches(wanted, there, 3, 0.6)
    if not near:
        # Often only the name is known, and not the folder.
        names = {path.rsplit("/", 1)[-1]: path for path in there if not path.endswith("/SKILL.md")}
        names |= {path.split("/")[-2]: path for path in there if path.endswith("/SKILL.md")}
        near = [names[each] for each in difflib.get_close_matches(Path(wanted).name, names, 3, 0.6)]
    return f"did you mean {', '.join(near)}?" if near else "`mh mddb list` lists the documents"
