"""The benchmark can be run, and what it says of a killed daemon holds."""

from __future__ import annotations

import pytest

from benchmarks import survival

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
