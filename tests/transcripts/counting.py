"""How the tests of transcripts make figures."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from adapters.transcripts import sessions
from adapters.transcripts.account import Account, Figures, Usage
from adapters.transcripts.reader import Reader


def figures(data: bytes, reader: type[Reader], piece: int = 0) -> Figures:
    """The figures of these bytes, fed whole or in pieces."""
    account, one = Account(), reader(False)
    for start in range(0, len(data), piece or max(1, len(data))):
        account.add(one.feed(data[start : start + (piece or len(data))]))
    account.add(one.close())
    return account.figures()


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def totals(found: Figures) -> tuple[Any, ...]:
    """What repeating and, where a format allows it, shuffling must not change."""
    counted = (found.turns, found.turns_subagents, found.tool_calls, found.tool_errors, found.compactions)
    shares = {share.name: (share.calls, share.tokens) for share in found.models}
    return (found.tokens, found.main, found.subagents, found.cost_reported, shares, *counted)


def measured(*paths: Path) -> list[sessions.Measured]:
    found = [each for each in sessions.find(paths) if isinstance(each, sessions.Source)]
    return list(sessions.measure(sessions.gather(found)))


def whole(usages: Iterable[Usage]) -> dict[str, int]:
    """The sums in the words of EXPECTED.json, whose input is without cache; it writes 0 where nothing is known."""
    usages = list(usages)
    return {
        "input": sum(usage.uncached or 0 for usage in usages),
        "output": sum(usage.output or 0 for usage in usages),
        "cache_creation": sum(usage.created or 0 for usage in usages),
        "cache_read": sum(usage.cached or 0 for usage in usages),
    }
