"""The corpus of real transcripts and the inputs of public bug reports; both lie beside the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2].parent / "shared"


@pytest.fixture(scope="session")
def corpus() -> Path:
    return _there("corpus")


@pytest.fixture(scope="session")
def inputs() -> Path:
    return _there("cases/inputs")


def _there(name: str) -> Path:
    path = SHARED / name
    if not path.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"{path} is not here, and CI requires it")
        pytest.skip(f"../shared/{name} is not here: a public clone has not got it")
    return path
