"""New repositories without a process: as git made one here, the next ones are made with ordinary file operations.

What a new repository looks like is git's to say, and its person's configuration. So git makes the first one, and
it is looked at: if every file in it is what would have been written here, the next ones are written here, with
git's own ``config`` and ``index``. If anything is different (another object format, another kind of refs, a log
more, shared permissions, another git), git makes each of them. And it is asked again as soon as its program, a
file of its configuration or the environment is not what it was.

On disk is what git puts there when ``core.fsync`` is ``committed``: the objects and the refs.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from daemon import git
from daemon.durable import write_all
from daemon.git import AUTHOR, GitError

#: Names that git takes as a branch, a message and a ref as they are.
_SIMPLE = re.compile(r"[a-z0-9]+([ /-][a-z0-9]+)*")
#: What is taken over as it is.
_KEPT = ("config", "index")
_TREE = b"tree 0\0"
#: What git was told by a configuration that was changed less than so many seconds before is not kept: which version
#: of it git has read is not sure.
RACY = 2.0
_WHO = f"{AUTHOR['GIT_AUTHOR_NAME']} <{AUTHOR['GIT_AUTHOR_EMAIL']}>"

Signature = tuple[int, int, int, int] | None


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    data: bytes
    mode: int
    synced: bool = False


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a new repository has besides what follows from its names; holds while `sources` and `env` are the same."""

    kept: tuple[_File, ...]
    empty: tuple[str, ...]
    sources: Mapping[str, Signature]
    env: Mapping[str, str]

    def holds(self) -> bool:
        return self.env == git.environment() and all(
            _look(path) == seen for path, seen in self.sources.items()
        )


class Mould:
    def __init__(self, racy: float = RACY) -> None:
        self._racy = racy
        self._shape: _Shape | None = None

    def make(self, path: Path, branch: str, message: str, base: str) -> str:
        """As `git.initialise`: one empty commit on the branch, which is also the ref `base`; returns its hash."""
        shape = self._shape
        simple = all(_SIMPLE.fullmatch(each) for each in (branch, message, base))
        if shape is not None and simple and shape.holds():
            return _write(path / ".git", shape, branch, message, base)
        began = time.time()
        commit = git.initialise(path, branch, message, base)
        self._shape = _learnt(path, branch, message, base, commit, began - self._racy) if simple else shape
        return commit


def _object(data: bytes) -> tuple[str, bytes]:
    """(its path, what is written there)"""
    name = hashlib.sha1(data, usedforsecurity=False).hexdigest()
    return f"objects/{name[:2]}/{name[2:]}", zlib.compress(data, 1)


def _files(branch: str, message: str, base: str, when: str) -> tuple[str, list[_File]]:
    """The commit of a new repository, and its files but for those that are taken over."""
    tree, tree_data = _object(_TREE)
    body = (
        f"tree {tree[8:10]}{tree[11:]}\nauthor {_WHO} {when}\ncommitter {_WHO} {when}\n\n{message}\n".encode()
    )
    path, data = _object(b"commit %d\0" % len(body) + body)
    commit = path[8:10] + path[11:]
    log = f"{'0' * 40} {commit} {_WHO} {when}\tcommit (initial): {message}\n".encode()
    ref = f"{commit}\n".encode()
    return commit, [
        _File("HEAD", f"ref: refs/heads/{branch}\n".encode(), 0o600),
        _File("COMMIT_EDITMSG", f"{message}\n".encode(), 0o600),
        _File("logs/HEAD", log, 0o600),
        _File(f"logs/refs/heads/{branch}", log, 0o600),
        _File(tree, tree_data, 0o400, synced=True),
        _File(path, data, 0o400, synced=True),
        _File(f"refs/heads/{branch}", ref, 0o600, synced=True),
        _File(base, ref, 0o600, synced=True),
    ]


