"""The documents of the database: which files are some, what may stand above their text, and what each key means.

A document that has faults is still a document: what could be read of it says whether a session is concerned by the
rest. Every fault is reported at once, with its line. Pure: paths and bytes in, documents out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Final, Literal, TypeAlias

from daemon.errors import DocumentError, Problem
from daemon.mddb import clauses
from daemon.mddb.clauses import Clauses
from daemon.spool import frontmatter
from daemon.spool.frontmatter import Document, Path, Value, clipped
from daemon.tracks import track

Kind: TypeAlias = Literal["project", "instruction", "policy", "translation", "skill", "sidecar"]

POLICY: Final = "instructions/router-policy.md"
_TRANSLATION = re.compile(r"instructions/harness-translation-(?P<pair>[^/]+)\.md")
#: What other programs write above a note, and means nothing here.
NOTES: Final = (
    "tags", "aliases", "created", "updated", "modified", "date", "author", "cssclasses",
)  # fmt: skip
COMMON: Final = ("version", "title", "description", "imported")
_ORDERED = ("applies_when", "order", "overrides")
KEYS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "instruction": (*_ORDERED, "globs"),
    "skill": (*_ORDERED, "globs", "name"),
    "sidecar": (*_ORDERED, "rule", "action", "at"),
    "project": ("repository", "base", "setup", "scope", "done_when"),
    "policy": ("deny",),
    "translation": (),
}
LABELS: Final[Mapping[Kind, str]] = {
    "instruction": "an instruction",
    "skill": "a skill",
    "sidecar": "a sidecar rule",
    "project": "a project",
    "policy": "the router's policy",
    "translation": "a translation between harnesses",
}
#: What each key means, its form, and an example; for the generated reference.
MEANING: Final[Mapping[str, tuple[str, str, str]]] = {
    "applies_when": (
        "When the document applies: dimensions and what they must be. Without it, it applies always, first, and with "
        "the lowest precedence.",
        "a mapping of harness_id, model_id, project_id, kind, phase",
        'applies_when: {harness_id: [claude-code, "open*"], kind: {not: docs}}',
    ),
    "order": (
        "Among equally specific documents; higher comes later.",
        "a whole number; default 0",
        "order: 10",
    ),
    "overrides": (
        "Documents that are not told when this one is.",
        "a list of paths below md-db, or of names in the same folder",
        "overrides: [instructions/committing.md]",
    ),
    "globs": (
        "The files that it is about; told as a line above its text.",
        "a list of globs",
        'globs: ["src/**/*.ts"]',
    ),
    "name": ("What the skill is called; default: its folder or file.", "text", "name: find-the-cause"),
    "description": (
        "What it is, in a sentence. Of a skill without clauses it is what an agent chooses by.",
        "text",
        "description: How to find the cause of a failure",
    ),
    "rule": ("What a sidecar rule watches.", "scope, commit, focus or budget", "rule: scope"),
    "action": ("What it does then.", "flag, message or interrupt; default flag", "action: message"),
    "at": ("From where on.", "text", 'at: "80%"'),
    "repository": (
        "Where the project lies; without it each track works in an empty repository of its own.",
        "a path or an address",
        "repository: ~/src/checkout-service",
    ),
    "base": ("The branch that work begins from.", "text", "base: main"),
    "setup": ("Commands that make a fresh copy ready.", "a list of commands", 'setup: ["npm ci"]'),
    "scope": ("What its tracks may write to.", "a list of globs", 'scope: ["src/**", "tests/**"]'),
    "done_when": (
        "Checks that are added to those of each of its tracks.",
        "as in a track",
        'done_when: [{run: pytest -q}, "the changelog is up to date"]',
    ),
    "deny": (
        "What must not be started: the dimensions as in applies_when, and why.",
        "a list of mappings",
        'deny: [{harness_id: claude-code, model_id: "gpt-*", why: it speaks another API}]',
    ),
    "version": ("For people: which version of the text it is.", "text", "version: 2"),
    "title": ("For people.", "text", "title: Committing"),
    "imported": (
        "Written by `mh mddb import`: from where, and what it said above its text.",
        "a mapping",
        "",
    ),
}
RULES: Final = ("scope", "commit", "focus", "budget")
ACTIONS: Final = ("flag", "message", "interrupt")
_PROJECT_ID = re.compile(r"[a-z0-9][a-z0-9_.-]*")
#: What people and other programs write for one of our keys.
_SLIPS: Final[Mapping[str, str]] = {
    "apply_when": "applies_when",
    "applywhen": "applies_when",
    "apply_if": "applies_when",
    "applies_if": "applies_when",
    "applies_to": "applies_when",
    "applies": "applies_when",
    "when": "applies_when",
    "applyto": "globs",
    "paths": "globs",
    "glob": "globs",
    "replaces": "overrides",
}
#: Words of the standard for skills that look like a slip of one of ours.
#: Words that nobody else's skills have.
_OURS = frozenset(name for name in clauses.DIMENSIONS if name.endswith("_id"))
_FOREIGN = frozenset(("names", "model", "models", "action", "actions", "atlas"))


@dataclass(frozen=True, slots=True)
class Denial:
    """One rule of the policy: this may not be started, and why. Its clauses are as those of a document."""

    clauses: Clauses
    why: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Doc:
    """One document, read. The fields of other kinds than its own are empty.

    path: relative to md-db. sha: git's id of its bytes. clauses: None without any. folder: of a skill that is one.
    lines: on which line a key stands, and an entry of it: ``applies_when``, ``applies_when.kind``, ``overrides.0``.
    problems: what is wrong with it; then the other fields hold what could be read.
    pair: the harnesses of a translation, from and to, joined by ``-``.
    """

    path: str
    sha: str
    kind: Kind
    body: str = ""
    clauses: Clauses | None = None
    has_clauses: bool = False
    order: int = 0
    overrides: tuple[str, ...] = ()
    globs: tuple[str, ...] = ()
    name: str = ""
    description: str = ""
    folder: str = ""
    rule: str = ""
    action: str = "flag"
    at: str = ""
    repository: str | None = None
    base: str | None = None
    setup: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    done_when: Value = None
    deny: tuple[Denial, ...] = ()
    pair: str = ""
    lines: Mapping[str, int] | None = None
    problems: tuple[Problem, ...] = ()
    data: bytes = b""

    def line_of(self, key: str) -> int | None:
        return (self.lines or {}).get(key)


def kind_of(path: str) -> Kind | None:
    """What a file of md-db is, by its path; None: no document."""
    if not path.endswith(".md") or "/" not in path or path.startswith(".") or "/." in path:
        return None
    folder, *between, name = path.split("/")
    stem = name.removesuffix(".md").lower()
    if ".sync-conflict-" in name:  # another state of a document: both must not be told
        return None
    if folder == "skills":
        # In a skill's own folder every file but SKILL.md belongs to it.
        own = name == "SKILL.md" if between else stem not in ("readme", "skill")
        return "skill" if own else None
    if stem == "readme":
        return None
    if folder == "instructions":
        if path == POLICY:
            return "policy"
        return "translation" if _TRANSLATION.fullmatch(path) else "instruction"
    if folder == "projects" and not between:
        return "project"
    return "sidecar" if folder == "sidecar" and not between else None


def parse(path: str, sha: str, data: bytes) -> Doc:
    """Read a document; what is wrong with it is in its `problems`. `path` is one for which `kind_of` has a kind."""
    kind = kind_of(path)
    assert kind is not None
    try:
        document = frontmatter.read(data)
    except DocumentError as error:
        return Doc(path, sha, kind, folder=folder_of(path), name=name_of(path), problems=error.problems)
    doc = _Reading(path, sha, kind, document).doc()
    # A session gets its own copy of a skill: that of the bytes that are recorded.
    return replace(doc, data=data) if kind == "skill" else doc


def folder_of(path: str) -> str:
    """The folder of a skill that is one, relative to md-db; "" for every other document."""
    found = path.startswith("skills/") and path.endswith("/SKILL.md") and path.count("/") > 1
    return path.removesuffix("/SKILL.md") if found else ""


def name_of(path: str) -> str:
    """What a document is called by its place: the file's stem, or the folder of a skill."""
    pure = PurePosixPath(path)
    return pure.parent.name if pure.name == "SKILL.md" else pure.stem


