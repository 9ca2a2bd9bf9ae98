"""Where everything is: the paths of a workspace, and which workspace is meant.

Only names. Nothing here creates, opens or checks a file of the workspace;
the formats are in docs/reference/files.md. Imported by the bare command
line, so it imports next to nothing.
"""

from __future__ import annotations

import hashlib
import os
import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SETTINGS = "megaharness.toml"
ROOT_VARIABLE = "MEGAHARNESS_ROOT"
FOLDERS = ("queued", "active", "done", "failed")

# The system empties these by itself; an agent's work must not lie there.
EMPTIED = ("/tmp", "/var/tmp", "/dev/shm", "/run", "/var/run")

_ID = frozenset(string.ascii_lowercase + string.digits + "-")
_PLAIN = frozenset(string.ascii_lowercase + string.digits + "-_.")


def _name(id: str) -> str:
    """The id, if it is one: what comes from a file or a person is never joined to a path unseen."""
    if not id or set(id) - _ID:
        raise ValueError(f"{id!r} is not an id: a-z, 0-9 and '-' only")
    return id


@dataclass(frozen=True, slots=True)
class Workspace:
    """One workspace. `root` is absolute and has no symbolic links in it (`find_root` sees to that)."""

    root: Path

    # what belongs to the person

    @property
    def settings(self) -> Path:
        return self.root / SETTINGS

    @property
    def gitignore(self) -> Path:
        return self.root / ".gitignore"

    @property
    def mddb(self) -> Path:
        return self.root / "md-db"

    @property
    def evals(self) -> Path:
        return self.mddb / "evals"

    @property
    def tracks(self) -> Path:
        """The root of the tracks' spool."""
        return self.root / "tracks"

    @property
    def queued(self) -> Path:
        return self.tracks / "queued"

    @property
    def active(self) -> Path:
        return self.tracks / "active"

    @property
    def done(self) -> Path:
        return self.tracks / "done"

    @property
    def failed(self) -> Path:
        return self.tracks / "failed"

    @property
    def folders(self) -> tuple[Path, ...]:
        """The four folders whose names are the states."""
        return tuple(self.tracks / name for name in FOLDERS)

    @property
    def requests(self) -> Path:
        return self.tracks / "requests"

    @property
    def tmp(self) -> Path:
        """Temps of everything that is renamed into the watched tree."""
        return self.tracks / ".tmp"

    @property
    def displaced(self) -> Path:
        """Temps of an exchange; one can hold a person's words."""
        return self.tracks / ".displaced"

    @property
    def journal(self) -> Path:
        return self.tracks / "journal.jsonl"

    @property
    def sessions(self) -> Path:
        return self.root / "sessions"

    def session(self, session_id: str) -> Path:
        return self.sessions / _name(session_id)

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    # what belongs to the machine

    @property
    def machine(self) -> Path:
        return self.root / ".megaharness"

    @property
    def lock(self) -> Path:
        return self.machine / "lock"

    @property
    def daemon_json(self) -> Path:
        """The daemon's own heartbeat."""
        return self.machine / "daemon.json"

    @property
    def wake(self) -> Path:
        return self.machine / "wake"

    def wake_file(self, session_id: str) -> Path:
        return self.wake / _name(session_id)

    @property
    def holds(self) -> Path:
        return self.machine / "holds"

    @property
    def events(self) -> Path:
        return self.machine / "events"

    @property
    def log(self) -> Path:
        """The directory of the logs."""
        return self.machine / "log"

    @property
    def daemon_log(self) -> Path:
        return self.log / "daemon.jsonl"

    @property
    def tmux(self) -> Path:
        """The tmux terminal's own directory: which socket it uses, and its settings."""
        return self.machine / "tmux"

    # what lies outside, because harnesses read CLAUDE.md and AGENTS.md of parent directories

    @property
    def key(self) -> str:
        """Eight hex digits that stand for this workspace: in socket names and the state directory."""
        real = os.fsencode(os.path.realpath(self.root))
        return hashlib.sha256(real).hexdigest()[:8]

    @property
    def state_home(self) -> Path:
        """``$XDG_STATE_HOME/megaharness/<workspace name>-<key>``."""
        return self.state_in(os.environ)

    def state_in(self, environ: Mapping[str, str]) -> Path:
        """The state directory under that environment.

        The workspace's name is made plain first: these paths become working
        directories of tmux windows, and tmux executes ``#(...)`` in those.
        """
        plain = "".join(c if c in _PLAIN else "-" for c in self.root.name.lower())[:40]
        return state_base(environ) / "megaharness" / f"{plain.strip('.-') or 'workspace'}-{self.key}"

    def scratch(self, track_id: str) -> Path:
        """The scratch repository of a track without a project."""
        return self.state_home / "scratch" / _name(track_id)

    def worktrees(self, track_id: str) -> Path:
        """The worktree of a track."""
        return self.state_home / "worktrees" / _name(track_id)


def home(environ: Mapping[str, str]) -> Path:
    return Path(environ["HOME"]) if environ.get("HOME") else Path.home()


def state_base(environ: Mapping[str, str]) -> Path:
    """``$XDG_STATE_HOME``, else ``~/.local/state``; a relative one is ignored, as its standard asks."""
    given = environ.get("XDG_STATE_HOME", "")
    return Path(given) if given.startswith("/") else home(environ) / ".local" / "state"


def state_problem(workspace: Workspace, environ: Mapping[str, str]) -> str:
    """Why agents' work should not lie in the state directory, as a sentence; "" if it may.

    Somebody who set ``XDG_STATE_HOME`` chose the place: then this is advice
    (``doctor``), otherwise a reason not to start.
    """
    state = Path(os.path.realpath(workspace.state_in(environ)))
    emptied = [*EMPTIED, environ.get("XDG_RUNTIME_DIR", "")]
    for place in filter(None, emptied):
        if state.is_relative_to(os.path.realpath(place)):
            return f"{state}, where agents work, is under {place}, which the system empties"
    if state.is_relative_to(os.path.realpath(workspace.root)):
        return (
            f"{state}, where agents work, is inside the workspace {workspace.root}: "
            "harnesses would pick up the CLAUDE.md and AGENTS.md of its parents"
        )
    return ""


def find_root(explicit: str | None, environ: Mapping[str, str], cwd: Path) -> Path:
    """Which workspace is meant; it need not exist.

    ``--root``, else ``$MEGAHARNESS_ROOT``, else the nearest directory from
    `cwd` upwards that has a megaharness.toml, else ``~/megaharness``.
    """
    named = explicit or environ.get(ROOT_VARIABLE)
    if named:
        if named == "~" or named.startswith("~/"):
            named = str(home(environ)) + named[1:]
        return Path(os.path.realpath(cwd / named))
    here = Path(os.path.realpath(cwd))
    for directory in (here, *here.parents):
        if os.path.isfile(directory / SETTINGS):  # Path.is_file raises where a parent may not be searched
            return directory
    return Path(os.path.realpath(home(environ) / "megaharness"))
