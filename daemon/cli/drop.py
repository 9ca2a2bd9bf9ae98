"""`mh drop`: put a track into queued/."""

from __future__ import annotations

import difflib
import json
import os
import re
import secrets
import shlex
import sys
from pathlib import Path

import click

from daemon.cli import completion
from daemon.cli.group import workspace
from daemon.durable import Files
from daemon.errors import DocumentError, UsageError
from daemon.layout import Workspace
from daemon.lock import holder
from daemon.spool.store import is_litter, numbered

#: In `Context.meta`: how many of the last words stood after ``--``.
LITERAL = "daemon.cli.drop.literal"


class _Drop(click.Command):
    """Remembers what stood after ``--``, which click itself forgets."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[LITERAL] = len(args) - args.index("--") - 1 if "--" in args else 0
        return super().parse_args(ctx, args)


# A text may begin with a dash: which words are wrong options is told below, not by click.
@click.command("drop", cls=_Drop, context_settings={"ignore_unknown_options": True})
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
    needs: -H, --check, --after and --priority cannot be added to it. One
    that begins with a dash stands after --.

    The workspace ~/megaharness is made if that is the one that is meant and
    it is not there; another one that is not there is an error.
    """
    _options_and_files(ctx, what)
    found = workspace(ctx, make=True)
    data, own_name = _read(what)
    data = _with_keys(data, harness, checks, after, priority)
    from daemon.cli import doubt
    from daemon.tracks import ids

    try:
        loaded, predecessors = doubt.understand(found, data, own_name or "track.md")
    except DocumentError as error:
        lines = "\n".join(f"{own_name or 'the text'}: {problem}" for problem in error.problems)
        raise UsageError(f"nothing was queued\n{lines}") from error
    wanted = (
        name.removesuffix(".md") if name else (own_name or ids.slug(loaded.title) + ".md").removesuffix(".md")
    )
    if "/" in wanted or is_litter(f"{wanted}.md"):
        raise UsageError(f"{wanted}.md is not a name for a track's file", "give another with --name")
    path = publish(found, f"{wanted}.md", data)
    doubt.warn(found, path.name, loaded, predecessors)
    _report(found, path, as_json)


def _options_and_files(ctx: click.Context, what: tuple[str, ...]) -> None:
    """Raises UsageError for words that are taken for a text and were hardly meant as one."""
    literal: int = ctx.meta[LITERAL]
    known = [name for param in ctx.command.get_params(ctx) for name in param.opts if name[0] == "-"]
    for word in what[: len(what) - literal]:
        name = word.partition("=")[0]
        if word != "-" and word.startswith("-") and not re.search(r"\s", name):
            near = difflib.get_close_matches(name, known, 1)
            meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise UsageError(
                f"nothing was queued: there is no option {name}",
                f"{meant} A text that begins with - stands after --: mh drop -- TEXT",
            )
    if len(what) == 1 and os.path.isdir(what[0]):
        raise UsageError(f"nothing was queued: {what[0]} is a directory", "mh drop FILE.md")
    files = [word for word in what if os.path.isfile(word) or (word.endswith(".md") and " " not in word)]
    if len(what) > 1 and files:
        each = " ".join(map(shlex.quote, files))
        raise UsageError(
            f"nothing was queued: {files[0]} is a file, and there are more words: one file at a time",
            f'for file in {each}; do mh drop "$file"; done    (a text that names a file: in quotes, as one word)',
        )


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


def publish(found: Workspace, name: str, data: bytes, files: Files | None = None) -> Path:
    """Write it whole and on disk, then rename it into queued/ under a name that is free everywhere."""
    files = files or Files()
    for folder in (found.tmp, found.queued):
        files.make_dirs(folder)
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
