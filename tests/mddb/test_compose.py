from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.errors import Problem
from daemon.mddb.clauses import like
from daemon.mddb.compose import compose, concerned
from daemon.mddb.resolver import NEAREST, Context, DatabaseFault, Instruction, Told
from daemon.mddb.schema import Doc, parse
from tests.mddb.databases import contexts, databases

HERE = Context("codex", "gpt-5", "shop", "fix", "spawn")


def doc(path: str, front: str = "", body: str = "") -> Doc:
    found = parse(path, f"sha of {path}", f"---\n{front}\n---\n{body or f'Text of {path}.'}\n".encode())
    assert not found.problems, found.problems
    return found


def paths(instruction: Instruction) -> list[str]:
    return [each.path for each in instruction.told]


# --- the order


def test_from_the_least_to_the_most_specific() -> None:
    docs = [
        doc("instructions/1-legacy-z.md"),
        doc("instructions/2-exclusion.md", "applies_when: {kind: {not: docs}}"),
        doc("instructions/3-two-exclusions.md", "applies_when: {kind: {not: docs}, phase: {not: swap}}"),
        doc("instructions/4-glob.md", 'applies_when: {kind: "f*"}'),
        doc("instructions/5-glob-and-exclusion.md", 'applies_when: {kind: "f*", phase: {not: swap}}'),
        doc("instructions/6-two-globs.md", 'applies_when: {kind: "f*", model_id: "gpt-*"}'),
        doc("instructions/7-exact.md", "applies_when: {kind: fix}\norder: 99"),
        doc("instructions/8-exact-and-exclusion.md", "applies_when: {kind: fix, phase: {not: swap}}"),
        doc("instructions/9-exact-and-glob.md", 'applies_when: {kind: fix, model_id: "gpt-*"}'),
        doc("instructions/a-two-exact.md", "applies_when: {kind: [fix, docs], model_id: gpt-5}\norder: -1"),
        doc("instructions/a-two-exact-a.md", "applies_when: {kind: [fix, docs], model_id: gpt-5}"),
        doc("instructions/a-two-exact-b.md", "applies_when: {kind: [fix, docs], model_id: gpt-5}"),
    ]
    first = doc("instructions/0-legacy-a.md", "order: -1")
    assert paths(compose([*reversed(docs), first], HERE)) == [first.path, *(each.path for each in docs)]


def test_a_pattern_that_is_the_value_is_exact_whatever_signs_it_has() -> None:
    context = replace(HERE, model_id="claude-opus-4[1m]")
    docs = [
        doc("instructions/a.md", 'applies_when: {model_id: "claude-opus-4[1m]"}'),
        doc("instructions/b.md", 'applies_when: {model_id: "claude-*"}'),
    ]
    assert paths(compose(docs, context)) == ["instructions/b.md", "instructions/a.md"]


def rank(doc: Doc, context: Context) -> tuple[object, ...]:
    """The place of a document that applies, by the words of the documentation."""
    exact = glob = exclusion = 0
    for clause in doc.clauses or ():
        value = getattr(context, clause.dimension)
        if value in clause.patterns:
            exact += 1
        elif clause.patterns:
            glob += 1
        else:
            exclusion += 1
    return (0 if doc.clauses is None else 1, exact, glob, exclusion, doc.order, doc.path)


def applies(doc: Doc, context: Context) -> bool:
    for clause in doc.clauses or ():
        value = getattr(context, clause.dimension)
        if clause.patterns and not any(like(p, value) for p in clause.patterns):
            return False
        if any(like(p, value) for p in clause.excluded):
            return False
    return True


@settings(deadline=None, max_examples=300)
@given(databases(), contexts)
def test_the_order_is_that_of_the_documentation(docs: list[Doc], context: Context) -> None:
    bare = [replace(each, overrides=()) for each in docs]
    told = paths(compose(bare, context))
    expected = sorted((each for each in bare if applies(each, context)), key=lambda d: rank(d, context))
    skills = [each.path for each in expected if each.kind == "skill"]
    assert told == [each.path for each in expected if each.kind == "instruction"] + skills


@settings(deadline=None, max_examples=200)
@given(databases(), contexts, st.randoms(use_true_random=False))
def test_whatever_the_order_of_the_documents_the_instruction_is_the_same(
    docs: list[Doc], context: Context, chance: random.Random
) -> None:
    mixed = list(docs)
    chance.shuffle(mixed)
    assert compose(mixed, context, "r") == compose(docs, context, "r")


