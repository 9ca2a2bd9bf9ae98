"""The table of prices: what providers themselves charged for real sessions comes out of it to the last digit."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from adapters.transcripts.account import Account
from adapters.transcripts.events import Call, Counter, Tokens
from adapters.transcripts.prices import AS_OF, Price, by_table, canonical, cost_of, price_of
from adapters.transcripts.readers.claude_code import ClaudeCode
from tests.transcripts.counting import figures


def test_the_costs_that_real_sessions_report_come_out_of_the_table(corpus: Path) -> None:
    checked = set()
    for path in (corpus / "c_streamjson").iterdir():
        found = figures(path.read_bytes(), ClaudeCode)
        for share in found.models:
            if share.cost is not None and (price := price_of(share.name, {})) is not None:
                assert price.of(share.tokens) == pytest.approx(share.cost, rel=1e-9), share.name
                checked.add(canonical(share.name or ""))
    assert len(checked) == 4


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5-20250929"),
        ("openrouter/anthropic/claude-opus-4-6[1m]", "claude-opus-4-6"),
        ("Claude-Opus-4-6", "claude-opus-4-6"),
        ("claude-sonnet-4@20250514", "claude-sonnet-4"),
        ("openai/gpt-5", "gpt-5"),
        ("gpt-5.2-codex", "gpt-5.2-codex"),
        ("", ""),
    ],
)
def test_the_name_of_a_model_without_what_stands_around_it(name: str, right: str) -> None:
    assert canonical(name) == right


def test_a_price_is_never_that_of_another_model() -> None:
    for name in ("gpt-5.4", "gpt-5-pro", "claude-opus-5", "gpt-5.1-codex-mini-high", "o3-pro", "", None):
        assert price_of(name, {}) is None, name
    assert price_of("gpt-5.1-codex-mini", {}) != price_of("gpt-5.1-codex", {})


def test_prices_of_ones_own_go_first_and_the_longest_glob_counts() -> None:
    own = {
        "claude-*": Price(1, 1),
        "claude-opus-*": Price(2, 2),
        "gpt-5": Price(3, 3),
        "gateway/x": Price(4, 4),
    }
    assert price_of("anthropic/claude-opus-4-6", own) == Price(2, 2)
    assert price_of("claude-sonnet-4-5", own) == Price(1, 1)
    assert price_of("openai/gpt-5", own) == Price(3, 3)
    assert price_of("gateway/x", own) == Price(4, 4)
    assert price_of("gpt-4o", own) == price_of("gpt-4o", {})


def test_an_hour_of_cache_costs_more_than_five_minutes() -> None:
    price = price_of("claude-sonnet-4-5", {})
    assert price is not None
    million = 1_000_000
    assert price.of(Tokens(0, 0, million, 0)) == pytest.approx(3.75)
    assert price.of(Tokens(0, 0, million, 0, None, million)) == pytest.approx(6)
    assert price.of(Tokens(0, 0, million, 0, None, 2 * million)) == pytest.approx(6)
    assert Price(2, 8).of(Tokens(million, million, million, million)) == pytest.approx(14)


def test_a_model_without_a_price_makes_a_lower_bound_that_names_it() -> None:
    account = Account()
    account.add(
        [Call("a", None, None, "gpt-4o", Tokens(1_000_000)), Call("b", None, None, "secret-1", Tokens(9))]
    )
    cost = cost_of(account.figures(), {})
    assert (cost.usd, cost.basis, cost.unpriced, cost.lower_bound) == (
        2.5,
        f"prices {AS_OF}",
        ("secret-1",),
        True,
    )
    only = by_table(account.figures().models[1:], {})
    assert (only.usd, only.basis, only.unpriced) == (None, None, ("secret-1",))


def test_the_account_of_the_harness_goes_before_the_table() -> None:
    account = Account()
    account.add([Call("a", None, None, "gpt-4o", Tokens(1_000_000)), Counter("c", None, None, cost=0.75)])
    assert (cost_of(account.figures(), {}).usd, cost_of(account.figures(), {}).basis) == (0.75, "reported")


def test_the_oldest_day_is_told() -> None:
    own = {"a": Price(1, 1, as_of="2025-01-01"), "b": Price(1, 1, as_of="2026-01-01")}
    account = Account()
    account.add([Call("1", None, None, "a", Tokens(1)), Call("2", None, None, "b", Tokens(1))])
    assert cost_of(account.figures(), own).basis == "prices 2025-01-01"


def test_names_of_models_that_are_globs_themselves_do_no_harm() -> None:
    assert price_of("[", {"[": Price(1, 1)}) == Price(1, 1)
    assert price_of("*", {}) is None
    assert json.dumps(canonical("[x]"))


@pytest.mark.parametrize("name", ["-v1:1" * 40 + "!", ":a" * 50_000 + "!", "a/" * 50_000 + "!"])
def test_a_hostile_name_of_a_model_takes_no_time(name: str) -> None:
    begun = time.perf_counter()
    canonical(name)
    assert time.perf_counter() - begun < 1
