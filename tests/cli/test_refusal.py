"""A full disk is told by `mh` although the daemon cannot write it down there."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from daemon.cli import view


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ({}, None),
        ({"f_bfree": 0, "f_bavail": 0}, "No space left on device"),
        ({"f_ffree": 0}, "No space left on device"),
        ({"f_files": 0, "f_ffree": 0}, None),
        ({"f_flag": os.ST_RDONLY}, "Read-only file system"),
    ],
)
def test_a_disk_that_takes_no_writes_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: dict[str, int], said: str | None
) -> None:
    facts = {"f_flag": 0, "f_bfree": 9, "f_bavail": 9, "f_files": 9, "f_ffree": 9, **odd}
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(**facts))
    assert view.refusal(tmp_path) == said
