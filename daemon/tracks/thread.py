"""The file is a thread: what the daemon writes into it, and how a person's own text is told apart.

Invariants kept here:

* a line that is there is never changed; results are appended between two markers that start a line;
* the marker names the session, so a repeated append changes nothing;
* everything an agent said is quoted with ``> ``, so it can neither end the block nor begin one.

Pure: bytes and text in, bytes and text out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from daemon.spool import frontmatter

BLOCK = "megaharness"
CLOSE = "<!-- /megaharness -->"

_OPEN_LINE = re.compile(r"^<!-- megaharness: .*-->[ \t]*\r?$", re.MULTILINE)
_CLOSE_LINE = re.compile(r"^<!-- /megaharness -->[ \t]*\r?\n?", re.MULTILINE)


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


def rendered(data: bytes, facts: Facts) -> bytes:
    """The file with the daemon's block as `facts` has it; every other byte as it was."""
    return frontmatter.set_block(data, BLOCK, facts.block())


def marker(session: str, attempt: int) -> str:
    return f"<!-- megaharness: result, attempt {attempt}, {session} -->"


def has_result(data: bytes, session: str) -> bool:
    pattern = rb"^<!-- megaharness: result, attempt [0-9]+, " + re.escape(session.encode()) + rb" -->[ \t]*\r?$"
    return re.search(pattern, data, re.MULTILINE) is not None


def with_result(data: bytes, session: str, text: str) -> bytes:
    """The file with the result appended, once."""
    return data if has_result(data, session) else frontmatter.append(data, text)


def one_line(text: str, limit: int = 200) -> str:
    """Text as part of one line: white space folded, control characters dropped, cut."""
    folded = " ".join("".join(c if c.isprintable() or c.isspace() else "" for c in text).split())
    return folded if len(folded) <= limit else folded[: limit - 1] + "…"


def code(text: str) -> str:
    """Inline code that no backtick in the text can end."""
    line = one_line(text)
    runs = [len(run) for run in re.findall(r"`+", line)]
    fence = "`" * (max(runs, default=0) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def quoted(text: str, indent: str = "") -> str:
    return "\n".join(f"{indent}> {line}".rstrip() for line in text.splitlines())


def render_result(result: Result) -> str:
    """The block that is appended, from its opening to its closing marker."""
    parts = [marker(result.session, result.attempt), f"**{one_line(result.headline)}**"]
    if result.answer:
        parts.append(quoted(result.answer))
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
    parts += [one_line(note, 1000) for note in result.notes]
    if result.next:
        parts.append(f"Next: {result.next}")
    return "\n\n".join(parts) + f"\n\n{CLOSE}\n"


def without_results(body: str) -> str:
    """The body without the blocks that the daemon appended (an opening without its close is a person's text)."""
    pieces, at = [], 0
    while opening := _OPEN_LINE.search(body, at):
        closing = _CLOSE_LINE.search(body, opening.end())
        if closing is None:
            break
        pieces.append(body[at : opening.start()])
        at = closing.end()
    pieces.append(body[at:])
    return "".join(pieces)


def reply(body: str) -> str:
    """What a person wrote after the last block of the daemon; empty when there is no block."""
    last = None
    for last in _CLOSE_LINE.finditer(body):
        pass
    return body[last.end() :].strip() if last is not None else ""


def request(body: str) -> str:
    """What a person wrote before the first block of the daemon: the task itself."""
    opening = _OPEN_LINE.search(body)
    if opening is None or _CLOSE_LINE.search(body, opening.end()) is None:
        return body
    return body[: opening.start()]


def own_text(data: bytes) -> tuple[str, str]:
    """(frontmatter without our block, body without our results): a person's part, to compare two versions by."""
    document = frontmatter.read(data)
    meta = {key: value for key, value in document.meta.items() if key != BLOCK}
    return (repr(sorted(meta.items())), without_results(document.body).strip())


def block_id(data: bytes) -> str | None:
    """The id that the file's block claims to have."""
    block = frontmatter.read(data).meta.get(BLOCK)
    value = block.get("id") if isinstance(block, dict) else None
    return value if isinstance(value, str) else None
