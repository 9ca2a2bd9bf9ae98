"""Where a track without a project works: a git repository of its own, with an empty first commit.

Provisioning is one transaction: it is built under a temporary name and
renamed when it is complete, so a half-made repository is never worked in.
What was half made is removed, after a crash by the next one who provisions.
Nothing here deletes a track's work.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from daemon.git import GitError, Repository
from daemon.kernel.mould import Mould

#: Larger files are listed, not committed (bytes).
FILE_CAP = 50 << 20
#: The base is also kept as a ref, so that it can be read from the repository alone.
BASE_REF = "refs/megaharness/base"
#: No program of the person's or the repository's choice shapes a listing.
_PLAIN = ("--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty")

_SECRET_NAMES = frozenset(
    {
        ".env",
        ".netrc",
        ".npmrc",
        ".pypirc",
        ".pgpass",
        "id_rsa",
        "id_dsa",
        "id_ecdsa",
        "id_ed25519",
        "credentials",
        "credentials.json",
        ".credentials.json",
        "auth.json",
    }
)
_SECRET_ENDINGS = (".pem", ".key", ".p12", ".pfx", ".kdbx", ".keystore", ".jks")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a track works. base: the commit that its diff is taken against."""

    path: Path
    branch: str
    base: str

    def encode(self) -> bytes:
        return (
            json.dumps({"v": 1, "path": str(self.path), "branch": self.branch, "base": self.base}).encode()
            + b"\n"
        )


def decode(raw: dict[str, object]) -> Place | None:
    """None: it is nothing that the daemon wrote."""
    match raw:
        case {"path": str(path), "branch": str(branch), "base": str(base)} if (
            os.path.isabs(path) and "\0" not in path + branch + base
        ):
            return Place(Path(path), branch, base)
    return None


