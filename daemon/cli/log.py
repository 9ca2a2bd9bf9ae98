"""`mh log`: what a track's harness said, or what the daemon did."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

from daemon.cli import completion, finding
from daemon.cli.group import workspace
from daemon.cli.view import clean
from daemon.errors import UsageError


@click.command("log")
@click.argument("track", metavar="[ID]", required=False, shell_complete=completion.watchable)
@click.option("-f", "--follow", is_flag=True, help="Go on printing what comes.")
@click.pass_context
def command(ctx: click.Context, track: str | None, follow: bool) -> None:
    """Print what a track's harness said (readable), or without an ID the daemon's own log.

    The unchanged stream is sessions/<session>/events.jsonl.
    """
    place = workspace(ctx)
    if track is None:
        for line in _daemon_lines(place.daemon_log, follow):
            click.echo(line)
        return
    found = finding.find(place, track)
    if found.directory is None:
        raise not_run(found)
    argv = plain_argv(found.directory, follow)
    sys.stdout.flush()
    os.execv(argv[0], argv)


def not_run(found: finding.Found) -> UsageError:
    """There is no log, and why not."""
    said = "was refused, it has not run" if found.reason else "has not run yet"
    return UsageError(f"{found.id} {said}", f"mh why {found.word}")


def plain_argv(session: Path, follow: bool) -> list[str]:
    """The viewer as a plain program: prints, and with `follow` goes on until the session has ended."""
    mode = ["--plain"] if follow else ["--plain", "--so-far"]
    return [sys.executable, "-P", "-m", "adapters.viewer", *mode, str(session)]


def _daemon_lines(path: Path, follow: bool) -> Iterator[str]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise UsageError("the daemon has not run here yet", "mh up -d") from None
    with file:
        while True:
            line = file.readline()
            if line.endswith(b"\n"):
                yield _readable(line)
            elif not follow:
                return
            else:
                file.seek(-len(line), os.SEEK_CUR)
                # A log is read by people: a look now and then is quick enough.
                time.sleep(0.25)
                if _rotated(path, file.fileno()):
                    file.close()
                    yield from _daemon_lines(path, follow)
                    return


def _rotated(path: Path, fd: int) -> bool:
    try:
        return not os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _readable(line: bytes) -> str:
    try:
        row = json.loads(line)
        if not isinstance(row, dict):
            raise TypeError("no object")
    except (ValueError, TypeError, RecursionError):
        return clean(line.decode("utf-8", "replace").rstrip("\n"))
    at, level, event = row.pop("at", ""), row.pop("level", ""), row.pop("event", "")
    row.pop("part", None)
    trace = row.pop("traceback", None) or row.pop("exception", None)
    facts = " ".join(f"{key}={value}" for key, value in row.items())
    text = f"{str(at)[:19].replace('T', ' ')} {level:7} {clean(event)}  {clean(facts)}".rstrip()
    return (
        text
        if not trace
        else text + "\n" + "\n".join(f"    {clean(part)}" for part in str(trace).splitlines())
    )
