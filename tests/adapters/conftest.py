"""Inputs of the public bug reports in ../shared/cases."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

INPUTS = Path(__file__).resolve().parents[3] / "shared" / "cases" / "inputs"


@pytest.fixture
def public_case(case: str) -> bytes:
    """The body of the track that the case (a parameter of the test) describes."""
    if not INPUTS.is_dir():
        if "CI" in os.environ:
            pytest.fail(f"{INPUTS} is missing")
        pytest.skip(f"{INPUTS} is not on this machine")
    (path,) = INPUTS.glob(f"{case}.*")
    if path.suffix == ".py":
        env = {**os.environ, "PYTHONUTF8": "1"}
        data = subprocess.run([sys.executable, path], stdout=subprocess.PIPE, check=True, env=env).stdout
    else:
        data = path.read_bytes()
    _, _, body = data.split(b"---\n", 2)
    return body
