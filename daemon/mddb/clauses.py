"""When a document applies: `applies_when`, read, and held against what a session is.

Invariants:

- A clause holds when one of its patterns matches (or it has none), and none of its exclusions does.
- All clauses of a document must hold. What is unknown of a session is the empty text: `*` and exclusions match it.
- A pattern that equals the value is exact, whatever signs it has (`claude-opus-4[1m]` is a model).

Pure: values in, answers out.
"""

from __future__ import annotations

import fnmatch
import functools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from daemon.mddb.resolver import PHASES, Context, Match
from daemon.spool.frontmatter import Path, Value, clipped
from daemon.tracks.track import nearest

DIMENSIONS: Final = ("harness_id", "model_id", "project_id", "kind", "phase")
SPELLINGS: Final = {name: name for name in DIMENSIONS} | {
    "harness": "harness_id",
    "model": "model_id",
    "project": "project_id",
}
EXAMPLE: Final = 'for example `applies_when: {harness_id: claude-code, kind: [fix, "doc*"]}`'
WILD = re.compile(r"[*?\[]")
_NOT = re.compile(r"((?:not:|!)\s*)(.*)", re.S)
#: One sign of a glob, as `fnmatch` sees it.
_SIGN = re.compile(r"\*|\?|\[!?\]?[^\]]*\]")

#: How specific a match is: exact dimensions, those by glob, those by exclusion alone. Larger is later in the text.
Specificity: TypeAlias = tuple[int, int, int]
Bad: TypeAlias = Callable[[Path, str, str, Value], None]


@functools.lru_cache(maxsize=1 << 14)
def _glob(pattern: str) -> Callable[[str], object]:
    return re.compile(fnmatch.translate(pattern)).match


def within(pattern: str, other: str) -> bool:
    """Whether whatever one pattern matches, the other one matches too; False also where that cannot be seen."""
    if pattern == other or not WILD.search(pattern):
        return like(other, pattern)
    # With only `*` in it, the other one takes any text for a sign of this one if it takes what no text has.
    return not re.search(r"[?\[]", other) and like(other, _SIGN.sub("\0", pattern))


def like(pattern: str, value: str) -> bool:
    """Whether a value is what a pattern means: literally, or as a glob (`*` also over `/`; case counts)."""
    return pattern == value or (WILD.search(pattern) is not None and _glob(pattern)(value) is not None)


@dataclass(frozen=True, slots=True)
class Clause:
    """One dimension of `applies_when`."""

    dimension: str
    patterns: tuple[str, ...]
    excluded: tuple[str, ...] = ()

    def match(self, value: str) -> Match | None:
        """How it holds for a value; None: it does not."""
        held = _held(self, value)
        return held if isinstance(held, Match) else None

    @property
    def never(self) -> str | None:
        """Why no value can match; None: one can."""
        if any(not pattern.strip("*") for pattern in self.excluded):
            return f"{self.dimension} excludes everything"
        gone = [p for p in self.patterns if any(within(p, x) for x in self.excluded)]
        if self.patterns and len(gone) == len(self.patterns):
            return f"{self.dimension} excludes all that it asks for: {', '.join(gone)}"
        return None

    def __str__(self) -> str:
        return f"{self.dimension}: {', '.join([*self.patterns, *(f'not {each}' for each in self.excluded)])}"


@functools.lru_cache(maxsize=1 << 14)
def _held(clause: Clause, value: str) -> Match | str:
    """How a clause holds for a value, or why it does not; the same ones stand in many documents."""
    for pattern in clause.excluded:
        if like(pattern, value):
            return f"{clause.dimension} {value or 'unknown'} is excluded by {pattern}"
    if value in clause.patterns:
        return Match(clause.dimension, value, value, "exact")
    for pattern in clause.patterns:
        if like(pattern, value):
            return Match(clause.dimension, value, pattern, "glob")
    if clause.patterns:
        return f"{clause.dimension} is {value or 'unknown'}, not {' or '.join(clause.patterns)}"
    return Match(clause.dimension, value, ", ".join(clause.excluded), "exclusion")


@dataclass(frozen=True, slots=True)
class Clauses:
    """All clauses of a document, in the order of `DIMENSIONS`."""

    clauses: tuple[Clause, ...]

    def __iter__(self) -> Iterator[Clause]:
        return iter(self.clauses)

    def match(self, context: Context) -> tuple[Match, ...] | None:
        """How each of them holds; None: one does not."""
        why, failures = self.weigh(context)
        return None if failures else why

    def weigh(self, context: Context) -> tuple[tuple[Match, ...], tuple[str, ...]]:
        """How those hold that do, and why the others do not, a sentence for each."""
        held = [_held(clause, getattr(context, clause.dimension)) for clause in self.clauses]
        return (
            tuple(each for each in held if isinstance(each, Match)),
            tuple(each for each in held if isinstance(each, str)),
        )

    def __str__(self) -> str:
        return "; ".join(map(str, self.clauses))


def specificity(why: tuple[Match, ...]) -> Specificity:
    hows = [match.how for match in why]
    return hows.count("exact"), hows.count("glob"), hows.count("exclusion")


# --- reading ----------------------------------------------------------------------------------------------


