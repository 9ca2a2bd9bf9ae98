"""OpenCode: streams, exports, trees of files and the database."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.transcripts.events import ToolCall, ToolResult
from adapters.transcripts.formats import store_of
from adapters.transcripts.readers.opencode import Database, Export, Files, Run
from tests.transcripts.counting import measured
from tests.transcripts.reading import (
    broken,
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

BORN = 1790000000000
OLD = BORN - 1000


def tokens(fresh: int, output: int, reasoning: int = 0, read: int = 0, write: int = 0, **others: Any) -> Any:
    return (
        {"input": fresh, "output": output, "reasoning": reasoning}
        | others
        | {"cache": {"read": read, "write": write}}
    )


def asked(n: int, *parts: Any, at: int | None = None) -> Any:
    info = {"id": f"msg_{n}", "role": "user", "time": {"created": at or BORN + n}}
    return {"info": info, "parts": list(parts) or [{"id": f"prt_{n}", "type": "text", "text": "look"}]}


def answered(n: int, used: Any, *parts: Any, at: int | None = None, **others: Any) -> Any:
    info = {
        "id": f"msg_{n}",
        "role": "assistant",
        "time": {"created": at or BORN + n, "completed": (at or BORN + n) + 1},
        "modelID": "m",
        "providerID": "p",
        "cost": 0,
        "tokens": used,
    }
    return {"info": info | others, "parts": list(parts)}


def step(name: str, used: Any, reason: str = "stop", cost: float = 0) -> Any:
    return {"id": name, "type": "step-finish", "reason": reason, "tokens": used, "cost": cost}


def tool(name: str, exit_code: int = 0, status: str = "completed", **metadata: Any) -> Any:
    return {
        "id": name,
        "type": "tool",
        "tool": "task" if metadata else "bash",
        "callID": f"call_{name}",
        "state": {
            "status": status,
            "input": {"command": "ls"},
            "output": "a",
            "metadata": {"exit": exit_code} | metadata,
            "time": {"start": BORN + 3, "end": BORN + 4},
        },
    }


FIRST = tokens(800, 30, 20, 200, 7, total=1057)
SECOND = tokens(10, 5, 0, 1000)
TEXT = {"id": "prt_t", "type": "text", "text": "done"}
TALK = [
    asked(1),
    answered(
        2,
        FIRST,
        {"id": "prt_r", "type": "reasoning", "text": "hm"},
        tool("prt_a"),
        tool("prt_b", 3),
        tool("prt_c", status="error"),
        step("prt_s1", FIRST, "tool-calls", 0.5),
        finish="tool-calls",
        cost=0.5,
    ),
    answered(5, SECOND, TEXT, step("prt_s2", SECOND, "stop", 0.25), finish="stop", cost=0.25),
]


def info(name: str = "ses_1", **others: Any) -> Any:
    times = {"created": BORN, "updated": BORN + 9}
    return {"id": name, "version": "1.18.33", "directory": "/w", "title": "T", "time": times} | others


def export(talk: list[Any] = TALK, **others: Any) -> Any:
    return {"info": info(**others), "messages": talk}


def stream() -> list[Any]:
    """The same run as it is told live: neither prompts nor models."""
    kinds = {"tool": "tool_use", "step-finish": "step_finish", "text": "text", "reasoning": "reasoning"}
    out: list[Any] = []
    for message in TALK[1:]:
        own = {"sessionID": "ses_1", "messageID": message["info"]["id"]}
        times = {"timestamp": message["info"]["time"]["created"], "sessionID": "ses_1"}
        begun = {"id": f"prt_0{message['info']['id']}", "type": "step-start"}
        out.append({"type": "step_start", "part": begun | own} | times)
        out += [{"type": kinds[part["type"]], "part": part | own} | times for part in message["parts"]]
    return out


def tree(root: Path, *sessions: Any) -> Path:
    """A directory ``storage``."""
    for each in sessions:
        name = each["info"]["id"]
        kept(root / "session/global" / f"{name}.json", each["info"])
        for message in each["messages"]:
            which = message["info"]["id"]
            kept(root / "message" / name / f"{which}.json", message["info"] | {"sessionID": name})
            for part in message["parts"]:
                own = {"sessionID": name, "messageID": which}
                kept(root / "part" / which / f"{part['id']}.json", part | own)
    return root


def kept(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(document(value))


def database(path: Path, *sessions: Any, wal: bool = False) -> Path:
    """A database with the columns that are read; with `wal` all its rows are in the log, and it stays open."""
    made = sqlite3.connect(path)
    if wal:
        made.execute("PRAGMA journal_mode=WAL")
        made.execute("PRAGMA wal_autocheckpoint=0")
    made.execute(
        "CREATE TABLE session (id TEXT PRIMARY KEY, parent_id, directory, title, version, cost, time_created,"
        " time_updated, tokens_input, tokens_output, tokens_reasoning, tokens_cache_read, tokens_cache_write)"
    )
    made.execute("CREATE TABLE message (id TEXT PRIMARY KEY, session_id, time_created, data)")
    made.execute("CREATE TABLE part (id TEXT PRIMARY KEY, message_id, session_id, data)")
    for each in sessions:
        known = each["info"]
        sums = known.get("tokens") or tokens(0, 0)
        row = (
            known["id"],
            known.get("parentID"),
            known["directory"],
            known["title"],
            known["version"],
            known.get("cost", 0),
            known["time"]["created"],
            known["time"]["updated"],
            *(sums[name] for name in ("input", "output", "reasoning")),
            *(sums["cache"][name] for name in ("read", "write")),
        )
        made.execute(f"INSERT INTO session VALUES ({', '.join('?' * 13)})", row)
        for message in each["messages"]:
            data = dict(message["info"])
            which = data.pop("id")
            values = (which, known["id"], data["time"]["created"], json.dumps(data))
            made.execute("INSERT INTO message VALUES (?, ?, ?, ?)", values)
            for part in message["parts"]:
                inner = {name: value for name, value in part.items() if name != "id"}
                values = (part["id"], which, known["id"], json.dumps(inner))
                made.execute("INSERT INTO part VALUES (?, ?, ?, ?)", values)
    made.commit()
    if wal:
        OPEN.append(made)
    else:
        made.close()
    return path


#: Connections that keep a log from being written back.
OPEN: list[sqlite3.Connection] = []


def ended(each: Any) -> Any:
    return each.ending and (each.ending.kind, each.ending.code)


def check(each: Any) -> None:
    used = each.tokens
    assert (used.input, used.cached, used.created, used.uncached) == (2017, 1200, 7, 810)
    assert (used.output, used.reasoning, each.cost_reported) == (55, 20, 0.75)
    assert (each.turns, each.tool_calls, each.tool_errors) == (2, 3, 2)
    assert (each.opened.session, each.opened.harness) == ("ses_1", "opencode")
    assert (each.ending.kind, each.ending.code) == ("clean", "stop")
    assert each.lower_bounds == ()


def check_stored(each: Any) -> None:
    check(each)
    assert (each.prompts, each.opened.cwd, each.opened.title) == (1, "/w", "T")
    assert each.opened.version == "1.18.33"
    assert [(share.name, share.calls) for share in each.models] == [("m", 2)]


def test_a_stream_counts_its_steps() -> None:
    name, each = read(lines(*stream()))
    assert name == "opencode-run"
    check(each)


@given(again=repeats, order=st.randoms())
def test_repeated_lines_in_any_order_change_nothing(again: list[tuple[int, int]], order: Any) -> None:
    once = counted(figures(events(Run, lines(*stream()))))
    assert counted(figures(events(Run, repeated(stream(), again)))) == once
    rest = [json.loads(line) for line in repeated(stream(), again).splitlines()]
    order.shuffle(rest)
    assert counted(figures(events(Run, lines(*rest)))) == once


def test_an_export_has_the_same_figures() -> None:
    name, each = read(document(export()))
    assert name == "opencode-export"
    check_stored(each)


def test_messages_as_the_server_gives_them() -> None:
    talk = [each | {"info": each["info"] | {"sessionID": "ses_1"}} for each in TALK]
    name, each = read(document(talk))
    assert name == "opencode-export"
    assert (each.tokens.input, each.turns, each.tool_calls, each.prompts) == (2017, 2, 3, 1)


@pytest.mark.parametrize("inner", ["", "storage"])
def test_a_tree_of_files_has_the_same_figures(tmp_path: Path, inner: str) -> None:
    tree(tmp_path / inner, export())
    form, found = stored(tmp_path)
    assert (form, list(found)) == ("opencode-files", ["ses_1"])
    check_stored(found["ses_1"])


@pytest.mark.parametrize("name", [b"opencode.db", b"a?b#c %41&mode=rw.db", b"caf\xe9.db"])
@pytest.mark.parametrize("wal", [False, True])
def test_the_database_has_the_same_figures(tmp_path: Path, name: bytes, wal: bool) -> None:
    path = tmp_path / os.fsdecode(name)
    made = database(tmp_path / "made.db", export(), wal=wal)
    for end in ("", "-wal"):
        from_ = made.with_name(made.name + end)
        if from_.exists():
            path.with_name(path.name + end).write_bytes(from_.read_bytes())
    assert path.with_name(path.name + "-wal").exists() == wal
    before = path.read_bytes()
    form, found = stored(path)
    assert (form, list(found)) == ("opencode-db", ["ses_1"])
    check_stored(found["ses_1"])
    assert path.read_bytes() == before


def test_a_database_that_is_being_written_is_read(tmp_path: Path) -> None:
    database(tmp_path / "opencode.db", export(), wal=True)
    check_stored(stored(tmp_path)[1]["ses_1"])


def test_what_only_the_session_knows_counts(tmp_path: Path) -> None:
    """A title or a summary is a call without a message."""
    more = export(tokens=tokens(900, 40, 25, 1200, 7), cost=1.5)
    (each,) = stored(database(tmp_path / "opencode.db", more))[1].values()
    assert (each.tokens.input, each.tokens.output, each.cost_reported) == (2107, 65, 1.5)
    assert each.main.input == 2017
    assert each.lower_bounds == ("turns",)


def below(name: str, parent: str, n: int) -> Any:
    """A sub-agent's session, with a call and a tool, that failed."""
    error = {"name": "APIError", "data": {"message": "no", "statusCode": 500}}
    used = tokens(100, 1)
    parts = (tool(f"prt_x{n}"), step(f"prt_y{n}", used))
    return export([answered(n, used, *parts, error=error)], name=name, parentID=parent)


