"""What a person can set: megaharness.toml, read once and passed down.

Every key has a default, so no file is needed. A key that does not exist is
an error that names the nearest one, and so is a value of the wrong type:
a setting that is silently ignored costs somebody a night. The same fields
give the starter file (`starter`) and docs/reference/settings.md (`reference`).

Tables under [harness] belong to the adapters: the keys that every harness
has are read here, the others are handed to the adapter, which refuses what
it does not know.
"""

from __future__ import annotations

import difflib
import json
import re
import shlex
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
)

from daemon.errors import SettingsError

# Started only when a track names them: one is no agent, the other is for tests.
NEVER_BY_DEFAULT = ("shell", "fake")

_HARNESS = re.compile(r"[a-z0-9][a-z0-9-]{0,47}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

T = TypeVar("T")


def _tuple(value: T | list[T]) -> T | tuple[T, ...]:
    # TOML has lists; what is kept cannot be changed by who reads it.
    return tuple(value) if isinstance(value, list) else value


def _harness(name: str) -> str:
    if not _HARNESS.fullmatch(name):
        near = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:48]
        suggestion = f"; {near} would do" if near else ""
        raise ValueError(f"{json.dumps(name)} is not a harness name (a-z, 0-9, '-'){suggestion}")
    return name


Strings = Annotated[tuple[str, ...], BeforeValidator(_tuple)]
Name = Annotated[str, AfterValidator(_harness)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Limits(_Table):
    """[limits]: how much may run, how often, how long."""

    slots: int = Field(3, ge=1, le=1000, description="How many tracks may run at once.")
    attempts: int = Field(
        2,
        ge=1,
        le=100,
        description="How often a track may be attempted. "
        "A usage limit, an expired login and a swap do not count.",
    )
    minutes: int = Field(
        120, ge=1, le=10080, description="Wall clock of one session, in minutes; then it is ended."
    )
    check_minutes: int = Field(
        10, ge=1, le=1440, description="How long one check of done_when may take, in minutes."
    )


class Harness(BaseModel):
    """[harness.NAME]: what every harness may have. Other keys are the adapter's own."""

    model_config = ConfigDict(frozen=True, strict=True, extra="allow")

    argv: Strings | None = Field(
        None,
        description="The command of a harness without an adapter of its own, as a list; no shell reads it. "
        '"{brief}" stands for the path of the brief.',
    )
    env: dict[str, str] = Field(
        default_factory=dict,
        description="Environment variables that are set for this harness. "
        "No place for secrets: those go through pass_env.",
    )
    pass_env: Strings = Field(
        (),
        description="Names of the daemon's own environment variables that this harness gets too. "
        "All others are kept from it.",
    )

    @field_validator("argv", mode="before")
    @classmethod
    def _argv(cls, value: object) -> object:
        if isinstance(value, str):
            raise ValueError(  # noqa: TRY004  # pydantic takes only this one as a fault of the value
                f"a list is meant, no shell reads it: argv = {json.dumps(_split(value))}"
            )
        if value in ([], ()):
            raise ValueError("the list is empty: its first element is the program")
        return value

    @field_validator("env")
    @classmethod
    def _env(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            _variable(name)
            if "\0" in text:
                raise ValueError(f"the value of {name} contains a null byte")
        return value

    @field_validator("pass_env")
    @classmethod
    def _pass_env(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            _variable(name)
        return value


Dollars = Annotated[float, Field(ge=0, le=1_000_000)]


class ModelPrice(_Table):
    """[prices.MODEL]: US dollars for a million tokens of one model; a glob in quotes is for several."""

    input: Dollars = Field(description="Input that was neither read from nor written to a cache.")
    output: Dollars = Field(description="Output, reasoning included.")
    cached: Dollars | None = Field(None, description="Input read from a cache. none: as input.")
    cache_created: Dollars | None = Field(None, description="Input written to a cache. none: as input.")
    cache_created_1h: Dollars | None = Field(
        None, description="Input written to a cache that is kept for an hour. none: as cache_created."
    )
    as_of: str = Field(
        "settings",
        description="The day for which this price was checked; shown with every cost made from it.",
    )

    @field_validator("as_of", mode="before")
    @classmethod
    def _as_of(cls, value: object) -> object:
        return value.isoformat() if isinstance(value, date) else value


class Settings(_Table):
    """All settings of a workspace."""

    prefer: Annotated[tuple[Name, ...], BeforeValidator(_tuple)] = Field(
        (),
        description="Harnesses for tracks that name none: the first one that is installed and logged in. "
        "shell and fake only run when a track names them.",
    )
    limits: Limits = Limits()  # type: ignore[call-arg]  # every field has its default
    harness: dict[Name, Harness] = Field(default_factory=dict)
    prices: dict[str, ModelPrice] = Field(default_factory=dict)

    @field_validator("prefer")
    @classmethod
    def _prefer(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if name in NEVER_BY_DEFAULT:
                raise ValueError(f"{name} only runs when a track names it (harness_id: {name}); take it out")
        if len(set(value)) < len(value):
            raise ValueError("a name stands there twice")
        return value

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the settings; a missing file means the defaults.

        Raises `SettingsError` with one line for each fault: file, line, key,
        what stands there and what would be right.
        """
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return cls()  # type: ignore[call-arg]  # every field has its default
        except OSError as e:
            raise SettingsError(f"{path} cannot be read: {e.strerror}") from e
        return cls.parse(data, path)

    @classmethod
    def parse(cls, data: bytes, path: Path) -> Self:
        """Like `load`, for the content of a file; `path` is only named in errors."""
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as e:
            line = data.count(b"\n", 0, e.start) + 1
            raise SettingsError(f"{path}:{line}: not UTF-8 at byte {e.start}", "save it as UTF-8") from e
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as e:
            raise SettingsError(f"{path}: not TOML: {e}", 'texts stand in quotes: key = "value"') from e
        try:
            return cls.model_validate(values)
        except ValidationError as e:
            raise SettingsError("\n".join(_faults(e, text, path))) from e

    def tables(self) -> dict[str, dict[str, Any]]:
        """The [harness.*] tables for the adapter registry, without what `environment` answers for."""
        return {name: _own(table) for name, table in self.harness.items()}

    def table(self, name: str) -> Harness:
        """The table of one harness; its defaults when there is none."""
        return self.harness.get(name) or Harness()  # type: ignore[call-arg]  # all have defaults


def environment(table: Harness, environ: Mapping[str, str]) -> dict[str, str]:
    """What a harness's settings add to its environment: the passed variables, then the set ones."""
    passed = {name: environ[name] for name in table.pass_env if name in environ}
    return {**passed, **table.env}


def _own(table: Harness) -> dict[str, Any]:
    written = table.model_dump(exclude_unset=True, exclude={"env", "pass_env"})
    return {key: list(value) if isinstance(value, tuple) else value for key, value in written.items()}


def line_of(text: str, *path: str) -> int | None:
    """The line, counted from 1, of a key of a TOML text, or of the nearest table around it."""
    best, line = 0, None
    table: list[str] = []
    for number, row in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[{1,2}([^\[\]]+)\]{1,2}\s*(?:#.*)?$", row):
            table = here = _key(header[1])
        elif assignment := re.match(r"""\s*((?:[A-Za-z0-9_.\s-]|"[^"]*"|'[^']*')+?)\s*=""", row):
            here = table + _key(assignment[1])
        else:
            continue
        shared = min(len(here), len(path))
        if shared > best and tuple(here[:shared]) == path[:shared]:
            best, line = shared, number
    return line


def fields() -> Iterator[tuple[str, str, str, str]]:
    """Every setting as (key, type, default, meaning), in the order of the reference."""
    for prefix, model in (
        ("", Settings),
        ("limits.", Limits),
        ("harness.NAME.", Harness),
        ("prices.MODEL.", ModelPrice),
    ):
        for name, info in model.model_fields.items():
            if info.description is None:
                continue
            low, high = (
                next((getattr(m, b) for m in info.metadata if hasattr(m, b)), None) for b in ("ge", "le")
            )
            kind = _kind(info.annotation) + (f", {low} to {high}" if low is not None else "")
            default = (
                "must be set" if info.is_required() else _toml(info.get_default(call_default_factory=True))
            )
            yield f"{prefix}{name}", kind, default, info.description


def reference() -> str:
    """docs/reference/settings.md, made from the same fields that read the file."""
    rows = [f"| `{key}` | {kind} | `{default}` | {text} |" for key, kind, default, text in fields()]
    return "\n".join(
        [
            "# Settings",
            "",
            "`megaharness.toml` at the root of the workspace. Every key is optional; a key that does not",
            "exist, or a value of the wrong type, is an error (exit code 78). The daemon reads the file when",
            "it starts.",
            "",
            "| key | type | default | meaning |",
            "|---|---|---|---|",
            *rows,
            "",
            "## A harness of your own",
            "",
            "Any command-line agent becomes a harness by two lines:",
            "",
            "```toml",
            "[harness.aider]",
            'argv = ["aider", "--message-file", "{brief}"]',
            "```",
            "",
            "Keys of a `[harness.NAME]` table that are not listed above belong to its adapter, which refuses",
            "those it does not know.",
            "",
            "## Prices",
            "",
            "What a session cost is what its harness says. For harnesses that do not say it, `mh measure` has a",
            "dated table of prices; a model that is missing there, or has another price for you, is added here:",
            "",
            "```toml",
            '[prices."my-model"]',
            "input = 2.0",
            "output = 8.0",
            "cached = 0.5",
            "as_of = 2026-12-01",
            "```",
            "",
            "The name is the model's as the transcript writes it, or without what gateways put around it",
            '(`openai/`, `us.anthropic.`, `[1m]`); a glob (`"my-*"`) is for several, and the longest that matches',
            "counts. A price here goes before the shipped one.",
            "",
        ]
    )


def starter() -> str:
    """The megaharness.toml of a new workspace: every setting with its default, commented out."""
    out = ["# Settings of this workspace. Every line is optional; what is commented out is the default.", ""]
    table = ""
    for key, _, default, text in fields():
        *parents, name = key.split(".")
        if parents[:1] == ["harness"]:
            break
        if ".".join(parents) != table:
            table = ".".join(parents)
            out += [f"[{table}]"]
        out += [*textwrap.wrap(text, 98, initial_indent="# ", subsequent_indent="# ")]
        out += [f"# {name} = {default}", ""]
    return "\n".join(
        [
            *out,
            "# Any command-line agent is a harness; no shell reads this list.",
            "# [harness.aider]",
            '# argv = ["aider", "--message-file", "{brief}"]',
            '# pass_env = ["OPENAI_API_KEY"]',
            "",
            "# What a model costs where its harness does not say it: US dollars for a million tokens.",
            '# [prices."my-model"]',
            "# input = 2.0",
            "# output = 8.0",
            "# as_of = 2026-12-01",
            "",
        ]
    )


def _faults(error: ValidationError, text: str, path: Path) -> Iterator[str]:
    for fault in error.errors(include_url=False):
        keys = [k for k in fault["loc"] if isinstance(k, str) and k != "[key]"]
        line = line_of(text, *keys)
        where = f"{path}:{line}" if line else str(path)
        yield f"{where}: {_dotted(keys)}: {_sentence(fault, keys)}"


def _sentence(fault: Any, keys: list[str]) -> str:
    value = _toml(fault["input"])
    match fault["type"]:
        case "extra_forbidden":
            return f"there is no such setting{_nearest(keys)}"
        case "value_error":
            return f"{fault['ctx']['error']}"
        case "int_type" | "int_from_float":
            return f"{value} is not a whole number{_unquoted(fault['input'])}"
        case "missing":
            return "must be set"
        case "float_type":
            return f"{value} is not a number{_unquoted(fault['input'])}"
        case "string_type":
            quoted = json.dumps(value) if isinstance(fault["input"], (bool, int, float)) else ""
            return f"{value} is not a text" + (f"; in quotes it would be: {quoted}" if quoted else "")
        case "tuple_type":
            listed = f"; as a list it would be: [{value}]" if isinstance(fault["input"], str) else ""
            return f"{value} is not a list of texts{listed}"
        case "dict_type" | "model_type" | "model_attributes_type":
            return f"{value} is not a table; a table begins with [{_dotted(keys)}]"
        case "greater_than_equal":
            return f"{value} is too small: at least {fault['ctx']['ge']}"
        case "less_than_equal":
            return f"{value} is too large: at most {fault['ctx']['le']}"
        case _:
            return f"{value}: {fault['msg']}"


def _nearest(keys: list[str]) -> str:
    *parents, name = keys
    known = _known(parents)
    near = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=1, cutoff=0.6)
    if near:
        return f"; the nearest is {_dotted([*parents, near[0]])}"
    for table, model in (((), Settings), (("limits",), Limits)):
        if name in model.model_fields and list(table) != parents:
            return f" here; {name} stands under {f'[{table[0]}]' if table else 'no table, at the top'}"
    return f"; known here: {', '.join(known)}"


def _known(parents: list[str]) -> list[str]:
    if parents[:1] == ["prices"]:
        return list(ModelPrice.model_fields)
    return list((Limits if parents == ["limits"] else Settings).model_fields)


def _unquoted(value: object) -> str:
    return f"; without quotes it would be: {value}" if isinstance(value, str) and value.isdecimal() else ""


def _variable(name: str) -> None:
    if "=" in name:
        raise ValueError(f"{json.dumps(name)}: only a name is meant; a value stands in the env table")
    if not _VARIABLE.fullmatch(name):
        raise ValueError(f"{json.dumps(name)} is not the name of an environment variable")


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def _key(text: str) -> list[str]:
    try:
        node: Any = tomllib.loads(f"{text}=0")
    except tomllib.TOMLDecodeError:
        return ["\0"]  # a line inside a longer string or list: equal to no key
    keys = []
    while isinstance(node, dict):
        name, node = next(iter(node.items()))
        keys.append(name)
    return keys


def _dotted(keys: list[str]) -> str:
    bare = re.compile(r"[A-Za-z0-9_-]+")
    return ".".join(k if bare.fullmatch(k) else json.dumps(k) for k in keys)


def _kind(annotation: Any) -> str:
    if annotation is int:
        return "whole number"
    if "float" in str(annotation):
        return "US dollars"
    if annotation is str:
        return "text"
    if annotation == dict[str, str]:
        return "table of texts"
    if "tuple[" in str(annotation):
        return "list of texts"
    raise TypeError(f"no word for {annotation!r} in the reference yet")


def _toml(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list() | tuple():
            return f"[{', '.join(_toml(v) for v in value)}]"
        case dict():
            return "{" + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + "}"
        case _:
            return str(value)
