"""What an ended session amounts to: collect, list what is uncommitted, run the checks, commit.

Runs in the pool. Each step leaves a file (``leftovers.json``, ``receipts/``,
``outcome.json``) and is not done again when it is there, so that the files
which checks make are never taken for the agent's work.
"""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from adapters.ports import Cancelled as Unstarted
from adapters.ports import Collected, Ended, Harness, Publish, Status, Termination
from daemon.faults import passes
from daemon.git import GitError
from daemon.kernel.clock import seconds
from daemon.kernel.contract import Bench, Receipt, verify
from daemon.kernel.scratch import Leftover, Outcome, Place, Scratch, count_files
from daemon.kernel.starting import own_place, typed
from daemon.spool.sessions import Claim, read_json
from daemon.tracks import thread
from daemon.tracks.changes import Contract
from daemon.tracks.machine import CheckResult, Conclusion
from daemon.tracks.track import Check, Prose


@dataclass(frozen=True, slots=True)
class Concluded:
    """For the machine the conclusion; for the result and the eval row the rest."""

    conclusion: Conclusion
    collected: Collected
    receipts: tuple[Receipt, ...]
    place: Place | None
    outcome: Outcome | None
    ended: Ended | None
    notes: tuple[str, ...]
    said: tuple[str, ...] = ()


def given_up(why: str) -> Concluded:
    """A session of which nothing can be said, because what it takes cannot be read or written."""
    conclusion = Conclusion(kind="lost", code="unreadable", feedback=False, why=why)
    return Concluded(conclusion, Collected(Termination("lost", "unreadable"), None), (), None, None, None, ())


@dataclass(frozen=True, slots=True)
class Conclude:
    """Gathered by the loop.

    stopped: why a person stopped it while its checks ran; then none are run. before: the sessions of this
    stay in ``active/`` before this one, oldest first: the file has no results of theirs. place: where it
    works, if this daemon remembers it. contract: what became of spec.md while it ran, if anything. changed: how
    a person changed the checks meanwhile.
    """

    session: Path
    claim: Claim
    checks: Sequence[Check]
    harness: Harness | None
    status: Status
    env: Mapping[str, str]
    check_seconds: float
    stopped: str | None
    cancelled: threading.Event
    before: Sequence[Path] = ()
    place: Place | None = None
    contract: Literal["", "restored", "unknown"] = ""
    changed: Contract | None = None


def conclude(
    order: Conclude,
    scratch: Scratch,
    publish: Publish,
    reap: Callable[[str], int],
    make_dir: Callable[[Path], None],
) -> Concluded:
    """Raises contract.Cancelled when the event is set while checks run, OSError for the disk."""
    notes: list[str] = []
    collected = _collect(order, notes)
    termination, why = _termination(order, collected)
    if order.contract == "restored":
        notes.append("Its spec.md was changed while it ran; what counts is the contract as it was claimed.")
    place = order.place or own_place(order.session, order.claim.item, scratch)
    if place is None and os.path.lexists(order.session / "place.json"):
        notes.append("Where it worked cannot be read any more: its place.json is damaged.")
    # Before the checks: what they make is not the agent's work.
    leftovers, lying = _leftovers(order.session, place, scratch, publish, notes)
    receipts: list[Receipt] = []
    # A script says what it says: only who reads instructions can be asking.
    reads = order.harness is not None and order.harness.capabilities().prose
    question = thread.asked(collected.answer) if termination.kind == "clean" and reads else None
    if termination.kind == "clean" and question is None and order.checks and place is not None:
        _make_receipts(order.session / "receipts", make_dir)
        receipts = verify(order.checks, _bench(order, place, leftovers, scratch, publish, reap, notes))
    outcome = _outcome(order, place, leftovers, scratch, publish, notes)
    answer = collected.answer is not None and collected.answer.strip() != ""
    # Where git fails nobody knows what changed; then what lies there has to do.
    work = bool(outcome.files) if outcome is not None else bool(leftovers) or lying > 0
    runnable = sum(1 for check in order.checks if not isinstance(check, Prose))
    return Concluded(
        conclusion=Conclusion(
            kind=termination.kind,
            code=termination.code,
            checks=tuple(CheckResult(receipt.text, receipt.passed) for receipt in receipts),
            unchecked=0 if receipts else runnable,
            produced=answer or work,
            feedback=order.harness is not None and order.harness.capabilities().feedback,
            why=why,
            question=question or "",
            contract=order.changed,
        ),
        collected=collected,
        receipts=tuple(receipts),
        place=place,
        outcome=outcome,
        ended=order.status if isinstance(order.status, Ended) else None,
        notes=tuple(notes),
        said=tuple(text for session in (*order.before, order.session) for text in typed(session)),
    )