@pytest.mark.parametrize("form", ["tree", "database"])
def test_sub_agents_are_sessions_of_their_own(tmp_path: Path, form: str) -> None:
    sessions = (export(), below("ses_2", "ses_1", 20), below("ses_3", "ses_2", 30))
    if form == "tree":
        tree(tmp_path, *sessions)
    else:
        database(tmp_path / "opencode.db", *sessions)
    assert [each.opened.inside for each in stored(tmp_path)[1].values()] == [None, "ses_1", "ses_2"]
    (one,) = measured(tmp_path)
    each = one.figures
    assert (each.turns, each.turns_subagents, each.tool_calls, each.tool_calls_subagents) == (4, 2, 5, 2)
    assert (each.tokens.input, each.main.input, each.subagents.input) == (2217, 2017, 200)
    assert each.ending is not None
    assert (each.ending.kind, each.ending.code, each.prompts) == ("clean", "stop", 1)


def test_a_stream_says_that_it_does_not_show_sub_agents() -> None:
    part = tool("prt_z", sessionId="ses_2") | {"sessionID": "ses_1", "messageID": "msg_2"}
    each = read(
        lines(*stream(), {"type": "tool_use", "sessionID": "ses_1", "timestamp": BORN, "part": part})
    )[1]
    assert each.counts == {"sub-agent sessions": 1}
    assert each.notes == ("sub-agents ran in sessions of their own, which this stream does not show",)