@settings(deadline=None, max_examples=200)
@given(databases(), contexts)
def test_one_that_does_not_apply_changes_nothing_but_what_was_missed(
    docs: list[Doc], context: Context
) -> None:
    whole = compose(docs, context)
    there = [each for each in docs if applies(each, context)]
    less = compose(there, context)
    assert (less.told, less.sections, less.skills) == (whole.told, whole.sections, whole.skills)
    out = {each.path for each in docs if not applies(each, context)}
    assert [each for each in whole.missed if each.path not in out] == list(less.missed)
    assert {each.path for each in whole.missed} - {each.path for each in less.missed} == out


# --- overrides


def rings(docs: Iterable[Doc]) -> dict[str, set[str]]:
    """path -> everything that it overrides, also over others."""
    edges = {each.path: set(each.overrides) for each in docs}
    reached = {path: set(targets) for path, targets in edges.items()}
    for _ in edges:
        for targets in reached.values():
            targets |= {further for each in list(targets) for further in edges.get(each, ())}
    return reached


@settings(deadline=None, max_examples=500)
@given(databases(), contexts)
def test_every_document_is_told_or_missed_once_and_removed_by_one_that_is_told(
    docs: list[Doc], context: Context
) -> None:
    found = compose(docs, context)
    everything = [*paths(found), *(each.path for each in found.missed)]
    assert sorted(everything) == sorted(each.path for each in docs)
    by_path = {each.path: each for each in docs}
    there = [each for each in docs if applies(each, context)]
    known = {each.path for each in there}
    reached = rings([replace(each, overrides=tuple(set(each.overrides) & known)) for each in there])
    for missed in found.missed:
        if missed.overridden_by:
            assert missed.overridden_by in paths(found)
            assert missed.path in by_path[missed.overridden_by].overrides
            assert missed.reason == f"overridden by {missed.overridden_by}"
        else:
            assert missed.path not in known
            assert 0 <= missed.matched < missed.clauses
    for path in paths(found):
        for other in paths(found):
            if path in by_path[other].overrides:
                assert path in reached[path], "only a ring may leave both"
    # Of a ring that nothing else overrides, the most precedent one is told.
    for each in there:
        ring = {path for path in reached[each.path] if each.path in reached[path]}
        above = {path for path in known if ring & reached[path]}
        if ring and above <= ring:
            best = max(ring, key=lambda path: rank(by_path[path], context))
            assert best in paths(found)


def test_overrides() -> None:
    a, b = doc("instructions/a.md"), doc("instructions/b.md", "overrides: a")
    c = doc("instructions/c.md", "overrides: b\napplies_when: {kind: fix}")
    found = compose([a, b], HERE)
    assert (paths(found), found.missed[0].path, found.missed[0].overridden_by) == ([b.path], a.path, b.path)
    assert paths(compose([a, b, c], HERE)) == [a.path, c.path]
    assert paths(compose([a, b, c], replace(HERE, kind="docs"))) == [b.path]
    other = doc("skills/s.md", "overrides: [instructions/a.md, instructions/none.md]")
    assert paths(compose([a, other], HERE)) == [other.path]


def test_a_ring_is_cut_at_its_most_precedent_one() -> None:
    a = doc("instructions/a.md", "overrides: b")
    b = doc("instructions/b.md", "overrides: a\napplies_when: {kind: fix}")
    assert paths(compose([a, b], HERE)) == [b.path]
    assert paths(compose([a, b], replace(HERE, kind="docs"))) == [a.path]


def test_one_that_a_ring_overrides_is_not_told_beside_it() -> None:
    a, b = doc("instructions/a.md", "overrides: b"), doc("instructions/b.md", "overrides: [a, c]")
    c = doc("instructions/c.md", "applies_when: {kind: fix}")
    assert paths(compose([a, b, c], HERE)) == [b.path]


# --- what is in it


