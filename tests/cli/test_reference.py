"""The documentation cannot drift: what exists is documented, and what is linked exists."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
import typing
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click
import pytest

import adapters.errors
from adapters.ports import KINDS, Kind
from adapters.testing import wait_for
from daemon import config, errors
from daemon.cli import files, reference
from daemon.cli.group import VERBS, cli
from daemon.layout import Workspace
from daemon.spool.sessions import parse
from daemon.supervisor import EXIT_FAULTS
from daemon.tracks import requests, thread, track

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = reference.pages()


def test_the_pages_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    code = reference.main(["--check"])
    assert code == 0, capsys.readouterr().out


def test_a_page_that_is_out_of_date_is_shown_as_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reference, "PAGES", tmp_path / "reference")
    assert reference.main([]) == 0
    page = tmp_path / "reference" / "cli.md"
    page.write_text(page.read_text().replace("## mh drop", "## mh throw"))
    capsys.readouterr()
    assert reference.main(["--check"]) == 1
    out = capsys.readouterr().out
    assert "-## mh throw" in out
    assert "+## mh drop" in out
    assert "## mh throw" in page.read_text()


# -- command line --------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_and_every_option_is_documented(verb: str) -> None:
    page = PAGES["cli.md"]
    assert f"\n## mh {verb}\n" in page
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    documented(f"mh {verb}", command, page)
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            assert f"\n### mh {verb} {name}\n" in page
            inner = command.get_command(click.Context(command), name)
            assert inner is not None
            documented(f"mh {verb} {name}", inner, page)


def documented(name: str, command: click.Command, page: str) -> None:
    for param in command.params:
        if isinstance(param, click.Option):
            assert param.help, f"{name} {param.opts[-1]} has no help"
            assert param.opts[-1] in page


def _tree(root: type[Exception]) -> Iterator[type[Exception]]:
    yield root
    for child in root.__subclasses__():
        yield from _tree(child)


def test_every_exit_code_is_documented() -> None:
    codes = {error.exit_code for error in _tree(errors.MegaharnessError)}  # type: ignore[attr-defined]
    assert codes | {0, 1, 2, EXIT_FAULTS} == set(reference.EXITS)
    for code in reference.EXITS:
        assert f"\n| {code} | " in PAGES["cli.md"]


# -- settings, frontmatter -----------------------------------------------------------------------


def test_every_setting_is_documented() -> None:
    keys = [key for key, *_ in config.fields()]
    assert "limits.slots" in keys
    for key in keys:
        assert f"| `{key}` |" in PAGES["settings.md"]


def test_every_key_and_every_check_of_a_track_is_documented() -> None:
    page = PAGES["frontmatter.md"]
    for name in track.Track.model_fields.keys() - {"ignored", "block"}:
        assert f"\n## {name}\n" in page
    for check in ("run:", "exists:", "changed:", "clean:", "contains:", "any sentence"):
        assert f"\n| `{check}" in page
    assert set(reference.IDLE) <= set(track.Track.model_fields)


def test_every_key_of_the_daemons_block_is_documented() -> None:
    assert set(reference.BLOCK) == {field.name for field in fields(thread.Facts)}


# -- errors --------------------------------------------------------------------------------------


def test_every_error_is_documented() -> None:
    modules = {"daemon.errors", "adapters.errors"}
    known = [
        error
        for root in (errors.MegaharnessError, adapters.errors.AdapterError)
        for error in _tree(root)
        if error.__module__ in modules
    ]
    assert len(known) > 15
    for error in known:
        assert f"`{error.__name__}` |" in PAGES["errors.md"]


def test_every_kind_of_termination_has_a_meaning() -> None:
    assert set(KINDS) == set(typing.get_args(Kind))


def test_every_code_that_we_give_is_documented() -> None:
    given = set()
    for path in [*REPOSITORY.glob("daemon/**/*.py"), REPOSITORY / "adapters/command.py"]:
        text = path.read_text()
        given |= set(re.findall(r'Termination\("(\w+)", f?"(\w+)"\)', text))
        given |= {("setup", code) for code in re.findall(r'f?"setup/(\w+)', text)}
    assert ("budget", "minutes") in given
    assert ("setup", "brief") in given
    for kind, code in given:
        assert code in reference.CODES[kind], f"{kind}/{code}"


# -- files ---------------------------------------------------------------------------------------


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"(<[^>]+>)", path.rstrip("/"))
    return re.compile("".join("[^/]+" if part.startswith("<") else re.escape(part) for part in parts))


def _known(path: str, entries: tuple[files.Entry, ...]) -> bool:
    return any(_pattern(entry.path).fullmatch(path) for entry in entries)


def test_every_path_of_a_workspace_is_documented() -> None:
    place = Workspace(Path("/w"))
    paths = [place.session("a-1-0123456789ab"), place.wake_file("a-1-0123456789ab")]
    for name, member in vars(Workspace).items():
        value = getattr(place, name) if isinstance(member, property) else None
        if isinstance(value, Path) and value.is_relative_to(place.root):
            paths.append(value)
    assert len(paths) > 20
    for path in paths:
        assert _known(str(path.relative_to(place.root)), files.WORKSPACE), path
    for path in (place.scratch("a"), place.worktrees("a")):
        assert _known(str(path.relative_to(place.state_home)), files.STATE), path


def test_every_request_is_named() -> None:
    (entry,) = (entry for entry in files.WORKSPACE if entry.path == "tracks/requests/")
    for verb in requests.VERBS:
        assert f"`{verb}`" in entry.content


TRACK = """\
---
harness_id: shell
done_when:
  - run: grep -q hello hello.txt
