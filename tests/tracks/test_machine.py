"""The machine as a table: what is seen, what is due."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.tracks.actions import (
    Action,
    Claim,
    Conclude,
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
from daemon.tracks.machine import (
    START_TRIES,
    STOP_GRACE,
    Attempt,
    Blocked,
    Candidate,
    CheckResult,
    Conclusion,
    Edited,
    Fault,
    Hold,
    Limits,
    Live,
    Observed,
    Over,
    Parked,
    Pause,
    Settling,
    Unknown,
    Unstarted,
    Wish,
    World,
    decide,
    judge,
    summary,
)

NOW = 1000.0
LIMITS = Limits(slots=2, attempts=2)
ONE = Attempt(track="one", session="one-1-0123456789ab", name="one.md", number=1, round=1, harness="fake")
SECOND = replace(ONE, session="one-2-0123456789ab", number=2)

PASSED = CheckResult("run: true", True)
FAILED = CheckResult("run: false", False)
PROSE = CheckResult("it is nice", None)


def due(*observed: Observed, limits: Limits = LIMITS, now: float = NOW, closed: str = "") -> list[Action]:
    return decide(World(observed, claiming=not closed, closed=closed), limits, now)


def only(observed: Observed, **kwargs: object) -> Action:
    (action,) = due(observed, **kwargs)  # type: ignore[arg-type]
    return action


def candidate(name: str = "a.md", **facts: object) -> Candidate:
    return Candidate(name, "queued", **{"arrival": 0, **facts})  # type: ignore[arg-type]


# --- files that wait ------------------------------------------------------------------------------------

BAD = Fault("line 2: no such key", refuse_at=NOW + 5)
OPEN = Hold("open in an editor", until=None)


@pytest.mark.parametrize(
    ("observed", "action"),
    [
        (candidate(), Claim("a.md", "queued")),
        (Candidate("a.md", "active", 0), Claim("a.md", "active")),
        (candidate(holds=(OPEN,)), Wait("a.md", "open in an editor")),
        (
            candidate(holds=(Hold("no harness", 7.0, "install one", True), OPEN)),
            Wait("a.md", "no harness", 7.0, "install one", True),
        ),
        (candidate(fault=BAD), Wait("a.md", BAD.text, NOW + 5, "correct the file and save it", True)),
        (candidate(fault=replace(BAD, refuse_at=NOW)), Refuse("a.md", "queued", BAD.text)),
        # A bad file that somebody has open is shown with its fault and not taken out of their hands.
        (
            candidate(fault=replace(BAD, refuse_at=NOW), holds=(OPEN,)),
            Wait("a.md", BAD.text, None, "correct the file and save it", True),
        ),
        (
            candidate(fault=replace(BAD, refuse_at=NOW), holds=(Hold("tried again soon", NOW + 1),)),
            Wait("a.md", BAD.text, NOW + 1, "correct the file and save it", True),
        ),
    ],
)
def test_a_waiting_file(observed: Candidate, action: Action) -> None:
    assert only(observed) == action


def test_a_late_save_is_set_aside_once_it_is_quiet_without_a_slot_and_when_closed() -> None:
    late = Candidate("a.md", "active", 0, late=ONE.session)
    assert due(late, limits=Limits(0, 1)) == [SetAside("a.md", late.state, ONE.session)]
    assert only(late, closed="draining") == SetAside("a.md", late.state, ONE.session)
    assert only(replace(late, holds=(OPEN,))) == Wait("a.md", OPEN.why)


def test_closed_claims_nothing_refuses_nothing_and_says_why() -> None:
    bad = candidate("b.md", fault=replace(BAD, refuse_at=NOW - 1), arrival=1)
    first, second = due(candidate(), bad, closed="no space left")
    assert first == Wait("a.md", "no space left")
    assert isinstance(second, Wait)
    assert second.until is None  # a deadline in the past would wake the loop for nothing


def test_closed_still_ends_and_settles_what_runs() -> None:
    over = Over(SECOND, conclusion=Conclusion("clean"))
    assert due(Live(ONE, stop="x"), over, closed="draining") == [
        Stop(ONE.session, "x"),
        Settle(SECOND.session, "clean", "done"),
    ]


def test_higher_priority_first_then_arrival() -> None:
    waiting = [candidate(f"{n}.md", arrival=n, priority=p) for n, p in enumerate([0, 0, 5, -1, 5])]
    actions = due(*waiting, limits=Limits(slots=3, attempts=1))
    assert actions[:3] == [Claim(name, "queued") for name in ("2.md", "4.md", "0.md")]
    assert [(type(action), action.subject) for action in actions[3:] if isinstance(action, Wait)] == [
        (Wait, "1.md"),
        (Wait, "3.md"),
    ]


def test_one_that_is_held_gives_its_turn_to_the_next() -> None:
    actions = due(candidate(priority=9, holds=(OPEN,)), candidate("b.md", arrival=1), limits=Limits(1, 1))
    assert actions == [Wait("a.md", OPEN.why), Claim("b.md", "queued")]


@pytest.mark.parametrize(
    "holder",
    [
        Unstarted(ONE),
        Live(ONE),
        Unknown(ONE, "gone"),
        Over(ONE, busy=True),
        Settling(ONE),
        Parked("one", "Traceback\nValueError: x", slot=True),
    ],
)
def test_every_session_holds_a_slot_until_it_is_settled(holder: Observed) -> None:
    *_, last = due(holder, candidate(), limits=Limits(1, 1))
    assert isinstance(last, Wait)
    assert "slot" in last.reason
    assert due(holder, candidate(), limits=Limits(2, 1))[-1] == Claim("a.md", "queued")


def test_a_parked_file_holds_no_slot_and_shows_the_last_line_of_its_traceback() -> None:
    wait, claim = due(Parked("b.md", "Traceback\n  x\nValueError: y\n"), candidate(), limits=Limits(1, 1))
    assert claim == Claim("a.md", "queued")
    assert isinstance(wait, Wait)
    assert wait.needs_you
    assert "ValueError: y" in wait.reason


def test_more_sessions_than_slots_claim_nothing() -> None:
    others = [Live(replace(ONE, session=f"one-{n}-0123456789ab")) for n in range(5)]
    assert not [action for action in due(*others, candidate()) if isinstance(action, Claim)]


# --- sessions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("observed", "action"),
    [
        # claimed
        (Unstarted(ONE), Start(ONE.session)),
        (Unstarted(ONE, busy=True), Wait("one", "is being started")),
        (
            Unstarted(ONE, busy=True, pause=Pause(0.0, "tmux did not answer", "Start")),
            Wait("one", "is being started again; before, tmux did not answer"),
        ),
        (Unstarted(ONE, tries=1, retry_at=NOW + 3), Wait("one", "is being started", NOW + 3)),
        (Unstarted(ONE, tries=1, retry_at=NOW), Start(ONE.session)),
        # the last window gets its time too
        (Unstarted(ONE, tries=START_TRIES, retry_at=NOW + 3), Wait("one", "is being started", NOW + 3)),
        (
            Unstarted(ONE, tries=START_TRIES, retry_at=NOW),
            Stop(ONE.session, f"setup/runner: its runner did not start in {START_TRIES} tries"),
        ),
        (Unstarted(ONE, failed="setup/git: x"), Stop(ONE.session, "setup/git: x")),
        # running
        (Live(ONE), Wait("one", "is running")),
        (Live(ONE, note="no output for 4 min"), Wait("one", "no output for 4 min")),
        # nobody knows
        (Unknown(ONE, "gone"), Reap(ONE.session)),
        (Unknown(ONE, "gone", busy=True), Wait("one", "what is left of it is being ended")),
        # ended
        (Over(ONE), Conclude(ONE.session)),
        (Over(ONE, busy=True), Wait("one", "its checks are running")),
        (Over(ONE, conclusion=Conclusion("clean")), Settle(ONE.session, "clean", "done")),
        # an intent
        (Settling(ONE), RollForward(ONE.session)),
    ],
)
def test_a_session(observed: Observed, action: Action) -> None:
    assert only(observed) == action


@pytest.mark.parametrize(
    ("observed", "action"),
    [
        (Unstarted(ONE, stop="enough"), Stop(ONE.session, "enough")),
        (Unstarted(ONE, stop="enough", failed="setup/git: x"), Stop(ONE.session, "enough")),
        (Unstarted(ONE, stop="enough", tries=1, retry_at=NOW + 9), Stop(ONE.session, "enough")),
        (Unstarted(ONE, stop="enough", busy=True), Wait("one", "is being started")),
        (Unstarted(ONE, stop=""), Stop(ONE.session, "")),
        (Live(ONE, stop="enough"), Stop(ONE.session, "enough")),
        (
            Live(ONE, stop="enough", stopped_at=NOW - 1),
            Wait("one", "is being interrupted", NOW - 1 + STOP_GRACE),
        ),
        (Live(ONE, stop="enough", stopped_at=NOW - STOP_GRACE), Stop(ONE.session, "enough", force=True)),
        (
            Live(ONE, stop="enough", stopped_at=NOW - STOP_GRACE, forced=True),
            Wait("one", "is being ended by force"),
        ),
        (Over(ONE, stop="enough"), Conclude(ONE.session)),
        (Over(ONE, busy=True, stop="enough"), Stop(ONE.session, "enough")),
        # Told once: the loop does not go round while the checks end.
        (Over(ONE, busy=True, stopping=True, stop="enough"), Wait("one", "is being interrupted")),
        # It ended by itself before the wish came: what it amounts to counts, and no attempt follows.
        (Over(ONE, conclusion=Conclusion("clean"), stop="enough"), Settle(ONE.session, "clean", "done")),
        (
            Over(ONE, conclusion=Conclusion("clean", checks=(FAILED,)), stop="enough"),
            Settle(ONE.session, "incomplete", "failed", "1 of 1 check failed"),
        ),
    ],
)
def test_stopping_in_every_phase(observed: Observed, action: Action) -> None:
    assert only(observed) == action


@pytest.mark.parametrize(
    ("observed", "name"),
    [
        (Unstarted(ONE), "Start"),
        (Live(ONE, stop="enough"), "Stop"),
        (Unknown(ONE, "gone"), "Reap"),
        (Over(ONE), "Conclude"),
        (Over(ONE, conclusion=Conclusion("clean")), "Settle"),
        (Settling(ONE), "RollForward"),
    ],
)
def test_an_action_that_failed_waits_for_its_time(observed: Observed, name: str) -> None:
    assert not isinstance(observed, Candidate | Parked)
    paused = replace(observed, pause=Pause(NOW + 2, "no tmux", name))
    wait = only(paused)
    assert wait == Wait("one", "tried again soon: no tmux", NOW + 2)
    assert type(only(paused, now=NOW + 2)).__name__ == name


def test_a_failed_start_does_not_keep_a_person_from_stopping_it() -> None:
    waiting = Unstarted(ONE, stop="enough", pause=Pause(NOW + 60, "no tmux", "Start"))
    assert only(waiting) == Stop(ONE.session, "enough")


# --- what an ended session amounts to -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conclusion", "used", "termination", "destination"),
    [
        (Conclusion("clean"), 1, "clean", "done"),
        (Conclusion("clean", "by_person"), 1, "clean/by_person", "done"),
        (Conclusion("clean", produced=False), 1, "no_op", "failed"),
        (Conclusion("clean", checks=(PASSED,), produced=False), 1, "clean", "done"),
        (Conclusion("clean", checks=(PROSE,)), 1, "clean", "done"),
        (Conclusion("clean", checks=(PROSE,), produced=False), 1, "no_op", "failed"),
        (Conclusion("clean", checks=(PASSED, FAILED)), 1, "incomplete", "stays"),
        (Conclusion("clean", checks=(PASSED, FAILED)), 2, "incomplete", "failed"),
        (Conclusion("clean", checks=(FAILED,), feedback=False), 1, "incomplete", "failed"),
        (Conclusion("clean", unchecked=2), 1, "incomplete", "failed"),
        (Conclusion("crash", "exit_7"), 1, "crash/exit_7", "failed"),
        (Conclusion("crash", "exit_7", checks=(PASSED,)), 1, "crash/exit_7", "failed"),
        (Conclusion("interrupt", "by_person", unchecked=1), 1, "interrupt/by_person", "failed"),
        (Conclusion("lost"), 1, "lost", "failed"),
    ],
)
def test_judge(conclusion: Conclusion, used: int, termination: str, destination: str) -> None:
    verdict = judge(conclusion, used, allowed=2)
    assert (verdict.termination, verdict.destination) == (termination, destination)


def test_attempts_are_counted_from_the_beginning_of_this_stay() -> None:
    conclusion = Conclusion("clean", checks=(FAILED,))
    requeued = replace(ONE, number=7, round=6)
    assert only(Over(requeued, conclusion=conclusion)) == Settle(
        ONE.session, "incomplete", "failed", "1 of 1 check failed"
    )
    first = replace(ONE, number=6, round=6)
    action = only(Over(first, conclusion=conclusion))
    assert isinstance(action, Settle)
    assert action.destination == "stays"
    assert "attempt 1 of 2" in action.why


# --- what a person does with its file ---------------------------------------------------------------------

EDITED = replace(ONE, edited=Edited())
EDITING = replace(ONE, edited=Edited(NOW + 2))
ENOUGH = replace(ONE, wish=Wish("done", "you moved it to done/"))
BACK = replace(ONE, wish=Wish("queued", "you moved it back to queued/"))
MET, UNMET = Conclusion("clean", checks=(PASSED,)), Conclusion("clean", checks=(FAILED,))
ASKS = Conclusion("clean", question="which?", unchecked=1)


@pytest.mark.parametrize(
    ("observed", "action"),
    [
        (Live(EDITED), TakeEdit(ONE.session)),
        (Live(EDITING), Wait("one", "is running", NOW + 2)),
        (Live(EDITED, stop="enough"), Stop(ONE.session, "enough")),
        (Unstarted(EDITED), TakeEdit(ONE.session)),
        (Over(EDITED), Conclude(ONE.session)),
        (Over(EDITED, conclusion=MET), TakeEdit(ONE.session)),
        (Over(EDITING, conclusion=MET), Wait("one", "has ended; its file is being edited", NOW + 2)),
        (Over(ENOUGH, conclusion=UNMET), Settle(ONE.session, "clean/by_person", "done", "you moved it to done/")),
        (
            Over(BACK, conclusion=Conclusion("interrupt", "by_person")),
            Settle(ONE.session, "interrupt/by_person", "queued", "you moved it back to queued/"),
        ),
        (Over(BACK, conclusion=MET), Settle(ONE.session, "interrupt/by_person", "queued", BACK.wish.why)),  # type: ignore[union-attr]
        (Over(BACK, conclusion=UNMET), Settle(ONE.session, "incomplete", "queued", BACK.wish.why)),  # type: ignore[union-attr]
        (Live(replace(ONE, puzzle="where is it?")), Wait("one", "where is it?", None, "mh interrupt one ends it", True)),
        (Over(ONE, conclusion=ASKS), Settle(ONE.session, "blocked", "stays", "which?")),
        (Over(ONE, conclusion=ASKS, stop="no"), Settle(ONE.session, "interrupt/by_person", "failed", "it asked: which?")),
        (Blocked(ONE, "which?", answered=True), GoOn(ONE.session)),
        (Blocked(ONE, "which?", stop="no"), GoOn(ONE.session)),
        (Blocked(ENOUGH, "which?"), GoOn(ONE.session)),
        (Blocked(EDITED, "which?"), TakeEdit(ONE.session)),
        (Blocked(EDITING, "which?"), Wait("one", "its answer is being written", NOW + 2)),
    ],
)
def test_a_gesture(observed: Observed, action: Action) -> None:
    assert only(observed) == action


def test_a_question_needs_you_and_holds_no_slot_until_it_is_answered() -> None:
    asks = Blocked(ONE, "which?")
    wait, claim = due(asks, candidate(), limits=Limits(1, 2))
    assert isinstance(wait, Wait)
    assert (wait.needs_you, wait.reason) == (True, "asks: which?")
    assert "mh reply one TEXT" in wait.unblock
    assert claim == Claim("a.md", "queued")
    answered = replace(asks, answered=True)
    assert due(answered, candidate(), limits=Limits(1, 2))[0] == GoOn(ONE.session), "before what waits"
    busy, waits = due(Live(SECOND), answered, limits=Limits(1, 2))
    assert isinstance(busy, Wait)
    assert waits == Wait("one", "is answered, and waits for a free slot", None, "raise [limits] slots")
    assert only(answered, closed="no disk") == Wait("one", "is answered; no disk")


def test_what_was_not_heard_is_worth_an_attempt_and_no_more_than_are_left() -> None:
    told = replace(ONE, unheard=True)
    assert only(Over(told, conclusion=MET)) == Settle(
        ONE.session, "clean", "stays", "you wrote something that it has not heard"
    )
    assert only(Over(replace(told, number=2), conclusion=MET)) == Settle(ONE.session, "clean", "done")
    assert only(Over(told, conclusion=replace(MET, feedback=False))) == Settle(ONE.session, "clean", "done")
    assert only(Over(told, conclusion=MET, stop="enough")) == Settle(ONE.session, "clean", "done")


def test_a_session_that_asked_counts_as_no_attempt() -> None:
    third = replace(ONE, number=3, free=2)
    action = only(Over(third, conclusion=UNMET))
    assert isinstance(action, Settle)
    assert (action.destination, action.why) == ("stays", "1 of 1 check failed; attempt 1 of 2")


@pytest.mark.parametrize(
    ("contract", "text"),
    [
        (Contract("", ("run: x",), only_added=False), "1 check passed, contract changed"),
        (Contract("", ("run: x",), only_added=True), "verified: 1 check, contract changed"),
    ],
)
def test_a_changed_contract_is_never_plainly_verified(contract: Contract, text: str) -> None:
    assert summary((PASSED,), 0, contract) == text


@pytest.mark.parametrize(
    ("checks", "unchecked", "text"),
    [
        ((), 0, "no checks"),
        ((PASSED, PASSED), 0, "verified: 2 checks"),
        ((PASSED, FAILED), 0, "1 of 2 checks passed"),
        ((PROSE,), 0, "1 to judge"),
        ((PASSED, PROSE), 0, "verified: 1 check, 1 to judge"),
        ((), 1, "1 check not run"),
        ((), 3, "3 checks not run"),
    ],
)
def test_summary(checks: tuple[CheckResult, ...], unchecked: int, text: str) -> None:
    assert summary(checks, unchecked) == text


# --- for everything that can be seen ----------------------------------------------------------------------

_times = st.floats(0, 2000)
_maybe_time = st.none() | _times
_text = st.text(max_size=8)
_attempts = st.builds(
    Attempt,
    track=st.sampled_from(["a", "b"]),
    session=_text,
    name=_text,
    number=st.integers(1, 5),
    round=st.integers(1, 5),
    harness=st.just("fake"),
    free=st.integers(0, 2),
    edited=st.none() | st.builds(Edited, _maybe_time),
    wish=st.none() | st.builds(Wish, st.sampled_from(["done", "failed", "queued"]), st.text(min_size=1)),
    puzzle=_text,
    unheard=st.booleans(),
)
_pauses = st.none() | st.builds(
    Pause, _times, _text, st.sampled_from(["Start", "Stop", "Reap", "Conclude", "Settle", "RollForward"])
)
_stops = st.none() | _text
_checks = st.builds(CheckResult, _text, st.none() | st.booleans())
_conclusions = st.none() | st.builds(
    Conclusion,
    st.sampled_from(["clean", "crash", "interrupt", "lost", "limit", "what is this"]),
    _text,
    st.tuples(_checks) | st.just(()),
    st.integers(0, 2),
    st.booleans(),
    st.booleans(),
)
_holds = st.lists(st.builds(Hold, _text, _maybe_time, _text, st.booleans()), max_size=2).map(tuple)
_sessions = st.one_of(
    st.builds(
        Unstarted,
        _attempts,
        st.booleans(),
        st.integers(0, 6),
        _times,
        st.just("") | _text,
        _stops,
        _pauses,
    ),
    st.builds(Live, _attempts, _text, _stops, _maybe_time, st.booleans(), _pauses),
    st.builds(Unknown, _attempts, _text, st.booleans(), _pauses),
    st.builds(Over, _attempts, st.booleans(), st.booleans(), _conclusions, _stops, _pauses),
    st.builds(Settling, _attempts, _pauses),
)
_blocked = st.builds(Blocked, _attempts, _text, st.booleans(), _stops, _pauses)
_candidates = st.builds(
    Candidate,
    name=st.uuids().map(str),
    state=st.sampled_from(["queued", "active"]),
    arrival=st.integers(0, 20),
    priority=st.integers(-2, 2),
    fault=st.none() | st.builds(Fault, _text, _times),
    holds=_holds,
    late=st.none() | _text,
)
_parked = st.builds(Parked, _text, st.text(max_size=20), st.booleans())
_worlds = st.builds(
    World, st.lists(_candidates | _sessions | _blocked | _parked, max_size=12).map(tuple), st.booleans(), _text
)


@given(_worlds, st.builds(Limits, st.integers(0, 4), st.integers(1, 3)), st.randoms(use_true_random=False))
def test_one_action_for_each_thing_seen_never_more_claims_than_slots_in_any_order(
    world: World, limits: Limits, chance: random.Random
) -> None:
    actions = decide(world, limits, NOW)
    assert len(actions) == len(world.observed)
    assert decide(world, limits, NOW) == actions

    shuffled = list(world.observed)
    chance.shuffle(shuffled)
    again = decide(replace(world, observed=tuple(shuffled)), limits, NOW)
    assert sorted(map(repr, again)) == sorted(map(repr, actions))

    claims = [action for action in actions if isinstance(action, Claim)]
    used = sum(
        seen.slot if isinstance(seen, Parked) else not isinstance(seen, Candidate | Blocked)
        for seen in world.observed
    )
    ended = {seen.attempt.session for seen in world.observed if isinstance(seen, Blocked) and _is_ended(seen)}
    answered = [action for action in actions if isinstance(action, GoOn) and action.session not in ended]
    assert len(claims) + len(answered) <= max(0, limits.slots - used)
    if not world.claiming:
        assert not [action for action in actions if isinstance(action, Claim | Refuse)]
    names = {seen.name for seen in world.observed if isinstance(seen, Candidate)}
    assert {action.name for action in actions if isinstance(action, Claim | Refuse)} <= names


def _is_ended(seen: Blocked) -> bool:
    return seen.stop is not None or seen.attempt.wish is not None


@given(_sessions | _blocked)
def test_no_session_waits_without_a_reason(session: Observed) -> None:
    action = only(session)
    if isinstance(action, Wait):
        assert action.reason
