"""Claude Code and OpenClaude: session files, sub-agent files and ``--output-format stream-json``.

What the format does that a count has to know (measured with 1.0.98 to
2.1.332, see docs/explanation/measuring.md):

- One response is several lines, one for each block of its content, each with
  the whole usage. They share ``(message.id, requestId)``; gateways leave the
  request id out, and then the message id decides.
- Of the lines of one response the output count grows, or is only ever the
  placeholder of the stream's start: without a stop reason it is a lower bound.
- ``progress`` records echo the responses of sub-agents, which have lines of
  their own in ``<session>/subagents/agent-*.jsonl`` (inline, with
  ``isSidechain``, before 2.0).
- A model named ``<synthetic>`` is the program speaking: no call was made.
- In a stream the ``result`` has the final output of its turn's main
  conversation; ``modelUsage`` is everything, sub-agents and calls that left
  no line included, and goes on over resume and fork, as the ``cost-state``
  of a session file does. ``model_usage_since_last_result`` (2.1.3xx) is
  what this process added, and is taken instead where it is there.
- A fork begins with the rows of its parent, under its own session id and
  with the ids of their messages. They say whose they were: ``forkedFrom``,
  since 2.1.3xx ``requestSessionId`` and only those of the model.
- A stream shows of a sub-agent the messages that ask for tools, not those
  that only speak (``--forward-subagent-text`` shows them too), and nothing
  of a sub-agent's own sub-agents.
- ``subtype: success`` may stand beside ``is_error: true``; then it failed.
"""

from __future__ import annotations

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
    Turn,
)
from adapters.transcripts.reader import MOST, Copies, Head, LineReader, count, mapping, money, words
from adapters.transcripts.readers.endings import failure

_SYNTHETIC = "<synthetic>"
_INTERRUPTED = "[Request interrupted by user"
_TYPES = frozenset(
    [
        "user",
        "assistant",
        "system",
        "summary",
        "progress",
        "result",
        "attachment",
        "stream_event",
        "cost-state",
        "file-history-snapshot",
        "queue-operation",
        "last-prompt",
        "tools-used",
        "control_request",
    ]
)


