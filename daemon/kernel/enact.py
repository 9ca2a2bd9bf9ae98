"""Carry out what the machine decided: boring, in order, each step safe to repeat.

Claim:   rename (commit) -> claim.json -> journal -> render the block
Start:   place.json -> brief.md -> launch.json -> pane            (in the pool)
End:     leftovers.json -> receipts/ -> outcome.json              (in the pool)
Settle:  result.md -> settle.json (intent) -> append the result -> eval row
         -> rename (commit) -> journal -> settled
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from adapters import session as live
from adapters.errors import AdapterError, BriefUnusable, HarnessMissing, TerminalError
from adapters.ports import Ended, Harness
from daemon.durable import DISK_ERRORS
from daemon.errors import DocumentError, NotNow
from daemon.kernel import concluding, starting
from daemon.kernel.clock import Now, stamp
from daemon.kernel.contract import Cancelled
from daemon.kernel.git import GitError
from daemon.kernel.observe import Observer
from daemon.kernel.parts import Outcome, Parts
from daemon.kernel.route import NoRoute, Route
from daemon.spool import claim as claiming
from daemon.spool.exchange import content_hash
from daemon.spool.journal import TAIL, tail_rows
from daemon.spool.sessions import STAYS, Claim, Settlement, make
from daemon.spool.states import ACTIVE, DONE, FAILED, QUEUED, State
from daemon.spool.store import REASON, Entry, same_name
from daemon.tracks import actions, requests, thread
from daemon.tracks.actions import Action
from daemon.tracks.ids import MAX_LENGTH, slug
from daemon.tracks.machine import Pause, summary
from daemon.tracks.track import Loaded, load

#: Seconds to wait before a failed action is tried again: doubled each time, up to the last.
BACKOFF = (1.0, 60.0)
#: Seconds in which a runner is expected at the start gate before its window is opened again.
START_WAIT = 10.0


def _own_text(data: bytes) -> object:
    """A person's part of a file, to compare; of one that cannot be read it is all of it."""
    try:
        return thread.own_text(data)
    except DocumentError:
        return data


