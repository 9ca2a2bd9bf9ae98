"""Windows of settled sessions go after ten minutes, unless somebody looks."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from adapters.ports import Window
from daemon.durable import Files
from daemon.kernel import windows
from daemon.spool.sessions import Sessions


@dataclass
class Panes:
    """A terminal that only knows its windows."""

    there: list[Window]
    closed: list[str] = field(default_factory=list)

    def windows(self) -> list[Window]:
        return self.there

    def close(self, track: str, name: str) -> None:
        self.closed.append(name)


@pytest.mark.parametrize(
    ("settled_ago", "dead", "watched", "goes"),
    [
        (601, True, False, True),
        (599, True, False, False),
        (601, True, True, False),
        (601, False, False, False),
        (None, True, False, False),
    ],
)
def test_which_windows_are_closed(
    tmp_path: Path, settled_ago: float | None, dead: bool, watched: bool, goes: bool
) -> None:
    name = "a-1-0123456789ab"
    (tmp_path / name).mkdir()
    wall = time.time()
    if settled_ago is not None:
        (tmp_path / name / "settled").write_text("{}")
        os.utime(tmp_path / name / "settled", (wall - settled_ago,) * 2)
    panes = Panes(
        [Window("a", name, "%1", 1, dead, watched), Window("mine", "unknown", "%2", 2, True, False)]
    )
    windows.tidy(SimpleNamespace(terminal=panes, sessions=Sessions(tmp_path, Files())), wall)  # type: ignore[arg-type]
    assert panes.closed == ([name] if goes else [])
