"""`mh init`: make a workspace."""

from __future__ import annotations

import os
from pathlib import Path

import click

from daemon.layout import home


@click.command("init")
@click.argument("directory", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.pass_context
def command(ctx: click.Context, directory: Path | None) -> None:
    """Make a workspace in DIRECTORY (default: --root, else $MEGAHARNESS_ROOT, else ~/megaharness).

    A git repository with megaharness.toml, md-db/, tracks/, sessions/ and
    runs/. What is there already stays as it is.
    """
    from daemon.workspace import create

    chosen: Path = directory or (
        ctx.find_root().obj
        if ctx.find_root().params.get("root") or os.environ.get("MEGAHARNESS_ROOT")
        else home(os.environ) / "megaharness"
    )
    made = create(chosen)
    if made.paths:
        click.echo(f"{made.root} is a workspace now (settings: {made.root}/megaharness.toml)")
    else:
        click.echo(f"{made.root} is a workspace already; nothing was missing")
    click.echo(f"next: cd {made.root} && mh up -d, then mh drop TASK.md")
