"""The harness `shell` keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.harnesses.shell import Shell
from adapters.ports import Harness
from adapters.testing import Bench, HarnessContract

pytestmark = pytest.mark.slow


class ShellThatIsMissing(Shell):
    program = "/nowhere/python"


class TestShell(HarnessContract):
    def make_harness(self, tmp_path: Path) -> Harness:
        return Shell()

    def make_missing(self, tmp_path: Path) -> Harness:
        return ShellThatIsMissing()

    def brief_succeed(self) -> bytes:
        return b"# Count\n\n```sh\necho once >> ran\n```\n\nand say so\n\n```bash\necho done\n```\n"

    def brief_exit_7(self) -> bytes:
        return b"```sh\nexit 7\n```\n```sh\necho never > never\n```\n"

    def brief_signal(self) -> bytes:
        return b"```bash\nkill -9 $$\n```\n"

    def brief_tree(self) -> bytes:
        children = b"sleep 300 &\nnohup sleep 300 &\nsetsid sleep 300 &\n(setsid nohup sleep 300 &)\n"
        return b"```bash\n" + children + b"wait\n```\n"

    def brief_verbatim(self, text: bytes) -> bytes:
        """What a block holds is what runs: the text is in a here-document of one."""
        return b"```bash\ncat > seen <<'--- end ---'\n" + text + b"--- end ---\n```\n"

    @pytest.mark.parametrize("case", ["25_prompt_leading_dash", "27_big_prompt"])
    def test_public_case(self, bench: Bench, case: str, public_case: bytes) -> None:
        self.check_verbatim(bench, public_case)
