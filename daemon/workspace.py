"""Makes a workspace, and says whether a daemon may start in one.

Invariants
- What a person has is never overwritten: `create` only adds what is missing.
- Everything made is for its owner alone (0700, 0600).
- A daemon starts only where one rename is one transition: one file system,
  one mount, no network, `renameat2` with NOREPLACE and EXCHANGE; and only
  where nobody else can drop a file, since a dropped file runs commands.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from daemon import config, layout
from daemon.durable import Files
from daemon.errors import StartRefused, UsageError
from daemon.layout import Workspace

STARTER = Path(__file__).parent / "starter"

GITIGNORE = """\
# What may go into git: the database, the settings, finished tracks, and a run's own documents.
# Sessions hold whatever agents saw, also secrets: they and everything else stay out.
/*
!/.gitignore
!/megaharness.toml
!/md-db/
!/tracks/
/tracks/*
!/tracks/done/
!/tracks/failed/
!/runs/
/runs/*/*
!/runs/*/run.md
!/runs/*/requirements/
!/runs/*/questions/
!/runs/*/evals/
!/runs/*/manifest.json
!/runs/*/plan.json
!/runs/*/reports/
"""

# For a directory that has a .gitignore of its own: the same, without touching anything else of it.
EXCLUDE = """
# megaHarness: what a workspace keeps to itself
/.megaharness/
/sessions/
/tracks/*
!/tracks/done/
!/tracks/failed/
/runs/*/*
!/runs/*/run.md
!/runs/*/requirements/
!/runs/*/questions/
!/runs/*/evals/
!/runs/*/manifest.json
!/runs/*/plan.json
!/runs/*/reports/
"""

# Mount types on which a rename or a lock is another machine's word.
NETWORK = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "drvfs", "gfs2", "glusterfs", "lustre", "ncpfs", "nfs"}
    | {"nfs4", "ocfs2", "orangefs", "pvfs2", "smb3", "smbfs"}
    | {f"fuse.{name}" for name in ("cephfs", "glusterfs", "rclone", "s3fs", "smbnetfs", "sshfs")}
)

# The disk's trouble may pass while the daemon runs (degraded); it is no reason not to start.
_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS})


@dataclass(frozen=True, slots=True)
class Made:
    """What `create` added, as paths relative to the root; nothing if all was there."""

    root: Path
    paths: tuple[str, ...]


def create(root: Path) -> Made:
    """Make a workspace, or complete one.

    Raises `UsageError` where none should be: in a clone of our own code, in
    the home directory itself, in `/`, on something that is no directory.
    """
    root = Path(os.path.realpath(root))
    _refuse(root)
    workspace, files, made = Workspace(root), Files(), []
    try:
        for directory in (root, *directories(workspace), *_database(workspace)):
            if not directory.is_dir():
                files.make_dirs(directory)
                made.append(f"{directory.relative_to(root)}/" if directory != root else f"{root}/")
        made += _repository(workspace, files)
        for path, content in _starter_files(workspace):
            if not os.path.lexists(path):
                files.make_dirs(path.parent)
                files.create(path, content)
                files.sync_dir(path.parent)
                made.append(str(path.relative_to(root)))
    except OSError as e:
        raise UsageError(f"no workspace can be made at {root}: {e.strerror}: {e.filename}") from e
    return Made(root, tuple(made))


def directories(workspace: Workspace) -> tuple[Path, ...]:
    """The directories that a daemon needs; it makes those that are missing."""
    w = workspace
    tracks = (w.tracks, *w.folders, w.requests, w.tmp, w.displaced)
    return (*tracks, w.sessions, w.runs, w.machine, w.wake, w.holds, w.events, w.log, w.tmux, w.mddb, w.evals)


def check_start(
    workspace: Workspace,
    environ: Mapping[str, str] = os.environ,
    *,
    files: Files | None = None,
    network: frozenset[str] = NETWORK,
) -> None:
    """Make missing folders and check what must hold for a daemon to start here.

    Raises `StartRefused` with what is wrong and the way out. A full or
    read-only disk does not refuse: the daemon starts degraded and waits.
    """
    if sys.platform != "linux":
        raise StartRefused(f"megaHarness runs on Linux; this is {sys.platform}")
    if not workspace.root.is_dir():
        raise StartRefused(f"there is no workspace at {workspace.root}", f"mh init {workspace.root}")
    _check_settings_place(workspace, environ)
    files = files or Files()
    for directory in directories(workspace):
        try:
            if not os.path.lexists(directory):
                files.make_dirs(directory)
        except OSError as e:
            raise StartRefused(f"{directory} cannot be made: {e.strerror}") from e
    for path in (workspace.root, workspace.settings, *directories(workspace)):
        _check_private(path)
    _check_one_file_system(workspace, network)
    _check_renames(workspace, files)


# -- create ------------------------------------------------------------------------------------


def _refuse(root: Path) -> None:
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root} is not a directory")
    if root in (Path("/"), Path(os.path.realpath(layout.home(os.environ)))):
        raise UsageError(f"{root} itself should not become a workspace", "mh init ~/megaharness")
    if _our_code(root):
        raise UsageError(
            f"{root} is a clone of megaHarness's own code; your tracks would live among it",
            "mh init ~/megaharness, or any other directory; "
            "for the demo and tests the clone is used as it is, with --root",
        )


def _our_code(root: Path) -> bool:
    if (root / "daemon").is_dir() and (root / "adapters").is_dir():
        return True
    try:
        project = tomllib.loads((root / "pyproject.toml").read_text(errors="replace")).get("project", {})
    except (OSError, tomllib.TOMLDecodeError):
        return False
    return isinstance(project, dict) and project.get("name") == "megaharness"


def _database(workspace: Workspace) -> Iterator[Path]:
    for name in ("projects", "instructions", "skills", "sidecar"):
        yield workspace.mddb / name


def _starter_files(workspace: Workspace) -> Iterator[tuple[Path, bytes]]:
    yield workspace.settings, config.starter().encode()
    # A database that somebody has begun is theirs: what they deleted does not come back.
    if not any(p for p in workspace.mddb.rglob("*.md")):
        for source in sorted(STARTER.rglob("*.md")):
            yield workspace.root / source.relative_to(STARTER), source.read_bytes()


def _repository(workspace: Workspace, files: Files) -> Iterator[str]:
    if not os.path.lexists(workspace.root / ".git"):
        _git("init", "--quiet", "--template=", "--initial-branch=main", str(workspace.root))
        yield ".git/"
        if not os.path.lexists(workspace.gitignore):
            files.create(workspace.gitignore, GITIGNORE.encode())
            yield ".gitignore"
    if workspace.gitignore.exists() and workspace.gitignore.read_bytes() == GITIGNORE.encode():
        return
    # Somebody's own repository, or own rules: ours go where git keeps what is of this clone alone.
    place = _git("-C", str(workspace.root), "rev-parse", "--git-path", "info/exclude")
    exclude = workspace.root / place
    if EXCLUDE.encode() not in (exclude.read_bytes() if exclude.exists() else b""):
        files.make_dirs(exclude.parent)
        files.append(exclude, EXCLUDE.encode())
        yield place


def _git(*args: str) -> str:
    """Run git on the workspace with hooks off, for its owner alone, apart from any repository around it."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    argv = ["git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", *args]
    try:
        ran = subprocess.run(
            argv,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            umask=0o077,
            check=True,
        )
    except FileNotFoundError as e:
        raise UsageError("git is not installed", "apt-get install git") from e
    except subprocess.TimeoutExpired as e:
        raise UsageError("git did not answer within 60 s") from e
    except subprocess.CalledProcessError as e:
        raise UsageError(f"git: {e.stderr.decode(errors='replace').strip()}") from e
    return os.fsdecode(ran.stdout).rstrip("\n")


# -- check_start -------------------------------------------------------------------------------


def _check_settings_place(workspace: Workspace, environ: Mapping[str, str]) -> None:
    problem = layout.state_problem(workspace, environ)
    if problem and not environ.get("XDG_STATE_HOME"):
        raise StartRefused(problem, "set XDG_STATE_HOME to a directory that stays")


def _check_private(path: Path) -> None:
    try:
        there = path.lstat()
    except FileNotFoundError:
        return  # only the settings may be missing: the directories have just been made
    except OSError as e:
        raise StartRefused(f"{path} cannot be looked at: {e.strerror}") from e
    if stat.S_ISLNK(there.st_mode):
        raise StartRefused(
            f"{path} is a symbolic link", "put the real thing there, and link to it from elsewhere"
        )
    if stat.S_ISDIR(there.st_mode) == path.name.endswith(".toml"):
        raise StartRefused(f"{path} is in the way: a {'file' if path.suffix else 'directory'} belongs there")
    if there.st_uid != os.geteuid():
        raise StartRefused(
            f"{path} belongs to user {there.st_uid}, the daemon runs as user {os.geteuid()}: "
            "who owns it could run commands as you",
            f"chown it, or start the daemon as its owner: chown -R {os.geteuid()} {path}",
        )
    if there.st_mode & 0o022:
        raise StartRefused(
            f"{path} can be written by others (mode {there.st_mode & 0o7777:04o}): "
            "who can write there can run commands as you",
            f"chmod go-w {path}",
        )


def _check_one_file_system(workspace: Workspace, network: frozenset[str]) -> None:
    together = (*workspace.folders, workspace.tmp, workspace.displaced)
    first, *others = (_place(path) for path in together)
    for path, place in zip(together[1:], others, strict=True):
        if place != first:
            raise StartRefused(
                f"{path} is on another file system or mount than {together[0]}: "
                "no file can be renamed between them",
                "put all folders of tracks/ on one file system",
            )
    types = _mount_types()
    for path in (*together, workspace.sessions, workspace.machine):
        kind = types.get(_place(path)[1], "")
        if kind in network:
            raise StartRefused(
                f"{path} is on a network file system ({kind}), where renames and locks cannot be relied on",
                "keep the workspace on a local disk; a synced folder may copy files into queued/",
            )


def _place(path: Path) -> tuple[int, int]:
    """Device and mount: rename needs both to be equal (a bind mount has the same device)."""
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        info = Path(f"/proc/self/fdinfo/{fd}").read_text()
        mount = next(line.split()[1] for line in info.splitlines() if line.startswith("mnt_id:"))
        return os.fstat(fd).st_dev, int(mount)
    finally:
        os.close(fd)


def _mount_types() -> dict[int, str]:
    """Mount id to file system type, from proc(5) mountinfo; a mount outside our view is missing."""
    types = {}
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        types[int(before.split()[0])] = after.split()[0]
    return types


def _check_renames(workspace: Workspace, files: Files) -> None:
    token = secrets.token_hex(6)
    one, other = workspace.tmp / f".probe-{token}", workspace.displaced / f".probe-{token}"
    try:
        files.create(one, b"1")
        files.create(other, b"2")
        try:
            files.move(one, other)
        except FileExistsError:
            files.exchange(one, other)
        if (one.read_bytes(), other.read_bytes()) != (b"2", b"1"):
            raise StartRefused(f"renames in {workspace.tracks} do not do what they should", _ANOTHER_DISK)
    except OSError as e:
        if e.errno in _PASSING:
            return
        raise StartRefused(
            f"the file system of {workspace.tracks} cannot rename without overwriting, "
            f"or not exchange two files: {e.strerror}",
            _ANOTHER_DISK,
        ) from e
    finally:
        for path in (one, other):
            _remove(path)


_ANOTHER_DISK = "keep the workspace on ext4, xfs, btrfs or tmpfs"


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return  # a disk that went bad just now; what lies in .tmp is deleted by the daemon later
