"""Bug reports of other counters, each with its file and as its whole kind; inputs of ../shared/cases."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.transcripts import report, sessions
from adapters.transcripts.account import Usage
from adapters.transcripts.follow import Following
from adapters.transcripts.lines import Lines
from adapters.transcripts.readers.claude_code import ClaudeCode
from adapters.transcripts.readers.codex import Exec, Rollout
from adapters.transcripts.trajectory import Trajectory, whole
from tests.transcripts.claude import answered, assistant, prompt, result
from tests.transcripts.counting import figures, lines, measured, totals


def of(inputs: Path, name: str) -> bytes:
    (path,) = inputs.glob(f"{name}_*")
    return path.read_bytes()


# 1: several lines of one response, whose output counter grows


def test_case_1_the_largest_value_of_each_field_counts(inputs: Path) -> None:
    found = figures(of(inputs, "01"), ClaudeCode)
    assert (found.turns, found.tool_calls) == (1, 1)
    assert found.tokens == Usage(310, 200, 100, 159, None)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=8), st.randoms())
def test_case_1_in_whatever_order_the_snapshots_come(outputs: list[int], order: random.Random) -> None:
    snapshots = [assistant(output=each, created=100, cached=200, stop=None) for each in outputs]
    order.shuffle(snapshots)
    found = figures(lines(*snapshots), ClaudeCode)
    assert (found.turns, found.tokens) == (1, Usage(310, 200, 100, max(outputs), None))
    assert found.lower_bounds == ("output",), "without a stop reason the counter may go on"


# 2: a gateway without request ids


def test_case_2_the_message_id_alone_decides(inputs: Path) -> None:
    found = figures(of(inputs, "02"), ClaudeCode)
    assert (found.turns, found.tokens.output, found.tokens.uncached) == (2, 47, 20)


@given(st.lists(st.sampled_from(["r1", "r2", None]), min_size=1, max_size=6), st.randoms())
def test_case_2_a_sighting_without_a_request_id_belongs_to_those_that_have_one(
    requests: list[str | None], order: random.Random
) -> None:
    records = [assistant(request=each, output=7) for each in requests]
    order.shuffle(records)
    found = figures(lines(*records), ClaudeCode)
    named = len(set(requests) - {None})
    assert found.turns == max(1, named)
    assert found.tokens.output == 7 * max(1, named)


def test_case_2_what_it_has_beyond_the_others_is_not_lost() -> None:
    some = [
        assistant(request="r1", output=3),
        assistant(request="r2", output=4),
        assistant(request=None, output=20),
    ]
    for order in (some, some[::-1], [some[0], some[2], some[1]]):
        found = figures(lines(*order), ClaudeCode)
        assert (found.turns, found.tokens.output) == (2, 20)


def test_case_2_without_any_message_id_the_request_or_the_record_decides() -> None:
    by_request = assistant(None, "r1", output=4)
    assert figures(lines(by_request, by_request | {"uuid": "other"}), ClaudeCode).turns == 1
    by_record = [assistant(None, None, output=4), assistant(None, None, output=6)]
    found = figures(lines(*by_record, *by_record), ClaudeCode)
    assert (found.turns, found.tokens.output) == (2, 10)


# 4: usage that is not there


def test_case_4_a_response_without_usage_is_a_turn_and_makes_lower_bounds(inputs: Path) -> None:
    found = figures(of(inputs, "04"), ClaudeCode)
    assert (found.turns, found.tokens.output) == (3, 3)
    assert set(found.lower_bounds) == {"input", "output"}
    assert found.calls_without_usage == 2


@pytest.mark.parametrize("usage", [None, [], "many", 3, {}, {"output_tokens": "5"}, {"output_tokens": -1}])
def test_case_4_what_is_no_number_is_unknown_and_never_0(usage: Any) -> None:
    record = assistant()
    record["message"]["usage"] = usage
    found = figures(lines(record), ClaudeCode)
    assert (found.turns, found.tokens) == (1, Usage())
    assert found.skipped_lines == 0


# 5: lines that are valid JSON and no objects


def test_case_5_they_are_skipped_counted_and_named(inputs: Path) -> None:
    found = figures(of(inputs, "05"), ClaudeCode)
    assert (found.skipped_lines, found.turns) == (4, 1)
    assert all(each.line and "not an object" in each.why for each in found.skipped)


@given(
    st.lists(
        st.sampled_from([b'["x"]', b'"text"', b"42", b"null", b"true", b"noise", b"{", b"\x00\x00", b"\xff"])
    )
)
def test_case_5_whatever_stands_between_the_records(junk: list[bytes]) -> None:
    good = lines(assistant("m1", tool="t1"), assistant("m2", output=9))
    one, two = good.splitlines()
    found = figures(b"\n".join([*junk, one, *junk, two, *junk, b""]), ClaudeCode)
    assert (found.turns, found.tool_calls, found.tokens.output) == (2, 1, 14)
    assert found.skipped_lines == 3 * len(junk)
    assert [each.line for each in found.skipped[: len(junk)]] == list(range(1, len(junk) + 1))[:100]


# 7: half a surrogate pair


def test_case_7_nothing_crashes_and_what_is_written_is_utf_8(inputs: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(of(inputs, "07") + lines(assistant()))
    (one,) = measured(path)
    assert (one.figures.skipped_lines, one.figures.turns) == (0, 1)
    for arguments in (
        ["measure", "--json", str(path)],
        ["trajectory", str(path)],
        ["trajectory", "--md", str(path)],
    ):
        done = subprocess.run([sys.executable, "-m", "daemon", *arguments], capture_output=True, check=True)
        text = done.stdout.decode()
        assert "\\udcb2" not in text
        if arguments[0] == "trajectory":
            assert "latin1 byte \N{REPLACEMENT CHARACTER} and half emoji \N{REPLACEMENT CHARACTER}" in text


@given(st.text(st.characters(codec=None, categories=None), max_size=40))
def test_case_7_any_text_comes_out_as_it_went_in_but_for_lone_halves(text: str) -> None:
    built = Trajectory()
    reader = ClaudeCode()
    built.add(reader.feed(lines(prompt(text or "x"))))
    built.add(reader.close())
    (step,) = built.document("claude")["steps"]
    assert whole(step["message"]).encode()
    if not any(0xD800 <= ord(each) < 0xE000 for each in text):
        assert whole(step["message"]) == (text or "x")


# 9: sub-agents


def test_case_9_once_and_their_echoes_not_at_all(inputs: Path) -> None:
    for path in (inputs / "09_family" / "s1.jsonl", inputs / "09_family"):
        (one,) = measured(path)
        found = one.figures
        assert (found.turns, found.turns_subagents, found.tokens.output) == (3, 1, 60)
        assert (found.main.output, found.subagents.output) == (40, 20)
        assert found.counts["echoed responses"] == 1


def test_case_9_inline_and_in_a_file_and_given_twice(tmp_path: Path) -> None:
    own = [assistant("m1", tool="t1"), assistant("a1", "r2", output=20, side=True, agentId="x")]
    (tmp_path / "s1.jsonl").write_bytes(lines(*own))
    folder = tmp_path / "s1" / "subagents"
    folder.mkdir(parents=True)
    (folder / "agent-x.jsonl").write_bytes(
        lines(own[1], assistant("a2", "r3", output=30, side=True, agentId="x"))
    )
    (one,) = measured(tmp_path / "s1.jsonl", folder, tmp_path)
    assert (one.figures.turns, one.figures.turns_subagents) == (3, 2)
    assert (one.figures.main.output, one.figures.subagents.output) == (5, 50)


def test_case_9_agent_files_beside_the_session_of_older_versions(tmp_path: Path) -> None:
    (tmp_path / "s1.jsonl").write_bytes(lines(assistant("m1")))
    (tmp_path / "agent-1.jsonl").write_bytes(lines(assistant("a1", "r2", side=True, agentId="1")))
    (tmp_path / "agent-2.jsonl").write_bytes(
        lines(assistant("b1", "r3", side=True, agentId="2", session="s2"))
    )
    (one,) = measured(tmp_path / "s1.jsonl")
    assert (one.figures.turns, one.figures.turns_subagents) == (2, 1)
    assert len(measured(tmp_path)) == 2


# 11: history that is written again


def test_case_11_what_a_compaction_appends_again_is_counted_once(inputs: Path) -> None:
    found = figures(of(inputs, "11"), ClaudeCode)
    assert (found.turns, found.tokens.output, found.compactions) == (3, 35, 2)


def test_case_11_a_file_that_shrinks_takes_nothing_away(inputs: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(of(inputs, "11"))
    following = Following(path, ClaudeCode)
    following.look()
    before = totals(following.figures())
    for rest in (path.read_bytes().splitlines(keepends=True)[-2:], []):
        path.write_bytes(b"".join(rest))
        following.look()
        assert totals(following.figures()) == before
    path.write_bytes(of(inputs, "11") + lines(assistant("m9", output=100)))
    following.look()
    assert following.figures().tokens.output == 135


# 12: a counter that is written again


def test_case_12_the_same_total_is_no_new_call(inputs: Path) -> None:
    found = figures(of(inputs, "12"), Rollout)
    assert found.turns == 2
    assert (found.tokens.input or 0) + (found.tokens.output or 0) == 3300
    assert found.tokens.uncached == (found.tokens.input or 0) - (found.tokens.cached or 0)
    assert found.counts["token counts without numbers"] >= 1


@given(st.data())
def test_case_12_however_often_and_late_it_is_written_again(data: st.DataObject) -> None:
    used = data.draw(st.lists(st.tuples(*(st.integers(1, 50),) * 4), min_size=1, max_size=6))
    rows, total = [], [0, 0, 0, 0]
    for fresh, cached, output, reasoning in used:
        last = [fresh + cached, cached, output + reasoning, reasoning]
        total = [a + b for a, b in zip(total, last, strict=True)]
        rows.append(token_count(total, last))
    written = []
    for n, row in enumerate(rows):
        written.append(row)
        for back in data.draw(st.lists(st.integers(0, n), max_size=3)):
            written.append(rows[back] | {"timestamp": f"2026-03-01T11:00:{len(written) % 60:02}Z"})
        if data.draw(st.booleans()):
            written.append({"type": "event_msg", "payload": {"type": "token_count", "info": None}})
    found = figures(lines(META, *written), Rollout)
    assert found.turns == len(used)
    assert found.tokens == Usage(total[0], total[1], None, total[2], total[3])


META = {
    "type": "session_meta",
    "timestamp": "2026-03-01T10:00:00Z",
    "payload": {"id": "t1", "cli_version": "0.50.0"},
}


def token_count(total: list[int], last: list[int] | None) -> dict[str, Any]:
    names = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens")
    info: dict[str, Any] = {"total_token_usage": dict(zip(names, total, strict=True))}
    if last is not None:
        info["last_token_usage"] = dict(zip(names, last, strict=True))
    return {
        "type": "event_msg",
        "timestamp": "2026-03-01T10:00:01Z",
        "payload": {"type": "token_count", "info": info},
    }


def test_case_12_without_the_last_usage_the_difference_counts() -> None:
    rows = [token_count([10, 4, 5, 1], None), token_count([30, 14, 9, 2], None)]
    assert figures(lines(META, *rows, *rows), Rollout).tokens == Usage(30, 14, None, 9, 2)


# 14: success and is_error


def test_case_14_is_error_wins(inputs: Path) -> None:
    found = figures(of(inputs, "14"), ClaudeCode)
    assert found.ending is not None
    assert (found.ending.kind, found.ending.code) == ("auth", "403")
    assert found.counts["synthetic"] == 1
    assert found.turns == 0


@pytest.mark.parametrize(
    ("more", "right"),
    [
        ({"api_error_status": 401}, "auth/401"),
        ({"api_error_status": 403}, "auth/403"),
        ({"api_error_status": 404}, "provider/404"),
        ({"api_error_status": 429}, "limit/429"),
        ({"api_error_status": 500}, "provider/500"),
        ({"api_error_status": 529, "terminal_reason": "api_error"}, "provider/529"),
        ({"api_error_status": None, "terminal_reason": "api_error"}, "provider/api_error"),
        ({"api_error_status": 400, "terminal_reason": "prompt_too_long"}, "provider/context"),
        ({"terminal_reason": "api_error", "stop_reason": "refusal"}, "provider/refusal"),
        ({"result": 'API Error: 404 {"type":"error"}'}, "provider/404"),
        ({"result": "You've hit your limit · resets 4am"}, "limit/usage"),
        (
            {"subtype": "error_during_execution", "terminal_reason": "aborted_tools"},
            "interrupt/aborted_tools",
        ),
        ({"subtype": "error_max_budget_usd", "terminal_reason": "budget_exhausted"}, "budget/usd"),
    ],
)
def test_case_14_each_way_to_fail_has_its_word(more: dict[str, Any], right: str) -> None:
    found = figures(lines(result(is_error=True, **more)), ClaudeCode)
    assert found.ending is not None
    assert f"{found.ending.kind}/{found.ending.code}" == right


# 16: a result without a result


def test_case_16_the_words_are_those_of_its_errors(inputs: Path) -> None:
    found = figures(of(inputs, "16"), ClaudeCode)
    assert found.ending is not None
    assert (found.ending.kind, found.ending.code) == ("budget", "turns")
    assert found.ending.text == "Reached maximum number of turns (1)"


@pytest.mark.parametrize("errors", [[], None, "x", [None], {}])
def test_case_16_and_without_errors_the_subtype(errors: Any) -> None:
    record = result(subtype="error_max_turns", is_error=True, errors=errors)
    del record["result"]
    found = figures(lines(record), ClaudeCode)
    assert found.ending is not None
    assert found.ending.text == "error_max_turns"


# 17: two results


def test_case_17_the_result_of_real_work_decides_and_both_are_told(inputs: Path) -> None:
    found = figures(of(inputs, "17"), ClaudeCode)
    assert found.ending is not None
    assert found.ending.kind == "clean"
    assert [each.kind for each in found.endings] == ["clean", "provider"]
    assert found.tokens.output == 8
    assert (found.turns, found.tool_calls) == (None, None), "a result alone shows neither"


def test_case_17_of_two_that_did_work_the_last_decides() -> None:
    first = result(uuid="1", usage={"input_tokens": 3, "output_tokens": 4})
    second = result(
        uuid="2", is_error=True, subtype="error_max_turns", usage={"input_tokens": 5, "output_tokens": 6}
    )
    for order in ((first, second), (first, second, first, second)):
        found = figures(lines(*order), ClaudeCode)
        assert found.ending is not None
        assert str(found.ending.kind) == "budget"
        assert (found.tokens.input, found.tokens.output) == (8, 10), "each turn's usage is its own"


# 19: long lines


def test_case_19_a_line_of_3_mb_is_a_line(inputs: Path) -> None:
    made = subprocess.run(
        [sys.executable, inputs / "19_long_line.py"], capture_output=True, check=True
    ).stdout
    assert len(made) > 3_000_000
    for piece in (0, 65536, 1000):
        found = figures(made, ClaudeCode, piece)
        assert (found.records, found.skipped_lines) == (2, 0)
        assert found.ending is not None
        assert found.ending.text == "ok"


def test_case_19_an_absurd_line_is_dropped_and_said_and_the_rest_is_read() -> None:
    reading = Lines(longest=1000)
    got = []
    for piece in (b'{"a":"', *[b"x" * 400] * 5, b'"}\n{"b":1}\n', b'{"c":"' + b"y" * 900, b"y" * 900):
        got += reading.feed(piece)
        assert reading.held <= 1000
    got += reading.close()
    assert got == [(2, {"b": 1})]
    assert [(each.line, each.why.split(" ")[0]) for each in reading.skipped] == [(1, "2008"), (3, "1806")]


def test_all_cases_through_the_command(inputs: Path) -> None:
    names = ["01", "02", "04", "05", "07", "09", "11", "12", "14", "16", "17"]
    paths = [str(path) for name in names for path in inputs.glob(f"{name}_*")]
    done = subprocess.run(
        [sys.executable, "-m", "daemon", "measure", "--json", *paths],
        capture_output=True,
        check=True,
        env=os.environ,
    )
    told = json.loads(done.stdout)
    assert told["not_read"] == []
    assert told["schema_version"] == report.SCHEMA
    assert {each["harness"] for each in told["sessions"]} == {"claude-code", "codex"}


def test_the_stream_of_codex_is_cumulative_over_turns_and_resume() -> None:
    thread = {"type": "thread.started", "thread_id": "t"}

    def turn(n: int) -> dict[str, Any]:
        return {
            "type": "turn.completed",
            "usage": {"input_tokens": 100 * n, "cached_input_tokens": 40 * n, "output_tokens": n},
        }

    found = figures(
        lines(thread, {"type": "turn.started"}, turn(1), thread, {"type": "turn.started"}, turn(2)), Exec
    )
    assert found.tokens == Usage(200, 80, None, 2, None)
    assert found.turns is None
    assert "tool calls" not in found.counts


def test_sessions_are_told_from_ids_and_not_from_names(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines(prompt(), assistant("m1", tool="t1"), answered("t1", True)))
    (tmp_path / "copy of a.jsonl").write_bytes(
        lines(prompt(), assistant("m1", tool="t1"), assistant("m2", "r2"))
    )
    (one,) = measured(tmp_path)
    assert (one.figures.turns, one.figures.tool_calls, one.figures.tool_errors, one.figures.prompts) == (
        2,
        1,
        1,
        1,
    )
    assert isinstance(one.session, sessions.Session)
