"""Which errors of the system pass by themselves, and which one agent's doing can cause for ever."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from daemon.durable import DISK_ERRORS

#: The disk, or this process's descriptors. Permissions are left out: an agent can take them away.
_PASSING = DISK_ERRORS - {errno.EACCES, errno.EPERM}


def passes(error: OSError) -> bool:
    """Whether to try again as long as it takes. Everything else is an answer, for otherwise a slot waits for ever."""
    return error.errno in _PASSING


def may_pass(error: OSError, path: Path) -> bool:
    """`passes`, or the refusal of a file that nobody has shut."""
    if not isinstance(error, PermissionError):
        return passes(error)
    try:
        return not is_forbidden(path)
    except OSError:
        return False


def is_forbidden(path: Path) -> bool:
    """Whether the right to read this file was taken from its owner. Raises OSError."""
    return not os.lstat(path).st_mode & stat.S_IRUSR
