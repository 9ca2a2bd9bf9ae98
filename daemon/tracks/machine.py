"""The machine: what was observed in, what is to be done out.

    queued file       -> Wait | Refuse | Claim            (a slot, quiet, predecessors, a harness)
    saved too late    -> SetAside                         (of a track that runs or was settled: merged, not run)
    claimed           -> Start                            (again after a crash: the start gate lets one through)
    running           -> Wait | Stop                      (by force when asking did not help)
    outcome unknown   -> Reap, then Conclude as ``lost``
    ended             -> Conclude (collect, checks) -> Settle: done | failed | stays
    intent on disk    -> RollForward                      (stays: begins the next session of the track)
    asks a person     -> Wait                             (without a slot) -> GoOn, when the answer is there
    file was edited   -> TakeEdit                         (at any time while it is open, and before it is settled)
    file was moved, or deleted -> Stop, then Settle where the person wants it

Slow actions run beside the loop (`busy`), and one that failed is held back
for a while (`pause`); neither keeps a person from stopping a track.

Pure: no clock, no files. The first tick after a crash asks the same
questions of the same files; there is no second path for recovery.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from daemon.spool.states import State
from daemon.tracks.actions import (
    Action,
    Claim,
    Conclude,
    Destination,
    GoOn,
    Reap,
    Refuse,
    RollForward,
    SetAside,
    Settle,
    Start,
    Stop,
    TakeEdit,
    Wait,
)
from daemon.tracks.changes import Contract

#: Seconds a runner has to end its tree before it is ended from outside.
STOP_GRACE = 30.0
#: What settle.json says of a session that ended with a question.
BLOCKED = "blocked"
#: How often a window is opened for a session whose runner never reaches the start gate.
START_TRIES = 5


@dataclass(frozen=True, slots=True)
class Limits:
    """slots: sessions at once. attempts: sessions of one stay in active/ before checks that fail are final."""

    slots: int
    attempts: int


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with the file; it is refused at `refuse_at` (monotonic s) unless it changes before."""

    text: str
    refuse_at: float


@dataclass(frozen=True, slots=True)
class Hold:
    """Why the file is left alone for now."""

    why: str
    until: float | None = None
    unblock: str = ""
    needs_you: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that no session works on: in queued/, or dropped into active/.

    holds: every reason not to take it, most telling first; empty: it may be taken.
    late: the session whose file an editor has saved once more, to a place it had left.
    """

    name: str
    state: State
    arrival: int
    priority: int = 0
    fault: Fault | None = None
    holds: tuple[Hold, ...] = ()
    late: str | None = None


@dataclass(frozen=True, slots=True)
class Edited:
    """A person has saved the file, and what they changed has not been taken in. until: when it is quiet."""

    until: float | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person asks for with the file itself: they moved it to the folder `to`, or deleted it (``failed``)."""

    to: Literal["done", "failed", "queued"]
    why: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """What is known of a session in every phase.

    free: sessions of this stay in active/ that do not count against the allowed attempts.
    puzzle: what happened to its file and may be no wish at all; a person is asked.
    unheard: a message of a person that this session has not got, and the next one could act upon.
    away: until when its file, which is gone, may come back (monotonic s); then it was deleted.
    """

    track: str
    session: str
    name: str
    number: int
    round: int
    harness: str
    free: int = 0
    edited: Edited | None = None
    wish: Wish | None = None
    puzzle: str = ""
    unheard: bool = False
    away: float | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """The action of this name failed for the session; it, and nothing else, waits until `until` (monotonic s)."""

    until: float
    why: str
    action: str
    #: It has failed several times in a row, so a person should know.
    stuck: bool = False


@dataclass(frozen=True, slots=True)
class Unstarted:
    """Claimed; nothing has passed the start gate."""

    attempt: Attempt
    busy: bool = False
    tries: int = 0
    retry_at: float = 0.0
    failed: str = ""
    stop: str | None = None
    pause: Pause | None = None


