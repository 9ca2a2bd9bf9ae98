"""The file is a thread: what the daemon writes into it, and how a person's own text is told apart.

Invariants kept here:

* a line that is there is never changed; results are appended between two markers that start a line;
* the marker names the session, so a repeated append changes nothing;
* everything an agent said is quoted with ``> ``, so it can neither end the block nor begin one;
* a block is an opening and the next closing marker with no opening between them: a lone line that looks
  like a marker is a person's text.

Pure: bytes and text in, bytes and text out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from daemon.errors import DocumentError
from daemon.spool import frontmatter

BLOCK = "megaharness"
CLOSE = "<!-- /megaharness -->"
#: How the last line of an answer begins when the agent cannot go on without one of a person.
BLOCKED = "BLOCKED:"

#: How much of an answer comes into the file (characters, from the end): a track's file may have 1 MiB.
ANSWER_LIMIT = 64 << 10
#: Characters of one message typed in the pane that come back into the file.
SAID_LIMIT = 8 << 10
#: How many characters of a text say which track it is of.
BEGINNING = 200

_OPEN_LINE = r"^<!-- megaharness: [a-z]+, attempt [0-9]+, [a-z0-9-]+ -->[ \t]*\r?\n"
_CLOSE_LINE = r"^<!-- /megaharness -->[ \t]*(?:\r?\n|\Z)"
_RESULT = re.compile(rf"{_OPEN_LINE}(?:(?!{_OPEN_LINE}|{_CLOSE_LINE}).*\n)*+{_CLOSE_LINE}", re.MULTILINE)
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]?"  # colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # titles, clipboard
    r"|[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069]"  # and what reverses text
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the daemon's block shows. Only a rendering: nothing is read back but the id."""

    id: str
    status: str
    session: str
    attempt: int
    running: str
    since: str
    termination: str | None = None
    reason: str | None = None
    flags: tuple[str, ...] = ()

    def block(self) -> dict[str, str | int | list[str] | None]:
        rows: dict[str, str | int | list[str] | None] = {
            "id": self.id,
            "status": self.status,
            "session": self.session,
            "attempt": self.attempt,
            "running": self.running,
            "since": self.since,
            "termination": self.termination,
            "reason": self.reason,
            "flags": list(self.flags) or None,
        }
        return {key: value for key, value in rows.items() if value is not None}


@dataclass(frozen=True, slots=True)
class CheckLine:
    """One line of the contract as the result shows it. passed None: to be judged by a person or a review."""

    text: str
    passed: bool | None
    detail: str = ""
    tail: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What comes back into the file at settle."""

    session: str
    attempt: int
    headline: str
    answer: str | None
    checks: Sequence[CheckLine] = ()
    diffstat: str = ""
    left_out: Sequence[str] = ()
    next: str = ""
    notes: Sequence[str] = field(default_factory=tuple)
    said: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """What comes back into the file when the agent asks. reply: the command that answers."""

    session: str
    attempt: int
    answer: str | None
    reply: str
    said: Sequence[str] = ()


def rendered(data: bytes, facts: Facts) -> bytes:
    """The file with the daemon's block as `facts` has it; every other byte as it was."""
    return frontmatter.set_block(data, BLOCK, facts.block())


def marker(session: str, attempt: int, kind: Literal["result", "question"] = "result") -> str:
    return f"<!-- megaharness: {kind}, attempt {attempt}, {session} -->"


def has_result(data: bytes, session: str) -> bool:
    """Whether the block of this session, a result or a question, stands in the file."""
    pattern = (
        rb"^<!-- megaharness: [a-z]+, attempt [0-9]+, " + re.escape(session.encode()) + rb" -->[ \t]*\r?$"
    )
    return re.search(pattern, data, re.MULTILINE) is not None


def results(data: bytes) -> set[str]:
    """The sessions whose results or questions stand in the file."""
    found = re.findall(rb"^<!-- megaharness: [a-z]+, attempt [0-9]+, ([a-z0-9-]+) -->", data, re.MULTILINE)
    return {session.decode() for session in found}


def with_result(data: bytes, session: str, text: str) -> bytes:
    """The file with the block of this session appended, once."""
    return data if has_result(data, session) else frontmatter.append(data, text)


def one_line(text: str, limit: int = 200) -> str:
    """Text as part of one line: white space folded, control characters dropped, cut."""
    folded = " ".join("".join(c if c.isprintable() or c.isspace() else "" for c in text).split())
    return folded if len(folded) <= limit else folded[: limit - 1] + "…"


def code(text: str) -> str:
    """Inline code that no backtick in the text can end."""
    line = one_line(text)
    mark = fence(line)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{mark}{pad}{line}{pad}{mark}"


def fence(text: str, least: int = 1) -> str:
    """More backticks than the text has in a row."""
    return "`" * max(least, *(len(run) + 1 for run in re.findall(r"`+", text)), 1)


def quoted(text: str, indent: str = "") -> str:
    """Text as a Markdown quotation; control sequences do not get into a file that people open."""
    return "\n".join(f"{indent}> {line}".rstrip() for line in _CONTROL.sub("", text).splitlines())