def test_the_sections() -> None:
    docs = [
        doc("instructions/a.md", "", "\n\n  A\n\n"),
        doc("instructions/b.md", 'globs: ["*.py", "*.pyi"]', "B"),
        doc("instructions/empty.md", "globs: x", " \n "),
        doc("projects/shop.md", "repository: ~/shop", "The shop."),
        doc("projects/other.md", "", "Another."),
        doc("instructions/harness-translation-claude-code-codex.md", "", "Read instead of View."),
        doc("instructions/harness-translation-codex-claude-code.md", "", "The other way."),
        doc("instructions/router-policy.md", "deny: {kind: x, why: y}", "Policy."),
        doc("sidecar/s.md", "rule: focus", "Sidecar."),
        doc("skills/one.md", "name: First\ndescription: d", "S1"),
        doc("skills/two/SKILL.md", "applies_when: {kind: fix}", "S2"),
    ]
    found = compose(docs, HERE, "abc")
    assert found.revision == "abc"
    assert found.text("instruction") == "  A\n\nFor files that match `*.py`, `*.pyi`:\n\nB"
    assert (found.text("project"), found.text("translation")) == ("The shop.", "")
    assert [(s.name, s.description, s.path, s.folder, s.text, s.inline) for s in found.skills] == [
        ("First", "d", "skills/one.md", "", "S1", False),
        ("two", "", "skills/two/SKILL.md", "skills/two", "S2", True),
    ]
    assert paths(found) == [
        "instructions/a.md", "instructions/b.md", "instructions/empty.md", "projects/shop.md", "skills/one.md",
        "skills/two/SKILL.md",
    ]  # fmt: skip
    swapped = compose(docs, replace(HERE, phase="swap", from_harness="claude-code"))
    assert swapped.text("translation") == "Read instead of View."
    assert [each.part for each in swapped.told] == ["instruction"] * 3 + [
        "translation",
        "project",
        "skill",
        "skill",
    ]
    assert (
        compose(docs, replace(HERE, project_id="", phase="resume", from_harness="claude-code")).text(
            "project"
        )
        == ""
    )


@pytest.mark.parametrize(
    ("clause", "inline"),
    [
        ("", False),
        ("applies_when: {project_id: shop}", False),
        ("applies_when: {harness_id: codex, model_id: '*'}", False),
        ("applies_when: {phase: {not: review}}", False),
        ("applies_when: {project_id: shop, kind: {not: docs}}", False),
        ("applies_when: {project_id: shop, kind: fix}", True),
        ("applies_when: {kind: 'f*'}", True),
        ("applies_when: {phase: spawn}", True),
    ],
)
def test_a_skill_is_written_out_when_it_is_for_this_kind_of_work_or_this_phase(
    clause: str, inline: bool
) -> None:
    found = compose([doc("skills/s.md", clause, "Text")], HERE)
    assert [each.inline for each in found.skills] == [inline]
    assert [each.inline for each in found.told] == [inline]


def test_every_told_document_says_why() -> None:
    docs = [
        doc("instructions/a.md"),
        doc("instructions/b.md", 'applies_when: {harness_id: codex, model_id: "gpt-*", kind: {not: docs}}'),
        doc("projects/shop.md"),
        doc("instructions/harness-translation-claude-code-codex.md"),
        doc("skills/s.md"),
    ]
    found = compose(docs, replace(HERE, phase="swap", from_harness="claude-code"))
    assert [(each.path, each.by, each.inline, each.reason) for each in found.told] == [
        ("instructions/a.md", "legacy", True, "always: it has no clauses"),
        ("instructions/b.md", "clauses", True, "harness_id is codex; model_id gpt-5 is like gpt-*; kind fix is not excluded by docs"),
        ("instructions/harness-translation-claude-code-codex.md", "name", True, "the track goes over between these two harnesses"),
        ("projects/shop.md", "name", True, "the track is of this project"),
        ("skills/s.md", "legacy", False, "always: it has no clauses"),
    ]  # fmt: skip
    assert Told("x", "", "skill", by="name").reason == "found by its name"


def test_what_comes_nearest_is_the_first_of_the_missed() -> None:
    docs = [
        doc("instructions/far.md", "applies_when: {harness_id: a, model_id: b, kind: c}"),
        doc("instructions/near.md", "applies_when: {harness_id: codex, model_id: b}"),
        doc("instructions/gone.md"),
        doc("instructions/by.md", "overrides: gone"),
    ]
    assert [(each.path, each.matched, each.clauses) for each in compose(docs, HERE).missed] == [
        ("instructions/gone.md", 0, 0), ("instructions/near.md", 1, 2), ("instructions/far.md", 0, 3),
    ]  # fmt: skip


# --- faults

FAULT = Problem("cannot be read", 3, hint="mend it")


def faulty(path: str, front: str = "") -> Doc:
    return replace(doc(path, front), problems=(FAULT,))