@dataclass(frozen=True, slots=True)
class Live:
    """A runner holds its lock. stopped_at: when it was told to end (monotonic s)."""

    attempt: Attempt
    note: str = ""
    stop: str | None = None
    stopped_at: float | None = None
    forced: bool = False
    pause: Pause | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """It started, nobody holds the lock, and no end is recorded. busy: its tree is being ended."""

    attempt: Attempt
    why: str
    busy: bool = False
    pause: Pause | None = None


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of the contract as it was judged. passed None: prose, for a person or a review to judge."""

    text: str
    passed: bool | None


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What an ended session amounts to.

    kind, code: the session's own account (``clean``: ended by itself without an error).
    unchecked: how many checks of the contract were not run: all, where it did not end clean.
    produced: there is a diff or an answer.
    feedback: another attempt that sees the failed checks could end differently.
    question: what it asks a person; it ended because it cannot go on without an answer.
    contract: how the checks differ from those that were claimed, if they do.
    """

    kind: str
    code: str = ""
    checks: tuple[CheckResult, ...] = ()
    unchecked: int = 0
    produced: bool = True
    feedback: bool = True
    why: str = ""
    question: str = ""
    contract: Contract | None = None


@dataclass(frozen=True, slots=True)
class Over:
    """It has ended. conclusion: None until it has been collected and verified.

    busy, stopping: its checks are running, and were told to end.
    """

    attempt: Attempt
    busy: bool = False
    stopping: bool = False
    conclusion: Conclusion | None = None
    stop: str | None = None
    pause: Pause | None = None


@dataclass(frozen=True, slots=True)
class Settling:
    """``settle.json`` is there and ``settled`` is not: carry it out, from wherever a crash left it."""

    attempt: Attempt
    pause: Pause | None = None


@dataclass(frozen=True, slots=True)
class Blocked:
    """It asked, has ended, and holds no slot.

    answered: a person has written something since. followed: the next session is begun already.
    """

    attempt: Attempt
    question: str
    answered: bool = False
    followed: bool = False
    stop: str | None = None
    pause: Pause | None = None


@dataclass(frozen=True, slots=True)
class Parked:
    """Nothing can be decided about it: left alone until its file changes or the daemon starts anew.

    traceback: of a fault of ours; or, with `ours` False, a sentence about its files.
    """

    subject: str
    traceback: str
    slot: bool = False
    ours: bool = True


Session = Unstarted | Live | Unknown | Over | Settling
Observed = Candidate | Session | Blocked | Parked


@dataclass(frozen=True, slots=True)
class World:
    """One look at everything. claiming: False while draining or degraded; `closed` says why."""

    observed: tuple[Observed, ...]
    claiming: bool = True
    closed: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    termination: str
    destination: Destination
    why: str = ""


def decide(world: World, limits: Limits, now: float) -> list[Action]:
    """Every action that is due. `now` is monotonic seconds."""
    actions: list[Action] = []
    candidates: list[Candidate] = []
    asking: list[Blocked] = []
    used = 0
    for observed in world.observed:
        match observed:
            case Candidate():
                candidates.append(observed)
            case Blocked():
                asking.append(observed)
            case Parked(subject, traceback, slot, ours):
                used += slot
                last = traceback.strip().splitlines()[-1] if traceback.strip() else "unknown"
                reason = f"a fault in megaHarness itself ({last})" if ours else last
                actions.append(Wait(subject, f"parked: {reason}", None, "see `mh log`", True))
            case _:
                used += 1
                actions.append(_session(observed, limits, now))
    free = limits.slots - used
    for blocked in sorted(asking, key=lambda each: each.attempt.session):
        action = _held_back(blocked, _answered(blocked, world, free), now)
        free -= isinstance(action, GoOn) and not blocked.followed
        actions.append(action)
    actions += _admit(candidates, world, free, now)
    return actions


def _answered(blocked: Blocked, world: World, free: int) -> Action:
    attempt = blocked.attempt
    match blocked:
        case Blocked(followed=True):
            return GoOn(attempt.session)  # a crash came before it was closed: no other slot is needed for that
        case Blocked(stop=str()) | Blocked(attempt=Attempt(wish=Wish())):
            # The next session is ended before it starts: one way out for every state.
            return GoOn(attempt.session)
        case Blocked(attempt=Attempt(edited=Edited(until=None))):
            return TakeEdit(attempt.session)
        case Blocked(attempt=Attempt(edited=Edited(until=until))):
            return Wait(attempt.track, "its answer is being written", until)
        case Blocked(answered=True) if not world.claiming:
            return Wait(attempt.track, f"is answered; {world.closed}")
        case Blocked(answered=True) if free <= 0:
            return Wait(attempt.track, "is answered, and waits for a free slot", None, "raise [limits] slots")
        case Blocked(answered=True):
            return GoOn(attempt.session)
    if attempt.puzzle:
        return Wait(attempt.track, attempt.puzzle, None, f"mh interrupt {attempt.track} ends it", True)
    way = f"mh reply {attempt.track} TEXT, or write it at the end of tracks/active/{attempt.name}"
    return Wait(attempt.track, f"asks: {blocked.question}", None, way, needs_you=True)


