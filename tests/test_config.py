"""Settings: what is read, and what is said when it cannot be."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from daemon import config
from daemon.config import Harness, Settings
from daemon.errors import SettingsError

FILE = Path("/w/megaharness.toml")


def parse(text: str) -> Settings:
    return Settings.parse(text.encode(), FILE)


def refusal(text: str) -> str:
    with pytest.raises(SettingsError) as refused:
        parse(text)
    assert refused.value.exit_code == 78
    return str(refused.value)


def test_no_file_means_the_defaults(tmp_path: Path) -> None:
    settings = Settings.load(tmp_path / "megaharness.toml")
    limits = settings.limits
    assert (limits.slots, limits.attempts, limits.minutes, limits.check_minutes) == (3, 2, 120, 10)
    assert settings.prefer == ()
    assert settings.tables() == {}
    assert settings.table("codex") == Harness()
    assert settings == parse("")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    (tmp_path / "megaharness.toml").write_bytes(
        b"""\xef\xbb\xbfprefer = ["codex", "aider"]
[limits]
slots = 1000
[harness.aider]
argv = ["aider", "--message-file", "{brief}"]
turn_end = "done"
env = {LANG = "C", EMPTY = ""}
pass_env = ["OPENAI_API_KEY", "MISSING", "LANG"]
"""
    )
    settings = Settings.load(tmp_path / "megaharness.toml")
    assert settings.prefer == ("codex", "aider")
    assert settings.limits.slots == 1000
    assert settings.limits.attempts == 2
    # the adapter's own: what every harness has is taken out, lists are lists
    assert settings.tables() == {
        "aider": {"argv": ["aider", "--message-file", "{brief}"], "turn_end": "done"}
    }
    environ = {"OPENAI_API_KEY": "k", "SECRET": "s", "LANG": "de"}
    table = settings.table("aider")
    assert config.environment(table, environ) == {"OPENAI_API_KEY": "k", "LANG": "C", "EMPTY": ""}


def test_settings_cannot_be_changed() -> None:
    settings = parse('[harness.a]\nargv = ["a"]')
    with pytest.raises(ValidationError):
        settings.limits.slots = 4
    settings.tables()["a"]["argv"] = "x"
    assert settings.tables() == {"a": {"argv": ["a"]}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n[limits]\nslot = 3", ":3: limits.slot: there is no such setting; the nearest is limits.slots"),
        ("[limits]\nchek-minutes = 3", "the nearest is limits.check_minutes"),
        ("slots = 3", ":1: slots: there is no such setting here; slots stands under [limits]"),
        ("[limits]\nprefer = []", "prefer stands under no table, at the top"),
        ("[limit]\nslots = 3", ":1: limit: there is no such setting; the nearest is limits"),
        ("[web]\nport = 1", ":1: web: there is no such setting; known here: prefer, limits, harness"),
        (
            '[limits]\nslots = "3"',
            ':2: limits.slots: "3" is not a whole number; without quotes it would be: 3',
        ),
        ("[limits]\nslots = true", "limits.slots: true is not a whole number"),
        ("[limits]\nminutes = 1.5", "limits.minutes: 1.5 is not a whole number"),
        ("[limits]\nslots = 0", "limits.slots: 0 is too small: at least 1"),
        ("[limits]\nslots = 1001", "limits.slots: 1001 is too large: at most 1000"),
        ("limits = 3", ":1: limits: 3 is not a table; a table begins with [limits]"),
        ("harness.a = 1", "harness.a: 1 is not a table; a table begins with [harness.a]"),
        ('prefer = "codex"', 'as a list it would be: ["codex"]'),
        ("prefer = [1]", 'prefer: 1 is not a text; in quotes it would be: "1"'),
        ('prefer = ["codex", "shell"]', "shell only runs when a track names it (harness_id: shell)"),
        ('prefer = ["fake"]', "fake only runs when a track names it"),
        (
            'prefer = ["Claude Code"]',
            "\"Claude Code\" is not a harness name (a-z, 0-9, '-'); claude-code would do",
        ),
        ('prefer = ["a", "a"]', "twice"),
        ('[harness."#(touch x)"]\nargv = ["x"]', ":1: harness."),
        (
            "[harness.aider]\nargv = \"aider -f '{brief}'\"",
            ':2: harness.aider.argv: a list is meant, no shell reads it: argv = ["aider", "-f", "{brief}"]',
        ),
        ("[harness.a]\nargv = []", "harness.a.argv: the list is empty"),
        ('[harness.a]\nargv = ["x", 1]', ':2: harness.a.argv: 1 is not a text; in quotes it would be: "1"'),
        ("[harness.a.env]\nN = 1", ':2: harness.a.env.N: 1 is not a text; in quotes it would be: "1"'),
        ('[harness.a]\nenv = {"A=B" = "x"}', "only a name is meant"),
        ('[harness.a]\nenv = {A = "\\u0000"}', "null byte"),
        ('[harness.a]\npass_env = ["KEY=secret"]', "only a name is meant; a value stands in the env table"),
        ('[harness.a]\npass_env = ["a b"]', "is not the name of an environment variable"),
        ("slots = ", ": not TOML: "),
        ("prefer = [codex]", "not TOML"),
    ],
)
def test_a_refusal_names_the_key_the_value_and_what_would_be_right(text: str, said: str) -> None:
    message = refusal(text)
    assert message.startswith(str(FILE))
    assert said in message


def test_every_fault_is_named_at_once() -> None:
    lines = refusal('prefer = 1\n[limits]\nslots = "x"\nattemps = 2').splitlines()
    assert len(lines) == 3


@pytest.mark.parametrize("make", ["directory", "latin-1"])
def test_what_is_no_text_is_refused(tmp_path: Path, make: str) -> None:
    path = tmp_path / "megaharness.toml"
    if make == "directory":
        path.mkdir()
        said = "cannot be read"
    else:
        path.write_bytes(b"prefer = []\n# \xfc")
        said = ":2: not UTF-8 at byte 14"
    with pytest.raises(SettingsError, match=said):
        Settings.load(path)


@given(st.binary(max_size=200))
def test_no_content_breaks_it(data: bytes) -> None:
    try:
        Settings.parse(data, FILE)
    except SettingsError as refused:
        assert str(refused).startswith(str(FILE))


_plain = st.one_of(st.integers(), st.booleans(), st.text(max_size=5), st.floats(), st.lists(st.integers()))
_words = ["prefer", "limits", "harness", "slots", "env", "argv", "pass_env", "x", "[key]"]


@given(st.recursive(_plain, lambda inner: st.dictionaries(st.sampled_from(_words), inner, max_size=3)))
def test_no_value_of_any_shape_breaks_it(value: object) -> None:
    text = f"prefer = {config._toml(value)}\nharness = {config._toml({'a': value})}"
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return  # texts that TOML writes in another way than JSON
    try:
        parse(text)
    except SettingsError as refused:
        assert str(refused).startswith(str(FILE))


TEXT = """\
prefer = [
  "a",
]
[limits]  # slots = 9
slots = 3
[harness.b]
argv = ["x"]
"env" = {A = "1"}
[harness."c.d".env]
'E' = "1"
limits.deep = 1
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("prefer",), 1),
        (("limits",), 4),
        (("limits", "slots"), 5),
        (("limits", "minutes"), 4),
        (("harness", "b", "argv"), 7),
        (("harness", "b", "env", "A"), 8),
        (("harness", "c.d"), 9),
        (("harness", "c.d", "env", "E"), 10),
        (("harness", "c.d", "env", "limits", "deep"), 11),
        (("other",), None),
    ],
)
def test_lines_are_found(path: tuple[str, ...], line: int | None) -> None:
    assert config.line_of(TEXT, *path) == line


