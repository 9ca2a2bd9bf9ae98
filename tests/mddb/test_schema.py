from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.errors import Problem
from daemon.mddb import schema
from daemon.mddb.clauses import Clause, Clauses
from daemon.mddb.schema import Denial, Doc, kind_of, parse
from daemon.tracks import track as t

SHARED = Path(__file__).parents[2].parent / "shared"
INSTRUCTION = "instructions/x.md"
SKILL = "skills/x/SKILL.md"
SIDECAR = "sidecar/x.md"
PROJECT = "projects/shop.md"
POLICY = "instructions/router-policy.md"
TRANSLATION = "instructions/harness-translation-codex-claude-code.md"
ALL = (INSTRUCTION, SKILL, SIDECAR, PROJECT, POLICY, TRANSLATION)


def doc(front: str, path: str = INSTRUCTION, body: str = "Text.\n") -> Doc:
    found = parse(path, "sha", f"---\n{front}\n---\n{body}".encode())
    assert not found.problems, found.problems
    return found


def problems(front: str, path: str = INSTRUCTION) -> tuple[Problem, ...]:
    found = parse(path, "sha", f"---\n{front}\n---\nText.\n".encode())
    assert found.problems
    assert all(each.hint for each in found.problems)
    return found.problems


def problem(front: str, path: str = INSTRUCTION) -> Problem:
    found = problems(front, path)
    assert len(found) == 1, found
    return found[0]


# --- which files are documents


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("instructions/a.md", "instruction"),
        ("instructions/team/deep/a b.md", "instruction"),
        ("instructions/SKILL.md", "instruction"),
        ("instructions/team/router-policy.md", "instruction"),
        ("instructions/router-policy.md", "policy"),
        ("instructions/harness-translation-a-b.md", "translation"),
        ("instructions/team/harness-translation-a-b.md", "instruction"),
        ("skills/a.md", "skill"),
        ("skills/a/SKILL.md", "skill"),
        ("skills/pack/a/SKILL.md", "skill"),
        ("skills/a/skill.md", None),
        ("skills/a/notes.md", None),
        ("skills/SKILL.md", None),
        ("skills/README.md", None),
        ("projects/shop.md", "project"),
        ("projects/team/shop.md", None),
        ("projects/readme.md", None),
        ("sidecar/focus.md", "sidecar"),
        ("sidecar/deep/focus.md", None),
        ("instructions/README.md", None),
        ("instructions/team/Readme.md", None),
        ("instructions/.draft.md", None),
        ("instructions/.git/a.md", None),
        ("instructions/.#a.md", None),
        ("instructions/a.md~", None),
        ("instructions/a.md.swp", None),
        ("instructions/a.sync-conflict-20261202-101010-ABCDEFG.md", None),
        ("instructions/a.MD", None),
        ("instructions/a.mdc", None),
        ("instructions/a.txt", None),
        ("instructions", None),
        ("instructions.md", None),
        ("README.md", None),
        ("evals/2026-12.md", None),
        ("other/a.md", None),
    ],
)
def test_what_a_file_is(path: str, kind: str | None) -> None:
    assert kind_of(path) == kind


def test_the_name_and_the_folder_of_a_document() -> None:
    one, other = doc("", "skills/a/b/SKILL.md"), doc("", "skills/c.md")
    assert (one.name, one.folder) == ("b", "skills/a/b")
    assert (other.name, other.folder) == ("c", "")
    assert doc("", "instructions/team/SKILL.md").folder == ""
    assert doc("name: Other", "skills/c.md").name == "Other"
    assert doc("", PROJECT).name == "shop"
    assert doc("", TRANSLATION).pair == "codex-claude-code"


# --- keys


@pytest.mark.parametrize("path", ALL)
def test_what_all_of_them_may_have(path: str) -> None:
    front = "version: 1.10\ntitle: T\ndescription: |\n  two\n  lines\n" + "".join(
        f"{k}: [x]\n" for k in schema.NOTES
    )
    front += "imported:\n  from: CLAUDE.md\n  sha256: abc\n  frontmatter: |\n    a: b\n"
    found = doc(front + ("rule: focus" if path == SIDECAR else ""), path)
    assert found.description == "two lines"
    assert found.body == "Text.\n"
    assert found.sha == "sha"
    assert not found.has_clauses


