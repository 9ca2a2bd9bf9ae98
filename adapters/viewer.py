"""What a person sees of a session, and where they can type.

    python -P -m adapters.viewer [--plain [--so-far]] SESSION_DIR

It follows the harness's stream, rendered by its adapter, above a status line
and one line of input. Enter sends; Ctrl-C twice asks for an interrupt. It
ends by itself when the session has ended.

An ordinary process on which nothing depends: it can be stopped, flooded,
suspended or killed, and the session does not notice. It reads the session
directory, and writes there only what a person typed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from adapters import session
from adapters.errors import AdapterError
from adapters.follow import Lines, Wake
from adapters.lineedit import Interrupt, Leave, Line, Submit, columns, cut
from adapters.plain import decode, plain
from adapters.ports import Cancelled, Ended, Harness, Lost
from adapters.registry import Registry

SHOWN = 4000  # characters of one event; the whole is in events.jsonl
BACKLOG = 16 << 20  # bytes that wait to be shown; of more only the end is
FRAME_S = 0.03
AGAIN_S = 3.0
LOOK_S = 2.0  # how often the status is asked for when no file says that it changed


@dataclass(frozen=True, slots=True)
class Facts:
    """What launch.json says about the session."""

    session_id: str
    harness: str
    model: str | None
    steer: bool
    adapter: Harness | None

    @classmethod
    def read(cls, session_dir: Path) -> Facts:
        launch = _json(session_dir / "launch.json")
        name = str(launch.get("harness") or "?")
        try:
            adapter: Harness | None = Registry().get(name)
        except AdapterError:
            # Made from settings, or not installed any more: its stream is shown as it is.
            adapter = None
        model = launch.get("model")
        return cls(
            session_id=session_dir.name,
            harness=plain(name),
            model=plain(str(model)) if model else None,
            steer=adapter is not None and adapter.capabilities().steer,
            adapter=adapter,
        )

    def show(self, line: bytes) -> str | None:
        """One line of the stream for a person: adapter's words, no control sequences, not too long."""
        text: str | None
        if self.adapter is None:
            text = decode(line)
        else:
            try:
                text = self.adapter.render(line)
            except Exception:  # noqa: BLE001 an adapter of anybody; its fault must not hide the line
                text = decode(line)
        return None if text is None else shorten(plain(text))


def shorten(text: str) -> str:
    """At most `SHOWN` characters, and how many are missing."""
    if len(text) <= SHOWN:
        return text
    return f"{text[:SHOWN]} … ({len(text) - SHOWN:,} more characters)"


class Stream:
    """The harness's two streams as lines to show, `(text, is it an error line)`."""

    def __init__(self, session_dir: Path, facts: Facts, keep: int | None) -> None:
        self._facts = facts
        self.events = Lines(session_dir / "events.jsonl", keep=keep)
        self.errors = Lines(session_dir / "stderr.log", keep=keep)
        self._told = 0

    def read(self) -> list[tuple[str, bool]]:
        """What came since the last time; [] when nothing did."""
        shown = self._shown(self.errors.read(), self.events.read())
        skipped = self.events.skipped + self.errors.skipped
        if skipped > self._told:
            shown.insert(0, (f"… {skipped - self._told:,} bytes not shown", True))
            self._told = skipped
        return shown

    def rest(self) -> list[tuple[str, bool]]:
        """Last lines without a newline."""
        return self._shown(self.errors.rest(), self.events.rest())

    @property
    def waiting(self) -> bool:
        return self.events.waiting or self.errors.waiting

    def _shown(self, errors: list[bytes], events: list[bytes]) -> list[tuple[str, bool]]:
        lines = [(shorten(decode(line)), True) for line in errors]
        for event in events:
            text = self._facts.show(event)
            if text is not None:
                lines.extend((row, False) for row in text.split("\n"))
        return lines


