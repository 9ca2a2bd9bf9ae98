"""`mh completion`, and the completion of ids."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

from daemon.cli import finding
from daemon.layout import Workspace, find_root
from daemon.spool.states import DONE, FAILED


def _workspace(ctx: click.Context) -> Workspace:
    return Workspace(find_root(ctx.find_root().params.get("root"), os.environ, Path.cwd()))


def _items(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in dict.fromkeys(names) if name.startswith(incomplete)]


def tracks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids that begin with what was typed."""
    return _items(finding.ids(_workspace(ctx)), incomplete)


def running(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of claimed tracks, which can be interrupted."""
    return _items((ref.item for ref, _ in finding.live(_workspace(ctx))), incomplete)


def watchable(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of tracks that have a log: the running ones first."""
    place = _workspace(ctx)
    now = [ref.item for ref, _ in finding.live(place)]
    return _items([*now, *sorted(finding.newest_sessions(place))], incomplete)


def settled(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of tracks that can be put back into the queue: what failed first."""
    names = finding.everything(_workspace(ctx))
    return _items(
        [
            track
            for state in (FAILED, DONE)
            for track, places in names.items()
            if all(found in (FAILED, DONE) for found, _ in places) and places[-1][0] == state
        ],
        incomplete,
    )


def documents(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Paths of documents below md-db; where none begins so, files."""
    from daemon.cli.mddb.naming import paths

    return _items(paths(_workspace(ctx).mddb), incomplete) or files(ctx, param, incomplete)


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The shell knows files better."""
    return [CompletionItem(incomplete, type="file")]


def directories(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="dir")]


def harnesses(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names that a track can give as its harness_id."""
    from adapters.registry import Registry
    from daemon.config import Settings
    from daemon.errors import SettingsError

    try:
        tables = Settings.load(_workspace(ctx).settings).tables()
    except SettingsError:
        # In the middle of a command line nobody can be told; those that need no settings are still known.
        tables = {}
    return _items(Registry(tables).names(), incomplete)


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
