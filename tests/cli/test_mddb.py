"""`mh mddb`: list, show, log, diff."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.durable import Files
from daemon.mddb.revisions import Revisions, blob_id

pytestmark = pytest.mark.slow

A, SKILL = "instructions/committing.md", "skills/review/SKILL.md"
WHO = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")


def git(place, *words: str) -> str:
    ran = subprocess.run(
        ["git", *WHO, *words], cwd=place.root, env=place.env, capture_output=True, text=True, check=True
    )
    return ran.stdout.strip()


def put(place, **documents: str) -> None:
    names = {"a": A, "skill": SKILL}
    for name, text in documents.items():
        path = place.root / "md-db" / names.get(name, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def commit(place, message: str) -> str:
    git(place, "add", "-A")
    git(place, "commit", "--quiet", "-m", message)
    return git(place, "rev-parse", "HEAD")


def told(place) -> str:
    """What the daemon does before a session."""
    data = {A: (place.root / "md-db" / A).read_bytes()}
    revision = Revisions(place.root, Files()).record({A: blob_id(data[A])}, data)
    assert revision is not None
    return revision


def inside(place, folder: Path, *words: str) -> str:
    """What `mh` prints when it is called there."""
    home, place.home = place.home, folder
    try:
        return str(place.mh(*words))
    finally:
        place.home = home


def test_log_names_what_was_committed_and_what_was_told(place):
    put(place, a="one\n")
    assert "is not committed, and no session was told it yet" in place.mh("mddb", "log", A)
    first = commit(place, "first words")
    put(place, a="two\n")
    ours = told(place)
    put(place, a="three\n")
    last = commit(place, "other words")
    lines = place.mh("mddb", "log", A).splitlines()
    assert [line[:12] for line in lines] == [each[:12] for each in (last, ours, first)]
    assert [line.split("  ", 2)[2].split("  ")[0] for line in lines] == ["Ann", "(not committed)", "Ann"]
    assert lines[0].endswith("  other words")
    rows = place.json("mddb", "log", A)
    assert [(row["commit"], row["own"]) for row in rows] == [(last, False), (ours, True), (first, False)]
    assert set(rows[0]) == {"commit", "when", "author", "subject", "own", "blob"}
    short = place.mh("mddb", "log", A, "--limit", "2").splitlines()
    assert short == [*lines[:2], "…  older ones: --limit N"]
    assert len(place.json("mddb", "log", A, "--limit", "1")) == 1
    # What is gone has a history too.
    (place.root / "md-db" / A).unlink()
    commit(place, "not needed")
    assert place.mh("mddb", "log", A).splitlines()[0].endswith("not needed  [it is gone]")


def test_diff_since_head_since_a_commit_and_between_two(place):
    put(place, a="one\n")
    first = commit(place, "first")
    assert place.mh("mddb", "diff", A) == "no change since HEAD\n"
    put(place, a="two\n")
    assert place.mh("mddb", "diff", A).splitlines()[2:] == ["@@ -1 +1 @@", "-one", "+two"]
    second = commit(place, "second")
    put(place, a="three\n")
    assert place.mh("mddb", "diff", A, "HEAD~1").splitlines()[3:] == ["-one", "+three"]
    assert place.mh("mddb", "diff", A, first[:10], second[:10]).splitlines()[3:] == ["-one", "+two"]
    assert "no change from HEAD to main" in place.mh("mddb", "diff", A, "HEAD", "main")
    assert "there is no commit 'HEAD~7'" in place.mh("mddb", "diff", A, "HEAD~7", code=2)
    assert "\x1b" not in place.mh("mddb", "diff", A)
    (place.root / "md-db" / A).unlink()
    assert "+++ /dev/null" in place.mh("mddb", "diff", A)


def test_a_diff_can_be_applied(place):
    put(place, a="one\r\n\tünï\n")
    commit(place, "first")
    put(place, a="one\r\nmore\x1b[31m\n\tünï\nno end")
    patch = place.home / "patch"
    patch.write_bytes(
        subprocess.run(
            [sys.executable, "-P", "-m", "daemon", "mddb", "diff", A],
            env=place.env,
            cwd=place.home,
            capture_output=True,
            check=True,
        ).stdout
    )
    git(place, "stash", "--quiet")
    git(place, "apply", str(patch))
    assert (place.root / "md-db" / A).read_bytes() == b"one\r\nmore\x1b[31m\n\t\xc3\xbcn\xc3\xaf\nno end"


def test_before_the_first_commit_there_is_nothing_to_compare_with(place):
    put(place, a="one\n")
    assert "there is no commit 'HEAD'" in place.mh("mddb", "diff", A, code=2)


def test_colours_are_for_terminals_and_control_characters_are_not(place):
    put(place, a="one\n")
    commit(place, "first")
    put(place, a="two \x1b]0;title\x07\n")
    ours, theirs = pty.openpty()
    try:
        argv = [sys.executable, "-P", "-m", "daemon", "mddb", "diff", A]
        subprocess.run(argv, env=place.env, cwd=place.home, stdout=theirs, timeout=60, check=True)
        said = os.read(ours, 1 << 16).decode()
        subprocess.run([*argv[:-2], "show", A], env=place.env, cwd=place.home, stdout=theirs, check=True)
        shown = os.read(ours, 1 << 16).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert "\x1b[32m+two \\x1b]0;title\\x07\x1b[0m" in said
    assert "\x1b[31m-one\x1b[0m" in said
    assert shown.replace("\r\n", "\n") == "two \\x1b]0;title\\x07\n"


def test_show_prints_it_as_it_is_or_was(place):
    put(place, a="one\r\n\x00\n")
    first = commit(place, "first")
    put(place, a="two")
    assert place.mh("mddb", "show", A) == "two"
    argv = [sys.executable, "-P", "-m", "daemon", "mddb", "show", A, first]
    ran = subprocess.run(argv, env=place.env, cwd=place.home, capture_output=True, check=True)
    assert ran.stdout == b"one\r\n\x00\n"
    put(place, skill="x")
    assert f"there is no {SKILL} at HEAD" in place.mh("mddb", "show", SKILL, "HEAD", code=2)
    (place.root / "md-db" / A).unlink()
    assert "there is no document" in place.mh("mddb", "show", A, code=2)
    assert place.mh("mddb", "show", A, "HEAD").startswith("one")


@pytest.mark.parametrize("kind", ["none", "a file"])
def test_without_a_repository_what_is_there_is_shown(place, kind):
    put(place, a="one\n")
    (place.root / ".git").rename(place.home / "gone")
    if kind == "a file":
        (place.root / ".git").write_text(f"gitdir: {place.home}/gone\n")
    assert place.mh("mddb", "show", A) == "one\n"
    assert A in place.mh("mddb", "list")
    for words in (["log", A], ["diff", A], ["show", A, "HEAD"]):
        assert "is no git repository" in place.mh("mddb", *words, code=1)
    assert "there is no document" in place.mh("mddb", "log", "other.md", code=2)


def test_a_document_may_be_named_in_many_ways(place):
    put(place, a="one\n", skill="two\n")
    mddb = place.root / "md-db"
    for words in (A, f"md-db/{A}", f"./md-db/{A}", str(mddb / A), A.removesuffix(".md")):
        assert place.mh("mddb", "show", words) == "one\n"
    for folder, word in (
        (mddb / "instructions", "committing.md"),
        (mddb / "instructions", "./committing"),
        (mddb / "skills", "../instructions/committing.md"),
        (place.root, f"md-db/{A}"),
        (place.root / "tracks", A),
    ):
        assert inside(place, folder, "mddb", "show", word) == "one\n"
    assert place.mh("mddb", "show", "skills/review") == "two\n"
    # The file that lies in the working directory is the one that is meant.
    put(place, **{"skills/instructions/committing.md": "three\n"})
    assert inside(place, mddb / "skills", "mddb", "show", A) == "three\n"
    (place.home / "link").symlink_to(place.root)
    assert place.mh("mddb", "show", f"link/md-db/{A}") == "one\n"


def test_an_unknown_document_names_the_nearest(place):
    put(place, a="one\n", skill="two\n")
    for word, near in (
        ("instructions/commiting.md", A),
        ("commitng", A),
        ("reviews", SKILL),
        ("md-db/instructions/commit.md", A),
    ):
        assert f"did you mean {near}" in place.mh("mddb", "log", word, code=2)
    said = place.mh("mddb", "show", "xyz", code=2)
    assert "`mh mddb list` lists the documents" in said
    (place.home / "own.md").write_text("x")
    (place.root / "other.md").write_text("x")
    for word in (str(place.root / "other.md"), str(place.home / "own.md"), "/etc/passwd"):
        assert "is not in" in place.mh("mddb", "show", word, code=2)


def test_list_says_for_whom_each_is_and_what_is_wrong(place):
    for path in (place.root / "md-db").rglob("*.md"):
        if path.name not in ("README.md", "working-unattended.md"):
            path.unlink()
    put(
        place,
        a="---\napplies_when: {harness: claude-code, kind: [fix, not: docs]}\norder: 5\n"
        "overrides: working-unattended.md\n---\nx\n",
        skill="---\nname: review\ndescription: Reads a diff.\n---\nx\n",
    )
    put(place, **{"instructions/bad.md": "---\napplies_wen: {kind: fix}\n---\nx\n", "stray.md": "x"})
    put(place, **{"sidecar/scope.md": "---\nrule: scope\naction: message\n---\nx\n", "projects/shop.md": "x"})
    lines = place.mh("mddb", "list").splitlines()
    text = "\n".join(lines)
    assert [line for line in lines if line[0] not in " !"] == [
        *("project", "instruction", "skill", "sidecar", "no documents"),
        "6 documents: 1 project, 3 instruction, 1 skill, 1 sidecar; 1 cannot be read",
    ]
    assert (
        f"  {A}          harness_id: claude-code; kind: fix, not docs; order 5; "
        "overrides instructions/working-unattended.md" in lines
    )
    assert "  instructions/working-unattended.md  always; order 10" in lines
    assert "! instructions/bad.md" in lines
    assert "      line 2, applies_wen: there is no key `applies_wen`" in text
    assert f"  {SKILL}  named to all" in lines
    assert "  stray.md" in lines
    assert "README.md" not in text
    assert place.mh("mddb", "list", "--kind", "skill").splitlines()[-1] == "1 document: 1 skill"
    facts = place.json("mddb", "list")
    assert facts["strays"] == ["stray.md"]
    rows = {row["path"]: row for row in facts["documents"]}
    assert rows[A]["applies_when"] == {
        "harness_id": {"any": ["claude-code"], "not": []},
        "kind": {"any": ["fix"], "not": ["docs"]},
    }
    assert rows[A]["blob"] == blob_id((place.root / "md-db" / A).read_bytes())
    assert rows["instructions/bad.md"]["problems"][0]["line"] == 2
    assert json.loads(place.mh("mddb", "list", "--kind", "policy", "--json"))["documents"] == []


def test_the_group_explains_itself(place):
    said = place.mh("mddb", "--help")
    for name in ("list", "show", "log", "diff"):
        assert f"\n  {name} " in said
    assert "Show, compare and import what agents are told." in place.mh("--help")
    assert "Did you mean `mh mddb diff`?" in place.mh("mddb", "dif", code=2).replace("megaharness", "mh")
    assert "`mh mddb --help` lists all" in place.mh("mddb", "xyz", code=2)


def test_names_and_paths_are_completed(place):
    put(place, a="x", skill="x")
    assert {"list", "show", "log", "diff"} <= set(place.values("mddb", ""))
    assert place.values("mddb", "lo") == ["log"]
    assert "--limit" in place.values("mddb", "log", "--")
    assert A in place.values("mddb", "show", "instructions/c")
    assert all(each.startswith("instructions/c") for each in place.values("mddb", "show", "instructions/c"))
    assert {A, SKILL} <= set(place.values("mddb", "diff", ""))
    assert [kind for kind, _ in place.complete("mddb", "log", "./")] == ["file"]
    assert "fix" not in place.values("mddb", "list", "--kind", "")
    assert "skill" in place.values("mddb", "list", "--kind", "s")
