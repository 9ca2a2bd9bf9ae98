"""`mh completion`, and the completion of ids."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

from daemon.cli import finding
from daemon.layout import Workspace, find_root


def tracks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids that begin with what was typed."""
    found = Workspace(find_root(ctx.find_root().params.get("root"), os.environ, Path.cwd()))
    return [CompletionItem(track) for track in finding.ids(found) if track.startswith(incomplete)]


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    \b
      bash:  eval "$(mh completion bash)"        in ~/.bashrc
      zsh:   eval "$(mh completion zsh)"         in ~/.zshrc
      fish:  mh completion fish | source         in ~/.config/fish/config.fish
    """
    made = get_completion_class(shell)
    assert made is not None
    from daemon.cli.group import cli

    for name in ("mh", "megaharness"):
        click.echo(made(cli, {}, name, f"_{name.upper()}_COMPLETE").source())
