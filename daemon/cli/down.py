"""`mh down`: ask the running daemon to end."""

from __future__ import annotations

import os
import time

import click

from adapters.errors import TerminalError
from daemon.cli import finding
from daemon.cli.group import complain, workspace
from daemon.errors import MegaharnessError, NotRunning
from daemon.layout import Workspace
from daemon.lock import holder
from daemon.tracks import requests

PATIENCE = 30.0


@click.command("down")
@click.option("--drain", is_flag=True, help="Start nothing more, and end when the running tracks have.")
@click.pass_context
def command(ctx: click.Context, drain: bool) -> None:
    """End the daemon. Running tracks go on, and the next `mh up` takes them over.

    With --drain nothing more is started, and the command waits until every
    running track has been settled (Ctrl-C stops the waiting, not the draining).
    """
    found = workspace(ctx)
    there = holder(found.lock)
    if there is None or there.pid is None:
        raise NotRunning(f"there is no daemon running in {found.root}")
    requests.write(found.requests, found.tmp, "down", pid=there.pid, drain=drain)
    if drain:
        click.echo("draining: nothing more is started; waiting for the running tracks")
    deadline = None if drain else time.monotonic() + PATIENCE
    while (now := holder(found.lock)) is not None and now.pid == there.pid:
        if deadline is not None and time.monotonic() > deadline:
            raise MegaharnessError(
                f"the daemon (pid {there.pid}) did not end within {PATIENCE:.0f} s",
                f"what it does: {found.daemon_log}",
            )
        time.sleep(0.05)
    open_tracks = [ref for ref, _ in finding.live(found)]
    left = [ref.item for ref in open_tracks if not os.path.lexists(found.sessions / ref.id / "settle.json")]
    if left:
        more = ", …" if len(left) > 5 else ""
        click.echo(f"ended; {len(left)} running on without it: {', '.join(left[:5])}{more}")
        return
    if open_tracks:
        click.echo(f"ended; {len(open_tracks)} waiting for your answer: {open_tracks[0].item}, …")
        return
    _end_tmux(found)
    waiting = sum(state == "queued" for state, _ in finding.files(found))
    still = f"; {waiting} still waiting in tracks/queued/" if waiting else ""
    click.echo(f"ended; {'every running track has been settled' if drain else 'nothing was running'}{still}")


def _end_tmux(found: Workspace) -> None:
    """With no track left there is nothing to show, unless somebody reads an old pane just now."""
    from daemon.assembly import terminal

    tmux = terminal(found)
    try:
        if not any(window.watched for window in tmux.windows()):
            tmux.kill_server()
    except TerminalError as error:
        complain(str(error), error.hint)