def ending(session_dir: Path) -> str | None:
    """How the session ended, for a person; None while it has not."""
    match session.status(session_dir):
        case Ended(reason="failed") as ended:
            return f"ended: it could not be started: {ended.error}"
        case Ended() as ended:
            how = f"signal {ended.signal}" if ended.signal is not None else f"exit {ended.code}"
            why = {"wall": " (out of time)", "exited": ""}.get(ended.reason, f" ({ended.reason})")
            return f"ended: {how}{why} after {_duration(ended.wall_s)}"
        case Cancelled() as cancelled:
            return f"ended: cancelled before it started ({cancelled.why})"
        case Lost() as lost:
            return f"ended: nobody knows how ({lost.why})"
        case _:
            return None


def follow_plain(session_dir: Path, out: TextIO, *, so_far: bool = False) -> None:
    """Print the stream as text until the session ends (`so_far`: what is there now).

    Raises BrokenPipeError when nobody reads.
    """
    facts = Facts.read(session_dir)
    stream = Stream(session_dir, facts, keep=None)
    wake = Wake()
    wake.watch(session_dir)
    late: list[str] | None = []  # of what was there before we came nobody knows how the two streams mixed
    try:
        while True:
            end = ending(session_dir)  # before the last read: what was written until then is read
            lines = stream.read()
            while lines or stream.waiting:
                out.writelines(f"{text}\n" for text, error in lines if late is None or not error)
                if late is not None:
                    late += [text for text, error in lines if error]
                lines = stream.read()
            if end is not None:
                lines = stream.rest()
                out.writelines(f"{text}\n" for text, error in lines if late is None or not error)
                late = None if late is None else late + [text for text, error in lines if error]
            if late:
                out.write("--- on standard error ---\n")
                out.writelines(f"{text}\n" for text in late)
            late = None
            out.flush()
            if end is not None:
                out.write(f"{end}\n")
                out.flush()
                return
            if so_far:
                return
            if wake.available:
                select.select([wake.fileno()], [], [], LOOK_S)
            else:
                time.sleep(0.25)
            wake.drain()
    finally:
        wake.close()


