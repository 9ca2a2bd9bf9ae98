"""A track: what a person may write above their task, and what each key means.

Nine keys are theirs, and the daemon's block is the tenth. A key close to one of ours is an error that
names it, since a mistyped budget must not be no budget; a clearly foreign one (a note-taking program's) is
kept in the file and ignored. Every fault of a file is reported at once, with its line.

Pure: nothing here reads a clock or a file.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta, tzinfo
from types import MappingProxyType
from typing import Annotated, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from daemon.errors import DocumentError, Problem
from daemon.spool.frontmatter import BLOCK, Document, Path, Value, clipped, read
from daemon.tracks import ids

MAX_TITLE = 200

_M = TypeVar("_M", bound=BaseModel)


# --- the contract -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """This command, run with `bash -c` in the work directory, must exit 0."""

    command: str

    @property
    def text(self) -> str:
        return f"run: {self.command}"


@dataclass(frozen=True, slots=True)
class Exists:
    """A file that matches this glob must exist in the work directory."""

    glob: str

    @property
    def text(self) -> str:
        return f"exists: {self.glob}"


@dataclass(frozen=True, slots=True)
class Changed:
    """The difference to the base must touch a file that matches this glob."""

    glob: str

    @property
    def text(self) -> str:
        return f"changed: {self.glob}"


@dataclass(frozen=True, slots=True)
class Clean:
    """Nothing may be left uncommitted."""

    @property
    def text(self) -> str:
        return "clean: true"


@dataclass(frozen=True, slots=True)
class Contains:
    """This file must hold text that the regular expression finds."""

    file: str
    pattern: str

    @property
    def text(self) -> str:
        return f"contains: {self.pattern} in {self.file}"


@dataclass(frozen=True, slots=True)
class Prose:
    """A sentence, judged by a review or a person, never by the agent itself."""

    text: str


Check: TypeAlias = Run | Exists | Changed | Clean | Contains | Prose


# --- the track --------------------------------------------------------------------------------------------


class Budget(BaseModel):
    """What one track may use; None is no limit of its own. usd is a float of US dollars."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokens: Annotated[int, Field(gt=0)] | None = None
    usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    turns: Annotated[int, Field(gt=0)] | None = None
    minutes: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class Track(BaseModel):
    """One agent task as its file asks for it.

    ignored names the foreign keys; block is the daemon's own rendering, of which nothing is believed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    project_id: str | None = None
    kind: str | None = None
    harness_id: str | None = None
    model_id: str | None = None
    priority: int = 0
    after: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    budget: Budget = Budget()
    done_when: tuple[Check, ...] = ()
    ignored: tuple[str, ...] = ()
    block: Mapping[str, str] = Field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Loaded:
    """A track's file, read and understood. name is the file's stem or name, title what people call it."""

    document: Document
    track: Track
    title: str

    @property
    def is_empty(self) -> bool:
        """Nothing is asked for: no text below the frontmatter."""
        return not self.document.body.strip("\ufeff \t\r\n\f\v")

    def written_as(self, name: str) -> str:
        """The spelling of a key that the file uses; its name when it has none of them."""
        return next((key for key in self.document.meta if _CANONICAL.get(key) == name), name)


def load(data: bytes, name: str) -> Loaded:
    """Read a track's file; DocumentError holds everything that is wrong with it, by line."""
    document = read(data)
    track = _Reading(document).track()
    return Loaded(document, track, title(document.body, name))


def checks(value: Value, document: Document | None = None) -> tuple[Check, ...]:
    """The checks of a `done_when` that stands in another document than a track's. Raises DocumentError."""
    reading = _Reading(document or Document({}, {}, "", 0, False, "\n", False))
    found = reading.checks(value, ("done_when",))
    if reading.problems:
        raise DocumentError(*reading.problems)
    return found


# --- the keys ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Key:
    """One key that a person may write. what and hint are shown to people; spellings are accepted too."""

    name: str
    form: str
    what: str
    examples: tuple[str, ...]
    spellings: tuple[str, ...] = ()
    default: str = ""

    @property
    def hint(self) -> str:
        return f"for example `{self.examples[0]}`"