def read(value: Value, path: Path, bad: Bad) -> Clauses | None:
    """The clauses that a mapping holds; what is wrong is told to `bad(path, message, hint, value)`. None: unusable."""
    if not isinstance(value, dict) or not value:
        what = "holds no clause" if value in (None, "", {}, []) else "is a mapping of dimensions"
        bad(path, f"`applies_when` {what}", f"{EXAMPLE}; a document without it is told always", value)
        return None
    found: dict[str, Clause] = {}
    usable = True
    for key, raw in value.items():
        where = (*path, key)
        name = SPELLINGS.get(key)
        if name is None:
            near = nearest(key, SPELLINGS)
            known = ", ".join(DIMENSIONS)
            hint = f"write `{near}`" if near else f"there are {known}"
            bad(where, f"there is no dimension `{key}`", hint, raw)
            usable = False
        elif name in found:
            bad(
                where, f"`{name}` stands here twice, in two spellings", "keep one, with a list of values", raw
            )
            usable = False
        elif (clause := clause_of(name, raw, where, bad)) is not None:
            found[name] = clause
        else:
            usable = False
    if not usable:
        return None
    return Clauses(tuple(found[name] for name in DIMENSIONS if name in found))


def clause_of(name: str, value: Value, path: Path, bad: Bad) -> Clause | None:
    """One dimension; None where something is wrong with it, which `bad` was told."""
    patterns: list[str] = []
    excluded: list[str] = []
    right = True
    for where, text, sign in _entries(value, path):
        problem = (
            _no_text(name, text)
            if not isinstance(text, str) or not text.strip()
            else _misfit(name, text.strip(), sign)
        )
        if problem is not None:
            bad(where, *problem, text)
            right = False
        elif isinstance(text, str):
            (patterns if sign is None else excluded).append(text.strip())
    if not right:
        return None
    if not patterns and not excluded:
        bad(path, f"`{name}` has no value", f"for example `{name}: {_example(name)}`, or take it out", value)
        return None
    return Clause(name, tuple(dict.fromkeys(patterns)), tuple(dict.fromkeys(excluded)))


def _entries(value: Value, path: Path) -> Iterator[tuple[Path, Value, str | None]]:
    """(where, text, sign) for everything that a value names; sign: how it says that it excludes, None: it does not."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            if isinstance(item, list) or item is None:
                yield (*path, number), item, None
            else:
                yield from _entries(item, (*path, number))
    elif isinstance(value, dict) and list(value) == ["not"]:
        if value["not"] is None:
            yield (*path, "not"), None, ""
        for where, text, sign in _entries(value["not"], (*path, "not")):
            # `not: {not: x}` is not a way to ask for x: as a list it is refused.
            yield where, text if sign is None else [text], ""
    elif isinstance(value, str) and (negated := _NOT.fullmatch(value.strip())):
        yield path, negated[2], negated[1]
    elif value is not None:
        yield path, value, None


def _no_text(name: str, value: Value) -> tuple[str, str]:
    """Why this is no pattern, and what would be."""
    if isinstance(value, dict) and value:
        other = next((key for key in value if key != "not"), "")
        if other:
            return (
                f"`{clipped(other)}` means nothing in a value of `{name}`",
                f"to exclude: `{name}: {{not: X}}`",
            )
    return f"every value of `{name}` is one text", f"for example `{name}: {_example(name)}`"


def _misfit(name: str, text: str, sign: str | None) -> tuple[str, str] | None:
    """What is wrong with one pattern of this dimension, and what would be right in its place."""
    if "," in text:
        parts = [part.strip() for part in text.strip("[]").split(",") if part.strip()]
        right = ", ".join(json.dumps(part, ensure_ascii=False) for part in parts)
        if sign is None:
            return f"several values of `{name}` in one text", f"write {name}: [{right}]"
        return f"several values of `{name}` in one text", f"write {name}: {{not: [{right}]}}"
    if sign is None and (bare := re.fullmatch(r"(?i)not\s+(\S.*)", text)):
        right = json.dumps(bare[1], ensure_ascii=False)
        return f"`not` in a text excludes nothing in `{name}`", f"write {name}: {{not: {right}}}"
    if name == "harness_id" and "/" in text:
        harness, _, model = text.partition("/")
        if sign is not None:
            return (
                "a harness and a model in one exclusion",
                f"exclude one of them: harness_id: {{not: {json.dumps(harness)}}}, "
                f"or model_id: {{not: {json.dumps(model)}}}",
            )
        return (
            "a harness and a model in one clause",
            f'write two clauses: harness_id: "{harness}" and model_id: "{model}"',
        )
    if name == "phase" and not any(like(text, phase) for phase in PHASES):
        near = nearest(text, PHASES)
        written = json.dumps(sign + near) if sign and near else near
        return (
            f"there is no phase {clipped(text)!r}",
            f"write `{written}`" if near else f"phases are {', '.join(PHASES)}",
        )
    return None


def _example(name: str) -> str:
    return {
        "harness_id": "claude-code",
        "model_id": '"gpt-5*"',
        "project_id": "checkout-service",
        "kind": "[fix, docs]",
        "phase": "[resume, retry]",
    }[name]
