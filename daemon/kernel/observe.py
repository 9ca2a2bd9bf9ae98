"""One look at the world: files in, frozen observations out. Changes nothing on disk."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from adapters import session as live
from adapters.ports import Cancelled, Ended, Lost, NotStarted, Running
from daemon.errors import DocumentError, NotNow
from daemon.faults import may_pass
from daemon.kernel.claimed import settlement, status_of
from daemon.kernel.clock import Now, seconds
from daemon.kernel.edits import Edits, edits_of, unheard
from daemon.kernel.memory import Peek
from daemon.kernel.parts import Parts
from daemon.kernel.projects import refusals, with_address
from daemon.kernel.room import Judged, Key, Room
from daemon.kernel.route import NoRoute, Route
from daemon.kernel.whereabouts import Whereabouts
from daemon.spool import claim as claiming
from daemon.spool.sessions import STAYS, Claim, Ref, Settlement, is_shut, parse
from daemon.spool.states import ACTIVE, DONE, FAILED, QUEUED, State
from daemon.spool.store import Entry
from daemon.tracks import requests, thread
from daemon.tracks.ids import is_id, slug
from daemon.tracks.machine import (
    BLOCKED,
    Attempt,
    Blocked,
    Candidate,
    Edited,
    Fault,
    Hold,
    Live,
    Observed,
    Over,
    Parked,
    Session,
    Settling,
    Unknown,
    Unstarted,
    Wish,
    World,
)
from daemon.tracks.track import Loaded, Time, TrackId, load, parse_after

OPEN: tuple[State, ...] = (QUEUED, ACTIVE)
#: Seconds for which a bad file is shown before it is refused, counted from its last change.
FAULT_SHOWN = 10.0
EMPTY_SHOWN = 60.0
#: Seconds after which a missing harness is looked for again.
LOOK_AGAIN = 30.0
#: Seconds that a session waits, once it has been judged, for its file to come to rest.
PATIENCE = 60.0
#: How many predecessors are followed to find one that waits for the track itself.
CHAIN = 200
#: Seconds after its end in which the same text under the same name in queued/ is an edit, not a new track.
JUST_SETTLED = 60.0


@dataclass(slots=True)
class _Queue:
    """What holds for all the files that wait.

    ids: the names of the files that go by an id, for `after`. astray: tracks that are worked on and whose file is
        not in active/.
    riddles: track -> its open session whose claim cannot be read.
    names: open session -> the name of its file, and whether it is being settled.
    refused: open session -> why nobody can say now where its file is.
    """

    ids: Mapping[str, list[str]] = field(default_factory=dict)
    names: dict[str, tuple[str, bool]] = field(default_factory=dict)
    astray: set[str] = field(default_factory=set)
    riddles: dict[str, str] = field(default_factory=dict)
    refused: dict[str, OSError] = field(default_factory=dict)


def _interned(text: str | None) -> str | None:
    return sys.intern(text) if text is not None else None


class Observer:
    """`shown`: how many of the files that wait are in the world though nothing is due for them; None: all."""

    def __init__(self, parts: Parts, shown: int | None = None) -> None:
        self._parts = parts
        self.edits = Edits(parts)
        self.whereabouts = Whereabouts(parts, self.peek)
        self._by_name: dict[State, tuple[int, frozenset[str]]] = {}
        self._shown = shown
        self.room = Room(shown)
        self._begun = False
        #: How many more wait than are in the world.
        self.hidden = 0
        self._owners: dict[str, list[str]] = {}
        self._ids_known: dict[Key, tuple[str, ...]] = {}
        self._ids_changed = False
        self._before: tuple[_Queue, set[str]] = (_Queue(), set())
        self._settled_seen = (-1, -1)
        self._clock: float | None = None

    def observe(self, now: Now, *, claim: bool = True, closed: str = "") -> World:
        """Everything that the machine decides from."""
        stops = self._stops()
        found: list[Observed] = []
        held: set[str] = set()
        queue = _Queue(self._owners)
        opened = self._parts.sessions.open()
        for ref in opened:
            known = self._parts.sessions.claim(ref.id)
            if known is None:
                queue.riddles[ref.item] = ref.id
                continue
            name = self.whereabouts.name(known, held, now)
            held.add(name)
            queue.names[ref.id] = (name, False)
            if name not in self._parts.store.entries(ACTIVE):
                queue.astray.add(ref.item)
            if (refused := self.whereabouts.note(replace(known, name=name), now)) is not None:
                queue.refused[ref.id] = refused
        for ref in opened:
            observed = self._guarded(
                ref.id,
                ref.id,
                lambda ref=ref: self._session(ref, stops, now, queue.refused.get(ref.id)),  # type: ignore[misc]
                slot=True,
            )
            if observed is not None:
                found.append(observed)
            if ref.id in queue.names:
                queue.names[ref.id] = (queue.names[ref.id][0], isinstance(observed, Settling))
        slots = sum(
            each.slot if isinstance(each, Parked) else not isinstance(each, Blocked) for each in found
        )
        free = self._parts.settings.limits.slots - slots if claim else 0
        try:
            self._gather(now, queue, held)
            listed = self.room.look(now.mono, max(0, free), lambda key: self._judge(key, now, queue, held))
        except BaseException:
            # What had changed is not known any more: everything is looked at again.
            self.room = Room(self._shown)
            self._begun = False
            raise
        self.hidden = max(0, len(self._parts.memory.arrivals) - len(listed))
        return World((*found, *listed), claiming=claim, closed=closed)

    # -- one faulty track never stops the loop --------------------------------------------------

    def _guarded(
        self, subject: str, signature: object, look: Callable[[], Observed | None], *, slot: bool = False
    ) -> Observed | None:
        parked = self._parts.memory.parked
        if subject in parked:
            known, seen = parked[subject]
            if seen == signature:
                return known
            del parked[subject]
        try:
            return look()
        except OSError as error:
            # The disk's trouble, not a fault of ours: looked at again.
            return Parked(subject, f"{error.strerror or error}: {error.filename}", slot, ours=False)
        except Exception:  # noqa: BLE001  # a fault of ours must stop this track only
            fault = Parked(subject, traceback.format_exc(), slot)
            parked[subject] = (fault, signature)
            self._parts.log.error("parked", subject=subject, traceback=fault.traceback)
            return fault

    # -- sessions --------------------------------------------------------------------------------

    def _stops(self) -> dict[str, str]:
        """track id -> why, for every request to interrupt."""
        return {
            request.track: request.why or "interrupted"
            for request in requests.load(self._parts.workspace.requests)
            if isinstance(request, requests.Request) and request.verb == "interrupt"
        }

    def _session(
        self, ref: Ref, stops: dict[str, str], now: Now, refused: OSError | None
    ) -> Session | Blocked | Parked | None:
        sessions, memory = self._parts.sessions, self._parts.memory
        known = sessions.claim(ref.id)
        if is_shut(sessions.path(ref.id)):
            # The same, until somebody opens it again: how it stands cannot be known.
            alive = live.lives(sessions.path(ref.id))
            why = f"its permissions were taken: chmod 700 sessions/{ref.id}"
            return Parked(ref.id, why, alive, ours=False)
        if known is None:
            # Nothing is started beside it and nothing is ended; it holds a slot only while it lives.
            alive = live.lives(sessions.path(ref.id))
            return Parked(ref.id, f"sessions/{ref.id}/claim.json cannot be read", alive, ours=False)
        if refused is not None and not live.lives(sessions.path(ref.id)):
            # Its file may be where a person wants it ended: nothing is begun before that is known.
            raise refused
        attempt = self._attempt(known, now)
        pause = memory.pauses.get(ref.id)
        status = status_of(self._parts, ref.id)
        if isinstance(status, Running):
            if ref.id not in memory.running and edits_of(self._parts, ref.id):
                memory.undelivered.add(ref.id)  # what was saved while it was on its way to the start gate
            # From here on nothing that stands in its directory says that it is over.
            memory.running.add(ref.id)
            memory.watched.add(ref.id)
        path = sessions.path(ref.id)
        stop = stops.get(known.item) or (attempt.wish.why if attempt.wish is not None else None)
        intent = settlement(self._parts, ref.id)
        asks = intent is not None and intent.termination == BLOCKED
        if intent is not None and asks and ref.id not in memory.unsure and not self._is_back(known):
            newest = sessions.newest(known.item)
            return Blocked(
                attempt,
                intent.why,
                answered=self._is_answered(ref.id, intent),
                followed=newest is not None and newest.attempt > known.attempt,
                stop=stop,
                pause=pause,
            )
        if intent is not None:
            return Settling(attempt, pause)
        match status:
            case NotStarted():
                return Unstarted(
                    attempt,
                    busy=ref.id in memory.starting,
                    tries=memory.start_tries.get(ref.id, 0),
                    retry_at=memory.retry_at.get(ref.id, 0.0),
                    failed=memory.start_failed.get(ref.id, ""),
                    stop=stop,
                    pause=pause,
                )
            case Running():
                if stop is None and os.path.lexists(path / "interrupt.json"):
                    stop = "interrupted"
                return Live(
                    attempt,
                    stop=stop,
                    stopped_at=memory.stopped_at.get(ref.id),
                    forced=ref.id in memory.forced,
                    pause=pause,
                )
            case Lost(why=why) if ref.id not in memory.reaped:
                return Unknown(attempt, why, busy=ref.id in memory.reaping, pause=pause)
            case Ended() | Cancelled() | Lost():
                concluded = memory.concluded.get(ref.id)
                cancelled = memory.concluding.get(ref.id)
                return Over(
                    attempt,
                    busy=cancelled is not None,
                    stopping=cancelled is not None and cancelled.is_set(),
                    conclusion=concluded.conclusion if concluded else None,
                    stop=stop,
                    pause=pause,
                )
        raise AssertionError("no such status")

    def _attempt(self, known: Claim, now: Now) -> Attempt:
        """What is known of it, and what a person has done with its file."""
        free = known.extra.get("free", 0)
        attempt = Attempt(
            known.item,
            known.session,
            known.name,
            known.attempt,
            known.round,
            str(known.extra.get("harness", "")),
            free=free if isinstance(free, int) else 0,
        )
        store = self._parts.store
        entry = store.entries(ACTIVE).get(known.name)
        if known.session in self._parts.memory.concluded:
            # The last look before it is settled; an event of a save, or of a move, may have been missed.
            store.look([store.path(ACTIVE, known.name)])
            before, entry = entry, store.entries(ACTIVE).get(known.name)
            vanished = before is not None and entry is None  # and was noted as there
            if vanished and (refused := self.whereabouts.note(known, now)) is not None:
                raise refused
        if entry is not None:
            edited = self._patiently(known.session, self.edits.look(known, entry, now), now)
            return replace(attempt, edited=edited, unheard=self._has_not_heard(known))
        if (wish := self.wish(known, now)) is not None:
            return replace(attempt, wish=wish)
        until = self.whereabouts.away_until(known, now)
        edited = Edited(until) if until is not None else None
        return replace(attempt, edited=edited, puzzle=self.whereabouts.puzzle(known), away=until)

    def _has_not_heard(self, known: Claim) -> bool:
        """Asked once it is judged: before that it may still hear."""
        return known.session in self._parts.memory.concluded and unheard(self._parts, known) > 0

    def _patiently(self, session: str, edited: Edited | None, now: Now) -> Edited | None:
        """A file that never comes to rest must not keep its session from being settled."""
        memory = self._parts.memory
        if edited is None or session not in memory.concluded:
            return edited
        since = memory.waiting_since.setdefault(session, now.mono)
        return edited if now.mono - since < PATIENCE else None

    def wish(self, known: Claim, now: Now) -> Wish | None:
        """What a person wants with its file, by where they have put it; None: it is in its place, or away for now."""
        return self.whereabouts.wish(known, now)

    def _is_back(self, known: Claim) -> bool:
        """Whether its file was away when it asked, and the question can be put into it now."""
        unasked = self._parts.memory.unasked
        entry = self._parts.store.entries(ACTIVE).get(known.name)
        return known.session in unasked and entry is not None and entry.signature != unasked[known.session]

    def _is_answered(self, session: str, intent: Settlement) -> bool:
        """Whether a person has written something since it asked."""
        asked = intent.extra.get("edits", 0)
        return any(
            edit.message for edit in edits_of(self._parts, session)[asked if isinstance(asked, int) else 0 :]
        )

    # -- files that wait -------------------------------------------------------------------------

    def _gather(self, now: Now, queue: _Queue, held: set[str]) -> None:
        """Find what has to be judged again."""
        store, memory, room = self._parts.store, self._parts.memory, self.room
        untold = room.untold(now.mono)
        with contextlib.suppress(OSError):  # a folder that is shut: the loop's own look says so
            store.look(store.path(*key) for key in untold)
        changed = store.changes()
        if not self._begun:
            self._begun = True
            changed = {(state, name) for state in OPEN for name in store.entries(state)}
            changed |= memory.arrivals.keys()
        before, held_before = self._before
        self._before = queue, set(held)
        # What a session works on does not wait, and what it leaves or settles may be saved once more.
        names = held ^ held_before
        for session in queue.names.keys() | before.names.keys():
            one, other = queue.names.get(session), before.names.get(session)
            if one != other:
                names |= {name for name, _ in filter(None, (one, other))}
        changed |= {(state, name) for name in names for state in OPEN}
        new = []
        for key in changed:
            state, name = key
            entry = store.entries(state).get(name)
            if entry is None or (state == ACTIVE and name in held):
                self._forget(key)
                continue
            if key not in memory.arrivals:
                new.append(entry)
        # Whatever was there before the daemon came is in the order of its last change.
        for entry in sorted(new, key=lambda entry: (entry.ctime_ns, entry.name)):
            memory.arrivals[entry.state, entry.name] = memory.next_arrival
            memory.next_arrival += 1
            # By its name at least: what others wait for may be among those that are read later.
            self._own((entry.state, entry.name), entry)
        there = [key for key in changed if key in memory.arrivals]
        room.touch(sorted(there, key=lambda key: memory.arrivals[key]))
        room.touch(untold)
        # Set, or stood still with the machine: a time of day comes at another moment than was thought.
        offset, was = now.wall - now.mono, self._clock
        stepped, self._clock = was is not None and abs(offset - was) > claiming.CLOCK_STEP, offset
        if stepped or (queue.astray, queue.riddles) != (before.astray, before.riddles):
            room.touch_all()
        settled = (store.version(DONE), store.version(FAILED))
        if queue.names != before.names or settled != self._settled_seen or self._ids_changed:
            room.touch_bound()
        self._settled_seen, self._ids_changed = settled, False

    def has(self, track: str) -> bool:
        """Whether a file that waits goes by this id."""
        return track in self._owners

    def again(self, now: float) -> float | None:
        """When to look again at the latest for what waits (monotonic s); None: when something changes."""
        return now if self._ids_changed else self.room.again(now)

    def _forget(self, key: Key) -> None:
        self.room.forget(key)
        self._parts.memory.peeks.pop(key, None)
        self._parts.memory.arrivals.pop(key, None)
        self._parts.stillness.forget(*key)
        self._disown(key)

    def _own(self, key: Key, entry: Entry) -> None:
        """Note which ids it goes by."""
        ids = tuple(dict.fromkeys(self._ids_of(entry)))
        if self._ids_known.get(key) == ids:
            return
        self._disown(key)
        self._ids_known[key] = ids
        for track in ids:
            self._owners.setdefault(track, []).append(entry.name)
        self._ids_changed = True

    def _disown(self, key: Key) -> None:
        for track in self._ids_known.pop(key, ()):
            names = self._owners[track]
            names.remove(key[1])
            if not names:
                del self._owners[track]
            self._ids_changed = True

    def _judge(self, key: Key, now: Now, queue: _Queue, held: set[str]) -> Judged | None:
        entry = self._parts.store.entries(key[0]).get(key[1])
        if entry is None or key not in self._parts.memory.arrivals:
            return None
        untold: list[str] = []
        before = self._follows(key)
        observed = self._guarded(
            entry.name, entry.signature, lambda: self._candidate(entry, now, queue, held, untold)
        )
        if observed is None:
            return None
        self._own(key, entry)
        if (follows := self._follows(key)) != before:
            # It may have closed a circle, or opened one: that is news to all who are in it.
            own = set(self._ids_of(entry))
            circle = self._circle(before, own, queue) | self._circle(follows, own, queue)
            self.room.touch([other for other in circle if other != key])
        if not isinstance(observed, Candidate):
            return Judged(observed, untold=isinstance(observed, Parked) and not observed.ours)
        moments = [hold.until for hold in observed.holds]
        if observed.fault is not None:
            moments.append(observed.fault.refuse_at)
        later = [moment for moment in moments if moment is not None and moment > now.mono]
        return Judged(observed, min(later, default=None), bool(follows) or None in moments, bool(untold))

    def _follows(self, key: Key) -> tuple[str, ...]:
        """The tracks that this file waits for, as far as it has been read."""
        peek = self._parts.memory.peeks.get(key)
        return tuple(each.id for each in peek.after if isinstance(each, TrackId)) if peek is not None else ()

    def peek(self, entry: Entry) -> Peek:
        """Read a file that has changed since it was read last. Raises NotNow, OSError."""
        key = (entry.state, entry.name)
        known = self._parts.memory.peeks.get(key)
        if known is not None and known.signature == entry.signature:
            return known
        with self._parts.files.opened(self._parts.store.path(entry.state, entry.name)) as opened:
            data = opened.read(claiming.FILE_LIMIT)
        peek, _ = self.understand(data, entry)
        self._parts.memory.peeks[key] = peek
        return peek

    def understand(self, data: bytes, entry: Entry) -> tuple[Peek, Loaded | None]:
        """What these bytes ask for, or everything that is wrong with them."""
        try:
            loaded = with_address(load(data, entry.name), self._parts.resolver)
        except DocumentError as error:
            return Peek(entry.signature, problems=error.problems), None
        if loaded.is_empty:
            return Peek(entry.signature, readable=True, empty=True), loaded
        try:
            after = tuple(parse_after(text, entry.mtime) for text in loaded.track.after)
        except DocumentError as error:
            return Peek(entry.signature, problems=error.problems), None
        claimed = loaded.track.block.get("id", "")
        track = loaded.track
        peek = Peek(
            entry.signature,
            readable=True,
            # The same few names in very many files.
            harness_id=_interned(track.harness_id),
            model_id=_interned(track.model_id),
            project_id=_interned(track.project_id),
            kind=_interned(track.kind),
            priority=loaded.track.priority,
            block_id=claimed if is_id(claimed) else None,
            block_session=loaded.track.block.get("session", ""),
            problems=tuple(refusals(loaded, self._parts.resolver)),
            after=after,
        )
        return peek, loaded

    def _ids_of(self, entry: Entry) -> Iterable[str]:
        peek = self._parts.memory.peeks.get((entry.state, entry.name))
        if peek is not None and peek.block_id is not None:
            yield peek.block_id
        yield slug(entry.name[: -len(".md")])

    def _candidate(
        self, entry: Entry, now: Now, queue: _Queue, held: set[str], untold: list[str]
    ) -> Candidate | None:
        """`untold`: takes the reasons to wait of whose end no event tells."""
        store, memory = self._parts.store, self._parts.memory
        candidate = Candidate(entry.name, entry.state, memory.arrivals[entry.state, entry.name])
        if why := claiming.odd(entry, self._parts.uid):
            untold.append(why)
            return replace(candidate, holds=(Hold(why, needs_you=True),))
        lock = claiming.editor_lock(
            store.folder(entry.state), entry.name, store.others(entry.state), now.wall
        )
        still = self._parts.stillness.judge(entry, now.mono, now.wall, lock)
        holds: list[Hold] = []
        pause = memory.pauses.get(entry.name)
        if pause is not None and pause.until > now.mono:
            holds.append(Hold(f"tried again soon: {pause.why}", pause.until, needs_you=pause.stuck))
        if isinstance(still, claiming.Stirring):
            holds.append(Hold(still.why, still.until))
            untold += [still.why] if still.until is None else []
        try:
            peek = self.peek(entry)
        except NotNow as error:
            return replace(candidate, holds=(Hold(str(error), now.mono + 1.0),))
        except FileNotFoundError:
            return None
        except PermissionError:
            untold.append("permission denied")
            return replace(
                candidate,
                holds=(Hold("it cannot be read: permission denied", unblock="chmod u+r it", needs_you=True),),
            )
        except OSError as error:
            return replace(candidate, holds=(Hold(f"it cannot be read: {error.strerror}", now.mono + 1.0),))
        if (late := self._late_save_of(entry, peek, now)) is not None:
            return replace(candidate, holds=tuple(holds), late=late)
        if peek.problems or peek.empty:
            return replace(candidate, fault=self._fault(entry, peek, now), holds=tuple(holds))
        assert peek.readable
        if (riddle := self._unreadable_claim(entry, queue)) is not None:
            holds.append(
                Hold(f"sessions/{riddle} may be working on it: its claim.json cannot be read", needs_you=True)
            )
        if (owner := parse(peek.block_session)) is not None and owner.item in queue.astray:
            holds.append(Hold("it is still being worked on: it was moved here from active/"))
        elif entry.name in held and entry.state == QUEUED and entry.name not in store.entries(ACTIVE):
            # Taken now it would get the very name under which the running one expects its own file.
            holds.append(Hold("waits until the running track of the same name has ended"))
        holds += self._after(peek.after, entry, now, queue)
        if not holds:
            route = self._parts.router.route(peek, now.mono)
            if isinstance(route, NoRoute):
                again = LOOK_AGAIN if route.again_s is None else route.again_s
                holds.append(Hold(route.why, now.mono + again, route.unblock, needs_you=True))
        return replace(candidate, priority=peek.priority, holds=tuple(holds))

    def _fault(self, entry: Entry, peek: Peek, now: Now) -> Fault:
        shown = EMPTY_SHOWN if peek.empty else FAULT_SHOWN
        text = "\n".join(map(str, peek.problems)) or "the file is empty: write what is to be done"
        still_for = self._parts.stillness.unchanged_for(entry, now.mono, now.wall)
        return Fault(text, now.mono + max(0.0, shown - still_for))

    def _unreadable_claim(self, entry: Entry, queue: _Queue) -> str | None:
        """An open session of this track that nothing explains: nothing is started beside it."""
        if not queue.riddles:
            return None
        for item in self._ids_of(entry):
            newest = self._parts.sessions.newest(item) if item in queue.riddles else None
            if newest is not None and newest.id == queue.riddles[item]:
                return newest.id
        return None

    def _late_save_of(self, entry: Entry, peek: Peek, now: Now) -> str | None:
        """The session whose file this is once more: an editor's late save, unless that file was moved here.

        In queued/ only while the track runs or shortly after: later it is the
        same task dropped again. And only what has no block of ours, or an
        earlier session's: a file that was moved there names the newest one.
        """
        if not peek.readable:
            return None
        for item in self._ids_of(entry):
            newest = self._parts.sessions.newest(item)
            known = self._parts.sessions.claim(newest.id) if newest is not None else None
            if newest is None or known is None or known.name != entry.name:
                continue
            if entry.state == QUEUED and peek.block_id is not None and peek.block_session in ("", newest.id):
                continue
            if not self._has_place(newest.id, known.name, entry, now):
                continue
            if self._is_late(entry, newest.id):
                return newest.id
        return None

    def _is_late(self, entry: Entry, session: str) -> bool:
        """Whether it begins as that track does and, in queued/, the settled file can take its text."""
        read, path = self._parts.files.read, self.place_of(session)
        try:
            theirs = read(self._parts.store.path(entry.state, entry.name))
            spec = read(self._parts.sessions.path(session) / "spec.md")
            if not thread.begins_like(theirs, spec):
                return False
            if path is None or entry.state != QUEUED or thread.own_text(theirs) == thread.own_text(spec):
                return True
            return thread.builds_on(theirs, read(path), spec, session)
        except (DocumentError, NotNow):
            return False
        except OSError as error:
            # A disk that refuses is no answer: it is looked at again, and nothing is started because of it.
            if error.filename is not None and may_pass(error, Path(error.filename)):
                raise
            return False

    def _has_place(self, session: str, name: str, entry: Entry, now: Now) -> bool:
        """Whether this session's own file is somewhere else, where such a text can be merged."""
        intent = self._intent(session)
        if intent is None:
            return entry.state == QUEUED and name in self._parts.store.entries(ACTIVE)
        ended = seconds(intent.at)
        # An end in the future: the clock was set back since, and nothing can be told from the two times.
        recent = entry.ctime_ns / 1e9 - ended < JUST_SETTLED and ended - now.wall < JUST_SETTLED
        return self.place_of(session) is not None and (entry.state == ACTIVE or recent)

    # -- predecessors ----------------------------------------------------------------------------

    def _after(
        self, after: Iterable[Time | TrackId], entry: Entry, now: Now, queue: _Queue
    ) -> Iterator[Hold]:
        own: set[str] | None = None
        for moment in after:
            if isinstance(moment, Time):
                if now.wall < moment.at:
                    yield Hold(f"waits until {moment.text}", now.mono + moment.at - now.wall)
                continue
            wanted = moment.id
            own = set(self._ids_of(entry)) if own is None else own
            state = "itself" if wanted in own else self.state_of(wanted, queue.ids)
            match state:
                case "done":
                    continue
                case "failed":
                    yield Hold(
                        f"waits for {wanted}, which has failed",
                        unblock=f"`mh why {wanted}`; requeue that one, or take it out of `after`",
                        needs_you=True,
                    )
                case "unknown":
                    yield Hold(
                        f"waits for {wanted}, and there is no track with this id",
                        unblock="correct `after`, or drop that track",
                        needs_you=True,
                    )
                case "itself":
                    yield Hold("waits for itself", unblock="take it out of `after`", needs_you=True)
                case "queued" if self._circle((wanted,), own, queue):
                    yield Hold(
                        f"waits for {wanted}, which waits for this one",
                        unblock="take one of the two out of `after`",
                        needs_you=True,
                    )
                case other:
                    yield Hold(f"waits for {wanted}, which is {other}")

    def _circle(self, wanted: Iterable[str], own: set[str], queue: _Queue) -> set[Key]:
        """The files through which what is `wanted` leads back to the track itself; none if it does not."""
        left = list(wanted)
        seen, found = set(left), set[Key]()
        while left and len(seen) < CHAIN:
            track = left.pop()
            if track in own:
                return found
            for name in queue.ids.get(track, [])[:1]:
                found.add((QUEUED, name))
                for follows in self._follows((QUEUED, name)):
                    if follows not in seen:
                        seen.add(follows)
                        left.append(follows)
        return set()

    def _intent(self, session: str) -> Settlement | None:
        """How a session of any age was settled; for one that is still open only the daemon's own intent counts."""
        if any(ref.id == session for ref in self._parts.sessions.open()):
            return settlement(self._parts, session)
        return self._parts.sessions.settlement(session)

    def state_of(self, track_id: str, queued: Container[str]) -> str:
        """``done``, ``failed``, ``queued``, ``active`` or ``unknown``."""
        if track_id in queued:
            return "queued"
        newest = self._parts.sessions.newest(track_id)
        if newest is not None:
            intent = self._intent(newest.id)
            if intent is None or intent.destination == STAYS:
                return "active"
            return intent.destination
        for state in (DONE, FAILED):
            if track_id in self._settled_ids(state):
                return state
        return "unknown"

    def _settled_ids(self, state: State) -> frozenset[str]:
        """The ids that the names in a settled folder give; made anew only when the names have changed."""
        store, known = self._parts.store, self._by_name.get(state)
        version = store.version(state)
        if known is None or known[0] != version:
            names = store.names(state)
            ids = frozenset(slug(name[: -len(".md")]) for name in names if name.endswith(".md"))
            self._by_name[state] = known = (version, ids)
        return known[1]

    # -- what claiming needs ---------------------------------------------------------------------

    def route(self, loaded: Loaded, now: Now) -> Route | NoRoute:
        return self._parts.router.route(loaded.track, now.mono)

    def place_of(self, session: str) -> Path | None:
        """Where the file of a settled session lies now, if it is still there."""
        place = self._parts.sessions.place(session)
        if place is None or place[0] not in (DONE, FAILED):
            return None
        state: State = DONE if place[0] == DONE else FAILED
        path = self._parts.store.path(state, place[1])
        return path if os.path.isfile(path) else None
