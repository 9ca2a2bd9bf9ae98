"""Which files make a session, in which order they are counted, and what is no transcript."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from adapters.transcripts import formats, sessions
from adapters.transcripts.account import Usage
from adapters.transcripts.readers.codex import Rollout
from tests.transcripts.claude import answered, assistant, prompt, result
from tests.transcripts.counting import figures, lines, measured


def unread(*paths: Path) -> dict[str, str]:
    return {each.path.name: each.why for each in sessions.find(paths) if isinstance(each, sessions.Unread)}


def test_a_stream_and_the_session_file_are_one_session(tmp_path: Path) -> None:
    """The output of the stream's result is final where that of the lines is not."""
    usage = {"input_tokens": 20, "output_tokens": 90}
    rows = [assistant("m1", output=1, stop=None), assistant("m2", "r2", output=1, stop=None)]
    stream = [
        {**row, "session_id": "s1", "request_id": row["requestId"], "parent_tool_use_id": None}
        for row in rows
    ]
    (tmp_path / "s1.jsonl").write_bytes(lines(*rows))
    (tmp_path / "events.jsonl").write_bytes(lines(*stream, result(usage=usage)))
    (one,) = measured(tmp_path)
    assert one.figures.turns == 2
    assert one.figures.tokens == Usage(20, 0, 0, 90, None)
    assert one.figures.lower_bounds == ()
    (alone,) = measured(tmp_path / "s1.jsonl")
    assert (alone.figures.tokens.output, alone.figures.lower_bounds) == (2, ("output",))


def test_a_fork_that_copies_history_is_charged_with_its_own_calls_alone(tmp_path: Path) -> None:
    old = [assistant("m1", "r1", output=10, tool="t1"), assistant("m2", "r2", output=20)]
    (tmp_path / "b.jsonl").write_bytes(lines(*old))
    copied = [{**row, "sessionId": "s2"} for row in old]
    new = assistant("m3", "r3", output=5, session="s2", at="2026-03-01T11:00:00Z")
    (tmp_path / "a.jsonl").write_bytes(lines(prompt() | {"sessionId": "s2"}, *copied, new))
    by_id = {each.session.id: each.figures for each in measured(tmp_path)}
    assert sum(each.turns or 0 for each in by_id.values()) == 3
    assert sum(each.tokens.output or 0 for each in by_id.values()) == 35
    assert sum(each.tool_calls or 0 for each in by_id.values()) == 1
    (alone,) = measured(tmp_path / "a.jsonl")
    assert alone.figures.tokens.output == 35


def test_each_session_of_a_folder_has_what_it_has_alone(tmp_path: Path) -> None:
    """Sessions that have nothing to do with each other, all with a tool that failed."""
    for n, session in enumerate("abc"):
        path = tmp_path / f"{session}.jsonl"
        at = f"2026-03-0{n + 1}T10:00:00Z"
        used = assistant(f"m{n}", f"r{n}", session=session, tool=f"t{n}", at=at)
        path.write_bytes(lines(prompt("go", f"p{n}") | {"sessionId": session}, used, answered(f"t{n}", True)))
    together = {each.session.id: each.figures for each in measured(tmp_path)}
    for session, found in together.items():
        (alone,) = measured(tmp_path / f"{session}.jsonl")
        assert found == alone.figures
        assert (found.tool_calls, found.tool_errors, found.prompts) == (1, 1, 1)


def test_each_session_of_the_corpus_has_what_it_has_alone(corpus: Path) -> None:
    """All in one run, but for those that hold copies of others or share their ids."""
    found = [each for each in sessions.find([corpus]) if isinstance(each, sessions.Source)]
    gathered = sessions.gather(found)
    shared = {id(each) for each in gathered if len(each.sources) > 1 or each.parent}
    count = 0
    for one in sessions.measure(gathered):
        if id(one.session) not in shared and one.figures.inherited == Usage():
            (alone,) = sessions.measure([one.session])
            assert one.figures == alone.figures, one.session.paths
            count += 1
    assert count > 100


def rollout(name: str, used: list[int], forked: str | None = None, at: str = "2026-03-01T10:00:00Z") -> bytes:
    meta: dict[str, Any] = {"id": name, "cwd": "/w", "cli_version": "0.60.0"}
    if forked:
        meta["forked_from_id"] = forked
    rows: list[Any] = [{"type": "session_meta", "timestamp": at, "payload": meta}]
    total = 0
    for each in used:
        total += each
        info = {
            "total_token_usage": {"input_tokens": total, "cached_input_tokens": 0, "output_tokens": total},
            "last_token_usage": {"input_tokens": each, "cached_input_tokens": 0, "output_tokens": each},
        }
        rows.append({"type": "event_msg", "timestamp": at, "payload": {"type": "token_count", "info": info}})
    return lines(*rows)