def test_a_fork_counts_what_it_did_itself() -> None:
    """Its copies are older than itself."""
    again = step("prt_o1", FIRST, cost=9)
    old = [
        asked(11, at=OLD),
        answered(12, FIRST, tool("prt_o", 1), again, at=OLD, summary=True, cost=9, finish="stop"),
    ]
    each = read(document(export([*old, *TALK], tokens=tokens(9999, 99, 9), cost=99)))[1]
    check(each)
    assert (each.inherited.input, each.inherited.output) == (1007, 50)
    assert (each.compactions, each.prompts) == (0, 1)


def test_a_message_of_2025_has_several_steps_and_the_tokens_of_the_last() -> None:
    talk = [
        asked(1),
        answered(2, SECOND, step("a", FIRST, "tool-calls", 0.5), step("b", SECOND, "stop", 0.25)),
    ]
    each = read(document(export(talk)))[1]
    assert (each.turns, each.tokens.input, each.tokens.output, each.cost_reported) == (2, 2017, 55, 0.75)


def test_output_that_includes_reasoning_is_not_counted_twice() -> None:
    talk = [answered(2, tokens(100, 50, 20, total=150)), answered(3, tokens(100, 50, 20, total=170))]
    each = read(document(export(talk)))[1]
    assert (each.tokens.output, each.tokens.reasoning) == (120, 40)


