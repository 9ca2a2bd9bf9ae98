"""`mh trajectory`: one session as an ATIF trajectory, or as a page to read."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daemon.cli.measure import json_text, own_prices, redacting, redactor
from daemon.errors import UsageError

if TYPE_CHECKING:
    from adapters.transcripts.sessions import Session


@click.command("trajectory")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--output", metavar="OUT", type=click.Path(path_type=Path), help="Write it to this file.")
@click.option("--md", is_flag=True, help="A page in Markdown instead of JSON.")
@click.option("--session", metavar="ID", help="Which session, if the file or folder has several.")
@redacting("it")
@click.pass_context
def command(
    ctx: click.Context,
    file: Path,
    output: Path | None,
    md: bool,
    session: str | None,
    redact: bool,
    secret_env: tuple[str, ...],
) -> None:
    """Write a transcript of any harness as a trajectory in the Agent Trajectory Interchange Format, ATIF 1.7.

    Sub-agents are embedded. An ATIF file of any version 1 may be given too. What
    `mh measure` says of the session stands in final_metrics.extra.megaharness;
    the totals of ATIF are those of the main conversation, as each sub-agent
    has its own.
    """
    from adapters.transcripts import page, report, sessions
    from adapters.transcripts.trajectory import Trajectory, whole

    clean = redactor(redact, secret_env)
    chosen = _choose(file, session)
    if output is not None and os.path.realpath(output) in map(os.path.realpath, chosen.paths):
        raise UsageError(
            f"{output} is the transcript itself", "name another file: a transcript is never written"
        )
    built = Trajectory()
    try:
        for events in chosen.events(content=True):
            built.add(events)
    except OSError as error:
        raise UsageError(f"{error.filename or file}: {error.strerror or error}") from error
    used = tuple(dict.fromkeys(source.format for source in chosen.sources))
    measured = sessions.Measured(chosen, built.figures(), used)
    extra: dict[str, Any] = {"megaharness": report.session(measured, own_prices(ctx))}
    document = built.document(chosen.harness, extra)
    if clean is not None:
        document = clean.value(document)
    text = whole(page.page(document)) if md else json_text(document) + "\n"
    if output is None:
        sys.stdout.write(text)
        return
    _write(output, text.encode(), chosen.paths)
    steps = len(document["steps"])
    click.echo(f"wrote {output}: {steps} step{'' if steps == 1 else 's'}", err=True)


def _choose(file: Path, wanted: str | None) -> Session:
    """The one session that is meant."""
    from adapters.transcripts import sessions
    from adapters.transcripts.formats import known

    if not os.path.lexists(file):
        raise UsageError(f"there is no {file}")
    found: list[sessions.Source] = []
    why = "there is no transcript in it"
    for each in sessions.find([file]):
        if isinstance(each, sessions.Unread):
            why = each.why
        else:
            found.append(each)
    gathered = sessions.gather(found)
    if not gathered:
        formats = ", ".join(sorted({each.format for kind in known() for each in kind}))
        raise UsageError(f"{file}: {why}", f"the formats that are known: {formats}")
    if wanted is not None:
        gathered = [each for each in gathered if each.id is not None and each.id.startswith(wanted)]
        if not gathered:
            raise UsageError(f"{file} has no session {wanted}", f"mh measure {file} lists them")
    if len(gathered) > 1:
        names = ", ".join(str(each.id or each.paths[0]) for each in gathered[:5])
        raise UsageError(
            f"{file} has {len(gathered)} sessions: {names}{', ...' if len(gathered) > 5 else ''}",
            f"choose one: mh trajectory {file} --session {gathered[0].id or 'ID'}",
        )
    return gathered[0]


def _write(path: Path, data: bytes, sources: Sequence[Path]) -> None:
    """The file is there whole, or as it was before. A device or a pipe is written to, never replaced."""
    from daemon.durable import Files

    real = Path(os.path.realpath(path))
    if real.is_dir():
        raise UsageError(f"{path} is a folder", f"name the file: -o {path}/trajectory.json")
    if not real.parent.is_dir():
        raise UsageError(f"there is no folder {real.parent}", f"mkdir -p {shlex.quote(str(real.parent))}")
    if real.exists() and any(real.samefile(source) for source in sources if source.exists()):
        raise UsageError(f"{path} is the transcript itself, and would be lost", "name another file")
    if real.exists() and not real.is_file():
        real.write_bytes(data)
    else:
        Files().publish(real, data, mode=0o600)
