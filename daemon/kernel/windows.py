"""Windows of settled sessions stay for a while, to be read, and then go."""

from __future__ import annotations

from daemon.kernel.parts import Parts

#: Seconds for which a settled session's window stays.
STAYS = 600.0


def tidy(parts: Parts, wall: float) -> None:
    """Close windows of sessions settled more than ten minutes ago, unless somebody looks. Raises TerminalError."""
    for window in parts.terminal.windows():
        marker = parts.sessions.path(window.name) / "settled"
        try:
            settled = marker.stat().st_mtime
        except OSError:
            continue  # not settled, not ours, or nobody can look
        if window.dead and not window.watched and wall - settled > STAYS:
            parts.terminal.close(window.track, window.name)
