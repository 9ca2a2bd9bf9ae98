"""A path means exactly the file that lies there, whatever else has its name."""

from __future__ import annotations

import os
import time

import pytest

from adapters.testing import wait_for

pytestmark = pytest.mark.slow

SHELL = "---\nharness_id: shell\n{}---\n```sh\n{}\n```\n"
REFUSED = "It was not run.\n\nline 2, priorty: there is no such key\n\nCorrect it.\n"


def put(place, state: str, name: str, text: str = "x\n", why: str = "") -> None:
    (place.root / "tracks" / state / name).write_text(text)
    if why:
        (place.root / "tracks" / state / f"{name}.why.txt").write_text(why)


def lies(place, name: str) -> set[str]:
    return {path.parent.name for path in place.root.glob(f"tracks/*/{name}")}


def test_a_path_is_that_file_for_every_verb_that_takes_an_id(place):
    put(place, "failed", "rr.md", "---\npriorty: 1\n---\nx\n", REFUSED)
    put(place, "done", "rr.md")
    for word in ("tracks/failed/rr.md", f"{place.root}/tracks/failed/rr.md", "ws/tracks/failed/rr.md"):
        said = place.mh("why", word)
        assert said.startswith("rr (failed): was not run")
        assert "then mh requeue tracks/failed/rr.md" in said
        assert place.json("show", word)["state"] == "failed"
    assert place.mh("why", "tracks/done/rr.md").startswith("rr (done): ")
    assert "it lies in tracks/failed/" in place.mh("interrupt", "tracks/failed/rr.md", code=2)
    for verb in ("log", "attach"):
        said = place.mh(verb, "tracks/failed/rr.md", code=2)
        assert "rr was refused, it has not run" in said
        assert "mh why tracks/failed/rr.md" in said
    place.mh("requeue", "--fresh", "tracks/failed/rr.md")
    assert lies(place, "rr.md") == {"done", "queued"}
    assert os.listdir(place.root / "tracks/requests") == [], "the id may be another track's"


def test_a_path_that_is_not_there_or_no_track_is_an_error_that_says_so(place):
    put(place, "done", "rr.md")
    (place.home / "other.md").write_text("x\n")
    for verb in ("why", "show", "requeue", "log", "interrupt", "attach"):
        assert "there is no file tracks/failed/rr.md" in place.mh(verb, "tracks/failed/rr.md", code=4)
        said = place.mh(verb, str(place.home / "other.md"), code=4)
        assert f"{place.home}/other.md is no track of {place.root}" in said
    assert lies(place, "rr.md") == {"done"}


def test_a_name_alone_is_the_file_of_the_working_directory(place):
    put(place, "failed", "rr.md", "x\n", REFUSED)
    put(place, "done", "rr.md")
    place.home, home = place.root / "tracks/failed", place.home
    assert place.mh("why", "rr.md").startswith("rr (failed)")
    assert place.mh("why", "../done/rr.md").startswith("rr (done)")
    place.home = home
    assert "rr" in place.mh("why", "rr.md")


def test_the_view_prints_what_can_be_copied(place):
    long = "a-name-that-is-longer-than-thirty-columns"
    put(place, "failed", f"{long}.md", "x\n", REFUSED)
    put(place, "done", f"{long}.md")
    put(place, "failed", "alone.md", "x\n", REFUSED)
    put(place, "queued", "waits.md", SHELL.format("after: 2099-01-01\n", "echo x"))
    put(place, "done", "waits.md")
    words = {line.split()[0] for line in place.mh().splitlines() if line.startswith("  ") and line.split()}
    assert {
        f"tracks/failed/{long}.md",
        f"tracks/done/{long}.md",
        "tracks/queued/waits.md",
        "tracks/done/waits.md",
        "alone",
    } <= words
    for word in words - {"and"}:
        if word.startswith("tracks/") and word.endswith(".md"):
            assert f"({word.split('/')[1]})" in place.mh("why", word)


def test_a_path_knows_its_track_by_its_own_block(place):
    place.mh("up", "-d")
    place.queue("rr.md", SHELL.format("", "exit 7"))
    assert place.settled("rr.md") == "failed"
    os.rename(place.root / "tracks/failed/rr.md", place.root / "tracks/failed/other.md")
    said = place.mh("why", "tracks/failed/other.md")
    assert said.startswith("rr (failed): crash/exit_7")
    # The very finding: a refused one, and a corrected one of its name.
    (place.queued / "ss.md").write_text("---\npriorty: 1\n---\nx\n")
    os.utime(place.queued / "ss.md", (time.time() - 60, time.time() - 60))
    wait_for((place.root / "tracks/failed/ss.md.why.txt").exists, "the refusal")
    wait_for((place.root / "tracks/failed/ss.md").exists, "the refusal")
    place.queue("ss.md", SHELL.format("", "echo x"))
    wait_for((place.root / "tracks/done/ss.md").exists, "the corrected one")
    assert "ss (failed): was not run" in place.mh("why", "tracks/failed/ss.md")
    assert "tracks/failed/ss.md" in place.mh()
    place.mh("down")
    said = place.mh("requeue", "tracks/failed/ss.md")
    assert "it will be refused as it is" in said
    assert lies(place, "ss.md") == {"done", "queued"}
