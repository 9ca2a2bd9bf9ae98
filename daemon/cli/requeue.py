"""`mh requeue`: a settled track goes back into the queue."""

from __future__ import annotations

import os
from pathlib import Path

import click

from daemon.cli import completion, finding
from daemon.cli.group import complain, workspace
from daemon.durable import Files
from daemon.errors import DocumentError, UsageError
from daemon.layout import Workspace
from daemon.lock import holder
from daemon.spool.claim import FILE_LIMIT
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
    wrote at the end of the file, is in its next brief. What is still wrong
    with it is told.
    """
    place = workspace(ctx)
    found = finding.find(place, track)
    if found.path is None:
        raise UsageError(f"the file of {found.id} is gone", f"its text as claimed: {found.directory}/spec.md")
    if found.state == "active" and found.record("settle.json").get("termination") == "blocked":
        raise UsageError(f"{found.id} asks you something", f"mh reply {found.word} TEXT")
    if found.state == "active":
        raise UsageError(f"{found.id} is running", f"mh interrupt {found.word}")
    if fresh and found.session is not None:
        # Of a file that never ran the id may be another track's.
        requests.write(place.requests, place.tmp, "fresh", track=found.id)
    if found.state == "queued":
        click.echo(f"{found.id} is queued already" + (" and will start afresh" if fresh else ""))
        return
    files, number = Files(), 1
    files.make_dirs(place.queued)
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
    _doubt(place, target)
    click.echo(f"{found.id}  queued: {target}")
    if holder(place.lock) is None:
        click.echo("the daemon is not running: mh up -d")


def _doubt(place: Workspace, path: Path) -> None:
    """What `mh drop` would have said of it. The file is queued all the same: it is corrected in place."""
    from daemon.cli import doubt

    try:
        loaded, predecessors = doubt.understand(place, finding.content(path, 2 * FILE_LIMIT), path.name)
    except DocumentError as error:
        faults = "\n".join(map(str, error.problems))
        complain(f"it will be refused as it is:\n{faults}", f"correct {path} now, in place")
    except OSError:
        return  # taken already, or not to be read: then the queue says so itself
    else:
        doubt.warn(place, path.name, loaded, predecessors)
