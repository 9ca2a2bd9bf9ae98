"""The commit that is recorded holds what was read, stays, and nothing of the person's is touched."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from daemon.durable import Files
from daemon.errors import UsageError
from daemon.git import GitError
from daemon.mddb.library import Library
from daemon.mddb.resolver import Context
from daemon.mddb.revisions import REF, Revisions, blob_id

pytestmark = pytest.mark.slow

Git = Callable[..., str]
ONE = {"instructions/a.md": b"one\n", "skills/x/SKILL.md": b"two\r\n"}
#: Names that git, a shell or a line-based format could take for something else.
ODD = {
    "instructions/with space.md": b"1",
    "instructions/ünï\u2028cødé.md": b"2\n",
    "instructions/new\nline.md": b"3\n",
    "instructions/-n.md": b"4\n\n",
    'instructions/quo"te\\back\ttab.md': b"5\0\xff",
    "instructions/:(top)*.md": b"",
    os.fsdecode(b"instructions/\xff.md"): b"7",
    "instructions/-x/--y.md": b"8",
}


@pytest.fixture
def root(tmp_path: Path, agent_git: Git) -> Path:
    """A workspace in which nothing is committed."""
    root = tmp_path / "w"
    root.mkdir()
    agent_git(root, "init", "--quiet", "--initial-branch=main")
    return root


@pytest.fixture
def revisions(root: Path) -> Revisions:
    return Revisions(root, Files())


def put(root: Path, documents: dict[str, bytes]) -> None:
    for path, data in documents.items():
        (root / "md-db" / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "md-db" / path).write_bytes(data)


def commit(root: Path, git: Git, documents: dict[str, bytes], message: str = "by hand") -> str:
    """The person saves and commits."""
    put(root, documents)
    git(root, "add", "-A", "-f", "md-db")
    git(root, "commit", "--quiet", "-m", message)
    return git(root, "rev-parse", "HEAD")


def record(revisions: Revisions, documents: dict[str, bytes]) -> str | None:
    """As a library does that has just read them."""
    return revisions.record({path: revisions.blob_id(data) for path, data in documents.items()}, documents)


def recorded(revisions: Revisions, documents: dict[str, bytes]) -> str:
    """The revision; it holds exactly this."""
    revision = record(revisions, documents)
    assert revision is not None, revisions.refusal
    assert revisions.documents(revision) == documents
    assert revisions.read(revision, [*documents, "none.md"]) == documents
    return revision


def persons(root: Path, git: Git) -> object:
    """All that is the person's: the index, HEAD, branches, the work tree."""
    refs = [line for line in git(root, "for-each-ref").splitlines() if not line.endswith(REF)]
    index = root / ".git" / "index"
    head = (root / ".git/HEAD").read_bytes(), index.read_bytes() if index.exists() else b""
    work = {path: path.stat().st_mtime_ns for path in root.rglob("*") if ".git" not in path.parts}
    names = sorted(os.listdir(root / ".git"))
    return (
        refs,
        head,
        work,
        [name for name in names if name not in ("objects", "refs", "logs", "packed-refs")],
    )


