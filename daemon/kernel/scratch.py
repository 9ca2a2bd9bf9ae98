"""Where a track without a project works: a git repository of its own, with an empty first commit.

Provisioning is one transaction: it is built under a temporary name and
renamed when it is complete, so a half-made repository is never worked in.
Nothing here deletes a track's work.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from daemon.kernel.git import GitError, Repository, initialise

#: Larger files are listed, not committed (bytes).
FILE_CAP = 50 << 20
#: The base is also kept as a ref, so that it can be read from the repository alone.
BASE_REF = "refs/megaharness/base"

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
        return json.dumps({"v": 1, "path": str(self.path), "branch": self.branch, "base": self.base}).encode() + b"\n"


def decode(raw: dict[str, object]) -> Place:
    return Place(Path(str(raw["path"])), str(raw["branch"]), str(raw["base"]))


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


class Scratch:
    """`home(name)` gives the directory for a name."""

    def __init__(self, home: Callable[[str], Path]) -> None:
        self._home = home

    def taken(self, track: str) -> bool:
        return os.path.lexists(self._home(track))

    def provision(self, track: str, *, fresh: bool) -> Place:
        """The track's repository, made if it is not there; `fresh`: always a new one. Raises GitError, OSError."""
        name, number = track, 1
        while fresh and os.path.lexists(self._home(name)):
            number += 1
            name = f"{track}--{number}"
        path, branch = self._home(name), f"mh/{track}"
        if path.is_dir():
            return Place(path, branch, self._base(path))
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        making = path.parent / f".new-{secrets.token_hex(6)}"
        making.mkdir(mode=0o700)
        base = initialise(making, branch, f"empty start of {track}")
        Repository(making).git("update-ref", BASE_REF, base)
        making.rename(path)
        return Place(path, branch, base)

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
            "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=none"
        )
        found = []
        for row in listing.split(b"\0"):
            if len(row) < 4:
                continue
            path = os.fsdecode(row[3:])
            found.append(Leftover(path, self._kept_out(place.path / path, path)))
        return found

    def _kept_out(self, file: Path, path: str) -> str:
        if looks_secret(path):
            return "looks like a secret"
        with contextlib.suppress(OSError):
            if file.is_file() and not file.is_symlink() and file.stat().st_size > FILE_CAP:
                return f"larger than {FILE_CAP >> 20} MB"
        return ""

    def commit(self, place: Place, leftovers: Iterable[Leftover], message: str) -> Outcome:
        """Commit the leftovers where the work is, and say what came out since the base. Raises GitError."""
        repository = Repository(place.path)
        left_out = [entry for entry in leftovers if entry.why]
        wanted = [entry for entry in leftovers if not entry.why]
        self._clear_index_lock(place.path)
        if wanted:
            left_out += self._add(repository, wanted)
            staged = repository.git("diff", "--cached", "--name-only", "-z", "--no-ext-diff", "--no-textconv")
            if staged:
                repository.git("commit", "--quiet", "--no-verify", "--no-gpg-sign", "-m", message)
        commit = repository.text("rev-parse", "HEAD")
        names = repository.git(
            "diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", "--no-textconv", place.base, commit
        )
        stat = repository.git(
            "diff", "--stat=100", "--no-color", "--no-ext-diff", "--no-textconv", place.base, commit
        ).decode("utf-8", "replace")
        files = tuple(os.fsdecode(name) for name in names.split(b"\0") if name)
        return Outcome(commit, files, stat, tuple(left_out))

    def _add(self, repository: Repository, wanted: list[Leftover]) -> list[Leftover]:
        """Stage; returns what git would not take (a nested repository without a commit, an unreadable file)."""
        command = ["--literal-pathspecs", "add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul"]
        try:
            repository.git(*command, stdin=b"\0".join(os.fsencode(entry.path) for entry in wanted))
        except GitError:
            refused = []
            for entry in wanted:
                try:
                    repository.git(*command, stdin=os.fsencode(entry.path))
                except GitError as error:
                    refused.append(Leftover(entry.path, str(error).splitlines()[0]))
            return refused
        return []

    def _clear_index_lock(self, path: Path) -> None:
        """An agent that was ended in the middle of a commit leaves it; its whole tree has been reaped by now."""
        with contextlib.suppress(OSError):
            os.unlink(path / ".git" / "index.lock")

    def changed(self, place: Place, leftovers: Iterable[Leftover]) -> list[str]:
        """Every path that differs from the base now, committed or not. Raises GitError."""
        names = Repository(place.path).git(
            "diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", "--no-textconv", place.base, "HEAD"
        )
        found = [os.fsdecode(name) for name in names.split(b"\0") if name]
        return sorted({*found, *(entry.path for entry in leftovers)})