def _parents(paths: set[str]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        while path := path.rpartition("/")[0]:
            found.add(path)
    return found


# -- writing one -----------------------------------------------------------------------------------------------


def _write(folder: Path, shape: _Shape, branch: str, message: str, base: str) -> str:
    time.tzset()  # a git that is started anew sees where its person is now
    now = int(time.time())
    commit, files = _files(branch, message, base, f"{now} {time.strftime('%z', time.localtime(now))}")
    files += shape.kept
    try:
        os.mkdir(folder, 0o700)
        for name in sorted({*shape.empty} | _parents({*shape.empty, *(file.path for file in files)})):
            os.mkdir(folder / name, 0o700)
        for file in files:
            _put(folder / file.path, file)
    except OSError as error:
        # Whoever is told must know which disk it is, also where only a descriptor was at hand.
        raise OSError(error.errno, os.strerror(error.errno or 0), str(folder.parent)) from error
    return commit


def _put(path: Path, file: _File) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, file.mode)
    try:
        write_all(fd, file.data)
        if file.synced:
            os.fsync(fd)
    finally:
        os.close(fd)


# -- learning how --------------------------------------------------------------------------------------------


def _learnt(path: Path, branch: str, message: str, base: str, commit: str, steady: float) -> _Shape | None:
    """None: what git has made is not what would be written here."""
    try:
        made, folders = _listing(path / ".git")
        when = made["logs/HEAD"][1].split(b"> ", 1)[1].split(b"\t")[0].decode("ascii")
        sources = _sources(path)
    except (OSError, LookupError, ValueError, GitError):
        return None
    ours, files = _files(branch, message, base, when)
    kept = tuple(_File(name, made[name][1], made[name][0]) for name in _KEPT if name in made)
    if ours != commit or made.keys() != {file.path for file in (*files, *kept)}:
        return None
    for file in files:
        mode, data = made[file.path]
        if mode != file.mode or _plain(file.path, data) != _plain(file.path, file.data):
            return None
    recent = any(seen is not None and seen[2] / 1e9 > steady for seen in (sources or {}).values())
    if sources is None or recent or {0o700} != set(folders.values()) or any(f.mode != 0o600 for f in kept):
        return None
    empty = folders.keys() - _parents(set(made))
    return _Shape(kept, tuple(empty), sources, git.environment())


def _plain(path: str, data: bytes) -> bytes:
    """How well an object is packed is git's own affair."""
    return zlib.decompress(data) if path.startswith("objects/") else data


def _listing(top: Path) -> tuple[dict[str, tuple[int, bytes]], dict[str, int]]:
    """Of the files their modes and contents, of the directories their modes. Raises ValueError for anything else."""
    files: dict[str, tuple[int, bytes]] = {}
    folders: dict[str, int] = {}
    for folder, names, others in os.walk(top):
        for name in (*names, *others):
            path = Path(folder, name)
            found, key = os.lstat(path), str(path.relative_to(top))
            if stat.S_ISDIR(found.st_mode):
                folders[key] = stat.S_IMODE(found.st_mode)
            elif stat.S_ISREG(found.st_mode):
                files[key] = (stat.S_IMODE(found.st_mode), path.read_bytes())
            else:
                raise ValueError(key)
    return files, folders


def _sources(path: Path) -> dict[str, Signature] | None:
    """Everything that says how git makes a repository; None: that depends on where it is."""
    env = git.environment()
    program = shutil.which("git", path=env.get("PATH"))
    home = env.get("HOME", "/")
    files = {
        program or "git",
        "/etc/gitconfig",
        os.path.normpath(f"{program}/../../etc/gitconfig"),
        f"{home}/.gitconfig",
        f"{env.get('XDG_CONFIG_HOME') or f'{home}/.config'}/git/config",
    }
    own = path / ".git/config"
    for origin, key, value in git.configuration(path):
        if key.startswith("includeif."):
            return None
        file = os.path.join(path, origin)
        if key == "include.path":
            files.add(os.path.join(os.path.dirname(file), os.path.expanduser(value)))
        if file != str(own):
            files.add(file)
    return {file: _look(file) for file in files}


def _look(path: str) -> Signature:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_ctime_ns, found.st_size)