class Screen:
    """A scroll region for the stream; below it the status line and the line of input.

    The region scrolls into the terminal's own history, so that a person
    scrolls and searches there as in any pane.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._recent: deque[tuple[str, bool]] = deque(maxlen=500)
        self.rows, self.columns = 24, 80

    def open(self) -> None:
        """Take the terminal: an empty region, and pasted text marked as such."""
        self._measure()
        self._write("\x1b[r\x1b[H\x1b[J\x1b[?2004h" + self._region() + "\x1b[H\x1b7")

    def resize(self) -> None:
        """The terminal has another size: draw the last lines again."""
        self._measure()
        room = self.rows - 2
        shown: list[tuple[str, bool]] = []
        for text, error in reversed(self._recent):
            room -= max(1, -(-columns(text) // self.columns))
            if room < 1:
                break
            shown.append((text, error))
        # Line by line: clearing the whole screen would push it into the history once more.
        wipe = "".join(f"\x1b[{row};1H\x1b[2K" for row in range(1, self.rows + 1))
        self._write(self._region() + wipe + "\x1b[H" + self._text(shown[::-1]) + "\x1b7")

    def put(self, lines: list[tuple[str, bool]]) -> None:
        """More lines below the last ones."""
        self._recent.extend(lines)
        self._write("\x1b8" + self._text(lines) + "\x1b7")

    def bars(self, status: str, line: Line) -> None:
        """Draw the status line and the line of input, and leave the cursor in it."""
        typed, cursor = line.view(self.columns - 3)
        self._write(
            f"\x1b[{self.rows - 1};1H\x1b[2K\x1b[7m{cut(status, self.columns - 1)}\x1b[0m"
            f"\x1b[{self.rows};1H\x1b[2K> {typed}\x1b[{self.rows};{cursor + 3}H"
        )

    def close(self) -> None:
        """Give the terminal back: the text stays, the two lines go."""
        self._write(f"\x1b[?2004l\x1b8\x1b7\x1b[r\x1b[{self.rows - 1};1H\x1b[J\x1b8")

    def _region(self) -> str:
        return f"\x1b[1;{max(1, self.rows - 2)}r"

    def _measure(self) -> None:
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(self._fd)
            # A terminal that nobody has sized says 0.
            self.rows, self.columns = max(size.lines or 24, 4), max(size.columns or 80, 20)

    @staticmethod
    def _text(lines: list[tuple[str, bool]]) -> str:
        return "".join(f"\x1b[2m{text}\x1b[0m\r\n" if error else f"{text}\r\n" for text, error in lines)

    def _write(self, text: str) -> None:
        data = memoryview(text.encode("utf-8", "replace"))
        while data:
            data = data[os.write(self._fd, data) :]


class Viewer:
    """The loop over keys, the stream and the clock."""

    def __init__(self, session_dir: Path, fd_in: int, fd_out: int) -> None:
        self.dir = session_dir
        self.facts = Facts.read(session_dir)
        self.stream = Stream(session_dir, self.facts, keep=BACKLOG)
        self.screen = Screen(fd_out)
        self.line = Line()
        self.wake = Wake()
        self.sent: dict[str, str] = {}
        self._in = fd_in
        self._notice, self._notice_until = "", 0.0
        self._armed_until = 0.0
        self._looked = 0.0
        self._end: str | None = None

    def run(self, resized: Callable[[], bool], resize_fd: int) -> None:
        """Until the session has ended, or the person or the terminal has gone."""
        self.screen.open()
        try:
            while self._turn(resized, resize_fd):
                pass
        finally:
            with contextlib.suppress(OSError):  # the terminal is gone: nothing to give back
                self.screen.close()
            self.wake.close()

    def _turn(self, resized: Callable[[], bool], resize_fd: int) -> bool:
        began = time.monotonic()
        for directory in (self.dir, self.dir / "inbox" / "delivered"):
            self.wake.watch(directory)
        self.wake.drain()
        if resized():
            self.screen.resize()
        self._look(began)
        lines = self.stream.read()
        if lines:
            self.screen.put(lines)
        self._deliveries()
        if self._end is not None and not self.stream.waiting:
            self._last_words(self._end)
            return False
        self.screen.bars(self._status(began), self.line)
        return self._wait(began, resize_fd)

    def _wait(self, began: float, resize_fd: int) -> bool:
        """Sleep until something happens; False when the person left or the terminal is gone."""
        timeout = 1.0 if self.wake.available else 0.25
        if self.stream.waiting:
            timeout = 0.0
        sources = [self._in, resize_fd, *([self.wake.fileno()] if self.wake.available else [])]
        ready, _, _ = select.select(sources, [], [], timeout)
        if resize_fd in ready:
            os.read(resize_fd, 4096)
        if self._in in ready:
            return self._keys()
        if not self.stream.waiting and (left := FRAME_S - (time.monotonic() - began)) > 0:
            time.sleep(left)  # a harness that prints line by line is shown frame by frame
        return True

    def _keys(self) -> bool:
        try:
            data = os.read(self._in, 1 << 16)
        except OSError:
            return False  # EIO: the terminal is gone
        if not data:
            return False
        for event in self.line.feed(data):
            match event:
                case Submit(text):
                    self._send(text)
                case Interrupt():
                    self._interrupt()
                case Leave():
                    return False
        return True

    def _send(self, text: str) -> None:
        if not text.strip():
            return
        adapter = self.facts.adapter
        try:
            data = adapter.encode(text) if adapter is not None and self.facts.steer else None
            name = session.message(self.dir, data, text, "viewer")
        except OSError as error:
            self.line.text, self.line.cursor = text, len(text)
            self._say(f"not kept: {error.strerror}")
            return
        if data is None:
            self._say("kept for the next attempt and the result")
        else:
            self.sent[name] = text
            self._say("sent")
        self.screen.put([(f"› {row}", False) for row in plain(text).split("\n")])

    def _deliveries(self) -> None:
        for name in list(self.sent):
            if (self.dir / "inbox" / "delivered" / name).exists():
                del self.sent[name]
                self._say("reached it")

    def _interrupt(self) -> None:
        now = time.monotonic()
        if now < self._armed_until:
            self._armed_until = 0.0
            try:
                session.interrupt(self.dir, "Ctrl-C twice in the pane")
            except OSError as error:
                self._say(f"could not interrupt: {error.strerror}")
            else:
                self._say("interrupting", 30.0)
        else:
            self._armed_until = now + AGAIN_S
            self._say("press Ctrl-C again to interrupt this track", AGAIN_S)

    def _say(self, notice: str, seconds: float = 4.0) -> None:
        self._notice, self._notice_until = notice, time.monotonic() + seconds

    def _look(self, now: float) -> None:
        if self._end is None and (now - self._looked > LOOK_S or (self.dir / "exit.json").exists()):
            self._looked = now
            self._end = ending(self.dir)

    def _status(self, now: float) -> str:
        runs = self.facts.harness + (f"/{self.facts.model}" if self.facts.model else "")
        started = _json(self.dir / "started.json").get("at")
        parts = [
            self.facts.session_id,
            runs,
            _minutes(started),
            _amount(self.stream.events.size),
            "Ctrl-Q leaves",
        ]
        if now < self._notice_until:
            parts.insert(0, self._notice)
        return " " + " · ".join(part for part in parts if part)

    def _last_words(self, end: str) -> None:
        lines = self.stream.rest()
        if self.line.text:
            lines.append((f"not sent: {plain(self.line.take())}", True))
        for text in self.sent.values():
            lines.append((f"did not reach it: {plain(text)}", True))
        self.screen.put([*lines, (end, False)])


@contextlib.contextmanager
def raw_terminal(fd: int) -> Iterator[None]:
    """Every key is ours: no flow control, no signals, no echo. Restored at the end."""
    before = termios.tcgetattr(fd)
    tty.setraw(fd, termios.TCSANOW)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(fd, termios.TCSANOW, before)


def show(session_dir: Path) -> None:
    """Show a session on the terminal that is our standard input and output."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    resizes: list[int] = []

    def on_resize(number: int, _frame: object) -> None:
        resizes.append(number)

    def resized() -> bool:
        changed = bool(resizes)
        resizes.clear()
        return changed

    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGWINCH, on_resize)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(0))
    with raw_terminal(0):
        Viewer(session_dir, 0, 1).run(resized, reader)