def _as_clause(key: str, value: Value) -> str:
    shown = json.dumps(clipped(value), ensure_ascii=False) if isinstance(value, str) else "..."
    return f"write `applies_when: {{{key}: {shown}}}`"


class _Reading:
    def __init__(self, path: str, sha: str, kind: Kind, document: Document) -> None:
        self.path, self.sha, self.kind, self.document = path, sha, kind, document
        self.meta = document.meta
        self.problems: list[Problem] = []

    def doc(self) -> Doc:
        self._keys()
        meta, own = self.meta, KEYS[self.kind]
        found = None
        if "applies_when" in own and "applies_when" in meta:
            found = clauses.read(meta["applies_when"], ("applies_when",), self._bad)
        repository = self._text("repository") if "repository" in own else None
        pair = _TRANSLATION.fullmatch(self.path)
        if self.kind == "project" and not _PROJECT_ID.fullmatch(name_of(self.path)):
            self._problem(
                f"{name_of(self.path)!r} cannot be a project's id",
                "name the file with a-z, 0-9, '-', '_' and '.', for example projects/checkout-service.md",
            )
        name, description = self._text("name") if "name" in own else None, self._text("description")
        doc = Doc(
            self.path,
            self.sha,
            self.kind,
            body=self.document.body,
            clauses=found,
            has_clauses="applies_when" in own and "applies_when" in meta,
            order=self._whole("order") if "order" in own else 0,
            overrides=self._overrides() if "overrides" in own else (),
            globs=self._globs() if "globs" in own else (),
            name=name or name_of(self.path),
            description=" ".join((description or "").split()),
            folder=folder_of(self.path),
            repository=repository,
            base=self._text("base") if "base" in own else None,
            setup=self._texts("setup") if "setup" in own else (),
            scope=self._texts("scope") if "scope" in own else (),
            done_when=self._done_when() if "done_when" in own else None,
            deny=self._deny() if "deny" in own else (),
            pair=pair["pair"] if pair is not None else "",
            lines={
                ".".join(map(str, at)): line for at, line in self.document.lines.items() if len(at) in (1, 2)
            },
        )
        if self.kind == "sidecar":
            doc = self._sidecar(doc)
        problems = tuple(sorted(self.problems, key=lambda problem: problem.line or 0))
        return replace(doc, problems=problems)

    # -- what is wrong, and where

    def _bad(self, path: Path, message: str, hint: str, value: Value = None) -> None:
        shown = clipped(value) if isinstance(value, str) else None
        name = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")
        self.problems.append(
            Problem(message, line=self.document.line_of(*path), field=name, value=shown, hint=hint)
        )

    def _problem(self, message: str, hint: str) -> None:
        self.problems.append(Problem(message, hint=hint))

    def _keys(self) -> None:
        own = (*KEYS[self.kind], *COMMON)
        everything = dict.fromkeys(key for keys in KEYS.values() for key in keys)
        for key, value in self.meta.items():
            if key in own or key in NOTES:
                continue
            near = track.nearest(key, own) or _SLIPS.get(key.lower().replace("-", "_"))
            if near not in own:
                near = None
            if self.kind == "skill":
                # A skill of somebody else's may have any key; only what was meant as ours must not be lost.
                lost = near == "description" and "description" not in self.meta
                if (near in _ORDERED or lost) and key not in _FOREIGN:
                    self._bad((key,), f"there is no key `{key}`", f"write `{near}`", value)
                elif key in _OURS:
                    self._bad((key,), f"there is no key `{key}`", _as_clause(key, value), value)
                continue
            if key in everything:
                kinds = [kind for kind, keys in KEYS.items() if key in keys]
                hint = f"take it out: it belongs to {' or '.join(LABELS[kind] for kind in kinds)}"
            elif near is not None:
                hint = f"write `{near}`"
            elif key in clauses.SPELLINGS and "applies_when" in own:
                hint = _as_clause(key, value)
            else:
                hint = f"take it out; keys here are {', '.join(own)}"
            self._bad((key,), f"there is no key `{key}` in {LABELS[self.kind]}", hint, value)

    def _text(self, key: str) -> str | None:
        value = self.meta.get(key)
        if value is None or isinstance(value, str):
            return (value or "").strip() or None
        if self.kind != "skill" or key in _ORDERED:
            self._bad((key,), f"`{key}` is one text", f"write {key}: TEXT", None)
        return None

    def _texts(self, key: str) -> tuple[str, ...]:
        value = self.meta.get(key)
        if value is None or value == "":
            return ()
        found = []
        for number, item in enumerate(value) if isinstance(value, list) else [(None, value)]:
            where: Path = (key,) if number is None else (key, number)
            if isinstance(item, str) and item.strip():
                found.append(item.strip())
            else:
                self._bad(
                    where, f"every entry of `{key}` is one text", f'for example `{key}: ["src/**"]`', item
                )
        return tuple(found)

    def _globs(self) -> tuple[str, ...]:
        """Other programs have them in one text, with commas."""
        return tuple(
            part for text in self._texts("globs") for part in re.split(r",\s*(?![^{]*\})", text) if part
        )

    def _whole(self, key: str) -> int:
        text = self._text(key)
        if text is None:
            return 0
        if not re.fullmatch(r"[+-]?[0-9]{1,9}", text):
            self._bad((key,), "a whole number is meant", f"for example `{key}: 10`; later comes after", text)
            return 0
        return int(text)

    def _overrides(self) -> tuple[str, ...]:
        """Paths relative to md-db; a bare name is one of the same folder."""
        found = []
        for text in self._texts("overrides"):
            path = str(PurePosixPath(text.removeprefix("./").removeprefix("md-db/")))
            if "/" not in path:
                path = str(PurePosixPath(self.path).parent / path)
            if not path.endswith(".md"):
                path += ".md"
            if path == self.path:
                self._bad(("overrides",), "a document cannot override itself", "name another one", text)
            elif kind_of(path) is None or ".." in PurePosixPath(path).parts:
                self._bad(
                    ("overrides",),
                    f"{clipped(text)!r} is no document of the database",
                    "write its path below md-db/, for example instructions/committing.md",
                    text,
                )
            else:
                found.append(path)
        return tuple(dict.fromkeys(found))

    def _done_when(self) -> Value:
        value = self.meta.get("done_when")
        try:
            track.checks(value, self.document)
        except DocumentError as error:
            self.problems += error.problems
            return None
        return value

    def _deny(self) -> tuple[Denial, ...]:
        value = self.meta.get("deny")
        if value is None or value == "":
            return ()
        found = []
        example = (
            'for example `deny: [{harness_id: claude-code, model_id: "gpt-*", why: it speaks another API}]`'
        )
        for number, item in enumerate(value if isinstance(value, list) else [value]):
            where: Path = ("deny", number) if isinstance(value, list) else ("deny",)
            if not isinstance(item, dict):
                self._bad(where, "a rule of the policy is a mapping", example, item)
                continue
            why = item.get("why")
            if not isinstance(why, str) or not why.strip():
                self._bad(where, "a rule of the policy says why", example, None)
                continue
            rest = {key: each for key, each in item.items() if key != "why"}
            if not rest:
                self._bad(where, "this rule would deny everything", example, None)
                continue
            before = len(self.problems)
            read = clauses.read(rest, where, self._bad)
            if read is not None and any(clause.dimension == "phase" for clause in read):
                self._bad(where, "a phase cannot be denied", "take it out: a route is the same in all", None)
            if read is not None and len(self.problems) == before:
                found.append(Denial(read, " ".join(why.split()), self.document.line_of(*where)))
        return tuple(found)

    def _sidecar(self, doc: Doc) -> Doc:
        rule, action = self._text("rule"), self._text("action")
        for key, value, known in (("rule", rule, RULES), ("action", action, ACTIONS)):
            if value is not None and value not in known:
                near = track.nearest(value, known)
                hint = f"write `{key}: {near}`" if near else f"there are {', '.join(known)}"
                self._bad((key,), f"there is no {key} `{clipped(value)}`", hint, value)
        if rule is None:
            self._bad(
                ("rule",), "a sidecar rule says what it watches", f"write rule: {', '.join(RULES)}", None
            )
        return replace(doc, rule=rule or "", action=action or "flag", at=self._text("at") or "")
