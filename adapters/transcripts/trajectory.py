"""From events to a trajectory in the Agent Trajectory Interchange Format (ATIF), version 1.7.

One step for each model call, prompt and word of the harness, in the order of
their first sight; what a transcript repeats stands once. Sub-agents are
embedded trajectories of their own. The format and its rules: the RFC
"Agent Trajectory Interchange Format" of the Harbor framework.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from adapters.transcripts.account import Account, Figures, Usage, largest, total
from adapters.transcripts.events import (
    Call,
    Compacted,
    Event,
    Prompt,
    Said,
    Tokens,
    ToolCall,
    ToolResult,
)

VERSION: Final = "ATIF-v1.7"

#: Levels of objects and lists in arguments and results that are kept; what is below them is hostile or broken.
DEEPEST: Final = 100
_TOO_DEEP: Final = "[nested too deeply to be kept]"


@dataclass(slots=True)
class _Step:
    source: str
    at: str | None = None
    key: str | None = None
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    model: str | None = None
    tokens: Tokens | None = None
    cost: float | None = None
    stop: str | None = None
    copied: bool = False
    answered: bool = False


class _Thread:
    """The steps of the main conversation, or of one sub-agent."""

    def __init__(self) -> None:
        self.steps: list[_Step] = []
        self._by_key: dict[str, _Step] = {}
        self._by_tool: dict[str, _Step] = {}
        self._answered: set[str] = set()
        self._prompts: set[str] = set()
        self._said: set[tuple[int, bool, str]] = set()

    def call(self, call: Call) -> None:
        step = self._step(call.key, call.at)
        step.model = step.model or call.model
        step.stop = call.stop or step.stop
        step.copied = step.copied or call.inherited
        if call.tokens is not None:
            step.tokens = call.tokens if step.tokens is None else largest(step.tokens, call.tokens)
        if call.cost is not None:
            step.cost = max(call.cost, step.cost or 0.0)

    def said(self, said: Said) -> None:
        step = self._step(said.call, said.at)
        mark = (id(step), said.thought, said.text)
        if mark not in self._said:
            self._said.add(mark)
            (step.thoughts if said.thought else step.texts).append(said.text)

    def tool(self, tool: ToolCall) -> None:
        if tool.key in self._by_tool:
            return
        step = self._by_tool[tool.key] = self._step(tool.call, tool.at)
        step.tools.append(
            {"tool_call_id": tool.key, "function_name": tool.name, "arguments": _object(tool.arguments)}
        )

    def result(self, result: ToolResult) -> None:
        step = self._by_tool.get(result.key)
        if step is None or result.key in self._answered:
            return
        self._answered.add(result.key)
        step.answered = True
        row: dict[str, Any] = {"source_call_id": result.key, "content": text_of(result.content)}
        if result.failed:
            row["extra"] = {"is_error": True}
        if result.agent is not None:
            row["subagent_trajectory_ref"] = [{"trajectory_id": result.agent}]
        step.results.append(row)

    def prompt(self, prompt: Prompt) -> None:
        if prompt.key not in self._prompts:
            self._prompts.add(prompt.key)
            source = "system" if prompt.by == "system" else "user"
            self.steps.append(_Step(source, prompt.at, texts=[text_of(prompt.text)]))

    def compacted(self, compacted: Compacted) -> None:
        if compacted.key not in self._prompts:
            self._prompts.add(compacted.key)
            self.steps.append(_Step("system", compacted.at, texts=["The conversation was compacted."]))

    def _step(self, key: str | None, at: str | None) -> _Step:
        """The step of a call; without a key: the last one, unless a prompt or a tool's result came between."""
        if key is not None and key in self._by_key:
            return self._by_key[key]
        step = self.steps[-1] if self.steps else None
        taken = step is not None and key is not None and step.key is not None
        if step is None or step.source != "agent" or step.answered or taken:
            step = _Step("agent", at)
            self.steps.append(step)
        if key is not None:
            step.key = key
            self._by_key[key] = step
        return step


class Trajectory:
    """Builds a trajectory from the events of one session."""

    def __init__(self) -> None:
        self._account = Account()
        self._threads: dict[str, _Thread] = {"": _Thread()}

    def add(self, events: list[Event]) -> None:
        """Take these events, which follow those of the last call."""
        self._account.add(events)
        for event in events:
            match event:
                case Call(side=side):
                    self._thread(side).call(event)
                case Said(side=side):
                    self._thread(side).said(event)
                case ToolCall(side=side):
                    self._thread(side).tool(event)
                case ToolResult(side=side):
                    self._thread(side).result(event)
                case Prompt(side=side):
                    self._thread(side).prompt(event)
                case Compacted():
                    self._threads[""].compacted(event)
                case _:
                    pass

    def _thread(self, side: str) -> _Thread:
        return self._threads.setdefault(side, _Thread())

    def figures(self) -> Figures:
        return self._account.figures()

    def document(self, harness: str, extra: dict[str, Any] | None = None) -> dict[str, Any]:
        """The trajectory as ATIF; `extra` is put into final_metrics beside what ATIF has names for."""
        figures = self.figures()
        opened = figures.opened
        agent = {
            "name": opened.harness or harness,
            "version": opened.version or "unknown",
            "model_name": opened.model or next((share.name for share in figures.models), None),
        }
        main = self._threads[""]
        sides = {side: thread for side, thread in self._threads.items() if side and thread.steps}
        document: dict[str, Any] = {
            "schema_version": VERSION,
            "session_id": opened.session,
            "trajectory_id": opened.session,
            "agent": _known(agent),
            "steps": _written(main.steps, sides.keys()),
            "notes": "\n".join(_notes(figures)) or None,
            "final_metrics": _known(
                {
                    "total_prompt_tokens": figures.main.input,
                    "total_completion_tokens": figures.main.output,
                    "total_cached_tokens": figures.main.cached,
                    "total_cost_usd": figures.cost_reported,
                    "total_steps": len(main.steps),
                    "extra": extra,
                }
            ),
            "subagent_trajectories": [
                {
                    "schema_version": VERSION,
                    "session_id": opened.session,
                    "trajectory_id": side,
                    "agent": _known(agent),
                    "steps": _written(thread.steps, sides.keys()),
                    "final_metrics": _totals(thread.steps),
                }
                for side, thread in sides.items()
            ]
            or None,
        }
        return _known(document)


