"""Puts what people have into the database, once: a second import of the same changes nothing.

Invariants:

- A document is found again by the source that it names, wherever somebody has moved it. While the source is the same
  it is not touched, whatever somebody has written in it.
- No file that is there is written over but by ``update``, and then what somebody had changed is kept beside it.
- A skill is there with all its files, or not at all.

A skill is kept as it is, so what it was made from stands in a hidden file of its folder, `RECORD`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias

from daemon.durable import Files
from daemon.errors import DocumentError, NotNow, Problem
from daemon.mddb import importing
from daemon.mddb.importing import Imported, Plan, Source
from daemon.mddb.schema import kind_of, parse
from daemon.mddb.sources import Candidate
from daemon.spool import frontmatter
from daemon.spool.frontmatter import MAX_FILE
from daemon.tracks.ids import slug

RECORD: Final = ".imported.json"
HINT: Final = "the source has changed since it was imported; --update replaces the text"

Status: TypeAlias = Literal["new", "same", "kept", "updated", "refused"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a source. path: of the document, relative to md-db; "": there is none."""

    status: Status
    path: str
    origin: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Known:
    """A document that was imported. digest: of the source then. record: of a skill."""

    path: str
    digest: str
    record: Mapping[str, str] | None = None


class Intake:
    """Takes sources into a database. `root` is its md-db. dry_run: only says what would become of them."""

    def __init__(self, root: Path, files: Files, *, dry_run: bool = False, update: bool = False) -> None:
        self._root, self._files = root, files
        self._dry_run, self._update = dry_run, update
        self._taken: set[str] = set()
        self._by_origin: dict[str, list[_Known]] = {}
        self._projects: dict[str, str] = {}
        self._made: dict[str, Outcome] = {}
        #: What a dry run would have written.
        self._unwritten: dict[str, bytes] = {}
        self._find_documents()
        self._find_projects()

    def take(self, candidate: Candidate) -> Iterator[Outcome]:
        """What became of it; before it the project that was made for it. Raises OSError."""
        source, repository = candidate.source, candidate.repository
        try:
            if repository is not None:
                source = replace(source, project=self._project(repository))
            plan = importing.plan(source)
            outcome = self._skill(source, plan) if source.kind == "skill" else self._document(source, plan)
        except DocumentError as error:
            yield Outcome("refused", "", source.origin, tuple(map(str, error.problems)))
            return
        made = self._made.pop(source.project, None)
        if made is not None and outcome.status == "new":
            yield made
        elif made is not None:
            self._made[source.project] = made
        yield outcome

    def reader(self, path: str) -> str:
        """For whom a document is that was taken in; "" for a project. Raises OSError."""
        data = self._content(path)
        if data is None or kind_of(path) not in ("instruction", "skill"):
            return ""
        clauses = parse(path, "", data).clauses
        return str(clauses) if clauses is not None else "everybody"

    # -- documents of one file

    def _document(self, source: Source, plan: Plan) -> Outcome:
        known = self._known(source.origin, source.sha256)
        there = self._content(plan.path)
        if known is None and there is not None and self._is_this(there, source, plan):
            return Outcome("same", plan.path, source.origin, ("a document with this text is there",))
        if known is not None:
            if known.digest == source.sha256:
                return Outcome("same", known.path, source.origin)
            if not self._update:
                return Outcome("kept", known.path, source.origin, (HINT,))
            return self._renew(known, source, plan)
        self._make_project(source)
        path = self._put(plan.path, source.origin, plan.data)
        return Outcome("new", path, source.origin, plan.notes)

    def _is_this(self, there: bytes, source: Source, plan: Plan) -> bool:
        """Whether a document is this source's, though it names another one: its repository was moved."""
        if there == source.data:
            return True
        found = importing.imported(there)
        if found is None or found.sha256 != source.sha256:
            return False
        return _clauses(there) == _clauses(plan.data)

    def _renew(self, known: _Known, source: Source, plan: Plan) -> Outcome:
        old = self._content(known.path) or b""
        try:
            data, notes = importing.updated(known.path, old, plan.data)
            changed = importing.edited(old)
        except DocumentError as error:
            return Outcome("kept", known.path, source.origin, tuple(map(str, error.problems)))
        if kind_of(known.path) != kind_of(plan.path):
            # What the plan says of it is not what it is here.
            was = "an instruction" if kind_of(known.path) == "instruction" else "a skill"
            notes = (*notes, f"imported anew it would be {plan.path}; this stays {was}")
        else:
            notes = (*plan.notes, *notes)
        notes = (*notes, *self._replace(known.path, data, changed))
        return Outcome("updated", known.path, source.origin, notes)

    # -- skills

    def _skill(self, source: Source, plan: Plan) -> Outcome:
        files = dict(source.files or {})
        digests = {"SKILL.md": source.sha256} | {name: _sha256(each.data) for name, each in files.items()}
        known = self._known(source.origin, _sha256(_json(digests)))
        folder = plan.path.removesuffix("/SKILL.md")
        if known is None and self._content(plan.path) == plan.data:
            there = (self._content(f"{folder}/{name}") == each.data for name, each in files.items())
            if all(there):
                return Outcome("same", plan.path, source.origin, ("a skill with these files is there",))
        if known is not None:
            if known.digest == _sha256(_json(digests)):
                return Outcome("same", known.path, source.origin)
            if not self._update:
                return Outcome("kept", known.path, source.origin, (HINT,))
            return self._renew_skill(known, source, plan, digests)
        path = self._free(plan.path, source.origin)
        self._make_project(source)
        self._put_folder(path.removesuffix("/SKILL.md"), source, plan, digests)
        return Outcome("new", path, source.origin, plan.notes)

    def _put_folder(self, folder: str, source: Source, plan: Plan, digests: Mapping[str, str]) -> None:
        if self._dry_run:
            self._unwritten |= {f"{folder}/{name}": each.data for name, each in (source.files or {}).items()}
            self._unwritten[f"{folder}/SKILL.md"] = plan.data
            return
        place = self._root / folder
        temp = place.with_name(f".{place.name}.{secrets.token_hex(6)}.tmp")
        try:
            self._files.make_dirs(temp)
            for name, each in (source.files or {}).items():
                self._files.make_dirs((temp / name).parent)
                self._files.publish(temp / name, each.data, mode=0o700 if each.executable else 0o600)
            self._files.publish(temp / RECORD, _record(source.origin, digests, plan.data))
            self._files.publish(temp / "SKILL.md", plan.data)
            self._files.move(temp, place)
        except OSError:
            with contextlib.suppress(OSError):
                shutil.rmtree(temp)
            raise
        self._files.sync_dir(place.parent)

    def _renew_skill(self, known: _Known, source: Source, plan: Plan, digests: Mapping[str, str]) -> Outcome:
        folder = known.path.removesuffix("/SKILL.md")
        old, record = self._content(known.path) or b"", known.record or {}
        try:
            data, notes = importing.updated(known.path, old, plan.data)
        except DocumentError as error:
            return Outcome("kept", known.path, source.origin, tuple(map(str, error.problems)))
        notes = (*plan.notes, *notes)
        for name, each in (source.files or {}).items():
            there = self._content(f"{folder}/{name}")
            if there != each.data:
                changed = there is not None and _sha256(there) != record.get(name)
                mode = 0o700 if each.executable else 0o600
                notes += self._replace(f"{folder}/{name}", each.data, changed, mode)
        gone = sorted(name for name in record if name not in digests and name != "document")
        if gone:
            notes += (f"no longer in the source, and left where they are: {', '.join(gone)}",)
        notes += self._replace(known.path, data, _sha256(old) != record.get("document"))
        self._publish(f"{folder}/{RECORD}", _record(source.origin, digests, data))
        return Outcome("updated", known.path, source.origin, notes)

    # -- projects

    def _project(self, repository: Path) -> str:
        """The id of the project of a repository; a new one is made with its first document."""
        id = self._projects.get(str(repository))
        if id is not None:
            return id
        path = f"projects/{slug(repository.name)}.md"
        notes: tuple[str, ...] = ()
        if self._is_taken(path):
            notes = (f"{path} names another repository, or none",)
            path = importing.another(path, str(repository))
        id = path.removeprefix("projects/").removesuffix(".md")
        self._projects[str(repository)] = id
        my_home = Path(os.path.expanduser("~"))
        inside = repository.is_relative_to(my_home) and repository != my_home
        shown = f"~/{repository.relative_to(my_home)}" if inside else str(repository)
        notes = (
            *notes,
            "tracks that name it cannot be worked in yet, as it has a repository; "
            "without that line they get an empty one",
        )
        self._made[id] = Outcome("new", path, shown, notes)
        self._taken.add(path)
        return id

    def _make_project(self, source: Source) -> None:
        made = self._made.get(source.project)
        if made is not None:
            try:
                data = importing.project_document(made.origin)
            except UnicodeEncodeError:
                raise DocumentError(
                    Problem("the path of its repository is not UTF-8", hint="rename the folder")
                ) from None
            self._publish(made.path, data)

    def _find_projects(self) -> None:
        for path in self._markdown("projects"):
            try:
                repository = frontmatter.read(self._content(path) or b"").meta.get("repository")
            except DocumentError:
                continue  # it is told by `mh doctor`; a project of its name is not made
            if isinstance(repository, str) and repository.strip():
                real = os.path.realpath(os.path.expanduser(repository.strip()))
                self._projects.setdefault(real, path.removeprefix("projects/").removesuffix(".md"))

    # -- what is there

    def _find_documents(self) -> None:
        for path in [*self._markdown("instructions"), *self._markdown("skills")]:
            if kind_of(path) not in ("instruction", "skill"):
                continue
            found, record = None, None
            if path.endswith("/SKILL.md"):
                found, record = self._recorded(path.removesuffix("SKILL.md") + RECORD)
            if found is None:
                found = importing.imported(self._content(path) or b"")
            if found is not None:
                self._by_origin.setdefault(found.origin, []).append(_Known(path, found.sha256, record))

    def _recorded(self, path: str) -> tuple[Imported | None, Mapping[str, str] | None]:
        try:
            read = json.loads(self._content(path) or b"null")
        except ValueError:
            return None, None
        match read:
            case {"from": str(origin), "files": dict(files), "document": str(document)}:
                digests = {str(name): str(digest) for name, digest in files.items()}
                return Imported(origin, _sha256(_json(digests))), {**digests, "document": document}
        return None, None

    def _known(self, origin: str, digest: str) -> _Known | None:
        """The document of a source; of several (somebody copied it) one that is as the source is now."""
        known = self._by_origin.get(origin, [])
        return next((each for each in known if each.digest == digest), known[0] if known else None)

    def _markdown(self, folder: str) -> list[str]:
        found = []
        for at, folders, names in os.walk(self._root / folder):
            folders[:] = [name for name in folders if not name.startswith(".")]
            found += [
                Path(at, name).relative_to(self._root).as_posix() for name in names if name.endswith(".md")
            ]
        return sorted(found)

    def _content(self, path: str) -> bytes | None:
        """The bytes of a file of the database; None: there is none."""
        if path in self._unwritten:
            return self._unwritten[path]
        try:
            with self._files.opened(Path(os.path.realpath(self._root / path))) as opened:
                return opened.read(MAX_FILE if path.endswith(".md") else 64 << 20)
        except (FileNotFoundError, NotADirectoryError, NotNow):  # NotNow: no regular file, so no document
            return None

    def _free(self, path: str, origin: str) -> str:
        """This path, or where it is taken, another one that is always the same."""
        for each in (path, importing.another(path, origin)):
            if not self._is_taken(each):
                self._taken.add(each)
                return each
        raise DocumentError(
            Problem(
                f"{path} and {importing.another(path, origin)} are there, and are others' documents",
                hint="rename one of them",
            )
        )

    def _is_taken(self, path: str) -> bool:
        stem = path.removesuffix("/SKILL.md").removesuffix(".md")
        # A skill that is a folder and one that is a file would have the same name.
        names = (path, stem, f"{stem}.md", f"{stem}/SKILL.md") if path.startswith("skills/") else (path,)
        return any(name in self._taken or os.path.lexists(self._root / name) for name in names)

    # -- writing

    def _put(self, wanted: str, origin: str, data: bytes) -> str:
        """Write a new document under the first name that is free, and never over one that has come just now."""
        while True:
            path = self._free(wanted, origin)
            if self._dry_run:
                self._unwritten[path] = data
                return path
            place = self._root / path
            self._files.make_dirs(place.parent)
            temp = place.with_name(f".{place.name}.{secrets.token_hex(6)}.tmp")
            self._files.create(temp, data)
            try:
                self._files.move(temp, place)
            except FileExistsError:
                self._files.unlink(temp)
                continue
            self._files.sync_dir(place.parent)
            return path

    def _publish(self, path: str, data: bytes, mode: int = 0o600) -> None:
        if self._dry_run:
            self._unwritten[path] = data
            return
        place = Path(
            os.path.realpath(self._root / path)
        )  # a person may keep a document elsewhere, behind a link
        self._files.make_dirs(place.parent)
        self._files.publish(place, data, mode=mode)

    def _replace(self, path: str, data: bytes, changed: bool, mode: int = 0o600) -> tuple[str, ...]:
        """Put a newer state in the place of an older one; one that somebody has changed stays, beside it."""
        if not changed:
            self._publish(path, data, mode)
            return ()
        if not self._dry_run:
            place = Path(os.path.realpath(self._root / path))
            self._files.supplant(place, data)
            os.chmod(place, mode)
        return (f"what was changed here is kept beside it: {path}.odd-1, or the next number",)


def _clauses(data: bytes) -> object:
    try:
        return frontmatter.read(data).meta.get("applies_when")
    except DocumentError:
        return data


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, indent=2).encode() + b"\n"


def _record(origin: str, digests: Mapping[str, str], document: bytes) -> bytes:
    return _json({"from": origin, "files": dict(digests), "document": _sha256(document)})
