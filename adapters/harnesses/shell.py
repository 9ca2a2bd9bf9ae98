"""Runs the code blocks of a track: ```sh, ```bash and ```python, in order.

For work that needs no agent: nightly jobs, releases, tests of the whole. It
stops at the first block that fails, and its exit code or signal becomes the
session's. A block runs as the same text in a file would (``set -e`` is yours
to write), in the track's work directory; blocks share nothing else. What it
prints on standard output is the answer; which block runs goes to standard
error. See `adapters.harnesses.shell_driver` for what counts as a block.
"""

from __future__ import annotations

import sys
from pathlib import Path

from adapters import session
from adapters.command import CommandHarness
from adapters.errors import BriefUnusable
from adapters.harnesses import shell_driver
from adapters.ports import Capabilities, Order


class Shell(CommandHarness):
    """Runs a track's code blocks. Only when a track names it."""

    name = "shell"
    can = Capabilities(feedback=False, prose=False, by_default=False)
    program = sys.executable

    def command(self, order: Order) -> session.Launch:
        """Raises `BriefUnusable` when there is nothing to run, or it is unclear what."""
        try:
            blocks = shell_driver.blocks(order.brief.read_bytes())
        except shell_driver.Unusable as unusable:
            raise BriefUnusable(str(unusable)) from unusable
        if not any(block.runnable for block in blocks):
            others = sorted({block.language or "a block without a language" for block in blocks})
            has = f"; it has {', '.join(others)}" if others else ""
            known = ", ".join(f"```{language}" for language in shell_driver.LANGUAGES)
            raise BriefUnusable(
                f"there is no code block to run{has}",
                f"the harness shell runs blocks that begin with {known}; for an agent, change harness_id",
            )
        driver = Path(shell_driver.__file__).resolve()
        return session.Launch([self.program, "-I", "-S", str(driver), str(order.brief.absolute())])
