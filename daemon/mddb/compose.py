"""From documents and a context to an instruction: which apply, in which order, and why the others do not.

Invariants:

- The order is total: legacy documents, then by specificity, then by `order`, then by path. What stands later counts.
- A document that does not apply changes nothing but the list of those that do not.
- Only `overrides` removes a document, and only one of a document that is itself told. In a ring of overrides the most
  precedent document is told.

Pure: documents in, an instruction out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from daemon.errors import Problem
from daemon.mddb.clauses import specificity
from daemon.mddb.resolver import (
    Context,
    DatabaseFault,
    Instruction,
    Match,
    Missed,
    Part,
    Section,
    Skill,
    Told,
)
from daemon.mddb.schema import Doc

_Key: TypeAlias = tuple[bool, tuple[int, int, int], int, str]
_BLANK = re.compile(r"\A(?:[ \t]*\r?\n)+")


def concerned(doc: Doc, context: Context) -> bool:
    """Whether a document may apply here, as far as it can be read: one whose clauses are unreadable may."""
    match doc.kind:
        case "instruction" | "skill":
            if doc.clauses is not None:
                return doc.clauses.match(context) is not None
            return True
        case "project":
            return doc.path == project_path(context.project_id)
        case "translation":
            return context.phase == "swap" and doc.pair == f"{context.from_harness}-{context.harness_id}"
    return False


def project_path(id: str) -> str:
    return f"projects/{id}.md"


def compose(docs: Iterable[Doc], context: Context, revision: str | None = None) -> Instruction:
    """The instruction that these documents make in a context.

    Raises `DatabaseFault` where one that may apply has faults. A skill that has some is left out: it is a help, not
    a rule, and stands among those that were missed.
    """
    applying: dict[str, tuple[Doc, tuple[Match, ...]]] = {}
    missed: list[Missed] = []
    named: list[Doc] = []
    for doc in docs:
        if doc.kind in ("project", "translation"):
            if concerned(doc, context):
                named.append(doc)
        elif doc.kind in ("instruction", "skill"):
            why, failures = doc.clauses.weigh(context) if doc.clauses is not None else ((), ())
            if failures:
                count = len(why) + len(failures)
                missed.append(Missed(doc.path, doc.sha, "; ".join(failures), len(why), count))
            elif doc.kind == "skill" and doc.problems:
                missed.append(Missed(doc.path, doc.sha, f"cannot be read: {doc.problems[0]}"))
            else:
                applying[doc.path] = (doc, why)
    order = sorted(applying, key=lambda path: _key(*applying[path]))
    gone = _removed([applying[path][0] for path in order])
    missed += [
        Missed(path, applying[path][0].sha, f"overridden by {by}", overridden_by=by)
        for path, by in gone.items()
    ]
    kept = [applying[path] for path in order if path not in gone]
    faulty: Mapping[str, tuple[Problem, ...]] = {
        doc.path: doc.problems for doc in (*named, *(doc for doc, _ in kept)) if doc.problems
    }
    if faulty:
        raise DatabaseFault(faulty)

    sections: dict[Part, list[Section]] = {"instruction": [], "translation": [], "project": []}
    skills: list[Skill] = []
    told: dict[Part, list[Told]] = {"instruction": [], "translation": [], "project": [], "skill": []}
    for doc, why in kept:
        part = _part(doc)
        text = _text(doc)
        told[part].append(
            Told(doc.path, doc.sha, part, why, "clauses" if why else "legacy", _inline(doc, why))
        )
        if doc.kind == "skill":
            skills.append(Skill(doc.name, doc.description, doc.path, doc.folder, text, _inline(doc, why)))
        elif text:
            sections[part].append(Section(doc.path, part, text))
    for doc in sorted(named, key=lambda doc: doc.path):
        part = _part(doc)
        told[part].append(Told(doc.path, doc.sha, part, (), "name"))
        if text := _text(doc):
            sections[part].append(Section(doc.path, part, text))
    missed.sort(key=lambda each: (not each.overridden_by, each.clauses - each.matched, each.path))
    return Instruction(
        context,
        tuple(section for part in sections.values() for section in part),
        tuple(skills),
        tuple(each for part in told.values() for each in part),
        tuple(missed),
        revision,
    )


def _inline(doc: Doc, why: tuple[Match, ...]) -> bool:
    """Whether its text is told. A skill that is for this kind of work or this phase is needed now; others may be."""
    return doc.kind != "skill" or any(
        match.dimension in ("kind", "phase") and match.how != "exclusion" for match in why
    )


def _part(doc: Doc) -> Part:
    match doc.kind:
        case "project" | "translation" | "skill":
            return doc.kind
    return "instruction"


def _key(doc: Doc, why: tuple[Match, ...]) -> _Key:
    return doc.clauses is not None, specificity(why), doc.order, doc.path


def _removed(docs: list[Doc]) -> dict[str, str]:
    """path -> by which document it is removed; docs: those that apply, the least precedent first."""
    there = {doc.path for doc in docs}
    against: dict[str, list[str]] = {}
    for doc in docs:
        for target in doc.overrides:
            if target in there:
                against.setdefault(target, []).append(doc.path)
    if not against:
        return {}
    gone: dict[str, str] = {}
    undecided = [doc.path for doc in reversed(docs)]
    kept: set[str] = set()
    while undecided:
        left = []
        for path in undecided:
            by = against.get(path, [])
            if remover := next((each for each in reversed(by) if each in kept), None):
                gone[path] = remover
            elif all(each in gone for each in by):
                kept.add(path)
            else:
                left.append(path)
        if len(left) == len(undecided):
            first = _in_ring(left, against)
            kept.add(first)  # the most precedent one of its ring is told
            left.remove(first)
        undecided = left
    return gone


def _in_ring(undecided: list[str], against: Mapping[str, list[str]]) -> str:
    """The first that stands in a ring of overrides over which no other ring decides."""
    above = {path: _above(path, set(undecided), against) for path in undecided}
    return next(path for path in undecided if all(path in above[each] for each in above[path]))


def _above(path: str, among: set[str], against: Mapping[str, list[str]]) -> set[str]:
    """Those that override it, or one that does, and so on."""
    found: set[str] = set()
    todo = [path]
    while todo:
        for each in against.get(todo.pop(), []):
            if each in among and each not in found:
                found.add(each)
                todo.append(each)
    return found


def _text(doc: Doc) -> str:
    """The text without blank lines around it, and above it the files that it is about."""
    text = _BLANK.sub("", doc.body).rstrip()
    if not text or not doc.globs:
        return text
    about = ", ".join(f"`{each}`" for each in doc.globs)
    return f"For files that match {about}:\n\n{text}"
