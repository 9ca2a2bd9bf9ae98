"""Which commit holds the documents exactly as they were read, and what a document was at another one.

A session records the commit that its instruction was made from, so that it can be explained and built again, byte
for byte, when the documents have changed since. People commit rarely. So where HEAD does not hold what was read, a
commit of our own does.

Invariants

- Nothing of the person's is touched: not the index, HEAD, a branch or a file of the work tree. Only `REF` is moved.
- What was recorded stays: every commit of ours has the one before it and the HEAD of its time as parents, so git's
  garbage collection keeps both, also when the person has amended theirs.
- `REF` only goes forward: git moves it if it is what was read before, and never back. Who comes second tries again.
- No filter, no hook and no program of the repository's configuration is run (`daemon.git`), and no replaced object
  (git-replace(1)) is believed. Contents are the bytes that were read.

A commit of ours has the tree of HEAD, in which only the documents differ: ``git diff HEAD refs/megaharness/md-db``
shows what was told and not committed. They are written by git-fast-import(1), one process for any number.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from daemon.durable import Files
from daemon.errors import NotNow, UsageError
from daemon.faults import passes
from daemon.git import AUTHOR, GitError, Repository
from daemon.layout import Workspace
from daemon.mddb.schema import kind_of

#: The newest commit of ours.
REF: Final = "refs/megaharness/md-db"

_WHO = f"{AUTHOR['GIT_COMMITTER_NAME']} <{AUTHOR['GIT_COMMITTER_EMAIL']}>"
_SUBJECT = "md-db: "
_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
#: How often somebody else may come first.
_TRIES = 10
#: So many paths are named in the message of a commit.
_NAMED = 50

HashName = Literal["sha1", "sha256"]


def blob_id(data: bytes, hash_name: HashName = "sha1") -> str:
    """The id that git gives this content (gitformat-objects: ``blob <length>``, NUL, content)."""
    found = hashlib.new(hash_name, b"blob %d\0" % len(data), usedforsecurity=False)
    found.update(data)
    return found.hexdigest()


@dataclass(frozen=True, slots=True)
class Entry:
    """A commit in which a document changed.

    when: of its author, ISO 8601, UTC. own: it is one of ours, which holds what was not committed. blob: the id of
    the content; None: the document is not there any more.
    """

    commit: str
    when: str
    author: str
    subject: str
    own: bool
    blob: str | None


@dataclass(frozen=True, slots=True)
class _Commit:
    id: str
    tree: str
    parents: tuple[str, ...]


#: What HEAD and `REF` are, as ids; None: there is no such commit yet.
_State = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True)
class _Recorded:
    state: _State
    documents: Mapping[str, str]
    revision: str


class _UnknownRefs(Exception):
    """The refs of this repository are not files as they are known here; git knows."""


class Revisions:
    """The commits of a workspace's documents. One object for the daemon's life: it remembers what it recorded last.

    All paths of documents are relative to md-db. Commits are given by their whole ids.
    """

    def __init__(self, root: Path, files: Files) -> None:
        self._root = root
        self._files = files
        self._folder = Workspace(root).mddb
        self._last: _Recorded | None = None
        #: Contents that no commit holds yet, by their ids.
        self._unwritten: dict[str, bytes] = {}
        self._hash_name: HashName | None = None
        self._packed: tuple[tuple[int, int, int], bytes] | None = None
        #: Why the last `record` could not, or "".
        self.refusal = ""

    # -- recording -----------------------------------------------------------------------------

    def blob_id(self, data: bytes) -> str:
        """The id that git gives this content in this repository, or would."""
        return blob_id(data, self.hash_name())

    def record(self, documents: Mapping[str, str], new: Mapping[str, bytes]) -> str | None:
        """The commit whose md-db has exactly these documents: HEAD, or one of ours.

        documents: path -> id of its content, all of them. new: the content of those that are new since the last time.
        None where there is no repository that can be used; `refusal` says why. Raises OSError when the disk refuses.
        Starts no process while neither the documents nor HEAD have changed.
        """
        self._unwritten |= {documents[path]: data for path, data in new.items()}
        last, state = self._last, self._state()
        if last is not None and state == last.state and dict(documents) == last.documents:
            self._unwritten.clear()
            return last.revision
        self._last = None
        try:
            self._last = self._record(dict(documents))
        except GitError as error:
            self.refusal = str(error)
            return None
        self.refusal = ""
        self._unwritten.clear()
        return self._last.revision

    def _record(self, documents: dict[str, str]) -> _Recorded:
        for path in documents:
            _check(path)
        git = _Git(self._root)
        failed: tuple[_State, GitError] | None = None
        for _ in range(_TRIES):
            head, tip = git.commits("HEAD", REF)
            state = (head.id if head else None, tip.id if tip else None)
            # What failed though nobody came first may have wanted an object that is not there: all are written.
            whole = failed is not None and failed[0] == state
            try:
                revision, tip_id = self._held(git, head, tip, documents, whole)
                return _Recorded((state[0], tip_id), documents, revision)
            except GitError as error:
                if whole:
                    raise
                failed = (state, error)
        assert failed is not None
        raise failed[1]

    def _held(
        self, git: _Git, head: _Commit | None, tip: _Commit | None, documents: dict[str, str], whole: bool
    ) -> tuple[str, str | None]:
        """(the commit that holds the documents, the newest one of ours)"""
        trees = {commit.id: git.tree(commit.id, self._folder.name) for commit in (head, tip) if commit}
        if head is not None and self._holds(trees[head.id], documents):
            # That it cannot be kept from the person's own git is no reason to do without it.
            if whole or (tip is not None and head.id in (tip.id, *tip.parents)):
                return head.id, tip.id if tip is not None else None
            return head.id, git.write(f"{_SUBJECT}keeps {head.id[:12]}\n", head, tip, head.tree, [])
        if tip is not None and self._holds(trees[tip.id], documents):
            return tip.id, tip.id
        base = head if not whole else None
        there = trees[base.id] if base is not None else {}
        changes: list[tuple[str, str | bytes | None]] = [
            (path, None) for path in there if path not in documents and kind_of(path) is not None
        ]
        for path, blob in documents.items():
            if whole:
                changes.append((path, self._content(path, blob)))
            elif there.get(path) != blob:
                changes.append((path, self._unwritten.get(blob, blob)))
        before = trees[tip.id] if tip is not None else there
        message = _message(
            documents, {path: blob for path, blob in before.items() if kind_of(path) is not None}
        )
        prefixed = [(f"{self._folder.name}/{path}", content) for path, content in changes]
        made = git.write(message, head, tip, base.tree if base is not None else None, prefixed)
        return made, made

    def _content(self, path: str, blob: str) -> str | bytes:
        """What was read, if it is still at hand, else its id."""
        data = self._unwritten.get(blob)
        if data is None:
            try:
                data = self._files.read(Path(os.path.realpath(self._folder / path)))
            except NotNow:
                return blob
            except OSError as error:
                if passes(error):
                    raise
                return blob  # it is not there any more: the repository has it, or nobody
        return data if self.blob_id(data) == blob else blob

    def _holds(self, tree: Mapping[str, str], blobs: Mapping[str, str]) -> bool:
        return all(tree.get(path) == blob for path, blob in blobs.items()) and not any(
            path not in blobs and kind_of(path) is not None for path in tree
        )

    # -- what was ------------------------------------------------------------------------------

    def read(self, revision: str, paths: Sequence[str]) -> dict[str, bytes]:
        """The files at a commit; one that it does not have is left out. Raises GitError, OSError."""
        git = _Git(self._root)
        tree = git.tree(_commit(revision), self._folder.name)
        return self._contents(git, {path: tree[path] for path in paths if path in tree})

    def documents(self, revision: str) -> dict[str, bytes]:
        """All documents at a commit: what was recorded, if it is one. Raises GitError, OSError."""
        git = _Git(self._root)
        tree = git.tree(_commit(revision), self._folder.name)
        return self._contents(git, {path: blob for path, blob in tree.items() if kind_of(path) is not None})

    def _contents(self, git: _Git, blobs: Mapping[str, str]) -> dict[str, bytes]:
        found = git.objects(blobs.values())
        for path, blob in blobs.items():
            if found.get(blob) is None:
                raise GitError(f"{self._folder.name}/{path} is missing in the repository: blob {blob}")
        return {path: found[blob] for path, blob in blobs.items()}

    def resolve_name(self, rev: str) -> str:
        """The commit that a person means: an id or its beginning, a branch, HEAD~2, HEAD@{yesterday}, ...

        Raises UsageError where there is none, and GitError where there is no repository.
        """
        if rev and not rev.startswith("-") and rev.isprintable():
            git = _Git(self._root)
            with contextlib.suppress(GitError):
                return (
                    git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{rev}^{{commit}}")
                    .strip()
                    .decode()
                )
        raise UsageError(
            f"there is no commit {rev!r} in {self._root}", "`mh mddb log PATH` lists those of a document"
        )

    def log(self, path: str, limit: int | None = None) -> list[Entry]:
        """The commits of HEAD's history and of ours in which a document changed, the newest first. Raises GitError."""
        git = _Git(self._root)
        starts = [commit.id for commit in git.commits("HEAD", REF) if commit is not None]
        # Commits with neither a newer nor an older one of the same content: a person commits what was told before.
        found: list[Entry] = []
        for entry in git.history(starts, f"{self._folder.name}/{path}") if starts else ():
            if not found or found[-1].blob != entry.blob:
                found.append(entry)
            elif found[-1].own or not entry.own:
                found[-1] = entry
        return found[:limit]

    def diff(self, path: str, old: str, new: str | None = None) -> str:
        """What changed in a document, as a unified diff, from one commit to another, or to the file
        as it is now. Raises GitError, OSError.
        """
        name = f"{self._folder.name}/{path}"
        before = self.read(old, [path]).get(path)
        after = self.read(new, [path]).get(path) if new is not None else self._now(path)
        if before == after:
            return ""
        return "".join(
            _ended(line)
            for line in difflib.unified_diff(
                _lines(before),
                _lines(after),
                f"a/{name}" if before is not None else "/dev/null",
                f"b/{name}" if after is not None else "/dev/null",
                old[:12],
                new[:12] if new is not None else "now",
            )
        )

    def _now(self, path: str) -> bytes | None:
        try:
            # Who keeps a text elsewhere means what the link leads to, as when it is told.
            return self._files.read(Path(os.path.realpath(self._folder / _check(path))))
        except (FileNotFoundError, NotADirectoryError):
            return None

    # -- what the repository is ----------------------------------------------------------------

    def hash_name(self) -> HashName:
        """How this repository names its objects; sha1 where there is none. It is asked once."""
        if self._hash_name is None:
            try:
                said = _Git(self._root)("rev-parse", "--show-object-format")
            except GitError:
                said = b"sha1"
            self._hash_name = "sha256" if said.strip() == b"sha256" else "sha1"
        return self._hash_name

    def _state(self) -> _State | None:
        """What HEAD and `REF` are, read from their files. None: only git can say."""
        try:
            return self._ref("HEAD"), self._ref(REF)
        except _UnknownRefs:
            return None

    def _ref(self, name: str) -> str | None:
        """The commit of a ref (gitrepository-layout, git-pack-refs(1)); None: there is none yet."""
        for _ in range(5):
            text = self._ref_file(name)
            if text is None:
                text = self._packed_ref(name)
            if text is None or _ID.fullmatch(text):
                return text
            name = text.removeprefix("ref:").strip()
            # Where refs are no files, HEAD is a placeholder.
            if not text.startswith("ref:") or not name.startswith("refs/heads/") or "/." in name:
                raise _UnknownRefs
        raise _UnknownRefs

    def _ref_file(self, name: str) -> str | None:
        data = self._git_file(name)
        return None if data is None else data.decode("utf-8", "surrogateescape").strip()

    def _packed_ref(self, name: str) -> str | None:
        path = self._root / ".git" / "packed-refs"
        try:
            facts = os.stat(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            if passes(error):
                raise
            raise _UnknownRefs from error
        seen = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
        if self._packed is None or self._packed[0] != seen:
            self._packed = (seen, self._git_file("packed-refs") or b"")
        found = re.search(
            rb"^([0-9a-f]+) %s$" % re.escape(name.encode("utf-8", "surrogateescape")),
            self._packed[1],
            re.MULTILINE,
        )
        return found[1].decode() if found else None

    def _git_file(self, name: str) -> bytes | None:
        try:
            return self._files.read(self._root / ".git" / name)
        except (FileNotFoundError, NotADirectoryError, NotNow):
            return None
        except OSError as error:
            if passes(error):
                raise
            raise _UnknownRefs from error


class _Git:
    """The few things that are asked of git, for one piece of work."""

    def __init__(self, root: Path) -> None:
        self._repository = Repository(root)

    def __call__(self, *args: str, stdin: bytes | None = None) -> bytes:
        return self._repository.git("--no-replace-objects", *args, stdin=stdin)

    def commits(self, *names: str) -> list[_Commit | None]:
        found: list[_Commit | None] = []
        for object_id, data in self._batch(f"{name}^{{commit}}" for name in names):
            if object_id is None:
                found.append(None)
                continue
            head = data.partition(b"\n\n")[0].decode("utf-8", "replace").splitlines()
            parents = tuple(line[7:] for line in head if line.startswith("parent "))
            found.append(_Commit(object_id, head[0].removeprefix("tree "), parents))
        return found

    def objects(self, ids: Iterable[str]) -> dict[str, bytes]:
        wanted = list(dict.fromkeys(ids))
        return {object_id: data for object_id, data in self._batch(wanted) if object_id is not None}

    def _batch(self, names: Iterable[str]) -> list[tuple[str | None, bytes]]:
        """Of each name the id and the content; (None, b"") of what is not there."""
        asked = "".join(f"{name}\n" for name in names).encode()
        if not asked:
            return []
        out, at = self("cat-file", "--batch", stdin=asked), 0
        found: list[tuple[str | None, bytes]] = []
        while at < len(out):
            end = out.index(b"\n", at)
            words = out[at:end].split()
            at = end + 1
            if len(words) == 3 and words[2].isdigit():
                size = int(words[2])
                found.append((words[0].decode(), out[at : at + size]))
                at += size + 1
            else:
                found.append((None, b""))
        return found

    def tree(self, commit: str, folder: str) -> dict[str, str]:
        """Path in the folder -> blob, of every regular file."""
        found = {}
        for line in self("ls-tree", "-r", "-z", "--full-tree", commit, f"{folder}/").split(b"\0"):
            facts, _, path = line.partition(b"\t")
            mode, _, rest = facts.partition(b" ")
            if mode.startswith(b"100"):
                found[os.fsdecode(path)[len(folder) + 1 :]] = rest.split(b" ")[1].decode()
        return found

    def write(
        self,
        message: str,
        head: _Commit | None,
        tip: _Commit | None,
        base: str | None,
        changes: Sequence[tuple[str, str | bytes | None]],
    ) -> str:
        """A commit on `REF`, on disk; its id. GitError also when the ref is not `tip` any more.

        base: the tree that the changes are made to. changes: path in the repository, and the id of its content, the
        content, or None: it goes.
        """
        lines = [b"commit %s\nmark :1\n" % REF.encode()]
        lines.append(f"author {_WHO} now\ncommitter {_WHO} now\n".encode())
        text = message.encode("utf-8", "replace")
        lines.append(b"data %d\n%s\n" % (len(text), text))
        parents = dict.fromkeys(each.id for each in (tip, head) if each is not None)
        for word, parent in zip(("from", "merge"), parents, strict=False):
            lines.append(f"{word} {parent}\n".encode())
        lines.append(f'M 040000 {base} ""\n'.encode() if base is not None else b"deleteall\n")
        # What goes makes room first: a file where a folder was.
        for path, content in sorted(changes, key=lambda change: change[1] is not None):
            match content:
                case None:
                    lines.append(b"D %s\n" % _quoted(path))
                case str():
                    lines.append(b"M 100644 %s %s\n" % (content.encode(), _quoted(path)))
                case bytes():
                    lines.append(
                        b"M 100644 inline %s\ndata %d\n%s\n" % (_quoted(path), len(content), content)
                    )
        lines.append(b"get-mark :1\ndone\n")
        try:
            out = self("fast-import", "--quiet", "--done", "--date-format=now", stdin=b"".join(lines))
        finally:
            self._remove_reports()
        return out.decode().strip()

    def _remove_reports(self) -> None:
        """git-fast-import leaves a report in the repository when it fails; what it says is in the error."""
        for path in (self._repository.path / ".git").glob("fast_import_crash_*"):
            with contextlib.suppress(OSError):
                if f"commit {REF}\n".encode() in path.read_bytes():
                    path.unlink()

    def history(self, starts: Sequence[str], path: str) -> Iterator[Entry]:
        """The commits in which this file is another one than in every parent, the newest first."""
        only = ("--", f":(top,literal){path}")
        # A commit of ours is a merge: both of its parents may tell something.
        ids = self("rev-list", "--full-history", "--date-order", *starts, *only)
        out = self(
            *("diff-tree", "--stdin", "-r", "-c", "--root", "--raw", "--no-renames", "--no-abbrev"),
            *("--no-color", "--encoding=UTF-8", "--format=%x00%H%x00%at%x00%an%x00%ae%x00%s", *only),
            stdin=ids,
        )
        fields = out.decode("utf-8", "surrogateescape").split("\0")[1:]
        for commit, at, author, email, rest in zip(*(iter(fields),) * 5, strict=True):
            subject, _, raw = rest.partition("\n")
            for line in raw.split("\n"):
                facts, _, name = line.partition("\t")
                # A name that git puts in quotes has its own spelling; no other one can be below a file's path.
                if name == path or name.startswith('"'):
                    blob = facts.split()[-2]
                    when = datetime.fromtimestamp(int(at), UTC).isoformat().replace("+00:00", "Z")
                    own = email == AUTHOR["GIT_AUTHOR_EMAIL"] and subject.startswith(_SUBJECT)
                    yield Entry(commit, when, author, subject, own, blob if blob.strip("0") else None)
                    break


def _commit(revision: str) -> str:
    if not _ID.fullmatch(revision):
        raise GitError(f"{revision!r} is no id of a commit")
    return revision


def _check(path: str) -> str:
    if any(part in ("", ".", "..") or part.lower() == ".git" for part in path.split("/")):
        raise ValueError(f"{path!r} is no path below md-db")
    return path


def _quoted(path: str) -> bytes:
    """As git-fast-import(1) reads it."""
    special = {b"\\": b"\\\\", b'"': b'\\"', b"\n": b"\\n"}
    data = os.fsencode(path)
    for character, written in special.items():
        data = data.replace(character, written)
    return b'"%s"' % data


def _message(now: Mapping[str, str], before: Mapping[str, str]) -> str:
    """What changed since the last one; the first line is shown in logs."""
    kinds = {
        "changed": [path for path in now if path in before and before[path] != now[path]],
        "new": [path for path in now if path not in before],
        "gone": [path for path in before if path not in now],
    }
    changed = [(path, word) for word, paths in kinds.items() for path in sorted(paths)]
    shown = [f"{''.join(c if c.isprintable() else '?' for c in path)} {word}" for path, word in changed]
    if len(shown) == 1:
        return f"{_SUBJECT}{shown[0]}\n"
    counts = ", ".join(f"{len(paths)} {word}" for word, paths in kinds.items() if paths)
    more = [f"and {len(shown) - _NAMED} more"] if len(shown) > _NAMED else []
    return "\n".join([f"{_SUBJECT}{counts or 'as it was read'}", "", *shown[:_NAMED], *more, ""])


def _lines(data: bytes | None) -> list[str]:
    """With their ends. What is not UTF-8 is written as such, so that no difference goes unseen."""
    lines = (data or b"").decode("utf-8", "backslashreplace").split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
