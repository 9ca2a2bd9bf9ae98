"""Takes secrets out of texts before they leave a session: known shapes of keys, and values that are given.

A secret in JSON may be written with escapes, so JSON is read, cleaned and
written again; its keys are looked at too: what stands under ``api_key`` is
one whatever its shape. No pattern finds everything: values that are known
should be given.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote

#: What stands in a secret's place.
REDACTED: Final = "[redacted]"

#: Given values that are shorter would take ordinary words out.
SHORTEST: Final = 6

_SHAPES = re.compile(
    r"""
      # To its end whatever stands between: tools put numbers or marks before each line. Else what looks like it.
      -----BEGIN[ ](?:[A-Z]+[ ])*PRIVATE[ ]KEY-----(?:[^-]|-(?!----))*+-{5,}END[ ](?:[A-Z]+[ ])*PRIVATE[ ]KEY-----
    | -----BEGIN[ ](?:[A-Z]+[ ])*PRIVATE[ ]KEY-----
        (?:(?:\s|\\n)*[A-Za-z-]+:[ ][^\n\\]*)*[A-Za-z0-9+/=\s\\→|>]*
    | \bsk-(?:ant|proj|or|svcacct|admin|lf)?-?[A-Za-z0-9_-]{16,}
    | \b(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}
    | \b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})
    | \bglpat-[A-Za-z0-9_-]{16,}
    | \bxox[abeoprs]-[A-Za-z0-9-]{10,}
    | \b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b
    | \bAIza[A-Za-z0-9_-]{30,}
    | \bya29\.[A-Za-z0-9_-]{20,}
    | \bhf_[A-Za-z0-9]{20,}
    | \b(?:gsk|npm|xai|r8|dop_v1|shpat|pat|nvapi|fw|csk|tvly|lsv2_pt)[_-][A-Za-z0-9_-]{24,}
    | \bpypi-[A-Za-z0-9_-]{30,}
    | \bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}
    | \bAGE-SECRET-KEY-1[A-Z0-9]{20,}
    # The whole run of characters at once: each `eyJ` in it would look at all that follow.
    | (?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]*?\beyJ[A-Za-z0-9_-]{10})[A-Za-z0-9_-]++
        \.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}
    | (?<=hooks\.slack\.com/services/)[A-Za-z0-9/]{20,}
    """,
    re.VERBOSE | re.DOTALL,
)
# Only the group `secret` is taken out: what stands around it says what it was.
_PLACES = re.compile(
    r"""
      (?i:authorization["']?\s*[:=]\s*["']?(?:bearer|basic|token)\s+)(?P<a>[A-Za-z0-9._~+/=-]{8,})
    | (?i:\bbearer\s+)(?P<b>[A-Za-z0-9._~+/=-]{16,})
    | \b[a-z][a-z0-9+.-]{0,30}://[^\s/:@"']*:(?P<c>[^\s/@"']{3,})@
    | (?i:\b[A-Za-z0-9_]*(?:api[_-]?key|access[_-]?key|private[_-]?key|secret|token|passw(?:or)?d
        |passphrase)(?:\\*["'])?\s*[:=]\s*(?:\\*["'])?)(?P<d>[^\s"'`,;&|<>(){}\[\]$]{8,}(?<!\\))
    """,
    re.VERBOSE,
)
_NAMES = re.compile(
    r"(?:^|[_.-]|(?-i:(?<=[a-z0-9])(?=[A-Z])))(?:secret|password|passwd|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|authorization"
    r"|(?:access|auth|refresh|id|bearer|session|api)[_-]?token)$",
    re.IGNORECASE,
)


class Redactor:
    """Cleans texts, JSON values and lines.

    secrets: values to be taken out wherever they stand, also in base64, in a
        URL and inside JSON in a string. Raises ValueError for one that is
        shorter than `SHORTEST`.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms: set[str] = set()
        for secret in secrets:
            if len(secret) < SHORTEST:
                raise ValueError(f"a secret of {len(secret)} characters is too short to be looked for")
            raw = secret.encode("utf-8", "surrogatepass")
            forms |= {secret, quote(secret, safe=""), quote(secret), json.dumps(secret)[1:-1]}
            forms |= {
                json.dumps(secret, ensure_ascii=False)[1:-1],
                json.dumps(json.dumps(secret)[1:-1])[1:-1],
            }
            forms |= {
                base64.b64encode(raw).decode().rstrip("="),
                base64.urlsafe_b64encode(raw).decode().rstrip("="),
            }
        # The longest first: a form may hold a shorter one.
        longest = sorted(forms, key=len, reverse=True)
        self._given = re.compile("|".join(map(re.escape, longest))) if longest else None

    def text(self, text: str) -> str:
        """A text without secrets."""
        if self._given is not None:
            text = self._given.sub(REDACTED, text)
        return _PLACES.sub(_placed, _SHAPES.sub(REDACTED, text))

    def value(self, value: Any) -> Any:
        """A JSON value without secrets: in its strings, under its telling keys, in its keys themselves."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.text(str(key)): self._under(str(key), each) for key, each in value.items()}
            case list() | tuple():
                return [self.value(each) for each in value]
            case _:
                return value

    def line(self, line: bytes) -> bytes:
        """A line of a transcript without secrets: as JSON if it is JSON, else as text. Its line end stays."""
        body = line.rstrip(b"\r\n")
        end = line[len(body) :]
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            return self.text(body.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape") + end
        return json.dumps(self.value(value), ensure_ascii=True).encode() + end

    def _under(self, key: str, value: Any) -> Any:
        return self._all(value) if _NAMES.search(key) else self.value(value)

    def _all(self, value: Any) -> Any:
        """What stands under a telling key: every text of it."""
        match value:
            case str() if value:
                return REDACTED
            case dict():
                return {self.text(str(key)): self._all(each) for key, each in value.items()}
            case list() | tuple():
                return [self._all(each) for each in value]
            case _:
                return value


def _placed(found: re.Match[str]) -> str:
    group = found.lastgroup
    assert group is not None
    if found[group] == REDACTED or found[group].startswith(REDACTED):
        return found[0]
    start, end = found.start(group) - found.start(), found.end(group) - found.start()
    return found[0][:start] + REDACTED + found[0][end:]