def main(arguments: list[str]) -> int:
    plainly, so_far = "--plain" in arguments, "--so-far" in arguments
    directories = [each for each in arguments if each not in ("--plain", "--so-far")]
    if len(directories) != 1 or not Path(directories[0]).is_dir():
        print("usage: python -P -m adapters.viewer [--plain [--so-far]] SESSION_DIR", file=sys.stderr)
        return 2
    session_dir = Path(directories[0])
    try:
        while not so_far and not (session_dir / "launch.json").exists() and ending(session_dir) is None:
            time.sleep(0.25)  # opened before the start: only launch.json says whose stream it will be
        if plainly or not (os.isatty(0) and os.isatty(1)):
            follow_plain(session_dir, sys.stdout, so_far=so_far)
        else:
            show(session_dir)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody reads on: that is no error
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        if error.errno != errno.EIO:  # the terminal is gone
            raise
    return 0


def _json(path: Path) -> dict[str, object]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _minutes(started: object) -> str:
    try:
        since = datetime.now(UTC) - datetime.fromisoformat(str(started))
    except ValueError:
        return "not started"
    return f"{max(0, int(since.total_seconds() // 60))} min"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _amount(size: int) -> str:
    return f"{size:,} bytes" if size < 100_000 else f"{size / 1e6:.1f} MB"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
