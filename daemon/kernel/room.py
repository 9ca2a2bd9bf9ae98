"""Where files wait: what was found of each is kept until something that it rests on has changed.

Invariants kept here:

* what is handed out as due was judged in this very look, so nothing is claimed, refused or set aside on an
  old word;
* a file is judged again when it or an editor's file beside it has changed, when a moment comes that it waits
  for, when a session of its name begins, ends or is settled, and after it was handed out as due;
* one that waits for others is judged again with every change of these, and one that waits for what nobody
  tells of (permissions, the owner of a lock file) every few seconds;
* so a tick costs what has changed and what is shown, not what waits.

Files that nobody has looked into yet are read in slices: with a very long queue the first ones run while
the rest is still being read.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from daemon.spool.states import State
from daemon.tracks.machine import Candidate, Observed

Key = tuple[State, str]
#: Higher priority first, then as they came: (-priority, arrival, state, name).
Order = tuple[int, int, State, str]

#: How many files are judged in one look.
SLICE = 1000
#: Seconds between two looks at what waits for something that nobody tells of.
UNTOLD = 5.0


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found of one file. until: when that may change by itself (monotonic s).

    bound: it depends on other tracks or sessions. untold: it waits for something that nobody tells of.
    """

    observed: Observed
    until: float | None = None
    bound: bool = False
    untold: bool = False


Judge = Callable[[Key], Judged | None]


@dataclass(slots=True)
class Room:
    """shown: how many of the waiting are listed though nothing is due for them; None: all."""

    shown: int | None
    _judged: dict[Key, Judged] = field(default_factory=dict)
    _place: dict[Key, Order] = field(default_factory=dict)
    _order: list[Order] = field(default_factory=list)
    _ready: list[Order] = field(default_factory=list)
    _due: set[Key] = field(default_factory=set)
    _needy: set[Key] = field(default_factory=set)
    _bound: set[Key] = field(default_factory=set)
    _untold: set[Key] = field(default_factory=set)
    _moments: list[tuple[float, Key]] = field(default_factory=list)
    #: To be judged first, and after that, each in this order.
    _soon: dict[Key, None] = field(default_factory=dict)
    _unread: dict[Key, None] = field(default_factory=dict)
    _untold_due: float = 0.0

    # -- what is to be judged again --------------------------------------------------------------

    def touch(self, keys: Sequence[Key]) -> None:
        """These are new or have changed. A few come before what is still unread."""
        (self._soon if len(keys) <= SLICE else self._unread).update(dict.fromkeys(keys))

    def touch_bound(self) -> None:
        """Other tracks or sessions are not what they were."""
        self._soon.update(dict.fromkeys(self._bound))

    def touch_all(self) -> None:
        self._unread.update(dict.fromkeys(self._judged))

    def untold(self, now: float) -> list[Key]:
        """What has to be looked at though nobody told of it; every few seconds."""
        if now < self._untold_due:
            return []
        self._untold_due = now + UNTOLD
        return list(self._untold)

    def forget(self, key: Key) -> None:
        self._soon.pop(key, None)
        self._unread.pop(key, None)
        self._remove(key)

    @property
    def unread(self) -> int:
        """How many could not be judged in the last look: the next one goes on with them, at once."""
        return len(self._soon) + len(self._unread)

    # -- one look --------------------------------------------------------------------------------

    def look(self, now: float, free: int, judge: Judge) -> list[Observed]:
        """Of all that waits: what is due, and what is shown. `free`: how many may be taken now."""
        while self._moments and self._moments[0][0] <= now:
            self._soon[heapq.heappop(self._moments)[1]] = None
        first = itertools.chain(list(self._due), list(self._soon), self._unread_slice())
        fresh: set[Key] = set()
        for key in itertools.islice(first, None if self.shown is None else SLICE):
            self._judge_now(key, judge, fresh)
        found = self._next(free, fresh, judge)
        self._due |= found
        limit = len(self._order) if self.shown is None else self.shown
        found.update((state, name) for _, _, state, name in self._order[:limit])
        found.update(itertools.islice(self._needy, limit))
        found |= self._due
        # What has changed since it was judged, and what is due, count only as they were judged just now.
        late = self._due - fresh
        found = {
            key for key in found if key not in late and key not in self._soon and key not in self._unread
        }
        listed = sorted(self._place[key] for key in found)
        return [self._judged[state, name].observed for _, _, state, name in listed]

    def _next(self, free: int, fresh: set[Key], judge: Judge) -> set[Key]:
        """The first that may be taken, each judged anew."""
        found: set[Key] = set()
        at = 0
        while len(found) < free and at < len(self._ready):
            place = self._ready[at]
            key = place[2:]
            if key not in fresh:
                self._judge_now(key, judge, fresh)
                if at >= len(self._ready) or self._ready[at] != place:
                    continue  # it may not be taken any more, or has another place now
            found.add(key)
            at += 1
        return found

    def again(self, now: float) -> float | None:
        """When to look again at the latest (monotonic s), for what is not listed; None: when something changes."""
        return now if self.unread else self._moments[0][0] if self._moments else None

    # -- the parts -------------------------------------------------------------------------------

    def _unread_slice(self) -> list[Key]:
        return list(itertools.islice(self._unread, None if self.shown is None else SLICE))

    def _judge_now(self, key: Key, judge: Judge, fresh: set[Key]) -> None:
        if key not in fresh:
            self._soon.pop(key, None)
            self._unread.pop(key, None)
            self._take(key, judge(key))
            fresh.add(key)

    def _take(self, key: Key, judged: Judged | None) -> None:
        known = self._judged.get(key)
        if known is not None and judged == known:
            self._due.discard(key)
            self._mark_due(key, judged)
            return
        self._remove(key)
        if judged is None:
            return
        observed = judged.observed
        priority, arrival = (
            (observed.priority, observed.arrival) if isinstance(observed, Candidate) else (0, 0)
        )
        place = (-priority, arrival, *key)
        self._judged[key] = judged
        self._place[key] = place
        _insert(self._order, place)
        match observed:
            case Candidate(fault=None, holds=(), late=None):
                _insert(self._ready, place)
            case Candidate(fault=None, holds=(first, *_)):
                if first.needs_you:
                    self._needy.add(key)
            case Candidate(fault=None):
                pass
            case _:
                self._needy.add(key)
        self._mark_due(key, judged)
        if judged.bound:
            self._bound.add(key)
        if judged.untold:
            self._untold.add(key)
        if judged.until is not None:
            heapq.heappush(self._moments, (judged.until, key))

    def _mark_due(self, key: Key, judged: Judged) -> None:
        match judged.observed:
            case Candidate(holds=(), fault=None, late=str()):
                self._due.add(key)
            case Candidate(holds=(), fault=fault) if fault is not None and judged.until is None:
                self._due.add(key)

    def _remove(self, key: Key) -> None:
        if self._judged.pop(key, None) is None:
            return
        place = self._place.pop(key)
        _discard(self._order, place)
        _discard(self._ready, place)
        for names in (self._due, self._needy, self._bound, self._untold):
            names.discard(key)


def _insert(ordered: list[Order], place: Order) -> None:
    if not ordered or ordered[-1] < place:
        ordered.append(place)
    else:
        insort(ordered, place)


def _discard(ordered: list[Order], place: Order) -> None:
    at = bisect_left(ordered, place)
    if at < len(ordered) and ordered[at] == place:
        del ordered[at]