def test_forks_of_forks_of_codex_in_whatever_order_they_are_found(tmp_path: Path) -> None:
    (tmp_path / "3.jsonl").write_bytes(rollout("p", [10, 20]))
    (tmp_path / "2.jsonl").write_bytes(rollout("c", [10, 20, 5], "p", "2026-03-01T09:00:00Z"))
    (tmp_path / "1.jsonl").write_bytes(rollout("g", [10, 20, 5, 7], "c", "2026-03-01T08:00:00Z"))
    # Another thread with the same first total has nothing to do with them.
    (tmp_path / "0.jsonl").write_bytes(rollout("other", [10]))
    own = {each.session.id: each.figures.tokens.output for each in measured(tmp_path)}
    assert own == {"p": 30, "c": 5, "g": 7, "other": 10}
    inherited = {each.session.id: each.figures.inherited.output for each in measured(tmp_path)}
    assert inherited == {"p": None, "c": 30, "g": 35, "other": None}


def test_forks_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(rollout("a", [1], "b"))
    (tmp_path / "b.jsonl").write_bytes(rollout("b", [1], "a"))
    assert len(measured(tmp_path)) == 2


def test_a_fork_of_old_is_told_by_the_first_record_of_its_parent() -> None:
    data = rollout("c", [1, 2]) + rollout("p", [])
    assert figures(data, Rollout).opened.forked == "p"


def test_a_spawned_thread_of_codex_is_a_sub_agent_of_its_parent(tmp_path: Path) -> None:
    source = {"subagent": {"thread_spawn": {"parent_thread_id": "p", "depth": 1}}}
    child = json.loads(rollout("c", [3]).splitlines()[0])
    child["payload"]["source"] = source
    rows = rollout("c", [3]).splitlines(keepends=True)[1:]
    (tmp_path / "p.jsonl").write_bytes(rollout("p", [10]))
    (tmp_path / "c.jsonl").write_bytes(lines(child) + b"".join(rows))
    (one,) = measured(tmp_path)
    assert (one.figures.turns, one.figures.turns_subagents) == (2, 1)
    assert (one.figures.main.output, one.figures.subagents.output) == (10, 3)
    (alone,) = measured(tmp_path / "c.jsonl")
    assert alone.figures.tokens.output == 3


def test_what_is_no_transcript_has_a_reason(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "zero.jsonl").write_bytes(b"\0" * 300)
    (tmp_path / "picture.png").write_bytes(os.urandom(3000))
    (tmp_path / "notes.md").write_text("# Notes\n\nNothing.\n")
    (tmp_path / "data.json").write_text('{"a": 1}')
    (tmp_path / "data.db").write_bytes(b"SQLite format 3\0" + bytes(100))
    (tmp_path / "list.json").write_text("[1, 2, 3]")
    assert unread(tmp_path) == {
        "empty.jsonl": "empty",
        "zero.jsonl": "zero bytes",
        "picture.png": "no known format",
        "notes.md": "no known format",
        "data.json": "no known format",
        "data.db": "a database of no known format",
        "list.json": "no known format",
    }


def test_a_missing_file_and_a_circle_of_links_and_a_pipe(tmp_path: Path) -> None:
    assert unread(tmp_path / "gone.jsonl") == {"gone.jsonl": "No such file or directory"}
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "a" / "pipe.jsonl")
    (tmp_path / "a" / "s.jsonl").write_bytes(lines(assistant()))
    (one,) = measured(tmp_path)
    assert one.figures.turns == 1
    assert unread(tmp_path / "a" / "pipe.jsonl") == {"pipe.jsonl": "not a file"}


@pytest.mark.skipif(
    os.geteuid() == 0 and not os.path.exists("/usr/bin/setpriv"), reason="root reads everything"
)
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "good.jsonl").write_bytes(lines(assistant()))
    (tmp_path / "closed.jsonl").write_bytes(lines(assistant("m2")))
    (tmp_path / "closed.jsonl").chmod(0)
    code = (
        "import sys; from pathlib import Path; from adapters.transcripts import sessions\n"
        "for e in sessions.find([Path(sys.argv[1])]): print(type(e).__name__, e.path.name, getattr(e, 'why', ''))"
    )
    argv = [sys.executable, "-c", code, str(tmp_path)]
    if os.geteuid() == 0:
        argv = [
            "setpriv",
            "--bounding-set=-dac_override,-dac_read_search",
            "--inh-caps=-dac_override,-dac_read_search",
            *argv,
        ]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["Unread closed.jsonl Permission denied", "File good.jsonl "]


def test_a_path_that_is_given_twice_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(lines(assistant()))
    (tmp_path / "hard.jsonl").hardlink_to(path)
    assert len(list(sessions.find([path, tmp_path, path]))) == 1


