"""Real Markdown files of other people: tasks, rules, skills, notes, and the fixtures of other readers."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from daemon.errors import DocumentError
from daemon.spool import frontmatter as fm
from daemon.tracks import track

CORPUS = Path(__file__).parents[2].parent / "shared/corpus/d_md"
FILES = sorted(path.relative_to(CORPUS).as_posix() for path in CORPUS.rglob("*") if path.is_file())
BLOCK = {"id": "a-b", "status": "active", "attempt": 2, "flags": ["slow", "b c"], "reason": None}
KEY = "megaharness"

pytestmark = pytest.mark.skipif(
    not FILES and not os.environ.get("CI"), reason=f"{CORPUS} is not here; on CI it must be"
)


def test_there_are_enough_of_every_sort() -> None:
    loaded, refused, plain = 0, 0, 0
    for name in FILES:
        try:
            found = track.load((CORPUS / name).read_bytes(), Path(name).name)
            loaded += 1
            plain += not found.document.has_frontmatter
        except DocumentError:
            refused += 1
    assert len(FILES) >= 145
    assert loaded >= 116
    assert refused >= 29
    assert loaded - plain >= 88


@pytest.mark.parametrize("name", FILES)
def test_it_loads_or_is_refused_with_its_place(name: str) -> None:
    data = (CORPUS / name).read_bytes()
    try:
        loaded = track.load(data, Path(name).name)
    except DocumentError as error:
        assert error.problems
        for problem in error.problems:
            assert problem.line is not None or problem.offset is not None
            assert problem.hint
        return
    assert loaded.title
    assert loaded.document.meta or not _seems_to_have_frontmatter(data.decode())


def _seems_to_have_frontmatter(text: str) -> bool:
    """By other means than the reader's: a rule first, the same rule again, and a name with a sign between them."""
    lines = [line.strip() for line in text.strip("\ufeff \t\r\n").splitlines()]
    if not lines or not re.match(r"-{3,}|\+{3,}", lines[0]):
        return False
    sign = lines[0][:3]
    end = next((n for n, line in enumerate(lines[1:], 1) if line.startswith(sign) or line == "..."), None)
    return end is not None and any(re.match(r"[\w-]+\s*[:=]", line) for line in lines[1:end])


@pytest.mark.parametrize("name", FILES)
def test_a_patch_and_an_append_leave_every_other_byte_alone(name: str) -> None:
    data = (CORPUS / name).read_bytes()
    try:
        old = fm.read(data)
    except DocumentError:
        for patch in (lambda: fm.set_block(data, KEY, BLOCK), lambda: fm.append(data, "x")):
            with pytest.raises(DocumentError):
                patch()
        return
    nl = old.newline.encode()
    new = fm.set_block(data, KEY, BLOCK)
    doc = fm.read(new)
    span = doc.spans[KEY]
    fences = b"" if old.has_frontmatter else b"---" + nl + b"---" + nl
    rest = data[: old.body_offset] + fences + data[old.body_offset :] if fences else data
    assert new[: span.start] + new[span.end :] == rest
    assert (doc.body, doc.bom, {**doc.meta, KEY: None}) == (old.body, old.bom, {**old.meta, KEY: None})
    assert fm.set_block(new, KEY, BLOCK) == new
    removed = fm.remove_block(new, KEY)
    # Fences that held nothing go with the block.
    assert removed == data or (old.has_frontmatter and not old.meta and fm.read(removed).body == old.body)
    _one_value_each(data, old)
    after = fm.append(data, "a result")
    assert after.startswith(data)
    assert after[len(data) :].strip() == b"a result"
    assert fm.read(after).meta == old.meta


def _one_value_each(data: bytes, old: fm.Document) -> None:
    for key, span in old.spans.items():
        if not span.scalar:
            continue
        new = fm.set_scalar(data, key, "new: value")
        assert fm.read(new).meta == {**old.meta, key: "new: value"}, key
        assert new.startswith(data[: span.value_start]), key
        assert new.endswith(data[span.value_end :]), key
    new = fm.set_scalar(data, "harness_id", "shell")
    doc = fm.read(new)
    assert (doc.meta, doc.body) == ({**old.meta, "harness_id": "shell"}, old.body)


@pytest.mark.parametrize("name", FILES)
def test_a_mark_and_other_line_ends_change_nothing_that_it_says(name: str) -> None:
    data = (CORPUS / name).read_bytes()
    lf = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    try:
        plain = fm.read(lf)
    except DocumentError as error:
        lines = [problem.line for problem in error.problems]
        if None not in lines:
            with pytest.raises(DocumentError) as caught:
                fm.read(b"\xef\xbb\xbf" + lf.replace(b"\n", b"\r\n"))
            assert [problem.line for problem in caught.value.problems] == lines
        return
    for mark in (b"", b"\xef\xbb\xbf"):
        for end in (b"\n", b"\r\n"):
            variant = mark + lf.replace(b"\n", end)
            doc = fm.read(variant)
            assert (doc.meta, doc.bom) == (plain.meta, bool(mark))
            assert doc.body.replace("\r\n", "\n") == plain.body
            if b"\n" in variant:
                assert doc.newline == end.decode()
                ends = fm.set_block(variant, KEY, BLOCK).replace(b"\r\n", b"")
                assert (b"\n" in ends) == (end == b"\n")
