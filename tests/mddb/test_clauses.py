from __future__ import annotations

import fnmatch
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.errors import DocumentError
from daemon.mddb import clauses as c
from daemon.mddb.clauses import Clause, Clauses
from daemon.mddb.overlap import apart, follows
from daemon.mddb.resolver import PHASES, Context, Match
from daemon.spool import frontmatter
from daemon.spool.frontmatter import Path, Value

Told = tuple[str, str, str, Value]


def read(front: str) -> tuple[Clauses | None, list[Told]]:
    """What `applies_when` of this frontmatter means, and what was said of it: (field, message, hint, value)."""
    document = frontmatter.read(f"---\n{front}\n---\n".encode())
    told: list[Told] = []

    def bad(path: Path, message: str, hint: str, value: Value) -> None:
        assert document.line_of(*path) is not None
        told.append((".".join(map(str, path)), message, hint, value))

    return c.read(document.meta["applies_when"], ("applies_when",), bad), told


def good(front: str) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    found, told = read(front)
    assert not told
    assert found is not None
    return {each.dimension: (each.patterns, each.excluded) for each in found}


def faults(front: str) -> list[Told]:
    found, told = read(front)
    assert found is None
    assert told
    return told


# --- what may be written


@pytest.mark.parametrize(
    ("value", "patterns", "excluded"),
    [
        ("codex", ["codex"], []),
        ("[codex, claude-code]", ["codex", "claude-code"], []),
        ("\n    - codex\n    - claude-code", ["codex", "claude-code"], []),
        ('"co*"', ["co*"], []),
        ("co*", ["co*"], []),
        ('"*"', ["*"], []),
        ('"!codex"', [], ["codex"]),
        ('"! codex"', [], ["codex"]),
        ("not:codex", [], ["codex"]),
        ('"not: codex"', [], ["codex"]),
        ("{not: codex}", [], ["codex"]),
        ("{not: [codex, hermes]}", [], ["codex", "hermes"]),
        ("\n    not: codex", [], ["codex"]),
        ("\n    - not: codex\n    - c*", ["c*"], ["codex"]),
        ('["c*", "!codex", not:cursor, {not: copilot}]', ["c*"], ["codex", "cursor", "copilot"]),
        ("\n    - not: [codex, hermes]", [], ["codex", "hermes"]),
        ("[codex, codex]", ["codex"], []),
        ("knot", ["knot"], []),
        ("notes", ["notes"], []),
    ],
)
def test_every_form_of_a_value(value: str, patterns: list[str], excluded: list[str]) -> None:
    assert good(f"applies_when:\n  harness_id: {value}") == {"harness_id": (tuple(patterns), tuple(excluded))}


def test_spellings_and_the_order_of_dimensions() -> None:
    got = good("applies_when: {phase: retry, project: shop, model: opus, kind: fix, harness: codex}")
    assert list(got) == ["harness_id", "model_id", "project_id", "kind", "phase"]
    assert got == good(
        "applies_when: {harness_id: codex, model_id: opus, project_id: shop, kind: fix, phase: retry}"
    )