def test_tokens_of_zeros_are_unknown() -> None:
    talk = [asked(1), answered(2, tokens(0, 0), finish="unknown")]
    each = read(document(export(talk)))[1]
    assert (each.tokens.input, each.tokens.output, each.cost_reported) == (None, None, None)
    assert (each.turns, each.calls_without_usage) == (1, 1)
    assert ended(each) == ("provider", "unknown")


def test_a_command_of_the_user_is_no_model_call() -> None:
    said = {
        "id": "prt_u",
        "type": "text",
        "text": "The following tool was executed by the user",
        "synthetic": True,
    }
    talk = [*TALK, asked(7, said), answered(8, tokens(0, 0), tool("prt_d", 1), parentID="msg_7")]
    each = read(document(export(talk)))[1]
    assert (each.turns, each.tool_calls, each.tool_errors, each.prompts) == (2, 3, 2, 1)
    assert each.counts == {"commands of the user": 1}
    assert each.calls_without_usage == 0


def test_a_summary_is_told_once() -> None:
    request = asked(7, {"id": "prt_k", "type": "compaction", "auto": True})
    talk = [
        *TALK,
        request,
        answered(8, tokens(50, 5), step("prt_l", tokens(50, 5)), summary=True, parentID="msg_7"),
    ]
    each = read(document(export(talk)))[1]
    assert (each.compactions, each.turns, each.prompts, each.tokens.input) == (1, 3, 1, 2067)


ERRORS: list[tuple[Any, tuple[str, str], int, int]] = [
    ({"name": "MessageAbortedError", "data": {"message": "x"}}, ("interrupt", "aborted"), 3, 0),
    ({"name": "ProviderAuthError", "data": {"message": "x"}}, ("auth", "401"), 2, 1),
    ({"name": "APIError", "data": {"message": "x", "statusCode": 429}}, ("limit", "429"), 2, 1),
    ({"name": "APIError", "data": {"message": "x", "statusCode": 504}}, ("provider", "504"), 2, 1),
    ({"name": "ContextOverflowError", "data": {"message": "x"}}, ("provider", "context"), 2, 1),
    ({"name": "MessageOutputLengthError", "data": {}}, ("provider", "length"), 2, 1),
    ({"name": "UnknownError", "data": {"message": "x"}}, ("provider", "UnknownError"), 2, 1),
]


