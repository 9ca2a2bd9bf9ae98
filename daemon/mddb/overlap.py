"""What the clauses of two documents have to do with each other: can both hold, and does one follow from the other.

Both answers are sound, not complete: `apart` and `follows` are True only where no context says otherwise. Globs that
are too intricate to compare are taken for such as may meet, and of which none follows from another.

Pure: values in, answers out.
"""

from __future__ import annotations

from daemon.mddb.clauses import WILD, Clause, Clauses, like, within
from daemon.mddb.resolver import PHASES


def apart(one: Clauses | None, other: Clauses | None) -> bool:
    """Whether two documents with these clauses never apply together; None: a document without any."""
    if one is None or other is None:
        return any(clause.never for clauses in (one, other) if clauses is not None for clause in clauses)
    theirs = {clause.dimension: clause for clause in other}
    return any(
        clause.never is not None or (clause.dimension in theirs and _apart(clause, theirs[clause.dimension]))
        for clause in one
    ) or any(clause.never is not None for clause in other)


def follows(what: Clauses | None, given: Clauses | None) -> bool:
    """Whether a document with the clauses `what` applies wherever one with the clauses `given` does."""
    there = {clause.dimension: clause for clause in given or ()}
    return all(_follows(clause, there.get(clause.dimension)) for clause in what or ())


def _apart(one: Clause, other: Clause) -> bool:
    if one.dimension == "phase":
        return not _phases(one) & _phases(other)
    if not one.patterns or not other.patterns:
        return _excluded(one, other) or _excluded(other, one)
    return all(
        _disjoint(a, b)
        or any(within(a, x) for x in other.excluded)
        or any(within(b, x) for x in one.excluded)
        for a in one.patterns
        for b in other.patterns
    )


def _excluded(asking: Clause, other: Clause) -> bool:
    """Whether everything that one asks for is what the other one excludes."""
    return bool(asking.patterns) and all(
        any(within(pattern, x) for x in other.excluded) for pattern in asking.patterns
    )


def _follows(what: Clause, given: Clause | None) -> bool:
    if what.dimension == "phase":
        return (_phases(given) if given is not None else set(PHASES)) <= _phases(what)
    asked = given.patterns if given is not None and given.patterns else ("*",)
    barred = given.excluded if given is not None else ()
    return all(any(within(a, p) for p in what.patterns) for a in asked if what.patterns) and all(
        any(within(x, y) for y in barred) or all(_disjoint(a, x) for a in asked) for x in what.excluded
    )


def _phases(clause: Clause) -> set[str]:
    return {phase for phase in PHASES if clause.match(phase) is not None}


def _disjoint(one: str, other: str) -> bool:
    """Whether no value is like both patterns; False also where that cannot be seen."""
    if not WILD.search(one):
        return not like(other, one)
    if not WILD.search(other):
        return not like(one, other)
    begins = [WILD.split(pattern, maxsplit=1)[0] for pattern in (one, other)]
    length = min(map(len, begins))
    if begins[0][:length] != begins[1][:length]:
        return True
    if "[" in one + other:
        return False
    ends = [WILD.split(pattern)[-1][::-1] for pattern in (one, other)]
    length = min(map(len, ends))
    return ends[0][:length] != ends[1][:length]
