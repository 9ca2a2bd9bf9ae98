"""A dropped file runs to done in a tmux pane, and everything that a person sees on the way."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time

import pytest

GOOD = """---
harness_id: shell
done_when:
  - run: test -f out.txt
  - exists: "*.txt"
  - changed: "**/*.txt"
  - contains: {file: out.txt, pattern: gr..n}
  - the colour is pleasant
tags: [mine]
---
# Make it green

```bash
echo green > out.txt
echo "it is green"
```
"""


def test_a_dropped_file_is_run_verified_measured_and_moved(bench):
    bench.up()
    bench.drop("make-green.md", GOOD)
    assert bench.settled("make-green.md") == "done", bench.text("failed", "make-green.md")

    text = bench.text("done", "make-green.md")
    head, body = text.split("\n---\n", 1)
    # Every byte of the person is there; the block is the last key.
    assert head.startswith(GOOD.split("\n---\n")[0])
    assert body.startswith(GOOD.split("\n---\n", 1)[1])
    assert re.search(
        r"megaharness:\n  id: make-green\n  status: done\n  session: make-green-1-[0-9a-f]{12}\n", head
    )
    assert text.count("<!-- megaharness: result, attempt 1") == 1
    assert "> it is green" in body
    assert body.count("- [x] ") == 4
    assert "- [?] `the colour is pleasant`" in body
    assert "out.txt | 1 +" in body

    (row,) = bench.rows()
    assert row["track_id"] == "make-green"
    assert row["termination"] == "clean"
    assert row["contract"] == {"checks": 4, "passed": 4, "adherence": 1.0, "to_judge": 1, "changed": False}
    assert row["gen_ai.usage.input_tokens"] is None
    assert row["cost_usd"] is None
    assert [(r["from"], r["to"]) for r in bench.journal()] == [("queued", "active"), ("active", "done")]

    place = bench.json("show", "make-green")["work"]
    assert subprocess.run(
        ["git", "-C", place, "log", "--format=%an %s"], capture_output=True, text=True, check=True
    ).stdout.splitlines() == [
        "megaHarness make-green: left uncommitted by attempt 1",
        "megaHarness empty start of make-green",
    ]
    assert bench.folder("active") == bench.folder("queued") == []
    assert os.listdir(bench.root / "tracks/.tmp") == []


@pytest.mark.slow
def test_the_commands_work_while_it_runs_and_after(bench, waiting):
    bench.up()
    gate = bench.home / "gate"
    bench.drop(
        "slow.md",
        "---\nharness: shell\n---\n# Slow\n\n"
        f"```sh\necho begun; while [ ! -e {gate} ]; do sleep 0.05; done; echo ended\n```\n",
    )
    session = bench.session("slow.md")
    waiting(
        lambda: (
            b"begun" in (session / "events.jsonl").read_bytes() if (session / "events.jsonl").exists() else 0
        ),
        "output",
    )
    assert "runs in shell since" in bench.mh("why", "slow")
    assert bench.view()["running"][0]["id"] == "slow"
    assert "RUNNING" in bench.mh()
    assert "begun" in bench.mh("log", "slo")
    gate.touch()
    assert "ended" in bench.mh("log", "-f", "slow")
    bench.settled("slow.md")
    assert bench.json("why", "slow")["state"] == "done"
    assert "no checks" in bench.mh()
    assert "ended" in bench.mh("attach", "slow")  # not a terminal: the log of a finished one, plain


def test_ids_by_prefix_and_their_errors(bench):
    for name in ("fix-a.md", "fix-b.md"):
        bench.drop(name, "---\nharness: shell\n---\n```sh\ntrue\n```\n")
    assert "fix-a, fix-b" in bench.mh("why", "fix", code=4)
    assert "did you mean" in bench.mh("show", "fix-aa", code=4)
    assert bench.json("show", "fix-a")["state"] == "queued"
    assert "not running: mh up -d" in bench.mh("why", "fix-b")


def test_checks_that_fail_land_in_failed_with_their_receipts(bench):
    bench.up()
    bench.drop(
        "red.md",
        "---\nharness_id: shell\ndone_when:\n  - run: echo why it is red; exit 3\n---\n```sh\necho I am done\n```\n",
    )
    assert bench.settled("red.md") == "failed"
    text = bench.text("failed", "red.md")
    assert "incomplete" in text
    assert "- [ ] `run: echo why it is red; exit 3`: exit 3" in text
    assert "  > why it is red" in text
    assert "mh requeue red" in text
    # A script would only run again: one attempt.
    assert len(bench.sessions_named("red.md")) == 1
    assert "exit 3" in bench.mh("why", "red")


@pytest.mark.slow
def test_an_agent_that_lies_is_asked_again_with_the_receipts_and_then_fails(bench):
    bench.up()
    bench.drop(
        "liar.md",
        "---\nharness_id: fake\ndone_when:\n  - run: test -f never.txt\n---\n# Lie\n\n```fake\nsay All done, I promise.\n```\n",
    )
    assert bench.settled("liar.md") == "failed"
    first, second = bench.sessions_named("liar.md")
    assert "never.txt" in (second / "brief.md").read_text()
    assert "left open" in (second / "brief.md").read_text()
    assert json.loads((first / "settle.json").read_text())["destination"] == "stays"
    assert [row["attempt"] for row in bench.rows()] == [1, 2]
    assert {row["termination"] for row in bench.rows()} == {"incomplete"}
    assert bench.text("failed", "liar.md").count("<!-- megaharness: result") == 1


def test_no_change_and_no_answer_is_no_op(bench):
    bench.up()
    bench.drop("nothing.md", "---\nharness_id: shell\n---\n```sh\ntrue\n```\n")
    assert bench.settled("nothing.md") == "failed"
    assert bench.rows()[0]["termination"] == "no_op"


@pytest.mark.parametrize(
    ("script", "termination"), [("exit 7", "crash/exit_7"), ("kill -9 $$", "crash/signal_9")]
)
def test_how_it_died_is_told_apart(bench, script, termination):
    bench.up()
    bench.drop("dies.md", f"---\nharness_id: shell\n---\n```bash\n{script}\n```\n")
    assert bench.settled("dies.md") == "failed"
    assert bench.rows()[0]["termination"] == termination


@pytest.mark.slow
def test_a_bad_file_is_refused_with_line_and_way_out_and_its_bytes_stay(bench, waiting):
    bench.up()
    bad = "---\nharnes_id: shell\npriority: high\n---\nDo it\n"
    path = bench.drop("bad.md", bad)
    shown = waiting(
        lambda: [row for row in bench.view()["needs_you"] if row["subject"] == "bad.md"], "shown first"
    )
    assert "harness_id" in shown[0]["reason"]
    assert path.exists()
    assert bench.settled("bad.md") == "failed"
    assert bench.text("failed", "bad.md") == bad
    why = bench.text("failed", "bad.md.why.txt")
    assert "line 2" in why
    assert "`harness_id`" in why
    assert "line 3" in why
    # The reason goes when its file goes.
    (bench.root / "tracks/failed/bad.md").unlink()
    waiting(lambda: bench.folder("failed") == [], "the reason is gone too")


@pytest.mark.slow
def test_a_bad_file_that_is_corrected_in_time_runs(bench, waiting):
    bench.up()
    path = bench.drop("typo.md", "---\nharnes: shell\n---\n```sh\necho ok\n```\n")
    waiting(lambda: bench.view()["needs_you"], "shown")
    path.write_text("---\nharness: shell\n---\n```sh\necho ok\n```\n")
    assert bench.settled("typo.md") == "done"


def test_a_project_is_refused_with_a_reason(bench, waiting):
    bench.up()
    bench.drop("proj.md", "---\nproject_id: shop\nharness_id: shell\n---\nDo it\n")
    waiting(lambda: "there is no such project" in json.dumps(bench.view()["needs_you"]), "the reason")


@pytest.mark.slow
def test_order_after_priority_and_slots(bench, waiting):
    (bench.root / "megaharness.toml").write_text("[limits]\nslots = 1\n")
    track = "---\nharness_id: shell\n{}---\n```sh\nbasename $PWD | tee -a {}\n```\n"
    order = bench.home / "order"
    gate = bench.home / "gate"
    bench.up()
    bench.drop(
        "0-first.md",
        f"---\nharness_id: shell\n---\n```sh\nuntil [ -e {gate} ]; do sleep 0.05; done\necho x\n```\n",
    )
    bench.session("0-first.md")
    bench.drop("b-low.md", track.format("", order))
    bench.drop("c-after.md", track.format("after: [a-high, b-low]\n", order))
    bench.drop("a-high.md", track.format("priority: 5\n", order))
    bench.drop("d-lost.md", track.format("after: nowhere\n", order))
    waiting(lambda: "free slot" in bench.mh("why", "a-high"), "one slot, and that is taken")
    gate.touch()
    assert bench.settled("c-after.md") == "done"
    assert order.read_text().split() == ["a-high", "b-low", "c-after"]
    (waits,) = bench.view()["needs_you"]
    assert "no track with this id" in waits["reason"]
    # Its predecessor comes after all.
    bench.drop("nowhere.md", track.format("", order))
    assert bench.settled("d-lost.md") == "done"


def test_a_failed_predecessor_holds_its_followers_and_says_so(bench, waiting):
    bench.up()
    bench.drop("first.md", "---\nharness_id: shell\n---\n```sh\nexit 1\n```\n")
    bench.drop("second.md", "---\nharness_id: shell\nafter: first\n---\n```sh\necho x\n```\n")
    bench.settled("first.md")
    waiting(
        lambda: "which has failed" in json.dumps(bench.view()["needs_you"]), "second waits for the failed one"
    )
    assert bench.folder("queued") == ["second.md"]


@pytest.mark.slow
def test_a_clock_time_waits(bench, waiting):
    bench.up()
    later = time.strftime("%H:%M:%S", time.localtime(time.time() + 12))
    bench.drop("later.md", f"---\nharness_id: shell\nafter: {later}\n---\n```sh\necho x\n```\n")
    waiting(lambda: f"waits until {later}" in bench.mh("why", "later"), "the reason")
    assert bench.settled("later.md") == "done"


@pytest.mark.slow
def test_interrupt_ends_the_whole_tree_and_requeue_goes_on_in_the_same_place(bench, waiting):
    bench.up()
    marker = bench.home / "pids"
    bench.drop(
        "long.md",
        f"---\nharness_id: shell\n---\n```bash\nif [ -f seen ]; then echo second time; exit 0; fi\ntouch seen\n"
        f"setsid sleep 300 & echo $! >> {marker}\nnohup sleep 300 >/dev/null 2>&1 & echo $! >> {marker}\n"
        f"echo ready >> {marker}\nsleep 300\n```\n",
    )
    waiting(lambda: marker.exists() and "ready" in marker.read_text(), "its children")
    assert "being ended" in bench.mh("stop", "long")
    assert bench.settled("long.md") == "failed"
    assert bench.rows()[0]["termination"] == "interrupt/by_person"
    for pid in marker.read_text().split()[:2]:
        assert not os.path.exists(f"/proc/{pid}"), "a child outlived the interrupt"
    assert "not running" in bench.mh("stop", "long", code=2)
    place = bench.json("show", "long")["work"]
    bench.mh("requeue", "long")
    assert bench.settled("long.md") == "done"
    assert bench.json("show", "long")["work"] == place
    assert bench.json("show", "long")["attempt"] == 2
    bench.mh("requeue", "long", "--fresh")
    waiting(lambda: len(bench.sessions_named("long.md")) == 3, "a third attempt")
    third = waiting(lambda: bench.json("show", "long")["work"], "its place")
    assert third != place
    assert os.path.isdir(place), "the old work stays"


@pytest.mark.slow
def test_drop_takes_text_standard_input_and_files_and_refuses_mistakes(bench, tmp_path):
    assert "round-tax" in bench.mh("drop", "Round tax", "-H", "shell", "--check", "true")
    assert 'harness_id: "shell"' in bench.text("queued", "round-tax.md")
    assert "from-stdin" in bench.mh("drop", "-", "--name", "from-stdin", stdin="Do this\n")
    file = tmp_path / "job.md"
    file.write_text("# A job\n")
    bench.mh("drop", str(file))
    bench.mh("drop", str(file))
    assert {"job.md", "job~2.md"} <= set(bench.folder("queued"))
    assert file.exists(), "a person's file is copied, never moved"
    file.write_text("---\nharnes_id: x\n---\nx\n")
    assert "line 2" in bench.mh("drop", str(file), code=2)
    assert "there is no text" in bench.mh("drop", "-", code=2, stdin="\n")
    assert "no track with this id yet" in bench.mh("drop", "later", "--after", "nobody")


def test_any_command_line_agent_in_two_lines_of_settings(bench):
    agent = bench.home / "agent"
    agent.write_text('#!/bin/sh\ncat "$2" > got.txt\necho "done with $1"\n')
    agent.chmod(0o755)
    (bench.root / "megaharness.toml").write_text(
        f'prefer = ["mine"]\n[harness.mine]\nargv = ["{agent}", "--message-file", "{{brief}}"]\n'
    )
    bench.up()
    bench.drop("no-name.md", "Use whatever is there.\n")
    assert bench.settled("no-name.md") == "done"
    assert "> done with --message-file" in bench.text("done", "no-name.md")
    assert bench.rows()[0]["route"] == "preference"
    brief = (bench.session("no-name.md") / "brief.md").read_text()
    assert "Use whatever is there." in brief
