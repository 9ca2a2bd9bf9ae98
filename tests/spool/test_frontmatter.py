from __future__ import annotations

import os
import time
from pathlib import Path

import frontmatter as library
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from daemon.errors import DocumentError, PatchError, Problem
from daemon.spool import frontmatter as fm

SHARED = Path(__file__).parents[2].parent / "shared"
LOADERS = [yaml.SafeLoader, *([yaml.CSafeLoader] if hasattr(yaml, "CSafeLoader") else [])]
BLOCK = {"id": "a-b", "status": "active", "attempt": 2, "flags": ["slow", "b c"], "reason": None}


def shared(*parts: str) -> Path:
    path = SHARED.joinpath(*parts)
    if not path.exists():
        assert not os.environ.get("CI"), f"{path} is missing"
        pytest.skip(f"{path} is not here")
    return path


def problems(data: bytes | str) -> tuple[Problem, ...]:
    with pytest.raises(DocumentError) as caught:
        fm.read(data.encode() if isinstance(data, str) else data)
    assert caught.value.problems
    return caught.value.problems


def problem(data: bytes | str) -> Problem:
    found = problems(data)
    assert len(found) == 1, found
    return found[0]


# --- reading


def test_every_scalar_is_the_text_that_was_written() -> None:
    doc = fm.read(
        b"---\nat: 22:30\nn: 010\nno: no\nv: 1.10\nday: 2026-05-24\nyes: 'true'\nempty:\ntilde: ~\nnul: null\n"
        b"quoted: \"null\"\nnothing: ''\nlist: [1, off, ~]\nmap: {a: 0x10, 1: 1e3}\ntext: |\n  a\n  b\ncontent: x\n---\nBody\n"
    )
    assert doc.meta == {
        "at": "22:30", "n": "010", "no": "no", "v": "1.10", "day": "2026-05-24", "yes": "true", "empty": None,
        "tilde": None, "nul": None, "quoted": "null", "nothing": "", "list": ["1", "off", None],
        "map": {"a": "0x10", "1": "1e3"}, "text": "a\nb\n", "content": "x",
    }  # fmt: skip
    assert doc.body == "Body\n"


@pytest.mark.parametrize("loader", LOADERS)
def test_lines_are_those_of_the_file(loader: type) -> None:
    front = fm.Front.at("a: 1\n\n# c\nb:\n  - x\n  - run: y\n    z: 'ü€😀'\nc: {d: e,\n  f: g}\n", 3)
    lines = fm.StrictHandler(loader).compose(front).lines
    assert lines[("a",)] == 3
    assert lines[("b",)] == 6
    assert lines[("b", 0)] == 7
    assert lines[("b", 1, "run")] == 8
    assert lines[("b", 1, "z")] == 9
    assert lines[("c", "f")] == 11


@pytest.mark.parametrize("loader", LOADERS)
def test_spans_are_whole_lines_of_one_key(loader: type) -> None:
    front = "a: ü # c\n# own\nb:\n  - 😀\n\n# between\nc:\nd: |\n  text\n\n  more\n\n# end\n"
    spans = fm.StrictHandler(loader).compose(front).spans
    assert {k: front[s.start : s.end] for k, s in spans.items()} == {
        "a": "a: ü # c\n",
        "b": "b:\n  - 😀\n",
        "c": "c:\n",
        "d": "d: |\n  text\n\n  more\n",
    }
    assert front[spans["a"].value_start : spans["a"].value_end] == "ü"


def test_line_of_falls_back_to_what_is_around() -> None:
    doc = fm.read(b"\n---\na: {b: c}\n---\n")
    assert doc.line_of("a", "b") == 3
    assert doc.line_of("a", "x") == 3
    assert doc.line_of("x") == 2
    assert fm.read(b"text").line_of("x") is None