class ClaudeCode(LineReader):
    """Session files and streams of Claude Code and of programs that keep its format."""

    format: ClassVar[str] = "claude-code"
    copies: ClassVar[Copies] = "anywhere"

    def __init__(self, content: bool = True) -> None:
        super().__init__(content)
        self._session: str | None = None
        self._forked: str | None = None
        self._described = False
        self._latest: dict[str, tuple[str, str | None]] = {}
        self._closing: dict[str, Any] | None = None
        self._closing_at: str | None = None

    @classmethod
    def claims(cls, head: Head) -> int:
        sure = 0
        for o in head.records:
            kind = o.get("type")
            if kind not in _TYPES:
                continue
            if "sessionId" in o and ("uuid" in o or "parentUuid" in o):
                sure = max(sure, 90 if "isSidechain" in o or "userType" in o else 60)
            elif kind in ("assistant", "user") and isinstance(o.get("message"), dict):
                sure = max(sure, 55 if "session_id" in o or "uuid" in o else 40)
            elif kind == "result" and "subtype" in o:
                sure = max(sure, 50)
            elif (kind == "system" and o.get("subtype") in ("init", "compact_boundary")) or kind in (
                "summary",
                "stream_event",
                "file-history-snapshot",
            ):
                sure = max(sure, 45)
        return sure

    def record(self, o: dict[str, Any], line: int, out: list[Event]) -> None:
        at = self.at(o.get("timestamp"))
        kind = o.get("type")
        if kind == "assistant":
            self._assistant(o, line, at, out)
        elif kind == "user":
            self._user(o, line, at, out)
        elif kind == "progress":
            self._progress(o, out)
            return
        elif kind == "system":
            self._system(o, line, at, out)
        elif kind == "result":
            self._result(o, line, at, out)
        elif kind == "stream_event":
            self._stream_event(o, at, out)
        elif kind == "summary":
            out.append(Counted("summaries", f"{o.get('leafUuid')}:{o.get('summary')}"))
        elif kind == "cost-state":
            out.append(_models(at, o.get("modelUsage"), o.get("totalCostUSD")))
        if self._session is None or (not self._described and "version" in o):
            self._open(o, out)

    def _open(self, o: dict[str, Any], out: list[Event]) -> None:
        """The first rows have a session and no more; the rest is in the first row of a conversation."""
        session = words(o.get("sessionId")) or words(o.get("session_id"))
        if session is None:
            return
        version = words(o.get("version")) or words(o.get("claude_code_version"))
        self._session, self._described = session, version is not None
        harness = words(o.get("agentSlug")) or words(o.get("agent")) or "claude-code"
        harness = harness.replace("_", "-")
        out.append(Opened(session, harness, version, cwd=words(o.get("cwd")), inside=words(o.get("agentId"))))

    def _origin(self, o: dict[str, Any]) -> str | None:
        """The session that a copied row was made in; None: it was made in this one."""
        origin = o.get("requestSessionId") or mapping(o.get("forkedFrom")).get("sessionId")
        return origin if type(origin) is str and origin != o.get("sessionId") else None

    def _assistant(self, o: dict[str, Any], line: int, at: str | None, out: list[Event]) -> None:
        message = o.get("message")
        if type(message) is not dict:
            return
        side = self._side(o)
        if not side:
            self._ends_with(o, at)
        model = message.get("model")
        if model == _SYNTHETIC:
            out.append(
                Counted("synthetic", words(o.get("uuid")) or words(message.get("id")) or f"line {line}")
            )
            return
        key = message.get("id")
        member = o.get("requestId") or o.get("request_id")
        if type(key) is not str or not key:
            # Without a message id: the request, else the record, else the line.
            key, member = member or o.get("uuid") or f"line {line}", None
        if type(member) is not str:
            member = None
        self._latest[side] = (str(key), member)
        usage = message.get("usage")
        stop = message.get("stop_reason")
        inherited = "forkedFrom" in o
        if (inherited or "requestSessionId" in o) and (origin := self._origin(o)) is not None:
            inherited = True
            if self._forked is None:
                self._forked = origin
                out.append(Opened(forked=origin))
        out.append(
            Call(
                str(key),
                member,
                at,
                model if type(model) is str else None,
                _tokens(usage) if type(usage) is dict else None,
                side,
                stop if type(stop) is str else None,
                None,
                stop is not None,
                inherited,
            )
        )
        content = message.get("content")
        if type(content) is list:
            for place, block in enumerate(content):
                if type(block) is not dict:
                    continue
                kind = block.get("type")
                if kind in ("tool_use", "server_tool_use"):
                    tool = block.get("id")
                    out.append(
                        ToolCall(
                            tool if type(tool) is str and tool else f"{o.get('uuid') or line}.{place}",
                            at,
                            str(block.get("name")),
                            block.get("input") if self.content else None,
                            str(key),
                            side,
                            kind == "server_tool_use",
                            inherited,
                        )
                    )
                elif self.content:
                    if kind == "text" and type(block.get("text")) is str:
                        out.append(Said(str(key), at, block["text"], side))
                    elif kind == "thinking" and type(block.get("thinking")) is str:
                        out.append(Said(str(key), at, block["thinking"], side, thought=True))
        elif self.content and type(content) is str:
            out.append(Said(str(key), at, content, side))

    def _user(self, o: dict[str, Any], line: int, at: str | None, out: list[Event]) -> None:
        side = self._side(o)
        if not side:
            self._ends_with(o, at)
        message = o.get("message")
        content = message.get("content") if type(message) is dict else message
        prompt = True
        made = o.get("toolUseResult")
        agent = words(made.get("agentId")) if type(made) is dict else None
        if type(content) is list:
            for place, block in enumerate(content):
                if type(block) is dict and block.get("type") == "tool_result":
                    prompt = False
                    tool = block.get("tool_use_id")
                    failed = block.get("is_error")
                    out.append(
                        ToolResult(
                            tool if type(tool) is str and tool else f"{o.get('uuid') or line}.{place}",
                            at,
                            block.get("content") if self.content else None,
                            failed is True,
                            side,
                            agent,
                        )
                    )
        if prompt:
            own = o.get("isMeta") or o.get("isCompactSummary") or o.get("isSynthetic")
            by = "system" if own or o.get("promptSource") == "system" else "user"
            # Two records with one id are one if they say the same: it was appended again.
            key = f"{o.get('uuid') or line}:{at}:{hash(repr(content))}"
            out.append(Prompt(key, at, content if self.content else None, side, by))

    def _progress(self, o: dict[str, Any], out: list[Event]) -> None:
        """An echo of what a sub-agent's own lines say: counted as such, in no sum."""
        inner = mapping(mapping(o.get("data")).get("message"))
        message = mapping(inner.get("message"))
        if inner.get("type") == "assistant" and type(message.get("usage")) is dict:
            out.append(Counted("echoed responses", str(message.get("id") or o.get("uuid"))))

    def _system(self, o: dict[str, Any], line: int, at: str | None, out: list[Event]) -> None:
        match o.get("subtype"):
            case "init":
                out.append(
                    Opened(
                        session=words(o.get("session_id")),
                        version=words(o.get("claude_code_version")),
                        model=words(o.get("model")),
                        cwd=words(o.get("cwd")),
                    )
                )
            case "compact_boundary":
                out.append(Compacted(words(o.get("uuid")) or f"{self._session} line {line}", at))
            case "task_started" if o.get("task_type") == "local_agent":
                out.append(Silent("turns"))
                if (count(o.get("spawn_depth")) or 0) > 1:
                    out.append(Silent("tool calls"))
            case "api_retry":
                out.append(Counted("retries", f"{o.get('uuid') or line}"))
            case _:
                pass

    def _stream_event(self, o: dict[str, Any], at: str | None, out: list[Event]) -> None:
        """With partial messages on, the last delta of a message has its final counts.

        It names no request, but the blocks before it do.
        """
        event = mapping(o.get("event"))
        if event.get("type") != "message_delta" or type(event.get("usage")) is not dict:
            return
        key = words(o.get("api_message_id"))
        if key is None:
            return
        stop = words(mapping(event.get("delta")).get("stop_reason"))
        side = self._side(o)
        message, member = self._latest.get(side, ("", None))
        if message != key:
            member = None
        tokens = _tokens(event["usage"])
        out.append(Call(key, member, at, None, tokens, side, stop, None, stop is not None))

    def _result(self, o: dict[str, Any], line: int, at: str | None, out: list[Event]) -> None:
        usage = o.get("usage")
        session = str(o.get("session_id"))
        key = words(o.get("uuid")) or f"{session}:{o.get('result_index')}:{o.get('duration_ms')}:{usage}"
        if type(usage) is dict:
            out.append(Turn(key, at, _tokens(usage)))
        since = o.get("model_usage_since_last_result")
        if type(since) is dict:
            paid = [
                cost for each in since.values() if (cost := money(mapping(each).get("costUSD"))) is not None
            ]
            out.append(_models(at, since, sum(paid) if paid else None, key))
        else:
            out.append(_models(at, o.get("modelUsage"), o.get("total_cost_usd")))
        out.append(Counted("results", key))
        out.append(_result_ending(o, at))

    def _side(self, o: dict[str, Any]) -> str:
        if o.get("isSidechain"):
            return str(o.get("agentId") or "sidechain")
        parent = o.get("parent_tool_use_id")
        return str(parent) if parent else ""

    def _ends_with(self, o: dict[str, Any], at: str | None) -> None:
        self._closing, self._closing_at = o, at

    def ended(self, out: list[Event]) -> None:
        if self._closing is not None:
            guess = _last_words(self._closing, self._closing_at)
            if guess is not None:
                out.append(guess)


