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
            skills.append(
                Skill(doc.name, doc.description, doc.path, doc.folder, text, _inline(doc, why), doc.data)
            )
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
    rank = {doc.path: number for number, doc in enumerate(docs)}
    over = {doc.path: [path for path in doc.overrides if path in rank] for doc in docs if doc.overrides}
    against: dict[str, list[str]] = {}
    for path in reversed(rank):
        for target in over.get(path, ()):
            against.setdefault(target, []).append(path)
    open_ones = {path: len(against.get(path, ())) for path in {*against, *over}}
    told: dict[str, bool] = {}
    todo = [(path, True) for path, count in open_ones.items() if count == 0]
    while len(told) < len(open_ones):
        while todo:
            path, kept = todo.pop()
            if path in told:
                continue
            told[path] = kept
            for target in over.get(path, ()):
                if kept:
                    todo.append((target, False))
                    continue
                open_ones[target] -= 1
                if open_ones[target] == 0:
                    todo.append((target, True))
        # What is left hangs on rings: of each over which no other ring decides, the most precedent one is told.
        left = {
            path: [by for by in against[path] if by not in told] for path in open_ones if path not in told
        }
        todo = [(max(ring, key=rank.__getitem__), True) for ring in _first_rings(left)]
    return {path: next(by for by in against[path] if told[by]) for path in open_ones if not told[path]}


def _first_rings(against: Mapping[str, list[str]]) -> list[set[str]]:
    """The strongly connected parts of a graph that lead nowhere else (Tarjan 1972, without recursion)."""
    found: list[set[str]] = []
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for start in against:
        if start in index:
            continue
        way = [(start, iter(against[start]))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        while way:
            path, rest = way[-1]
            for each in rest:
                if each not in index:
                    index[each] = low[each] = len(index)
                    stack.append(each)
                    on_stack.add(each)
                    way.append((each, iter(against[each])))
                    break
                if each in on_stack:
                    low[path] = min(low[path], index[each])
            else:
                way.pop()
                if way:
                    low[way[-1][0]] = min(low[way[-1][0]], low[path])
                if low[path] == index[path]:
                    part = _tail(stack, path)
                    del stack[-len(part) :]
                    on_stack -= part
                    if all(each in part for member in part for each in against[member]):
                        found.append(part)
    return found


def _tail(stack: list[str], path: str) -> set[str]:
    """What stands on a stack from a path on; it is near the top."""
    number = len(stack) - 1
    while stack[number] != path:
        number -= 1
    return set(stack[number:])


def _text(doc: Doc) -> str:
    """The text without blank lines around it, and above it the files that it is about."""
    text = _BLANK.sub("", doc.body).rstrip()
    if not text or not doc.globs:
        return text
    about = ", ".join(f"`{each}`" for each in doc.globs)
    return f"For files that match {about}:\n\n{text}"