@pytest.mark.parametrize(
    "text",
    ["", "\n\n", "- [ ] do the thing\n", "one line", "---- \nx", "- - -\nx", "***\nx", "--- a/x.c\n+++ b/x.c\n@@\n---\n",
     "text\n---\nmore\n---\n", "# T\n\n---\na: b\n---\n", "--version should print 1.2", "---x\n", "+++\nan addition\n", "----\nA rule.\n----\n",
     "----\nNote: a rule before a note\n"],
)  # fmt: skip
def test_without_frontmatter_all_is_body(text: str) -> None:
    doc = fm.read(text.encode())
    assert (doc.meta, doc.body, doc.has_frontmatter, doc.body_offset) == ({}, text, False, 0)


@pytest.mark.parametrize(
    ("text", "meta", "body"),
    [
        ("---\na: b\n---\nx\n", {"a": "b"}, "x\n"),
        ("---\na: b\n---", {"a": "b"}, ""),
        ("---  \na: b\n--- \t\nx", {"a": "b"}, "x"),
        ("---\na: b\n...\nx\n---\n", {"a": "b"}, "x\n---\n"),
        ("\n \n---\na: b\n---\n\n\nx", {"a": "b"}, "\n\nx"),
        ("---\r\na: b\r\n---\r\nx\r\n", {"a": "b"}, "x\r\n"),
        ("\ufeff---\na: b\n---\nx", {"a": "b"}, "x"),
        ("---\n---\nx", {}, "x"),
        ("---\n\n# only a comment\n---\nx", {}, "x"),
        ("---\n  a: b\n  c: d\n---\nx", {"a": "b", "c": "d"}, "x"),
        ("---\n? a\n: b\n---\n", {"a": "b"}, ""),
    ],
)
def test_fences(text: str, meta: dict[str, str], body: str) -> None:
    data = text.encode()
    doc = fm.read(data)
    assert (doc.meta, doc.body) == (meta, body)
    assert doc.has_frontmatter
    assert data[doc.body_offset :].decode() == body
    assert doc.bom == data.startswith(b"\xef\xbb\xbf")
    assert doc.newline == ("\r\n" if "\r\n" in text else "\n")


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("---\n", 1, "unclosed"),
        ("---", 1, "unclosed"),
        ("---\nA rule, then text.\n\nMore.\n", 1, "unclosed"),
        ("\n---\na: b\n ---\nx", 2, "line 4 is only like one"),
        ("---\na: b\n----\nx", 1, "line 3 is only like one"),
        ("---\na: b\n—-\nx", 1, "line 3 is only like one"),
        (" ---\na: b\n---\n", 1, "indented"),
        ("\ufeff\ufeff---\na: b\n---\n", 1, "invisible"),
        ("\u200b---\na: b\n---\n", 1, "invisible"),
        ("---\u00a0\na: b\n---\n", 1, "invisible"),
        ("---\ra: b\r---\rx", 1, "lone CR"),
        ("---yaml\na: b\n---\n", 1, "behind it"),
        ("--- # settings\na: b\n---\n", 1, "behind it"),
        ("—-\nkind: fix\n---\nx", 1, "typographic"),
        ("----\nkind: fix\n----\nx", 1, "more than three dashes"),
        ("\ufeff\r\n-----\r\nharness-id: shell\r\n---\r\nx", 2, "more than three dashes"),
        ('+++\nharness_id = "shell"\n+++\nx', 1, "TOML"),
        ("+++\r\n[budget]\r\nusd = 1\r\n+++\r\n", 1, "TOML"),
        ("---\n- a\n---\n", 2, "not `key: value`"),
        ("---\njust text\n---\n", 2, "not `key: value`"),
        ("---\n~\n---\n", 2, "not `key: value`"),
        ("---\n{a: b}\n---\n", 2, "braces"),
        ("---\na: 1\nb: 2\na: 3\n---\n", 4, "lines 2 and 4"),
        ("---\nx:\n  a: 1\n  a: 1\n---\n", 4, "lines 3 and 4"),
        ("---\na: &x b\n---\n", 2, "anchor"),
        ("---\na: *x\n---\n", 2, "alias"),
        ("---\na: !codex\n---\n", 2, "tag"),
        ("---\na: !!str b\n---\n", 2, "tag"),
        ("---\na: !t {b: c}\n---\n", 2, "tag"),
        ("---\n<<: {a: b}\n---\n", 2, "merge"),
        ("---\na: b\n--- c: d\n---\n", 3, "second YAML document"),
        ("---\n%YAML 1.1\n---\n", 2, "%"),
        ("---\n? [a]\n: b\n---\n", 2, "a key must be text"),
        ("---\n: b\n---\n", 2, ""),
        ("---\n'': b\n---\n", 2, "missing"),
        ("---\na:\n\t- b\n---\n", 3, "tab"),
        ("---\na: b\nno key here\nc: d\n---\n", 3, "not `key: value`"),
        ("---\na: b\n  c: d\n---\n", 3, "same column"),
        ("---\na: 'b\nc: d\n---\n", 2, "not closed"),
        ("---\na: [b\nc: d\n---\n", 2, "close them with ]"),
        ("---\nfoo: 'it's'\n---\n", 2, "closing quote"),
        ("---\na: \x1b[0m\n---\n", 2, "U+001B"),
        ("---\na: b\nc: d\u2028e\n---\n", 3, "U+2028"),
        ("---\na: b\rc: d\n---\n", 2, "U+000D"),
        ('---\na: "\\0"\n---\n', 2, ""),
        ("---\na: " + "[" * 50 + "]" * 50 + "\n---\n", 2, "50 deep"),
        ("---\na: " + "[" * 5000 + "\n---\n", 2, "50 deep"),
    ],
)  # fmt: skip
def test_refusals_name_the_line(text: str, line: int, says: str) -> None:
    first = problems(text)[0]
    assert first.line == line
    assert says in str(first)
    assert first.hint


