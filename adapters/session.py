"""What every adapter and the daemon do with a session's directory.

Writing it before the start, saying how it stands, ending it, and putting
messages into its inbox. The runner does the rest; the formats are in
docs/reference/files.md. What this file keeps:

1. Nothing is written for a session that has passed its start gate, and the
   gate is only ever made by link(): exclusive and whole.
2. How a session stands is said by its files and by the kernel's lock; the lock
   comes first, as the agent can write every file here.
3. A process is signalled through a pidfd after a second look at its identity
   (boot, pid, start ticks), so that a recycled number is never hit.
4. The environment's values stand in ``env.json`` (0600) alone, and nowhere
   once nobody can need them any more.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import select
import signal
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from adapters.ports import Cancelled, Ended, Lost, NotStarted, Order, Publish, Running, Status, Terminal

MARKER = "MEGAHARNESS_SESSION"
RUNNER = Path(__file__).resolve().with_name("keep.py")
#: What the command of a session that is still at work can be called: an earlier version started the other one.
RUNNERS = (RUNNER.name, "runner.py")
PID_MAX = 1 << 22  # of Linux
FIRST_MESSAGE = "0" * 20 + "-brief"
TRACES = ("exit.json", "heartbeat.json", "events.jsonl", "stderr.log")  # made behind the gate alone
JSON_MAX = 16 << 20

Reason = Literal["exited", "interrupted", "wall", "terminated", "failed"]


@dataclass(frozen=True, slots=True)
class Launch:
    """What an adapter decides about one start; the rest is in the order.

    argv: the harness and its arguments; never a shell line.
    stdin: ``null``; ``brief``: the brief itself; ``pipe``: messages of the inbox.
    turn_end: a regular expression searched in each line of the stream. With
        ``pipe``: once it matched and the inbox was empty for `stdin_idle_s`
        seconds, the standard input is closed. None: it stays open.
    first_message: with ``pipe``, what is written first (the encoded brief).
    interrupt: signal names and the seconds to wait after each; KILL follows.
    env: added to the order's environment.
    viewer: what the runner shows on the terminal; () for nothing.
    """

    argv: Sequence[str]
    stdin: Literal["null", "brief", "pipe"] = "null"
    turn_end: str | None = None
    stdin_idle_s: float = 2.0
    first_message: bytes | None = None
    interrupt: Sequence[tuple[str, float]] = (("INT", 5.0), ("TERM", 5.0))
    env: Mapping[str, str] = field(default_factory=dict)
    harness: str = ""
    harness_version: str | None = None
    viewer: Sequence[str] = ()
    max_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the inbox: its name, and the words if they were kept beside it."""

    name: str
    text: str | None
    at: str
    by: str


# --- start ------------------------------------------------------------------


def write_launch(order: Order, launch: Launch, publish: Publish) -> bool:
    """Write what the runner needs. False: it was started before, and nothing was written.

    Safe to repeat after a crash at any point before the start gate.
    """
    session = order.session
    if not isinstance(status(session), NotStarted):
        return False
    _make_inbox(session)
    # What no launch.json goes with was left by a start that did not get that far; no runner can have seen it.
    anew = not _exists(session / "launch.json") or not _first_message_there(session)
    if launch.stdin == "pipe" and launch.first_message is not None and anew:
        publish(session / "inbox" / FIRST_MESSAGE, launch.first_message)
    env = {**order.env, **launch.env}
    record = {
        "v": 1,
        "session_id": order.session_id,
        "track_id": order.track_id,
        "attempt": order.attempt,
        "title": order.title,
        "harness": launch.harness,
        "harness_version": launch.harness_version,
        "model": order.model,
        "argv": list(launch.argv),
        "cwd": os.path.abspath(order.workdir),
        "env_names": sorted({*env, MARKER}),
        "stdin": launch.stdin,
        "turn_end": launch.turn_end,
        "stdin_idle_s": launch.stdin_idle_s,
        "wall_s": order.wall_s,
        "interrupt": [list(step) for step in launch.interrupt],
        "wake": None if order.wake is None else os.path.abspath(order.wake),
        "viewer": list(launch.viewer),
        "max_bytes": launch.max_bytes,
        "instruction": order.provenance,
    }
    # In this order: where launch.json is and env.json is not, somebody took it.
    publish(session / "env.json", _encoded(env), mode=0o600)
    publish(session / "launch.json", _encoded(record))
    if not isinstance(status(session), NotStarted | Running):
        # It was cancelled or ran meanwhile; a running one removes the file by itself.
        (session / "env.json").unlink(missing_ok=True)
    return True


