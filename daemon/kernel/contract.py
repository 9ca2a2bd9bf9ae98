"""Runs the checks of a contract, each as a child process of its own, and keeps a receipt of each.

A check gets the work directory, a clean environment, no standard input, and
a time limit; afterwards its whole process tree is ended. What cannot be
judged is not met. A receipt that is there is not made again, so a crash in
the middle runs the rest only; a check during which the daemon ended again
and again is given up at last, for it may be what ends it. Patterns are a
track's own words, so looking for what matches has the same limits.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, overload

import bracex
import wcmatch
from wcmatch import glob as wcglob

from daemon.durable import write_all
from daemon.faults import passes
from daemon.kernel.clock import stamp
from daemon.spool.sessions import encode, read_json
from daemon.tracks.track import Changed, Check, Clean, Contains, Exists, Prose, Run

#: What is kept of a check's output (bytes, from the end).
TAIL = 8 << 10
#: Seconds in which the end of its output must come once its tree has been ended.
GRACE = 2.0
#: Seconds in which the shim must have ended the tree: its own two graces, and some for a busy machine.
SWEEP = 7.0
#: How often a check is begun, when the daemon ended each time while it ran. More than a night of updates and
#: crashes of other causes brings; a daemon that ends so often is no longer started by systemd in between.
TRIES = 10

#: What stands between the daemon and a check.
_SHIM = (sys.executable, "-I", "-S", str(Path(__file__).with_name("check_shim.py")))

GLOB_FLAGS = wcglob.GLOBSTAR | wcglob.DOTGLOB | wcglob.BRACE

#: Where a child finds the two packages that it needs to match patterns; nothing else is imported from there.
_PACKAGES = [str(Path(str(package.__file__)).parents[1]) for package in (wcmatch, bracex)]
#: A file that matches; git's own files are nobody's work. Exit 1: there is none.
_EXISTS = (
    "import sys\n"
    "pattern, flags, *packages = sys.argv[1:]\n"
    "sys.path += packages\n"
    "from wcmatch import glob\n"
    "found = glob.iglob(pattern, root_dir='.', flags=int(flags))\n"
    "sys.exit(0 if any(path.split('/', 1)[0] != '.git' for path in found) else 1)\n"
)
#: The same for the paths that come in, each with a NUL after it.
_CHANGED = (
    "import os, sys\n"
    "pattern, flags, *packages = sys.argv[1:]\n"
    "sys.path += packages\n"
    "from wcmatch import glob\n"
    "paths = [os.fsdecode(path) for path in sys.stdin.buffer.read().split(b'\\0')[:-1]]\n"
    "sys.exit(0 if glob.globfilter(paths, pattern, flags=int(flags)) else 1)\n"
)

_SEARCH = (
    "import re, sys\n"
    "text = open(sys.argv[2], encoding='utf-8', errors='replace').read(1 << 26)\n"
    "sys.exit(0 if re.search(sys.argv[1], text, re.MULTILINE) else 'the pattern is not in the file')\n"
)


@dataclass(frozen=True, slots=True)
class Receipt:
    """The stored result of one check. passed None: prose, to be judged."""

    number: int
    text: str
    passed: bool | None
    exit: int | None = None
    signal: int | None = None
    timed_out: bool = False
    seconds: float = 0.0
    tail: str = ""
    detail: str = ""

    def encode(self, commit: str, contract: str = "") -> bytes:
        return encode(
            {
                **({"contract": contract} if contract else {}),
                "number": self.number,
                "check": self.text,
                "passed": self.passed,
                "exit": self.exit,
                "signal": self.signal,
                "timed_out": self.timed_out,
                "seconds": round(self.seconds, 3),
                "commit": commit,
                "tail": self.tail,
                "detail": self.detail,
                "at": stamp(time.time()),
            }
        )


def load_receipt(path: Path, number: int) -> Receipt | None:
    """None: it is not there, or is nothing that the daemon wrote."""
    raw = read_json(path)
    if raw is None or not isinstance(raw.get("passed"), bool):
        return None
    seconds = raw.get("seconds")
    return Receipt(
        number=number,
        text=str(raw.get("check", "")),
        passed=raw["passed"],
        exit=_whole(raw.get("exit")),
        signal=_whole(raw.get("signal")),
        timed_out=raw.get("timed_out") is True,
        seconds=float(seconds) if isinstance(seconds, int | float) and 0 <= seconds < 1e9 else 0.0,
        tail=str(raw.get("tail", "")),
        detail=str(raw.get("detail", "")),
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class Bench:
    """Where and how checks run.

    commit: what was checked out when the harness ended.
    uncommitted: paths that were not committed then; None: nobody knows.
    changed: paths that differ from the base; None: nobody knows.
    reap: ends what is left of the tree by its marker.
    contract: how it differs from what was claimed; each receipt says so. Empty: not at all.
    """

    workdir: Path
    session: Path
    session_id: str
    env: Mapping[str, str]
    commit: str
    uncommitted: Sequence[str] | None
    changed: Sequence[str] | None
    timeout: float
    publish: Callable[[Path, bytes], None]
    reap: Callable[[str], int]
    cancelled: threading.Event
    contract: str = ""


class Cancelled(Exception):
    """The daemon ends, or a person stopped the track, while checks run."""


def verify(checks: Sequence[Check], bench: Bench) -> list[Receipt]:
    """Every check's receipt, in the order of the contract. `clean` is judged first, before the others leave traces."""
    receipts: dict[int, Receipt] = {}
    order = sorted(enumerate(checks, 1), key=lambda pair: not isinstance(pair[1], Clean))
    for number, check in order:
        path = bench.session / "receipts" / f"{number:02}.json"
        receipt = load_receipt(path, number)
        # One of another contract says nothing about this one.
        if receipt is None or receipt.text != check.text:
            receipt = _judge(number, check, bench)
            if receipt.passed is not None:
                receipt = _kept(path, receipt, bench)
        receipts[number] = receipt
    return [receipts[number] for number in sorted(receipts)]


