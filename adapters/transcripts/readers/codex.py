"""Codex: rollout files (the bare ones of early 2025 to 0.171) and ``codex exec --json``.

What the formats do that a count has to know:

- ``token_count`` holds the cumulative total of the thread and the usage of
  the last call. The same total is written again whenever the display is
  refreshed; only a new total is a new call.
- Input includes cached input, output includes reasoning.
- A fork begins with a copy of its parent's events under new times; totals go
  on from there. The total is therefore the key of a call within one family
  of forks, and the copied calls are those whose totals the parent has too.
- Newer versions (0.171) write ``token_usage_record`` for each call, with the
  id of its response; their forks copy nothing and point at the parent
  (``history_base``). ``item_completed`` then stands in place of
  ``user_message`` and ``exec_command_end``.
- A sub-agent is a thread with a file of its own, whose first record names
  the thread that spawned it. Neither the totals of the parent nor
  ``exec --json`` hold what it used.
- ``turn.completed`` of ``exec --json`` is the total of the thread, over
  resume and fork, however many calls the turn made.
- A turn that failed ends in ``task_complete`` too, with an ``error``.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from adapters.transcripts.events import (
    Call,
    Compacted,
    Counted,
    Counter,
    Ending,
    Event,
    Opened,
    Prompt,
    Said,
    Silent,
    Tokens,
    ToolCall,
    ToolResult,
)
from adapters.transcripts.lines import Malformed, parse
from adapters.transcripts.reader import MOST, Copies, Head, LineReader, count, mapping, words
from adapters.transcripts.readers.endings import failure

_ROLLOUT = frozenset(
    ("session_meta", "turn_context", "response_item", "event_msg", "compacted", "world_state")
)
_SPOKEN = frozenset(("agent_message", "agent_reasoning"))
_BARE = frozenset(("message", "reasoning", "function_call", "function_call_output", "local_shell_call"))
_EXEC = ("thread.", "turn.", "item.", "thread/", "turn/", "item/")
_CALLS = frozenset(
    (
        "function_call",
        "custom_tool_call",
        "local_shell_call",
        "tool_search_call",
        "web_search_call",
        "tool_call",
    )
)
_OUTPUTS = frozenset(("function_call_output", "custom_tool_call_output", "tool_search_output", "tool_result"))
_TOOLS = frozenset(("command_execution", "file_change", "mcp_tool_call", "web_search", "collab_tool_call"))
_EXIT = re.compile(r"(?:exited with code|Exit code:|exit_code\"?:)\s*(-?\d+)", re.IGNORECASE)


class Rollout(LineReader):
    """One thread of Codex as it records it itself."""

    format: ClassVar[str] = "codex-rollout"
    copies: ClassVar[Copies] = "forked"

    def __init__(self, content: bool = True) -> None:
        super().__init__(content)
        self._session: str | None = None
        self._forked: str | None = None
        self._own_records = False
        self._model: str | None = None
        self._total: dict[str, Any] = {}
        self._totals: set[str] = set()
        self._ending: Ending | None = None
        self._side = ""
        self._prompts_by: str | None = None

    @classmethod
    def claims(cls, head: Head) -> int:
        sure = 0
        for o in head.records:
            kind = o.get("type")
            if kind in _ROLLOUT and isinstance(o.get("payload"), dict):
                return 95
            if "instructions" in o and "id" in o and "timestamp" in o and kind is None:
                sure = max(sure, 60)
            elif o.get("record_type") == "state" or (kind in _BARE and ("content" in o or "call_id" in o)):
                sure = max(sure, 45)
            elif isinstance(o.get("msg"), dict) and "id" in o and isinstance(o["msg"].get("type"), str):
                sure = max(sure, 50)
        return sure

    def record(self, o: dict[str, Any], line: int, out: list[Event]) -> None:
        at = self.at(o.get("timestamp"))
        kind = o.get("type")
        payload = o.get("payload")
        if type(payload) is dict:
            if kind == "event_msg":
                self._event(payload, line, at, out)
            elif kind == "response_item":
                self._item(payload, line, at, out)
            elif kind == "turn_context":
                model = payload.get("model")
                if type(model) is str and model:
                    self._model = model
                    self.tally[f"turn contexts of {model}"] += 1
            elif kind == "token_usage_record":
                self._usage_record(payload, at, out)
            elif kind == "session_meta":
                self._meta(payload, out)
            elif kind == "compacted":
                out.append(Compacted(words(payload.get("window_id")) or f"line {line}", at))
        elif type(o.get("msg")) is dict:
            self._event(o["msg"], line, at, out)
        elif kind in _BARE:
            self._item(o, line, at, out, bare=True)
        elif kind is None and "id" in o:
            self._meta(o, out)

    def _meta(self, meta: dict[str, Any], out: list[Event]) -> None:
        session = words(meta.get("id"))
        base = mapping(meta.get("history_base"))
        forked = words(meta.get("forked_from_id")) or words(base.get("thread_id"))
        if self._session is None:
            self._session, self._forked = session, forked
            source = mapping(mapping(meta.get("source")).get("subagent"))
            spawned = mapping(source.get("thread_spawn"))
            review = mapping(meta.get("source")).get("subagent")
            parent = words(spawned.get("parent_thread_id"))
            self._side = session or "" if parent else ""
            out.append(
                Opened(
                    session=session,
                    harness="codex",
                    version=words(meta.get("cli_version")),
                    cwd=words(meta.get("cwd")),
                    inside=parent or words(review),
                    forked=forked,
                )
            )
        elif session and session != self._session and self._forked is None:
            # A fork of old carries its parent's own first record, and no word about it.
            self._forked = session
            out.append(Opened(forked=session))

    def _event(self, event: dict[str, Any], line: int, at: str | None, out: list[Event]) -> None:
        kind = event.get("type")
        if kind == "token_count":
            self._token_count(event.get("info"), line, at, out)
        elif kind == "user_message":
            text = event.get("message")
            self._prompt("event", f"user {at} {line if at is None else ''}", at, text, out)
        elif kind in _SPOKEN:
            if self.content:
                text = event.get("message") or event.get("text")
                self._speak(text, at, out, thought=kind == "agent_reasoning")
        elif kind == "turn.completed":
            usage = event.get("usage")
            if type(usage) is dict:
                out.append(Counter("thread", at, _tokens(usage)))
        elif kind in ("task_complete", "turn_aborted"):
            self._ending = self._ended_turn(event, at)
        elif kind == "task_started":
            self._ending = None
            out.append(Counted("turns started", words(event.get("turn_id")) or line))
        elif kind == "context_compacted":
            self.tally["compactions announced"] += 1
        elif kind == "exec_command_end":
            self._command_ended(event.get("call_id"), event, at, out)
        elif kind == "item_completed":
            item = mapping(event.get("item"))
            if item.get("type") == "UserMessage":
                key = words(item.get("id")) or f"line {line}"
                self._prompt("item", key, at, item.get("content"), out)
            elif item.get("type") == "CommandExecution":
                self._command_ended(item.get("id"), item, at, out)

    def _prompt(self, by: str, key: str, at: str | None, text: object, out: list[Event]) -> None:
        """Some versions say a prompt twice, as an event and as an item: the kind that came first counts."""
        if self._prompts_by is None:
            self._prompts_by = by
        if self._prompts_by == by:
            out.append(Prompt(key, at, text if self.content else None, self._side))

    def _ended_turn(self, event: dict[str, Any], at: str | None) -> Ending:
        if event.get("type") == "turn_aborted":
            reason = words(event.get("reason")) or "aborted"
            return Ending("interrupt", reason, reason, 1, at)
        error = event.get("error")
        if error:
            text = words(mapping(error).get("message")) or str(error)
            return failure(None, text, at)
        return Ending("clean", "", words(event.get("last_agent_message")) or "", 1, at)

    def _token_count(self, info: object, line: int, at: str | None, out: list[Event]) -> None:
        if type(info) is not dict:
            self.tally["token counts without numbers"] += 1
            return
        total = info.get("total_token_usage")
        last = info.get("last_token_usage")
        self.tally["token counts"] += 1
        if self._own_records:
            return
        if type(total) is not dict:
            if type(last) is dict:
                self._next(f"{at} {sorted(last.items())}", at, _tokens(last), out)
            return
        key = _key(total)
        if key in self._totals:
            self.tally["token counts written again"] += 1
            return
        self._totals.add(key)
        used = _tokens(last) if type(last) is dict else _difference(_tokens(total), _tokens(self._total))
        if _below(total, self._total):
            self.tally["counter resets"] += 1
        self._total = total
        self._next(key, at, used, out)

    def _usage_record(self, record: dict[str, Any], at: str | None, out: list[Event]) -> None:
        usage = record.get("usage")
        if type(usage) is dict:
            self._own_records = True
            # With the total: a gateway may give every response the same id.
            total = mapping(record.get("thread_token_usage"))
            key = f"{words(record.get('response_id')) or ''} {_key(total) if total else ''}".strip()
            self._next(key or f"{at}", at, _tokens(usage), out)

    def _next(self, key: str, at: str | None, tokens: Tokens, out: list[Event]) -> None:
        out.append(Call(key, None, at, self._model, tokens, self._side))

    def _item(
        self, item: dict[str, Any], line: int, at: str | None, out: list[Event], bare: bool = False
    ) -> None:
        kind = item.get("type") or ("message" if "role" in item else None)
        if kind == "message":
            role = item.get("role")
            self.tally[f"{role} messages"] += 1
            if self.content and role == "assistant":
                self._speak(item.get("content"), at, out)
            elif role == "user" and bare:
                self._prompt("bare", words(item.get("id")) or f"line {line}", at, item.get("content"), out)
        elif kind == "reasoning":
            self.tally["reasoning items"] += 1
            if self.content:
                for each in item.get("summary") or ():
                    self._speak(mapping(each).get("text"), at, out, thought=True)
        elif kind in _CALLS:
            key = words(item.get("call_id")) or words(item.get("id")) or f"line {line}"
            name, asked = words(item.get("name")), None
            if name is None:
                name = words(mapping(item.get("function")).get("name")) or str(kind).removesuffix("_call")
            if self.content:
                asked = _value(item.get("arguments", item.get("input", item.get("action"))))
            out.append(ToolCall(key, at, name, asked, None, self._side))
        elif kind in _OUTPUTS:
            key = words(item.get("call_id")) or f"line {line}"
            output = item.get("output")
            if output is None:
                output = item.get("result")
            result = _text(output) if self.content else None
            out.append(ToolResult(key, at, result, _failed(output), self._side))

    def _speak(self, content: object, at: str | None, out: list[Event], thought: bool = False) -> None:
        """What the agent said; events and items both have it."""
        if not self.content:
            return
        text = content if type(content) is str else _joined(content)
        if text:
            out.append(Said(None, at, text, self._side, thought))

    def _command_ended(self, call: object, ended: dict[str, Any], at: str | None, out: list[Event]) -> None:
        key = words(call)
        code = ended.get("exit_code")
        if key and type(code) is int:
            result = ended.get("aggregated_output") if self.content else None
            out.append(ToolResult(key, at, result, code != 0, self._side))

    def ended(self, out: list[Event]) -> None:
        if not self._totals and not self._own_records:
            out.append(Silent("turns"))
        if self._ending is not None:
            # Beside its parent a sub-agent's end says nothing.
            out.append(self._ending._replace(weight=0) if self._side else self._ending)


class Exec(LineReader):
    """The stream of ``codex exec --json``."""

    format: ClassVar[str] = "codex-exec"

    def __init__(self, content: bool = True) -> None:
        super().__init__(content)
        self._thread: str | None = None
        self._turns = 0
        self._error = ""

    @classmethod
    def claims(cls, head: Head) -> int:
        kinds = [o["type"] for o in head.records if isinstance(o.get("type"), str)]
        own = [kind for kind in kinds if kind.startswith(_EXEC)]
        return 85 if any(kind.startswith(("thread", "turn.")) for kind in own) else 60 if own else 0

    def record(self, o: dict[str, Any], line: int, out: list[Event]) -> None:
        at = self.at(o.get("timestamp"))
        kind = o.get("type")
        if kind in ("thread.started", "turn.started") and not self._turns:
            out += (Silent("turns"), Silent("tool calls"))
        if kind == "thread.started":
            thread = words(o.get("thread_id"))
            if thread != self._thread:
                self._thread = thread
                out.append(Opened(session=thread, harness="codex"))
        elif kind == "turn.started":
            self._turns += 1
            out.append(Counted("turns started", words(o.get("turn_id")) or line))
        elif kind == "turn.completed":
            usage = o.get("usage")
            if type(usage) is dict:
                out.append(Counter(f"thread {self._thread}", at, _tokens(usage)))
            out.append(Ending("clean", "", "", 1, at))
        elif kind == "thread/tokenUsage/updated":
            usage = mapping(o.get("usage"))
            total = mapping(mapping(o.get("tokenUsage")).get("total")) or usage
            if total:
                out.append(Counter(f"thread {self._thread}", at, _tokens(total)))
        elif kind == "turn.failed":
            text = words(mapping(o.get("error")).get("message")) or self._error or "turn.failed"
            out.append(failure(None, text, at))
        elif kind == "error":
            self._error = words(o.get("message")) or self._error
            self.tally["errors"] += 1
        elif kind in ("item.started", "item.updated", "item.completed"):
            self._item(o, line, at, out)

    def _item(self, o: dict[str, Any], line: int, at: str | None, out: list[Event]) -> None:
        item = mapping(o.get("item")) or o
        kind = item.get("type") if item is not o else o.get("item_type")
        # Item ids begin again with each turn of a resumed thread.
        key = f"{self._thread}:{self._turns}:{words(item.get('id')) or words(o.get('item_id')) or line}"
        done = o.get("type") == "item.completed"
        if kind == "collab_tool_call" and item.get("tool") == "spawn_agent":
            out += (Silent("input"), Silent("output"))
        if kind in _TOOLS:
            name = words(item.get("tool")) or str(kind)
            out.append(ToolCall(key, at, name, _asked(item) if self.content else None, None))
            if done:
                code = item.get("exit_code")
                failed = item.get("status") == "failed" or (type(code) is int and code != 0)
                result = item.get("aggregated_output", item.get("result")) if self.content else None
                out.append(ToolResult(key, at, result, failed))
        elif done and self.content and kind in ("agent_message", "reasoning"):
            text = words(item.get("text")) or words(mapping(item.get("content")).get("text"))
            if text:
                out.append(Said(f"turn {self._turns}", at, text, "", kind == "reasoning"))


def _tokens(usage: dict[str, Any]) -> Tokens:
    get = usage.get
    whole, cached, output = get("input_tokens"), get("cached_input_tokens"), get("output_tokens")
    thought, created = get("reasoning_output_tokens"), get("cache_write_input_tokens")
    # `count` written out: it is asked five times for each call.
    whole = whole if type(whole) is int and 0 <= whole <= MOST else count(whole)
    cached = cached if type(cached) is int and 0 <= cached <= MOST else count(cached)
    output = output if type(output) is int and 0 <= output <= MOST else count(output)
    thought = thought if type(thought) is int and 0 <= thought <= MOST else count(thought)
    created = None if created is None else count(created)
    fresh = None if whole is None else max(0, whole - (cached or 0) - (created or 0))
    return Tokens(fresh, cached, created, output, thought)


def _key(total: dict[str, Any]) -> str:
    get = total.get
    parts = (
        get("input_tokens"),
        get("cached_input_tokens"),
        get("output_tokens"),
        get("reasoning_output_tokens"),
    )
    return "%s/%s/%s/%s" % parts  # noqa: UP031  # half the time of the other ways


def _difference(now: Tokens, before: Tokens) -> Tokens:
    """What a total grew by; all of it, if it began again."""
    if any(a is not None and b is not None and a < b for a, b in zip(now, before, strict=True)):
        return now
    return Tokens(*(None if a is None else a - (b or 0) for a, b in zip(now, before, strict=True)))


def _below(now: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether a total has become smaller: its counter began again."""
    for name in ("input_tokens", "output_tokens"):
        a, b = now.get(name), before.get(name)
        if type(a) is int and type(b) is int and a < b:
            return True
    return False


