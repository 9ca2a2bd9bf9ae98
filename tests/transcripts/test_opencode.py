"""OpenCode: streams, exports, files, the database."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.transcripts.account import Account, Figures
from adapters.transcripts.formats import store_of
from adapters.transcripts.readers.opencode import Database, Export, Files, Run

BORN = 1700000000000


def tokens(fresh: int, output: int, reasoning: int = 0, read: int = 0, write: int = 0, **more: int) -> dict:
    return {
        "input": fresh,
        "output": output,
        "reasoning": reasoning,
        "cache": {"read": read, "write": write},
    } | more


NOTHING = tokens(0, 0)


def part(id: str, message: str, kind: str, **more: Any) -> dict:
    return {"id": id, "sessionID": "ses_1", "messageID": message, "type": kind} | more


def tool(id: str, message: str, code: int, **state: Any) -> dict:
    own = {"status": "completed", "input": {"command": "x"}, "output": "", "metadata": {"exit": code}} | state
    return part(id, message, "tool", callID="call_0", tool="bash", state=own)


def answer(id: str, used: dict, **more: Any) -> dict:
    return {
        "id": id,
        "sessionID": "ses_1",
        "role": "assistant",
        "time": {"created": BORN + len(id)},
        "modelID": "m",
        "providerID": "p",
        "tokens": used,
        "cost": 0.5,
    } | more


FIRST = tokens(800, 30, 20, 200)
SECOND = tokens(900, 5, 0, 100, 50)
INFO = {
    "id": "ses_1",
    "version": "1.18.33",
    "directory": "/w",
    "title": "T",
    "time": {"created": BORN, "updated": BORN + 9},
}
ASKED = {"id": "msg_", "sessionID": "ses_1", "role": "user", "time": {"created": BORN + 1}}
MESSAGES: list[dict] = [
    {"info": ASKED, "parts": [part("prt_0", "msg_", "text", text="do")]},
    {
        "info": answer("msg_1", FIRST, finish="tool-calls"),
        "parts": [
            part("prt_1", "msg_1", "step-start"),
            tool("prt_2", "msg_1", 3),
            part("prt_3", "msg_1", "step-finish", reason="tool-calls", tokens=FIRST, cost=0.5),
        ],
    },
    {
        "info": answer("msg_22", SECOND, finish="stop"),
        "parts": [
            tool("prt_4", "msg_22", 0),
            part("prt_5", "msg_22", "text", text="done"),
            part("prt_6", "msg_22", "step-finish", reason="stop", tokens=SECOND, cost=0.5),
        ],
    },
]
KINDS = {"step-start": "step_start", "step-finish": "step_finish", "tool": "tool_use", "text": "text"}
STREAM = [
    {"type": KINDS[each["type"]], "timestamp": BORN + place, "sessionID": "ses_1", "part": each}
    for place, each in enumerate(each for message in MESSAGES[1:] for each in message["parts"])
]


def numbers(f: Figures) -> tuple:
    used = f.tokens
    return (
        used.input,
        used.cached,
        used.created,
        used.output,
        used.reasoning,
        f.turns,
        f.tool_calls,
        f.tool_errors,
    )


#: 800 + 200 and 900 + 100 + 50; 30 + 20 and 5.
EXPECTED = (2050, 300, 50, 55, 20, 2, 2, 1)


def exported(messages: list[dict] = MESSAGES, **info: Any) -> bytes:
    return json.dumps({"info": INFO | info, "messages": messages}).encode()


def test_a_stream(figures: Callable[..., Figures]) -> None:
    found = figures(Run, STREAM)
    assert numbers(found) == EXPECTED
    assert (found.cost_reported, found.ending.kind, found.opened.session) == (1.0, "clean", "ses_1")


def test_an_export_says_the_same(figures: Callable[..., Figures], claims: Any) -> None:
    assert claims(exported()) is Export
    found = figures(Export, exported())
    assert numbers(found) == EXPECTED
    assert (found.cost_reported, found.prompts, found.records, found.ending.kind) == (1.0, 1, 3, "clean")
    assert (found.opened.version, found.opened.cwd, found.opened.title) == ("1.18.33", "/w", "T")
    account = Account()
    for reader, data in (
        (Export(), exported()),
        (Run(), b"".join(json.dumps(o).encode() + b"\n" for o in STREAM)),
    ):
        account.add(reader.feed(data) + reader.close())
    assert numbers(account.figures()) == EXPECTED, "the same calls under the same names"


def test_a_list_of_messages_as_the_server_gives_it(figures: Callable[..., Figures], claims: Any) -> None:
    data = json.dumps(MESSAGES).encode()
    assert claims(data) is Export
    assert numbers(figures(Export, data)) == EXPECTED


def test_several_steps_in_one_message_are_several_calls(figures: Callable[..., Figures]) -> None:
    steps = [
        part(f"p{n}", "msg_1", "step-finish", reason="tool-calls", tokens=FIRST, cost=0.25) for n in range(3)
    ]
    found = figures(Export, exported([{"info": answer("msg_1", FIRST, cost=0.75), "parts": steps}]))
    assert (found.tokens.input, found.tokens.output, found.turns, found.cost_reported) == (3000, 150, 3, 0.75)


def test_a_message_without_its_parts_counts_by_itself(figures: Callable[..., Figures]) -> None:
    found = figures(Export, exported([each | {"parts": []} for each in MESSAGES]))
    assert numbers(found) == (*EXPECTED[:6], 0, 0)


def test_a_total_that_includes_reasoning_in_the_output_is_believed(figures: Callable[..., Figures]) -> None:
    def output(total: int) -> int | None:
        used = tokens(800, 30, 20, 200, total=total)
        return figures(Export, exported([{"info": answer("msg_1", used), "parts": []}])).tokens.output

    assert output(1050) == 50
    assert output(1030) == 30


def test_what_the_session_says_counts_where_messages_were_taken_back(figures: Callable[..., Figures]) -> None:
    found = figures(Export, exported(MESSAGES[:2], tokens=tokens(1700, 35, 20, 300, 50), cost=1.0))
    assert numbers(found)[:4] == (2050, 300, 50, 55)
    assert (found.main.input, found.cost_reported) == (1000, 1.0)


def test_what_a_fork_copied_was_used_elsewhere(figures: Callable[..., Figures]) -> None:
    later = {"created": BORN + 6, "updated": BORN + 9}
    found = figures(Export, exported(time=later, tokens=tokens(1700, 35, 20, 300, 50)))
    assert (found.tokens.input, found.turns, found.inherited.input) == (1050, 1, 1000)


def test_a_sub_agent_is_inside_another_session(figures: Callable[..., Figures]) -> None:
    assert figures(Export, exported(parentID="ses_0")).opened.inside == "ses_0"
    task = tool("prt_9", "msg_1", 0, metadata={"sessionId": "ses_2"}) | {"tool": "task"}
    found = figures(
        Run, [*STREAM, {"type": "tool_use", "timestamp": BORN, "sessionID": "ses_1", "part": task}]
    )
    assert found.counts["sub-agent sessions"] == 1
    assert found.notes, "the stream does not show what the sub-agent used"


@pytest.mark.parametrize(
    ("error", "turns", "kind", "code"),
    [
        ({"name": "APIError", "data": {"message": "no", "statusCode": 401}}, 0, "auth", "401"),
        ({"name": "APIError", "data": {"message": "slow", "statusCode": 429}}, 0, "limit", "429"),
        ({"name": "APIError", "data": {"message": "down", "statusCode": 503}}, 0, "provider", "503"),
        ({"name": "ProviderAuthError", "data": {"message": "no key"}}, 0, "auth", "401"),
        ({"name": "ContextOverflowError", "data": {}}, 0, "provider", "context"),
        ({"name": "UnknownError", "data": {"message": "?"}}, 0, "provider", "UnknownError"),
        ({"name": "MessageAbortedError", "data": {"message": "Aborted"}}, 1, "interrupt", "aborted"),
    ],
)
def test_how_it_ended(figures: Callable[..., Figures], error: dict, turns: int, kind: str, code: str) -> None:
    found = figures(Export, exported([{"info": answer("msg_1", NOTHING, error=error), "parts": []}]))
    assert (found.ending.kind, found.ending.code, found.turns) == (kind, code, turns)
    assert (found.tokens.input, found.cost_reported) == (None, None), "all 0 is unknown"
    event = {"type": "error", "timestamp": BORN + 99, "sessionID": "ses_1", "error": error}
    found = figures(Run, [*STREAM, event])
    assert (found.ending.kind, found.ending.code, found.turns) == (kind, code, 2)


def test_steps_of_a_broken_stream_are_calls_of_unknown_size(figures: Callable[..., Figures]) -> None:
    broken = [
        {
            "type": "step_finish",
            "timestamp": BORN,
            "sessionID": "ses_1",
            "part": part(f"p{n}", f"m{n}", "step-finish", reason="unknown", tokens=NOTHING),
        }
        for n in range(3)
    ]
    found = figures(Run, broken)
    assert (found.turns, found.tokens.input, found.ending.code) == (3, None, "unknown")


@given(st.lists(st.integers(0, len(STREAM) - 1)), st.integers())
def test_no_order_and_no_repetition_changes_a_stream(figures: Any, again: list[int], seed: int) -> None:
    records = [*STREAM, *(STREAM[place] for place in again)]
    Random(seed).shuffle(records)
    assert numbers(figures(Run, records)) == EXPECTED


@given(st.lists(st.integers(0, len(MESSAGES) - 1)), st.integers())
def test_no_order_and_no_repetition_changes_an_export(figures: Any, again: list[int], seed: int) -> None:
    chance = Random(seed)
    messages = [*MESSAGES, *(MESSAGES[place] for place in again)]
    chance.shuffle(messages)
    mixed = [each | {"parts": chance.sample(each["parts"], len(each["parts"]))} for each in messages]
    assert numbers(figures(Export, exported(mixed))) == EXPECTED


def of_store(path: Path, content: bool = True) -> dict[str, Figures]:
    store = store_of(path)
    assert store is not None
    found = {}
    for session, events in store.sessions(path, content):
        account = Account()
        account.add(events)
        found[session] = account.figures()
    return found


def write(file: Path, value: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(value if isinstance(value, str) else json.dumps(value))


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    root = tmp_path / "opencode" / "storage"
    write(root / "session/proj/ses_1.json", INFO)
    write(root / "session/proj/ses_2.json", INFO | {"id": "ses_2", "parentID": "ses_1"})
    for message in MESSAGES:
        write(root / f"message/ses_1/{message['info']['id']}.json", message["info"])
        for each in message["parts"]:
            write(root / f"part/{message['info']['id']}/{each['id']}.json", each)
    return root


def test_files(storage: Path) -> None:
    for path in (storage, storage.parent):
        assert store_of(path) is Files
        found = of_store(path)
        assert list(found) == ["ses_1", "ses_2"]
        assert numbers(found["ses_1"]) == EXPECTED
        assert found["ses_2"].opened.inside == "ses_1"
    assert numbers(of_store(storage, content=False)["ses_1"]) == EXPECTED


def test_parts_whose_message_is_gone_still_count(storage: Path) -> None:
    (storage / "message/ses_1/msg_1.json").unlink()
    assert numbers(of_store(storage)["ses_1"]) == EXPECTED


def test_a_broken_file_is_told_and_the_rest_is_read(storage: Path) -> None:
    write(storage / "part/msg_1/prt_3.json", '{"id": "prt_3", "ty')
    found = of_store(storage)["ses_1"]
    assert numbers(found)[:6] == (2050, 300, 50, 55, 20, 2), "the message itself has the tokens of its step"
    assert found.skipped[0].why.startswith("prt_3.json")
    assert "input" in found.lower_bounds


def test_links_out_of_the_store_are_not_followed(storage: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    for message in MESSAGES:
        info = message["info"] | {"id": "other" + message["info"]["id"]}
        write(outside / f"{info['id']}.json", info)
    os.symlink(outside, storage / "message/ses_9")
    os.symlink(outside / "othermsg_1.json", storage / "message/ses_1/othermsg_1.json")
    found = of_store(storage)
    assert list(found) == ["ses_1", "ses_2"]
    assert numbers(found["ses_1"]) == EXPECTED


SCHEMA = """
CREATE TABLE session (id TEXT PRIMARY KEY, project_id TEXT, parent_id TEXT, directory TEXT, title TEXT,
    version TEXT, time_created INTEGER, time_updated INTEGER);
CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, data TEXT);
CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, data TEXT);
"""


def without(o: dict, *names: str) -> str:
    return json.dumps({name: value for name, value in o.items() if name not in names})


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Path]:
    """A database whose rows are in the write-ahead log, as while OpenCode runs; its path has all that a URI minds."""
    file = tmp_path / "a b#c?d%20e" / "opencode.db"
    file.parent.mkdir()
    with closing(sqlite3.connect(file, isolation_level=None)) as base:
        base.execute("PRAGMA journal_mode = WAL")
        base.execute("PRAGMA wal_autocheckpoint = 0")
        base.executescript(SCHEMA)
        row = ("p", None, "/w", "T", "1.18.33", BORN, BORN + 9)
        base.execute("INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?)", ("ses_1", *row))
        base.execute(
            "INSERT INTO session VALUES ('ses_2', 'p', 'ses_1', '/w', 'sub', '1', ?, ?)", (BORN, BORN)
        )
        for message in MESSAGES:
            info = message["info"]
            data = without(info, "id", "sessionID")
            base.execute("INSERT INTO message VALUES (?, 'ses_1', ?, ?)", (info["id"], BORN, data))
            for each in message["parts"]:
                own = without(each, "id", "sessionID", "messageID")
                base.execute("INSERT INTO part VALUES (?, ?, 'ses_1', ?)", (each["id"], info["id"], own))
        yield file


def test_the_database_while_it_is_written(database: Path) -> None:
    before = database.read_bytes()
    for path in (database, database.parent):
        assert store_of(path) is Database
        found = of_store(path)
        assert numbers(found["ses_1"]) == EXPECTED
        assert (found["ses_1"].opened.version, found["ses_1"].opened.cwd) == ("1.18.33", "/w")
        assert found["ses_2"].opened.inside == "ses_1"
    assert numbers(of_store(database, content=False)["ses_1"]) == EXPECTED
    assert database.read_bytes() == before


def test_a_row_that_is_broken_is_told_and_the_rest_is_read(database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as base:
        base.execute("UPDATE part SET data = '{\"type\"' WHERE id = 'prt_3'")
        base.execute("UPDATE message SET data = NULL WHERE id = 'msg_'")
    found = of_store(database)["ses_1"]
    assert numbers(found)[:6] == (2050, 300, 50, 55, 20, 2)
    assert [each.why.split(":")[0] for each in found.skipped] == ["prt_3", "msg_"]


def test_the_totals_of_the_session_count(database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as base:
        for name in ("input", "output", "reasoning", "cache_read", "cache_write"):
            base.execute(f"ALTER TABLE session ADD COLUMN tokens_{name} INTEGER DEFAULT 0")
        base.execute("ALTER TABLE session ADD COLUMN cost REAL")
        base.execute(
            "UPDATE session SET tokens_input = 1700, tokens_output = 35, tokens_reasoning = 20, tokens_cache_read = 300, tokens_cache_write = 50, cost = 1 WHERE id = 'ses_1'"
        )
        base.execute("DELETE FROM part WHERE message_id = 'msg_22'")
        base.execute("DELETE FROM message WHERE id = 'msg_22'")
    found = of_store(database)
    assert numbers(found["ses_1"])[:4] == (2050, 300, 50, 55)
    assert found["ses_2"].tokens.input is None


def test_other_databases_and_directories_are_not_claimed(tmp_path: Path) -> None:
    other = tmp_path / "opencode.db"
    with closing(sqlite3.connect(other)) as base:
        base.execute("CREATE TABLE session (id)")
    (tmp_path / "message").mkdir()
    (tmp_path / "session").mkdir()
    (tmp_path / "text.db").write_text("no database")
    for path in (other, tmp_path, tmp_path / "text.db", tmp_path / "nothing"):
        assert store_of(path) is None


def test_a_real_stream(real: Callable[..., Figures]) -> None:
    """Counted apart: five step_finish; 6 fresh, 48616 read, 784 written, 334 out; one of three tools has exit 1."""
    found = real("b_opencode/es617*.jsonl", Run)
    assert numbers(found) == (6 + 48616 + 784, 48616, 784, 334, 0, 5, 3, 1)
    assert found.cost_reported == pytest.approx(0.0237143)
    assert found.ending.kind == "clean"


def test_a_real_stream_that_failed_at_its_end(real: Callable[..., Figures]) -> None:
    found = real("c_streamjson_other/*opencode_run_json.jsonl", Run)
    assert numbers(found) == (534, 0, 0, 128 + 64, 64, 1, 1, 0)
    assert (found.ending.kind, found.ending.code) == ("provider", "504")


def test_a_real_stream_whose_step_has_no_reason(real: Callable[..., Figures]) -> None:
    found = real("c_streamjson_other/*opencode_stream_success_no_reason.jsonl", Run)
    assert numbers(found) == (12, 0, 0, 3, 0, 1, 0, 0)
    assert found.ending is None


def test_real_messages_one_a_line(real: Callable[..., Figures]) -> None:
    assert numbers(real("b_opencode/*opencode_session.jsonl", Run)) == (
        None,
        None,
        None,
        None,
        None,
        4,
        3,
        None,
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("*s_stage0_large__msg_0002.json", (120, None, None, 16, None, 1, 0, 0)),
        ("*m_assistant_large_1__001.json", (None, None, None, None, None, 0, 1, 1)),
        ("*m_user_small__001.json", (None, None, None, None, None, 0, 0, 0)),
        ("*ses_fixture.json", (None, None, None, None, None, 0, 0, 0)),
    ],
)
def test_real_files_of_a_store_alone(real: Callable[..., Figures], name: str, expected: tuple) -> None:
    assert numbers(real(f"b_opencode/{name}", Export)) == expected


def test_real_trees(corpus: Path) -> None:
    found = of_store(corpus / "b_opencode/tree_agent-sessions/storage_v2")
    assert numbers(found["s_stage0_large"])[:6] == (120, None, None, 16, None, 1)
    assert found["s_stage0_small"].opened.version == "1.3.17"
    found = of_store(corpus / "b_opencode/tree_agent-sessions/storage_legacy")
    assert numbers(found["s_stage0_drift"]) == (None, None, None, None, None, 1, 0, 0)
    found = of_store(corpus / "b_opencode/tree_opensession")
    assert numbers(found["ses_company_logic"]) == (None, None, None, None, None, 1, 2, 0)
