"""The refusing disk can find something: broken protocols, each on the disk that shows it."""

from __future__ import annotations

import os

import pytest

from tests.proofs.refusing_disk import look

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root"),
    pytest.mark.timeout(0),
]


@pytest.mark.parametrize(
    ("mutant", "kind", "wrong"),
    [
        ("written in place", "1 MiB", "cannot be read"),
        ("untidy", "read-only", "left {'."),
    ],
)
def test_a_broken_protocol_is_found(mutant: str, kind: str, wrong: str) -> None:
    report = look(60, 1, kind, mutant=mutant)
    assert report.cases == 60
    assert any(wrong in broken for broken in report.broken), report.broken
