"""OpenHands: conversation directories, ``--headless --json``, downloaded events, evaluation output, call logs.

What the formats do that a count has to know:

- Events have no tokens. A conversation's ``base_state.json`` has them, for
  each use of a model (agent, condenser): one entry of ``token_usages`` is one
  call. The stream has none, but names the response that each action came from.
- ``prompt_tokens`` includes cached ones, ``completion_tokens`` reasoning.
- Several actions of one response share ``llm_response_id``.
- ``execution_status`` stays ``running`` after a kill, and is ``finished``
  after an interrupt too; an error is in the last ``ConversationErrorEvent``.
- Events of 0.x (CodeActAgent) repeat the whole response in each action and
  observation, and ``llm_metrics`` the totals up to then.
- One record of an evaluation's ``output.jsonl`` is one instance, with a
  history whose ids begin again.
- Times have no zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
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
    Skipped,
    Tokens,
    ToolCall,
    ToolResult,
)
from adapters.transcripts.lines import SHAPES, Malformed, parse
from adapters.transcripts.reader import (
    LARGEST,
    DocumentReader,
    Head,
    LineReader,
    Span,
    count,
    instant,
    mapping,
    money,
    words,
)
from adapters.transcripts.readers import litellm
from adapters.transcripts.readers.keys import own

_KINDS = frozenset(
    (
        "ActionEvent",
        "AgentErrorEvent",
        "Condensation",
        "CondensationRequest",
        "CondensationSummaryEvent",
        "ConversationErrorEvent",
        "ConversationStateUpdateEvent",
        "HookExecutionEvent",
        "LLMCompletionLogEvent",
        "MessageEvent",
        "ObservationEvent",
        "PauseEvent",
        "SystemPromptEvent",
        "TokenEvent",
        "UserRejectObservation",
    )
)
#: What an agent of 0.x does that is no tool.
_NO_TOOLS = frozenset(("message", "system", "recall", "null", "change_agent_state", "condensation"))


class Conversation:
    """One conversation as it is kept, or the directory that holds all of them: a `Store`."""

    format: ClassVar[str] = "openhands"

    @classmethod
    def claims(cls, path: Path) -> int:
        try:
            if _is_conversation(path):
                return 95
            return 85 if path.is_dir() and any(map(_is_conversation, path.iterdir())) else 0
        except OSError:
            return 0

    @classmethod
    def sessions(cls, path: Path, content: bool) -> Iterator[tuple[str, Iterable[Event]]]:
        try:
            found = [path] if _is_conversation(path) else sorted(filter(_is_conversation, path.iterdir()))
        except OSError as error:
            yield path.name, [Skipped(None, f"{path}: {error}")]
            return
        for each in found:
            state, skipped = _load(each / "base_state.json")
            yield words(mapping(state).get("id")) or each.name, _conversation(each, state, skipped, content)


def _is_conversation(path: Path) -> bool:
    events = path / "events"
    return events.is_dir() and (
        (path / "base_state.json").is_file() or any(events.glob("event-[0-9]*-*.json"))
    )


def _load(path: Path) -> tuple[Any, list[Event]]:
    """A small file's JSON value, or why there is none."""
    try:
        if not path.is_file():  # a pipe would be waited for
            return None, [Skipped(None, f"{path.name}: not a file")] if path.exists() else []
        if path.stat().st_size > LARGEST:
            return None, [Skipped(None, f"{path.name}: documents over {LARGEST} bytes are not read")]
        return parse(path.read_bytes()), []
    except FileNotFoundError:
        return None, []
    except OSError as error:
        return None, [Skipped(None, f"{path.name}: {error.strerror or error}")]
    except Malformed as error:
        return None, [Skipped(None, f"{path.name}: cut off or {error}", torn=True)]


