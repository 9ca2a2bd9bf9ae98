"""What lies in the four folders, and the moves between them.

Invariants kept here:

* the daemon never writes into ``queued/``: it renames out of it, and back untouched;
* a move is one rename that never overwrites, followed by an fsync of both directories;
* a settled name that is taken becomes ``name~2.md``, shortened where that would be too long;
* a scan reads no file and looks only at what may have changed;
* whatever a look finds changed is among the `changes`, once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.errors import IllegalTransition
from daemon.spool.states import FAILED, QUEUED, SETTLED, STATES, TRANSITIONS, State

if TYPE_CHECKING:  # the view imports this module, and writes nothing
    from daemon.durable import Files

#: A directory whose mtime is younger than this (s) may change again without a new mtime.
RACY = 2.0
#: What is beside a refused file; `reason_name` says what it is called.
REASON = ".why.txt"
#: What a file system takes as one name (bytes).
NAME_MAX = 255

_LITTER = re.compile(
    r"""\..* | .*~ | \#.*\# | 4913 | .*\.(tmp|part|crdownload|swp|swx) | .*\.sync-conflict-.*""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a folder as the last look saw it (lstat; never opened)."""

    state: State
    name: str
    inode: int
    ctime_ns: int
    mtime: float
    size: int
    uid: int
    links: int
    kind: str  # "file", or what it is instead: "symlink", "directory", "fifo", "device"

    @property
    def signature(self) -> tuple[int, int, int]:
        """Unchanged as long as this is: a write, a rename and a chmod change the ctime."""
        return (self.inode, self.ctime_ns, self.size)


def is_litter(name: str) -> bool:
    """Names that editors and sync programs leave beside real files, and whatever is not ``*.md``."""
    return not name.endswith(".md") or _LITTER.fullmatch(name) is not None


def locked_by(name: str) -> tuple[str, ...]:
    """The items of which this can be an editor's swap or lock file."""
    found = []
    if name.startswith(".") and name.endswith(".swp"):
        found.append(name[1:-4])
    if name.startswith(".#"):
        found.append(name[2:])
    if name.startswith(".~lock.") and name.endswith("#"):
        found.append(name[7:-1])
    return tuple(found)


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISLNK(mode):
        return "symlink"
    if stat.S_ISDIR(mode):
        return "directory"
    if stat.S_ISFIFO(mode):
        return "fifo"
    return "device"


def numbered(name: str, number: int) -> str:
    """``a.md`` -> ``a~2.md``."""
    return name if number < 2 else _fitted(name.removesuffix(".md"), f"~{number}.md")


def same_name(name: str, wanted: str) -> bool:
    """Whether `name` is `wanted`, or what `wanted` became where it was taken."""
    number = re.fullmatch(r".*~([0-9]+)\.md", name, re.DOTALL)
    return name == wanted or (number is not None and numbered(wanted, int(number[1])) == name)


def reason_name(name: str) -> str:
    """What the reason beside the refused file `name` is called: ``a.md`` -> ``a.md.why.txt``.

    Of a name that leaves no room only the beginning is kept, and a hash of the
    whole: two long names that begin alike have two reasons.
    """
    whole = f"{name}{REASON}"
    if len(os.fsencode(whole)) <= NAME_MAX:
        return whole
    mark = hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
    return _fitted(name.removesuffix(".md"), f"~{mark}.md{REASON}")


def _fitted(stem: str, tail: str) -> str:
    """Both, with as much of the stem as one name can hold: whole characters of it."""
    stem = stem[: NAME_MAX - len(tail)]
    while len(os.fsencode(stem)) + len(tail) > NAME_MAX:
        stem = stem[:-1]
    return stem + tail


