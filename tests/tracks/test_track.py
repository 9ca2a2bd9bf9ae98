from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.errors import DocumentError, Problem
from daemon.spool import frontmatter
from daemon.tracks import track as t

SHARED = Path(__file__).parents[2].parent / "shared"
BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")

FULL = b"""---
project_id: checkout-service
kind: fix
harness_id: claude-code/opus
after: [add-tax-table, 22:30]
priority: 5
scope: src/tax/**
budget: {usd: 5, turns: 80, minutes: 90}
done_when:
  - run: pytest -q tests/tax
  - the rounding rule is documented in docs/tax.md
tags: [a, b]
megaharness:
  id: round-tax
  status: active
  flags: [x]
---
# Round tax per line item

Body.
"""


def track(front: str) -> t.Track:
    return t.load(f"---\n{front}\n---\nDo it.\n".encode(), "x.md").track


def problems(front: str) -> tuple[Problem, ...]:
    with pytest.raises(DocumentError) as caught:
        track(front)
    return caught.value.problems


def problem(front: str) -> Problem:
    found = problems(front)
    assert len(found) == 1, found
    assert found[0].hint
    return found[0]


def test_the_example_of_the_documentation() -> None:
    loaded = t.load(FULL, "round-tax.md")
    assert loaded.title == "Round tax per line item"
    assert not loaded.is_empty
    assert loaded.track == t.Track(
        project_id="checkout-service",
        kind="fix",
        harness_id="claude-code",
        model_id="opus",
        after=("add-tax-table", "22:30"),
        priority=5,
        scope=("src/tax/**",),
        budget=t.Budget(usd=5.0, turns=80, minutes=90.0),
        done_when=(t.Run("pytest -q tests/tax"), t.Prose("the rounding rule is documented in docs/tax.md")),
        ignored=("tags",),
        block={"id": "round-tax", "status": "active"},
    )


@pytest.mark.parametrize(
    "data", [b"Fix the tests", b"", b"- [ ] do\n", b"---\n---\nFix\n", b"---\npriority:\nafter:\n---\n"]
)
def test_everything_is_optional(data: bytes) -> None:
    assert t.load(data, "x.md").track == t.Track()


@pytest.mark.parametrize("data", [b"", b"\n \t\n", b"\xef\xbb\xbf\r\n", b"---\nkind: fix\n---\n\n"])
def test_empty_is_said_and_no_error(data: bytes) -> None:
    assert t.load(data, "x.md").is_empty


def test_bare_scalars_where_a_list_is_meant() -> None:
    got = track("after: a\nscope: src/**\ndone_when: PDF under 2 s")
    assert (got.after, got.scope, got.done_when) == (("a",), ("src/**",), (t.Prose("PDF under 2 s"),))
    assert track("done_when: {run: make}").done_when == (t.Run("make"),)


def test_spellings() -> None:
    got = track("harness: codex\nmodel: gpt-5.4\nproject: p")
    assert (got.harness_id, got.model_id, got.project_id) == ("codex", "gpt-5.4", "p")
    found = problem("harness: a\nkind: x\nharness_id: b")
    assert (found.line, found.field, found.value) == (4, "harness_id", "b")
    assert "line 2" in found.message
    document = frontmatter.read(b"---\nharness: a\n---\n")
    assert t.spelling(document, "harness_id") == "harness"
    assert t.spelling(document, "model_id") == "model_id"


def test_a_harness_may_carry_the_model() -> None:
    assert track("harness_id: a/b").model_id == "b"
    assert track("harness_id: a/b/c:d").model_id == "b/c:d"
    assert track("harness: a/b\nmodel: b").model_id == "b"
    found = problem("harness: a/b\nmodel: c")
    assert (found.line, found.field, found.value) == (3, "model", "c")
    assert problem("harness_id: a/").line == 2
    assert problem("harness_id: /b").line == 2


