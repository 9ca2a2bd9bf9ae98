"""Repositories that are made without git are those that git makes."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.git import GitError, Repository
from daemon.kernel.mould import Mould

BASE = "refs/megaharness/base"


class Bench:
    """A home with a configuration of its own, and a git that notes each of its starts."""

    def __init__(self, root: Path) -> None:
        self.root, self.home, self.bin = root, root / "home", root / "bin"
        self.home.mkdir()
        self.bin.mkdir()
        self.started = root / "started"
        self.git = self.bin / "git"
        self.git.write_text(f'#!/bin/sh\necho "$*" >> {self.started}\nexec {shutil.which("git")} "$@"\n')
        self.git.chmod(0o755)
        self.mould = Mould(racy=0)

    def configure(self, key: str, value: str) -> None:
        subprocess.run(["git", "config", "--global", key, value], check=True)

    def make(self, name: str) -> tuple[Path, bool]:
        """(the repository, whether git was started for it)"""
        path = self.root / name
        path.mkdir(mode=0o700)
        self.started.write_text("")
        commit = self.mould.make(path, f"mh/{name}", f"empty start of {name}", BASE)
        by_git = self.started.read_text() != ""
        assert Repository(path).text("rev-parse", "HEAD", BASE, f"mh/{name}").split() == [commit] * 3
        return path, by_git

    def both(self) -> tuple[Path, Path]:
        """One that git has made, and the next, for which it was not started."""
        (one, by_git), (two, not_by_git) = self.make("one"), self.make("two")
        assert (by_git, not_by_git) == (True, False)
        return one, two


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(tmp_path)
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{made.bin}:{os.environ['PATH']}")
    umask = os.umask(0o077)  # the daemon's
    yield made
    os.umask(umask)


def description(path: Path) -> dict[str, object]:
    """Everything but the hash, the name and the time of the commit."""

    def git(*args: str) -> str:
        done = subprocess.run(["git", *args], cwd=path, capture_output=True, text=True, check=True)
        return (done.stdout + done.stderr).replace(path.name, "NAME")

    commit = git("rev-parse", "HEAD").strip()
    objects = path / ".git/objects"
    stored = objects / commit[:2] / commit[2:]
    # A hash in 256 begins as that of the tree, with which it then shares a folder.
    of_the_commit = {stored, *([stored.parent] if len(list(stored.parent.iterdir())) == 1 else [])}
    files = {
        str(file.relative_to(path)).replace(path.name, "NAME"): (file.lstat().st_mode, file.lstat().st_nlink)
        for file in path.rglob("*")
        if file not in {objects, *of_the_commit}  # how many folders are in objects/ depends on the hash
    }
    return {
        "files": files,
        "commit": stored.stat().st_mode,
        "config": (path / ".git/config").read_text(),
        "index": (path / ".git/index").read_bytes(),
        "log": git("log", "--format=%an %ae %cn %ce %D %s%n%b%T %e", "--date=format:%z"),
        "zone": git("log", "--format=%ad %cd", "--date=format:%z"),
        "reflog": git("reflog", "--format=%gD %gs %gn %ge"),
        "refs": git("for-each-ref", "--format=%(refname) %(objecttype)"),
        "fsck": git("fsck", "--strict", "--full", "--unreachable"),
        "status": git("status"),
        "message": (path / ".git/COMMIT_EDITMSG").read_text().replace(path.name, "NAME"),
    }


def test_it_is_what_git_makes(bench: Bench) -> None:
    one, two = bench.both()
    assert description(one) == description(two)


@pytest.mark.slow
def test_a_commit_may_share_the_folder_of_the_tree(bench: Bench) -> None:
    one, _ = bench.both()
    for number in range(10_000):
        name = f"again-{number}"
        path = bench.root / name
        path.mkdir(mode=0o700)
        commit = bench.mould.make(path, f"mh/{name}", f"empty start of {name}", BASE)
        if commit.startswith("4b"):
            break
    assert len(list((path / ".git/objects/4b").iterdir())) == 2
    assert description(one) == description(path)


def test_the_zone_is_that_of_the_person(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as moved:
        moved.setenv("TZ", "Asia/Kolkata")
        one, two = bench.both()
    time.tzset()
    assert description(one) == description(two)
    assert description(two)["zone"] == "+0530 +0530\n"


def test_git_works_in_it(bench: Bench) -> None:
    _, two = bench.both()
    (two / "work").write_text("x\n")
    repository = Repository(two)
    repository.git("add", "work")
    repository.git("commit", "--quiet", "-m", "work")
    repository.git("gc", "--quiet")
    assert repository.text("log", "--format=%s") == "work\nempty start of two"
    assert repository.text("rev-parse", f"{BASE}^{{tree}}") == repository.text("mktree")


def test_what_a_person_configures_counts_from_the_next_one_on(bench: Bench) -> None:
    bench.both()
    bench.configure("core.logAllRefUpdates", "always")
    three, by_git = bench.make("three")
    assert by_git
    assert (three / ".git/logs" / BASE).exists()
    _, by_git = bench.make("four")
    assert by_git, "nothing is known of how such a one is made"


def test_so_does_a_file_that_is_included(bench: Bench) -> None:
    bench.configure("include.path", "~/more")
    bench.both()
    (bench.home / "more").write_text("[core]\n\tlogAllRefUpdates = false\n")
    three, by_git = bench.make("three")
    assert by_git
    assert not (three / ".git/logs").exists()


@pytest.mark.parametrize(
    ("key", "value"), [("includeIf.gitdir:/some/.path", "~/more"), ("core.sharedRepository", "group")]
)
def test_what_is_not_understood_is_left_to_git(bench: Bench, key: str, value: str) -> None:
    bench.configure(key, value)
    for name in ("one", "two", "three"):
        assert bench.make(name)[1]


def test_a_hash_of_another_kind_is_left_to_git(bench: Bench) -> None:
    bench.git.write_text(
        bench.git.read_text().replace(
            "exec ", "export GIT_DEFAULT_HASH=sha256 GIT_DEFAULT_REF_FORMAT=files\nexec "
        )
    )
    for name in ("one", "two"):
        path, by_git = bench.make(name)
        assert by_git
        assert len(Repository(path).text("rev-parse", "HEAD")) == 64


def test_a_configuration_that_has_just_changed_is_not_relied_on(bench: Bench) -> None:
    bench.mould = Mould()
    bench.configure("user.name", "Somebody")
    assert bench.make("one")[1]
    assert bench.make("two")[1]


def test_without_git_none_is_made(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.both()
    monkeypatch.setenv("PATH", str(bench.home))
    (bench.root / "three").mkdir()
    with pytest.raises(GitError, match="git is not installed"):
        bench.mould.make(bench.root / "three", "mh/three", "empty start of three", BASE)


def test_a_name_that_git_might_change_is_given_to_git(bench: Bench) -> None:
    bench.both()
    path = bench.root / "three"
    path.mkdir()
    bench.started.write_text("")
    bench.mould.make(path, "mh/three", "  empty start \n\n\nof three \n", BASE)
    assert bench.started.read_text() != ""
    assert Repository(path).text("log", "--format=%B") == "empty start\n\nof three"


def test_where_something_lies_it_is_the_disk_that_refuses(bench: Bench) -> None:
    _, two = bench.both()
    with pytest.raises(OSError, match="File exists") as raised:
        bench.mould.make(two, "mh/two", "empty start of two", BASE)
    assert raised.value.filename == str(two)
