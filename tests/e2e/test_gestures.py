"""The file is a thread: every gesture with the file of a track that runs, asks or has ended."""

from __future__ import annotations

import json
import os
import re
import time

import pytest

pytestmark = pytest.mark.slow

FAKE = "---\nharness_id: fake\n{keys}---\n# {title}\n\nDo it well.\n\n```fake\n{does}\n```\n"
SHELL = (
    "---\nharness_id: shell\n{keys}---\n# Wait\n\n```sh\necho run >> {home}/ran\n"
    "until [ -e {home}/gate ]; do sleep 0.05; done\necho gone on\n```\n"
)


def fake(title: str, does: str, keys: str = "") -> str:
    return FAKE.format(title=title, does=does, keys=keys)


def running(bench, waiting, name: str):
    """The session, once it runs and its block stands in the file."""
    session = bench.session(name)
    waiting((session / "started.json").exists, f"{name} runs; {bench.trouble()}")
    path = bench.root / "tracks/active" / name
    waiting(lambda: "status: active" in path.read_text(), "its block")
    return session, path


def append(path, text: str) -> None:
    with open(path, "a") as file:
        file.write(text)


def edits(session) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted((session / "edits").glob("*.json"))]


# -- edited while it runs ----------------------------------------------------------------------------


def test_text_added_at_the_end_reaches_a_harness_that_takes_messages_once(bench, waiting):
    pid = bench.up()
    bench.drop("talk.md", fake("Talk", "say begun\nread\nsleep 600"))
    session, path = running(bench, waiting, "talk.md")
    append(path, "\nPlease in blue.\n")
    delivered = session / "inbox/delivered"
    waiting(lambda: len(os.listdir(delivered)) == 2, "the message")
    waiting(lambda: "got: Please in blue." in (session / "events.jsonl").read_text(), "its answer")
    assert "it has reached the agent" in bench.mh("why", "talk")
    bench.kill(pid)
    bench.up()
    append(path, "\nAnd round.\n")
    waiting(lambda: "got: And round." in (session / "events.jsonl").read_text(), "the second answer")
    assert len(os.listdir(delivered)) == 3, "the first one was not told again"
    assert [edit["message"] for edit in edits(session)] == ["Please in blue.", "And round."]
    bench.mh("interrupt", "talk")
    assert bench.settled("talk.md") == "failed"
    assert "Please in blue.\n\nAnd round.\n" in bench.text("failed", "talk.md")


def test_a_changed_text_is_told_as_a_difference(bench, waiting):
    bench.up()
    bench.drop("talk.md", fake("Talk", "read\nsleep 600"))
    session, path = running(bench, waiting, "talk.md")
    beside = path.with_name(".talk.md.new")
    beside.write_text(path.read_text().replace("Do it well.", "Do it quickly."))
    beside.rename(path)
    waiting(lambda: edits(session), "the edit")
    told = str(edits(session)[0]["message"])
    assert "-Do it well.\n+Do it quickly." in told
    waiting(
        lambda: "got: The text of the task was changed" in (session / "events.jsonl").read_text(),
        "it is told",
    )


def test_what_a_harness_cannot_hear_is_in_the_brief_of_another_attempt(bench, waiting):
    """`generic` reads its brief and takes no messages: what was written while it ran is worth another attempt."""
    (bench.root / "megaharness.toml").write_text(
        '[harness.reader]\nargv = ["bash", "-c", "cat > heard; until [ -e $GATE ]; do sleep 0.05; done; echo read"]\n'
        f'env = {{GATE = "{bench.home}/gate"}}\n'
    )
    bench.up()
    bench.drop("read.md", "---\nharness_id: reader\n---\n# Read\n\nThis.\n")
    session, path = running(bench, waiting, "read.md")
    append(path, "\nAnd that.\n")
    waiting(lambda: edits(session), "the edit")
    assert "it is in the brief of the next attempt" in bench.mh("why", "read")
    (bench.home / "gate").touch()
    assert bench.settled("read.md") == "done"
    first, second = bench.sessions_named("read.md")
    assert "And that." not in (first / "brief.md").read_text()
    assert "And that." in (second / "brief.md").read_text()
    assert [row["destination"] for row in bench.rows()] == ["stays", "done"]


def test_a_script_is_not_run_again_for_a_word_and_the_result_says_so(bench, waiting):
    bench.up()
    bench.drop("script.md", SHELL.format(keys="", home=bench.home))
    session, path = running(bench, waiting, "script.md")
    append(path, "\nA thought.\n")
    waiting(lambda: edits(session), "the edit")
    (bench.home / "gate").touch()
    assert bench.settled("script.md") == "done"
    assert (bench.home / "ran").read_text() == "run\n"
    assert "What you wrote while it ran did not reach it" in bench.text("done", "script.md")


