"""What an ended session amounts to: collect, list what is uncommitted, run the checks, commit.

Runs in the pool. Each step leaves a file (``leftovers.json``, ``receipts/``,
``outcome.json``) and is not done again when it is there, so that the files
which checks make are never taken for the agent's work.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapters.ports import Cancelled as Unstarted
from adapters.ports import Collected, Ended, Harness, Publish, Status, Termination
from daemon.kernel.contract import Bench, Receipt, verify
from daemon.kernel.git import GitError
from daemon.kernel.scratch import Leftover, Outcome, Place, Scratch
from daemon.kernel.starting import find_place, typed
from daemon.spool.sessions import Claim, read_json
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


@dataclass(frozen=True, slots=True)
class Conclude:
    """Gathered by the loop. stopped: why a person stopped it while its checks ran; then none are run."""

    session: Path
    claim: Claim
    checks: Sequence[Check]
    harness: Harness | None
    status: Status
    env: Mapping[str, str]
    check_seconds: float
    stopped: str | None
    cancelled: threading.Event


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
    place = find_place(order.session)
    leftovers = _leftovers(order.session, place, scratch, publish, notes)
    receipts: list[Receipt] = []
    if termination.kind == "clean" and order.checks and place is not None:
        make_dir(order.session / "receipts")
        receipts = verify(order.checks, _bench(order, place, leftovers, scratch, publish, reap, notes))
    outcome = _outcome(order, place, leftovers, scratch, publish, notes)
    answer = collected.answer is not None and collected.answer.strip() != ""
    # Where git fails nobody knows what changed; then what lies there uncommitted has to do.
    work = bool(outcome.files) if outcome is not None else bool(leftovers)
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
        ),
        collected=collected,
        receipts=tuple(receipts),
        place=place,
        outcome=outcome,
        ended=order.status if isinstance(order.status, Ended) else None,
        notes=tuple(notes),
        said=tuple(typed(order.session)),
    )


def _collect(order: Conclude, notes: list[str]) -> Collected:
    if order.harness is None:
        notes.append("Its harness is not in the settings any more, so its answer could not be read.")
        return Collected(Termination("lost", "no_adapter"), None)
    if isinstance(order.status, Unstarted):
        return Collected(Termination("interrupt", "not_started"), None)
    try:
        return order.harness.collect(order.session)
    except OSError:
        raise  # the disk: it may pass
    except Exception as error:  # noqa: BLE001  an adapter may be anybody's; a slot must not wait for it to be mended
        notes.append(f"Its answer could not be read: the adapter failed with {error!r}.")
        return Collected(Termination("lost", "adapter"), None)


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
        case Ended(error=error):
            return collected.termination, error
        case other:
            return Termination("lost"), getattr(other, "why", "")


def _minutes(order: Conclude) -> str:
    raw = read_json(order.session / "launch.json") or {}
    wall = raw.get("wall_s")
    return f"{float(wall) / 60:g}" if isinstance(wall, int | float) else "allowed"


def _leftovers(
    session: Path, place: Place | None, scratch: Scratch, publish: Publish, notes: list[str]
) -> list[Leftover] | None:
    """What was not committed when it ended; None where that cannot be known."""
    path = session / "leftovers.json"
    raw = read_json(path)
    if raw is None:
        if place is None:
            return None
        try:
            found = scratch.leftovers(place)
        except GitError as error:
            notes.append(
                f"What was not committed could not be listed: {error}. The files are in {place.path}."
            )
            return None
        # ASCII: a path that is not UTF-8 comes back as it was.
        raw = {"v": 1, "paths": [[entry.path, entry.why] for entry in found]}
        publish(path, json.dumps(raw).encode() + b"\n")
    return [Leftover(path, why) for path, why in raw["paths"]]


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
    raw: dict[str, Any] | None = read_json(path)
    if raw is None:
        if place is None or leftovers is None:
            return None
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
        publish(path, json.dumps(raw).encode() + b"\n")
    return Outcome(
        raw["commit"],
        tuple(raw["files"]),
        raw["diffstat"],
        tuple(Leftover(path, why) for path, why in raw["left_out"]),
    )
