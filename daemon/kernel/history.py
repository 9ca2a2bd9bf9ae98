"""The journal's lines: every transition once, also when a crash swallowed a line."""

from __future__ import annotations

from typing import Any

from daemon.kernel.clock import Now, stamp
from daemon.kernel.parts import Parts
from daemon.spool.journal import TAIL, tail_rows
from daemon.spool.sessions import Claim, Settlement
from daemon.spool.states import ACTIVE, FAILED, QUEUED, State
from daemon.spool.store import REASON


class History:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def claimed(self, known: Claim, old: State, now: Now) -> None:
        self._parts.journal.write(self._row(known, old, ACTIVE, now, "claim"))

    def refused(self, name: str, state: State, target: str, why: str, now: Now) -> None:
        self._parts.journal.write(self._refusal(name, state, target, why, now))

    def settled(self, known: Claim, settlement: Settlement, state: str, now: Now, *, sure: bool) -> None:
        """`sure` False: a crash may have come after the line was written, so look first."""
        if not sure:
            self._journal_claim(known, {(row.get("session"), row.get("to")) for row in self._tail()}, now)
            if self._parts.journal.has(known.session, state):
                return
        row = self._row(known, ACTIVE, state, now, settlement.why or settlement.termination)
        row["termination"] = settlement.termination
        if not sure:
            row["by"] = "recovered"
        self._parts.journal.write(row)

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
        parts.store.clear_reasons()
        rows = self._tail()
        written = {(row.get("session"), row.get("to")) for row in rows}
        for ref in parts.sessions.open():
            known = parts.sessions.claim(ref.id)
            if known is not None:
                self._journal_claim(known, written, now)
            if parts.sessions.settlement(ref.id) is not None:
                parts.memory.unsure.add(ref.id)
        self._journal_refusals(rows, now)

    def _tail(self) -> list[dict[str, Any]]:
        return list(tail_rows(self._parts.journal.path))

    def _journal_claim(self, known: Claim, written: set[tuple[Any, Any]], now: Now) -> None:
        if (known.session, ACTIVE) not in written and known.attempt == known.round:
            row = self._row(known, QUEUED, ACTIVE, now, "claim")
            self._parts.journal.write({**row, "by": "recovered"})

    def _journal_refusals(self, rows: list[dict[str, Any]], now: Now) -> None:
        parts = self._parts
        written = {(row.get("file"), row.get("why")) for row in rows if row.get("termination") == "refused"}
        names = parts.store.names(FAILED)
        cut = bool(rows) and parts.journal.path.stat().st_size > TAIL
        for target in sorted(name.removesuffix(REASON) for name in names if name.endswith(f".md{REASON}")):
            path = parts.store.path(FAILED, f"{target}{REASON}")
            # What is older than the part of the journal that was read has its line before it.
            if target not in names or (cut and stamp(path.stat().st_mtime) < str(rows[0].get("at"))):
                continue
            text = parts.files.read(path).decode("utf-8", "replace")
            if not any(target == file and str(why) in text for file, why in written):
                row = self._refusal(target, QUEUED, target, text, now)
                parts.journal.write({**row, "by": "recovered"})
