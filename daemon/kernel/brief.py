"""What the harness is told: what the database says, the task in the person's own words, what came before, and what
will be checked.

The database's part is `standing`. It goes where the harness has a place for it (a system prompt), else before the task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from daemon.kernel.contract import Receipt
from daemon.mddb.resolver import Instruction, Skill
from daemon.tracks import thread
from daemon.tracks.track import Check, Prose

ALONE = (
    "If the task needs an existing repository, say so in a last line that begins with `BLOCKED: `, and stop."
)
EMPTY = f"You work in an empty git repository made for this task. {ALONE}"
GOES_ON = (
    "You work in a git repository made for this task; what lies in it is the work of the attempts before "
    f"this one: go on from there. {ALONE}"
)


def standing(instruction: Instruction, place: Callable[[Skill], Path], *, loads_skills: bool) -> str:
    """What holds for the whole session; "" when the database has nothing to say.

    place: where the files of a skill lie. loads_skills: the harness finds them there by itself.
    """
    parts = [instruction.text("instruction"), instruction.text("translation")]
    told = "\n\n".join(part for part in parts if part)
    blocks = [_block("instructions", told)] if told else []
    if project := instruction.text("project"):
        blocks.append(_block("project", project))
    if not loads_skills and instruction.skills:
        blocks.append(_block("skills", _skills(instruction.skills, place)))
    return "\n\n".join(blocks)


def compose(
    body: str,
    checks: Sequence[Check],
    failed: Sequence[Receipt],
    said: Sequence[str] = (),
    asked: Sequence[str] = (),
    *,
    prose: bool,
    goes_on: bool = False,
    standing: str = "",
) -> str:
    """The brief. `prose` False: the task alone, byte for byte (a script is run, not read).

    failed: receipts of the last attempt's checks that were not met. said: what
    a person typed while earlier attempts ran; a new session knows nothing of
    it. asked: what earlier attempts asked; the answers are in the body. goes_on: it works where an earlier attempt did.
    standing: what the database says, where the harness has no other place for it.
    """
    if not prose:
        return thread.without_results(body)
    task = thread.request(body).strip("\n")
    parts = [standing, _block("task", task)] if standing else [task]
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


def _block(name: str, text: str) -> str:
    """Text between two tags: its own headings say nothing of where it ends."""
    return f"<{name}>\n{text}\n</{name}>"


def _skills(skills: Sequence[Skill], place: Callable[[Skill], Path]) -> str:
    parts = []
    for skill in skills:
        if skill.inline:
            files = f"\n\nThe files that belong to it lie in `{place(skill)}`." if skill.folder else ""
            parts.append(f"# {skill.name}\n\n{skill.text}{files}")
    if listed := [skill for skill in skills if not skill.inline]:
        rows = [
            f"- **{skill.name}**: {skill.description or 'it has no description'} (`{place(skill) / 'SKILL.md'}`)"
            for skill in listed
        ]
        parts.append("Before you do what one of these is for, read its file:\n\n" + "\n".join(rows))
    return "\n\n".join(parts)


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
