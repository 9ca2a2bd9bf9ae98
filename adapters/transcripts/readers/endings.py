"""What a provider's refusal is called, whatever harness reports it.

Harnesses report the same refusals in words of their own: a status if one is
lucky, else a sentence. `failure` is the one place that reads them.
"""

from __future__ import annotations

import re

from adapters.transcripts.events import Ending

_STATUS = re.compile(
    r"\b(?:status(?: code)?|http|error|code)\b\W{0,4}([45]\d\d)\b|\b([45]\d\d) status\b", re.IGNORECASE
)
_LIMIT = re.compile(
    r"rate.?limit|usage limit|limit reached|hit your limit|quota|too many requests|resource_exhausted",
    re.IGNORECASE,
)
_AUTH = re.compile(r"unauthorized|unauthenticated|invalid api.?key|api.?key not valid", re.IGNORECASE)
_CONTEXT = re.compile(
    r"context.?(?:window|length|overflow)|maximum context|prompt is too long|ran out of room", re.IGNORECASE
)


def failure(
    status: int | None, text: str, at: str | None, weight: int = 1, otherwise: str = "error"
) -> Ending:
    """How a session ended that ended with this error; `otherwise` is the code if nothing names it."""
    if status is None and (found := _STATUS.search(text)):
        status = int(found[1] or found[2])
    if "not your usage limit" in text:
        return Ending("provider", "rate_limit", text, weight, at)
    if status is None and _AUTH.search(text):
        return Ending("auth", "401", text, weight, at)
    if status is None and _LIMIT.search(text):
        return Ending("limit", "quota" if "quota" in text.lower() else "usage", text, weight, at)
    kind, code = ("provider", otherwise) if status is None else by_status(status)
    if kind == "provider" and _CONTEXT.search(text):
        code = "context"
    return Ending(kind, code, text, weight, at)


def by_status(status: int) -> tuple[str, str]:
    """Kind and code of an answer with this HTTP status."""
    kind = "auth" if status in (401, 403) else "limit" if status == 429 else "provider"
    return kind, str(status)