def test_the_starter_file_sets_nothing_and_its_comments_are_the_defaults() -> None:
    text = config.starter()
    assert parse(text) == parse("")
    assert max(map(len, text.splitlines())) <= 110
    settable = re.compile(r"# (?=[a-z_]+ = |\[)")
    uncommented = "\n".join(settable.sub("", line) for line in text.splitlines())
    settings = parse(uncommented)
    assert settings.limits == parse("").limits
    assert settings.table("aider").argv == ("aider", "--message-file", "{brief}")


def test_the_reference_names_every_setting() -> None:
    text = config.reference()
    for model in (config.Settings, config.Limits, Harness, config.ModelPrice):
        for name, field in model.model_fields.items():
            if name not in ("limits", "harness", "prices"):
                assert f"{name}` | " in text
                assert field.description is not None
                assert field.description in text


def test_prices() -> None:
    text = '[prices."my-*"]\ninput = 2\noutput = 8.5\ncached = 0.25\nas_of = 2026-12-01\n[prices.plain]\ninput = 0\noutput = 0\n'
    prices = parse(text).prices
    assert (prices["my-*"].input, prices["my-*"].output, prices["my-*"].cached) == (2, 8.5, 0.25)
    assert (prices["my-*"].cache_created, prices["my-*"].as_of) == (None, "2026-12-01")
    assert prices["plain"].as_of == "settings"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("input = -1", "prices.m.input: -1 is too small: at least 0"),
        ('input = "2"', 'prices.m.input: "2" is not a number; without quotes it would be: 2'),
        ("input = nan", "prices.m.input"),
        ("inptu = 2", "prices.m.inptu: there is no such setting; the nearest is prices.m.input"),
        ("output = true", "prices.m.output: true is not a number"),
    ],
)
def test_a_price_that_is_none(line: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse(f"[prices.m]\n{line}\n")
    assert said in str(caught.value)


def test_a_price_needs_both_sides() -> None:
    with pytest.raises(SettingsError, match=r"megaharness.toml:1: prices.m.output: must be set"):
        parse("[prices.m]\ninput = 1\n")