def _collect(order: Conclude, notes: list[str]) -> Collected:
    if order.harness is None:
        notes.append("Its harness is not in the settings any more, so its answer could not be read.")
        return Collected(Termination("lost", "no_adapter"), None)
    if isinstance(order.status, Unstarted):
        return Collected(Termination("interrupt", "not_started"), None)
    for name in ("events.jsonl", "stderr.log"):
        if _odd(order.session / name):
            notes.append(f"Its answer could not be read: {name} is not a plain file.")
            return Collected(_recorded(order.status), None)
    try:
        return order.harness.collect(order.session)
    except OSError as error:
        if passes(error):
            raise
        # The agent can write in its session's directory: what it put there is no reason to try for ever.
        notes.append(f"Its answer could not be read: {error}.")
        return Collected(_recorded(order.status), None)
    except Exception as error:  # noqa: BLE001  an adapter may be anybody's; a slot must not wait for it to be mended
        notes.append(f"Its answer could not be read: the adapter failed with {error!r}.")
        return Collected(Termination("lost", "adapter"), None)


def _odd(path: Path) -> bool:
    """Whether it is there and no plain file: a pipe or a device may never end, or fail as a broken disk does."""
    try:
        return not stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _recorded(status: Status) -> Termination:
    """What the runner alone can say of an end, where the harness's own words cannot be read."""
    match status:
        case Ended(code=0):
            return Termination("clean")
        case Ended(code=int(code)):
            return Termination("crash", f"exit_{code}")
        case Ended(signal=int(number)):
            return Termination("crash", f"signal_{number}")
    return Termination("lost", "unreadable")


def _make_receipts(path: Path, make_dir: Callable[[Path], None]) -> None:
    try:
        make_dir(path)
    except OSError as error:
        if passes(error):
            raise
        # Then no check can be kept, and each of them says so.


def _keep(path: Path, raw: Mapping[str, Any], publish: Publish, notes: list[str]) -> None:
    try:
        # ASCII: a path that is not UTF-8 comes back as it was.
        publish(path, json.dumps(raw).encode() + b"\n")
    except OSError as error:
        if passes(error):
            raise
        notes.append(f"{path.name} could not be kept: {error.strerror}.")


def _entries(rows: object) -> list[Leftover] | None:
    """None: nothing that the daemon wrote."""
    if not isinstance(rows, list):
        return None
    found = []
    for row in rows:
        match row:
            case [str(path), str(why)] if path and "\0" not in path:
                found.append(Leftover(path, why))
            case _:
                return None
    return found


def _termination(order: Conclude, collected: Collected) -> tuple[Termination, str]:
    """The daemon's own knowledge outranks the harness's account."""
    if order.stopped is not None:
        return Termination("interrupt", "by_person"), order.stopped
    match order.status:
        case Unstarted(why=why):
            kind, _, rest = why.partition(": ")
            if kind.startswith("setup/"):
                return Termination("setup", kind.removeprefix("setup/")), rest
            return Termination("interrupt", "by_person"), why
        case Ended(reason="interrupted"):
            raw = read_json(order.session / "interrupt.json") or {}
            return Termination("interrupt", "by_person"), str(raw.get("why", ""))
        case Ended(reason="wall"):
            return Termination("budget", "minutes"), f"it ran longer than its {_minutes(order)} minutes"
        case Ended(reason="terminated"):
            return Termination("crash", "terminated"), "its runner was told to end by another program"
        case Ended(reason="failed", error=error):
            return Termination("setup", "spawn"), error
        case Ended() if order.contract == "unknown" and collected.termination.kind == "clean":
            return Termination(
                "incomplete", "contract"
            ), "its spec.md was changed: what it had to do is not known"
        case Ended(error=error):
            return collected.termination, error
        case other:
            return Termination("lost"), getattr(other, "why", "")


