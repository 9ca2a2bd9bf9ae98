"""The command line: `mh` (or `megaharness`).

Each verb is a module of its own, imported when it is used: the bare `mh`,
which people type all day, imports not even click.
"""

from __future__ import annotations

import io
import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """The entry point of both names."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a character shows a question mark: no reason to fail.
            stream.reconfigure(errors="replace")
    if len(sys.argv) == 1 and "_MH_COMPLETE" not in os.environ and "_MEGAHARNESS_COMPLETE" not in os.environ:
        from daemon.cli import view

        try:
            code = view.bare()
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            print(
                f"mh: {error.strerror or error}{where}\n    mh doctor checks the workspace", file=sys.stderr
            )
            code = 1
        sys.exit(code)
    from daemon.cli import group

    group.run()
