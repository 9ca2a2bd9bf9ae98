"""What became of a person's saves into the file of a track, as sentences for `mh why`."""

from __future__ import annotations

import os
from datetime import datetime

from daemon.cli import finding
from daemon.durable import Files
from daemon.layout import Workspace
from daemon.spool.claim import odd
from daemon.spool.sessions import parse, read_json
from daemon.spool.states import ACTIVE
from daemon.spool.store import Store


def unread(place: Workspace, found: finding.Found) -> tuple[str, str] | None:
    """That nothing is read in what lies in the place of an active track's file, and why with the way out; or None."""
    if found.state != ACTIVE:
        return None
    # What is no ordinary file is no path of a track: only the claim says where it was.
    name = found.path.name if found.path is not None else str(found.record("claim.json").get("name", ""))
    store = Store(place.tracks, Files())
    store.look([store.path(ACTIVE, name)])
    entry = store.entries(ACTIVE).get(name)
    why = odd(entry, os.geteuid()) if entry is not None else None
    if entry is None or why is None:
        return None
    way = "" if entry.kind == "file" else f". Put its file there again, or end it: mh interrupt {found.word}"
    return f"nothing in tracks/{ACTIVE}/{name} is read", f"{why}{way}"


def notes(found: finding.Found) -> list[str]:
    """What was changed while the session runs: what counts, what is refused, and whether the agent has heard it."""
    assert found.directory is not None
    edits = found.directory / "edits"
    try:
        names = sorted(name for name in os.listdir(edits) if name.endswith(".json"))
    except OSError:
        return []
    said = []
    for name in names:
        raw = read_json(edits / name) or {}
        at = _clock(str(raw.get("at", "")))
        if raw.get("message"):
            said.append(f"what you wrote at {at}: {_heard(found, raw)}")
        if keys := raw.get("keys"):
            said.append(f"changed at {at}, and counts at once: {', '.join(map(str, keys))}")
        if idle := raw.get("idle"):
            said.append(f"changed at {at}, without effect while it runs: {', '.join(map(str, idle))}")
    asked = next(
        (raw for name in reversed(names) if (raw := read_json(edits / name) or {}).get("harness")), None
    )
    running = found.record("claim.json").get("extra", {}).get("harness")
    if asked is not None and str(asked["harness"]).partition("/")[0] != running:
        said.append(
            f"{asked['harness']} was asked for at {_clock(str(asked.get('at', '')))}: a running track cannot be "
            f"moved to another harness yet, so it goes on with {running}; to begin anew with it: "
            f"mh interrupt {found.id}, then mh requeue {found.id}"
        )
    return said


def _heard(found: finding.Found, raw: dict[str, object]) -> str:
    assert found.directory is not None
    name = str(raw.get("name", ""))
    inbox = found.directory / "inbox"
    if raw.get("briefed") is True:
        return "it is in its brief"
    if name and os.path.lexists(inbox / "delivered" / name):
        return "it has reached the agent"
    if name and os.path.lexists(inbox / name):
        return "it is on its way to the agent"
    return "it is in the brief of the next attempt"


def kept(place: Workspace, track: str) -> list[str]:
    """Versions of its file that were saved late and could not be merged."""
    found = []
    try:
        names = os.listdir(place.sessions)
    except OSError:
        return []
    for name in sorted(names):
        ref = parse(name)
        if ref is None or ref.item != track:
            continue
        try:
            saves = sorted(
                save for save in os.listdir(place.sessions / name) if save.startswith("late-save-")
            )
        except OSError:
            continue
        found += [f"a version that was saved late is kept in sessions/{name}/{save}" for save in saves]
    return found


def _clock(text: str) -> str:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone().strftime("%H:%M")
    except ValueError:
        return "an unknown time"
