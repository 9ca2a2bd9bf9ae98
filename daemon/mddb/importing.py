"""What people already have, as documents: instructions, rules, skills, agents and commands of other programs.

Invariants:

- The text is kept byte for byte: it is the body of the document, and a document that would not read back so is refused.
- What other programs wrote above a text is lost in no case: it is in `imported.frontmatter`, verbatim, or stays.
- A rule that other programs read is never silently inactive: globs are read as they stand (``globs: *.tsx``, which
  is no YAML), and what cannot be read as keys stays in the text.

Formats: Claude Code's memory, skills, sub-agents and slash commands; AGENTS.md; Cursor's rules (.mdc); Copilot's
instructions (applyTo). Pure: bytes in, bytes out; `daemon.mddb.sources` finds the files.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, Literal, TypeAlias

from daemon.errors import DocumentError, Problem
from daemon.mddb import schema
from daemon.spool import frontmatter
from daemon.spool.frontmatter import MAX_FILE, StrictHandler, Value
from daemon.tracks.ids import slug

SourceKind: TypeAlias = Literal[
    "claude", "agents", "gemini", "qwen", "copilot", "cursorrules", "windsurfrules",
    "cursor-rule", "copilot-rule", "claude-rule", "skill", "agent", "command", "plain",
]  # fmt: skip

#: Who reads a file of this kind. Kinds that are not here are told to every harness.
READERS: Final[Mapping[SourceKind, tuple[str, ...]]] = {
    "claude": ("claude-code", "openclaude"),
    "gemini": ("gemini",),
    "qwen": ("qwen",),
}
#: The file of its own that makes a harness leave AGENTS.md alone. Qwen Code reads both.
INSTEAD_OF_AGENTS: Final[Mapping[str, SourceKind]] = {"CLAUDE.md": "claude", "GEMINI.md": "gemini"}
#: Keys of a rule that say which files it is about.
_GLOB_KEYS = ("globs", "applyTo", "paths")
_EVERYTHING = frozenset(("*", "**", "**/*"))
_RULES = frozenset(("cursor-rule", "copilot-rule", "claude-rule", "agent", "command", "skill"))
_MOVED = ("description", "name", "alwaysApply", *_GLOB_KEYS)
_BOM = "\ufeff"
_KEY = re.compile(r"([A-Za-z_][\w-]*)[ \t]*:(?:[ \t]+(.*)|)$")
# What YAML or the reader of our frontmatter cannot have in double quotes as it is.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_PLAIN = re.compile(r"[A-Za-z~/][\w./~@+-]*(?: [\w./~@+-]+)*")
_WORDS = frozenset(("null", "true", "false", "yes", "no", "on", "off", "~"))
_CODE = re.compile(r"^(```|~~~).*?(?:^\1|\Z)|`[^`\n]*`", re.M | re.S)
_FILE_IMPORT = re.compile(
    r"(?<![\w@/.`])@((?:~/|\.{1,2}/|/)[\w./~-]+|[\w./~-]+\.(?:md|mdc|txt|json|ya?ml|toml))(?![\w/])"
)
_FILLED_IN = re.compile(r"\$ARGUMENTS|\$[1-9]\b")
_RUN_FIRST = re.compile(r"(?:^|\s)!`[^`\n]+`")
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class SkillFile:
    data: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """A file of somebody, and where it stands.

    origin: its path, ``~`` for the home directory. name: what it is called where it comes from, with its folders.
    project: the id of the project whose repository it lies in; "": none, or it is the person's for all projects.
    inside: the folder of that repository that it is about; "": all. own: the harness in whose folder it lies.
    excluded: harnesses that read another file instead. also: what it is by other names, that are links to it.
    files: of a skill, all but SKILL.md, by relative path.
    """

    origin: str
    kind: SourceKind
    name: str
    data: bytes
    project: str = ""
    inside: str = ""
    own: str = ""
    excluded: tuple[str, ...] = ()
    also: tuple[SourceKind, ...] = ()
    files: Mapping[str, SkillFile] | None = None
    notes: tuple[str, ...] = ()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True, slots=True)
class Plan:
    """The document that a source becomes. path: relative to md-db, if it is free there."""

    path: str
    data: bytes
    notes: tuple[str, ...] = ()


def plan(source: Source) -> Plan:
    """The document that a source becomes. Raises DocumentError: it cannot become one, and why."""
    return _Planning(source).plan()


def another(path: str, origin: str) -> str:
    """The name for a document whose own is taken: always the same one for this source."""
    digest = hashlib.sha256(origin.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    pure = PurePosixPath(path)
    if pure.name == "SKILL.md":
        return str(pure.parent.with_name(f"{pure.parent.name}-{digest}") / "SKILL.md")
    return str(pure.with_name(f"{pure.stem}-{digest}.md"))


def files_named(text: str) -> list[str]:
    """The files that Claude Code would read in the place of ``@path`` in this text; code is left alone, as there."""
    return list(dict.fromkeys(_FILE_IMPORT.findall(_CODE.sub(" ", text))))


def project_document(repository: str) -> bytes:
    return f"---\nrepository: {_scalar(repository)}\n---\n".encode()


def readable_text(data: bytes) -> str:
    """The text of a file. Raises DocumentError with the place where it stops being one."""
    if len(data) > MAX_FILE:
        raise DocumentError(
            Problem(
                f"the file has more than {MAX_FILE} bytes", hint="split it; an agent reads it at every start"
            )
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        at, what = error.start, "not UTF-8"
        byte = "UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else f"0x{data[at]:02x}"
    else:
        if (at := data.find(0)) < 0:
            return text
        what, byte = "a NUL", "0x00"
    line = data.count(b"\n", 0, at) + 1
    raise DocumentError(
        Problem(f"{what} ({byte} at byte {at})", line=line, hint="save the file as UTF-8 text")
    )


# --- an import again --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Imported:
    """What a document says of the source that it was made from."""

    origin: str
    sha256: str


_ORIGIN = re.compile(r"^imported:[ \t]*\r?\n(?:[ \t]+.*\n)*?[ \t]+from:[ \t]*(.*?)[ \t]*\r?$", re.M)
_DIGEST = re.compile(r"^[ \t]+sha256:[ \t]*[\"']?([0-9a-f]{64})", re.M)


def imported(data: bytes) -> Imported | None:
    """The source of a document; None: it has none. Also of one whose frontmatter somebody has broken since."""
    if b"imported" not in data:
        return None
    try:
        found = frontmatter.read(data).meta.get("imported")
    except DocumentError:
        text = data.decode("utf-8", "replace")
        origin = _ORIGIN.search(text)
        if origin is None:
            return None
        digest = _DIGEST.search(text, origin.end())
        return Imported(_unquoted(origin[1]), digest[1] if digest is not None else "")
    if not isinstance(found, dict) or not isinstance(found.get("from"), str):
        return None
    return Imported(str(found["from"]), str(found.get("sha256") or ""))


def edited(document: bytes) -> bool:
    """Whether the text of a document is another one than was imported, as far as that can be told."""
    read = frontmatter.read(document)
    found = read.meta.get("imported")
    if not isinstance(found, dict):
        return True
    front = found.get("frontmatter")
    mark = _BOM if read.bom else ""
    for nl in ("\n", "\r\n"):
        fenced = f"---{nl}{front}---{nl}" if isinstance(front, str) else ""
        whole = (mark + fenced + read.body).encode("utf-8", "surrogatepass")
        if hashlib.sha256(whole).hexdigest() == found.get("sha256"):
            return False
    return True


def updated(path: str, document: bytes, fresh: bytes) -> tuple[bytes, tuple[str, ...]]:
    """A document with the text of a newer state of its source; all else that stands above it stays as it is.

    fresh: the document that the source would become now. Raises DocumentError where that does not fit together.
    """
    old, new = frontmatter.read(document), frontmatter.read(fresh)
    notes: list[str] = []
    if "imported" in new.meta and "imported" in old.spans:
        span, with_ = old.spans["imported"], new.spans["imported"]
        head = document[: span.start] + fresh[with_.start : with_.end] + document[span.end : old.body_offset]
        result = head + fresh[new.body_offset :]
        if _given(old.meta) != _given(new.meta):
            notes.append("what stands above its text was written at the first import, or by you, and stays")
    else:
        # A skill as it is: its own keys come from the source, what says when it applies is the person's.
        mine = [key for key in old.spans if key in ("applies_when", "order", "overrides")]
        result = fresh
        for key in ("applies_when", "order", "overrides"):
            result = frontmatter.remove_block(result, key)
        lines = b"".join(document[old.spans[key].start : old.spans[key].end] for key in mine)
        if lines:
            result = _with_lines(result, lines)
    read = frontmatter.read(result)
    kept = {key: old.meta.get(key) for key in ("applies_when", "order", "overrides")}
    if read.body != new.body or {key: read.meta.get(key) for key in kept} != kept:
        raise DocumentError(Problem("the new text does not fit under what you have written above the old one",
                                    hint="take the text over by hand"))  # fmt: skip
    _check(path, result)
    return result, tuple(notes)


def _given(meta: Mapping[str, Value]) -> Mapping[str, Value]:
    return {key: value for key, value in meta.items() if key != "imported"}


def _with_lines(data: bytes, lines: bytes) -> bytes:
    """A document with these lines at the end of its frontmatter."""
    read = frontmatter.read(data)
    if not read.has_frontmatter:
        start = read.body_offset
        return data[:start] + b"---\n" + lines + b"---\n" + data[start:]
    end = read.inner[1]
    return data[:end] + lines + data[end:]


# --- planning ---------------------------------------------------------------------------------------------


class _Planning:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.notes = list(source.notes)
        self.text = readable_text(source.data)
        self.bom = self.text.startswith(_BOM)
        self.front, self.body = self._split(self.text.removeprefix(_BOM))
        self.values = self._values()

    def plan(self) -> Plan:
        match self.source.kind:
            case "skill":
                return self._skill()
            case "agent" | "command":
                return self._by_name()
            case "cursor-rule" | "copilot-rule" | "claude-rule":
                return self._rule()
            case "plain":
                return self._plain()
            case _:
                return self._instruction(
                    [f"{self.source.inside}/**"] if self.source.inside else [], self._readers()
                )

    # -- what each kind becomes

    def _instruction(self, globs: list[str], readers: Mapping[str, object] | None = None) -> Plan:
        if self.source.kind == "claude" and (named := files_named(self.body)):
            self.notes.append(
                f"it names other files, whose text is not taken along: {', '.join('@' + n for n in named)}; "
                "import those that should be told, too, or put their text into the document"
            )
        meta: dict[str, object] = {}
        if description := self._one("description"):
            meta["description"] = description
        meta["applies_when"] = {**(readers or {}), **self._project()}
        meta["globs"] = globs
        folder = f"instructions/{self.source.project}" if self.source.project else "instructions"
        return self._document(f"{folder}/{slug(self.source.name)}.md", meta)

    def _rule(self) -> Plan:
        source = self.source
        globs = list(dict.fromkeys(glob for key in _GLOB_KEYS for glob in self._globs(key)))
        always = self._one("alwaysApply").lower() in ("true", "yes", "on")
        if source.kind == "copilot-rule" and _EVERYTHING.intersection(globs):
            always = True
        if source.kind == "claude-rule" and not globs:
            always = True
        if always:
            if globs and not _EVERYTHING.intersection(globs):
                self.notes.append(f"it always applies, so its globs mean nothing: {', '.join(globs)}")
            globs = []
        if always or globs:
            if source.inside:
                if globs:
                    self.notes.append(f"its globs are as written, below {source.inside}/")
                else:
                    globs = [f"{source.inside}/**"]
            return self._instruction(globs)
        if not self._one("description"):
            self.notes.append("it applied only when somebody named it; here it is a skill, told by its name")
        return self._by_name()

    def _by_name(self) -> Plan:
        """A skill of one file."""
        source = self.source
        name = self._one("name") if source.kind == "agent" else ""
        meta: dict[str, object] = {"name": name or source.name.replace("/", ":")}
        if description := self._one("description") or self._first_line():
            meta["description"] = description
        if project := self._project():
            meta["applies_when"] = project
        if source.kind == "command":
            if found := _FILLED_IN.search(self.body):
                self.notes.append(f"{found[0]} stands in it, which nothing fills in here")
            if _RUN_FIRST.search(self.body):
                self.notes.append("commands stand in it (!`...`), whose output nothing puts in here")
        return self._document(f"skills/{slug(source.name)}.md", meta)

    def _skill(self) -> Plan:
        source = self.source
        path = f"skills/{slug(source.name)}/SKILL.md"
        if not self._one("description"):
            self.notes.append("it has no description: agents see only its name")
        as_it_is = self._patched(path)
        if as_it_is is not None:
            return Plan(path, as_it_is, tuple(self.notes))
        meta: dict[str, object] = {"name": self._one("name") or source.name}
        if description := self._one("description"):
            meta["description"] = description
        if project := self._project():
            meta["applies_when"] = project
        return self._document(path, meta)

    def _patched(self, path: str) -> bytes | None:
        """SKILL.md as it is, with a clause for its project; None: it is no document of ours."""
        data = self.source.data
        try:
            if schema.parse(path, "", data).problems:
                return None
            read = frontmatter.read(data)
            if self.source.project and "applies_when" in read.meta:
                self.notes.append("it says itself when it applies, and so has no clause for its project")
            elif self.source.project:
                data = frontmatter.set_block(data, "applies_when", {"project_id": [self.source.project]})
            if frontmatter.read(data).body != read.body:
                return None
            _check(path, data)
        except DocumentError:
            return None
        return data

    def _plain(self) -> Plan:
        """An instruction for all; one that is a document of ours already keeps what stands above its text."""
        source = self.source
        path = _placed(f"instructions/{slug(source.name)}.md")
        try:
            read = frontmatter.read(source.data)
            if read.has_frontmatter and not schema.parse(path, "", source.data).problems:
                block: dict[str, str | int | list[str] | None] = {
                    "from": source.origin,
                    "sha256": source.sha256,
                }
                if "imported" in read.meta:
                    block["frontmatter"] = self.front  # where it came from before is not lost
                data = frontmatter.set_block(source.data, "imported", block)
                _check(path, data)
                return Plan(path, data, tuple(self.notes))
        except DocumentError:
            pass  # then what stands there is somebody else's
        return self._instruction([])

    def _readers(self) -> dict[str, object]:
        source = self.source
        kinds = (source.kind, *source.also)
        if all(kind in READERS for kind in kinds):
            return {"harness_id": list(dict.fromkeys(name for kind in kinds for name in READERS[kind]))}
        if source.own and not source.also:
            return {"harness_id": [source.own]}
        return {"harness_id": {"not": list(source.excluded)}} if source.excluded else {}

    def _project(self) -> dict[str, object]:
        return {"project_id": [self.source.project]} if self.source.project else {}

    # -- what stands above a text

    def _split(self, text: str) -> tuple[str, str]:
        """What stands between the fences, and what follows; "" and all of it where that is part of the text."""
        try:
            front, body = StrictHandler().split(text)
        except ValueError:
            return "", text
        except DocumentError as error:
            self.notes.append(f"{error.problems[0]}: all of it is taken as the text")
            return "", text
        if not front.strip():
            return front, body
        lines = [line.rstrip("\r") for line in front.split("\n")]
        keys = any(map(_KEY.match, lines))
        if keys and self.source.kind not in _RULES:
            # Elsewhere two --- lines may be rules of the text, with a `Note: ...` between them.
            keys = all(_KEY.match(line) or re.match(r"\s|#|- |\Z", line) for line in lines) or _composes(
                front
            )
        if not keys:
            self.notes.append(
                "no key stands between its first two --- lines: they are taken as part of the text"
            )
            return "", text
        return front, body

    def _values(self) -> dict[str, Value]:
        if not self.front.strip():
            return {}
        try:
            return StrictHandler().compose(self.front).meta
        except DocumentError as error:
            self.notes.append(
                f"what stands above its text is no YAML, and was read line by line: {error.problems[0].message}"
            )
            return lenient(self.front)

    def _one(self, key: str) -> str:
        value = self.values.get(key)
        if isinstance(value, list):
            value = ", ".join(each for each in value if isinstance(each, str))
        return " ".join(value.split()) if isinstance(value, str) else ""

    def _globs(self, key: str) -> Iterable[str]:
        value = self.values.get(key)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str):
                yield from (part for part in _parts(each) if part)
            elif isinstance(each, list | dict):
                self.notes.append(
                    f"an entry of {key} is no text, and is left out; it is in imported.frontmatter"
                )

    def _first_line(self) -> str:
        for line in self.body.split("\n"):
            if words := " ".join(line.strip().lstrip("#").split()):
                return words if len(words) <= _SHOWN else words[: _SHOWN - 1] + "…"
        return ""

    # -- the document

    def _document(self, path: str, meta: Mapping[str, object]) -> Plan:
        source = self.source
        path = _placed(path)
        others = [key for key in self.values if key not in _MOVED]
        if others:
            self.notes.append(f"kept in imported.frontmatter, without effect here: {', '.join(others)}")
        nl = "\r\n" if re.match(r"[^\n]*\r\n", self.text) else "\n"
        for written in (_literal(self.front), _scalar(self.front)):
            lines = ["---"]
            for key, value in meta.items():
                lines += _lines(key, value)
            lines += ["imported:", f"  from: {_scalar(source.origin)}", f"  sha256: {source.sha256}"]
            if self.front:
                lines += f"  frontmatter: {written}".split("\n")
            lines += ["---", ""]
            data = ((_BOM if self.bom else "") + nl.join(lines) + self.body).encode()
            try:
                read = frontmatter.read(data)
            except DocumentError as error:
                problem = error.problems[0]
                continue
            found = read.meta.get("imported")
            kept = found.get("frontmatter", "") if isinstance(found, dict) else None
            # Its span must be all of it, for a later `updated`: blank lines at the end of a block are not in it.
            whole = read.spans["imported"].end == read.inner[1]
            if whole and read.body == self.body and kept == self.front:
                _check(path, data)
                return Plan(path, data, tuple(self.notes))
            problem = Problem("it would not read back as it is", hint="take it over by hand")
        raise DocumentError(problem)


def _placed(path: str) -> str:
    """This path, or another one where its name means something else there (router-policy, readme)."""
    pure = PurePosixPath(path)
    right = schema.kind_of(path) in ("instruction", "skill")
    return path if right else str(pure.with_name(f"imported-{pure.name}"))


def _composes(front: str) -> bool:
    try:
        StrictHandler().compose(front)
    except DocumentError:
        return False
    return True


def _check(path: str, data: bytes) -> None:
    if problems := schema.parse(path, "", data).problems:
        raise DocumentError(*problems)


# --- reading other programs' frontmatter ------------------------------------------------------------------


def lenient(front: str) -> dict[str, Value]:
    """Top-level keys by lines, where YAML fails: a value is the text as it stands, a list, or an indented block."""
    found: dict[str, Value] = {}
    lines = [line.rstrip("\r") for line in front.split("\n")]
    at = 0
    while at < len(lines):
        match = _KEY.match(lines[at])
        at += 1
        if match is None:
            continue
        below: list[str] = []
        while at < len(lines) and (
            not lines[at].strip() or lines[at][0] in " \t" or lines[at].startswith("- ")
        ):
            below.append(lines[at])
            at += 1
        found[match[1]] = _value((match[2] or "").strip(), below)
    return found


def _value(first: str, below: list[str]) -> Value:
    inner = [line.strip() for line in below if line.strip()]
    if re.fullmatch(r"[|>][+-]?\d?(?:\s+#.*)?", first):
        return ("\n" if first[0] == "|" else " ").join(line.strip() for line in below).strip()
    first = _uncommented(first)
    if first.startswith("["):
        whole = " ".join([first, *inner]).strip()
        if whole.endswith("]"):
            return [_unquoted(part) for part in _parts(whole[1:-1]) if part]
    if not first and inner and all(line.startswith("-") for line in inner):
        items = (_unquoted(_uncommented(line[1:].strip())) for line in inner)
        return [item for item in items if item]
    return _unquoted(" ".join([first, *inner]).strip())


def _uncommented(text: str) -> str:
    if text[:1] in ("'", '"'):
        end = text.find(text[0], 1)
        return text[: end + 1] if end > 0 and re.fullmatch(r"\s+#.*", text[end + 1 :]) else text
    return re.split(r"(?:^|\s)#", text, maxsplit=1)[0].strip()


def _unquoted(text: str) -> str:
    text = text.strip()
    if len(text) < 2 or text[0] != text[-1] or text[0] not in "'\"":
        return text
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    try:
        read = json.loads(text)
    except ValueError:
        return text[1:-1]
    return str(read)


def _parts(text: str) -> list[str]:
    """What commas separate; none in braces, brackets or quotes (``*.{ts,tsx}`` is one glob)."""
    parts, depth, quote, start = [], 0, "", 0
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"" and not text[start:at].strip():
            quote = char
        elif char in "{[":
            depth += 1
        elif char in "}]":
            depth = max(0, depth - 1)
        elif char == "," and not depth:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()]


# --- writing ----------------------------------------------------------------------------------------------


def _scalar(text: str) -> str:
    """A text as the reader gives it back: plain where nobody could read it as something else."""
    if _PLAIN.fullmatch(text) and text.isascii() and text.lower() not in _WORDS:
        return text
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


def _literal(text: str) -> str:
    """A text as a block of lines, as it was written; where that cannot be read back, `_scalar` is taken."""
    sign = "|2" if re.match(r"\s", text) else "|"
    lines = (f"    {line}" if line else "" for line in text.removesuffix("\n").split("\n"))
    return "\n".join([sign, *lines])


def _lines(key: str, value: object) -> list[str]:
    if isinstance(value, dict):
        inner = [f"  {name}: {_flow(each)}" for name, each in value.items()]
        return [f"{key}:", *inner] if inner else []
    if isinstance(value, list):
        return [f"{key}: {_flow(value)}"] if value else []
    return [f"{key}: {_flow(value)}"]


def _flow(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(str(value))
