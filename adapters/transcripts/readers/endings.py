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
    if status in (401, 403) or (status is None and _AUTH.search(text)):
        return Ending("auth", str(status or 401), text, weight, at)
    if status == 429 or (status is None and _LIMIT.search(text)):
        named = "quota" if "quota" in text.lower() else "usage"
        return Ending("limit", str(status or named), text, weight, at)
    if _CONTEXT.search(text):
        return Ending("provider", "context", text, weight, at)
    return Ending("provider", str(status) if status is not None else otherwise, text, weight, at)