def test_another_harness_is_asked_for_recorded_and_refused_with_a_reason(bench, waiting):
    bench.up()
    bench.drop("swap.md", SHELL.format(keys="", home=bench.home))
    session, path = running(bench, waiting, "swap.md")
    path.write_text(path.read_text().replace("harness_id: shell", "harness_id: fake"))
    waiting(lambda: edits(session), "the edit")
    assert edits(session)[0]["harness"] == "fake"
    why = bench.mh("why", "swap")
    assert "fake was asked for at" in why
    assert "cannot be moved to another harness yet, so it goes on with shell" in why
    assert "mh interrupt swap, then mh requeue swap" in why
    (bench.home / "gate").touch()
    assert bench.settled("swap.md") == "done"
    assert bench.rows()[0]["harness_id"] == "shell"


def test_the_minutes_of_the_budget_count_at_once(bench, waiting):
    bench.up()
    bench.drop("long.md", SHELL.format(keys="budget: {minutes: 90}\n", home=bench.home))
    session, path = running(bench, waiting, "long.md")
    path.write_text(path.read_text().replace("minutes: 90", "minutes: 0.05"))
    waiting(lambda: edits(session), "the edit")
    assert bench.settled("long.md") == "failed"
    assert bench.rows()[0]["termination"] == "budget/minutes"
    assert "longer than its 0.05 minutes" in bench.text("failed", "long.md")


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        ("exists: nowhere", "exists: ran-here", "1 check passed, contract changed"),
        ("exists: ran-here", "exists: ran-here}, {run: 'true'", "verified: 2 checks, contract changed"),
    ],
    ids=["replaced", "only added"],
)
def test_a_changed_contract_counts_and_is_shown_as_changed(bench, waiting, was, now, says):
    bench.up()
    keys = f"done_when: [{{{was}}}]\n"
    bench.drop(
        "loose.md", SHELL.format(keys=keys, home=bench.home).replace("echo gone", "touch ran-here; echo gone")
    )
    session, path = running(bench, waiting, "loose.md")
    path.write_text(path.read_text().replace(was, now, 1))
    waiting(lambda: edits(session), "the edit")
    assert "counts at once: done_when" in bench.mh("why", "loose")
    (bench.home / "gate").touch()
    assert bench.settled("loose.md") == "done"
    text = bench.text("done", "loose.md")
    assert says in text
    assert re.search(r"Contract changed at \d\d:\d\d(, checks were only added)?; was: `" + was, text)
    receipts = [json.loads(each.read_text()) for each in (session / "receipts").glob("*.json")]
    assert all(f"was: `{was}`" in receipt["contract"] for receipt in receipts)
    assert says in bench.mh()
    assert bench.rows()[0]["contract"]["changed"] is True


def test_keys_without_effect_and_a_broken_save_are_told(bench, waiting):
    bench.up()
    bench.drop("keys.md", SHELL.format(keys="", home=bench.home))
    session, path = running(bench, waiting, "keys.md")
    path.write_text(
        path.read_text().replace("---\nharness_id", "---\nkind: fix\nafter: other\npriority: 3\nharness_id")
    )
    waiting(lambda: edits(session), "the edit")
    why = bench.mh("why", "keys")
    assert "without effect while it runs: after, kind" in why
    assert "counts at once: priority" in why
    good = path.read_text()
    path.write_text(good.replace("kind: fix", "knid: fix"))
    why = bench.mh("why", "keys")
    assert "cannot be read as you left it, so it goes on with what it had" in why
    assert "knid" in why
    (bench.home / "gate").touch()
    assert bench.settled("keys.md") == "done"
    assert len(edits(session)) == 1


def test_the_daemon_writes_the_file_at_claim_and_settle_only(bench, waiting):
    bench.up()
    bench.drop("still.md", fake("Still", "lines 30 0.1"))
    _, path = running(bench, waiting, "still.md")
    seen = {path.stat().st_ino}
    while path.exists():
        try:
            seen.add(path.stat().st_ino)
        except FileNotFoundError:
            break
        time.sleep(0.01)
    assert bench.settled("still.md") == "done"
    assert len(seen) <= 2, "claimed; and, for the moment before the rename, with its result"


# -- questions ---------------------------------------------------------------------------------------


