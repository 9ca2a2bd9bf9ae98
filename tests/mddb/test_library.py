"""Real files: what is read and when, and what odd things lie where documents are meant."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from daemon.durable import Files
from daemon.errors import Problem
from daemon.mddb import library as lib
from daemon.mddb.library import Library, Unrecorded, rebuild
from daemon.mddb.resolver import Context, DatabaseFault, Instruction, Skill
from daemon.mddb.revisions import Revisions
from daemon.spool.frontmatter import MAX_FILE

CORPUS = Path(__file__).parents[2].parent / "shared/corpus/d_md"
HERE = Context("codex", "gpt-5", "shop", "fix")
BROKEN = "---\nordr: 1\n---\nText.\n"


class CountingFiles(Files):
    """The real ones; `opens` are the names that were opened, in that order."""

    def __init__(self) -> None:
        super().__init__()
        self.opens: list[str] = []

    def before(self, name: str, *args: object) -> None:
        if name == "open":
            self.opens.append(Path(str(args[0])).name)

    def taken(self) -> list[str]:
        taken, self.opens = self.opens, []
        return taken


class Keeper:
    """A recorder that keeps what it got; what is told must be in it."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.revisions: list[dict[str, str]] = []
        self.refuses = False

    def blob_id(self, data: bytes) -> str:
        return Unrecorded().blob_id(data)

    def record(self, documents: Mapping[str, str], new: Mapping[str, bytes]) -> str | None:
        if self.refuses:
            raise OSError(28, "No space left on device")
        for data in new.values():
            self.blobs[self.blob_id(data)] = data
        if not self.revisions or self.revisions[-1] != documents:
            self.revisions.append(dict(documents))
        return str(len(self.revisions) - 1)

    def contents(self, revision: str | None) -> dict[str, bytes]:
        assert revision is not None
        return {path: self.blobs[sha] for path, sha in self.revisions[int(revision)].items()}