@pytest.mark.parametrize(
    ("front", "field", "says", "hint"),
    [
        ("applies_when:", "applies_when", "holds no clause", "a document without it is told always"),
        ("applies_when: {}", "applies_when", "holds no clause", "for example"),
        ("applies_when: []", "applies_when", "holds no clause", "for example"),
        ('applies_when: ""', "applies_when", "holds no clause", "for example"),
        ("applies_when: codex", "applies_when", "is a mapping of dimensions", "harness_id: claude-code"),
        ("applies_when: [{kind: x}]", "applies_when", "is a mapping of dimensions", "for example"),
        ("applies_when: {knid: x}", "applies_when.knid", "no dimension `knid`", "write `kind`"),
        ("applies_when: {Harness: x}", "applies_when.Harness", "no dimension", "write `harness`"),
        ("applies_when: {zebra: x}", "applies_when.zebra", "no dimension", "harness_id, model_id, project_id, kind, phase"),
        ("applies_when: {harness: a, harness_id: b}", "applies_when.harness_id", "twice, in two spellings", "keep one"),
        ("applies_when: {kind: }", "applies_when.kind", "`kind` has no value", "for example `kind: [fix, docs]`"),
        ("applies_when: {kind: []}", "applies_when.kind", "`kind` has no value", "take it out"),
        ("applies_when: {kind: ''}", "applies_when.kind", "is one text", "for example"),
        ("applies_when:\n  kind:\n    - fix\n    -", "applies_when.kind.1", "is one text", "for example"),
        ("applies_when: {kind: [fix, [docs]]}", "applies_when.kind.1", "is one text", "for example"),
        ("applies_when: {kind: {any: x}}", "applies_when.kind", "`any` means nothing", "to exclude: `kind: {not: X}`"),
        ("applies_when: {kind: {not: x, any: y}}", "applies_when.kind", "`any` means nothing", "{not: X}"),
        ("applies_when: {kind: not docs}", "applies_when.kind", "excludes nothing", "write kind: {not: \"docs\"}"),
        ("applies_when: {kind: {not: }}", "applies_when.kind.not", "is one text", "for example"),
        ("applies_when: {kind: [fix, {not: }]}", "applies_when.kind.1.not", "is one text", "for example"),
        ("applies_when: {kind: {not: []}}", "applies_when.kind", "has no value", "for example"),
        ("applies_when: {kind: {not: {not: x}}}", "applies_when.kind.not.not", "is one text", "for example"),
        ('applies_when: {kind: {not: "!x"}}', "applies_when.kind.not", "is one text", "for example"),
        ('applies_when: {kind: "!"}', "applies_when.kind", "is one text", "for example"),
        ("applies_when: {model_id: [{}]}", "applies_when.model_id.0", "is one text", 'for example `model_id: "gpt-5*"`'),
        ('applies_when: {kind: "fix, docs"}', "applies_when.kind", "several values", 'write kind: ["fix", "docs"]'),
        ('applies_when: {kind: "fix,docs"}', "applies_when.kind", "several values", 'write kind: ["fix", "docs"]'),
        ('applies_when: {kind: "[fix, docs]"}', "applies_when.kind", "several values", 'write kind: ["fix", "docs"]'),
        ('applies_when: {kind: "!fix, docs"}', "applies_when.kind", "several values", 'write kind: {not: ["fix", "docs"]}'),
        ("applies_when: {harness_id: codex/gpt-5}", "applies_when.harness_id", "a harness and a model", 'harness_id: "codex" and model_id: "gpt-5"'),
        ('applies_when: {harness_id: "!codex/a"}', "applies_when.harness_id", "in one exclusion", 'model_id: {not: "a"}'),
        ("applies_when: {phase: retyr}", "applies_when.phase", "no phase 'retyr'", "write `retry`"),
        ('applies_when: {phase: "!retyr"}', "applies_when.phase", "no phase 'retyr'", 'write `"!retry"`'),
        ("applies_when: {phase: {not: retyr}}", "applies_when.phase.not", "no phase 'retyr'", "write `retry`"),
        ("applies_when: {phase: lunch}", "applies_when.phase", "no phase", "spawn, resume, retry, swap, review"),
        ('applies_when: {phase: "x*"}', "applies_when.phase", "no phase", "phases are"),
    ],
)  # fmt: skip
def test_every_fault_names_its_place_and_what_would_be_right(
    front: str, field: str, says: str, hint: str
) -> None:
    (told,) = faults(front)
    assert told[0] == field
    assert says in told[1]
    assert hint in told[2]


def test_all_faults_come_at_once() -> None:
    told = faults("applies_when:\n  knid: x\n  phase: lunch\n  harness_id: a/b\n  kind: fix")
    assert [each[0] for each in told] == [
        "applies_when.knid",
        "applies_when.phase",
        "applies_when.harness_id",
    ]


def test_a_hint_for_several_values_means_what_was_written() -> None:
    (told,) = faults('applies_when:\n  kind: "!fix, docs"')
    assert good(f"applies_when:\n  {told[2].removeprefix('write ')}") == {"kind": ((), ("fix", "docs"))}


