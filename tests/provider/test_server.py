"""The scripted provider: what it says is what it bills."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.provider.script import Run, Step, Text, Thinking, Tool, Usage, fail, say
from tests.provider.server import Provider

USAGE = Usage(fresh=5, cached=20, created=7, created_1h=3, output=11, reasoning=4)
STEP = Step((Thinking("Hm."), Text("Two."), Tool("A", {"x": 1}), Tool("B", {"y": "é"})), USAGE)

MESSAGES: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "go"}]}
INPUT: dict[str, Any] = {"model": "m", "input": [{"type": "message", "role": "user", "content": "go"}]}


def post(run: Run, path: str, body: dict[str, Any]) -> str:
    data = json.dumps(body).encode()
    request = urllib.request.Request(run.address + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(answer.read().decode())


def events(text: str) -> list[dict[str, Any]]:
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(each) for each in data if each != "[DONE]"]


def test_messages_stream_and_whole_say_the_same() -> None:
    with Provider() as provider:
        run = provider.play("messages", [STEP, STEP])
        stream = events(post(run, "/v1/messages", {**MESSAGES, "stream": True}))
        whole = json.loads(post(run, "/v1/messages", MESSAGES))
    begun = next(each for each in stream if each["type"] == "message_start")
    assert begun["message"]["usage"]["output_tokens"] == 1
    ended = next(each for each in stream if each["type"] == "message_delta")
    assert ended["usage"] == whole["usage"]
    assert whole["usage"]["cache_creation"] == {
        "ephemeral_5m_input_tokens": 4,
        "ephemeral_1h_input_tokens": 3,
    }
    assert [block["type"] for block in whole["content"]] == ["thinking", "text", "tool_use", "tool_use"]
    pieces = [
        each["delta"].get("partial_json", "") for each in stream if each["type"] == "content_block_delta"
    ]
    assert "".join(pieces) == '{"x": 1}' + json.dumps({"y": "é"})
    assert (run.bill.usage, run.bill.calls, run.bill.tools) == (USAGE + USAGE, 2, 4)
    assert run.bill.models == {"m": USAGE + USAGE}


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/responses", INPUT), ("/v1/chat/completions", MESSAGES)],
    ids=["responses", "chat"],
)
def test_openai_counts_what_was_cached_as_input(path: str, body: dict[str, Any]) -> None:
    with Provider() as provider:
        run = provider.play("openai", [STEP])
        last = events(post(run, path, {**body, "stream": True}))[-1]
    usage = last["response"]["usage"] if "response" in last else last["usage"]
    assert usage.get("input_tokens", usage.get("prompt_tokens")) == 32
    assert usage.get("output_tokens", usage.get("completion_tokens")) == 11
    assert (run.bill.usage.input, run.bill.usage.output) == (32, 11)


def test_a_conversation_that_opens_with_a_marker_has_steps_of_its_own() -> None:
    mentioned = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "MARK, do it"}]
    with Provider() as provider:
        run = provider.play("sides", [say("main", USAGE)], {"MARK": [say("side", Usage(output=1))]})
        asked = [{"role": "user", "content": [{"type": "text", "text": "MARK, do it"}]}]
        assert "side" in post(run, "/v1/messages", {"model": "n", "messages": asked})
        assert "main" in post(run, "/v1/messages", {"model": "m", "messages": mentioned})
    assert (run.bill.of("MARK").usage, run.bill.of("").usage, run.left) == (Usage(output=1), USAGE, {})
    assert run.bill.of(model="n").calls == 1


def test_errors_cost_nothing_and_a_script_that_is_over_is_a_surprise() -> None:
    with Provider() as provider:
        run = provider.play("errors", [fail(429, retry_after=7)])
        with pytest.raises(urllib.error.HTTPError) as refused:
            post(run, "/v1/messages", MESSAGES)
        assert (refused.value.code, refused.value.headers["Retry-After"]) == (429, "7")
        with pytest.raises(urllib.error.HTTPError):
            post(run, "/v1/messages", MESSAGES)
    assert (run.bill.calls, run.bill.errors, len(run.bill.surprises)) == (0, 1, 1)


def test_a_stream_that_breaks_off_is_billed_apart() -> None:
    with Provider() as provider:
        run = provider.play("cut", [Step(STEP.blocks, USAGE, cut=True)])
        with pytest.raises(http.client.IncompleteRead):
            post(run, "/v1/messages", {**MESSAGES, "stream": True})
    (charge,) = run.bill.charges
    assert (charge.cut, charge.usage.output, charge.usage.input) == (True, 1, 32)
    assert (run.bill.calls, run.bill.usage) == (0, Usage())


def test_runs_of_one_scenario_have_addresses_of_their_own() -> None:
    with Provider() as provider:
        runs = [provider.play("same", [say(word, USAGE)]) for word in ("one", "two")]
        answers = [post(run, "/v1/messages", MESSAGES) for run in reversed(runs)]
    assert ["two" in answers[0], "one" in answers[1]] == [True, True]
    assert [run.bill.calls for run in runs] == [1, 1]