KEYS = (
    Key(
        "project_id",
        form="text",
        what="The project this is for: an id of md-db/projects, or the path of a repository.",
        examples=("project_id: checkout-service", "project_id: ~/src/checkout"),
        spellings=("project",),
        default="an empty scratch repository",
    ),
    Key(
        "kind",
        form="text",
        what="What sort of work it is; rules of the database apply by it.",
        examples=("kind: fix", "kind: docs"),
    ),
    Key(
        "harness_id",
        form="text",
        what="The program that runs the agent, and after a slash, if wanted, its model.",
        examples=("harness_id: claude-code", "harness_id: codex/gpt-5.4"),
        spellings=("harness",),
        default="the first installed one that the settings prefer",
    ),
    Key(
        "model_id",
        form="text",
        what="The model.",
        examples=("model_id: opus",),
        spellings=("model",),
        default="the harness's own",
    ),
    Key(
        "priority",
        form="a whole number",
        what="Higher goes first.",
        examples=("priority: 5", "priority: -1"),
        default="0",
    ),
    Key(
        "after",
        form="a list of track ids and times",
        what="What to wait for: other tracks, a time of day (the first one after the file was saved), "
        "a date, a date and time.",
        examples=("after: [add-tax-table, 22:30]", "after: 2026-12-02T06:00"),
    ),
    Key(
        "scope",
        form="a list of globs",
        what="What may be written to.",
        examples=("scope: src/**", 'scope: ["**/*.md", docs/tax.md]'),
    ),
    Key(
        "budget",
        form="a mapping of tokens, usd, turns, minutes",
        what="The most it may use; it is stopped there.",
        examples=("budget: {usd: 5, turns: 80, minutes: 90}",),
        default="that of the settings",
    ),
    Key(
        "done_when",
        form="a list of sentences and checks",
        what="When it is done. A sentence goes into the brief and is judged by a review or a person. The "
        "daemon itself checks `run: COMMAND` (must exit 0), `exists: GLOB`, `changed: GLOB`, `clean: true` "
        "and `contains: {file: PATH, pattern: REGEX}`.",
        examples=("done_when: the PDF is made in under 2 s", "done_when: [{run: pytest -q}, {clean: true}]"),
    ),
)
_KEY = {key.name: key for key in KEYS}
_CANONICAL = {spelling: key.name for key in KEYS for spelling in (key.name, *key.spellings)}
_CHECKS = ("run", "exists", "changed", "clean", "contains")
_BUDGET = tuple(Budget.model_fields)
_AMOUNTS = {
    "tokens": "a whole number above 0",
    "usd": "a number of US dollars above 0, without a sign for the currency,",
    "turns": "a whole number above 0",
    "minutes": "a number of minutes above 0",
}

# Words of other programs that only look like a slip of one of ours.
_FOREIGN = frozenset(
    ("done", "mode", "modes", "object_id", "product", "product_id", "protect", "score", "subject_id")
)


def reference() -> list[dict[str, str | list[str]]]:
    """The keys, for the generated reference: name, form, what, default, examples, spellings."""
    return [
        {
            "name": key.name,
            "form": key.form,
            "what": key.what,
            "default": key.default,
            "examples": list(key.examples),
            "spellings": list(key.spellings),
        }
        for key in KEYS
    ]