@pytest.mark.parametrize(
    "data", [b"", b"Text", b"# T\n", b"---\n---\nText", b"\xef\xbb\xbf---\r\ntitle: x\r\n---\r\nText"]
)
@pytest.mark.parametrize("path", [path for path in ALL if path != SIDECAR])
def test_everything_is_optional(path: str, data: bytes) -> None:
    found = parse(path, "sha", data)
    assert not found.problems
    assert (found.clauses, found.order, found.overrides, found.globs) == (None, 0, (), ())


def test_an_instruction() -> None:
    found = doc(
        "applies_when: {harness_id: codex}\norder: -5\noverrides: [instructions/a.md, b, ./instructions/c.md]\n"
        'globs: ["**/*.ts"]'
    )
    assert found.clauses == Clauses((Clause("harness_id", ("codex",)),))
    assert found.has_clauses
    assert (found.order, found.globs) == (-5, ("**/*.ts",))
    assert found.overrides == ("instructions/a.md", "instructions/b.md", "instructions/c.md")
    assert found.line_of("applies_when") == 2
    assert found.line_of("applies_when.harness_id") == 2
    assert found.line_of("order") == 3
    assert found.line_of("nothing") is None


@pytest.mark.parametrize(
    ("text", "path", "means"),
    [
        ("instructions/a.md", INSTRUCTION, "instructions/a.md"),
        ("a", INSTRUCTION, "instructions/a.md"),
        ("a.md", INSTRUCTION, "instructions/a.md"),
        ("a", "instructions/team/x.md", "instructions/team/a.md"),
        ("md-db/instructions/a.md", INSTRUCTION, "instructions/a.md"),
        ("instructions//a.md", INSTRUCTION, "instructions/a.md"),
        ("instructions/./a", INSTRUCTION, "instructions/a.md"),
        ("skills/a/SKILL.md", INSTRUCTION, "skills/a/SKILL.md"),
        ("skills/a", INSTRUCTION, "skills/a.md"),
        ("b", "skills/a.md", "skills/b.md"),
    ],
)
def test_paths_of_overrides(text: str, path: str, means: str) -> None:
    assert doc(f"overrides: {text}", path).overrides == (means,)
    assert doc(f"overrides: [{text}, {text}]", path).overrides == (means,)


@pytest.mark.parametrize(
    ("text", "says"),
    [("x", "cannot override itself"), ("instructions/x.md", "cannot override itself"), ("../a.md", "no document"),
     ("instructions/../a.md", "no document"), ("/etc/a.md", "no document"), ("README", "no document"), ("notes/a", "no document")],
)  # fmt: skip
def test_overrides_that_cannot_be(text: str, says: str) -> None:
    found = problem(f"order: 1\noverrides: [{text}]")
    assert (found.line, found.field) == (3, "overrides")
    assert says in found.message


@pytest.mark.parametrize(
    ("text", "globs"),
    [("src/**", ("src/**",)), ('"**/*.ts, **/*.tsx"', ("**/*.ts", "**/*.tsx")), ('["*.{ts,tsx}"]', ("*.{ts,tsx}",)), ('"*.{ts, tsx}, a"', ("*.{ts, tsx}", "a")), ("", ()), ("[]", ())],
)  # fmt: skip
def test_globs(text: str, globs: tuple[str, ...]) -> None:
    assert doc(f"globs: {text}").globs == globs


@pytest.mark.parametrize("text", ["0", "10", "+5", "-5", "007"])
def test_order(text: str) -> None:
    assert doc(f"order: {text}").order == int(text)


@pytest.mark.parametrize("text", ["first", "1.5", "1e3", "9999999999", "0x1"])
def test_order_that_is_no_number(text: str) -> None:
    found = problem(f"title: x\norder: {text}")
    assert (found.line, found.field, found.value) == (3, "order", text)
    assert "whole number" in found.message
    assert "order: 10" in found.hint


