"""ATIF, the Agent Trajectory Interchange Format: 1.0 to 1.8.

What the format does that a count has to know:

- An agent's step is one call, or as many as its ``llm_call_count`` says; 0
  is a step that the program made without a model.
- ``prompt_tokens`` is the whole prompt, ``cached_tokens`` a part of it;
  tokens written to a cache, and reasoning, are in ``metrics.extra``, under
  the provider's names.
- A step with ``is_copied_context`` was made in another trajectory.
- ``final_metrics`` sums the steps of one trajectory, copied ones included:
  beside such steps it says nothing of this session.
- ``subagent_trajectories`` are whole trajectories of their own.
- There is no word about how it ended.
"""

from __future__ import annotations

from typing import Any, ClassVar

from adapters.transcripts.events import (
    Call,
    Counter,
    Event,
    Noted,
    Opened,
    Prompt,
    Said,
    Tokens,
    ToolCall,
    ToolResult,
    Turn,
)
from adapters.transcripts.reader import DocumentReader, Head, Span, count, instant, mapping, money, words
from adapters.transcripts.readers.litellm import known, split

_CREATED = ("cache_creation_input_tokens", "cache_creation_tokens", "cache_write_tokens")
_REASONING = ("reasoning_tokens", "reasoning_output_tokens")


class Atif(DocumentReader):
    """One trajectory, with those of its sub-agents."""

    format: ClassVar[str] = "atif"

    @classmethod
    def claims(cls, head: Head) -> int:
        value = mapping(head.document)
        return 98 if str(value.get("schema_version", "")).startswith("ATIF-v") and "steps" in value else 0

    def __init__(self, content: bool = True) -> None:
        super().__init__(content)
        self._tools: set[str] = set()

    def document(self, value: Any, out: list[Event]) -> None:
        agent = mapping(value.get("agent"))
        out.append(
            Opened(
                words(value.get("session_id")) or words(value.get("trajectory_id")),
                words(agent.get("name")),
                words(agent.get("version")),
                words(agent.get("model_name")),
            )
        )
        span = Span()
        records = self._trajectory(value, "", 0, span, out)
        out.append(span.read(records))

    def _trajectory(self, value: dict[str, Any], side: str, depth: int, span: Span, out: list[Event]) -> int:
        """One trajectory's steps, then those of its sub-agents; how many steps there were."""
        steps = [step for step in value.get("steps") or () if type(step) is dict]
        name = words(value.get("trajectory_id")) or words(value.get("session_id")) or "trajectory"
        name = f"{side}/{name}" if side else name
        model = words(mapping(value.get("agent")).get("model_name"))
        copied = any(step.get("is_copied_context") for step in steps)
        final = {} if copied else mapping(value.get("final_metrics"))
        bare = not any(known(_tokens(step)) for step in steps)
        first, calls = None, 0
        for step in steps:
            at = span.saw(instant(step.get("timestamp")))
            made = self._step(name, step, model, at, side, out)
            calls += made
            if made and bare and first is None:
                first = f"{name}:{step.get('step_id')}"
        self._final(name, final, first, calls, model, side, out)
        if words(value.get("continued_trajectory_ref")):
            out.append(Noted(f"it goes on in {value['continued_trajectory_ref']}"))
        records = len(steps)
        for place, each in enumerate(value.get("subagent_trajectories") or ()):
            if type(each) is dict and depth < 50:
                inside = f"{side}/{each.get('trajectory_id') or place}".lstrip("/")
                records += self._trajectory(each, inside, depth + 1, span, out)
        return records

    def _step(
        self, name: str, step: dict[str, Any], model: str | None, at: str | None, side: str, out: list[Event]
    ) -> int:
        """The events of a step; how many calls it stands for."""
        key = f"{name}:{step.get('step_id')}"
        copied = step.get("is_copied_context") is True
        if step.get("source") != "agent":
            if not copied:
                by = "user" if step.get("source") == "user" else "system"
                out.append(Prompt(key, at, step.get("message") if self.content else None, side, by))
            return 0
        calls = count(step.get("llm_call_count"))
        calls = 1 if calls is None else calls
        if calls:
            metrics = mapping(step.get("metrics"))
            tokens = _tokens(step)
            out.append(
                Call(
                    key,
                    None,
                    at,
                    words(step.get("model_name")) or model,
                    tokens if any(each is not None for each in tokens) else None,
                    side,
                    cost=money(metrics.get("cost_usd")),
                    inherited=copied,
                )
            )
        if copied:
            return 0
        self._said(key, step, at, side, out)
        names: dict[str, str] = {}
        for nth, tool in enumerate(step.get("tool_calls") or ()):
            asked = mapping(tool).get("arguments") if self.content else None
            given = str(mapping(tool).get("tool_call_id") or nth)
            called = names[given] = self._named(key, given)
            out.append(ToolCall(called, at, str(mapping(tool).get("function_name")), asked, key, side))
        for result in mapping(step.get("observation")).get("results") or ():
            source = words(mapping(result).get("source_call_id"))
            if source:
                failed = mapping(result.get("extra")).get("is_error")
                content = result.get("content") if self.content else None
                judged = failed if type(failed) is bool else None
                out.append(ToolResult(names.get(source, f"{key}:{source}"), at, content, judged, side))
        return calls

    def _named(self, key: str, given: str) -> str:
        """A tool call's own id; with its step's before it where another step has used it."""
        name = f"{key}:{given}" if given in self._tools else given
        self._tools.add(given)
        return name

    def _said(self, key: str, step: dict[str, Any], at: str | None, side: str, out: list[Event]) -> None:
        if not self.content:
            return
        thought = words(step.get("reasoning_content"))
        if thought:
            out.append(Said(key, at, thought, side, thought=True))
        message = step.get("message")
        parts = message if type(message) is list else [{"text": message}]
        text = "\n".join(part for each in parts if (part := words(mapping(each).get("text"))))
        if text:
            out.append(Said(key, at, text, side))

    def _final(
        self,
        name: str,
        final: dict[str, Any],
        first: str | None,
        calls: int,
        model: str | None,
        side: str,
        out: list[Event],
    ) -> None:
        names = ("total_prompt_tokens", "total_cached_tokens", "total_completion_tokens")
        whole, cached, output = (count(final.get(each)) for each in names)
        extra = mapping(final.get("extra"))
        tokens = split(
            whole, cached, _any(extra, _CREATED, "total_"), output, _any(extra, _REASONING, "total_")
        )
        if known(tokens) and not side:
            out.append(Turn(f"{name} final", None, tokens))
        elif known(tokens) and first is not None:
            # A sub-agent whose steps have no numbers: its total is seen at one of its calls.
            out.append(Call(first, None, None, model, tokens, side))
        out.append(Counter(f"{name} calls", None, None, (), money(final.get("total_cost_usd")), calls))


def _tokens(step: dict[str, Any]) -> Tokens:
    metrics = mapping(step.get("metrics"))
    extra = mapping(metrics.get("extra"))
    names = ("prompt_tokens", "cached_tokens", "completion_tokens")
    whole, cached, output = (count(metrics.get(name)) for name in names)
    return split(whole, cached, _any(extra, _CREATED), output, _any(extra, _REASONING))


def _any(extra: dict[str, Any], names: tuple[str, ...], prefix: str = "") -> int | None:
    """The first of these that is there, with the prefix of a total or without."""
    for name in names:
        for each in (f"{prefix}{name}", name):
            if (number := count(extra.get(each))) is not None:
                return number
    return None
