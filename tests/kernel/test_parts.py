"""The thread pool: results come back, and no work keeps the daemon from ending."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from adapters.testing import wait_for
from daemon.kernel.parts import Threads


def test_results_and_errors_come_back_with_a_flag() -> None:
    flag = threading.Event()
    pool = Threads(2, flag)
    pool.submit("good", "a", lambda: 7)
    pool.submit("bad", "b", lambda: 1 / 0)
    found: list[tuple[str, str, object]] = []

    def both() -> bool:
        found.extend(pool.drain())
        return len(found) == 2

    wait_for(both, "two results")
    assert flag.is_set()
    by_kind = {kind: (session, result) for kind, session, result in found}
    assert by_kind["good"] == ("a", 7)
    assert isinstance(by_kind["bad"][1], ZeroDivisionError)
    pool.close()


def test_a_close_waits_for_what_ends_soon_and_begins_nothing_more() -> None:
    pool = Threads(1, threading.Event())
    begun, go, ran = threading.Event(), threading.Event(), []
    pool.submit("slow", "", lambda: (begun.set(), go.wait(10), ran.append("slow")))
    pool.submit("next", "", lambda: ran.append("next"))
    begun.wait(10)
    threading.Timer(0.2, go.set).start()
    pool.close()
    assert ran == ["slow"]


def test_work_without_end_does_not_keep_the_process() -> None:
    script = (
        "import threading\n"
        "from daemon.kernel import parts\n"
        "parts.PATIENCE = 0.2\n"
        "pool = parts.Threads(1, threading.Event())\n"
        "begun = threading.Event()\n"
        "def work():\n"
        "    begun.set()\n"
        "    while True: pass\n"
        "pool.submit('endless', '', work)\n"
        "begun.wait()\n"
        "pool.close()\n"
    )
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", script], cwd=root, timeout=60, check=False).returncode == 0
