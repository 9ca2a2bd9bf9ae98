"""What is known of a claimed track, read from its session directory."""

from __future__ import annotations

from daemon.kernel.parts import Parts
from daemon.spool.sessions import Claim, Settlement
from daemon.tracks import requests, thread
from daemon.tracks.track import Loaded, load


def claim_of(parts: Parts, session: str) -> Claim:
    known = parts.sessions.claim(session)
    if known is None:
        raise ValueError(f"sessions/{session}/claim.json cannot be read")
    return known


def loaded(parts: Parts, known: Claim) -> Loaded:
    """The track as it was claimed: the contract is frozen in spec.md."""
    return load((parts.sessions.path(known.session) / "spec.md").read_bytes(), known.name)


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
