"""Puts the real parts together: the one place that knows which store, terminal and harnesses are used."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from adapters import session as live
from adapters.registry import Registry
from adapters.terminals.tmux import Tmux, is_private, socket_path
from daemon import log
from daemon.config import Settings
from daemon.durable import Files
from daemon.errors import StartRefused
from daemon.kernel.evals import Evals
from daemon.kernel.parts import Log, Parts, Pool, Threads
from daemon.kernel.route import Router
from daemon.kernel.scratch import Scratch
from daemon.layout import Workspace
from daemon.lock import Lock
from daemon.mddb.library import Library, Unrecorded
from daemon.mddb.revisions import Revisions
from daemon.notify import VARIABLES, Notifier
from daemon.spool.exchange import Exchange
from daemon.spool.journal import Journal
from daemon.spool.sessions import Sessions
from daemon.spool.states import STATES
from daemon.spool.store import Store
from daemon.spool.watcher import Watcher
from daemon.supervisor import Supervisor
from daemon.workspace import check_start


def terminal(workspace: Workspace) -> Tmux:
    """The workspace's own tmux server.

    Where it listens is written down by the daemon: a shell and a systemd
    unit may have different runtime directories, and both must find one server.
    """
    return Tmux(_recorded(workspace) or socket_path(workspace.root), workspace.tmux / "tmux.conf")


def _recorded(workspace: Workspace) -> Path | None:
    try:
        socket = Path((workspace.tmux / "socket").read_text().strip())
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    # The record is only as good as the directory: a runtime directory goes at logout.
    return socket if socket.is_absolute() and is_private(socket.parent) else None


def library(workspace: Workspace, files: Files, *, looking: bool = False) -> Library:
    """The workspace's database, with its history in the workspace's own repository.

    looking: nothing is told to anybody, so nothing is written there.
    """
    revisions = Revisions(workspace.root, files)
    return Library(workspace.mddb, files, Unrecorded(revisions.blob_id) if looking else revisions)


def assemble(workspace: Workspace, settings: Settings, pool: Pool, logger: Log) -> Parts:
    files = Files()
    harnesses = Registry(settings.tables())
    resolver = library(workspace, files)
    return Parts(
        workspace=workspace,
        settings=settings,
        files=files,
        store=Store(workspace.tracks, files),
        sessions=Sessions(workspace.sessions, files),
        journal=Journal(workspace.journal, files),
        evals=Evals(workspace.evals, files),
        exchange=Exchange(workspace.displaced, files),
        scratch=Scratch(workspace.scratch),
        harnesses=harnesses,
        router=Router(harnesses, settings.prefer, resolver),
        terminal=terminal(workspace),
        pool=pool,
        reap=live.reap,
        log=logger,
        uid=os.geteuid(),
        resolver=resolver,
    )


def supervise(root: Path) -> int:
    """Run the daemon in this process until it is told to end. Returns the exit code.

    Raises StartRefused and SettingsError (78), AlreadyRunning (3).
    """
    os.umask(0o077)
    workspace = Workspace(root)
    check_start(workspace)
    settings = Settings.load(workspace.settings)
    try:
        lock = Lock.acquire(workspace.lock)
    except OSError as error:
        raise StartRefused(
            f"the lock {workspace.lock} cannot be taken: {error.strerror}",
            "make room, or make it writable for you",
        ) from error
    try:
        notifier = Notifier.from_environ(os.environ)
        for name in VARIABLES:
            os.environ.pop(name, None)
        log.setup(workspace.daemon_log)
        flag = threading.Event()
        pool = Threads(settings.limits.slots + 2, flag)
        parts = assemble(workspace, settings, pool, log.get("daemon"))
        try:
            parts.files.publish(workspace.tmux / "socket", f"{terminal(workspace).socket}\n".encode())
        except OSError as error:
            # A full disk: the daemon starts degraded. Who attaches computes the path then.
            parts.log.warning("socket path not written", why=str(error))
        folders = frozenset({*(workspace.tracks / state for state in STATES), workspace.requests})

        def watch() -> Watcher:
            return Watcher(workspace.tracks, folders, workspace.wake, flag)

        return Supervisor(parts, flag, watch, notifier, guard=lock.intact).run()
    finally:
        lock.release()
