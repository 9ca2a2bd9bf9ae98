"""A trajectory as a Markdown page that a person can read. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

#: Lines of a tool's output that are shown; the trajectory has all of them.
SHOWN: Final = 40

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})", re.MULTILINE)
# HTML at the start of a line may take in all that follows it: a comment, a script.
_HTML = re.compile(r"^([ \t>*+-]*)<")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def page(document: dict[str, Any]) -> str:
    """The page of an ATIF document, as `adapters.transcripts.trajectory` makes it."""
    return "\n".join(_page(document, 1)) + "\n"


def _page(document: dict[str, Any], level: int) -> Iterator[str]:
    agent = document.get("agent", {})
    name = document.get("trajectory_id") or document.get("session_id") or "session"
    title = f"{agent.get('name', 'agent')}: {name}"
    yield f"{'#' * level} {_line(title)}"
    yield ""
    yield from _facts(document)
    for step in document.get("steps", []):
        yield from _step(step, level + 1)
    for each in document.get("subagent_trajectories") or []:
        yield from _page(each, level + 1)


def _facts(document: dict[str, Any]) -> Iterator[str]:
    agent, metrics = document.get("agent", {}), document.get("final_metrics", {})
    subs = bool(document.get("subagent_trajectories"))
    rows = [
        ("Version", agent.get("version")),
        ("Model", agent.get("model_name")),
        ("Steps", len(document.get("steps", []))),
        ("Sub-agents", len(document.get("subagent_trajectories") or []) or None),
        ("Input tokens, without sub-agents" if subs else "Input tokens", metrics.get("total_prompt_tokens")),
        ("of them cached", metrics.get("total_cached_tokens")),
        (
            "Output tokens, without sub-agents" if subs else "Output tokens",
            metrics.get("total_completion_tokens"),
        ),
        ("Cost", f"${metrics['total_cost_usd']:.4f}" if "total_cost_usd" in metrics else None),
    ]
    yield "| | |"
    yield "|---|---|"
    for name, value in rows:
        if value is not None:
            said = f"{value:,}" if isinstance(value, int) else _line(str(value))
            yield f"| {name} | {said} |"
    yield ""
    for note in (document.get("notes") or "").splitlines():
        yield f"> {_line(note)}"
        yield ""


def _step(step: dict[str, Any], level: int) -> Iterator[str]:
    at = step.get("timestamp")
    mark = f"{'#' * min(level, 6)} {step['step_id']}. {step['source']}"
    yield f"{mark} · {_line(at)}" if at else mark
    yield ""
    if thought := step.get("reasoning_content"):
        yield from (f"> {line}".rstrip() for line in _lines(thought))
        yield ""
    if message := step.get("message"):
        # What a person or an agent wrote is shown as it was written: its own marks would draw this page.
        yield from _fenced(message, "text", None) if step["source"] != "agent" else _closed(message)
        yield ""
    results = {
        row.get("source_call_id"): row
        for row in step.get("observation", {}).get("results", [])
        if row is not None
    }
    for tool in step.get("tool_calls") or []:
        yield f"**{_line(tool['function_name'])}**"
        yield ""
        yield from _fenced(_arguments(tool["arguments"]), "json", SHOWN)
        row = results.get(tool["tool_call_id"])
        if row is not None:
            yield ""
            yield "failed:" if row.get("extra", {}).get("is_error") else "gave:"
            yield ""
            yield from _fenced(str(row.get("content", "")), "text", SHOWN)
        yield ""
    metrics = step.get("metrics")
    if metrics:
        parts = [
            f"{metrics[key]:,} {word}"
            for key, word in (
                ("prompt_tokens", "in"),
                ("cached_tokens", "cached"),
                ("completion_tokens", "out"),
            )
            if key in metrics
        ]
        yield f"<sub>{', '.join(parts)}</sub>"
        yield ""


def _arguments(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False, indent=2, default=str)


def _fenced(text: str, kind: str, most: int | None) -> Iterator[str]:
    lines = _lines(text)
    # Of what is shown: a mark that is at the start of a line only when control characters are gone counts too.
    marks = (_FENCE.match(line) for line in lines)
    longest = max((len(mark[1]) for mark in marks if mark and mark[1][0] == "`"), default=2)
    fence = "`" * (longest + 1)
    yield f"{fence}{kind}"
    yield from lines[:most]
    yield fence
    if most is not None and len(lines) > most:
        yield ""
        yield f"({len(lines) - most:,} more lines)"


def _closed(text: str) -> Iterator[str]:
    """What an agent wrote, in which nothing stays open that would take in the rest of the page."""
    fence = ""
    for line in _lines(text):
        mark = _FENCE.match(line)
        if not fence:
            yield _HTML.sub(r"\1&lt;", line)
            fence = mark[1] if mark else ""
        else:
            yield line
            if mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
    if fence:
        yield fence


def _lines(text: str) -> list[str]:
    """Lines as Markdown has them: they end at a line feed, and nowhere else."""
    lines = _clean(text).split("\n")
    return lines if lines[-1] else lines[:-1]


def _line(text: str) -> str:
    return _CONTROL.sub("", text).replace("\n", " ").replace("|", "\\|").replace("<", "&lt;")


def _clean(text: str) -> str:
    return _CONTROL.sub("", text.replace("\r\n", "\n"))
