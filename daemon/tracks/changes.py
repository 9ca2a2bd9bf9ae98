"""What a person changed in the file of a track while it is active, and what each part of that means.

    text added at the end          a message
    the text changed otherwise     a message too: the difference
    harness_id, model_id           another harness is asked for
    priority, budget, scope        count at once
    done_when                      counts at once, and the contract is shown as changed
    after, project_id, kind        no effect now

Pure: two versions in, the difference out.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from daemon.tracks import thread
from daemon.tracks.track import Loaded, Track

#: Characters of one message: what an agent is told at once.
MESSAGE_LIMIT = 64 << 10
DIFFERENCE = "The text of the task was changed while you work on it:"
NOW = ("priority", "budget", "scope", "done_when")
LATER = ("after", "project_id", "kind")


@dataclass(frozen=True, slots=True)
class Change:
    """One save of a person's, compared with the one before.

    message: what the agent is to be told; empty when the text is the same. keys: those that count at once;
    idle: those without effect now. harness: the harness and model that are asked for; None when they are the same.
    """

    message: str = ""
    keys: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    harness: str | None = None

    def __bool__(self) -> bool:
        return bool(self.message or self.keys or self.idle or self.harness)


def compare(before: Loaded, after: Loaded) -> Change:
    """What is different in `after`. The daemon's own block and results are nobody's change."""
    return Change(
        message=_message(
            thread.without_results(before.document.body), thread.without_results(after.document.body)
        ),
        keys=_differing(before.track, after.track, NOW),
        idle=_differing(before.track, after.track, LATER),
        harness=_asked(before.track, after.track),
    )


def _differing(before: Track, after: Track, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if getattr(before, name) != getattr(after, name))


def _asked(before: Track, after: Track) -> str | None:
    if (before.harness_id, before.model_id) == (after.harness_id, after.model_id):
        return None
    name = after.harness_id or "any harness"
    return f"{name}/{after.model_id}" if after.model_id else name


def _message(before: str, after: str) -> str:
    old, new = _lines(before), _lines(after)
    if old == new:
        return ""
    if new[: len(old)] == old:
        return _cut("\n".join(after.rstrip().splitlines()[len(old) :]).strip())
    difference = difflib.unified_diff(old, new, "before", "now", lineterm="", n=2)
    return _cut(f"{DIFFERENCE}\n\n" + "\n".join(difference))


def _lines(text: str) -> list[str]:
    """What counts of it: no white space at the end of a line or of the text."""
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _cut(text: str) -> str:
    if len(text) <= MESSAGE_LIMIT:
        return text
    return f"{text[:MESSAGE_LIMIT]}\n… {len(text) - MESSAGE_LIMIT} characters more: they stand in the file"


@dataclass(frozen=True, slots=True)
class Contract:
    """A contract that is not what was claimed any more.

    at: when (ISO 8601, UTC). was: its checks, as they were claimed. only_added: each of them is still there, so
    that what was verified is at least what had been asked for.
    """

    at: str
    was: tuple[str, ...]
    only_added: bool


def contract(claimed: Track, now: Track, at: str) -> Contract | None:
    """How the checks of `now` differ from those that were claimed; None: they do not."""
    if claimed.done_when == now.done_when:
        return None
    return Contract(
        at, tuple(check.text for check in claimed.done_when), set(claimed.done_when) <= set(now.done_when)
    )
