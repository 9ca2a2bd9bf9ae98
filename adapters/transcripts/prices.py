"""What tokens cost, for sessions whose harness does not say. Pure.

The table is dated: prices change, and a figure made from it is an estimate
that says so. A harness's own account always goes before it. Settings extend
and correct the table, see ``[prices]`` in docs/reference/settings.md.

Not in it: longer-context surcharges, batch and priority tiers, fees for
server tools, subscriptions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from adapters.transcripts.account import Figures, Share
from adapters.transcripts.events import Tokens

_MILLION = 1_000_000

#: The day for which the shipped table was checked.
AS_OF: Final = "2026-02-28"


#: A price of one's own that has no day.
UNDATED: Final = "settings"


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens of each kind.

    cached, created, created_1h: None: as input that no cache was used for.
    """

    input: float
    output: float
    cached: float | None = None
    created: float | None = None
    created_1h: float | None = None
    as_of: str = AS_OF

    def of(self, tokens: Tokens) -> float:
        """US dollars for these tokens; an unknown count costs nothing."""
        cached = self.input if self.cached is None else self.cached
        created = self.input if self.created is None else self.created
        hour = created if self.created_1h is None else self.created_1h
        long = min(tokens.created_1h or 0, tokens.created or 0)
        return (
            (tokens.fresh or 0) * self.input
            + (tokens.cached or 0) * cached
            + ((tokens.created or 0) - long) * created
            + long * hour
            + (tokens.output or 0) * self.output
        ) / _MILLION


def _anthropic(input: float, output: float) -> Price:
    """Anthropic's cache: a tenth to read, a quarter more to write for five minutes, double for an hour."""
    return Price(input, output, input / 10, input * 1.25, input * 2)


def _openai(input: float, cached: float, output: float) -> Price:
    return Price(input, output, cached)


#: Name or glob of a model, as `canonical` writes it, to its price. The longest that matches counts.
SHIPPED: Final[Mapping[str, Price]] = {
    "claude-opus-4-6*": _anthropic(5, 25),
    "claude-opus-4-5*": _anthropic(5, 25),
    "claude-opus-4-1*": _anthropic(15, 75),
    "claude-opus-4-2025*": _anthropic(15, 75),
    "claude-opus-4": _anthropic(15, 75),
    "claude-sonnet-4-6*": _anthropic(3, 15),
    "claude-sonnet-4-5*": _anthropic(3, 15),
    "claude-sonnet-4-2025*": _anthropic(3, 15),
    "claude-sonnet-4": _anthropic(3, 15),
    "claude-haiku-4-5*": _anthropic(1, 5),
    "claude-3-7-sonnet*": _anthropic(3, 15),
    "claude-3-5-sonnet*": _anthropic(3, 15),
    "claude-3-5-haiku*": _anthropic(0.8, 4),
    "claude-3-opus*": _anthropic(15, 75),
    "claude-3-sonnet*": _anthropic(3, 15),
    "claude-3-haiku*": Price(0.25, 1.25, 0.03, 0.3),
    "gpt-5": _openai(1.25, 0.125, 10),
    "gpt-5-codex": _openai(1.25, 0.125, 10),
    "gpt-5-mini": _openai(0.25, 0.025, 2),
    "gpt-5-nano": _openai(0.05, 0.005, 0.4),
    "gpt-5.1": _openai(1.25, 0.125, 10),
    "gpt-5.1-codex": _openai(1.25, 0.125, 10),
    "gpt-5.1-codex-max": _openai(1.25, 0.125, 10),
    "gpt-5.1-codex-mini": _openai(0.25, 0.025, 2),
    "gpt-5.2": _openai(1.75, 0.175, 14),
    "gpt-5.2-codex": _openai(1.75, 0.175, 14),
    "gpt-4.1": _openai(2, 0.5, 8),
    "gpt-4.1-mini": _openai(0.4, 0.1, 1.6),
    "gpt-4o": _openai(2.5, 1.25, 10),
    "gpt-4o-mini": _openai(0.15, 0.075, 0.6),
    "o3": _openai(2, 0.5, 8),
    "o4-mini": _openai(1.1, 0.275, 4.4),
    "gemini-2.5-pro": Price(1.25, 10, 0.125),
    "gemini-2.5-flash": Price(0.3, 2.5, 0.03),
}

_PREFIX = re.compile(r"^(?:[a-z]{2,6}\.)?(?:[a-z0-9_.-]+/)*(?:anthropic\.)?")
_SUFFIX = re.compile(r"(?:\[\w+\]|@\w+|-v\d+|:\w+)+$")

#: Characters of the longest name of a model that is looked at: no real one is half as long.
_LONGEST: Final = 200


def canonical(model: str) -> str:
    """A model's name without what gateways and clouds put around it (``us.anthropic.``, ``openai/``, ``[1m]``)."""
    name = model.lower()
    if len(name) > _LONGEST:
        return name
    return _SUFFIX.sub("", _PREFIX.sub("", name)) or name


def price_of(model: str | None, own: Mapping[str, Price]) -> Price | None:
    """The price of a model: by its name as it stands, by its canonical name; own prices first.

    A model without a name has the price of the glob ``*`` alone.
    """
    if model is None:
        return own.get("*")
    for table in (own, SHIPPED):
        for name in (model, canonical(model)):
            if name in table:
                return table[name]
            matching = [glob for glob in table if fnmatchcase(name, glob)]
            if matching:
                return table[max(matching, key=len)]
    return None


@dataclass(frozen=True, slots=True)
class Cost:
    """What a session cost.

    usd: None if nothing is known.
    basis: ``reported`` by the harness, ``prices YYYY-MM-DD``, the day of the
        oldest price that was used, or ``prices of the settings``, if those
        alone were used and have no day.
    unpriced: models that were used and have no price: `usd` is without them.
    """

    usd: float | None
    basis: str | None
    unpriced: tuple[str, ...] = ()

    @property
    def lower_bound(self) -> bool:
        return self.usd is not None and bool(self.unpriced)


def cost_of(figures: Figures, own: Mapping[str, Price]) -> Cost:
    """By the harness's account if there is one, else by the table."""
    if figures.cost_reported is not None:
        return Cost(figures.cost_reported, "reported")
    return by_table(figures.models, own)


def by_table(shares: Iterable[Share], own: Mapping[str, Price]) -> Cost:
    """What these tokens cost by the table."""
    usd: float | None = None
    days: set[str] = set()
    unpriced = []
    for share in shares:
        if not any(share.tokens):
            continue
        price = price_of(share.name, own)
        if price is None:
            unpriced.append(share.name or "an unnamed model")
        else:
            usd = (usd or 0.0) + price.of(share.tokens)
            days.add(price.as_of)
    dated = days - {UNDATED}
    basis = f"prices {min(dated)}" if dated else "prices of the settings" if days else None
    return Cost(usd, basis, tuple(unpriced))