@pytest.mark.parametrize(
    ("path", "front", "context", "concerns"),
    [
        ("instructions/a.md", "", HERE, True),
        ("instructions/a.md", "applies_when: {kind: fix}", HERE, True),
        ("instructions/a.md", "applies_when: {kind: docs}", HERE, False),
        ("projects/shop.md", "", HERE, True),
        ("projects/other.md", "", HERE, False),
        (
            "instructions/harness-translation-a-codex.md",
            "",
            replace(HERE, phase="swap", from_harness="a"),
            True,
        ),
        ("instructions/harness-translation-a-codex.md", "", HERE, False),
        ("instructions/router-policy.md", "", HERE, False),
        ("sidecar/s.md", "rule: focus", HERE, False),
    ],
)
def test_nothing_is_told_by_halves(path: str, front: str, context: Context, concerns: bool) -> None:
    bad = faulty(path, front)
    assert concerned(bad, context) == concerns
    if not concerns:
        assert path not in paths(compose([bad], context))
        return
    with pytest.raises(DatabaseFault) as caught:
        compose([bad, doc("instructions/fine.md")], context)
    assert caught.value.faults == {path: (FAULT,)}
    assert str(caught.value) == f"md-db/{path}: line 3: cannot be read (mend it)"
    assert caught.value.hint


def test_one_whose_clauses_are_unreadable_may_concern_anybody() -> None:
    for data in (b"---\napplies_when: {kind: []}\n---\n", b"---\nkind: *x\n---\n"):
        bad = parse("instructions/a.md", "", data)
        assert concerned(bad, HERE)
        with pytest.raises(DatabaseFault):
            compose([bad], HERE)


def test_one_that_another_removes_is_no_fault() -> None:
    bad = faulty("instructions/a.md")
    assert paths(compose([bad, doc("instructions/b.md", "overrides: a")], HERE)) == ["instructions/b.md"]


def test_all_faults_come_at_once() -> None:
    with pytest.raises(DatabaseFault) as caught:
        compose([faulty("instructions/a.md"), faulty("instructions/b.md"), faulty("projects/shop.md")], HERE)
    assert len(caught.value.faults) == 3
    assert len(str(caught.value).splitlines()) == 3


def test_a_skill_that_cannot_be_read_is_missed_and_removes_nothing() -> None:
    bad = faulty("skills/s.md", "overrides: instructions/a.md")
    found = compose([bad, doc("instructions/a.md")], HERE)
    assert paths(found) == ["instructions/a.md"]
    assert found.missed[0].reason == "cannot be read: line 3: cannot be read (mend it)"
    elsewhere = compose([faulty("skills/s.md", "applies_when: {kind: docs}")], HERE)
    assert elsewhere.missed[0].reason == "kind is fix, not docs"


# --- the record


@settings(deadline=None, max_examples=100)
@given(databases(), contexts)
def test_the_record_is_json_and_complete(docs: list[Doc], context: Context) -> None:
    found = compose(docs, context, "abc")
    record = found.record()
    assert json.loads(json.dumps(record)) == record
    assert Context(**record["context"]) == context
    assert record["revision"] == "abc"
    assert record["missed_count"] == len(found.missed)
    for told, row in zip(found.told, record["told"], strict=True):
        assert (row["path"], row["sha"], row["part"], row["by"], row["inline"]) == (
            told.path, told.sha, told.part, told.by, told.inline,
        )  # fmt: skip
        assert [(m["dimension"], m["value"], m["pattern"], m["how"]) for m in row["why"]] == [
            (m.dimension, m.value, m.pattern, m.how) for m in told.why
        ]
    for missed, row in zip(found.missed, record["missed"], strict=True):
        empty = {"matched": 0, "clauses": 0, "overridden_by": ""}
        assert {**empty, **row} == {name: getattr(missed, name) for name in missed.__slots__}


def test_the_record_has_the_nearest_of_the_missed() -> None:
    docs = [doc(f"instructions/{n}.md", "applies_when: {kind: docs}") for n in range(NEAREST + 10)]
    record = compose(docs, HERE).record()
    assert (len(record["missed"]), record["missed_count"]) == (NEAREST, NEAREST + 10)


def test_many_overrides_cost_what_they_have_edges() -> None:
    pairs = [
        doc(f"instructions/{n:04}{x}.md", f"overrides: {n:04}{y}.md")
        for n in range(750)
        for x, y in ("ab", "ba")
    ]
    found = compose(pairs, HERE)
    assert paths(found) == [f"instructions/{n:04}b.md" for n in range(750)]
    ring = [doc(f"instructions/{n:04}.md", f"overrides: {(n + 1) % 3000:04}.md") for n in range(3000)]
    assert len(compose(ring, HERE).told) == 1500
