"""What is wrong with a database, or cannot be meant: looked for in all documents at once, before a session meets it.

A finding is an ERROR where a document cannot be read: no session that it may concern is started. Everything else is a
WARN: what is written has no effect, or another one than it says. What only may be wrong is not told: a clause for a
harness that is not installed here is for another machine.

Pure: documents and names in, findings out.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import PurePosixPath
from typing import Final, Literal

from daemon.errors import Problem
from daemon.mddb.clauses import SPELLINGS, WILD, Clauses, like
from daemon.mddb.compose import project_path
from daemon.mddb.overlap import apart, follows
from daemon.mddb.schema import Doc, kind_of, name_of
from daemon.tracks.track import nearest

#: Harnesses of the field by the names that are used for them; a clause may be for one that is not here.
FIELD: Final = (
    "aider", "amp", "claude-code", "codex", "copilot", "cursor", "droid", "gemini", "goose", "grok", "hermes", "kimi",
    "mini-swe-agent", "openclaude", "opencode", "openhands", "pi", "qwen", "swe-agent",
)  # fmt: skip
#: How an agent asks a person: a last line that begins so.
ASKING: Final = "BLOCKED:"
_COUNTED: Final = ("instruction", "skill", "project", "sidecar", "policy", "translation")
_TOLD: Final = ("instruction", "skill")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to look at. path: relative to md-db; "" is the database as a whole. hint: the way out."""

    level: Literal["ERROR", "WARN"]
    path: str
    line: int | None
    message: str
    hint: str

    def __str__(self) -> str:
        if not self.path:
            return self.message
        line = f", line {self.line}" if self.line is not None else ""
        return f"md-db/{self.path}{line}: {self.message}"


def examine(
    docs: Mapping[str, Doc], harnesses: Collection[str], strays: Iterable[str] = ()
) -> Iterator[Finding]:
    """Everything that is found, document by document.

    docs: all of them by path, as `Library.documents` has them. harnesses: those that can be named here, to which those
    of the field are added. strays: Markdown files that are no documents.
    """
    names = {*harnesses, *FIELD}
    projects = {doc.name for doc in docs.values() if doc.kind == "project"}
    against = _against(docs)
    for path, doc in docs.items():
        for problem in doc.problems:
            yield _problem(path, problem)
        for clauses, where in _all_clauses(doc):
            yield from _clauses(doc, clauses, where, names, projects)
        yield from _overrides(doc, docs)
        yield from _without_effect(doc, against)
        if doc.kind == "translation":
            yield from _translation(doc, names)
        if doc.kind == "instruction" and (meant := _meant_by_name(path)):
            yield Finding(
                "WARN", path, None, "is told to agents as an instruction, and is called as what is found by its name",
                f"rename it to {meant}, or call it something else",
            )  # fmt: skip
    for ring in _rings(docs):
        yield _ring(ring, docs)
    yield from _twins(docs)
    for path in strays:
        yield _stray(path)
    instructions = [doc for doc in docs.values() if doc.kind == "instruction"]
    if not any(ASKING in doc.body for doc in instructions):
        yield Finding(
            "WARN", "", None,
            "no instruction tells an agent how to ask a person",
            f"write into one: if you cannot go on, end with a line that begins with {ASKING} and holds your question",
        )  # fmt: skip


def _meant_by_name(path: str) -> str:
    """The path that a document was meant to have, by what its name is like; "" for none."""
    name = PurePosixPath(path).name.lower().replace("_", "-")
    right = f"instructions/{name}"
    return right if right != path and kind_of(right) in ("policy", "translation") else ""


def counted(docs: Iterable[Doc]) -> str:
    """How many documents there are of each kind: ``3 instructions, 1 project``."""
    kinds = Counter(doc.kind for doc in docs)
    plural = {"policy": "policies"}
    shown = [
        f"{kinds[kind]} {kind if kinds[kind] == 1 else plural.get(kind, f'{kind}s')}"
        for kind in _COUNTED
        if kinds[kind]
    ]
    return ", ".join(shown).replace("sidecars", "sidecar rules") or "no documents"


def _warn(doc: Doc, key: str, message: str, hint: str) -> Finding:
    line = doc.line_of(key) or doc.line_of(key.split(".")[0])
    return Finding("WARN", doc.path, line, message, hint)


def _problem(path: str, problem: Problem) -> Finding:
    field = f"{problem.field}: " if problem.field else ""
    place = f"byte {problem.offset}: " if problem.offset is not None else ""
    return Finding("ERROR", path, problem.line, f"{place}{field}{problem.message}", problem.hint)


# --- clauses ----------------------------------------------------------------------------------------------


def _all_clauses(doc: Doc) -> Iterator[tuple[Clauses, int | None]]:
    """The clauses of a document, and those of its rules, each with the line of the rule."""
    if doc.clauses is not None:
        yield doc.clauses, None
    for denial in doc.deny:
        yield denial.clauses, denial.line


