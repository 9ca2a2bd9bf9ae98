"""Why an agent was told what it was told, as lines for a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from daemon.cli.view import clean, count, local
from daemon.mddb.resolver import PARTS, Match, Told
from daemon.mddb.schema import Doc

if TYPE_CHECKING:
    from daemon.cli.resolve import Answer

#: How many documents that were not told are shown.
SHOWN = 12
#: The column of the reasons begins behind so many characters of a path at most.
WIDTH = 48
_TITLES = {
    "instruction": "instructions",
    "translation": "about the change of harness",
    "project": "the project",
    "skill": "skills",
}


def lines(answer: Answer, now: Mapping[str, Doc]) -> Iterator[str]:
    """now: the documents as they are today; what has changed since is said."""
    record = answer.record
    harness = f"{answer.harness}/{answer.model}" if answer.model else answer.harness
    yield f"{clean(answer.id)}, attempt {answer.attempt}: {clean(harness)}"
    if not record:
        yield f"  {clean(harness)} reads no instructions: it gets the track's own text and nothing else."
        return
    context = record["context"]
    facts = [
        f"{name} {context[name]}"
        for name in ("phase", "project_id", "kind", "from_harness")
        if context.get(name)
    ]
    yield f"  {clean(', '.join(facts))}"
    if answer.at is not None:
        commit = clean((record["revision"] or "(none)")[:12])
        yield f"  told {clean(local(answer.at))}; md-db as in commit {commit}"
    else:
        yield "  not told yet: this is what a session that starts now would be told"
    told = [each for raw in record["told"] if (each := _told(raw)) is not None]
    missed = record["missed"]
    paths = [each.path for each in told] + [str(row.get("path", "")) for row in missed[:SHOWN]]
    width = min(WIDTH, max(map(len, paths), default=0))
    number = 0
    for part in PARTS:
        of_part = [each for each in told if each.part == part]
        if of_part:
            yield ""
            yield f"{_TITLES[part]}, in this order; what stands later takes precedence"
        for each in of_part:
            number += 1
            named = (
                "; the harness loads it itself, from a folder"
                if record.get("loads_skills") and each.part == "skill"
                else ""
                if each.inline
                else "; only named, with the path of its text"
            )
            yield f"  {number:2}  {clean(each.path):{width}}  {clean(each.reason)}{named}"
            if since := _since(each, now, answer):
                yield f"      {since}"
    if not told:
        yield "  nothing in md-db applies"
    if missed:
        yield ""
        yield "not told"
        for row in missed[:SHOWN]:
            yield f"      {clean(row.get('path', '')):{width}}  {clean(row.get('reason', ''))}"
        more = record["missed_count"] - SHOWN
        if more > 0:
            yield f"      … and {count(more, 'document')} more (--json lists those that come nearest)"
    for each in record["left_out"]:
        yield f"not placed: {clean(each)}"
    yield ""
    if answer.rebuilt:
        yield "Built again from that commit: the same text, byte for byte."
    elif answer.at is not None:
        yield f"Not the same when built again: {clean(answer.doubt)}"
    where = f"mh resolve {answer.id}" if answer.at is not None else "the same command without --explain"
    yield f"The text itself: {where}"


def _told(raw: object) -> Told | None:
    """None: nothing that the daemon wrote."""
    match raw:
        case {
            "path": str(path),
            "sha": str(sha),
            "part": part,
            "by": by,
            "why": [*why],
            "inline": bool(inline),
        } if part in PARTS and by in ("clauses", "legacy", "name"):
            return Told(
                path, sha, part, tuple(m for each in why if (m := _match(each)) is not None), by, inline
            )
    return None


def _match(raw: object) -> Match | None:
    match raw:
        case {"dimension": str(dimension), "value": str(value), "pattern": str(pattern), "how": how} if (
            how in ("exact", "glob", "exclusion")
        ):
            return Match(dimension, value, pattern, how)
    return None


def _since(told: Told, now: Mapping[str, Doc], answer: Answer) -> str:
    """What has become of a document since it was told."""
    if answer.at is None:
        return ""
    doc = now.get(told.path)
    revision = answer.record["revision"] or ""
    if doc is None:
        return f"gone since: mh mddb show {clean(told.path)} {clean(revision[:12])}"
    return (
        ""
        if doc.sha == told.sha
        else f"changed since: mh mddb diff {clean(told.path)} {clean(revision[:12])}"
    )
