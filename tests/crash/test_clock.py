"""The proof by the clock can fail."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.kernel.observe import Observer
from daemon.kernel.room import Judged
from tests.proofs.clock import run

pytestmark = pytest.mark.slow


def test_a_time_that_is_not_waited_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Observer, "_after", lambda *_: iter(()))
    assert any("before its time" in broken for broken in run(6, 1).broken)


def test_an_order_by_the_name_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Observer._judge

    def by_name(observer: Observer, *args: Any) -> Judged | None:
        arrivals = observer._parts.memory.arrivals
        for number, key in enumerate(sorted(arrivals)):
            arrivals[key] = number
        return judge(observer, *args)

    monkeypatch.setattr(Observer, "_judge", by_name)
    assert any("in the order" in broken for broken in run(12, 1).broken)
