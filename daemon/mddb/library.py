"""The one module that reads md-db: every document once, and again only when it has changed.

Invariants:

- A file is read when its inode, ctime or size differ from those it was read with, and at no other time.
- What is told can be read again later: a resolve ends with a revision that holds all documents as they were read.
- A document that cannot be read is one with a problem. A disk that refuses is an OSError, as everywhere.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol, TypeAlias

from daemon.durable import DISK_ERRORS, ONE_FILE, Files
from daemon.errors import NotNow, Problem
from daemon.mddb import schema
from daemon.mddb.compose import compose, concerned, project_path
from daemon.mddb.resolver import Context, DatabaseFault, Instruction, Project, Skill, SkillFile
from daemon.mddb.schema import POLICY, Doc
from daemon.spool.frontmatter import MAX_FILE

#: The folders in which documents lie.
FOLDERS = ("instructions", "projects", "skills", "sidecar")
#: How often, and after how many seconds, a file that somebody has open for writing is tried again.
TRIES, PAUSE = 10, 0.02
#: The most that is placed of one skill: files, bytes.
SKILL_FILES, SKILL_BYTES = 200, 10 << 20

_Signature: TypeAlias = tuple[int, int, int, int]


class Recorder(Protocol):
    """Keeps what was read; `daemon.mddb.revisions` does it with git."""

    def blob_id(self, data: bytes) -> str: ...

    def record(self, documents: Mapping[str, str], new: Mapping[str, bytes]) -> str | None:
        """documents: path -> content id, all of them; new: the content of those read since the last time."""
        ...


class Library:
    """The database of a workspace. `root` is its md-db. Several threads may ask at once."""

    def __init__(self, root: Path, files: Files, recorder: Recorder) -> None:
        self.root = root
        self._files = files
        self._recorder = recorder
        self._known: dict[str, tuple[_Signature, Doc]] = {}
        self._unrecorded: dict[str, bytes] = {}
        self._faulty: dict[str, Doc] = {}
        self._lock = threading.Lock()

    # -- the port

    def resolve(self, context: Context) -> Instruction:
        with self._lock:
            docs = self._scan()
            return compose(docs.values(), context, self._record(docs))

    def project(self, id: str) -> Project | None:
        path = project_path(id)
        if schema.kind_of(path) != "project":
            return None
        doc = self._one(path)
        if doc is None:
            return None
        if doc.problems:
            raise DatabaseFault({path: doc.problems})
        return Project(id, path, doc.repository, doc.done_when)

    def projects(self) -> list[str]:
        try:
            names = os.listdir(self.root / "projects")
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name[:-3] for name in names if schema.kind_of(f"projects/{name}") == "project")

    def files(self, skill: Skill) -> Iterator[SkillFile]:
        if not skill.folder:
            data, facts = self._content(self.root / skill.path)
            yield SkillFile("SKILL.md", data, bool(facts.st_mode & stat.S_IXUSR))
            return
        base, count, size = self.root / skill.folder, 0, 0
        for folder, folders, names in os.walk(base):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                path = Path(folder, name)
                if name.startswith(".") or not stat.S_ISREG(os.lstat(path).st_mode):
                    continue
                data, facts = self._content(path)
                count, size = count + 1, size + len(data)
                if count > SKILL_FILES or size > SKILL_BYTES:
                    return
                yield SkillFile(path.relative_to(base).as_posix(), data, bool(facts.st_mode & stat.S_IXUSR))

    def denied(self, context: Context, *, told: bool) -> str | None:
        policy = self._one(POLICY)
        if policy is not None and policy.problems:
            raise DatabaseFault({POLICY: policy.problems})
        for denial in policy.deny if policy is not None else ():
            if denial.clauses.match(context) is not None:
                line = f", line {denial.line}" if denial.line is not None else ""
                return f"{denial.why} (md-db/{POLICY}{line})"
        if told and (faulty := self._still_faulty(context)):
            raise DatabaseFault(faulty)
        return None

    def _content(self, path: Path) -> tuple[bytes, os.stat_result]:
        with self._files.opened(Path(os.path.realpath(path))) as opened:
            return opened.read(SKILL_BYTES), opened.stat

    # -- for those who look at the database itself

    def documents(self) -> dict[str, Doc]:
        """All documents by path, also those that have problems. Raises OSError."""
        with self._lock:
            return dict(self._scan())

    def strays(self) -> list[str]:
        """Markdown files of md-db that are no documents: nothing of them is ever told. Raises OSError."""
        found = []
        for path, _ in self._walk(self.root, "", set()):
            top = path.split("/")[0]
            in_skill = top == "skills" and path.count("/") >= 2
            readme = path.rsplit("/", 1)[-1].lower() == "readme.md"
            if schema.kind_of(path) is None and top != "evals" and not readme and not in_skill:
                found.append(path)
        return sorted(found)

    # -- reading

    def _scan(self) -> dict[str, Doc]:
        found: dict[str, tuple[_Signature, Doc]] = {}
        for folder in FOLDERS:
            for path, signature in self._walk(self.root / folder, f"{folder}/", set()):
                if schema.kind_of(path) is not None:
                    found[path] = self._look(path, signature)
        for path in self._known.keys() - found.keys():
            self._unrecorded.pop(path, None)
        self._known = found
        docs = {path: doc for path, (_, doc) in sorted(found.items())}
        self._faulty = {path: doc for path, doc in docs.items() if doc.problems and doc.kind != "skill"}
        return docs

    def _walk(
        self, folder: Path, prefix: str, above: set[tuple[int, int]]
    ) -> Iterator[tuple[str, _Signature | None]]:
        """(path, signature) of every Markdown file below; None: it leads nowhere. A link to a folder is one."""
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        except PermissionError:
            # Nothing of it can be told, and that must not go unseen.
            yield f"{prefix}{'SKILL' if prefix.count('/') > 1 else '*'}.md", None
            return
        for entry in entries:
            if entry.name.startswith("."):
                continue
            try:
                facts = entry.stat()
            except OSError as error:
                if error.errno in DISK_ERRORS - ONE_FILE:
                    raise
                if entry.name.endswith(".md"):
                    yield prefix + entry.name, None
                continue
            if stat.S_ISDIR(facts.st_mode):
                here = (facts.st_dev, facts.st_ino)
                if here not in above and not (prefix == "" and entry.name == "evals"):
                    yield from self._walk(folder / entry.name, f"{prefix}{entry.name}/", above | {here})
            elif entry.name.endswith(".md"):
                yield prefix + entry.name, _signature(facts)

    def _look(self, path: str, signature: _Signature | None) -> tuple[_Signature, Doc]:
        known = self._known.get(path)
        if known is not None and known[0] == signature:
            return known
        if signature is None:
            return (0, 0, 0, 0), _unreadable(path, "cannot be looked at, or is a link that leads nowhere")
        return self._read(path, signature, TRIES)

    def _one(self, path: str) -> Doc | None:
        """One document, looked at by itself; None: it is not there. Raises OSError."""
        try:
            signature = _signature(os.stat(self.root / path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno in DISK_ERRORS - ONE_FILE:
                raise
            return _unreadable(path, error.strerror or str(error))
        known = self._known.get(path)
        if known is None or known[0] != signature:
            known = self._known[path] = self._read(path, signature, 1)
        return known[1]

    def _read(self, path: str, signature: _Signature, tries: int) -> tuple[_Signature, Doc]:
        """Read a document anew. The signature is that of the bytes that were read."""
        if signature[3] > MAX_FILE:
            return signature, _unreadable(
                path, f"the file has {signature[3]} bytes, the most is {MAX_FILE}", "put the rest elsewhere"
            )
        try:
            path.encode()
            with self._files.opened(Path(os.path.realpath(self.root / path))) as opened:
                for attempt in range(tries):
                    try:
                        opened.lease()  # who writes it now is waited for: half a document is another one
                        break
                    except NotNow:
                        if attempt < tries - 1:
                            time.sleep(PAUSE)
                data = opened.read(MAX_FILE)
                signature = _signature(os.fstat(opened.fd))
        except UnicodeEncodeError:
            return signature, _unreadable(path, "its name is not UTF-8", "rename it")
        except NotNow as error:
            return signature, _unreadable(path, str(error), "put a regular file there")
        except OSError as error:
            if error.errno in DISK_ERRORS - ONE_FILE:
                raise
            return signature, _unreadable(
                path, f"cannot be read: {error.strerror or error}", "make it readable for you"
            )
        self._unrecorded[path] = data
        return signature, schema.parse(path, self._recorder.blob_id(data), data)

    def _record(self, docs: Mapping[str, Doc]) -> str | None:
        readable = {path: doc.sha for path, doc in docs.items() if doc.sha}
        new = {path: data for path, data in self._unrecorded.items() if path in readable}
        revision = self._recorder.record(readable, new)
        self._unrecorded.clear()
        return revision

    def _still_faulty(self, context: Context) -> dict[str, tuple[Problem, ...]]:
        found = {}
        for path, doc in list(self._faulty.items()):
            if concerned(doc, context):
                now = self._one(path)
                if now is not None and now.problems and concerned(now, context):
                    found[path] = now.problems
        return found


class Unrecorded:
    """Only looks: nothing that it reads has to be found again."""

    def __init__(self, ids: Recorder) -> None:
        self._ids = ids

    def blob_id(self, data: bytes) -> str:
        return self._ids.blob_id(data)

    def record(self, documents: Mapping[str, str], new: Mapping[str, bytes]) -> str | None:
        return None


def rebuild(context: Context, contents: Mapping[str, bytes], ids: Recorder, revision: str) -> Instruction:
    """The instruction that these documents, as they were at a revision, made in a context."""
    docs = (
        schema.parse(path, ids.blob_id(data), data)
        for path, data in sorted(contents.items())
        if schema.kind_of(path) is not None
    )
    return compose(docs, context, revision)


def _signature(facts: os.stat_result) -> _Signature:
    return facts.st_dev, facts.st_ino, facts.st_ctime_ns, facts.st_size


def _unreadable(path: str, why: str, hint: str = "") -> Doc:
    kind = schema.kind_of(path)
    assert kind is not None
    return Doc(path, "", kind, problems=(Problem(why, hint=hint),))