def test_fifty_deep_is_read() -> None:
    assert "a" in fm.read(("---\na: " + "[" * 49 + "]" * 49 + "\n---\n").encode()).meta


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("harness_id: !codex", 'harness_id: "!codex"'),
        ("scope: *.ts", 'scope: "*.ts"'),
        ("scope: **/*.ts, **/*.tsx # all", 'scope: "**/*.ts, **/*.tsx"'),
        ("scope: [*.ts, src, 'a b']", "scope: [\"*.ts\", src, 'a b']"),
        ("scope:\n  - *.ts", '- "*.ts"'),
        ("done_when:\n  - run: a: b", '- run: "a: b"'),
        ("a: &b", 'a: "&b"'),
        ("a: @b", 'a: "@b"'),
        ("a: %b", 'a: "%b"'),
        ("a: `b`", 'a: "`b`"'),
        ("a: Re: x", 'a: "Re: x"'),
        ('a: Re: "x"', "a: 'Re: \"x\"'"),
        ("a: {{ title }}", 'a: "{{ title }}"'),
        ('a: "x" y', "a: '\"x\" y'"),
        ("a: | b", 'a: "| b"'),
    ],
)
def test_the_hint_is_the_quoted_form_and_right(loader: type, line: str, hint: str) -> None:
    with pytest.raises(DocumentError) as caught:
        fm.StrictHandler(loader).compose(fm.Front.at(line + "\n", 2))
    first = caught.value.problems[0]
    assert first.hint == hint
    assert first.line == 2 + line.count("\n")
    assert first.field == ("scope" if hint.startswith('- "') else hint.removeprefix("- ").partition(":")[0])
    assert fm.StrictHandler(loader).compose(f"x:\n{hint}\n" if hint.startswith("-") else f"{hint}\n").meta


def test_all_problems_are_found_at_once() -> None:
    found = problems("---\na: 1\na: 2\nb: *x\nc: !y z\nd: [e\n---\n")
    assert [p.line for p in found] == [3, 4, 5, 6]


