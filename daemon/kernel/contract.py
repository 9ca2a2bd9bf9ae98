"""Runs the checks of a contract, each as a child process of its own, and keeps a receipt of each.

A check gets the work directory, a clean environment, no standard input, and
a time limit; afterwards its whole process tree is ended. What cannot be
judged is not met. A receipt that is there is not made again, so a crash in
the middle runs the rest only; a check during which the daemon ended again
and again is given up at last, for it may be what ends it.
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wcmatch import glob as wcglob

from daemon.kernel.clock import stamp
from daemon.kernel.faults import passes
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
                receipt = _kept(path, receipt, bench)
        receipts[number] = receipt
    return [receipts[number] for number in sorted(receipts)]


def _kept(path: Path, receipt: Receipt, bench: Bench) -> Receipt:
    try:
        bench.publish(path, receipt.encode(bench.commit))
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
            return _found(number, check, lambda: _matches(pattern, bench.workdir), "nothing matches")
        case Changed(glob=pattern):
            return _changed(number, check, pattern, bench.changed)
        case Clean():
            return _clean(number, check, bench.uncommitted)
        case Prose():
            return Receipt(number, check.text, None)
    raise AssertionError(f"no rule for {check!r}")


def _clean(number: int, check: Check, uncommitted: Sequence[str] | None) -> Receipt:
    if uncommitted is None:
        return Receipt(number, check.text, False, detail="what was not committed could not be listed")
    listed = ", ".join(uncommitted[:5])
    detail = f"{len(uncommitted)} paths were not committed: {listed}" if uncommitted else ""
    return Receipt(number, check.text, not uncommitted, detail=detail)


def _changed(number: int, check: Check, pattern: str, changed: Sequence[str] | None) -> Receipt:
    if changed is None:
        return Receipt(number, check.text, False, detail="what has changed could not be listed")
    none = f"{len(changed)} files changed, none of them matches"
    return _found(number, check, lambda: wcglob.globfilter(changed, pattern, flags=GLOB_FLAGS), none)


def _matches(pattern: str, workdir: Path) -> Iterator[str]:
    for path in wcglob.iglob(pattern, root_dir=workdir, flags=GLOB_FLAGS):
        if path.split("/", 1)[0] != ".git":  # git's own files are nobody's work
            yield path


def _found(number: int, check: Check, look: Callable[[], Iterable[object]], otherwise: str) -> Receipt:
    try:
        found = next(iter(look()), None)
    except Exception as error:  # noqa: BLE001  wcmatch has errors of its own for patterns, under no common name
        return Receipt(number, check.text, False, detail=f"it could not be looked for: {error}")
    return Receipt(number, check.text, found is not None, detail="" if found is not None else otherwise)


def _process(number: int, text: str, argv: Sequence[str], bench: Bench) -> Receipt:
    if bench.cancelled.is_set():
        raise Cancelled
    begun = bench.session / "receipts" / f"{number:02}.started"
    tries = _whole((read_json(begun) or {}).get("tries")) or 0
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
        return _run(number, text, argv, bench)
    finally:
        # Also when it was cancelled: only an end of the daemon that nobody wanted leaves it.
        with contextlib.suppress(OSError):
            os.unlink(begun)


def _run(number: int, text: str, argv: Sequence[str], bench: Bench) -> Receipt:
    started = time.monotonic()
    report, its_end = os.pipe()
    try:
        child = subprocess.Popen(
            [*_SHIM, str(its_end), *argv],
            cwd=bench.workdir,
            env={**bench.env, "MEGAHARNESS_SESSION": bench.session_id},
            stdin=subprocess.DEVNULL,
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
    elif code < 0:
        number_of_signal = -code
        detail = f"the check killed its own supervisor (signal {-code}, {_signal_name(-code)})"
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
