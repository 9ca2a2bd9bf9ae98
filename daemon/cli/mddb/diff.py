"""`mh mddb diff`: what has changed in a document."""

from __future__ import annotations

import sys

import click

from daemon.cli import completion
from daemon.cli.group import workspace
from daemon.cli.mddb import naming
from daemon.cli.mddb.show import visible
from daemon.durable import Files
from daemon.mddb.revisions import Revisions

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@click.command("diff")
@click.argument("path", metavar="PATH", shell_complete=completion.documents)
@click.argument("old", metavar="[REV", default="HEAD", required=False)
@click.argument("new", metavar="[REV]]", required=False)
@click.pass_context
def command(ctx: click.Context, path: str, old: str, new: str | None) -> None:
    """Show what has changed in a document since HEAD, since a REV, or between two.

    `mh mddb log PATH` lists its commits. It is a unified diff; colours are
    for terminals only.
    """
    place = workspace(ctx)
    revisions = Revisions(place.root, Files())
    found = naming.document(place, revisions, path, gone=True)
    ends = [revisions.resolve_name(each) for each in (old, new) if each is not None]
    text = revisions.diff(found, *ends)
    if not text:
        click.echo(f"no change {f'since {old}' if new is None else f'from {old} to {new}'}", err=True)
    elif not sys.stdout.isatty():
        click.echo(text.encode("utf-8", "surrogateescape"), nl=False)
    else:
        for number, line in enumerate(text.splitlines()):
            if number < 2:
                click.secho(visible(line), bold=True)
            else:
                click.secho(visible(line), fg=_COLOURS.get(line[:1]))
