"""`mh resolve`: exactly what an agent is told, and why."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from adapters.ports import Capabilities
from daemon.cli import completion, explaining, finding
from daemon.cli.group import complain, workspace
from daemon.errors import DocumentError, MegaharnessError, UsageError
from daemon.layout import Workspace
from daemon.mddb.resolver import PHASES, Context, Phase
from daemon.spool.claim import FILE_LIMIT
from daemon.spool.sessions import extra_of, parse, read_json

#: In place of the directory of a session that there is not yet.
NEW_SESSION = "NEW-SESSION"


@dataclass(frozen=True, slots=True)
class Answer:
    """What was, or would be, told.

    at: when it was told; None: it was not yet. instructions: what the harness gets apart from the brief; None: nothing.
    record: as in launch.json; {}: the harness reads no instructions. rebuilt: whether the record and the repository
    give the same text again; None: it was not recorded, or cannot be looked up, and doubt says why.
    """

    id: str
    attempt: int
    harness: str
    model: str | None
    brief: str
    instructions: str | None
    record: dict[str, Any]
    at: str | None = None
    session: str | None = None
    rebuilt: bool | None = None
    doubt: str = ""
    refused: tuple[str, ...] = ()
    waits: str = ""
    doubtful: str = ""

    def row(self) -> dict[str, Any]:
        return {slot: getattr(self, slot) for slot in self.__slots__}


@click.command("resolve")
@click.argument("what", metavar="FILE | ID | -", shell_complete=completion.tracks)
@click.option(
    "-H",
    "--harness",
    metavar="NAME[/MODEL]",
    shell_complete=completion.harnesses,
    help="As if this harness (and model) ran it.",
)
@click.option("--model", metavar="MODEL", help="As if with this model.")
@click.option("--phase", type=click.Choice(PHASES), help="As if in this phase.")
@click.option("--from", "before", metavar="NAME", help="With --phase swap: the harness that worked before.")
@click.option("--attempt", type=int, metavar="N", help="What attempt N was told; default: the last one.")
@click.option(
    "--now", is_flag=True, help="What the next session would be told, though there was one already."
)
@click.option(
    "--explain", is_flag=True, help="Say why: which documents, by which clause, and why not the rest."
)
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    what: str,
    harness: str | None,
    model: str | None,
    phase: Phase | None,
    before: str | None,
    attempt: int | None,
    now: bool,
    explain: bool,
    as_json: bool,
) -> None:
    """Print exactly what an agent is told for a track, or (--explain) why.

    \b
      mh resolve fix-tax.md                    before it is dropped
      mh resolve fix-tax.md -H codex           and by another harness
      mh resolve fix-tax --explain             what it was told, a week later
      mh resolve fix-tax --now --phase retry   what it would be told next

    Of a track that has run it shows what was recorded then, and checks that
    git still gives the same text. It needs no daemon and changes nothing.
    """
    place = workspace(ctx)
    asked = Asked(harness, model, phase, before)
    answer = _answer(place, what, asked, attempt, now=now)
    for refusal in answer.refused:
        complain(f"as it is, the daemon would refuse it: {refusal}", "")
    if answer.waits:
        complain(f"it would wait: {answer.waits}", "")
    if answer.doubtful:
        complain(answer.doubtful, "")
    if as_json:
        click.echo(json.dumps(answer.row(), indent=2))
    elif explain:
        from daemon.assembly import library
        from daemon.durable import Files

        # What would be told now is as the database is now.
        now_there = library(place, Files(), looking=True).documents() if answer.at is not None else {}
        for line in explaining.lines(answer, now_there):
            click.echo(line)
    else:
        _print(answer)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person wants to be different."""

    harness: str | None = None
    model: str | None = None
    phase: Phase | None = None
    before: str | None = None

    def __bool__(self) -> bool:
        return any((self.harness, self.model, self.phase, self.before))