def test_limits_of_size() -> None:
    exact = b"---\na: b\n---\n"
    assert fm.read(exact + b"x" * (fm.MAX_FILE - len(exact))).meta == {"a": "b"}
    assert "1048577 bytes" in str(problem(b"x" * (fm.MAX_FILE + 1)))
    full = "---\na: " + "x" * (fm.MAX_FRONTMATTER - 4) + "\n---\n"
    assert len(str(fm.read(full.encode()).meta["a"])) == fm.MAX_FRONTMATTER - 4
    assert "65537 bytes" in str(problem(full.replace("a: ", "a: x", 1)))


def test_bytes_that_are_no_text_are_named_by_offset() -> None:
    assert problem(b"abc\xff").offset == 3
    assert problem(b"---\na: \xe9\n---\n").offset == 7
    assert "UTF-16" in str(problem("hello".encode("utf-16")))
    assert problem(b"ab\0c").offset == 2
    assert problem(b"---\na: b\n---\nx\0").offset == 14


# --- cases and corpus


def test_case_29_unquoted_colon() -> None:
    found = problem(shared("cases", "inputs", "29_unquoted_colon.md").read_bytes())
    assert (found.line, found.field) == (3, "title")
    assert found.column is not None
    assert found.hint == 'title: "Re: October booking (Split: Core)"'


def test_case_30_bom_crlf_and_blank_line() -> None:
    data = shared("cases", "inputs", "30_bom_crlf.md").read_bytes()
    plain = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    for variant in (data, plain, b"\n" + plain, b"\xef\xbb\xbf\r\n" + data[3:]):
        assert fm.read(variant).meta == fm.read(plain).meta != {}
    assert b"\n" not in fm.set_block(data, "megaharness", BLOCK).replace(b"\r\n", b"")
    assert fm.set_block(data, "megaharness", BLOCK).startswith(data[: data.rindex(b"---")])


def test_case_32_duplicate_keys() -> None:
    found = problem(shared("cases", "inputs", "32_duplicate_keys.md").read_bytes())
    assert (found.line, found.field) == (5, "budget_usd")
    assert "lines 4 and 5" in found.message


def test_case_33_dates_and_times_are_text() -> None:
    meta = fm.read(shared("cases", "inputs", "33_dates_times.md").read_bytes()).meta
    assert meta["created"] == "2026-05-24"
    assert meta["updated"] == "2026-05-24T10:00:00+02:00"
    assert meta["not_before"] == "22:30"


def test_case_35_leading_star_is_reported_with_the_way_out() -> None:
    found = problem(shared("cases", "inputs", "35_globs_star.mdc").read_bytes())
    assert (found.line, found.field, found.hint) == (3, "globs", 'globs: "**/*.ts, **/*.tsx"')


# --- python-frontmatter


def test_python_frontmatter_reads_strictly_through_the_handler() -> None:
    handler = fm.StrictHandler()
    meta, body = library.parse("---\nat: 22:30\ncontent: x\n---\nBody\n", handler=handler)
    assert (meta, body) == ({"at": "22:30", "content": "x"}, "Body")
    assert library.parse("\ufeff---\nat: 22:30\n...\nBody", handler=handler)[0] == {"at": "22:30"}
    assert library.parse("no frontmatter", handler=handler) == ({}, "no frontmatter")
    assert library.loads("---\na: no\n---\nx", handler=handler)["a"] == "no"
    assert handler.detect("---\na: b\n---\n")
    assert not handler.detect("text")


@pytest.mark.parametrize("text", ["---\na: b\n", "---\na: *b\n---\n", "---\n- a\n---\n"])
def test_python_frontmatter_is_never_silent(text: str) -> None:
    with pytest.raises(DocumentError):
        library.parse(text, handler=fm.StrictHandler())


def test_nothing_is_dumped() -> None:
    with pytest.raises(PatchError):
        library.dumps(library.loads("---\na: b\n---\nx", handler=fm.StrictHandler()))


