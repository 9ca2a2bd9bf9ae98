"""Settle a session: result.md -> settle.json (intent) -> append the result -> eval row -> rename (commit)
-> journal -> settled. From the intent on, a crash is rolled forward from wherever it left things.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import replace
from pathlib import Path

from daemon.errors import DocumentError
from daemon.kernel import evals, report
from daemon.kernel.claimed import asked, claim_of, facts, loaded
from daemon.kernel.clock import Now, stamp
from daemon.kernel.history import History
from daemon.kernel.parts import Parts
from daemon.spool.sessions import STAYS, Claim, Settlement, make
from daemon.spool.states import ACTIVE, DONE, FAILED, State
from daemon.spool.store import same_name
from daemon.tracks import actions, thread
from daemon.tracks.machine import summary


class Settler:
    def __init__(self, parts: Parts, history: History) -> None:
        self._parts = parts
        self._history = history

    def settle(self, action: actions.Settle, now: Now) -> None:
        parts = self._parts
        known = claim_of(parts, action.session)
        concluded = parts.memory.concluded[action.session]
        path = parts.sessions.path(action.session)
        result = report.result(known, concluded, action)
        parts.files.publish(path / "result.md", thread.render_result(result).encode("utf-8", "replace"))
        settlement = Settlement(
            session=action.session,
            item=known.item,
            termination=action.termination,
            destination=action.destination,
            at=stamp(now.wall),
            why=action.why,
            extra={
                "row": evals.row(known, loaded(parts, known).track, concluded, action, now),
                "checks": summary(concluded.conclusion.checks, concluded.conclusion.unchecked),
                "place": str(concluded.place.path) if concluded.place else None,
                "commit": concluded.outcome.commit if concluded.outcome else None,
                "next": result.next,
            },
        )
        parts.sessions.intend(settlement)
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
        if settlement.destination == STAYS:
            if isinstance(row, dict):
                parts.evals.write(row, sure=sure)
            self._next_session(known, now)
            self._history.settled(known, settlement, STAYS, now, sure=sure)
            parts.sessions.close(session, ACTIVE, known.name, stamp(now.wall))
        else:
            state: State = DONE if settlement.destination == DONE else FAILED
            target = None if sure else self._already_there(known, state)
            if target is None:
                self._write_result(known, settlement, state)
                if isinstance(row, dict):
                    parts.evals.write(row, sure=sure)
                target = parts.store.move(known.name, ACTIVE, state)
            elif isinstance(row, dict):
                parts.evals.write(row, sure=False)
            self._history.settled(known, settlement, state, now, sure=sure)
            parts.sessions.close(session, state, target, stamp(now.wall))
            for request in asked(parts, "interrupt", known.item):
                parts.files.unlink(request.path)
            parts.log.info(
                "settled", track=known.item, session=session, to=state, termination=settlement.termination
            )
        parts.memory.forget_session(session)
        parts.files.unlink(parts.workspace.wake_file(session))

    def _already_there(self, known: Claim, state: State) -> str | None:
        """The name under which a crash left it after the rename: told by the session's own marker."""
        store = self._parts.store
        for name in sorted(os.listdir(store.folder(state))):
            path = store.path(state, name)
            if not same_name(name, known.name) or not path.is_file():
                continue
            if thread.has_result(self._parts.files.read(path), known.session):
                # The crash may have come before the rename was on disk, and `settled` must not be there first.
                store.sync(ACTIVE, state)
                return name
        return None

    def _write_result(self, known: Claim, settlement: Settlement, state: State) -> None:
        """Append the result and bring the block up to date, in one exchange."""
        parts = self._parts
        text = (parts.sessions.path(known.session) / "result.md").read_bytes().decode("utf-8", "replace")
        block = facts(known, state, settlement)
        path = parts.store.path(ACTIVE, known.name)
        if not path.exists():
            self._restore(known, path)
        parts.exchange.rewrite(path, known.session, lambda data: self.patched(data, block, text))

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
        parts = self._parts
        spec = parts.files.read(parts.sessions.path(known.session) / "spec.md")
        temp = parts.store.root / ".tmp" / f"{known.session}.{secrets.token_hex(4)}.md"
        parts.files.create(temp, spec)
        parts.files.move(temp, path)
        parts.files.sync_dir(path.parent)
        parts.store.look([path])
        parts.log.warning("file was gone", track=known.item, path=str(path))

    def _next_session(self, known: Claim, now: Now) -> None:
        """Begin the attempt after this one, unless a crash left it begun."""
        parts = self._parts
        newest = parts.sessions.newest(known.item)
        if newest is not None and newest.attempt > known.attempt:
            return
        ref = make(known.item, known.attempt + 1)
        spec = parts.files.read(parts.sessions.path(known.session) / "spec.md")
        following = replace(
            known,
            session=ref.id,
            attempt=ref.attempt,
            claimed_at=stamp(now.wall),
            extra={**known.extra, "fresh": []},
        )
        parts.sessions.begin(following, spec)
