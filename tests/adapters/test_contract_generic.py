"""Command-line agents from the settings keep the contract, with the brief as a path and as standard input."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.harnesses.generic import Generic
from adapters.ports import Harness
from adapters.testing import Bench, HarnessContract


class Bash(HarnessContract):
    """An agent whose model is bash: what it is told it does."""

    def brief_succeed(self) -> bytes:
        return b"echo once >> ran\necho done\n"

    def brief_exit_7(self) -> bytes:
        return b"exit 7\n"

    def brief_signal(self) -> bytes:
        return b"kill -9 $$\n"

    def brief_tree(self) -> bytes:
        return b"sleep 300 &\nnohup sleep 300 &\nsetsid sleep 300 &\n(setsid nohup sleep 300 &)\nwait\n"

    @pytest.mark.parametrize("case", ["25_prompt_leading_dash", "27_big_prompt"])
    def test_public_case(self, bench: Bench, case: str, public_case: bytes) -> None:
        self.check_verbatim(bench, public_case)


class TestBriefAsAPath(Bash):
    def make_harness(self, tmp_path: Path) -> Harness:
        return Generic.from_settings("reader", {"argv": ["bash", "{brief}"]})

    def make_missing(self, tmp_path: Path) -> Harness:
        return Generic.from_settings("reader", {"argv": ["no-such-agent", "{brief}"]})

    def brief_verbatim(self, text: bytes) -> bytes:
        return b'cp "$0" seen\nexit\n' + text


class TestBriefAsStandardInput(Bash):
    def make_harness(self, tmp_path: Path) -> Harness:
        return Generic.from_settings("listener", {"argv": ["bash"]})

    def make_missing(self, tmp_path: Path) -> Harness:
        return Generic.from_settings("listener", {"argv": [str(tmp_path / "no-such-agent")]})

    def brief_verbatim(self, text: bytes) -> bytes:
        return b"cat > seen\nexit\n" + text


class TestInstructionsApart(Bash):
    """Standing instructions and skills as paths of their own."""

    def make_harness(self, tmp_path: Path) -> Harness:
        argv = ["bash", "{brief}", "{instructions}", "{skills}"]
        return Generic.from_settings("native", {"argv": argv})

    def make_missing(self, tmp_path: Path) -> Harness:
        return Generic.from_settings("native", {"argv": ["no-such-agent", "{instructions}"]})

    def brief_verbatim(self, text: bytes) -> bytes:
        return b'cp "$0" seen\nexit\n' + text

    def brief_standing(self) -> bytes:
        return b'cp "$1" instructed\nls "$2" > skilled\n'