class Calls:
    """A git on the path that writes down how it was called."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log = folder / "calls"
        (folder / "counting").mkdir()
        program = folder / "counting" / "git"
        real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
        program.write_text(f'#!/bin/sh\necho "$*" >> {self.log}\nexec {real} "$@"\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    def since(self) -> list[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.write_text("")
        return lines


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(tmp_path, monkeypatch)


# -- which commit --------------------------------------------------------------------------------


def test_ids_are_gits(root: Path, agent_git: Git, revisions: Revisions) -> None:
    put(root, ONE)
    for path, data in ONE.items():
        assert blob_id(data) == agent_git(root, "hash-object", "--no-filters", f"md-db/{path}")
    assert revisions.hash_name() == "sha1"


def test_head_holds_what_is_committed(root: Path, agent_git: Git, revisions: Revisions) -> None:
    head = commit(root, agent_git, {**ONE, "README.md": b"x", "evals/2026-01.jsonl": b"{}\n"})
    assert recorded(revisions, ONE) == head
    # What is no document may change, and what else is committed too.
    (root / "other").write_text("x")
    (root / "md-db" / "README.md").write_text("y")
    agent_git(root, "add", "-A")
    agent_git(root, "commit", "--quiet", "-m", "something else")
    assert recorded(revisions, ONE) == agent_git(root, "rev-parse", "HEAD") != head


@pytest.mark.parametrize(
    "now",
    [
        pytest.param({**ONE, "instructions/a.md": b"changed"}, id="dirty"),
        pytest.param({**ONE, "instructions/new/b.md": b"new"}, id="untracked"),
        pytest.param({"instructions/a.md": b"one\n"}, id="deleted"),
        pytest.param({"skills/x/SKILL.md": b"two\r\n", "instructions/b.md": b"one\n"}, id="renamed"),
        pytest.param({}, id="all gone"),
        pytest.param({"instructions/a.md/b.md": b"x", "skills/x": b"y"}, id="a file is a folder now"),
    ],
)
def test_what_is_not_committed_is_held_by_a_commit_of_ours(
    root: Path, agent_git: Git, revisions: Revisions, now: dict[str, bytes]
) -> None:
    head = commit(root, agent_git, {**ONE, "README.md": b"x"})
    before = persons(root, agent_git)
    revision = record(revisions, now)
    assert revision is not None
    assert revisions.read(revision, list(now)) == now
    held = {path: data for path, data in now.items() if path.endswith(".md")}
    assert revisions.documents(revision) == held
    assert persons(root, agent_git) == before
    assert agent_git(root, "rev-parse", REF, f"{REF}^@").split() == [revision, head]
    # A daemon that has been started anew finds it again; committed by hand it is theirs.
    assert record(Revisions(root, Files()), now) == revision
    assert agent_git(root, "show", "--format=%an", "--no-patch", revision) == "megaHarness"
    assert agent_git(root, "ls-tree", "--name-only", revision, "md-db/README.md")


def test_what_is_committed_by_hand_afterwards_is_theirs(
    root: Path, agent_git: Git, revisions: Revisions
) -> None:
    commit(root, agent_git, ONE)
    now = {**ONE, "instructions/a.md": b"two\n"}
    ours = recorded(revisions, now)
    head = commit(root, agent_git, now)
    assert recorded(revisions, now) == head != ours
    assert agent_git(root, "status", "--porcelain") == ""


def test_a_file_that_was_only_staged_or_only_committed_is_not_what_was_read(
    root: Path, agent_git: Git, revisions: Revisions
) -> None:
    head = commit(root, agent_git, ONE)
    put(root, {"instructions/a.md": b"staged\n"})
    agent_git(root, "add", "-A")
    before = persons(root, agent_git)
    assert recorded(revisions, ONE) == head
    assert recorded(revisions, {**ONE, "instructions/a.md": b"newer\n"}) != head
    assert persons(root, agent_git) == before


def test_before_the_first_commit(root: Path, agent_git: Git, revisions: Revisions) -> None:
    first = recorded(revisions, ONE)
    assert recorded(revisions, ONE) == first
    second = recorded(revisions, {**ONE, "projects/p.md": b"x"})
    assert agent_git(root, "rev-parse", f"{second}^@") == first
    assert not (root / ".git" / "refs" / "heads" / "main").exists()
    assert not (root / ".git" / "index").exists()
    head = commit(root, agent_git, ONE)
    assert recorded(revisions, ONE) == head


def test_with_no_branch_checked_out(root: Path, agent_git: Git, revisions: Revisions) -> None:
    head = commit(root, agent_git, ONE)
    commit(root, agent_git, {"instructions/a.md": b"later"})
    agent_git(root, "checkout", "--quiet", "--detach", head)
    assert recorded(revisions, ONE) == head
    assert recorded(revisions, ODD) != head
    assert (root / ".git" / "HEAD").read_text().strip() == head


@pytest.mark.parametrize("committed", [True, False])
def test_odd_names(root: Path, agent_git: Git, revisions: Revisions, committed: bool) -> None:
    head = commit(root, agent_git, ODD if committed else ONE)
    assert (recorded(revisions, ODD) == head) is committed
    changed = {path: data + b"!" for path, data in ODD.items()}
    revision = recorded(revisions, changed)
    put(root, {path: data + b"?" for path, data in ODD.items()})
    for path in ODD:
        assert len(revisions.log(path)) == 2, path
        text = revisions.diff(path, revision)
        assert text.splitlines()[-2 if text.endswith("file\n") else -1].startswith(("+", " ", "-"))
    names = agent_git(root, "log", "-1", "--format=%B", REF)
    assert "instructions/new?line.md changed" in names or "new?line.md new" in names


def test_a_path_that_leaves_the_folder_is_a_bug(revisions: Revisions) -> None:
    for path in ("../x.md", "a//b.md", "/x.md", "", ".git/x.md", "a/./b.md"):
        with pytest.raises(ValueError, match="no path below md-db"):
            record(revisions, {path: b"x"})


@pytest.mark.parametrize("kind", ["none", "a file", "a link", "broken", "not git's"])
def test_without_a_repository_there_is_no_revision(
    root: Path, agent_git: Git, revisions: Revisions, tmp_path: Path, kind: str
) -> None:
    match kind:
        case "none":
            (root / ".git").rename(tmp_path / "gone")
        case "a file":
            (root / ".git").rename(tmp_path / "gone")
            (root / ".git").write_text(f"gitdir: {tmp_path}/gone\n")
        case "a link":
            (root / ".git").rename(tmp_path / "gone")
            (root / ".git").symlink_to(tmp_path / "gone")
        case "broken":
            (root / ".git" / "config").write_text("[core\n")
        case "not git's":
            (root / ".git").rename(tmp_path / "gone")
            (root / ".git").mkdir()
    assert record(revisions, ONE) is None
    assert revisions.refusal
    assert revisions.hash_name() == "sha1"
    for ask in (lambda: revisions.log("x.md"), lambda: revisions.documents("0" * 40)):
        with pytest.raises(GitError):
            ask()


def test_it_is_asked_again_when_there_is_a_repository(
    root: Path, revisions: Revisions, tmp_path: Path
) -> None:
    first = record(revisions, ONE)
    (root / ".git").rename(tmp_path / "gone")
    assert record(revisions, ONE) is None
    (tmp_path / "gone").rename(root / ".git")
    assert record(revisions, ONE) == first
    assert revisions.refusal == ""


def test_what_could_not_be_recorded_is_kept_until_it_can(
    root: Path, agent_git: Git, revisions: Revisions, tmp_path: Path
) -> None:
    ids = {path: blob_id(data) for path, data in ONE.items()}
    (root / ".git").rename(tmp_path / "gone")
    assert revisions.record(ids, ONE) is None
    (tmp_path / "gone").rename(root / ".git")
    revision = revisions.record(ids, {})
    assert revision is not None
    assert revisions.documents(revision) == ONE
    # Somebody takes our ref and with it the objects away: what the files still have is written again.
    put(root, ONE)
    agent_git(root, "update-ref", "-d", REF)
    prune(root, agent_git)
    with pytest.raises(GitError):
        revisions.documents(revision)
    revision = revisions.record(ids, {})
    assert revision is not None
    assert revisions.documents(revision) == ONE
    put(root, {"instructions/a.md": b"changed"})
    agent_git(root, "update-ref", "-d", REF)
    prune(root, agent_git)
    assert revisions.record(ids, {}) is None
    assert blob_id(b"one\n") in revisions.refusal


def test_what_a_library_reads_is_recorded(root: Path, agent_git: Git, calls: Calls) -> None:
    head = commit(root, agent_git, {**ONE, "README.md": b"x", "evals/x.md": b"x", "skills/x/more.md": b"x"})
    revisions = Revisions(root, Files())
    library = Library(root / "md-db", Files(), revisions)
    context = Context("shell")
    assert library.resolve(context).revision == head
    put(root, {"instructions/b.md": b"new\n"})
    revision = library.resolve(context).revision
    assert revision not in (None, head)
    assert revisions.documents(str(revision)) == {**ONE, "instructions/b.md": b"new\n"}
    calls.since()
    assert library.resolve(context).revision == revision
    assert calls.since() == []


def test_a_repository_with_sha256(tmp_path: Path, agent_git: Git) -> None:
    root = tmp_path / "w"
    root.mkdir()
    agent_git(root, "init", "--quiet", "--object-format=sha256")
    revisions = Revisions(root, Files())
    assert revisions.hash_name() == "sha256"
    assert len(recorded(revisions, ONE)) == 64
    head = commit(root, agent_git, ONE)
    assert recorded(revisions, ONE) == head
    assert revisions.log("instructions/a.md")[0].blob == blob_id(b"one\n", "sha256")
    assert recorded(revisions, {**ONE, **ODD}) != head


def test_with_a_conversion_of_line_ends_head_is_not_what_was_read(
    root: Path, agent_git: Git, revisions: Revisions
) -> None:
    agent_git(root, "config", "core.autocrlf", "input")
    head = commit(root, agent_git, ONE)
    assert agent_git(root, "status", "--porcelain") == ""
    assert recorded(revisions, ONE) != head


def test_a_link_in_head_is_no_document(root: Path, agent_git: Git, revisions: Revisions) -> None:
    put(root, ONE)
    (root / "md-db/instructions/link.md").symlink_to("a.md")
    head = commit(root, agent_git, {})
    assert recorded(revisions, ONE) == head
    assert recorded(revisions, {**ONE, "instructions/link.md": b"a.md"}) != head


def test_a_replaced_object_is_not_believed(root: Path, agent_git: Git, revisions: Revisions) -> None:
    head = commit(root, agent_git, ONE)
    (root / "other").write_text("replaced\n")
    agent_git(root, "replace", blob_id(b"one\n"), agent_git(root, "hash-object", "-w", "other"))
    assert recorded(revisions, ONE) == head


def test_an_object_that_is_missing_is_written_again(root: Path, agent_git: Git, revisions: Revisions) -> None:
    commit(root, agent_git, ONE)
    blob = blob_id(b"one\n")
    (root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    revision = recorded(revisions, {"instructions/b.md": b"one\n"})
    assert revisions.read(revision, ["instructions/b.md"]) == {"instructions/b.md": b"one\n"}
    assert not list((root / ".git").glob("fast_import_crash_*"))


def test_a_disk_that_refuses_is_no_answer(
    root: Path, agent_git: Git, revisions: Revisions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(root, agent_git, ONE)
    program = tmp_path / "full" / "git"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\n[ "$1" = config ] && exit 0\ncat > /dev/null\n'
        'echo "fatal: write error: No space left on device" >&2\nexit 128\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with pytest.raises(OSError) as raised:
        record(revisions, ONE)
    assert raised.value.errno == errno.ENOSPC


# -- it stays ------------------------------------------------------------------------------------


def prune(root: Path, git: Git) -> None:
    git(root, "reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all")
    git(root, "gc", "--quiet", "--prune=now")


def test_what_was_recorded_survives_garbage_collection(
    root: Path, agent_git: Git, revisions: Revisions
) -> None:
    held: dict[str, dict[str, bytes]] = {}

    def hold(documents: dict[str, bytes]) -> None:
        held[recorded(revisions, documents)] = documents

    hold(ONE)
    for number in range(3):
        now = {**ONE, "instructions/a.md": b"%d\n" % number}
        commit(root, agent_git, now)
        hold(now)
        agent_git(root, "commit", "--quiet", "--amend", "-m", "amended")
        agent_git(root, "reset", "--quiet", "--hard")
        hold({**now, "instructions/b.md": b"x"})
        hold(now)
    commit(root, agent_git, ODD)
    agent_git(root, "checkout", "--quiet", "--orphan", "other")
    commit(root, agent_git, {"instructions/z.md": b"z"})
    agent_git(root, "branch", "-D", "main")
    prune(root, agent_git)
    assert len(held) == 10
    for revision, documents in held.items():
        assert revisions.documents(revision) == documents
    agent_git(root, "fsck", "--strict")


def test_packed_refs_are_read(root: Path, agent_git: Git, calls: Calls) -> None:
    commit(root, agent_git, ONE)
    revisions = Revisions(root, Files())
    first = recorded(revisions, ODD)
    agent_git(root, "pack-refs", "--all")
    assert not (root / ".git" / REF).exists()
    calls.since()
    assert record(revisions, ODD) == first
    assert calls.since() == []
    head = commit(root, agent_git, {"projects/p.md": b"x"})
    agent_git(root, "pack-refs", "--all")
    assert recorded(revisions, {**ONE, "projects/p.md": b"x"}) == head


# -- nothing of the configuration is run ---------------------------------------------------------


def test_nothing_that_the_configuration_names_is_run(
    root: Path, agent_git: Git, revisions: Revisions, marker: Path, tmp_path: Path
) -> None:
    commit(root, agent_git, ONE)
    for key in (
        *("filter.x.clean", "filter.x.smudge", "filter.x.process", "core.fsmonitor", "diff.external"),
        *("diff.x.command", "diff.x.textconv", "core.pager", "pager.log", "pager.diff", "gpg.program"),
        *("core.alternateRefsCommand", "alias.fast-import", "alias.rev-list"),
    ):
        agent_git(root, "config", key, f"!{marker}" if key.startswith("alias") else str(marker))
    for key, value in {
        "core.hooksPath": str(marker.parent),
        "log.showSignature": "true",
        "commit.gpgSign": "true",
        "color.ui": "always",
        "diff.noprefix": "true",
        "diff.mnemonicPrefix": "true",
        "core.quotePath": "false",
        "core.worktree": str(tmp_path),
        "core.bare": "true",
        "i18n.logOutputEncoding": "UTF-16",
        "fetch.fsckObjects": "true",
        "transfer.unpackLimit": "1",
    }.items():
        agent_git(root, "config", key, value)
    (root / ".git" / "info").mkdir(exist_ok=True)
    (root / ".git" / "info" / "attributes").write_text("* filter=x diff=x merge=x text=auto eol=crlf ident\n")
    (root / ".gitattributes").write_text("* filter=x diff=x working-tree-encoding=UTF-16\n")
    names = (
        "reference-transaction post-index-change fsmonitor-watchman update pre-auto-gc post-commit pre-commit"
    )
    for folder in (root / ".git" / "hooks", marker.parent):
        folder.mkdir(exist_ok=True)
        for name in names.split():
            (folder / name).symlink_to(marker)
    now = {**ONE, "instructions/a.md": b"$Id$\r\nchanged\n"}
    put(root, now)
    revision = recorded(revisions, now)
    recorded(revisions, {**now, **ODD})
    assert [entry.own for entry in revisions.log("instructions/a.md")] == [True, False]
    assert "+changed\n" in revisions.diff("instructions/a.md", revisions.resolve_name("HEAD"))
    assert "\n--- a/md-db/" in "\n" + revisions.diff(
        "instructions/a.md", revisions.resolve_name("HEAD"), revision
    )
    assert not (tmp_path / "RAN").exists()
    agent_git(root, "config", "--unset", "core.worktree")
    agent_git(root, "config", "core.bare", "false")
    (root / ".gitattributes").unlink()
    agent_git(root, "add", "md-db")
    assert (tmp_path / "RAN").exists()  # the attack is real


# -- what it costs -------------------------------------------------------------------------------


def test_nothing_is_run_while_nothing_changed(root: Path, agent_git: Git, calls: Calls) -> None:
    revisions = Revisions(root, Files())
    for documents in (ONE, {**ONE, **ODD}):
        first = record(revisions, documents)
        calls.since()
        assert record(revisions, dict(documents)) == first
        assert calls.since() == []
    head = commit(root, agent_git, ONE)
    assert record(revisions, ONE) == head
    assert record(revisions, dict(ONE)) == head
    calls.since()
    assert record(revisions, {path: bytes(bytearray(data)) for path, data in ONE.items()}) == head
    assert calls.since() == []
    # Anybody who moves HEAD, or takes our ref away, is noticed.
    agent_git(root, "commit", "--quiet", "--allow-empty", "-m", "x")
    assert record(revisions, ONE) == agent_git(root, "rev-parse", "HEAD") != head
    agent_git(root, "update-ref", "-d", REF)
    assert record(revisions, ODD) == agent_git(root, "rev-parse", REF)


def test_many_documents_cost_a_handful_of_processes(root: Path, agent_git: Git, calls: Calls) -> None:
    revisions = Revisions(root, Files())
    many = {f"instructions/{number % 50}/{number}.md": b"text %d\n" % number for number in range(5000)}
    recorded(revisions, many)
    commit(root, agent_git, ONE)
    calls.since()
    revision = record(revisions, many)
    assert revision is not None
    assert len(calls.since()) <= 6
    before = int(agent_git(root, "count-objects", "-v").split()[1])
    assert record(revisions, {**many, "instructions/7/7.md": b"changed\n"}) not in (None, revision)
    found = calls.since()
    assert len([line for line in found if "count-objects" not in line]) <= 6, found
    # One blob, its folders, the commit.
    assert int(agent_git(root, "count-objects", "-v").split()[1]) - before == 6
    assert revisions.documents(revision) == many


# -- several at once -----------------------------------------------------------------------------

RECORDER = """
import sys
from pathlib import Path
from daemon.durable import Files
from daemon.mddb.library import Library
from daemon.mddb.resolver import Context
from daemon.mddb.revisions import Revisions
root, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
revisions = Revisions(root, Files())
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    documents = {"instructions/a.md": f"{name} {number}".encode()}
    data = documents["instructions/a.md"]
    revision = revisions.record({"instructions/a.md": revisions.blob_id(data)}, documents)
    assert revision is not None, revisions.refusal
    print(revision, flush=True)
