"""A scratch repository from its making to what came out of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from daemon.git import GitError, Repository
from daemon.kernel.scratch import Leftover, Place, Scratch, count_files, decode, looks_secret

Git = Callable[..., str]


def write(place: Place, *paths: str, content: str = "x\n") -> None:
    for path in paths:
        (place.path / path).parent.mkdir(parents=True, exist_ok=True)
        (place.path / path).write_text(content)


def committed(place: Place, commit: str = "HEAD") -> set[str]:
    """The paths in a commit, surrogates for bytes that are no UTF-8."""
    listing = Repository(place.path).git("ls-tree", "-r", "-z", "--name-only", commit)
    return {name.decode("utf-8", "surrogateescape") for name in listing.split(b"\0") if name}


def finish(scratch: Scratch, place: Place) -> tuple[list[Leftover], set[str]]:
    """Leftovers, then what the commit holds; a second look finds the rest only."""
    found = scratch.leftovers(place)
    outcome = scratch.commit(place, found, "left")
    assert outcome.commit == scratch.head(place)
    again = {entry.path.rstrip("/") for entry in scratch.leftovers(place)}
    assert again == {entry.path.rstrip("/") for entry in outcome.left_out}
    return found, committed(place, outcome.commit)


# --- provisioning -----------------------------------------------------------------------------------------


def test_a_new_place_is_a_repository_with_one_empty_commit(
    scratch: Scratch, place: Place, tmp_path: Path
) -> None:
    repository = Repository(place.path)
    assert place.path == tmp_path / "scratch" / "one"
    assert place.path.stat().st_mode & 0o777 == 0o700
    assert repository.text("symbolic-ref", "HEAD") == "refs/heads/mh/one"
    assert repository.text("rev-parse", "HEAD", "refs/megaharness/base").split() == [place.base] * 2
    assert committed(place) == set()
    assert scratch.leftovers(place) == []
    assert scratch.taken("one")
    assert not scratch.taken("two")
    assert os.listdir(place.path.parent) == ["one"]


def test_again_is_the_same_place_with_the_work_in_it(scratch: Scratch, place: Place, agent_git: Git) -> None:
    write(place, "work")
    agent_git(place.path, "add", ".")
    agent_git(place.path, "commit", "--quiet", "-m", "work")
    assert scratch.provision("one", fresh=False) == place


def test_what_a_crash_left_half_made_is_never_worked_in(scratch: Scratch, tmp_path: Path) -> None:
    for stage in ("empty", "initialised"):
        half = tmp_path / "scratch" / f".new-{stage}"
        half.mkdir(parents=True)
        if stage == "initialised":
            subprocess.run(["git", "init", "--quiet"], cwd=half, check=True)
    place = scratch.provision("one", fresh=False)
    assert Repository(place.path).text("rev-parse", "HEAD") == place.base


def test_killed_at_any_moment_it_is_whole_or_not_there(scratch: Scratch, tmp_path: Path) -> None:
    """Each directory entry that appears under the final name has its base, however early it is looked at."""
    seen: list[str] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            for path in (tmp_path / "scratch").glob("[!.]*"):
                try:
                    Repository(path).text("rev-parse", "--verify", "refs/megaharness/base")
                except GitError as error:
                    seen.append(str(error))

    watcher = threading.Thread(target=look)
    watcher.start()
    for number in range(5):
        scratch.provision(f"t{number}", fresh=False)
    done.set()
    watcher.join()
    assert seen == []


def test_fresh_goes_beside_and_touches_nothing(scratch: Scratch, place: Place) -> None:
    write(place, "work")
    second, third = scratch.provision("one", fresh=True), scratch.provision("one", fresh=True)
    assert len({place.path, second.path, third.path}) == 3
    assert (place.path / "work").exists()
    assert os.listdir(second.path) == [".git"]
    assert second.branch == place.branch == "mh/one"


@pytest.mark.parametrize("kind", ["directory", "file", "other repository"])
def test_something_else_in_the_place_is_an_error_with_a_way_out(
    scratch: Scratch, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "scratch" / "one"
    path.parent.mkdir()
    if kind == "file":
        path.write_text("mine")
    else:
        path.mkdir()
        (path / "mine").write_text("mine")
        if kind == "other repository":
            subprocess.run(["git", "init", "--quiet"], cwd=path, check=True)
    with pytest.raises((GitError, OSError)) as caught:
        scratch.provision("one", fresh=False)
    if isinstance(caught.value, GitError):
        assert "--fresh" in caught.value.hint
    assert (path if kind == "file" else path / "mine").read_text() == "mine"
    assert scratch.provision("one", fresh=True).path != path


def test_a_place_survives_being_written_down(place: Place) -> None:
    import json

    assert decode(json.loads(place.encode())) == place
    odd = Place(Path("/tmp/\udcff ü"), "b", "c")
    assert decode(json.loads(odd.encode())) == odd


# --- what an agent can leave --------------------------------------------------------------------------------

NAMES = [
    "plain",
    "with space",
    "new\nline",
    "quo\"te's",
    "-dash",
    "--all",
    ":(glob)**",
    ":!x",
    "*",
    "[a]",
    "a\\b",
    "ümläut 漢字",
    "\udcff\udcfe",
    "#x",
    " leading and trailing ",
    "deep/er/and/deep er",
]


def test_every_name_is_a_name(scratch: Scratch, place: Place) -> None:
    write(place, *NAMES)
    found, there = finish(scratch, place)
    assert {entry.path for entry in found} == there == set(NAMES)


def test_every_kind_of_change(scratch: Scratch, place: Place, agent_git: Git) -> None:
    write(
        place,
        "edited",
        "deleted",
        "moved",
        "staged-delete",
        "kept",
        "became-dir",
        "chmod",
        "untouched",
        "dir/x",
    )
    agent_git(place.path, "add", ".")
    agent_git(place.path, "commit", "--quiet", "-m", "by the agent itself")
    write(place, "edited", content="y\n")
    write(place, "new", "staged", "staged-then-edited")
    (place.path / "deleted").unlink()
    (place.path / "moved").rename(place.path / "moved-to")
    agent_git(place.path, "rm", "--quiet", "--cached", "kept")
    agent_git(place.path, "rm", "--quiet", "staged-delete")
    agent_git(place.path, "add", "staged", "staged-then-edited")
    write(place, "staged-then-edited", content="later\n")
    (place.path / "became-dir").unlink()
    write(place, "became-dir/inner", "became-dir/.env")
    shutil.rmtree(place.path / "dir")
    write(place, "dir")
    (place.path / "chmod").chmod(0o755)
    (place.path / "link").symlink_to("nowhere")
    (place.path / "up").symlink_to("..")
    os.mkfifo(place.path / "fifo")
    (place.path / "empty").mkdir()
    _, there = finish(scratch, place)
    assert there == {
        "edited", "new", "staged", "staged-then-edited", "moved-to", "kept", "became-dir/inner",
        "dir", "chmod", "untouched", "link", "up",
    }  # fmt: skip
    repository = Repository(place.path)
    modes = dict(
        reversed(line.split(b"\t"))
        for line in repository.git("ls-tree", "-r", "--format=%(objectmode)%x09%(path)", "HEAD").splitlines()
    )
    assert (modes[b"chmod"], modes[b"link"], modes[b"up"], modes[b"new"]) == (
        b"100755",
        b"120000",
        b"120000",
        b"100644",
    )
    assert repository.git("show", "HEAD:staged-then-edited") == b"later\n"
    assert repository.git("show", "HEAD:edited") == b"y\n"


def test_contents_are_kept_byte_for_byte(scratch: Scratch, place: Place) -> None:
    (place.path / "crlf").write_bytes(b"a\r\nb\nc\r")
    (place.path / "binary").write_bytes(bytes(range(256)))
    finish(scratch, place)
    assert Repository(place.path).git("show", "HEAD:crlf") == b"a\r\nb\nc\r"
    assert Repository(place.path).git("show", "HEAD:binary") == bytes(range(256))


def test_a_setting_that_refuses_line_endings_refuses_no_work(
    scratch: Scratch, place: Place, agent_git: Git
) -> None:
    agent_git(place.path, "config", "core.autocrlf", "input")
    agent_git(place.path, "config", "core.safecrlf", "true")
    (place.path / "crlf").write_bytes(b"a\r\nb\n")
    assert finish(scratch, place)[1] == {"crlf"}


def test_ignored_files_stay_where_they_are(scratch: Scratch, place: Place) -> None:
    write(place, ".gitignore", content="build/\n*.log\n")
    write(place, "build/x", "a.log", "src")
    _, there = finish(scratch, place)
    assert there == {".gitignore", "src"}
    assert (place.path / "build" / "x").exists()


def test_an_ignored_file_that_the_agent_staged_is_committed(
    scratch: Scratch, place: Place, agent_git: Git
) -> None:
    write(place, ".gitignore", content="*.log\n")
    write(place, "wanted.log")
    agent_git(place.path, "add", "--force", "wanted.log")
    assert finish(scratch, place)[1] == {".gitignore", "wanted.log"}


def test_large_files_are_listed_and_left_out(tmp_path: Path) -> None:
    scratch = Scratch(lambda name: tmp_path / name, cap=1000)
    place = scratch.provision("one", fresh=False)
    (place.path / "large").write_bytes(b"x" * 1001)
    (place.path / "not-large").write_bytes(b"x" * 1000)
    (place.path / "link-to-large").symlink_to("large")
    found, there = finish(scratch, place)
    assert {entry.path for entry in found if entry.why.startswith("larger than")} == {"large"}
    assert there == {"not-large", "link-to-large"}


SECRETS = [".env", "deep/.env.local", "id_ed25519", "x.PEM", "server.key", ".npmrc", "auth.json", ".netrc"]


def test_what_looks_like_a_secret_is_listed_and_left_out_even_if_staged(
    scratch: Scratch, place: Place, agent_git: Git
) -> None:
    write(place, *SECRETS, "env", "keys.md")
    agent_git(place.path, "add", "--force", ".env", "server.key", "env")
    found, there = finish(scratch, place)
    assert {entry.path for entry in found if entry.why == "looks like a secret"} == set(SECRETS)
    assert there == {"env", "keys.md"}
    assert all((place.path / name).read_text() == "x\n" for name in SECRETS)


def test_only_a_staged_secret_makes_no_commit(scratch: Scratch, place: Place, agent_git: Git) -> None:
    write(place, ".env")
    agent_git(place.path, "add", ".env")
    assert finish(scratch, place)[1] == set()
    assert scratch.head(place) == place.base


def test_a_secret_that_was_deleted_can_be_committed(scratch: Scratch, place: Place, agent_git: Git) -> None:
    write(place, ".env")
    agent_git(place.path, "add", ".env")
    agent_git(place.path, "commit", "--quiet", "-m", "oops")
    (place.path / ".env").unlink()
    assert finish(scratch, place)[1] == set()


def test_names() -> None:
    assert looks_secret("a/b/.env")
    assert looks_secret(".ENV.production")
    assert not looks_secret("environment.py")
    assert not looks_secret(".env/x")


@pytest.mark.parametrize("commits", [False, True])
def test_a_nested_repository_is_named_and_left_alone(
    scratch: Scratch, place: Place, agent_git: Git, commits: bool
) -> None:
    write(place, "mine", "nested/file")
    agent_git(place.path / "nested", "init", "--quiet")
    if commits:
        agent_git(place.path / "nested", "add", ".")
        agent_git(place.path / "nested", "commit", "--quiet", "-m", "x")
    found, there = finish(scratch, place)
    assert [(entry.path, entry.why) for entry in found if entry.why] == [
        ("nested/", "a repository of its own")
    ]
    assert there == {"mine"}
    assert (place.path / "nested" / "file").exists()


def test_a_link_to_a_nested_repository_that_the_agent_committed_or_staged(
    scratch: Scratch, place: Place, agent_git: Git
) -> None:
    for name in ("committed", "staged"):
        (place.path / name).mkdir()
        agent_git(place.path / name, "init", "--quiet")
        agent_git(place.path / name, "commit", "--quiet", "--allow-empty", "-m", "x")
        agent_git(place.path, "add", name)
        if name == "committed":
            agent_git(place.path, "commit", "--quiet", "-m", name)
    agent_git(place.path / "committed", "commit", "--quiet", "--allow-empty", "-m", "moved on")
    write(place, "mine", "committed/dirt")
    _, there = finish(scratch, place)
    assert there == {"mine", "committed"}


def test_what_cannot_be_read_is_named_and_the_rest_committed() -> None:
    """In a process without root's right to read everything."""
    root = Path(tempfile.mkdtemp(prefix="mh-unreadable-"))
    drop = (
        ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]
        if os.geteuid() == 0
        else []
    )
    try:
        program = (
            "import os; from pathlib import Path; from daemon.kernel.scratch import Scratch\n"
            f"scratch = Scratch(lambda name: Path({str(root)!r}) / name)\n"
            "place = scratch.provision('one', fresh=False)\n"
            "for n in range(20): (place.path / f'f{n}').write_text('x')\n"
            "os.chmod(place.path / 'f7', 0); os.chmod(place.path / 'f13', 0)\n"
            "outcome = scratch.commit(place, scratch.leftovers(place), 'm')\n"
            "assert [e.path for e in outcome.left_out] == ['f13', 'f7'], outcome\n"
            "assert all('f13' in e.why or 'f7' in e.why for e in outcome.left_out), outcome\n"
            "assert len(outcome.files) == 18, outcome\n"
            "os.chmod(place.path, 0)\n"
            "from daemon.git import GitError\n"
            "try: scratch.leftovers(place)\n"
            "except GitError as error: print('GitError', error)\n"
        )
        done = subprocess.run(
            [*drop, sys.executable, "-c", program],
            cwd=Path(__file__).parents[2],
            env={"PATH": os.environ["PATH"], "HOME": str(root), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("GitError")
    finally:
        subprocess.run(["chmod", "-R", "u+rwx", str(root)], check=True)
        shutil.rmtree(root)


def test_nothing_left_over_makes_no_commit(scratch: Scratch, place: Place) -> None:
    outcome = scratch.commit(place, scratch.leftovers(place), "m")
    assert (outcome.commit, outcome.files, outcome.left_out) == (place.base, (), ())
    assert outcome.diffstat == ""


def test_what_came_after_the_listing_is_not_committed(scratch: Scratch, place: Place) -> None:
    write(place, "work")
    found = scratch.leftovers(place)
    write(place, "artefact")
    assert scratch.commit(place, found, "m").files == ("work",)


def test_what_a_check_took_away_again_does_no_harm(scratch: Scratch, place: Place) -> None:
    write(place, "work", "temporary")
    found = scratch.leftovers(place)
    (place.path / "temporary").unlink()
    assert scratch.commit(place, found, "m").files == ("work",)


def test_committing_twice_is_once(scratch: Scratch, place: Place) -> None:
    write(place, "work")
    found = scratch.leftovers(place)
    first = scratch.commit(place, found, "m")
    assert scratch.commit(place, found, "m") == first
    assert Repository(place.path).text("rev-list", "--count", "HEAD") == "2"


def test_a_thousand_files_have_a_short_diffstat(scratch: Scratch, place: Place) -> None:
    write(place, *(f"f{number}" for number in range(1000)))
    outcome = scratch.commit(place, scratch.leftovers(place), "m")
    assert len(outcome.files) == 1000
    assert "1000 files changed" in outcome.diffstat
    assert len(outcome.diffstat.splitlines()) < 50


# --- what an agent can do to the repository -----------------------------------------------------------------


def detach(git: Git, path: Path) -> None:
    git(path, "checkout", "--quiet", "--detach")


def switch(git: Git, path: Path) -> None:
    git(path, "checkout", "--quiet", "-b", "elsewhere")


def orphan(git: Git, path: Path) -> None:
    git(path, "checkout", "--quiet", "--orphan", "anew")


def rewrite(git: Git, path: Path) -> None:
    orphan(git, path)
    git(path, "commit", "--quiet", "--allow-empty", "-m", "anew")
    git(path, "branch", "-D", "mh/one")
    git(path, "branch", "-M", "mh/one")


def remake(git: Git, path: Path) -> None:
    shutil.rmtree(path / ".git")
    git(path, "init", "--quiet")
    git(path, "commit", "--quiet", "--allow-empty", "-m", "anew")


def remake_unborn(git: Git, path: Path) -> None:
    shutil.rmtree(path / ".git")
    git(path, "init", "--quiet")


def locks(git: Git, path: Path) -> None:
    for name in ("index.lock", "HEAD.lock", "refs/heads/mh/one.lock"):
        (path / ".git" / name).write_text("")


def sha256(git: Git, path: Path) -> None:
    shutil.rmtree(path / ".git")
    git(path, "init", "--quiet", "--object-format=sha256")


def merging(git: Git, path: Path) -> None:
    (path / "c").write_text("1\n")
    git(path, "add", "c")
    git(path, "commit", "--quiet", "-m", "1")
    git(path, "checkout", "--quiet", "-b", "side", "HEAD~")
    (path / "c").write_text("2\n")
    git(path, "add", "c")
    git(path, "commit", "--quiet", "-m", "2")
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=b", "merge", "mh/one"],
        cwd=path,
        capture_output=True,
        check=False,
    )
    assert (path / ".git" / "MERGE_HEAD").exists()


DEEDS = [detach, switch, orphan, rewrite, remake, remake_unborn, locks, sha256, merging]


@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.__name__)
def test_whatever_it_did_to_the_repository_the_work_is_committed_and_shown(
    scratch: Scratch, place: Place, agent_git: Git, deed: Callable[[Git, Path], None]
) -> None:
    deed(agent_git, place.path)
    write(place, "work")
    found = scratch.leftovers(place)
    outcome = scratch.commit(place, found, "m")
    assert "work" in outcome.files
    assert "work" in committed(place, outcome.commit)
    assert "1 file changed" in outcome.diffstat or deed is merging
    assert "work" in scratch.changed(place, [])


