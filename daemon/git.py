"""The daemon's own git calls: argv only, and nothing that a repository's configuration names is ever run.

An agent can write ``.git/config`` of the repository it works in. So before
a repository is touched its local configuration is listed (which runs
nothing), and every key that could name a program is overridden through the
environment (``GIT_CONFIG_COUNT``, git-config(1)): hooks, fsmonitor, pagers,
external diffs, textconv, filters, signing, ssh commands, credential helpers.
No transport may be used (``GIT_ALLOW_PROTOCOL``): a "promisor" remote would
be asked for a missing object by a command of its choice.

Which repository is meant is said, never searched for (``GIT_DIR``): without
its ``.git`` a work directory would be taken for part of one further up, and
``core.worktree`` could point anywhere. Git never looks into nested
repositories for us (``--ignore-submodules``): their configurations have not
been listed. Nor may its objects and branches lie elsewhere: a file in
``.git`` (``commondir``) or a link can name a person's repository as their home.

A disk that refuses is no answer of git's: it is an OSError, as everywhere.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from daemon.durable import Files
from daemon.errors import MegaharnessError
from daemon.faults import passes

#: Keys (lower case, sub-section as ``*``) whose value is a program, and what they are set to instead.
_HARMLESS: dict[str, str] = {
    "core.hookspath": "/dev/null",
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "core.editor": "true",
    "sequence.editor": "true",
    "core.sshcommand": "false",
    "core.askpass": "true",
    "core.alternaterefscommand": "",
    "core.gitproxy": "",
    "diff.external": "",
    "interactive.difffilter": "",
    "commit.gpgsign": "false",
    "tag.gpgsign": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "credential.helper": "",
    "uploadpack.packobjectshook": "",
    # Not programs, but what makes a plain commit fail, differ, or be gone after a power cut.
    "core.safecrlf": "false",
    "core.fsync": "committed",
    "diff.ignoresubmodules": "dirty",
    "i18n.commitencoding": "UTF-8",
    "submodule.recurse": "false",
}
_PROGRAM_KEYS = re.compile(
    r"""filter\..*\.(clean|smudge|process|required) | diff\..*\.(command|textconv) | merge\..*\.driver
      | credential\..*\.helper | credential\.helper | gpg\.(.*\.)?program | pager\..* | alias\..*
      | remote\..*\.(uploadpack|receivepack|vcs|proxy) | submodule\..*\.update | trailer\..*\.(command|cmd)
      | (difftool|mergetool|browser|man|guitool)\..*""",
    re.VERBOSE | re.IGNORECASE,
)
_ENVIRONMENT = ("PATH", "HOME", "TZ", "XDG_CONFIG_HOME", "TMPDIR")
#: What git's words end with when the disk refused (in the C locale).
_DISK_WORDS = {
    b"No space left on device": errno.ENOSPC,
    b"Disk quota exceeded": errno.EDQUOT,
    b"Read-only file system": errno.EROFS,
    b"Input/output error": errno.EIO,
}

AUTHOR = {
    "GIT_AUTHOR_NAME": "megaHarness",
    "GIT_AUTHOR_EMAIL": "megaharness@localhost",
    "GIT_COMMITTER_NAME": "megaHarness",
    "GIT_COMMITTER_EMAIL": "megaharness@localhost",
}


class GitError(MegaharnessError):
    """git refused; has its words."""


def environment() -> dict[str, str]:
    """What git gets to know of ours."""
    return {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}


def _environment(overrides: Mapping[str, str]) -> dict[str, str]:
    env = environment()
    env |= AUTHOR
    env |= {
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_PAGER": "cat",
        "GIT_EDITOR": "true",
    }
    env |= {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}
    env["GIT_CONFIG_COUNT"] = str(len(overrides))
    for number, (key, value) in enumerate(overrides.items()):
        env[f"GIT_CONFIG_KEY_{number}"] = key
        env[f"GIT_CONFIG_VALUE_{number}"] = value
    return env


def _run(
    args: Sequence[str], cwd: Path, env: Mapping[str, str], stdin: bytes | None, timeout: float
) -> bytes:
    """What git printed. Raises GitError, and OSError for the disk: its file is `cwd`."""
    try:
        process = subprocess.Popen(
            ["git", *args],
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A group of its own: what git has started must not outlive it.
            start_new_session=True,
        )
    except (FileNotFoundError, NotADirectoryError) as error:
        if not os.path.isdir(cwd):
            raise GitError(f"{cwd} is not there any more") from error
        raise GitError("git is not installed", "install it: apt-get install git") from error
    except PermissionError as error:
        # Not the disk's fault: an agent can take its own directory's permissions away.
        raise GitError(f"{cwd} cannot be entered: permission denied", f"chmod u+rwx {cwd}") from error
    except OSError as error:
        if passes(error):
            raise
        if error.errno == errno.E2BIG:
            count = int(env["GIT_CONFIG_COUNT"]) - len(_HARMLESS)
            config = cwd / ".git" / "config"
            raise GitError(f"its configuration ({config}) names {count} programs, too many") from error
        raise GitError(f"git could not be started in {cwd}: {error.strerror}") from error
    with process:
        try:
            out, words = process.communicate(stdin or b"", timeout)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)  # not waited for yet: the number is still its own
            if isinstance(error, subprocess.TimeoutExpired):
                told = f"git {_verb(args)} took longer than {timeout:.0f} s in {cwd}"
                raise GitError(told) from error
            raise
    if process.returncode != 0:
        number = _disk_error(words, stdin or b"") or _probe(Path(env.get("GIT_DIR", cwd)))
        if number:
            raise OSError(number, os.strerror(number), str(cwd))
        told = words.decode("utf-8", "replace").strip() or f"exit {process.returncode}"
        raise GitError(f"git {_verb(args)}: {told}")
    return out


def _disk_error(words: bytes, stdin: bytes) -> int | None:
    """The error of the disk that git names, at the end of a line; not one that stands in a path it was given."""
    for line in words.splitlines():
        for text, number in _DISK_WORDS.items():
            if line.endswith(b": " + text) and text not in stdin:
                return number
    return None


def _probe(folder: Path) -> int | None:
    """Whether the disk takes nothing there: git does not always say so."""
    try:
        Files().probe(folder)
    except OSError as error:
        return error.errno if error.errno in _DISK_WORDS.values() else None
    return None


def _verb(args: Sequence[str]) -> str:
    return next((arg for arg in args if not arg.startswith("-")), "")


class Repository:
    """A repository whose configuration is not trusted. One object per piece of work: it lists the keys once.

    `path` is the work tree, with the repository in its ``.git``, a real directory. Raises GitError where it is none,
    and OSError where the disk refuses.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._overrides: dict[str, str] | None = None
        self._where = {"GIT_DIR": str(path / ".git"), "GIT_WORK_TREE": str(path)}
        if not os.path.isdir(path / ".git") or os.path.islink(path / ".git"):
            raise GitError(f"{path} is no git repository any more, or cannot be entered")
        links = any(os.path.islink(path / ".git" / name) for name in ("objects", "refs"))
        if links or os.path.lexists(path / ".git" / "commondir"):
            raise GitError(f"what is committed in {path} would go to another repository")

    def overrides(self) -> dict[str, str]:
        if self._overrides is None:
            found = dict(_HARMLESS)
            listing = _run(
                ["config", "--null", "--name-only", "--list", "--includes"],
                self.path,
                _environment({}) | self._where,
                None,
                30,
            )
            for raw in listing.split(b"\0"):
                key = os.fsdecode(raw)
                if _PROGRAM_KEYS.fullmatch(key):
                    found[key] = "false" if key.lower().endswith(".required") else ""
            self._overrides = found
        return self._overrides

    def git(self, *args: str, stdin: bytes | None = None, timeout: float = 120) -> bytes:
        """Run git there; returns what it printed. Raises GitError."""
        return _run(args, self.path, _environment(self.overrides()) | self._where, stdin, timeout)

    def text(self, *args: str) -> str:
        return self.git(*args).decode("utf-8", "replace").strip()