# --- patching


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"body", b"---\nmegaharness:\n  id: x\n---\nbody"),
        (b"", b"---\nmegaharness:\n  id: x\n---\n"),
        (b"\xef\xbb\xbfbody\r\n", b"\xef\xbb\xbf---\r\nmegaharness:\r\n  id: x\r\n---\r\nbody\r\n"),
        (b"---\na: b # c\n# d\n---\nx", b"---\na: b # c\n# d\nmegaharness:\n  id: x\n---\nx"),
        (b"---\na: b\n---", b"---\na: b\nmegaharness:\n  id: x\n---"),
        (b"---\n  a: b\n---\n", b"---\n  a: b\n  megaharness:\n    id: x\n---\n"),
        (b"---\na: |\n  b\n\n...\n", b"---\na: |\n  b\n\nmegaharness:\n  id: x\n...\n"),
        (b"---\na: |+\n  b\n\n---\n", b"---\na: |+\n  b\n\nmegaharness:\n  id: x\n---\n"),
        (b"---\n---\n", b"---\nmegaharness:\n  id: x\n---\n"),
        (
            b"---\na: b\nmegaharness:\n  id: y\n  status: done\n\n# mine\n---\nx",
            b"---\na: b\nmegaharness:\n  id: x\n\n# mine\n---\nx",
        ),
        (b"---\nmegaharness: {id: y} # old\na: b\n---\n", b"---\na: b\nmegaharness:\n  id: x\n---\n"),
        (b"---\nmegaharness:\n---\n", b"---\nmegaharness:\n  id: x\n---\n"),
    ],
)
def test_set_block(old: bytes, new: bytes) -> None:
    assert fm.set_block(old, "megaharness", {"id": "x"}) == new
    assert fm.set_block(new, "megaharness", {"id": "x"}) == new


def test_a_block_of_every_sort_of_value_reads_back() -> None:
    doc = fm.read(
        fm.set_block(b"x", "megaharness", {**BLOCK, "text": 'a: b # c\n"\\', "n": -1, "nul": "null"})
    )
    assert doc.meta["megaharness"] == {
        "id": "a-b", "status": "active", "attempt": "2", "flags": ["slow", "b c"], "reason": None,
        "text": "a: b # c\n\"\\", "n": "-1", "nul": "null",
    }  # fmt: skip
    assert fm.read(fm.set_block(b"x", "megaharness", {})).meta == {"megaharness": {}}


def test_remove_block_keeps_fences_that_hold_something_or_are_needed() -> None:
    for old in (
        b"---\n# c\n---\nx",
        b"---\na: b\n---\nx",
        b"x\n",
        b"\xef\xbb\xbfx",
        b"",
        b"\n\n---\na: b\n---\n",
    ):
        assert fm.remove_block(fm.set_block(old, "megaharness", BLOCK), "megaharness") == old
        assert fm.remove_block(old, "megaharness") == old
    for old in (b"\n---\nmegaharness: {}\n---\nx", b"---\nmegaharness: {}\n---\n---\nrule\n"):
        removed = fm.remove_block(old, "megaharness")
        assert fm.read(removed).meta == {}
        assert fm.read(removed).body == fm.read(old).body


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"---\nharness_id: a # why\nb: c\n---\n", b"---\nharness_id: codex # why\nb: c\n---\n"),
        (b"---\nharness_id:   'a b'   # why\n---\n", b"---\nharness_id:   codex   # why\n---\n"),
        (b"---\nharness_id:\nb: c\n---\n", b"---\nharness_id: codex\nb: c\n---\n"),
        (b"---\nharness_id:  # why\n---\n", b"---\nharness_id: codex  # why\n---\n"),
        (b"---\nharness_id: |\n  a\nb: c\n---\n", b"---\nharness_id: codex\nb: c\n---\n"),
        (b"---\nb: \xc3\xbc\nharness_id: a\n---\n", b"---\nb: \xc3\xbc\nharness_id: codex\n---\n"),
        (b"---\na: b\n---\nx", b"---\na: b\nharness_id: codex\n---\nx"),
        (
            b"---\na: b\n# c\nmegaharness:\n  id: x\n---\n",
            b"---\na: b\n# c\nharness_id: codex\nmegaharness:\n  id: x\n---\n",
        ),
        (b"x\r\n", b"---\r\nharness_id: codex\r\n---\r\nx\r\n"),
    ],
)
def test_set_scalar(old: bytes, new: bytes) -> None:
    assert fm.set_scalar(old, "harness_id", "codex") == new


