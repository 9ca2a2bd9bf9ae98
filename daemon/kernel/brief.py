"""What the harness is told: the task in the person's own words, what came before, and what will be checked."""

from __future__ import annotations

from collections.abc import Sequence

from daemon.kernel.contract import Receipt
from daemon.tracks import thread
from daemon.tracks.track import Check, Prose

ALONE = (
    "If the task needs an existing repository, say so and stop. Nobody watches you: decide what you can, go on, and "
    "say in your last message what you decided. Only where you cannot go on without an answer of a person, end with "
    "a last line that begins with `BLOCKED: ` and holds your question; you will be started again with the answer."
)
EMPTY = f"You work in an empty git repository made for this task. {ALONE}"
GOES_ON = (
    "You work in a git repository made for this task; what lies in it is the work of the attempts before "
    f"this one: go on from there. {ALONE}"
)


def compose(
    body: str,
    checks: Sequence[Check],
    failed: Sequence[Receipt],
    said: Sequence[str] = (),
    asked: Sequence[str] = (),
    *,
    prose: bool,
    goes_on: bool = False,
) -> str:
    """The brief. `prose` False: the task alone, byte for byte (a script is run, not read).

    failed: receipts of the last attempt's checks that were not met. said: what
    a person typed while earlier attempts ran; a new session knows nothing of
    it. asked: what earlier attempts asked; the answers are in the body. goes_on: it works where an earlier attempt did.
    """
    if not prose:
        return thread.without_results(body)
    parts = [thread.request(body).strip("\n")]
    if asked:
        parts.append("## What you asked, oldest first\n\n" + "\n\n".join(asked))
    # All of them: a new session remembers nothing of what was said to an earlier one.
    if replies := thread.replies(body):
        parts.append("## Added since, oldest first\n\n" + "\n\n".join(replies))
    if said:
        parts.append("## Said while earlier attempts ran, oldest first\n\n" + "\n\n".join(said))
    if failed:
        parts.append("## What the last attempt left open\n\n" + "\n\n".join(map(_receipt, failed)))
    if checks:
        parts.append(
            "## Done when\n\nThese are judged after you have ended; your own word is not asked for.\n\n"
            + "\n".join(map(_check, checks))
        )
    parts.append(f"## Where you are\n\n{GOES_ON if goes_on else EMPTY}")
    return "\n\n".join(parts) + "\n"


def _check(check: Check) -> str:
    if isinstance(check, Prose):
        return "- " + check.text.replace("\n", "\n  ")
    return f"- check: {_verbatim(check.text)}"


def _verbatim(text: str) -> str:
    """A check as it is run: a command must not be folded or cut."""
    if thread.one_line(text) == text:
        return thread.code(text)
    fence = thread.fence(text, 3)
    return "\n\n" + "\n".join(f"  {line}" for line in (fence, *text.split("\n"), fence))


def _receipt(receipt: Receipt) -> str:
    text = f"- {thread.code(receipt.text)} failed: {receipt.detail or 'not met'}"
    return f"{text}\n{thread.quoted(receipt.tail[-2000:], '  ')}" if receipt.tail else text
