"""Small file systems of all kinds, in a mount namespace of their own: they go with their process, however it ends.

`alone` runs a module's `main` in such a namespace; the other functions are for use inside it. A loop device is
attached by mount(8), so that the kernel detaches it with the last mount.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
NEEDS = {"unshare": "util-linux", "mount": "mount"}

MS_RDONLY, MS_REMOUNT, MS_BIND = 1, 32, 4096
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def alone(module: str, *words: str) -> str:
    """What ``python -m module words...`` prints, run in a mount namespace of its own. Needs root."""
    argv = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", module, *words]
    child = subprocess.run(argv, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=False)
    if child.returncode != 0:
        raise RuntimeError(f"{module} {' '.join(words)} ended with {child.returncode}: {child.stdout}")
    return child.stdout


def end_with_parent() -> None:
    """Whoever waits for this process may be killed: then nobody wants its result."""
    parent = os.getppid()
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("who started this has gone")


def mount(source: str, target: Path, kind: str, flags: int, options: str) -> None:
    words = (os.fsencode(source), os.fsencode(target), kind.encode() or None)
    if _libc.mount(*words, ctypes.c_ulong(flags), options.encode() or None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(target))


def unmount(target: Path) -> None:
    if _libc.umount2(os.fsencode(target), 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(target))


@contextlib.contextmanager
def tmpfs(options: str) -> Iterator[Path]:
    """A file system in memory, such as ``size=1m`` or ``nr_inodes=100``."""
    target = Path(tempfile.mkdtemp(prefix="mh-tmpfs-"))
    try:
        mount("tmpfs", target, "tmpfs", 0, f"mode=0700,{options}")
        try:
            yield target
        finally:
            unmount(target)
    finally:
        target.rmdir()


def read_only(target: Path, on: bool) -> None:
    """Make a bind mount read-only, or writable again. Raises OSError (EBUSY) while a file in it is open for writing."""
    mount("none", target, "", MS_REMOUNT | MS_BIND | (MS_RDONLY if on else 0), "")


# -- disks -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """options: nothing is written out by time alone while a life lasts, which is what makes a missing fsync show."""

    name: str
    size: int
    make: tuple[str, ...]
    package: str
    options: str


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "ext4",
            32 << 20,
            ("mkfs.ext4", "-q", "-F", "-m", "0", "-N", "4096", "-J", "size=4", "-E", "lazy_itable_init=0"),
            "e2fsprogs",
            "commit=600",
        ),
        Kind("xfs", 300 << 20, ("mkfs.xfs", "-q", "-f"), "xfsprogs", "rw"),
        Kind("btrfs", 128 << 20, ("mkfs.btrfs", "-q", "-f"), "btrfs-progs", "commit=600"),
    )
}
CHUNK = 1 << 18
ZEROS = bytes(CHUNK)
ROOM = 1 << 30


def room() -> str | None:
    """Where images lie: in memory if there is room, so that only the file systems under test are slow."""
    shm = Path("/dev/shm")
    if os.access(shm, os.W_OK) and shutil.disk_usage(shm).free > ROOM:
        return str(shm)
    return None


class Image:
    """A file that is a disk."""

    def __init__(self, kind: Kind, path: Path) -> None:
        self.kind = kind
        self.path = path

    @classmethod
    def make(cls, kind: Kind, path: Path) -> Image:
        with open(path, "wb") as file:
            file.truncate(kind.size)
        made = subprocess.run([*kind.make, str(path)], capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise RuntimeError(f"{kind.make[0]}: {made.stderr}")
        return cls(kind, path)

    def copy(self, path: Path) -> Image:
        """What has reached the disk by now: read again until two reads agree. Nothing is flushed for it."""
        before = self._read()
        for _ in range(100):
            after = self._read()
            if after == before:
                break
            before = after
        else:
            raise RuntimeError(f"{self.path} never stands still")
        with open(path, "wb") as file:
            file.truncate(self.kind.size)
            for offset, data in after.items():
                file.seek(offset)
                file.write(data)
        return Image(self.kind, path)

    def _read(self) -> dict[int, bytes]:
        """Offset -> bytes, without the holes."""
        found: dict[int, bytes] = {}
        fd = os.open(self.path, os.O_RDONLY)
        try:
            offset = 0
            while True:
                try:
                    offset = os.lseek(fd, offset, os.SEEK_DATA)
                except OSError:  # ENXIO: nothing but a hole is left
                    return found
                end = os.lseek(fd, offset, os.SEEK_HOLE)
                while offset < end:
                    data = os.pread(fd, min(CHUNK, end - offset), offset)
                    if data != ZEROS[: len(data)]:
                        found[offset] = data
                    offset += len(data)
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def mounted(self) -> Iterator[Path]:
        """Mount it: after a power cut its journal is replayed here. Everything is written out at the end."""
        target = Path(tempfile.mkdtemp(prefix="mh-disk-"))
        try:
            argv = [
                "mount",
                "-t",
                self.kind.name,
                "-o",
                f"loop,{self.kind.options}",
                str(self.path),
                str(target),
            ]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"{' '.join(argv)}: {done.stderr}")
            try:
                yield target
            finally:
                unmount(target)
        finally:
            target.rmdir()

    def remove(self) -> None:
        self.path.unlink()


def sync(path: Path) -> None:
    """Write out all of the file system that this is on."""
    fd = os.open(path, os.O_RDONLY)
    try:
        if _libc.syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(fd)
