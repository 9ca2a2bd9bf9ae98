"""Start one session: a place to work, the brief, the spawn. Runs in the pool; repeating it does no harm."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapters import session as live
from adapters.ports import Capabilities, Harness, Order, Publish, Terminal
from daemon.faults import passes
from daemon.kernel.brief import compose, standing
from daemon.kernel.contract import Receipt, load_receipt
from daemon.kernel.scratch import Place, Scratch, decode
from daemon.mddb.resolver import Context, Instruction, Nothing, Phase, Resolver, Skill
from daemon.spool.sessions import Claim, extra_of, read_json
from daemon.tracks.changes import DIFFERENCE
from daemon.tracks.ids import slug
from daemon.tracks.machine import BLOCKED
from daemon.tracks.track import Loaded

#: What of the daemon's environment every harness and every check gets.
PASSED = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)


def environment(extra: Mapping[str, str], passed: tuple[str, ...] = ()) -> dict[str, str]:
    """An allow-list: the names above, every ``LC_*``, what the settings pass on or set."""
    names = [name for name in os.environ if name in PASSED or name.startswith("LC_") or name in passed]
    return {name: os.environ[name] for name in names} | dict(extra)


#: The folder in a session in which its skills lie.
SKILLS = "skills"
NOTHING = Nothing()
#: After these ends a session goes on with what was begun.
_GOES_ON = frozenset({"clean", BLOCKED, "interrupt", "limit", "auth"})


@dataclass(frozen=True, slots=True)
class Start:
    """Everything that a start needs, gathered by the loop.

    earlier: the directories of the track's sessions before this one, newest first, back to the last fresh
        start; one that was stopped before it started has neither a place nor receipts.
    """

    session: Path
    claim: Claim
    loaded: Loaded
    harness: Harness
    model: str | None
    env: Mapping[str, str]
    wall_s: float
    wake: Path
    earlier: Sequence[Path]
    fresh: bool


def start(
    order: Start,
    scratch: Scratch,
    terminal: Terminal,
    publish: Publish,
    resolver: Resolver = NOTHING,
) -> Place:
    """Where it works. Raises what stands in the way: GitError, AdapterError, DatabaseFault, OSError."""
    place = own_place(order.session, order.claim.item, scratch)
    if place is None:
        inherited = None if order.fresh else _newest_place(order, scratch)
        place = inherited or scratch.provision(order.claim.item, fresh=order.fresh)
        publish(order.session / "place.json", place.encode())
    # What a fresh start does not inherit is no news to it either.
    earlier = () if order.fresh else order.earlier
    can = order.harness.capabilities()
    instructions, skills = order.session / "instructions.md", order.session / SKILLS
    if read_json(order.session / "launch.json") is None or not os.path.isfile(order.session / "brief.md"):
        about = Telling(
            session=order.session,
            loaded=order.loaded,
            harness=str(order.claim.extra.get("harness", order.harness.name)),
            model=order.model,
            can=can,
            earlier=earlier,
            place=place,
        )
        recorded = _write(order, tell(about, resolver), publish, resolver)
    else:
        # A runner may be on its way with it: what it was told stays as it is.
        recorded = provenance(order.session)
    order.harness.spawn(
        Order(
            session=order.session,
            session_id=order.claim.session,
            track_id=order.claim.item,
            attempt=order.claim.attempt,
            title=order.loaded.title,
            workdir=place.path,
            model=order.model,
            env=order.env,
            wall_s=order.wall_s,
            wake=order.wake,
            instructions=instructions if can.instructions and os.path.isfile(instructions) else None,
            skills=skills if can.skills and os.path.isdir(skills) else None,
            provenance=recorded or None,
        ),
        terminal,
        publish,
    )
    return place


@dataclass(frozen=True, slots=True)
class Told:
    """What a session is told. instruction: None for a harness that reads none, which gets the task alone.

    standing: the database's part; in `brief` too, unless the harness takes it apart.
    """

    instruction: Instruction | None
    standing: str
    brief: str

    def record(self, session: Path, can: Capabilities, left_out: Sequence[str] = ()) -> dict[str, Any]:
        """As launch.json keeps it; {} for a harness that reads none. left_out: of skills, with the reason."""
        if self.instruction is None:
            return {}
        return self.instruction.record() | {
            "skills_in": str(session / SKILLS),
            "loads_skills": can.skills,
            "left_out": list(left_out),
        }


@dataclass(frozen=True, slots=True)
class Telling:
    """What a brief depends on beside the database.

    session: its directory. earlier: as in `Start`. place: where it will work; None: in a new one. phase: instead of
    the one that follows from the earlier sessions, with the harness before it.
    """

    session: Path
    loaded: Loaded
    harness: str
    model: str | None
    can: Capabilities
    earlier: Sequence[Path] = ()
    place: Place | None = None
    phase: tuple[Phase, str] | None = None

    def context(self) -> Context:
        phase, before = self.phase or phase_after(self.earlier)
        track = self.loaded.track
        return Context(
            harness_id=self.harness,
            model_id=self.model or "",
            project_id=track.project_id or "",
            kind=track.kind or "",
            phase=phase,
            from_harness=before,
        )


def tell(about: Telling, resolver: Resolver) -> Told:
    """What a session is told; writes nothing. Raises DatabaseFault, OSError."""
    earlier = about.earlier
    instruction = resolver.resolve(about.context()) if about.can.prose else None
    database = ""
    if instruction is not None:
        database = standing_of(instruction, about.session / SKILLS, loads_skills=about.can.skills)
    brief = compose(
        about.loaded.document.body,
        about.loaded.track.done_when,
        next((failed_receipts(session) for session in earlier if os.path.isdir(session / "receipts")), []),
        [text for session in reversed(earlier) for text in (*differences(session), *typed(session))],
        [text for session in reversed(earlier) if (text := question(session)) is not None],
        prose=about.can.prose,
        goes_on=about.place is not None and any(before == about.place for before in map(find_place, earlier)),
        standing="" if about.can.instructions else database,
    )
    return Told(instruction, database, brief)


def _write(order: Start, told: Told, publish: Publish, resolver: Resolver) -> dict[str, Any]:
    """Write what it is told; returns where that comes from."""
    can, left_out = order.harness.capabilities(), list[str]()
    if told.instruction is not None:
        # A start that did not come to its end may have left those of an earlier state of the database.
        if os.path.lexists(order.session / SKILLS):
            shutil.rmtree(order.session / SKILLS)
        if os.path.lexists(order.session / "instructions.md"):
            os.unlink(order.session / "instructions.md")
        folders = skill_folders(told.instruction)
        for skill in told.instruction.skills:
            left_out += _place_skill(order.session / SKILLS / folders[skill.path], skill, resolver)
        if can.skills:
            (order.session / SKILLS).mkdir(mode=0o700, exist_ok=True)
        if can.instructions and told.standing:
            publish(order.session / "instructions.md", f"{told.standing}\n".encode("utf-8", "replace"))
    publish(order.session / "brief.md", told.brief.encode())
    return told.record(order.session, can, left_out)


def phase_after(earlier: Sequence[Path]) -> tuple[Phase, str]:
    """What a session is to those before it (newest first), and for a swap which harness worked before."""
    for session in earlier:
        kind, _, code = str((read_json(session / "settle.json") or {}).get("termination", "")).partition("/")
        if (kind, code) == ("interrupt", "cancelled"):
            continue  # it was never begun
        if kind == "swapped":
            return "swap", harness_of(session)
        # Ended well, by a person, or by no fault of its own: what a person says now is new. Else it is done again.
        return ("resume" if kind in _GOES_ON else "retry"), ""
    return "spawn", ""


def harness_of(session: Path) -> str:
    """The harness of a session, by its claim; "" where nothing can be read."""
    return str(extra_of(read_json(session / "claim.json") or {}).get("harness", ""))


def standing_of(instruction: Instruction, skills_in: Path, *, loads_skills: bool) -> str:
    """The database's part of what a session is told: the same bytes whenever it is asked for."""
    folders = skill_folders(instruction)
    return standing(instruction, lambda skill: skills_in / folders[skill.path], loads_skills=loads_skills)