def test_a_question_comes_into_the_file_frees_the_slot_and_is_answered_there(bench, waiting):
    (bench.root / "megaharness.toml").write_text("[limits]\nslots = 1\nattempts = 1\n")
    pid = bench.up()
    bench.drop(
        "asks.md",
        fake(
            "Ask", "say I looked at both.\nask BLOCKED: Which of the two?", "done_when:\n  - exists: chosen\n"
        ),
    )
    path = bench.root / "tracks/active/asks.md"
    waiting(
        lambda: path.exists() and "megaharness: question" in path.read_text(),
        f"the question; {bench.trouble()}",
    )
    assert "> BLOCKED: Which of the two?" in path.read_text()
    assert "status: blocked" in path.read_text()
    bench.drop("other.md", fake("Other", "say done"))
    assert bench.settled("other.md") == "done", "a question holds no slot"
    (row,) = bench.view()["needs_you"]
    assert row["reason"] == "asks: Which of the two?"
    assert bench.view()["running"] == []
    assert "mh reply asks TEXT" in bench.mh("why", "asks")
    bench.kill(pid)
    assert "asks: Which of the two?" in bench.mh("why", "asks"), "without a daemon, too"
    assert "asks: Which of the two?" in bench.mh()
    bench.up()
    time.sleep(1)
    assert path.read_text().count("megaharness: question") == 1
    assert "answered: it goes on" in bench.mh(
        "reply", "asks", "the left one\n\n```fake\nwrite chosen left\nsay taken\n```"
    )
    assert bench.settled("asks.md") == "done"
    first, second = bench.sessions_named("asks.md")
    brief = (second / "brief.md").read_text()
    assert "## What you asked, oldest first\n\nWhich of the two?" in brief
    assert "the left one" in brief
    assert json.loads((first / "settle.json").read_text())["termination"] == "blocked"
    assert [row["termination"] for row in bench.rows() if row["track_id"] == "asks"] == ["blocked", "clean"]
    text = bench.text("done", "asks.md")
    assert (
        text.index("megaharness: question") < text.index("the left one") < text.index("megaharness: result")
    )


def test_a_question_is_answered_by_an_editor_while_no_daemon_runs(bench, waiting):
    pid = bench.up()
    bench.drop("asks.md", fake("Ask", "ask BLOCKED: Which?"))
    path = bench.root / "tracks/active/asks.md"
    waiting(lambda: path.exists() and "megaharness: question" in path.read_text(), "the question")
    bench.kill(pid)
    path.write_text(path.read_text() + "\nthis\n\n```fake\nsay good\n```\n")
    bench.up()
    assert bench.settled("asks.md") == "done"
    assert len(bench.sessions_named("asks.md")) == 2


@pytest.mark.parametrize(
    ("gesture", "state"), [("interrupt", "failed"), ("done", "done"), ("failed", "failed")]
)
def test_a_track_that_asks_can_be_ended(bench, waiting, gesture, state):
    bench.up()
    bench.drop("asks.md", fake("Ask", "ask BLOCKED: Which?"))
    path = bench.root / "tracks/active/asks.md"
    waiting(lambda: path.exists() and "megaharness: question" in path.read_text(), "the question")
    if gesture == "interrupt":
        bench.mh("interrupt", "asks")
    else:
        path.rename(bench.root / "tracks" / gesture / "asks.md")
    waiting(lambda: len(bench.rows()) == 2, f"its end; {bench.trouble()}")
    assert bench.settled("asks.md") == state
    assert bench.rows()[1]["termination"] == ("clean/by_person" if state == "done" else "interrupt/by_person")
    assert bench.rows()[1]["started_at"] is None, "nothing was run for it"


@pytest.mark.parametrize(
    ("kind", "said"),
    [("link", "it is a symlink"), ("fifo", "it is a fifo"), ("hard link", "it has 2 hard links")],
)
def test_what_lies_in_the_place_of_a_file_that_asks_and_is_not_read_is_told(bench, waiting, kind, said):
    bench.up()
    bench.drop("asks.md", fake("Ask", "ask BLOCKED: Which?"))
    path, kept = bench.root / "tracks/active/asks.md", bench.home / "kept.md"
    waiting(lambda: path.exists() and "megaharness: question" in path.read_text(), "the question")
    if kind == "hard link":
        os.link(path, kept)
    else:
        path.rename(kept)
        path.symlink_to(kept) if kind == "link" else os.mkfifo(path)
    answer = bench.mh("why", "asks")
    assert f"nothing in tracks/active/asks.md is read: {said}" in " ".join(answer.split())
    assert said in bench.mh("reply", "asks", "this", code=2)
    if kind == "hard link":
        kept.unlink()
    else:
        kept.replace(path)
    waiting(lambda: "is read" not in bench.mh("why", "asks"), "it is a file again")
    bench.mh("reply", "asks", "this\n\n```fake\nsay good\n```")
    assert bench.settled("asks.md") == "done"