def _tokens(usage: dict[str, Any]) -> Tokens:
    fresh = usage.get("input_tokens")
    cached = usage.get("cache_read_input_tokens")
    created = usage.get("cache_creation_input_tokens")
    output = usage.get("output_tokens")
    hour = None
    if created:
        hour = count(mapping(usage.get("cache_creation")).get("ephemeral_1h_input_tokens"))
    # 0 is what the program puts where the provider says nothing of it.
    details = usage.get("output_tokens_details")
    thought = count(details.get("thinking_tokens")) or None if type(details) is dict else None
    return Tokens(
        fresh if type(fresh) is int and 0 <= fresh <= MOST else count(fresh),
        cached if type(cached) is int and 0 <= cached <= MOST else count(cached),
        created if type(created) is int and 0 <= created <= MOST else count(created),
        output if type(output) is int and 0 <= output <= MOST else count(output),
        thought,
        hour,
    )


def _models(at: str | None, usage: object, cost: object, stretch: str = "") -> Counter:
    """``modelUsage``: cumulative over the session, its resumes and forks; sub-agents included. Or a stretch of it."""
    models = []
    for name, each in mapping(usage).items():
        if type(each) is dict:
            tokens = Tokens(
                count(each.get("inputTokens")),
                count(each.get("cacheReadInputTokens")),
                count(each.get("cacheCreationInputTokens")),
                count(each.get("outputTokens")),
                count(each.get("thinkingTokens")) or None,
                count(each.get("cacheCreationEphemeral1hInputTokens")),
            )
            if tokens != (None,) * 6:
                models.append((name, tokens, money(each.get("costUSD"))))
    return Counter("process", at, None, tuple(models), money(cost), stretch=stretch)


