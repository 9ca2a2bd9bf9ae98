"""Trajectories: valid by the models of the format, true to the transcript, and readable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import atif
import pytest

from adapters.transcripts import page, sessions
from adapters.transcripts.reader import Reader
from adapters.transcripts.readers.atif import Atif
from adapters.transcripts.readers.claude_code import ClaudeCode
from adapters.transcripts.readers.codex import Rollout
from adapters.transcripts.redact import Redactor
from adapters.transcripts.trajectory import VERSION, Trajectory, text_of, whole
from tests.transcripts.claude import answered, assistant, prompt
from tests.transcripts.counting import lines


def build(data: bytes, reader: type[Reader] = ClaudeCode) -> dict[str, Any]:
    built, one = Trajectory(), reader(True)
    built.add(one.feed(data))
    built.add(one.close())
    document: dict[str, Any] = json.loads(whole(json.dumps(built.document("test"), ensure_ascii=False)))
    return document


def test_every_session_of_the_corpus_is_valid_and_its_steps_add_up(corpus: Path) -> None:
    found = [each for each in sessions.find([corpus]) if isinstance(each, sessions.Source)]
    count = 0
    for session in sessions.gather(found):
        built = Trajectory()
        for events in session.events(content=True):
            built.add(events)
        document = json.loads(whole(json.dumps(built.document(session.harness), ensure_ascii=False)))
        atif.Trajectory.model_validate(document)
        assert document["schema_version"] == VERSION == "ATIF-v1.7"
        assert page.page(document)
        figures = built.figures()
        threads = [document, *document.get("subagent_trajectories", [])]
        steps = [step for thread in threads for step in thread["steps"]]
        if not session.harness.startswith("atif"):
            tools = {tool["tool_call_id"] for step in steps for tool in step.get("tool_calls", [])}
            server = figures.counts.get("server tool calls", 0)
            assert len(tools) == (figures.tool_calls or 0) + server, session.paths
        count += 1
    assert count > 100


def test_the_metrics_of_the_steps_are_the_figures(corpus: Path) -> None:
    path = corpus / "b_codex" / "yoavf_ai-sessions__examples__codex-pomodor-timer.jsonl"
    document = build(path.read_bytes(), Rollout)
    steps = [step for step in document["steps"] if "metrics" in step]
    assert len(steps) == 21
    final = document["final_metrics"]
    assert sum(step["metrics"]["prompt_tokens"] for step in steps) == final["total_prompt_tokens"] == 215755
    assert (
        sum(step["metrics"]["completion_tokens"] for step in steps)
        == final["total_completion_tokens"]
        == 14976
    )
    assert [step["source"] for step in document["steps"]].count("user") == 3
    # Each step has what one call said and asked for, in rollouts that write the tokens first and last alike.
    assert sum(len(step.get("tool_calls", [])) for step in steps) == 18
    assert all(step.get("tool_calls") or step["message"] for step in steps)


def test_what_is_repeated_stands_once() -> None:
    session = [
        prompt(),
        assistant("m1", tool="t1", output=1),
        assistant("m1", output=9),
        answered("t1", True),
        assistant("m2", "r2"),
    ]
    once, twice = build(lines(*session)), build(lines(*session, *session))
    assert once == twice
    user, first, second = once["steps"]
    assert (user["source"], user["message"]) == ("user", "go")
    assert first["message"] == "hello"
    assert first["tool_calls"] == [
        {"tool_call_id": "t1", "function_name": "Bash", "arguments": {"command": "ls"}}
    ]
    assert first["observation"]["results"] == [
        {"source_call_id": "t1", "content": "done", "extra": {"is_error": True}}
    ]
    assert first["metrics"]["completion_tokens"] == 9
    assert second["step_id"] == 3


def test_a_sub_agent_is_embedded_and_the_tool_that_ran_it_refers_to_it() -> None:
    agent = {"toolUseResult": {"agentId": "x", "content": []}}
    document = build(
        lines(
            assistant("m1", tool="t1"),
            assistant("a1", "r2", side=True, agentId="x"),
            answered("t1", **agent),
        )
    )
    atif.Trajectory.model_validate(document)
    (child,) = document["subagent_trajectories"]
    assert (child["trajectory_id"], len(child["steps"])) == ("x", 1)
    (row,) = document["steps"][0]["observation"]["results"]
    assert row["subagent_trajectory_ref"] == [{"trajectory_id": "x"}]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("a", "a"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        ([{"type": "image", "source": {"media_type": "image/png", "data": "x" * 100}}], "[image image/png]"),
        ({"type": "input_image", "image_url": "data:..."}, "[image]"),
        ({"stdout": "x", "code": 0}, '{"stdout": "x", "code": 0}'),
        ([{"type": "tool_result", "content": [{"type": "text", "text": "c"}]}], "c"),
        (5, "5"),
    ],
)
def test_content_of_any_shape_becomes_text(content: object, text: str) -> None:
    assert text_of(content) == text


def test_a_page_cannot_be_broken_out_of() -> None:
    evil = "# no heading\n```\n````text\n<script>x</script>\x1b[31m"
    document = build(
        lines(
            prompt(evil),
            assistant("m1", tool="t1"),
            answered("t1")
            | {
                "message": {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "t1", "content": evil * 30}],
                }
            },
        )
    )
    text = page.page(document)
    assert "\x1b" not in text
    fence = None
    for line in text.splitlines():
        if fence is None and line.startswith("```"):
            fence = line[: len(line) - len(line.lstrip("`"))]
        elif fence is not None and line == fence:
            fence = None
        elif fence is None:
            assert not line.startswith("# no heading")
            assert "<script>" not in line
    assert fence is None
    assert "more lines)" in text


@pytest.mark.parametrize("version", ["ATIF-v1.0", "ATIF-v1.4", "ATIF-v1.6", "ATIF-v1.7", "ATIF-v1.8"])
def test_an_older_trajectory_becomes_one_of_today(version: str) -> None:
    steps = [
        {"step_id": 1, "source": "system", "message": "be brief"},
        {
            "step_id": 2,
            "source": "user",
            "message": [{"type": "text", "text": "go"}],
            "timestamp": "2026-03-01T10:00:00Z",
        },
        {
            "step_id": 3,
            "source": "agent",
            "message": "so",
            "reasoning_content": "hm",
            "model_name": "m",
            "tool_calls": [{"tool_call_id": "t1", "function_name": "bash", "arguments": {"command": "ls"}}],
            "observation": {"results": [{"source_call_id": "t1", "content": "x"}]},
            "metrics": {"prompt_tokens": 10, "completion_tokens": 2, "cached_tokens": 4, "cost_usd": 0.5},
        },
    ]
    agent = {"name": "x", "version": "1", "model_name": "m"}
    old = {"schema_version": version, "session_id": "a1", "agent": agent, "steps": steps}
    document = build(json.dumps(old).encode(), Atif)
    atif.Trajectory.model_validate(document)
    assert document["schema_version"] == VERSION
    assert (document["session_id"], document["agent"]) == ("a1", agent)
    system, user, call = document["steps"]
    assert (system["source"], system["message"], user["message"]) == ("system", "be brief", "go")
    for name in ("message", "reasoning_content", "tool_calls", "observation", "metrics", "model_name"):
        assert call[name] == steps[2][name], name
    assert document["final_metrics"]["total_prompt_tokens"] == 10
    # What came out goes in again and says the same.
    again = build(json.dumps(document).encode(), Atif)
    assert again["steps"] == document["steps"]


def test_lower_bounds_and_lines_that_were_not_read_are_noted() -> None:
    document = build(lines(assistant(stop=None)) + b"noise\n")
    assert "Lower bounds: output." in document["notes"]
    assert "Lines that were not read: 1 (2)." in document["notes"]


def test_nothing_that_was_written_breaks_out_of_its_place_on_the_page() -> None:
    hostile = ["a\u2028```\n# OUT", "a\x0b\n```\n# OUT", "ok\n\x00```\n# OUT"]
    said = assistant(at="2026-03-01\n\n# OUT <b>Z")
    said["message"]["content"] = [{"type": "text", "text": "see\n```python\nnever closed"}]
    hidden = assistant("m2", "r2")
    hidden["message"]["content"] = [{"type": "text", "text": "<!-- and the rest"}]
    rows = [prompt(text) | {"uuid": f"p{n}"} for n, text in enumerate(hostile)]
    text = page.page(build(lines(*rows, said, hidden, prompt("last") | {"uuid": "z"})))
    fence, outside = "", []
    for line in text.split("\n"):
        mark = line[: len(line) - len(line.lstrip("`"))]
        if fence:
            fence = "" if mark >= fence and line == mark else fence
        elif len(mark) >= 3:
            fence = mark
        else:
            outside.append(line)
    assert not fence
    assert not [line for line in outside if line.startswith("# OUT")]
    assert "<!--" not in "\n".join(outside)
    assert "<b>" not in "\n".join(outside)


@pytest.mark.parametrize("shape", [lambda inner: {"a": inner}, lambda inner: [inner]])
def test_what_is_nested_deeply_is_written_without_it(shape: Any) -> None:
    deep: Any = "x"
    for _ in range(600):
        deep = shape(deep)
    said = assistant(tool="t1")
    said["message"]["content"][0]["input"] = deep
    answer = answered("t1")
    answer["message"]["content"][0]["content"] = deep
    built = build(lines(said, answer))
    assert "too deeply" in page.page(Redactor().value(built))