def test_a_first_line_longer_than_the_head(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(lines(prompt("x" * 3_000_000), assistant()))
    (one,) = measured(path)
    assert (one.figures.turns, one.figures.prompts) == (1, 1)


def test_names_with_marks_of_globs_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    folder = tmp_path / "[a]*?"
    (folder / "s[1]" / "subagents").mkdir(parents=True)
    (folder / "s[1].jsonl").write_bytes(lines(assistant()))
    (folder / "s[1]" / "subagents" / "agent-1.jsonl").write_bytes(
        lines(assistant("a", "r9", side=True, agentId="1"))
    )
    (one,) = measured(folder / "s[1].jsonl")
    assert (one.figures.turns, one.figures.turns_subagents) == (2, 1)
    odd = Path(os.fsdecode(bytes(tmp_path) + b"/\xff\xfe.jsonl"))
    odd.write_bytes(lines(assistant()))
    done = subprocess.run(
        [sys.executable, "-m", "daemon", "measure", os.fsencode(odd)], capture_output=True, check=True
    )
    assert b"claude-opus-4-6" in done.stdout


def test_every_reader_is_found_by_its_entry_point() -> None:
    readers, stores = formats.known()
    names = [each.format for each in (*readers, *stores)]
    assert len(set(names)) == len(names)
    assert {"claude-code", "codex-rollout", "codex-exec"} <= set(names)


def test_each_file_of_the_corpus_is_claimed_by_its_own_folder(corpus: Path) -> None:
    """The folders are named after the harness; a few hold what another program made of a session."""
    wrong = []
    for each in sessions.find(
        [corpus / name for name in ("a_claude", "a_claude_records", "b_codex", "c_streamjson")]
    ):
        if isinstance(each, sessions.Source):
            right = "codex" if each.path.relative_to(corpus).parts[0] == "b_codex" else "claude"
            if each.harness != right:
                wrong.append((each.path.name, each.format))
    assert wrong == [
        (
            "Dicklesworthstone_coding_agent_session_search__tests__fixtures__html_export__real_sessions__codex_api_design.jsonl",
            "exported",
        )
    ]


def test_a_pipe_beside_a_session_or_in_a_stores_place_is_never_waited_for(tmp_path: Path) -> None:
    (tmp_path / "s1.jsonl").write_bytes(lines(assistant("m1")))
    for name in ("agent-x.jsonl", "state.db", "opencode.db"):
        os.mkfifo(tmp_path / name)
    assert unread(tmp_path / "agent-x.jsonl") == {"agent-x.jsonl": "not a file"}
    assert len(measured(tmp_path / "s1.jsonl")) == len(measured(tmp_path)) == 1


def test_folders_and_forks_may_be_deeper_than_calls(tmp_path: Path) -> None:
    deep, home = tmp_path, Path.cwd()
    try:
        os.chdir(deep)
        for _ in range(1100):
            os.mkdir("d")
            os.chdir("d")
        Path("a.jsonl").write_bytes(lines(assistant("m0", session="s0")))
    finally:
        os.chdir(home)
    for nth in range(1, 1100):
        row = assistant(f"m{nth}", f"r{nth}", session=f"s{nth}") | {
            "forkedFrom": {"sessionId": f"s{nth + 1}"}
        }
        (tmp_path / f"{nth:04}.jsonl").write_bytes(lines(row))
    found = measured(tmp_path)
    assert len(found) == 1100
    assert {each.session.family for each in found} == {"s0", "s1100"}
    subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)


def test_sub_agents_beside_many_sessions_are_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for nth in range(20):
        (tmp_path / f"s{nth}.jsonl").write_bytes(lines(assistant(f"m{nth}", session=f"s{nth}")))
        row = assistant(f"a{nth}", f"q{nth}", session=f"s{nth}") | {"isSidechain": True}
        (tmp_path / f"agent-{nth}.jsonl").write_bytes(lines(row))
    looked: list[Path] = []
    head = sessions._head
    monkeypatch.setattr(sessions, "_head", lambda path: (looked.append(path), head(path))[1])
    found = measured(*sorted(tmp_path.glob("s*.jsonl")))
    assert [each.figures.turns_subagents for each in found] == [1] * 20
    assert len(looked) < 100


def test_a_long_file_that_is_no_transcript_is_known_soon(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_bytes(
        b"2026-01-01 INFO a line of some log, as there are many of them\n" * 300_000
    )
    (tmp_path / "data.json").write_bytes(json.dumps([[nth] for nth in range(300_000)], indent=1).encode())
    begun = time.perf_counter()
    assert unread(tmp_path) == {"log.txt": "no known format", "data.json": "no known format"}
    assert time.perf_counter() - begun < 5
