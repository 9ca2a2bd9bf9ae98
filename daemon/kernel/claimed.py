"""What is known of a claimed track, read from its session directory.

The agent can write there too (docs/adr/0021). So what this daemon remembers
counts before what stands there; where it remembers nothing, after a restart,
the hash in the claim says whether the contract is still the one that was
claimed, and nothing that is older than the runner's end is the daemon's.
"""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

from adapters import session as live
from adapters.ports import Lost, NotStarted, Status
from daemon.durable import DISK_ERRORS
from daemon.errors import NotNow
from daemon.faults import passes
from daemon.kernel.parts import Parts
from daemon.kernel.projects import understood
from daemon.spool.sessions import Claim, Settlement
from daemon.tracks import requests, thread
from daemon.tracks.track import Loaded


def claim_of(parts: Parts, session: str) -> Claim:
    known = parts.sessions.claim(session)
    if known is None:
        raise ValueError(f"sessions/{session}/claim.json cannot be read")
    return known


#: What only the daemon writes, and only once the runner has ended.
_AT_THE_END = ("receipts", "leftovers.json", "outcome.json", "result.md", "settle.json")


def digest(spec: bytes) -> str:
    return hashlib.sha256(spec).hexdigest()


def spec(parts: Parts, known: Claim) -> bytes:
    """The file as it was claimed: what this daemon remembers, else spec.md. Raises OSError."""
    kept = parts.memory.specs.get(_claimed_digest(known))
    return kept if kept is not None else _read(parts, known)


def as_claimed(parts: Parts, known: Claim) -> Loaded:
    """The track as it was claimed: the contract is frozen in spec.md. Raises OSError, DocumentError."""
    return understood(spec(parts, known), known)


def intact(parts: Parts, known: Claim) -> bool:
    """Whether `spec` is what was claimed. Raises OSError for the disk."""
    wanted = _claimed_digest(known)
    try:
        return wanted in ("", *parts.memory.specs) or digest(_read(parts, known)) == wanted
    except OSError as error:
        if error.errno in DISK_ERRORS:
            raise
        return False


def restored(parts: Parts, known: Claim) -> bool:
    """Put spec.md back if it was changed and this daemon remembers it. Whether that was necessary. Raises OSError."""
    kept = parts.memory.specs.get(_claimed_digest(known))
    if kept is None:
        return False
    path = parts.sessions.path(known.session) / "spec.md"
    try:
        if _read(parts, known) == kept:
            return False
    except OSError as error:
        if passes(error):
            raise
    parts.files.supplant(path, kept)
    return True


def _claimed_digest(known: Claim) -> str:
    return str(known.extra.get("spec", ""))  # claims of earlier versions have none


def _read(parts: Parts, known: Claim) -> bytes:
    """spec.md as it stands there; remembered if it is what was claimed. Raises OSError."""
    path = parts.sessions.path(known.session) / "spec.md"
    try:
        data = parts.files.read(path)
    except NotNow as error:
        raise OSError(errno.EINVAL, "not a regular file", str(path)) from error
    wanted, memory = _claimed_digest(known), parts.memory
    if wanted and digest(data) == wanted:
        claims = [parts.sessions.claim(ref.id) for ref in parts.sessions.open()]
        needed = {_claimed_digest(claim) for claim in claims if claim is not None}
        memory.specs = {key: spec for key, spec in memory.specs.items() if key in needed} | {wanted: data}
    return data


def status_of(parts: Parts, session: str) -> Status:
    """How it stands. What this daemon has seen running is never started again, whatever is left of its files."""
    found = live.status(parts.sessions.path(session))
    if isinstance(found, NotStarted) and session in parts.memory.running:
        return Lost("its files are gone, and it has run")
    return found


def settlement(parts: Parts, session: str) -> Settlement | None:
    """The daemon's own intent for an open session that does not run; None for one that somebody else has put there."""
    path, memory = parts.sessions.path(session), parts.memory
    # By the clock a step backwards would make our own look too old, again and again.
    if session in memory.intended or (session not in memory.watched and _since_the_end(path, "settle.json")):
        return parts.sessions.settlement(session)
    return None


def set_aside(parts: Parts, session: str) -> None:
    """Before its conclusion: move away what is not the daemon's, though it has such a name. Raises OSError."""
    path = parts.sessions.path(session)
    for name in _AT_THE_END:
        if os.path.lexists(path / name) and (
            session in parts.memory.watched or not _since_the_end(path, name)
        ):
            moved = parts.files.put_aside(path / name)
            parts.log.warning("not the daemon's", session=session, file=name, moved_to=moved.name)
    parts.memory.watched.discard(session)


def _since_the_end(session: Path, name: str) -> bool:
    """Whether it is there, and no older than the runner's end if that is known: by ctime, which nobody can set."""
    try:
        found = os.lstat(session / name).st_ctime_ns
        if os.path.isdir(session / name):
            found = min(
                (entry.stat(follow_symlinks=False).st_ctime_ns for entry in os.scandir(session / name)),
                default=found,
            )
    except OSError:
        return False
    try:
        return found >= os.lstat(session / "exit.json").st_ctime_ns
    except OSError:
        return True


def shown(known: Claim) -> str:
    """The harness, and its model if one was chosen: ``codex/gpt-5.4``."""
    harness, model = known.extra.get("harness", ""), known.extra.get("model")
    return f"{harness}/{model}" if model else str(harness)


def facts(known: Claim, status: str, settlement: Settlement | None = None) -> thread.Facts:
    """What the daemon's block in the file says."""
    return thread.Facts(
        id=known.item,
        status=status,
        session=known.session,
        attempt=known.attempt,
        running=shown(known),
        since=known.claimed_at if settlement is None else settlement.at,
        termination=settlement.termination if settlement else None,
        reason=thread.one_line(settlement.why) or None if settlement else None,
    )


def asked(parts: Parts, verb: requests.Verb, track: str) -> list[requests.Request]:
    """The requests of this kind that name this track."""
    return [
        request
        for request in requests.load(parts.workspace.requests)
        if isinstance(request, requests.Request) and request.verb == verb and request.track == track
    ]
