"""The journal: one line for every transition, append-only.

It explains; it decides nothing. A line that a crash swallowed is written
again as ``"by": "recovered"`` when the transition is found without it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daemon.spool.store import is_regular

if TYPE_CHECKING:  # the view imports this module, and writes nothing
    from daemon.durable import Files

#: How far back a recovery looks for a line (bytes). A crash loses at most the last few.
TAIL = 1 << 20


def tail_rows(path: Path, size: int = TAIL) -> Iterator[dict[str, Any]]:
    """Objects of the last `size` bytes, oldest first; lines that are none are skipped. Of no regular file: none."""
    if not is_regular(path):
        return
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - size))
            if end > size:
                file.readline()
            lines = file.read().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row


def put_aside(path: Path, files: Files) -> Path | None:
    """Make way for a file of lines. What lies at its name and takes none gets ``.odd-1``; returns where it is then.

    That is whatever is no regular file, or has lost its permissions.
    """
    if not os.path.lexists(path) or (is_regular(path) and os.access(path, os.R_OK | os.W_OK)):
        return None
    return files.put_aside(path)


def encode_row(row: Mapping[str, Any]) -> bytes:
    # Lone surrogates (odd file names) have no UTF-8 form.
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


class Journal:
    def __init__(self, path: Path, files: Files) -> None:
        self.path = path
        self._files = files

    def write(self, row: Mapping[str, Any]) -> None:
        self._files.append(self.path, encode_row(row))

    def has(self, session: str, to: str) -> bool:
        """Whether the transition of this session into `to` is written (within the tail)."""
        return any(row.get("session") == session and row.get("to") == to for row in tail_rows(self.path))