def start(order: Order, launch: Launch, terminal: Terminal, publish: Publish) -> None:
    """Start the session in a window, or do nothing if it was started before.

    The window has the session's id as its name.
    """
    if write_launch(order, launch, publish):
        terminal.open(order.track_id, order.session_id, runner_argv(order.session))


def _first_message_there(session: Path) -> bool:
    # In this order: the runner may move it from the one to the other between the looks.
    return any(_exists(session / place / FIRST_MESSAGE) for place in ("inbox", "inbox/delivered"))


def runner_argv(session: Path) -> list[str]:
    """The command that keeps a session: nothing of ours is imported, no site-packages."""
    return [sys.executable, "-I", "-S", str(RUNNER), os.path.abspath(session)]


# --- how it stands ------------------------------------------------------------


def status(session: Path) -> Status:
    """How a session stands, from its files and the kernel's lock. Never raises for what stands there.

    Raises OSError when its directory cannot be looked into: then nobody knows, least of all that it has not begun.
    """
    started = session / "started.json"
    gone = not _exists(started)
    if gone:
        if not _left_traces(session) and not _environment_taken(session):
            return NotStarted()
        gone = not _exists(started)  # it may have passed the gate between the two looks
    record = read_json(started) or {}
    if record.get("by") == "cancelled" and not _left_traces(session):
        return Cancelled(why=_text(record.get("why")))
    if _lives(session):
        return Running(pid=_whole(record.get("pid")) or 0, started_at=_text(record.get("at")))
    # After the lock: the runner writes it first and then lets go.
    if ended := _ended(session):
        return ended
    if gone:
        return Lost("started.json is gone, and it has run")
    if record.get("boot_id", _boot_id()) != _boot_id():
        return Lost("the machine was started again while it ran", other_boot=True)
    if _exists(session / "exit.json"):
        return Lost("exit.json is there and cannot be read")
    return Lost("its runner is gone and left no exit.json")


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None when it is missing, torn or something else."""
    try:
        # Neither through a link nor waiting for the other end of a fifo: an agent may have put it there.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            facts = os.fstat(fd)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > JSON_MAX:
                return None
            with open(fd, "rb", closefd=False) as file:
                found = json.loads(file.read(JSON_MAX))
        finally:
            os.close(fd)
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def lives(session: Path) -> bool:
    """Whether its runner is at work. Also known of a session whose directory cannot be looked into."""
    return _lives(session)


def _left_traces(session: Path) -> bool:
    return any(_exists(session / name) for name in TRACES)


def _environment_taken(session: Path) -> bool:
    return _exists(session / "launch.json") and not _exists(session / "env.json")


def _ended(session: Path) -> Ended | None:
    record = read_json(session / "exit.json")
    if record is None or record.get("reason") not in get_args(Reason):
        return None
    code, number, reason = record.get("code"), record.get("signal"), record["reason"]
    if not all(value is None or _whole(value) is not None for value in (code, number)):
        return None
    if code is not None and number is not None:
        return None
    if code is None and number is None and reason == "exited":
        return None
    wall = record.get("wall_s")
    return Ended(
        code=code,
        signal=number,
        reason=reason,
        error=_text(record.get("error")),
        started_at=_text(record.get("started_at")),
        ended_at=_text(record.get("ended_at")),
        wall_s=float(wall) if isinstance(wall, int | float) and 0 <= wall < 1e12 else 0.0,
        bytes=_whole(record.get("bytes")) or 0,
        strays=_whole(record.get("strays")) or 0,
    )


def _lives(session: Path) -> bool:
    """Whether its runner is at work: by the lock, and where somebody took that away by the process."""
    held = _locked(session / "lock")
    if held is not None and (held or _ended(session) is not None):
        return held
    # Free without an end, and its process lives: what it holds is another file, which had this name.
    return bool(_runners(session))


def _locked(lock: Path) -> bool | None:
    """Whether a runner holds it; None when it cannot be asked.

    A shared lock: two who look at once do not take each other for a runner.
    """
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(fd)
    return False


def _identity(record: Mapping[str, object]) -> tuple[int, int] | None:
    """(pid, start ticks) in started.json if that very process is alive."""
    pid, start = _whole(record.get("pid")), _whole(record.get("start_ticks"))
    if pid is None or start is None or not 1 < pid <= PID_MAX or record.get("boot_id") != _boot_id():
        return None
    facts = _stat(pid)
    return (pid, start) if facts is not None and facts[1] == start else None


# --- ending it ----------------------------------------------------------------


def cancel(session: Path, why: str) -> bool:
    """Close the start gate before a runner comes. False: somebody passed or closed it before."""
    record = {"v": 1, "by": "cancelled", "why": why, "at": _now()}
    if not _link_once(session / "started.json", record):
        return False
    (session / "env.json").unlink(missing_ok=True)
    return True


def interrupt(session: Path, why: str) -> None:
    """End it: the whole tree, or its start if it has not started. Returns at once; twice is fine."""
    before = status(session)
    if not isinstance(before, NotStarted | Running):
        return
    try:
        # Before any signal, so that the runner can tell our wish from anybody else's.
        _link_once(session / "interrupt.json", {"v": 1, "why": why, "at": _now()})
        if isinstance(before, NotStarted) and cancel(session, why):
            return
    finally:
        # Also when the disk is full: a person must be able to stop an agent then.
        if isinstance(status(session), Running):
            for process in _runners(session):
                _signal_process(*process, signal.SIGTERM)


def force(session: Path) -> int:
    """Kill a runner that does not react to SIGTERM, then end its tree. How many of the tree were ended."""
    for process in _runners(session):
        if (fd := _signal_process(*process, signal.SIGKILL, keep=True)) is not None:
            try:
                _wait_for_end(fd, 5.0)
            finally:
                os.close(fd)
    # Its name, not what launch.json says: that may name another one by now.
    return reap(session.absolute().name)


def reap(session_id: str, *, grace_s: float = 2.0) -> int:
    """End every process that carries this session's marker, and what such processes started.

    TERM first, KILL after `grace_s` seconds; never this process or one above
    it. Returns how many were ended.
    """
    met: set[tuple[int, int]] = set()
    told: set[tuple[int, int]] = set()
    patient_until = time.monotonic() + grace_s
    give_up = patient_until + 5.0
    while (left := _tree_of(session_id)) and (now := time.monotonic()) < give_up:
        for process in left:
            if now >= patient_until:
                _signal_process(*process, signal.SIGKILL)
            elif process not in told:
                _signal_process(*process, signal.SIGTERM)
                told.add(process)
        met |= left
        time.sleep(0.02)
    return len(met - left)


def _runners(session: Path) -> list[tuple[int, int]]:
    """Its runner: as started.json says, and where that is gone or garbled, who was started as it."""
    if (known := _identity(read_json(session / "started.json") or {})) is not None:
        return [known]
    tails = [["-I", "-S", name, session.absolute().name] for name in RUNNERS]
    found = []
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:-1]
        except OSError:
            continue  # it ended
        said = [os.path.basename(os.fsdecode(word)) for word in words]
        if said in tails and (facts := _stat(pid)) is not None:
            found.append((pid, facts[1]))
    return found


def _signal_process(pid: int, start: int, number: int, *, keep: bool = False) -> int | None:
    """Signal it if it is still that very process. With `keep`: its pidfd, for the caller to close."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    sent = False
    try:
        # The descriptor first, then the look: what it names cannot change any more.
        facts = _stat(pid)
        if facts is not None and facts[1] == start:
            signal.pidfd_send_signal(fd, number)
            sent = True
    except (ProcessLookupError, PermissionError):
        sent = False  # it ended, or it is another user's: not ours to end
    finally:
        if not (sent and keep):
            os.close(fd)
    return fd if sent and keep else None


