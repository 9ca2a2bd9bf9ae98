"""Kimi Code: ``wire.jsonl`` of an agent, main or sub.

What the format does that a count has to know:

- A step is one call: its ``step.end`` has the usage, and ``usage.record``
  has the same again, without an id. The latter also tells of calls that are
  no step (compaction); the larger of both sums counts.
- ``inputOther``, ``inputCacheRead`` and ``inputCacheCreation`` do not overlap.
- Ids of tools begin again in each turn.
"""

from __future__ import annotations

from typing import Any, ClassVar

from adapters.transcripts.events import (
    Call,
    Counted,
    Ending,
    Event,
    Opened,
    Prompt,
    Said,
    Tokens,
    ToolCall,
    ToolResult,
    Turn,
)
from adapters.transcripts.keys import own
from adapters.transcripts.reader import Head, LineReader, count, instant, mapping, words

_OWN = ("context.append_loop_event", "usage.record", "llm.request", "turn.prompt", "llm.tools_snapshot")


class Kimi(LineReader):
    """One agent of Kimi Code."""

    format: ClassVar[str] = "kimi"

    def __init__(self, content: bool = True) -> None:
        super().__init__(content)
        self._model: str | None = None
        self._tools: dict[str, str] = {}
        self._answered: dict[tuple[str | None, str], str] = {}
        self._ending: Ending | None = None

    @classmethod
    def claims(cls, head: Head) -> int:
        return 92 if any(words(o.get("type")) in _OWN and "time" in o for o in head.records) else 0

    def record(self, o: dict[str, Any], line: int, out: list[Event]) -> None:
        at = instant(o.get("time", o.get("created_at")))
        self.saw(at)
        match o.get("type"):
            case "config.update":
                self._model = words(o.get("modelAlias")) or self._model
                out.append(Opened(harness="kimi", model=self._model, cwd=words(o.get("cwd"))))
            case "turn.prompt":
                by = "system" if mapping(o.get("origin")).get("kind") == "system_trigger" else "user"
                out.append(Prompt(own(o), at, o.get("input") if self.content else None, by=by))
                self._ending = None
            case "usage.record":
                out.append(Turn(own(o), at, _tokens(mapping(o.get("usage")))))
            case "llm.request":
                out.append(Counted(f"{o.get('kind')} requests", own(o)))
            case "context.append_loop_event":
                self._event(mapping(o.get("event")), at, out)
            case _:
                pass

    def _event(self, event: dict[str, Any], at: str | None, out: list[Event]) -> None:
        step = words(event.get("stepUuid")) or ""
        match event.get("type"):
            case "step.end":
                usage = event.get("usage")
                key = words(event.get("uuid")) or words(event.get("messageId")) or own(event)
                stop = words(event.get("finishReason"))
                tokens = _tokens(usage) if type(usage) is dict else None
                out.append(Call(key, None, at, self._model, tokens, stop=stop))
                self._ending = Ending("clean", "", "", 0, at) if stop == "end_turn" else None
            case "tool.call":
                name = words(event.get("toolCallId")) or words(event.get("uuid")) or own(event)
                self._tools[name] = key = f"{event.get('turnId')}:{name}"
                asked = event.get("args") if self.content else None
                out.append(ToolCall(key, at, str(event.get("name")), asked, step or None))
            case "tool.result":
                name = str(event.get("toolCallId"))
                result = mapping(event.get("result"))
                failed = result.get("isError")
                output = result.get("output") if self.content else None
                # The same result again, after another call took the name, is still that of the first.
                key = self._answered.setdefault((at, name), self._tools.get(name, name))
                out.append(ToolResult(key, at, output, failed if type(failed) is bool else None))
            case "content.part":
                part = mapping(event.get("part"))
                text = words(part.get("text")) or words(part.get("think"))
                if self.content and text:
                    out.append(Said(step, at, text, thought=part.get("type") == "think"))
            case _:
                pass

    def ended(self, out: list[Event]) -> None:
        if self._ending is not None:
            out.append(self._ending)


def _tokens(usage: dict[str, Any]) -> Tokens:
    names = ("inputOther", "inputCacheRead", "inputCacheCreation", "output")
    return Tokens(*(count(usage.get(name)) for name in names))
