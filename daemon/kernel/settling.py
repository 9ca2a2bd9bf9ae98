"""Settle a session: result.md -> settle.json (intent) -> append the result -> eval row -> rename (commit)
-> journal -> settled. From the intent on, a crash is rolled forward from wherever it left things.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from dataclasses import replace
from pathlib import Path

from daemon.errors import DocumentError, NotNow
from daemon.faults import may_pass
from daemon.kernel import evals, report
from daemon.kernel.claimed import asked, claim_of, digest, facts
from daemon.kernel.clock import Now, stamp
from daemon.kernel.concluding import changed_contract
from daemon.kernel.edits import (
    Edits,
    contract_of,
    edits_of,
    encoded_contract,
    loaded,
    refused,
    text_of,
    unheard,
)
from daemon.kernel.history import History
from daemon.kernel.parts import Parts
from daemon.kernel.starting import provenance
from daemon.kernel.whereabouts import belongs, by_name
from daemon.spool.exchange import LIMIT
from daemon.spool.sessions import STAYS, Claim, Settlement, make
from daemon.spool.states import ACTIVE, DONE, FAILED, QUEUED, SETTLED, State
from daemon.spool.store import same_name
from daemon.tracks import actions, thread
from daemon.tracks.machine import BLOCKED, summary
from daemon.tracks.track import Track


def _folder(settlement: Settlement) -> State:
    """Where its intent sends the file; what stays and cannot goes to failed/."""
    match settlement.destination:
        case "done":
            return DONE
        case "queued":
            return QUEUED
    return FAILED


class Settler:
    def __init__(self, parts: Parts, history: History, edits: Edits) -> None:
        self._parts = parts
        self._history = history
        self._edits = edits

    def settle(self, action: actions.Settle, now: Now) -> None:
        parts = self._parts
        known = claim_of(parts, action.session)
        concluded = parts.memory.concluded[action.session]
        path = parts.sessions.path(action.session)
        result = report.result(
            known, concluded, action, unheard(parts, known), refused(edits_of(parts, action.session))
        )
        text = thread.render_result(result)
        if action.termination == BLOCKED:
            text = thread.render_question(report.question(known, concluded))
        parts.files.make_dirs(path)  # somebody may have removed the whole session
        parts.files.publish(path / "result.md", text.encode("utf-8", "replace"))
        settlement = Settlement(
            session=action.session,
            item=known.item,
            termination=action.termination,
            destination=action.destination,
            at=stamp(now.wall),
            why=action.why,
            extra={
                "row": evals.row(known, self._track(known), concluded, action, now, provenance(path)),
                "checks": summary(
                    concluded.conclusion.checks,
                    concluded.conclusion.unchecked,
                    concluded.conclusion.contract,
                ),
                "contract": changed_contract(concluded.conclusion.contract),
                "edits": len(edits_of(parts, action.session)),
                "place": str(concluded.place.path) if concluded.place else None,
                "commit": concluded.outcome.commit if concluded.outcome else None,
                "next": result.next,
            },
        )
        parts.sessions.intend(settlement)
        parts.memory.intended.add(action.session)
        parts.memory.concluded.pop(action.session, None)
        self.roll_forward(action.session, now)

    def roll_forward(self, session: str, now: Now) -> None:
        """Carry out the intent, from wherever a crash left it."""
        parts = self._parts
        known = claim_of(parts, session)
        settlement = parts.sessions.settlement(session)
        assert settlement is not None
        sure = session not in parts.memory.unsure
        row = settlement.extra.get("row")
        if settlement.termination == BLOCKED:
            self._ask(known, settlement, now, sure=sure)
            return
        if settlement.destination == STAYS:
            self._write_row(row, sure=sure)
            self._next_session(known, now)
            self._history.settled(known, settlement, STAYS, now, sure=sure)
            parts.sessions.close(session, ACTIVE, known.name, stamp(now.wall))
        else:
            state = _folder(settlement)
            target = None if sure else self._already_there(known, state)
            if target is None:
                home, target = self._bring(known)
                state = home if home in SETTLED else state
                self._write_result(known, settlement, parts.store.path(home, target), state)
                self._write_row(row, sure=sure)
                if home == ACTIVE:
                    target = parts.store.move(target, ACTIVE, state)
                    # An editor may have saved an older text over the result just before; from here on it cannot.
                    with contextlib.suppress(NotNow):
                        self._write_result(known, settlement, parts.store.path(state, target), state)
            else:
                self._write_row(row, sure=False)
            self._history.settled(known, settlement, state, now, sure=sure)
            self._close(known, settlement, state, target, now)
        self._forget(session)

    def _ask(self, known: Claim, settlement: Settlement, now: Now, *, sure: bool) -> None:
        """Put its question into the file. The session stays open, without a slot, until somebody answers."""
        parts, session = self._parts, known.session
        parts.memory.unsure.add(session)
        path = parts.store.path(ACTIVE, known.name)
        if self._is_ours(path):
            self._write_result(known, settlement, path, BLOCKED)
            parts.store.look([path])
            self._edits.seen_again(known)
            parts.memory.unasked.pop(session, None)
        else:
            entry = parts.store.entries(ACTIVE).get(known.name)
            parts.memory.unasked[session] = entry.signature if entry is not None else None
        self._write_row(settlement.extra.get("row"), sure=sure)
        self._history.settled(known, settlement, STAYS, now, sure=sure)
        parts.memory.unsure.discard(session)
        parts.log.info("asks", track=known.item, session=session, question=settlement.why)

    def go_on(self, session: str, now: Now) -> None:
        """Begin the session after one that asked: with the answer, or to end the track as a person wants it."""
        parts = self._parts
        known = claim_of(parts, session)
        self._next_session(known, now, free=True)
        parts.sessions.close(session, ACTIVE, known.name, stamp(now.wall))
        self._forget(session)

    def _write_row(self, row: object, *, sure: bool) -> None:
        if isinstance(row, dict):
            path = self._parts.evals.path_of(row)
            # Git can take it away: the database is in the repository.
            self._parts.files.make_dirs(path.parent)
            self._history.make_way(path)
            self._parts.evals.write(row, sure=sure)

    def _close(self, known: Claim, settlement: Settlement, state: State, target: str, now: Now) -> None:
        parts, session = self._parts, known.session
        parts.sessions.close(session, state, target, stamp(now.wall))
        for request in asked(parts, "interrupt", known.item):
            parts.files.unlink(request.path)
        parts.log.info(
            "settled", track=known.item, session=session, to=state, termination=settlement.termination
        )

    def _forget(self, session: str) -> None:
        self._parts.memory.forget_session(session)
        self._parts.files.unlink(self._parts.workspace.wake_file(session))

    def give_up(self, session: str, why: str, now: Now) -> None:
        """What cannot be rolled forward must not hold its slot: the file moves as it is, and its result stays behind.

        Where even the file does not move, a copy of what was claimed gets the result. What the histories do not
        take is told in the log alone.
        """
        parts = self._parts
        known = claim_of(parts, session)
        settlement = parts.sessions.settlement(session)
        assert settlement is not None
        begun = parts.sessions.newest(known.item)
        if settlement.destination == STAYS and begun is not None and begun.attempt > known.attempt:
            parts.sessions.close(session, ACTIVE, known.name, stamp(now.wall))
            self._forget(session)
            return
        state = _folder(settlement)
        if settlement.destination == STAYS:
            why = f"no other attempt could be begun: {why}"
        else:
            why = f"its result, sessions/{session}/result.md, may be missing in the file: {why}"
        settlement = replace(
            settlement, destination=state, why=f"{settlement.why}; {why}" if settlement.why else why
        )
        parts.files.make_dirs(parts.sessions.path(session))
        parts.sessions.intend(settlement)
        parts.memory.intended.add(session)
        there = next(
            (home for home in SETTLED if self._is_ours(parts.store.path(home, known.name), known)), None
        )
        if there is not None:
            state, target = there, known.name  # a person has moved it there
        else:
            target = self._already_there(known, state) or self._moved(known, settlement, state)
        try:
            self._write_row(settlement.extra.get("row"), sure=False)
        except (OSError, KeyError) as error:
            parts.log.error("no row in evals", session=session, why=str(error))
        try:
            self._history.settled(known, settlement, state, now, sure=False)
        except OSError as error:
            parts.log.error("no line in the journal", session=session, why=str(error))
        self._close(known, settlement, state, target, now)
        self._forget(session)
        parts.log.error("given up", session=session, why=why)

    def _moved(self, known: Claim, settlement: Settlement, state: State) -> str:
        """The file as it is, in its settled folder; or what was claimed, with the result."""
        store = self._parts.store
        try:
            return store.move(known.name, ACTIVE, state)
        except OSError as error:
            self._parts.log.warning("not moved", track=known.item, why=str(error))
        block, target = facts(known, state, settlement), store.free_name(state, known.name)
        spec = self.patched(self._spec(known, sure=False), block, self._result(known, settlement, sure=False))
        self._put(known, spec, store.path(state, target))
        return target

    def _already_there(self, known: Claim, state: State) -> str | None:
        """The name under which a crash left it after the rename: told by the session's own marker."""
        store = self._parts.store
        for name in sorted(os.listdir(store.folder(state))):
            path = store.path(state, name)
            if not same_name(name, known.name) or not self._is_ours(path):
                continue
            if thread.has_result(self._parts.files.read(path), known.session):
                # The crash may have come before the rename was on disk, and `settled` must not be there first.
                store.sync(ACTIVE, state)
                return name
        return None

    def _track(self, known: Claim) -> Track | None:
        try:
            return loaded(self._parts, known).track
        except (OSError, ValueError, DocumentError):
            return None  # its spec.md was damaged: what it asked for is not known any more

    def _bring(self, known: Claim) -> tuple[State, str]:
        """Where the file is to which the result is appended: one file, whatever was done to it meanwhile.

        In active/ as a rule. One that a person moved to done/ or failed/ stays
        there; one moved to queued/ is taken back; what is no readable file any
        more goes to failed/ as it is, and the text as claimed takes its place.
        """
        store = self._parts.store
        path = store.path(ACTIVE, known.name)
        if self._is_ours(path):
            return ACTIVE, known.name
        if os.path.lexists(path):
            aside = store.move(known.name, ACTIVE, FAILED)
            self._parts.log.warning("not a readable file", track=known.item, moved_to=f"{FAILED}/{aside}")
        home = self._parts.memory.homes.get(known.session)
        for state, name in (
            *((home,) if home else ()),
            *((state, known.name) for state in (QUEUED, DONE, FAILED)),
        ):
            if self._is_ours(store.path(state, name), known, named=state):
                if state == QUEUED:
                    return ACTIVE, store.move(name, QUEUED, ACTIVE, to=known.name)
                return state, name
        self._restore(known, path)
        return ACTIVE, known.name

    def _is_ours(self, path: Path, known: Claim | None = None, *, named: State | None = None) -> bool:
        """A regular file that can be read and rewritten (and that is this track's).

        named: the folder in which its name may say so, if its block does not.

        Raises OSError for the disk.
        """
        try:
            found = os.lstat(path)
            if not stat.S_ISREG(found.st_mode) or found.st_size > LIMIT:
                return False
            if not os.access(path, os.R_OK, follow_symlinks=False):
                return False
            data = self._parts.files.read(path)
            if known is None:
                return True
            may = named is not None and by_name(known, named, path)
            return belongs(self._parts, known, path.name, data, named=may)
        except (NotNow, FileNotFoundError, DocumentError):
            return False

    def _write_result(self, known: Claim, settlement: Settlement, path: Path, state: str) -> None:
        """Append the result and bring the block up to date, in one exchange."""
        block = facts(known, state, settlement)
        text = self._result(known, settlement)
        self._parts.exchange.rewrite(path, known.session, lambda data: self.patched(data, block, text))

    def _result(self, known: Claim, settlement: Settlement, *, sure: bool = True) -> str:
        """What ``result.md`` says; when that is gone, what the intent itself tells. sure: as of `_spec`."""
        path = self._parts.sessions.path(known.session) / "result.md"
        try:
            return self._parts.files.read(path).decode("utf-8", "replace")
        except (NotNow, OSError) as error:
            if sure and isinstance(error, OSError) and may_pass(error, path):
                raise
            headline = f"{settlement.destination}: {settlement.termination}"
            notes = (settlement.why or "what it said is lost: its result.md is gone",)
            return thread.render_result(
                thread.Result(known.session, known.attempt, headline, answer=None, notes=notes)
            )

    def patched(self, data: bytes, block: thread.Facts, result: str) -> bytes:
        """The file with the daemon's block, and the result if there is one."""
        try:
            data = thread.rendered(data, block)
            return thread.with_result(data, block.session, result) if result else data
        except DocumentError:
            # Its frontmatter was broken by hand while it ran: the result still comes back.
            if not result or thread.has_result(data, block.session):
                return data
            return data + (b"" if data.endswith(b"\n") else b"\n") + b"\n" + result.encode()

    def _restore(self, known: Claim, path: Path) -> None:
        """The file is gone from active/: put back what is known of it, so that the result has a place."""
        self._put(known, self._spec(known), path)
        self._parts.log.warning("file was gone", track=known.item, path=str(path))

    def _spec(self, known: Claim, *, sure: bool = True) -> bytes:
        """The text as a person left it last. sure: raises OSError when it may be readable later."""
        try:
            return text_of(self._parts, known)
        except OSError as error:
            path = self._parts.sessions.path(known.session) / "spec.md"
            if sure and may_pass(error, path):
                raise
            self._parts.log.error("text cannot be read", session=known.session, why=str(error))
            where = f"Its text cannot be read: sessions/{known.session}/spec.md"
            return f"# {known.extra.get('title') or known.item}\n\n{where}\n".encode()

    def _put(self, known: Claim, data: bytes, path: Path) -> None:
        parts = self._parts
        temp = parts.store.root / ".tmp" / f"{known.session}.{secrets.token_hex(4)}.md"
        parts.files.create(temp, data)
        parts.files.move(temp, path)
        parts.files.sync_dir(path.parent)
        parts.store.look([path])

    def _next_session(self, known: Claim, now: Now, *, free: bool = False) -> None:
        """Begin the attempt after this one, unless a crash left it begun. free: it does not count as one more."""
        parts = self._parts
        newest = parts.sessions.newest(known.item)
        if newest is not None and newest.attempt > known.attempt:
            return
        ref = make(known.item, known.attempt + 1)
        if known.session in parts.memory.together:
            parts.memory.together.add(ref.id)
        spec = text_of(parts, known)
        following = replace(
            known,
            session=ref.id,
            attempt=ref.attempt,
            claimed_at=stamp(now.wall),
            extra={
                **known.extra,
                "fresh": [],
                "spec": digest(spec),
                "free": int(known.extra.get("free", 0)) + free,
                **encoded_contract(contract_of(parts, known)),
            },
        )
        parts.sessions.begin(following, spec)
