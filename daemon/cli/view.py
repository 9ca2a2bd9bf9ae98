"""The one view: is it running; what needs you; what runs, waits, is done. Without click, so that it is quick."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from daemon.cli import finding
from daemon.layout import Workspace, find_root
from daemon.lock import holder
from daemon.spool.sessions import read_json
from daemon.spool.states import DONE, FAILED

NEWEST = 5
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


def settled(workspace: Workspace, folder: Path, count: int) -> tuple[list[Settled], int]:
    """The newest `count` of a settled folder, and how many there are."""
    try:
        entries = [entry for entry in os.scandir(folder) if entry.name.endswith(".md")]
    except FileNotFoundError:
        return [], 0
    times = []
    for entry in entries:
        try:
            times.append((entry.stat(follow_symlinks=False).st_ctime, entry.name))
        except FileNotFoundError:
            continue
    newest = sorted(times, reverse=True)[:count]
    return [_settled(workspace, folder, name, at) for at, name in newest], len(times)


def _settled(workspace: Workspace, folder: Path, name: str, at: float) -> Settled:
    why = folder / f"{name}.why.txt"
    if why.is_file():
        text = why.read_text("utf-8", "replace").split("\n\n")
        reason = text[1].splitlines()[0] if len(text) > 1 and text[1] else "see the file beside it"
        return Settled(name.removesuffix(".md"), name, at, "refused", reason, "", "")
    try:
        with open(folder / name, "rb") as file:
            found = _SESSION.search(file.read(64 << 10))
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
    extra = record.get("extra", {})
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
    """Everything that the view shows, as plain data (`mh --json`)."""
    there = holder(workspace.lock)
    state = read_json(workspace.daemon_json) or {}
    alive = there is not None and state.get("pid") == there.pid
    queued = [name for folder, name in finding.files(workspace) if folder == "queued"]
    failed, failed_total = settled(workspace, workspace.tracks / FAILED, NEWEST)
    done, done_total = settled(workspace, workspace.tracks / DONE, NEWEST)
    running = state.get("running", []) if alive else [_of_claim(*pair) for pair in finding.live(workspace)]
    for row in running:
        row["minutes"] = _minutes(row.get("since"))
    busy = {row["id"] for row in running}
    waiting = [row for row in state.get("waiting", []) if row["subject"] not in busy] if alive else []
    return {
        "workspace": str(workspace.root),
        "daemon": {
            "running": there is not None,
            "pid": there.pid if there else None,
            "phase": state.get("phase") if alive else ("starting" if there else "not running"),
            "degraded": state.get("degraded") if alive else None,
            "slots": state.get("slots") if alive else None,
        },
        "needs_you": [row for row in waiting if row["needs_you"]],
        "failed": [_row(row) for row in failed],
        "failed_total": failed_total,
        "running": running,
        "waiting": [row for row in waiting if not row["needs_you"]],
        "queued_total": len(queued),
        "queued": queued[:NEWEST],
        "done": [_row(row) for row in done],
        "done_total": done_total,
    }


def _row(row: Settled) -> dict[str, Any]:
    return {slot: getattr(row, slot) for slot in Settled.__slots__}


def _of_claim(ref: Any, claim: dict[str, Any]) -> dict[str, Any]:
    extra = claim.get("extra", {})
    return {
        "id": ref.item,
        "name": claim.get("name"),
        "session": ref.id,
        "attempt": claim.get("attempt"),
        "harness": extra.get("harness"),
        "model": extra.get("model"),
        "title": extra.get("title", ""),
        "since": claim.get("claimed_at"),
        "phase": "claimed",
    }


def _minutes(since: str | None) -> float | None:
    if not since:
        return None
    return round((time.time() - datetime.fromisoformat(since.replace("Z", "+00:00")).timestamp()) / 60, 1)


def show(workspace: Workspace, *, as_json: bool = False) -> int:
    if not workspace.tracks.is_dir():
        print(
            f"There is no workspace at {workspace.root} yet.\n\n  mh init        makes it\n  mh --help      all commands"
        )
        return 0
    data = gather(workspace)
    try:
        if as_json:
            print(json.dumps(data, ensure_ascii=False, indent=2))
        else:
            print("\n".join(_lines(data, Paint(sys.stdout.isatty() and "NO_COLOR" not in os.environ))))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


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


def short(text: object, width: int) -> str:
    line = clean(text)
    return line if len(line) <= width else line[: width - 1] + "…"


def _lines(data: dict[str, Any], paint: Paint) -> list[str]:
    daemon = data["daemon"]
    lines = [_status(data, daemon, paint)]
    if data["needs_you"] or data["failed"]:
        lines += ["", paint.head("NEEDS YOU")]
        for row in data["needs_you"]:
            lines.append(f"  {short(_stem(row), 30):30}  {paint.bad(short(row['reason'], 90))}")
            if row["unblock"]:
                lines.append(f"  {'':30}  {paint.dim(short(row['unblock'], 110))}")
        for row in data["failed"]:
            reason = f"{row['termination']}{': ' + row['why'] if row['why'] else ''}"
            lines.append(f"  {short(row['id'], 30):30}  {paint.bad(short(reason, 90))}")
            hint = (
                f"mh why {row['id']}"
                if row["termination"] != "refused"
                else f"tracks/failed/{row['name']}.why.txt"
            )
            lines.append(f"  {'':30}  {paint.dim(hint)}")
        if data["failed_total"] > len(data["failed"]):
            lines.append(
                paint.dim(f"  and {data['failed_total'] - len(data['failed'])} more in tracks/failed/")
            )
    if data["running"]:
        lines += ["", paint.head("RUNNING")]
        for row in data["running"]:
            what = f"{row['harness']}/{row['model']}" if row.get("model") else str(row.get("harness") or "")
            minutes = f"{row['minutes']:.0f} min" if row["minutes"] is not None else ""
            lines.append(
                f"  {short(row['id'], 30):30}  {short(what, 20):20} {minutes:>7}  {row['phase']:9} {short(row['title'], 50)}"
            )
        lines.append(paint.dim(f"  mh attach {data['running'][0]['id']}"))
    waiting = data["waiting"]
    if waiting or data["queued_total"] > len(data["needs_you"]):
        lines += ["", paint.head("WAITING")]
        for row in waiting[: 2 * NEWEST]:
            until = (
                f" (until {row['until'][11:16]} UTC)"
                if row.get("until") and "until" not in row["reason"]
                else ""
            )
            lines.append(f"  {short(_stem(row), 30):30}  {short(row['reason'] + until, 90)}")
        if not waiting and not data["needs_you"]:
            lines += [f"  {short(name, 30)}" for name in data["queued"]]
        more = data["queued_total"] - len(waiting[: 2 * NEWEST] or data["queued"]) - len(data["needs_you"])
        if more > 0:
            lines.append(paint.dim(f"  and {more} more in tracks/queued/"))
    if data["done"]:
        lines += ["", paint.head("DONE")]
        for row in data["done"]:
            lines.append(
                f"  {short(row['id'], 30):30}  {paint.good(short(row['checks'] or row['termination'], 40))}"
            )
            if row["place"]:
                lines.append(f"  {'':30}  {paint.dim(clean(row['place']))}")
        if data["done_total"] > len(data["done"]):
            lines.append(paint.dim(f"  and {data['done_total'] - len(data['done'])} more in tracks/done/"))
    if len(lines) == 1:
        lines += ["", "Nothing here yet.  mh drop 'what is to be done'   gives it something to do."]
    return lines


def _stem(row: dict[str, Any]) -> str:
    return str(row["subject"]).removesuffix(".md")


def _status(data: dict[str, Any], daemon: dict[str, Any], paint: Paint) -> str:
    where = paint.dim(clean(data["workspace"]))
    if not daemon["running"]:
        waits = f", {data['queued_total']} queued" if data["queued_total"] else ""
        return f"{paint.bad('not running')}{waits}: mh up -d   {where}"
    slots = f", {daemon['slots']['used']} of {daemon['slots']['total']} slots" if daemon["slots"] else ""
    phase = str(daemon["phase"])
    if daemon["degraded"]:
        return f"{paint.bad('degraded: ' + clean(daemon['degraded']))}{slots}   {where}"
    return f"{paint.good(phase) if phase == 'running' else phase}{slots}   {where}"
