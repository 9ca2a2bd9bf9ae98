"""The power goes while a real runner is at work: strace stops it behind one of its system calls.

What its files say on the disk as it was then must be one of the known cases, and the agent must have run at most once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from adapters import session
from adapters.ports import Ended, Lost, NotStarted, Order
from adapters.testing import wait_for
from daemon.durable import Files
from tests.crash.mounts import Image

NEEDS = {"strace": "strace"}
#: A runner is stopped behind these: all that can change what is on the disk, and the start of the agent.
CALLS = ("write", "fsync", "link", "rename", "unlink", "ftruncate", "clone", "vfork", "fork", "flock")
CODE = 7


@dataclass(frozen=True)
class Stop:
    """Behind the `number`th `call`; number 0: when the runner has ended."""

    call: str = ""
    number: int = 0

    def __str__(self) -> str:
        return f"runner stopped behind {self.call} {self.number}" if self.number else "runner at its end"


def _place(root: Path, home: Path) -> Path:
    """The session's directory; its name is this home's alone, as a runner is found by it."""
    return root / "sessions" / f"cut-1-{hashlib.sha256(str(home).encode()).hexdigest()[:12]}"


def _prepare(root: Path, home: Path) -> Path:
    """A session on the disk whose agent leaves a line outside of it."""
    place = _place(root, home)
    files = Files()
    files.make_dirs(place)
    (home / "work").mkdir()
    files.publish(place / "brief.md", b"the brief\n")
    order = Order(
        session=place,
        session_id=place.name,
        track_id="cut",
        attempt=1,
        title="a title",
        workdir=home / "work",
        env={"PATH": os.environ["PATH"]},
        wall_s=None,
        wake=home / "wake",
    )
    argv = ["sh", "-c", f"echo ran >> ran; echo the answer; exit {CODE}"]
    assert session.write_launch(order, session.Launch(argv=argv), files.publish)
    return place


def _ran(home: Path) -> int:
    path = home / "work" / "ran"
    return path.read_text().count("ran\n") if path.exists() else 0


def _trace(place: Path, trace: Path, *injected: str) -> subprocess.Popen[bytes]:
    words = ["strace", "-o", str(trace), "-e", f"trace={','.join(CALLS)}"]
    for each in injected:
        words += ["-e", f"inject={each}"]
    return subprocess.Popen([*words, *session.runner_argv(place)], stdin=subprocess.DEVNULL)


def stops() -> list[Stop]:
    """Every moment at which a runner can be stopped, in the order of its life."""
    with _home() as home:
        trace = home / "trace"
        _trace(_prepare(home, home), trace).wait(60)
        lines = trace.read_text().splitlines()
    counts: Counter[str] = Counter()
    found: list[Stop] = []
    for line in lines:
        if (match := re.match(r"(\w+)\(", line)) is not None:
            counts[match[1]] += 1
            found.append(Stop(match[1], counts[match[1]]))
    return [*found, Stop()]


@contextlib.contextmanager
def _home() -> Iterator[Path]:
    """Where the agent works, which is not on the disk that is cut."""
    with tempfile.TemporaryDirectory(prefix="mh-cut-") as name:
        yield Path(name)


@dataclass(frozen=True)
class _Taken:
    """The disk as it was then, how often the agent had run for certain, and whether the runner had ended."""

    image: Image
    ran: int
    ended: bool


def _run_until(base: Image, home: Path, stop: Stop, copy: Path, injected: Sequence[str]) -> _Taken:
    """Run it until there, or to its end where it does not come there this time."""
    trace = home / "trace"
    if stop.number:
        injected = [*injected, f"{stop.call}:signal=SIGSTOP:when={stop.number}"]
    with base.mounted() as root:
        place = _prepare(root, home)
        tracer = _trace(place, trace, *injected)
        try:

            def rests() -> bool:
                return tracer.poll() is not None or (
                    trace.exists() and "stopped by SIGSTOP" in trace.read_text(errors="replace")
                )

            wait_for(rests, str(stop), 60.0)
            ended, ran = tracer.poll() is not None, _ran(home)
            taken = _Taken(base.copy(copy), ran, ended)
        finally:
            if tracer.poll() is None:
                for child in psutil.Process(tracer.pid).children():
                    child.kill()
            tracer.wait(60)
            session.reap(place.name, grace_s=0.0)
    return taken


def _judge(taken: _Taken, home: Path) -> Iterator[str]:
    """Mount what is left, and start the session again as the daemon would."""
    with taken.image.mounted() as root:
        place = _place(root, home)
        for name in ("started.json", "exit.json"):
            if (place / name).exists() and session.read_json(place / name) is None:
                yield f"{name} is not whole"
        before = session.status(place)
        already = _ran(home)  # the agent may have come to it after the copy was made
        subprocess.run(session.runner_argv(place), stdin=subprocess.DEVNULL, check=False, timeout=60)
        after, again = session.status(place), _ran(home) - already
        if taken.ended and not isinstance(before, Ended):
            yield f"it had ended, and the disk says {before}"
        match before:
            case NotStarted():
                if taken.ran:
                    yield "the agent had run, and the disk says that it was not started"
                if again != 1 or not isinstance(after, Ended) or after.code != CODE:
                    yield f"it was not started, and then ran {again} times: {after}"
            case Ended():
                if before.code != CODE or not taken.ran:
                    yield f"it is said to have ended: {before}, and ran {taken.ran} times"
                if again or after != before:
                    yield f"it had ended and ran again {again} times: {after}"
            case Lost():
                if again or not isinstance(after, Lost):
                    yield f"it is lost and ran again {again} times: {after}"
            case _:
                yield f"no case that is known: {before}"


def cut(image: Image, stop: Stop, path: Callable[[], Path], *injected: str) -> list[str]:
    """One runner on a copy of a new disk, stopped there: what is wrong afterwards. injected: for strace."""
    with _home() as home:
        base = image.copy(path())
        taken = _run_until(base, home, stop, path(), injected)
        base.remove()
        wrong = list(_judge(taken, home))
        taken.image.remove()
    return [f"{image.kind.name}, {stop}: {each}" for each in wrong]