def _admit(candidates: Iterable[Candidate], world: World, free: int, now: float) -> list[Action]:
    actions: list[Action] = []
    for candidate in sorted(candidates, key=lambda c: (-c.priority, c.arrival, c.state, c.name)):
        match candidate:
            case Candidate(fault=Fault(text, refuse_at), holds=()) if now >= refuse_at and world.claiming:
                actions.append(Refuse(candidate.name, candidate.state, text))
            case Candidate(fault=Fault(text, refuse_at), holds=holds):
                # Who has it open is still writing: told what is wrong, and not refused meanwhile.
                until = holds[0].until if holds else refuse_at if now < refuse_at else None
                actions.append(Wait(candidate.name, text, until, "correct the file and save it", True))
            case Candidate(holds=(hold, *_)):
                actions.append(Wait(candidate.name, hold.why, hold.until, hold.unblock, hold.needs_you))
            case Candidate(late=str(session)):
                actions.append(SetAside(candidate.name, candidate.state, session))
            case _ if not world.claiming:
                actions.append(Wait(candidate.name, world.closed))
            case _ if free <= 0:
                actions.append(Wait(candidate.name, "waits for a free slot", None, "raise [limits] slots"))
            case _:
                free -= 1
                actions.append(Claim(candidate.name, candidate.state))
    return actions


def _session(observed: Session, limits: Limits, now: float) -> Action:
    return _held_back(observed, _due(observed, limits, now), now)


def _held_back(observed: Session | Blocked, action: Action, now: float) -> Action:
    """The action, unless it failed a moment ago."""
    match observed.pause:
        case Pause(until, why, failed, stuck) if now < until and type(action).__name__ == failed:
            return Wait(observed.attempt.track, f"tried again soon: {why}", until, needs_you=stuck)
    return action


def _due(observed: Session, limits: Limits, now: float) -> Action:
    match observed:
        case Settling(attempt):
            return RollForward(attempt.session)
        case Unknown(attempt, busy=True):
            return Wait(attempt.track, "what is left of it is being ended")
        case Unknown(attempt):
            return Reap(attempt.session)
        case Over(Attempt(edited=Edited(until=None)) as attempt, conclusion=Conclusion()):
            return TakeEdit(attempt.session)
        case Over(Attempt(edited=Edited(until=float(until))) as attempt, conclusion=Conclusion()):
            # What is being written to it may be the next thing that it is to do.
            return Wait(attempt.track, "has ended; its file is being edited", until)
        case Over(Attempt(wish=Wish() as wish) as attempt, conclusion=Conclusion() as conclusion):
            verdict = granted(wish, conclusion)
            return Settle(attempt.session, verdict.termination, verdict.destination, verdict.why)
        case Over(attempt, conclusion=Conclusion() as conclusion, stop=stop):
            # Who stopped it does not want the next attempt either.
            allowed = limits.attempts if stop is None else 0
            used = attempt.number - attempt.round + 1 - attempt.free
            verdict = judge(conclusion, used, allowed, unheard=attempt.unheard)
            return Settle(attempt.session, verdict.termination, verdict.destination, verdict.why)
        case Over(attempt, busy=False):
            return Conclude(attempt.session)
        case Over(attempt, stopping=False, stop=str(why)):
            return Stop(attempt.session, why)
        case Over(attempt, stopping=stopping):
            return Wait(attempt.track, "is being interrupted" if stopping else "its checks are running")
        case Unstarted(attempt, busy=True, pause=Pause(why=why)):
            return Wait(attempt.track, f"is being started again; before, {why}")
        case Unstarted(attempt, busy=True):
            return Wait(attempt.track, "is being started")
        case Unstarted(attempt, stop=str(why)):
            return Stop(attempt.session, why)
        case Unstarted(Attempt(edited=Edited(until=None)) as attempt):
            return TakeEdit(attempt.session)
        case Unstarted(attempt, failed=str(failed)) if failed:
            return Stop(attempt.session, failed)
        case Unstarted(Attempt(away=float(away)) as attempt):
            # Nothing is begun for a file that may have been deleted, not even the end of a track that asked.
            return Wait(attempt.track, "its file is gone", away)
        case Unstarted(attempt, tries=tries, retry_at=retry_at) if tries and now < retry_at:
            return Wait(attempt.track, "is being started", retry_at)
        case Unstarted(attempt, tries=tries) if tries >= START_TRIES:
            return Stop(attempt.session, f"setup/runner: its runner did not start in {tries} tries")
        case Unstarted(attempt):
            return Start(attempt.session)
        case Live(attempt, stop=str(why), stopped_at=None):
            return Stop(attempt.session, why)
        case Live(attempt, stop=str(why), stopped_at=float(at), forced=False):
            if now - at >= STOP_GRACE:
                return Stop(attempt.session, why, force=True)
            return Wait(attempt.track, "is being interrupted", at + STOP_GRACE)
        case Live(attempt, stop=str()):
            return Wait(attempt.track, "is being ended by force")
        case Live(Attempt(edited=Edited(until=None)) as attempt):
            return TakeEdit(attempt.session)
        case Live(Attempt(edited=edited, puzzle=puzzle) as attempt, note=note):
            quiet = edited.until if edited is not None else None
            way = f"mh interrupt {attempt.track} ends it" if puzzle else ""
            return Wait(attempt.track, puzzle or note or "is running", quiet, way, bool(puzzle))
    raise AssertionError(f"no rule for {observed!r}")


