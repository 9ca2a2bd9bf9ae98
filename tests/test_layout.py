"""Which workspace is meant, and where its state lies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from daemon.layout import Workspace, find_root, state_problem


def test_the_named_root_wins_over_everything(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "megaharness.toml").touch()
    environ = {"MEGAHARNESS_ROOT": str(tmp_path / "other"), "HOME": str(tmp_path)}
    assert find_root("named", environ, tmp_path / "here") == tmp_path / "here" / "named"
    assert find_root("~/ws", environ, tmp_path) == tmp_path / "ws"
    assert find_root(None, environ, tmp_path / "here") == tmp_path / "other"


def test_the_nearest_ancestor_with_settings_is_meant(tmp_path: Path) -> None:
    inner = tmp_path / "ws" / "inner"
    deep = inner / "a" / "b"
    deep.mkdir(parents=True)
    environ = {"HOME": str(tmp_path / "home")}
    assert find_root(None, environ, deep) == tmp_path / "home" / "megaharness"
    (tmp_path / "ws" / "megaharness.toml").touch()
    assert find_root(None, environ, deep) == tmp_path / "ws"
    (inner / "megaharness.toml").touch()
    assert find_root(None, environ, deep) == inner
    assert find_root(None, environ, inner) == inner


def test_a_parent_that_may_not_be_searched_is_passed_over(tmp_path: Path) -> None:
    inner = tmp_path / "closed" / "inner"
    inner.mkdir(parents=True)
    code = """
import os, sys
from pathlib import Path
from daemon.layout import find_root
if os.geteuid() == 0:
    os.setuid(65534)  # root may search everything
print(find_root(None, {"HOME": "/h"}, Path(sys.argv[1])))
"""
    inner.parent.chmod(0)
    try:
        ran = subprocess.run([sys.executable, "-c", code, inner], capture_output=True, text=True, check=True)
    finally:
        inner.parent.chmod(0o700)
    assert ran.stdout == "/h/megaharness\n"


def test_an_empty_variable_names_nothing(tmp_path: Path) -> None:
    environ = {"MEGAHARNESS_ROOT": "", "HOME": str(tmp_path)}
    assert find_root(None, environ, tmp_path) == tmp_path / "megaharness"


def test_a_linked_workspace_is_the_same_workspace(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    roots = [find_root(str(tmp_path / name), {}, tmp_path) for name in ("real", "link")]
    assert roots == [tmp_path / "real"] * 2
    assert Workspace(tmp_path / "link").key == Workspace(tmp_path / "real").key


def test_two_workspaces_of_one_name_share_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    one, two = Workspace(tmp_path / "a" / "ws"), Workspace(tmp_path / "b" / "ws")
    assert one.state_home != two.state_home
    assert one.state_home.parent == tmp_path / "state" / "megaharness"
    assert one.scratch("fix-it") == one.state_home / "scratch" / "fix-it"
    assert one.worktrees("fix-it") == one.state_home / "worktrees" / "fix-it"


@pytest.mark.parametrize("name", ["#(touch x)", "a b", "..", "$(touch x)", "ü", "x" * 200, "-rf"])
def test_the_state_path_holds_no_character_that_tmux_or_a_shell_reads(name: str) -> None:
    part = Workspace(Path("/home/me") / name).state_in({"XDG_STATE_HOME": "/s"}).name
    stem, key = part[:-9], part[-9:]
    assert key[0] == "-"
    assert len(key) == 9
    assert stem
    assert len(stem) <= 40
    assert stem[0] not in ".-"
    assert all(c.isascii() and (c.isalnum() or c in "-_.") for c in stem)


@pytest.mark.parametrize("given", ["", "relative/path"])
def test_a_state_variable_that_is_no_absolute_path_is_ignored(given: str) -> None:
    state = Workspace(Path("/w")).state_in({"XDG_STATE_HOME": given, "HOME": "/home/me"})
    assert state.parent == Path("/home/me/.local/state/megaharness")


@pytest.mark.parametrize("bad", ["", "../x", "a/b", "A", "a b", "ä", "x\n", "."])
def test_what_is_no_id_is_never_joined_to_a_path(bad: str) -> None:
    workspace = Workspace(Path("/w"))
    for place in (workspace.scratch, workspace.worktrees, workspace.session, workspace.wake_file):
        with pytest.raises(ValueError, match="is not an id"):
            place(bad)


@pytest.mark.parametrize("place", ["/tmp/x", "/var/tmp", "/dev/shm/a", "/run/user/7", "/elsewhere/run"])
def test_work_does_not_lie_where_the_system_empties(place: str) -> None:
    environ = {"XDG_STATE_HOME": place, "XDG_RUNTIME_DIR": "/elsewhere"}
    problem = state_problem(Workspace(Path("/home/me/megaharness")), environ)
    assert "empties" in problem
    assert place in problem


def test_work_does_not_lie_inside_the_workspace() -> None:
    workspace = Workspace(Path("/home/me"))
    assert "inside the workspace" in state_problem(workspace, {"HOME": "/home/me"})
    assert state_problem(Workspace(Path("/home/me/megaharness")), {"HOME": "/home/me"}) == ""


def test_importing_it_loads_nothing_heavy() -> None:
    code = "import sys, daemon.layout; print(sorted({'pydantic', 'structlog', 'yaml', 'subprocess'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