def test_no_commit_at_all_is_an_error_and_not_a_crash(scratch: Scratch, place: Place, agent_git: Git) -> None:
    remake_unborn(agent_git, place.path)
    with pytest.raises(GitError):
        scratch.commit(place, [], "m")


def test_its_own_commits_count(scratch: Scratch, place: Place, agent_git: Git) -> None:
    write(place, "work")
    agent_git(place.path, "add", ".")
    agent_git(place.path, "commit", "--quiet", "-m", "by the agent itself")
    outcome = scratch.commit(place, scratch.leftovers(place), "m")
    assert outcome.files == ("work",)
    assert outcome.commit == agent_git(place.path, "rev-parse", "HEAD")


@pytest.fixture(autouse=True)
def _no_locks_left(tmp_path: Path) -> Iterator[None]:
    yield
    left = [path for path in (tmp_path / "scratch").rglob("*.lock") if ".git" in path.parts]
    assert left == []


# --- what an agent put in the way ---------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["refs", "refs/heads", "refs/heads/mh/deep"])
def test_locks_are_never_cleared_through_a_link(
    scratch: Scratch, place: Place, tmp_path: Path, where: str
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "yarn.lock").write_text("theirs")
    link = place.path / ".git" / where
    if link.exists():
        shutil.copytree(link, other, dirs_exist_ok=True)
        shutil.rmtree(link)
    link.symlink_to(other)
    own = place.path / ".git" / "index.lock"
    own.touch()
    write(place, "a.txt")
    if where == "refs":
        with pytest.raises(GitError, match="another repository"):
            scratch.commit(place, [Leftover("a.txt")], "left")
        own.unlink()
    else:
        scratch.commit(place, [Leftover("a.txt")], "left")
        assert not own.exists()
    assert (other / "yarn.lock").read_text() == "theirs"


