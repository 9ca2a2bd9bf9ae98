"""Writes docs/reference/ from the code that the pages are about: ``python -m daemon.cli.reference [--check]``.

With --check nothing is written: a page that is out of date is shown as a
difference, and the exit code is 1.
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import click

import adapters.errors
from adapters.ports import KINDS, Kind
from daemon import config, errors
from daemon.cli import files
from daemon.cli.group import VERBS, cli
from daemon.mddb import clauses, schema
from daemon.supervisor import EXIT_FAULTS
from daemon.tracks import thread, track
from daemon.tracks.machine import Conclusion, judge

PAGES = Path(__file__).resolve().parents[2] / "docs" / "reference"
MADE = "<!-- Written by `python -m daemon.cli.reference`; changes here are lost. -->"

#: Every exit code of `mh`. Those of errors stand in the class trees, too; a test holds them together.
EXITS = {
    0: "It worked.",
    1: "It did not work; the message says why. `mh doctor` ends so when something is an ERROR.",
    2: "The command line cannot be meant like this: a wrong option, a file that is no track, "
    "a track in the wrong state.",
    3: "For `up`: another daemon holds this workspace. For `down`: there is no daemon.",
    4: "No track, or more than one, has an id that begins like this.",
    EXIT_FAULTS: "The daemon's loop itself failed again and again. systemd starts it anew; nothing is lost.",
    78: "The daemon must not start like this: settings, a folder that others can write to, a network file system. "
    "Trying again changes nothing.",
}


# -- cli.md --------------------------------------------------------------------------------------


def cli_page() -> str:
    out = [
        "# Command line",
        "",
        "`mh` and `megaharness` are the same program. An ID is a track's id, or the beginning of it if no other",
        "track's begins so. The path of its file, relative to the working directory or to the workspace, is understood",
        "as well and means exactly that file (`tracks/failed/x.md`); so does its name where the folder is the working",
        "directory. Errors go to standard error: one sentence, and below it the way out. Times in what `--json`",
        "prints are ISO 8601, UTC.",
        "",
        *_verb("mh", cli, "##"),
    ]
    context = click.Context(cli, info_name="mh")
    for name, verb in VERBS.items():
        command = cli.get_command(context, name)
        assert command is not None
        if verb.alias_of:
            out += [f"## mh {name}", "", f"The same as [`mh {verb.alias_of}`](#mh-{verb.alias_of}).", ""]
            continue
        out += _verb(f"mh {name}", command, "##")
        if isinstance(command, click.Group):
            inner = click.Context(command, parent=context, info_name=name)
            for each in command.list_commands(inner):
                found = command.get_command(inner, each)
                assert found is not None
                out += _verb(f"mh {name} {each}", found, "###")
    out += ["## Exit codes", "", "| code | meaning |", "|---|---|"]
    out += [f"| {code} | {text} |" for code, text in sorted(EXITS.items())]
    return "\n".join([*out, ""])


def _verb(name: str, command: click.Command, mark: str) -> list[str]:
    context = click.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    out = [f"{mark} {name}", "", "```", usage, "```", "", *_help(command.help or ""), ""]
    rows = []
    for param in command.get_params(context):
        record = param.get_help_record(context)
        if record is not None and record[1] and "--help" not in record[0]:
            rows.append(f"| `{_cell(record[0])}` | {_cell(record[1])} |")
    return [*out, *(["| option | meaning |", "|---|---|", *rows, ""] if rows else [])]


def _help(text: str) -> list[str]:
    r"""A docstring as Markdown; a paragraph after ``\b`` keeps its lines."""
    out = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if paragraph.startswith("\b\n"):
            out += ["```", *inspect.cleandoc("\n" + paragraph[2:]).splitlines(), "```", ""]
        else:
            out += [*paragraph.splitlines(), ""]
    return out[:-1]


# -- settings.md, frontmatter.md -----------------------------------------------------------------


#: The keys of a harness that is made from its `argv` alone (`adapters.harnesses.generic`).
GENERIC = {
    "argv": "The command; its first element is a name on the `PATH`, or a path that begins with `/` or `~/`. "
    "Placeholders: `{brief}`, `{workdir}`, `{model}`, `{session}`, `{instructions}`, `{skills}`; "
    "a literal brace is doubled.",
    "model": "What `{model}` stands for when a track names none (`harness_id: NAME/MODEL`). Without it such a "
    "track cannot be started.",
}


def settings_page() -> str:
    out = [
        config.reference().strip(),
        "",
        "`env` and `pass_env` are common: they may stand in every `[harness.NAME]`. A harness without an adapter of",
        "its own has these besides, and no others:",
        "",
        "| key | type | meaning |",
        "|---|---|---|",
        *(
            f"| `harness.NAME.{key}` | {'list of texts' if key == 'argv' else 'text'} | {_cell(text)} |"
            for key, text in GENERIC.items()
        ),
    ]
    return "\n".join(out)


#: What the daemon's block shows; the names are those of `thread.Facts`.
BLOCK = {
    "id": "the track's id, kept when the file is renamed",
    "status": "the folder, or `blocked`: it asks",
    "session": "the newest session; its directory is `sessions/<session>/`",
    "attempt": "which attempt this is",
    "running": "harness and model, as routed",
    "since": "since when it is in this state (UTC)",
    "termination": "how it ended, see [errors](errors.md#terminations)",
    "reason": "more about it",
    "flags": "what was noticed on the way",
}
#: Keys that are understood and not acted upon, and what happens instead.
IDLE = {
    "harness_id": "`shell` comes with it (and `fake`, for tests). Every other name is a `[harness.NAME]` of your "
    "settings, or an adapter that you installed.",
    "project_id": "A project without a repository works; one that has a repository, and a path, are refused with the "
    "line. A first line that begins with `<project>:` names it too.",
    "scope": "Not watched yet.",
    "budget": "Only `minutes` is enforced; `tokens`, `usd` and `turns` are not.",
}


def frontmatter_page() -> str:
    out = [
        "# Frontmatter of a track",
        "",
        "Everything is optional; a file with one line and no frontmatter is a track. Every value is read as the text",
        "that stands there (`22:30`, `010` and `no` stay what they are). Where a list is meant, one entry alone may",
        "stand without brackets. A key close to one of these is an error that names it; a clearly foreign one",
        "(`tags`, `created`, `aliases`) is kept and ignored; until the track is settled, `mh why` says so.",
        "",
    ]
    for row in track.reference():
        name = str(row["name"])
        out += [f"## {name}", "", f"{row['what']}", "", f"- form: {row['form']}"]
        if row["default"]:
            out.append(f"- without it: {row['default']}")
        if row["spellings"]:
            out.append(f"- also accepted: {', '.join(f'`{each}`' for each in row['spellings'])}")
        out += [*([f"- **in this version:** {IDLE[name]}"] if name in IDLE else []), ""]
        out += ["```yaml", *row["examples"], "```", ""]
    out += ["## Checks", "", "| in `done_when` | passes when |", "|---|---|"]
    for check in typing.get_args(track.Check):
        out.append(f"| `{_form(check)}` | {_cell(_first_line(check))} |")
    out += [
        "",
        "A check that runs a command gets ten minutes (`[limits] check_minutes`), then its whole process tree is",
        "ended. `clean` is judged before the others run, since they may leave files. The contract is taken from the",
        "file at the claim; a change while the track runs counts at once, and is shown as one.",
        "",
        "## The daemon's block",
        "",
        f"`{thread.BLOCK}:` is the daemon's own and always the last key. It is only a rendering: nothing is decided",
        "from it, an edit in it is put back at the next rewrite. One exception: its `id` counts as the track's id if",
        "no other file has that id, so a file that is put back into `queued/` goes on where it was, and a copy is a",
        "new track.",
        "",
        "| key | meaning |",
        "|---|---|",
        *(f"| `{key}` | {text} |" for key, text in BLOCK.items()),
    ]
    return "\n".join([*out, ""])


def _form(check: type) -> str:
    forms = {
        "Run": "run: COMMAND",
        "Exists": "exists: GLOB",
        "Changed": "changed: GLOB",
        "Clean": "clean: true",
        "Contains": "contains: {file: PATH, pattern: REGEX}",
        "Prose": "any sentence",
    }
    return forms[check.__name__]


# -- files.md ------------------------------------------------------------------------------------


def documents_page() -> str:
    out = [
        "# Documents of the database",
        "",
        "What may stand above the text of a file in `md-db/`. Every value is read as the text that stands there; a",
        "glob that begins with `*`, and `!`, must be in quotes. A key that is not listed is an error that names the",
        "nearest one, except in a skill, where other programs' keys are kept. The keys of note-takers",
        f"({', '.join(f'`{key}`' for key in schema.NOTES)}) mean nothing here. Files named README.md are for people.",
        "",
        "A broken document stops no other work, but nothing is started that would have to be told it: what waits says",
        "so, and goes on when the document can be read. A skill that is broken is left out.",
        "",
        "| document | lies in | found by | keys |",
        "|---|---|---|---|",
    ]
    for kind, keys in schema.KEYS.items():
        where, by = _LIES[kind]
        shown = ", ".join(f"[{key}](#{key})" for key in keys)
        out.append(f"| {schema.LABELS[kind]} | {where} | {by} | {shown or '–'} |")
    common = ", ".join(f"[{key}](#{key})" for key in schema.COMMON)
    out += ["", f"Everywhere: {common}.", ""]
    every = dict.fromkeys(key for each in (*schema.KEYS.values(), schema.COMMON) for key in each)
    for key in every:
        what, form, example = schema.MEANING[key]
        out += [f"## {key}", "", what, "", f"- form: {form}", ""]
        if example:
            out += ["```yaml", example, "```", ""]
        if key == "applies_when":
            out += _CLAUSES
    return "\n".join(out)


_LIES: Mapping[schema.Kind, tuple[str, str]] = {
    "instruction": ("`instructions/**/*.md`", "its clauses"),
    "skill": ("`skills/<name>/SKILL.md`, `skills/<name>.md`", "its clauses"),
    "sidecar": ("`sidecar/*.md`", "its clauses; not acted upon in this version"),
    "project": ("`projects/<id>.md`", "the track's `project_id`, or `<id>:` at the start of its first line"),
    "policy": (f"`{schema.POLICY}`", "its name"),
    "translation": ("`instructions/harness-translation-<from>-<to>.md`", "its name, in phase `swap`"),
}
_CLAUSES = [
    f"Dimensions: {', '.join(f'`{name}`' for name in clauses.DIMENSIONS)}. All that are given must hold. A value is",
    "one pattern or a list of which any may match: a name, or a glob (`*`, `?`, `[...]`; `*` also over `/`; case",
    "counts). `{not: X}`, in the list or as the value, excludes; `not:X` and `!X` in quotes are the same. What is",
    "unknown of a session (no kind, the harness's own model) is the empty text: only `*` and exclusions match it.",
    "",
    "Phases: `spawn` the first session of a track; `retry` after an attempt that failed or broke off; `resume` after",
    "an answer, a word of yours or a pause; `swap` after another harness; `review` a session that judges.",
    "",
    "Order: documents without clauses, then by how specific the match is (exact dimensions, then globs, then",
    "exclusions), then by `order`, then by path. What stands later takes precedence.",
    "",
]


def files_page() -> str:
    parts = (
        ("In a workspace", "Paths are relative to the workspace.", files.WORKSPACE),
        (
            "In a session's directory",
            "Relative to `sessions/<session-id>/`. One file has one writer; a reader must bear with a missing file "
            "and a torn last line. Times are ISO 8601, UTC.",
            files.SESSION,
        ),
        (
            "Outside the workspace",
            "Relative to `$XDG_STATE_HOME/megaharness/<workspace name>-<key>/` (`~/.local/state/...` without that "
            "variable). Agents work here, so that no harness picks up the workspace's own CLAUDE.md or AGENTS.md.",
            files.STATE,
        ),
    )
    out = [
        "# Files",
        "",
        "These paths and formats are the public interface: people and programs may read all of them, and write",
        "those whose writer is you. All of them are made for their owner alone (0700, 0600).",
        "",
    ]
    for title, text, entries in parts:
        out += [f"## {title}", "", text, "", "| path | who writes it | what it holds | when it goes |"]
        out += ["|---|---|---|---|"]
        out += [f"| `{e.path}` | {e.writer or '–'} | {_cell(e.content)} | {e.goes} |" for e in entries]
        out.append("")
    return "\n".join(out)


# -- errors.md -----------------------------------------------------------------------------------


def errors_page() -> str:
    out = [
        "# Errors and terminations",
        "",
        "An error is a sentence and a way out. A termination is how a session ended: `kind/code`, a closed kind and",
        "an open code.",
        "",
        "## Terminations",
        "",
        "| kind | meaning | the file lands in | codes |",
        "|---|---|---|---|",
    ]
    for kind in typing.get_args(Kind):
        codes = ", ".join(f"`{code}`" for code in CODES.get(kind, ())) or "–"
        out.append(f"| `{kind}` | {_cell(KINDS[kind])} | {_folder(kind)} | {codes} |")
    out += [
        "",
        "`limit`, `auth` and `provider` are an adapter's word; none of the harnesses that come with this version",
        "says them (`fake` can). `swapped` and `stall` do not occur yet.",
        "",
        "`blocked` stands in their place for a session that ended with a question: no termination, for the track goes",
        "on with the answer. Its file stays in `active/`.",
        "",
        "## The daemon and the command line",
        "",
        *_tree(errors.MegaharnessError),
        "",
        "## Adapters",
        "",
        *_tree(adapters.errors.AdapterError),
    ]
    return "\n".join([*out, ""])


#: Codes that megaHarness itself gives; adapters have others.
CODES: dict[str, tuple[str, ...]] = {
    "clean": ("by_person",),
    "crash": ("exit_<N>", "signal_<N>", "terminated"),
    "interrupt": ("by_person", "not_started", "cancelled"),
    "budget": ("minutes",),
    "incomplete": ("contract",),
    "setup": ("harness_missing", "harness", "brief", "contract", "git", "runner", "spawn", "not_started"),
    "lost": ("other_boot", "no_adapter", "adapter", "unreadable"),
}


def _folder(kind: Kind) -> str:
    """Asked of the machine itself, where the machine decides it."""
    match kind:
        case "swapped":
            return "– (the track goes on)"
        case "incomplete":
            return "`failed/`, after the allowed attempts"
        case "no_op" | "refused":
            return "`failed/`"
        case _:
            return f"`{judge(Conclusion(kind), 1, 1).destination}/`"


def _tree(root: type[Exception]) -> list[str]:
    return ["| error | exit code | meaning |", "|---|---|---|", *_branches(root, 0)]


def _branches(error: type[Exception], depth: int) -> Iterator[str]:
    # The meaning stands at the class, or in the tree drawn at the head of its module.
    text = _first_line(error) if error.__doc__ else _drawn(error)
    indent = "&nbsp;&nbsp;" * depth
    yield f"| {indent}`{error.__name__}` | {getattr(error, 'exit_code', 1)} | {_cell(text)} |"
    for child in error.__subclasses__():
        if child.__module__ == error.__module__:
            yield from _branches(child, depth + 1)


def _drawn(error: type[Exception]) -> str:
    module = sys.modules[error.__module__].__doc__ or ""
    found = re.search(rf"\b{error.__name__}\b +(\S.*?)(?:  +exit \d+)?$", module, re.MULTILINE)
    if found is None:
        raise LookupError(f"{error.__name__} has neither a docstring nor a place in its module's tree")
    return found[1].strip()


# -- writing and checking ------------------------------------------------------------------------

MAKERS: dict[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "settings.md": settings_page,
    "frontmatter.md": frontmatter_page,
    "documents.md": documents_page,
    "files.md": files_page,
    "errors.md": errors_page,
}


def _first_line(thing: type) -> str:
    return inspect.cleandoc(thing.__doc__ or "").split("\n\n")[0].replace("\n", " ")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def pages() -> dict[str, str]:
    """File name -> content of every page."""
    return {name: f"{MADE}\n\n{make().strip()}\n" for name, make in MAKERS.items()}


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m daemon.cli.reference [--check]", file=sys.stderr)
        return 2
    stale = False
    PAGES.mkdir(parents=True, exist_ok=True)
    for name, content in pages().items():
        path = PAGES / name
        there = path.read_text("utf-8") if path.exists() else ""
        if there == content:
            continue
        if arguments:
            stale = True
            lines = there.splitlines(), content.splitlines()
            print("\n".join(difflib.unified_diff(*lines, f"{path}", "as it should be", lineterm="")))
        else:
            path.write_text(content, "utf-8")
            print(path)
    if stale:
        print("out of date; write them anew: python -m daemon.cli.reference", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
