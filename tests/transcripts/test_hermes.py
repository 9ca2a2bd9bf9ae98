"""Hermes: documents, exports, usage files and the database."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from adapters.transcripts import sessions
from adapters.transcripts.events import Opened
from adapters.transcripts.formats import store_of
from adapters.transcripts.readers.hermes import Database, Export
from tests.transcripts.reading import (
    broken,
    corpus,
    counted,
    document,
    events,
    figures,
    format_of,
    lines,
    read,
    repeated,
    repeats,
    stored,
    survives,
)

TOOLS = [
    {"id": "call_1", "type": "function", "function": {"name": "terminal", "arguments": '{"command": "ls"}'}}
]
MESSAGES: list[Any] = [
    {"role": "user", "content": "look", "timestamp": 1790000000.0},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": TOOLS,
        "timestamp": 1790000001.0,
        "finish_reason": "tool_calls",
    },
    {
        "role": "tool",
        "content": "a",
        "tool_call_id": "call_1",
        "tool_name": "terminal",
        "timestamp": 1790000002.5,
    },
    {"role": "assistant", "content": "done", "timestamp": 1790000003.0, "finish_reason": "stop"},
]
SESSION: dict[str, Any] = {
    "id": "20260921_s1",
    "source": "cli",
    "model": "m",
    "cwd": "/w",
    "parent_session_id": None,
    "started_at": 1789999999.0,
    "ended_at": None,
    "end_reason": None,
    "message_count": 4,
    "tool_call_count": 1,
    "api_call_count": 3,
    "input_tokens": 100,
    "output_tokens": 20,
    "cache_read_tokens": 900,
    "cache_write_tokens": 50,
    "reasoning_tokens": 7,
    "estimated_cost_usd": 0.25,
}


def database(path: Path, *sessions: dict[str, Any], wal: bool = False) -> Path:
    """A database with the columns that are read, and one that nobody has heard of."""
    made = sqlite3.connect(path)
    if wal:
        made.execute("PRAGMA journal_mode=WAL")
    made.execute(f"CREATE TABLE sessions ({', '.join(SESSION)}, novelty)")
    made.execute(
        "CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id, role, content, tool_call_id, tool_calls, tool_name, timestamp, finish_reason)"
    )
    for session in sessions:
        made.execute(
            f"INSERT INTO sessions ({', '.join(session)}) VALUES ({', '.join('?' * len(session))})",
            tuple(session.values()),
        )
        for message in MESSAGES:
            row = {"session_id": session["id"]} | message
            if "tool_calls" in row:
                row["tool_calls"] = json.dumps(row["tool_calls"])
            made.execute(
                f"INSERT INTO messages ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",
                tuple(row.values()),
            )
    made.commit()
    if not wal:
        made.close()
    return path


def check(each: Any) -> None:
    assert (each.tokens.input, each.tokens.cached, each.tokens.created) == (1050, 900, 50)
    assert (each.tokens.output, each.tokens.reasoning) == (20, 7)
    assert (each.turns, each.tool_calls, each.prompts, each.cost_reported) == (3, 1, 1, 0.25)
    assert (each.first, each.last) == ("2026-09-21T14:13:19.000Z", "2026-09-21T14:13:23.000Z")
    assert each.opened == Opened("20260921_s1", "hermes", model="m", cwd="/w")
    assert each.lower_bounds == ()


@pytest.mark.parametrize("name", ["state.db", "a?b#c %41.db"])
def test_the_database_has_each_session_with_its_counters(tmp_path: Path, name: str) -> None:
    path = database(tmp_path / name, SESSION, SESSION | {"id": "s2", "parent_session_id": "20260921_s1"})
    before = path.read_bytes()
    found, sessions = stored(path)
    assert found == "hermes-database"
    assert list(sessions) == ["20260921_s1", "s2"]
    check(sessions["20260921_s1"])
    assert sessions["s2"].opened.forked == "20260921_s1"
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_the_home_directory_stands_for_its_database(tmp_path: Path) -> None:
    database(tmp_path / "state.db", SESSION)
    check(stored(tmp_path)[1]["20260921_s1"])


def test_a_database_that_is_being_written_is_read(tmp_path: Path) -> None:
    path = database(tmp_path / "state.db", SESSION, wal=True)
    check(stored(path)[1]["20260921_s1"])


def test_counters_that_nobody_kept_are_unknown(tmp_path: Path) -> None:
    zeros = {name: 0 for name in SESSION if name.endswith(("_tokens", "_call_count"))}
    (each,) = stored(database(tmp_path / "state.db", SESSION | zeros | {"estimated_cost_usd": None}))[
        1
    ].values()
    assert (each.tokens.input, each.tokens.output, each.cost_reported) == (None, None, None)
    assert (each.turns, each.tool_calls) == (2, 1)


def test_what_is_no_such_database_is_not_claimed(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE sessions (id, title)")
    other.commit()
    other.close()
    (tmp_path / "half.db").write_bytes(b"SQLite format 3\0" + b"x" * 50)
    (tmp_path / "text.db").write_text("hello")
    for name in ("other.db", "half.db", "text.db", "none.db", "."):
        assert store_of(tmp_path / name) is None


def test_a_damaged_database_is_said(tmp_path: Path) -> None:
    path = database(tmp_path / "state.db", SESSION)
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))
    found = [each for _, each in Database.sessions(path, True)]
    assert [figures(each).torn for each in found] == [1]
    assert [figures(each).torn for _, each in Database.sessions(tmp_path / "none.db", True)] == [1]


def test_an_export_has_the_same_figures_as_the_database() -> None:
    name, each = read(lines(SESSION | {"messages": MESSAGES}))
    assert name == "hermes-export"
    check(each)


@given(again=repeats)
def test_repeated_lines_of_an_export_change_nothing(again: list[tuple[int, int]]) -> None:
    run = [SESSION | {"messages": MESSAGES}, SESSION | {"id": "s2", "messages": MESSAGES}]
    once = figures(events(Export, lines(*run)))
    assert (once.tokens.input, once.turns, once.tool_calls) == (2100, 6, 2)
    assert counted(figures(events(Export, repeated(run, again)))) == counted(once)


@pytest.mark.parametrize(
    ("words", "ending"),
    [
        ({"completed": True, "failed": False}, ("clean", "")),
        ({"completed": False, "failed": True, "failure": "AuthenticationError: no key"}, ("auth", "401")),
        ({"completed": False, "failed": True, "failure": "Error code: 429 - slow down"}, ("limit", "429")),
        ({"completed": False, "failed": True, "failure": "it broke"}, ("provider", "error")),
        ({"completed": None, "failed": None}, None),
    ],
)
def test_a_usage_file_says_how_it_ended(words: dict[str, Any], ending: tuple[str, str] | None) -> None:
    counts = {
        "input_tokens": 10,
        "output_tokens": 2,
        "cache_read_tokens": 30,
        "reasoning_tokens": 1,
        "api_calls": 2,
    }
    name, each = read(document(counts | {"total_tokens": 42, "session_id": "s"} | words))
    assert name == "hermes-usage"
    assert (each.tokens.input, each.tokens.cached, each.tokens.output, each.turns) == (40, 30, 2, 2)
    assert each.tool_calls is None
    assert (each.ending and (each.ending.kind, each.ending.code)) == ending


def test_a_usage_file_of_nulls_knows_nothing() -> None:
    names = (
        "input_tokens",
        "output_tokens",
        "cache_read_tokens",
        "api_calls",
        "session_id",
        "completed",
        "failed",
    )
    _, each = read(document(dict.fromkeys(names)))
    assert (each.tokens.input, each.tokens.output, each.turns) == (None, None, None)


@pytest.mark.parametrize(
    ("pattern", "turns", "tools", "first", "last"),
    [
        ("*hermes__large.json", 2, 1, "2026-04-29T20:05:00.000Z", "2026-04-29T20:05:12.000Z"),
        ("*hermes__small.json", 1, 0, "2026-04-29T20:00:00Z", "2026-04-29T20:00:04Z"),
    ],
)
def test_documents_of_the_corpus(pattern: str, turns: int, tools: int, first: str, last: str) -> None:
    name, each = read(corpus(f"b_hermes/{pattern}"))
    assert name == "hermes"
    assert (each.turns, each.tool_calls, each.prompts, each.tokens.input) == (turns, tools, 1, None)
    assert (each.first, each.last) == (first, last)


def test_chats_without_a_word_of_hermes_are_not_claimed() -> None:
    for pattern in ("*sample_session.json", "*sample_session.jsonl", "*exporter__session.json"):
        assert format_of(corpus(f"b_hermes/{pattern}")) is None


@given(value=broken([SESSION | {"messages": MESSAGES}]))
def test_any_shape_is_survived(value: Any) -> None:
    survives(value, as_lines=True)
    first = value[0]
    survives(
        {"session_id": "x", "session_start": 1, "platform": "cli"}
        | (first if isinstance(first, dict) else {})
    )


def test_a_database_is_read_once_however_many_sessions_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE sessions (id TEXT, source TEXT, started_at REAL, input_tokens INTEGER)")
        base.execute("CREATE TABLE messages (id INTEGER, session_id TEXT, role TEXT, tool_calls TEXT)")
        base.executemany(
            "INSERT INTO sessions VALUES (?, 'cli', 1.0, 7)", [(f"s{nth}",) for nth in range(50)]
        )
        base.commit()
    asked: list[bool] = []
    read = Database.sessions
    monkeypatch.setattr(
        Database, "sessions", lambda path, content: (asked.append(content), read(path, content))[1]
    )
    found = list(
        sessions.measure(
            sessions.gather(each for each in sessions.find([path]) if isinstance(each, sessions.Source))
        )
    )
    assert sum(each.figures.tokens.input or 0 for each in found) == 350
    assert asked == [False]