def _clauses(
    doc: Doc, clauses: Clauses, line: int | None, names: Collection[str], projects: Collection[str]
) -> Iterator[Finding]:
    for clause in clauses:
        where = line
        if where is None:
            keys = (key for key, name in SPELLINGS.items() if name == clause.dimension)
            lines = (doc.line_of(f"applies_when.{key}") for key in keys)
            where = next(filter(None, lines), doc.line_of("applies_when"))
        if clause.never is not None:
            what = "this rule never denies anything" if doc.kind == "policy" else "this is never told"
            if doc.kind == "sidecar":
                what = "this rule never watches anything"
            hint = "take the exclusion out, or ask for something that it does not exclude"
            yield Finding("WARN", doc.path, where, f"{what}: {clause.never}", hint)
        for pattern in (*clause.patterns, *clause.excluded):
            found = None
            if clause.dimension == "harness_id":
                found = _harness(pattern, names)
            elif clause.dimension == "project_id":
                found = _project(pattern, projects)
            if found is not None:
                yield Finding("WARN", doc.path, where, *found)


def _harness(pattern: str, names: Collection[str]) -> tuple[str, str] | None:
    """Only a name near a known one is a fault; one that nobody here knows may be right elsewhere."""
    if any(like(pattern, name) for name in names):
        return None
    if WILD.search(pattern):
        lower = pattern.lower()
        near = lower if any(like(lower, name) for name in names) else None
    else:
        near = _near_harness(pattern, names)
    if near is None:
        return None
    return f"no harness is called `{pattern}`", f"write `{near}`"


def _near_harness(word: str, names: Collection[str]) -> str | None:
    """The known name that this one is a slip of."""
    near = nearest(word, sorted(names))
    if near is None:
        # Letters that have changed places.
        near = next((name for name in sorted(names) if sorted(name) == sorted(word.lower())), None)
    if near is None or near.startswith(word):
        return near
    # Names of agents are often alike, and another one is no slip.
    alike = difflib.SequenceMatcher(None, word.lower(), near).ratio()
    return near if alike >= 0.85 else None


def _project(pattern: str, projects: Collection[str]) -> tuple[str, str] | None:
    if WILD.search(pattern) or "/" in pattern or pattern in projects:
        return None
    near = nearest(pattern, sorted(projects))
    # One that is not all in small letters cannot be a project's id itself.
    hint = f"write `{near}`, or " if near and near == near.lower() else ""
    return f"there is no project `{pattern}`", f"{hint}describe it in md-db/{project_path(pattern)}"


def _translation(doc: Doc, names: Collection[str]) -> Iterator[Finding]:
    parts = doc.pair.split("-")
    splits = [("-".join(parts[:n]), "-".join(parts[n:])) for n in range(1, len(parts))]
    if any(one in names and other in names for one, other in splits):
        return
    meant = (
        (
            one if one in names else _near_harness(one, names),
            other if other in names else _near_harness(other, names),
        )
        for one, other in splits
    )
    near = next((f"{one}-{other}" for one, other in meant if one and other), None)
    hint = (
        f"rename it to harness-translation-{near}.md"
        if near
        else "name it harness-translation-FROM-TO.md, with the names of harnesses that tracks use"
    )
    yield Finding("WARN", doc.path, None, f"`{doc.pair}` are no two harnesses that are known", hint)


# --- overrides --------------------------------------------------------------------------------------------


def _overrides(doc: Doc, docs: Mapping[str, Doc]) -> Iterator[Finding]:
    for target in doc.overrides:
        key = _override_key(doc, target)
        other = docs.get(target)
        if other is None:
            near = _near(target, docs)
            hint = f"write {near}" if near else "take it out, or write the path of a document"
            yield _warn(doc, key, f"overrides {target}, and there is no such document", hint)
        elif other.kind not in _TOLD:
            yield _warn(
                doc,
                key,
                f"overrides {target}, and only an instruction or a skill can be overridden",
                "take it out",
            )
        elif apart(doc.clauses, other.clauses) and not any(_never(each) for each in (doc, other)):
            yield _warn(
                doc,
                key,
                f"overrides {target}, but the two never apply together",
                "take it out, or the clause",
            )


def _override_key(doc: Doc, target: str) -> str:
    # What was refused of the list stands in no path: then the line is that of the list.
    if doc.problems or f"overrides.{len(doc.overrides)}" in (doc.lines or {}):
        return "overrides"
    return f"overrides.{doc.overrides.index(target)}"


def _near(path: str, docs: Mapping[str, Doc]) -> str | None:
    """The document that is most likely meant."""
    stem = path.removesuffix(".md")
    if f"{stem}/SKILL.md" in docs:
        return f"{stem}/SKILL.md"
    named = {name_of(each): each for each in docs}
    near = difflib.get_close_matches(name_of(path), list(named), 1, 0.7)
    return named[near[0]] if near else None


