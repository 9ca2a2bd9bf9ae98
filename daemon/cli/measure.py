"""`mh measure`: tokens, turns, tools and cost of sessions of any harness, from their transcripts."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from daemon.errors import UsageError
from daemon.layout import Workspace

if TYPE_CHECKING:
    from adapters.transcripts.prices import Price
    from adapters.transcripts.redact import Redactor

# Shown on a terminal as text, never obeyed by it.
_VISIBLE = {c: f"\\x{c:02x}" for c in (*range(32), *range(127, 160))}

F = TypeVar("F", bound=Callable[..., object])


def redacting(what: str) -> Callable[[F], F]:
    """The options --redact and --secret-env, for `redactor`; `what`: of what secrets are taken out."""

    def of(command: F) -> F:
        named = click.option(
            "--secret-env",
            metavar="NAME",
            multiple=True,
            help="With --redact: take the value of this environment variable out too. May be repeated.",
        )
        return click.option("--redact", is_flag=True, help=f"Take keys and other secrets out of {what}.")(
            named(command)
        )

    return of


@click.command("measure")
@click.argument(
    "paths",
    metavar="FILE|DIR...",
    nargs=-1,
    type=click.Path(path_type=Path),
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON, with every file and line not read.")
@click.option(
    "--sort",
    "order",
    type=click.Choice(["time", "cost", "input", "output", "turns"]),
    default="time",
    help="The order of the lines: by their first time, or the largest last. Default: time.",
)
@redacting("what is printed")
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[Path, ...],
    as_json: bool,
    order: str,
    redact: bool,
    secret_env: tuple[str, ...],
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

    On a terminal the table has the columns that fit; elsewhere all of them.
    Ends with 1 if nothing was measured, or a path that was given was not.
    """
    from adapters.transcripts import report, sessions

    if not paths:
        raise UsageError("which files or folders?", f"for example: mh measure {' '.join(_usual()) or 'FILE'}")

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
    if order != "time":
        document["sessions"].sort(key=lambda each: _rank(each, order))
    if clean is not None:
        document = clean.value(document)
    if as_json:
        click.echo(json_text(document))
    else:
        given = {str(path) for path in paths}
        for line in table(document, _width(), given):
            click.echo(line)
    if not measured or any(each.path in paths for each in unread):
        ctx.exit(1)


def _rank(each: dict[str, Any], order: str) -> float:
    value = {
        "cost": each["cost_usd"],
        "input": each["tokens"]["input"],
        "output": each["tokens"]["output"],
        "turns": each["turns"],
    }[order]
    return -1 if value is None else value


def _width() -> int | None:
    """Columns of the terminal; None: there is none, and lines may be as long as they are."""
    if os.environ.get("COLUMNS", "").isdecimal() or sys.stdout.isatty():
        return shutil.get_terminal_size((120, 24)).columns
    return None


def _usual() -> list[str]:
    """The places of this person in which harnesses keep their sessions, as they are written in a shell."""
    home = Path.home()
    return [f"~/{name}" for name in _PLACES if (home / name).exists()]


_PLACES = (
    *(".claude/projects", ".openclaude/projects", ".codex/sessions", ".codex/archived_sessions"),
    *(".local/share/opencode", ".gemini/tmp", ".qwen/projects", ".openhands/conversations"),
    *(".hermes/state.db", ".pi/agent/sessions"),
)


def own_prices(ctx: click.Context) -> dict[str, Price]:
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


def redactor(wanted: bool, names: Sequence[str]) -> Redactor | None:
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


def table(document: dict[str, Any], width: int | None, given: Collection[str] = ()) -> Iterator[str]:
    """One line a session, totals, each model, and what was not read.

    width: None for as wide as it gets. given: paths that a person named, of
        which nothing goes unsaid.
    """
    shown = [each for each in document["sessions"] if not _empty(each)]
    if shown:
        totals = document["totals"]
        rows = [_row(each) for each in shown]
        if len(rows) > 1:
            rows.append(_total(totals))
        columns, lines = _fitted(_COLUMNS, rows, width)
        yield from lines
        models = totals["models"]
        if len(models) > 1 or (len(rows) > 1 and models):
            yield ""
            more, lines = _fitted(_MODEL_COLUMNS, [_model(each, totals) for each in models], width)
            yield from lines
            columns |= more
        yield from _legend(totals, shown, columns)
    elif not document["sessions"] and not document["not_read"]:
        yield f"no transcript was found in {', '.join(sorted(given)) or 'it'}"
        if places := _usual():
            yield f"    sessions of yours lie in: {' '.join(places)}"
    hidden = len(document["sessions"]) - len(shown)
    if hidden:
        yield f"{_counted(hidden, 'session')} without a call, a tool or a token {_is(hidden)} left out; --json has all."
    yield from _not_read(document, given)


def _empty(each: dict[str, Any]) -> bool:
    """Whether there is nothing to be seen of a session."""
    used = (each["turns"], each["tool_calls"], each["cost_usd"], each["skipped_lines"], each["error"])
    return not any(used) and not any(each["tokens"].values()) and not any(each["tokens_inherited"].values())