@pytest.mark.parametrize(
    ("front", "path", "field", "says"),
    [
        ("applies-when: {kind: fix}", INSTRUCTION, "applies-when", "write `applies_when`"),
        ("applieswhen: {kind: fix}", INSTRUCTION, "applieswhen", "write `applies_when`"),
        ("orders: 1", INSTRUCTION, "orders", "write `order`"),
        ("override: a", INSTRUCTION, "override", "write `overrides`"),
        ("glob: a", INSTRUCTION, "glob", "write `globs`"),
        ("alwaysApply: true", INSTRUCTION, "alwaysApply", "take it out; keys here are applies_when, order"),
        ("harness_id: codex", INSTRUCTION, "harness_id", 'write `applies_when: {harness_id: "codex"}`'),
        ('model: "*opus"', INSTRUCTION, "model", 'write `applies_when: {model: "*opus"}`'),
        ("kind: [a, b]", INSTRUCTION, "kind", "write `applies_when: {kind: ...}`"),
        ("name: x", INSTRUCTION, "name", "take it out: it belongs to a skill"),
        ("rule: focus", INSTRUCTION, "rule", "it belongs to a sidecar rule"),
        ("deny: x", INSTRUCTION, "deny", "it belongs to the router's policy"),
        ("setup: x", INSTRUCTION, "setup", "it belongs to a project"),
        ("order: 1", PROJECT, "order", "it belongs to an instruction or a skill or a sidecar rule"),
        ("applies_when: {kind: x}", PROJECT, "applies_when", "take it out"),
        ("harness_id: x", PROJECT, "harness_id", "take it out; keys here are repository"),
        ("applies_when: {kind: x}", POLICY, "applies_when", "take it out"),
        ("applies_when: {kind: x}", TRANSLATION, "applies_when", "take it out"),
        ("globs: x", TRANSLATION, "globs", "take it out"),
        ("repo: x", PROJECT, "repo", "write `repository`"),
        ("done-when: x", PROJECT, "done-when", "write `done_when`"),
        ("denies: x", POLICY, "denies", "write `deny`"),
        ("applies_wen: {kind: x}", SKILL, "applies_wen", "write `applies_when`"),
        ("Order: 1", SKILL, "Order", "write `order`"),
        ("harness_id: codex", SKILL, "harness_id", 'write `applies_when: {harness_id: "codex"}`'),
        ("title: [a]", INSTRUCTION, None, ""),
        ("description: [a]", INSTRUCTION, "description", "write description: TEXT"),
        ("globs: [a, [b]]", INSTRUCTION, "globs[1]", "for example"),
        ("globs: {a: b}", INSTRUCTION, "globs", "for example"),
        ("setup: [a, '']", PROJECT, "setup[1]", "for example"),
        ("repository: [a]", PROJECT, "repository", "write repository: TEXT"),
        ("order: [1]", SKILL, "order", "write order: TEXT"),
        ("applies_when: {kind: [a, {not: []}], phase: lunch}", INSTRUCTION, "applies_when.phase", "phases are"),
    ],
)  # fmt: skip
def test_a_key_that_is_none(front: str, path: str, field: str | None, says: str) -> None:
    if field is None:
        assert not parse(path, "", f"---\n{front}\n---\n".encode()).problems
        return
    found = problem(f"version: 1\n{front}", path)
    assert (found.line, found.field) == (3, field)
    assert says in found.hint


FOREIGN = ("license: MIT\nallowed-tools: [Read]\nmetadata: {a: b}\ncompatibility: x\nmodel: opus\nactions: x\nmodels: [a]\n"
           "argument-hint: x\ndisable-model-invocation: true\nphase: x\nkind: y\nnames: z\nsetup: q")  # fmt: skip


def test_a_skill_keeps_the_keys_of_others() -> None:
    found = doc(f"name: commit\ndescription: How to commit.\n{FOREIGN}", SKILL)
    assert (found.name, found.description, found.clauses) == ("commit", "How to commit.", None)
    assert doc("name: [a]\ndescription: {a: b}", SKILL).name == "x"