def test_priority_high_is_explained() -> None:
    found = problem("kind: x\npriority: high")
    assert (found.line, found.field, found.value) == (3, "priority", "high")
    assert "whole number" in found.message
    assert "priority: 5" in found.hint


@pytest.mark.parametrize(
    ("amount", "says"),
    [("usd: -1", "above 0"), ("usd: 5$", "above 0"), ("usd: nan", "above 0"), ("usd: inf", "above 0"),
     ("tokens: 2M", "whole number"), ("tokens: 0", "whole number"), ("turns: 1.5", "whole number"),
     ("minutes: 1h", "minutes"), ("turn: 3", "no budget of `turn`"), ("eur: 3", "no budget of `eur`"),
     ("usd: [1]", "a list where one value is meant")],
)  # fmt: skip
def test_budgets_are_positive_numbers(amount: str, says: str) -> None:
    found = problem(f"budget:\n  {amount}")
    assert found.line == 3
    assert (found.field or "").startswith("budget.")
    assert says in found.message


def test_a_bare_budget_is_asked_of_what() -> None:
    assert "budget: {minutes: 5}" in problem("budget: 5").hint
    assert "budget: {minutes: 90}" in problem("budget: [usd, 5]").hint
    assert problem("budget_usd: 5").hint == "write `budget: {usd: 5}`"


@pytest.mark.parametrize(
    ("key", "meant"),
    [("harnes_id", "harness_id"), ("prioritiy", "priority"), ("donewhen", "done_when"), ("done-when", "done_when"),
     ("doneWhen", "done_when"), ("budgets", "budget"), ("Priority", "priority"), ("Project ID", "project_id"),
     ("kinds", "kind"), ("kidn", "kind"), ("scoep", "scope"), ("aftre", "after"), ("modell", "model"),
     ("prio", "priority"), ("projekt", "project"), ("model_name", "model_id"), ("project_ids", "project_id")],
)  # fmt: skip
def test_near_keys_are_refused_with_the_right_one(key: str, meant: str) -> None:
    found = problem(f"{key}: x")
    assert (found.line, found.field) == (2, key)
    assert found.hint.startswith("write `")
    assert t._CANONICAL[found.hint.split("`")[1]] == t._CANONICAL[meant]


FOREIGN = [
    "tags",
    "created",
    "updated",
    "aliases",
    "title",
    "date",
    "type",
    "name",
    "author",
    "status",
    "id",
    "description",
    "labels",
    "assignee",
    "due",
    "when",
    "done",
    "find",
    "mind",
    "mode",
    "product",
    "score",
    "depends_on",
    "dependencies",
    "parent",
    "parent_id",
    "globs",
    "alwaysApply",
    "tools",
    "cssclasses",
    "url",
    "source",
    "version",
    "owner",
    "start",
    "end",
    "weight",
    "order",
    "draft",
    "slug",
    "layout",
    "permalink",
    "category",
    "summary",
    "model_version",
]


def test_foreign_keys_are_kept_and_ignored() -> None:
    assert track("\n".join(f"{key}: x" for key in FOREIGN)).ignored == tuple(FOREIGN)


def test_every_check() -> None:
    got = track(
        "done_when:\n"
        "  - run: |\n      make\n      make test\n"
        "  - exists: dist/*.whl\n"
        '  - changed: "**/*.md"\n'
        "  - clean: true\n"
        "  - contains: {file: docs/a.md, pattern: 'v\\d+'}\n"
        "  - it is fast\n"
    )
    assert got.done_when == (
        t.Run("make\nmake test"),
        t.Exists("dist/*.whl"),
        t.Changed("**/*.md"),
        t.Clean(),
        t.Contains("docs/a.md", r"v\d+"),
        t.Prose("it is fast"),
    )
    assert all(check.text for check in got.done_when)


