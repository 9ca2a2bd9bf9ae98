"""`mh measure`: tokens, turns, tools and cost of sessions of any harness, from their transcripts."""

from __future__ import annotations

import gc
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from daemon.errors import UsageError
from daemon.layout import Workspace

# Shown on a terminal as text, never obeyed by it.
_VISIBLE = {c: f"\\x{c:02x}" for c in (*range(32), *range(127, 160))}


@click.command("measure")
@click.argument(
    "paths",
    metavar="FILE|DIR...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON, with every file and line not read.")
@click.option("--redact", is_flag=True, help="Take keys and other secrets out of what is printed.")
@click.option(
    "--secret-env",
    metavar="NAME",
    multiple=True,
    help="With --redact: take the value of this environment variable out too. May be repeated.",
)
@click.pass_context
def command(
    ctx: click.Context, paths: tuple[Path, ...], as_json: bool, redact: bool, secret_env: tuple[str, ...]
) -> None:
    """Count what agents used, in transcripts, rollouts, session stores and recorded streams of any harness.

    The format is told from the content, files of sub-agents are found, and
    what a transcript repeats is counted once. Needs no daemon and no
    workspace, and changes nothing. For example:

    \b
        mh measure ~/.claude/projects ~/.codex/sessions

    A figure with ≥ is a lower bound: the transcript does not say all of it. A
    figure that is not known is shown as -, never as 0. A cost with ~ was
    made from the table of prices, the others are the harness's own account.
    docs/explanation/measuring.md says how each figure is derived.
    """
    from adapters.transcripts import report, sessions

    clean = redactor(redact, secret_env)
    prices = own_prices(ctx)
    found: list[sessions.Source] = []
    unread: list[sessions.Unread] = []
    for each in sessions.find(paths):
        if isinstance(each, sessions.Unread):
            unread.append(each)
        else:
            found.append(each)
    # What is read makes no circles, and millions of objects: looking for some would take a third of the time.
    gc.disable()
    try:
        measured = list(sessions.measure(sessions.gather(found)))
    finally:
        gc.enable()
    document = report.document(measured, unread, prices)
    if clean is not None:
        document = clean.value(document)
    if as_json:
        click.echo(json_text(document))
    else:
        for line in table(document, shutil.get_terminal_size((120, 24)).columns):
            click.echo(line)
    given = {os.path.abspath(path) for path in paths}
    if not measured or any(os.path.abspath(each.path) in given for each in unread):
        ctx.exit(1)


def own_prices(ctx: click.Context) -> dict[str, Any]:
    """The prices of the workspace's settings, if there is one."""
    from adapters.transcripts.prices import Price
    from daemon.config import Settings

    settings = Settings.load(Workspace(ctx.find_root().obj).settings)
    return {
        name: Price(
            each.input, each.output, each.cached, each.cache_created, each.cache_created_1h, each.as_of
        )
        for name, each in settings.prices.items()
    }


def redactor(wanted: bool, names: Sequence[str]) -> Any:
    """What takes secrets out, or None. Values come from the environment, never from the command line."""
    from adapters.transcripts.redact import Redactor

    if not wanted:
        if names:
            raise UsageError("--secret-env says what to take out, and nothing is taken out", "add --redact")
        return None
    secrets = []
    for name in names:
        if not os.environ.get(name):
            raise UsageError(f"there is no environment variable {name}, or it is empty", "export it first")
        secrets.append(os.environ[name])
    try:
        return Redactor(secrets)
    except ValueError as error:
        raise UsageError(
            str(error), "only longer values can be taken out without harm to other words"
        ) from error


def json_text(value: Any) -> str:
    """JSON for people and programs; lone surrogates become U+FFFD."""
    from adapters.transcripts.trajectory import whole

    return whole(json.dumps(value, ensure_ascii=False, indent=2))


def table(document: dict[str, Any], width: int) -> Iterator[str]:
    """One line a session, totals, each model, and what was not read."""
    rows = [_row(each) for each in document["sessions"]]
    if rows:
        totals = document["totals"]
        if len(rows) > 1:
            rows.append(_total(totals))
        yield from _aligned(_HEADS, rows, width)
        models = totals["models"]
        if len(models) > 1 or (len(rows) > 1 and models):
            yield ""
            yield from _aligned(_MODEL_HEADS, [_model(each, totals) for each in models], width)
        yield from _legend(document)
    yield from _not_read(document)


_HEADS = (
    *("SESSION", "HARNESS", "MODEL", ">TURNS", ">TOOLS", ">FAILED", ">INPUT", ">CACHED", ">CREATED"),
    *(">OUTPUT", ">REASONING", ">COST", "ENDED", "FIRST", ">MINUTES"),
)
_MODEL_HEADS = (
    "MODEL",
    ">CALLS",
    ">INPUT",
    ">CACHED",
    ">CREATED",
    ">OUTPUT",
    ">REASONING",
    ">SHARE",
    ">COST",
)


def _row(each: dict[str, Any]) -> list[str]:
    low = set(each["lower_bounds"])
    tokens = each["tokens"]
    names = [share["model"] for share in each["models"] if share["model"]]
    model = names[0] if names else "-"
    ended = each["termination"]
    said = "-" if ended is None else f"{ended['kind']}/{ended['code']}" if ended["code"] else ended["kind"]
    return [
        _short(each["session_id"] or Path(each["files"][0]).stem),
        each["harness"],
        model + (f" +{len(names) - 1}" if len(names) > 1 else ""),
        _number(each["turns"], "turns" in low),
        _number(each["tool_calls"], "tool_calls" in low),
        _number(each["tool_errors"]),
        _number(tokens["input"], "input" in low),
        _number(tokens["cached"]),
        _number(tokens["cache_created"]),
        _number(tokens["output"], "output" in low),
        _number(tokens["reasoning"]),
        _money(each["cost_usd"], each["cost_basis"], "cost" in low),
        said,
        (each["first"] or "-")[:16].replace("T", " "),
        _minutes(each["first"], each["last"]),
    ]


