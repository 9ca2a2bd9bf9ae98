"""`mh mddb import`: what people already have for their agents becomes documents."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from daemon.cli.group import workspace
from daemon.cli.view import clean, count
from daemon.durable import Files
from daemon.errors import UsageError
from daemon.layout import home
from daemon.mddb import sources
from daemon.mddb.importing import Source
from daemon.mddb.intake import Intake, Outcome

_COLOURS = {"new": "green", "updated": "green", "kept": "yellow", "refused": "red"}


@click.command("import")
@click.argument("paths", metavar="PATH...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option(
    "--update",
    is_flag=True,
    help="Replace the text of documents whose source has changed since. Their clauses, order and overrides stay; "
    "a text that you have changed is kept beside it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.pass_context
def command(ctx: click.Context, paths: tuple[Path, ...], dry_run: bool, update: bool, as_json: bool) -> None:
    """Make documents of what you already have for your agents: files, or folders that are searched.

    \b
    Known are
        CLAUDE.md, CLAUDE.local.md, AGENTS.md, GEMINI.md, QWEN.md, .cursorrules, .windsurfrules,
        .github/copilot-instructions.md, *.instructions.md, *.mdc, .claude/rules
        folders with a SKILL.md, .claude/agents, .claude/commands

    For example:

    \b
        mh mddb import ~/.claude ~/src/checkout-service

    Texts are kept as they are. What lies in a git repository applies to its project, which is made if there is
    none. A Markdown file of another name that you name is an instruction for all. Nothing that is there is written
    over, and a second import changes nothing.

    Each source is a line: new, same, kept (the source has changed since), updated, or refused. Ends with 1 if one
    was refused; the others are imported all the same.
    """
    if not paths:
        raise UsageError("which files or folders?", f"for example: mh mddb import {_usual()}")
    place = workspace(ctx)
    files, my_home = Files(), Path(os.path.abspath(home(os.environ)))
    found = sources.find((_at_home(path, my_home) for path in paths), my_home, place.root, files)
    outcomes = [Outcome("refused", "", each.origin, each.reasons) for each in found.refused]
    intake = Intake(place.mddb, files, dry_run=dry_run, update=update)
    #: Of each new document for whom it is.
    readers: dict[str, str] = {}
    for candidate in found.candidates:
        for outcome in intake.take(candidate):
            notes = outcome.notes
            if outcome.status in ("new", "updated") and outcome.origin == candidate.source.origin:
                notes = (*notes, *_keys(candidate.source))
            if outcome.status == "new" and (reader := intake.reader(outcome.path)):
                readers[outcome.path] = reader
            outcomes.append(Outcome(outcome.status, outcome.path, outcome.origin, notes))
    if as_json:
        document = {
            "documents": [
                {
                    "status": each.status,
                    "path": each.path or None,
                    "source": each.origin,
                    "notes": each.notes,
                    "for": readers.get(each.path),
                }
                for each in outcomes
            ],
            "passed_over": found.passed_over,
            "dry_run": dry_run,
        }
        click.echo(json.dumps(document, ensure_ascii=True, indent=2))
    else:
        for line in _lines(outcomes, readers, found.passed_over, dry_run):
            click.echo(line)
    if any(each.status == "refused" for each in outcomes):
        ctx.exit(1)


def _lines(
    outcomes: list[Outcome], readers: Mapping[str, str], passed_over: int, dry_run: bool
) -> Iterator[str]:
    for each in outcomes:
        word = click.style(f"{each.status:7}", fg=_COLOURS.get(each.status))
        yield f"{word}  {clean(each.path) or '-'}  <- {clean(each.origin)}"
        if reader := readers.get(each.path):
            yield f"           for {clean(reader)}"
        for note in each.notes:
            yield f"           {clean(note)}"
    statuses = [each.status for each in outcomes]
    counts = [f"{statuses.count(word)} {word}" for word in dict.fromkeys(statuses)]
    yield f"{', '.join(counts) or 'nothing found'}{'; nothing was written (--dry-run)' if dry_run else ''}"
    if passed_over:
        yield f"{count(passed_over, 'other Markdown file')} passed over; one that you name becomes an instruction"


def _keys(source: Source) -> Iterator[str]:
    """A note for each file in which something looks like a key: what is in a document is told to agents."""
    from adapters.transcripts.redact import Redactor

    redactor = Redactor()
    texts = {"": source.data} | {name: each.data for name, each in (source.files or {}).items()}
    for name, data in texts.items():
        if b"\0" in data[:4096]:
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            if redactor.text(line) != line:
                where = f"line {number}" + (f" of {name}" if name else " of the source")
                yield f"{where} looks like it holds a key: agents and their providers would read it"
                break


def _at_home(path: Path, my_home: Path) -> Path:
    return my_home / path.relative_to("~") if path.parts[:1] == ("~",) else path


def _usual() -> str:
    there = [
        name for name in ("~/.claude", "~/.codex/AGENTS.md", "~/.gemini") if Path(name).expanduser().exists()
    ]
    return " ".join([*there, "."])