def _value(arguments: object) -> object:
    """Arguments are JSON in a string; anything else stays as it is."""
    if type(arguments) is str:
        try:
            return parse(arguments)
        except Malformed:
            return arguments
    return arguments


def _text(output: object) -> object:
    if type(output) is str and output.startswith("{"):
        inner = _value(output)
        if type(inner) is dict and type(inner.get("output")) is str:
            return inner["output"]
    if type(output) is dict and type(output.get("content")) is str:
        return output["content"]
    return output


def _failed(output: object) -> bool | None:
    """Whether a tool's output says that it failed: an exit code other than 0, or a word of its own."""
    if type(output) is dict:
        if type(output.get("success")) is bool:
            return not output["success"]
        code = output.get("exitCode", output.get("exit_code"))
        return code != 0 if type(code) is int else None
    if type(output) is str:
        inner = _metadata(output) if output.startswith("{") else None
        if type(inner) is dict:
            code = mapping(inner.get("metadata")).get("exit_code")
            if type(code) is int:
                return code != 0
        found = _EXIT.search(output[:400])
        return int(found.group(1)) != 0 if found else None
    return None


def _metadata(output: str) -> object:
    """The part of an output in JSON that has the exit code: its last key, nearly always.

    A quote inside a text is escaped, so that this one can only begin a key;
    what was printed, which may be long, need not be read.
    """
    place = output.rfind('"metadata":')
    last = _value("{" + output[place:]) if place > 0 else None
    return last if type(last) is dict else _value(output)


def _asked(item: dict[str, Any]) -> object:
    for name in ("command", "changes", "arguments", "query", "prompt"):
        if name in item:
            return {name: item[name]} if name != "arguments" else item[name]
    return {}


def _joined(content: object) -> str:
    if type(content) is not list:
        return ""
    texts = (each.get("text") for each in content if type(each) is dict)
    return "\n".join(text for text in texts if type(text) is str)
