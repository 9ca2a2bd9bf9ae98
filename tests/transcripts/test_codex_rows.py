"""Rows of Codex 0.171 as the real program writes them, cut down to what a reader looks at."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adapters.transcripts.account import Account, Figures
from adapters.transcripts.readers.codex import Exec, Rollout


def counted(account: Account, reader: Rollout | Exec, rows: list[dict[str, Any]]) -> Account:
    account.add(reader.feed(b"".join(json.dumps(row).encode() + b"\n" for row in rows)))
    account.add(reader.close())
    return account


def figures(*rows: dict[str, Any], others: frozenset[int] = frozenset()) -> Figures:
    return counted(Account(others), Rollout(), list(rows)).figures()


def meta(thread: str, **more: object) -> dict[str, Any]:
    return {
        "type": "session_meta",
        "payload": {"id": thread, "cli_version": "0.171.0", "source": "exec", **more},
    }


def usage(whole: int, output: int) -> dict[str, int]:
    return {
        "input_tokens": whole,
        "cached_input_tokens": 0,
        "cache_write_input_tokens": 0,
        "output_tokens": output,
    }


def record(response: str, used: tuple[int, int], total: tuple[int, int]) -> dict[str, Any]:
    payload = {"response_id": response, "usage": usage(*used), "thread_token_usage": usage(*total)}
    return {"type": "token_usage_record", "payload": payload}


def event(kind: str, **more: object) -> dict[str, Any]:
    return {"type": "event_msg", "timestamp": "2026-01-01T00:00:00Z", "payload": {"type": kind, **more}}


def item(kind: str, key: str, **more: object) -> dict[str, Any]:
    return event("item_completed", item={"type": kind, "id": key, **more})


def asked(call: str) -> dict[str, Any]:
    payload = {"type": "function_call", "name": "exec_command", "arguments": "{}", "call_id": call}
    return {"type": "response_item", "payload": payload}


def test_a_forks_call_is_its_own_though_its_parent_went_on_to_the_same_total() -> None:
    """Both begin with the total of the fork's origin; the response tells them apart."""
    parent = counted(
        Account(), Rollout(), [meta("p"), record("r1", (10, 1), (10, 1)), record("r2", (5, 2), (15, 3))]
    )
    base = {"thread_id": "p", "end_ordinal_exclusive": 9}
    fork = figures(
        meta("f", forked_from_id="p", history_base=base),
        record("r3", (5, 2), (15, 3)),
        others=frozenset(parent.made(named_only=False)),
    )
    assert (fork.tokens.input, fork.tokens.output, fork.turns, fork.inherited.input) == (5, 2, 1, None)
    assert fork.opened.forked == "p"


def test_responses_of_one_id_are_told_apart_by_the_total() -> None:
    """A gateway may give every response the same id."""
    rows = [record("r", (10, 1), (10, 1)), record("r", (5, 2), (15, 3))]
    found = figures(meta("p"), *rows, *rows)
    assert (found.tokens.input, found.turns) == (15, 2)


def test_prompts_and_commands_are_items_now() -> None:
    found = figures(
        meta("p"),
        item("UserMessage", "u1", content=[{"type": "text", "text": "go"}]),
        asked("c1"),
        item("CommandExecution", "c1", exit_code=3, aggregated_output=""),
        item("UserMessage", "u2", content=[]),
    )
    assert (found.prompts, found.tool_calls, found.tool_errors) == (2, 1, 1)


@pytest.mark.parametrize("item_first", [True, False])
def test_a_prompt_that_is_said_twice_counts_once(item_first: bool) -> None:
    said = [item("UserMessage", "u1", content=[]), event("user_message", message="go")]
    assert figures(meta("p"), *(said if item_first else said[::-1])).prompts == 1


@pytest.mark.parametrize("child_first", [True, False])
def test_a_sub_agents_thread_beside_its_parents_is_its_share(child_first: bool) -> None:
    spawned = {"subagent": {"thread_spawn": {"parent_thread_id": "p", "depth": 1}}}
    parent = [
        meta("p"),
        item("UserMessage", "u1", content=[]),
        record("r1", (10, 1), (10, 1)),
        event("task_complete"),
    ]
    child = [
        meta("c", source=spawned),
        item("UserMessage", "u2", content=[]),
        asked("c1"),
        record("r2", (5, 2), (5, 2)),
        event("task_complete", error={"message": "unexpected status 429 Too Many Requests"}),
    ]
    account = Account()
    for rows in (child, parent) if child_first else (parent, child):
        counted(account, Rollout(), rows)
    found = account.figures()
    assert (found.tokens.input, found.turns, found.tool_calls, found.prompts) == (15, 2, 1, 1)
    assert (found.subagents.input, found.turns_subagents, found.tool_calls_subagents) == (5, 1, 1)
    assert (found.opened.session, found.opened.inside) == ("p", None)
    assert found.ending is not None
    assert found.ending.kind == "clean"
    alone = figures(*child)
    assert (alone.opened.session, alone.opened.inside, alone.tokens.input) == ("c", "p", 5)
    assert alone.ending is not None
    assert alone.ending.kind == "limit"


def test_a_stream_holds_nothing_of_what_its_sub_agents_used() -> None:
    spawn = {
        "id": "i1",
        "type": "collab_tool_call",
        "tool": "spawn_agent",
        "prompt": "do it",
        "status": "completed",
    }
    rows: list[dict[str, Any]] = [
        {"type": "thread.started", "thread_id": "p"},
        {"type": "turn.started"},
        {"type": "item.completed", "item": spawn},
        {"type": "turn.completed", "usage": usage(10, 1)},
    ]
    found = counted(Account(), Exec(), rows).figures()
    assert (found.tokens.input, found.tool_calls) == (10, 1)
    assert {"input", "output", "tool_calls"} <= set(found.lower_bounds)
    del rows[2]
    assert counted(Account(), Exec(), rows).figures().lower_bounds == ()


@pytest.mark.parametrize(
    ("output", "failed"),
    [
        ('{"output":"x","metadata":{"exit_code":1,"duration_seconds":0.1}}', True),
        ('{"output":"x","metadata":{"exit_code":0}}', False),
        ('{"metadata":{"exit_code":2},"output":"x"}', True),
        ('{"output":"\\"metadata\\":{\\"exit_code\\":1}}","metadata":{"exit_code":0}}', False),
        ('{"output":"\\"metadata\\":{\\"exit_code\\":1}"}', None),
        ('{"output":"x","metadata":{"exit_code":1', True),  # cut off, and still said
        ("Exit code: 3\nOutput:\nx", True),
        ("Process exited with code 0", False),
        ("hello", None),
        ("{", None),
        ({"success": False}, True),
        ({"exitCode": 0}, False),
        (None, None),
    ],
)
def test_whether_a_tool_failed_stands_in_what_it_gave(output: object, failed: bool | None) -> None:
    call = {
        "type": "response_item",
        "payload": {"type": "function_call", "name": "shell", "call_id": "c", "arguments": "{}"},
    }
    gave = {
        "type": "response_item",
        "payload": {"type": "function_call_output", "call_id": "c", "output": output},
    }
    found = figures(meta("t"), call, gave)
    assert found.tool_errors == (None if failed is None else int(failed))