def _total(totals: dict[str, Any]) -> list[str]:
    low = set(totals["lower_bounds"])
    tokens = totals["tokens"]
    reported = totals["cost_basis"] == ["reported"]
    return [
        f"{totals['sessions']} sessions",
        *("", ""),
        _number(totals["turns"], "turns" in low),
        _number(totals["tool_calls"], "tool_calls" in low),
        _number(totals["tool_errors"]),
        _number(tokens["input"], "input" in low),
        _number(tokens["cached"]),
        _number(tokens["cache_created"]),
        _number(tokens["output"], "output" in low),
        _number(tokens["reasoning"]),
        _money(totals["cost_usd"], "reported" if reported else "prices", "cost" in low),
        *("", "", ""),
    ]


def _model(share: dict[str, Any], totals: dict[str, Any]) -> list[str]:
    tokens = share["tokens"]
    whole = (totals["tokens"]["input"] or 0) + (totals["tokens"]["output"] or 0)
    part = (tokens["input"] or 0) + (tokens["output"] or 0)
    return [
        share["model"] or "(not named)",
        _number(share["calls"]),
        _number(tokens["input"]),
        _number(tokens["cached"]),
        _number(tokens["cache_created"]),
        _number(tokens["output"]),
        _number(tokens["reasoning"]),
        f"{part / whole:.0%}" if whole else "-",
        _money(share["cost_usd"], share["cost_basis"], False),
    ]


def _legend(document: dict[str, Any]) -> Iterator[str]:
    """Only what is needed to read this table."""
    bounds = {bound for each in document["sessions"] for bound in each["lower_bounds"]}
    bases = {each["cost_basis"] for each in document["sessions"]} - {None, "reported"}
    unpriced = {name for each in document["sessions"] for name in each["cost_unpriced_models"]}
    forked = sum(1 for each in document["sessions"] if any(each["tokens_inherited"].values()))
    yield ""
    yield "INPUT includes CACHED and CREATED; OUTPUT includes REASONING."
    if bounds:
        yield "≥ a lower bound: the transcript does not say all of it."
    if bases:
        yield f"~ estimated: {', '.join(sorted(bases))}."
    if unpriced:
        names = ", ".join(sorted(unpriced)[:5])
        yield f"No price is known for {_plain(names)}: [prices] in megaharness.toml takes one."
    if forked:
        yield f"{forked} began with a copy of another session: the copied calls are counted there, once."
    lost = [each for each in document["sessions"] if each["skipped_lines"]]
    for each in lost[:10]:
        first = each["skipped"][0]
        where = f"{each['files'][0]}:{first['line']}" if first["line"] else each["files"][0]
        more = f" and {each['skipped_lines'] - 1} more" if each["skipped_lines"] > 1 else ""
        yield _plain(f"not read: {where}: {first['why']}{more}")
    if len(lost) > 10:
        yield f"... and lines of {len(lost) - 10} more sessions; --json names them."


def _not_read(document: dict[str, Any]) -> Iterator[str]:
    unread = document["not_read"]
    if not unread and not document["sessions"]:
        yield "no transcript was found"
    if unread and document["sessions"]:
        yield ""
    for each in unread[:10]:
        yield _plain(f"not measured: {each['file']}: {each['why']}")
    if len(unread) > 10:
        yield f"... and {len(unread) - 10} more files; --json names them."


def _aligned(heads: Sequence[str], rows: list[list[str]], width: int) -> Iterator[str]:
    """Columns as wide as they need; those in which nothing is known are left out, then the least needed."""
    keep = [place for place in range(len(heads)) if any(row[place] not in ("-", "") for row in rows)]
    cells = [[_plain(row[place]) for place in keep] for row in rows]
    shown = [heads[place] for place in keep]
    names = [head.lstrip(">") for head in shown]
    widths = [max(len(name), *(len(row[n]) for row in cells)) for n, name in enumerate(names)]
    for needless in ("MINUTES", "FIRST", "FAILED", "CREATED"):
        if sum(widths) + 2 * len(widths) - 2 > width and needless in names:
            gone = names.index(needless)
            del shown[gone], names[gone], widths[gone]
            for row in cells:
                del row[gone]
    for line in (names, *cells):
        parts = [
            text.rjust(size) if head.startswith(">") else text.ljust(size)
            for text, size, head in zip(line, widths, shown, strict=True)
        ]
        yield "  ".join(parts).rstrip()


def _short(name: str) -> str:
    return name if len(name) <= 13 else f"{name[:12]}…"


def _number(value: int | None, low: bool = False) -> str:
    return "-" if value is None else f"{'≥' if low else ''}{value:,}"


def _money(value: float | None, basis: str | None, low: bool) -> str:
    if value is None:
        return "-"
    mark = ("≥" if low else "") + ("" if basis == "reported" else "~")
    return f"{mark}${value:,.2f}" if value >= 0.01 else f"{mark}${value:.4f}"


def _minutes(first: str | None, last: str | None) -> str:
    from datetime import datetime

    if not first or not last:
        return "-"
    try:
        begin, end = (datetime.fromisoformat(each) for each in (first, last))
    except ValueError:
        return "-"
    return f"{(end - begin).total_seconds() / 60:.1f}"


def _plain(text: str) -> str:
    from adapters.transcripts.trajectory import whole

    return whole(text.translate(_VISIBLE))
