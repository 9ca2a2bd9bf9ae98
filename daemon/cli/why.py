"""`mh why`: one reason, and what to do about it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from daemon.cli import completion, finding
from daemon.cli.group import workspace
from daemon.cli.show import gather
from daemon.cli.view import clean
from daemon.layout import Workspace
from daemon.lock import holder
from daemon.spool.sessions import read_json


@dataclass(frozen=True, slots=True)
class Answer:
    """state: the folder. reason: the one current reason. unblock: what a person can do. notes: what else matters."""

    id: str
    state: str | None
    reason: str
    until: str | None = None
    unblock: str = ""
    needs_you: bool = False
    notes: tuple[str, ...] = ()


class _NoPool:
    """`why` only looks: nothing is started from here."""

    def submit(self, kind: str, session: str, work: Callable[[], object]) -> None:
        raise AssertionError("why starts nothing")

    def drain(self) -> list[tuple[str, str, object]]:
        return []

    def pending(self) -> bool:
        return False

    def close(self) -> None:
        return


@click.command("why")
@click.argument("track", metavar="ID", shell_complete=completion.tracks)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.pass_context
def command(ctx: click.Context, track: str, as_json: bool) -> None:
    """Say why a track runs, waits or failed, and what to do about it.

    It asks the same questions as the daemon does, so it works while the
    daemon is down.
    """
    place = workspace(ctx)
    answer = explain(place, finding.find(place, track))
    if as_json:
        click.echo(
            json.dumps(
                {slot: getattr(answer, slot) for slot in Answer.__slots__}, ensure_ascii=False, indent=2
            )
        )
        return
    click.echo(f"{answer.id} ({answer.state or 'gone'}): {_lines(answer.reason)}")
    if answer.until:
        click.echo(f"  looked at again: {answer.until}")
    if answer.unblock:
        click.echo(f"  {_lines(answer.unblock)}")
    for note in answer.notes:
        click.echo(f"  {_lines(note)}")


def _lines(text: str) -> str:
    return "\n    ".join(clean(line) for line in text.splitlines())


def explain(place: Workspace, found: finding.Found) -> Answer:
    if found.state in ("done", "failed"):
        return _settled(found)
    if found.path is None and found.state is None:
        return Answer(
            found.id, None, "its file is in none of the four folders any more", unblock=f"{found.directory}"
        )
    return _of_daemon(place, found) or _decided(place, found)


def _of_daemon(place: Workspace, found: finding.Found) -> Answer | None:
    """What the running daemon decided at its last tick; it knows how a file came. None: ask ourselves."""
    there, state = holder(place.lock), read_json(place.daemon_json) or {}
    if there is None or state.get("pid") != there.pid or found.path is None:
        return None
    if found.state == "active":
        for row in state.get("running", []):
            # What went wrong at the last try only the daemon remembers.
            if row["id"] == found.id and row["phase"] != "running" and row["note"]:
                return Answer(found.id, "active", row["note"], notes=tuple(_notes(place, found)))
        return None
    for row in state.get("waiting", []):
        if row["subject"] == found.path.name:
            until = None if row["until"] is None else _local(row["until"])
            notes = tuple(_notes(place, found))
            return Answer(found.id, "queued", row["reason"], until, row["unblock"], row["needs_you"], notes)
    return None


def _settled(found: finding.Found) -> Answer:
    assert found.path is not None
    why = found.path.with_name(f"{found.path.name}.why.txt")
    if why.is_file():
        text = why.read_text("utf-8", "replace").strip()
        return Answer(
            found.id,
            found.state,
            f"refused. {text}",
            unblock=f"correct {found.path}, then mh requeue {found.id}",
        )
    settle = found.record("settle.json")
    if not settle:
        return Answer(found.id, found.state, "put there by hand; it was not run")
    facts = gather(found)
    failed = [row for row in facts["checks"] if row["passed"] is False]
    notes = [f"check failed: {row['check']} ({row['detail']})" for row in failed]
    notes += [line for row in failed for line in str(row["tail"]).splitlines()[-5:]]
    notes += [f"its work: {facts['work']} (branch {facts['branch']})"] if facts["work"] else []
    ran = found.directory is not None and (found.directory / "events.jsonl").exists()
    notes += [f"what it said: mh log {found.id}"] if ran else []
    checks = settle.get("extra", {}).get("checks", "")
    reason = f"{settle.get('termination')}{': ' + settle['why'] if settle.get('why') else ''} ({checks})"
    again = f"mh requeue {found.id}" if ran else f"put right what it names, then mh requeue {found.id}"
    unblock = again if found.state == "failed" else ""
    return Answer(
        found.id, found.state, reason, unblock=unblock, needs_you=found.state == "failed", notes=tuple(notes)
    )


def _decided(place: Workspace, found: finding.Found) -> Answer:
    """Observe and decide, as the daemon does, and say what came out for this one."""
    from daemon import log
    from daemon.assembly import assemble
    from daemon.config import Settings
    from daemon.kernel.clock import Now, stamp
    from daemon.kernel.observe import Observer
    from daemon.tracks.actions import Claim, Refuse, Wait
    from daemon.tracks.machine import Limits, decide

    log.setup(None)
    settings = Settings.load(place.settings)
    parts = assemble(place, settings, _NoPool(), log.get("why"))
    now = Now(time.monotonic(), time.time())
    parts.sessions.load(clear=False)
    parts.store.scan(now.wall)
    observer = Observer(parts)
    there = holder(place.lock) is not None
    world = observer.observe(now)
    actions = decide(world, Limits(settings.limits.slots, settings.limits.attempts), now.mono)
    name = found.path.name if found.path else ""
    session = found.session.id if found.session else ""
    notes = list(_notes(place, found))
    if not there:
        notes.insert(0, "the daemon is not running: mh up -d")
    for action in actions:
        match action:
            case Wait(subject, reason, until, unblock, needs_you) if subject in (name, found.id, session):
                when = None if until is None else _local(stamp(now.wall + until - now.mono))
                if found.state == "active" and reason == "is running":
                    reason, unblock = _running(found), f"mh attach {found.id}"
                return Answer(found.id, found.state, reason, when, unblock, needs_you, tuple(notes))
            case Claim(claimed) if claimed == name:
                return Answer(
                    found.id,
                    found.state,
                    "it is its turn: started as soon as the daemon looks",
                    notes=tuple(notes),
                )
            case Refuse(refused, _, why) if refused == name:
                return Answer(
                    found.id, found.state, why, unblock="correct the file and save it", needs_you=True
                )
            case _ if session and getattr(action, "session", "") == session:
                doing = type(action).__name__.lower()
                return Answer(found.id, found.state, f"next step: {doing}", notes=tuple(notes))
    return Answer(found.id, found.state, "nothing is decided about it", notes=tuple(notes))


def _running(found: finding.Found) -> str:
    claim, beat = found.record("claim.json"), found.record("heartbeat.json")
    extra: dict[str, Any] = claim.get("extra", {})
    since = str(claim.get("claimed_at", ""))
    last = beat.get("last_output_at")
    spoke = f", last output {_local(str(last))}" if last else ""
    return f"runs in {extra.get('harness')} since {_local(since)}, attempt {claim.get('attempt')}{spoke}"


def _notes(place: Workspace, found: finding.Found) -> list[str]:
    from daemon.errors import DocumentError
    from daemon.tracks.track import load

    notes = []
    route = found.record("claim.json").get("extra", {})
    if route.get("route"):
        source = {"explicit": "the file names it", "preference": "the first of `prefer` that is installed"}
        notes.append(f"harness {route['harness']}: {source.get(route['route'], route['route'])}")
    try:
        loaded = load(found.path.read_bytes(), found.path.name) if found.path else None
    except (DocumentError, OSError):
        return notes
    if loaded is not None and loaded.track.ignored:
        notes.append(f"keys of other programs, kept and ignored: {', '.join(loaded.track.ignored)}")
    if loaded is not None and (idle := no_effect(loaded.track)):
        notes.append(f"without effect in this version: {', '.join(idle)}")
    return notes


def no_effect(track: Any) -> list[str]:
    """Keys that are understood and not yet acted upon."""
    names = [name for name in ("kind", "scope") if getattr(track, name)]
    return names + [
        f"budget.{name}" for name in ("tokens", "usd", "turns") if getattr(track.budget, name) is not None
    ]


def _local(text: str) -> str:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return text
