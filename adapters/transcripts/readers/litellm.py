"""What litellm says: the usage of a response, and the names of its errors.

OpenHands, mini-swe-agent, SWE-agent and Aider reach every model through it,
and record what it gave them.

- ``prompt_tokens`` is the whole prompt, cached tokens included. Versions of
  2024 left those of Anthropic out; it shows where the parts exceed the whole.
- ``completion_tokens`` includes reasoning.
"""

from __future__ import annotations

import re
from typing import Any

from adapters.transcripts.events import UNKNOWN, Ending, Tokens
from adapters.transcripts.reader import count, mapping
from adapters.transcripts.readers.endings import by_status

_ERRORS = {
    "AuthenticationError": ("auth", "401"),
    "PermissionDeniedError": ("auth", "403"),
    "RateLimitError": ("limit", "429"),
    "BudgetExceededError": ("limit", "budget"),
    "ContextWindowExceededError": ("provider", "context"),
    "ContentPolicyViolationError": ("provider", "refusal"),
    "BadRequestError": ("provider", "400"),
    "InvalidRequestError": ("provider", "400"),
    "NotFoundError": ("provider", "404"),
    "UnprocessableEntityError": ("provider", "422"),
    "UnsupportedParamsError": ("provider", "400"),
    "InternalServerError": ("provider", "500"),
    "BadGatewayError": ("provider", "502"),
    "ServiceUnavailableError": ("provider", "503"),
    "APIConnectionError": ("provider", "connection"),
    "Timeout": ("provider", "timeout"),
    "APIError": ("provider", "error"),
    "APIResponseValidationError": ("provider", "error"),
}
_NAME = re.compile(r"\b(" + "|".join(_ERRORS) + r")\b")
_STATUS = re.compile(r"\b(?:status|status code|HTTP|error code|code)\W{0,4}([45]\d\d)\b", re.IGNORECASE)


def tokens(usage: object) -> Tokens:
    """The parts of a ``usage`` of chat completions, or of the Responses API."""
    o = mapping(usage)
    whole = count(o.get("prompt_tokens", o.get("input_tokens")))
    details = mapping(o.get("prompt_tokens_details") or o.get("input_tokens_details"))
    written = mapping(o.get("completion_tokens_details") or o.get("output_tokens_details"))
    cached = _first(details.get("cached_tokens"), o.get("cache_read_input_tokens"))
    created = _first(o.get("cache_creation_input_tokens"), details.get("cache_creation_tokens"))
    output = count(o.get("completion_tokens", o.get("output_tokens")))
    return split(whole, cached, created, output, count(written.get("reasoning_tokens")))


def split(
    whole: int | None, cached: int | None, created: int | None, output: int | None, reasoning: int | None
) -> Tokens:
    """Tokens of a prompt that is given whole and of its parts."""
    parts = (cached or 0) + (created or 0)
    fresh = whole if whole is None or parts > whole else whole - parts
    return Tokens(fresh, cached, created, output, reasoning)


def known(*each: Tokens) -> bool:
    """Whether any number is more than 0: zeros alone are a counter that nobody moved."""
    return any(any(tokens) for tokens in each if tokens != UNKNOWN)


def failure(name: str, text: str, weight: int = 1, at: str | None = None) -> Ending | None:
    """The ending that an error stands for; None if its name and text are no provider's."""
    found = _ERRORS.get(name.rpartition(".")[2])
    if found is None and (named := _NAME.search(text)):
        found = _ERRORS[named.group(1)]
    status = _STATUS.search(text)
    if status and (found is None or found == ("provider", "error")):
        found = by_status(int(status.group(1)))
    return Ending(*found, text, weight, at) if found else None


def _first(*values: Any) -> int | None:
    """The largest of what is known: one provider's count stands under several names, or as 0 under some."""
    numbers = [number for number in map(count, values) if number is not None]
    return max(numbers, default=None)