def test_a_project() -> None:
    found = doc(
        "repository: ~/src/shop\nbase: main\nsetup: [make, 'echo a, b']\nscope: src/**\n"
        "done_when:\n  - run: make test\n  - it is documented",
        PROJECT,
    )
    assert (found.repository, found.base, found.setup, found.scope) == (
        "~/src/shop", "main", ("make", "echo a, b"), ("src/**",),
    )  # fmt: skip
    assert t.checks(found.done_when) == (t.Run("make test"), t.Prose("it is documented"))
    bad = problem("base: main\ndone_when:\n  - fine\n  - runs: x", PROJECT)
    assert (bad.line, bad.field) == (5, "done_when[1].runs")
    assert "write `run`" in bad.hint


@pytest.mark.parametrize("name", ["Shop", "a b", "-a", "überall"])
def test_a_project_is_found_by_an_id(name: str) -> None:
    found = parse(f"projects/{name}.md", "", b"Text")
    assert "cannot be a project's id" in found.problems[0].message


def test_a_policy() -> None:
    found = doc(
        "deny:\n  - {harness_id: claude-code, model_id: 'gpt-*', why: 'another\n    API'}\n"
        "  - kind: {not: fix}\n    why: costs",
        POLICY,
    )
    assert found.deny == (
        Denial(
            Clauses((Clause("harness_id", ("claude-code",)), Clause("model_id", ("gpt-*",)))),
            "another API",
            3,
        ),
        Denial(Clauses((Clause("kind", (), ("fix",)),)), "costs", 5),
    )
    assert len(doc("deny: {kind: fix, why: x}", POLICY).deny) == 1
    assert doc("deny:", POLICY).deny == ()


@pytest.mark.parametrize(
    ("rule", "field", "says"),
    [
        ("codex", "deny[1]", "is a mapping"),
        ("{kind: a}", "deny[1]", "says why"),
        ("{kind: a, why: }", "deny[1]", "says why"),
        ("{kind: a, why: [b]}", "deny[1]", "says why"),
        ("{why: because}", "deny[1]", "would deny everything"),
        ("{phase: spawn, why: b}", "deny[1]", "a phase cannot be denied"),
        ("{harnes_id: a, why: b}", "deny[1].harnes_id", "no dimension"),
        ("{kind: [], why: b}", "deny[1].kind", "has no value"),
    ],
)
def test_bad_rules_of_a_policy(rule: str, field: str, says: str) -> None:
    found = problem(f"deny:\n  - {{kind: x, why: y}}\n  - {rule}", POLICY)
    assert (found.line, found.field) == (4, field)
    assert says in found.message


def test_a_sidecar_rule() -> None:
    found = doc("rule: budget\naction: message\nat: 80%\napplies_when: {kind: fix}", SIDECAR)
    assert (found.rule, found.action, found.at) == ("budget", "message", "80%")
    assert found.clauses is not None
    assert doc("rule: focus", SIDECAR).action == "flag"


@pytest.mark.parametrize(
    ("front", "field", "says", "hint"),
    [
        ("rule: scop", "rule", "no rule `scop`", "write `rule: scope`"),
        ("rule: zebra", "rule", "no rule", "there are scope, commit, focus, budget"),
        ("rule: focus\naction: messages", "action", "no action", "write `action: message`"),
        ("rule: focus\naction: kill", "action", "no action", "there are flag, message, interrupt"),
        ("title: x", "rule", "says what it watches", "write rule: scope, commit, focus, budget"),
    ],
)
def test_bad_sidecar_rules(front: str, field: str, says: str, hint: str) -> None:
    found = problem(front, SIDECAR)
    assert found.field == field
    assert found.line is not None
    assert says in found.message
    assert hint in found.hint