# --- what was written without quotes

#: (where it stands, with % for the value; what it should mean)
PLACES = [
    ("applies_when:\n  {d}: %", 1),
    ("applies_when:\n  {d}: %  # why", 1),
    ("applies_when:\n  {d}:\n    - %", 1),
    ("applies_when:\n  {d}:\n    - plain\n    - %", 2),
    ("applies_when:\n  {d}:\n  - %\n  - plain", 2),
    ("applies_when:\n  {d}: [%]", 1),
    ("applies_when:\n  {d}: [plain, %]", 2),
    ("applies_when:\n  {d}: [%, plain]", 2),
    ("applies_when:\n  {d}: [ % , plain ]", 2),
    ("applies_when: {{{d}: %}}", 1),
    ("applies_when: {{ {d}: % }}", 1),
    ("applies_when: {{{d}: %, phase: retry}}", 1),
    ("applies_when: {{phase: retry, {d}: %}}", 1),
    ("applies_when: {{{d}: [plain, %]}}", 2),
    ("applies_when: {{{d}: [%, plain], phase: retry}}", 2),
    ("applies_when:\n  {d}:\n    not: %", 1),
    ("applies_when:\n  {d}:\n    - not: %", 1),
    ("applies_when:\n  {d}:\n    - plain\n    - not: [%, other]", 3),
    ("applies_when:\n  {d}: {{not: %}}", 1),
    ("applies_when:\n  {d}: {{not: [%]}}", 1),
    ("applies_when: {{{d}: {{not: %}}}}", 1),
    ("applies_when: {{{d}: {{not: [%, other]}}}}", 2),
]  # fmt: skip
SIGNED = ["*", "**", "*opus*", "*-mini", "!codex", "!gpt-*", "*/opus", "%d", "&x", "@x", "`x`"]


@pytest.mark.parametrize("value", SIGNED)
@pytest.mark.parametrize(("place", "values"), PLACES)
def test_without_quotes_it_means_what_it_says_or_the_hint_does(place: str, values: int, value: str) -> None:
    text = place.format(d="model_id").replace("%", value, 1) if value != "%d" else ""
    text = text or place.format(d="model_id").replace("%", "%d", 1)
    if "not: " in text and value.startswith("!"):
        return  # excluded twice: no meaning of its own
    for _ in range(4):  # one line may hold several of them
        try:
            found = good(text)
        except DocumentError as error:
            text = _in_place(text, error)
            continue
        break
    assert list(found["model_id"]) == _meant(place, value)
    assert sum(map(len, found["model_id"])) == values


@pytest.mark.parametrize(("place", "values"), PLACES)
def test_brackets_that_begin_a_glob_are_never_silent(place: str, values: int) -> None:
    """YAML reads a list there: what was meant is in the hint where it stands alone on its line."""
    text = place.format(d="model_id").replace("%", "[gc]pt-*", 1)
    with pytest.raises(DocumentError) as caught:
        frontmatter.read(f"---\n{text}\n---\n".encode())
    assert "brackets" in caught.value.problems[0].message
    if text.rstrip().endswith((": [gc]pt-*", "- [gc]pt-*")):
        assert caught.value.problems[0].hint.endswith('"[gc]pt-*"')


def _in_place(text: str, error: DocumentError) -> str:
    """The text with the hint of its first fault put where that stands."""
    problem = error.problems[0]
    assert problem.line is not None
    assert "quotes" in problem.message or "brackets" in problem.message
    lines = text.split("\n")
    at = problem.line - 2
    old = lines[at]
    lead = old[: len(old) - len(old.lstrip())]
    lines[at] = lead + problem.hint
    assert lines[at] != old
    return "\n".join(lines)


def _meant(place: str, value: str) -> list[tuple[str, ...]]:
    quoted = place.format(d="model_id").replace("%", f"'{value}'", 1)
    found = good(quoted)["model_id"]
    return [found[0], found[1]]


# --- what matches

TEXT = st.text("ab*?[]!-", max_size=6)
PATTERN = st.text("ab*?[]!-", min_size=1, max_size=5)