def _conversation(path: Path, state: Any, skipped: list[Event], content: bool) -> Iterator[Event]:
    yield from skipped
    out: list[Event] = []
    counted = False
    try:
        counted = _state(mapping(state), out)
    except SHAPES as error:
        out.append(Skipped(None, f"base_state.json: of an unknown shape: {error}"))
    yield from out
    teller, span, records = _Teller(content, counted), Span(), 0
    try:
        files = sorted((path / "events").glob("event-[0-9]*-*.json"))
    except OSError as error:
        yield Skipped(None, f"events: {error.strerror or error}")
        files = []
    for file in files:
        event, out = _load(file)
        if type(event) is dict:
            records += 1
            try:
                teller.event(event, span.saw(instant(event.get("timestamp"))), file.name, out)
            except SHAPES as error:
                out.append(Skipped(None, f"{file.name}: of an unknown shape: {error}"))
        yield from out
    yield span.read(records)
    ending = _status(words(mapping(state).get("execution_status")), teller.error, span.last)
    yield from [ending] if ending else []


def _state(state: dict[str, Any], out: list[Event]) -> bool:
    """What ``base_state.json`` says but for the ending; whether it has tokens of calls."""
    agent = mapping(state.get("agent"))
    out.append(
        Opened(
            session=words(state.get("id")),
            harness="openhands",
            model=words(mapping(agent.get("llm")).get("model")),
            cwd=words(mapping(state.get("workspace")).get("working_dir")),
            title=words(state.get("title")),
        )
    )
    return _usages(mapping(mapping(state.get("stats")).get("usage_to_metrics")), out)


def _usages(usages: dict[str, Any], out: list[Event]) -> bool:
    counted = False
    for use, metrics in usages.items():
        if type(metrics) is dict:
            counted = _metrics(use, metrics, out) or counted
    return counted


def _metrics(use: str, metrics: dict[str, Any], out: list[Event], model: str | None = None) -> bool:
    """The calls and the totals of one use of a model; whether it has calls."""
    model = words(metrics.get("model_name")) or model
    if model == "default":
        model = None
    calls = metrics.get("token_usages")
    for place, usage in enumerate(calls if type(calls) is list else ()):
        tokens = _tokens(usage)
        name = words(usage.get("model")) or model
        # The place keeps calls apart for which a provider gives one id.
        key = words(usage.get("response_id")) or f"{use}.{place}"
        out.append(Call(key, f"{use}.{place}", None, name, tokens))
        model = model or name
    tokens = _tokens(mapping(metrics.get("accumulated_token_usage")))
    shares = ((model, tokens, money(metrics.get("accumulated_cost"))),) if model else ()
    if litellm.known(tokens):
        cost = money(metrics.get("accumulated_cost"))
        out.append(Counter(f"use {use}", None, None if shares else tokens, shares, cost))
    elif metrics.get("accumulated_cost"):
        out.append(Counter(f"use {use}", None, None, (), money(metrics["accumulated_cost"])))
    return bool(calls)


def _tokens(usage: dict[str, Any]) -> Tokens:
    return litellm.split(
        count(usage.get("prompt_tokens")),
        count(usage.get("cache_read_tokens")),
        count(usage.get("cache_write_tokens")),
        count(usage.get("completion_tokens")),
        count(usage.get("reasoning_tokens")),
    )


