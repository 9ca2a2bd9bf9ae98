"""What `mh drop` tells before, and what the settings have to do with it."""

from __future__ import annotations

import os
import time

import pytest

pytestmark = pytest.mark.slow

SHELL = "---\nharness_id: shell\n---\n```sh\necho x\n```\n"


def test_what_the_daemon_would_refuse_is_refused_here(place):
    said = place.mh("drop", "-", code=2, text="---\nproject_id: shop\n---\nDo it\n")
    assert "nothing was queued" in said
    assert "line 2, project_id: there is no such project" in said
    said = place.mh("drop", "-", code=2, text="---\npriority: 1\nproject: shop\n---\nDo it\n")
    assert "line 3, project: there is no such project" in said
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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--chekc", "pytest"), "there is no option --chekc\n    did you mean --check?"),
        (("--naem", "foo", "do it"), "there is no option --naem\n    did you mean --name?"),
        (("do it", "--chekc=pytest -q"), "did you mean --check?"),
        (("do it", "-x"), "there is no option -x\n    there are -H, --harness, "),
        (("--weird", "--", "text"), "there is no option --weird"),
        (("a.md", "b.md"), 'for file in a.md b.md; do mh drop "$file"; done'),
        (("a.md", "gone.md"), "one file at a time"),
        (("look", "at", "notes"), "notes is a file"),
        (("/etc",), "/etc is a directory"),
        (("sub",), "sub is a directory"),
    ],
)
def test_words_that_were_hardly_meant_as_a_text_are_told(place, words, says):
    (place.home / "sub").mkdir()
    for name in ("a.md", "b.md", "notes"):
        (place.home / name).write_text("x\n")
    said = place.mh("drop", *words, code=2)
    assert "nothing was queued" in said
    assert says in said
    assert os.listdir(place.queued) == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--", "--weird", "text"), "--weird text\n"),
        (("--", "--weird text"), "--weird text\n"),
        (("- one\n- two",), "- one\n- two\n"),
        (("-",), "from the input"),
        (("do", "it", "-", "now"), "do it - now\n"),
        (("look at a.md",), "look at a.md\n"),
    ],
)
def test_every_other_text_is_one(place, words, text):
    (place.home / "a.md").write_text("x\n")
    place.mh("drop", *words, text="from the input")
    (name,) = os.listdir(place.queued)
    assert (place.queued / name).read_text() == text


def test_what_it_waits_for_in_vain_is_told(place):
    (place.root / "tracks/failed/bad.md").write_text("x\n")
    (place.root / "tracks/done/good.md").write_text("x\n")
    said = place.mh("drop", "x", "-H", "shell", "--name", "me", "--after", "me")
    assert "it waits for itself" in said
    said = place.mh("drop", "x", "-H", "shell", "--after", "bad", "--after", "good", "--after", "nobody")
    assert "it waits for bad, which has failed\n    `mh why bad`" in said
    assert "it waits for nobody, and there is no track with this id yet" in said
    assert "good" not in said
    assert len(os.listdir(place.queued)) == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("---\npriorty: 1\n---\nx\n", "line 2, priorty"),
        ("---\nproject_id: shop\n---\nx\n", "there is no such project"),
        ("---\npriority: 1\n---\n", "there is no text"),
        ("---\nafter: 25:99\n---\nx\n", "line 2, after"),
    ],
)
def test_requeue_tells_what_is_still_wrong_as_drop_does(place, text, says):
    path = place.root / "tracks/failed/bad.md"
    path.write_text(text)
    assert says in place.mh("drop", str(path), code=2)
    said = place.mh("requeue", "bad")
    assert "it will be refused as it is" in said
    assert says in said
    assert os.listdir(place.queued) == ["bad.md"]


def test_requeue_doubts_as_drop_does(place):
    (place.root / "tracks/failed/x.md").write_text("---\nharness_id: shel\nafter: [x, nobody]\n---\nx\n")
    said = place.mh("requeue", "x")
    assert "it will wait: no harness 'shel'" in said
    assert "it waits for itself" in said
    assert "it waits for nobody" in said
    (place.root / "tracks/done/fine.md").write_text(SHELL)
    assert place.mh("requeue", "fine").splitlines()[0].startswith("fine  queued: ")


@pytest.mark.parametrize("gone", ["queued", ".tmp"])
def test_a_missing_folder_of_the_queue_is_made(place, gone):
    os.rmdir(place.root / "tracks" / gone)
    place.mh("drop", "x", "-H", "shell")
    assert os.listdir(place.queued) == ["x.md"]
    (place.root / "tracks/done/old.md").write_text(SHELL)
    place.mh("requeue", "old")
    assert sorted(os.listdir(place.queued)) == ["old.md", "x.md"]


def test_a_bare_budget_is_answered_with_what_is_enforced(place):
    assert "write budget: {minutes: 90}" in place.mh("drop", "-", code=2, text="---\nbudget: 90\n---\nx\n")