def render_result(result: Result) -> str:
    """The block that is appended, from its opening to its closing marker."""
    parts = [marker(result.session, result.attempt), f"**{one_line(result.headline)}**"]
    if result.answer:
        if len(result.answer) > ANSWER_LIMIT:
            parts.append(f"The last {ANSWER_LIMIT} of {len(result.answer)} characters of the answer:")
        parts.append(quoted(result.answer[-ANSWER_LIMIT:]))
    parts += _typed(result.said)
    if result.checks:
        lines = []
        for check in result.checks:
            box = {True: "[x]", False: "[ ]", None: "[?]"}[check.passed]
            detail = f": {one_line(check.detail)}" if check.detail else ""
            lines.append(f"- {box} {code(check.text)}{detail}")
            if check.tail and check.passed is False:
                lines.append(quoted(check.tail, "  "))
        parts.append("\n".join(lines))
    if result.diffstat:
        parts.append("\n".join(f"    {line.rstrip()}" for line in result.diffstat.strip("\n").splitlines()))
    if result.left_out:
        parts.append("Not committed:\n" + "\n".join(f"- {code(entry)}" for entry in result.left_out))
    if result.notes:
        parts.append("\n".join(f"- {one_line(note, 1000)}" for note in result.notes))
    if result.next:
        parts.append(f"Next: {result.next}")
    return "\n\n".join(parts) + f"\n\n{CLOSE}\n"


def render_question(question: Question) -> str:
    """The block that asks, from its opening to its closing marker: what is written below it is the answer."""
    parts = [marker(question.session, question.attempt, "question"), "**It asks, and waits for your answer:**"]
    if question.answer:
        parts.append(quoted(question.answer[-ANSWER_LIMIT:]))
    parts += _typed(question.said)
    parts.append(f"Write the answer below this block and save, or: {code(question.reply)}")
    return "\n\n".join(parts) + f"\n\n{CLOSE}\n"


def _typed(said: Sequence[str]) -> list[str]:
    lines = "\n\n".join(quoted(text[-SAID_LIMIT:]) for text in said)
    return [f"Typed in the pane:\n\n{lines}"] if said else []


def asked(answer: str | None) -> str | None:
    """The question with which an answer ends: its last line, when that begins with ``BLOCKED:``; None without one."""
    lines = [line.strip() for line in (answer or "").splitlines() if line.strip()]
    if not lines or not lines[-1].startswith(BLOCKED):
        return None
    # A question that stands above its mark is still one.
    return lines[-1].removeprefix(BLOCKED).strip() or (lines[-2] if len(lines) > 1 else "it did not say what")


def pieces(body: str) -> list[str]:
    """A person's own text: what stands before the first block of the daemon, and after each; at least one."""
    return _RESULT.split(body)


def without_results(body: str) -> str:
    """The body without the blocks that the daemon appended."""
    return "".join(pieces(body))


def request(body: str) -> str:
    """What a person wrote before the first block of the daemon: the task itself."""
    return pieces(body)[0]


def replies(body: str) -> list[str]:
    """What a person wrote after the daemon's blocks, oldest first."""
    return [text for piece in pieces(body)[1:] if (text := piece.strip())]


def reply(body: str) -> str:
    """What a person wrote after the last block of the daemon; empty when there is no block."""
    _, *later = pieces(body)
    return later[-1].strip() if later else ""


def begins_like(data: bytes, claimed: bytes) -> bool:
    """Whether a text begins as the task that was claimed does; an empty task is like none. Raises DocumentError."""
    beginning = request(frontmatter.read(claimed).body).strip()[:BEGINNING]
    return beginning != "" and frontmatter.read(data).body.strip().startswith(beginning)


def own_text(data: bytes) -> tuple[str, str]:
    """(frontmatter without our block, body without our results): a person's part, to compare two versions by."""
    document = frontmatter.read(data)
    meta = {key: value for key, value in document.meta.items() if key != BLOCK}
    return (repr(sorted(meta.items())), without_results(document.body).strip())


def builds_on(theirs: bytes, there: bytes, claimed: bytes, session: str) -> bool:
    """Whether `theirs` may take the place of `there`: nothing that a person wrote there is missing in it.

    claimed: the text as it was when `theirs` was opened at the latest.
    session: whose result `theirs` need not know of.
    """
    # An old buffer knows nothing of later attempts, nor of what was replied to them.
    if not results(there) <= {*results(theirs), session}:
        return False
    try:
        (meta, body), saved, known = own_text(there), own_text(theirs), own_text(claimed)
    except DocumentError:
        return False
    if (meta, body) == known:
        return True
    rest = iter(_lines(saved[1]))
    return meta in (saved[0], known[0]) and all(line in rest for line in _lines(body))


def _lines(body: str) -> list[str]:
    return [line.rstrip() for line in body.splitlines() if line.strip()]


def block_session(data: bytes) -> str | None:
    """The session that the file's block names."""
    return _in_block(data, "session")


def block_id(data: bytes) -> str | None:
    """The id that the file's block claims to have."""
    return _in_block(data, "id")


def _in_block(data: bytes, key: str) -> str | None:
    block = frontmatter.read(data).meta.get(BLOCK)
    value = block.get(key) if isinstance(block, dict) else None
    return value if isinstance(value, str) else None
