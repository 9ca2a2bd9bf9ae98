"""The four states, and every move between them that is legal.

    (dropped) -> queued --claim--> active --settle--> done
                   |  <--put back--   |  \\--settle--> failed
                   |  <---requeue-----|                 |
                   \\--refuse--------------------------> failed
                      <-------requeue--------- done, failed

A state is the name of the folder the file lies in; nothing else says it.
"""

from __future__ import annotations

from typing import Final, Literal

State = Literal["queued", "active", "done", "failed"]

QUEUED: Final = "queued"
ACTIVE: Final = "active"
DONE: Final = "done"
FAILED: Final = "failed"

STATES: Final[tuple[State, ...]] = (QUEUED, ACTIVE, DONE, FAILED)
SETTLED: Final[frozenset[State]] = frozenset({DONE, FAILED})

#: What the daemon itself may do. A person may move a file anywhere.
TRANSITIONS: Final[dict[tuple[State, State], str]] = {
    (QUEUED, ACTIVE): "claim",
    (ACTIVE, QUEUED): "requeue",
    (ACTIVE, DONE): "settle",
    (ACTIVE, FAILED): "settle",
    (QUEUED, FAILED): "refuse",
    # For a person who saved it, changed, to queued/ just after it was settled.
    (DONE, QUEUED): "requeue",
    (FAILED, QUEUED): "requeue",
}