def test_a_drain_does_not_wait_for_a_question(bench, waiting):
    bench.up()
    bench.drop("asks.md", fake("Ask", "ask BLOCKED: Which?"))
    path = bench.root / "tracks/active/asks.md"
    waiting(lambda: path.exists() and "megaharness: question" in path.read_text(), "the question")
    bench.mh("down", "--drain")


# -- moved and deleted ---------------------------------------------------------------------------------


def test_moved_to_done_it_is_done_because_a_person_says_so(bench, waiting):
    bench.up()
    bench.drop("enough.md", SHELL.format(keys="done_when: [{exists: never}]\n", home=bench.home))
    session, path = running(bench, waiting, "enough.md")
    path.rename(bench.root / "tracks/done/well-enough.md")
    waiting((session / "settled").exists, f"it is settled; {bench.trouble()}")
    (row,) = bench.rows()
    assert row["termination"] == "clean/by_person"
    assert (row["outcome_label"]["value"], row["outcome_label"]["by"]) == ("met", "person")
    assert (session / "exit.json").exists()
    assert bench.folder("done") == ["well-enough.md"]
    assert bench.folder("active") == []
    text = bench.text("done", "well-enough.md")
    assert "you moved it to done/" in text
    assert "status: done" in text
    assert bench.journal()[-1]["by"] == "person"


def test_moved_to_failed_it_is_interrupted(bench, waiting):
    bench.up()
    bench.drop("enough.md", SHELL.format(keys="", home=bench.home))
    session, path = running(bench, waiting, "enough.md")
    path.rename(bench.root / "tracks/failed/enough.md")
    waiting((session / "settled").exists, f"it is settled; {bench.trouble()}")
    assert bench.rows()[0]["termination"] == "interrupt/by_person"
    assert bench.folder("failed") == ["enough.md"]
    assert "you moved it to failed/" in bench.text("failed", "enough.md")


def test_moved_back_to_queued_it_is_interrupted_and_run_again(bench, waiting):
    bench.up()
    bench.drop("again.md", SHELL.format(keys="", home=bench.home))
    session, path = running(bench, waiting, "again.md")
    waiting((bench.home / "ran").exists, "the first run")
    path.rename(bench.root / "tracks/queued/again.md")
    waiting((session / "settled").exists, f"it is settled; {bench.trouble()}")
    waiting(lambda: len(bench.sessions_named("again.md")) == 2, "it runs again")
    (bench.home / "gate").touch()
    assert bench.settled("again.md") == "done"
    assert [(row["termination"], row["destination"]) for row in bench.rows()] == [
        ("interrupt/by_person", "queued"),
        ("clean", "done"),
    ]
    assert (bench.home / "ran").read_text() == "run\nrun\n"
    assert bench.text("done", "again.md").count("<!-- megaharness: result") == 2


def test_a_deleted_file_ends_its_track_and_comes_back_in_failed(bench, waiting):
    bench.up()
    bench.drop("gone.md", SHELL.format(keys="", home=bench.home))
    session, path = running(bench, waiting, "gone.md")
    append(path, "\nA last word.\n")
    waiting(lambda: edits(session), "the edit")
    path.unlink()
    assert bench.settled("gone.md") == "failed"
    text = bench.text("failed", "gone.md")
    assert re.search(r"you deleted it at \d\d:\d\d", text)
    assert "A last word." in text, "the last known text"
    assert bench.rows()[0]["termination"] == "interrupt/by_person"


def test_a_file_that_is_away_for_a_moment_was_not_deleted(bench, waiting):
    bench.up()
    bench.drop("save.md", SHELL.format(keys="", home=bench.home))
    session, path = running(bench, waiting, "save.md")
    for _ in range(3):  # as editors do that move the old file out of the way first
        text = path.read_text()
        path.rename(path.with_name("save.md~"))
        time.sleep(1.5)
        path.write_text(text)
    (bench.home / "gate").touch()
    assert bench.settled("save.md") == "done"
    assert len(bench.sessions_named("save.md")) == 1
    assert not (session / "interrupt.json").exists()


