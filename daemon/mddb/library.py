"""The one module that reads md-db: every document once, and again only when it has changed.

Invariants:

- A file is read when its inode, ctime or size differ from those it was read with, and at no other time. What is
  written after it was read has another ctime: one that changed a moment ago is read when the clock has gone on.
- What is told can be read again later: a resolve ends with a revision that holds all documents as they were read.
- A document that cannot be read is one with a problem. A disk that refuses is an OSError, as everywhere.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeAlias

from daemon.durable import DISK_ERRORS, ONE_FILE, Files
from daemon.errors import NotNow, Problem
from daemon.mddb import schema
from daemon.mddb.compose import compose, concerned, project_path
from daemon.mddb.resolver import Context, DatabaseFault, Instruction, Project, Skill, SkillFile
from daemon.mddb.revisions import blob_id
from daemon.mddb.schema import POLICY, Doc
from daemon.spool.frontmatter import MAX_FILE

#: The folders in which documents lie.
FOLDERS = ("instructions", "projects", "skills", "sidecar")
#: How often, and after how many seconds, a file that somebody has open for writing is tried again.
TRIES, PAUSE = 10, 0.02
#: The most that is placed of one skill: files, bytes.
SKILL_FILES, SKILL_BYTES = 200, 10 << 20
#: Seconds; the clock of a file system moves in steps, of 10 ms at most.
STEP = 0.02
#: How many seconds what a scan has found counts for who asks only whether something can be told.
FRESH = 0.05
#: And so many times as long as it took: a large database is not scanned all the time.
SHARE = 20.0
#: For how many contexts what was composed is kept, until a document changes.
CONTEXTS = 64
#: What people call a Markdown file. Only `.md` is a document.
MARKDOWN = (".md", ".mdc", ".mdx", ".markdown")
#: A link that leads nowhere and is called like this was one to a file of another kind.
_A_FILE = re.compile(r"\.[A-Za-z]{1,5}$")

_Signature: TypeAlias = tuple[int, int, int, int]
#: What a file was read with, what it says, and its bytes; None: it cannot be read.
_Read: TypeAlias = tuple[_Signature, Doc, bytes | None]


class Recorder(Protocol):
    """Keeps what was read; `daemon.mddb.revisions` does it with git. refusal: why the last record gave None."""

    refusal: str

    def blob_id(self, data: bytes) -> str: ...

    def record(self, documents: Mapping[str, str], new: Mapping[str, bytes]) -> str | None:
        """documents: path -> content id, all of them; new: the content of those read since the last time."""
        ...


class Unrecorded:
    """Keeps nothing: for those who only look at the database."""

    def __init__(self, ids: Callable[[bytes], str] = blob_id) -> None:
        """ids: how the repository names a content."""
        self._ids = ids
        self.refusal = ""

    def blob_id(self, data: bytes) -> str:
        return self._ids(data)

    def record(self, documents: Mapping[str, str], new: Mapping[str, bytes]) -> str | None:
        return None


class Library:
    """The database of a workspace. `root` is its md-db. Several threads may ask at once."""

    def __init__(self, root: Path, files: Files, recorder: Recorder) -> None:
        self.root = root
        self._files = files
        self._recorder = recorder
        self._known: dict[str, tuple[_Signature, Doc]] = {}
        self._unrecorded: dict[str, bytes] = {}
        self._faulty: dict[str, Doc] = {}
        #: All documents by path as the last walk found them.
        self._docs: dict[str, Doc] | None = None
        self._composed: dict[Context, Instruction] = {}
        self._walked = -FRESH
        self._took = 0.0
        #: What was looked at by itself.
        self._single: dict[str, tuple[_Signature, Doc]] = {}
        self._lock = threading.Lock()

    # -- the port

    def resolve(self, context: Context) -> Instruction:
        with self._lock:
            docs = self._scan()
            revision = self._record(docs)
            composed = self._composed.get(context)
            if composed is None:
                composed = compose(docs.values(), context)
                if len(self._composed) >= CONTEXTS:
                    self._composed.clear()
                self._composed[context] = composed
            why = "" if revision is not None else self._recorder.refusal
            return replace(composed, revision=revision, unrecorded=why)

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
        paths = (_shown(f"projects/{name}") for name in names)
        return sorted(schema.name_of(path) for path in paths if schema.kind_of(path) == "project")

    def files(self, skill: Skill) -> Iterator[SkillFile]:
        yield SkillFile("SKILL.md", skill.data)
        if not skill.folder:
            return
        base, home = self.root / skill.folder, os.path.realpath(self.root)
        count, size = 1, len(skill.data)
        for folder, folders, names in os.walk(base):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in folders:
                if os.path.islink(os.path.join(folder, name)):
                    shown = _shown(Path(folder, name).relative_to(base).as_posix())
                    yield SkillFile(shown, left_out="a link to a folder")
            for name in sorted(names):
                path = Path(folder, name)
                shown = _shown(path.relative_to(base).as_posix())
                if name.startswith(".") or shown == "SKILL.md":
                    continue
                if count >= SKILL_FILES:
                    yield SkillFile(shown, left_out=f"it and what follows are more than {SKILL_FILES} files")
                    return
                real = os.path.realpath(path)
                if not Path(real).is_relative_to(home):
                    yield SkillFile(shown, left_out="a link that leads out of md-db")
                    continue
                try:
                    with self._files.opened(Path(real)) as opened:
                        if size + opened.stat.st_size > SKILL_BYTES:
                            yield SkillFile(shown, left_out=f"with it they are more than {SKILL_BYTES} bytes")
                            continue
                        data, facts = opened.read(SKILL_BYTES), opened.stat
                except NotNow as error:
                    yield SkillFile(shown, left_out=str(error))
                    continue
                except OSError as error:
                    if error.errno in DISK_ERRORS - ONE_FILE:
                        raise
                    yield SkillFile(shown, left_out=f"cannot be read: {error.strerror}")
                    continue
                count, size = count + 1, size + len(data)
                yield SkillFile(shown, data, bool(facts.st_mode & stat.S_IXUSR))

    def denied(self, context: Context, *, told: bool) -> str | None:
        policy = self._one(POLICY)
        if policy is not None and policy.problems:
            raise DatabaseFault({POLICY: policy.problems})
        for denial in policy.deny if policy is not None else ():
            if denial.clauses.match(context) is not None:
                line = f", line {denial.line}" if denial.line is not None else ""
                return f"{denial.why} (md-db/{POLICY}{line})"
        if told:
            self._check(context)
        return None

    # -- for those who look at the database itself

    def documents(self) -> dict[str, Doc]:
        """All documents by path, also those that have problems. Raises OSError."""
        with self._lock:
            return dict(self._scan())

    def strays(self) -> list[str]:
        """What is never told: Markdown files that are no documents, and folders for skills without one (ending in /).

        What lies in the folder of a skill belongs to it, and a README is for people. Raises OSError.
        """
        paths = [_shown(path) for path, _ in self._walk(self.root, "")]
        skills = tuple(path.removesuffix("SKILL.md") for path in paths if schema.folder_of(path))
        found = {
            path
            for path in paths
            if schema.kind_of(path) is None
            and not path.startswith(skills)
            and path.rsplit("/", 1)[-1].lower() != "readme.md"
        }
        try:
            folders = [entry for entry in os.scandir(self.root / "skills") if entry.is_dir()]
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            folders = []
        for folder in folders:
            path = _shown(f"skills/{folder.name}/")
            inside = any(each.startswith(path) for each in (*skills, *found))
            if not folder.name.startswith(".") and not inside and any(os.scandir(folder)):
                found.add(path)
        return sorted(found)

    # -- reading

    def _scan(self) -> dict[str, Doc]:
        began = time.monotonic()
        found: dict[str, tuple[_Signature, Doc]] = {}
        same = self._docs is not None
        for folder in FOLDERS:
            for path, signature in self._walk(self.root / folder, f"{folder}/"):
                known = self._known.get(path)
                if known is not None and known[0] == signature:
                    found[path] = known
                elif schema.kind_of(path) is not None and (read := self._look(path, signature)) is not None:
                    found[_shown(path)] = read
                    same = False
        self._walked = time.monotonic()
        self._took = self._walked - began
        if same and self._docs is not None and len(found) == len(self._docs):
            return self._docs
        for path in self._known.keys() - found.keys():
            self._unrecorded.pop(path, None)
        self._known = found
        docs = {path: found[path][1] for path in sorted(found)}
        self._faulty = {path: doc for path, doc in docs.items() if doc.problems and doc.kind != "skill"}
        self._docs = docs
        self._composed.clear()
        return docs

    def _walk(self, folder: Path, prefix: str) -> list[tuple[str, _Signature | None]]:
        """(path, signature) of every Markdown file below; None: it leads nowhere. A link to a folder is one."""
        found: list[tuple[str, _Signature | None]] = []
        # Links to folders come last, and no folder is looked into twice: what they lead to may stand here itself.
        todo = [(str(folder), prefix)]
        links: list[tuple[str, str, tuple[int, int]]] = []
        seen: set[tuple[int, int]] = set()
        while todo or links:
            if todo:
                place, prefix = todo.pop()
            else:
                place, prefix, here = links.pop(0)
                if here in seen:
                    continue
                seen.add(here)
            try:
                if place == str(folder):
                    facts = os.stat(place)
                    seen.add((facts.st_dev, facts.st_ino))
                with os.scandir(place) as listing:
                    entries = sorted(listing, key=lambda entry: entry.name)
            except (FileNotFoundError, NotADirectoryError):
                if place == str(folder) and prefix and os.path.lexists(place):
                    found.append((_all_of(prefix), None))  # a link to a disk that is not there, or a file
                continue
            except OSError as error:
                if error.errno in DISK_ERRORS - ONE_FILE:
                    raise
                found.append((_all_of(prefix), None))
                continue
            for entry in entries:
                name = entry.name
                if name.startswith("."):
                    continue
                path = prefix + name
                markdown = name.endswith(".md") or name.lower().endswith(MARKDOWN)
                try:
                    facts = entry.stat()
                except OSError as error:
                    if error.errno in DISK_ERRORS - ONE_FILE:
                        raise
                    if error.errno == errno.ENOENT and not entry.is_symlink():
                        continue  # gone since it was listed
                    if markdown:
                        found.append((path, None))
                    elif entry.is_symlink() and not _A_FILE.search(name):
                        found.append((_all_of(f"{path}/"), None))  # a link to a folder, by its name
                    continue
                if not stat.S_ISDIR(facts.st_mode):
                    if markdown:
                        found.append((path, _signature(facts)))
                elif markdown and schema.kind_of(path) is not None:
                    found.append((path, _signature(facts)))  # it stands where a document is meant
                elif path != "evals":
                    here = (facts.st_dev, facts.st_ino)
                    if entry.is_symlink():
                        links.append((entry.path, f"{path}/", here))
                    elif here not in seen:
                        seen.add(here)
                        todo.append((entry.path, f"{path}/"))
        return found

    def _look(self, path: str, signature: _Signature | None) -> tuple[_Signature, Doc] | None:
        """What a file of the walk says now; None: it has gone."""
        shown = _shown(path)
        if shown != path:
            return (0, 0, 0, 0), _unreadable(shown, "its name is not UTF-8", "rename it")
        if signature is None:
            return (0, 0, 0, 0), _unreadable(path, "cannot be looked at, or is a link that leads nowhere")
        read = self._read(path, signature, TRIES)
        if read is None:
            return None
        if read[2] is not None:
            self._unrecorded[path] = read[2]
        return read[0], read[1]

    def _one(self, path: str) -> Doc | None:
        """One document, looked at by itself; None: it is not there. Raises OSError.

        Beside what a scan knows: who asks for one document never waits until all have been read. While somebody writes
        it, it is what it was.
        """
        try:
            signature = _signature(os.stat(self.root / path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno in DISK_ERRORS - ONE_FILE:
                raise
            if error.errno == errno.ENAMETOOLONG:
                return None
            return _unreadable(path, error.strerror or str(error))
        known = self._single.get(path)
        if known is None or known[0] != signature:
            read = self._read(path, signature, 1, known)
            if read is None:
                return None
            known = self._single[path] = read[0], read[1]
        return known[1]

    def _read(
        self, path: str, signature: _Signature, tries: int, before: tuple[_Signature, Doc] | None = None
    ) -> _Read | None:
        """Read a document anew; None: it has gone. The signature is that of the bytes that were read.

        before: what it is as long as somebody writes it; without it the document is read all the same in the end.
        """
        if signature[3] > MAX_FILE:
            why = f"the file has {signature[3]} bytes, the most is {MAX_FILE}"
            return signature, _unreadable(path, why, "put the rest elsewhere"), None
        try:
            place = self.root / path
            # Files open nothing through a link; who keeps the text elsewhere means what the link leads to.
            with self._files.opened(Path(os.path.realpath(place)) if place.is_symlink() else place) as opened:
                for attempt in range(tries):
                    try:
                        opened.lease()  # who writes it now is waited for: half a document is another one
                        break
                    except NotNow:
                        if attempt < tries - 1:
                            time.sleep(PAUSE)
                        elif before is not None:
                            return *before, None
                # Before the bytes: what somebody writes meanwhile is then seen the next time.
                facts = os.fstat(opened.fd)
                signature = _signature(facts)
                if 0 <= (age := time.time() - facts.st_ctime) < STEP:
                    time.sleep(STEP - age)
                data = opened.read(MAX_FILE)
        except FileNotFoundError:
            return None
        except NotNow as error:
            return signature, _unreadable(path, str(error), "put a regular file there"), None
        except OSError as error:
            if error.errno in DISK_ERRORS - ONE_FILE:
                raise
            why = f"cannot be read: {error.strerror or error}"
            return signature, _unreadable(path, why, "make it readable for you"), None
        return signature, schema.parse(path, self._recorder.blob_id(data), data), data

    def _record(self, docs: Mapping[str, Doc]) -> str | None:
        readable = {path: doc.sha for path, doc in docs.items() if doc.sha}
        new = {path: data for path, data in self._unrecorded.items() if path in readable}
        revision = self._recorder.record(readable, new)
        self._unrecorded.clear()
        return revision

    def _check(self, context: Context) -> None:
        """Raise `DatabaseFault` where a session would be told what cannot be read. Before a track is claimed for it.

        Who reads just now is not waited for: then the start itself finds out.
        """
        stale = time.monotonic() - self._walked > max(FRESH, SHARE * self._took) or any(
            (now := self._one(path)) is None or (now.sha, now.problems) != (doc.sha, doc.problems)
            for path, doc in list(self._faulty.items())
            if concerned(doc, context)
        )
        if stale and self._lock.acquire(blocking=False):
            try:
                self._scan()
            finally:
                self._lock.release()
        if any(concerned(doc, context) for doc in list(self._faulty.values())):
            # Another one may override it.
            compose([doc for _, doc in list(self._known.values())], context)


def rebuild(context: Context, contents: Mapping[str, bytes], ids: Recorder, revision: str) -> Instruction:
    """The instruction that these documents, as they were at a revision, made in a context."""
    docs = (
        schema.parse(path, ids.blob_id(data), data)
        for path, data in sorted(contents.items())
        if schema.kind_of(path) is not None
    )
    return compose(docs, context, revision)


def _shown(path: str) -> str:
    """A path that can be printed and recorded: what is not UTF-8 in it is escaped."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return os.fsencode(path).decode("utf-8", "backslashreplace")
    return path


def _all_of(prefix: str) -> str:
    """What stands for the documents of a folder that cannot be looked into: that must not go unseen."""
    return prefix + ("SKILL.md" if prefix.startswith("skills/") and prefix != "skills/" else "*.md")


def _signature(facts: os.stat_result) -> _Signature:
    return facts.st_dev, facts.st_ino, facts.st_ctime_ns, facts.st_size


def _unreadable(path: str, why: str, hint: str = "") -> Doc:
    kind = schema.kind_of(path)
    assert kind is not None
    return Doc(path, "", kind, problems=(Problem(why, hint=hint),))
