"""What people and editors do with the files while the daemon works."""

from __future__ import annotations

import os
import time

import pytest

pytestmark = pytest.mark.slow

GATED = "---\nharness_id: shell\n---\n# Wait\n\n```sh\nuntil [ -e {gate} ]; do sleep 0.05; done\necho gone on\n```\n"


def test_a_file_dropped_straight_into_active_takes_its_turn(bench):
    bench.up()
    temp = bench.root / "tracks/.tmp/direct.md"
    temp.write_text("---\nharness_id: shell\n---\n```sh\necho ok\n```\n")
    temp.rename(bench.root / "tracks/active/direct.md")
    assert bench.settled("direct.md") == "done"
    assert len(bench.rows()) == 1


def test_a_file_saved_in_place_waits_until_it_is_quiet_and_whole(bench):
    bench.up()
    path = bench.root / "tracks/queued/slow-save.md"
    with open(path, "w") as file:
        for part in ("---\nharness_id: shell\n---\n", "```sh\necho first\n", "echo second\n```\n"):
            file.write(part)
            file.flush()
            time.sleep(1.2)
            assert path.exists(), "it was taken while it was being written"
    assert bench.settled("slow-save.md") == "done"
    assert "> first\n> second" in bench.text("done", "slow-save.md")


def test_an_edit_while_it_runs_survives_the_settle(bench, waiting):
    gate = bench.home / "gate"
    bench.up()
    bench.drop("edited.md", GATED.format(gate=gate))
    session = bench.session("edited.md")
    waiting((session / "started.json").exists, "it runs")
    path = bench.root / "tracks/active/edited.md"
    waiting(lambda: "status: active" in path.read_text(), "the block is there")
    # As editors save: a whole new file over the old one, and later a line in place.
    beside = bench.root / "tracks/active/.edited.md.new"
    beside.write_text(path.read_text() + "\nA thought of mine.\n")
    beside.rename(path)
    with open(path, "a") as file:
        file.write("Another thought.\n")
    gate.touch()
    assert bench.settled("edited.md") == "done"
    text = bench.text("done", "edited.md")
    assert "A thought of mine.\nAnother thought.\n" in text
    assert text.count("<!-- megaharness: result") == 1
    assert "> gone on" in text


def test_an_editor_that_saves_its_old_buffer_over_the_claimed_file_loses_nothing(bench, waiting):
    """The buffer is from before the claim: no block, no session id. It must not run a second time."""
    gate, original = bench.home / "gate", GATED.format(gate=bench.home / "gate")
    bench.up()
    bench.drop("stale.md", original)
    session = bench.session("stale.md")
    waiting((session / "started.json").exists, "it runs")
    (bench.root / "tracks/active/stale.md").write_text(original + "\nfrom the old buffer\n")
    gate.touch()
    assert bench.settled("stale.md") == "done"
    assert "from the old buffer" in bench.text("done", "stale.md")
    assert len(bench.sessions_named("stale.md")) == 1


def test_a_reply_written_under_the_result_opens_the_next_attempt(bench):
    bench.up()
    bench.drop(
        "talk.md",
        "---\nharness_id: fake\ndone_when:\n  - run: test -f wanted\n---\n# Talk\n\n```fake\nsay I did it\n```\n",
    )
    assert bench.settled("talk.md") == "failed"
    path = bench.root / "tracks/failed/talk.md"
    path.write_text(path.read_text() + "\nYou forgot the file.\n")
    path.rename(bench.root / "tracks/queued/talk.md")
    assert bench.settled("talk.md") == "failed"
    third = bench.sessions_named("talk.md")[2]
    brief = (third / "brief.md").read_text()
    assert "You forgot the file." in brief
    assert "test -f wanted" in brief
    assert "> I did it" not in brief, "its own earlier words are no task"
    text = path.read_text()
    assert text.count("<!-- megaharness: result") == 2
    assert bench.journal()[-1]["id"] == "talk"


def test_a_copy_of_a_settled_file_is_a_new_track(bench):
    bench.up()
    bench.drop("one.md", "---\nharness_id: shell\n---\n```sh\necho ok\n```\n")
    bench.settled("one.md")
    bench.drop("two.md", bench.text("done", "one.md"))
    assert bench.settled("two.md") == "done"
    assert [row["track_id"] for row in bench.rows()] == ["one", "two"]
    assert bench.json("show", "one")["work"] != bench.json("show", "two")["work"]


def test_litter_and_odd_things_are_left_alone(bench, waiting):
    queued = bench.root / "tracks/queued"
    for name in (
        ".x.md.swp",
        "4913",
        "x.md~",
        "#x.md#",
        ".#y.md",
        "a.tmp",
        "b.part",
        "notes.txt",
        "c.sync-conflict-1.md",
    ):
        (queued / name).write_text("---\nharness_id: shell\n---\n```sh\ntouch /tmp/never\n```\n")
    os.mkfifo(queued / "fifo.md")
    (queued / "dir.md").mkdir()
    (queued / "link.md").symlink_to(bench.home / "elsewhere")
    before = set(os.listdir(queued))
    bench.up()
    bench.drop("real.md", "---\nharness_id: shell\n---\n```sh\necho ok\n```\n")
    assert bench.settled("real.md") == "done"
    assert set(os.listdir(queued)) == before
    needs = {row["subject"]: row["reason"] for row in bench.view()["needs_you"]}
    assert "fifo" in needs["fifo.md"]
    assert "directory" in needs["dir.md"]
    assert "symlink" in needs["link.md"]