def _kept(path: Path, receipt: Receipt, bench: Bench) -> Receipt:
    try:
        bench.publish(path, receipt.encode(bench.commit, bench.contract))
    except OSError as error:
        if passes(error):
            raise
        # Something else has its name: the verdict stands, only a crash from here on would judge it again.
        told = f"its receipt could not be kept: {error.strerror}"
        return replace(receipt, detail=f"{receipt.detail}; {told}" if receipt.detail else told)
    return receipt


def _judge(number: int, check: Check, bench: Bench) -> Receipt:
    match check:
        case Run(command=command):
            return _process(number, check.text, ["bash", "-c", command], bench)
        case Contains(file=file, pattern=pattern):
            target = bench.workdir / file
            if not os.path.isfile(target):
                return Receipt(number, check.text, False, detail=f"there is no file {file}")
            return _process(
                number, check.text, [sys.executable, "-I", "-S", "-c", _SEARCH, pattern, str(target)], bench
            )
        case Exists(glob=pattern):
            return _exists(number, check, pattern, bench)
        case Changed(glob=pattern):
            return _changed(number, check, pattern, bench)
        case Clean():
            return _clean(number, check, bench.uncommitted)
        case Prose():
            return Receipt(number, check.text, None)
    raise AssertionError(f"no rule for {check!r}")


def _clean(number: int, check: Check, uncommitted: Sequence[str] | None) -> Receipt:
    if uncommitted is None:
        return Receipt(number, check.text, False, detail="what was not committed could not be listed")
    listed = ", ".join(uncommitted[:5])
    were = "1 path was" if len(uncommitted) == 1 else f"{len(uncommitted)} paths were"
    detail = f"{were} not committed: {listed}" if uncommitted else ""
    return Receipt(number, check.text, not uncommitted, detail=detail)


