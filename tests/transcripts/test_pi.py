"""pi: sessions and streams."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.transcripts.account import Account, Figures
from adapters.transcripts.readers.pi import Session, Stream
from tests.transcripts.counting import lines, measured


def answer(
    at: int, stop: str = "stop", usage: tuple[int, int, int, int] = (10, 5, 100, 20), **more: Any
) -> dict:
    fresh, output, read, write = usage
    return {
        "role": "assistant",
        "content": [{"type": "text", "text": "ok"}],
        "provider": "p",
        "model": "m",
        "usage": {
            "input": fresh,
            "output": output,
            "cacheRead": read,
            "cacheWrite": write,
            "cost": {"total": 0.25},
        },
        "stopReason": stop,
        "timestamp": at,
    } | more


def entry(id: str, message: dict) -> dict:
    return {
        "type": "message",
        "id": id,
        "parentId": None,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "message": message,
    }


HEADER = {"type": "session", "version": 3, "id": "s1", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/w"}
TOOL = [{"type": "toolCall", "id": "t1", "name": "bash", "arguments": {"command": "false"}}]
RESULT = {
    "role": "toolResult",
    "toolCallId": "t1",
    "toolName": "bash",
    "content": "",
    "isError": True,
    "timestamp": 1700000001500,
}
SESSION = [
    HEADER,
    entry("a", {"role": "user", "content": "do", "timestamp": 1700000000000}),
    entry("b", answer(1700000001000, "toolUse", content=TOOL)),
    entry("c", RESULT),
    entry("d", answer(1700000002000)),
    {"type": "compaction", "id": "e", "timestamp": "2026-01-01T00:00:01.000Z", "summary": "s"},
]
STREAM = [
    HEADER,
    {"type": "agent_start"},
    {"type": "message_end", "message": SESSION[1]["message"]},
    {"type": "message_start", "message": answer(1700000001000, "toolUse", (0, 0, 0, 0), content=[])},
    {"type": "message_end", "message": SESSION[2]["message"]},
    {"type": "tool_execution_start", "toolCallId": "t1", "toolName": "bash", "args": {}},
    {"type": "tool_execution_end", "toolCallId": "t1", "toolName": "bash", "result": {}, "isError": True},
    {"type": "message_end", "message": RESULT},
    {"type": "turn_end", "message": SESSION[2]["message"], "toolResults": [RESULT]},
    {"type": "message_end", "message": SESSION[4]["message"]},
    {"type": "turn_end", "message": SESSION[4]["message"], "toolResults": []},
    {"type": "agent_end", "messages": [SESSION[n]["message"] for n in (1, 2, 3, 4)]},
]


def numbers(f: Figures) -> tuple:
    used = f.tokens
    return used.input, used.cached, used.created, used.output, f.turns, f.tool_calls, f.tool_errors, f.prompts


#: Two calls of 10 + 100 + 20 and 5.
EXPECTED = (260, 200, 40, 10, 2, 1, 1, 1)


def test_a_session(figures: Callable[..., Figures]) -> None:
    found = figures(Session, SESSION)
    assert numbers(found) == EXPECTED
    assert (found.cost_reported, found.compactions) == (0.5, 1)
    assert (found.ending.kind, found.ending.code) == ("clean", "stop")
    assert (found.opened.session, found.opened.cwd) == ("s1", "/w")


def test_a_stream_says_the_same_as_its_session(figures: Callable[..., Figures]) -> None:
    assert numbers(figures(Stream, STREAM)) == EXPECTED
    account = Account()
    for reader, records in ((Session(), SESSION), (Stream(), STREAM)):
        account.add(reader.feed(b"".join(json.dumps(o).encode() + b"\n" for o in records)) + reader.close())
    assert numbers(account.figures()) == EXPECTED, "the same calls under the same names"


def test_a_stream_that_lost_the_line_of_a_message_still_counts_it(figures: Callable[..., Figures]) -> None:
    assert numbers(figures(Stream, [o for o in STREAM if o["type"] != "message_end"])) == EXPECTED


@pytest.mark.parametrize(
    ("stop", "error", "kind", "code"),
    [
        ("error", "429 status code: rate limit exceeded", "limit", "429"),
        ("error", "status 429", "limit", "429"),
        ("error", "status 401: no", "auth", "401"),
        ("error", "status 503", "provider", "503"),
        ("aborted", "Request was aborted", "interrupt", "aborted"),
        ("length", None, "provider", "length"),
    ],
)
def test_how_it_ended(figures: Callable[..., Figures], stop: str, error: str, kind: str, code: str) -> None:
    found = figures(Session, [HEADER, entry("a", answer(1, stop, (0, 0, 0, 0), errorMessage=error))])
    assert (found.ending.kind, found.ending.code) == (kind, code)
    assert found.tokens.input is None, "all 0 is unknown"
    assert found.turns == (0 if stop == "error" else 1)


def test_mirrors_of_openclaw_are_no_calls(figures: Callable[..., Figures]) -> None:
    mirror = answer(3, provider="openclaw", model="delivery-mirror")
    found = figures(Session, [*SESSION, entry("f", mirror)])
    assert numbers(found) == EXPECTED
    assert found.counts["mirrored messages"] == 1


def test_a_fork_has_its_parents_calls_under_the_same_names(figures: Callable[..., Figures]) -> None:
    parent = Account()
    parent.add(Session().feed(b"".join(json.dumps(o).encode() + b"\n" for o in SESSION)))
    fork = Account(set(parent.made(named_only=False)))
    own = entry("z", answer(1700000009000, usage=(1, 2, 3, 4)))
    header = HEADER | {"id": "s2", "parentSession": "s1.jsonl"}
    fork.add(Session().feed(b"".join(json.dumps(o).encode() + b"\n" for o in [header, *SESSION[1:], own])))
    found = fork.figures()
    assert (found.tokens.input, found.tokens.output, found.turns, found.inherited.input) == (8, 2, 1, 260)
    assert found.opened.forked == "s1"


@given(st.lists(st.integers(0, len(SESSION) - 1)), st.integers())
def test_no_order_and_no_repetition_changes_a_session(figures: Any, again: list[int], seed: int) -> None:
    records = [*SESSION, *(SESSION[place] for place in again)]
    Random(seed).shuffle(records)
    assert numbers(figures(Session, records)) == EXPECTED


@given(st.lists(st.integers(0, len(STREAM) - 1)), st.integers())
def test_no_order_and_no_repetition_changes_a_stream(figures: Any, again: list[int], seed: int) -> None:
    records = [*STREAM, *(STREAM[place] for place in again)]
    Random(seed).shuffle(records)
    assert numbers(figures(Stream, records)) == EXPECTED


def test_the_real_session_of_version_1(real: Callable[..., Figures]) -> None:
    """Counted apart: sums of `usage` over the 453 assistant messages, ids of toolCall blocks, isError."""
    found = real("b_pi/badlogic_pi-mono*large-session.jsonl", Session)
    assert numbers(found) == (1049 + 43229469 + 4296232, 43229469, 4296232, 83156, 453, 391, 19, 88)
    assert found.cost_reported == pytest.approx(30.3301977)
    assert {share.name: share.calls for share in found.models} == {
        "claude-sonnet-4-5": 452,
        "gpt-5.1-codex": 1,
    }
    assert found.lower_bounds == ("input", "output", "cost"), "14 calls were aborted before any usage"


def test_the_real_stream(real: Callable[..., Figures]) -> None:
    """Counted apart: four message_end of the assistant; one of them is the failed call, with 320 tokens."""
    found = real("c_streamjson_other/*pi_print_mode_events.jsonl", Stream)
    assert numbers(found) == (1240 + 680 + 320 + 410, 0, 0, 182 + 128 + 0 + 96, 4, 1, 0, 2)
    assert found.cost_reported == pytest.approx(0.003462)
    assert (found.compactions, found.counts["retries"]) == (1, 1)


@pytest.mark.parametrize("name", ["openclaw__small", "openclaw__schema_drift"])
def test_the_real_ones_of_openclaw(real: Callable[..., Figures], name: str) -> None:
    assert numbers(real(f"b_pi/*{name}.jsonl", Session)) == (None, None, None, None, 1, 1, 0, 1)


def test_the_messages_of_another_program_are_not_claimed(claims: Any) -> None:
    other = {
        "type": "message",
        "timestamp": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": []},
    }
    assert claims(json.dumps(other).encode() + b"\n") is not Session


def test_a_fork_and_its_parent_as_a_folder(tmp_path: Path) -> None:
    own = entry("z", answer(1700000009000, usage=(1, 2, 3, 4)))
    header = HEADER | {"id": "s2", "parentSession": "/somewhere/s1.jsonl"}
    (tmp_path / "s1.jsonl").write_bytes(lines(*SESSION))
    (tmp_path / "a fork.jsonl").write_bytes(lines(header, *SESSION[1:], own))
    parent, fork = measured(tmp_path)
    assert (parent.figures.tokens.input, fork.figures.tokens.input, fork.figures.inherited.input) == (
        260,
        8,
        260,
    )
