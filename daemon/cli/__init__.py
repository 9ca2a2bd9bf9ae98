"""The command line: `mh` (or `megaharness`).

Each verb is a module of its own, imported when it is used: the bare `mh`,
which people type all day, imports not even click.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """The entry point of both names."""
    if len(sys.argv) == 1 and "_MH_COMPLETE" not in os.environ and "_MEGAHARNESS_COMPLETE" not in os.environ:
        from daemon.cli import view

        sys.exit(view.bare())
    from daemon.cli import group

    group.run()
