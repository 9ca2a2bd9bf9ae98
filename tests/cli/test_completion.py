"""What TAB offers."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

pytestmark = pytest.mark.slow

SHELL = "---\nharness_id: shell\n---\n```sh\necho x\n```\n"


def claimed(place, track: str) -> None:
    """A track as the claim leaves it."""
    session = place.root / "sessions" / f"{track}-1-0123456789ab"
    session.mkdir()
    claim = {"v": 1, "session": session.name, "item": track, "name": f"{track}.md", "attempt": 1, "round": 1}
    (session / "claim.json").write_text(json.dumps({**claim, "claimed_at": "2026-12-01T00:00:00.000Z"}))
    (place.root / "tracks/active" / f"{track}.md").write_text(SHELL)


@pytest.mark.parametrize("typed", ["h", "./h", "~/s", ""])
def test_drop_offers_files(place, typed):
    assert [kind for kind, _ in place.complete("drop", typed)] == ["file"]


def test_root_offers_directories(place):
    assert [kind for kind, _ in place.complete("--root", "")] == ["dir"]


def test_after_an_unknown_command_the_commands_are_offered_and_nothing_is_said(place):
    assert "drop" in place.values("nonsense", "")
    assert "there is no command" in place.mh("nonsense", code=2)


def test_harness_offers_the_names_that_a_track_can_give(place):
    place.settings.write_text('[harness.mine]\nargv = ["true"]\n')
    assert {"shell", "mine"} <= set(place.values("drop", "-H", ""))
    assert place.values("drop", "-H", "mi") == ["mine"]
    place.settings.write_text("slots = ")
    assert "shell" in place.values("drop", "-H", "")


def test_ids_are_those_for_which_the_command_makes_sense(place):
    place.queue("waits.md", SHELL)
    claimed(place, "works")
    for state, name in (("done", "good.md"), ("failed", "bad.md")):
        (place.root / "tracks" / state / name).write_text(SHELL)
    assert place.values("interrupt", "") == ["works"]
    assert place.values("attach", "") == ["works"]
    assert place.values("requeue", "") == ["bad", "good"]
    assert set(place.values("drop", "--after", "")) == {"waits", "works", "good", "bad"}
    assert place.values("why", "w") == ["waits", "works"]


def test_a_real_bash_takes_it(place):
    place.queue("waits.md", SHELL)
    (place.home / "here.md").write_text(SHELL)
    bash = shutil.which("bash")
    assert bash is not None
    script = (
        'eval "$(mh completion bash)"\n'
        "COMP_WORDS=(mh why w); COMP_CWORD=2; _mh_completion mh w why\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    ran = subprocess.run(
        [bash, "--norc", "-c", script],
        env=place.env,
        cwd=place.home,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.stdout.split() == ["waits"], ran.stderr
