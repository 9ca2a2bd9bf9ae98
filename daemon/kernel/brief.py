"""What the harness is told: the task in the person's own words, what came before, and what will be checked."""

from __future__ import annotations

from collections.abc import Sequence

from daemon.kernel.contract import Receipt
from daemon.tracks import thread
from daemon.tracks.track import Check, Prose

SCRATCH = (
    "You work in an empty git repository made for this task. If the task needs an existing repository, "
    "say so and stop. Nobody is there to answer questions: decide, go on, and say in your last message what you decided."
)


def compose(body: str, checks: Sequence[Check], failed: Sequence[Receipt], *, prose: bool) -> str:
    """The brief. `prose` False: the task alone, byte for byte (a script is run, not read)."""
    task = thread.without_results(body) if not prose else thread.request(body)
    if not prose:
        return task
    parts = [task.strip("\n")]
    if reply := thread.reply(body):
        parts.append(f"## Added since the last attempt\n\n{reply}")
    if failed:
        parts.append("## What the last attempt left open\n\n" + "\n\n".join(_receipt(receipt) for receipt in failed))
    if checks:
        lines = [f"- {'' if isinstance(check, Prose) else 'check: '}{thread.code(check.text)}" for check in checks]
        parts.append(
            "## Done when\n\nThese are judged after you have ended; your own word is not asked for.\n\n" + "\n".join(lines)
        )
    parts.append(f"## Where you are\n\n{SCRATCH}")
    return "\n\n".join(parts) + "\n"


def _receipt(receipt: Receipt) -> str:
    text = f"- {thread.code(receipt.text)} failed: {receipt.detail or 'not met'}"
    return f"{text}\n{thread.quoted(receipt.tail[-2000:], '  ')}" if receipt.tail else text
