from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings

from daemon.durable import Files
from daemon.mddb.checkup import FIELD, Finding, counted, examine
from daemon.mddb.compose import compose
from daemon.mddb.library import Library, Unrecorded
from daemon.mddb.resolver import PHASES, Context
from daemon.mddb.schema import Doc, parse
from tests.mddb.databases import databases

ASKS = "instructions/0-asking.md"


def docs(**files: str) -> dict[str, Doc]:
    """Documents from their texts; `__` is a slash. One that tells how to ask is among them."""
    texts = {f"{path.replace('__', '/')}.md": text for path, text in files.items()}
    texts[ASKS] = "End with BLOCKED: and your question."
    return {path: parse(path, "", text.encode()) for path, text in sorted(texts.items())}


def found(*strays: str, **files: str) -> list[Finding]:
    return list(examine(docs(**files), ["shell", "mine"], strays))


def one(*strays: str, **files: str) -> Finding:
    (finding,) = found(*strays, **files)
    assert finding.message
    assert finding.hint
    return finding


def when(clauses: str, more: str = "") -> str:
    return f"---\napplies_when: {clauses}\n{more}\n---\nText.\n"


def over(*paths: str, clauses: str = "") -> str:
    front = f"applies_when: {clauses}\n" if clauses else ""
    return f"---\n{front}overrides:\n" + "".join(f"  - {path}\n" for path in paths) + "---\nText.\n"


def test_a_database_that_is_right() -> None:
    assert not found(
        instructions__a=when('{harness_id: [codex, claude-code, shell, mine, "co*"], model_id: "gpt-*"}'),
        instructions__b=over("a", clauses="{kind: fix}"),
        instructions__c=when("{harness_id: some-agent, kind: anything}"),
        instructions__d=when('{project_id: [shop, "team-*", "~/src/x"], harness_id: {not: "zebra*"}}'),
        projects__shop="---\nrepository: ~/shop\n---\n",
        skills__s="Skill.",
        skills__for_codex=when("{harness_id: codex}", "name: commit"),
        skills__for_cursor=when("{harness_id: cursor}", "name: commit"),
        sidecar__x="---\nrule: focus\n---\n",
        **{
            "instructions__router-policy": "---\ndeny: {harness_id: codex, model_id: x, why: y}\n---\n",
            "instructions__harness-translation-claude-code-mine": "Text.",
        },
    )


def test_every_problem_is_an_error_in_a_line_of_its_own() -> None:
    first, second = found(instructions__a="---\nordr: 1\nzebra: 2\n---\nText.\n")
    assert (first.level, first.path, first.line) == ("ERROR", "instructions/a.md", 2)
    assert str(first) == "md-db/instructions/a.md, line 2: ordr: there is no key `ordr` in an instruction"
    assert first.hint == "write `order`"
    assert second.line == 3
    bad = parse("skills/s.md", "", b"ab\xff")
    (only,) = [each for each in examine({bad.path: bad, **docs()}, []) if each.level == "ERROR"]
    assert str(only) == "md-db/skills/s.md: byte 2: not UTF-8 (0xff here)"


# --- clauses


@pytest.mark.parametrize(
    ("clauses", "says", "hint"),
    [
        ("{harness_id: Codex}", "no harness is called `Codex`", "write `codex`"),
        ("{harness_id: claude_code}", "no harness is called `claude_code`", "write `claude-code`"),
        ("{harness_id: {not: claudecode}}", "no harness is called `claudecode`", "write `claude-code`"),
        ("{harness_id: [codex, openhand]}", "`openhand`", "write `openhands`"),
        ('{harness: "Codex*"}', "`Codex*`", "write `codex*`"),
        ("{harness_id: Mine}", "`Mine`", "write `mine`"),
        ("{project_id: shop}", "there is no project `shop`", "describe it in md-db/projects/shop.md"),
        ("{kind: {not: '*'}}", "this is never told: kind excludes everything", "take the exclusion out"),
        ("{kind: [fix, {not: fix}]}", "excludes all that it asks for: fix", "take the exclusion out"),
    ],
)
def test_clauses_that_cannot_be_meant(clauses: str, says: str, hint: str) -> None:
    finding = one(instructions__a=when(clauses))
    assert (finding.level, finding.path, finding.line) == ("WARN", "instructions/a.md", 2)
    assert says in finding.message
    assert hint in finding.hint


def test_the_line_is_that_of_the_clause() -> None:
    text = "---\norder: 1\napplies_when:\n  kind: fix\n  harness: Codex\n---\nText.\n"
    assert one(instructions__a=text).line == 5
    assert one(skills__a=text).line == 5
    assert one(sidecar__a=text.replace("order: 1", "rule: focus")).line == 5


def test_a_project_by_a_near_name() -> None:
    finding = one(instructions__a=when("{project_id: shops}"), projects__shop="Text.")
    assert finding.hint == "write `shop`, or describe it in md-db/projects/shops.md"


