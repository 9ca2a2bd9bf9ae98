"""What a person means by an id: which track, where its file is, which session is its newest.

Reads names first and only then the few files that matter, so it stays quick
with ten thousand settled tracks; imports neither pydantic nor click.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemon.errors import NoSuchTrack
from daemon.layout import Workspace
from daemon.spool.sessions import STAYS, Ref, parse, read_json
from daemon.spool.states import ACTIVE, DONE, FAILED, QUEUED, State
from daemon.tracks.ids import slug


def content(path: Path, limit: int = 1 << 20, *, tail: bool = False) -> bytes:
    """The start (or end) of a regular file; OSError for anything else: what lies there may be a fifo or a link."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if tail:
            file.seek(max(0, facts.st_size - limit))
        return file.read(limit)


@dataclass(frozen=True, slots=True)
class Found:
    """state is where the file lies; None: the file is nowhere (a person removed it)."""

    id: str
    state: State | None
    path: Path | None
    session: Ref | None
    directory: Path | None

    def record(self, name: str) -> dict[str, Any]:
        """A JSON file of the newest session; {} when it is not there."""
        return (read_json(self.directory / name) or {}) if self.directory is not None else {}


def newest_sessions(workspace: Workspace) -> dict[str, Ref]:
    """track id -> its newest session, from the names alone."""
    found: dict[str, Ref] = {}
    try:
        names = os.listdir(workspace.sessions)
    except FileNotFoundError:
        return found
    for name in names:
        ref = parse(name)
        if ref is not None and (ref.item not in found or found[ref.item].attempt < ref.attempt):
            found[ref.item] = ref
    return found


def files(workspace: Workspace) -> Iterator[tuple[State, str]]:
    """(state, name) of every Markdown file in the four folders."""
    for state in (QUEUED, ACTIVE, DONE, FAILED):
        try:
            names = sorted(os.listdir(workspace.tracks / state))
        except FileNotFoundError:
            continue
        for name in names:
            if name.endswith(".md") and not name.startswith("."):
                yield state, name


def locate(
    workspace: Workspace, track: str, ref: Ref | None, names: dict[str, list[tuple[State, str]]]
) -> Found:
    """Where this track is now."""
    if ref is None:
        state, name = names[track][0]
        return Found(track, state, workspace.tracks / state / name, None, None)
    directory = workspace.sessions / ref.id
    claim = read_json(directory / "claim.json") or {}
    settle = read_json(directory / "settle.json")
    name = str(claim.get("name", ""))
    if settle is None or settle.get("destination") == STAYS:
        path = workspace.active / name
        return Found(track, ACTIVE, path if path.is_file() else None, ref, directory)
    settled = read_json(directory / "settled") or {}
    at = settled.get("state") if settled.get("state") in (DONE, FAILED) else settle.get("destination")
    state = DONE if at == DONE else FAILED
    path = workspace.tracks / state / str(settled.get("name", name))
    if path.is_file():
        return Found(track, state, path, ref, directory)
    # Moved by hand since: by its name, wherever that is.
    for other in (QUEUED, DONE, FAILED):
        path = workspace.tracks / other / str(settled.get("name", name))
        if path.is_file():
            return Found(track, other, path, ref, directory)
    return Found(track, None, None, ref, directory)


def everything(workspace: Workspace) -> dict[str, list[tuple[State, str]]]:
    """The id that each file's name gives -> its files."""
    found: dict[str, list[tuple[State, str]]] = {}
    for state, name in files(workspace):
        found.setdefault(slug(name[: -len(".md")]), []).append((state, name))
    return found


def ids(workspace: Workspace) -> list[str]:
    """Every id that a person can name, for completion and prefixes."""
    return sorted({*newest_sessions(workspace), *everything(workspace)})


def find(workspace: Workspace, text: str) -> Found:
    """The track with this id, or the only one whose id begins so. A path or file name is understood too."""
    sessions, names = newest_sessions(workspace), everything(workspace)
    known = {*sessions, *names}
    wanted = text.rsplit("/", 1)[-1].removesuffix(".md") if text.endswith(".md") else text
    if text.endswith(".md"):
        wanted = slug(wanted)
    ref = parse(text)
    if ref is not None and (workspace.sessions / ref.id).is_dir():
        wanted = ref.item
    if wanted in known:
        return locate(workspace, wanted, sessions.get(wanted), names)
    matches = sorted(track for track in known if wanted and track.startswith(wanted))
    if len(matches) == 1:
        return locate(workspace, matches[0], sessions.get(matches[0]), names)
    if matches:
        shown = ", ".join(matches[:8]) + (", …" if len(matches) > 8 else "")
        raise NoSuchTrack(f"{len(matches)} tracks begin with {text!r}: {shown}", "type more of the id")
    import difflib

    near = difflib.get_close_matches(wanted, known, 3)
    hint = f"did you mean {', '.join(near)}?" if near else "`mh` lists what there is"
    raise NoSuchTrack(f"there is no track {text!r}", hint)


def live(workspace: Workspace) -> list[tuple[Ref, dict[str, Any]]]:
    """(session, claim) of every track that is claimed and not settled, by id."""
    found = []
    for ref in newest_sessions(workspace).values():
        directory = workspace.sessions / ref.id
        claim = read_json(directory / "claim.json")
        if claim is not None and not (directory / "settled").exists():
            found.append((ref, claim))
    return sorted(found, key=lambda pair: pair[0].item)
