"""`mh doctor`: check everything that can be checked without starting anything."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

import daemon
from adapters.errors import AdapterError
from daemon.cli import finding, harnesses
from daemon.cli.view import CHANGED, clean, count, settings_changed
from daemon.errors import DocumentError, MegaharnessError
from daemon.layout import Workspace, state_problem
from daemon.lock import holder
from daemon.spool.sessions import read_json
from daemon.spool.states import ACTIVE, QUEUED

#: Seconds after which a lock of git's has been left behind.
STALE = 60.0

Level = Literal["OK", "WARN", "ERROR"]


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    what: str
    message: str
    fix: str = ""


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Check this machine, the workspace, the settings, the harnesses, the database and the queue.

    Changes nothing. Exit code 1 when something is an ERROR.
    """
    place = Workspace(ctx.find_root().obj)
    findings = list(examine(place))
    if as_json:
        rows = [{slot: getattr(found, slot) for slot in Finding.__slots__} for found in findings]
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
    else:
        colours = {"OK": "green", "WARN": "yellow", "ERROR": "red"}
        for found in findings:
            mark = click.style(f"{found.level:5}", fg=colours[found.level])
            click.echo(f"{mark} {found.what:14} {clean(found.message)}")
            if found.fix:
                click.echo(f"{'':20} {clean(found.fix)}")
    if any(found.level == "ERROR" for found in findings):
        ctx.exit(1)


def examine(place: Workspace) -> Iterator[Finding]:
    yield from _machine()
    yield from _workspace(place)
    yield from _harnesses(place)
    yield from _database(place)
    yield from _daemon(place)
    yield from _queue(place)


def _machine() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("OK" if sys.version_info >= (3, 11) else "ERROR", "python", f"{version} ({sys.executable})")
    own = Path(daemon.__file__).resolve().parent
    if not (own / "supervisor.py").is_file():
        yield Finding(
            "ERROR", "daemon", f"{own} is another package of that name", "install into a venv of its own"
        )
    for program, args in (("git", ["--version"]), ("tmux", ["-V"]), ("bash", ["--version"])):
        path = shutil.which(program)
        if path is None:
            yield Finding("ERROR", program, "is not installed", f"apt-get install {program}")
            continue
        said = subprocess.run([path, *args], capture_output=True, text=True, timeout=10, check=False).stdout
        yield Finding("OK", program, (said.splitlines() or ["?"])[0])
    for name, least in (("max_user_instances", 16), ("max_user_watches", 8192)):
        limit = int(Path(f"/proc/sys/fs/inotify/{name}").read_text())
        if limit < least:
            yield Finding("WARN", "inotify", f"{name} is {limit}", f"sysctl fs.inotify.{name}={least * 8}")


def _workspace(place: Workspace) -> Iterator[Finding]:
    if not place.tracks.is_dir():
        yield Finding("ERROR", "workspace", f"there is none at {place.root}", f"mh init {place.root}")
        return
    from daemon.workspace import check_start

    try:
        check_start(place)
    except MegaharnessError as error:
        yield Finding("ERROR", "workspace", str(error), error.hint)
    else:
        yield Finding("OK", "workspace", str(place.root))
    if problem := state_problem(place, os.environ):
        yield Finding("WARN", "work", problem, "set XDG_STATE_HOME to a directory that stays")
    usage = shutil.disk_usage(place.root)
    level: Level = "OK" if usage.free > 1 << 30 else "WARN"
    yield Finding(level, "disk", f"{usage.free / 1e9:.1f} GB free of {usage.total / 1e9:.1f} GB")


def _harnesses(place: Workspace) -> Iterator[Finding]:
    from adapters.registry import Registry
    from daemon.config import Settings

    try:
        settings = Settings.load(place.settings)
    except MegaharnessError as error:
        *others, last = str(error).splitlines()
        yield from (Finding("ERROR", "settings", line) for line in others)
        yield Finding("ERROR", "settings", last, error.hint)
        return
    limits = settings.limits
    yield Finding(
        "OK", "settings", f"{count(limits.slots, 'slot')}, {count(limits.minutes, 'minute')} a track"
    )
    registry = Registry(settings.tables())
    faulty = dict(harnesses.faults(settings, registry))
    for name, fault in faulty.items():
        yield Finding("ERROR", f"harness {name}", str(fault), fault.hint)
    for name in registry.names():
        if name in faulty:
            continue
        try:
            probe = registry.get(name).probe()
        except AdapterError as error:
            yield Finding("ERROR", f"harness {name}", str(error), error.hint)
            continue
        if probe.found and _lacks_model(settings.tables().get(name, {})):
            yield Finding(
                "WARN",
                f"harness {name}",
                "its argv needs a {model}, and none is set: a track must name one",
                f"write harness_id: {name}/MODEL in the track, or a model in [harness.{name}]",
            )
        elif probe.found:
            yield Finding("OK", f"harness {name}", probe.version or "found")
        else:
            level: Level = "ERROR" if name in settings.prefer else "WARN"
            yield Finding(level, f"harness {name}", probe.problem, probe.hint)
    if not settings.prefer:
        yield Finding("OK", "prefer", "is empty: a track runs only when it names its harness")
    there = holder(place.lock)
    environ = os.environ if there is None else _names_of(there.pid)
    for name, lack in harnesses.lacking(settings, environ) if environ is not None else ():
        again = "mh up -d" if there is None else "mh down && mh up -d"
        yield Finding("WARN", f"harness {name}", lack, f"set it where the daemon is started, then {again}")


