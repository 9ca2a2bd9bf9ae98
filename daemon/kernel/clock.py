"""How times are written: ISO 8601, UTC, milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Now:
    """The time of one tick. mono: seconds for deadlines; wall: seconds since the epoch, only for people."""

    mono: float
    wall: float


def stamp(wall: float) -> str:
    """``2026-12-01T14:06:21.123Z``"""
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds(text: str) -> float:
    """The moment that `stamp` wrote, in seconds since the epoch; 0 when it is none."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0