def test_set_scalar_refuses_what_is_no_scalar() -> None:
    with pytest.raises(PatchError, match="list or a mapping"):
        fm.set_scalar(b"---\na: [b]\n---\n", "a", "c")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"", b"r\n"),
        (b"x", b"x\n\nr\n"),
        (b"x\n", b"x\n\nr\n"),
        (b"x\n\n", b"x\n\nr\n"),
        (b"x\r\n", b"x\r\n\r\nr\r\n"),
        (b"---\na: b\n---", b"---\na: b\n---\n\nr\n"),
        (b"---\na: b\n---\n", b"---\na: b\n---\n\nr\n"),
        (b"\xef\xbb\xbfx", b"\xef\xbb\xbfx\n\nr\n"),
    ],
)
def test_append(old: bytes, new: bytes) -> None:
    assert fm.append(old, "r") == new
    assert fm.append(old, "r\r\n") == new
    assert fm.append(old, "") == old


def test_append_replaces_what_would_make_the_file_unreadable() -> None:
    assert fm.append(b"x", "a\0b\udcb2") == "x\n\na\ufffdb\ufffd\n".encode()


def test_a_patch_that_would_change_more_is_refused() -> None:
    with pytest.raises(PatchError):
        fm.append(b"", "---\na: b\n---\n")
    with pytest.raises(PatchError):
        fm.set_block(b"x" * fm.MAX_FILE, "megaharness", {"id": "x"})
    with pytest.raises(PatchError):
        fm.set_scalar(b"---\na: b\n---\n", "c", "x" * fm.MAX_FRONTMATTER)
    with pytest.raises(DocumentError):
        fm.set_block(b"---\na: b\n", "megaharness", {"id": "x"})


# --- properties

quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
frontmatters = st.sampled_from(
    [
        None, "", "# only a comment\n", "a: b\n", "a: b # c\n\n# d\n", "  a: b\n", "a: 'x''y'\nb: \"\\u00fc\"\n",
        "a:\n- b\n- c: d\n  # e\n", "a: |+\n  b\n\n\n", "a: >-\n  b\n  c\n\n# end\n", "a: {b: [c, 'd']}\n", "a:\n",
        "kind: fix\nmegaharness:\n  id: old\n  flags: [x]\n# after\n", "megaharness: {id: old}\nü: 😀\n",
        "megaharness:\n  note: |\n    x\n\n  # c\nz: ~\n", "a: 1\nmegaharness:\n",
    ]
)  # fmt: skip
bodies = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60) | st.sampled_from(
    [
        "",
        "\n",
        "---\n",
        "---\nx\n---\n",
        "\n---\na: b\n---\n",
        "x",
        "x\n\n\n",
        "a\r\nb\r\n",
        "# T\n\ntext",
        "\ufeffx",
        "...",
    ]
)
texts = st.text(max_size=30)
values = texts | st.integers() | st.none() | st.lists(texts, max_size=3)
blocks = st.dictionaries(st.text("abcxyz_", min_size=1, max_size=8) | texts.filter(bool), values, max_size=4)


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    front, body = draw(frontmatters), draw(bodies)
    text = body if front is None else f"---\n{front}---{draw(st.sampled_from(['', ' ']))}\n{body}"
    if draw(st.booleans()):
        text = text.replace("\r\n", "\n").replace("\n", "\r\n")
    return (b"\xef\xbb\xbf" if draw(st.booleans()) else b"") + text.encode()


def readable(data: bytes) -> fm.Document | None:
    try:
        return fm.read(data)
    except DocumentError:
        return None


def clean(value: object) -> object:
    if isinstance(value, list):
        return [clean(v) for v in value]
    return None if value is None else fm._UNWRITABLE.sub("\ufffd", str(value))