class _Teller:
    """What events of the SDK say. `counted`: the calls are known from elsewhere, with their tokens."""

    def __init__(self, content: bool, counted: bool = False) -> None:
        self._content = content
        self._counted = counted
        self._tools: dict[str, str] = {}
        self.error: dict[str, Any] | None = None

    def event(self, o: dict[str, Any], at: str | None, fallback: str, out: list[Event]) -> None:
        key = words(o.get("id")) or fallback
        match o.get("kind"):
            case "MessageEvent":
                self._message(o, key, at, out)
            case "ActionEvent":
                self._action(o, key, at, out)
            case "ObservationEvent" | "AgentErrorEvent" | "UserRejectObservation":
                self._observation(o, at, out)
            case "SystemPromptEvent":
                text = mapping(o.get("system_prompt")).get("text") if self._content else None
                out.append(Prompt(key, at, text, by="system"))
            case "Condensation":
                out.append(Compacted(key, at))
            case "ConversationErrorEvent":
                self.error = o
            case _:
                pass

    def _message(self, o: dict[str, Any], key: str, at: str | None, out: list[Event]) -> None:
        message = mapping(o.get("llm_message"))
        text = _text(message.get("content")) if self._content else None
        if o.get("source") == "user":
            out.append(Prompt(key, at, text))
        elif o.get("source") == "agent":
            self.error = None
            call = words(o.get("llm_response_id"))
            if call or not self._counted:
                out.append(Call(call or key, None, at, None, None))
            self._speak(call or key, at, message, text, out)

    def _action(self, o: dict[str, Any], key: str, at: str | None, out: list[Event]) -> None:
        self.error = None
        call = words(o.get("llm_response_id"))
        if call or not self._counted:
            out.append(Call(call or key, None, at, None, None))
        self._speak(call or key, at, o, _text(o.get("thought")) if self._content else None, out)
        tool = words(o.get("tool_call_id"))
        if tool:
            self._tools[tool] = key
        name = words(o.get("tool_name")) or str(mapping(o.get("action")).get("kind"))
        out.append(ToolCall(key, at, name, self._arguments(o.get("action")), call or key))

    def _arguments(self, action: object) -> object:
        if not self._content:
            return None
        return {name: value for name, value in mapping(action).items() if name != "kind"}

    def _observation(self, o: dict[str, Any], at: str | None, out: list[Event]) -> None:
        key = words(o.get("action_id")) or self._tools.get(str(o.get("tool_call_id")))
        if key is None:
            return
        seen = mapping(o.get("observation"))
        code = seen.get("exit_code")
        failed = o.get("kind") != "ObservationEvent" or seen.get("is_error") is True
        failed = failed or (type(code) is int and code != 0)
        result: object = None
        if self._content:
            result = o.get("error") or o.get("rejection_reason") or _text(seen.get("content"))
        out.append(ToolResult(key, at, result, failed))

    def _speak(
        self, call: str, at: str | None, o: dict[str, Any], text: str | None, out: list[Event]
    ) -> None:
        thought = words(o.get("reasoning_content"))
        if self._content and thought:
            out.append(Said(call, at, thought, thought=True))
        if text:
            out.append(Said(call, at, text))


def _text(content: object) -> str | None:
    if type(content) is str:
        return content or None
    if type(content) is not list:
        return None
    texts = (each.get("text") for each in content if type(each) is dict)
    return "\n".join(text for text in texts if type(text) is str) or None


def _status(
    status: str | None, error: dict[str, Any] | None, at: str | None, weight: int = 1
) -> Ending | None:
    """``running`` and ``idle`` say nothing: a killed run keeps them."""
    match status:
        case "finished":
            return Ending("clean", "", status, weight, at)
        case "stuck":
            return Ending("stall", status, status, weight, at)
        case "paused" | "waiting_for_confirmation":
            return Ending("interrupt", status, status, weight, at)
        case "error":
            return _failure(mapping(error), weight, at)
        case _:
            return _failure(error, weight, at) if error else None


def _failure(error: dict[str, Any], weight: int, at: str | None) -> Ending:
    code, text = words(error.get("code")) or "error", words(error.get("detail")) or "error"
    if code in ("MaxIterationsReached", "MaxBudgetReached"):
        return Ending("budget", "turns" if "Iterations" in code else "usd", text, weight, at)
    return litellm.failure(code, text, weight, at) or Ending("crash", code, text, weight, at)


class Stream(LineReader):
    """``openhands --headless --json``: events of the SDK between lines of text, which are skipped and said."""

    format: ClassVar[str] = "openhands-stream"

    def __init__(self, content: bool = True) -> None:
        super().__init__(content)
        self._teller = _Teller(content)
        self._opened = False

    @classmethod
    def claims(cls, head: Head) -> int:
        return 90 if any(_is_event(o) for o in head.records) else 0

    def record(self, o: dict[str, Any], line: int, out: list[Event]) -> None:
        if not _is_event(o):
            return
        if not self._opened:
            self._opened = True
            out.append(Opened(harness="openhands"))
        at = instant(o.get("timestamp"))
        self.saw(at)
        self._teller.event(o, at, own(o), out)
        kind = o.get("kind")
        if kind == "ActionEvent" and mapping(o.get("action")).get("kind") == "FinishAction":
            out.append(Ending("clean", "", words(mapping(o["action"]).get("message")) or "", 1, at))
        elif kind == "MessageEvent" and o.get("source") == "agent":
            out.append(Ending("clean", "", "", 1, at))
        elif kind == "ConversationErrorEvent":
            out.append(_failure(o, 1, at))
        elif kind == "ConversationStateUpdateEvent":
            self._update(o, at, out)

    def _update(self, o: dict[str, Any], at: str | None, out: list[Event]) -> None:
        key, value = o.get("key"), o.get("value")
        state = mapping(value) if key == "full_state" else {str(key): value}
        _usages(mapping(mapping(state.get("stats")).get("usage_to_metrics")), out)
        ending = _status(words(state.get("execution_status")), self._teller.error, at)
        if ending is not None:
            out.append(ending)


