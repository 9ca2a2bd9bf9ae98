"""The times of a document's records, which a `LineReader` keeps by itself."""

from __future__ import annotations

from adapters.transcripts.events import Read
from adapters.transcripts.reader import earlier


class Span:
    """From the first to the last of the times that were seen."""

    def __init__(self) -> None:
        self.first: str | None = None
        self.last: str | None = None

    def saw(self, at: str | None) -> str | None:
        """Note a time that `instant` has made, and give it back."""
        if at is not None:
            if self.first is None or earlier(at, self.first):
                self.first = at
            if self.last is None or earlier(self.last, at):
                self.last = at
        return at

    def read(self, records: int) -> Read:
        return Read(records, self.first, self.last)