class _Column(NamedTuple):
    """A column of a table.

    right: it has numbers. lost: when a narrow terminal loses it, 1 first; 0:
    never. least: to how many characters its texts may be cut; 0: not at all.
    """

    name: str
    right: bool = False
    lost: int = 0
    least: int = 0


_COLUMNS = (
    _Column("SESSION"),
    _Column("PROJECT", lost=5, least=8),
    _Column("HARNESS", lost=8),
    _Column("MODEL", least=16),
    _Column("TURNS", True),
    _Column("TOOLS", True, 9),
    _Column("FAILED", True, 6),
    _Column("INPUT", True),
    _Column("CACHED", True, 7),
    _Column("CREATED", True, 2),
    _Column("OUTPUT", True),
    _Column("REASONING", True, 3),
    _Column("COST", True),
    _Column("ENDED", lost=4, least=8),
    _Column("FIRST", lost=10),
    _Column("MINUTES", True, 1),
)
_MODEL_COLUMNS = (
    _Column("MODEL", least=20),
    _Column("TURNS", True),
    _Column("INPUT", True),
    _Column("CACHED", True, 3),
    _Column("CREATED", True, 1),
    _Column("OUTPUT", True),
    _Column("REASONING", True, 2),
    _Column("SHARE", True),
    _Column("COST", True),
)


def _row(each: dict[str, Any]) -> list[str]:
    names = [share["model"] for share in each["models"] if share["model"]]
    model = _undated(names[0]) if names else "-"
    return [
        _name(each),
        Path(each["cwd"]).name or each["cwd"] if each["cwd"] else "-",
        each["harness"],
        model + (f" +{len(names) - 1}" if len(names) > 1 else ""),
        *_used(each),
        _money(each["cost_usd"], each["cost_basis"], "cost" in each["lower_bounds"]),
        _ended(each["termination"]),
        (each["first"] or "-")[:16].replace("T", " "),
        _minutes(each["first"], each["last"]),
    ]


def _total(totals: dict[str, Any]) -> list[str]:
    reported = totals["cost_basis"] == ["reported"]
    return [
        _counted(totals["sessions"], "session"),
        *("", "", ""),
        *_used(totals),
        _money(totals["cost_usd"], "reported" if reported else "prices", "cost" in totals["lower_bounds"]),
        *("", "", ""),
    ]


def _used(each: dict[str, Any]) -> list[str]:
    """From TURNS to REASONING, of a session or of all."""
    low = set(each["lower_bounds"])
    return [
        _number(each["turns"], "turns" in low),
        _number(each["tool_calls"], "tool_calls" in low),
        _number(each["tool_errors"]),
        *_tokens(each["tokens"], low),
    ]


def _tokens(tokens: dict[str, Any], low: set[str]) -> list[str]:
    """From INPUT to REASONING."""
    return [
        _number(tokens["input"], "input" in low),
        _number(tokens["cached"]),
        _number(tokens["cache_created"]),
        _number(tokens["output"], "output" in low),
        _number(tokens["reasoning"]),
    ]


def _model(share: dict[str, Any], totals: dict[str, Any]) -> list[str]:
    low = set(share["lower_bounds"])
    return [
        share["model"] or "(not named)",
        _number(share["calls"], "turns" in low),
        *_tokens(share["tokens"], low),
        _percent(_size(share["tokens"]), _size(totals["tokens"])),
        _money(share["cost_usd"], share["cost_basis"], "cost" in low),
    ]


def _legend(totals: dict[str, Any], shown: list[dict[str, Any]], columns: set[str]) -> Iterator[str]:
    """Only what is needed to read this table."""
    bases = {*totals["cost_basis"], *(each["cost_basis"] for each in totals["models"])} - {
        None,
        "reported",
        "prices",
    }
    forked = sum(1 for each in shown if any(each["tokens_inherited"].values()))
    said = []
    parts = " and ".join(name for name in ("CACHED", "CREATED") if name in columns)
    if parts and "INPUT" in columns:
        said.append(f"INPUT includes {parts}")
    if "REASONING" in columns:
        said.append("OUTPUT includes REASONING")
    if "FAILED" in columns:
        said.append("FAILED: tool calls that failed")
    if said:
        yield ""
        yield f"{'; '.join(said)}. -: not known."
    if any(each["lower_bounds"] for each in shown):
        yield "≥ a lower bound: the transcript does not say all of it."
    if bases:
        yield f"~ estimated: {', '.join(sorted(bases))}."
    if "ENDED" in columns and any(_ended(each["termination"]).endswith("?") for each in shown):
        yield "? guessed from the last lines: the transcript does not say how it ended."
    yield from _unpriced(totals)
    if forked:
        yield f"{forked} began with a copy of another session: the copied calls are counted there, once."
    lost = [each for each in shown if each["skipped_lines"]]
    for each in lost[:10]:
        first = each["skipped"][0]
        where = f"{_home(each['files'][0])}:{first['line']}" if first["line"] else _home(each["files"][0])
        more = (
            f", and {_counted(each['skipped_lines'] - 1, 'line')} more" if each["skipped_lines"] > 1 else ""
        )
        yield _plain(f"line not read: {where}: {first['why']}{more}")
    if len(lost) > 10:
        yield f"lines not read in {len(lost) - 10} more sessions; --json names them."


