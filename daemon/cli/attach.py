"""`mh attach`: watch a track where it runs."""

from __future__ import annotations

import os
import subprocess
import sys

import click

from adapters import session as live
from adapters.ports import Running
from daemon.cli import completion, finding
from daemon.cli.group import workspace
from daemon.cli.log import not_run, plain_argv
from daemon.cli.view import clean
from daemon.errors import UsageError
from daemon.layout import Workspace
from daemon.spool.sessions import extra_of
from daemon.spool.states import DONE, FAILED


@click.command("attach")
@click.argument("track", metavar="[ID]", required=False, shell_complete=completion.watchable)
@click.pass_context
def command(ctx: click.Context, track: str | None) -> None:
    """Watch a running track in its tmux pane; Ctrl-Q leaves, nothing stops.

    Without an ID: the only running one, else a choice. A finished track's
    log opens in a pager. Inside a tmux of your own it opens a window there.
    """
    place = workspace(ctx)
    found = finding.find(place, track) if track else _choose(place)
    if found.directory is None or found.session is None:
        raise not_run(found)
    if isinstance(live.status(found.directory), Running) and found.state == "active":
        _attach(place, found)
        return
    if (found.directory / "events.jsonl").exists():
        _page(found)
        return
    raise UsageError(f"{found.id} is not running now", f"mh why {found.word}")


def _choose(place: Workspace) -> finding.Found:
    running = [
        ref for ref, _ in finding.live(place) if isinstance(live.status(place.sessions / ref.id), Running)
    ]
    if not running:
        raise UsageError(
            "no track is running", "mh shows what there is; mh attach ID opens the log of a finished one"
        )
    if len(running) == 1:
        return finding.find(place, running[0].item)
    names = [ref.item for ref in running]
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(f"{len(names)} tracks are running: {', '.join(names)}", "mh attach ID")
    for number, name in enumerate(names, 1):
        click.echo(f"{number:3}  {name}")
    number = click.prompt("which one", type=click.IntRange(1, len(names)), default=1)
    return finding.find(place, names[number - 1])


def _attach(place: Workspace, found: finding.Found) -> None:
    from daemon.assembly import terminal

    if not sys.stdout.isatty():
        raise UsageError("attach needs a terminal", f"mh log -f {found.id}")
    assert found.session is not None
    assert found.directory is not None
    tmux = terminal(place)
    name = found.session.id
    if not any(window.name == name and not window.dead for window in tmux.windows()):
        # The tmux server died: the runner goes on without one, a viewer alone shows it.
        tmux.ensure()
        tmux.open(found.id, name, [sys.executable, "-P", "-m", "adapters.viewer", str(found.directory)])
    if os.environ.get("TMUX"):
        argv = tmux.nested_argv(found.id, name)
        os.execvp(argv[0], argv)
    code = subprocess.run(tmux.attach_argv(found.id, name), check=False).returncode
    _ended(found)
    sys.exit(code)


def _ended(found: finding.Found) -> None:
    """How it ended, if it did while it was watched: who leaves its pane sees nothing of it any more."""
    state, settle = found.record("settled").get("state"), found.record("settle.json")
    if state not in (DONE, FAILED):
        return
    how = clean(extra_of(settle).get("checks") or settle.get("why") or settle.get("termination"))
    click.echo(f"{found.id}: {state}, {how}" + ("" if state == DONE else f": mh why {found.id}"))


def _page(found: finding.Found) -> None:
    assert found.directory is not None
    argv = plain_argv(found.directory, follow=False)
    where = (
        f"and lies in tracks/{found.state}/"
        if found.state in ("done", "failed")
        else "and is not settled yet"
    )
    said = f"{found.id} has ended {where}; this is its log"
    if found.state == "active" and found.record("settle.json").get("termination") == "blocked":
        said = (
            f"{found.id} asks: {clean(found.record('settle.json').get('why'))} (mh reply {found.word} TEXT)"
        )
    if not sys.stdout.isatty():
        # Beside the log, not in it: who asks without a terminal may be a program.
        click.echo(f"mh: {said}", err=True)
        os.execv(argv[0], argv)
    shown = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    click.echo_via_pager(f"-- {said} --\n\n{shown.stdout.decode('utf-8', 'replace')}")