@given(PATTERN, TEXT)
def test_like_is_the_literal_or_the_glob(pattern: str, value: str) -> None:
    assert c.like(pattern, value) == (pattern == value or fnmatch.fnmatchcase(value, pattern))


def test_like() -> None:
    assert c.like("claude-opus-4[1m]", "claude-opus-4[1m]")
    assert c.like("*", "")
    assert c.like("anthropic/*", "anthropic/a/b")
    assert c.like("*", "a\nb")
    assert not c.like("Codex", "codex")
    assert not c.like("C*", "codex")
    assert not c.like("?*", "")


@given(st.lists(PATTERN, max_size=3), st.lists(PATTERN, max_size=3), TEXT)
def test_a_clause_matches_as_the_rule_says(patterns: list[str], excluded: list[str], value: str) -> None:
    clause = Clause("model_id", tuple(patterns), tuple(excluded))
    held = clause.match(value)
    asked = not patterns or any(c.like(p, value) for p in patterns)
    assert (held is not None) == (asked and not any(c.like(p, value) for p in excluded))
    if held is None:
        assert Clauses((clause,)).weigh(Context("", value))[1]
    elif not patterns:
        assert held == Match("model_id", value, ", ".join(excluded), "exclusion")
    else:
        assert held.how == ("exact" if value in patterns else "glob")
        assert held.pattern in patterns
        assert c.like(held.pattern, value)


@pytest.mark.parametrize(
    ("patterns", "excluded", "matches"),
    [(["*"], [], True), (["a"], [], False), (["a*"], [], False), ([], ["a"], True), ([], ["a*"], True), ([], ["*"], False)],
)  # fmt: skip
def test_what_is_unknown_is_matched_by_a_star_and_by_exclusions_alone(
    patterns: list[str], excluded: list[str], matches: bool
) -> None:
    assert (Clause("kind", tuple(patterns), tuple(excluded)).match("") is not None) == matches


def test_why_it_does_not_apply() -> None:
    found, _ = read('applies_when: {harness_id: [codex, "g*"], kind: {not: fix}, phase: retry}')
    assert found is not None
    why, failures = found.weigh(Context("claude-code", kind="fix", phase="retry"))
    assert why == (Match("phase", "retry", "retry", "exact"),)
    assert failures == ("harness_id is claude-code, not codex or g*", "kind fix is excluded by fix")
    assert found.match(Context("claude-code", phase="retry")) is None
    assert found.match(Context("gemini", kind="docs", phase="retry")) == (
        Match("harness_id", "gemini", "g*", "glob"),
        Match("kind", "docs", "fix", "exclusion"),
        Match("phase", "retry", "retry", "exact"),
    )
    assert c.specificity(found.match(Context("codex", phase="retry")) or ()) == (2, 0, 1)
    assert str(found) == "harness_id: codex, g*; kind: not fix; phase: retry"


@pytest.mark.parametrize(
    ("patterns", "excluded", "says"),
    [
        ([], ["*"], "excludes everything"),
        (["a"], ["**"], "excludes everything"),
        (["codex"], ["codex"], "excludes all that it asks for: codex"),
        (["codex", "cursor"], ["c*"], "excludes all that it asks for"),
        (["gpt-5*"], ["gpt-*"], "excludes all that it asks for"),
        (["gpt-[45]"], ["gpt-*"], "excludes all that it asks for"),
        (["gpt-*"], ["gpt-5*"], None),
        (["a*"], ["a?"], None),
        (["[ab]*"], ["[[]ab]*"], None),
        (["codex", "cursor"], ["codex"], None),
        ([], ["codex"], None),
    ],
)  # fmt: skip
def test_never(patterns: list[str], excluded: list[str], says: str | None) -> None:
    found = Clause("model_id", tuple(patterns), tuple(excluded)).never
    assert (found is None) == (says is None)
    assert says is None or says in str(found)


SMALL = ["".join(each) for n in range(5) for each in product("ab-[*", repeat=n)]
some = st.builds(
    Clause,
    st.just("model_id"),
    st.lists(PATTERN, max_size=2).map(tuple),
    st.lists(PATTERN, max_size=2).map(tuple),
)