def granted(wish: Wish, conclusion: Conclusion) -> Verdict:
    """Where a person has put it, it goes: their word outranks every check."""
    if wish.to == "done":
        return Verdict("clean/by_person", "done", wish.why)
    ended = judge(conclusion, 1, 0)
    if ended.destination == "failed":
        return Verdict(ended.termination, wish.to, wish.why)
    return Verdict("interrupt/by_person", wish.to, wish.why)


def judge(conclusion: Conclusion, used: int, allowed: int, *, unheard: bool = False) -> Verdict:
    """Where an ended session's track goes. `used`: sessions of this stay in active/ that count, this one included.

    An agent's word is not evidence: only checks that the daemon ran make it
    ``clean`` with a contract; without any, something must have come out.
    What a person wrote meanwhile and it has not heard is worth another attempt.
    """
    code = f"/{conclusion.code}" if conclusion.code else ""
    if conclusion.kind != "clean":
        return Verdict(f"{conclusion.kind}{code}", "failed", conclusion.why)
    if conclusion.question:
        if allowed:
            return Verdict(BLOCKED, "stays", conclusion.question)
        return Verdict("interrupt/by_person", "failed", f"it asked: {conclusion.question}")
    judged = [check for check in conclusion.checks if check.passed is not None]
    failed = [check for check in judged if not check.passed]
    if unheard and conclusion.feedback and used < allowed:
        return Verdict(f"clean{code}", "stays", "you wrote something that it has not heard")
    if failed:
        count = f"{len(failed)} of {_counted(len(judged))} failed"
        if conclusion.feedback and used < allowed:
            return Verdict("incomplete", "stays", f"{count}; attempt {used} of {allowed}")
        return Verdict("incomplete", "failed", count)
    if conclusion.unchecked:
        return Verdict("incomplete", "failed", "its checks could not be run")
    if not judged and not conclusion.produced:
        return Verdict("no_op", "failed", "it ended with neither a change nor an answer")
    return Verdict(f"clean{code}", "done", conclusion.why)


def summary(checks: Iterable[CheckResult], unchecked: int = 0, contract: Contract | None = None) -> str:
    """One phrase for views.

    Never "verified" without a check that ran, or under a contract that was changed other than by adding checks;
    never "no checks" where some were not run.
    """
    checks = list(checks)
    judged = [check for check in checks if check.passed is not None]
    passed = sum(1 for check in judged if check.passed)
    parts = []
    if passed < len(judged):
        parts.append(f"{passed} of {_counted(len(judged))} passed")
    elif judged and contract is not None and not contract.only_added:
        parts.append(f"{_counted(passed)} passed")
    elif judged:
        parts.append(f"verified: {_counted(passed)}")
    if prose := len(checks) - len(judged):
        parts.append(f"{prose} to judge")
    if unchecked:
        parts.append(f"{_counted(unchecked)} not run")
    if contract is not None:
        parts.append("contract changed")
    return ", ".join(parts) or "no checks"


def _counted(number: int) -> str:
    return f"{number} check" if number == 1 else f"{number} checks"


__all__ = [
    "BLOCKED",
    "Attempt",
    "Blocked",
    "Candidate",
    "CheckResult",
    "Conclusion",
    "Edited",
    "Fault",
    "Hold",
    "Limits",
    "Live",
    "Observed",
    "Over",
    "Parked",
    "Pause",
    "Session",
    "Settling",
    "Unknown",
    "Unstarted",
    "Verdict",
    "Wish",
    "World",
    "decide",
    "granted",
    "judge",
    "summary",
]
