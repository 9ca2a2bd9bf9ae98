"""`mh why`: one reason, and what to do about it."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import Any

import click

from daemon.cli import completion, edited, finding
from daemon.cli.group import workspace
from daemon.cli.show import gather
from daemon.cli.view import CHANGED, clean, count, local, settings_changed
from daemon.kernel.clock import seconds
from daemon.layout import Workspace
from daemon.lock import holder
from daemon.spool.claim import FILE_LIMIT
from daemon.spool.sessions import extra_of, read_json

#: Lines of a check's or a program's output that are shown.
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Answer:
    """state: the folder. reason: the one current reason. evidence: what shows it. unblock: what a person can do.

    until: ISO 8601, UTC; notes: what else matters.
    """

    id: str
    state: str | None
    reason: str
    until: str | None = None
    unblock: str = ""
    needs_you: bool = False
    notes: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()


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
    for fact in answer.evidence:
        click.echo(f"  {_lines(fact)}")
    if answer.until and not answer.needs_you and _soon(answer.until):
        click.echo(f"  looked at again: {local(answer.until)}")
    if answer.unblock:
        click.echo(f"  {_lines(answer.unblock)}")
    for note in answer.notes:
        click.echo(f"  {_lines(note)}")


def _lines(text: str) -> str:
    return "\n    ".join(clean(line).rstrip() for line in text.splitlines() if line.strip())


def _soon(until: str) -> bool:
    at = seconds(until)
    return 0 < at < time.time() + 24 * 3600


def explain(place: Workspace, found: finding.Found) -> Answer:
    if found.state in ("done", "failed"):
        return _settled(place, found)
    if found.path is None and found.state is None:
        return Answer(
            found.id, None, "its file is in none of the four folders any more", unblock=f"{found.directory}"
        )
    return _of_daemon(place, found) or _decided(place, found)


def _of_daemon(place: Workspace, found: finding.Found) -> Answer | None:
    """What the running daemon decided at its last tick; it knows how a file came. None: ask ourselves."""
    there, state = holder(place.lock), read_json(place.daemon_json) or {}
    if there is None or state.get("pid") != there.pid:
        return None
    if found.state == "active":
        for row in state.get("running", []):
            # What went wrong at the last try only the daemon remembers.
            if row["id"] == found.id and row["phase"] != "running" and row["note"]:
                return Answer(found.id, "active", row["note"], notes=tuple(_notes(place, found)))
    subject = found.id if found.state == "active" else found.path.name if found.path is not None else ""
    for row in state.get("waiting", []):
        if row["subject"] == subject and (found.state == "queued" or row["needs_you"]):
            notes = tuple(_notes(place, found))
            return Answer(
                found.id, found.state, row["reason"], row["until"], row["unblock"], row["needs_you"], notes
            )
    return None


def _settled(place: Workspace, found: finding.Found) -> Answer:
    assert found.path is not None
    if (why := found.reason) is not None:
        # Between its first and its last paragraph, which say what the state and the way out say here.
        parts = why.read_text("utf-8", "replace").strip().split("\n\n")
        faults = "\n".join(parts[1:-1] or parts)
        return Answer(
            found.id,
            found.state,
            f"was not run, the file has to be changed:\n{faults}",
            unblock=f"correct {found.path}, then mh requeue {found.word}",
            needs_you=True,
        )
    settle = found.record("settle.json")
    if not settle:
        return Answer(found.id, found.state, "put there by hand; it was not run")
    facts = gather(found)
    failed = [row for row in facts["checks"] if row["passed"] is False]
    evidence = [_failed_check(found, row) for row in failed] or _last_words(found, settle)
    notes = [f"its work: {facts['work']} (branch {facts['branch']})"] if facts["work"] else []
    notes += edited.kept(place, found.id)
    if facts["told"]:
        notes.append(
            f"was told {count(facts['told'], 'document')} of md-db: mh resolve {found.word} --explain"
        )
    if changed := extra_of(settle).get("contract"):
        notes.append(str(changed))
    log = f"mh log {found.word}"
    checks = extra_of(settle).get("checks", "")
    # "1 of 2 checks failed" is said already; that none was run is not.
    counted = f" ({checks})" if checks and not failed else ""
    reason = f"{settle.get('termination')}{': ' + settle['why'] if settle.get('why') else ''}{counted}"
    needs_you, named = found.state == "failed", bool(evidence or settle.get("why"))
    unblock = _way_out(place, found, settle, named=named) if needs_you else ""
    if (
        log not in unblock
        and found.directory is not None
        and os.path.lexists(found.directory / "events.jsonl")
    ):
        notes.append(f"what it said: {log}")
    return Answer(
        found.id,
        found.state,
        reason,
        unblock=unblock,
        needs_you=needs_you,
        notes=tuple(notes),
        evidence=tuple(evidence),
    )


def _failed_check(found: finding.Found, row: dict[str, Any]) -> str:
    """The check, and below it the end of what it printed."""
    assert found.session is not None
    detail = f" ({row['detail']})" if row["detail"] else ""
    receipt = f"sessions/{found.session.id}/{row['receipt']}"
    return f"check failed: {row['check']}{detail}\n{_end(str(row['tail']), receipt)}"


def _last_words(found: finding.Found, settle: dict[str, Any]) -> list[str]:
    """What a program that died printed last: on standard error, else at all."""
    kind = str(settle.get("termination", "")).partition("/")[0]
    if kind not in ("crash", "setup") or found.directory is None:
        return []
    for name in ("stderr.log", "events.jsonl"):
        try:
            text = finding.content(found.directory / name, 16 << 10, tail=True).decode("utf-8", "replace")
        except OSError:
            continue
        if text.strip():
            path = f"sessions/{found.directory.name}/{name}"
            return [f"it printed last:\n{_end(text, path)}"]
    return []


def _end(text: str, path: str) -> str:
    """The last lines, and where the others are."""
    lines = [line for line in text.splitlines() if line.strip()]
    left = len(lines) - SHOWN
    more = [f"… {left} {'line' if left == 1 else 'lines'} more: {path}"] if left > 0 else []
    return "\n".join([*more, *lines[-SHOWN:]])


def _way_out(place: Workspace, found: finding.Found, settle: dict[str, Any], *, named: bool) -> str:
    """named: there is something above that says what was wrong."""
    from adapters.errors import AdapterError
    from adapters.registry import Registry
    from daemon.config import Settings
    from daemon.errors import SettingsError

    again = f"mh requeue {found.word}"
    harness = str(extra_of(found.record("claim.json")).get("harness", ""))
    kind, _, code = str(settle.get("termination", "")).partition("/")
    if kind == "crash" and code.startswith("signal_"):
        # What it printed last need not be about that.
        number = code.removeprefix("signal_")
        cause = ", often because memory ran out (journalctl -k says so)" if number == "9" else ""
        return f"signal {number} ended it{cause}; what it did last: mh log {found.word}; then {again}"
    put_right = f"put right what it names, then {again}"
    if not named:
        word = found.word
        put_right = f"it named no cause; its output: mh log {word}, its command: mh show {word}; then {again}"
    try:
        can = Registry(Settings.load(place.settings).tables()).get(harness).capabilities()
    except (SettingsError, AdapterError):
        return put_right
    if kind != "interrupt" and not can.feedback:
        return f"it would only run again as it is: correct {found.path}, then {again}"
    return put_right if kind in ("crash", "setup") else again


def _decided(place: Workspace, found: finding.Found) -> Answer:
    """Observe and decide, as the daemon does, and say what came out for this one."""
    from daemon.cli import deciding

    there = holder(place.lock) is not None
    name = found.path.name if found.path else ""
    session = found.session.id if found.session else ""
    decided = deciding.look(place, daemon=there)
    notes = list(_notes(place, found))
    if not there:
        notes.insert(0, "the daemon is not running: mh up -d")
    mine = (name, found.id, session) if found.state == "active" else (name,)
    for row in decided:
        if row.subject not in mine:
            continue
        reason, unblock = row.reason, row.unblock
        if found.state == "active" and reason == "is running":
            reason, unblock = _running(found), f"mh attach {found.word}"
        return Answer(found.id, found.state, reason, row.until, unblock, row.needs_you, tuple(notes))
    return Answer(found.id, found.state, "nothing is decided about it", notes=tuple(notes))


def _running(found: finding.Found) -> str:
    claim, beat = found.record("claim.json"), found.record("heartbeat.json")
    extra: dict[str, Any] = extra_of(claim)
    since = str(claim.get("claimed_at", ""))
    last = beat.get("last_output_at")
    spoke = f", last output {local(str(last))}" if last else ""
    return f"runs in {extra.get('harness')} since {local(since)}, attempt {claim.get('attempt')}{spoke}"


def _notes(place: Workspace, found: finding.Found) -> list[str]:
    from daemon.errors import DocumentError
    from daemon.kernel.starting import provenance
    from daemon.tracks.track import load

    notes = []
    if holder(place.lock) is not None and settings_changed(place, read_json(place.daemon_json) or {}):
        notes.append(CHANGED)
    route = extra_of(found.record("claim.json"))
    if route.get("route"):
        source = {"explicit": "the file names it", "preference": "the first of `prefer` that is installed"}
        notes.append(f"harness {route['harness']}: {source.get(route['route'], route['route'])}")
    told = provenance(found.directory).get("told", ()) if found.directory is not None else ()
    if told:
        notes.append(f"was told {count(len(told), 'document')} of md-db: mh resolve {found.word} --explain")
    try:
        loaded = load(finding.content(found.path, FILE_LIMIT + 1), found.path.name) if found.path else None
    except DocumentError as error:
        loaded = None
        if found.state == "active":
            faults = "; ".join(map(str, error.problems))
            notes.append(f"its file cannot be read as you left it, so it goes on with what it had: {faults}")
    except OSError:
        loaded = None
    if loaded is not None and loaded.is_empty and found.state == "active":
        notes.append("its file is empty now; it goes on with what it had")
    if loaded is not None and loaded.track.ignored:
        notes.append(f"keys of other programs, kept and ignored: {', '.join(loaded.track.ignored)}")
    if found.state == "active" and found.directory is not None:
        if (unread := edited.unread(place, found)) is not None:
            notes.append(": ".join(unread))
        notes += edited.notes(found)
    notes += edited.kept(place, found.id)
    if loaded is not None and (idle := no_effect(loaded.track)):
        notes.append(f"without effect in this version: {', '.join(idle)}")
    return notes


def no_effect(track: Any) -> list[str]:
    """Keys that are understood and not yet acted upon."""
    names = [name for name in ("scope",) if getattr(track, name)]
    return names + [
        f"budget.{name}" for name in ("tokens", "usd", "turns") if getattr(track.budget, name) is not None
    ]
