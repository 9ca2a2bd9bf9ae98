"""Bug reports of other programs of this kind, each as a file that a real daemon takes; inputs of ../shared/cases."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from daemon.spool import frontmatter as fm
from daemon.tracks.track import load
from tests.e2e.conftest import Bench

INPUTS = Path(__file__).resolve().parents[2].parent / "shared/cases/inputs"


def given(name: str) -> bytes:
    path = INPUTS / name
    if not path.exists():
        assert not os.environ.get("CI"), f"{path} is missing"
        pytest.skip(f"{path} is not here")
    return path.read_bytes()


def shell(keys: str, script: str = "echo ok") -> bytes:
    return f"---\n{keys}\nharness_id: shell\n---\n# t\n\n```sh\n{script}\n```\n".encode()


#: name -> its bytes, and what must stand in its reason: every part.
REFUSED: dict[str, tuple[bytes, tuple[str, ...]]] = {
    # 29: a colon that is not in quotes
    "29-deep": (shell("done_when:\n- run: echo a: b"), ("line 3", "column", 'run: "echo a: b"')),
    "29-crlf": (
        shell("kind: fix: this").replace(b"\n", b"\r\n"),
        ("line 2, column", 'kind: "fix: this"'),
    ),
    "29-bom": (b"\xef\xbb\xbf" + shell("model_id: a: b"), ("line 2, column", 'model_id: "a: b"')),
    # 32: a key twice
    "32-nested": (shell("budget:\n  usd: 1\n  usd: 100"), ("lines 3 and 4", "usd")),
    "32-apart": (shell("harness_id: fake"), ("lines 2 and 3", "harness_id")),
    "32-quoted": (shell('kind: a\n"kind": b'), ("lines 2 and 3", "kind")),
    "32-spellings": (shell("harness: fake"), ("line 3", "harness")),
    # 35: a glob that is not in quotes
    "35-scope": (shell("scope: *.tsx"), ("line 2", 'scope: "*.tsx"')),
    "35-all": (shell("scope: **/*"), ("line 2", 'scope: "**/*"')),
    "35-list": (shell("scope:\n- src\n- **/*.ts"), ("line 4", '- "**/*.ts"')),
    "35-flow": (shell("scope: [*.ts, src]"), ("line 2", '"*.ts"')),
    "35-check": (shell("done_when:\n- exists: *.whl"), ("line 3", 'exists: "*.whl"')),
    "33-no-time": (shell("after: 25:70"), ("line 2", "no such time")),
}
GIVEN = {
    "29_unquoted_colon.md": ("line 3, column", 'title: "Re: October booking (Split: Core)"'),
    "32_duplicate_keys.md": ("lines 4 and 5", "budget_usd"),
    "35_globs_star.mdc": ("line 3, column", 'globs: "**/*.ts, **/*.tsx"'),
}


@pytest.mark.slow
def test_cases_29_32_33_35_are_refused_with_line_and_way_out(bench: Bench, waiting: Any) -> None:
    """All at once: what is wrong is shown, then it lies in failed/ as it was, with the reason beside it; none ran."""
    files = {f"{name}.md": each for name, each in REFUSED.items()}
    files |= {f"{Path(name).stem}.md": (given(name), says) for name, says in GIVEN.items()}
    bench.up()
    for name, (data, _) in files.items():
        (bench.root / "tracks/.tmp" / name).write_bytes(data)
        (bench.root / "tracks/.tmp" / name).rename(bench.root / "tracks/queued" / name)
    waiting(lambda: set(bench.folder("failed")) >= set(files), f"all are refused; {bench.folder('queued')}")
    for name, (data, says) in files.items():
        assert (bench.root / "tracks/failed" / name).read_bytes() == data, name
        why = bench.text("failed", f"{name}.why.txt")
        for part in says:
            assert part in why, (name, why)
        assert name.removesuffix(".md") in bench.mh("why", f"tracks/failed/{name}")
    assert bench.rows() == []
    assert not list((bench.root / "sessions").iterdir())


@pytest.fixture
def variants() -> dict[str, bytes]:
    data = given("30_bom_crlf.md").replace(b"harness_id: codex", b"harness_id: shell")
    plain = (
        data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"Body", b"```sh\necho ok\n```")
    )
    crlf = plain.replace(b"\n", b"\r\n")
    return {
        "lf": plain,
        "crlf": crlf,
        "bom": b"\xef\xbb\xbf" + plain,
        "bom-crlf": b"\xef\xbb\xbf" + crlf,
        "blank": b"\n" + plain,
        "bom-blank-crlf": b"\xef\xbb\xbf\r\n\r\n" + crlf,
    }


@pytest.mark.slow
def test_case_30_is_run_as_its_plain_form_is_and_keeps_its_line_ends(
    bench: Bench, variants: dict[str, bytes]
) -> None:
    bench.up()
    for name, data in variants.items():
        (bench.root / "tracks/.tmp/x.md").write_bytes(data)
        (bench.root / "tracks/.tmp/x.md").rename(bench.root / "tracks/queued" / f"{name}.md")
    for name, data in variants.items():
        assert bench.settled(f"{name}.md") == "done", bench.trouble()
        after = (bench.root / "tracks/done" / f"{name}.md").read_bytes()
        fence = data.rindex(b"---")
        assert after.startswith(data[:fence]), name
        assert data[fence:].rstrip(b"\r\n") in after, name
        lone = after.replace(b"\r\n", b"").count(b"\n")
        assert (lone == 0) if b"\r\n" in data else (b"\r" not in after), name
        doc, plain = fm.read(after), fm.read(variants["lf"])
        assert {k: v for k, v in doc.meta.items() if k != fm.BLOCK} == plain.meta
    assert {row["harness_id"] for row in bench.rows()} == {"shell"}
    assert len(bench.rows()) == len(variants)


@pytest.mark.slow
def test_case_33_dates_stay_text_and_a_time_is_a_time(bench: Bench, waiting: Any) -> None:
    data = given("33_dates_times.md").replace(b"id: t33", b"id: t33\nharness_id: shell\nreviewed: 12:30:45")
    bench.up()
    for name, text in {
        "33.md": data.replace(b"Body", b"```sh\necho ok\n```"),
        "wait.md": shell("after: 22:30"),
        "base-60.md": shell("after: 2026-05-24\nnot_before: 1:30:00\npriority: 010"),
    }.items():
        (bench.root / "tracks/.tmp/x.md").write_bytes(text)
        (bench.root / "tracks/.tmp/x.md").rename(bench.root / "tracks/queued" / name)
    waiting(lambda: "waits until 22:30" in bench.mh("why", "wait"), "22:30 is the time 22:30")
    for name in ("33.md", "base-60.md"):
        assert bench.settled(name) == "done", bench.trouble()
    meta = fm.read((bench.root / "tracks/done/33.md").read_bytes()).meta
    assert meta["created"] == "2026-05-24"
    assert meta["updated"] == "2026-05-24T10:00:00+02:00"
    assert (meta["not_before"], meta["reviewed"]) == ("22:30", "12:30:45")
    for row in bench.rows():
        again = json.loads(json.dumps(row))
        assert again == row
        for key, value in row.items():
            assert not key.endswith("_at") or isinstance(value, str), (key, value)
    assert load(shell("priority: 010"), "x").track.priority == 10
    assert bench.text("done", "base-60.md").count("not_before: 1:30:00\n") == 1