def _exists(number: int, check: Check, pattern: str, bench: Bench) -> Receipt:
    if wcglob.is_magic(pattern, flags=GLOB_FLAGS):
        return _matched(number, check, pattern, _EXISTS, b"", "nothing matches", bench)
    # A name is one look, which needs no process.
    try:
        found = any(
            path.split("/", 1)[0] != ".git"
            for path in wcglob.iglob(pattern, root_dir=bench.workdir, flags=GLOB_FLAGS)
        )
    except Exception as error:  # noqa: BLE001  wcmatch has errors of its own for patterns, under no common name
        return Receipt(number, check.text, False, detail=f"it could not be looked for: {error}")
    return Receipt(number, check.text, found, detail="" if found else "nothing matches")


def _changed(number: int, check: Check, pattern: str, bench: Bench) -> Receipt:
    if bench.changed is None:
        return Receipt(number, check.text, False, detail="what has changed could not be listed")
    none = f"files changed: {len(bench.changed)}, none of them matches"
    paths = b"".join(os.fsencode(path) + b"\0" for path in bench.changed)
    return _matched(number, check, pattern, _CHANGED, paths, none, bench)


def _matched(
    number: int, check: Check, pattern: str, program: str, paths: bytes, otherwise: str, bench: Bench
) -> Receipt:
    """Look for what matches, in a process of its own: some patterns take longer than anybody lives."""
    if not os.path.isdir(bench.workdir):
        return Receipt(number, check.text, False, detail=f"{bench.workdir} is not there any more")
    argv = [sys.executable, "-I", "-S", "-c", program, pattern, str(int(GLOB_FLAGS)), *_PACKAGES]
    receipt = _process(number, check.text, argv, bench, paths)
    if receipt.passed:
        return replace(receipt, exit=None, tail="")
    if receipt.exit == 1 and not receipt.tail:
        return replace(receipt, exit=None, detail=otherwise)
    if receipt.exit is not None and (lines := receipt.tail.strip().splitlines()):
        return replace(receipt, exit=None, tail="", detail=f"it could not be looked for: {lines[-1]}")
    return receipt


def _process(number: int, text: str, argv: Sequence[str], bench: Bench, stdin: bytes = b"") -> Receipt:
    if bench.cancelled.is_set():
        raise Cancelled
    begun = bench.session / "receipts" / f"{number:02}.started"
    tries = _whole((read_json(begun) or {}).get("tries")) or 0
    if os.path.lexists(begun):
        # A daemon ended while it ran. What is left of it must not work beside it.
        bench.reap(bench.session_id)
    if tries >= TRIES:
        return Receipt(
            number, text, False, detail=f"not run again: the daemon ended {tries} times while it ran"
        )
    try:
        bench.publish(begun, encode({"tries": tries + 1, "at": stamp(time.time())}))
    except OSError as error:
        if passes(error):
            raise
        told = f"not run: that it was begun could not be kept: {error.strerror}"
        return Receipt(number, text, False, detail=told)
    try:
        # Its supervisor was killed, which the system may have done for want of memory: once more, as after any
        # other end that says nothing about the check.
        return _run(number, text, argv, bench, stdin) or _run(number, text, argv, bench, stdin, last=True)
    finally:
        # Also when it was cancelled: only an end of the daemon that nobody wanted leaves it.
        with contextlib.suppress(OSError):
            os.unlink(begun)


