"""Errors that adapters raise.

AdapterError
├── HarnessUnknown    no adapter and no [harness.*] setting has this name
├── HarnessMissing    its program is not installed here
├── HarnessMisconfigured  its settings cannot work
├── BriefUnusable     this harness cannot take this brief (says why)
└── TerminalError     tmux does not answer, or refused
"""

from __future__ import annotations


class AdapterError(Exception):
    """Has a sentence, and a `hint`: what a person can do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class HarnessUnknown(AdapterError):
    pass


class HarnessMissing(AdapterError):
    pass


class HarnessMisconfigured(AdapterError):
    pass


class BriefUnusable(AdapterError):
    pass


class TerminalError(AdapterError):
    pass