@dataclass(frozen=True, slots=True)
class Leftover:
    """A path that is not committed; `why` is set when it stays that way."""

    path: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a session left in its place."""

    commit: str
    files: tuple[str, ...]
    diffstat: str
    left_out: tuple[Leftover, ...]


def looks_secret(path: str) -> bool:
    name = path.rsplit("/", 1)[-1].lower()
    return name in _SECRET_NAMES or name.startswith(".env.") or name.endswith(_SECRET_ENDINGS)


def _is_real_directory(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def count_files(path: Path, limit: int = 1000) -> int:
    """How many files lie in a work directory, git's own left out; it stops at `limit`. Asks nobody but the disk."""
    count = 0
    for folder, folders, names in os.walk(path, followlinks=False):
        if folder == str(path):
            folders[:] = [name for name in folders if name != ".git"]
            names = [name for name in names if name != ".git"]
        # A link to a directory is no directory to go into: it is something that was made.
        count += len(names) + sum(os.path.islink(os.path.join(folder, name)) for name in folders)
        if count >= limit:
            return limit
    return count


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Scratch:
    """`home(name)` gives the directory for a name; files over `cap` bytes are not committed."""

    def __init__(self, home: Callable[[str], Path], cap: int = FILE_CAP) -> None:
        self._home = home
        self._cap = cap
        #: In the names of what is being made: whatever has another one was left by a daemon that is gone.
        self._mark = secrets.token_hex(6)
        self._mould = Mould()

    def taken(self, track: str) -> bool:
        return os.path.lexists(self._home(track))

    def provision(self, track: str, *, fresh: bool) -> Place:
        """The track's repository, made if it is not there; `fresh`: always a new one. Raises GitError, OSError."""
        name, number = track, 1
        while fresh and os.path.lexists(self._home(name)):
            number += 1
            name = f"{track}--{number}"
        path, branch = self._home(name), f"mh/{track}"
        if os.path.isdir(path):
            return Place(path, branch, self._base(path))
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._clear_half_made(path.parent)
        making = path.parent / f".new-{self._mark}-{secrets.token_hex(6)}"
        try:
            making.mkdir(mode=0o700)
            base = self._mould.make(making, branch, f"empty start of {track}", BASE_REF)
            making.rename(path)
        except BaseException:
            shutil.rmtree(making, ignore_errors=True)
            raise
        _sync(path.parent)
        return Place(path, branch, base)

    def _clear_half_made(self, folder: Path) -> None:
        for name in os.listdir(folder):
            if name.startswith(".new-") and not name.startswith(f".new-{self._mark}-"):
                shutil.rmtree(folder / name, ignore_errors=True)

    def owns(self, place: Place, track: str) -> bool:
        """Whether this is a place that `provision` has given this track, and no link stands there instead.

        Also before the workspace was moved, which gives its scratch directory another parent.
        """
        home = self._home(track)
        return (
            place.path.parent.name == home.parent.name
            and place.path.parents[2:3] == home.parents[2:3]
            and ".." not in place.path.parts
            and re.fullmatch(rf"{re.escape(home.name)}(--[0-9]+)?", place.path.name) is not None
            and place.branch == f"mh/{track}"
            and re.fullmatch("[0-9a-f]{40,64}", place.base) is not None
            and not os.path.islink(place.path)
        )

    def _base(self, path: Path) -> str:
        try:
            return Repository(path).text("rev-parse", "--verify", BASE_REF)
        except GitError as error:
            raise GitError(
                f"{path} is there, but is not a repository that megaHarness made ({error})",
                "look what it is; `megaharness requeue ID --fresh` starts beside it",
            ) from error

    # -- at the end of a session ---------------------------------------------------------------

    def leftovers(self, place: Place) -> list[Leftover]:
        """What is not committed now, with the reason for what will stay so. Raises GitError."""
        listing = Repository(place.path).git(
            "status",
            "--porcelain=v1",
            "-z",
            "--untracked-files=all",
            "--no-renames",
            "--ignore-submodules=dirty",
        )
        found = []
        for row in listing.split(b"\0"):
            if len(row) < 4:
                continue
            path = os.fsdecode(row[3:])
            found.append(Leftover(path, self._kept_out(place.path / path, path)))
        return found

    def _kept_out(self, file: Path, path: str) -> str:
        try:
            found = os.lstat(file)
        except OSError:
            return ""  # deleted: that can be committed whatever it was
        if stat.S_ISDIR(found.st_mode):  # or a file was deleted and a directory stands in its place
            return "a repository of its own" if os.path.lexists(file / ".git") else ""
        if looks_secret(path):
            return "looks like a secret"
        if stat.S_ISREG(found.st_mode) and found.st_size > self._cap:
            return f"larger than {self._cap / (1 << 20):g} MB"
        return ""

    def commit(self, place: Place, leftovers: Iterable[Leftover], message: str) -> Outcome:
        """Commit the leftovers where the work is, and say what came out since the base. Raises GitError."""
        repository = Repository(place.path)
        left_out = [entry for entry in leftovers if entry.why]
        wanted = [entry for entry in leftovers if not entry.why]
        self._clear_locks(place.path)
        if left_out:
            self._unstage(repository, left_out)
        if wanted:
            left_out += self._stage(repository, wanted)
            if repository.git("diff", "--cached", "--name-only", "-z", *_PLAIN):
                repository.git("commit", "--quiet", "--no-verify", "--no-gpg-sign", "-m", message)
        commit = repository.text("rev-parse", "HEAD")
        base = self._comparable(repository, place)
        diffstat = repository.git("diff", "--stat=100,70,40", "--no-color", *_PLAIN, base, commit)
        files = self._names(repository, base, commit)
        return Outcome(commit, files, diffstat.decode("utf-8", "replace"), tuple(left_out))

    def _stage(self, repository: Repository, wanted: list[Leftover]) -> list[Leftover]:
        """Stage exactly these paths; returns those that git would not take, such as an unreadable file."""
        # Not `add`: to it a path that became a directory means everything in there.
        names = b"".join(os.fsencode(entry.path) + b"\0" for entry in wanted)
        try:
            repository.git("update-index", "--add", "--remove", "--replace", "-z", "--stdin", stdin=names)
        except GitError as error:
            if len(wanted) == 1:
                return [Leftover(wanted[0].path, str(error).splitlines()[0])]
            half = len(wanted) // 2
            return self._stage(repository, wanted[:half]) + self._stage(repository, wanted[half:])
        return []

    def _unstage(self, repository: Repository, left_out: list[Leftover]) -> None:
        """What the agent staged and we leave out must not come along with the commit."""
        names = b"\0".join(os.fsencode(entry.path.rstrip("/")) for entry in left_out)
        repository.git(
            "--literal-pathspecs",
            "reset",
            "--quiet",
            "--pathspec-from-file=-",
            "--pathspec-file-nul",
            stdin=names,
        )

    def _clear_locks(self, path: Path) -> None:
        """An agent that was ended in the middle of a commit leaves them; its whole tree has been reaped by now."""
        git = path / ".git"
        locks = [git / "index.lock", git / "HEAD.lock"]
        # Never through a link: what it leads to is not the repository's.
        if not os.path.islink(git / "refs"):
            for folder, _, names in os.walk(git / "refs", followlinks=False):
                locks += [Path(folder, name) for name in names if name.endswith(".lock")]
        for lock in locks if _is_real_directory(git) else ():
            with contextlib.suppress(OSError):
                os.unlink(lock)

    def _comparable(self, repository: Repository, place: Place) -> str:
        """The base; if the agent made the repository anew, the tree without files that the base had."""
        try:
            return repository.text("rev-parse", "--verify", f"{place.base}^{{commit}}")
        except GitError:
            return repository.text("hash-object", "-t", "tree", "/dev/null")

    def _names(self, repository: Repository, base: str, commit: str) -> tuple[str, ...]:
        names = repository.git("diff", "--name-only", "-z", *_PLAIN, base, commit)
        return tuple(os.fsdecode(name) for name in names.split(b"\0") if name)

    def head(self, place: Place) -> str:
        """The commit that is checked out. Raises GitError."""
        return Repository(place.path).text("rev-parse", "HEAD")

    def changed(self, place: Place, leftovers: Iterable[Leftover]) -> list[str]:
        """Every path that differs from the base now, committed or not. Raises GitError."""
        repository = Repository(place.path)
        committed = self._names(repository, self._comparable(repository, place), "HEAD")
        return sorted({*committed, *(entry.path for entry in leftovers)})
