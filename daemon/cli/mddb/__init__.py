"""`mh mddb`: what agents are told, and what they were told."""

from __future__ import annotations

import click

from daemon.cli.group import Verb, Verbs

VERBS: dict[str, Verb] = {
    "list": Verb("list", "List the documents, for whom each is, and what is wrong with one."),
    "show": Verb("show", "Print a document, as it is or as it was."),
    "log": Verb("log", "List the commits in which a document changed."),
    "diff": Verb("diff", "Show what has changed in a document."),
    "import": Verb(
        "importing", "Take over what you have: CLAUDE.md, AGENTS.md, skills, Cursor's rules, agents."
    ),
}


@click.group("mddb", cls=Verbs, verbs=VERBS, package="daemon.cli.mddb")
def command() -> None:
    """Show, compare and import what agents are told: the documents of md-db.

    A PATH is relative to md-db (instructions/commits.md), or that of the file. A REV is whatever git takes as a
    commit: an id or the beginning of one, HEAD~2, a branch, HEAD@{yesterday}. What was told and not committed is held
    by commits of megaHarness's own, on refs/megaharness/md-db.
    """