def _database(place: Workspace) -> Iterator[Finding]:
    from adapters.registry import Registry
    from daemon.assembly import library
    from daemon.config import Settings
    from daemon.durable import Files
    from daemon.mddb import checkup
    from daemon.mddb.resolver import Skill
    from daemon.mddb.revisions import REF

    try:
        tables = Settings.load(place.settings).tables()
    except MegaharnessError:
        tables = {}  # told with the settings
    database = library(place, Files(), looking=True)
    try:
        docs, strays = database.documents(), database.strays()
    except OSError as error:
        yield Finding("ERROR", "database", f"md-db cannot be read: {error}", "make it readable for you")
        return
    lock = place.root / ".git" / f"{REF}.lock"
    try:
        age = time.time() - lock.lstat().st_mtime
    except OSError:
        age = 0.0
    if age > STALE:
        yield Finding(
            "WARN",
            "database",
            f"what agents are told is not recorded: {lock} was left by a git that has ended",
            "look that no git works in the workspace, then remove it",
        )
    for found in checkup.examine(docs, Registry(tables).names(), strays):
        yield Finding(found.level, "database", str(found), found.hint)
    for doc in docs.values():
        if doc.kind == "skill" and doc.folder and not doc.problems:
            skill = Skill(doc.name, doc.description, doc.path, doc.folder, "", False, doc.data)
            for file in database.files(skill):
                if file.left_out:
                    why = f"md-db/{doc.folder}/{file.path} reaches no agent: {file.left_out}"
                    yield Finding("WARN", "database", why, "put it there as a file, or take it out")
    yield Finding("OK", "database", checkup.counted(docs.values()))


def _names_of(pid: int | None) -> set[str] | None:
    """The names of the variables with which a process was started; None: that cannot be read."""
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    return {os.fsdecode(each.partition(b"=")[0]) for each in data.split(b"\0") if each}


def _lacks_model(table: Mapping[str, Any]) -> bool:
    argv = table.get("argv") or []
    named = any("{model}" in each.replace("{{", "").replace("}}", "") for each in argv)
    return named and table.get("model") is None


def _daemon(place: Workspace) -> Iterator[Finding]:
    there = holder(place.lock)
    if there is None:
        yield Finding("WARN", "daemon", "is not running", "mh up -d")
    else:
        yield Finding("OK", "daemon", f"runs (pid {there.pid})")
        if settings_changed(place, read_json(place.daemon_json) or {}):
            what, _, fix = CHANGED.partition(": ")
            yield Finding("WARN", "settings", what, fix)
    from daemon.assembly import terminal

    try:
        found = terminal(place).describe()
    except AdapterError as error:
        yield Finding("ERROR", "tmux server", str(error), error.hint)
        return
    if found.alive:
        shown = f"{count(len(found.sessions), 'track')}, {count(found.windows, 'window')}"
        yield Finding("OK", "tmux server", f"{shown} ({found.socket})")
    else:
        yield Finding("OK", "tmux server", f"is not running; it starts with the first track ({found.socket})")


def _queue(place: Workspace) -> Iterator[Finding]:
    if not place.tracks.is_dir():
        return
    from daemon.durable import Files
    from daemon.spool.claim import odd
    from daemon.spool.store import Store
    from daemon.tracks.track import load

    store = Store(place.tracks, Files())
    store.scan(0.0)
    bad = 0
    for state in (QUEUED, ACTIVE):
        for name, entry in store.entries(state).items():
            why = odd(entry, os.geteuid())
            if why is None:
                try:
                    load(store.path(state, name).read_bytes(), name)
                except (DocumentError, OSError) as error:
                    why = str(error)
            if why is not None:
                bad += 1
                yield Finding("WARN", state, f"{name}: {why}")
    if ignored := finding.ignored(place.queued):
        shown = ", ".join(ignored[:5]) + (", …" if len(ignored) > 5 else "")
        yield Finding(
            "WARN",
            "queued",
            f"ignored: {shown}",
            "a track is a file NAME.md, in queued/ itself",
        )
    if not bad:
        yield Finding("OK", "queue", f"{len(store.names(QUEUED))} queued, {len(store.names(ACTIVE))} active")
