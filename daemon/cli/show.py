"""`mh show`: all that is known of one track."""

from __future__ import annotations

import json
from typing import Any

import click

from daemon.cli import completion, finding
from daemon.cli.group import workspace
from daemon.cli.view import clean
from daemon.kernel.starting import find_place, provenance
from daemon.spool.sessions import extra_of, read_json


@click.command("show")
@click.argument("track", metavar="ID", shell_complete=completion.tracks)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.pass_context
def command(ctx: click.Context, track: str, as_json: bool) -> None:
    """Show all that is known of one track: where its file is, its attempts, its checks, its work.

    ID may be shortened as long as it is the only one that begins so.
    """
    found = finding.find(workspace(ctx), track)
    facts = gather(found)
    if as_json:
        click.echo(json.dumps(facts, ensure_ascii=False, indent=2))
        return
    for key, value in facts.items():
        if value in (None, "", [], {}):
            continue
        if isinstance(value, list):
            click.echo(f"{key}:")
            for row in value:
                click.echo(f"  {clean(_line(row))}")
        else:
            click.echo(f"{key}: {clean(value)}")


def _line(row: object) -> str:
    if not isinstance(row, dict):
        return str(row)
    if "passed" in row:
        mark = {True: "passed", False: "failed", None: "to judge"}[row["passed"]]
        return f"{mark}: {row['check']}{' (' + row['detail'] + ')' if row['detail'] else ''}"
    ended = " ".join(filter(None, [row["termination"], f"({row['checks']})" if row["checks"] else ""]))
    return f"{row['attempt']}  {ended or 'not settled'}  {row['settled_at'] or row['claimed_at']}  {row['session']}"


def _attempts(found: finding.Found) -> list[dict[str, Any]]:
    """Every session of the track, the oldest first."""
    if found.directory is None:
        return []
    rows = []
    for ref in finding.sessions_of(found.directory.parent, found.id):
        directory = found.directory.parent / ref.id
        claim = read_json(directory / "claim.json") or {}
        settle = read_json(directory / "settle.json") or {}
        rows.append(
            {
                "attempt": ref.attempt,
                "session": ref.id,
                "harness": extra_of(claim).get("harness"),
                "claimed_at": claim.get("claimed_at"),
                "settled_at": settle.get("at"),
                "termination": settle.get("termination"),
                "why": settle.get("why"),
                "checks": extra_of(settle).get("checks"),
            }
        )
    return rows


def gather(found: finding.Found) -> dict[str, Any]:
    """Plain data; the names are part of the interface of --json."""
    claim, settle = found.record("claim.json"), found.record("settle.json")
    launch, exit_ = found.record("launch.json"), found.record("exit.json")
    extra, ended = extra_of(claim), extra_of(settle)
    place = find_place(found.directory) if found.directory is not None else None
    receipts: list[dict[str, Any]] = []
    if found.directory is not None and (found.directory / "receipts").is_dir():
        for path in sorted((found.directory / "receipts").glob("*.json")):
            raw = found.record(f"receipts/{path.name}")
            row = {key: raw.get(key) for key in ("check", "passed", "detail", "seconds", "tail")}
            receipts.append({**row, "receipt": f"receipts/{path.name}"})
    return {
        "id": found.id,
        "title": extra.get("title"),
        "state": found.state,
        "file": str(found.path) if found.path else None,
        "session": found.session.id if found.session else None,
        "attempt": claim.get("attempt"),
        "harness": extra.get("harness"),
        "model": extra.get("model"),
        "route": extra.get("route"),
        "claimed_at": claim.get("claimed_at"),
        "settled_at": settle.get("at"),
        "termination": settle.get("termination"),
        "why": settle.get("why"),
        "exit": exit_.get("code"),
        "signal": exit_.get("signal"),
        "seconds": exit_.get("wall_s"),
        "checks": receipts,
        "attempts": _attempts(found),
        "work": str(place.path) if place else None,
        "branch": place.branch if place else None,
        "commit": ended.get("commit"),
        "told": len(provenance(found.directory).get("told", ())) if found.directory else None,
        "argv": launch.get("argv"),
        "directory": str(found.directory) if found.directory else None,
    }