"""


def test_two_recorders_at_once(root: Path, agent_git: Git, revisions: Revisions) -> None:
    commit(root, agent_git, ONE)
    recorders = {
        name: subprocess.Popen(
            [sys.executable, "-c", RECORDER, str(root), name, "12"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    }
    for process in recorders.values():
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    found: dict[str, list[str]] = {}

    def finish(name: str) -> None:
        out, _ = recorders[name].communicate("go\n", timeout=60)
        found[name] = out.split()

    threads = [threading.Thread(target=finish, args=[name]) for name in recorders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [process.returncode for process in recorders.values()] == [0, 0]
    prune(root, agent_git)
    chain = agent_git(root, "rev-list", REF).split()
    for name, ids in found.items():
        assert len(ids) == 12
        for number, revision in enumerate(ids):
            assert revisions.documents(revision) == {"instructions/a.md": f"{name} {number}".encode()}
            assert revision in chain
    agent_git(root, "fsck", "--strict")


def test_a_lock_that_was_left_behind_is_told(root: Path, agent_git: Git, revisions: Revisions) -> None:
    commit(root, agent_git, ONE)
    lock = root / ".git" / f"{REF}.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    assert record(revisions, ODD) is None
    assert "lock" in revisions.refusal
    assert recorded(revisions, ONE) == agent_git(root, "rev-parse", "HEAD")
    lock.unlink()
    assert recorded(revisions, ODD)


# -- log, diff, names ----------------------------------------------------------------------------


def test_the_log_has_what_was_committed_and_what_was_told(
    root: Path, agent_git: Git, revisions: Revisions
) -> None:
    path = "instructions/a.md"
    first = commit(root, agent_git, ONE, "first")
    recorded(revisions, ONE)
    told = [recorded(revisions, {**ONE, path: b"%d\n" % number}) for number in range(2)]
    recorded(revisions, {**ONE, path: b"1\n", "projects/p.md": b"x"})  # it did not change
    commit(root, agent_git, {"projects/q.md": b"x"}, "something else")
    last = commit(root, agent_git, {path: b"1\n"}, "committed at last")
    recorded(revisions, {**ONE, path: b"1\n", "projects/q.md": b"x"})
    found = revisions.log(path)
    assert [(entry.commit, entry.own) for entry in found] == [(last, False), (told[0], True), (first, False)]
    assert [entry.subject for entry in found] == ["committed at last", f"md-db: {path} changed", "first"]
    assert found[0].author == "a@b"
    assert found[0].when.endswith("Z")
    assert found[0].blob == blob_id(b"1\n")
    assert revisions.log(path, 1) == found[:1]
    assert revisions.log("instructions/none.md") == []
    (root / "md-db" / path).unlink()
    commit(root, agent_git, {}, "gone")
    assert revisions.log(path)[0].blob is None


def test_the_log_before_the_first_commit(root: Path, revisions: Revisions) -> None:
    assert revisions.log("instructions/a.md") == []
    revision = recorded(revisions, ONE)
    assert [entry.commit for entry in revisions.log("instructions/a.md")] == [revision]


def test_a_diff(root: Path, agent_git: Git, revisions: Revisions) -> None:
    path = "instructions/a.md"
    first = commit(root, agent_git, {path: b"one\ntwo\n"})
    second = commit(root, agent_git, {path: b"one\n2"})
    assert revisions.diff(path, first, second).splitlines() == [
        f"--- a/md-db/{path}\t{first[:12]}",
        f"+++ b/md-db/{path}\t{second[:12]}",
        "@@ -1,2 +1,2 @@",
        " one",
        "-two",
        "+2",
        "\\ No newline at end of file",
    ]
    assert revisions.diff(path, second) == ""
    put(root, {path: b"one\r\n2"})
    assert "+one\r\n" in revisions.diff(path, second)
    put(root, {path: b"one\xff\n2"})
    assert "+one\\xff\n" in revisions.diff(path, second)
    (root / "md-db" / path).unlink()
    assert "+++ /dev/null" in revisions.diff(path, second)
    assert revisions.diff("none.md", first) == ""


def test_names_of_commits(root: Path, agent_git: Git, revisions: Revisions, tmp_path: Path) -> None:
    first = commit(root, agent_git, ONE)
    second = commit(root, agent_git, ODD)
    agent_git(root, "tag", "-m", "x", "v1", first)
    for name, meant in {
        "HEAD": second,
        "HEAD~1": first,
        "main": second,
        first[:8]: first,
        "v1": first,
        "HEAD@{1}": first,
        "main@{yesterday}": first,
    }.items():
        assert revisions.resolve_name(name) == meant
    for name in ("", "-h", "--git-dir", "HEAD~9", "none", "HEAD\nHEAD", "HEAD HEAD", "a\0b", "HEAD^{tree}"):
        with pytest.raises(UsageError, match="there is no commit"):
            revisions.resolve_name(name)
    for revision in ("HEAD", "--output=x", first[:12], first + "\n", "0" * 40):
        with pytest.raises(GitError):
            revisions.documents(revision)
