"""Every group of EXPECTED.json, exactly, and every file of the corpus: a number or a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from adapters.transcripts import sessions
from adapters.transcripts.readers.claude_code import ClaudeCode
from adapters.transcripts.readers.codex import Rollout
from tests.transcripts.counting import figures, measured, whole

CLAUDE = (
    *("cc01_main_2.1.38_opus46", "cc03_subagent_file_haiku_2.1.38", "cc05_inline_sidechains_1.0.98"),
    *("cc07_2.0.27_tools", "cc15_edge_cases_1.0"),
)
CODEX = ("cx01_0.47_pomodoro", "cx03_2025-09_tools", "cx11_all_record_types_0.146")


@pytest.fixture(scope="session")
def expected(corpus: Path) -> dict[str, Any]:
    return json.loads((corpus / "EXPECTED.json").read_bytes())


def test_no_group_of_the_corpus_is_forgotten(expected: dict[str, Any]) -> None:
    assert set(expected["claude"]) == {*CLAUDE, "cc13_family_with_subagents_2.1.220"}
    assert set(expected["codex"]) == {*CODEX, "cx09_fork_child"}
    assert set(expected) == {"claude", "codex", "stream_json"}


@pytest.mark.parametrize("name", CLAUDE)
def test_sessions_of_claude_code(name: str, corpus: Path, expected: dict[str, Any]) -> None:
    group = expected["claude"][name]
    (path,) = group["files"]
    _is(figures((corpus / path).read_bytes(), ClaudeCode), group["expected"])


def _is(found: Any, right: dict[str, Any]) -> None:
    assert whole([found.tokens]) == right["tokens"]
    assert whole([found.main]) == right["tokens_main"]
    assert whole([found.subagents]) == right["tokens_sidechain"]
    assert found.turns == right["assistant_turns"]
    assert found.turns_subagents == right["assistant_turns_sidechain"]
    assert found.tool_calls == right["tool_calls"]
    assert found.tool_calls_subagents == right["tool_calls_sidechain"]
    assert found.tool_errors == right["tool_errors"]
    assert found.counts.get("server tool calls", 0) == right["server_tool_uses"]
    assert found.counts.get("synthetic", 0) == right["synthetic_lines"]
    assert found.counts.get("echoed responses", 0) == right["subagent_responses_echoed_in_progress_records"]
    assert found.counts.get("summaries", 0) == right["summaries"]
    assert found.compactions == right["compact_boundaries"]
    assert found.prompts == right["user_prompts_main"]
    assert {share.name: share.calls for share in found.models} == right["models"]
    assert (found.first, found.last) == (right["start"], right["end"])
    assert found.records == right["records"]
    assert found.skipped_lines == right["unparseable_or_nonobject_lines"]
    assert ("output" in found.lower_bounds) == right["output_is_lower_bound"]


def test_a_family_of_claude_code_with_sub_agents(corpus: Path, expected: dict[str, Any]) -> None:
    group = expected["claude"]["cc13_family_with_subagents_2.1.220"]
    right = group["expected"]
    files = [corpus / name for name in group["files"]]
    parts = [right["main_file"], *right["subagent_files"]]
    for path, part in zip(files, parts, strict=True):
        _is(figures(path.read_bytes(), ClaudeCode), part)
    (one,) = measured(*files)
    found = one.figures
    assert whole([found.tokens]) == right["tokens"]
    assert whole([found.main]) == right["main_file"]["tokens"]
    assert (found.turns, found.tool_calls) == (right["assistant_turns"], right["tool_calls"])
    assert (found.first, found.last) == (right["start"], right["end"])
    assert found.ending is not None
    assert f"api_error_or_synthetic: {found.ending.text}".startswith(right["main_file"]["terminal_reason"])


@pytest.mark.parametrize("name", CODEX)
def test_rollouts_of_codex(name: str, corpus: Path, expected: dict[str, Any]) -> None:
    group = expected["codex"][name]
    (path,) = group["files"]
    found, right = figures((corpus / path).read_bytes(), Rollout), group["expected"]
    _counts(found, right)
    assert found.turns == right["model_responses"]
    assert found.prompts == right["user_turns"]
    assert found.tool_calls == right["tool_calls"]
    assert found.opened.version == right["cli_version"]
    assert found.counts.get("user messages", 0) == right["user_messages_response_items"]
    assert found.counts.get("assistant messages", 0) == right["assistant_messages"]
    assert found.counts.get("reasoning items", 0) == right["reasoning_items"]


def _counts(found: Any, right: dict[str, Any]) -> None:
    tokens = right["tokens"]
    assert found.tokens.input == tokens["input_including_cached"]
    assert found.tokens.uncached == tokens["input_uncached"]
    assert found.tokens.cached == tokens["cache_read"]
    assert found.tokens.output == tokens["output_including_reasoning"]
    assert found.tokens.reasoning == tokens["reasoning"]
    assert found.tokens.input + found.tokens.output == tokens["total"]
    # The totals were made before cache_write_input_tokens: newer rollouts write it, and then it is known to be 0.
    assert not found.tokens.created
    without = found.counts.get("token counts without numbers", 0)
    assert without == right["token_count_null_info"]
    assert found.counts.get("token counts", 0) + without == right["token_count_events"]
    assert found.counts.get("token counts written again", 0) == right["token_count_reemitted"]
    assert found.counts.get("counter resets", 0) == right["counter_resets"]
    named = {what[17:]: n for what, n in found.counts.items() if what.startswith("turn contexts of ")}
    assert named == right["models"]
    assert (found.first, found.last) == (right["start"], right["end"])
    assert found.records == right["records"]
    assert found.skipped_lines == right["unparseable_or_nonobject_lines"]


def test_a_fork_of_codex_and_its_parent(corpus: Path, expected: dict[str, Any]) -> None:
    group = expected["codex"]["cx09_fork_child"]
    right = group["expected"]
    parent, child = (corpus / name for name in group["files"])
    alone = figures(child.read_bytes(), Rollout)
    _counts(alone, right)
    assert alone.opened.forked == right["forked_from"]
    first, second = measured(child, parent)
    assert (first.session.id, second.session.id) == ("parent-session", "child-session")
    assert first.figures.tokens.input == right["parent_expected"]["input_including_cached"]
    assert first.figures.tokens.cached == right["parent_expected"]["cache_read"]
    assert first.figures.tokens.output == right["parent_expected"]["output_including_reasoning"]
    own, found = right["tokens_own_after_fork"], second.figures
    assert found.tokens.input == own["input_tokens"]
    assert found.tokens.cached == own["cached_input_tokens"]
    assert found.tokens.output == own["output_tokens"]
    assert found.tokens.reasoning == own["reasoning_output_tokens"]
    assert found.turns == right["model_responses"]
    family = right["family_deduplicated"]
    assert first.figures.tokens.input + found.tokens.input == family["input_including_cached"]
    assert first.figures.tokens.output + found.tokens.output == family["output_including_reasoning"]
    assert first.figures.tokens.input == found.inherited.input


@pytest.mark.parametrize(
    ("name", "total"),
    [("archived-fork-33ce-3869", "childLastTokens"), ("missing-parent-siblings", "dedupedLastTokens")],
)
def test_forks_whose_oracle_was_made_by_hand(name: str, total: str, corpus: Path) -> None:
    """The unit of the oracles is last_token_usage.total_tokens of every row, rows that were written again included.

    Of the archived family the corpus has the child alone; the other has no parent left, and two children.
    """
    folder = corpus / "b_codex" / "fork_fixtures_codexbar" / name
    oracle = json.loads((folder / "manifest.json").read_bytes())["oracle"]
    found = measured(folder)
    again = sum(_written_again(path) for path in folder.rglob("*.jsonl"))
    if len(found) > 1:
        again -= _written_again(folder / "codex-home/archived_sessions/sibling-b.jsonl")
    assert again > 0
    assert _units(found) == oracle[total] - again
    # The first in time owns what both have copied; its units are the last total that its file has.
    rows = [json.loads(line) for line in found[0].session.paths[0].read_bytes().splitlines()]
    last = [row for row in rows if row["payload"].get("type") == "token_count"][-1]
    assert _units(found[:1]) == last["payload"]["info"]["total_token_usage"]["total_tokens"]


def _written_again(path: Path) -> int:
    """Units of the rows whose total is that of the row before."""
    units, before = 0, None
    for line in path.read_bytes().splitlines():
        payload = json.loads(line)["payload"]
        if payload.get("type") == "token_count":
            info = payload["info"]
            units += info["last_token_usage"]["total_tokens"] if info["total_token_usage"] == before else 0
            before = info["total_token_usage"]
    return units


def _units(found: list[sessions.Measured]) -> int:
    return sum((each.figures.tokens.input or 0) + (each.figures.tokens.output or 0) for each in found)


def test_streams_of_claude_code(corpus: Path, expected: dict[str, Any]) -> None:
    groups = {name: right for name, right in expected["stream_json"].items() if name != "_note"}
    assert len(groups) == 9
    for name, right in groups.items():
        found = figures((corpus / name).read_bytes(), ClaudeCode)
        # A synthetic message is in its count of responses; no call was made for it.
        assert found.turns == right["responses"] - found.counts.get("synthetic", 0), name
        assert found.turns_subagents == right["responses_of_subagents"], name
        assert found.tool_calls == right["tool_calls"], name
        assert found.counts.get("results", 0) == right["results"], name
        seen, result = right["sum_dedup"], right["result"]
        used = whole([found.main])
        if result is None or result["usage"]["output"] is None:
            assert used == seen, name
            assert found.tokens.output is None, "no usage is told at all"
            continue
        for part in ("input", "cache_creation", "cache_read"):
            assert used[part] == seen[part], name
        # The last result is that of the last turn; several turns are added.
        assert used["output"] == (seen["output"] if right["results"] > 1 else result["usage"]["output"]), name
        assert found.cost_reported == result["cost"], name
        assert "output" not in found.lower_bounds, name
        models = {
            model: each for model, each in (result["modelUsage"] or {}).items() if "inputTokens" in each
        }
        if models:
            assert whole(share.usage for share in found.models) == {
                "input": sum(each["inputTokens"] for each in models.values()),
                "output": sum(each["outputTokens"] for each in models.values()),
                "cache_creation": sum(each["cacheCreationInputTokens"] for each in models.values()),
                "cache_read": sum(each["cacheReadInputTokens"] for each in models.values()),
            }, name
            assert whole([found.tokens]) == whole(share.usage for share in found.models), name
            assert {share.name: share.cost for share in found.models} == {
                model: each["costUSD"] for model, each in models.items()
            }, name


def test_every_file_of_the_corpus_ends_with_a_number_or_a_reason(corpus: Path) -> None:
    found, unread = [], []
    for each in sessions.find([corpus]):
        (found if isinstance(each, sessions.Source) else unread).append(each)
    every = [path for path in corpus.rglob("*") if path.is_file()]
    named = {source.path for source in found} | {each.path for each in unread}
    stores = [path for path in named if path.is_dir()]
    missing = [
        path
        for path in every
        if path not in named and not any(path.is_relative_to(store) for store in stores)
    ]
    assert missing == []
    assert all(each.why for each in unread)
    results = list(sessions.measure(sessions.gather(found)))
    assert {path for each in results for path in each.session.paths} == {source.path for source in found}
    for each in results:
        told = each.figures
        assert (
            told.records
            or told.skipped
            or told.first
            or told.tokens.input is not None
            or told.turns is not None
        )
        assert each.error == ""
