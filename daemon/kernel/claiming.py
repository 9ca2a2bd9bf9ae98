"""Claim a file: rename (commit) -> claim.json -> journal -> render the block. Or refuse it."""

from __future__ import annotations

from daemon.errors import DocumentError, NotNow
from daemon.kernel import evals
from daemon.kernel.claimed import asked, digest, facts
from daemon.kernel.clock import Now, stamp
from daemon.kernel.edits import text_of
from daemon.kernel.history import History
from daemon.kernel.observe import Observer
from daemon.kernel.parts import Parts
from daemon.kernel.projects import frozen
from daemon.kernel.route import NoRoute, Route
from daemon.mddb.resolver import DatabaseFault
from daemon.spool import claim as claiming
from daemon.spool.sessions import Claim, make
from daemon.spool.states import ACTIVE, DONE, QUEUED, State
from daemon.spool.store import Entry
from daemon.tracks import thread
from daemon.tracks.ids import MAX_LENGTH, slug


class Claimer:
    def __init__(self, parts: Parts, observer: Observer, history: History) -> None:
        self._parts = parts
        self._observer = observer
        self._history = history

    def claim(self, entry: Entry, now: Now) -> None:
        parts = self._parts
        if entry.state == QUEUED:
            name, data = self._take(entry)
        else:
            name, data = entry.name, claiming.read_in_place(parts.store, entry)
        # What was peeked was a hint; what was read under the lease decides.
        peek, loaded = self._observer.understand(data, entry)
        route = self._observer.route(loaded, now) if loaded is not None else None
        if loaded is None or peek.problems or peek.empty or not isinstance(route, Route):
            why = "; ".join(map(str, peek.problems)) or (
                route.why if isinstance(route, NoRoute) else "it is empty now"
            )
            self._put_back(name, entry)
            raise NotNow(f"it changed while it was taken: {why}")
        try:
            project = frozen(loaded, parts.resolver)
        except DatabaseFault as fault:
            self._put_back(name, entry)
            raise NotNow(str(fault)) from fault
        item, attempt = self._identify(data, peek.block_id, entry)
        self._label(item, data, now)
        fresh = asked(parts, "fresh", item)
        ref = make(item, attempt)
        known = Claim(
            session=ref.id,
            item=item,
            name=name,
            attempt=attempt,
            round=attempt,
            claimed_at=stamp(now.wall),
            extra={
                "harness": route.harness,
                "model": route.model,
                "route": route.by,
                # By name: a crash before they are removed must not make a later claim fresh too.
                "fresh": [request.path.name for request in fresh],
                "title": loaded.title.encode("utf-8", "replace").decode(),
                "spec": digest(data),
                **project,
            },
        )
        # Should the disk refuse from here on, the claim may stand without its line in the journal.
        parts.memory.unsure.add(ref.id)
        parts.sessions.begin(known, data)
        parts.memory.peeks.pop((entry.state, entry.name), None)
        for request in fresh:
            parts.files.unlink(request.path)
        self._history.claimed(known, entry.state, now)
        parts.memory.unsure.discard(ref.id)
        parts.log.info("claimed", track=item, session=ref.id, harness=str(route))
        try:
            self._render(known, data)
        except (NotNow, DocumentError) as error:
            # Only a rendering: it is made up for at settle.
            parts.log.info("not rendered", track=item, why=str(error))

    def _take(self, entry: Entry) -> tuple[str, bytes]:
        # A person may take a file away at the very moment at which another of its name is taken.
        claims = (self._parts.sessions.claim(ref.id) for ref in self._parts.sessions.open())
        return claiming.take(self._parts.store, entry, {known.name for known in claims if known is not None})

    def _put_back(self, name: str, entry: Entry) -> None:
        """Rename it back untouched, if it came from there; where the name is taken by now it is judged in active/."""
        if entry.state != QUEUED:
            return
        try:
            self._parts.store.move(name, ACTIVE, QUEUED, to=entry.name)
        except FileExistsError:
            self._parts.log.warning("not put back", name=name, why=f"queued/{entry.name} is there again")

    def _identify(self, data: bytes, block_id: str | None, entry: Entry) -> tuple[str, int]:
        """(id, attempt). The id in the block counts if no other file owns it: a copy is a new track."""
        sessions = self._parts.sessions
        if block_id is not None and not self._owned(block_id):
            newest = sessions.newest(block_id)
            return block_id, newest.attempt + 1 if newest else 1
        base, number = slug(entry.name[: -len(".md")]), 1
        candidate = base
        while sessions.newest(candidate) is not None or self._parts.scratch.taken(candidate):
            number += 1
            tail = f"-{number}"
            candidate = base[: MAX_LENGTH - len(tail)].rstrip("-") + tail
        return candidate, 1

    def _owned(self, item: str) -> bool:
        """Whether another file has this id: an active one, or the settled one still in its place."""
        newest = self._parts.sessions.newest(item)
        if newest is None:
            return self._parts.scratch.taken(item)
        if self._parts.sessions.place(newest.id) is None:
            return True
        settled = self._observer.place_of(newest.id)
        if settled is None:
            return False
        try:
            return thread.block_id(self._parts.files.read(settled)) == item
        except FileNotFoundError:
            return False
        except DocumentError:
            return True  # broken by hand, and still in its place

    def _render(self, known: Claim, claimed: bytes) -> None:
        path = self._parts.store.path(ACTIVE, known.name)
        block = facts(known, ACTIVE)
        written = self._parts.exchange.rewrite(path, known.session, lambda data: thread.rendered(data, block))
        self._parts.store.look([path])
        if written == thread.rendered(claimed, block):
            self._observer.edits.seen(known)

    def _label(self, item: str, data: bytes, now: Now) -> None:
        """Sent back from done/ without a word more: a person says that it was not done."""
        parts = self._parts
        newest = parts.sessions.newest(item)
        known = parts.sessions.claim(newest.id) if newest is not None else None
        settlement = parts.sessions.settlement(newest.id) if newest is not None else None
        if known is None or settlement is None or settlement.destination != DONE:
            return
        try:
            same = thread.own_text(data) == thread.own_text(text_of(parts, known))
        except (OSError, DocumentError):
            return  # what it said before cannot be read any more: nobody can tell
        finally:
            parts.memory.forget_session(known.session)
        if same:
            self._history.make_way(parts.evals.path_of(row := evals.label(known, "not met", now)))
            parts.evals.write(row, sure=False)

    def refuse(self, name: str, state: State, why: str, now: Now) -> None:
        parts = self._parts
        text = f"{name} was not run. What has to be changed:\n\n{why}\n\nCorrect it and move it back to queued/.\n"
        with parts.files.opened(parts.store.path(state, name)) as opened:
            opened.lease()  # a program that has it open has not written everything yet
            entry, found = parts.store.entries(state).get(name), opened.stat
            if entry is None or (found.st_ino, found.st_ctime_ns, found.st_size) != entry.signature:
                raise NotNow(f"{name} has just changed")
            target = parts.store.refuse(name, why=text, state=state)
        self._history.refused(name, state, target, why, now)
        parts.log.warning("refused", name=name, why=why)