def test_two_that_vanish_at_once_are_nobody_s_wish_and_a_person_is_asked(bench, waiting):
    pid = bench.up()
    kept = {}
    for name in ("one.md", "two.md"):
        bench.drop(name, SHELL.format(keys="", home=bench.home))
    for name in ("one.md", "two.md"):
        _, path = running(bench, waiting, name)
        kept[path] = path.read_text()
    for path in kept:
        path.unlink()
    waiting(lambda: len(bench.view()["needs_you"]) == 2, f"both are asked about; {bench.state()}")
    assert "vanished together with others" in bench.mh()
    assert "put them back" in bench.mh("why", "one")
    bench.kill(pid)
    bench.up()
    time.sleep(7)
    assert [row["phase"] for row in bench.view()["running"]] == ["running", "running"]
    for path, text in kept.items():
        path.write_text(text)
    waiting(lambda: bench.view()["needs_you"] == [], "they are back")
    (bench.home / "gate").touch()
    assert bench.settled("one.md") == bench.settled("two.md") == "done"
    assert not list((bench.root / "sessions").glob("*/interrupt.json"))


def test_sent_back_from_done_without_a_word_it_was_not_done(bench):
    bench.up()
    bench.drop("twice.md", fake("Twice", "say ok"))
    assert bench.settled("twice.md") == "done"
    first = bench.sessions_named("twice.md")[0]
    bench.mh("requeue", "twice")
    wait_rows(bench, 3)
    label = next(row for row in bench.rows() if row["type"] == "label")
    assert (label["session_id"], label["value"], label["by"]) == (first.name, "not met", "person")
    assert bench.settled("twice.md") == "done"
    bench.mh("reply", "twice", "and once more")
    bench.mh("requeue", "twice")
    wait_rows(bench, 4)
    assert sum(row["type"] == "label" for row in bench.rows()) == 1, "with a word it is a follow-up"


def wait_rows(bench, count: int) -> None:
    from adapters.testing import wait_for

    wait_for(lambda: len(bench.rows()) == count, f"{count} rows; {bench.trouble()}")


def test_moved_from_queued_to_done_or_failed_it_is_shelved(bench, waiting):
    for state in ("done", "failed"):
        path = bench.drop(f"{state}.md", fake("Never", "say no", "after: 2099-01-01 10:00\n"))
        path.rename(bench.root / "tracks" / state / f"{state}.md")
    bench.up()
    bench.drop("real.md", fake("Real", "say yes"))
    assert bench.settled("real.md") == "done"
    assert [row["track_id"] for row in bench.rows()] == ["real"]
    assert "put there by hand; it was not run" in bench.mh("why", "failed")
    assert "result" not in bench.text("done", "done.md")


def test_mh_reply_writes_what_an_editor_would(bench):
    path = bench.root / "tracks/queued/note.md"
    path.write_bytes(b"---\r\nharness_id: fake\r\n---\r\n# Note\r\n\r\nfirst")
    assert "it is part of the task" in bench.mh("reply", "note", "and", "second")
    assert path.read_bytes().endswith(b"first\r\n\r\nand second\r\n")
    bench.mh("reply", "note", "-", stdin="from\nstandard input\n")
    assert path.read_bytes().endswith(b"and second\r\n\r\nfrom\r\nstandard input\r\n")
    assert "nothing to say" in bench.mh("reply", "note", "  ", code=2)
    assert "there is no track" in bench.mh("reply", "nobody", "x", code=4)


def test_mh_reply_writes_all_of_it_or_nothing(bench):
    path = bench.drop("note.md", "# Note\n\nfirst\n")
    before = path.read_bytes()
    limit = len(before) + 1000  # as a disk that is full after so many bytes
    bench.under = ("prlimit", f"--fsize={limit}")
    no_cache = {"PYTHONDONTWRITEBYTECODE": "1"}
    assert "mh:" in bench.mh("reply", "note", "x" * 5000, code=1, env=no_cache)
    assert path.read_bytes() == before


def test_mh_reply_finds_a_file_that_has_another_name_now(bench, waiting):
    bench.up()
    bench.drop("asks.md", fake("Ask", "ask BLOCKED: Which?"))
    path = bench.root / "tracks/active/asks.md"
    waiting(lambda: path.exists() and "megaharness: question" in path.read_text(), "the question")
    other = path.rename(path.with_name("other.md"))
    waiting(lambda: bench.json("why", "asks")["state"] == "active", "it is found")
    assert "answered" in bench.mh("reply", "asks", "this one")
    assert "this one" in other.read_text()


def test_a_file_that_has_become_too_large_is_told(bench, waiting):
    bench.up()
    bench.drop("asks.md", fake("Ask", "ask BLOCKED: Which?"))
    path = bench.root / "tracks/active/asks.md"
    waiting(lambda: path.exists() and "megaharness: question" in path.read_text(), "the question")
    append(path, "x" * (1 << 20))
    assert "cannot be read as you left it" in bench.mh("why", "asks")
