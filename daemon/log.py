"""The daemon's log: one JSON object a line, and readable lines on a terminal.

Writing a log never stops the work: a line that cannot be written (a full
disk, a terminal that went away) is dropped and counted, and the next line
that can be written says how many were lost. Values whose key names a secret
are not written at all.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, TextIO

MAX_BYTES = 5_000_000
KEEP = 5
REDACTED = "[redacted]"

_SECRET = re.compile(
    r"(?:^|[_.-])(?:token|secret|password|passwd|passphrase|api_?key|access_?key|private_?key"
    r"|authorization|credentials?|cookie)$",
    re.IGNORECASE,
)
# Shown on a terminal as text, never obeyed by it: all control characters except newline and tab.
_VISIBLE = {c: f"\\x{c:02x}" for c in (*range(32), *range(127, 160)) if c not in (9, 10)}


class RotatedFile:
    """Appends whole lines to a file of at most `max_bytes`, with `keep` older ones beside it.

    `dropped` counts the lines that could not be written.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES, keep: int = KEEP) -> None:
        self.path = path
        self.dropped = 0
        self._max = max_bytes
        self._keep = keep
        self._fd: int | None = None
        self._torn = False
        self._lock = threading.Lock()

    def write(self, line: bytes) -> bool:
        """Append one line; False, and counted, when it could not be written whole."""
        with self._lock:
            data = (b"\n" if self._torn else b"") + line + b"\n"
            try:
                fd = self._ready(len(data))
                written = os.write(fd, data)
            except OSError:
                self.dropped += 1
                self.close()
                return False
            self._torn = written < len(data)
            self.dropped += self._torn
            return not self._torn

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _ready(self, more: int) -> int:
        if self._fd is None:
            self._fd = self._open()
        if 0 < os.fstat(self._fd).st_size > self._max - more:
            self.close()
            for n in range(self._keep - 1, 0, -1):
                older = self._older(n)
                if older.exists():
                    os.replace(older, self._older(n + 1))
            os.replace(self.path, self._older(1))
            self._fd = self._open()
        return self._fd

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self.path, flags, 0o600)

    def _older(self, n: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{n}")


class Sinks:
    """Where finished log events go: a file, a terminal, both or neither."""

    def __init__(self, file: RotatedFile | None, terminal: TextIO | None) -> None:
        self.file = file
        self.terminal = terminal
        self.dropped_on_terminal = 0
        self._told = 0
        self._render = _console(colors=terminal.isatty()) if terminal is not None else None

    def msg(self, event: Mapping[str, Any]) -> None:
        if self.file is not None:
            self._to_file(self.file, event)
        if self.terminal is not None and self._render is not None:
            try:
                print(self._render(None, "", _visible(event)), file=self.terminal, flush=True)
            except (OSError, ValueError):
                # The terminal went away, or was closed; the file has the line.
                self.dropped_on_terminal += 1

    # structlog calls the method that is named like the level
    debug = info = warning = warn = error = critical = exception = msg

    def _to_file(self, file: RotatedFile, event: Mapping[str, Any]) -> None:
        lost = file.dropped - self._told
        line = {**event, "dropped_before": lost} if lost else event
        if file.write(json.dumps(line, default=str).encode()):
            self._told += lost


def setup(path: Path | None, *, terminal: TextIO | None = None, level: str = "info") -> Sinks:
    """Set up logging for this process and say where it goes.

    path: the JSON lines file; its directory has to exist.
    terminal: where to show readable lines; by default standard error, if it is a terminal.
    """
    import structlog

    if terminal is None and sys.stderr is not None and sys.stderr.isatty():
        terminal = sys.stderr
    sinks = Sinks(None if path is None else RotatedFile(path), terminal)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            structlog.processors.format_exc_info,
            redact,
            _hand_over,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: sinks,
        cache_logger_on_first_use=False,
    )
    return sinks


def get(name: str) -> Any:
    """A logger; `name` says which part speaks. structlog's own type is only known once it is loaded."""
    import structlog

    return structlog.get_logger().bind(part=name)


def redact(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Take out the values of keys that name a secret, at any depth."""
    for key, value in event.items():
        event[key] = _redacted(key, value)
    return event


def _redacted(key: str, value: Any) -> Any:
    if isinstance(value, (str, bytes)) and _SECRET.search(key):
        return REDACTED
    if isinstance(value, Mapping):
        return {str(k): _redacted(str(k), v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_redacted(key, v) for v in value]
    return value


def _hand_over(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> tuple[tuple[MutableMapping[str, Any]], dict[str, Any]]:
    return (event,), {}


def _visible(event: Mapping[str, Any]) -> dict[str, Any]:
    shown = {k: v.translate(_VISIBLE) if isinstance(v, str) else v for k, v in event.items()}
    shown["timestamp"] = str(shown.pop("at", ""))[11:19]
    return shown


def _console(*, colors: bool) -> Any:
    from structlog.dev import ConsoleRenderer, plain_traceback

    return ConsoleRenderer(colors=colors, pad_event_to=0, exception_formatter=plain_traceback)