def initialise(path: Path, branch: str, message: str, base: str) -> str:
    """A new repository with one empty commit, which is also kept as the ref `base`; returns its hash."""
    env = _environment(_HARMLESS)
    _run(["init", "--quiet", "--template=", f"--initial-branch={branch}"], path, env, None, 60)
    _run(["commit", "--quiet", "--allow-empty", "--no-verify", "-m", message], path, env, None, 60)
    # Nobody has worked here yet: its configuration is git's own, and names no program.
    commit = _tip(path, branch) or _run(["rev-parse", "HEAD"], path, env, None, 60).decode().strip()
    _run(["update-ref", base, commit], path, env, None, 60)
    return commit


def configuration(path: Path) -> list[tuple[str, str, str]]:
    """(file, key, value) of all that git's files say for a repository in which nobody has worked yet."""
    listing = _run(
        ["config", "--null", "--show-origin", "--list", "--includes"], path, _environment({}), None, 30
    )
    parts = os.fsdecode(listing).split("\0")[:-1]
    found = []
    for origin, setting in zip(parts[::2], parts[1::2], strict=True):
        key, _, value = setting.partition("\n")
        if origin.startswith("file:"):
            found.append((origin[len("file:") :], key, value))
    return found


def _tip(path: Path, branch: str) -> str | None:
    """What a branch that was just made points to, where refs are files; it saves a process."""
    try:
        found = (path / ".git/refs/heads" / branch).read_text("ascii").strip()
    except (OSError, ValueError):
        return None
    return found if re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", found) else None