@pytest.mark.parametrize(
    ("item", "field", "says"),
    [
        ("runs: x", "done_when[1].runs", "write `run`"),
        ("exist: x", "done_when[1].exist", "write `exists`"),
        ("contain: x", "done_when[1].contain", "write `contains`"),
        ("the rule: is good", "done_when[1].the rule", 'must be in quotes: "the rule: is good"'),
        ("run: [a]", "done_when[1].run", "one text"),
        ("run:", "done_when[1].run", "one text"),
        ("clean: false", "done_when[1].clean", "only be true"),
        ("{run: a, clean: true}", "done_when[1]", "several checks"),
        ("[a]", "done_when[1]", "neither"),
        ("''", "done_when[1]", "neither"),
        ("exists: ../x", "done_when[1].exists", "out of the work directory"),
        ("changed: /x", "done_when[1].changed", "out of the work directory"),
        ("contains: x", "done_when[1].contains", "exactly a file and a pattern"),
        ("contains: {file: a}", "done_when[1].contains", "exactly a file and a pattern"),
        ("contains: {file: a, pattern: ''}", "done_when[1].contains", "one text each"),
        ("contains: {file: a, pattern: '('}", "done_when[1].contains.pattern", "not a regular expression"),
        ("contains: {file: ../a, pattern: b}", "done_when[1].contains.file", "out of the work directory"),
    ],
)
def test_bad_checks_are_named(item: str, field: str, says: str) -> None:
    found = problem(f"done_when:\n  - fine\n  - {item}")
    assert (found.line, found.field) == (4, field)
    assert says in str(found)


def test_lists_in_one_text_are_not_read_as_one_entry() -> None:
    assert problem("scope: src/**, tests/**").hint == 'write ["src/**", "tests/**"]'
    assert problem("after: a, 22:30").hint == 'write ["a", "22:30"]'
    assert problem("project: [[checkout]]").line == 2
    assert problem("scope: {a: b}").line == 2
    assert problem("after:\n  - a\n  -").line == 4


def test_all_problems_come_at_once_in_the_order_of_lines() -> None:
    found = problems(
        "priority: high\nharnes_id: x\nafter: [25:99, ok]\nbudget: {usd: no}\ndone_when: [{runs: x}]\ndate: x"
    )
    assert [p.line for p in found] == [2, 3, 4, 5, 6]
    assert all(p.field and p.hint and p.value for p in found)


@pytest.mark.parametrize(
    "block", ["megaharness: 5", "megaharness: [a]", "megaharness:", "megaharness: {id: [x], a: {b: c}}"]
)
def test_a_broken_block_is_nobodys_fault(block: str) -> None:
    assert track(block).block == {}


# --- after


def at(text: str, saved: datetime, zone: ZoneInfo) -> datetime:
    found = t.parse_after(text, saved.timestamp(), zone)
    assert isinstance(found, t.Time)
    assert found.text == text.strip()
    return datetime.fromtimestamp(found.at, UTC)


