"""The harness `fake` keeps the contract, messages included."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.fake import Fake
from adapters.ports import Harness
from adapters.testing import Bench, HarnessContract

pytestmark = pytest.mark.slow


class FakeThatIsMissing(Fake):
    program = "/nowhere/python"


def brief(*directives: str) -> bytes:
    return "\n".join(["# Play", "", "```fake", *directives, "```", ""]).encode()


class TestFake(HarnessContract):
    tree_size = 7

    def make_harness(self, tmp_path: Path) -> Harness:
        return Fake()

    def make_missing(self, tmp_path: Path) -> Harness:
        return FakeThatIsMissing()

    def brief_succeed(self) -> bytes:
        return brief("append ran once", "say done")

    def brief_exit_7(self) -> bytes:
        return brief("say not yet", "exit 7")

    def brief_signal(self) -> bytes:
        return brief("signal 9")

    def brief_tree(self) -> bytes:
        kinds = ("plain", "nohup", "setsid", "double", "bare", "stubborn")
        return brief("ignore INT TERM", *(f"spawn {kind} 300" for kind in kinds), "sleep 300")

    def brief_verbatim(self, text: bytes) -> bytes:
        return text + b"\n" + brief("keep seen")

    @pytest.mark.parametrize("case", ["25_prompt_leading_dash", "27_big_prompt"])
    def test_public_case(self, bench: Bench, case: str, public_case: bytes) -> None:
        self.check_verbatim(bench, public_case)