def _print(answer: Answer) -> None:
    parts = [answer.brief]
    if answer.instructions is not None:
        parts = [f"==> instructions.md <==\n{answer.instructions}\n==> brief.md <==\n{answer.brief}"]
    if answer.record.get("loads_skills") and (
        skills := [t for t in answer.record["told"] if t.get("part") == "skill"]
    ):
        names = "".join(f"{skill.get('path')}\n" for skill in skills)
        head = [] if answer.instructions is not None else ["==> brief.md <==\n"]
        parts = [f"==> skills/, which the harness loads itself <==\n{names}\n", *head, *parts]
    text = "".join(parts)
    if sys.stdout.isatty():
        text = "".join(c if c.isprintable() or c in "\n\t" else "" for c in text)
    click.echo(text, nl=False)


def _answer(place: Workspace, what: str, asked: Asked, attempt: int | None, *, now: bool) -> Answer:
    path = Path(what)
    inside = path.is_file() and Path(os.path.realpath(path.parent)) in place.folders
    if what == "-" or (path.is_file() and not inside):
        if attempt is not None or now:
            raise UsageError(f"{what} is no track yet: it had no attempt", "leave --attempt and --now out")
        data = sys.stdin.buffer.read(FILE_LIMIT + 1) if what == "-" else finding.content(path, FILE_LIMIT + 1)
        return _would_be(place, data, path.name if path.suffix == ".md" else "track.md", asked, "")
    try:
        found = finding.find(place, what)
    except MegaharnessError:
        if path.suffix == ".md" and not path.exists():
            raise UsageError(f"there is no file {what}", "mh resolve FILE, or the id of a track") from None
        raise
    sessions = [place.sessions / ref.id for ref in reversed(finding.sessions_of(place.sessions, found.id))]
    if attempt is not None:
        if asked or now:
            raise UsageError(
                "--attempt shows what was told; nothing about it can be different", "leave the rest out"
            )
        sessions = [each for each in sessions if (ref := parse(each.name)) and ref.attempt == attempt]
        if not sessions:
            raise UsageError(f"{found.id} has no attempt {attempt}", f"mh show {found.word} lists them")
    if not asked and not now:
        for session in sessions:
            # Without it nothing was started, and nobody was told anything.
            if os.path.isfile(session / "brief.md") and read_json(session / "launch.json") is not None:
                return was(place, found.id, session)
        if attempt is not None:
            raise UsageError(
                f"attempt {attempt} of {found.id} was never told anything", f"mh show {found.word}"
            )
    if found.path is None:
        raise UsageError(f"the file of {found.id} is in none of the four folders any more", "")
    data = finding.content(found.path, FILE_LIMIT + 1)
    return _would_be(place, data, found.path.name, asked, found.id, sessions)


def was(place: Workspace, id: str, session: Path) -> Answer:
    """What a session was told, from its own files, held against the repository."""
    from daemon.kernel.starting import provenance

    claim = read_json(session / "claim.json") or {}
    extra = extra_of(claim)
    record = provenance(session)
    apart = session / "instructions.md"
    answer = Answer(
        id=id,
        attempt=ref.attempt if (ref := parse(session.name)) is not None else 0,
        harness=str(extra.get("harness", "")),
        model=str(extra["model"]) if extra.get("model") else None,
        brief=finding.content(session / "brief.md", 64 << 20).decode("utf-8", "replace"),
        instructions=finding.content(apart, 64 << 20).decode("utf-8", "replace") if apart.is_file() else None,
        record=record,
        at=str((read_json(session / "started.json") or claim).get("at") or claim.get("claimed_at") or ""),
        session=session.name,
    )
    rebuilt, doubt = _rebuilt(place, answer) if record else (None, "")
    return replace(answer, rebuilt=rebuilt, doubt=doubt)


def _rebuilt(place: Workspace, answer: Answer) -> tuple[bool | None, str]:
    """Whether the documents at the recorded revision give what was told, byte for byte."""
    from daemon.durable import Files
    from daemon.git import GitError
    from daemon.kernel.starting import standing_of
    from daemon.mddb.library import rebuild
    from daemon.mddb.revisions import Revisions

    record = answer.record
    revision = record["revision"]
    if revision is None:
        return (
            None,
            f"no commit holds what was read then: {record['unrecorded'] or 'there was no repository'}",
        )
    try:
        context = Context.recorded(record["context"])
        revisions = Revisions(place.root, Files())
        instruction = rebuild(context, revisions.documents(revision), revisions, revision)
    except (GitError, ValueError, MegaharnessError) as error:
        return None, f"it cannot be built again: {error}"
    text = standing_of(instruction, Path(record["skills_in"]), loads_skills=record["loads_skills"])
    if [(each.path, each.sha) for each in instruction.told] != [
        (each.get("path"), each.get("sha")) for each in record["told"]
    ]:
        return False, "the record names other documents than apply at that commit"
    if answer.instructions is not None:
        same = answer.instructions == f"{text}\n"
    else:
        same = answer.brief.startswith(f"{text}\n\n<task>\n") if text else True
    return same, "" if same else "the text at that commit is another one than was told"


