"""Nothing that a repository's configuration names is run, and no other repository is touched."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adapters.testing import wait_for
from daemon.git import GitError, Repository, initialise
from daemon.kernel.scratch import Leftover, Place, Scratch

pytestmark = pytest.mark.slow

Git = Callable[..., str]


def ran(tmp_path: Path) -> str:
    path = tmp_path / "RAN"
    return path.read_text() if path.exists() else ""


def everything(scratch: Scratch, place: Place) -> None:
    """All that the daemon does with a place."""
    for content in ("one\n", "two\n"):
        (place.path / "a.txt").write_text(content)
        (place.path / "b.bin").write_bytes(b"\0" + content.encode())
        found = scratch.leftovers(place)
        scratch.changed(place, found)
        scratch.head(place)
        scratch.commit(place, found, "message\n\nTrailer: x")
    scratch.provision("one", fresh=False)


def settings(evil: Path) -> dict[str, list[tuple[str, str]]]:
    e = str(evil)
    return {
        "hooks": [("core.hooksPath", str(evil.parent))],
        "fsmonitor": [("core.fsmonitor", e)],
        "fsmonitor v1": [("core.fsmonitor", e), ("core.fsmonitorHookVersion", "1")],
        "external diff": [("diff.external", e)],
        "diff driver": [("diff.x.command", e), ("diff.x.textconv", e), ("diff.x.cachetextconv", "true")],
        "filter": [("filter.x.clean", e), ("filter.x.smudge", e), ("filter.x.required", "true")],
        "filter process": [("filter.x.process", e), ("filter.x.required", "true")],
        "Filter with Case and. dots": [("filter.x.clean", e), ("FILTER.X.y.Clean", e)],
        "merge driver": [("merge.x.driver", e), ("merge.default", "x")],
        "signing": [("commit.gpgSign", "true"), ("gpg.program", e), ("user.signingKey", "x")],
        "signing with ssh": [
            ("commit.gpgSign", "true"),
            ("gpg.format", "ssh"),
            ("gpg.ssh.program", e),
            ("gpg.ssh.defaultKeyCommand", e),
        ],
        "signing with x509": [("commit.gpgSign", "true"), ("gpg.format", "x509"), ("gpg.x509.program", e)],
        "credentials": [("credential.helper", f"!{e}"), ("credential.https://x.helper", e)],
        "ssh": [("core.sshCommand", e), ("core.askPass", e), ("core.gitProxy", e)],
        "pager": [("core.pager", e), ("pager.status", e), ("pager.diff", e), ("pager.config", e)],
        "editor": [("core.editor", e), ("sequence.editor", e)],
        "aliases": [
            (f"alias.{verb}", f"!{e}") for verb in ("status", "commit", "diff", "config", "update-index")
        ],
        "trailers": [("trailer.x.command", e), ("trailer.x.cmd", e), ("trailer.x.key", "Trailer")],
        "alternate refs": [("core.alternateRefsCommand", e)],
        "maintenance": [("gc.auto", "1"), ("maintenance.auto", "true"), ("gc.recentObjectsHook", e)],
        "submodules": [
            ("submodule.x.update", f"!{e}"),
            ("submodule.recurse", "true"),
            ("status.submoduleSummary", "true"),
        ],
    }


def attributes(place: Place) -> None:
    (place.path / ".gitattributes").write_text("* filter=x diff=x merge=x\n")
    (place.path / ".git" / "info").mkdir(exist_ok=True)
    (place.path / ".git" / "info" / "attributes").write_text(
        "*.txt filter=X.y diff=x merge=x\n*.bin filter=x diff=x\n"
    )


def hooks(place: Place, evil: Path) -> None:
    names = (
        "pre-commit prepare-commit-msg commit-msg post-commit post-index-change reference-transaction post-checkout "
        "pre-auto-gc post-rewrite fsmonitor-watchman update post-merge pre-push"
    )
    for folder in (place.path / ".git" / "hooks", evil.parent):
        folder.mkdir(exist_ok=True)
        for name in names.split():
            (folder / name).symlink_to(evil)


@pytest.mark.parametrize("key", settings(Path("/x")))
@pytest.mark.parametrize("where", ["config", "include", "worktree"])
def test_nothing_that_a_configuration_names_is_run(
    scratch: Scratch, place: Place, marker: Path, tmp_path: Path, agent_git: Git, key: str, where: str
) -> None:
    attributes(place)
    hooks(place, marker)
    if where == "worktree":
        agent_git(place.path, "config", "extensions.worktreeConfig", "true")
    for name, value in settings(marker)[key]:
        match where:
            case "config":
                agent_git(place.path, "config", "--add", name, value)
            case "include":
                agent_git(place.path, "config", "--file", str(tmp_path / "more.config"), "--add", name, value)
            case "worktree":
                agent_git(place.path, "config", "--worktree", "--add", name, value)
    if where == "include":
        agent_git(place.path, "config", "includeIf.gitdir:**.path", str(tmp_path / "more.config"))
        agent_git(place.path, "config", "include.path", str(tmp_path / "more.config"))
    everything(scratch, place)
    assert ran(tmp_path) == ""
    assert Repository(place.path).git("show", "--no-ext-diff", "--no-textconv", "HEAD:a.txt") == b"two\n"


def test_the_marker_would_tell(place: Place, marker: Path, tmp_path: Path, agent_git: Git) -> None:
    """The same attacks succeed against git as an agent calls it: the test above proves something."""
    attributes(place)
    hooks(place, marker)
    (place.path / "a.txt").write_text("x\n")
    agent_git(place.path, "config", "filter.x.clean", str(marker))
    agent_git(place.path, "config", "filter.X.y.clean", str(marker))
    agent_git(place.path, "add", "a.txt")
    assert "evil" in ran(tmp_path)


def test_nested_repositories_are_not_asked(
    scratch: Scratch, place: Place, marker: Path, tmp_path: Path, agent_git: Git
) -> None:
    """git would run `git status` in a submodule, and there the names of filters are others than ours know."""
    nested = place.path / "nested"
    nested.mkdir()
    agent_git(nested, "init", "--quiet")
    (nested / "file").write_text("one\n")
    agent_git(nested, "add", "file")
    agent_git(nested, "commit", "--quiet", "-m", "x")
    agent_git(place.path, "add", "nested")
    agent_git(place.path, "commit", "--quiet", "-m", "a gitlink")
    agent_git(nested, "config", "filter.unheard-of.clean", str(marker))
    (nested / ".git" / "info" / "attributes").write_text("* filter=unheard-of\n")
    (nested / "file").write_text("two\n")  # as long as before: only the content tells
    everything(scratch, place)
    assert ran(tmp_path) == ""
    agent_git(place.path, "status")
    assert "evil" in ran(tmp_path)  # the attack is real


@pytest.mark.parametrize("key", ["ext", "uploadpack"])
def test_a_missing_object_is_not_fetched(
    scratch: Scratch, place: Place, marker: Path, tmp_path: Path, agent_git: Git, key: str
) -> None:
    """A "promisor" remote would be asked for it, by a command of the configuration's choice."""
    (place.path / "gone.txt").write_text("its blob is deleted, and a diffstat needs it\n")
    agent_git(place.path, "add", ".")
    agent_git(place.path, "commit", "--quiet", "-m", "x")
    blob = agent_git(place.path, "rev-parse", "HEAD:gone.txt")
    (place.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    for name, value in {
        "extensions.partialClone": "origin",
        "core.repositoryFormatVersion": "1",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::{marker} %S" if key == "ext" else str(tmp_path),
        "remote.origin.uploadpack": str(marker),
        "protocol.allow": "always",
        "protocol.ext.allow": "always",
    }.items():
        agent_git(place.path, "config", name, value)
    with pytest.raises(GitError):
        everything(scratch, place)
    assert ran(tmp_path) == ""


def test_another_work_tree_or_a_bare_repository_in_the_configuration_is_not_believed(
    scratch: Scratch, place: Place, tmp_path: Path, agent_git: Git
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "private").write_text("x")
    agent_git(place.path, "config", "core.worktree", str(home))
    agent_git(place.path, "config", "core.bare", "true")
    (place.path / "mine").write_text("x")
    assert [entry.path for entry in scratch.leftovers(place)] == ["mine"]
    assert scratch.commit(place, scratch.leftovers(place), "m").files == ("mine",)


GONE = {
    "deleted": lambda git: subprocess.run(["rm", "-r", str(git)], check=True),
    "moved": lambda git: git.rename(git.parent / "git"),
    "a file": lambda git: (git.rename(git.parent.parent / "moved"), git.write_text("gitdir: ../moved\n")),
    "a link": lambda git: (git.rename(git.parent.parent / "moved"), git.symlink_to("../moved")),
}


@pytest.mark.parametrize("kind", GONE)
def test_a_repository_further_up_is_never_taken_for_it(
    scratch: Scratch, place: Place, tmp_path: Path, agent_git: Git, kind: str
) -> None:
    """Many people keep their home directory in git."""
    agent_git(tmp_path, "init", "--quiet")
    agent_git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", "x")
    before = agent_git(tmp_path, "rev-parse", "HEAD")
    GONE[kind](place.path / ".git")
    (place.path / "work").write_text("x")
    for step in (
        lambda: scratch.leftovers(place),
        lambda: scratch.commit(place, [], "m"),
        lambda: scratch.changed(place, []),
        lambda: scratch.provision("one", fresh=False),
    ):
        with pytest.raises(GitError):
            step()
    assert agent_git(tmp_path, "rev-parse", "HEAD") == before


def test_the_environment_of_the_daemon_has_no_say(
    scratch: Scratch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marker: Path, agent_git: Git
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    agent_git(other, "init", "--quiet")
    agent_git(other, "commit", "--quiet", "--allow-empty", "-m", "x")
    before = sorted(path for path in (other / ".git").rglob("*"))
    for name, value in {
        "GIT_DIR": str(other / ".git"),
        "GIT_WORK_TREE": str(other),
        "GIT_INDEX_FILE": str(tmp_path / "index"),
        "GIT_OBJECT_DIRECTORY": str(tmp_path / "objects"),
        "GIT_NAMESPACE": "x",
        "GIT_CEILING_DIRECTORIES": "/",
        "GIT_CONFIG": str(tmp_path / "config"),
        "GIT_CONFIG_GLOBAL": str(tmp_path / "global"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.hooksPath",
        "GIT_CONFIG_VALUE_0": str(marker.parent),
        "GIT_CONFIG_PARAMETERS": f"'core.fsmonitor'='{marker}'",
        "GIT_EXTERNAL_DIFF": str(marker),
        "GIT_EDITOR": str(marker),
        "GIT_PAGER": str(marker),
        "GIT_SSH_COMMAND": str(marker),
        "GIT_ASKPASS": str(marker),
        "GIT_TRACE": str(tmp_path / "trace"),
        "GIT_AUTHOR_NAME": "somebody",
        "GIT_TEMPLATE_DIR": str(marker.parent),
        "GIT_EXEC_PATH": str(marker.parent),
        "GIT_LITERAL_PATHSPECS": "0",
        "GIT_GLOB_PATHSPECS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    place = scratch.provision("two", fresh=False)
    everything(scratch, place)
    assert ran(tmp_path) == ""
    assert not (tmp_path / "trace").exists()
    assert not (tmp_path / "index").exists()
    assert sorted(path for path in (other / ".git").rglob("*")) == before
    assert Repository(place.path).text("log", "-1", "--format=%an <%ae> %cn") == (
        "megaHarness <megaharness@localhost> megaHarness"
    )


def test_a_new_repository_takes_no_template_and_runs_no_hook_of_the_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marker: Path
) -> None:
    home = tmp_path / "home"
    (home / "template" / "hooks").mkdir(parents=True)
    (home / "template" / "hooks" / "post-commit").symlink_to(marker)
    (home / ".gitconfig").write_text(
        f"[init]\ntemplateDir = {home}/template\ndefaultBranch = x\n[core]\nhooksPath = {marker.parent}\n"
        f"fsmonitor = {marker}\n[commit]\ngpgSign = true\n[gpg]\nprogram = {marker}\n[user]\nuseConfigOnly = true\n"
    )
    for name in ("post-commit", "reference-transaction"):
        (marker.parent / name).symlink_to(marker)
    monkeypatch.setenv("HOME", str(home))
    path = tmp_path / "new"
    path.mkdir()
    base = initialise(path, "mh/x", "empty start of $(touch x)\n\n`y`", "refs/megaharness/base")
    assert ran(tmp_path) == ""
    repository = Repository(path)
    assert repository.text("rev-parse", "mh/x") == base
    assert repository.text("ls-tree", "-r", "HEAD") == ""
    assert not (path / ".git" / "hooks").exists()


def test_what_git_says_is_in_the_error(place: Place, tmp_path: Path) -> None:
    with pytest.raises(GitError, match="rev-parse"):
        Repository(place.path).text("rev-parse", "--verify", "nothing")
    with pytest.raises(GitError, match="no git repository"):
        Repository(tmp_path / "nothing")
    (place.path / ".git" / "config").write_text("[core\n")
    with pytest.raises(GitError, match="config"):
        Repository(place.path).text("rev-parse", "HEAD")


def test_a_call_that_takes_too_long_is_ended(place: Place, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(GitError, match="longer than"):
        Repository(place.path).git("hash-object", str(fifo), timeout=0.5)


# --- a git that cannot be started ---------------------------------------------------------------------------


def test_more_programs_than_an_environment_holds_is_gits_error(place: Place) -> None:
    with open(place.path / ".git" / "config", "a") as config:
        config.writelines(f'[filter "x{number}"]\n\tclean = false\n' for number in range(40_000))
    with pytest.raises(GitError, match=r"\.git/config\) names 4000\d programs"):
        Repository(place.path).git("status")


def test_without_free_descriptors_it_is_tried_again(place: Place) -> None:
    repository = Repository(place.path)
    repository.overrides()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = os.open("/dev/null", os.O_RDONLY)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (spare, hard))
        with pytest.raises(OSError) as raised:
            repository.git("status")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(spare)
    assert raised.value.errno == errno.EMFILE


# --- a disk that refuses ------------------------------------------------------------------------------------


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a git into the path that says these words and fails; what is asked of the configuration it answers."""

    def put(words: str) -> None:
        program = tmp_path / "said" / "git"
        program.parent.mkdir()
        program.write_text(
            f'#!/bin/sh\n[ "$1" = config ] && exit 0\ncat > /dev/null\nprintf %s "{words}" >&2\nexit 128\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    return put


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_a_disk_that_refuses_is_no_answer_of_gits(
    place: Place, said: Callable[[str], None], number: int
) -> None:
    said(f"error: unable to write file: {os.strerror(number)}\nfatal: it failed\n")
    with pytest.raises(OSError) as raised:
        Repository(place.path).git("status")
    assert raised.value.errno == number
    # Where the daemon tries whether the disk takes writes again: beside it, not in what an agent has.
    assert Path(str(raised.value.filename)).parent == place.path.parent


def test_a_path_with_such_a_name_is_no_disk(place: Place, said: Callable[[str], None]) -> None:
    said("fatal: Unable to process path x: No space left on device\n")
    with pytest.raises(GitError, match="Unable to process"):
        Repository(place.path).git("update-index", stdin=b"x: No space left on device\0")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    disk = tmp_path / "small"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with open(filler, "wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(4096))
    return filler


def test_a_full_disk_is_told_also_when_git_says_nothing_of_it(
    small: Path, said: Callable[[str], None]
) -> None:
    scratch = Scratch(lambda name: small / name)
    place = scratch.provision("one", fresh=False)
    fill(small)
    said("fatal: something\n")
    with pytest.raises(OSError, match="No space"):
        Repository(place.path).git("status")


def test_on_a_full_disk_nothing_is_made_and_nothing_left(small: Path) -> None:
    scratch = Scratch(lambda name: small / "scratch" / name)
    scratch.provision("one", fresh=False)
    filler = fill(small)
    with pytest.raises(OSError, match="No space") as raised:
        scratch.provision("two", fresh=False)
    assert Path(str(raised.value.filename)).parent == small / "scratch"
    assert os.listdir(small / "scratch") == ["one"]
    filler.unlink()
    assert scratch.provision("two", fresh=False).path.is_dir()


def test_on_a_full_disk_what_is_left_is_not_given_up(small: Path) -> None:
    scratch = Scratch(lambda name: small / name)
    place = scratch.provision("one", fresh=False)
    for number in range(3):
        (place.path / f"{number}.txt").write_text(f"{number}\n")
    filler = fill(small)
    with pytest.raises(OSError, match="No space"):
        scratch.commit(place, scratch.leftovers(place), "m")
    filler.unlink()
    assert scratch.commit(place, scratch.leftovers(place), "m").files == ("0.txt", "1.txt", "2.txt")


def test_on_a_disk_that_became_read_only_what_is_left_is_not_given_up(small: Path) -> None:
    scratch = Scratch(lambda name: small / name)
    place = scratch.provision("one", fresh=False)
    (place.path / "a.txt").write_text("a\n")
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    with pytest.raises(OSError, match="Read-only"):
        scratch.commit(place, scratch.leftovers(place), "m")
    with pytest.raises(OSError, match="Read-only"):
        scratch.provision("two", fresh=False)


def test_a_git_that_hangs_is_ended_with_all_that_it_has_started(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "hangs" / "git"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\n[ "$1" = config ] && exit 0\nsleep 600 & echo $! > {tmp_path}/pid\nwait\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with pytest.raises(GitError, match="took longer"):
        Repository(place.path).git("status", timeout=1.0)
    pid = int((tmp_path / "pid").read_text())
    wait_for(
        lambda: not Path(f"/proc/{pid}").exists() or b") Z" in Path(f"/proc/{pid}/stat").read_bytes(),
        "its end",
    )


@pytest.mark.parametrize("way", ["commondir", "refs", "objects"])
def test_objects_and_branches_go_nowhere_else(
    scratch: Scratch, place: Place, tmp_path: Path, agent_git: Git, way: str
) -> None:
    real = tmp_path / "real"
    real.mkdir()
    agent_git(real, "init", "-q")
    agent_git(real, "commit", "-q", "--allow-empty", "-m", "a person's")
    if way == "commondir":
        (place.path / ".git" / "commondir").write_text(f"{real}/.git\n")
    else:
        (place.path / ".git" / way).rename(place.path / ".git" / "aside")
        (place.path / ".git" / way).symlink_to(real / ".git" / way)
    (place.path / "a.txt").write_text("a\n")
    with pytest.raises(GitError, match="another repository"):
        scratch.commit(place, [Leftover("a.txt")], "m")
    assert agent_git(real, "for-each-ref", "refs/heads/mh") == ""
