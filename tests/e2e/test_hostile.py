"""A title, a file name, a prompt and a path full of metacharacters execute nothing."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
NASTY = "a;touch X;'\"`touch X`$(touch X)#(touch X) & | \\ %n{}[]*?~!"


def shared(name: str) -> Path:
    path = SHARED / "cases/inputs" / name
    if not path.exists():
        if os.environ.get("CI"):
            raise AssertionError(f"{path} is missing on CI")
        pytest.skip("../shared is not here")
    return path


def test_metacharacters_everywhere_execute_nothing(make_bench, waiting):
    bench = make_bench("w;touch X;`touch X`$(touch X)#(touch X)'\" s")
    agent = bench.home / "agent"
    agent.write_text('#!/bin/sh\nwc -c < "$1"\ncat "$1" > brief-as-it-came\n')
    agent.chmod(0o755)
    (bench.root / "megaharness.toml").write_text(f'[harness.mine]\nargv = ["{agent}", "{{brief}}"]\n')
    bench.up()
    body = f"# {NASTY}\n\n{NASTY}\n$(touch X) `touch X` #(touch X);\n-rf --help\n"
    name = f"{NASTY.replace('/', '')}.md"
    bench.drop(name, f"---\nharness_id: mine\n---\n{body}")
    assert bench.settled(name) == "done", bench.trouble()
    place = Path(bench.json("show", bench.session(name).name)["work"])
    assert body.strip() in (place / "brief-as-it-came").read_text()
    # Whatever had been executed would have left an X somewhere here.
    assert list(bench.home.rglob("X")) == []
    (socket,) = bench.runtime.glob("*.sock")
    names = subprocess.run(
        ["tmux", "-N", "-S", str(socket), "list-windows", "-a", "-F", "#{session_name} #{window_name}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert set(names) <= set("abcdefghijklmnopqrstuvwxyz0123456789- \n")


@pytest.mark.parametrize(
    "title", ["日本語のタイトル", "🚀🚀", "a/b", "x" * 300, "Ünïcödé tïtle", "..", "-rf", "2026-12-02"]
)
def test_any_title_becomes_an_id_that_works_everywhere(bench, title):
    bench.up()
    said = bench.json("drop", f"# {title}\n\n```sh\necho ok\n```", "-H", "shell")
    name = Path(said["path"]).name
    assert bench.settled(name) == "done", bench.trouble()
    found = bench.json("show", said["id"])
    assert set(found["id"]) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert len(found["id"]) <= 48
    assert found["state"] == "done"


def test_case_25_a_prompt_that_begins_with_a_dash(bench):
    text = shared("25_prompt_leading_dash.md").read_text()
    agent = bench.home / "agent"
    agent.write_text("#!/bin/sh\ncat > got\necho ok\n")
    agent.chmod(0o755)
    # The case names claude-code: here that is any program that reads its brief from standard input.
    (bench.root / "megaharness.toml").write_text(f'[harness.claude-code]\nargv = ["{agent}"]\n')
    bench.up()
    bench.drop("dash.md", text)
    assert bench.settled("dash.md") == "done", bench.trouble()
    session = bench.session("dash.md")
    place = Path(bench.json("show", "dash")["work"])
    assert (place / "got").read_bytes() == (session / "brief.md").read_bytes()
    body = text.split("\n---\n", 1)[1] if text.startswith("---\n") else text
    assert body.strip() in (place / "got").read_text()


def test_case_27_a_prompt_of_more_than_128_kib(bench):
    shared("27_big_prompt.py")
    agent = bench.home / "agent"
    agent.write_text('#!/bin/sh\nwc -c < "$1"\n')
    agent.chmod(0o755)
    (bench.root / "megaharness.toml").write_text(
        f'prefer = ["mine"]\n[harness.mine]\nargv = ["{agent}", "{{brief}}"]\n'
    )
    bench.up()
    bench.drop("big.md", "Do this: " + "ü" * 300_000 + "\n")
    assert bench.settled("big.md") == "done", bench.trouble()
    assert (bench.session("big.md") / "brief.md").stat().st_size > 600_000


def test_case_40_run_1_and_run_10(bench, waiting):
    shared("40_tmux_names.txt")
    bench.up()
    for name in ("run-1.md", "run-10.md", "demos.expanso.io.md"):
        bench.drop(name, "---\nharness_id: shell\n---\n```sh\necho up\nsleep 60\n```\n")
    waiting(lambda: len(bench.view()["running"]) == 3, "three run")
    bench.mh("stop", "run-1")
    assert bench.settled("run-1.md") == "failed"
    assert {row["id"] for row in bench.view()["running"]} == {"run-10", "demos-expanso-io"}


def test_an_agent_cannot_settle_itself_by_writing_into_its_own_file(bench):
    bench.up()
    bench.drop(
        "cheat.md",
        "---\nharness_id: shell\ndone_when:\n  - run: test -f proof\n---\n```bash\n"
        f"f={bench.root}/tracks/active/cheat.md\nsed -i 's/status: active/status: done/; s/test -f proof/true/' \"$f\"\n"
        "echo changed my contract\n```\n",
    )
    # A change of the contract counts, whoever made it; but it is shown, and nothing is called verified.
    bench.settled("cheat.md")
    text = (bench.text("done", "cheat.md") if "cheat.md" in bench.folder("done") else "") or bench.text(
        "failed", "cheat.md"
    )
    assert "verified" not in text
    assert re.search(r"Contract changed at \d\d:\d\d; was: `run: test -f proof`", text)
    assert bench.rows()[0]["contract"]["changed"] is True
