"""`mh interrupt` (`mh stop`): end a running track."""

from __future__ import annotations

import click

from adapters import session as live
from daemon.cli import completion, finding
from daemon.cli.group import workspace
from daemon.errors import UsageError
from daemon.lock import holder
from daemon.tracks import requests


@click.command("interrupt")
@click.argument("track", metavar="ID", shell_complete=completion.running)
@click.option("--why", default="mh interrupt", help="The reason that the result will name.")
@click.pass_context
def command(ctx: click.Context, track: str, why: str) -> None:
    """Stop a running track: its whole process tree, and the checks if those are running.

    Its work so far is committed and stays; the track lands in tracks/failed/,
    from where `mh requeue` goes on with it.
    """
    place = workspace(ctx)
    found = finding.find(place, track)
    if found.state == "queued" and found.path is not None:
        raise UsageError(
            f"{found.id} is not running: it waits in tracks/queued/",
            f"to take it back: rm {found.path}, or move it elsewhere",
        )
    if found.state != "active" or found.directory is None:
        where = f"it lies in tracks/{found.state}/" if found.state else "its file is gone"
        raise UsageError(f"{found.id} is not running: {where}", f"mh why {found.word}")
    requests.write(place.requests, place.tmp, "interrupt", track=found.id, why=why)
    if holder(place.lock) is None:
        # Nobody is there to carry it out, and an agent that a person wants stopped must not go on.
        live.interrupt(found.directory, why)
        click.echo(f"{found.id} is ended; it is settled when the daemon runs again: mh up -d")
        return
    click.echo(f"{found.id} is being ended; mh why {found.id}")
