"""`mh requeue`: a settled track goes back into the queue."""

from __future__ import annotations

import os

import click

from daemon.cli import completion, finding
from daemon.cli.group import workspace
from daemon.durable import Files
from daemon.errors import UsageError
from daemon.lock import holder
from daemon.spool.store import numbered
from daemon.tracks import requests


@click.command("requeue")
@click.argument("track", metavar="ID", shell_complete=completion.settled)
@click.option(
    "--fresh", is_flag=True, help="Start from a new scratch repository; the old one stays where it is."
)
@click.pass_context
def command(ctx: click.Context, track: str, fresh: bool) -> None:
    """Put a settled track back into the queue: the same as moving its file to tracks/queued/.

    It goes on in its own work directory; what failed before, and what you
    wrote at the end of the file, is in its next brief.
    """
    place = workspace(ctx)
    found = finding.find(place, track)
    if found.path is None:
        raise UsageError(f"the file of {found.id} is gone", f"its text as claimed: {found.directory}/spec.md")
    if found.state == "active":
        raise UsageError(f"{found.id} is running", f"mh interrupt {found.id}")
    if fresh:
        requests.write(place.requests, place.tmp, "fresh", track=found.id)
    if found.state == "queued":
        click.echo(f"{found.id} is queued already" + (" and will start afresh" if fresh else ""))
        return
    files, number = Files(), 1
    while True:
        target = place.queued / numbered(found.path.name, number)
        number += 1
        if os.path.lexists(place.active / target.name):
            continue
        try:
            files.move(found.path, target)
        except FileExistsError:
            continue
        break
    files.sync_dir(place.queued)
    files.sync_dir(found.path.parent)
    click.echo(f"{found.id}  queued: {target}")
    if holder(place.lock) is None:
        click.echo("the daemon is not running: mh up -d")
