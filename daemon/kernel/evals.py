"""One row for every session in ``md-db/evals/<yyyy-mm>.jsonl``, exactly once. What is not known is null.

The row is written after ``settle.json`` and before ``settled``. A crash in
between makes the next start look for the row by its session id first.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from daemon.durable import Files
from daemon.spool.journal import encode_row, tail_rows

SCHEMA = 1
#: How far back a roll-forward looks for a row (bytes): a crash loses at most the last one.
TAIL = 4 << 20


class Evals:
    def __init__(self, folder: Path, files: Files) -> None:
        self._folder = folder
        self._files = files

    def path(self, ended_at: str) -> Path:
        """The month's file for an ISO time."""
        return self._folder / f"{ended_at[:7]}.jsonl"

    def write(self, row: Mapping[str, Any], *, sure: bool) -> None:
        """Append; with `sure` False (a crash may have come after it) only when it is not there yet."""
        path = self.path(str(row["settled_at"]))
        session = row["session_id"]
        if not sure and any(known.get("session_id") == session for known in tail_rows(path, TAIL)):
            return
        self._files.append(path, encode_row(row))
