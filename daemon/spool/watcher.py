"""Tells the loop that something changed. A hint, never a truth: without it everything works, only slower.

watchdog's thread calls `_on`; it notes the path and sets the flag. The loop
drains the notes, looks at those paths, and goes on sleeping when what lies
there is what it put there itself.

The spool's root is watched recursively (watching ``queued/`` alone holds an
unmatched move for 0.5 s), with a kernel mask of the four events that matter.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from watchdog.events import (
    DirDeletedEvent,
    DirMovedEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

EVENTS: list[type[FileSystemEvent]] = [
    FileCreatedEvent,
    FileMovedEvent,
    FileClosedEvent,
    FileDeletedEvent,
    DirMovedEvent,
    DirDeletedEvent,
]


@dataclass(slots=True)
class Notes:
    """What was seen since the last drain. `arrived`: renamed in within the watched tree."""

    paths: set[Path] = field(default_factory=set)
    arrived: set[Path] = field(default_factory=set)
    overflow: bool = False


class _OverflowNotes(logging.Handler):
    """watchdog tells of lost events only in its log."""

    def __init__(self, on_overflow: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self._on_overflow = on_overflow

    def emit(self, record: logging.LogRecord) -> None:
        if "overflow" in record.getMessage():
            self._on_overflow()


class Watcher(FileSystemEventHandler):
    """Watches the folders named `interesting` below `root` (recursively) and the flat directory `wakes`."""

    def __init__(self, root: Path, interesting: frozenset[Path], wakes: Path, flag: threading.Event) -> None:
        self._root = root
        self._interesting = {os.fsencode(path) for path in interesting}
        self._wakes = os.fsencode(wakes)
        self._wakes_path = wakes
        self._flag = flag
        self._seen: deque[tuple[bytes, bool]] = deque()
        self._overflow = False
        self._observer: BaseObserver | None = None
        self._log_handler = _OverflowNotes(self._overflowed)

    def start(self) -> None:
        """Raises OSError when the system's inotify limits are used up."""
        observer = Observer()
        observer.schedule(self, str(self._root), recursive=True, event_filter=EVENTS)
        observer.schedule(self, str(self._wakes_path), recursive=False, event_filter=EVENTS)
        logging.getLogger("watchdog.observers.inotify_c").addHandler(self._log_handler)
        observer.start()
        self._observer = observer

    def stop(self) -> None:
        logging.getLogger("watchdog.observers.inotify_c").removeHandler(self._log_handler)
        if self._observer is not None:
            self._observer.stop()
            self._observer.join(5)
            self._observer = None

    def alive(self) -> bool:
        """False when an emitter died (its directory was deleted): the loop then starts a new watcher."""
        return self._observer is not None and all(emitter.is_alive() for emitter in self._observer.emitters)

    def dispatch(self, event: FileSystemEvent) -> None:
        moved = isinstance(event, FileMovedEvent)
        news = self._note(
            os.fsencode(event.src_path), arrived=False, deleted=isinstance(event, FileDeletedEvent)
        )
        if event.dest_path:
            news |= self._note(os.fsencode(event.dest_path), arrived=moved, deleted=False)
        if news:
            self._flag.set()

    def _note(self, path: bytes, *, arrived: bool, deleted: bool) -> bool:
        folder = os.path.dirname(path)
        if folder == self._wakes:
            if deleted:
                return False  # the daemon's own tidying
        elif folder not in self._interesting:
            return False
        self._seen.append((path, arrived))
        return True

    def _overflowed(self) -> None:
        self._overflow = True
        self._flag.set()

    def drain(self) -> Notes:
        notes = Notes(overflow=self._overflow)
        self._overflow = False
        while self._seen:
            raw, arrived = self._seen.popleft()
            path = Path(os.fsdecode(raw))
            notes.paths.add(path)
            if arrived:
                notes.arrived.add(path)
        return notes
