"""`mh mddb show`: a document, as it is or as it was."""

from __future__ import annotations

import sys

import click

from daemon.cli import completion, finding
from daemon.cli.group import workspace
from daemon.cli.mddb import naming
from daemon.durable import Files
from daemon.errors import UsageError
from daemon.mddb.revisions import Revisions


@click.command("show")
@click.argument("path", metavar="PATH", shell_complete=completion.documents)
@click.argument("rev", metavar="[REV]", required=False)
@click.pass_context
def command(ctx: click.Context, path: str, rev: str | None) -> None:
    """Print a document as it is, or as it was at a REV, byte for byte.

    On a terminal what could control it is shown as text.
    """
    place = workspace(ctx)
    revisions = Revisions(place.root, Files())
    found = naming.document(place, revisions, path, gone=rev is not None)
    if rev is None:
        data = finding.content((place.mddb / found).resolve(), 64 << 20)
    else:
        contents = revisions.read(revisions.resolve_name(rev), [found])
        if found not in contents:
            raise UsageError(f"there is no {found} at {rev}", f"mh mddb log {found}")
        data = contents[found]
    if sys.stdout.isatty():
        click.echo("\n".join(map(visible, data.decode("utf-8", "replace").split("\n"))), nl=False)
    else:
        click.echo(data, nl=False)


def visible(line: str) -> str:
    """A line for a terminal: it shows control characters, and obeys none but the tab."""
    return "".join(c if c.isprintable() or c == "\t" else f"\\x{ord(c):02x}" for c in line.removesuffix("\r"))
