"""`mh drop`: put a track into queued/."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from daemon.cli import completion, finding
from daemon.cli.group import complain, workspace
from daemon.durable import Files
from daemon.errors import DocumentError, SettingsError, UsageError
from daemon.layout import Workspace
from daemon.lock import holder
from daemon.spool.claim import FILE_LIMIT
from daemon.spool.store import is_litter, numbered

if TYPE_CHECKING:
    from daemon.tracks.track import Time, Track, TrackId


@click.command("drop", context_settings={"ignore_unknown_options": True})
@click.argument(
    "what", nargs=-1, required=True, metavar="FILE | - | TEXT...", shell_complete=completion.files
)
@click.option(
    "-H",
    "--harness",
    metavar="NAME[/MODEL]",
    shell_complete=completion.harnesses,
    help="Which harness (and model) runs it.",
)
@click.option(
    "--check", "checks", multiple=True, metavar="COMMAND", help="A command that must exit 0 (done_when)."
)
@click.option(
    "--after",
    multiple=True,
    metavar="ID|TIME",
    shell_complete=completion.tracks,
    help="Wait for a track, or until 22:30 or an ISO time.",
)
@click.option("--priority", type=int, help="Higher first; default 0.")
@click.option("--name", metavar="NAME", help="The file's name (default: FILE's own, or from the first line).")
@click.option("--json", "as_json", is_flag=True, help="Print id and path as JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    what: tuple[str, ...],
    harness: str | None,
    checks: tuple[str, ...],
    after: tuple[str, ...],
    priority: int | None,
    name: str | None,
    as_json: bool,
) -> None:
    """Give it a task: a Markdown FILE, standard input (-), or the text itself.

    \b
      mh drop fix-tax.md
      mh drop 'Round tax per line item' --check 'pytest -q tests/tax'
      git diff | mh drop - -H codex

    The file is checked first: a mistake is told here and nothing is queued.
    It works while the daemon is down; the file waits. A file of yours is
    copied, never moved. A text that has frontmatter says there what it
    needs: -H, --check, --after and --priority cannot be added to it.
    """
    found = workspace(ctx, make=True)
    data, own_name = _read(what)
    data = _with_keys(data, harness, checks, after, priority)
    from daemon.kernel.observe import not_built
    from daemon.tracks import ids
    from daemon.tracks.track import load, parse_after

    try:
        loaded = load(data, own_name or "track.md")
        if problems := tuple(not_built(loaded)):
            raise DocumentError(*problems)
        predecessors = [parse_after(entry, time.time()) for entry in loaded.track.after]
    except DocumentError as error:
        lines = "\n".join(f"{own_name or 'the text'}: {problem}" for problem in error.problems)
        raise UsageError(f"nothing was queued\n{lines}") from error
    if loaded.is_empty:
        raise UsageError("nothing was queued: there is no text", "write what is to be done")
    if len(data) > FILE_LIMIT:
        raise UsageError(f"nothing was queued: {len(data)} bytes are more than {FILE_LIMIT}")
    wanted = (
        name.removesuffix(".md") if name else (own_name or ids.slug(loaded.title) + ".md").removesuffix(".md")
    )
    if "/" in wanted or is_litter(f"{wanted}.md"):
        raise UsageError(f"{wanted}.md is not a name for a track's file", "give another with --name")
    path = publish(found, f"{wanted}.md", data)
    _doubt(found, loaded.track, predecessors)
    _report(found, path, as_json)


def _doubt(found: Workspace, track: Track, predecessors: list[Time | TrackId]) -> None:
    """Say why it will not run soon. Not an error: what is missing may come."""
    from adapters.registry import Registry
    from daemon.config import Settings
    from daemon.kernel.route import NoRoute, Router
    from daemon.tracks.track import TrackId

    try:
        settings = Settings.load(found.settings)
    except SettingsError as error:
        complain(
            f"it will wait until the settings can be used:\n{error}",
            error.hint or "correct them; `mh doctor` checks them",
        )
    else:
        route = Router(Registry(settings.tables()), settings.prefer).route(track, time.monotonic())
        if isinstance(route, NoRoute):
            complain(f"it will wait: {route.why}", route.unblock)
    wanted = [moment.id for moment in predecessors if isinstance(moment, TrackId)]
    known = finding.ids(found) if wanted else []
    for name in wanted:
        if name not in known:
            complain(f"it waits for {name}, and there is no track with this id yet", "")


def _read(what: tuple[str, ...]) -> tuple[bytes, str | None]:
    """(bytes, file name if it was a file)."""
    if what == ("-",):
        return sys.stdin.buffer.read(), None
    if len(what) == 1:
        path = Path(what[0])
        try:
            if path.is_file():
                data = path.read_bytes()
                return data, path.name if path.suffix == ".md" else f"{path.stem}.md"
        except OSError as error:
            if len(what[0]) < 256 and "\n" not in what[0]:
                raise UsageError(f"{what[0]} cannot be read: {error.strerror}") from error
        if what[0].endswith(".md") and "\n" not in what[0] and " " not in what[0]:
            raise UsageError(f"there is no file {what[0]}")
    return (" ".join(what) + "\n").encode("utf-8", "surrogateescape"), None


def _with_keys(
    data: bytes, harness: str | None, checks: tuple[str, ...], after: tuple[str, ...], priority: int | None
) -> bytes:
    """The text with the options as frontmatter. A file that has some already keeps it: options would contradict it."""
    lines = []
    if harness:
        lines.append(f"harness_id: {json.dumps(harness)}")
    if priority is not None:
        lines.append(f"priority: {priority}")
    if after:
        lines.append(f"after: {json.dumps(list(after))}")
    if checks:
        lines.append("done_when:")
        lines += [f"  - run: {json.dumps(check)}" for check in checks]
    if not lines:
        return data
    from daemon.spool import frontmatter

    try:
        document = frontmatter.read(data)
    except DocumentError as error:
        raise UsageError(f"nothing was queued: {error}") from error
    if document.has_frontmatter:
        raise UsageError(
            "the text has frontmatter of its own, so --harness, --check, --after and --priority cannot be added",
            "write them into its frontmatter",
        )
    return ("---\n" + "\n".join(lines) + "\n---\n").encode() + data


def publish(found: Workspace, name: str, data: bytes) -> Path:
    """Write it whole and on disk, then rename it into queued/ under a name that is free everywhere."""
    files = Files()
    files.make_dirs(found.tmp)
    temp = found.tmp / f"drop-{secrets.token_hex(6)}.md"
    files.create(temp, data)
    number = 1
    while True:
        target = numbered(name, number)
        number += 1
        if any(os.path.lexists(folder / target) for folder in found.folders):
            continue
        try:
            files.move(temp, found.queued / target)
        except FileExistsError:
            continue
        files.sync_dir(found.queued)
        return found.queued / target


def _report(found: Workspace, path: Path, as_json: bool) -> None:
    from daemon.tracks.ids import slug

    track = slug(path.name[: -len(".md")])
    running = holder(found.lock) is not None
    if as_json:
        click.echo(json.dumps({"id": track, "path": str(path), "daemon": running}))
        return
    click.echo(f"{track}  queued: {path}")
    if running:
        click.echo(f"  mh why {track}\n  mh attach {track}")
    else:
        click.echo("the daemon is not running: mh up -d")