@pytest.mark.parametrize(
    ("text", "saved", "zone", "expected"),
    [
        ("22:30", datetime(2026, 12, 1, 14), BERLIN, "2026-12-01T21:30:00"),
        ("22:30:15", datetime(2026, 12, 1, 14), BERLIN, "2026-12-01T21:30:15"),
        ("22:30", datetime(2026, 12, 1, 22, 30), BERLIN, "2026-12-02T21:30:00"),
        ("22:30", datetime(2026, 12, 1, 23), BERLIN, "2026-12-02T21:30:00"),
        ("00:00", datetime(2026, 12, 31, 23), BERLIN, "2026-12-31T23:00:00"),
        ("6:05", datetime(2026, 7, 1, 7), NEW_YORK, "2026-07-02T10:05:00"),
        # the clock is put forward at 02:00, and back at 03:00
        ("02:30", datetime(2026, 3, 28, 14), BERLIN, "2026-03-29T01:30:00"),
        ("02:30", datetime(2026, 10, 24, 14), BERLIN, "2026-10-25T00:30:00"),
        ("02:30", datetime(2026, 10, 25, 2, 40), BERLIN, "2026-10-25T01:30:00"),
        ("02:30", datetime(2026, 10, 25, 2, 40, fold=1), BERLIN, "2026-10-26T01:30:00"),
        ("2026-12-02T06:00", datetime(2026, 1, 1), BERLIN, "2026-12-02T05:00:00"),
        ("2026-07-02 6:00", datetime(2026, 1, 1), BERLIN, "2026-07-02T04:00:00"),
        ("2026-12-02", datetime(2026, 1, 1), BERLIN, "2026-12-01T23:00:00"),
        ("2026-12-02T06:00Z", datetime(2026, 1, 1), BERLIN, "2026-12-02T06:00:00"),
        ("2026-12-02T06:00:01.5-05:00", datetime(2026, 1, 1), BERLIN, "2026-12-02T11:00:01.500"),
        ("2026-12-02 06:00 +0530", datetime(2026, 1, 1), BERLIN, "2026-12-02T00:30:00"),
        ("2026-03-29T02:30", datetime(2026, 1, 1), BERLIN, "2026-03-29T01:30:00"),
        ("2020-01-01", datetime(2026, 1, 1), BERLIN, "2019-12-31T23:00:00"),
    ],
)
def test_times(text: str, saved: datetime, zone: ZoneInfo, expected: str) -> None:
    assert at(text, saved.replace(tzinfo=zone), zone) == datetime.fromisoformat(expected).replace(tzinfo=UTC)


@settings(deadline=None)
@given(
    st.datetimes(datetime(1980, 1, 1), datetime(2090, 1, 1)), st.times(), st.sampled_from([BERLIN, NEW_YORK])
)
def test_a_time_of_day_is_within_the_day_after_the_save(
    saved: datetime, clock: object, zone: ZoneInfo
) -> None:
    epoch = saved.replace(tzinfo=zone).timestamp()
    found = t.parse_after(f"{clock:%H:%M:%S}", epoch, zone)
    assert isinstance(found, t.Time)
    assert 0 < found.at - epoch <= 25 * 3600


def test_the_zone_of_the_system_is_used_when_none_is_given() -> None:
    code = "from daemon.tracks.track import parse_after; print(parse_after('22:30', 1764594000.0).at)"
    for zone, expected in (("UTC", "1764628200.0"), ("America/New_York", "1764646200.0")):
        env = {**os.environ, "TZ": zone, "PYTHONPATH": str(Path(__file__).parents[2])}
        assert subprocess.check_output([sys.executable, "-c", code], env=env, text=True).strip() == expected


@pytest.mark.parametrize(
    ("text", "id_"),
    [("add-tax-table", "add-tax-table"), ("Add tax table.md", "add-tax-table"), ("2026-12-02-notes", "2026-12-02-notes"),
     ("1234", "t-1234"), ("Re: x", "re-x"), ("Überall", "ueberall")],
)  # fmt: skip
def test_everything_else_is_a_track(text: str, id_: str) -> None:
    assert t.parse_after(text, 0.0, BERLIN) == t.TrackId(id_)


@pytest.mark.parametrize(
    "text",
    ["25:99", "24:00", "22:3", "22:300", "22.30", "10pm", "10 pm", "22 Uhr", "22:30 Uhr", "2026-13-01", "2026-2-30",
     "2026-12-02T25:00", "2026-12-02 22", "9999-12-31", "12:30:99", "2026-12-02T06:00+99:00", "1:2:3:4"],
)  # fmt: skip
def test_what_looks_like_a_time_must_be_one(text: str) -> None:
    with pytest.raises(DocumentError):
        t.parse_after(text, 1764594000.0, BERLIN)
    found = problem(f'after:\n  - a\n  - "{text}"')
    assert (found.line, found.field, found.value) == (4, "after[1]", text)


@given(st.text(max_size=30) | st.from_regex(r"\A[0-9T:.+Zz \-]{1,25}\Z"), st.floats(0, 4e9))
def test_any_entry_is_a_time_a_track_or_a_refusal(text: str, saved: float) -> None:
    try:
        assert isinstance(t.parse_after(text, saved, BERLIN), t.Time | t.TrackId)
    except DocumentError as exc:
        assert exc.problems[0].value == text