def spelling(document: Document, key: str) -> str:
    """The spelling of a key that this document uses, to patch it where it stands."""
    return next((name for name in document.meta if _CANONICAL.get(name) == key), key)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that this one is a slip of, or None when it is a word of its own.

    Case, hyphens, blanks and a plural do not count; then the words must agree to three quarters and begin
    alike (up to five letters), or to 82 per cent (longer ones): `kinds`, `prioritiy`, `donewhen` are slips,
    `tags`, `title`, `type`, `status`, `mind` are not.
    """
    plain = _plain(word)
    best, best_ratio = None, 0.0
    for candidate in known:
        target = _plain(candidate)
        if plain == target or _singular(plain) == target:
            return candidate
        ratio = difflib.SequenceMatcher(None, plain, target).ratio()
        short = min(len(plain), len(target)) <= 5
        alike = ratio >= 0.75 and plain[:1] == target[:1] if short else ratio >= 0.82
        cut_off = len(plain) >= 4 and target.startswith(plain)
        if (alike or cut_off) and ratio > best_ratio:
            best, best_ratio = candidate, ratio
    return best


def _plain(word: str) -> str:
    return re.sub(r"[^a-z0-9]", "", word.lower())


def _singular(plain: str) -> str:
    return f"{plain[:-3]}y" if plain.endswith("ies") else plain.removesuffix("s") if len(plain) > 4 else plain


def _slip_of(key: str) -> str | None:
    """The key of ours that an unknown one is meant to be."""
    folded = re.sub(r"[\s-]+", "_", key.strip().lower())
    if folded in _FOREIGN:
        return None
    if folded.startswith("budget_"):
        return "budget"
    stem = folded.removesuffix("_name")
    return _CANONICAL.get(stem) or nearest(key, _CANONICAL)


# --- reading ----------------------------------------------------------------------------------------------


class _Reading:
    """Turns one document's text values into a track, and collects what is wrong on the way."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []

    def track(self) -> Track:
        values, at, ignored = self._keys()
        given: dict[str, object] = {}
        for key in ("project_id", "kind", "harness_id", "model_id", "priority"):
            text = self._text(values.get(key), at.get(key, (key,)), _KEY.get(key))
            if text is not None:
                given[key] = text
        self._split_harness(given, at)
        for key in ("after", "scope"):
            given[key] = tuple(self._texts(values.get(key), at.get(key, (key,)), _KEY[key]))
        budget = self._budget(values.get("budget"), at.get("budget", ("budget",)))
        checks = self.checks(values.get("done_when"), at.get("done_when", ("done_when",)))
        block = self.document.meta.get(BLOCK)
        strings = {k: v for k, v in block.items() if isinstance(v, str)} if isinstance(block, dict) else {}
        track = self._model(
            Track,
            {
                **given,
                "budget": budget,
                "done_when": checks,
                "ignored": ignored,
                "block": MappingProxyType(strings),
            },
            lambda loc: at.get(str(loc[0]), loc),
        )
        if self.problems or track is None:
            raise DocumentError(*sorted(self.problems, key=lambda p: p.line or 0))
        return track

    def _bad(self, path: Path, message: str, hint: str, value: Value = None) -> None:
        shown = None if value is None else clipped(value if isinstance(value, str) else _flow(value))
        name = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")
        line = self.document.line_of(*path)
        self.problems.append(Problem(message, line=line, field=name, value=shown, hint=hint))

    def _keys(self) -> tuple[dict[str, Value], dict[str, Path], tuple[str, ...]]:
        """The values by canonical key, where each stands, and the foreign keys."""
        values: dict[str, Value] = {}
        at: dict[str, Path] = {}
        ignored = []
        for key, value in self.document.meta.items():
            name = _CANONICAL.get(key)
            if name is not None and name in values:
                first = str(at[name][0])
                self._bad(
                    (key,),
                    f"`{key}` and `{first}` (line {self.document.line_of(first)}) are two spellings of one",
                    f"keep one, as `{name}`",
                    value,
                )
            elif name is not None:
                values[name], at[name] = value, (key,)
            elif key == BLOCK:
                continue
            elif (near := _slip_of(key)) is not None:
                amount = key.lower().removeprefix("budget_")
                hint = f"write `{near}`"
                if amount in _BUDGET and isinstance(value, str):
                    hint = f"write `budget: {{{amount}: {value}}}`"
                self._bad((key,), f"there is no key `{key}`; meant is probably `{near}`", hint, value)
            else:
                ignored.append(key)
        return values, at, tuple(ignored)

    def _text(self, value: Value, path: Path, key: Key | None) -> str | None:
        if isinstance(value, str):
            return value.strip() or None
        if value is not None:
            what = "a list" if isinstance(value, list) else "a mapping"
            self._bad(path, f"{what} where one value is meant", key.hint if key else "write one value", value)
        return None

    def _texts(self, value: Value, path: Path, key: Key) -> list[str]:
        """A list of texts, of which one alone may stand without brackets."""
        out = []
        for where, item in self._items(value, path):
            if not isinstance(item, str) or not item.strip():
                self._bad(where, f"every entry of `{key.name}` is one text", key.hint, item)
                continue
            entry = item.strip()
            if re.search(r",\s", entry):
                right = ", ".join(f'"{part}"' for part in re.split(r",\s+", entry.strip(", \t")))
                self._bad(where, f"several entries of `{key.name}` in one text", f"write [{right}]", item)
                continue
            if key.name == "after":
                try:
                    _after_form(entry)
                except DocumentError as exc:
                    self._bad(where, str(exc.problems[0].message), exc.problems[0].hint, item)
            out.append(entry)
        return out

    @staticmethod
    def _items(value: Value, path: Path) -> list[tuple[Path, Value]]:
        if isinstance(value, list):
            return [((*path, n), item) for n, item in enumerate(value)]
        return [] if value is None or value == "" else [(path, value)]

    def _split_harness(self, given: dict[str, object], at: Mapping[str, Path]) -> None:
        harness, model = given.get("harness_id"), given.get("model_id")
        if not isinstance(harness, str) or "/" not in harness:
            return
        left, _, right = (part.strip() for part in harness.partition("/"))
        if not left or not right:
            self._bad(
                at["harness_id"],
                "a harness or a model is missing beside the /",
                _KEY["harness_id"].hint,
                harness,
            )
        elif model not in (None, right):
            self._bad(
                at["model_id"],
                f"`{at['harness_id'][0]}` already says model `{right}`, this says `{model}`",
                f"keep one of the two, for example `harness_id: {left}/{right}` alone",
                str(model),
            )
        else:
            given["harness_id"], given["model_id"] = left, right

    def _budget(self, value: Value, path: Path) -> Budget:
        if value is None or value == "":
            return Budget()
        if not isinstance(value, dict):
            # Of all amounts only the minutes are enforced yet.
            number = value if isinstance(value, str) and re.fullmatch(r"[0-9]+(\.[0-9]+)?", value) else "90"
            hint = f"write budget: {{minutes: {number}}}; there are {', '.join(_BUDGET)}"
            self._bad(path, "a budget says of what", hint, value)
            return Budget()
        amounts: dict[str, object] = {}
        for name, amount in value.items():
            if name not in _BUDGET:
                near = nearest(name, _BUDGET)
                hint = f"write `{near}`" if near else f"there are {', '.join(_BUDGET)}"
                self._bad((*path, name), f"there is no budget of `{name}`", hint, amount)
            elif (text := self._text(amount, (*path, name), None)) is not None:
                amounts[name] = text
        return self._model(Budget, amounts, lambda loc: (*path, *loc)) or Budget()

    def _model(self, model: type[_M], values: dict[str, object], where: Callable[[Path], Path]) -> _M | None:
        """Let pydantic make numbers of the texts; what it refuses is said in our words."""
        try:
            return model.model_validate(values)
        except ValidationError as exc:
            for error in exc.errors(include_url=False):
                path = where(error["loc"])
                name = str(error["loc"][-1])
                form = _AMOUNTS.get(name) or (_KEY[name].form if name in _KEY else "something else")
                hint = f"for example `{name}: 5`"
                given = values.get(name)
                self._bad(path, f"{form} is meant", hint, given if isinstance(given, str) else None)
            return None

    # --- done_when

    def checks(self, value: Value, path: Path) -> tuple[Check, ...]:
        out = []
        for where, item in self._items(value, path):
            check = self._check(item, where)
            if check is not None:
                out.append(check)
        return tuple(out)

    def _check(self, item: Value, path: Path) -> Check | None:
        if isinstance(item, str) and item.strip():
            return Prose(item.strip())
        if not isinstance(item, dict):
            self._bad(path, "neither a sentence nor a check", _KEY["done_when"].hint, item)
            return None
        known = [name for name in item if name in _CHECKS]
        for name in item:
            if name not in _CHECKS:
                near = nearest(name, _CHECKS)
                self._bad(
                    (*path, name),
                    f"there is no check `{name}`",
                    f"write `{near}`"
                    if near
                    else f"a sentence with a colon must be in quotes: {_quoted(item)}; "
                    f"checks are {', '.join(_CHECKS)}",
                    item[name],
                )
        if len(known) != len(item):
            return None
        if len(item) != 1:
            self._bad(path, "several checks in one entry", "give each its own line, with - before it", item)
            return None
        name, value = next(iter(item.items()))
        return (
            self._contains(value, (*path, name))
            if name == "contains"
            else self._simple(name, value, (*path, name))
        )

    def _simple(self, name: str, value: Value, path: Path) -> Check | None:
        if name == "clean":
            if isinstance(value, str) and value.strip().lower() in ("true", "yes"):
                return Clean()
            self._bad(path, "`clean` can only be true", "write clean: true, or leave it out", value)
            return None
        if not isinstance(value, str) or not value.strip():
            example = {
                "run": "run: pytest -q",
                "exists": "exists: dist/*.whl",
                "changed": 'changed: "docs/**"',
            }[name]
            self._bad(path, f"`{name}` takes one text", f"for example `{example}`", value)
            return None
        text = value.strip()
        if name == "run":
            return Run(text)
        if not self._inside(text, path):
            return None
        return Exists(text) if name == "exists" else Changed(text)

    def _contains(self, value: Value, path: Path) -> Check | None:
        hint = "for example `contains: {file: docs/tax.md, pattern: rounding}`"
        if not isinstance(value, dict) or set(value) != {"file", "pattern"}:
            self._bad(path, "`contains` takes exactly a file and a pattern", hint, value)
            return None
        file, pattern = value["file"], value["pattern"]
        if not isinstance(file, str) or not file.strip() or not isinstance(pattern, str) or not pattern:
            self._bad(path, "`file` and `pattern` are one text each", hint, value)
            return None
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as exc:
            self._bad(
                (*path, "pattern"),
                f"not a regular expression: {exc}",
                "put a \\ before signs meant literally",
                pattern,
            )
            return None
        return Contains(file.strip(), pattern) if self._inside(file.strip(), (*path, "file")) else None

    def _inside(self, glob: str, path: Path) -> bool:
        if glob.startswith("/") or ".." in glob.split("/"):
            self._bad(
                path, "leads out of the work directory", "write it relative to the work directory", glob
            )
            return False
        return True