@settings(deadline=None)
@given(some)
def test_what_never_matches_matches_nothing(clause: Clause) -> None:
    if clause.never is not None:
        assert not [value for value in SMALL if clause.match(value) is not None]


@settings(deadline=None, max_examples=300)
@given(some, some)
def test_what_is_said_of_two_clauses_holds_for_every_value(one: Clause, other: Clause) -> None:
    a, b = Clauses((one,)), Clauses((other,))
    both = [value for value in SMALL if one.match(value) is not None and other.match(value) is not None]
    if apart(a, b):
        assert not both
    assert apart(a, b) == apart(b, a)
    if follows(a, b):
        assert [value for value in SMALL if other.match(value) is not None] == both


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.sampled_from([*PHASES, "re*", "*"]), max_size=2),
    st.lists(st.sampled_from([*PHASES, "s*"]), max_size=2),
    st.lists(st.sampled_from([*PHASES, "re*", "*"]), max_size=2),
)
def test_of_phases_all_are_known(asked: list[str], barred: list[str], other: list[str]) -> None:
    a, b = Clause("phase", tuple(asked), tuple(barred)), Clause("phase", tuple(other))
    met = [{phase for phase in PHASES if each.match(phase) is not None} for each in (a, b)]
    if a.never is None:
        assert apart(Clauses((a,)), Clauses((b,))) == (not met[0] & met[1])
    assert follows(Clauses((a,)), Clauses((b,))) == (met[1] <= met[0])


def clauses(front: str) -> Clauses:
    found, told = read(f"applies_when: {front}")
    assert not told
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("{harness_id: codex}", "{harness_id: cursor}", True),
        ("{harness_id: codex}", '{harness_id: "cl*"}', True),
        ('{harness_id: "co*"}', '{harness_id: "cl*"}', True),
        ('{model_id: "*-mini"}', '{model_id: "*-max"}', True),
        ('{model_id: "gpt-*"}', '{model_id: "*-max"}', False),
        ("{harness_id: codex}", "{harness_id: {not: codex}}", True),
        ('{harness_id: "codex*"}', '{harness_id: "!c*"}', True),
        ("{harness_id: codex}", "{kind: fix}", False),
        ("{phase: retry}", "{phase: spawn}", True),
        ('{phase: "re*"}', "{phase: {not: spawn}}", False),
        ("{kind: fix}", "{kind: [docs, fix]}", False),
        ("{kind: fix, harness_id: codex}", "{kind: fix, harness_id: cursor}", True),
    ],
)  # fmt: skip
def test_apart(one: str, other: str, expected: bool) -> None:
    assert apart(clauses(one), clauses(other)) == expected
    assert not apart(clauses(one), None)
    assert not apart(None, None)


@pytest.mark.parametrize(
    ("what", "given_", "expected"),
    [
        ("{harness_id: codex}", "{harness_id: codex, kind: fix}", True),
        ("{harness_id: codex, kind: fix}", "{harness_id: codex}", False),
        ('{harness_id: "c*"}', "{harness_id: [codex, cursor]}", True),
        ("{harness_id: [codex, cursor]}", "{harness_id: codex}", True),
        ('{model_id: "gpt-*"}', '{model_id: "gpt-5*"}', True),
        ("{kind: {not: fix}}", "{kind: docs}", True),
        ("{kind: {not: fix}}", "{kind: {not: [fix, docs]}}", True),
        ("{kind: {not: [fix, docs]}}", "{kind: {not: fix}}", False),
        ('{kind: "*"}', "{harness_id: codex}", True),
        ("{kind: {not: fix}}", "{harness_id: codex}", False),
        ("{phase: [spawn, resume, retry, swap, review]}", "{kind: fix}", True),
        ("{phase: {not: swap}}", '{phase: "re*"}', True),
    ],
)  # fmt: skip
def test_follows(what: str, given_: str, expected: bool) -> None:
    assert follows(clauses(what), clauses(given_)) == expected
    assert follows(None, clauses(given_))
