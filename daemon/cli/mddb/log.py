"""`mh mddb log`: the commits in which a document changed."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime

import click

from daemon.cli import completion
from daemon.cli.group import workspace
from daemon.cli.mddb import naming
from daemon.cli.view import clean, short
from daemon.durable import Files
from daemon.mddb.revisions import Revisions


@click.command("log")
@click.argument("path", metavar="PATH", shell_complete=completion.documents)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=1),
    default=20,
    help="At most so many, the newest. Default: 20.",
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.pass_context
def command(ctx: click.Context, path: str, limit: int, as_json: bool) -> None:
    """List the commits in which a document changed, the newest first.

    Besides those of your history these are the ones that hold what a session
    was told before it was committed; they say so in the place of an author.
    """
    place = workspace(ctx)
    revisions = Revisions(place.root, Files())
    found = naming.document(place, revisions, path, gone=True)
    entries = revisions.log(found, limit + 1)
    if as_json:
        click.echo(json.dumps([asdict(entry) for entry in entries[:limit]], ensure_ascii=True, indent=2))
        return
    if not entries:
        click.echo(f"{clean(found)} is not committed, and no session was told it yet")
    for entry in entries[:limit]:
        when = datetime.fromisoformat(entry.when.replace("Z", "+00:00")).astimezone()
        who = "(not committed)" if entry.own else entry.author
        what = entry.subject + ("" if entry.blob is not None else "  [it is gone]")
        commit = click.style(entry.commit[:12], fg="yellow")
        click.echo(f"{commit}  {when:%Y-%m-%d %H:%M}  {short(who, 20):20}  {clean(what)}")
    if len(entries) > limit:
        click.echo("…  older ones: --limit N")
