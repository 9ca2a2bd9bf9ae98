"""The benchmark can be run, and what it says of a killed daemon holds."""

from __future__ import annotations

import pytest

from benchmarks import mddb, survival

pytestmark = pytest.mark.slow


def test_after_a_kill_9_of_the_daemon_every_job_has_ended_once():
    outcome = survival._ours(everything=False)
    assert (outcome.jobs, outcome.done, outcome.twice, outcome.cut, outcome.never, outcome.told) == (
        survival.JOBS,
        survival.JOBS,
        0,
        0,
        0,
        0,
    )


def test_the_database_is_measured_beside_its_floor_and_its_peer():
    figures = mddb.measure(40, 1)
    assert {figure.name for figure in figures if "python-frontmatter" in figure.note or figure.ratio == 1.0} == {
        "plain reading", "os.stat of all files", "the first resolve, beside python-frontmatter",
    }  # fmt: skip
    assert all(figure.p50 > 0 and figure.ratio and figure.ratio > 0 for figure in figures)