def test_the_minutes_of_a_budget_are_enforced(bench):
    bench.up()
    bench.drop(
        "slow.md", "---\nharness_id: shell\nbudget: {minutes: 0.02}\n---\n```sh\necho begun; sleep 300\n```\n"
    )
    assert bench.settled("slow.md") == "failed"
    assert bench.rows()[0]["termination"] == "budget/minutes"
    assert "> begun" in bench.text("failed", "slow.md")


def test_two_files_with_one_id_get_two(bench):
    bench.up()
    for name in ("A b.md", "a-b.md"):
        bench.drop(name, "---\nharness_id: shell\n---\n```sh\necho ok\n```\n")
    bench.settled("A b.md")
    bench.settled("a-b.md")
    assert sorted(row["track_id"] for row in bench.rows()) == ["a-b", "a-b-2"]


def test_a_hundred_files_at_once_all_run_once(bench):
    bench.up()
    counter = bench.home / "counter"
    for number in range(100):
        bench.drop(
            f"many-{number}.md",
            f"---\nharness_id: shell\n---\n```sh\necho {number} | tee -a {counter}\n```\n",
        )
    for number in range(100):
        assert bench.settled(f"many-{number}.md", 120) == "done"
    assert sorted(map(int, counter.read_text().split())) == list(range(100))


def test_a_save_back_into_queued_is_an_edit_while_it_runs_and_just_after(bench, waiting):
    gate, text = bench.home / "gate", GATED.format(gate=bench.home / "gate")
    bench.up()
    path = bench.drop("again.md", text)
    session = bench.session("again.md")
    waiting((session / "started.json").exists, "it runs")
    path.write_text(text + "\nsaved while it ran\n")
    waiting(lambda: not path.exists(), "it is taken as an edit")
    active = bench.root / "tracks/active/again.md"
    waiting(lambda: "saved while it ran" in active.read_text(), "and merged")
    gate.touch()
    assert bench.settled("again.md") == "done"
    path.write_text(text + "\nsaved while it ran\n\nsaved just after\n")
    waiting(lambda: len(bench.sessions_named("again.md")) == 2, "it goes on with it")
    assert bench.settled("again.md") == "done"
    assert bench.text("done", "again.md").count("saved just after") == 1
    assert "saved just after" in (bench.sessions_named("again.md")[1] / "spec.md").read_text()
    assert [path.name.rsplit("-", 1)[0] for path in bench.sessions_named("again.md")] == [
        "again-1",
        "again-2",
    ]
    assert bench.folder("done") == ["again.md"]


def test_an_active_file_that_is_renamed_runs_once_and_stays_one(bench, waiting):
    gate, counter = bench.home / "gate", bench.home / "counter"
    bench.up()
    bench.drop("renamed.md", GATED.format(gate=gate).replace("until", f"echo run >> {counter}\nuntil"))
    session = bench.session("renamed.md")
    path = bench.root / "tracks/active/renamed.md"
    waiting(lambda: f"session: {session.name}" in path.read_text(), "its block")
    waiting(counter.exists, "it runs")
    path.rename(path.with_name("other-name.md"))
    time.sleep(7)
    gate.touch()
    waiting((session / "settled").exists, "it is settled")
    assert bench.folder("done") == ["other-name.md"]
    assert bench.folder("active") == bench.folder("queued") == bench.folder("failed") == []
    assert bench.text("done", "other-name.md").count("<!-- megaharness: result") == 1
    assert len(list((bench.root / "sessions").iterdir())) == 1
    assert counter.read_text() == "run\n"


def test_what_an_agent_puts_in_place_of_its_file_costs_no_slot(bench, waiting):
    bench.up()
    for name, deed in {
        "dir": "rm $f; mkdir $f",
        "link": "ln -sf /etc/hostname $f",
        "fifo": "rm $f; mkfifo $f",
    }.items():
        bench.drop(
            f"{name}.md",
            f"---\nharness_id: shell\n---\n```bash\nf={bench.root}/tracks/active/{name}.md\nsleep 0.5\n{deed}\necho did it\n```\n",
        )
    for name in ("dir", "link", "fifo"):
        session = bench.session(f"{name}.md")
        waiting((session / "settled").exists, f"{name} is settled; {bench.trouble()}", 90)
        assert "> did it" in bench.text("done", f"{name}.md")
        assert "sleep 0.5" in bench.text("done", f"{name}.md")
    assert bench.view()["running"] == []


def test_a_session_whose_files_were_damaged_ends_and_frees_its_slot(bench, waiting):
    bench.up()
    gate = bench.home / "gate"
    damage = {"spec": "spec.md", "place": "place.json"}
    for name in damage:
        bench.drop(f"{name}.md", GATED.format(gate=gate))
    for name, file in damage.items():
        session = bench.session(f"{name}.md")
        waiting((session / "started.json").exists, "it runs")
        path = session / file
        path.unlink()
        path.mkdir()
    gate.touch()
    for name in damage:
        session = bench.session(f"{name}.md")
        waiting((session / "settled").exists, f"{name} is settled; {bench.trouble()}", 120)
    assert bench.view()["running"] == []
    assert {row["track_id"] for row in bench.rows()} == set(damage)


def test_tracks_that_wait_for_each_other_are_told(bench, waiting):
    for one, other in (("hen", "egg"), ("egg", "hen")):
        bench.drop(f"{one}.md", f"---\nharness_id: shell\nafter: {other}\n---\n```sh\necho x\n```\n")
    bench.up()
    waiting(lambda: len(bench.view()["needs_you"]) == 2, "both need a person")
    assert "which waits for this one" in bench.mh("why", "hen")
