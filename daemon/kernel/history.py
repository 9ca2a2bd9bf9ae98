"""The journal's lines: every transition once, also when a crash swallowed a line.

What a person put among our files is told once in the log and left alone; it never stops a tick or a start.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from daemon.errors import NotNow
from daemon.kernel.clock import Now, stamp
from daemon.kernel.parts import Parts
from daemon.spool.journal import TAIL, put_aside, tail_rows
from daemon.spool.sessions import Claim, Settlement
from daemon.spool.states import ACTIVE, FAILED, QUEUED, State
from daemon.spool.store import is_regular, reason_name
from daemon.workspace import directories


class History:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._told: set[str] = set()

    def claimed(self, known: Claim, old: State, now: Now) -> None:
        self._write(self._row(known, old, ACTIVE, now, "claim"))

    def refused(self, name: str, state: State, target: str, why: str, now: Now) -> None:
        self._write(self._refusal(name, state, target, why, now))

    def settled(self, known: Claim, settlement: Settlement, state: str, now: Now, *, sure: bool) -> None:
        """`sure` False: a crash may have come after the line was written, so look first."""
        if not sure:
            self._journal_claim(known, {(row.get("session"), row.get("to")) for row in self._tail()}, now)
            if self._parts.journal.has(known.session, state):
                return
        row = self._row(known, ACTIVE, state, now, settlement.why or settlement.termination)
        row["termination"] = settlement.termination
        if settlement.termination.endswith("/by_person"):
            row["by"] = "person"
        if not sure:
            row["by"] = "recovered"
        self._write(row)

    def _write(self, row: Mapping[str, Any]) -> None:
        self.make_way(self._parts.journal.path)
        self._parts.journal.write(row)

    def make_way(self, path: Path) -> None:
        """Put aside what is in the place of a file of lines and takes none, and say so."""
        if (aside := put_aside(path, self._parts.files)) is not None:
            self._parts.log.warning("no file that takes lines", path=str(path), moved_to=aside.name)

    def _row(self, known: Claim, old: str, new: str, now: Now, why: str) -> dict[str, Any]:
        return {
            "at": stamp(now.wall),
            "id": known.item,
            "name": known.name,
            "session": known.session,
            "from": old,
            "to": new,
            "by": "daemon",
            "why": why,
        }

    def _refusal(self, name: str, state: State, target: str, why: str, now: Now) -> dict[str, Any]:
        return {
            "at": stamp(now.wall),
            "name": name,
            "from": state,
            "to": FAILED,
            "by": "daemon",
            "termination": "refused",
            "why": why,
            "file": target,
        }

    def recover(self, now: Now) -> None:
        """Claims and refusals whose line was swallowed, by a crash or by a disk that refused, get one.

        Settled sessions are seen to when they roll forward.
        """
        parts = self._parts
        parts.store.clear_temps(now.wall)
        workspace = parts.workspace
        for folder in directories(workspace):
            if folder != workspace.queued:  # nothing is written there
                parts.files.clear_probes(folder)
        self.clear_reasons()
        rows = self._tail()
        written = {(row.get("session"), row.get("to")) for row in rows}
        for ref in parts.sessions.open():
            known = parts.sessions.claim(ref.id)
            if known is not None:
                self._journal_claim(known, written, now)
            if parts.sessions.settlement(ref.id) is not None:
                parts.memory.unsure.add(ref.id)
        self._journal_refusals(rows, now)

    def clear_reasons(self) -> None:
        """Remove the reasons of refused files that are gone; what cannot be removed is told once."""
        for name in self._parts.store.clear_reasons():
            self._tell(name, "it is beside no file, and could not be removed")

    def _tell(self, name: str, why: str) -> None:
        if name not in self._told:
            self._told.add(name)
            self._parts.log.warning("left alone", path=str(self._parts.store.path(FAILED, name)), why=why)

    def _tail(self) -> list[dict[str, Any]]:
        self.make_way(self._parts.journal.path)
        return list(tail_rows(self._parts.journal.path))

    def _journal_claim(self, known: Claim, written: set[tuple[Any, Any]], now: Now) -> None:
        if (known.session, ACTIVE) not in written and known.attempt == known.round:
            row = self._row(known, QUEUED, ACTIVE, now, "claim")
            self._write({**row, "by": "recovered"})

    def _journal_refusals(self, rows: list[dict[str, Any]], now: Now) -> None:
        parts = self._parts
        written = {(row.get("file"), row.get("why")) for row in rows if row.get("termination") == "refused"}
        names = parts.store.names(FAILED)
        cut = bool(rows) and parts.journal.path.stat().st_size > TAIL
        for target in sorted(name for name in names if name.endswith(".md")):
            reason = reason_name(target)
            if reason not in names:
                continue
            path = parts.store.path(FAILED, reason)
            try:
                if not is_regular(path):
                    self._tell(reason, "it is no regular file, so not the reason of a refusal")
                    continue
                # What is older than the part of the journal that was read has its line before it.
                if cut and stamp(path.stat().st_mtime) < str(rows[0].get("at")):
                    continue
                text = parts.files.read(path).decode("utf-8", "replace")
            except (NotNow, OSError) as error:
                self._tell(reason, f"it cannot be read: {error}")
                text = "its reason cannot be read"
                if any(target == file for file, _ in written):
                    continue
            if not any(target == file and str(why) in text for file, why in written):
                self._write({**self._refusal(target, QUEUED, target, text, now), "by": "recovered"})
