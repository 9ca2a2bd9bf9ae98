"""SWE-agent: ``.traj`` files of 0.x and 1.x.

What the format does that a count has to know:

- ``trajectory`` has one entry for each step: a response of the model, the
  action that was read in it, and what it gave back. A step without a
  response is the harness submitting what there is.
- ``history`` is the prompt as it grew; demonstrations in it were said by
  nobody (``is_demo``).
- ``model_stats`` is the only witness of tokens. All zero beside real steps
  (demonstrations, replays, models without a price list): nothing was counted.
- ``total_cost`` runs over all instances of a process, ``instance_cost`` is
  this one's.
- There are no times.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from adapters.transcripts.events import (
    Call,
    Counter,
    Ending,
    Event,
    Noted,
    Opened,
    Prompt,
    Read,
    Said,
    Tokens,
    ToolCall,
    ToolResult,
)
from adapters.transcripts.reader import DocumentReader, Head, count, mapping, money, words
from adapters.transcripts.readers import litellm

_ENDINGS = {
    "submitted": ("clean", ""),
    "exit_cost": ("budget", "usd"),
    "exit_total_execution_time": ("budget", "minutes"),
    "exit_command_timeout": ("budget", "minutes"),
    "exit_context": ("provider", "context"),
    "exit_api": ("provider", "error"),
    "exit_format": ("stall", "exit_format"),
    "exit_forfeit": ("clean", "exit_forfeit"),
    "exit_error": ("crash", "exit_error"),
    "exit_environment_error": ("crash", "exit_environment_error"),
    "early_exit": ("interrupt", "early_exit"),
}


class SweAgent(DocumentReader):
    """One instance that SWE-agent worked on."""

    format: ClassVar[str] = "swe-agent"

    @classmethod
    def claims(cls, head: Head) -> int:
        value = head.document
        if type(value) is not dict or type(value.get("trajectory")) is not list:
            return 0
        steps = [step for step in value["trajectory"] if type(step) is dict]
        own = all("action" in step and "observation" in step for step in steps)
        return 95 if own and "history" in value and type(value.get("info")) is dict else 0

    def document(self, value: Any, out: list[Event]) -> None:
        info = mapping(value.get("info"))
        steps = [step for step in value["trajectory"] if type(step) is dict]
        agent = mapping(_config(value.get("replay_config")).get("agent"))
        model = words(mapping(agent.get("model")).get("name"))
        out.append(
            Opened(
                session=words(value.get("instance_id")),
                harness="swe-agent",
                version=words(info.get("swe_agent_version")),
                model=model,
            )
        )
        self._prompts(value.get("history"), out)
        for number, step in enumerate(steps, 1):
            self._step(number, step, model, out)
        out.append(Read(len(steps), None, None))
        _stats(mapping(info.get("model_stats")), bool(steps), out)
        status = words(info.get("exit_status"))
        if status is not None:
            out.append(_ending(status, words(info.get("submission")) or status))

    def _prompts(self, history: object, out: list[Event]) -> None:
        """What was said before the first response; the last of it by a person is the task."""
        said = []
        for item in history if type(history) is list else ():
            if type(item) is not dict or (item.get("role") == "assistant" and not item.get("is_demo")):
                break
            if not item.get("is_demo"):
                said.append(item)
        users = [place for place, item in enumerate(said) if item.get("role") == "user"]
        for place, item in enumerate(said):
            by = "user" if users and place == users[-1] else "system"
            out.append(Prompt(f"prompt {place}", None, item.get("content") if self.content else None, by=by))

    def _step(self, number: int, step: dict[str, Any], model: str | None, out: list[Event]) -> None:
        key = f"step {number}"
        response = words(step.get("response"))
        if response is not None:
            out.append(Call(key, None, None, model, None))
            text = words(step.get("thought")) or response
            if self.content:
                out.append(Said(key, None, text))
        action = words(step.get("action"))
        if action is not None and action.strip():
            name = action.split(None, 1)[0]
            asked = {"command": action} if self.content else None
            out.append(ToolCall(key, None, name, asked, key if response is not None else None))
            out.append(ToolResult(key, None, step.get("observation") if self.content else None, None))


def _stats(stats: dict[str, Any], steps: bool, out: list[Event]) -> None:
    tokens = Tokens(fresh=count(stats.get("tokens_sent")), output=count(stats.get("tokens_received")))
    calls, cost = count(stats.get("api_calls")), money(stats.get("instance_cost"))
    if litellm.known(tokens) or calls or cost:
        out.append(
            Counter("instance", None, tokens if litellm.known(tokens) else None, (), cost, calls or None)
        )
    elif stats and steps:
        out.append(
            Noted("the model statistics are all zero beside real steps: its tokens and cost are unknown")
        )


def _ending(status: str, text: str) -> Ending:
    """``submitted (exit_cost)``: what was there was submitted when the budget was used up."""
    inner = status.rpartition("(")[2].rstrip(")").strip()
    kind, code = _ENDINGS.get(inner, ("crash", inner))
    return Ending(kind, code, text, 1)


def _config(replay: object) -> dict[str, Any]:
    """The configuration is an object, or JSON in a string."""
    if type(replay) is str:
        try:
            return mapping(json.loads(replay))
        except (ValueError, RecursionError):
            return {}
    return mapping(replay)
