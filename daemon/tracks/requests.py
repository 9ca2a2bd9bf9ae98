"""What a person asks of the daemon: one small JSON file each, written by rename, removed when carried out.

It works while the daemon is down: the file waits.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

Verb = Literal["interrupt", "fresh", "down"]
VERBS: Final[frozenset[str]] = frozenset(get_args(Verb))
LIMIT = 1 << 16


@dataclass(frozen=True, slots=True)
class Request:
    """interrupt: end the session of `track`. fresh: its next session starts from an empty place.

    down: the daemon with pid `pid` ends (`drain`: after its sessions have).
    """

    path: Path
    verb: Verb
    track: str = ""
    why: str = ""
    pid: int = 0
    drain: bool = False


@dataclass(frozen=True, slots=True)
class BadRequest:
    path: Path
    why: str


def load(folder: Path) -> list[Request | BadRequest]:
    """Every request, oldest name first. A file that is none is returned as such, for the log."""
    found: list[Request | BadRequest] = []
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return found  # gone: the daemon makes it anew; shut: its next look says so
    for name in names:
        if name.startswith(".") or not name.endswith(".json"):
            continue
        path = folder / name
        try:
            with open(path, "rb", opener=lambda p, f: os.open(p, f | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
                raw = json.loads(file.read(LIMIT))
            verb = raw["verb"]
            if verb not in VERBS:
                raise ValueError(f"there is no verb {verb!r}; there are {', '.join(sorted(VERBS))}")
            found.append(
                Request(
                    path,
                    verb,
                    track=str(raw.get("track", "")),
                    why=str(raw.get("why", "")),
                    pid=int(raw.get("pid", 0)),
                    drain=bool(raw.get("drain", False)),
                )
            )
        except FileNotFoundError:
            continue
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            OverflowError,
            RecursionError,
        ) as error:
            found.append(BadRequest(path, f"{type(error).__name__}: {error}"))
    return found


def write(
    folder: Path,
    temps: Path,
    verb: Verb,
    *,
    track: str = "",
    why: str = "",
    pid: int = 0,
    drain: bool = False,
) -> Path:
    """Put a request there, whole and on disk."""
    name = f"{time.time_ns():020d}-{verb}-{secrets.token_hex(4)}.json"
    temp = temps / name
    record = {"v": 1, "verb": verb, "track": track, "why": why, "pid": pid, "drain": drain}
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(json.dumps(record).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    os.rename(temp, folder / name)
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return folder / name
