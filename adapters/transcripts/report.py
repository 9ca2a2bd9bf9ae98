"""Figures as plain data: the names are part of the interface of ``--json``. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from adapters.transcripts.account import Figures, Share, Usage, size
from adapters.transcripts.account import total as added
from adapters.transcripts.events import Ending
from adapters.transcripts.prices import Cost, Price, by_table, cost_of
from adapters.transcripts.sessions import Measured, Unread

SCHEMA: Final = 1


def document(
    sessions: Iterable[Measured], unread: Iterable[Unread], prices: Mapping[str, Price]
) -> dict[str, Any]:
    """Everything that was measured, with totals."""
    sessions = list(sessions)
    return {
        "schema_version": SCHEMA,
        "sessions": [session(each, prices) for each in sessions],
        "totals": totals([each.figures for each in sessions], prices),
        "not_read": [{"file": str(each.path), "why": each.why} for each in unread],
    }


def session(measured: Measured, prices: Mapping[str, Price]) -> dict[str, Any]:
    """One session."""
    figures = measured.figures
    opened = figures.opened
    cost = cost_of(figures, prices)
    return {
        "session_id": measured.session.id,
        "harness": opened.harness or measured.session.harness,
        "harness_version": opened.version,
        "formats": list(measured.formats),
        "files": [str(path) for path in measured.session.paths],
        "cwd": opened.cwd,
        "title": opened.title,
        "forked_from": measured.session.parent,
        "tokens": _usage(figures.tokens),
        "tokens_main": _usage(figures.main),
        "tokens_subagents": _usage(figures.subagents),
        "tokens_inherited": _usage(figures.inherited),
        "turns": figures.turns,
        "turns_subagents": figures.turns_subagents,
        "turns_without_usage": figures.calls_without_usage,
        "tool_calls": figures.tool_calls,
        "tool_calls_subagents": figures.tool_calls_subagents,
        "tool_errors": figures.tool_errors,
        "prompts": figures.prompts,
        "compactions": figures.compactions,
        "models": [_share(share, prices, figures.cost_reported is not None) for share in figures.models],
        "cost_usd": cost.usd,
        "cost_basis": cost.basis,
        "cost_unpriced_models": list(cost.unpriced),
        "first": figures.first,
        "last": figures.last,
        "termination": _ending(figures.ending),
        "terminations": [_ending(ending) for ending in figures.endings],
        "records": figures.records,
        "skipped_lines": figures.skipped_lines,
        "skipped": [{"line": each.line, "why": each.why, "torn": each.torn} for each in figures.skipped],
        "torn_lines": figures.torn,
        "counts": dict(figures.counts),
        "lower_bounds": _bounds(figures, cost),
        "notes": list(figures.notes),
        "error": measured.error or None,
    }


def totals(all_figures: list[Figures], prices: Mapping[str, Price]) -> dict[str, Any]:
    """Sums over sessions. A sum with an unknown part is a lower bound, and says so."""
    names = ("input", "cached", "created", "output", "reasoning")
    bounds = {bound for figures in all_figures for bound in figures.lower_bounds}
    usage: dict[str, int | None] = {}
    for name in names:
        known = [value for figures in all_figures if (value := getattr(figures.tokens, name)) is not None]
        usage[name] = sum(known) if known else None
        if name in ("input", "output") and known and len(known) < len(all_figures):
            bounds.add(name)
    costs = [cost_of(figures, prices) for figures in all_figures]
    priced = [cost.usd for cost in costs if cost.usd is not None]
    used = [figures.tokens.input or figures.tokens.output for figures in all_figures]
    if priced and any(
        "cost" in _bounds(figures, cost) or (cost.usd is None and tokens)
        for figures, cost, tokens in zip(all_figures, costs, used, strict=True)
    ):
        bounds.add("cost")
    return {
        "sessions": len(all_figures),
        "tokens": _usage(Usage(**usage)),
        "turns": _sum(figures.turns for figures in all_figures),
        "tool_calls": _sum(figures.tool_calls for figures in all_figures),
        "tool_errors": _sum(figures.tool_errors for figures in all_figures),
        "models": models(all_figures, prices),
        "cost_usd": sum(priced) if priced else None,
        "cost_basis": sorted({cost.basis for cost in costs if cost.basis is not None}),
        "lower_bounds": sorted(bounds),
    }


def _bounds(figures: Figures, cost: Cost) -> list[str]:
    """The lower bounds; a cost that was made from tokens is one if they are, or if no model is known of some."""
    names = list(figures.lower_bounds)
    if cost.usd is None or "cost" in names:
        return names
    named = Usage.of(added(share.tokens for share in figures.models))
    less = cost.basis != "reported" and (
        not {"input", "output"}.isdisjoint(names)
        or (named.input or 0) < (figures.tokens.input or 0)
        or (named.output or 0) < (figures.tokens.output or 0)
    )
    return [*names, "cost"] if cost.lower_bound or less else names


def models(all_figures: Iterable[Figures], prices: Mapping[str, Price]) -> list[dict[str, Any]]:
    """Each model's part of several sessions, the largest first.

    Its cost is what the harnesses report for it, or for the whole session
    where that had one model, else by the table.
    """
    parts: dict[str | None, list[tuple[Share, Cost, set[str]]]] = {}
    for figures in all_figures:
        alone = len(figures.models) == 1
        for share in figures.models:
            paid = share.cost if share.cost is not None else figures.cost_reported if alone else None
            cost = Cost(paid, "reported") if paid is not None else by_table([share], prices)
            bounds = set(figures.lower_bounds)
            if cost.basis != "reported" and not bounds.isdisjoint(("input", "output")):
                bounds.add("cost")
            parts.setdefault(share.name, []).append((share, cost, bounds))
    out = []
    for name, each in parts.items():
        tokens = added(share.tokens for share, _, _ in each)
        priced = [cost.usd for _, cost, _ in each if cost.usd is not None]
        bases = {cost.basis for _, cost, _ in each if cost.usd is not None}
        bounds = {
            bound
            for _, _, bounds in each
            for bound in bounds
            if bound in ("turns", "input", "output", "cost")
        }
        if priced and any(cost.usd is None and any(share.tokens) for share, cost, _ in each):
            bounds.add("cost")
        row = {
            "model": name,
            "calls": _sum(share.calls for share, _, _ in each),
            "tokens": _usage(Usage.of(tokens)),
            "cost_usd": sum(priced) if priced else None,
            "cost_basis": None if not priced else bases.pop() if len(bases) == 1 else "prices",
            "lower_bounds": sorted(bounds),
        }
        out.append((-size(tokens), name or "", row))
    return [row for *_, row in sorted(out, key=lambda each: each[:2])]


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _usage(usage: Usage) -> dict[str, int | None]:
    return {
        "input": usage.input,
        "uncached": usage.uncached,
        "cached": usage.cached,
        "cache_created": usage.created,
        "output": usage.output,
        "reasoning": usage.reasoning,
    }


def _share(share: Share, prices: Mapping[str, Price], reported: bool) -> dict[str, Any]:
    cost = Cost(share.cost, "reported") if reported else by_table([share], prices)
    return {
        "model": share.name,
        "calls": share.calls,
        "tokens": _usage(share.usage),
        "cost_usd": cost.usd,
        "cost_basis": cost.basis if cost.usd is not None else None,
    }


def _ending(ending: Ending | None) -> dict[str, Any] | None:
    if ending is None:
        return None
    return {
        "kind": ending.kind,
        "code": ending.code,
        "text": ending.text,
        "at": ending.at,
        "basis": "last lines" if ending.weight == 0 else "said",
    }