@pytest.mark.parametrize("name", FIELD)
def test_no_known_name_is_taken_for_another(name: str) -> None:
    assert not found(instructions__a=when(f"{{harness_id: {name}}}"))


@pytest.mark.parametrize("name", ["zebra", "my-agent", "some-agent", "acme", "internal-bot"])
def test_an_unknown_name_may_be_right_elsewhere(name: str) -> None:
    assert not found(instructions__a=when(f"{{harness_id: {name}}}"))


def test_rules_of_the_policy() -> None:
    text = (
        "---\ndeny:\n  - {harness_id: Codex, why: a}\n  - {kind: [fix, {not: fix}], why: b}\n"
        "  - {project_id: none, why: c}\n---\n"
    )
    findings = found(**{"instructions__router-policy": text})
    assert [(each.line, each.hint.split(",")[0]) for each in findings] == [
        (3, "write `codex`"), (4, "take the exclusion out"), (5, "describe it in md-db/projects/none.md"),
    ]  # fmt: skip
    assert findings[1].message == "this rule never denies anything: kind excludes all that it asks for: fix"


@pytest.mark.parametrize(
    ("pair", "right"),
    [
        ("Codex-claude-code", "codex-claude-code"),
        ("claude-codex", "claude-code-codex"),
        ("codex-openhand", "codex-openhands"),
        ("zebra-apple", "FROM-TO"),
        ("codex", "FROM-TO"),
    ],
)
def test_translations(pair: str, right: str) -> None:
    finding = one(**{f"instructions__harness-translation-{pair}": "Text."})
    assert finding.message == f"`{pair}` are no two harnesses that are known"
    assert f"harness-translation-{right}.md" in finding.hint
    assert not found(**{"instructions__harness-translation-mine-mini-swe-agent": "Text."})


# --- overrides


@pytest.mark.parametrize(
    ("target", "says", "hint"),
    [
        ("instructions/none.md", "there is no such document", "take it out, or write the path of a document"),
        ("instructions/Other.md", "there is no such document", "write instructions/other.md"),
        ("instructions/team/other.md", "there is no such document", "write instructions/other.md"),
        (
            "skills/tool",
            "overrides skills/tool.md, and there is no such document",
            "write skills/tool/SKILL.md",
        ),
        ("projects/shop", "only an instruction or a skill can be overridden", "take it out"),
    ],
)
def test_overrides_of_what_is_not_there(target: str, says: str, hint: str) -> None:
    finding = one(
        instructions__a=over("instructions/fine", target, clauses="{kind: fix}"), instructions__fine="Text.",
        instructions__other="Text.", skills__tool__SKILL="Text.", projects__shop="Text.",
    )  # fmt: skip
    assert (finding.level, finding.path, finding.line) == ("WARN", "instructions/a.md", 5)
    assert says in finding.message
    assert finding.hint == hint


def test_overrides_of_what_never_applies_with_it() -> None:
    finding = one(
        instructions__a=over("b", clauses="{harness_id: codex}"), instructions__b=when("{harness_id: cursor}")
    )
    assert finding.message == "overrides instructions/b.md, but the two never apply together"
    assert finding.line == 4


def test_two_that_override_each_other_and_rings() -> None:
    finding = one(instructions__a=over("b"), instructions__b=over("a"))
    assert finding.message.startswith("this and instructions/b.md override each other")
    assert (finding.path, finding.line) == ("instructions/a.md", 3)
    finding = one(instructions__a=over("b"), instructions__b=over("c"), instructions__c=over("a"))
    assert (
        "instructions/a.md -> instructions/b.md -> instructions/c.md -> instructions/a.md" in finding.message
    )
    assert finding.hint == "take one of the overrides out"
    apart = found(
        instructions__a=over("b", clauses="{kind: fix}"), instructions__b=over("a", clauses="{kind: docs}")
    )
    assert [each.message.split(", but ")[1] for each in apart] == ["the two never apply together"] * 2


@pytest.mark.parametrize(
    ("other", "own", "always"),
    [
        ("", "{kind: fix}", True),
        ("", "", True),
        ("{kind: fix}", "{kind: fix, harness_id: codex}", True),
        ('{kind: "f*"}', "{kind: [fix, find]}", True),
        ("{kind: fix}", "{kind: [fix, docs]}", False),
        ("{kind: fix}", "", False),
    ],
)
def test_what_is_overridden_everywhere(other: str, own: str, always: bool) -> None:
    files = {"instructions__a": over("b", clauses=other), "instructions__b": when(own) if own else "Text."}
    findings = found(**files)
    assert len(findings) == always
    if always:
        assert findings[0].path == "instructions/b.md"
        assert findings[0].message == "it is never told: wherever it applies, instructions/a.md overrides it"
    # Whatever may remove the other one lets this one in again.
    assert not found(**files, instructions__c=over("a", clauses="{phase: retry}"))


