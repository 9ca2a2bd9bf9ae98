"""What a session's end looks like to a person: the result that is appended to the file."""

from __future__ import annotations

from collections.abc import Sequence

from daemon.kernel.claimed import shown
from daemon.kernel.concluding import Concluded, changed_contract
from daemon.spool.sessions import STAYS, Claim
from daemon.spool.states import FAILED
from daemon.tracks import thread
from daemon.tracks.actions import Settle
from daemon.tracks.machine import summary


def question(known: Claim, concluded: Concluded) -> thread.Question:
    """What comes back into the file when it asks."""
    reply = f"mh reply {known.item} TEXT"
    return thread.Question(
        known.session, known.attempt, concluded.collected.answer, reply, said=concluded.said
    )


def result(
    known: Claim, concluded: Concluded, action: Settle, unheard: int = 0, refused: Sequence[str] = ()
) -> thread.Result:
    """What comes back into the file.

    unheard: how many messages of a person the session has not got. refused: of what they changed, what had no effect.
    """
    wall = f"{concluded.ended.wall_s:.0f} s" if concluded.ended else "not run"
    # The destination is what happens next; of an attempt that stays, only the end is known.
    word = "attempt ended" if action.destination == STAYS else action.destination
    conclusion = concluded.conclusion
    checked = summary(conclusion.checks, conclusion.unchecked, conclusion.contract)
    headline = f"{word}: {action.termination} · {checked} · {shown(known)} · {wall}"
    # Failed checks are told by the checks themselves.
    notes = [
        *(
            [f"Reason: {action.why}"]
            if action.why and not action.termination.startswith("incomplete")
            else []
        ),
        *(
            [changed.capitalize()[:1] + changed[1:]]
            if (changed := changed_contract(conclusion.contract))
            else []
        ),
        *concluded.notes,
        *refused,
        *([_unheard(unheard, known)] if unheard and action.destination != STAYS else []),
    ]
    lines = [
        thread.CheckLine(
            text=receipt.text,
            passed=receipt.passed,
            detail=receipt.detail or ("to judge" if receipt.passed is None else f"{receipt.seconds:.1f} s"),
            tail=receipt.tail,
        )
        for receipt in concluded.receipts
    ]
    outcome, place = concluded.outcome, concluded.place
    following = ""
    if place is not None and concluded.conclusion.kind != "setup":
        following = f"look at the work in {thread.code(str(place.path))} (branch {thread.code(place.branch)})"
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
        said=concluded.said,
    )


def _unheard(count: int, known: Claim) -> str:
    what = (
        "What you wrote while it ran" if count == 1 else f"{count} of the things that you wrote while it ran"
    )
    return f"{what} did not reach it. To let it go on with that: mh requeue {known.item}"
