"""`mh mddb list`: the documents, for whom each is, and what is wrong with one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args

import click

from daemon.assembly import library
from daemon.cli.group import workspace
from daemon.cli.view import clean, count
from daemon.durable import Files
from daemon.mddb.schema import Doc, Kind

KINDS: tuple[Kind, ...] = get_args(Kind)


@click.command("list")
@click.option("--kind", metavar="KIND", type=click.Choice(KINDS), help=f"Only these: {', '.join(KINDS)}.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.pass_context
def command(ctx: click.Context, kind: Kind | None, as_json: bool) -> None:
    """List the documents by kind: for whom each is, its order, and what it overrides.

    A line with ! is a document that cannot be read; the lines below it say
    why. Files that are no documents, and so are never told, are named at the
    end.
    """
    place = workspace(ctx)
    database = library(place, Files(), looking=True)
    docs = [doc for doc in database.documents().values() if kind in (None, doc.kind)]
    strays = database.strays() if kind is None else []
    if as_json:
        document = {"documents": [_facts(doc) for doc in docs], "strays": strays}
        click.echo(json.dumps(document, ensure_ascii=True, indent=2))
        return
    for each in KINDS:
        if rows := [doc for doc in docs if doc.kind == each]:
            click.secho(each, bold=True)
            for line in _lines(rows):
                click.echo(line)
    if strays:
        click.secho("no documents", bold=True)
        for stray in strays:
            click.echo(f"  {clean(stray)}")
    click.echo(_counts(docs))


def _lines(docs: list[Doc]) -> Iterator[str]:
    width = min(56, max(len(clean(doc.path)) for doc in docs))
    for doc in docs:
        mark = click.style("!", fg="red") if doc.problems else " "
        yield f"{mark} {clean(doc.path):{width}}  {clean(_short(doc))}".rstrip()
        for problem in doc.problems:
            yield f"      {clean(problem)}"


def _short(doc: Doc) -> str:
    parts = []
    match doc.kind:
        case "project":
            parts.append(doc.repository or "no repository")
        case "policy":
            parts.append(count(len(doc.deny), "rule"))
        case "translation":
            parts.append(doc.pair)
        case "sidecar":
            parts.append(" ".join(filter(None, [doc.rule, doc.at, f"-> {doc.action}"])))
    if doc.clauses is not None:
        parts.append(str(doc.clauses))
    elif not doc.has_clauses and not doc.problems:
        parts += {"instruction": ["always"], "skill": ["named to all"], "sidecar": ["always"]}.get(
            doc.kind, []
        )
    parts += [f"order {doc.order}"] if doc.order else []
    parts += [f"overrides {', '.join(doc.overrides)}"] if doc.overrides else []
    return "; ".join(parts)


def _counts(docs: list[Doc]) -> str:
    kinds = [f"{number} {kind}" for kind in KINDS if (number := sum(doc.kind == kind for doc in docs))]
    bad = sum(bool(doc.problems) for doc in docs)
    text = count(len(docs), "document") + (f": {', '.join(kinds)}" if kinds else "")
    return f"{text}; {bad} cannot be read" if bad else text


def _facts(doc: Doc) -> dict[str, Any]:
    clauses = {
        clause.dimension: {"any": clause.patterns, "not": clause.excluded} for clause in doc.clauses or ()
    }
    return {
        "path": doc.path,
        "kind": doc.kind,
        "blob": doc.sha or None,
        "name": doc.name or None,
        "description": doc.description or None,
        "applies_when": clauses or None,
        "order": doc.order,
        "overrides": doc.overrides,
        "globs": doc.globs,
        "problems": [
            {"line": each.line, "field": each.field, "message": each.message, "hint": each.hint or None}
            for each in doc.problems
        ],
    }
