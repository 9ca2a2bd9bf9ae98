"""Runs the checks of a contract, each as a child process of its own, and keeps a receipt of each.

A check gets the work directory, a clean environment, no standard input, and
a time limit; afterwards its whole process tree is ended. A receipt that is
there is not made again, so a crash in the middle runs the rest only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wcmatch import glob as wcglob

from daemon.kernel.clock import stamp
from daemon.spool.sessions import encode, read_json
from daemon.tracks.track import Changed, Check, Clean, Contains, Exists, Prose, Run

#: What is kept of a check's output (bytes, from the end).
TAIL = 8 << 10
#: Seconds between asking a check's tree to end and ending it.
GRACE = 2.0

GLOB_FLAGS = wcglob.GLOBSTAR | wcglob.DOTGLOB | wcglob.BRACE

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

    def encode(self, commit: str) -> bytes:
        return encode(
            {
                "number": self.number,
                "check": self.text,
                "passed": self.passed,
                "exit": self.exit,
                "signal": self.signal,
                "timed_out": self.timed_out,
                "seconds": round(self.seconds, 3),
                "commit": commit,
                "tail": self.tail.encode("utf-8", "replace").decode(),
                "detail": self.detail,
                "at": stamp(time.time()),
            }
        )


def load_receipt(path: Path, number: int) -> Receipt | None:
    raw = read_json(path)
    if raw is None:
        return None
    return Receipt(
        number=number,
        text=str(raw.get("check", "")),
        passed=raw.get("passed"),
        exit=raw.get("exit"),
        signal=raw.get("signal"),
        timed_out=bool(raw.get("timed_out")),
        seconds=float(raw.get("seconds", 0.0)),
        tail=str(raw.get("tail", "")),
        detail=str(raw.get("detail", "")),
    )


@dataclass(frozen=True, slots=True)
class Bench:
    """Where and how checks run.

    uncommitted: paths that were not committed when the harness ended.
    changed: paths that differ from the base.
    reap: ends what is left of the tree by its marker.
    """

    workdir: Path
    session: Path
    session_id: str
    env: Mapping[str, str]
    commit: str
    uncommitted: Sequence[str]
    changed: Sequence[str]
    timeout: float
    publish: Callable[[Path, bytes], None]
    reap: Callable[[str], int]
    cancelled: threading.Event


class Cancelled(Exception):
    """The daemon ends, or a person stopped the track, while checks run."""


def verify(checks: Sequence[Check], bench: Bench) -> list[Receipt]:
    """Every check's receipt, in the order of the contract. `clean` is judged first, before the others leave traces."""
    receipts: dict[int, Receipt] = {}
    order = sorted(enumerate(checks, 1), key=lambda pair: not isinstance(pair[1], Clean))
    for number, check in order:
        path = bench.session / "receipts" / f"{number:02}.json"
        receipt = load_receipt(path, number)
        if receipt is None:
            receipt = _judge(number, check, bench)
            if receipt.passed is not None:
                bench.publish(path, receipt.encode(bench.commit))
        receipts[number] = receipt
    return [receipts[number] for number in sorted(receipts)]


def _judge(number: int, check: Check, bench: Bench) -> Receipt:
    match check:
        case Run(command=command):
            return _process(number, check.text, ["bash", "-c", command], bench)
        case Contains(file=file, pattern=pattern):
            target = bench.workdir / file
            if not target.is_file():
                return Receipt(number, check.text, False, detail=f"there is no file {file}")
            return _process(
                number, check.text, [sys.executable, "-I", "-S", "-c", _SEARCH, pattern, str(target)], bench
            )
        case Exists(glob=pattern):
            found = next(iter(wcglob.iglob(pattern, root_dir=bench.workdir, flags=GLOB_FLAGS)), None)
            detail = "" if found is not None else "nothing matches"
            return Receipt(number, check.text, found is not None, detail=detail)
        case Changed(glob=pattern):
            found = next((path for path in bench.changed if wcglob.globmatch(path, pattern, flags=GLOB_FLAGS)), None)
            detail = "" if found is not None else f"{len(bench.changed)} files changed, none of them matches"
            return Receipt(number, check.text, found is not None, detail=detail)
        case Clean():
            dirty = len(bench.uncommitted)
            detail = f"{dirty} paths were not committed: {', '.join(bench.uncommitted[:5])}" if dirty else ""
            return Receipt(number, check.text, not dirty, detail=detail)
        case Prose():
            return Receipt(number, check.text, None)
    raise AssertionError(f"no rule for {check!r}")


def _process(number: int, text: str, argv: Sequence[str], bench: Bench) -> Receipt:
    started = time.monotonic()
    try:
        child = subprocess.Popen(
            argv,
            cwd=bench.workdir,
            env={**bench.env, "MEGAHARNESS_SESSION": bench.session_id},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return Receipt(number, text, False, detail=f"it could not be started: {error.strerror or error}")
    tail = bytearray()
    reader = threading.Thread(target=_drain, args=(child, tail), daemon=True)
    reader.start()
    timed_out = False
    deadline = started + bench.timeout
    while child.poll() is None:
        left = deadline - time.monotonic()
        if left <= 0 or bench.cancelled.is_set():
            timed_out = left <= 0
            _end(child)
            break
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(min(left, 0.2))
    code = child.wait()
    bench.reap(bench.session_id)  # what it left behind, wherever it went
    reader.join(GRACE)
    if bench.cancelled.is_set() and not timed_out:
        raise Cancelled
    seconds = time.monotonic() - started
    if timed_out:
        detail = f"took longer than {bench.timeout / 60:g} minutes and was ended"
    elif code < 0:
        detail = f"was ended by signal {-code} ({signal.Signals(-code).name})"
    else:
        detail = f"exit {code}" if code else ""
    return Receipt(
        number,
        text,
        passed=code == 0 and not timed_out,
        exit=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        timed_out=timed_out,
        seconds=seconds,
        tail=bytes(tail).decode("utf-8", "replace"),
        detail=detail,
    )


def _drain(child: subprocess.Popen[bytes], tail: bytearray) -> None:
    """Keep the end of what it prints; a check that prints gigabytes fills neither memory nor disk."""
    assert child.stdout is not None
    with child.stdout:
        while part := os.read(child.stdout.fileno(), 1 << 16):
            tail += part
            del tail[:-TAIL]


def _end(child: subprocess.Popen[bytes]) -> None:
    for number, grace in ((signal.SIGTERM, GRACE), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(grace)
            return