class Place:
    """A database, with what was read of it and kept."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files, self.keeper = CountingFiles(), Keeper()
        self.library = Library(root, self.files, self.keeper)

    def write(self, path: str, text: str | bytes = "Text.\n") -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    def resolve(self, context: Context = HERE) -> Instruction:
        found = self.library.resolve(context)
        # Whatever was told can be built again from what was recorded.
        assert found.revision is not None
        contents = self.keeper.contents(found.revision)
        # What could not be read has left nothing to be built from.
        readable = replace(found, missed=tuple(each for each in found.missed if each.sha))
        assert rebuild(context, contents, self.keeper, found.revision) == readable
        return found

    def told(self, context: Context = HERE) -> list[str]:
        return [each.path for each in self.resolve(context).told]

    def faults(self, context: Context = HERE) -> Mapping[str, object]:
        with pytest.raises(DatabaseFault) as caught:
            self.library.resolve(context)
        return caught.value.faults

    def problem(self, path: str) -> Problem:
        (problem,) = self.library.documents()[path].problems
        return problem


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "md-db/instructions").mkdir(parents=True)
    return Place(tmp_path / "md-db")


# --- what is read, and when


def test_an_empty_database_and_none_at_all(place: Place, tmp_path: Path) -> None:
    assert place.told() == []
    none = Place(tmp_path / "none")
    assert none.told() == []
    assert none.library.projects() == []
    assert none.library.project("shop") is None
    assert none.library.denied(HERE, told=True) is None
    assert none.library.strays() == []
    (tmp_path / "file").write_text("x")
    assert Place(tmp_path / "file").told() == []


def test_one_changed_document_costs_one_read_and_none_costs_none(place: Place) -> None:
    for n in range(20):
        place.write(f"instructions/{n:02}.md")
    place.write("skills/s/SKILL.md")
    place.write("skills/s/notes.md")
    place.write("sidecar/x.md", "---\nrule: focus\n---\n")
    place.write("instructions/README.md")
    place.resolve()
    assert len(place.files.taken()) == 22
    for _ in range(3):
        place.resolve()
        place.library.documents()
        place.library.denied(HERE, told=True)
        place.library.project("shop")
    assert place.files.taken() == []
    place.write("instructions/07.md", "Other text.\n")
    assert "Other text." in place.resolve().text("instruction")
    assert place.files.taken() == ["07.md"]
    place.resolve()
    assert place.files.taken() == []
    place.write("instructions/new.md")
    assert "instructions/new.md" in place.told()
    assert place.files.taken() == ["new.md"]


def test_a_touched_document_is_read_and_is_the_same(place: Place) -> None:
    place.write("instructions/a.md")
    before = place.resolve()
    time.sleep(lib.STEP)
    os.utime(place.root / "instructions/a.md")
    assert place.resolve() == before
    assert place.files.taken() == ["a.md", "a.md"]


def test_an_edit_of_the_same_size_and_time_is_seen(place: Place) -> None:
    """Each edit follows its reading at once: the clock of the file system has not moved when nobody waits for it."""
    file = place.write("instructions/a.md", "Text 0.\n")
    facts = file.stat()
    for n in range(1, 10):
        assert place.resolve().text("instruction") == f"Text {n - 1}."
        with file.open("r+b") as same:
            same.write(f"Text {n}.\n".encode())
        os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert place.resolve().text("instruction") == "Text 9."
    assert file.stat().st_mtime_ns == facts.st_mtime_ns


def test_replaced_renamed_deleted(place: Place) -> None:
    file = place.write("instructions/a.md", "One.\n")
    assert place.told() == ["instructions/a.md"]
    other = place.write("instructions/.a.md.tmp", "Two.\n")
    other.rename(file)
    assert place.resolve().text("instruction") == "Two."
    file.rename(file.with_name("b.md"))
    assert place.told() == ["instructions/b.md"]
    (place.root / "instructions/b.md").rename(place.root / "instructions/b.txt")
    assert place.told() == []
    place.write("instructions/c/d.md")
    assert place.told() == ["instructions/c/d.md"]
    (place.root / "instructions/c/d.md").unlink()
    assert place.told() == []
    assert place.keeper.revisions[-1] == {}


def test_what_could_not_be_recorded_is_recorded_the_next_time(place: Place) -> None:
    place.write("instructions/a.md", "Precious.\n")
    place.keeper.refuses = True
    with pytest.raises(OSError, match="No space"):
        place.library.resolve(HERE)
    place.keeper.refuses = False
    place.resolve()
    assert b"Precious.\n" in place.keeper.blobs.values()
    assert place.files.taken() == ["a.md"]


def test_what_is_read_by_the_way_is_recorded_too(place: Place) -> None:
    place.write("projects/shop.md", "The shop.\n")
    assert place.library.project("shop") is not None
    place.write("instructions/router-policy.md", "Policy.\n")
    place.library.denied(HERE, told=True)
    place.resolve()
    assert sorted(place.keeper.blobs.values()) == [b"Policy.\n", b"The shop.\n"]
    # By itself, and by the scan.
    assert set(place.files.taken()) == {"router-policy.md", "shop.md"}


def test_the_id_of_a_document_is_that_of_git() -> None:
    data = "Grüße\n".encode()
    ran = subprocess.run(["git", "hash-object", "--stdin"], input=data, capture_output=True, check=True)
    assert Unrecorded().blob_id(data) == ran.stdout.decode().strip()
    assert Unrecorded().record({}, {}) is None


# --- what may lie there


def test_a_directory_in_place_of_a_document(place: Place) -> None:
    file = place.write("instructions/a.md")
    place.resolve()
    file.unlink()
    file.mkdir()
    place.write("instructions/a.md/inner.md")
    assert list(place.faults()) == ["instructions/a.md"]
    assert "not a regular file" in place.problem("instructions/a.md").message
    place.write("projects/shop.md/x")
    with pytest.raises(DatabaseFault, match="not a regular file"):
        place.library.project("shop")


def test_a_fifo_is_not_waited_for(place: Place) -> None:
    os.mkfifo(place.root / "instructions/a.md")
    assert "not a regular file" in place.problem("instructions/a.md").message
    place.library.documents()
    assert place.files.taken() == ["a.md"]


def test_a_link_to_a_file_and_to_a_folder(place: Place, tmp_path: Path) -> None:
    team = tmp_path / "team"
    team.mkdir()
    (team / "rules.md").write_text("Rules.\n")
    (place.root / "instructions/one.md").symlink_to(team / "rules.md")
    (place.root / "instructions/team").symlink_to(team)
    assert place.told() == ["instructions/one.md", "instructions/team/rules.md"]
    (team / "rules.md").write_text("Others.\n")
    assert place.resolve().text("instruction") == "Others.\n\nOthers."
    (team / "more.md").write_text("More.\n")
    link = place.root / "instructions/one.md"
    link.unlink()
    link.symlink_to(team / "more.md")
    assert place.resolve().text("instruction") == "More.\n\nMore.\n\nOthers."


def test_the_whole_database_may_be_a_link(place: Place, tmp_path: Path) -> None:
    place.write("instructions/a.md")
    (tmp_path / "link").symlink_to(place.root)
    assert Place(tmp_path / "link").told() == ["instructions/a.md"]


def test_rings_of_links_end_and_nothing_is_told_twice(place: Place) -> None:
    place.write("instructions/a.md")
    place.write("instructions/b/c.md")
    (place.root / "instructions/b/up").symlink_to("..")
    (place.root / "instructions/self").symlink_to(".")
    (place.root / "instructions/b/d").symlink_to("../b")
    assert place.told() == ["instructions/a.md", "instructions/b/c.md"]
    assert place.library.strays() == []


def test_a_link_that_leads_nowhere_does_not_go_unseen(place: Place) -> None:
    (place.root / "instructions/a.md").symlink_to("gone.md")
    (place.root / "instructions/team").symlink_to("/nowhere/team")
    (place.root / "instructions/notes.txt").symlink_to("gone.txt")
    (place.root / "instructions/.#a.md").symlink_to("me@host.1234:5")
    (place.root / "instructions/ring.md").symlink_to("ring.md")
    (place.root / "skills").mkdir()
    (place.root / "skills/s").symlink_to("/nowhere/s")
    assert sorted(place.faults()) == ["instructions/a.md", "instructions/ring.md", "instructions/team/*.md"]
    assert place.problem("skills/s/SKILL.md").hint == ""
    assert "leads nowhere" in place.problem("instructions/a.md").message
    with pytest.raises(DatabaseFault):
        place.library.denied(HERE, told=True)
    for name in ("a.md", "ring.md", "team"):
        (place.root / "instructions" / name).unlink()
    assert place.library.denied(HERE, told=True) is None
    assert [each.reason for each in place.resolve().missed if "leads nowhere" in each.reason]


def test_a_name_that_is_not_utf_8(place: Place) -> None:
    for folder in ("instructions", "skills", "projects", "other"):
        (place.root / folder).mkdir(exist_ok=True)
        with open(os.fsencode(place.root / folder) + b"/caf\xe9.md", "wb") as file:
            file.write(b"Text.\n")
    place.library.documents()
    problem = place.problem("instructions/caf\\xe9.md")
    assert (problem.message, problem.hint) == ("its name is not UTF-8", "rename it")
    assert place.library.strays() == ["other/caf\\xe9.md"]
    assert place.library.projects() == ["caf\\xe9"]
    os.rename(os.fsencode(place.root) + b"/instructions/caf\xe9.md", place.root / "instructions/café.md")
    found = place.resolve()
    assert [each.path for each in found.told] == ["instructions/café.md"]
    json.dumps(found.record(), ensure_ascii=False).encode()
    assert place.files.taken() == ["café.md"]


def test_a_file_that_is_too_large(place: Place) -> None:
    place.write("instructions/a.md", b"x" * MAX_FILE)
    assert place.told() == ["instructions/a.md"]
    place.write("instructions/a.md", b"x" * (MAX_FILE + 1))
    assert f"the most is {MAX_FILE}" in place.problem("instructions/a.md").message
    assert list(place.faults()) == ["instructions/a.md"]


def test_a_name_that_is_too_long_is_no_project(place: Place) -> None:
    place.write("projects/shop.md")
    assert place.library.project("x" * 300) is None
    assert place.library.project("../instructions/a") is None
    assert place.library.project("") is None


CLOSED = """
import sys
from pathlib import Path
from daemon.durable import Files
from daemon.mddb.library import Library, Unrecorded
for path, doc in Library(Path(sys.argv[1]), Files(), Unrecorded()).documents().items():
    print(path, *(problem.message for problem in doc.problems), sep=": ")
