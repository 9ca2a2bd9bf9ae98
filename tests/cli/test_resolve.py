"""`mh resolve` before anything has run: what would be told, by which harness, in which phase, and why not the rest."""

from __future__ import annotations

import json

import pytest

TRACK = "---\nkind: fix\ndone_when: [{run: pytest -q}, it is nice]\n---\n# Do it\n\nplease\n"
SETTINGS = """
[harness.reader]
argv = ["cat", "{brief}"]

[harness.apart]
argv = ["cat", "{instructions}", "{brief}"]
"""


@pytest.fixture
def base(place):
    with place.settings.open("a") as settings:
        settings.write(SETTINGS)
    for path in (place.root / "md-db").rglob("*.md"):
        path.unlink()
    write(place, "instructions/all.md", "Never push.")
    write(place, "instructions/codex.md", "---\napplies_when: {harness_id: codex}\n---\nBe quick.")
    write(place, "instructions/swap.md", "---\napplies_when: {phase: swap}\n---\nYou take over.")
    write(place, "instructions/harness-translation-codex-reader.md", "Say shell, not Bash.")
    (place.home / "draft.md").write_text(TRACK)
    return place


def write(place, path, text):
    file = place.root / "md-db" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")
    return file


def test_what_a_draft_would_be_told(base):
    assert base.mh("resolve", "draft.md", "-H", "reader") == (
        "<instructions>\nNever push.\n</instructions>\n\n<task>\n# Do it\n\nplease\n</task>\n\n"
        "## Done when\n\nThese are judged after you have ended; your own word is not asked for.\n\n"
        "- check: `run: pytest -q`\n- it is nice\n\n"
        "## Where you are\n\nYou work in an empty git repository made for this task. "
        "If the task needs an existing repository, say so in a last line that begins with `BLOCKED: `, and stop.\n"
    )
    assert base.mh("resolve", "-", "-H", "reader", text=TRACK) == base.mh(
        "resolve", "draft.md", "-H", "reader"
    )
    assert base.mh("resolve", "draft.md", "-H", "apart").startswith(
        "==> instructions.md <==\n<instructions>\nNever push.\n</instructions>\n\n==> brief.md <==\n# Do it\n"
    )
    # It writes nothing: no session, no commit.
    assert list((base.root / "sessions").iterdir()) == []
    assert not (base.root / ".git/refs/megaharness").exists()


def test_a_harness_that_is_not_here_and_a_phase(base):
    told = base.mh("resolve", "draft.md", "-H", "codex/gpt-5.4")
    assert "Never push.\n\nBe quick.\n" in told
    assert "it would wait: no harness 'codex'" in told
    told = base.mh("resolve", "draft.md", "-H", "reader", "--phase", "swap", "--from", "codex")
    assert "Never push.\n\nYou take over.\n\nSay shell, not Bash.\n" in told
    assert "a swap from which harness?" in base.mh(
        "resolve", "draft.md", "-H", "reader", "--phase", "swap", code=2
    )


def test_why(base):
    why = base.mh("resolve", "draft.md", "-H", "reader", "--explain")
    assert "draft, attempt 1: reader\n  phase spawn, kind fix\n  not told yet" in why
    assert "1  instructions/all.md    always: it has no clauses" in why
    assert "instructions/codex.md  harness_id is reader, not codex" in why
    answer = json.loads(base.mh("resolve", "draft.md", "-H", "reader", "--json"))
    assert answer["record"]["context"] == {"harness_id": "reader", "kind": "fix", "phase": "spawn"}
    assert answer["record"]["revision"] is None
    assert (answer["at"], answer["rebuilt"], answer["attempt"]) == (None, None, 1)
    script = base.mh("resolve", "draft.md", "-H", "shell", "--explain")
    assert "shell reads no instructions: it gets the track's own text and nothing else" in script


def test_a_queued_track_and_its_project(base):
    write(base, "projects/notes.md", "---\ndone_when: [{exists: notes.md}]\n---\nInto `notes.md`.")
    base.mh("drop", "notes: write it down", "-H", "reader", "--name", "one")
    told = base.mh("resolve", "one")
    assert "<project>\nInto `notes.md`.\n</project>" in told
    assert "- check: `exists: notes.md`" in told
    assert base.mh("resolve", "tracks/queued/one.md") == told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing.md"], "there is no file nothing.md"),
        (["nobody"], "there is no track 'nobody'"),
        (["draft.md"], "no harness would run it: no harness is named"),
        (["draft.md", "--attempt", "1"], "draft.md is no track yet: it had no attempt"),
        (["draft.md", "--now"], "draft.md is no track yet"),
        (["bad.md", "-H", "reader"], "bad.md: line 2, done_wen: there is no key `done_wen`"),
        (["broken.md", "-H", "reader"], "projects/broken.md: line 2, repositry: there is no key `repositry`"),
    ],
)
def test_what_cannot_be_answered(base, words, said):
    (base.home / "bad.md").write_text("---\ndone_wen: x\n---\nx\n")
    (base.home / "broken.md").write_text("broken: do it\n")
    write(base, "projects/broken.md", "---\nrepositry: x\n---\nx")
    told = base.mh("resolve", *words, code=4 if words == ["nobody"] else 1 if words[0] == "broken.md" else 2)
    assert said in told


def test_a_document_that_cannot_be_read_is_named(base):
    write(base, "instructions/odd.md", "---\napplies_when: {kind: *x}\n---\nx")
    told = base.mh("resolve", "draft.md", "-H", "reader", code=1)
    assert "md-db/instructions/odd.md: line 2" in told
    assert 'applies_when: {kind: "*x"}' in told
