"""All verbs by name; what is shown in `mh --help`, and how errors are told."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import click

from adapters.errors import AdapterError
from daemon.cli import completion
from daemon.errors import MegaharnessError
from daemon.layout import Workspace, find_root


@dataclass(frozen=True, slots=True)
class Verb:
    """first: named before "more". module: where the click command `command` stands, in the group's package."""

    module: str
    help: str
    first: bool = False
    alias_of: str | None = None


VERBS: dict[str, Verb] = {
    "drop": Verb(
        "drop", "Give it a task: a Markdown file, standard input (-), or the text itself.", first=True
    ),
    "attach": Verb(
        "attach", "Watch a running track in its tmux pane, or read the log of a finished one.", first=True
    ),
    "why": Verb("why", "Say why a track runs, waits or failed, and what to do about it.", first=True),
    "reply": Verb("reply", "Answer a track's question, or say something to it.", first=True),
    "up": Verb("up", "Start the daemon, here or (-d) in the background.", first=True),
    "down": Verb("down", "End the daemon; running tracks go on, or (--drain) end first."),
    "show": Verb("show", "Show all that is known of one track."),
    "log": Verb("log", "Print what a track's harness said, or the daemon's own log."),
    "interrupt": Verb("interrupt", "Stop a running track: its whole process tree."),
    "stop": Verb("interrupt", "The same as interrupt.", alias_of="interrupt"),
    "requeue": Verb("requeue", "Put a settled track back into the queue."),
    "resolve": Verb("resolve", "Print exactly what an agent is told for a track, and (--explain) why."),
    "measure": Verb("measure", "Count tokens, turns, tools and cost in transcripts of any harness."),
    "trajectory": Verb("trajectory", "Write a transcript as an ATIF trajectory, or as a page to read."),
    "mddb": Verb("mddb", "Show, compare and import what agents are told."),
    "init": Verb("init", "Make a workspace."),
    "doctor": Verb("doctor", "Check the workspace, the settings, the harnesses and this machine."),
    "completion": Verb("completion", "Print the completion script for bash, zsh or fish."),
}


class Verbs(click.Group):
    """Finds a verb's module by its name, when it is needed. package: where the modules of the verbs are."""

    def __init__(
        self,
        *args: Any,
        verbs: Mapping[str, Verb] = MappingProxyType({}),
        package: str = "daemon.cli",
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self.verbs = verbs
        self.package = package

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = self.verbs.get(cmd_name)
        if verb is None:
            return None
        command = importlib.import_module(f"{self.package}.{verb.module}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        unknown = args and not args[0].startswith("-") and args[0] not in self.verbs
        if unknown and not ctx.resilient_parsing:
            import difflib

            near = difflib.get_close_matches(args[0], self.verbs, 1)
            path = ctx.command_path
            hint = f"Did you mean `{path} {near[0]}`?" if near else f"`{path} --help` lists all."
            raise click.UsageError(f"there is no command {args[0]!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        first = [(name, verb.help) for name, verb in self.verbs.items() if verb.first]
        if first:
            with formatter.section("Every day"):
                formatter.write_dl(
                    [("(nothing)", "The one view: what needs you, runs, waits, is done."), *first]
                )
        with formatter.section("More" if first else "Commands"):
            formatter.write_dl([(name, verb.help) for name, verb in self.verbs.items() if not verb.first])


@click.group(
    cls=Verbs,
    verbs=VERBS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
)
@click.option(
    "--root",
    metavar="DIR",
    shell_complete=completion.directories,
    help="The workspace. Default: $MEGAHARNESS_ROOT, else the nearest directory above with a "
    "megaharness.toml, else ~/megaharness. It must be there (mh init makes it); only ~/megaharness is made "
    "by `up` and `drop`.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the one view as JSON.")
@click.version_option(package_name="megaharness", prog_name="megaharness")
@click.pass_context
def cli(ctx: click.Context, root: str | None, as_json: bool) -> None:
    """Run coding agents from Markdown files, unattended, and keep only what was verified.

    A file dropped into tracks/queued/ is one task. The daemon claims it, runs
    its harness in a tmux pane and a git repository of its own, runs the
    checks of its done_when, and moves it to tracks/done/ or tracks/failed/
    with the result written into it.

    Whoever may write into tracks/queued/ may run commands as you.
    """
    ctx.obj = find_root(root, os.environ, Path.cwd())
    if ctx.invoked_subcommand is None:
        from daemon.cli import view

        ctx.exit(view.show(Workspace(ctx.obj), as_json=as_json))


def workspace(ctx: click.Context, *, make: bool = False) -> Workspace:
    """The workspace that is meant. `make`: the default one is made on first use."""
    root: Path = ctx.find_root().obj
    found = Workspace(root)
    if not found.settings.is_file() and not found.tracks.is_dir():
        from daemon.errors import UsageError
        from daemon.layout import home

        if make and root == Path(os.path.realpath(home(os.environ) / "megaharness")):
            from daemon.workspace import create

            create(root)
            click.echo(f"made a workspace: {root}", err=True)
        else:
            raise UsageError(f"there is no workspace at {root}", f"make one: mh init {root}")
    return found


def run() -> NoReturn:
    """Run the command line; every error of ours is a sentence, a way out and an exit code."""
    os.umask(0o077)
    try:
        cli.main(standalone_mode=True, prog_name=Path(sys.argv[0]).name.replace("__main__.py", "mh"))
    except MegaharnessError as error:
        complain(str(error), error.hint)
        sys.exit(error.exit_code)
    except AdapterError as error:
        complain(str(error), error.hint)
        sys.exit(1)
    except OSError as error:
        if error.errno != errno.EPIPE:
            where = f": {error.filename}" if error.filename else ""
            complain(f"{error.strerror or error}{where}", "mh doctor checks the workspace and this machine")
            sys.exit(1)
        # `mh log x | head`: the reader has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    sys.exit(0)


def complain(message: str, hint: str) -> None:
    click.echo(f"mh: {_visible(message)}", err=True)
    if hint:
        click.echo(f"    {_visible(hint)}", err=True)


def _visible(text: str) -> str:
    """What stands in files and arguments reaches the terminal as text only."""
    return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)