def _is_event(o: dict[str, Any]) -> bool:
    return words(o.get("kind")) in _KINDS and "source" in o


class _Old:
    """What events of 0.x say, within one history."""

    def __init__(self, content: bool, within: str = "") -> None:
        self._content = content
        self._within = within
        self.calls = 0
        self.finished = False

    def event(self, event: dict[str, Any], at: str | None, out: list[Event]) -> None:
        o = mapping(event.get("data")) | event  # a page of the API puts what it is under data
        name, seen = words(o.get("action")), words(o.get("observation"))
        key = self._key(o.get("id"), event)
        call = self._call(o, at, out)
        if name is not None:
            source = o.get("source", "agent")
            arguments = mapping(o.get("args"))
            self.finished = name == "finish" if source == "agent" else self.finished
            if name in ("message", "system"):
                text = words(arguments.get("content")) if self._content else None
                if name == "system" or source != "agent":
                    by = "user" if name == "message" else "system"
                    out.append(Prompt(key, at, text, by=by))
                elif text:
                    out.append(Said(call or key, at, text))
            elif source == "agent" and name not in _NO_TOOLS:
                metadata = mapping(o.get("tool_call_metadata"))
                tool = words(metadata.get("function_name")) or name
                out.append(ToolCall(key, at, tool, arguments if self._content else None, call))
        elif seen is not None and o.get("cause") is not None:
            success = o.get("success")
            failed = True if seen == "error" else not success if type(success) is bool else None
            result = o.get("content") if self._content else None
            out.append(ToolResult(self._key(o["cause"], event), at, result, failed))

    def _key(self, name: object, event: dict[str, Any]) -> str:
        return f"{self._within}{own(event) if name is None else name}"

    def _call(self, o: dict[str, Any], at: str | None, out: list[Event]) -> str | None:
        response = mapping(mapping(o.get("tool_call_metadata")).get("model_response"))
        key = words(response.get("id"))
        if key is not None:
            self.calls += 1
            usage = response.get("usage")
            tokens = litellm.tokens(usage) if type(usage) is dict else None
            # The model's name stands in the metrics too, as it was asked for.
            out.append(Call(key, None, at, words(response.get("model")), tokens))
        return key


class Evaluation(LineReader):
    """``output.jsonl`` of the evaluation of 0.x: every record is an instance of a benchmark."""

    format: ClassVar[str] = "openhands-evaluation"

    @classmethod
    def claims(cls, head: Head) -> int:
        for o in head.records:
            if "instance_id" in o and "history" in o and "agent_class" in mapping(o.get("metadata")):
                return 95
        return 0

    def record(self, o: dict[str, Any], line: int, out: list[Event]) -> None:
        if "instance_id" not in o:
            return
        instance = str(o["instance_id"])
        model = words(mapping(mapping(o.get("metadata")).get("llm_config")).get("model"))
        out += (Opened(harness="openhands", model=model), Counted("instances", instance))
        _metrics(instance, mapping(o.get("metrics")), out, model)
        teller = _Old(self.content, f"{instance}:")
        at = None
        for event in _flat(o.get("history")):
            at = instant(event.get("timestamp"))
            self.saw(at)
            teller.event(event, at, out)
        error = words(o.get("error"))
        if error is not None:
            out.append(_error(error, at))
        elif teller.finished:
            out.append(Ending("clean", "", instance, 1, at))