def _flow(value: Value) -> str:
    """A value on one line, as it could stand in a file."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(v) for v in value) + "]"
    return "" if value is None else value


def _quoted(item: Mapping[str, Value]) -> str:
    return '"' + _flow(dict(item))[1:-1].replace("\\", "\\\\").replace('"', '\\"') + '"'


# --- after ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Time:
    """Not before this moment: seconds since the epoch, and the text that said so."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class TrackId:
    """Not before this track is done."""

    id: str


_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_DATE = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[Tt ]\s*(\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)\s*([Zz]|[+-]\d{2}:?\d{2})?)?"
)
_LIKE_A_TIME = re.compile(
    r"\d{1,2}\s*[:.h]\s*\d{0,2}\s*(?:am|pm|h|uhr)?"  # 22.30, 9:5, 22h
    r"|\d{1,2}\s*(?:am|pm|uhr)"
    r"|\d{4}-\d{1,2}-\d{1,2}(?:[t\s]+\d{0,2})?"
    r"|(?=.*:)\d[\d:.,+\-tz\s]*(?:am|pm|h|uhr)?",
    re.I,
)


def parse_after(entry: str, now_mtime: float, tz: tzinfo | None = None) -> Time | TrackId:
    """What one entry of `after` waits for.

    A time of day is its first occurrence after the file was saved (now_mtime, seconds since the epoch; a
    minute that is just then is tomorrow's). A date alone is its midnight. Both are local: of tz, or of the
    system. A time that a clock change skips is as much later as the clock is put forward (02:30 is 03:30);
    one that occurs twice is its first occurrence, or for a time of day the first one after now_mtime.
    Everything else is a track's id. DocumentError when it looks like a time and is none.
    """
    form = _after_form(entry)
    if isinstance(form, TrackId):
        return form
    try:
        if isinstance(form, datetime):
            at = form.timestamp() if form.tzinfo else _epochs(form, tz)[0]
        else:
            today = datetime.fromtimestamp(now_mtime, tz).date()
            days = (datetime.combine(today + timedelta(days=n), form) for n in range(3))
            at = min(t for day in days for t in _epochs(day, tz) if t > now_mtime)
    except (ValueError, OverflowError, OSError):
        raise DocumentError(Problem("a time too far away", value=entry, hint=_TIMES)) from None
    return Time(at, entry.strip())


