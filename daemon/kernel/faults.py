"""Which errors of the system pass by themselves, and which one agent's doing can cause for ever."""

from __future__ import annotations

import errno

from daemon.durable import DISK_ERRORS

#: The disk, or this process's descriptors. Permissions are left out: an agent can take them away.
_PASSING = DISK_ERRORS - {errno.EACCES, errno.EPERM}


def passes(error: OSError) -> bool:
    """Whether to try again as long as it takes. Everything else is an answer, for otherwise a slot waits for ever."""
    return error.errno in _PASSING
