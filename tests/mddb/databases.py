"""Small databases of any sort, in which many documents apply and override each other."""

from __future__ import annotations

from hypothesis import strategies as st

from daemon.mddb.clauses import Clause, Clauses
from daemon.mddb.resolver import PHASES, Context
from daemon.mddb.schema import Doc, Kind, kind_of

VALUES = {
    "harness_id": ["codex", "cursor", "co*", "c*", "*"],
    "model_id": ["gpt-5", "gpt-*", "*"],
    "project_id": ["shop", "s*"],
    "kind": ["fix", "docs", "f*"],
    "phase": ["spawn", "retry", "re*"],
}
KINDS = ("instructions/{}.md", "skills/{}.md", "skills/{}/SKILL.md")


def a_clause(dimension: str) -> st.SearchStrategy[Clause]:
    some = st.lists(st.sampled_from(VALUES[dimension]), max_size=2, unique=True).map(tuple)
    return st.builds(Clause, st.just(dimension), some, some).filter(lambda c: bool(c.patterns or c.excluded))


some_clauses = st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3, unique=True).flatmap(
    lambda names: st.tuples(*map(a_clause, names)).map(Clauses)
)
contexts = st.builds(
    Context,
    st.sampled_from(["codex", "cursor", "hermes"]),
    st.sampled_from(["", "gpt-5", "gpt-6"]),
    st.sampled_from(["", "shop"]),
    st.sampled_from(["", "fix", "docs"]),
    st.sampled_from(PHASES),
)


@st.composite
def databases(draw: st.DrawFn) -> list[Doc]:
    names = draw(st.lists(st.sampled_from("abcdefgh"), max_size=7, unique=True))
    where = [draw(st.sampled_from(KINDS)).format(name) for name in names]
    found = []
    for path in where:
        kind: Kind | None = kind_of(path)
        assert kind is not None
        clauses = draw(st.none() | some_clauses)
        overrides = tuple(draw(st.lists(st.sampled_from(where), max_size=3, unique=True)))
        found.append(
            Doc(
                path, f"sha-{path}", kind, body=draw(st.sampled_from(["", "Text.\n"])), clauses=clauses,
                has_clauses=clauses is not None, order=draw(st.sampled_from([-1, 0, 0, 5])),
                overrides=tuple(each for each in overrides if each != path),
            )
        )  # fmt: skip
    return found