"""


@pytest.mark.skipif(
    os.geteuid() == 0 and not os.path.exists("/usr/bin/setpriv"), reason="root reads everything"
)
def test_what_may_not_be_read_does_not_go_unseen(place: Place) -> None:
    place.write("instructions/good.md")
    place.write("instructions/closed.md").chmod(0)
    place.write("instructions/shut/a.md")
    place.write("skills/s/SKILL.md")
    place.write("skills/t/SKILL.md").chmod(0)
    (place.root / "instructions/shut").chmod(0)
    (place.root / "skills/s").chmod(0)
    argv = [sys.executable, "-P", "-c", CLOSED, str(place.root)]
    if os.geteuid() == 0:
        drop = "-dac_override,-dac_read_search"
        argv = ["setpriv", f"--bounding-set={drop}", f"--inh-caps={drop}", *argv]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ran = subprocess.run(argv, capture_output=True, text=True, check=True, env=env)
    for shut in ("instructions/shut", "skills/s"):
        (place.root / shut).chmod(0o700)
    assert ran.stdout.splitlines() == [
        "instructions/closed.md: cannot be read: Permission denied",
        "instructions/good.md",
        "instructions/shut/*.md: cannot be looked at, or is a link that leads nowhere",
        "skills/s/SKILL.md: cannot be looked at, or is a link that leads nowhere",
        "skills/t/SKILL.md: cannot be read: Permission denied",
    ]


HOLD = """
import sys, time
file = open(sys.argv[1], "r+b")
file.truncate(); file.write(b"Half"); file.flush()
print("open", flush=True)
sys.stdin.readline()
file.write(b" and whole.\\n"); file.close()
print("closed", flush=True)
"""


def test_who_writes_a_document_is_waited_for(place: Place) -> None:
    file = place.write("instructions/a.md")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
        timer = threading.Timer(lib.PAUSE * 2, lambda: (writer.stdin.write("\n"), writer.stdin.flush()))  # type: ignore[union-attr]
        timer.start()
        said = place.resolve().text("instruction")
        # A machine may be too busy for it to end in time; what it wrote is read then, and again when it has ended.
        assert said in ("Half and whole.", "Half", "Half and whole")
        assert writer.stdout.readline() == "closed\n"
        timer.join()
    assert place.resolve().text("instruction") == "Half and whole."


def test_a_policy_that_is_being_written_is_what_it_was(place: Place) -> None:
    path = "instructions/router-policy.md"
    file = place.write(path, "---\ndeny: {kind: fix, why: too dear}\n---\n")
    denied = "too dear (md-db/instructions/router-policy.md, line 2)"
    assert place.library.denied(HERE, told=False) == denied
    with file.open("r+b") as writing:
        writing.truncate()
        for _ in range(3):
            assert place.library.denied(HERE, told=False) == denied
        writing.write(b"---\ndeny: {kind: docs, why: x}\n---\n")
    assert place.library.denied(HERE, told=False) is None


def test_every_state_can_be_built_again_from_git(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    place = Place(tmp_path / "md-db")
    revisions = Revisions(tmp_path, place.files)
    place.library = Library(place.root, place.files, revisions)
    seen = []
    for n in range(6):
        place.write(f"instructions/{n % 3}.md", f"---\norder: {n}\n---\nText {n}.\n")
        place.write("skills/s/SKILL.md", f"Skill {n}.\n")
        if n == 4:
            (place.root / "instructions/0.md").unlink()
        seen.append(place.library.resolve(HERE))
    assert len({found.revision for found in seen}) == 6
    for found in seen:
        assert found.revision is not None
        assert rebuild(HERE, revisions.documents(found.revision), revisions, found.revision) == found


# --- projects, the policy, faults


def test_projects(place: Place) -> None:
    place.write("projects/shop.md", "---\nrepository: ~/src/shop\ndone_when: it is fast\n---\nThe shop.\n")
    place.write("projects/README.md")
    place.write("projects/.draft.md")
    place.write("projects/a/b.md")
    assert place.library.projects() == ["shop"]
    found = place.library.project("shop")
    assert found is not None
    assert (found.id, found.path, found.repository, found.done_when) == (
        "shop", "projects/shop.md", "~/src/shop", "it is fast",
    )  # fmt: skip
    assert place.library.project("other") is None
    place.write("projects/shop.md", "---\nrepo: x\n---\n")
    with pytest.raises(DatabaseFault, match="write `repository`"):
        place.library.project("shop")
    place.write("projects/shop.md", "Only text.\n")
    found = place.library.project("shop")
    assert found is not None
    assert found.repository is None


def test_the_policy(place: Place) -> None:
    path = "instructions/router-policy.md"
    assert place.library.denied(HERE, told=False) is None
    place.write(
        path,
        '---\ndeny:\n  - {model_id: "gpt-*", harness_id: cursor, why: no}\n  - {kind: fix, why: too dear}\n---\n',
    )
    assert place.library.denied(HERE, told=False) == "too dear (md-db/instructions/router-policy.md, line 4)"
    assert (
        place.library.denied(Context("cursor", "gpt-5"), told=False)
        == "no (md-db/instructions/router-policy.md, line 3)"
    )
    assert place.library.denied(Context("codex", kind="docs"), told=True) is None
    place.write(path, "---\ndeny: [x]\n---\n")
    with pytest.raises(DatabaseFault, match="is a mapping"):
        place.library.denied(HERE, told=False)
    (place.root / path).unlink()
    assert place.library.denied(HERE, told=False) is None


def test_a_fault_that_was_found_holds_until_it_is_mended(place: Place) -> None:
    place.write("instructions/a.md", BROKEN)
    for _ in range(2):
        with pytest.raises(DatabaseFault, match="write `order`"):
            place.library.denied(HERE, told=True)
    assert place.library.denied(HERE, told=False) is None
    place.write("instructions/a.md", "Mended.\n")
    assert place.library.denied(HERE, told=True) is None
    assert place.resolve().text("instruction") == "Mended."


def test_a_fault_concerns_whom_its_clauses_say(place: Place) -> None:
    place.write("instructions/a.md", "---\napplies_when: {kind: docs}\nordr: 1\n---\n")
    place.resolve()
    assert place.library.denied(HERE, told=True) is None
    docs = Context("codex", kind="docs")
    with pytest.raises(DatabaseFault):
        place.library.denied(docs, told=True)
    place.write("instructions/a.md", "---\napplies_when: {kind: fix}\nordr: 1\n---\n")
    assert place.library.denied(docs, told=True) is None


def test_all_of_several_faults_are_looked_at_anew(place: Place) -> None:
    for name in "abc":
        place.write(f"instructions/{name}.md", BROKEN)
    assert len(place.faults()) == 3
    place.write("instructions/a.md")
    (place.root / "instructions/b.md").unlink()
    with pytest.raises(DatabaseFault) as caught:
        place.library.denied(HERE, told=True)
    assert list(caught.value.faults) == ["instructions/c.md"]
    place.write("instructions/c.md")
    assert place.library.denied(HERE, told=True) is None
    assert place.told() == ["instructions/a.md", "instructions/c.md"]


def test_a_faulty_one_that_another_removes_holds_nobody(place: Place) -> None:
    place.write("instructions/a.md", BROKEN)
    place.write("instructions/b.md", "---\noverrides: a\n---\nText.\n")
    assert place.told() == ["instructions/b.md"]
    assert place.library.denied(HERE, told=True) is None


def test_a_fault_can_be_mended_by_an_override(place: Place) -> None:
    place.write("instructions/a.md", BROKEN)
    place.faults()
    place.write("instructions/b.md", "---\noverrides: a\n---\nText.\n")
    deadline = time.monotonic() + 60
    while True:
        try:
            place.library.denied(HERE, told=True)
        except DatabaseFault:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            break


def test_a_skill_that_cannot_be_read_holds_nobody(place: Place) -> None:
    place.write("skills/s.md", BROKEN)
    assert place.told() == []
    assert place.library.denied(HERE, told=True) is None


# --- strays


def test_markdown_that_is_never_told_is_listed(place: Place) -> None:
    for path in (
        "README.md", "instructions/a.md", "instructions/deep/README.md", "skills/s/SKILL.md", "skills/s/notes.md",
        "skills/s/references/api.mdx", "evals/2026-12.md", "projects/a.md", "sidecar/x.txt", ".obsidian/x.md",
        "skills/README.md",
    ):  # fmt: skip
        place.write(path)
    assert place.library.strays() == []
    odd = [
        "AGENTS.md", "instruction/a.md", "instructions/a.MD", "instructions/a.sync-conflict-1-2-3.md",
        "instructions/rule.mdc", "projects/team/a.md", "sidecar/deep/x.md", "skills/SKILL.md", "skills/t/notes.md",
        "skills/t/skill.md", "skills/x.markdown",
    ]  # fmt: skip
    for path in odd:
        place.write(path)
    assert place.library.strays() == sorted(odd)


# --- several threads


def test_eight_threads_ask_while_files_change(place: Place) -> None:
    """Whatever each of them gets was in the files at some moment, and is kept."""
    names = [f"instructions/{n}.md" for n in range(6)]
    versions = {name: {f"{name} {n}" for n in range(400)} for name in names}
    for name in names:
        place.write(name, f"{name} 0\n")
    place.write("projects/shop.md", "The shop.\n")
    place.resolve()
    stop = threading.Event()

    def change(part: list[str], atomic: bool) -> None:
        for n in range(1, 400):
            for name in part:
                text = f"{name} {n}\n"
                if atomic:
                    temp = place.write(f"instructions/.{n}.tmp", text)
                    temp.rename(place.root / name)
                else:
                    with (place.root / name).open("r+b") as file:
                        os.pwrite(file.fileno(), text.encode().ljust(40) + b"\n", 0)
            if stop.wait(0.001):
                break

    def ask(number: int) -> list[Instruction]:
        found = []
        for n in range(25):
            if (n + number) % 3 == 0:
                assert place.library.denied(HERE, told=True) is None
                assert place.library.project("shop") is not None
            found.append(place.library.resolve(HERE))
        return found

    with ThreadPoolExecutor(10) as pool:
        writers = [pool.submit(change, names[:3], True), pool.submit(change, names[3:], False)]
        askers = [pool.submit(ask, number) for number in range(8)]
        results = [found for asker in askers for found in asker.result()]
        stop.set()
        for writer in writers:
            writer.result()
    assert len(results) == 200
    for found in results:
        contents = place.keeper.contents(found.revision)
        for each in found.told:
            assert (
                hashlib.sha1(b"blob %d\0" % len(contents[each.path]) + contents[each.path]).hexdigest()
                == each.sha
            )
        for section in found.sections:
            if section.path in versions:
                assert section.text in versions[section.path]
                assert section.text == contents[section.path].decode().strip()
    final = place.resolve()
    assert {s.path: s.text for s in final.sections if s.path in versions} == {
        name: (place.root / name).read_text().strip() for name in names
    }


# --- real ones


@pytest.mark.parametrize("form", ["instructions", "skills"])
def test_the_corpus(place: Place, form: str) -> None:
    """Other people's files as ours: each is told or has a problem with its place, none is silently inactive."""
    files = sorted(path for path in CORPUS.rglob("*") if path.is_file())
    if not files:
        assert not os.environ.get("CI"), f"{CORPUS} is missing"
        pytest.skip(f"{CORPUS} is not here")
    laid = set()
    for number, file in enumerate(files):
        path = (
            f"instructions/{number:03}-{file.stem}.md"
            if form == "instructions"
            else f"skills/{number:03}/SKILL.md"
        )
        if path.endswith("/SKILL.md") or file.stem.lower() != "readme":
            place.write(path, file.read_bytes())
            laid.add(path)
    docs = place.library.documents()
    assert set(docs) == laid
    assert place.library.strays() == []
    assert len(laid) >= 140
    bad = {path for path, doc in docs.items() if doc.problems}
    for path in bad:
        for problem in docs[path].problems:
            assert problem.line is not None or problem.offset is not None, problem
            assert problem.hint, problem
    if form == "instructions":
        assert set(place.faults()) == {path for path in bad if docs[path].clauses is None}
        for path in bad:
            (place.root / path).unlink()
        assert set(place.told()) == laid - bad
        assert all(docs[path].body.strip() in place.resolve().text("instruction") for path in laid - bad)
    else:
        found = place.resolve()
        assert {each.path for each in found.told} == laid - bad
        assert {each.path for each in found.missed} == bad
        assert len(bad) < len(laid) / 2