_TIMES = "write 22:30, 2026-12-02 or 2026-12-02T06:00; or the id of a track"


def _epochs(local: datetime, tz: tzinfo | None) -> list[float]:
    """When a local time occurs: once, or twice where the clock is put back."""
    first, second = (local.replace(tzinfo=tz, fold=fold).timestamp() for fold in (0, 1))
    return [first, second] if second > first else [first]


def _after_form(entry: str) -> datetime | time | TrackId:
    """An entry's form, not yet a moment: a date and time, a time of day, or a track's id."""
    text = entry.strip()
    try:
        if found := _CLOCK.fullmatch(text):
            hour, minute, second = (int(part or 0) for part in found.groups())
            return time(hour, minute, second)
        if found := _DATE.fullmatch(text):
            day, clock, zone = found.groups()
            hours, colon, rest = (clock or "00:00").partition(":")
            moment = datetime.fromisoformat(f"{day}T{hours:0>2}{colon}{rest}{(zone or '').upper()}")
            if not 1970 < moment.year < 9999:  # beyond, the clock functions of the system fail
                raise ValueError("the year must be in 1971..9998")
            return moment
    except ValueError as exc:
        raise DocumentError(Problem(f"there is no such time ({exc})", value=entry, hint=_TIMES)) from None
    track = ids.slug(text.removesuffix(".md"))
    if track != text and _LIKE_A_TIME.fullmatch(text):
        raise DocumentError(Problem("looks like a time and is none", value=entry, hint=_TIMES))
    return TrackId(track)


