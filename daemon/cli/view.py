"""The one view: is it running; what needs you; what runs, waits, is done. Without click, so that it is quick."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from daemon.cli import finding
from daemon.kernel.clock import stamp
from daemon.layout import Workspace, find_root
from daemon.lock import holder
from daemon.spool.journal import tail_rows
from daemon.spool.sessions import Ref, extra_of, parse, read_json
from daemon.spool.states import DONE, FAILED, QUEUED, STATES, State
from daemon.spool.store import is_regular, reason_name

NEWEST = 5
#: Of a settled folder with up to so many files each is asked how new it is.
ASKED = 1000
#: Some hundred rows (bytes).
JOURNAL_TAIL = 64 << 10
#: Up to so many queued files a view without a daemon finds the reasons itself; with more it only names them.
EXPLAINED = 100
CHANGED = "megaharness.toml has changed since the daemon started: mh down && mh up -d"
UNUSABLE = "settings cannot be used: mh doctor"
_SESSION = re.compile(rb"^[ ]+session: (\S+)[ \t]*\r?$", re.MULTILINE)


def bare() -> int:
    """`mh` with no arguments."""
    return show(Workspace(find_root(None, os.environ, Path.cwd())))


@dataclass(frozen=True, slots=True)
class Settled:
    """One file of done/ or failed/ as the view tells it."""

    id: str
    name: str
    at: float
    termination: str
    why: str
    checks: str
    place: str


def newest(workspace: Workspace, state: State, names: Collection[str], count: int) -> list[Settled]:
    """The newest `count` of a settled folder with these files, by their last change.

    Of a large folder, whose files would take long to ask, they are those that the end of the journal tells of: a file
    that was put there by hand is not among them.
    """
    folder = workspace.tracks / state
    if len(names) > ASKED:
        told = _told(workspace, state, names, 4 * count)
        names = told if len(told) >= count else names
    times = []
    for name in names:
        try:
            times.append((os.lstat(f"{folder}/{name}").st_ctime, name))
        except FileNotFoundError:
            continue
    return [_settled(workspace, folder, name, at) for at, name in sorted(times, reverse=True)[:count]]


def _told(workspace: Workspace, state: State, names: Collection[str], count: int) -> list[str]:
    """Up to `count` of these names, the ones that came last according to the journal."""
    found: list[str] = []
    for row in reversed(list(tail_rows(workspace.journal, JOURNAL_TAIL))):
        if row.get("to") != state:
            continue
        name, session = row.get("file"), row.get("session")
        if isinstance(session, str) and parse(session) is not None:
            name = (read_json(workspace.sessions / session / "settled") or {}).get("name")
        if isinstance(name, str) and name in names and name not in found:
            found.append(name)
        if len(found) == count:
            break
    return found


def _settled(workspace: Workspace, folder: Path, name: str, at: float) -> Settled:
    why = folder / reason_name(name)
    if is_regular(why):
        text = why.read_text("utf-8", "replace").split("\n\n")
        reason = text[1].splitlines()[0] if len(text) > 1 and text[1] else "see the file beside it"
        return Settled(name.removesuffix(".md"), name, at, "refused", reason, "", "")
    try:
        found = _SESSION.search(finding.content(folder / name, 64 << 10))
    except OSError:
        found = None
    session = found[1].decode("ascii", "replace") if found else ""
    record = (
        read_json(workspace.sessions / session / "settle.json")
        if re.fullmatch("[a-z0-9-]+", session)
        else None
    )
    if record is None:
        return Settled(name.removesuffix(".md"), name, at, "put there by hand", "", "", "")
    extra = extra_of(record)
    return Settled(
        id=str(record.get("item", "")),
        name=name,
        at=at,
        termination=str(record.get("termination", "")),
        why=str(record.get("why", "")),
        checks=str(extra.get("checks", "")),
        place=str(extra.get("place") or ""),
    )


def gather(workspace: Workspace) -> dict[str, Any]:
    """Everything that the view shows, as plain data (`mh --json`). Times are ISO 8601, UTC.

    ambiguous: the shown files of whose name there is one in another folder, too: an id does not say which.
    """
    there = holder(workspace.lock)
    state = read_json(workspace.daemon_json) or {}
    alive = there is not None and state.get("pid") == there.pid
    degraded = (state.get("degraded") or refusal(workspace.machine)) if alive else None
    phase = "degraded" if degraded else state.get("phase")
    names = {folder: frozenset(finding.listing(workspace.tracks / folder)) for folder in STATES}
    queued = sorted(names[QUEUED])
    failed, done = (newest(workspace, folder, names[folder], NEWEST) for folder in (FAILED, DONE))
    running = (
        state.get("running", [])
        if alive
        else [_of_claim(ref, claim, workspace.sessions / ref.id) for ref, claim in finding.live(workspace)]
    )
    for row in running:
        row["minutes"] = _minutes(row.get("since"))
    unusable = False
    if alive:
        busy = {row["id"] for row in running}
        waiting = [row for row in state.get("waiting", []) if row["needs_you"] or row["subject"] not in busy]
    else:
        waiting, unusable = _without_daemon(workspace, state, running, len(queued), daemon=there is not None)
    shown = [row.name for row in (*failed, *done)] + [*queued, *(row["subject"] for row in waiting)]
    asking = {row["subject"] for row in waiting if row["needs_you"]}
    running = [row for row in running if row["phase"] != "asks" or row["id"] not in asking]
    return {
        "workspace": str(workspace.root),
        "daemon": {
            "running": there is not None,
            "pid": there.pid if there else None,
            "phase": phase if alive else ("starting" if there else "not running"),
            "degraded": degraded,
            "slots": state.get("slots") if alive else None,
            "settings_changed": alive and settings_changed(workspace, state),
            "settings_unusable": unusable,
        },
        "needs_you": [row for row in waiting if row["needs_you"]],
        "failed": [_row(row) for row in failed],
        "failed_total": len(names[FAILED]),
        "running": running,
        "waiting": [row for row in waiting if not row["needs_you"]],
        "queued_total": len(queued),
        "queued": queued[:NEWEST],
        "done": [_row(row) for row in done],
        "done_total": len(names[DONE]),
        "ambiguous": sorted({name for name in shown if sum(name in listed for listed in names.values()) > 1}),
        "ignored": finding.ignored(workspace.queued),
    }


def refusal(folder: Path) -> str | None:
    """Why the disk takes no writes, where the disk says so itself: the daemon cannot write it down there."""
    facts = os.statvfs(folder)
    if facts.f_flag & os.ST_RDONLY:
        return os.strerror(errno.EROFS)
    blocks = facts.f_bfree if os.geteuid() == 0 else facts.f_bavail
    inodes = facts.f_ffree if facts.f_files else 1  # some file systems count none
    return os.strerror(errno.ENOSPC) if not blocks or not inodes else None


def settings_changed(workspace: Workspace, state: dict[str, Any]) -> bool:
    """Whether the settings are not those that the daemon of this daemon.json began with."""
    if "settings_mtime_ns" not in state:
        return False
    try:
        now = workspace.settings.stat().st_mtime_ns
    except OSError:
        now = None
    return bool(state["settings_mtime_ns"] != now)


def _usable(workspace: Workspace, state: dict[str, Any]) -> bool:
    """Whether a daemon could use the settings; loading them takes longer than all the rest."""
    if not workspace.settings.exists() or (
        "settings_mtime_ns" in state and not settings_changed(workspace, state)
    ):
        return True  # there are none, or those of the last daemon
    with contextlib.suppress(OSError):
        lines = map(bytes.strip, finding.content(workspace.settings).splitlines())
        if all(line in (b"", b"[limits]") or line.startswith(b"#") for line in lines):
            return True  # nothing is set, as `mh init` leaves it
    from daemon.config import Settings
    from daemon.errors import SettingsError

    try:
        with contextlib.suppress(OSError):
            Settings.load(workspace.settings)
    except SettingsError:
        return False
    return True


def _without_daemon(
    workspace: Workspace, state: dict[str, Any], running: list[dict[str, Any]], queued: int, *, daemon: bool
) -> tuple[list[dict[str, Any]], bool]:
    """(the rows of what waits, whether the settings are unusable); what is open gets its note."""
    if queued > EXPLAINED or not (queued or running):
        return [], not _usable(workspace, state)
    from adapters.errors import AdapterError
    from daemon.cli import deciding
    from daemon.errors import SettingsError

    try:
        rows = {row.subject: row.row() for row in deciding.look(workspace, daemon=daemon)}
    except SettingsError:
        return [], True
    except (OSError, AdapterError):
        # A folder is missing, no place for the socket: `mh doctor` is for that, the names are still shown.
        return [], False
    for row in running:
        known = rows.pop(row["session"], None) or rows.get(row["id"])
        if known is not None and not known["needs_you"]:
            rows.pop(row["id"], None)
        if known is not None and row["phase"] != "running":
            row["note"] = known["reason"]
    return list(rows.values()), False


def _row(row: Settled) -> dict[str, Any]:
    return {**{slot: getattr(row, slot) for slot in Settled.__slots__}, "at": stamp(row.at)}


def _of_claim(ref: Ref, claim: dict[str, Any], directory: Path) -> dict[str, Any]:
    """A claimed track as its files tell it, while no daemon does."""
    from adapters import session as live
    from adapters.ports import NotStarted, Running

    extra = extra_of(claim)
    phases: dict[type, str] = {Running: "running", NotStarted: "not begun"}
    phase = phases.get(type(live.status(directory)), "has ended")
    if (read_json(directory / "settle.json") or {}).get("termination") == "blocked":
        phase = "asks"
    return {
        "id": ref.item,
        "name": claim.get("name"),
        "session": ref.id,
        "attempt": claim.get("attempt"),
        "harness": extra.get("harness"),
        "model": extra.get("model"),
        "title": extra.get("title", ""),
        "since": claim.get("claimed_at"),
        "phase": phase,
        "note": "",
    }


def _minutes(since: str | None) -> float | None:
    if not since:
        return None
    return round((time.time() - datetime.fromisoformat(since.replace("Z", "+00:00")).timestamp()) / 60, 1)


def show(workspace: Workspace, *, as_json: bool = False) -> int:
    if not workspace.tracks.is_dir():
        print(f"There is no workspace at {workspace.root} yet.\n")
        print("  mh init        makes it\n  mh --help      all commands")
        return 0
    data = gather(workspace)
    try:
        if as_json:
            print(json.dumps(data, ensure_ascii=False, indent=2))
        else:
            terminal = sys.stdout.isatty()
            width = max(60, _columns()) if terminal else 140
            page = Page(data, Paint(terminal and "NO_COLOR" not in os.environ), width)
            print("\n".join(page.lines()))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _columns() -> int:
    """How wide the terminal is."""
    import shutil  # brings every way to pack a file with it, and most looks are not at a terminal

    return shutil.get_terminal_size((140, 40)).columns


class Paint:
    """Colours on a terminal, plain text elsewhere."""

    def __init__(self, on: bool) -> None:
        self._on = on

    def __call__(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._on else text

    def head(self, text: str) -> str:
        return self("1", text)

    def dim(self, text: str) -> str:
        return self("2", text)

    def bad(self, text: str) -> str:
        return self("31", text)

    def good(self, text: str) -> str:
        return self("32", text)


def clean(text: object) -> str:
    """Text from files for one line of a terminal: no control sequences."""
    return "".join(c if c.isprintable() else " " for c in str(text))


def local(text: str) -> str:
    """A time of ours (ISO 8601, UTC) as people here write it; anything else as it is."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError):
        return text