def _wait_for_end(pidfd: int, seconds: float) -> None:
    waiter = select.poll()
    waiter.register(pidfd, select.POLLIN)
    waiter.poll(seconds * 1000)


def _stat(pid: int) -> tuple[int, int] | None:
    """Parent and start ticks of a living process."""
    try:
        data = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = data[data.rindex(b")") + 2 :].split()
    return None if fields[0] in b"ZXx" else (int(fields[1]), int(fields[19]))


def _tree_of(session_id: str) -> set[tuple[int, int]]:
    """(pid, start ticks) of every living process of the session, seen by marker and descent."""
    marker = b"\0" + os.fsencode(f"{MARKER}={session_id}") + b"\0"
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    facts = {pid: seen for pid in pids if (seen := _stat(pid))}
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in facts.items():
        children.setdefault(parent, []).append(pid)
    spared, pid = set(), os.getpid()
    while pid in facts and pid not in spared:
        spared.add(pid)
        pid = facts[pid][0]
    queue = [pid for pid in facts if _environ_has(pid, marker)]
    found: set[int] = set()
    while queue:
        pid = queue.pop()
        if pid not in found and pid not in spared:
            found.add(pid)
            queue += children.get(pid, ())
    return {(pid, facts[pid][1]) for pid in found}


def _environ_has(pid: int, marker: bytes) -> bool:
    try:
        return marker in b"\0" + Path(f"/proc/{pid}/environ").read_bytes() + b"\0"
    except OSError:
        return False


