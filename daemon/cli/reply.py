"""`mh reply`: say something to a track, at the end of its file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from daemon.cli import completion, edited, finding
from daemon.cli.group import workspace
from daemon.errors import UsageError
from daemon.layout import Workspace
from daemon.lock import holder
from daemon.spool.claim import FILE_LIMIT


@click.command("reply", context_settings={"ignore_unknown_options": True})
@click.argument("track", metavar="ID", shell_complete=completion.tracks)
@click.argument("words", metavar="TEXT", nargs=-1, required=True)
@click.pass_context
def command(ctx: click.Context, track: str, words: tuple[str, ...]) -> None:
    """Answer a track's question, correct it, or add to it. TEXT may be - for standard input.

    It writes the text at the end of the track's file, as you could with any
    editor. A running harness that takes messages gets it within seconds; else
    it is in the brief of the next attempt.
    """
    place = workspace(ctx)
    found = finding.find(place, track)
    if (unread := edited.unread(place, found)) is not None:
        raise UsageError(*unread)
    if found.path is None:
        raise UsageError(
            f"the file of {found.id} is gone", f"put it back, or end it: mh interrupt {found.word}"
        )
    text = sys.stdin.read() if words == ("-",) else " ".join(words)
    append(found.path, text)
    if found.state == "active" and holder(place.lock) is None:
        click.echo(f"{found.id}  written to its file; it counts when the daemon runs: mh up -d")
        return
    click.echo(f"{found.id}  {_follows(place, found)}")


def append(path: Path, text: str) -> None:
    """Write it at the end, in one piece, as a paragraph of its own. Raises UsageError."""
    text = text.strip()
    if not text:
        raise UsageError("there is nothing to say in that text", "mh reply ID TEXT, or mh reply ID - < FILE")
    if "\0" in text:
        raise UsageError("the text has a NUL byte in it", "")
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the text is no UTF-8: {error.reason} at {error.start}", "") from None
    # In place, as many editors do: the daemon's lease makes it wait, and what falls into its own rewriting is merged.
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        tail = os.pread(fd, 64 << 10, max(0, size - (64 << 10)))
        newline = b"\r\n" if b"\r\n" in tail else b"\n"
        before = (b"" if tail.endswith(b"\n") or not size else newline) + newline
        piece = before + newline.join(data.splitlines()) + newline
        if size + len(piece) > FILE_LIMIT:
            raise UsageError(
                f"{path.name} would be larger than {FILE_LIMIT >> 20} MiB", "say it in fewer words"
            )
        _write(fd, size, piece)
        os.fsync(fd)
    finally:
        os.close(fd)


def _write(fd: int, size: int, piece: bytes) -> None:
    """All of it, or none where the disk takes no more. Raises OSError."""
    written = 0
    try:
        while written < len(piece):
            written += os.write(fd, piece[written:])
    except OSError:
        # Unless somebody else has written behind it meanwhile: then half of it is better than half of theirs.
        if os.fstat(fd).st_size == size + written:
            os.ftruncate(fd, size)
        raise


def _follows(place: Workspace, found: finding.Found) -> str:
    """What becomes of it now."""
    if found.state == "queued":
        return "written to its file, which is waiting: it is part of the task"
    if found.state in ("done", "failed"):
        return f"written to its file; it goes on with it after: mh requeue {found.word}"
    if found.record("settle.json").get("termination") == "blocked":
        return "answered: it goes on with that as soon as a slot is free"
    from adapters.errors import AdapterError
    from adapters.registry import Registry
    from daemon.config import Settings
    from daemon.errors import SettingsError

    name = str(found.record("claim.json").get("extra", {}).get("harness", ""))
    try:
        can = Registry(Settings.load(place.settings).tables()).get(name).capabilities()
    except (SettingsError, AdapterError):
        return "written to its file"
    if can.steer:
        return f"written to its file; it reaches the agent within seconds: mh attach {found.word}"
    if can.feedback:
        return (
            f"written to its file; {name} takes no messages while it runs: it is in the next attempt's brief"
        )
    return f"written to its file; {name} takes no messages: it is read when the track is run again"