@quick
@given(documents(), blocks)
def test_set_block_leaves_every_other_byte_alone(
    data: bytes, block: dict[str, str | int | list[str] | None]
) -> None:
    old = readable(data)
    names = [clean(k) for k in block]
    if old is None or len(set(names)) < len(names):
        return
    new = fm.set_block(data, "megaharness", block)
    doc = fm.read(new)
    assert doc.meta["megaharness"] == {clean(k): clean(v) for k, v in block.items()}
    assert list(doc.meta)[-1] == "megaharness"
    assert (doc.body, doc.bom, doc.newline) == (old.body, old.bom, doc.newline)
    span, was = doc.spans["megaharness"], old.spans.get("megaharness")
    rest = new[: span.start] + new[span.end :]
    before = data if was is None else data[: was.start] + data[was.end :]
    nl = old.newline.encode()
    fences = b"---" + nl + b"---" + nl
    assert rest == (
        before if old.has_frontmatter else data[: old.body_offset] + fences + data[old.body_offset :]
    )
    assert fm.set_block(new, "megaharness", block) == new
    if was is None:
        removed = fm.remove_block(new, "megaharness")
        assert removed == data or (old.has_frontmatter and not old.meta and fm.read(removed).body == old.body)


@quick
@given(documents(), texts)
def test_append_only_adds(data: bytes, text: str) -> None:
    old = readable(data)
    if old is None:
        return
    try:
        new = fm.append(data, text)
    except PatchError:
        assert not old.has_frontmatter  # the text would have become the frontmatter
        assert not old.body.strip("\r\n\t ")
        return
    doc = fm.read(new)
    assert new.startswith(data)
    assert doc.meta == old.meta
    assert doc.body.startswith(old.body)


@quick
@given(documents(), st.sampled_from(["a", "harness_id"]), texts)
def test_set_scalar_changes_one_value(data: bytes, key: str, value: str) -> None:
    old = readable(data)
    if old is None or isinstance(old.meta.get(key), list | dict):
        return
    new = fm.set_scalar(data, key, value)
    doc = fm.read(new)
    assert doc.meta == {**old.meta, key: clean(value)}
    assert doc.body == old.body
    assert doc.newline == old.newline
    if key in old.spans:
        was = old.spans[key]
        assert new.startswith(data[: was.value_start])
        assert new.endswith(data[was.value_end :])
    elif old.has_frontmatter:
        now = doc.spans[key]
        assert new[: now.start] + new[now.end :] == data
    assert fm.set_scalar(new, key, value) == new


@st.composite
def with_a_block_anywhere(draw: st.DrawFn) -> bytes:
    """Documents of keys, comments and blank lines, with the daemon's block among them."""
    keys = draw(st.lists(st.sampled_from("abcdéü"), unique=True, max_size=4))
    value = st.sampled_from(
        [
            "b",
            "'x # y'",
            '"\\u00fc: 1"',
            "|\n    two\n\n    lines",
            "[a, 'b']",
            "{c: d}",
            "",
            "日本 # why",
            "\n  - e\n  # f\n  - g",
        ]
    )
    parts = [f"{key}: {draw(value)}\n" for key in keys]
    block = draw(
        st.sampled_from(["megaharness:\n  id: x\n", "megaharness: {id: x} # ours\n", "megaharness:\n"])
    )
    parts.insert(draw(st.integers(0, len(parts))), block)
    between = st.sampled_from(["", "# a comment\n", "\n", "\n# é\n\n"])
    text = "---\n" + "".join(draw(between) + part for part in parts) + draw(between)
    text += draw(st.sampled_from(["---\n", "...\n", "---"]))
    if text.endswith("\n"):
        text += draw(bodies)
    if draw(st.booleans()):
        text = text.replace("\r\n", "\n").replace("\n", "\r\n")
    return (b"\xef\xbb\xbf" if draw(st.booleans()) else b"") + text.encode()