def is_regular(path: Path) -> bool:
    """Whether a file itself lies there: no link to one, and nothing whose opening waits. Never raises."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


@dataclass(slots=True)
class _Folder:
    entries: dict[str, Entry] = field(default_factory=dict)
    others: frozenset[str] = frozenset()
    mtime_ns: int = -1
    settled_names: set[str] = field(default_factory=set)
    #: Grows with every change of the settled names.
    version: int = 0


class Store:
    """Generic over any root with the four folders: tracks and packets use it."""

    def __init__(self, root: Path, files: Files) -> None:
        self.root = root
        self.files = files
        self._folders: dict[State, _Folder] = {state: _Folder() for state in STATES}
        self._changed: set[tuple[State, str]] = set()

    def folder(self, state: State) -> Path:
        return self.root / state

    def path(self, state: State, name: str) -> Path:
        return self.root / state / name

    # -- looking -------------------------------------------------------------------------------

    def scan(self, wall: float) -> None:
        """Look at everything that may have changed: the open folders file by file, the settled ones by name."""
        self._scan(wall, whole=True)

    def scan_names(self, wall: float) -> None:
        """As `scan`, but in the open folders, too, only for names that came or went: somebody else tells what is
        saved in place."""
        self._scan(wall, whole=False)

    def _scan(self, wall: float, *, whole: bool) -> None:
        for state in STATES:
            folder = self._folders[state]
            seen = os.stat(self.folder(state)).st_mtime_ns
            if seen == folder.mtime_ns and (state in SETTLED or not whole):
                continue
            if state in SETTLED:
                self._list_settled(state)
            else:
                self._list_open(state, whole)
            # Two changes within one clock tick of the file system share an mtime.
            folder.mtime_ns = seen if wall - seen / 1e9 > RACY else -1

    def _list_settled(self, state: State) -> None:
        folder = self._folders[state]
        names = set(os.listdir(self.folder(state)))
        if names != folder.settled_names:
            folder.settled_names = names
            folder.version += 1

    def _list_open(self, state: State, whole: bool) -> None:
        folder = self._folders[state]
        names: set[str] = set()
        others: set[str] = set()
        for name in os.listdir(self.folder(state)):
            (others if is_litter(name) else names).add(name)
        gone = folder.entries.keys() - names
        for name in gone:
            self._put(state, name, None)
        for name in names if whole else names - folder.entries.keys():
            self._put(state, name, self._stat(state, name))
        for name in folder.others ^ others:
            self._note_other(state, name)
        folder.others = frozenset(others)

    def _put(self, state: State, name: str, entry: Entry | None) -> None:
        entries = self._folders[state].entries
        if entries.get(name) is entry:
            return
        self._changed.add((state, name))
        if entry is None:
            del entries[name]
        else:
            entries[name] = entry

    def _note_other(self, state: State, name: str) -> None:
        """What an editor keeps beside a file says something about that file."""
        for item in locked_by(name):
            if item in self._folders[state].entries:
                self._changed.add((state, item))

    def look(self, paths: Iterable[Path]) -> None:
        """Look again at these paths only."""
        for path in paths:
            state = path.parent.name
            if path.parent.parent != self.root or state not in STATES:
                continue
            folder = self._folders[state]
            if state in SETTLED:
                folder.mtime_ns = -1
                if os.path.lexists(path) != (path.name in folder.settled_names):
                    folder.settled_names ^= {path.name}
                    folder.version += 1
            elif is_litter(path.name):
                if os.path.lexists(path) != (path.name in folder.others):
                    folder.others ^= {path.name}
                    self._note_other(state, path.name)
            else:
                self._put(state, path.name, self._stat(state, path.name))

    def changes(self) -> set[tuple[State, str]]:
        """The files of the open folders that have come, gone or changed, or an editor's file beside them, since
        this was asked last."""
        found, self._changed = self._changed, set()
        return found

    def version(self, state: State) -> int:
        """Of a settled folder: another number when its names are not the same any more."""
        return self._folders[state].version

    def differs(self, path: Path) -> bool:
        """Whether what lies at this path is not what the last look saw (so an event about it is news)."""
        state = path.parent.name
        if path.parent.parent != self.root or state not in STATES:
            return False
        folder = self._folders[state]
        if state in SETTLED:
            return os.path.lexists(path) != (path.name in folder.settled_names)
        if is_litter(path.name):
            return os.path.lexists(path) != (path.name in folder.others)
        return self._stat(state, path.name) is not folder.entries.get(path.name)

    def entries(self, state: State) -> dict[str, Entry]:
        """Open folders only: name -> entry."""
        return self._folders[state].entries

    def names(self, state: State) -> AbstractSet[str]:
        folder = self._folders[state]
        return folder.settled_names if state in SETTLED else frozenset(folder.entries)

    def others(self, state: State) -> frozenset[str]:
        """Names in an open folder that are not items (editors' lock files among them)."""
        return self._folders[state].others

    def _stat(self, state: State, name: str) -> Entry | None:
        """The very entry that is known, where nothing has changed."""
        try:
            found = os.lstat(f"{self.root}/{state}/{name}")
        except FileNotFoundError:
            return None
        known = self._folders[state].entries.get(name)
        if (
            known is not None
            and (known.ctime_ns, known.inode) == (found.st_ctime_ns, found.st_ino)
            and (known.size, known.mtime) == (found.st_size, found.st_mtime)
            and (known.uid, known.links) == (found.st_uid, found.st_nlink)
        ):
            return known
        return Entry(
            state=state,
            name=name,
            inode=found.st_ino,
            ctime_ns=found.st_ctime_ns,
            mtime=found.st_mtime,
            size=found.st_size,
            uid=found.st_uid,
            links=found.st_nlink,
            kind=_kind(found.st_mode),
        )

    # -- moving --------------------------------------------------------------------------------

    def move(
        self, name: str, old: State, new: State, *, to: str | None = None, avoid: Collection[str] = ()
    ) -> str:
        """The one rename that is a transition; returns the name it got there.

        A name that is taken, or among those to `avoid`, gets a number (except
        with `to`, which must be free). Raises FileExistsError,
        FileNotFoundError, OSError.
        """
        if (old, new) not in TRANSITIONS:
            raise IllegalTransition(f"{old} -> {new} is no transition")
        number = 1
        while True:
            target = to or numbered(name, number)
            if to is None and target in avoid:
                number += 1
                continue
            try:
                self.files.move(self.path(old, name), self.path(new, target))
            except FileExistsError:
                if to is not None or number > 9999:
                    raise
                number += 1
                continue
            break
        try:
            self.sync(old, new)
        finally:
            self.look([self.path(old, name), self.path(new, target)])
        return target

    def sync(self, *states: State) -> None:
        """Make what was renamed into and out of these folders durable; a crash may have come before that."""
        for state in states:
            self.files.sync_dir(self.folder(state))

    def free_name(self, state: State, name: str) -> str:
        """A name that is free, and so is that of its reason: what a person put there is not written over."""
        number = 1
        while not self._free(state, numbered(name, number)):
            number += 1
        return numbered(name, number)

    def _free(self, state: State, name: str) -> bool:
        reason = self.path(state, reason_name(name))
        return not os.path.lexists(self.path(state, name)) and (
            not os.path.lexists(reason) or is_regular(reason)
        )

    def refuse(self, name: str, why: str, state: State = QUEUED) -> str:
        """queued (or dropped into active) -> failed with the reason beside it; the file's bytes stay as they are.

        The reason is written first: a crash in between leaves a reason
        without a file (removed by `clear_reasons`), never a file without one.
        """
        target = self.free_name(FAILED, name)
        reason = self.path(FAILED, reason_name(target))
        temp = self.root / ".tmp" / f"{os.urandom(6).hex()}{REASON}"
        self.files.create(temp, why.encode("utf-8", "replace"))
        try:
            self.files.replace(temp, reason)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temp)
            raise
        # On disk before the move can be, which an fsync of the other folder alone may bring about.
        self.sync(FAILED)
        self.look([reason])
        return self.move(name, state, FAILED, to=target)

    def clear_reasons(self) -> list[str]:
        """Remove reasons whose file a person has moved or deleted. Returns the names that could not be removed.

        Those are no files of ours (a directory, a link), or the disk refuses; neither stops anything else.
        """
        names = self.names(FAILED)
        alone = [
            name for name in names if name.endswith(f".md{REASON}") and name[: -len(REASON)] not in names
        ]
        if not alone:
            return []
        left = []
        for name in set(alone) - {reason_name(name) for name in names if name.endswith(".md")}:
            path = self.path(FAILED, name)
            if os.path.lexists(path) and not is_regular(path):
                left.append(name)
                continue
            try:
                self.files.unlink(path)
            except OSError:
                left.append(name)
            self.look([path])
        return left

    def clear_temps(self, wall: float, age: float = 600.0) -> None:
        """Remove temps that a crash left; a `drop` at work keeps its own for ten minutes. One that stays is litter."""
        for name in os.listdir(self.root / ".tmp"):
            path = self.root / ".tmp" / name
            try:
                found = os.lstat(path)
            except FileNotFoundError:
                continue  # a `drop` has just put it where it belongs
            if wall - found.st_ctime > age and stat.S_ISREG(found.st_mode):
                with contextlib.suppress(OSError):
                    self.files.unlink(path)
