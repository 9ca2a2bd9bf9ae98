"""The parts that the kernel works with, put together once; tests put together others."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
from daemon.spool.claim import Stillness
from daemon.spool.exchange import Exchange
from daemon.spool.journal import Journal
from daemon.spool.sessions import Sessions
from daemon.spool.store import Store

Outcome = object


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
    """A small thread pool. `flag` is set when a result is there."""

    def __init__(self, size: int, flag: threading.Event) -> None:
        self._executor = ThreadPoolExecutor(max_workers=size, thread_name_prefix="kernel")
        self._results: queue.SimpleQueue[tuple[str, str, Outcome | BaseException]] = queue.SimpleQueue()
        self._flag = flag

    def submit(self, kind: str, session: str, work: Callable[[], Outcome]) -> None:
        def run() -> None:
            try:
                self._results.put((kind, session, work()))
            except BaseException as error:  # noqa: BLE001  # the loop decides what it means
                self._results.put((kind, session, error))
            self._flag.set()

        self._executor.submit(run)

    def drain(self) -> list[tuple[str, str, Outcome | BaseException]]:
        found = []
        while not self._results.empty():
            found.append(self._results.get())
        return found

    def pending(self) -> bool:
        return not self._results.empty()

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)


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