def provenance(session: Path) -> dict[str, Any]:
    """Where what a session was told comes from, as it was recorded; {} when nothing was.

    The agent can write there, too: what has not the shape that the daemon gave it is left out.
    """
    found = (read_json(session / "launch.json") or {}).get("instruction")
    if not isinstance(found, dict):
        return {}
    context, revision, count = found.get("context"), found.get("revision"), found.get("missed_count")
    return {
        "context": context if isinstance(context, dict) else {},
        "revision": revision if isinstance(revision, str) else None,
        "told": _rows(found.get("told")),
        "missed": _rows(found.get("missed")),
        "missed_count": count if isinstance(count, int) else 0,
        "unrecorded": str(found.get("unrecorded") or ""),
        "left_out": [str(each) for each in left] if isinstance(left := found.get("left_out"), list) else [],
        "skills_in": str(found.get("skills_in") or ""),
        "loads_skills": found.get("loads_skills") is True,
    }


def _rows(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def skill_folders(instruction: Instruction) -> dict[str, str]:
    """path of a skill -> the name of its folder in the session; a harness wants one level of plain names."""
    found: dict[str, str] = {}
    for skill in instruction.skills:
        path = skill.folder or skill.path.removesuffix(".md")
        name = slug(path.removeprefix("skills/").replace("/", "-"))
        base, number = name, 1
        while name in found.values():
            number += 1
            name = f"{base}-{number}"
        found[skill.path] = name
    return found


def _place_skill(folder: Path, skill: Skill, resolver: Resolver) -> list[str]:
    """Copy a skill into the session; returns what had to stay behind, with the reason.

    Not durably: a start that is repeated copies it again.
    """
    left_out = []
    for file in resolver.files(skill):
        if file.left_out:
            left_out.append(f"{skill.folder}/{file.path}: {file.left_out}")
            continue
        path = folder / file.path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(file.data)
        path.chmod(0o700 if file.executable else 0o600)
    return left_out


def _newest_place(order: Start, scratch: Scratch) -> Place | None:
    """Where the track worked last, if that is still there."""
    found = (own_place(session, order.claim.item, scratch) for session in order.earlier)
    place = next((place for place in found if place is not None), None)
    return place if place is not None and os.path.isdir(place.path) else None


def own_place(session: Path, track: str, scratch: Scratch) -> Place | None:
    """As `find_place`, and one that the track was really given: an agent can name any repository there."""
    place = find_place(session)
    return place if place is not None and scratch.owns(place, track) else None


def find_place(session: Path) -> Place | None:
    """None: it has none yet, or what stands there is no place."""
    raw = read_json(session / "place.json")
    return decode(raw) if raw is not None else None


def typed(session: Path) -> list[str]:
    """What a person typed in the pane of a session, whether the harness got it or not, oldest first."""
    try:
        found = [*live.delivered(session), *live.waiting(session)]
    except OSError as error:
        if passes(error):
            raise
        return []  # something else stands where the inbox was
    messages = sorted(found, key=lambda message: message.name)
    return [message.text for message in messages if message.text and message.by == "viewer"]


def question(session: Path) -> str | None:
    """What a session asked when it ended."""
    intent = read_json(session / "settle.json") or {}
    return str(intent.get("why", "")) if intent.get("termination") == BLOCKED else None


def differences(session: Path) -> list[str]:
    """How a person changed the text of the task while a session ran: the body alone does not say that."""
    folder = session / "edits"
    found = []
    for path in sorted(folder.glob("*.json")) if os.path.isdir(folder) else []:
        raw = read_json(path) or {}
        message = raw.get("message")
        if isinstance(message, str) and message.startswith(DIFFERENCE) and raw.get("briefed") is not True:
            found.append(message)
    return found


def failed_receipts(session: Path) -> list[Receipt]:
    folder = session / "receipts"
    found = []
    for path in sorted(folder.glob("*.json")) if os.path.isdir(folder) else []:
        receipt = load_receipt(path, int(path.stem)) if re.fullmatch("[0-9]{2,4}", path.stem) else None
        if receipt is not None and receipt.passed is False:
            found.append(receipt)
    return found