def _result_ending(o: dict[str, Any], at: str | None) -> Ending:
    errors = o.get("errors")
    said = words(o.get("result"))
    if said is None and type(errors) is list:
        said = "; ".join(str(each) for each in errors if each) or None
    subtype = words(o.get("subtype")) or "error"
    text = said or subtype
    weight = 2 if count(o.get("num_turns")) or not o.get("is_error") else 1
    if subtype == "error_max_turns" or o.get("terminal_reason") == "max_turns":
        return Ending("budget", "turns", text, weight, at)
    if subtype == "error_max_budget_usd" or o.get("terminal_reason") == "budget_exhausted":
        return Ending("budget", "usd", text, weight, at)
    if not o.get("is_error") and subtype == "success":
        return Ending("clean", "", text, weight, at)
    reason = words(o.get("terminal_reason"))
    if reason in ("aborted_tools", "aborted_streaming"):
        return Ending("interrupt", reason, text, weight, at)
    if reason == "prompt_too_long":
        return Ending("provider", "context", text, weight, at)
    if o.get("stop_reason") == "refusal":
        return Ending("provider", "refusal", text, weight, at)
    status = count(o.get("api_error_status"))
    return failure(status, text, at, weight, subtype if subtype != "success" else (reason or "error"))


def _last_words(o: dict[str, Any], at: str | None) -> Ending | None:
    """What a session file's last record lets one say: it has no record of its end."""
    message = mapping(o.get("message"))
    content = message.get("content")
    text = content if type(content) is str else ""
    if type(content) is list:
        text = " ".join(
            block["text"] for block in content if type(block) is dict and type(block.get("text")) is str
        )
    if o.get("type") == "user":
        return Ending("interrupt", "user", text, 0, at) if text.startswith(_INTERRUPTED) else None
    if message.get("model") == _SYNTHETIC:
        if o.get("isApiErrorMessage") or o.get("is_api_error_message") or text.startswith("API Error"):
            status = count(o.get("apiErrorStatus") or o.get("api_error_status"))
            return failure(status, text, at, 0, words(o.get("error")) or "api_error")
        return None
    match message.get("stop_reason"):
        case "end_turn" | "stop_sequence" as stop:
            return Ending("clean", stop, text, 0, at)
        case "max_tokens" | "refusal" as stop:
            return Ending("provider", stop, text, 0, at)
        case _:
            return None