---
# Hello

```sh
echo hello >hello.txt
echo said
```
"""


@pytest.mark.slow
def test_every_file_that_a_real_run_leaves_is_documented(tmp_path: Path) -> None:
    root = tmp_path / "w"
    environ = {**os.environ, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}

    def mh(*words: str, text: str | None = None) -> None:
        argv = [sys.executable, "-P", "-m", "daemon", "--root", str(root), *words]
        ran = subprocess.run(
            argv, env=environ, input=text, capture_output=True, text=True, timeout=60, check=False
        )
        assert ran.returncode == 0, ran.stderr

    mh("init", str(root))
    mh("up", "-d")
    try:
        mh("drop", "-", "--name", "hello", text=TRACK)
        mh("drop", "nothing to run", "-H", "shell")
        (root / "tracks" / "queued" / "bad.md").write_text("---\npriorty: 1\n---\nx\n")
        wait_for(lambda: (root / "tracks/done/hello.md").exists(), "the track to be done")
        wait_for(lambda: (root / "tracks/failed/nothing-to-run.md").exists(), "the other to fail")
        wait_for(lambda: (root / "tracks/failed/bad.md.why.txt").exists(), "the bad one to be refused")
    finally:
        mh("down")
        socket = (root / ".megaharness/tmux/socket").read_text().strip()
        subprocess.run(
            ["tmux", "-N", "-S", socket, "kill-server"], capture_output=True, timeout=10, check=False
        )
    yours = re.compile(r"(tracks/(done|failed)/[^/]+\.md|md-db/[^e].*|\.git(/.*)?)")
    there = [path.relative_to(root) for path in root.rglob("*")]
    sessions = 0
    for path in there:
        if path.parts[0] == "sessions" and len(path.parts) > 2:
            assert parse(path.parts[1]) is not None
            inner = "/".join(path.parts[2:])
            sessions += inner == "exit.json"
            assert inner.startswith(("receipts/", "blocks/")) or _known(inner, files.SESSION), path
        elif not yours.fullmatch(str(path)):
            assert _known(str(path), files.WORKSPACE), path
    assert sessions == 1
    for path in (tmp_path / "state/megaharness").glob("*/*/*"):
        assert _known("/".join(path.parts[-2:]), files.STATE), path


# -- links ---------------------------------------------------------------------------------------


def _documents() -> list[Path]:
    return [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]


def _anchors(page: Path) -> set[str]:
    headings = re.findall(
        r"^#+ +(.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", _documents(), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    text = re.sub(
        r"(`+).*?\1", "", re.sub(r"^(`{3,}).*?^\1$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    )
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        goal = (page.parent / path).resolve() if path else page
        assert goal.exists(), f"{page}: {target}"
        if anchor:
            assert anchor in _anchors(goal), f"{page}: {target}"


def test_every_page_is_in_the_index() -> None:
    index = (REPOSITORY / "docs" / "README.md").read_text()
    for page in (REPOSITORY / "docs").rglob("*.md"):
        name = str(page.relative_to(REPOSITORY / "docs"))
        if not name.startswith("adr/") and name != "README.md":
            assert f"({name})" in index, name


# -- dependencies --------------------------------------------------------------------------------


def test_what_is_imported_is_a_dependency_and_the_other_way_round() -> None:
    imported = set()
    for path in [*REPOSITORY.glob("daemon/**/*.py"), *REPOSITORY.glob("adapters/**/*.py")]:
        if path.name == "testing.py":  # for the tests of adapters: pytest is theirs
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.split(".")[0])
    packages = importlib.metadata.packages_distributions()
    foreign = imported - sys.stdlib_module_names - {"daemon", "adapters"}
    used = {packages[name][0].lower() for name in foreign}
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert used == {re.split(r"[<>=~]", each)[0].lower() for each in project["dependencies"]}
