"""What is installed is what is written, and it is locked."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
PROJECT = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]


def wanted(name: str) -> set[str]:
    lines = (HERE / "requirements" / name).read_text().splitlines()
    return {line for line in lines if line and line[0] not in "#-"}


def pinned(name: str) -> dict[str, str]:
    text = (HERE / "requirements" / name).read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


def test_the_requirements_are_those_of_the_package() -> None:
    assert wanted("runtime.in") == set(PROJECT["dependencies"])
    assert wanted("dev.in") == set(PROJECT["optional-dependencies"]["dev"])


@pytest.mark.parametrize("name", ["runtime", "dev", "build"])
def test_every_lock_has_what_is_wanted_by_hash_and_from_nowhere_in_particular(name: str) -> None:
    text = (HERE / "requirements" / f"{name}.txt").read_text()
    pins = pinned(f"{name}.txt")
    names = {re.split(r"[<>=]", line)[0].lower() for line in wanted(f"{name}.in")}
    assert names <= set(pins)
    assert "://" not in text
    blocks = re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]
    assert len(blocks) == len(pins)
    assert all("--hash=sha256:" in block for block in blocks)


def test_what_runs_under_test_is_what_runs() -> None:
    assert pinned("runtime.txt").items() <= pinned("dev.txt").items()