def test_a_lock_deep_in_the_refs_is_cleared(scratch: Scratch, place: Place) -> None:
    lock = place.path / ".git" / "refs" / "heads" / "mh" / "one.lock"
    lock.touch()
    write(place, "a.txt")
    scratch.commit(place, [Leftover("a.txt")], "left")
    assert not lock.exists()


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"path": "/tmp/x", "branch": "b"},
        {"path": 1, "branch": "b", "base": "c"},
        {"path": "/tmp/x", "branch": None, "base": "c"},
        {"path": "/tmp/x", "branch": "b", "base": ["c"]},
        {"path": "relative", "branch": "b", "base": "c"},
        {"path": "/tmp/\0", "branch": "b", "base": "c"},
        {"path": "", "branch": "b", "base": "c"},
    ],
)
def test_what_is_no_place_is_none(raw: dict[str, object]) -> None:
    assert decode(raw) is None


def test_files_are_counted_without_git_and_up_to_a_limit(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / ".git" / "objects").mkdir(parents=True)
    (work / ".git" / "HEAD").touch()
    assert count_files(work) == 0
    (work / "deep" / ".git").mkdir(parents=True)
    (work / "deep" / ".git" / "HEAD").touch()
    (work / "a").touch()
    (work / "loop").symlink_to(".")
    (work / "gone").symlink_to("nowhere")
    assert count_files(work) == 4
    assert count_files(work, 3) == 3
    assert count_files(tmp_path / "none") == 0
    shutil.rmtree(work / ".git")
    os.mkfifo(work / ".git")
    assert count_files(work) == 4


