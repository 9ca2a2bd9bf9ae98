"""A disk that forgets what was not synced: the crash world with a power cut in place of a crash.

A model, stricter than any one file system: what `daemon.durable.Files` has done is undone at a cut unless it was
synced since. A rename is one operation, and durable with the fsync of either of its two directories; a new name
with the fsync of its directory; bytes with the fsync of their file. What a person and the runner write is taken to
be on disk at once (the runner syncs by itself, and outlives the cut: that it is ended by one is another proof).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from daemon.durable import RENAME_EXCHANGE, _renameat2
from tests.crash.world import REAL, Fault, Life, Mutant, StepFiles, World


@dataclass
class Done:
    """An operation that is not on disk yet. undo: as if it had never been."""

    paths: frozenset[Path]
    undo: Callable[[], None]


def _inode(path: Path) -> int:
    try:
        return os.lstat(path).st_ino
    except OSError:
        return 0


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


class Cache:
    """What the disk has not taken yet, in order."""

    def __init__(self) -> None:
        self._pending: list[Done] = []
        self.lost = 0

    def add(self, undo: Callable[[], None], *paths: Path) -> None:
        self._pending.append(Done(frozenset(paths), undo))

    def sync_dir(self, folder: Path) -> None:
        """Everything in this folder is on disk, and whatever it came of."""
        wanted: set[Path] = set()
        left = []
        for done in reversed(self._pending):
            if done.paths & wanted or any(path.parent == folder for path in done.paths):
                wanted |= done.paths
            else:
                left.append(done)
        self._pending = left[::-1]

    def done(self, undo: Callable[[], None]) -> None:
        """This much is on disk."""
        self._pending = [done for done in self._pending if done.undo is not undo]

    def cut(self) -> None:
        self.lost += len(self._pending)
        while self._pending:
            self._pending.pop().undo()


class Forgetful(StepFiles):
    """Tells the cache of each operation. Stands before a mutant's own class."""

    _world: PowerWorld
    _fsynced = False
    _synced: set[Path] = set()  # noqa: RUF012  # made anew by each append

    def before(self, name: str, *args: object) -> None:
        paths = [arg for arg in args if isinstance(arg, Path)]
        note = getattr(self, f"_note_{name}", None)
        if name == "fsync":
            self._fsynced = True
        elif note is not None:
            self._fsynced = False
            self._finish = note(*paths)
        super().before(name, *args)

    def after(self, name: str, *args: object) -> None:
        if name == "sync_dir":
            assert isinstance(args[0], Path)
            self._world.cache.sync_dir(args[0])
            self._synced.add(args[0])
        elif hasattr(self, f"_note_{name}"):
            self._finish()
        super().after(name, *args)

    # What is needed to undo it is looked at before; that it was done is noted after.

    def _note_create(self, path: Path) -> Callable[[], None]:
        def unmade() -> None:
            path.unlink(missing_ok=True)

        self._world.cache.add(unmade)

        def finish() -> None:
            made, data = _inode(path), _bytes(path)

            def undo() -> None:
                if _inode(path) == made:
                    os.unlink(path)

            self._world.cache.done(unmade)
            self._world.cache.add(undo, path)
            if not self._fsynced:
                self._world.cache.add(lambda: self._empty(made, data))

        return finish

    def _empty(self, inode: int, data: bytes | None) -> None:
        """Wherever it was renamed to: its bytes never got to the disk."""
        for folder, _, names in os.walk(self._world.workspace.root):
            for name in names:
                path = Path(folder, name)
                if _inode(path) == inode and _bytes(path) == data:
                    os.truncate(path, 0)

    def _note_append(self, path: Path) -> Callable[[], None]:
        there = path.exists()
        size = path.stat().st_size if there else 0
        self._synced = set()

        def forget() -> None:
            # Not by the inode: it is the same file, or was made in this very operation.
            if path.exists():
                os.truncate(path, size)

        self._world.cache.add(forget)

        def finish() -> None:
            made = _inode(path)

            def undo() -> None:
                if _inode(path) == made:
                    os.unlink(path)

            if not there and path.parent not in self._synced:
                self._world.cache.add(undo, path)
            if self._fsynced:
                self._world.cache.done(forget)

        return finish

    def _note_rename(self, old: Path, new: Path) -> Callable[[], None]:
        moved, replaced = _inode(old), _bytes(new)

        def undo() -> None:
            if _inode(new) == moved and not os.path.lexists(old) and old.parent.is_dir():
                os.rename(new, old)
                if replaced is not None:
                    new.write_bytes(replaced)

        return lambda: self._world.cache.add(undo, old, new)

    _note_move = _note_rename
    _note_replace = _note_rename

    def _note_exchange(self, one: Path, other: Path) -> Callable[[], None]:
        first, second = _inode(one), _inode(other)

        def undo() -> None:
            if (_inode(one), _inode(other)) == (second, first):
                _renameat2(one, other, RENAME_EXCHANGE)

        return lambda: self._world.cache.add(undo, one, other)

    def _note_unlink(self, path: Path) -> Callable[[], None]:
        data = _bytes(path)

        def undo() -> None:
            if data is not None and not os.path.lexists(path) and path.parent.is_dir():
                path.write_bytes(data)

        return lambda: self._world.cache.add(undo, path)

    def _note_make_dir(self, path: Path) -> Callable[[], None]:
        there = path.exists()

        def undo() -> None:
            if not there:
                shutil.rmtree(path, ignore_errors=True)

        return lambda: self._world.cache.add(undo, path)


class PowerWorld(World):
    """Each daemon begins after a power cut."""

    def __init__(self, root: Path, life: Life, mutant: Mutant = REAL) -> None:
        self.cache = Cache()
        forgetful = type("Forgetful", (Forgetful, mutant.files), {})
        super().__init__(root, life, replace(mutant, files=forgetful))

    def boot(self, fault: Fault | None) -> None:
        self.cache.cut()
        super().boot(fault)


def cuts(points: Sequence[str]) -> list[Fault]:
    """A power cut at each point."""
    return [Fault(number) for number in range(len(points))]