def _rings(docs: Mapping[str, Doc]) -> list[tuple[str, ...]]:
    """Documents that override each other, and may do so at once; each ring begins with its first path."""
    edges = {
        path: [
            target
            for target in doc.overrides
            if target in docs and doc.kind in _TOLD and not apart(doc.clauses, docs[target].clauses)
        ]
        for path, doc in docs.items()
        if doc.overrides
    }
    found: dict[frozenset[str], tuple[str, ...]] = {}
    for start in edges:
        ring = _way_back(start, edges)
        if ring and not any(set(ring) & known for known in found):
            found[frozenset(ring)] = ring
    return list(found.values())


def _way_back(start: str, edges: Mapping[str, list[str]]) -> tuple[str, ...]:
    """The shortest way from a document over what it overrides to itself; () when there is none."""
    came: dict[str, str] = {}
    todo = [start]
    for path in todo:
        for target in edges.get(path, []):
            if target == start:
                way = [path]
                while way[-1] != start:
                    way.append(came[way[-1]])
                return tuple(reversed(way))
            if target not in came:
                came[target] = path
                todo.append(target)
    return ()


def _ring(ring: tuple[str, ...], docs: Mapping[str, Doc]) -> Finding:
    first = docs[ring[0]]
    if len(ring) == 2:
        message = f"this and {ring[1]} override each other"
    else:
        message = f"a ring of overrides: {' -> '.join((*ring, ring[0]))}"
    key = _override_key(first, ring[1 % len(ring)])
    return _warn(first, key, f"{message}; the more specific one is told", "take one of the overrides out")


def _never(doc: Doc) -> bool:
    return any(clause.never is not None for clause in doc.clauses or ())


def _against(docs: Mapping[str, Doc]) -> dict[str, list[Doc]]:
    """path -> the documents that override it."""
    found: dict[str, list[Doc]] = {}
    for doc in docs.values():
        for target in doc.overrides if doc.kind in _TOLD else ():
            found.setdefault(target, []).append(doc)
    return found


def _without_effect(doc: Doc, against: Mapping[str, list[Doc]]) -> Iterator[Finding]:
    """Empty documents, and those that another one always removes."""
    if doc.problems:
        return
    says = bool(doc.body.strip()) or bool(doc.overrides)
    if doc.kind == "project":
        says |= any((doc.repository, doc.base, doc.setup, doc.scope, doc.done_when))
    if not says and not doc.deny and doc.kind != "sidecar":
        yield Finding("WARN", doc.path, None, "it is empty", "write below its frontmatter what is to be told")
    if doc.kind not in _TOLD or _never(doc):
        return
    by = next((each for each in against.get(doc.path, ()) if _always_removes(each, doc, against)), None)
    if by is not None:
        yield Finding(
            "WARN", doc.path, None,
            f"it is never told: wherever it applies, {by.path} overrides it",
            "give that one a narrower `applies_when`, or take the override out of it",
        )  # fmt: skip


def _always_removes(other: Doc, doc: Doc, against: Mapping[str, list[Doc]]) -> bool:
    return (
        not other.problems
        and follows(other.clauses, doc.clauses)
        # Whatever may remove that one, lets this one in again.
        and all(apart(each.clauses, doc.clauses) for each in against.get(other.path, ()))
    )


# --- files ------------------------------------------------------------------------------------------------


def _twins(docs: Mapping[str, Doc]) -> Iterator[Finding]:
    """Skills of one name that may be told together: the harness takes one of them, or neither."""
    named: dict[str, list[Doc]] = {}
    for doc in docs.values():
        if doc.kind == "skill" and not _never(doc):
            named.setdefault(doc.name, []).append(doc)
    for name, same in named.items():
        for one, other in combinations(same, 2):
            if (
                apart(one.clauses, other.clauses)
                or one.path in other.overrides
                or other.path in one.overrides
            ):
                continue
            if one.path.removesuffix(".md") == other.folder or other.path.removesuffix(".md") == one.folder:
                message, hint = f"is the same skill as {other.path}", "keep one of the two files"
            else:
                message = f"has the name of another skill, {other.path}: {name}"
                hint = "give one of them another `name`"
            yield _warn(one, "name", message, hint)


def _stray(path: str) -> Finding:
    pure = PurePosixPath(path)
    if ".sync-conflict-" in pure.name:
        hint = "a sync program made it: take over from it what is right, then move it out of md-db"
    elif pure.parts[0] == "skills":
        hint = "a skill is skills/NAME.md, or skills/NAME/SKILL.md"
    elif pure.suffix != ".md":
        hint = f"rename it to {pure.stem}.md"
    else:
        hint = "move it to instructions/, skills/, projects/ or sidecar/"
    return Finding("WARN", path, None, "this is no document: nothing of it is ever told", hint)
