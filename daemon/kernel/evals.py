"""One row for every session in ``md-db/evals/<yyyy-mm>.jsonl``, exactly once. What is not known is null.

The row is written after ``settle.json`` and before ``settled``. A crash in
between makes the next start look for the row by its session id first.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from daemon.durable import Files
from daemon.kernel.clock import Now, stamp
from daemon.kernel.concluding import Concluded
from daemon.spool.journal import encode_row, tail_rows
from daemon.spool.sessions import Claim
from daemon.tracks.actions import Settle
from daemon.tracks.track import Track

SCHEMA = 1
#: How far back a roll-forward looks for a row (bytes): a crash loses at most the last one.
TAIL = 4 << 20


class Evals:
    def __init__(self, folder: Path, files: Files) -> None:
        self._folder = folder
        self._files = files

    def path(self, ended_at: str) -> Path:
        """The month's file for an ISO time."""
        return self._folder / f"{ended_at[:7]}.jsonl"

    def path_of(self, row: Mapping[str, Any]) -> Path:
        return self.path(str(row.get("settled_at") or row["at"]))

    def write(self, row: Mapping[str, Any], *, sure: bool) -> None:
        """Append; with `sure` False (a crash may have come after it) only when it is not there yet."""
        path = self.path_of(row)
        session = row["session_id"]
        if not sure and any(
            (known.get("session_id"), known.get("type"), known.get("value"))
            == (session, row.get("type"), row.get("value"))
            for known in tail_rows(path, TAIL)
        ):
            return
        self._files.append(path, encode_row(row))


def label(known: Claim, value: Literal["met", "not met"], now: Now) -> dict[str, Any]:
    """What a person says of a session that has its row already; readers fold the two."""
    return {
        "v": SCHEMA,
        "type": "label",
        "session_id": known.session,
        "track_id": known.item,
        "value": value,
        "by": "person",
        "at": stamp(now.wall),
    }


def row(
    known: Claim,
    track: Track | None,
    concluded: Concluded,
    action: Settle,
    now: Now,
    provenance: Mapping[str, Any],
) -> dict[str, Any]:
    """One session's row; token and money names after the OpenTelemetry GenAI conventions.

    provenance: what was recorded of the instructions at the start; {} where there were none.
    """
    ended = concluded.ended
    usage = concluded.collected.usage
    judged = [check for check in concluded.conclusion.checks if check.passed is not None]
    passed = sum(1 for check in judged if check.passed)
    turns, calls = usage.turns, usage.tool_calls
    spent = None
    if usage.input_tokens is not None and usage.output_tokens is not None:
        spent = usage.input_tokens + usage.output_tokens
    return {
        "v": SCHEMA,
        "type": "session",
        "session_id": known.session,
        "track_id": known.item,
        "project_id": track.project_id if track else None,
        "kind": track.kind if track else None,
        "attempt": known.attempt,
        "harness_id": known.extra.get("harness"),
        "harness_version": concluded.collected.harness_version,
        "model_id": known.extra.get("model"),
        "route": known.extra.get("route"),
        "claimed_at": known.claimed_at,
        "started_at": ended.started_at if ended else None,
        "finished_at": ended.ended_at if ended else None,
        "settled_at": stamp(now.wall),
        "wall_s": round(ended.wall_s, 3) if ended else None,
        "termination": action.termination,
        "destination": action.destination,
        "contract": {
            "checks": len(judged),
            "passed": passed,
            "adherence": round(passed / len(judged), 4) if judged else None,
            "to_judge": len(concluded.conclusion.checks) - len(judged),
            "changed": concluded.conclusion.contract is not None,
        },
        "outcome_label": (
            {"value": "met", "by": "person", "at": stamp(now.wall)}
            if action.termination == "clean/by_person"
            else None
        ),
        "swaps": 0,
        "flags": [],
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        "turns": turns,
        "tool_calls": calls,
        "tool_calls_per_turn": round(calls / turns, 4) if calls is not None and turns else None,
        "tokens_per_turn": round(spent / turns, 1) if spent is not None and turns else None,
        "cost_usd": usage.cost_usd,
        "cost_basis": usage.cost_basis,
        "mddb": [
            {"path": told.get("path"), "sha": told.get("sha")}
            for told in provenance.get("told", ())
            if isinstance(told, dict)
        ],
        "mddb_revision": provenance.get("revision"),
    }