# --- title


@pytest.mark.parametrize(
    ("body", "title"),
    [
        ("# A\n", "A"),
        ("text\n\n## B ##\n", "B"),
        ("first line\nsecond", "first line"),
        ("```sh\n# no\nmake\n```\n# C", "C"),
        ("~~~~\n# no\n~~~\n# no\n~~~~\nD", "D"),
        ("```sh\nmake\n```\n", "my-file"),
        ("```sh\nmake", "my-file"),
        ("<!-- # no\n# no -->\nE", "E"),
        ("- [ ] do the thing\n", "do the thing"),
        ("> 1. quoted", "quoted"),
        ("***\nF", "F"),
        ("#hashtag", "#hashtag"),
        ("    # code\n", "# code"),
        ("#\n# G", "G"),
        ("\r\n# H\r\n", "H"),
        ("# a\x1b[31m\tb\u202ec", "a [31m b c"),
        ("`inline` text", "`inline` text"),
        ("```inline``` text", "```inline``` text"),
        ("# " + "x" * 300, "x" * 199 + "…"),
        ("", "my-file"),
        ("🚀", "🚀"),
        ("# #(touch x) $(y)", "#(touch x) $(y)"),
    ],
)
def test_title(body: str, title: str) -> None:
    assert t.title(body, "my-file.md") == title


def test_a_title_of_a_megabyte_takes_no_time() -> None:
    start = time.perf_counter()
    for body in (
        "# a" + " " * 1_000_000 + "b",
        "a " * 500_000,
        "- " * 500_000,
        "#" * 1_000_000,
        "`" * 1_000_000,
    ):
        assert len(t.title(body, "x")) <= t.MAX_TITLE
    assert time.perf_counter() - start < 60  # it hangs, or it does not: no measure of speed


# --- all the rest


def test_reference_names_every_key_and_its_examples_are_right() -> None:
    rows = t.reference()
    assert [row["name"] for row in rows] == [
        "project_id", "kind", "harness_id", "model_id", "priority", "after", "scope", "budget", "done_when",
    ]  # fmt: skip
    assert {str(row["name"]) for row in rows} | {"ignored", "block"} == set(t.Track.model_fields)
    for row in rows:
        assert row["what"]
        assert row["examples"]
        for example in row["examples"]:
            assert track(example) != t.Track()


def test_case_32_and_33() -> None:
    folder = SHARED / "cases" / "inputs"
    if not folder.exists():
        assert not os.environ.get("CI"), f"{folder} is missing"
        pytest.skip(f"{folder} is not here")
    with pytest.raises(DocumentError, match="lines 4 and 5"):
        t.load((folder / "32_duplicate_keys.md").read_bytes(), "x")
    loaded = t.load((folder / "33_dates_times.md").read_bytes(), "x")
    assert loaded.track.ignored == ("id", "created", "updated", "not_before")


keys = st.sampled_from(
    [*t._CANONICAL, "megaharness", "tags", "harnes_id", "usd", "run", "contains", "file", "pattern"]
)
scalars = (
    st.text(max_size=12)
    | st.sampled_from(["5", "22:30", "a/b", "true", "(", "1e999", "9" * 5000])
    | st.none()
)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(keys, trees, max_size=5))
def test_any_values_make_a_track_or_a_refusal(meta: dict[str, frontmatter.Value]) -> None:
    document = frontmatter.Document(meta, {(): 1}, "", 0, True, "\n", False)
    try:
        assert t._Reading(document).track()
    except DocumentError as exc:
        assert all(p.line == 1 and p.message for p in exc.problems)


def test_ids_and_reader_do_not_import_pydantic() -> None:
    code = "import sys, daemon.tracks.ids, daemon.spool.frontmatter; print('pydantic' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    assert subprocess.check_output([sys.executable, "-c", code], env=env, text=True).strip() == "False"
