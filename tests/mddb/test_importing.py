"""What people already have becomes documents: every kind of source on real files, in real repositories."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daemon.cli.mddb.importing import command
from daemon.durable import Files
from daemon.errors import DocumentError
from daemon.mddb import importing, schema, sources
from daemon.mddb.compose import compose
from daemon.mddb.importing import SkillFile, Source, lenient, plan
from daemon.mddb.intake import Intake
from daemon.mddb.resolver import Context
from daemon.mddb.schema import Doc
from daemon.spool import frontmatter

SHARED = Path(__file__).parents[2].parent / "shared"
CORPUS = SHARED / "corpus/d_md"


@dataclass
class Place:
    """A home directory, a workspace in it, and a repository."""

    home: Path

    @property
    def mddb(self) -> Path:
        return self.home / "megaharness/md-db"

    @property
    def shop(self) -> Path:
        return self.home / "src/shop"

    def run(self, *words: str | Path, code: int = 0) -> str:
        ran = CliRunner(env={"HOME": str(self.home)}).invoke(
            command, list(map(str, words)), obj=self.home / "megaharness"
        )
        assert ran.exit_code == code, (ran.output, ran.exception)
        return ran.output

    def json(self, *words: str | Path, code: int = 0) -> list[dict[str, Any]]:
        found = json.loads(self.run(*words, "--json", code=code))["documents"]
        assert isinstance(found, list)
        return found

    def one(self, *words: str | Path, status: str = "new", code: int = 0) -> dict[str, Any]:
        """The only outcome but those of projects."""
        rest = [
            each for each in self.json(*words, code=code) if not (each["path"] or "").startswith("projects/")
        ]
        assert [each["status"] for each in rest] == [status], rest
        return rest[0]

    def put(self, name: str, data: bytes | str, base: Path | None = None) -> Path:
        path = (base or self.shop) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    def doc(self, path: str) -> Doc:
        found = schema.parse(path, "", self.data(path))
        assert not found.problems, found.problems
        return found

    def data(self, path: str) -> bytes:
        return (self.mddb / path).read_bytes()

    def tree(self) -> dict[str, tuple[bytes, int]]:
        return {
            path.relative_to(self.mddb).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
            for path in self.mddb.rglob("*")
            if path.is_file()
        }

    def body(self, path: str) -> str:
        return frontmatter.read(self.data(path)).body


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path / "home")
    place.mddb.mkdir(parents=True)
    (place.home / "megaharness/megaharness.toml").write_text("")
    place.shop.mkdir(parents=True)
    subprocess.run(["git", "init", "--quiet", str(place.shop)], check=True)
    return place


def clauses(doc: Doc) -> str:
    return str(doc.clauses) if doc.clauses is not None else ""


def told(place: Place, doc: Doc) -> set[str]:
    """What is told to the first harness, and in the first project, that a document asks for."""
    asked = {clause.dimension: clause.patterns[0] for clause in doc.clauses or () if clause.patterns}
    context = Context(asked.get("harness_id", "codex"), project_id=asked.get("project_id", ""))
    paths = [path for path in place.tree() if schema.kind_of(path) is not None]
    return {each.path for each in compose([place.doc(path) for path in paths], context).told}


# --- instructions -----------------------------------------------------------------------------------------


def test_a_claude_md_is_for_claude_code_in_its_project(place: Place) -> None:
    text = "# Shop\n\nUse `make test`.\n"
    path = place.put("CLAUDE.md", text)
    found = place.json(place.shop)
    assert [(each["status"], each["path"]) for each in found] == [
        ("new", "projects/shop.md"),
        ("new", "instructions/shop/claude.md"),
    ]
    assert found[1]["source"] == "~/src/shop/CLAUDE.md"
    doc = place.doc("instructions/shop/claude.md")
    assert doc.body == text
    assert clauses(doc) == "harness_id: claude-code, openclaude; project_id: shop"
    assert place.doc("projects/shop.md").repository == "~/src/shop"
    meta = frontmatter.read(place.data("instructions/shop/claude.md")).meta
    assert meta["imported"] == {
        "from": "~/src/shop/CLAUDE.md",
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }


def test_the_project_that_has_the_repository_is_taken(place: Place) -> None:
    place.put("projects/store.md", "---\nrepository: ~/src/shop\n---\nSells.\n", place.mddb)
    place.put("CLAUDE.md", "x\n")
    assert [each["path"] for each in place.json(place.shop)] == ["instructions/store/claude.md"]


def test_a_project_of_the_name_but_another_repository_is_left_alone(place: Place) -> None:
    place.put("projects/shop.md", "Sells.\n", place.mddb)
    place.put("CLAUDE.md", "x\n")
    made, doc = place.json(place.shop)
    assert re.fullmatch(r"projects/shop-[0-9a-f]{8}\.md", made["path"])
    assert "names another repository" in made["notes"][0]
    assert clauses(place.doc(doc["path"])).endswith(f"project_id: {made['path'][9:-3]}")
    assert place.data("projects/shop.md") == b"Sells.\n"


def test_agents_md_is_for_all_but_those_who_read_another_file_beside_it(place: Place) -> None:
    place.put("AGENTS.md", "agents\n")
    place.put("CLAUDE.md", "claude\n")
    place.put("GEMINI.md", "gemini\n")
    place.put("QWEN.md", "qwen\n")
    place.put("lib/AGENTS.md", "lib\n")
    place.run(place.shop)
    docs = {path: clauses(place.doc(path)) for path in place.tree() if path.startswith("instructions/")}
    assert docs == {
        "instructions/shop/agents.md": "harness_id: not claude-code, not openclaude, not gemini; project_id: shop",
        "instructions/shop/claude.md": "harness_id: claude-code, openclaude; project_id: shop",
        "instructions/shop/gemini.md": "harness_id: gemini; project_id: shop",
        "instructions/shop/qwen.md": "harness_id: qwen; project_id: shop",
        "instructions/shop/lib-agents.md": "project_id: shop",
    }
    assert place.doc("instructions/shop/lib-agents.md").globs == ("lib/**",)


def test_agents_md_is_told_to_claude_code_where_its_file_only_names_it(place: Place) -> None:
    place.put("AGENTS.md", "agents\n")
    place.put("CLAUDE.md", "@AGENTS.md\n@docs/how to.md and `@not.md` ann@example.org @types/node\n")
    found = {each["path"]: each for each in place.json(place.shop)}
    assert clauses(place.doc("instructions/shop/agents.md")) == "project_id: shop"
    assert found["instructions/shop/claude.md"]["notes"] == [
        "it names other files, whose text is not taken along: @AGENTS.md; "
        "import those that should be told, too, or put their text into the document"
    ]
    assert "its CLAUDE.md names it" in found["instructions/shop/agents.md"]["notes"][0]


def test_one_file_with_two_names_is_one_document(place: Place) -> None:
    place.put("AGENTS.md", "both\n")
    (place.shop / "CLAUDE.md").symlink_to("AGENTS.md")
    found = place.one(place.shop)
    assert found["path"] == "instructions/shop/agents.md"
    assert found["notes"] == ["~/src/shop/CLAUDE.md is a link to it"]
    assert clauses(place.doc(found["path"])) == "project_id: shop"


def test_one_file_whose_name_is_claudes_and_whose_link_is_for_all(place: Place) -> None:
    place.put("CLAUDE.md", "both\n")
    (place.shop / "AGENTS.md").symlink_to("CLAUDE.md")
    assert clauses(place.doc(place.one(place.shop)["path"])) == "project_id: shop"


def test_what_is_read_in_all_projects_has_no_clause_for_one(place: Place) -> None:
    subprocess.run(["git", "init", "--quiet", str(place.home)], check=True)  # dotfiles are kept so
    place.put(".claude/CLAUDE.md", "mine\n", place.home)
    place.put(".codex/AGENTS.md", "codex\n", place.home)
    place.put(".claude/plugins/x/skills/y/SKILL.md", "y\n", place.home)
    place.put(".claude/projects/x/memory/CLAUDE.md", "y\n", place.home)
    place.run(place.home / ".claude", "~/.codex/AGENTS.md")
    assert {path: clauses(place.doc(path)) for path in place.tree()} == {
        "instructions/claude.md": "harness_id: claude-code, openclaude",
        "instructions/agents.md": "harness_id: codex",
    }


def test_files_of_other_programs_are_for_all_harnesses(place: Place) -> None:
    for name in (".github/copilot-instructions.md", ".cursorrules", ".windsurfrules", "CLAUDE.local.md"):
        place.put(name, f"{name}\n")
    place.put("packages/web/.cursorrules", "web\n")
    place.put("packages/web/.claude/CLAUDE.md", "web\n")
    place.run(place.shop)
    docs = {path: place.doc(path) for path in place.tree() if path.startswith("instructions/")}
    assert {path: (clauses(doc), doc.globs) for path, doc in docs.items()} == {
        "instructions/shop/copilot-instructions.md": ("project_id: shop", ()),
        "instructions/shop/cursorrules.md": ("project_id: shop", ()),
        "instructions/shop/windsurfrules.md": ("project_id: shop", ()),
        "instructions/shop/claude-local.md": ("harness_id: claude-code, openclaude; project_id: shop", ()),
        "instructions/shop/packages-web-cursorrules.md": ("project_id: shop", ("packages/web/**",)),
        "instructions/shop/packages-web-claude.md": (
            "harness_id: claude-code, openclaude; project_id: shop",
            ("packages/web/**",),
        ),
    }


def test_without_a_repository_it_is_told_in_all_projects_and_that_is_said(place: Place) -> None:
    path = place.put("CLAUDE.md", "x\n", place.home / "loose")
    found = place.one(path)
    assert found["notes"] == ["it lies in no git repository, so it is told in every project"]


# --- rules ------------------------------------------------------------------------------------------------


def rule(place: Place, front: str, name: str = ".cursor/rules/ts.mdc", body: str = "- use strict\n") -> Doc:
    found = place.one(place.put(name, f"---\n{front}\n---\n{body}"))
    doc = place.doc(found["path"])
    assert doc.body == body
    imported = frontmatter.read(place.data(found["path"])).meta["imported"]
    assert isinstance(imported, dict)
    assert imported["frontmatter"] == f"{front}\n"
    return doc


@pytest.mark.parametrize(
    ("globs", "read"),
    [
        ("globs: *.tsx", ("*.tsx",)),
        ("globs: **/*.ts, **/*.tsx", ("**/*.ts", "**/*.tsx")),
        ("globs: **/*", ("**/*",)),
        ('globs: ["*.ts", "lib/**"]', ("*.ts", "lib/**")),
        ("globs: [*.ts, lib/**]", ("*.ts", "lib/**")),
        ("globs:\n  - *.ts\n  - 'lib/**'", ("*.ts", "lib/**")),
        ("globs:\n- *.ts\n- lib/**", ("*.ts", "lib/**")),
        ("globs: **/*.{ts,tsx},*.js", ("**/*.{ts,tsx}", "*.js")),
        ("globs: '*.ts,*.tsx'", ("*.ts", "*.tsx")),
        ("globs: *.ts # of the shop", ("*.ts",)),
        ("globs: src/*.py", ("src/*.py",)),
    ],
)
def test_globs_are_read_as_they_stand(place: Place, globs: str, read: tuple[str, ...]) -> None:
    doc = rule(place, f"description: TS rules\n{globs}\nalwaysApply: false")
    assert (doc.kind, doc.path, doc.globs) == ("instruction", "instructions/shop/ts.md", read)
    assert (doc.description, clauses(doc)) == ("TS rules", "project_id: shop")


def test_a_rule_that_always_applies_is_an_instruction_without_globs(place: Place) -> None:
    doc = rule(place, "description: a: b\nglobs: *.py\nalwaysApply: true")
    assert (doc.kind, doc.globs, doc.description) == ("instruction", (), "a: b")


def test_a_rule_that_an_agent_asks_for_is_a_skill(place: Place) -> None:
    doc = rule(place, "description: when it loops\nglobs:\nalwaysApply: false")
    assert (doc.kind, doc.path, doc.name, doc.description) == ("skill", "skills/ts.md", "ts", "when it loops")


def test_a_rule_that_was_only_named_is_a_skill_and_that_is_said(place: Place) -> None:
    found = place.one(place.put(".cursor/rules/x/y.mdc", "---\nalwaysApply: false\n---\n\n# How to y\n"))
    assert found["path"] == "skills/x-y.md"
    assert "only when somebody named it" in found["notes"][0]
    assert place.doc("skills/x-y.md").description == "How to y"


def test_instructions_of_copilot(place: Place) -> None:
    for pattern in ("'**'", "**", "['*']"):
        doc = rule(place, f"applyTo: {pattern}", f".github/instructions/a{len(pattern)}.instructions.md")
        assert (doc.kind, doc.globs) == ("instruction", ())
    doc = rule(place, "applyTo: **/*.ts,**/*.tsx\ndescription: 'It''s'", "b.instructions.md")
    assert (doc.path, doc.globs) == ("instructions/shop/b.md", ("**/*.ts", "**/*.tsx"))
    assert doc.description == "It's"


def test_rules_of_claude_code(place: Place) -> None:
    assert rule(place, "paths: src/**/*.py", ".claude/rules/py.md").globs == ("src/**/*.py",)
    assert rule(place, "x: y", ".claude/rules/all.md").globs == ()


def test_a_nested_rule_is_about_its_folder(place: Place) -> None:
    assert rule(place, "alwaysApply: true", "web/.cursor/rules/ts.mdc").globs == ("web/**",)
    assert rule(place, "globs: *.ts", "web/.cursor/rules/js.mdc").globs == ("*.ts",)
    assert (
        rule(place, "alwaysApply: true", "rules/all.mdc").globs == ()
    )  # a collection is about nothing of its own


def test_a_folder_of_rules_alone(place: Place) -> None:
    base = place.home / "rules"
    place.put("one.mdc", "---\nglobs: *.a\n---\n1", base)
    place.put("two.mdc", "2", base)
    place.put("notes.md", "3", base)
    output = place.run(base)
    assert "instructions/one.md  <- ~/rules/one.mdc" in output
    assert "skills/two.md  <- ~/rules/two.mdc" in output
    assert "1 other Markdown file passed over" in output


# --- skills, agents, commands -----------------------------------------------------------------------------


SKILL = "---\nname: review\ndescription: Reviews a change.\nallowed-tools: Read, Grep\n---\n# Review\n"


def test_a_skill_is_kept_byte_for_byte_with_its_files(place: Place, tmp_path: Path) -> None:
    base = place.home / ".claude/skills/review"
    place.put("SKILL.md", SKILL.replace("\n", "\r\n"), base)
    place.put("scripts/check.sh", "#!/bin/sh\n", base).chmod(0o755)
    place.put("data.bin", b"\0\xff", base)
    place.put(".env", "x", base)
    (tmp_path / "outside").write_text("x")
    (base / "out.md").symlink_to(tmp_path / "outside")
    (base / "in.md").symlink_to("data.bin")
    found = place.one(place.home / ".claude")
    assert found["path"] == "skills/review/SKILL.md"
    assert place.data(found["path"]) == (base / "SKILL.md").read_bytes()
    assert {*place.tree()} == {
        f"skills/review/{name}"
        for name in ("SKILL.md", "scripts/check.sh", "data.bin", "in.md", ".imported.json")
    }
    assert os.access(place.mddb / "skills/review/scripts/check.sh", os.X_OK)
    assert found["notes"] == [
        "not taken: out.md, a link that leads out of the skill",
        "not taken: 1 hidden files or folders",
    ]
    assert place.doc(found["path"]).name == "review"


def test_a_skill_in_the_folder_of_another_is_one_of_its_own(place: Place) -> None:
    for name in ("SKILL.md", "a/SKILL.md", "a/b/SKILL.md", "c/d/SKILL.md", "c/x", "a/y", "CLAUDE.md"):
        place.put(f"skills/review/{name}", SKILL)
    found = {each["path"]: each["notes"] for each in place.json(place.shop)}
    assert {*place.tree()} == {
        "projects/shop.md",
        *(f"skills/{name}/{file}" for name in "abd" for file in ("SKILL.md", ".imported.json")),
        *(f"skills/review/{file}" for file in ("SKILL.md", ".imported.json", "c/x", "CLAUDE.md")),
        "skills/a/y",
    }
    assert found["skills/review/SKILL.md"] == [
        "not taken with it: a, a skill of its own",
        "not taken with it: c/d, a skill of its own",
    ]


def test_a_skill_of_a_project_gets_a_clause(place: Place) -> None:
    place.put(".claude/skills/review/SKILL.md", SKILL)
    doc = place.doc(place.one(place.shop)["path"])
    assert clauses(doc) == "project_id: shop"
    text = place.data(doc.path).decode()
    assert text.replace("applies_when:\n  project_id: [shop]\n", "") == SKILL


def test_a_skill_that_cannot_be_read_as_ours_loses_nothing(place: Place) -> None:
    place.put(
        "x/SKILL.md", "---\nname: x\ndescription: Use when: always\nglobs: *.ts\n---\nDo.\n", place.home
    )
    found = place.one(place.home / "x")
    doc = place.doc(found["path"])
    assert (doc.name, doc.description, doc.body) == ("x", "Use when: always", "Do.\n")
    imported = frontmatter.read(place.data(doc.path)).meta["imported"]
    assert isinstance(imported, dict)
    assert imported["frontmatter"] == "name: x\ndescription: Use when: always\nglobs: *.ts\n"


def test_a_skill_with_too_many_files_is_refused(place: Place) -> None:
    place.put("SKILL.md", SKILL, place.home / "x")
    for number in range(200):
        place.put(f"f{number}", "", place.home / "x")
    assert "more than 200 files" in place.one(place.home / "x", status="refused", code=1)["notes"][0]
    assert place.tree() == {}


def test_a_skill_that_is_a_repository(place: Place) -> None:
    place.put("SKILL.md", SKILL)
    place.put("AGENTS.md", "x\n")
    assert [each["path"] for each in place.json(place.shop)] == [
        "projects/shop.md",
        "instructions/shop/agents.md",
        "skills/shop/SKILL.md",
    ]


def test_agents_and_commands_are_skills_of_one_file(place: Place) -> None:
    place.put(
        ".claude/agents/deep/finder.md",
        "---\nname: finder\ndescription: Finds: all\ntools: Read\n---\nFind.\n",
    )
    place.put(
        ".claude/commands/git/commit.md",
        "---\nargument-hint: <x>\n---\n\n# Commit\n\n$ARGUMENTS\n\n!`git log`\n",
    )
    place.put(".claude/commands/README.md", "no command\n")
    place.put("plugin/.claude-plugin/plugin.json", "{}")
    place.put("plugin/agents/helper.md", "Helps.\n")
    found = {each["path"]: each["notes"] for each in place.json(place.shop)}
    agent, git, helper = (place.doc(f"skills/{name}.md") for name in ("deep-finder", "git-commit", "helper"))
    assert (agent.name, agent.description, clauses(agent)) == ("finder", "Finds: all", "project_id: shop")
    assert (git.name, git.description) == ("git:commit", "Commit")
    assert helper.description == "Helps."
    assert "kept in imported.frontmatter, without effect here: tools" in found[agent.path]
    assert [note.split(",")[0] for note in found[git.path]] == [
        "$ARGUMENTS stands in it",
        "commands stand in it (!`...`)",
        "kept in imported.frontmatter",
    ]


# --- other files ------------------------------------------------------------------------------------------


def test_a_file_that_is_named_is_an_instruction_for_all(place: Place) -> None:
    doc = place.doc(place.one(place.put("How we work.md", "---\ntags: [x]\nowner: me\n---\nText"))["path"])
    assert (doc.path, doc.body, doc.clauses, doc.has_clauses) == (
        "instructions/how-we-work.md",
        "Text",
        None,
        False,
    )


def test_a_document_of_ours_stays_one(place: Place) -> None:
    text = "---\norder: 5 # late\napplies_when: {kind: fix}\n---\nText\n"
    doc = place.doc(place.one(place.put("fixing.md", text))["path"])
    assert (doc.order, clauses(doc), doc.body) == (5, "kind: fix", "Text\n")
    assert b"order: 5 # late\n" in place.data(doc.path)


def test_a_document_of_somebody_elses_database_keeps_its_clauses_and_where_it_came_from(place: Place) -> None:
    front = "applies_when: {kind: fix}\nimported:\n  from: ~/x\n  sha256: 0\n  frontmatter: |\n    a: b\n"
    path = place.one(place.put("fixing.md", f"---\n{front}---\nText\n"))["path"]
    imported = frontmatter.read(place.data(path)).meta["imported"]
    assert isinstance(imported, dict)
    assert (imported["from"], imported["frontmatter"]) == ("~/src/shop/fixing.md", front)
    assert clauses(place.doc(path)) == "kind: fix"


@pytest.mark.parametrize("name", ["router-policy.md", "harness-translation-a-b.md", "readme.md"])
def test_a_name_that_means_something_else_is_not_taken(place: Place, name: str) -> None:
    for text in ("x", "---\norder: 1\n---\nx", "---\nowner: me\n---\nx"):
        doc = place.doc(
            place.one(place.put(name, text, place.home / hashlib.md5(text.encode()).hexdigest()))["path"]
        )
        assert (doc.kind, doc.body) == ("instruction", "x")


def test_what_cannot_be_taken_is_refused_with_its_place_and_the_rest_is_imported(place: Place) -> None:
    place.put("CLAUDE.md", b"a\nb\xff\n")
    place.put("AGENTS.md", b"a\n\nb\0\n")
    place.put("GEMINI.md", b"x" * (1 << 20) + b"x")
    place.put("QWEN.md", "fine\n")
    (place.shop / "lib").mkdir()
    (place.shop / "lib/CLAUDE.md").symlink_to(place.home / "away.md")
    (place.home / "away.md").write_text("x")
    (place.shop / "web").mkdir()
    os.mkfifo(place.shop / "web/CLAUDE.md")
    found = {each["source"].removeprefix("~/src/shop/"): each for each in place.json(place.shop, code=1)}
    assert found["CLAUDE.md"]["notes"] == ["line 2: not UTF-8 (0xff at byte 3) (save the file as UTF-8 text)"]
    assert found["AGENTS.md"]["notes"] == ["line 3: a NUL (0x00 at byte 4) (save the file as UTF-8 text)"]
    assert "more than 1048576 bytes" in found["GEMINI.md"]["notes"][0]
    assert "a link that leads out of ~/src/shop" in found["lib/CLAUDE.md"]["notes"][0]
    assert "not a regular file" in found["web/CLAUDE.md"]["notes"][0]
    assert {each["status"] for name, each in found.items() if name not in ("QWEN.md", "~/src/shop")} == {
        "refused"
    }
    assert found["QWEN.md"]["status"] == "new"
    place.one(place.shop / "lib/CLAUDE.md")  # named, a link is followed


def test_what_is_not_there_or_nothing_known_is_refused(place: Place) -> None:
    assert "No such file" in place.one(place.home / "gone", status="refused", code=1)["notes"][0]
    assert "neither Markdown" in place.one(place.put("x.py", ""), status="refused", code=1)["notes"][0]
    inside = place.put("instructions/x.md", "x", place.mddb)
    assert "the workspace itself" in place.one(inside, status="refused", code=1)["notes"][0]
    assert "nothing found" in place.run(place.home / "megaharness/..")


def test_a_skill_behind_a_link_is_told(place: Place, tmp_path: Path) -> None:
    place.put("SKILL.md", SKILL, tmp_path / "elsewhere")
    (place.home / ".claude/skills").mkdir(parents=True)
    (place.home / ".claude/skills/review").symlink_to(tmp_path / "elsewhere")
    assert "name it" in place.one(place.home / ".claude", status="refused", code=1)["notes"][0]
    place.one(place.home / ".claude/skills/review")


def test_what_looks_like_a_key_is_said(place: Place) -> None:
    path = place.put("CLAUDE.md", "x\nexport TOKEN_FOR=ghp_" + "a" * 36 + "\n")
    assert place.one(path)["notes"] == [
        "line 2 of the source looks like it holds a key: agents and their providers would read it"
    ]


def test_a_dry_run_writes_nothing_and_says_the_same(place: Place) -> None:
    place.put("CLAUDE.md", "x\n")
    place.put(".claude/skills/review/SKILL.md", SKILL)
    place.put(".claude/CLAUDE.md", "x\n")
    place.put(".claude/CLAUDE.local.md", "y\n")
    would = place.json(place.shop, "--dry-run")
    assert place.tree() == {}
    assert place.json(place.shop) == would


def test_a_mark_and_line_ends_of_a_body_are_kept(place: Place) -> None:
    data = b"\xef\xbb\xbf---\r\ndescription: d\r\n---\r\n---\r\n\r\nx: y\r\n---\nlast"
    path = place.one(place.put("CLAUDE.md", data))["path"]
    read = frontmatter.read(place.data(path))
    assert (read.bom, read.body) == (True, "---\r\n\r\nx: y\r\n---\nlast")
    imported = read.meta["imported"]
    assert isinstance(imported, dict)
    assert imported["frontmatter"] == "description: d\r\n"


@pytest.mark.parametrize(
    "text",
    ["---\nNothing closes it: x\n", "----\nkey: x\n----\n", "+++\nkey = 1\n+++\nText\n",
     "---\nA rule above.\n---\nText\n", "---\nNote: a rule\nabove it\n---\nText\n", "---\n", "", "\n\n---\n"],
)  # fmt: skip
def test_what_is_no_frontmatter_stays_in_the_text(place: Place, text: str) -> None:
    assert place.body(place.one(place.put("CLAUDE.md", text))["path"]) == text


# --- again ------------------------------------------------------------------------------------------------


def test_again_nothing_changes_whatever_somebody_has_done(place: Place) -> None:
    place.put("CLAUDE.md", "x\n")
    place.put(".cursor/rules/a.mdc", "---\nglobs: *.a\n---\n1")
    place.put(".claude/skills/review/SKILL.md", SKILL)
    place.run(place.shop)
    before = place.tree()
    assert {each["status"] for each in place.json(place.shop)} == {"same"}
    assert place.tree() == before
    # Moved, edited, broken, renamed.
    (place.mddb / "instructions/house").mkdir()
    (place.mddb / "instructions/shop/claude.md").rename(place.mddb / "instructions/house/rules.md")
    path = place.mddb / "instructions/house/rules.md"
    path.write_bytes(path.read_bytes().replace(b"applies_when:", b"applies_when: [*", 1) + b"mine\n")
    (place.mddb / "skills/review").rename(place.mddb / "skills/checking")
    skill = place.mddb / "skills/checking/SKILL.md"
    skill.write_bytes(skill.read_bytes() + b"mine\n")
    (place.mddb / "projects/shop.md").rename(place.mddb / "projects/store.md")
    before = place.tree()
    found = place.json(place.shop)
    assert {each["status"] for each in found} == {"same"}
    assert {each["path"] for each in found} >= {"instructions/house/rules.md", "skills/checking/SKILL.md"}
    assert place.tree() == before


def test_a_source_that_has_changed_is_told_and_taken_when_asked(place: Place) -> None:
    path = place.put("CLAUDE.md", "---\ndescription: d\n---\nold\n")
    doc = place.mddb / place.one(place.shop)["path"]
    doc.write_bytes(doc.read_bytes().replace(b"imported:", b"order: 7 # mine\nimported:"))
    path.write_bytes(b"---\ndescription: e\n---\nnew\n")
    before = place.tree()
    kept = place.one(place.shop, status="kept")
    assert "--update replaces the text" in kept["notes"][0]
    assert place.tree() == before
    place.one(place.shop, "--update", "--dry-run", status="updated")
    assert place.tree() == before
    found = place.one(place.shop, "--update", status="updated")
    assert "stays" in found["notes"][0]
    new = place.doc(found["path"])
    assert (new.body, new.order, new.description) == ("new\n", 7, "d")
    assert b"order: 7 # mine\n" in doc.read_bytes()
    assert [each.name for each in doc.parent.iterdir()] == ["claude.md"]
    assert place.one(place.shop, "--update", status="same")


def test_a_text_that_somebody_changed_is_kept_beside_the_new_one(place: Place) -> None:
    path = place.put("CLAUDE.md", "old\n")
    doc = place.mddb / place.one(place.shop)["path"]
    mine = doc.read_bytes() + b"mine\n"
    doc.write_bytes(mine)
    path.write_text("new\n")
    place.one(place.shop, "--update", status="updated")
    assert place.body("instructions/shop/claude.md") == "new\n"
    assert (doc.parent / "claude.md.odd-1").read_bytes() == mine


def test_a_skill_that_has_changed(place: Place) -> None:
    base = place.shop / ".claude/skills/review"
    place.put("SKILL.md", SKILL, base)
    place.put("a", "1", base)
    place.put("b", "1", base)
    place.run(place.shop)
    skill = place.mddb / "skills/review/SKILL.md"
    skill.write_bytes(skill.read_bytes().replace(b"[shop]", b"[shop, store]"))
    (place.mddb / "skills/review/b").write_text("mine")
    place.put("SKILL.md", SKILL.replace("# Review", "# Look"), base)
    place.put("a", "2", base)
    place.put("b", "2", base)
    place.put("c/d", "2", base)
    place.one(place.shop, status="kept")
    place.one(place.shop, "--update", status="updated")
    doc = place.doc("skills/review/SKILL.md")
    assert (doc.body, clauses(doc)) == ("# Look\n", "project_id: shop, store")
    content = {name.removeprefix("skills/review/"): data for name, (data, _) in place.tree().items()}
    assert {name: content[name] for name in ("a", "b", "c/d", "b.odd-1")} == {
        "a": b"2", "b": b"2", "c/d": b"2", "b.odd-1": b"mine",
    }  # fmt: skip
    place.one(place.shop, status="same")


def test_names_that_are_taken_are_left_alone(place: Place) -> None:
    place.put("instructions/shop/claude.md", "a person's\n", place.mddb)
    place.put("skills/review.md", "a person's\n", place.mddb)
    place.put("CLAUDE.md", "x\n")
    place.put(".claude/skills/review/SKILL.md", SKILL)
    found = place.json(place.shop)
    digest = hashlib.sha256(b"~/src/shop/CLAUDE.md").hexdigest()[:8]
    assert f"instructions/shop/claude-{digest}.md" in [each["path"] for each in found]
    assert re.fullmatch(r"skills/review-[0-9a-f]{8}/SKILL\.md", found[1]["path"])
    assert place.data("instructions/shop/claude.md") == b"a person's\n"
    before = place.tree()
    assert {each["status"] for each in place.json(place.shop)} == {"same"}
    assert place.tree() == before


def test_a_skill_that_somebody_copied_by_hand_is_the_same(place: Place) -> None:
    place.put("SKILL.md", SKILL, place.home / "review")
    place.put("skills/review/SKILL.md", SKILL, place.mddb)
    place.one(place.home / "review", status="same")


def test_a_repository_that_was_moved(place: Place) -> None:
    place.put("projects/shop.md", f"---\nrepository: {place.home}/moved\n---\n", place.mddb)
    place.put("CLAUDE.md", "x\n")
    place.shop.rename(place.home / "moved")
    place.one(place.home / "moved")
    (place.home / "moved").rename(place.shop)
    place.put("projects/shop.md", f"---\nrepository: {place.shop}\n---\n", place.mddb)
    place.one(place.shop, status="same")


# --- any text ---------------------------------------------------------------------------------------------

KINDS = [
    "claude",
    "agents",
    "cursor-rule",
    "copilot-rule",
    "claude-rule",
    "skill",
    "agent",
    "command",
    "plain",
]
_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
_LINES = st.lists(
    st.one_of(
        st.sampled_from(["---", "...", "globs: *.ts, [", "description: >", "  x", "- *a", "name: &b c", "applies_when: x",
                         "alwaysApply: true", "applyTo: '**'", "\t", "order: 1", "# c", "", "paths: {a: b}", "globs: [a, [b]]"]),
        _TEXT,
    )
).map("\n".join)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(kind=st.sampled_from(KINDS), front=_LINES, body=_TEXT, fenced=st.booleans(), project=st.sampled_from(["", "p"]),
       bom=st.booleans(), crlf=st.booleans())  # fmt: skip
def test_any_text_reads_back(
    kind: Any, front: str, body: str, fenced: bool, project: str, bom: bool, crlf: bool
) -> None:
    text = f"---\n{front}\n---\n{body}" if fenced else front + body
    if crlf:
        text = text.replace("\n", "\r\n")
    data = (b"\xef\xbb\xbf" if bom else b"") + text.encode()
    source = Source("~/a: b\u2028", kind, "x", data, project=project, files={} if kind == "skill" else None)
    made = plan(source)
    found = schema.parse(made.path, "", made.data)
    assert not found.problems
    assert found.kind in ("instruction", "skill")
    read = frontmatter.read(made.data)
    assert read.bom == data.startswith(b"\xef\xbb\xbf")
    whole = data.decode().removeprefix("\ufeff")
    assert whole.endswith(read.body)
    # All of it is there: what is not in the body is above it, word for word.
    above = whole[: len(whole) - len(read.body)]
    imported = read.meta.get("imported")
    if isinstance(imported, dict) and "frontmatter" in imported:
        assert imported["frontmatter"] in above
        assert set(above.replace(str(imported["frontmatter"]), "", 1)) <= set("-. \t\r\n")
    elif kind in ("skill", "plain"):
        assert all(line in made.data.decode() for line in above.split("\n"))
    else:
        assert set(above) <= set("-. \t\r\n")
    if kind != "skill":
        again = importing.imported(made.data)
        assert again == importing.Imported("~/a: b\u2028", source.sha256)


@settings(max_examples=200, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    sources=st.lists(st.tuples(_LINES, _TEXT), min_size=2, max_size=2),
    crlf=st.booleans(),
)
def test_a_newer_text_takes_the_place_of_an_older_one(
    kind: Any, sources: list[tuple[str, str]], crlf: bool
) -> None:
    nl = "\r\n" if crlf else "\n"
    texts = [f"---\n{front}\n---\n{body}".replace("\n", nl) for front, body in sources]
    files: dict[str, SkillFile] | None = {} if kind == "skill" else None
    old, new = (plan(Source("~/x", kind, "x", text.encode(), project="p", files=files)) for text in texts)
    if old.path != new.path:
        return  # a rule that was a skill and is an instruction now
    mine = frontmatter.set_scalar(old.data, "order", 7)
    try:
        data, _ = importing.updated(old.path, mine, new.data)
    except DocumentError:
        assert kind in ("skill", "plain")  # whose own keys may not go with those of the other state
        return
    read = frontmatter.read(data)
    assert (read.body, read.meta["order"]) == (frontmatter.read(new.data).body, "7")
    assert not schema.parse(old.path, "", data).problems


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(_TEXT, min_size=1, max_size=4), front=_LINES)
def test_twice_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], front: str
) -> None:
    place = Place(tmp_path_factory.mktemp("any"))
    place.mddb.mkdir(parents=True)
    (place.home / "megaharness/megaharness.toml").write_text("")
    (place.shop / ".git").mkdir(parents=True)
    names = ["CLAUDE.md", "AGENTS.md", ".cursor/rules/x.mdc", "s/SKILL.md"]
    for name, text in zip(names, texts, strict=False):
        place.put(name, f"---\n{front}\n---\n{text}")
    first = place.json(place.shop)
    before = place.tree()
    again = place.json(place.shop)
    assert {each["status"] for each in again} == {"same"}
    assert {each["path"] for each in again} == {
        each["path"] for each in first if each["path"][:8] != "projects"
    }
    assert place.tree() == before


@given(st.text())
def test_lenient_reading_takes_any_text(text: str) -> None:
    lenient(text)


# --- real files -------------------------------------------------------------------------------------------


@pytest.mark.skipif(
    not SHARED.is_dir() and not os.environ.get("CI"), reason=f"{SHARED} is not here; on CI it must be"
)
class TestRealFiles:
    def test_unquoted_globs_are_read_literally(self, place: Place) -> None:
        data = (SHARED / "cases/inputs/35_globs_star.mdc").read_bytes()
        doc = place.doc(place.one(place.put(".cursor/rules/x.mdc", data))["path"])
        assert (doc.kind, doc.globs, doc.description) == ("instruction", ("**/*.ts", "**/*.tsx"), "TS rules")
        assert doc.body == "- use strict\n"

    def lay_out(self, place: Place) -> dict[str, Path]:
        """The files where they were in their repositories, each in one of its own."""
        found = {}
        for path in sorted(CORPUS.rglob("*")):
            if path.is_file():
                repository, *parts = path.name.split("__")
                base = place.home / path.parent.name / repository
                (base / ".git").mkdir(parents=True, exist_ok=True)
                target = place.put("/".join(parts), path.read_bytes(), base)
                found[f"~/{target.relative_to(place.home)}"] = target
        return found

    def test_the_corpus_by_name(self, place: Place) -> None:
        files = self.lay_out(place)
        assert len(files) >= 145
        texts = [path for path in files.values() if path.suffix != ".json"]
        found = [
            each for each in place.json(*texts, code=1) if not (each["path"] or "").startswith("projects/")
        ]
        assert {each["source"] for each in found} | {
            note.removesuffix(" is a link to it") for each in found for note in each["notes"]
        } >= {name for name in files if not name.endswith(".json")}
        for each in found:
            path = files[each["source"]]
            if each["status"] == "refused":
                assert each["notes"]
                with pytest.raises(UnicodeDecodeError):
                    path.read_bytes().decode()
                continue
            doc = place.doc(each["path"])
            text = path.read_bytes().decode().removeprefix("\ufeff")
            assert text.endswith(doc.body)
            assert doc.body.strip() or not text.rpartition("---")[2].strip()
            if path.suffix == ".mdc":
                self.literal(text, doc)
        before = place.tree()
        again = place.json(*texts, code=1)
        assert {each["status"] for each in again} <= {"same", "refused"}
        assert place.tree() == before

    def test_the_corpus_as_folders(self, place: Place) -> None:
        files = self.lay_out(place)
        folders = sorted(path for path in place.home.iterdir() if path.name != "megaharness")
        found = [each for each in place.json(*folders) if not each["path"].startswith("projects/")]
        assert len(found) >= 40
        assert {each["status"] for each in found} == {"new"}
        for each in found:
            doc = place.doc(each["path"])
            assert doc.clauses is not None
            assert "project_id" in clauses(doc)
            assert files[each["source"]].read_bytes().decode().endswith(doc.body)
            assert doc.path in told(place, doc)
        before = place.tree()
        assert {each["status"] for each in place.json(*folders)} == {"same"}
        assert place.tree() == before

    @staticmethod
    def literal(text: str, doc: Doc) -> None:
        line = re.search(r"^globs:[ \t]*(\*.*)$", text, re.M)
        if line is not None and not re.search(r"^alwaysApply: *true", text, re.M):
            assert doc.kind == "instruction"
            assert ", ".join(doc.globs) == line[1].strip()


class Racing(Files):
    """Somebody else takes the name of a new document just before it gets it."""

    def before(self, name: str, *args: object) -> None:
        if name == "move" and not os.path.lexists(str(args[1])):
            place = Path(str(args[1]))
            if not list(place.parent.glob("*.md")):
                place.write_text("theirs\n")


def test_a_name_that_is_taken_at_the_last_moment_is_not_written_over(tmp_path: Path) -> None:
    root, home = tmp_path / "md-db", tmp_path / "home"
    root.mkdir()
    home.mkdir()
    (home / "n.md").write_text("ours\n")
    (found,) = sources.find([home / "n.md"], home, tmp_path / "ws", Files()).candidates
    outcome = list(Intake(root, Racing()).take(found))[-1]
    assert outcome.status == "new"
    assert (root / "instructions/n.md").read_text() == "theirs\n"
    assert outcome.path != "instructions/n.md"
    assert frontmatter.read((root / outcome.path).read_bytes()).body == "ours\n"
    assert sorted(path.name for path in (root / "instructions").iterdir()) == sorted(
        ["n.md", Path(outcome.path).name]
    )