# --- the project in the first line ------------------------------------------------------------------------

_ADDRESS = re.compile(r"(?:#{1,6}[ \t]+)?([a-z0-9][a-z0-9_.-]*):(?:\s|$)")


def addressed(body: str) -> str | None:
    """The project that the first line is meant for, if it begins like ``checkout-service: ...``; it need not exist."""
    found = _ADDRESS.match(first_line(body))
    return found[1] if found else None


def first_line(body: str) -> str:
    """The first line in which something stands, without the space around it; "" where none does."""
    return next((text for line in body.splitlines() if (text := line.strip("\ufeff \t"))), "")


# --- the title --------------------------------------------------------------------------------------------

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_RULE = re.compile(r"[\s*_=-]*")
_MARKER = re.compile(r"\s*(?:(?:[-*+>]|\d+[.)])\s+)*(?:\[[ xX]\]\s+)?")


def title(body: str, name: str) -> str:
    """What people call the task: its first heading, else its first line, else the file's name.

    Code blocks and comments are passed over, control characters and the marks of lists dropped; at most
    200 characters.
    """
    first = ""
    for line in _prose(body):
        heading = _HEADING.match(line)
        if heading and (text := _clean(_without_closing(line[heading.end() :]))):
            return text
        if not first and not heading and not _RULE.fullmatch(line):
            first = _clean(_MARKER.sub("", line, count=1))
    return first or _clean(name.removesuffix(".md")) or "untitled"


def _without_closing(heading: str) -> str:
    """A heading's text without the #s that may close it."""
    text = heading.rstrip()
    bare = text.rstrip("#")
    return bare if not bare or bare[-1] in " \t" else text


def _prose(body: str) -> Iterable[str]:
    """The lines of a body that stand neither in a code block nor in a comment."""
    fence, comment = "", False
    for full in body.split("\n"):
        line = full[: 4 * MAX_TITLE].rstrip("\r")
        mark = _FENCE.fullmatch(line)
        if fence:
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
        elif comment:
            comment = "-->" not in full
        elif mark and not (mark[1][0] == "`" and "`" in mark[2]):
            fence = mark[1]
        elif line.lstrip().startswith("<!--"):
            comment = "-->" not in full
        else:
            yield line


def _clean(text: str) -> str:
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    text = " ".join(text.split())
    return text if len(text) <= MAX_TITLE else text[: MAX_TITLE - 1].rstrip() + "…"
