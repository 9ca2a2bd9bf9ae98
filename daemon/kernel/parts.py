"""The parts that the kernel works with, put together once; tests put together others."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from adapters.ports import Terminal
from daemon.config import Settings
from daemon.durable import Files
from daemon.kernel.evals import Evals
from daemon.kernel.memory import Memory
from daemon.kernel.route import Harnesses, Router
from daemon.kernel.scratch import Scratch
from daemon.layout import Workspace
from daemon.mddb.resolver import Nothing, Resolver
from daemon.spool.claim import Stillness
from daemon.spool.exchange import Exchange
from daemon.spool.journal import Journal
from daemon.spool.sessions import Sessions
from daemon.spool.store import Store

Outcome = object

#: Seconds that a close waits for work which is under way: a check that was told to end has ended its tree by then.
PATIENCE = 15.0


class Pool(Protocol):
    """Does slow work beside the loop; its results come back through one queue that the loop drains."""

    def submit(self, kind: str, session: str, work: Callable[[], Outcome]) -> None: ...

    def drain(self) -> list[tuple[str, str, Outcome | BaseException]]:
        """(kind, session, result or exception) of everything that has finished."""
        ...

    def pending(self) -> bool:
        """Whether a drain would bring something."""
        ...

    def close(self) -> None: ...


class Threads:
    """A small thread pool. `flag` is set when a result is there.

    The threads are daemons: work that does not come to an end must not keep
    the process. It is cut off then as by a kill -9, which all work survives.
    """

    def __init__(self, size: int, flag: threading.Event) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[tuple[str, str, Outcome | BaseException]] = queue.SimpleQueue()
        self._flag = flag
        self._closing = False
        self._threads = [
            threading.Thread(target=self._run, name=f"kernel-{number}", daemon=True) for number in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while not self._closing:
            self._work.get()()

    def submit(self, kind: str, session: str, work: Callable[[], Outcome]) -> None:
        def run() -> None:
            if self._closing:
                return
            try:
                self._results.put((kind, session, work()))
            except BaseException as error:  # noqa: BLE001  # the loop decides what it means
                self._results.put((kind, session, error))
            self._flag.set()

        self._work.put(run)

    def drain(self) -> list[tuple[str, str, Outcome | BaseException]]:
        found = []
        while not self._results.empty():
            found.append(self._results.get())
        return found

    def pending(self) -> bool:
        return not self._results.empty()

    def close(self) -> None:
        """Begin nothing more, and wait a little for what is under way."""
        self._closing = True
        for _ in self._threads:
            self._work.put(lambda: None)
        until = time.monotonic() + PATIENCE
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))


class Log(Protocol):
    def info(self, event: str, **facts: object) -> None: ...
    def warning(self, event: str, **facts: object) -> None: ...
    def error(self, event: str, **facts: object) -> None: ...


@dataclass(slots=True)
class Parts:
    workspace: Workspace
    settings: Settings
    files: Files
    store: Store
    sessions: Sessions
    journal: Journal
    evals: Evals
    exchange: Exchange
    scratch: Scratch
    harnesses: Harnesses
    router: Router
    terminal: Terminal
    pool: Pool
    reap: Callable[[str], int]
    log: Log
    uid: int
    memory: Memory = field(default_factory=Memory)
    stillness: Stillness = field(default_factory=Stillness)
    resolver: Resolver = field(default_factory=Nothing)
