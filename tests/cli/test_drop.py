"""What `mh drop` tells before, and what the settings have to do with it."""

from __future__ import annotations

import os
import time

import pytest

SHELL = "---\nharness_id: shell\n---\n```sh\necho x\n```\n"


def test_what_the_daemon_would_refuse_is_refused_here(place):
    said = place.mh("drop", "-", code=2, text="---\nproject_id: shop\n---\nDo it\n")
    assert "nothing was queued" in said
    assert "line 2, project_id: projects cannot be worked in yet" in said
    assert os.listdir(place.queued) == []


def test_a_harness_that_cannot_run_it_is_a_warning(place):
    said = place.mh("drop", "Do it", "-H", "shel")
    assert "it will wait: no harness 'shel'; did you mean 'shell'?" in said
    place.settings.write_text('[harness.mine]\nargv = ["no-such-program-here"]\n')
    said = place.mh("drop", "Do that", "-H", "mine")
    assert "it will wait: mine: the program 'no-such-program-here' is not on the PATH" in said
    assert "install it" in said
    assert "it will wait" in place.mh("drop", "Do more")
    assert sorted(os.listdir(place.queued)) == ["do-it.md", "do-more.md", "do-that.md"]
    assert "it will wait" not in place.mh("drop", "-", "--name", "fine", text=SHELL)


def test_broken_settings_are_told_as_such_and_the_file_is_queued(place):
    place.settings.write_text("[limits]\nslots = true\nminuts = 3\n")
    said = place.mh("drop", "Do it", "-H", "shell")
    assert "until the settings can be used" in said
    assert "megaharness.toml:2" in said
    assert "do-it  queued: " in said
    assert os.listdir(place.queued) == ["do-it.md"]


def test_a_wrong_time_is_told_here(place):
    said = place.mh("drop", "Do it", "-H", "shell", "--after", "25:99", code=2)
    assert "nothing was queued" in said
    assert os.listdir(place.queued) == []


def test_the_next_commands_can_be_copied_line_by_line(place):
    place.mh("up", "-d")
    lines = place.mh("drop", "-", "--name", "x", "--after", "23:59", text="x\n").splitlines()
    assert lines[-2:] == ["  mh why x", "  mh attach x"]


@pytest.mark.slow
def test_settings_that_changed_after_the_start_are_mentioned(place):
    said = "megaharness.toml has changed since the daemon started"
    place.mh("up", "-d")
    place.queue("later.md", "---\nharness_id: shell\nafter: 2099-01-01T00:00\n---\nx\n")
    assert said not in place.mh()
    assert place.json()["daemon"]["settings_changed"] is False
    place.settings.write_text("[limits]\nslots = 7\n")
    os.utime(place.settings, (time.time() + 5, time.time() + 5))
    assert f"{said}: mh down && mh up -d" in place.mh().splitlines()[1]
    assert said in place.mh("why", "later")
    assert said in place.mh("doctor")
    place.mh("down")
    place.mh("up", "-d")
    assert said not in place.mh()