def changed_contract(changed: Contract | None) -> str:
    """What receipts and the result say of it; empty where it is as it was claimed."""
    if changed is None:
        return ""
    at = time.strftime("%H:%M", time.localtime(seconds(changed.at)))
    added = ", checks were only added" if changed.only_added else ""
    return f"contract changed at {at}{added}; was: {'; '.join(map(thread.code, changed.was)) or 'no checks'}"


def _minutes(order: Conclude) -> str:
    raw = (read_json(order.session / "launch.json") or {}) | (read_json(order.session / "limits.json") or {})
    wall = raw.get("wall_s")
    return f"{float(wall) / 60:g}" if isinstance(wall, int | float) else "allowed"


def _leftovers(
    session: Path, place: Place | None, scratch: Scratch, publish: Publish, notes: list[str]
) -> tuple[list[Leftover] | None, int]:
    """What was not committed when it ended; None where that cannot be known, then with a count of what lies there."""
    path = session / "leftovers.json"
    known = _entries((read_json(path) or {}).get("paths"))
    if known is not None or place is None:
        return known, 0
    try:
        found = scratch.leftovers(place)
    except GitError as error:
        count = count_files(place.path)
        files = "1 file lies" if count == 1 else f"{count}{' or more' if count >= 1000 else ''} files lie"
        notes.append(f"What changed could not be listed: {error}; {files} in {place.path}.")
        return None, count
    _keep(path, {"v": 1, "paths": [[entry.path, entry.why] for entry in found]}, publish, notes)
    return found, 0


def _bench(
    order: Conclude,
    place: Place,
    leftovers: Sequence[Leftover] | None,
    scratch: Scratch,
    publish: Publish,
    reap: Callable[[str], int],
    notes: list[str],
) -> Bench:
    commit, changed = place.base, None
    if leftovers is not None:
        try:
            commit, changed = scratch.head(place), scratch.changed(place, leftovers)
        except GitError as error:
            notes.append(f"The changes since the start could not be listed: {error}.")
    return Bench(
        workdir=place.path,
        session=order.session,
        session_id=order.claim.session,
        env=order.env,
        commit=commit,
        uncommitted=None if leftovers is None else [entry.path for entry in leftovers],
        changed=changed,
        timeout=order.check_seconds,
        publish=publish,
        reap=reap,
        cancelled=order.cancelled,
        contract=changed_contract(order.changed),
    )


def _outcome(
    order: Conclude,
    place: Place | None,
    leftovers: Sequence[Leftover] | None,
    scratch: Scratch,
    publish: Publish,
    notes: list[str],
) -> Outcome | None:
    path = order.session / "outcome.json"
    known = _decoded(read_json(path) or {})
    if known is not None or place is None or leftovers is None:
        return known
    message = f"{order.claim.item}: left uncommitted by attempt {order.claim.attempt}"
    try:
        outcome = scratch.commit(place, leftovers, message)
    except GitError as error:
        notes.append(f"What was left could not be committed: {error}. The files are in {place.path}.")
        return None
    raw = {
        "v": 1,
        "commit": outcome.commit,
        "files": list(outcome.files),
        "diffstat": outcome.diffstat,
        "left_out": [[entry.path, entry.why] for entry in outcome.left_out],
    }
    _keep(path, raw, publish, notes)
    return outcome


def _decoded(raw: Mapping[str, Any]) -> Outcome | None:
    """None: it is not there, or is nothing that the daemon wrote."""
    left_out = _entries(raw.get("left_out"))
    match raw:
        case {"commit": str(commit), "files": [*files], "diffstat": str(diffstat)} if (
            left_out is not None and all(isinstance(name, str) for name in files)
        ):
            return Outcome(commit, tuple(files), diffstat, tuple(left_out))
    return None