def _unpriced(totals: dict[str, Any]) -> Iterator[str]:
    """How much of what was used the cost does not have, and whose."""
    models = [share for share in totals["models"] if share["cost_usd"] is None and _size(share["tokens"])]
    if not models:
        return
    named = [_plain(share["model"]) for share in models if share["model"]]
    part = _percent(sum(_size(share["tokens"]) for share in models), _size(totals["tokens"]))
    if named:
        more = f" and {len(named) - 5} more" if len(named) > 5 else ""
        yield (
            f"{part} of the tokens have no price: {', '.join(named[:5])}{more}. "
            "[prices] in megaharness.toml takes them."
        )
    else:
        yield f"{part} of the tokens have no price: their transcripts do not name the model."


def _not_read(document: dict[str, Any], given: Collection[str]) -> Iterator[str]:
    """Files that a person named and those that could not be read, each; the rest as a number."""
    unread = document["not_read"]
    ordinary = ("no known format", "empty")
    named = [each for each in unread if each["file"] in given or each["why"] not in ordinary]
    rest = len(unread) - len(named)
    for each in named[:10]:
        yield _plain(f"not measured: {_home(each['file'])}: {each['why']}")
    if len(named) > 10:
        yield f"not measured: {len(named) - 10} more files; --json names them."
    if rest:
        none = "is no transcript" if rest == 1 else "are no transcripts"
        yield f"{_counted(rest, 'file')} {none}; --json has the names."


def _fitted(
    columns: Sequence[_Column], rows: list[list[str]], width: int | None
) -> tuple[set[str], list[str]]:
    """The names of the columns that are shown, and the lines.

    Columns in which nothing is known are left out. In a narrow terminal those
    go that are needed least, and what may be shortened is.
    """
    keep = [n for n in range(len(columns)) if any(row[n] not in ("-", "") for row in rows)]
    cells = {n: [_plain(row[n]) for row in rows] for n in keep}
    whole = {n: max(len(columns[n].name), *map(len, cells[n])) for n in keep}
    sizes = dict(whole)
    missing: list[str] = []
    if width is not None and _total_width(sizes) > width:
        sizes |= {
            n: min(whole[n], max(columns[n].least, len(columns[n].name))) for n in keep if columns[n].least
        }
        for n in sorted((n for n in keep if columns[n].lost), key=lambda n: columns[n].lost):
            if _total_width(sizes) <= width:
                break
            missing.append(columns[n].name)
            del sizes[n]
        for n in sizes:  # what is left over goes to the names that were cut
            sizes[n] += max(0, min(whole[n] - sizes[n], width - _total_width(sizes)))
    lines = [_line([columns[n].name for n in sizes], columns, sizes)]
    lines += [
        _line([_cut(cells[n][row], sizes[n]) for n in sizes], columns, sizes) for row in range(len(rows))
    ]
    if missing:
        lines.append(f"(not shown: {', '.join(missing)}; a wider terminal or --json has them)")
    return {columns[n].name for n in sizes}, lines


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 1]}…"


def _total_width(sizes: dict[int, int]) -> int:
    return sum(sizes.values()) + 2 * (len(sizes) - 1)


def _line(texts: list[str], columns: Sequence[_Column], sizes: dict[int, int]) -> str:
    parts = [
        text.rjust(size) if columns[n].right else text.ljust(size)
        for text, (n, size) in zip(texts, sizes.items(), strict=True)
    ]
    return "  ".join(parts).rstrip()


def _size(tokens: dict[str, Any]) -> int:
    return (tokens["input"] or 0) + (tokens["output"] or 0)


def _percent(part: int, whole: int) -> str:
    if not whole:
        return "-"
    return "<1%" if 0 < part / whole < 0.005 else f"{part / whole:.0%}"


def _ended(ended: dict[str, Any] | None) -> str:
    """Kind and code; with a mark if it is a guess."""
    if ended is None:
        return "-"
    said = f"{ended['kind']}/{ended['code']}" if ended["code"] else str(ended["kind"])
    return said + ("?" if ended["basis"] == "last lines" else "")


def _undated(model: str) -> str:
    """A model's name without its day: the JSON has it whole."""
    return re.sub(r"-20\d{6}$", "", model)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _home(path: str) -> str:
    home = str(Path.home())
    return f"~{path[len(home) :]}" if path.startswith(f"{home}/") else path


def _name(each: dict[str, Any]) -> str:
    """A session's id, from its beginning as `--session` takes it; without one the end of its file's name."""
    if each["session_id"]:
        return _cut(str(each["session_id"]), 13)
    name = Path(each["files"][0]).name
    return name if len(name) <= 13 else f"…{name[-12:]}"


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