# --- what is half made, and what was never given ------------------------------------------------------------


def test_what_a_crash_left_half_made_goes_and_what_another_thread_makes_stays(
    scratch: Scratch, place: Place
) -> None:
    home = place.path.parent
    (home / ".new-aaaaaaaaaaaa" / "deep").mkdir(parents=True)
    ours = home / f".new-{scratch._mark}-bbbbbbbbbbbb"
    ours.mkdir()
    scratch.provision("two", fresh=False)
    assert sorted(os.listdir(home)) == sorted([ours.name, "one", "two"])


def test_only_what_was_given_to_a_track_is_its_place(scratch: Scratch, place: Place, tmp_path: Path) -> None:
    again = scratch.provision("one", fresh=True)
    assert again.path.name == "one--2"
    assert scratch.owns(place, "one")
    assert scratch.owns(again, "one")
    moved = Scratch(lambda name: tmp_path.parent / "new" / "scratch" / name)
    assert moved.owns(place, "one")
    other = scratch.provision("two", fresh=False)
    elsewhere = tmp_path / "real" / "one"
    elsewhere.mkdir(parents=True)
    link = scratch.provision("one", fresh=True).path
    shutil.rmtree(link)
    link.symlink_to(elsewhere)
    for forged in (
        other,
        Place(elsewhere, place.branch, place.base),
        Place(place.path / ".." / ".." / "real" / "one", place.branch, place.base),
        Place(link, place.branch, place.base),
        Place(place.path, "main", place.base),
        Place(place.path, place.branch, "HEAD"),
        Place(place.path, place.branch, "--output=x"),
    ):
        assert not scratch.owns(forged, "one"), forged