def test_a_folder_for_a_skill_without_one_does_not_go_unseen(place: Place) -> None:
    (place.root / "skills/empty").mkdir(parents=True)
    (place.root / "skills/odd").mkdir()
    (place.root / "skills/odd/run.sh").write_text("true")
    place.write("skills/deep/er/SKILL.md", "x")
    place.write("skills/named/skill.md", "x")
    assert place.library.strays() == ["skills/named/skill.md", "skills/odd/"]


def skill_of(place: Place) -> Skill:
    (skill,) = place.resolve().skills
    return skill


def test_a_skill_is_what_was_read_whatever_has_become_of_its_files(place: Place) -> None:
    (place.root / "elsewhere.md").write_text("The text.\n")
    folder = place.root / "skills/s"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").symlink_to(place.root / "elsewhere.md")
    for number in range(lib.SKILL_FILES + 5):
        (folder / f"{number:05}.txt").write_text("x")
    skill = skill_of(place)
    (place.root / "elsewhere.md").write_text("Another text.\n")
    found = list(place.library.files(skill))
    assert (found[0].path, found[0].data) == ("SKILL.md", b"The text.\n")
    assert len(found) == lib.SKILL_FILES + 1
    assert "more than 200 files" in found[-1].left_out


def test_what_of_a_skill_cannot_be_placed_is_said(place: Place) -> None:
    place.write("skills/s/SKILL.md", "x")
    folder = place.root / "skills/s"
    (folder / "big.bin").write_bytes(b"0" * (lib.SKILL_BYTES + 1))
    (folder / "out").symlink_to("/etc/passwd")
    (folder / "folder").symlink_to("/etc")
    (folder / "in.md").symlink_to(place.root / "skills/s/SKILL.md")
    os.mkfifo(folder / "pipe")
    (folder / "run.sh").write_text("true")
    (folder / "run.sh").chmod(0o700)
    found = {each.path: each for each in place.library.files(skill_of(place))}
    assert {path: each.left_out for path, each in found.items() if each.left_out} == {
        "big.bin": f"with it they are more than {lib.SKILL_BYTES} bytes",
        "out": "a link that leads out of md-db",
        "folder": "a link to a folder",
        "pipe": "pipe is not a regular file",
    }
    assert found["run.sh"].executable
    assert found["in.md"].data == found["SKILL.md"].data


def test_a_mesh_of_links_ends_and_everything_is_told_once(place: Place) -> None:
    folders = [place.root / f"instructions/{name}" for name in "abcdefghi"]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "x.md").write_text(folder.name)
    for folder in folders:
        for other in folders:
            (folder / f"to-{other.name}").symlink_to(other)
    assert place.told() == [f"instructions/{folder.name}/x.md" for folder in folders]


@pytest.mark.parametrize("how", ["link", "file"])
def test_a_folder_of_documents_that_is_gone_does_not_go_unseen(place: Place, how: str) -> None:
    shutil.rmtree(place.root / "instructions", ignore_errors=True)
    if how == "link":
        (place.root / "instructions").symlink_to("/mnt/gone")
    else:
        (place.root / "instructions").write_text("x")
    assert list(place.faults()) == ["instructions/*.md"]
    with pytest.raises(DatabaseFault):
        place.library.denied(HERE, told=True)
