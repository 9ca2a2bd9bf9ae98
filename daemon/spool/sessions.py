"""The session directories: who claimed what, and how each claim ended.

Invariants kept here:

* ``claim.json`` is durable before anything is started for it;
* a session with ``settle.json`` is over for ever, a session with ``settled`` needs no look again;
* the current session of an item is its newest one without ``settle.json``;
* a directory in which more than a claim's beginning lies is a session, also when its claim is gone, and so
  is one that somebody has shut (chmod): until it is opened again nobody knows how it stands;
* session ids are never reused: item id, attempt, 12 random hex digits.

The Markdown file is a person's to edit, so nothing here is ever read from it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daemon.spool.states import State

if TYPE_CHECKING:  # the view imports this module, and writes nothing
    from daemon.durable import Files

#: As `Files.publish` names them.
_TEMP = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")
#: What a process was about to publish in a session: the daemon itself, a viewer, `mh interrupt`.
_TEMP_OF_PID = re.compile(r"\.tmp-([0-9]+)-[0-9a-f]{16}")
_JSON_MAX = 16 << 20
_SESSION_ID = re.compile(r"(?P<item>[a-z0-9-]{1,60})-(?P<attempt>[0-9]+)-(?P<hex>[0-9a-f]{12})")


@dataclass(frozen=True, slots=True)
class Ref:
    """A session's name, taken apart."""

    item: str
    attempt: int
    hex: str

    @property
    def id(self) -> str:
        return f"{self.item}-{self.attempt}-{self.hex}"


def parse(session_id: str) -> Ref | None:
    match = _SESSION_ID.fullmatch(session_id)
    return Ref(match["item"], int(match["attempt"]), match["hex"]) if match else None


def make(item: str, attempt: int) -> Ref:
    return Ref(item, attempt, os.urandom(6).hex())


@dataclass(frozen=True, slots=True)
class Claim:
    """``claim.json``: the item is ours.

    round: the attempt at which this stay in ``active/`` began; how many
        attempts are allowed is counted from there.
    extra: what the owner of the spool adds (for tracks: the route).
    """

    session: str
    item: str
    name: str
    attempt: int
    round: int
    claimed_at: str
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settlement:
    """``settle.json``: the intent. Written before the file moves, rolled forward after a crash.

    destination: a settled folder, ``queued`` (requeued), or ``stays`` (another session follows).
    """

    session: str
    item: str
    termination: str
    destination: State | str
    at: str
    why: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


STAYS = "stays"


def encode(record: Mapping[str, Any]) -> bytes:
    # A lone surrogate (a file name that is no UTF-8) is written as its JSON escape, and read back as it was.
    return (json.dumps({"v": 1, **record}, ensure_ascii=False, sort_keys=True) + "\n").encode(
        "utf-8", "backslashreplace"
    )


def _encode_claim(claim: Claim) -> bytes:
    return encode(
        {
            "session": claim.session,
            "item": claim.item,
            "name": claim.name,
            "attempt": claim.attempt,
            "round": claim.round,
            "claimed_at": claim.claimed_at,
            "extra": dict(claim.extra),
        }
    )


def extra_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """What the owner of the spool added to a record; {} where something else stands there: an agent can write it."""
    found = record.get("extra")
    return found if isinstance(found, dict) else {}


def read_json(path: Path) -> dict[str, Any] | None:
    """An object of a file that may be missing or torn (then None)."""
    try:
        # Neither through a link nor waiting for the other end of a fifo: an agent may have put it there.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            facts = os.fstat(fd)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > _JSON_MAX:
                return None
            with open(fd, "rb", closefd=False) as file:
                value = json.loads(file.read(_JSON_MAX))
        finally:
            os.close(fd)
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def is_shut(directory: Path) -> bool:
    """Whether its permissions keep us out: an agent can take them from its own session's directory. Never raises."""
    try:
        mode = os.stat(directory).st_mode
    except OSError:
        return False  # it is gone, or the disk's trouble
    return mode & 0o700 != 0o700 and not os.access(directory, os.R_OK | os.W_OK | os.X_OK)


