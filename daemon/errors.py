"""Everything that can go wrong, as one tree.

    MegaharnessError            has a sentence, a `hint` (the way out) and an exit code
    ├── UsageError              a person asked for something that cannot be        exit 2
    │   └── NoSuchTrack         no track, or more than one, begins like this id    exit 4
    ├── SettingsError           megaharness.toml cannot be used                    exit 78
    ├── StartRefused            the daemon must not start like this                exit 78
    ├── AlreadyRunning          another daemon holds the workspace's lock          exit 3
    ├── NotRunning              there is no daemon to ask                          exit 3
    ├── DocumentError           a Markdown file of ours cannot be read as one
    │   └── PatchError          a patch would have changed more than it should
    └── SpoolError              a file of the queue is not as it has to be
        ├── NotNow              somebody has the file open, or it moved: next tick
        └── IllegalTransition   a bug: the store refused it

Exit codes are part of the command line's interface (docs/reference/cli.md).
"""

from __future__ import annotations

from dataclasses import dataclass


class MegaharnessError(Exception):
    """A sentence for a person, and a way out."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(MegaharnessError):
    exit_code = 2


class NoSuchTrack(UsageError):
    exit_code = 4


class SettingsError(MegaharnessError):
    exit_code = 78


class StartRefused(MegaharnessError):
    exit_code = 78


class AlreadyRunning(MegaharnessError):
    exit_code = 3


class NotRunning(MegaharnessError):
    exit_code = 3


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of a document: where it is, what stands there, and what would be right.

    line is counted from 1 in the file; None when the fault has no line.
    offset is a byte offset from 0 (encoding faults).
    """

    message: str
    line: int | None = None
    column: int | None = None
    field: str | None = None
    value: str | None = None
    hint: str = ""
    offset: int | None = None

    def __str__(self) -> str:
        where = []
        if self.line is not None:
            where.append(f"line {self.line}" + (f", column {self.column}" if self.column is not None else ""))
        elif self.offset is not None:
            where.append(f"byte {self.offset}")
        if self.field is not None:
            where.append(self.field)
        text = f"{': '.join([', '.join(where), self.message]) if where else self.message}"
        return f"{text} ({self.hint})" if self.hint else text


class DocumentError(MegaharnessError):
    """A document is refused; `problems` holds every fault that was found, at least one."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("; ".join(str(p) for p in problems), problems[0].hint if problems else "")
        self.problems = problems


class PatchError(DocumentError):
    pass


class SpoolError(MegaharnessError):
    pass


class NotNow(SpoolError):
    """Nothing was changed; the same thing may work at the next tick."""


class IllegalTransition(SpoolError):
    pass
