"""Real processes; each test ends what it started, by its marker."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from adapters.session import reap


@pytest.fixture
def session_id() -> Iterator[str]:
    name = f"t-1-{secrets.token_hex(6)}"
    yield name
    reap(name, grace_s=0.0)