def count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def short(text: object, width: int) -> str:
    line = clean(text)
    return line if len(line) <= width else line[: width - 1] + "…"


@dataclass(frozen=True, slots=True)
class Page:
    """The view as lines of a terminal `width` columns wide."""

    data: dict[str, Any]
    paint: Paint
    width: int

    def lines(self) -> list[str]:
        found = [*_status(self.data, self.paint), *self._ignored()]
        head = len(found)
        for title, rows in (
            ("NEEDS YOU", self._needs_you()),
            ("RUNNING", self._running()),
            ("WAITING", self._waiting()),
            ("DONE", self._done()),
        ):
            if rows:
                found += ["", self.paint.head(title), *rows]
        if len(found) == head:
            found += [
                "",
                "Nothing here yet.  mh drop TASK.md -H NAME   gives it something to do.",
                "NAME is `shell`, which runs the code blocks of the text, or an agent of megaharness.toml.",
            ]
        return found

    def _row(self, name: str, text: object, paint: Callable[[str], str] = str) -> str:
        """A name of 30 columns and a text in the rest of the line."""
        # A path is for copying: it is never cut.
        name = clean(name) if "/" in name else short(name, 30)
        return f"  {name:30}  {paint(short(text, self.width - 4 - max(30, len(name))))}"

    def _word(self, folder: str, name: str, track: str) -> str:
        """The id, or the file's path when a file of that name lies in another folder, too."""
        return f"tracks/{folder}/{name}" if name in self.data["ambiguous"] else track

    def _waits(self, row: dict[str, Any]) -> str:
        name = str(row["subject"])
        return self._word(QUEUED, name, name.removesuffix(".md"))

    def _ignored(self) -> list[str]:
        names = self.data["ignored"]
        if not names:
            return []
        files = not any(name.endswith("/") for name in names)
        what = count(len(names), "file" if files else "name")
        listed = ", ".join(names[:NEWEST]) + (", …" if len(names) > NEWEST else "")
        verb = "is" if len(names) == 1 else "are"
        text = (
            f"{what} in tracks/queued/ {verb} not taken: {listed} (only names ending in .md are; mh doctor)"
        )
        return [clean(text)]

    def _more(self, shown: int, total: int, folder: str) -> list[str]:
        return [self.paint.dim(f"  and {total - shown} more in tracks/{folder}/")] if total > shown else []

    def _needs_you(self) -> list[str]:
        rows = []
        for row in self.data["needs_you"]:
            rows.append(self._row(self._waits(row), row["reason"], self.paint.bad))
            rows += [self._row("", row["unblock"], self.paint.dim)] if row["unblock"] else []
        for row in self.data["failed"]:
            word = self._word(FAILED, row["name"], row["id"])
            rows.append(self._row(word, f"{row['termination']}{_after(row['why'])}", self.paint.bad))
            refused = row["termination"] == "refused"
            hint = f"tracks/failed/{reason_name(row['name'])}" if refused else f"mh why {word}"
            rows.append(self._row("", hint, self.paint.dim))
        return rows + self._more(len(self.data["failed"]), self.data["failed_total"], FAILED)

    def _running(self) -> list[str]:
        rows = []
        for row in self.data["running"]:
            what = f"{row['harness']}/{row['model']}" if row.get("model") else str(row.get("harness") or "")
            minutes = f"{row['minutes']:.0f} min" if row["minutes"] is not None else ""
            phase = (
                row["note"]
                if row.get("note") and row["phase"] != "running"
                else f"{row['phase']:9} {row['title']}"
            )
            rows.append(self._row(row["id"], f"{short(what, 20):20} {minutes:>7}  {phase}"))
        now = [row["id"] for row in self.data["running"] if row["phase"] == "running"]
        return [*rows, self.paint.dim(f"  mh attach {now[0]}")] if now else rows

    def _waiting(self) -> list[str]:
        known = self.data["waiting"][: 2 * NEWEST]
        rows = [self._row(self._waits(row), row["reason"]) for row in known]
        if not known and not self.data["needs_you"]:
            rows = [self._row(self._waits({"subject": name}), "").rstrip() for name in self.data["queued"]]
        return rows + self._more(len(rows) + len(self.data["needs_you"]), self.data["queued_total"], QUEUED)

    def _done(self) -> list[str]:
        rows = []
        for row in self.data["done"]:
            word = self._word(DONE, row["name"], row["id"])
            rows.append(self._row(word, row["checks"] or row["termination"], self.paint.good))
            # A path is for copying: it is never cut.
            rows += [f"  {'':30}  {self.paint.dim(clean(row['place']))}"] if row["place"] else []
        return rows + self._more(len(self.data["done"]), self.data["done_total"], DONE)


def _after(why: str) -> str:
    return f": {why}" if why else ""


def _status(data: dict[str, Any], paint: Paint) -> list[str]:
    daemon = data["daemon"]
    where = paint.dim(clean(data["workspace"]))
    if not daemon["running"]:
        waits = f", {data['queued_total']} queued" if data["queued_total"] else ""
        wrong = [paint.bad(UNUSABLE)] if daemon["settings_unusable"] else []
        return [f"{paint.bad('not running')}{waits}: mh up -d   {where}", *wrong]
    slots = (
        f", {daemon['slots']['used']} of {count(daemon['slots']['total'], 'slot')}" if daemon["slots"] else ""
    )
    phase = str(daemon["phase"])
    changed = [paint.bad(CHANGED)] if daemon["settings_changed"] else []
    if daemon["degraded"]:
        return [f"{paint.bad('degraded: ' + clean(daemon['degraded']))}{slots}   {where}", *changed]
    return [f"{paint.good(phase) if phase == 'running' else phase}{slots}   {where}", *changed]