CONTEXTS = [
    Context(harness, model, project, kind, phase)
    for harness, model, project, kind, phase in itertools.product(
        ["codex", "cursor", "c", "x"], ["", "gpt-5", "gpt-6"], ["", "shop"], ["", "fix", "docs", "f"], PHASES
    )
]


@settings(deadline=None, max_examples=60)
@given(databases())
def test_what_is_said_never_to_be_told_is_never_told(some: list[Doc]) -> None:
    by_path = {each.path: each for each in some}
    findings = list(examine(by_path, []))
    never = {each.path for each in findings if "never told" in each.message}
    rings = [
        each for each in findings if "override each other" in each.message or "a ring of" in each.message
    ]
    apart = [each for each in findings if "never apply together" in each.message]
    for context in CONTEXTS if never or apart else ():
        result = compose(some, context)
        assert not never & {each.path for each in result.told}
        removed = {(each.overridden_by, each.path) for each in result.missed if each.overridden_by}
        for each in apart:
            target = each.message.split()[1].rstrip(",")
            assert (each.path, target) not in removed
    for one, other in itertools.combinations(some, 2):
        if one.path in other.overrides and other.path in one.overrides and not (one.clauses or other.clauses):
            assert rings


# --- files


def test_two_skills_of_one_name() -> None:
    finding = one(
        skills__a="---\nname: commit\n---\nA", skills__b__SKILL="---\ntitle: B\nname: commit\n---\nB"
    )
    assert finding.message == "has the name of another skill, skills/b/SKILL.md: commit"
    assert (finding.path, finding.line) == ("skills/a.md", 2)
    finding = one(skills__a="A", skills__a__SKILL="A")
    assert (finding.path, finding.message) == ("skills/a.md", "is the same skill as skills/a/SKILL.md")
    assert not found(
        skills__a="---\nname: commit\n---\nA",
        skills__b="---\nname: commit\napplies_when: {kind: fix}\noverrides: a\n---\nB",
    )


@pytest.mark.parametrize(
    "name", ["instructions__a", "skills__a", "projects__a", "instructions__router-policy", "instructions__harness-translation-codex-shell"]
)  # fmt: skip
def test_empty_documents(name: str) -> None:
    for text in ("", " \n\n", "---\ntitle: x\n---\n\n"):
        assert one(**{name: text}).message == "it is empty"


def test_one_that_only_removes_another_is_not_empty() -> None:
    text = "---\napplies_when: {kind: fix}\noverrides: b\n---\n"
    assert not found(instructions__a=text, instructions__b="Text.")


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("AGENTS.md", "move it to instructions/"),
        ("instructions/rule.mdc", "rename it to rule.md"),
        ("instructions/a.MD", "rename it to a.md"),
        ("skills/t/skill.md", "skills/NAME/SKILL.md"),
        ("instructions/a.sync-conflict-1.md", "a sync program made it"),
    ],
)
def test_strays(path: str, hint: str) -> None:
    finding = one(path)
    assert str(finding) == f"md-db/{path}: this is no document: nothing of it is ever told"
    assert hint in finding.hint


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("instructions__Router-Policy", "instructions/router-policy.md"),
        ("instructions__router_policy", "instructions/router-policy.md"),
        ("instructions__sub__harness-translation-a-b", "instructions/harness-translation-a-b.md"),
    ],
)
def test_what_is_nearly_called_as_what_is_found_by_its_name(path: str, meant: str) -> None:
    assert f"rename it to {meant}" in one(**{path: "Text."}).hint


def test_nobody_says_how_to_ask() -> None:
    (finding,) = examine({}, [])
    assert str(finding) == "no instruction tells an agent how to ask a person"
    assert "BLOCKED:" in finding.hint


def test_counts() -> None:
    assert counted([]) == "no documents"
    assert (
        counted(docs(sidecar__a="x", skills__a="x", skills__b="x").values())
        == "1 instruction, 2 skills, 1 sidecar"
    )
    assert counted(docs(**{"instructions__router-policy": "x"}, sidecar__a="", sidecar__b="").values()) == (
        "1 instruction, 2 sidecar rules, 1 policy"
    )


def test_of_real_files(tmp_path: Path) -> None:
    (tmp_path / "instructions").mkdir()
    (tmp_path / "instructions/a.md").symlink_to("gone")
    (tmp_path / "notes.md").write_text("x")
    library = Library(tmp_path, Files(), Unrecorded())
    said = [str(each) for each in examine(library.documents(), [], library.strays())]
    assert said == [
        "md-db/instructions/a.md: cannot be looked at, or is a link that leads nowhere",
        "md-db/notes.md: this is no document: nothing of it is ever told",
        "no instruction tells an agent how to ask a person",
    ]
