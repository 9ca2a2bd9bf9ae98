"""What a program printed, as text that is safe to show.

A harness's output is untrusted: it can move the cursor, set the clipboard or
retitle a window. Everything that reaches a pane, a result or a page goes
through `plain`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor, modes
    r"|\x1b[\]PX^_][^\x07\x1b\n\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC: strings
    r"|\x1b[ -/]*[0-~]?"  # the other escapes
    r"|\x9b[0-?]*[ -/]*[@-~]?"  # CSI as one C1 character
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
# The last range: direction overrides make text read as something that it is
# not (CVE-2021-42574), and lone surrogates cannot be written as UTF-8 again.


def plain(text: str) -> str:
    """Text without control sequences; of a line that was redrawn in place only the last state."""
    if "\r" in text:
        text = "\n".join(_redrawn(line) for line in text.split("\n"))
    if text.isascii() and text.isprintable():
        return text
    return _CONTROL.sub("", text)


def _redrawn(line: str) -> str:
    line = line.rstrip("\r")
    return line[line.rfind("\r") + 1 :]


def decode(raw: bytes) -> str:
    """Bytes of a program as plain text; what is no UTF-8 becomes U+FFFD."""
    return plain(raw.decode("utf-8", "replace"))


def tail(path: Path, limit: int = 4000) -> str | None:
    """The end of a file as plain text, at most `limit` characters, from the start of a line.

    None if the file is missing or holds nothing to read.
    """
    reach = limit * 16  # room for control sequences and for characters of four bytes
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - reach))
            raw = file.read(reach)
    except FileNotFoundError:
        return None
    if size > reach and b"\n" in raw[:-1]:
        raw = raw[raw.index(b"\n") + 1 :]
    text = decode(raw).strip()
    if len(text) > limit:
        text = text[-limit:]
        if "\n" in text:
            text = text[text.index("\n") + 1 :]
    return text or None