class DiskFault(Exception):
    """The disk refused: no new claims until it takes writes again."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"{error.strerror or error}: {error.filename or 'a file of the workspace'}")


class Enactor:
    def __init__(self, parts: Parts, observer: Observer) -> None:
        self._parts = parts
        self._observer = observer

    def enact(self, action: Action, now: Now) -> None:
        """Do one action. A failure is noted and tried again later; only DiskFault gets out."""
        subject = str(getattr(action, "session", None) or getattr(action, "name", ""))
        name = type(action).__name__
        try:
            self._do(action, now)
        except NotNow as error:
            self._pause(name, subject, now, str(error), quick=True)
        except OSError as error:
            self._pause(name, subject, now, f"{error.strerror or error} ({error.filename})")
            self._parts.log.warning("failed", action=name, subject=subject, error=str(error))
            if error.errno in DISK_ERRORS:
                raise DiskFault(error) from error
        except Exception as error:
            self._pause(name, subject, now, f"{type(error).__name__}: {error}")
            self._parts.log.error("failed", action=name, subject=subject, exc_info=True)
        else:
            # Of what the pool does, only its result says whether it worked.
            if not isinstance(action, actions.Start | actions.Reap | actions.Conclude):
                self._worked(subject)

    def _do(self, action: Action, now: Now) -> None:
        match action:
            case actions.Claim(name, state):
                self._claim(self._parts.store.entries(state)[name], now)
            case actions.Refuse(name, state, why):
                self._refuse(name, state, why, now)
            case actions.Start(session):
                self._start(session, now)
            case actions.Stop(session, why, force):
                self._stop(session, why, force, now)
            case actions.Reap(session):
                self._parts.memory.reaping.add(session)
                self._submit("reap", session, lambda: self._parts.reap(session))
            case actions.Conclude(session):
                self._conclude(session, now)
            case actions.Settle():
                self._settle(action, now)
            case actions.SetAside(name, session):
                self._set_aside(name, session)
            case actions.RollForward(session):
                self._parts.memory.unsure.add(session)
                self._roll_forward(session, now)
            case actions.Wait():
                return

    def _pause(self, action: str, subject: str, now: Now, why: str, *, quick: bool = False) -> None:
        memory = self._parts.memory
        count = memory.failures[subject] = memory.failures.get(subject, 0) + 1
        seconds = 0.5 if quick else min(BACKOFF[0] * 2.0 ** (count - 1), BACKOFF[1])
        memory.pauses[subject] = Pause(now.mono + seconds, why, action)

    def _worked(self, subject: str) -> None:
        self._parts.memory.failures.pop(subject, None)
        self._parts.memory.pauses.pop(subject, None)

    def _submit(self, kind: str, session: str, work: Callable[[], Outcome]) -> None:
        self._parts.pool.submit(kind, session, work)

    # -- claim -----------------------------------------------------------------------------------

    def _claim(self, entry: Entry, now: Now) -> None:
        parts = self._parts
        if entry.state == QUEUED:
            name, data = claiming.take(parts.store, entry)
        else:
            name, data = entry.name, claiming.read_in_place(parts.store, entry)
        # What was peeked was a hint; what was read under the lease decides.
        peek = self._observer.understand(data, entry)
        loaded = peek.loaded
        route = self._observer.route(loaded, now) if loaded is not None else None
        if loaded is None or peek.problems or peek.empty or not isinstance(route, Route):
            why = "; ".join(map(str, peek.problems)) or (
                route.why if isinstance(route, NoRoute) else "it is empty now"
            )
            if entry.state == QUEUED:
                self._put_back(name, entry.name)
            raise NotNow(f"it changed while it was taken: {why}")
        item, attempt = self._identify(data, peek.block_id, entry)
        fresh = self._fresh_request(item)
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
                "fresh": fresh is not None,
                "title": loaded.title.encode("utf-8", "replace").decode(),
            },
        )
        # Should the disk refuse from here on, the claim may stand without its line in the journal.
        parts.memory.unsure.add(ref.id)
        parts.sessions.begin(known, data)
        parts.memory.peeks.pop((entry.state, entry.name), None)
        if fresh is not None:
            parts.files.unlink(fresh)
        parts.journal.write(self._row(known, entry.state, ACTIVE, now, "claim"))
        parts.memory.unsure.discard(ref.id)
        parts.log.info("claimed", track=item, session=ref.id, harness=str(route))
        try:
            self._render(known, self._facts(known, "active"))
        except (NotNow, DocumentError) as error:
            # Only a rendering: it is made up for at settle.
            parts.log.info("not rendered", track=item, why=str(error))

    def _put_back(self, name: str, wanted: str) -> None:
        """Rename it back untouched; where the name is taken by now it stays, and is judged in active/."""
        try:
            self._parts.store.move(name, ACTIVE, QUEUED, to=wanted)
        except FileExistsError:
            self._parts.log.warning("not put back", name=name, why=f"queued/{wanted} is there again")

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
        except (DocumentError, OSError):
            return False

    def _fresh_request(self, item: str) -> Path | None:
        for request in requests.load(self._parts.workspace.requests):
            if isinstance(request, requests.Request) and request.verb == "fresh" and request.track == item:
                return request.path
        return None

    def _facts(self, known: Claim, status: str, settlement: Settlement | None = None) -> thread.Facts:
        harness, model = known.extra.get("harness", ""), known.extra.get("model")
        return thread.Facts(
            id=known.item,
            status=status,
            session=known.session,
            attempt=known.attempt,
            running=f"{harness}/{model}" if model else str(harness),
            since=known.claimed_at if settlement is None else settlement.at,
            termination=settlement.termination if settlement else None,
            reason=thread.one_line(settlement.why) or None if settlement else None,
        )

    def _render(self, known: Claim, facts: thread.Facts) -> None:
        path = self._parts.store.path(ACTIVE, known.name)
        self._parts.exchange.rewrite(path, known.session, lambda data: thread.rendered(data, facts))
        self._parts.store.look([path])

    # -- refuse ----------------------------------------------------------------------------------

    def _refuse(self, name: str, state: State, why: str, now: Now) -> None:
        parts = self._parts
        text = f"{name} was not run. What has to be changed:\n\n{why}\n\nCorrect it and move it back to queued/.\n"
        target = parts.store.refuse(name, why=text, state=state)
        parts.journal.write(self._refusal(name, state, target, why, now))
        parts.log.warning("refused", name=name, why=why)

    def _refusal(self, name: str, state: State, target: str, why: str, now: Now) -> dict[str, Any]:
        return {
            "at": stamp(now.wall),
            "name": name,
            "from": state,
            "to": FAILED,
            "by": "daemon",
            "termination": "refused",
            "why": why,
            "file": target,
        }

    # -- start -----------------------------------------------------------------------------------

    def _loaded(self, known: Claim) -> Loaded:
        """The track as it was claimed: the contract is frozen in spec.md."""
        return load((self._parts.sessions.path(known.session) / "spec.md").read_bytes(), known.name)

    def _harness(self, known: Claim) -> Harness:
        return self._parts.harnesses.get(str(known.extra.get("harness", "")))

    def _claim_of(self, session: str) -> Claim:
        known = self._parts.sessions.claim(session)
        if known is None:
            raise ValueError(f"sessions/{session}/claim.json cannot be read")
        return known

    def _environment(self, known: Claim) -> dict[str, str]:
        table = self._parts.settings.table(str(known.extra.get("harness", "")))
        return starting.environment(table.env, tuple(table.pass_env))

    def _start(self, session: str, now: Now) -> None:
        parts, memory = self._parts, self._parts.memory
        known = self._claim_of(session)
        loaded = self._loaded(known)
        refs = parts.sessions.of(known.item)
        earlier = [parts.sessions.path(ref.id) for ref in refs if ref.attempt < known.attempt]
        minutes = loaded.track.budget.minutes or float(parts.settings.limits.minutes)
        model = known.extra.get("model")
        try:
            harness = self._harness(known)
        except AdapterError as error:
            self._start_failed(session, error, now)
            return
        order = starting.Start(
            session=parts.sessions.path(session),
            claim=known,
            loaded=loaded,
            harness=harness,
            model=str(model) if model else None,
            env=self._environment(known),
            wall_s=minutes * 60.0,
            wake=parts.workspace.wake_file(session),
            earlier=tuple(reversed(earlier)),
            fresh=bool(known.extra.get("fresh")),
        )
        memory.starting.add(session)
        memory.start_tries[session] = memory.start_tries.get(session, 0) + 1
        memory.retry_at[session] = now.mono + START_WAIT
        self._submit(
            "start",
            session,
            lambda: starting.start(order, parts.scratch, parts.terminal, parts.files.publish),
        )

    # -- results of the pool ---------------------------------------------------------------------

    def take(self, kind: str, session: str, result: Outcome | BaseException, now: Now) -> None:
        """Take in what the pool has finished. Raises DiskFault."""
        memory = self._parts.memory
        if kind == "start":
            memory.starting.discard(session)
            if isinstance(result, BaseException):
                self._start_failed(session, result, now)
            else:
                self._worked(session)
        elif kind == "reap":
            memory.reaping.discard(session)
            if isinstance(result, BaseException):
                self._pool_failed("Reap", session, result, now)
            else:
                memory.reaped.add(session)
                self._worked(session)
        elif kind == "conclude":
            memory.concluding.pop(session, None)
            if isinstance(result, Cancelled):
                return
            if isinstance(result, concluding.Concluded):
                memory.concluded[session] = result
                self._worked(session)
            else:
                assert isinstance(result, BaseException)
                self._pool_failed("Conclude", session, result, now)
        elif kind == "force" and isinstance(result, BaseException):
            memory.forced.discard(session)
            self._pool_failed("Stop", session, result, now)
        elif isinstance(result, BaseException):
            self._parts.log.warning("failed", action=kind, error=str(result))

    def _start_failed(self, session: str, error: BaseException, now: Now) -> None:
        memory = self._parts.memory
        hint = f" ({error.hint})" if isinstance(error, AdapterError) and error.hint else ""
        match error:
            case TerminalError():
                # Not the track's fault, and it may pass: try for as long as it takes.
                memory.start_tries[session] = 0
                self._pause("Start", session, now, f"{error}{hint}")
            case HarnessMissing():
                memory.start_failed[session] = f"setup/harness_missing: {error}{hint}"
            case BriefUnusable():
                memory.start_failed[session] = f"setup/brief: {error}{hint}"
            case AdapterError():
                memory.start_failed[session] = f"setup/harness: {error}{hint}"
            case GitError():
                memory.start_failed[session] = f"setup/git: {error}{f' ({error.hint})' if error.hint else ''}"
            case _:
                self._pool_failed("Start", session, error, now)
                return
        self._parts.log.warning("not started", session=session, why=f"{error}{hint}")

    def _pool_failed(self, action: str, session: str, error: BaseException, now: Now) -> None:
        self._pause(action, session, now, f"{type(error).__name__}: {error}")
        self._parts.log.error("failed", action=action, session=session, exc_info=error)
        if isinstance(error, OSError) and error.errno in DISK_ERRORS:
            # Not the track's fault: a start is tried for as long as it takes.
            self._parts.memory.start_tries.pop(session, None)
            raise DiskFault(error) from error

    # -- stop ------------------------------------------------------------------------------------

    def _stop(self, session: str, why: str, force: bool, now: Now) -> None:
        memory = self._parts.memory
        path = self._parts.sessions.path(session)
        if session in memory.concluding:
            memory.concluding[session].set()
            return
        if force:
            memory.forced.add(session)
            self._submit("force", session, lambda: live.force(path))
            return
        live.interrupt(path, why)
        memory.stopped_at.setdefault(session, now.mono)
        self._parts.log.info("interrupted", session=session, why=why)

    # -- conclude --------------------------------------------------------------------------------

    def _conclude(self, session: str, now: Now) -> None:
        parts = self._parts
        known = self._claim_of(session)
        try:
            harness: Harness | None = self._harness(known)
        except AdapterError:
            harness = None
        cancelled = threading.Event()
        order = concluding.Conclude(
            session=parts.sessions.path(session),
            claim=known,
            checks=self._loaded(known).track.done_when,
            harness=harness,
            status=live.status(parts.sessions.path(session)),
            env=self._environment(known),
            check_seconds=parts.settings.limits.check_minutes * 60.0,
            stopped=self._stop_request(known.item),
            cancelled=cancelled,
        )
        parts.memory.concluding[session] = cancelled
        self._submit(
            "conclude",
            session,
            lambda: concluding.conclude(
                order, parts.scratch, parts.files.publish, parts.reap, parts.files.make_dirs
            ),
        )

    def _stop_request(self, item: str) -> str | None:
        for request in requests.load(self._parts.workspace.requests):
            if (
                isinstance(request, requests.Request)
                and request.verb == "interrupt"
                and request.track == item
            ):
                return request.why or "interrupted"
        return None

    def cancel_checks(self) -> None:
        """The daemon ends: checks are run again by the next one."""
        for event in self._parts.memory.concluding.values():
            event.set()

    # -- settle ----------------------------------------------------------------------------------

    def _settle(self, action: actions.Settle, now: Now) -> None:
        parts = self._parts
        known = self._claim_of(action.session)
        concluded = parts.memory.concluded[action.session]
        path = parts.sessions.path(action.session)
        result = self._result(known, concluded, action)
        parts.files.publish(path / "result.md", thread.render_result(result).encode("utf-8", "replace"))
        settlement = Settlement(
            session=action.session,
            item=known.item,
            termination=action.termination,
            destination=action.destination,
            at=stamp(now.wall),
            why=action.why,
            extra={
                "row": self._eval_row(known, concluded, action, now),
                "checks": summary(concluded.conclusion.checks, concluded.conclusion.unchecked),
                "place": str(concluded.place.path) if concluded.place else None,
                "commit": concluded.outcome.commit if concluded.outcome else None,
                "next": result.next,
            },
        )
        parts.sessions.intend(settlement)
        parts.memory.concluded.pop(action.session, None)
        self._roll_forward(action.session, now)

    def _result(self, known: Claim, concluded: concluding.Concluded, action: actions.Settle) -> thread.Result:
        harness, model = known.extra.get("harness", ""), known.extra.get("model")
        wall = f"{concluded.ended.wall_s:.0f} s" if concluded.ended else "not run"
        where = f"{harness}/{model}" if model else str(harness)
        # The destination is what happens next; of an attempt that stays, only the end is known.
        word = "attempt ended" if action.destination == STAYS else action.destination
        checked = summary(concluded.conclusion.checks, concluded.conclusion.unchecked)
        headline = f"{word}: {action.termination} · {checked} · {where} · {wall}"
        notes = [*([action.why] if action.why else []), *concluded.notes]
        lines = [
            thread.CheckLine(
                text=receipt.text,
                passed=receipt.passed,
                detail=receipt.detail
                or ("to judge" if receipt.passed is None else f"{receipt.seconds:.1f} s"),
                tail=receipt.tail,
            )
            for receipt in concluded.receipts
        ]
        outcome, place = concluded.outcome, concluded.place
        following = ""
        if place is not None:
            following = (
                f"look at the work in {thread.code(str(place.path))} (branch {thread.code(place.branch)})"
            )
            if action.destination == FAILED:
                following += f"; to go on from there: {thread.code(f'mh requeue {known.item}')}"
        return thread.Result(
            session=known.session,
            attempt=known.attempt,
            headline=headline,
            answer=concluded.collected.answer,
            checks=lines,
            diffstat=outcome.diffstat if outcome else "",
            left_out=[f"{entry.path} ({entry.why})" for entry in outcome.left_out] if outcome else [],
            next=following,
            notes=notes,
        )

    def _eval_row(
        self, known: Claim, concluded: concluding.Concluded, action: actions.Settle, now: Now
    ) -> dict[str, Any]:
        ended: Ended | None = concluded.ended
        usage = concluded.collected.usage
        judged = [check for check in concluded.conclusion.checks if check.passed is not None]
        passed = sum(1 for check in judged if check.passed)
        turns, calls = usage.turns, usage.tool_calls
        spent = None
        if usage.input_tokens is not None and usage.output_tokens is not None:
            spent = usage.input_tokens + usage.output_tokens
        track = self._loaded(known).track
        return {
            "v": 1,
            "type": "session",
            "session_id": known.session,
            "track_id": known.item,
            "project_id": track.project_id,
            "kind": track.kind,
            "attempt": known.attempt,
            "harness_id": known.extra.get("harness"),
            "harness_version": concluded.collected.harness_version,
            "model_id": known.extra.get("model"),
            "route": known.extra.get("route"),
            "claimed_at": known.claimed_at,
            "started_at": ended.started_at if ended else None,
            "finished_at": ended.ended_at if ended else None,
            "settled_at": stamp(now.wall),
            "wall_s": round(ended.wall_s, 3) if ended else None,
            "termination": action.termination,
            "destination": action.destination,
            "contract": {
                "checks": len(judged),
                "passed": passed,
                "adherence": round(passed / len(judged), 4) if judged else None,
                "to_judge": len(concluded.conclusion.checks) - len(judged),
            },
            "outcome_label": None,
            "swaps": 0,
            "flags": [],
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
            "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
            "turns": turns,
            "tool_calls": calls,
            "tool_calls_per_turn": round(calls / turns, 4) if calls is not None and turns else None,
            "tokens_per_turn": round(spent / turns, 1) if spent is not None and turns else None,
            "cost_usd": usage.cost_usd,
            "cost_basis": usage.cost_basis,
            "mddb": [],
        }

    def _roll_forward(self, session: str, now: Now) -> None:
        """Carry out the intent, from wherever a crash left it."""
        parts = self._parts
        known = self._claim_of(session)
        settlement = parts.sessions.settlement(session)
        assert settlement is not None
        sure = session not in parts.memory.unsure
        row = settlement.extra.get("row")
        if settlement.destination == STAYS:
            if isinstance(row, dict):
                parts.evals.write(row, sure=sure)
            self._next_session(known, now)
            self._journal(known, settlement, STAYS, now, sure=sure)
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
            self._journal(known, settlement, state, now, sure=sure)
            parts.sessions.close(session, state, target, stamp(now.wall))
            self._drop_requests(known.item)
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
        facts = self._facts(known, state, settlement)

        path = parts.store.path(ACTIVE, known.name)
        if not path.exists():
            self._restore(known, path)
        parts.exchange.rewrite(path, known.session, lambda data: self._patched(data, facts, text))

    def _patched(self, data: bytes, facts: thread.Facts, result: str) -> bytes:
        """The file with the daemon's block, and the result if there is one."""
        try:
            data = thread.rendered(data, facts)
            return thread.with_result(data, facts.session, result) if result else data
        except DocumentError:
            # Its frontmatter was broken by hand while it ran: the result still comes back.
            if not result or thread.has_result(data, facts.session):
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
            extra={**known.extra, "fresh": False},
        )
        parts.sessions.begin(following, spec)

    def _row(self, known: Claim, old: str, new: str, now: Now, why: str) -> dict[str, Any]:
        return {
            "at": stamp(now.wall),
            "id": known.item,
            "name": known.name,
            "session": known.session,
            "from": old,
            "to": new,
            "by": "daemon",
            "why": why,
        }

    def _journal(self, known: Claim, settlement: Settlement, state: str, now: Now, *, sure: bool) -> None:
        if not sure:
            self._journal_claim(known, {(row.get("session"), row.get("to")) for row in self._tail()}, now)
            if self._parts.journal.has(known.session, state):
                return
        row = self._row(known, ACTIVE, state, now, settlement.why or settlement.termination)
        row["termination"] = settlement.termination
        if not sure:
            row["by"] = "recovered"
        self._parts.journal.write(row)

    def _drop_requests(self, item: str) -> None:
        for request in requests.load(self._parts.workspace.requests):
            if (
                isinstance(request, requests.Request)
                and request.verb == "interrupt"
                and request.track == item
            ):
                self._parts.files.unlink(request.path)

    # -- late edits ------------------------------------------------------------------------------

    def _set_aside(self, name: str, session: str) -> None:
        """An editor saved the file of a settled track back into active/: text to merge, nothing to run."""
        path = self._parts.store.path(ACTIVE, name)
        self._parts.exchange.set_aside(path, session)
        self._parts.store.look([path])
        self._parts.log.info("saved after its end", name=name, session=session)

    def merge_late(self, session: str, theirs: bytes, ours: str) -> None:
        """A person's text that came out of an exchange, or was saved into it later: put it where the track is now."""
        parts = self._parts
        known = parts.sessions.claim(session)
        if known is not None and (newest := parts.sessions.newest(known.item)) is not None:
            known = parts.sessions.claim(newest.id)
        path = self._file_of(known) if known is not None else None
        if known is not None and path is not None:
            there = parts.files.read(path)
            if _own_text(theirs) == _own_text(there):
                return
            spec = parts.files.read(parts.sessions.path(session) / "spec.md")
            untouched = content_hash(there) == ours or _own_text(there) == _own_text(spec)
            # An old buffer knows nothing of later attempts, nor of what was replied to them.
            if untouched and thread.results(there) <= {*thread.results(theirs), known.session}:
                self._put_on_top(path, known, there, theirs)
                return
        # Two different texts of a person: neither may win by itself. Both are kept.
        folder = parts.sessions.path(session)
        home = folder if folder.is_dir() else parts.store.root / ".displaced"
        kept = home / f"late-save-{content_hash(theirs)[:12]}.md"
        if not kept.exists():
            parts.files.publish(kept, theirs)
        parts.log.warning("late save kept", session=session, path=str(kept))

    def _put_on_top(self, path: Path, known: Claim, there: bytes, theirs: bytes) -> None:
        """Their text, with the daemon's block and result as they stand in the file now. Raises NotNow."""
        parts = self._parts
        settlement = parts.sessions.settlement(known.session)
        settled = settlement if settlement is not None and settlement.destination != STAYS else None
        facts = self._facts(known, str(settled.destination) if settled is not None else ACTIVE, settled)
        result = ""
        if thread.has_result(there, known.session):
            raw = parts.files.read(parts.sessions.path(known.session) / "result.md")
            result = raw.decode("utf-8", "replace")

        def patch(data: bytes) -> bytes:
            if data != there:
                raise NotNow(f"{path.name} has just changed")
            return self._patched(theirs, facts, result)

        parts.exchange.rewrite(path, known.session, patch)
        parts.store.look([path])
        parts.log.info("late save merged", track=known.item, path=str(path))

    def _file_of(self, known: Claim) -> Path | None:
        place = self._parts.sessions.place(known.session)
        if place is not None and place[0] in (DONE, FAILED):
            return self._observer.place_of(known.session)
        path = self._parts.store.path(ACTIVE, known.name)
        return path if path.is_file() else None

    # -- at start --------------------------------------------------------------------------------

    def recover_journal(self, now: Now) -> None:
        """Claims and refusals whose line was swallowed, by a crash or by a disk that refused, get one.

        Settled sessions are seen to when they roll forward.
        """
        parts = self._parts
        parts.store.clear_temps(now.wall)
        parts.store.clear_reasons()
        rows = self._tail()
        written = {(row.get("session"), row.get("to")) for row in rows}
        for ref in parts.sessions.open():
            known = parts.sessions.claim(ref.id)
            if known is not None:
                self._journal_claim(known, written, now)
            if parts.sessions.settlement(ref.id) is not None:
                parts.memory.unsure.add(ref.id)
        self._journal_refusals(rows, now)

    def _tail(self) -> list[dict[str, Any]]:
        return list(tail_rows(self._parts.journal.path))

    def _journal_claim(self, known: Claim, written: set[tuple[Any, Any]], now: Now) -> None:
        if (known.session, ACTIVE) not in written and known.attempt == known.round:
            row = self._row(known, QUEUED, ACTIVE, now, "claim")
            self._parts.journal.write({**row, "by": "recovered"})

    def _journal_refusals(self, rows: list[dict[str, Any]], now: Now) -> None:
        parts = self._parts
        written = {(row.get("file"), row.get("why")) for row in rows if row.get("termination") == "refused"}
        names = parts.store.names(FAILED)
        cut = bool(rows) and parts.journal.path.stat().st_size > TAIL
        for target in sorted(name.removesuffix(REASON) for name in names if name.endswith(f".md{REASON}")):
            path = parts.store.path(FAILED, f"{target}{REASON}")
            # What is older than the part of the journal that was read has its line before it.
            if target not in names or (cut and stamp(path.stat().st_mtime) < str(rows[0].get("at"))):
                continue
            text = parts.files.read(path).decode("utf-8", "replace")
            if not any(target == file and str(why) in text for file, why in written):
                row = self._refusal(target, QUEUED, target, text, now)
                parts.journal.write({**row, "by": "recovered"})
