"""What an agent is told, and why: the port through which everything else knows the Markdown database.

A `Context` says what a session is; the answer is an `Instruction`: the text in ordered sections, and for each
document of the database why it is in it, or why it is not. The kernel knows this module alone. What is recorded of an
instruction (`Instruction.record`) is plain JSON data, from which it can be explained and built again from git later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, get_args

from daemon.errors import MegaharnessError, Problem

Phase = Literal["spawn", "resume", "retry", "swap", "review"]
PHASES: Final[tuple[Phase, ...]] = get_args(Phase)

#: How many of the documents that do not apply are recorded: those that come nearest.
NEAREST: Final = 50

#: What a section holds. Sections come in this order.
Part = Literal["instruction", "translation", "project", "skill"]
PARTS: Final[tuple[Part, ...]] = get_args(Part)


@dataclass(frozen=True, slots=True)
class Context:
    """What is known of a session before it is told anything.

    "" is unknown: no kind, no project, or the harness's own model. from_harness: with phase ``swap``, the harness
    that worked before.
    """

    harness_id: str
    model_id: str = ""
    project_id: str = ""
    kind: str = ""
    phase: Phase = "spawn"
    from_harness: str = ""

    def record(self) -> dict[str, str]:
        return {name: value for name in self.__slots__ if (value := getattr(self, name))}

    @classmethod
    def recorded(cls, raw: Mapping[str, object]) -> Context:
        """The context that `record` wrote. Raises ValueError for anything else."""
        match dict(raw):
            case {"harness_id": str(), "phase": phase, **rest} if phase in PHASES and all(
                name in cls.__slots__ and isinstance(value, str) for name, value in rest.items()
            ):
                return cls(**raw)  # type: ignore[arg-type]
        raise ValueError(f"{raw!r} is no context")


@dataclass(frozen=True, slots=True)
class Match:
    """One dimension of a document's clauses that holds: the pattern that matched, and how.

    pattern: for ``exclusion`` all that are excluded, joined by ", ".
    """

    dimension: str
    value: str
    pattern: str
    how: Literal["exact", "glob", "exclusion"]

    def __str__(self) -> str:
        value = self.value or "unknown"
        match self.how:
            case "exact":
                return f"{self.dimension} is {value}"
            case "glob":
                return f"{self.dimension} {value} is like {self.pattern}"
            case "exclusion":
                return f"{self.dimension} {value} is not excluded by {self.pattern}"


@dataclass(frozen=True, slots=True)
class Told:
    """A document that is part of an instruction.

    path: relative to md-db. sha: git's id of its content. why: the clauses that matched; none: the legacy layer, or
    found by its name. part, inline: where it stands; a skill that is not inline is only named.
    """

    path: str
    sha: str
    part: Part
    why: tuple[Match, ...] = ()
    by: Literal["clauses", "legacy", "name"] = "clauses"
    inline: bool = True

    @property
    def reason(self) -> str:
        if self.by == "clauses":
            return "; ".join(map(str, self.why))
        if self.by == "legacy":
            return "always: it has no clauses"
        return {
            "project": "the track is of this project",
            "translation": "the track goes over between these two harnesses",
        }.get(self.part, "found by its name")


@dataclass(frozen=True, slots=True)
class Missed:
    """A document that is not part of it: the clause that failed, or the document that removed it.

    matched: how many of its clauses did hold.
    """

    path: str
    sha: str
    reason: str
    matched: int = 0
    clauses: int = 0
    overridden_by: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """One document's text, ready to be told."""

    path: str
    part: Part
    text: str


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill that applies. folder: its documents and other files lie there, relative to md-db; "": it is one file.

    inline: it is for this kind of work or this phase, so that its text belongs into the brief where the harness loads
    no skills itself. data: its document, byte for byte as it was read.
    """

    name: str
    description: str
    path: str
    folder: str
    text: str
    inline: bool
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Instruction:
    """What the database has to say in a context.

    revision: a commit of the workspace's repository that holds every document as it was read; None: there is none, and
    unrecorded says why.
    told is in the order of the text, later ones take precedence; missed: what comes nearest is first.
    """

    context: Context
    sections: tuple[Section, ...] = ()
    skills: tuple[Skill, ...] = ()
    told: tuple[Told, ...] = ()
    missed: tuple[Missed, ...] = ()
    revision: str | None = None
    unrecorded: str = ""

    def text(self, part: Part) -> str:
        """The sections of one kind, one after the other; "" when there are none."""
        return "\n\n".join(section.text for section in self.sections if section.part == part)

    def record(self) -> dict[str, Any]:
        """As plain JSON data, for launch.json."""
        return {
            "context": self.context.record(),
            "revision": self.revision,
            "told": [
                {
                    "path": each.path,
                    "sha": each.sha,
                    "part": each.part,
                    "by": each.by,
                    "inline": each.inline,
                    "why": [
                        {"dimension": m.dimension, "value": m.value, "pattern": m.pattern, "how": m.how}
                        for m in each.why
                    ],
                }
                for each in self.told
            ],
            "missed": [
                {name: getattr(each, name) for name in each.__slots__ if getattr(each, name) not in ("", 0)}
                for each in self.missed[:NEAREST]
            ],
            "missed_count": len(self.missed),
            "unrecorded": self.unrecorded,
        }


@dataclass(frozen=True, slots=True)
class Project:
    """A project of the database, by its document.

    repository: as it is written there; None: its tracks work in repositories of their own. done_when: its checks as
    they stand in the document, for the contract of every track of it.
    """

    id: str
    path: str
    repository: str | None
    done_when: Any = None


class DatabaseFault(MegaharnessError):
    """Documents that this session may have to be told cannot be read. Nothing is started half told."""

    def __init__(self, faults: Mapping[str, Sequence[Problem]]) -> None:
        lines = [f"md-db/{path}: {problem}" for path, problems in faults.items() for problem in problems]
        super().__init__("\n".join(lines), "correct it, and save it; what waits goes on by itself")
        self.faults = faults


@dataclass(frozen=True, slots=True)
class SkillFile:
    """One file of a skill. path: within the skill's own folder, ``SKILL.md`` or beside it.

    left_out: why it cannot be placed; then there is no data.
    """

    path: str
    data: bytes = b""
    executable: bool = False
    left_out: str = ""


class Resolver(Protocol):
    """The port."""

    def resolve(self, context: Context) -> Instruction:
        """What to tell; reads what has changed in the database, and sees to it that it can be rebuilt.

        Raises `DatabaseFault` where a document that may apply cannot be read; OSError.
        """
        ...

    def project(self, id: str) -> Project | None:
        """The project of this id; None: there is none. Raises `DatabaseFault` where it cannot be read; OSError."""
        ...

    def projects(self) -> list[str]:
        """The ids of all projects. Raises OSError."""
        ...

    def files(self, skill: Skill) -> Iterator[SkillFile]:
        """Everything that a skill consists of: its document as it was read, the rest as it is now. Raises OSError."""
        ...

    def denied(self, context: Context, *, told: bool) -> str | None:
        """Why the policy forbids this harness with this model; None: it does not. Asked before a track is claimed.

        told: the harness reads instructions. Raises `DatabaseFault` where the policy cannot be read, or what would be
        told here; OSError.
        """
        ...


class Nothing:
    """A database without documents: for what has none, and for tests."""

    def resolve(self, context: Context) -> Instruction:
        return Instruction(context)

    def project(self, id: str) -> Project | None:
        return None

    def projects(self) -> list[str]:
        return []

    def files(self, skill: Skill) -> Iterator[SkillFile]:
        return iter(())

    def denied(self, context: Context, *, told: bool) -> str | None:
        return None
