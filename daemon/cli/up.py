"""`mh up`: start the daemon."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import click

from adapters.session import MARKER
from daemon.cli.group import complain, workspace
from daemon.cli.view import count
from daemon.errors import AlreadyRunning, MegaharnessError, SettingsError
from daemon.layout import Workspace
from daemon.lock import holder
from daemon.spool.sessions import read_json

#: Seconds in which a detached daemon must say that it runs.
PATIENCE = 20.0


@click.command("up")
@click.option(
    "-d", "--detach", is_flag=True, help="In the background, without systemd. Survives this terminal."
)
@click.pass_context
def command(ctx: click.Context, detach: bool) -> None:
    """Start the daemon: here (Ctrl-C ends it, running tracks go on), or with -d in the background.

    Sessions that an earlier daemon left running are adopted.

    The workspace ~/megaharness is made if that is the one that is meant and
    it is not there; another one that is not there is an error.
    """
    found = workspace(ctx, make=True)
    if detach:
        _detached(found)
        return
    from daemon.assembly import supervise

    _warn(found)
    ctx.exit(supervise(found.root))


def _warn(found: Workspace) -> None:
    """One line for each harness that cannot work: else the first track at night would be who finds out."""
    from adapters.registry import Registry
    from daemon.cli import harnesses
    from daemon.config import Settings

    try:
        settings = Settings.load(found.settings)
    except SettingsError:
        return  # then it does not start at all, and says why
    for name, error in harnesses.faults(settings, Registry(settings.tables())):
        complain(f"harness {name}: {error} (mh doctor)", "")
    for name, lack in harnesses.lacking(settings, os.environ):
        complain(f"harness {name}: {lack}", "")


def _detached(found: Workspace) -> None:
    if (there := holder(found.lock)) is not None:
        raise AlreadyRunning(f"a daemon is already running here (pid {there.pid})", "look at it with `mh`")
    found.log.mkdir(parents=True, exist_ok=True, mode=0o700)
    output = found.log / "up.log"
    with open(output, "wb") as sink:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "daemon", "--root", str(found.root), "up"],
            cwd="/",
            # Asked for from within a track, it must not end with that track.
            env={name: value for name, value in os.environ.items() if name != MARKER},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if (code := child.poll()) is not None:
            words = output.read_text("utf-8", "replace").strip() or f"it ended with exit code {code}"
            error = MegaharnessError(words.removeprefix("mh: "))
            error.exit_code = code or 1
            raise error
        state = read_json(found.daemon_json) or {}
        if state.get("pid") == child.pid and state.get("phase") != "ended":
            slots = state["slots"]["total"]
            _warn(found)
            click.echo(f"running (pid {child.pid}), {count(slots, 'slot')}: {found.root}")
            click.echo("mh shows it, mh down ends it; a task: mh drop TASK.md")
            return
        time.sleep(0.02)
    raise MegaharnessError(
        f"the daemon did not come up within {PATIENCE:.0f} s (pid {child.pid})", f"see {output}"
    )