def _would_be(
    place: Workspace, data: bytes, name: str, asked: Asked, id: str, sessions: list[Path] | None = None
) -> Answer:
    from adapters.errors import AdapterError
    from adapters.registry import Registry
    from daemon.assembly import library
    from daemon.config import Settings
    from daemon.durable import Files
    from daemon.kernel.projects import frozen, misspelt, refusals, understood, with_address
    from daemon.kernel.route import NoRoute, Router
    from daemon.kernel.starting import Telling, find_place, harness_of, tell
    from daemon.spool.sessions import Claim
    from daemon.tracks.ids import slug
    from daemon.tracks.track import load

    if len(data) > FILE_LIMIT:
        raise UsageError(f"{name} has more than {FILE_LIMIT} bytes", "put the rest elsewhere")
    settings = Settings.load(place.settings)
    registry, database = Registry(settings.tables()), library(place, Files(), looking=True)
    try:
        loaded = with_address(load(data, name), database)
    except DocumentError as error:
        raise UsageError("\n".join(f"{name}: {problem}" for problem in error.problems)) from error
    refused = tuple(map(str, refusals(loaded, database)))
    track, waits = loaded.track, ""
    if asked.harness:
        given, _, model = asked.harness.partition("/")
        track = track.model_copy(update={"harness_id": given, "model_id": model or asked.model})
    elif asked.model:
        track = track.model_copy(update={"model_id": asked.model})
    route = Router(registry, settings.prefer, database).route(track, time.monotonic())
    harness, model_id = track.harness_id, track.model_id
    if isinstance(route, NoRoute):
        if harness is None:
            raise UsageError(
                f"no harness would run it: {route.why}", f"name one: --harness NAME ({route.unblock})"
            )
        waits = route.why
    else:
        harness, model_id = route.harness, route.model
    try:
        can = registry.get(harness).capabilities()
    except AdapterError:
        can = Capabilities()  # not here yet: as for any agent that reads its brief
    earlier = _since_fresh(sessions or [])
    attempt = max((ref.attempt for each in sessions or [] if (ref := parse(each.name))), default=0) + 1
    id = id or slug(name.removesuffix(".md"))
    phase: tuple[Phase, str] | None = None
    if asked.phase is not None:
        before = asked.before or (harness_of(earlier[0]) if earlier else "")
        if asked.phase == "swap" and not before:
            raise UsageError("a swap from which harness?", "add --from NAME")
        phase = asked.phase, before if asked.phase == "swap" else ""
    elif asked.before:
        raise UsageError("--from belongs to a swap", f"add --phase swap, or leave out --from {asked.before}")
    # A project whose document has faults is told as what resolving raises.
    extra = frozen(loaded, database) if not refused else {}
    claim = Claim("", id, name, attempt, attempt, "", extra)
    session = place.sessions / f"{id}-{attempt}-{NEW_SESSION}"
    about = Telling(
        session=session,
        loaded=understood(data, claim) if extra else loaded,
        harness=harness,
        model=model_id,
        can=can,
        earlier=earlier,
        place=next(filter(None, map(find_place, earlier)), None),
        phase=phase,
    )
    told = tell(about, database)
    return Answer(
        id=id,
        attempt=attempt,
        harness=harness,
        model=model_id,
        brief=told.brief,
        instructions=f"{told.standing}\n" if can.instructions and told.standing else None,
        record=told.record(session, can),
        refused=refused,
        waits=waits,
        doubtful=misspelt(loaded, database),
    )


def _since_fresh(sessions: list[Path]) -> list[Path]:
    """As the daemon counts them: back to the last fresh start."""
    found = []
    for session in sessions:
        found.append(session)
        if extra_of(read_json(session / "claim.json") or {}).get("fresh"):
            break
    return found