@overload
def _run(
    number: int, text: str, argv: Sequence[str], bench: Bench, stdin: bytes, *, last: Literal[True]
) -> Receipt: ...
@overload
def _run(
    number: int, text: str, argv: Sequence[str], bench: Bench, stdin: bytes, *, last: bool = False
) -> Receipt | None: ...
def _run(
    number: int, text: str, argv: Sequence[str], bench: Bench, stdin: bytes, *, last: bool = False
) -> Receipt | None:
    """None: its supervisor was killed, and it is not the last try."""
    started = time.monotonic()
    report, its_end = os.pipe()
    given: int | None = None
    try:
        if stdin:
            given = os.memfd_create("stdin")
            write_all(given, stdin)
            os.lseek(given, 0, os.SEEK_SET)
        child = subprocess.Popen(
            [*_SHIM, str(its_end), *argv],
            cwd=bench.workdir,
            env={**bench.env, "MEGAHARNESS_SESSION": bench.session_id},
            stdin=subprocess.DEVNULL if given is None else given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(its_end,),
        )
    except (OSError, ValueError) as error:  # ValueError: a NUL, which no command line can hold
        os.close(report)
        if isinstance(error, OSError) and passes(error):
            raise
        return Receipt(number, text, False, detail=f"it could not be started: {error}")
    finally:
        os.close(its_end)
        if given is not None:
            os.close(given)
    tail = bytearray()
    reader = threading.Thread(target=_drain, args=(child, tail), daemon=True)
    reader.start()
    try:
        words = _wait(child, report, started + bench.timeout, bench.cancelled)
        seconds = time.monotonic() - started
        code = _end(child, bench)
    finally:
        os.close(report)
    reader.join(GRACE)
    if words is None and bench.cancelled.is_set():
        raise Cancelled
    kind, _, rest = (words or "").partition(" ")
    exit_code, number_of_signal = None, None
    if words is None:
        detail = f"took longer than {bench.timeout / 60:g} minutes and was ended"
    elif kind == "exit":
        exit_code = int(rest)
        detail = f"exit {exit_code}" if exit_code else ""
    elif kind == "signal":
        number_of_signal = int(rest)
        detail = f"was ended by signal {rest} ({_signal_name(number_of_signal)})"
    elif kind == "failed":
        detail = f"it could not be started: {rest}"
    elif code == -signal.SIGKILL and not last:
        return None
    elif code < 0:
        number_of_signal = -code
        named = f"signal {-code}, {_signal_name(-code)}"
        detail = f"its supervisor was ended ({named}): by the check itself, or by another program"
        if code == -signal.SIGKILL:
            detail = (
                f"its supervisor was killed twice ({named}): by the check itself, or by the system for want of "
                "memory"
            )
    else:
        detail = f"its supervisor failed: exit {code}"
    return Receipt(
        number,
        text,
        passed=exit_code == 0,
        exit=exit_code,
        signal=number_of_signal,
        timed_out=words is None,
        seconds=seconds,
        tail=bytes(tail).decode("utf-8", "replace"),
        detail=detail,
    )


def _wait(
    child: subprocess.Popen[bytes], report: int, deadline: float, cancelled: threading.Event
) -> str | None:
    """What the shim said; empty when it ended without a word, None when time was up or it was cancelled."""
    end = select.poll()
    end.register(report, select.POLLIN)  # also readable when the shim, its only writer, is gone
    while not end.poll(max(0.0, min(deadline - time.monotonic(), 0.2)) * 1000):
        if cancelled.is_set() or time.monotonic() >= deadline:
            return None
    return os.read(report, 4096).decode("utf-8", "replace").strip()


def _end(child: subprocess.Popen[bytes], bench: Bench) -> int:
    """End the tree: by the shim, whom no orphan escapes; then, should it be dead or stuck, by the marker."""
    pidfd = os.pidfd_open(child.pid)
    try:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGTERM)
            child.send_signal(signal.SIGCONT)  # the check may have stopped it
        end = select.poll()
        end.register(pidfd, select.POLLIN)
        end.poll(SWEEP * 1000)
    finally:
        os.close(pidfd)
    # It may be a zombie by now, but is not waited for yet, so the number is still its own.
    bench.reap(bench.session_id)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    return child.wait()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # the real-time signals have numbers only
        return "real-time"


def _drain(child: subprocess.Popen[bytes], tail: bytearray) -> None:
    """Keep the end of what it prints; a check that prints gigabytes fills neither memory nor disk."""
    assert child.stdout is not None
    with child.stdout:
        while part := os.read(child.stdout.fileno(), 1 << 16):
            tail += part
            del tail[:-TAIL]
