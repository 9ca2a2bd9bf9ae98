"""What a person means by an id or a path: which track, where its file is, which session is meant.

Invariant: a path means exactly the file that lies there, never another one of that name.

Reads names first and only then the few files that matter, so it stays quick
with ten thousand settled tracks; imports neither pydantic nor click.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from daemon.errors import NoSuchTrack
from daemon.layout import Workspace
from daemon.spool.sessions import STAYS, Ref, parse, read_json
from daemon.spool.states import ACTIVE, DONE, FAILED, QUEUED, State
from daemon.spool.store import is_regular, reason_name
from daemon.tracks.ids import slug

#: What editors and programs that copy leave beside a file, for a moment or by mistake.
_PASSING = (".tmp", ".part", ".crdownload", ".swp", ".swx", "~")


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
    """state is where the file lies; None: the file is nowhere (a person removed it).

    given: the path below the workspace by which it was asked for, when the id alone means another file.
    """

    id: str
    state: State | None
    path: Path | None
    session: Ref | None
    directory: Path | None
    given: str = ""

    @property
    def word(self) -> str:
        """What names exactly this one in a command."""
        return self.given or self.id

    @property
    def reason(self) -> Path | None:
        """The file that says why this one was refused; None when it was not."""
        path = self.path.with_name(reason_name(self.path.name)) if self.path is not None else None
        return path if path is not None and is_regular(path) else None

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


def sessions_of(folder: Path, track: str) -> list[Ref]:
    """Every session of a track, the oldest first, from the names alone. folder: where all sessions lie."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    refs = (ref for name in names if (ref := parse(name)) is not None and ref.item == track)
    return sorted(refs, key=lambda ref: ref.attempt)


def listing(folder: Path) -> list[str]:
    """The names of the Markdown files in one of the four folders, in no order."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return [name for name in names if name.endswith(".md") and name[0] != "."]


def files(workspace: Workspace) -> Iterator[tuple[State, str]]:
    """(state, name) of every Markdown file in the four folders."""
    for state in (QUEUED, ACTIVE, DONE, FAILED):
        for name in sorted(listing(workspace.tracks / state)):
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
        path: Path | None = workspace.active / name
        if not is_regular(workspace.active / name):
            path = _renamed(workspace, ref)
        return Found(track, ACTIVE, path, ref, directory)
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


def _renamed(workspace: Workspace, ref: Ref) -> Path | None:
    """The file in active/ whose block says that it is this session's: a person gave it another name."""
    from daemon.errors import DocumentError
    from daemon.tracks import thread

    for state, name in files(workspace):
        path = workspace.tracks / state / name
        if state != ACTIVE:
            continue
        try:
            named = parse(thread.block_session(content(path)) or "")
        except (DocumentError, OSError):
            continue
        if named is not None and named.item == ref.item and named.attempt <= ref.attempt:
            return path
    return None


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
    """The track of the file at this path, or with this id, or the only one whose id begins so.

    A path is relative to the working directory or to the workspace. The name of a file alone is
    understood too: where a folder of the queue is the working directory, as a path.
    """
    path = _path(workspace, text)
    sessions, names = newest_sessions(workspace), everything(workspace)
    if path is not None:
        found = _at(workspace, path)
        if found.id in sessions or found.id in names:
            by_id = locate(workspace, found.id, sessions.get(found.id), names)
            if (by_id.path, by_id.session) == (found.path, found.session):
                return by_id
        return replace(found, given=str(path.relative_to(workspace.root)))
    known = {*sessions, *names}
    wanted = slug(text.removesuffix(".md")) if text.endswith(".md") else text
    if wanted not in known and slug(wanted) in known:
        wanted = slug(wanted)  # as a file is called, an id is not
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


def _path(workspace: Workspace, text: str) -> Path | None:
    """The file that is meant, if a path is; raises NoSuchTrack when none of the queue lies there."""
    asked = "/" in text
    if not asked and not text.endswith(".md"):
        return None
    there = []
    for base in (Path.cwd(), workspace.root) if asked else (Path.cwd(),):
        path = base / text
        # The folder's links are followed, the file's own are not: it is the name in the folder that counts.
        path = Path(os.path.realpath(path.parent)) / path.name
        if not os.path.lexists(path):
            continue
        if path.parent in workspace.folders and path.name.endswith(".md"):
            return path
        there.append(path)
    if not asked:
        return None
    if there:
        raise NoSuchTrack(
            f"{there[0]} is no track of {workspace.root}",
            "a track is a file NAME.md in tracks/queued, active, done or failed; or give its id",
        )
    raise NoSuchTrack(f"there is no file {text}", "`mh` lists what there is; or give the track's id")


def _at(workspace: Workspace, path: Path) -> Found:
    """The track whose file this is, as its own block names it; a file without one is named after itself."""
    # The reader of frontmatter takes longer to import than all the rest.
    from daemon.errors import DocumentError
    from daemon.tracks import thread
    from daemon.tracks.ids import is_id

    state = next(state for state in (QUEUED, ACTIVE, DONE, FAILED) if state == path.parent.name)
    try:
        data = content(path)
        session, track = thread.block_session(data), thread.block_id(data)
    except (DocumentError, OSError):
        session, track = None, None
    ref = parse(session) if session else None
    if state == ACTIVE:
        # Claimed a moment ago, its block is not written yet; and a later attempt does not rewrite it.
        named = [ref] if ref is not None else []
        ref = next((ref for ref, _ in live(workspace) if [ref.item] == [each.item for each in named]), ref)
    if ref is None and state == ACTIVE:
        ref = next((ref for ref, claim in live(workspace) if claim.get("name") == path.name), None)
    if ref is not None and (workspace.sessions / ref.id).is_dir():
        return Found(ref.item, state, path, ref, workspace.sessions / ref.id)
    own = track if track is not None and is_id(track) else slug(path.name[: -len(".md")])
    return Found(own, state, path, None, None)


def ignored(queued: Path) -> list[str]:
    """What a person may have meant as a track and the daemon does not see, a directory with a slash.

    What is hidden or an editor's is nobody's; a directory NAME.md is seen, and told as what it is.
    """
    found = []
    try:
        with os.scandir(queued) as listing:
            for entry in listing:
                name = entry.name
                if name.startswith((".", "#")) or name.endswith((".md", *_PASSING)):
                    continue
                if name == "4913" or ".sync-conflict-" in name:
                    continue
                found.append(f"{name}/" if entry.is_dir(follow_symlinks=False) else name)
    except FileNotFoundError:
        pass
    return sorted(found)


def live(workspace: Workspace) -> list[tuple[Ref, dict[str, Any]]]:
    """(session, claim) of every track that is claimed and not settled, by id."""
    found = []
    root = str(workspace.sessions)
    for ref in newest_sessions(workspace).values():
        # Most are settled: one look each, and no file is read.
        if os.path.lexists(f"{root}/{ref.id}/settled"):
            continue
        directory = workspace.sessions / ref.id
        claim = read_json(directory / "claim.json")
        if claim is not None:
            found.append((ref, claim))
    return sorted(found, key=lambda pair: pair[0].item)
