"""Which project a track is of, and what that adds to it.

A track names its project, or its first line does (``checkout-service: round tax per line item``). What the project's
document demands is frozen when the track is claimed, as the track's own contract is (docs/adr/0029): the claim keeps
it, so that a later change of the document changes no track that is worked on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from daemon.errors import Problem
from daemon.mddb.resolver import DatabaseFault, Resolver
from daemon.spool.sessions import Claim
from daemon.tracks.track import Loaded, addressed, checks, first_line, load, nearest


def with_address(loaded: Loaded, resolver: Resolver) -> Loaded:
    """The track with the project that its first line names, if there is such a project and it names no other."""
    if loaded.track.project_id is not None:
        return loaded
    id = addressed(loaded.document.body)
    if id is None:
        return loaded
    try:
        known = resolver.project(id) is not None
    except DatabaseFault:
        known = True  # it is there, and whoever claims the track is told what is wrong with it
    return _of(loaded, id) if known else loaded


def refusals(loaded: Loaded, resolver: Resolver) -> Iterator[Problem]:
    """Why this version cannot work where the track wants it to. `loaded`: with its address."""
    id = loaded.track.project_id
    if id is None:
        return
    key = loaded.written_as("project_id")
    line = loaded.document.line_of(key) if key in loaded.document.meta else None
    if os.sep in id or id.startswith(("~", ".")):
        yield Problem(
            "a repository cannot be worked in yet: every track works in a scratch repository of its own",
            line=line,
            field=key,
            value=id,
            hint="take the line out, or name a project of md-db/projects that has no repository",
        )
        return
    try:
        project = resolver.project(id)
    except DatabaseFault:
        return  # no fault of this file: it waits until the document is mended
    if project is None:
        near = nearest(id, known := resolver.projects())
        there = f"there are {', '.join(known)}" if known else "there is none yet"
        yield Problem(
            "there is no such project",
            line=line,
            field=key,
            value=id,
            hint=f"write {near}" if near else f"make md-db/projects/{id}.md, or take the line out; {there}",
        )
    elif project.repository is not None:
        yield Problem(
            f"the project {id} has a repository ({project.repository}), which cannot be worked in yet: every track "
            "works in a scratch repository of its own",
            line=line,
            field=key,
            value=id,
            hint=f"take `repository` out of md-db/{project.path}, or let the track name another project",
        )


def misspelt(loaded: Loaded, resolver: Resolver) -> str:
    """What is odd about a first line that seems to name a project, as a sentence; "" if nothing is."""
    if loaded.track.project_id is not None:
        return ""
    found = re.match(r"(?:#{1,6}[ \t]+)?([\w.-]+)[ \t]*:", first_line(loaded.document.body))
    known = resolver.projects() if found is not None else []
    near = nearest(found[1], known) if found is not None else None
    if found is None or near is None:
        return ""
    return f"its first line begins with {found[0]!r}, and names no project; for {near} write `{near}: ...`"


def frozen(loaded: Loaded, resolver: Resolver) -> dict[str, Any]:
    """What a claim keeps of the track's project. Raises DatabaseFault, OSError."""
    id = loaded.track.project_id
    project = resolver.project(id) if id is not None else None
    return {"project": {"id": id, "done_when": project.done_when}} if project is not None else {}


def understood(data: bytes, known: Claim) -> Loaded:
    """A version of a claimed track's file, with what its project adds. Raises DocumentError."""
    loaded = load(data, known.name)
    match known.extra.get("project"):
        case {"id": str(id), "done_when": done_when}:
            own = loaded.track.done_when
            added = tuple(check for check in checks(done_when) if check not in own)
            track = loaded.track.model_copy(update={"project_id": id, "done_when": (*own, *added)})
            return replace(loaded, track=track)
    return loaded


def _of(loaded: Loaded, id: str) -> Loaded:
    return replace(loaded, track=loaded.track.model_copy(update={"project_id": id}))