# --- messages -----------------------------------------------------------------


def message(session: Path, data: bytes | None, text: str, by: str, name: str | None = None) -> str:
    """Put a message into the inbox; the runner writes it to the harness. Its name, which sorts by arrival.

    data: what the harness reads (`Harness.encode`); None: it cannot be told
    while it runs, the text waits for the next session. text: what a person
    wrote. name: of `message_name`; with one that is there already nothing happens.
    """
    inbox = _make_inbox(session)
    if name is None:
        name = message_name(session)
    elif _exists(inbox / name) or _exists(inbox / "delivered" / name):
        return name
    _put(inbox / "text" / f"{name}.json", _encoded({"text": text, "at": _now(), "by": by}))
    if data is not None:
        _put(inbox / name, data)
    return name


def message_name(session: Path) -> str:
    """A name for the next message: it sorts behind those that are there, also after the clock was set back."""
    inbox = session / "inbox"
    names = [name for part in ("", "delivered", "text") for name in _names(inbox / part)]
    latest = max((int(name[:20]) for name in names if name[:20].isdecimal()), default=0)
    return f"{max(time.time_ns(), latest + 1):020d}-{secrets.token_hex(4)}"


def limit(session: Path, wall_s: float) -> None:
    """Change how long it may run, counted from its start; the runner reads it within some seconds."""
    _put(session / "limits.json", _encoded({"v": 1, "wall_s": wall_s}))


def delivered(session: Path) -> list[Message]:
    """The messages that the harness got, in order."""
    return [_message(session, name) for name in _names(session / "inbox" / "delivered")]


def waiting(session: Path) -> list[Message]:
    """The messages that the harness has not got (yet), in order."""
    inbox = session / "inbox"
    # What was delivered last: a message that moves on meanwhile is then in neither list, not in both.
    there = {*_names(inbox), *(name.removesuffix(".json") for name in _names(inbox / "text"))}
    return [_message(session, name) for name in sorted(there - set(_names(inbox / "delivered")))]


def _make_inbox(session: Path) -> Path:
    inbox = session / "inbox"
    for directory in (inbox, inbox / "delivered", inbox / "text"):
        directory.mkdir(mode=0o700, exist_ok=True)
    return inbox


def _message(session: Path, name: str) -> Message:
    words = read_json(session / "inbox" / "text" / f"{name}.json") or {}
    text = words.get("text")
    return Message(
        name, text if isinstance(text, str) else None, str(words.get("at", "")), str(words.get("by", ""))
    )


def _names(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(name for name in names if not name.startswith("."))


# --- files --------------------------------------------------------------------


def _put(path: Path, data: bytes) -> None:
    temp = _temp(path, data)
    os.rename(temp, path)
    _sync(path.parent)


def _link_once(path: Path, record: Mapping[str, object]) -> bool:
    """Make a file exclusively, whole and durable. False: it is there already."""
    temp = _temp(path, _encoded(record))
    try:
        os.link(temp, path)
    except FileExistsError:
        return False
    finally:
        temp.unlink()
    _sync(path.parent)
    return True


def _temp(path: Path, data: bytes) -> Path:
    # Whose it is: the daemon removes it when that process is gone.
    temp = path.with_name(f".tmp-{os.getpid()}-{secrets.token_hex(8)}")
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
    except BaseException:
        temp.unlink()
        raise
    return temp


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _exists(path: Path) -> bool:
    """Whether something lies there; raises OSError when that cannot be known (`lexists` would say no)."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _encoded(record: Mapping[str, object]) -> bytes:
    # ASCII: names and values that are no text (surrogates) come back as the same bytes.
    return json.dumps(record, ensure_ascii=True).encode() + b"\n"


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
