"""The names that everything derived from a track goes by: its id, and the ids of its sessions.

An id stands in branches, directory names, tmux session names and commands that people type, so it is made
of [a-z0-9-] only, and it is never the text of a time: `after: 22:30` and `after: 22-30` must not be two
readings of one word.
"""

from __future__ import annotations

import functools
import hashlib
import re
import unicodedata

MAX_LENGTH = 48
_HASH = 8  # hex digits; two ids that meet all the same are told apart when the second is claimed

# NFKD leaves these alone, or makes of them what their readers would not write.
_LETTERS = str.maketrans(
    {
        "ä": "ae", "ö": "oe", "ü": "ue", "Ä": "ae", "Ö": "oe", "Ü": "ue", "ß": "ss", "ẞ": "ss",
        "æ": "ae", "Æ": "ae", "œ": "oe", "Œ": "oe", "ø": "o", "Ø": "o", "ł": "l", "Ł": "l",
        "đ": "d", "Đ": "d", "ð": "d", "Ð": "d", "þ": "th", "Þ": "th", "ı": "i", "'": "", "’": "",
    }
)  # fmt: skip
_TIME_LIKE = re.compile(r"[\d-]+(?:[thz]|am|pm|uhr)?[\d-]*z?")
_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_SESSION = re.compile(r"(.+)-(\d+)-([0-9a-f]{12})")


@functools.lru_cache(maxsize=1 << 16)
def slug(text: str) -> str:
    """The id that a title or file stem gives: [a-z0-9-], 1 to 48 characters, the same every time.

    Umlauts are written out, other accents dropped. Where a good part of the letters is lost (CJK,
    Cyrillic, emoji alone), and where a long text is cut, eight hex digits of the text's SHA-256 tell two
    such texts apart. What would be a number or a time alone gets `t-` before it. slug(slug(x)) == slug(x).
    """
    text = unicodedata.normalize("NFC", text)
    kept = unicodedata.normalize("NFKD", text.translate(_LETTERS)).encode("ascii", "ignore").decode().lower()
    words = re.findall("[a-z0-9]+", kept)
    name = "-".join(words)
    lost = sum(not c.isascii() and c.isalnum() and not _ascii_letters(c) for c in text)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    if not name or 2 * lost > len(name.replace("-", "")):
        name = f"{name}-{digest}" if name else f"t-{digest}"
    if _TIME_LIKE.fullmatch(name):
        name = f"t-{name}"
    if len(name) > MAX_LENGTH:
        head = name[: MAX_LENGTH - _HASH - 1].rstrip("-")
        name = f"{head}-{digest}"
        if _TIME_LIKE.fullmatch(name):  # what made it a word was cut off
            name = f"t-{head[:-2].rstrip('-')}-{digest}"
    return name


def is_id(text: str) -> bool:
    return len(text) <= MAX_LENGTH and _ID.fullmatch(text) is not None


def session_id(track_id: str, attempt: int, random12: str) -> str:
    """The id of one attempt's session: `<track id>-<attempt>-<12 hex digits>`."""
    text = f"{track_id}-{attempt}-{random12}"
    if parse_session_id(text) != (track_id, attempt, random12):
        raise ValueError(f"no session id can be made of {track_id!r}, {attempt!r}, {random12!r}")
    return text


def parse_session_id(text: str) -> tuple[str, int, str] | None:
    """Track id, attempt and random part of a session id; None when it is none."""
    found = _SESSION.fullmatch(text)
    if found is None or not is_id(found[1]) or not found[2].isascii() or len(found[2]) > 9:
        return None
    return found[1], int(found[2]), found[3]


def _ascii_letters(char: str) -> bool:
    folded = unicodedata.normalize("NFKD", char.translate(_LETTERS))
    return any(c.isascii() and c.isalnum() for c in folded)