class Sessions:
    """All sessions of one spool, by item. The daemon is the only one who makes them."""

    def __init__(self, root: Path, files: Files) -> None:
        self.root = root
        self._files = files
        self._all: dict[str, list[Ref]] = {}
        self._claims: dict[str, Claim] = {}
        self._settlements: dict[str, Settlement] = {}
        self._open: dict[str, Ref] = {}
        #: Open ones of which nobody knows whether they are: somebody closed their directories.
        self._shut: set[str] = set()

    def path(self, session: str) -> Path:
        return self.root / session

    def load(self, *, clear: bool = True) -> None:
        """Read what is on disk. Settled sessions cost one look each, and only here. `clear`: tidy up after a crash."""
        self._all.clear()
        self._open.clear()
        self._shut.clear()
        for entry in os.scandir(self.root):
            ref = parse(entry.name)
            if ref is None or not entry.is_dir(follow_symlinks=False):
                continue
            path = self.root / entry.name
            if not os.path.lexists(path / "claim.json") and self._never_claimed(path):
                if clear:
                    self._clear_unclaimed(path)
                continue
            # Without its claim it may still be running: nothing is started for its item, and a person is told.
            self._all.setdefault(ref.item, []).append(ref)
            if not os.path.lexists(path / "settled"):
                self._open[ref.id] = ref
                if is_shut(path):
                    self._shut.add(ref.id)
                elif clear:
                    self._clear_temps(path)
        for refs in self._all.values():
            refs.sort(key=lambda ref: ref.attempt)

    def _never_claimed(self, path: Path) -> bool:
        """Whether there is nothing in it but what comes before the claim."""
        try:
            return all(name == "spec.md" or _TEMP.fullmatch(name) for name in os.listdir(path))
        except OSError:
            return False  # nobody knows

    def _clear_unclaimed(self, path: Path) -> None:
        """What stopped between making the directory and the claim left it; the file itself lies in active/."""
        # Litter: a disk that takes no writes is no reason not to start.
        with contextlib.suppress(OSError):
            self._clear_temps(path)
            self._files.unlink(path / "spec.md")
            if not os.listdir(path):
                os.rmdir(path)

    def _clear_temps(self, path: Path) -> None:
        """Files that a dead process was about to publish. A runner may be at work here; its temps have other names."""
        with contextlib.suppress(OSError):
            for folder in (path, path / "receipts", path / "inbox", path / "inbox/text", path / "edits"):
                for name in os.listdir(folder) if os.path.isdir(folder) else ():
                    theirs = _TEMP_OF_PID.fullmatch(name)
                    if _TEMP.fullmatch(name) or (theirs and not os.path.exists(f"/proc/{theirs[1]}")):
                        self._files.unlink(folder / name)

    def open(self) -> list[Ref]:
        """Sessions without the ``settled`` marker, in no order."""
        for session in [session for session in self._shut if not is_shut(self.path(session))]:
            self._shut.discard(session)
            if os.path.lexists(self.path(session) / "settled"):
                self._open.pop(session, None)
        return list(self._open.values())

    def of(self, item: str) -> list[Ref]:
        return self._all.get(item, [])

    def items(self) -> Iterator[str]:
        return iter(self._all)

    def current(self, item: str) -> Ref | None:
        newest = next(reversed(self.of(item)), None)
        if newest is None or newest.id not in self._open or self.settlement(newest.id) is not None:
            return None
        return newest

    def newest(self, item: str) -> Ref | None:
        return next(reversed(self.of(item)), None)

    def claim(self, session: str) -> Claim | None:
        if session not in self._claims:
            raw = read_json(self.path(session) / "claim.json")
            if raw is None:
                return None
            try:
                self._claims[session] = Claim(
                    session=str(raw["session"]),
                    item=str(raw["item"]),
                    name=str(raw["name"]),
                    attempt=int(raw["attempt"]),
                    round=int(raw["round"]),
                    claimed_at=str(raw["claimed_at"]),
                    extra=dict(raw.get("extra", {})),
                )
            except (KeyError, TypeError, ValueError, OverflowError):
                return None
        return self._claims[session]

    def rename(self, session: str, name: str) -> None:
        """Its file has another name now. Only remembered: the file itself says so again after a restart."""
        if (known := self.claim(session)) is not None:
            self._claims[session] = replace(known, name=name)

    def settlement(self, session: str) -> Settlement | None:
        if session not in self._settlements:
            raw = read_json(self.path(session) / "settle.json")
            if raw is None:
                return None
            self._settlements[session] = Settlement(
                session=str(raw.get("session", session)),
                item=str(raw.get("item", "")),
                termination=str(raw.get("termination", "lost")),
                destination=str(raw.get("destination", "failed")),
                at=str(raw.get("at", "")),
                why=str(raw.get("why", "")),
                extra=raw["extra"] if isinstance(raw.get("extra"), dict) else {},
            )
        return self._settlements[session]

    def place(self, session: str) -> tuple[str, str] | None:
        """(state, file name) where a settled session's file was put; None when it is not settled."""
        raw = read_json(self.path(session) / "settled")
        return (str(raw.get("state", "")), str(raw.get("name", ""))) if raw else None

    # -- writing -------------------------------------------------------------------------------

    def begin(self, claim: Claim, spec: bytes) -> None:
        """Make the session directory; afterwards the claim is durable.

        When the disk refuses (OSError) the claim stands if ``claim.json`` got
        its name: only the fsync of its directory is missing then, and the
        next file that is published there, before any start, brings it.
        """
        path = self.path(claim.session)
        try:
            self._files.make_dir(path)
            self._files.sync_dir(self.root)
            self._files.publish(path / "spec.md", spec)
            self._files.publish(path / "claim.json", _encode_claim(claim))
        except OSError:
            if os.path.lexists(path / "claim.json"):
                self._know(claim)
            elif os.path.isdir(path):
                self._clear_unclaimed(path)
            raise
        self._know(claim)

    def _know(self, claim: Claim) -> None:
        ref = parse(claim.session)
        assert ref is not None
        self._claims[claim.session] = claim
        self._all.setdefault(claim.item, []).append(ref)
        self._open[claim.session] = ref

    def intend(self, settlement: Settlement) -> None:
        """Write ``settle.json``. The session is over from here on, whatever happens next."""
        self._files.publish(
            self.path(settlement.session) / "settle.json",
            encode(
                {
                    "session": settlement.session,
                    "item": settlement.item,
                    "termination": settlement.termination,
                    "destination": settlement.destination,
                    "at": settlement.at,
                    "why": settlement.why,
                    "extra": dict(settlement.extra),
                }
            ),
        )
        self._settlements[settlement.session] = settlement

    def close(self, session: str, state: str, name: str, at: str) -> None:
        """Write the ``settled`` marker: nothing is left to do for it."""
        # A disk that takes no writes lets no temp be removed either, and one of env.json holds what is secret.
        self._clear_temps(self.path(session))
        self._files.publish(self.path(session) / "settled", encode({"state": state, "name": name, "at": at}))
        self._open.pop(session, None)