def test_all_problems_come_at_once_in_the_order_of_lines_and_the_rest_is_read() -> None:
    data = (
        b"---\norder: first\nzebra: 1\noverrides: [x]\napplies_when: {kind: fix}\nglobs: [[a]]\n---\nText\n"
    )
    found = parse(INSTRUCTION, "sha", data)
    assert [each.line for each in found.problems] == [2, 3, 4, 6]
    assert found.clauses == Clauses((Clause("kind", ("fix",)),))
    assert found.body == "Text\n"
    broken = parse(INSTRUCTION, "sha", b"---\napplies_when: {kind: []}\n---\n")
    assert (broken.clauses, broken.has_clauses) == (None, True)


def test_a_file_that_cannot_be_read_is_a_document_with_the_place() -> None:
    for data, line, offset in (
        (b"---\na: *x\n---\n", 2, None),
        (b"---\na: b\n", 1, None),
        (b"ab\xff", None, 2),
    ):
        found = parse(SKILL, "sha", data)
        assert [(each.line, each.offset) for each in found.problems] == [(line, offset)]
        assert (found.name, found.folder, found.sha, found.kind) == ("x", "skills/x", "sha", "skill")


def test_case_35_a_bare_glob_is_never_silent() -> None:
    """Reported as: a leading * is an alias of YAML, and the rule never loads, without a word."""
    folder = SHARED / "cases" / "inputs"
    if not folder.exists():
        assert not os.environ.get("CI"), f"{folder} is missing"
        pytest.skip(f"{folder} is not here")
    data = (folder / "35_globs_star.mdc").read_bytes()
    (found,) = parse(INSTRUCTION, "sha", data).problems
    assert (found.line, found.field) == (3, "globs")
    assert found.hint == 'globs: "**/*.ts, **/*.tsx"'
    right = data.replace(b"globs: **/*.ts, **/*.tsx", found.hint.encode()).replace(
        b"alwaysApply: false\n", b""
    )
    assert parse(INSTRUCTION, "sha", right).globs == ("**/*.ts", "**/*.tsx")
    assert parse(INSTRUCTION, "sha", right).problems == ()


# --- anything

words = st.sampled_from([*{key for keys in schema.KEYS.values() for key in keys}, *schema.COMMON, "tags", "zebra", "not", "why",
                         "harness_id", "kind", "phase", "run"])  # fmt: skip
scalars = (
    st.none()
    | st.text(max_size=8)
    | st.sampled_from(["fix", "*", "!a", "codex/x", "retry", "../a", "5", "a, b"])
)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(words, trees, max_size=5), st.sampled_from(ALL))
def test_any_values_make_a_document_or_problems(meta: dict[str, object], path: str) -> None:
    from daemon.spool.frontmatter import Document

    kind = kind_of(path)
    assert kind is not None
    found = schema._Reading(path, "", kind, Document(meta, {(): 1}, "", 0, True, "\n", False)).doc()  # type: ignore[arg-type]
    assert all(each.message and each.hint and each.line == 1 for each in found.problems)
    if "applies_when" in meta and kind in ("instruction", "skill", "sidecar"):
        assert (found.clauses is None) <= bool(found.problems)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("apply_when", "applies_when"),
        ("when", "applies_when"),
        ("applyTo", "globs"),
        ("paths", "globs"),
        ("replaces", "overrides"),
    ],
)
def test_what_is_written_elsewhere_for_a_key_of_ours_is_no_reason_to_take_it_out(
    key: str, meant: str
) -> None:
    (problem,) = parse("instructions/a.md", "0", f"---\n{key}: x\n---\n".encode()).problems
    assert problem.hint == f"write `{meant}`"


def test_a_skill_that_is_described_by_a_slip_is_not_left_without_a_description() -> None:
    (problem,) = parse("skills/a.md", "0", b"---\ndescripton: x\n---\n").problems
    assert problem.hint == "write `description`"
    assert parse("skills/a.md", "0", b"---\ndescription: x\ndescriptor: y\n---\n").problems == ()


def test_an_exclusion_without_braces_of_its_own_is_told_how_to_write_it() -> None:
    (problem,) = parse("instructions/a.md", "0", b"---\napplies_when: {kind: not: docs}\n---\n").problems
    assert problem.hint == "applies_when: {kind: {not: docs}}"
    assert parse("instructions/a.md", "0", f"---\n{problem.hint}\n---\n".encode()).problems == ()
