"""Reads the frontmatter of our Markdown files strictly, and patches it without touching another byte.

Invariants:

- Every scalar is text, exactly as written: `22:30`, `010`, `no`, `1.10` are never anything else.
- A file that begins with a fence is read or refused with a line, never silently without its frontmatter.
- A patch replaces one byte span, and what came out is read again: keys, values and body must be the old
  ones plus the change, else PatchError. Nothing is ever dumped from parsed values.

A document has frontmatter when its first line is exactly `---`; a byte order mark, blank lines before it
and spaces after it do not matter. It is closed by the next line that is exactly `---` or `...` (at the
start of a line both end a YAML document, so nothing else can be meant). What other programs take for a
fence, `----` before a key or `+++`, is refused. What lies between is a block
mapping, one key per line; a mapping in braces is refused, because no key could be added to it by a span.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml
from frontmatter.default_handlers import BaseHandler

from daemon.errors import DocumentError, PatchError, Problem

Value: TypeAlias = "str | list[Value] | dict[str, Value] | None"
Path: TypeAlias = tuple[str | int, ...]

BLOCK = "megaharness"  # the daemon's own key, always the last one
MAX_FILE = 1 << 20
MAX_FRONTMATTER = 64 << 10
MAX_DEPTH = 50
MAX_PROBLEMS = 20
MAX_SHOWN = 200  # characters of a value in an error text

_BOM = b"\xef\xbb\xbf"
_OPEN = re.compile(r"(?:[ \t]*\r?\n)*(---)[ \t]*(?:\r?\n|\Z)")
_CLOSE = re.compile(r"^(?:---|\.\.\.)[ \t]*\r?$", re.M)
_ALMOST_CLOSE = re.compile(r"^[ \t]*(?=---|-*[\u2013\u2014])[-\u2013\u2014]+[^\S\n]*$", re.M)
_KEY_FIRST = re.compile(r"[A-Za-z_][A-Za-z_-]*:(\s|$)")
_SMART_DASHES = re.compile("[-\u2013\u2014]{1,3}")  # what a phone makes of ---
_ANY_DASHES = re.compile(r"^-{3,}[ \t]*\r?$", re.M)
_PLUSES = re.compile(r"^\+\+\+[ \t]*\r?$", re.M)  # what other programs put around TOML
_INVISIBLE = string.whitespace + "\xa0\ufeff\u200b\u200c\u200d\u200e\u200f\u2060"
_FIRST_LINE = re.compile(r"\s*([^\r\n]*)(?:\r?\n|\r|\Z)([^\r\n]*)")
# A line break of YAML 1.1 that no editor counts as one would shift every line number.
_FORBIDDEN = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]|\r(?!\n)"
)
_UNWRITABLE = re.compile("[\x00\ud800-\udfff]")
_NULL = frozenset(("", "~", "null", "Null", "NULL"))
# Other programs read these as something else than text; ours does not, but a person's note-taker may.
_READ_ELSEWHERE = frozenset(("null", "true", "false", "yes", "no", "on", "off"))
_PLAIN = re.compile(r"[^\W_][\w./+@()-]*(?:[ :][\w./+@()-]+)*")
_ITEM = re.compile(r"[^\W_][\w./+@-]*")
_LINE = re.compile(
    r"(?P<lead>\s*(?:-\s+)*)"
    r"""(?:(?P<key>[^\s:#'"\[\]{}*&!|>%@`-][^:#]*?)\s*:(?:\s+|$))?"""
    r"(?P<value>.*)"
)
# A value in brackets that begins with a sign of YAML's own.
_SIGNED = re.compile(r"([\[{,:]\s*)([*&!%@`|>][^,\[\]{}]*?)(?=\s*[,\]}])")
_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Span:
    """Where one top-level key stands, in bytes of the file: whole lines, and its value alone."""

    start: int
    end: int
    value_start: int
    value_end: int
    scalar: bool


@dataclass(frozen=True, slots=True)
class Document:
    """A Markdown file, read: its frontmatter as text values, its body verbatim, and where each thing stands.

    lines maps a path such as ("done_when", 0, "run") to the line (from 1) on which it begins; () is the
    fence. body_offset, spans, fence (where the opening one begins) and inner (what lies between the two) are
    byte offsets; without frontmatter there are none. indent is the column of the top-level keys.
    """

    meta: dict[str, Value]
    lines: dict[Path, int]
    body: str
    body_offset: int
    has_frontmatter: bool
    newline: str
    bom: bool
    spans: dict[str, Span] = field(default_factory=dict)
    fence: int = 0
    inner: tuple[int, int] = (0, 0)
    indent: int = 0

    def line_of(self, *path: str | int) -> int | None:
        """The line of this value, or of the nearest thing around it that has one."""
        for n in range(len(path), -1, -1):
            if path[:n] in self.lines:
                return self.lines[path[:n]]
        return None


class Front(str):
    """The text between two fences, which remembers on which line of the file it begins."""

    first_line: int = 1

    @classmethod
    def at(cls, text: str, first_line: int) -> Front:
        front = cls(text)
        front.first_line = first_line
        return front


@dataclass(frozen=True, slots=True)
class Composed:
    """What a frontmatter holds; spans count characters from its first one."""

    meta: dict[str, Value]
    lines: dict[Path, int]
    spans: dict[str, Span]
    indent: int


class StrictHandler(BaseHandler):  # type: ignore[misc, unused-ignore]
    """Makes python-frontmatter's own functions read our files, strictly.

    `frontmatter.parse(text, handler=StrictHandler())` gives text values, and raises DocumentError where
    the library's own handler gives `{}`. Writing with it is refused: it would not keep a person's bytes.
    """

    FM_BOUNDARY = _CLOSE
    START_DELIMITER = "---"
    END_DELIMITER = "---"

    def __init__(self, loader: type[Any] = _LOADER) -> None:
        super().__init__()
        self._loader = loader

    def detect(self, text: str) -> bool:
        return _OPEN.match(text.removeprefix("\ufeff")) is not None

    def split(self, text: str) -> tuple[str, str]:
        """The frontmatter and the body, verbatim; ValueError (as the library asks) when there is none."""
        text = text.removeprefix("\ufeff")
        opening = _OPEN.match(text)
        if opening is None:
            _refuse_almost_fence(text)
            raise ValueError("no frontmatter")
        line = text.count("\n", 0, opening.start(1)) + 1
        closing = _CLOSE.search(text, opening.end())
        if closing is None:
            raise DocumentError(_unclosed(text, opening.end(), line))
        front = text[opening.end() : closing.start()]
        if (size := len(front.encode())) > MAX_FRONTMATTER:
            raise DocumentError(
                Problem(
                    f"the frontmatter has {size} bytes, the most is {MAX_FRONTMATTER}",
                    line=line,
                    hint="long text belongs below the closing ---",
                )
            )
        return Front.at(front, line + 1), text[text.find("\n", closing.start()) + 1 or len(text) :]

    def load(self, fm: str) -> dict[str, Any]:
        return self.compose(fm).meta

    def export(self, metadata: dict[str, object], **kwargs: object) -> str:
        raise PatchError(Problem("our files are patched, never dumped", hint="use set_block or append"))

    def compose(self, front: str) -> Composed:
        """Values, lines and spans of a frontmatter; DocumentError with everything that is wrong with it."""
        return _Composer(front, self._loader).run()


_HANDLER = StrictHandler()


def read(data: bytes) -> Document:
    """Read a Markdown file; DocumentError says with line, field and way out why it cannot be read."""
    if len(data) > MAX_FILE:
        raise DocumentError(
            Problem(f"the file has {len(data)} bytes, the most is {MAX_FILE}", hint="put the rest elsewhere")
        )
    bom = data.startswith(_BOM)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as exc:
        kind = "UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else f"0x{data[exc.start]:02x}"
        raise DocumentError(
            Problem(f"not UTF-8 ({kind} here)", offset=exc.start, hint="save the file as UTF-8")
        ) from None
    if (nul := data.find(0)) >= 0:
        raise DocumentError(Problem("a NUL byte", offset=nul, hint="save the file as UTF-8 text without it"))
    start = len(_BOM) if bom else 0
    first = text.find("\n")
    newline = "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"
    try:
        front, body = _HANDLER.split(text)
    except ValueError:
        return Document({}, {}, text.removeprefix("\ufeff"), start, False, newline, bom)
    composed = _HANDLER.compose(front)
    text = text.removeprefix("\ufeff")
    opening = _OPEN.match(text)
    assert opening is not None  # split found it
    inner = start + opening.end()
    to_byte = _byte_index(front, inner)
    return Document(
        meta=composed.meta,
        lines={(): text.count("\n", 0, opening.start(1)) + 1, **composed.lines},
        body=body,
        body_offset=len(data) - len(body.encode()),
        has_frontmatter=True,
        newline=newline,
        bom=bom,
        spans={
            key: Span(
                start=to_byte(s.start),
                end=to_byte(s.end),
                value_start=to_byte(s.value_start),
                value_end=to_byte(s.value_end),
                scalar=s.scalar,
            )
            for key, s in composed.spans.items()
        },
        fence=start + opening.start(1),
        inner=(inner, to_byte(len(front))),
        indent=composed.indent,
    )


# --- patching ---------------------------------------------------------------------------------------------


def set_block(data: bytes, key: str, block: Mapping[str, str | int | list[str] | None]) -> bytes:
    """Put the mapping `key:` at the end of the frontmatter, in place of the one that is there.

    One that stands last is replaced where it stands, with what follows it (a person's comment) left alone;
    one that does not is moved to the end. Without frontmatter the fences are made.
    """
    old = read(data)
    want: Value = {_writable(name): _as_read(value) for name, value in block.items()}
    pad, nl = " " * old.indent, old.newline
    if block:
        lines = [f"{pad}{_scalar(key)}:", *(f"{pad}  {_scalar(k)}: {_render(v)}" for k, v in block.items())]
    else:
        lines = [f"{pad}{_scalar(key)}: {{}}"]
    text = "".join(line + nl for line in lines).encode()
    if not old.has_frontmatter:
        fence = f"---{nl}".encode()
        new = data[: old.body_offset] + fence + text + fence + data[old.body_offset :]
    else:
        span, end = old.spans.get(key), old.inner[1]
        if span is None:
            new = data[:end] + text + data[end:]
        elif next(reversed(old.spans)) == key:
            new = data[: span.start] + text + data[span.end :]
        else:
            new = data[: span.start] + data[span.end : end] + text + data[end:]
    return _verified(old, new, {**_without(old.meta, key), key: want}, old.body)


def remove_block(data: bytes, key: str) -> bytes:
    """Take the top-level `key:` out again; fences that hold nothing else go with it.

    They stay where a blank line stands before them, or where the body would be taken for frontmatter.
    """
    old = read(data)
    span = old.spans.get(key)
    if span is None:
        return data
    rest = _without(old.meta, key)
    new = data[: span.start] + data[span.end :]
    only = not (data[old.inner[0] : span.start] + data[span.end : old.inner[1]])
    if only:
        bare = data[: old.fence] + data[old.body_offset :]
        try:
            return _verified(old, bare, rest, old.body)
        except PatchError:
            pass  # blank lines before the fence would join the body, or the body begins like frontmatter itself
    return _verified(old, new, rest, old.body)


def set_scalar(data: bytes, key: str, value: str | int) -> bytes:
    """Set one top-level key to a text, keeping the comment behind it.

    A new key goes to the end, but before the daemon's block.
    """
    old = read(data)
    rendered = _render(value)
    span = old.spans.get(key)
    line = f"{' ' * old.indent}{_scalar(key)}: {rendered}{old.newline}".encode()
    if not old.has_frontmatter:
        fence = f"---{old.newline}".encode()
        new = data[: old.body_offset] + fence + line + fence + data[old.body_offset :]
    elif span is None:
        at = old.spans[BLOCK].start if BLOCK in old.spans else old.inner[1]
        new = data[:at] + line + data[at:]
    elif not span.scalar:
        raise PatchError(
            Problem(
                "holds a list or a mapping, not one value", line=old.line_of(key), field=key,
                hint=f"write {key}: {rendered}",
            )
        )  # fmt: skip
    else:
        gap = "" if data[span.value_start - 1 : span.value_start] in (b" ", b"\t") else " "
        new = data[: span.value_start] + (gap + rendered).encode() + data[span.value_end :]
    return _verified(old, new, {**old.meta, key: _as_read(value)}, old.body)


def append(data: bytes, text: str) -> bytes:
    """Add text at the end of the body, after a blank line, in the file's own line endings.

    The text ends with a line break afterwards. NUL and lone surrogates, which would make the file
    unreadable, become U+FFFD.
    """
    old = read(data)
    nl = old.newline
    text = _writable(text).replace("\r\n", "\n").replace("\r", "\n")
    if text and not text.endswith("\n"):
        text += "\n"
    lead = ""
    if text and data[len(_BOM) if old.bom else 0 :]:
        tail = data.decode("utf-8").replace("\r\n", "\n")
        lead = nl * (2 - min(2, len(tail) - len(tail.rstrip("\n"))))
    added = lead + text.replace("\n", nl)
    new = data + added.encode()
    # The line break that a closing fence at the very end lacked belongs to the fence, not to the body.
    body = old.body + (added if not _fence_lacks_break(old, data) else added.removeprefix(nl))
    return _verified(old, new, old.meta, body)


def _fence_lacks_break(doc: Document, data: bytes) -> bool:
    return doc.has_frontmatter and doc.body_offset == len(data) and not data.endswith(b"\n")


def _verified(old: Document, new: bytes, meta: Mapping[str, Value], body: str) -> bytes:
    try:
        doc = read(new)
    except DocumentError as exc:
        raise PatchError(*exc.problems) from exc
    if doc.meta != meta or doc.body != body or doc.bom != old.bom:
        what = "the body" if doc.body != body else "another key"
        raise PatchError(Problem(f"the change would also have changed {what}", hint="nothing was written"))
    return new


def _without(meta: Mapping[str, Value], key: str) -> dict[str, Value]:
    return {k: v for k, v in meta.items() if k != key}


def _writable(text: str) -> str:
    return _UNWRITABLE.sub("\ufffd", text)


def _as_read(value: str | int | list[str] | None) -> Value:
    if isinstance(value, list):
        return [_writable(item) for item in value]
    return None if value is None else _writable(str(value))


def _render(value: str | int | list[str] | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, list):
        return "[" + ", ".join(_item(_writable(item)) for item in value) + "]"
    return _scalar(str(value))


def _item(text: str) -> str:
    return text if _ITEM.fullmatch(text) and not _means_else(text) else _quoted(text)


def _scalar(text: str) -> str:
    """A scalar as our reader gives it back: plain where that is safe, else in double quotes."""
    text = _writable(text)
    if _PLAIN.fullmatch(text) and text.isprintable() and not _means_else(text) and not text.endswith(":"):
        return text
    return _quoted(text)


def _means_else(text: str) -> bool:
    return text.lower() in _READ_ELSEWHERE


def _quoted(text: str) -> str:
    out = []
    for char in text:
        if char in '"\\':
            out.append("\\" + char)
        elif char.isprintable():
            out.append(char)
        elif char in "\n\t\r":
            out.append({"\n": "\\n", "\t": "\\t", "\r": "\\r"}[char])
        else:
            out.append(f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}")
    return '"' + "".join(out) + '"'


def _byte_index(text: str, base: int) -> Callable[[int], int]:
    if text.isascii():
        return lambda index: base + index
    return lambda index: base + len(text[:index].encode())


# --- reading ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Frame:
    path: Path
    flow: bool
    into: dict[str, Value] | list[Value]
    key: str | None = None


class _Composer:
    """Builds text values out of YAML's events, and refuses what a plain reader cannot see at a glance."""

    def __init__(self, front: str, loader: type[Any]) -> None:
        self.front = str(front)  # libyaml takes no subclass
        self.first_line = front.first_line if isinstance(front, Front) else 1
        self.loader = loader
        self.problems: list[Problem] = []
        self.meta: dict[str, Value] = {}
        self.lines: dict[Path, int] = {}
        self.frames: list[_Frame] = []
        self.spans: dict[str, Span] = {}
        self.indent = 0
        self.documents = 0
        self.key_start = 0
        self.value_start, self.value_is_scalar = 0, True
        self.last_end = 0

    def run(self) -> Composed:
        if bad := _FORBIDDEN.search(self.front):
            before = self.front[: bad.start()]
            raise DocumentError(
                Problem(
                    f"the character U+{ord(bad[0]):04X} cannot stand in frontmatter",
                    line=self.first_line + before.count("\n"),
                    column=bad.start() - before.rfind("\n"),
                    hint="delete it; it is invisible in most editors" if bad[0] != "\r" else "use LF or CRLF",
                )
            )
        try:
            for event in yaml.parse(self.front, Loader=self.loader):
                if not self._take(event) or len(self.problems) >= MAX_PROBLEMS:
                    break
        except yaml.YAMLError as exc:
            self._fault(exc)
        except (ValueError, OverflowError):  # PyYAML's own scanner, at "\U00110000"
            self.problems.append(
                Problem("a \\ escape in double quotes names no character", self.first_line, hint="use '...'")
            )
        if self.problems:
            raise DocumentError(*self.problems)
        return Composed(self.meta, self.lines, self.spans, self.indent)

    # Each step: False ends the reading, because nothing after it could be understood.

    def _take(self, event: Any) -> bool:
        end: Any = event.end_mark
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            return self._open(event)
        if isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            frame = self.frames.pop()
            if frame.flow:
                self.last_end = end.index
            if not self.frames:
                self._close_span()
            return True
        if isinstance(event, yaml.AliasEvent):
            self._unquoted(event.start_mark, "*")
            self.last_end = end.index
            return self._attach("", event)
        if isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1 or event.version or event.tags:
                what = "a second YAML document" if self.documents > 1 else "a YAML directive (%)"
                self._problem(
                    event.start_mark, f"{what} in the frontmatter", hint="write key: value lines only"
                )
                return False
        return True

    def _scalar(self, event: Any) -> bool:
        mark = event.start_mark
        if event.anchor is not None or event.tag is not None:
            self._unquoted(mark, "&" if event.anchor is not None else "!")
        plain = not event.style
        text: str = event.value
        if _UNWRITABLE.search(text):
            self._problem(mark, "an escape for NUL or half a character", hint="write the character itself")
        if not self.frames:
            return self._no_mapping(mark, text)
        frame = self.frames[-1]
        if isinstance(frame.into, dict) and frame.key is None:
            return self._key(frame, text, plain, event)
        self.last_end = event.end_mark.index
        return self._attach(None if plain and text in _NULL else text, event)

    def _key(self, frame: _Frame, text: str, plain: bool, event: Any) -> bool:
        mark = event.start_mark
        path = (*frame.path, text)
        if not text:
            self._problem(mark, "a key is missing before the colon", hint="write key: value")
        elif plain and text == "<<":
            self._problem(mark, "merge keys (<<) are not read", field=_name(path), hint="write the keys out")
        elif path in self.lines:
            line = self.first_line + mark.line
            self._problem(
                mark,
                f"{text!r} stands twice, on lines {self.lines[path]} and {line}",
                field=_name(path),
                hint="keep one of them",
            )
        self.lines.setdefault(path, self.first_line + mark.line)
        frame.key = text
        if len(self.frames) == 1:
            self._close_span()
            self.key_start = mark.index
        self.last_end = event.end_mark.index
        return True

    def _open(self, event: Any) -> bool:
        mark = event.start_mark
        mapping = isinstance(event, yaml.MappingStartEvent)
        if event.anchor is not None or event.tag is not None:
            self._unquoted(mark, "&" if event.anchor is not None else "!")
        if not self.frames:
            if not mapping:
                return self._no_mapping(mark, self._line_text(mark))
            if event.flow_style:
                self._problem(
                    mark,
                    "the frontmatter is a mapping in braces",
                    hint="write one `key: value` per line, without { }",
                )
                return False
            self.indent = mark.column
            self.frames.append(_Frame((), False, self.meta))
            return True
        frame = self.frames[-1]
        if isinstance(frame.into, dict) and frame.key is None:
            key, value = self._parts(mark)[1:3]
            hint = f"{key}: {_hinted(value)}" if key and value.startswith("{{") else "write key: value"
            self._problem(
                mark, "a key must be text, not a list or a mapping", field=key or None, value=value, hint=hint
            )
            return False
        if len(self.frames) >= MAX_DEPTH:
            self._problem(mark, f"nested more than {MAX_DEPTH} deep", hint="write it flat")
            return False
        into: dict[str, Value] | list[Value] = {} if mapping else []
        path = self._path(frame)
        self._attach(into, event)
        self.frames.append(_Frame(path, bool(event.flow_style), into))
        return True

    def _path(self, frame: _Frame) -> Path:
        return (*frame.path, len(frame.into) if isinstance(frame.into, list) else frame.key or "")

    def _attach(self, value: Value, event: Any) -> bool:
        if not self.frames:
            return self._no_mapping(event.start_mark, "")
        frame = self.frames[-1]
        path = self._path(frame)
        self.lines.setdefault(path, self.first_line + event.start_mark.line)
        if isinstance(frame.into, list):
            frame.into.append(value)
        elif frame.key is None:
            self.problems.append(Problem("an alias as a key", line=self.first_line + event.start_mark.line))
            return False
        else:
            frame.into[frame.key] = value
            frame.key = None
        if len(self.frames) == 1:
            self.value_start = event.start_mark.index
            self.value_is_scalar = not isinstance(value, dict | list)
        return True

    def _close_span(self) -> None:
        """Record the lines of the top-level key that just ended; what stands below its value is not its."""
        if len(self.meta) == len(self.spans):
            return
        key = next(reversed(self.meta))
        end = self.key_start + len(self.front[self.key_start : self.last_end].rstrip())
        self.spans[key] = Span(
            start=self.front.rfind("\n", 0, self.key_start) + 1,
            end=self.front.find("\n", end) + 1 or len(self.front),
            value_start=self.value_start,
            value_end=max(end, self.value_start),
            scalar=self.value_is_scalar,
        )

    # What is said about a fault: the line, what stands there, and the form that would be right.

    def _problem(
        self, mark: Any, message: str, *, field: str | None = None, value: str | None = None, hint: str
    ) -> None:
        self.problems.append(
            Problem(
                message,
                line=self.first_line + mark.line,
                column=mark.column + 1,
                field=field,
                value=value if value is None else clipped(value),
                hint=clipped(hint),
            )
        )

    def _no_mapping(self, mark: Any, text: str) -> bool:
        self._problem(
            mark,
            "the text between the --- lines is not `key: value`",
            value=text,
            hint="write key: value lines there; for a horizontal rule write *** instead of ---",
        )
        return False

    def _line_text(self, mark: Any) -> str:
        lines = self.front.split("\n")
        return lines[mark.line][:1000].rstrip("\r") if mark.line < len(lines) else ""

    def _parts(self, mark: Any) -> tuple[str, str, str]:
        """What leads a line (indentation and dashes), its key and its value without comment."""
        found = _LINE.match(self._line_text(mark))
        assert found is not None  # every part of the pattern may be empty
        value = re.split(r"\s#", " " + found["value"])[0].strip()
        return found["lead"], found["key"] or "", value

    def _unquoted(self, mark: Any, sign: str) -> None:
        lead, key, value = self._parts(mark)
        what = {"*": "an alias", "&": "an anchor", "!": "a tag"}.get(sign, "a special sign")
        self._problem(
            mark,
            f"a value that begins with {sign} is {what} in YAML and must be in quotes",
            field=self._field(key),
            value=value,
            hint=_quote_hint(lead, key, value),
        )

    def _fault(self, exc: yaml.YAMLError) -> None:
        mark, begin = getattr(exc, "problem_mark", None), getattr(exc, "context_mark", None)
        context, problem = getattr(exc, "context", None) or "", str(getattr(exc, "problem", None) or exc)
        mark = mark or begin
        if mark is None:
            self.problems.append(Problem(problem, line=self.first_line, hint="quote the value"))
        elif "<document start>" in problem:  # YAML notices a directive only on the line after it
            message = "a line that begins with % stands in the frontmatter"
            self.problems.append(Problem(message, line=self.first_line, hint="write key: value lines only"))
        elif "nesting depth" in problem:
            self._problem(mark, f"nested more than {MAX_DEPTH} deep", hint="write it flat")
        else:
            if begin and begin.line < mark.line and re.search("quoted scalar|simple key|flow", context):
                mark = begin  # where the fault began, not where YAML noticed it
            raw = self._line_text(mark)
            lead, key, value = self._parts(mark)
            message, hint = _diagnosis(raw, lead, key, value, problem)
            self._problem(mark, message, field=self._field(key), value=value or raw.strip(), hint=hint)

    def _field(self, key: str) -> str | None:
        """The key on the line itself, else the one that the list around it belongs to."""
        inside = self.meta and len(self.frames) > 1
        return key or (next(reversed(self.meta)) if inside else None)


def _name(path: Iterable[str | int]) -> str:
    """A path as people write it: done_when[0].run."""
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else part
    return out


def clipped(text: str) -> str:
    """A value, short enough for an error text."""
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def _hinted(text: str) -> str:
    """A value in the quotes that need the fewest escapes."""
    if ('"' in text or "\\" in text) and "'" not in text:
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=False)


def _quote_hint(lead: str, key: str, value: str) -> str:
    if value.startswith("[") and value.endswith("]") and value.count("[") == 1:
        items = (item.strip() for item in value[1:-1].split(","))
        good = (i if _ITEM.fullmatch(i) or i[:1] in "\"'" else _hinted(i) for i in items if i)
        right = "[" + ", ".join(good) + "]"
    elif re.fullmatch(r"[\[{].*[\]}]", value) and not value.startswith("{{"):
        right = _SIGNED.sub(lambda found: found[1] + _hinted(found[2]), value)
        right = _hinted(value) if right == value else right
    else:
        right = _hinted(value)
    dash = "- " if "-" in lead else ""
    return f"{dash}{key}: {right}" if key else f"{dash}{right}"


def _diagnosis(raw: str, lead: str, key: str, value: str, problem: str) -> tuple[str, str]:
    """What is wrong with a line that YAML cannot read, and what would be right."""
    first, quoted = value[:1], _quote_hint(lead, key, value)
    if "\t" in raw[: len(raw) - len(raw.lstrip())]:
        return "a tab in the indentation", "indent with spaces"
    if first and first in "*&!%@`|>":
        return f"a value that begins with {first} must be in quotes", quoted
    if first and first in "\"'":
        if first not in value[1:]:
            return "the quotes are not closed", f"add {first} at the end, or {quoted}"
        return "text after the closing quote, or an escape that YAML does not know", quoted
    if first and first in "[{" and not value.startswith("{{"):
        last = "]" if first == "[" else "}"
        if mapping := re.fullmatch(r"\{(.*?)([\w-]+):\s*not:\s*([^,{}]+?)\s*(,.*)?\}", value):
            before, name, what, after = (part or "" for part in mapping.groups())
            right = f"{{{before}{name}: {{not: {what}}}{after}}}"
            return "a mapping within a mapping has braces of its own", f"{key}: {right}" if key else right
        hint = quoted if value.endswith(last) else f"close them with {last}, or {quoted}"
        return "the brackets do not hold what YAML expects", hint
    if value.startswith("{{"):
        return "a value with braces in it must be in quotes", quoted
    if re.search(r":(\s|$)", value):
        return "a value with a colon in it must be in quotes", quoted
    if value and not key and not lead.strip():
        return "this line is not `key: value`", "write a key before it, or move it below the closing ---"
    return f"not readable as YAML ({problem})", "begin every key in the same column, as `key: value`"


def _unclosed(text: str, inner: int, line: int) -> Problem:
    almost = _ALMOST_CLOSE.search(text, inner)
    at = f"; line {text.count(chr(10), 0, almost.start()) + 1} is only like one" if almost else ""
    return Problem(
        f"unclosed frontmatter: the --- on this line has no closing --- line{at}",
        line=line,
        column=1,
        value="---",
        hint="add a line --- below the last key; for a horizontal rule write ***",
    )


def _refuse_almost_fence(text: str) -> None:
    """Refuse a first line that is meant as a fence and is none: nothing may be read without its settings."""
    found = _FIRST_LINE.match(text)
    assert found is not None  # every part of the pattern may be empty
    first, second = found.groups()
    bare = text[: found.end(1)].strip(_INVISIBLE)
    if bare == "---":
        message = "the opening --- is indented, has an invisible character beside it, or ends with a lone CR"
    elif re.fullmatch(r"---[ \t]*(?:[A-Za-z]+|#.*)", first) and _CLOSE.search(text, found.end(1)):
        message = "the opening --- has something behind it"
    elif re.fullmatch("-{4,}", bare) and _KEY_FIRST.match(second) and _ANY_DASHES.search(text, found.end(1)):
        message = "the first line has more than three dashes"
    elif bare == "+++" and _PLUSES.search(text, found.end(1)):
        message = "frontmatter between +++ (TOML) is not read"
    elif _SMART_DASHES.fullmatch(bare) and not bare.isascii() and _KEY_FIRST.match(second):
        message = "the first line has a typographic dash in place of ---"
    else:
        return
    raise DocumentError(
        Problem(
            message,
            line=text.count("\n", 0, found.start(1)) + 1,
            value=first,
            hint="write `key: value` lines between two lines of ---"
            if bare == "+++"
            else "a first line of exactly --- begins frontmatter; for a horizontal rule write ***",
        )
    )