@quick
@given(with_a_block_anywhere(), blocks)
def test_a_block_that_is_taken_out_takes_nothing_else_with_it(
    data: bytes, block: dict[str, str | int | list[str] | None]
) -> None:
    old = fm.read(data)
    span = old.spans["megaharness"]
    rest = {key: value for key, value in old.meta.items() if key != "megaharness"}
    new = fm.remove_block(data, "megaharness")
    doc = fm.read(new)
    assert (doc.meta, doc.body, doc.bom) == (rest, old.body, old.bom)
    bare = data[: span.start] + data[span.end :]
    assert new == bare or (not rest and not doc.has_frontmatter)
    assert fm.remove_block(new, "megaharness") == new
    # In its place or at the end: it makes no difference to what else stands there.
    moved = fm.set_block(data, "megaharness", {str(clean(key)): value for key, value in block.items()})
    where = fm.read(moved).spans["megaharness"]
    assert moved[: where.start] + moved[where.end :] == bare


fence_like = st.lists(
    st.sampled_from(
        ["---", "...", "\n", "\r\n", "\r", " ", "\t", "a", ":", ": ", "- ", "'", '"', "#", "[", "]", "{", "}", ",", "*",
         "&x ", "!", "|", ">", "%", "@", "?", "\\", "\ufeff", "\u2028", "\x85", "ü", "😀", "\0", "\x1b", "<<", "~"]
    ),
    max_size=25,
).map("".join)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    st.binary(max_size=40)
    | fence_like.map(str.encode)
    | fence_like.map(lambda s: f"---\n{s}\n---\nx".encode())
)
@example(b'---\na: "\\U00110000"\n---\n')
@example(b'---\na: "\\ud800"\n---\n')
@example(b"---\n- a: &b\n  *b : c\n---\n")
def test_reading_any_bytes_ends_in_a_document_or_a_refusal(data: bytes) -> None:
    doc = readable(data)
    if doc is not None:
        assert doc.body.encode() == data[doc.body_offset :]
        assert doc.has_frontmatter or not doc.meta
        assert set(doc.spans) == set(doc.meta)


@settings(max_examples=300, deadline=None)
@given(fence_like)
def test_both_yaml_parsers_say_the_same(front: str) -> None:
    outcomes = []
    for loader in LOADERS:
        try:
            composed = fm.StrictHandler(loader).compose(front + "\n")
            outcomes.append((composed.meta, composed.lines, composed.spans))
        except DocumentError:
            outcomes.append(None)
    read = [o for o in outcomes if o is not None]
    assert all(o == read[0] for o in read)


@pytest.mark.parametrize(
    "text",
    [
        "a" + " " * 900_000 + "b",
        "\n" * 900_000 + "b",
        "---\na: b\n" + "—" * 200_000 + "x",
        "---\nkey" + " " * 60_000 + "x: !y\n---\n",
        "---\na: [" + "*x," * 20_000 + "]\n---\n",
        "---\n" + "a: *x\n" * 10_000 + "---\n",
        "---\n" + "".join(f"{n}:\n" for n in range(10_000)) + "---\n",
        "---\n" + "".join(f"ü{n}:\n" for n in range(6_000)) + "---\n",
    ],
    ids=["blanks", "lines", "dashes", "key", "aliases", "problems", "keys", "umlauts"],
)
def test_no_file_takes_long(text: str) -> None:
    start = time.perf_counter()
    readable(text.encode())
    assert time.perf_counter() - start < 60  # it hangs, or it does not: no measure of speed


def test_a_small_file_is_read_in_well_under_a_millisecond() -> None:
    if not hasattr(yaml, "CSafeLoader"):
        pytest.skip("PyYAML without libyaml")
    data = b"---\nproject_id: a\nafter: [b, 22:30]\nbudget: {usd: 5}\n---\n# T\n"
    best = min(timed(lambda: fm.read(data)) for _ in range(50))
    assert best < 0.001


def timed(call: object) -> float:
    start = time.perf_counter()
    call()  # type: ignore[operator]
    return time.perf_counter() - start