def _written(steps: list[_Step], sides: Iterable[str]) -> list[dict[str, Any]]:
    known = set(sides)
    return [_step(number, step, known) for number, step in enumerate(steps, 1)]


def _step(number: int, step: _Step, sides: set[str]) -> dict[str, Any]:
    out: dict[str, Any] = {
        "step_id": number,
        "timestamp": step.at,
        "source": step.source,
        "message": "\n\n".join(step.texts),
    }
    if step.source != "agent":
        return _known(out)
    for row in step.results:
        refs = row.get("subagent_trajectory_ref")
        if row["source_call_id"] in sides and refs is None:
            row["subagent_trajectory_ref"] = refs = [{"trajectory_id": row["source_call_id"]}]
        if refs is not None and refs[0]["trajectory_id"] not in sides:
            del row["subagent_trajectory_ref"]
    out |= {
        "model_name": step.model,
        "reasoning_content": "\n\n".join(step.thoughts) or None,
        "tool_calls": step.tools or None,
        "observation": {"results": step.results} if step.results else None,
        "metrics": _metrics(step),
        "is_copied_context": True if step.copied else None,
        "extra": {"stop_reason": step.stop} if step.stop else None,
    }
    return _known(out)


def _metrics(step: _Step) -> dict[str, Any] | None:
    if step.tokens is None and step.cost is None:
        return None
    usage = Usage.of(step.tokens or Tokens())
    extra = _known({"cache_creation_tokens": usage.created, "reasoning_tokens": usage.reasoning})
    return (
        _known(
            {
                "prompt_tokens": usage.input,
                "completion_tokens": usage.output,
                "cached_tokens": usage.cached,
                "cost_usd": step.cost,
                "extra": extra or None,
            }
        )
        or None
    )


def _totals(steps: list[_Step]) -> dict[str, Any]:
    """The sums of a sub-agent's own steps: those of its parent are without them."""
    usage = Usage.of(total(step.tokens for step in steps if step.tokens is not None and not step.copied))
    return _known(
        {
            "total_prompt_tokens": usage.input,
            "total_completion_tokens": usage.output,
            "total_cached_tokens": usage.cached,
            "total_steps": len(steps),
        }
    )


def _notes(figures: Figures) -> Iterable[str]:
    if figures.lower_bounds:
        yield f"Lower bounds: {', '.join(figures.lower_bounds)}."
    if figures.skipped_lines:
        lines = ", ".join(str(each.line) for each in figures.skipped[:20] if each.line is not None)
        yield f"Lines that were not read: {figures.skipped_lines}{f' ({lines})' if lines else ''}."
    yield from figures.notes


def _known(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _object(arguments: object) -> dict[str, Any]:
    if _deep(arguments):
        return {"input": _TOO_DEEP}
    if isinstance(arguments, dict):
        return arguments
    return {} if arguments is None else {"input": arguments}


def _deep(value: object) -> bool:
    """Whether it is nested more deeply than `DEEPEST`."""
    level = [value]
    for _ in range(DEEPEST):
        inner = (
            each.values() if isinstance(each, dict) else each
            for each in level
            if isinstance(each, (dict, list))
        )
        level = [each for values in inner for each in values if isinstance(each, (dict, list))]
        if not level:
            return False
    return True


def text_of(content: object) -> str:
    """Content of any shape as text: text as it is, parts joined, an image as its kind, the rest as JSON."""
    if isinstance(content, str):
        return content
    return _TOO_DEEP if _deep(content) else _text_of(content)


def _text_of(content: object) -> str:
    match content:
        case None:
            return ""
        case str():
            return content
        case list():
            return "\n".join(_text_of(each) for each in content)
        case {"text": str(text)}:
            return text
        case {"type": "image" | "input_image" | "image_url", **rest}:
            source = rest.get("source")
            kind = source.get("media_type") if isinstance(source, dict) else None
            return f"[image{f' {kind}' if kind else ''}]"
        case {"type": "tool_result", "content": inner}:
            return _text_of(inner)
        case {"content": str() | list() as inner}:
            return _text_of(inner)
        case _:
            return json.dumps(content, ensure_ascii=False, default=str)


def whole(text: str) -> str:
    """Text that can be written as UTF-8: surrogate pairs joined, lone halves replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