@pytest.mark.parametrize(("error", "ending", "turns", "failed"), ERRORS)
def test_an_error_says_how_it_ended(error: Any, ending: tuple[str, str], turns: int, failed: int) -> None:
    each = read(document(export([*TALK, answered(8, tokens(0, 0), error=error)])))[1]
    assert ended(each) == ending
    assert (each.turns, each.counts.get("failed calls", 0)) == (turns, failed)
    live = read(lines(*stream(), {"type": "error", "timestamp": BORN, "sessionID": "ses_1", "error": error}))[
        1
    ]
    assert ended(live) == ending
    assert (live.turns, live.counts) == (2, {"errors": 1})


def test_what_has_no_last_word_has_no_ending() -> None:
    for cut in range(1, len(stream())):
        assert read(lines(*stream()[:cut]))[1].ending is None
    assert read(document(export(TALK[:2])))[1].ending is None
    assert read(document(export([*TALK, asked(9)])))[1].ending is None


def test_a_torn_file_of_a_tree_is_said_and_the_rest_counts(tmp_path: Path) -> None:
    tree(tmp_path, export())
    (tmp_path / "message/ses_1/msg_1.json").write_text('{"id": "msg_1", ')
    (tmp_path / "message/ses_1/msg_5.json").write_text("")
    form, found = stored(tmp_path)
    each = found["ses_1"]
    assert (form, each.torn, each.tokens.input, each.turns) == ("opencode-files", 2, 2017, 2)
    assert set(each.lower_bounds) == {"input", "output"}


def test_parts_without_their_message_count(tmp_path: Path) -> None:
    tree(tmp_path, export())
    (tmp_path / "message/ses_1/msg_5.json").unlink()
    each = stored(tmp_path)[1]["ses_1"]
    assert (each.turns, each.tokens.input, each.tokens.output) == (2, 2017, 55)


def test_links_lead_nowhere(tmp_path: Path) -> None:
    tree(tmp_path / "a", export())
    tree(tmp_path / "b", export([answered(77, FIRST)], name="ses_9"))
    (tmp_path / "a/message/ses_9").symlink_to(tmp_path / "b/message/ses_9")
    (tmp_path / "a/message/ses_1/msg_77.json").symlink_to(tmp_path / "b/message/ses_9/msg_77.json")
    assert list(stored(tmp_path / "a")[1]) == ["ses_1"]
    check(stored(tmp_path / "a")[1]["ses_1"])


def test_a_row_that_cannot_be_read_is_said_and_its_parts_count(tmp_path: Path) -> None:
    made = sqlite3.connect(database(tmp_path / "opencode.db", export()))
    made.execute("UPDATE message SET data = '{\"role\": ' WHERE id = 'msg_2'")
    made.execute("UPDATE part SET data = NULL WHERE id = 'prt_t'")
    made.commit()
    made.close()
    (each,) = stored(tmp_path)[1].values()
    assert (each.torn, each.turns, each.tokens.input, each.tool_calls) == (2, 2, 2017, 3)


def test_a_damaged_database_is_said(tmp_path: Path) -> None:
    path = database(tmp_path / "opencode.db", export())
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))
    assert [figures(each).torn for _, each in Database.sessions(path, True)] == [1]
    assert [figures(each).torn for _, each in Database.sessions(tmp_path / "none.db", True)] == [1]


def test_a_database_of_other_columns_is_said(tmp_path: Path) -> None:
    made = sqlite3.connect(tmp_path / "opencode.db")
    for name in ("session", "message", "part"):
        made.execute(f"CREATE TABLE {name} (id, data)")
    made.execute("INSERT INTO session VALUES ('x', 'y')")
    made.commit()
    made.close()
    assert [figures(each).torn for _, each in Database.sessions(tmp_path, True)] == [1]