def _flat(history: object) -> Iterator[dict[str, Any]]:
    """Events; those of 2024 stand in pairs of action and observation."""
    for each in history if type(history) is list else ():
        if type(each) is dict:
            yield each
        elif type(each) is list:
            yield from (event for event in each if type(event) is dict)


def _error(text: str, at: str | None) -> Ending:
    if "maximum iteration" in text:
        return Ending("budget", "turns", text, 1, at)
    if "maximum budget" in text:
        return Ending("budget", "usd", text, 1, at)
    if "stuck in a loop" in text or "AgentStuckInLoop" in text:
        return Ending("stall", "stuck", text, 1, at)
    name = text.partition(":")[0]
    return litellm.failure(name, text, 1, at) or Ending("crash", name, text, 1, at)


class Trajectory(DocumentReader):
    """Events as they are downloaded: a list, or a page of the API with one."""

    format: ClassVar[str] = "openhands-trajectory"

    @classmethod
    def claims(cls, head: Head) -> int:
        events = _page(head.document)
        if not events or not all(type(each) is dict for each in events):
            return 0
        return 85 if all(_is_event(each) or _is_old(each) for each in events) else 0

    def document(self, value: Any, out: list[Event]) -> None:
        events = [each for each in _page(value) if type(each) is dict]
        out.append(Opened(session=_conversation_id(value, events), harness="openhands"))
        teller, old, span = _Teller(self.content), _Old(self.content), Span()
        for each in events:
            at = span.saw(instant(each.get("timestamp")))
            if _is_event(each):
                teller.event(each, at, own(each), out)
            else:
                old.event(each, at, out)
        if not old.calls and not all(_is_event(each) for each in events):
            out.append(Silent("turns"))
        out.append(span.read(len(events)))
        if teller.error is not None:
            out.append(_failure(teller.error, 1, span.last))
        elif old.finished:
            out.append(Ending("clean", "", "", 1, span.last))


def _page(value: Any) -> list[Any]:
    for name in ("trajectory", "items", "events", "json"):
        if type(value) is dict and type(value.get(name)) is list:
            value = value[name]
    return value if type(value) is list else []


def _is_old(o: dict[str, Any]) -> bool:
    inner = mapping(o.get("data")) | o
    acts = type(inner.get("action")) is str and ("args" in inner or "source" in inner)
    sees = type(inner.get("observation")) is str and ("content" in inner or "source" in inner)
    return "id" in o and "timestamp" in o and (acts or sees)


def _conversation_id(value: Any, events: list[dict[str, Any]]) -> str | None:
    first = events[0] if events else {}
    return words(mapping(value).get("conversation_id")) or words(first.get("conversation_id"))


class CallLog(DocumentReader):
    """One call as the LLM log of the SDK keeps it: what was asked before belongs to other calls."""

    format: ClassVar[str] = "openhands-call"

    @classmethod
    def claims(cls, head: Head) -> int:
        value = mapping(head.document)
        response = mapping(value.get("response"))
        asked = "messages" in value or "input" in value
        return (
            85 if asked and "latency_sec" in value and ("usage" in response or "choices" in response) else 0
        )

    def document(self, value: Any, out: list[Event]) -> None:
        response = mapping(value.get("response"))
        span = Span()
        at = span.saw(instant(value.get("timestamp")))
        key = words(response.get("id")) or own(response)
        model = words(response.get("model"))
        out.append(Opened(harness="openhands", model=model))
        usage = response.get("usage") or value.get("usage_summary")
        tokens = litellm.tokens(usage) if type(usage) is dict else None
        out.append(Call(key, None, at, model, tokens, cost=money(value.get("cost"))))
        for choice in response.get("choices") or ():
            message = mapping(mapping(choice).get("message"))
            if self.content and words(message.get("content")):
                out.append(Said(key, at, message["content"]))
            for tool in message.get("tool_calls") or ():
                function = mapping(mapping(tool).get("function"))
                asked = function.get("arguments") if self.content else None
                name = str(function.get("name"))
                out.append(ToolCall(words(tool.get("id")) or own(tool), at, name, asked, key))
        out.append(span.read(1))
