"""Text that a person saved too late for the place they saved it to: merged, or kept, never run, never lost."""

from __future__ import annotations

import os
from pathlib import Path

from daemon.errors import DocumentError, NotNow
from daemon.kernel.claimed import facts
from daemon.kernel.observe import Observer
from daemon.kernel.parts import Parts
from daemon.kernel.settling import Settler
from daemon.spool.exchange import content_hash
from daemon.spool.sessions import STAYS, Claim
from daemon.spool.states import ACTIVE, DONE, FAILED, QUEUED, State
from daemon.spool.store import same_name
from daemon.tracks import thread


def _own_text(data: bytes) -> object:
    """A person's part of a file, to compare; of one that cannot be read it is all of it."""
    try:
        return thread.own_text(data)
    except DocumentError:
        return data


class LateSaves:
    def __init__(self, parts: Parts, observer: Observer, settler: Settler) -> None:
        self._parts = parts
        self._observer = observer
        self._settler = settler

    def set_aside(self, name: str, state: State, session: str) -> None:
        """An editor saved a track's file to where it was before: text to merge, nothing to run."""
        path = self._parts.store.path(state, name)
        # What lies in queued/ is there to be run; what appears in active/ is an editor's, of what it was.
        self._parts.exchange.set_aside(path, session, again=state == QUEUED)
        self._parts.store.look([path])
        self._parts.log.info("saved where it was before", name=name, state=state, session=session)

    def merge(self, session: str, theirs: bytes, ours: str, again: bool) -> None:
        """A person's text that came out of an exchange, or was saved into it later: put it where the track is now.

        again: it was saved to be run. When its track was settled in the
        meantime, and it says something else than what was run, it is queued.
        """
        parts = self._parts
        for left in parts.sessions.path(session).glob(".late-save-*.tmp"):
            parts.files.unlink(left)  # a crash came while it was kept, and nobody tidies a settled session
        known = parts.sessions.claim(session)
        if known is not None and (newest := parts.sessions.newest(known.item)) is not None:
            known = parts.sessions.claim(newest.id)
        path = self._file_of(known) if known is not None else None
        if known is not None and path is not None:
            there = parts.files.read(path)
            spec = parts.files.read(parts.sessions.path(session) / "spec.md")
            if again and _own_text(theirs) == _own_text(spec):
                parts.log.info("saved as it was: not run again", track=known.item, way="mh requeue")
                return
            if _own_text(theirs) == _own_text(there):
                self._queue(known, path, again)
                return
            ours_alone = content_hash(there) == ours and thread.results(there) <= {
                *thread.results(theirs),
                known.session,
            }
            if ours_alone or thread.builds_on(theirs, there, spec, known.session):
                self._put_on_top(path, known, there, theirs)
                self._queue(known, path, again)
                return
        # Two different texts of a person: neither may win by itself. Both are kept.
        folder = parts.sessions.path(session)
        home = folder if os.path.isdir(folder) else parts.store.root / ".displaced"
        kept = home / f"late-save-{content_hash(theirs)[:12]}.md"
        if not os.path.lexists(kept):
            parts.files.publish(kept, theirs)
        parts.log.warning("late save kept", session=session, path=str(kept))

    def _put_on_top(self, path: Path, known: Claim, there: bytes, theirs: bytes) -> None:
        """Their text, with the daemon's block and result as they stand in the file now. Raises NotNow."""
        parts = self._parts
        settlement = parts.sessions.settlement(known.session)
        settled = settlement if settlement is not None and settlement.destination != STAYS else None
        block = facts(known, str(settled.destination) if settled is not None else ACTIVE, settled)
        result = ""
        if thread.has_result(there, known.session):
            raw = parts.files.read(parts.sessions.path(known.session) / "result.md")
            result = raw.decode("utf-8", "replace")

        def patch(data: bytes) -> bytes:
            if data != there:
                raise NotNow(f"{path.name} has just changed")
            return self._settler.patched(theirs, block, result)

        parts.exchange.rewrite(path, known.session, patch, merging=True)
        parts.store.look([path])
        parts.log.info("late save merged", track=known.item, path=str(path))

    def _queue(self, known: Claim, path: Path, again: bool) -> None:
        """A settled track whose text was changed in queued/ goes on with it, as if its file had been moved there."""
        parts = self._parts
        ran = parts.sessions.path(known.session) / "spec.md"
        if not again or path.parent.name not in (DONE, FAILED):
            return
        if _own_text(parts.files.read(path)) == _own_text(parts.files.read(ran)):
            return  # a crash came in between: it has run since
        settled: State = DONE if path.parent.name == DONE else FAILED
        name = parts.store.move(path.name, settled, QUEUED)
        parts.log.info("changed in queued/ after its end: it goes on", track=known.item, name=name)

    def _file_of(self, known: Claim) -> Path | None:
        place = self._parts.sessions.place(known.session)
        if place is not None and place[0] in (DONE, FAILED):
            return self._observer.place_of(known.session) or self._queued_again(known)
        path = self._parts.store.path(ACTIVE, known.name)
        return path if os.path.isfile(path) else None

    def _queued_again(self, known: Claim) -> Path | None:
        """Its file, which was moved from where it was settled back into the queue."""
        for name in sorted(self._parts.store.names(QUEUED)):
            if not same_name(name, known.name):
                continue
            path = self._parts.store.path(QUEUED, name)
            try:
                if thread.block_session(self._parts.files.read(path)) == known.session:
                    return path
            except (DocumentError, OSError):
                continue
        return None