def test_what_is_no_store_is_not_claimed(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE session (id)")
    other.commit()
    other.close()
    (tmp_path / "half.db").write_bytes(b"SQLite format 3\0" + b"x" * 50)
    for name in ("message", "part"):
        (tmp_path / "a" / name).mkdir(parents=True)
    kept(tmp_path / "a/message/x/y.json", {"role": "user"})
    for name in ("other.db", "half.db", "none.db", "a", "."):
        assert store_of(tmp_path / name) is None


def test_without_content_no_text_is_kept(tmp_path: Path) -> None:
    tree(tmp_path, export())
    ((_, files),) = Files.sessions(tmp_path, False)
    for found in (
        events(Run, lines(*stream()), content=False),
        events(Export, document(export()), content=False),
        list(files),
    ):
        assert not any(getattr(each, "text", None) for each in found)
        assert not any(each.arguments for each in found if isinstance(each, ToolCall))
        assert not any(each.content for each in found if isinstance(each, ToolResult))


@pytest.mark.parametrize(
    ("name", "used", "turns", "tools", "cost", "ending"),
    [
        ("b_opencode/es617*", (49406, 48616, 784, 334, 0), 5, 3, 0.0237143, ("clean", "stop")),
        ("c_streamjson_other/*opencode_run_json*", (534, 0, 0, 192, 64), 1, 1, 0.0123, ("provider", "504")),
        ("c_streamjson_other/*success_no_reason*", (12, 0, 0, 3, 0), 1, 0, 0.002, None),
    ],
)
def test_streams_of_the_corpus(
    corpus: Path, name: str, used: Any, turns: int, tools: int, cost: float, ending: Any
) -> None:
    """Counted apart: the sums over all parts step-finish."""
    (path,) = corpus.glob(name)
    form, each = read(path)
    found = each.tokens
    assert form == "opencode-run"
    assert (found.input, found.cached, found.created, found.output, found.reasoning) == used
    assert (each.turns, each.tool_calls) == (turns, tools)
    assert each.cost_reported == pytest.approx(cost)
    assert ended(each) == ending


def test_messages_of_the_corpus_that_others_wrote_as_lines(corpus: Path) -> None:
    (path,) = (corpus / "b_opencode").glob("*message_grouping*")
    form, each = read(path)
    assert (form, each.turns, each.tool_calls, each.prompts, each.tokens.input) == (
        "opencode-run",
        4,
        3,
        2,
        None,
    )


@pytest.mark.parametrize(
    ("root", "found"),
    [
        (
            "tree_opensession",
            {"ses_company_logic": (1, 2, None), "msg_abc123": (0, 0, None), "msg_user": (0, 0, None)},
        ),
        ("tree_agent-sessions/storage_legacy", {"s_stage0_drift": (1, 0, None)}),
        ("tree_agent-sessions/storage_v2", {"s_stage0_large": (1, 0, 120), "s_stage0_small": (0, 0, None)}),
    ],
)
def test_trees_of_the_corpus(corpus: Path, root: str, found: Any) -> None:
    form, sessions = stored(corpus / "b_opencode" / root)
    assert form == "opencode-files"
    told = {name: (each.turns, each.tool_calls, each.tokens.input) for name, each in sessions.items()}
    assert told == found


def test_every_file_of_the_corpus_is_known(corpus: Path) -> None:
    for path in (corpus / "b_opencode").glob("*.json"):
        assert format_of(path) == "opencode-export" or path.name.endswith("_user.json")


def test_what_others_write_is_not_claimed() -> None:
    assert format_of(lines({"type": "text", "sessionID": "s", "text": "x"})) is None
    assert format_of(document({"info": {}, "messages": [{"role": "user"}]})) is None
    assert format_of(document([])) is None


@given(value=broken(stream()))
def test_any_shape_of_a_stream_is_survived(value: Any) -> None:
    survives(value, as_lines=True)
    figures(events(Run, lines(*value) if isinstance(value, list) else b""))


@given(value=broken(export()))
def test_any_shape_of_an_export_is_survived(value: Any) -> None:
    survives(value)
    figures(events(Export, document(value)))
