"""mini-swe-agent: trajectories of 1.x and 2.x, and the plain message list of its first versions.

What the format does that a count has to know:

- The whole conversation is rewritten after every step; there is no stream.
- Each response is kept in ``extra.response`` (2.x; late 1.x), with its usage.
  Older ones have no tokens at all: they are unknown, not 0.
- A response that could not be read as an action leaves no message of the
  assistant, only a ``FormatError``: a call whose tokens are lost.
- ``api_calls`` counts attempts, a refused one included.
- ``exit_status`` is ``Submitted``, a limit, or the name of a Python exception.
- ``instance_cost`` is 0 where litellm knows no price.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from adapters.transcripts.events import (
    Call,
    Counter,
    Ending,
    Event,
    Opened,
    Prompt,
    Said,
    ToolCall,
    ToolResult,
)
from adapters.transcripts.reader import DocumentReader, Head, Span, count, instant, mapping, money, words
from adapters.transcripts.readers import litellm

_BLOCK = re.compile(r"```(?:bash|mswea_bash_command)\s*\n(.*?)\n```", re.DOTALL)
_CODE = re.compile(r"\s*<returncode>(-?\d+)</returncode>")
_PERSON = frozenset(("KeyboardInterrupt", "UserInterruption", "EOFError"))  # EOFError: asked where nobody was


class Mini(DocumentReader):
    """One run of mini-swe-agent."""

    format: ClassVar[str] = "mini-swe-agent"

    @classmethod
    def claims(cls, head: Head) -> int:
        value = head.document
        if type(value) is dict:
            if str(value.get("trajectory_format", "")).startswith("mini-swe-agent"):
                return 95
            info = mapping(value.get("info"))
            own = "model_stats" in info or "mini_version" in info
            return 80 if own and type(value.get("messages")) is list and "trajectory" not in value else 0
        return 75 if type(value) is list and _plain(value) else 0

    def document(self, value: Any, out: list[Event]) -> None:
        run = value if type(value) is dict else {"messages": value}
        messages = [each for each in run.get("messages") or () if type(each) is dict]
        info = mapping(run.get("info"))
        config = mapping(info.get("config"))
        model = words(mapping(config.get("model")).get("model_name"))
        out.append(
            Opened(
                session=words(run.get("instance_id")),
                harness="mini-swe-agent",
                version=words(info.get("mini_version")),
                model=model,
                cwd=words(mapping(config.get("environment")).get("cwd")),
            )
        )
        span = Span()
        steps = _Steps(self.content, model)
        for place, message in enumerate(messages):
            at = span.saw(instant(mapping(message.get("extra")).get("timestamp")))
            steps.message(place, message, at, out)
        out.append(span.read(len(messages)))
        stats = mapping(info.get("model_stats"))
        if stats:
            out.append(
                Counter(
                    "run",
                    span.last,
                    None,
                    (),
                    money(stats.get("instance_cost")),
                    count(stats.get("api_calls")) or None,
                )
            )
        ending = _ending(info, messages, span.last)
        if ending is not None:
            out.append(ending)


class _Steps:
    """The messages of a run, one after the other."""

    def __init__(self, content: bool, model: str | None) -> None:
        self._content = content
        self._model = model
        self._asked = False
        self._pending: dict[str, str] = {}

    def message(self, place: int, message: dict[str, Any], at: str | None, out: list[Event]) -> None:
        extra = mapping(message.get("extra"))
        response = mapping(extra.get("response"))
        own = message.get("object") == "response"  # the Responses API: the message is the response
        role = "assistant" if own else message.get("role")
        if role == "assistant" or response or extra.get("interrupt_type") == "FormatError":
            usage = message.get("usage") if own else response.get("usage")
            key = words(response.get("id")) or (words(message.get("id")) if own else None)
            out.append(
                Call(
                    key or f"message {place}",
                    str(place),
                    at,
                    words(response.get("model"))
                    or (words(message.get("model")) if own else None)
                    or self._model,
                    litellm.tokens(usage) if type(usage) is dict else None,
                    cost=money(extra.get("cost")),
                )
            )
        if role == "assistant":
            self._answer(place, message, extra, at, out)
        elif self._pending and _observed(message, extra):
            self._result(message, extra, at, out)
        elif role == "user":
            text = message.get("content") if self._content else None
            out.append(Prompt(f"message {place}", at, text, by="system" if self._asked else "user"))
            self._asked = True
        elif role == "system":
            out.append(
                Prompt(f"message {place}", at, message.get("content") if self._content else None, by="system")
            )

    def _answer(
        self, place: int, message: dict[str, Any], extra: dict[str, Any], at: str | None, out: list[Event]
    ) -> None:
        text = message.get("content")
        if self._content and type(text) is str and text:
            out.append(Said(f"message {place}", at, text))
        actions = extra.get("actions")
        if type(actions) is not list:
            blocks = _BLOCK.findall(text) if type(text) is str else []
            actions = [{"command": blocks[0]}] if len(blocks) == 1 else []
        self._pending.clear()
        for nth, action in enumerate(actions):
            each = action if type(action) is dict else {"command": action}
            key = f"message {place}.{nth}"
            self._pending[words(each.get("tool_call_id")) or key] = key
            asked = {"command": each.get("command")} if self._content else None
            out.append(ToolCall(key, at, "bash", asked, f"message {place}"))

    def _result(
        self, message: dict[str, Any], extra: dict[str, Any], at: str | None, out: list[Event]
    ) -> None:
        named = words(message.get("tool_call_id")) or words(message.get("call_id"))
        key = self._pending.pop(named, None) if named else None
        if key is None:
            key = self._pending.pop(next(iter(self._pending)))
        content = message.get("content", message.get("output"))
        code = extra.get("returncode")
        if type(code) is not int and type(content) is str and (found := _CODE.match(content)):
            code = int(found.group(1))
        failed = code != 0 if type(code) is int else None
        out.append(ToolResult(key, at, content if self._content else None, failed))


def _observed(message: dict[str, Any], extra: dict[str, Any]) -> bool:
    """Whether this message is what a command gave back."""
    if message.get("role") == "tool" or message.get("type") == "function_call_output":
        return True
    text = message.get("content")
    return "returncode" in extra or "raw_output" in extra or (type(text) is str and bool(_CODE.match(text)))


def _plain(messages: list[Any]) -> bool:
    roles = [each.get("role") if type(each) is dict else None for each in messages]
    if roles[:2] != ["system", "user"] or None in roles:
        return False
    return any(_CODE.match(each["content"]) for each in messages[2:] if type(each.get("content")) is str)


def _ending(info: dict[str, Any], messages: list[dict[str, Any]], at: str | None) -> Ending | None:
    last = messages[-1] if messages else {}
    status = words(info.get("exit_status")) or words(mapping(last.get("extra")).get("exit_status"))
    if status is None:
        return None
    text = words(info.get("exception_str")) or words(mapping(last.get("extra")).get("exception_str")) or ""
    text = text or words(info.get("submission")) or words(last.get("content")) or status
    if status == "Submitted":
        return Ending("clean", "", text, 1, at)
    if status == "LimitsExceeded":
        return Ending("budget", _limit(info), text, 1, at)
    if status == "TimeExceeded":
        return Ending("budget", "minutes", text, 1, at)
    if status == "RepeatedFormatError":
        return Ending("stall", status, text, 1, at)
    if status in _PERSON:
        return Ending("interrupt", status, text, 1, at)
    return litellm.failure(status, text, 1, at) or Ending("crash", status, text, 1, at)


def _limit(info: dict[str, Any]) -> str:
    """Which limit it was: the one that was reached; one word stands for both."""
    agent = mapping(mapping(info.get("config")).get("agent"))
    cost, most = money(mapping(info.get("model_stats")).get("instance_cost")), money(agent.get("cost_limit"))
    steps, calls = count(agent.get("step_limit")), count(mapping(info.get("model_stats")).get("api_calls"))
    if steps and calls is not None and calls >= steps:
        return "turns"
    return "usd" if most and cost is not None and cost >= most else "turns"
