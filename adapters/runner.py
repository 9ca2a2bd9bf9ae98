"""Keep one session's harness alive and write down what happens to it.

Started as ``python -I -S keep.py <session directory>``: standard library
only, nothing else of ours can be imported. What it keeps:

1. It holds the flock on ``lock`` until ``exit.json`` is durable: held means
   running, whatever anybody wrote into the directory.
2. It runs the harness only if its own link() made ``started.json``: once per
   session, whoever else was started on the same directory. Where the traces of
   an earlier run are, it runs nothing although ``started.json`` is gone.
3. ``events.jsonl`` is the harness's standard output and ``stderr.log`` its
   standard error, byte for byte. What cannot be kept (full disk, `max_bytes`)
   is counted in ``exit.json``; the harness is never made to wait for it.
4. A message of ``inbox/`` is moved to ``inbox/delivered/`` after its last byte
   went into the harness's standard input, of which this is the only writer.
5. ``exit.json`` is written once, durably, after the last process of the tree
   was ended: processes under us (we are their subreaper) or with our marker
   ``MEGAHARNESS_SESSION=<id>`` in their environment. It replaces what somebody
   else put there.
6. Neither the terminal nor the viewer on it can stop, block or end the
   harness: nothing is read from or written to the terminal here.
7. SIGTERM ends the session, and only that: ``interrupted`` when
   ``interrupt.json`` is there, else ``terminated``.
8. ``env.json`` is gone as soon as it was read.

The formats are in docs/reference/files.md.
"""

import ctypes
import errno
import fcntl
import json
import math
import os
import re
import select
import signal
import stat
import sys
import termios
import time

MARKER = "MEGAHARNESS_SESSION"
UNMOVED = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGPIPE")
CHUNK = 65536
LINE_LIMIT = 4 << 20
EXIT_ROOM = 4096
BEAT_S = 10.0
WAKE_S = 1.0
ALLOWANCE_S = 0.1
STRAY_TERM_S = 2.0
STRAY_KILL_S = 10.0
VIEWER_LEAVES_S = 10.0  # a loaded machine is slow to draw; nothing waits for it any more
# We lead the terminal's session: with our end the kernel throws away what the terminal has not read yet.
LAST_LINES_S = 0.5
GIVE_UP_S = 5.0
TRACES = ("exit.json", "heartbeat.json", "events.jsonl", "stderr.log")  # made behind the gate alone
# A disk that is full or ill may get well again; a directory in a file's place does not go away.
MAY_PASS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
# The agent can put a link or a fifo where a file of ours is due: nothing is written through it or waits for it.
PLAIN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
VIEWER_ENV = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM", "COLORTERM")
PR_SET_CHILD_SUBREAPER = 36
IN_MOVED_TO = 0x80
IN_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC

libc = ctypes.CDLL(None, use_errno=True)


def utc() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"


def complain(text: str) -> None:
    """Into runner.log, which standard error is by now."""
    try:
        os.write(2, f"{utc()} {text}\n".encode("utf-8", "backslashreplace"))
    except OSError:
        pass  # the disk is full: that is no reason to end a session


def encoded(record: dict[str, object]) -> bytes:
    return json.dumps(record, ensure_ascii=True).encode() + b"\n"


def write_synced(name: str, data: bytes) -> None:
    # Not O_TRUNC: what was reserved for it is used.
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | PLAIN, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.truncate(fd, len(data))
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_directory() -> None:
    fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_object(name: str):  # type: ignore[no-untyped-def]  # typing is not imported here: it is big
    with open(os.open(name, os.O_RDONLY | PLAIN), "rb") as file:
        data = file.read()
    try:
        found = json.loads(data)
    except ValueError as error:
        raise ValueError(f"{name} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise TypeError(f"{name} is not an object")
    return found


def unlink_if_there(name: str) -> None:
    try:
        os.unlink(name)
    except FileNotFoundError:
        pass


# --- processes -------------------------------------------------------------


def stat_of(pid: int | str) -> tuple[str, int, int, int] | None:
    """State, parent, process group and start ticks; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            data = file.read(4096)
    except OSError:
        return None
    fields = data[data.rindex(b")") + 2 :].split()
    return fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[19])


def marked(pid: int, marker: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            return b"\0" + marker + b"\0" in b"\0" + file.readall() + b"\0"
    except OSError:
        return False


def tree_of(root: int, marker: bytes, skip: int | None) -> dict[int, tuple[int, int]]:
    """The living processes under root, and those with the marker: pid -> (start ticks, group).

    Root itself and everything under the process `skip` are left out.
    """
    alive: dict[int, tuple[int, int]] = {}
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (facts := stat_of(name)):
            state, parent, group, start = facts
            children.setdefault(parent, []).append(int(name))
            if state not in "ZXx":
                alive[int(name)] = (start, group)
    left_out: set[int] = set()
    under: set[int] = set()
    for top, found in ((skip, left_out), (root, under)):
        queue = [] if top is None else [top]
        while queue:
            pid = queue.pop()
            if pid not in found and pid not in left_out:
                found.add(pid)
                queue += children.get(pid, ())
    left_out.add(root)
    return {
        pid: facts
        for pid, facts in alive.items()
        if pid not in left_out and (pid in under or marked(pid, marker))
    }


def send(pid: int, start: int, number: int) -> None:
    """Signal that very process, or nobody."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        facts = stat_of(pid)
        if facts is not None and facts[3] == start:
            signal.pidfd_send_signal(fd, number)
    except (ProcessLookupError, PermissionError):
        pass  # it ended, or became another user's; the caller looks again
    finally:
        os.close(fd)


class CannotStart(Exception):
    def __init__(self, stage: str, number: int, text: str) -> None:
        super().__init__(text)
        self.stage, self.number = stage, number


def launch_process(argv: list[str], env: dict[str, str], cwd: str, stdio: list[int], own: bool) -> int:
    """Fork and exec. `own`: in a session of its own, without a controlling terminal."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        stage = "start"
        try:
            if own:
                os.setsid()
            for name in (*UNMOVED, "SIGTERM", "SIGCHLD", "SIGXFSZ"):
                signal.signal(getattr(signal, name), signal.SIG_DFL)
            for target, fd in enumerate(stdio):
                os.dup2(fd, target)
            os.closerange(3, writer)
            os.closerange(writer + 1, 65536)
            stage = "cwd"
            os.chdir(cwd)
            stage = "exec"
            os.execvpe(argv[0], argv, env)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the parent gets to know it
            number = error.errno if isinstance(error, OSError) and error.errno else 0
            os.write(writer, f"{stage}\0{number}\0{error}".encode("utf-8", "replace")[:4096])
        finally:
            os._exit(127)
    os.close(writer)
    said = b""
    while chunk := os.read(reader, 4096):
        said += chunk
    os.close(reader)
    if said:
        os.waitpid(pid, 0)
        where, code, text = said.decode("utf-8", "replace").split("\0", 2)
        raise CannotStart(where, int(code), text)
    return pid


def sentence(error: CannotStart, argv: list[str], env: dict[str, str], cwd: str) -> str:
    program = argv[0]
    if error.stage == "cwd":
        why = os.strerror(error.number)
        return f"cannot start {program!r}: its work directory {cwd!r} cannot be entered ({why})"
    if error.stage != "exec":
        return f"cannot start {program!r}: {error}"
    if error.number == errno.E2BIG:
        words = [os.fsencode(word) for word in argv] + [os.fsencode(f"{k}={v}") for k, v in env.items()]
        return (
            f"cannot start {program!r}: its arguments and environment have {sum(map(len, words))} bytes"
            f" (the longest {max(map(len, words))}); this system takes {os.sysconf('SC_ARG_MAX')} in all and"
            f" {32 * os.sysconf('SC_PAGE_SIZE')} in one argument."
            " Give the brief as a file or on standard input"
        )
    if error.number in (errno.ENOENT, errno.ENOTDIR):
        if "/" not in program:
            return f"cannot start {program!r}: no such program in PATH ({env.get('PATH', os.defpath)})"
        if os.path.exists(os.path.join(cwd, program)):
            return f"cannot start {program!r}: the interpreter that its first line names does not exist"
        return f"cannot start {program!r}: there is no such file"
    if error.number == errno.EACCES:
        return f"cannot start {program!r}: it is not executable"
    if error.number == errno.ENOEXEC:
        return f"cannot start {program!r}: it is not a program that this machine can run (no #! line?)"
    return f"cannot start {program!r}: {error}"


# --- the harness's output --------------------------------------------------


class Sink:
    """The file of one stream. What cannot be kept is counted and never waited for."""

    def __init__(self, path: str, room: int) -> None:
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | PLAIN, 0o600)
        self.path, self.room = path, room
        self.taken = self.dropped = 0
        self.problem = ""
        self.torn = False

    def take(self, data: bytes) -> None:
        self.taken += len(data)
        rest = memoryview(data)
        if self.torn:
            # After a gap go on with a whole line, so that only what is missing is missing.
            cut = data.find(b"\n") + 1
            self.dropped += cut or len(data)
            if not cut:
                return
            try:
                os.write(self.fd, b"\n")
            except OSError:
                self.dropped += len(data) - cut
                return
            self.torn = False
            rest = rest[cut:]
        beyond = max(0, len(rest) - self.room)
        if beyond:
            rest = rest[: len(rest) - beyond]
            self.dropped += beyond
            self.problem = self.problem or "max_bytes is reached"
        try:
            while rest:
                count = os.write(self.fd, rest)
                self.room -= count
                rest = rest[count:]
        except OSError as error:
            self.dropped += len(rest)
            self.problem = self.problem or os.strerror(error.errno or 0)
            self.torn = True

    def close(self) -> None:
        try:
            os.fsync(self.fd)
        except OSError as error:
            self.problem = self.problem or f"fsync: {os.strerror(error.errno or 0)}"
        os.close(self.fd)

    def account(self) -> str:
        if not self.problem:
            return ""
        return f"{self.path} is not complete, {self.dropped} bytes were not kept ({self.problem})"


# --- the session -----------------------------------------------------------


class Session:
    def __init__(self, lock: int) -> None:
        self.lock = lock
        self.poll = select.poll()
        self.signals, self.wakeup = os.pipe()
        os.set_blocking(self.signals, False)
        os.set_blocking(self.wakeup, False)
        self.poll.register(self.signals, select.POLLIN)
        self.asked = False
        self.phase = "starting"
        self.started_at = utc()
        self.born = time.monotonic()
        self.marker = b""
        self.wake_path: str | None = None
        self.wake_due = False
        self.wake_next = 0.0
        self.beat_next = 0.0
        self.last_output: str | None = None

        self.pid: int | None = None
        self.status: int | None = None
        self.pipes: dict[int, Sink] = {}
        self.out: Sink | None = None
        self.err: Sink | None = None
        self.wall_at = math.inf
        self.limits_stamp = 0
        self.reason = "exited"
        self.error = ""
        self.ending = False
        self.over = False
        self.steps: list[tuple[str, float]] = []
        self.step_at = math.inf
        self.strays: set[tuple[int, int]] = set()

        self.stdin: int | None = None
        self.mail = False
        self.mail_fd: int | None = None
        self.mail_poll_at = math.inf
        self.message: tuple[str, int, int] | None = None
        self.sent: set[str] = set()
        self.unreadable: set[str] = set()
        self.turn_end: re.Pattern[bytes] | None = None
        self.turn_over = False
        self.line = bytearray()
        self.idle_s = 2.0
        self.idle_since = 0.0

        self.viewer: int | None = None
        self.viewer_argv: list[str] = []
        self.viewer_at = math.inf
        self.viewer_born = 0.0
        self.viewer_failures = 0

    def listen(self) -> None:
        """From here on SIGTERM is a request. Before the gate: it may come right after it."""
        signal.signal(signal.SIGTERM, self.ask)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self.wakeup, warn_on_full_buffer=False)

    def ask(self, number: int, frame: object) -> None:
        self.asked = True

    # -- life

    def live(self) -> int:
        self.beat()
        stdio: list[int] = []
        try:
            argv, env, cwd, stdio = self.prepare()
            if self.asked or os.path.exists("interrupt.json"):
                self.reason, self.error = self.asked_reason(), "it was ended before the harness was started"
            else:
                try:
                    self.pid = launch_process(argv, env, cwd, stdio, own=True)
                except CannotStart as error:
                    self.reason, self.error = "failed", sentence(error, argv, env, cwd)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, re.error) as error:
            self.reason, self.error = "failed", f"cannot start: {type(error).__name__}: {error}"
            complain(self.error)
        finally:
            for fd in stdio:
                os.close(fd)
        if self.viewer_argv and terminal_there():
            self.viewer_at = 0.0
        if self.pid is not None:
            self.phase = "running"
            self.beat()
            self.wake()
            while self.status is None:
                self.turn(math.inf)
            self.close_stdin()
            self.ending = True
            self.phase = "ending"
            self.beat()
            self.sweep()
        self.drain()
        self.record()
        self.let_go()
        self.touch()
        self.end_viewer()
        return self.mirror()

    def prepare(self) -> tuple[list[str], dict[str, str], str, list[int]]:
        launch, env = read_object("launch.json"), read_object("env.json")
        unlink_if_there("env.json")
        env[MARKER] = launch["session_id"]
        self.marker = os.fsencode(f"{MARKER}={launch['session_id']}")
        self.wake_path = launch.get("wake")
        self.viewer_argv = launch.get("viewer") or []
        self.steps = [(str(name), float(wait)) for name, wait in launch.get("interrupt") or ()]
        for name, _ in self.steps:
            getattr(signal, "SIG" + name)
        if launch.get("wall_s") is not None:
            self.wall_at = self.born + float(launch["wall_s"])
        self.limits_stamp = 0
        self.look_at_limits()
        room = int(launch.get("max_bytes") or 1 << 30)
        # Room for the record of the end, for the day when the harness has filled the disk.
        write_synced(".exit.tmp", b" " * EXIT_ROOM)
        self.out, self.err = Sink("events.jsonl", room), Sink("stderr.log", room)
        stdio: list[int] = []
        try:
            if launch["stdin"] == "pipe":
                if launch.get("turn_end") is not None:
                    self.turn_end = re.compile(launch["turn_end"].encode())
                self.idle_s = float(launch.get("stdin_idle_s", self.idle_s))
                reader, self.stdin = os.pipe()
                stdio.append(reader)
                os.set_blocking(self.stdin, False)
                self.poll.register(self.stdin, 0)
                self.open_inbox()
            else:
                source = {"null": "/dev/null", "brief": "brief.md"}[launch["stdin"]]
                stdio.append(os.open(source, os.O_RDONLY | os.O_CLOEXEC))
            for sink in (self.out, self.err):
                reader, writer = os.pipe()
                stdio.append(writer)
                os.set_blocking(reader, False)
                self.pipes[reader] = sink
                self.poll.register(reader, select.POLLIN)
        except BaseException:
            for fd in stdio:
                os.close(fd)
            raise
        return list(launch["argv"]), env, launch["cwd"], stdio

    def turn(self, longest: float) -> None:
        """Wait for the next thing, at most `longest` seconds, and do what is due."""
        wait = max(0.0, min(longest, self.next_deadline() - time.monotonic()))
        for fd, event in self.poll.poll(math.ceil(wait * 1000)):
            if fd == self.signals:
                os.read(fd, 4096)
            elif fd == self.mail_fd:
                os.read(fd, 65536)
                self.mail = True
            elif fd == self.stdin:
                if event & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                    self.close_stdin()
            else:
                self.copy(fd)
        self.reap()
        self.feed()
        self.keep_time()

    def next_deadline(self) -> float:
        due = min(self.beat_next, self.viewer_at)
        if self.wake_due:
            due = min(due, self.wake_next)
        if self.status is None and self.pid is not None:
            due = min(due, self.step_at, math.inf if self.ending else self.wall_at)
            if self.stdin is not None:
                due = min(due, self.mail_poll_at, self.idle_since + self.idle_s if self.idle() else math.inf)
            if self.asked and not self.ending:
                return 0.0
        return due

    def keep_time(self) -> None:
        now = time.monotonic()
        if self.status is None and self.pid is not None:
            if not self.ending:
                if self.asked:
                    self.end(self.asked_reason())
                elif now >= self.wall_at:
                    self.end("wall")
            if now >= self.step_at:
                self.press()
            if now >= self.mail_poll_at:
                self.mail_poll_at = now + 1.0
                self.mail = True
                self.feed()
            if self.stdin is not None and self.idle() and now >= self.idle_since + self.idle_s:
                self.mail = True  # a last look
                self.feed()
                if self.idle():
                    self.close_stdin()
        if self.wake_due and now >= self.wake_next:
            self.touch()
        if now >= self.beat_next:
            self.beat()
            self.mail = True  # a watch may have missed one
            self.feed()
        if now >= self.viewer_at:
            self.start_viewer()

    def look_at_limits(self) -> None:
        """A person may have changed how long it may run; what cannot be read changes nothing."""
        try:
            stamp = os.lstat("limits.json").st_mtime_ns
        except OSError:
            return
        if stamp == self.limits_stamp:
            return
        self.limits_stamp = stamp
        try:
            wall = float(read_object("limits.json")["wall_s"])
            if not 0 < wall < 1e10:
                raise ValueError(f"wall_s is {wall}")
            self.wall_at = self.born + wall
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            complain(f"limits.json cannot be used: {error!r}")

    def beat(self) -> None:
        self.beat_next = time.monotonic() + BEAT_S
        self.look_at_limits()
        record: dict[str, object] = {
            "v": 1,
            "phase": self.phase,
            "at": utc(),
            "harness_pid": self.pid,
            "bytes": self.out.taken if self.out else 0,
            "last_output_at": self.last_output,
            "viewer_pid": self.viewer,
        }
        try:
            fd = os.open(".heartbeat.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | PLAIN, 0o600)
            try:
                os.write(fd, encoded(record))
            finally:
                os.close(fd)
            os.rename(".heartbeat.tmp", "heartbeat.json")
            if self.phase != "starting":
                # A spawn that was repeated while we took the gate may have written it once more.
                unlink_if_there("env.json")
        except OSError:
            pass  # a full disk must not end the session; the next beat tries again

    def wake(self) -> None:
        self.wake_due = True

    def touch(self) -> None:
        self.wake_due = False
        self.wake_next = time.monotonic() + WAKE_S
        if self.wake_path is None:
            return
        try:
            # Opened for writing and closed: that is what the watcher listens for.
            fd = os.open(self.wake_path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
            try:
                os.utime(fd)
            finally:
                os.close(fd)
        except OSError:
            pass  # only a hint: whoever waits for it rescans anyway

    # -- output

    def copy(self, fd: int) -> bool:
        """Move what one pipe has, at most one chunk. False: nothing there now."""
        sink = self.pipes[fd]
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self.close_pipe(fd)
            return False
        sink.take(data)
        self.last_output = utc()
        self.wake()
        if self.turn_end is not None and sink is self.out:
            self.scan(data)
        return True

    def scan(self, data: bytes) -> None:
        assert self.turn_end is not None
        *whole, rest = data.split(b"\n")
        for part in whole:
            line = bytes(self.line) + part if self.line else part
            self.line.clear()
            if self.turn_end.search(line):
                self.turn_over = True
                self.idle_since = time.monotonic()
        self.line += rest[: LINE_LIMIT - len(self.line)]

    def close_pipe(self, fd: int) -> None:
        self.poll.unregister(fd)
        del self.pipes[fd]
        os.close(fd)

    def drain(self) -> None:
        """Take what is still in the pipes; a holder outside the tree must not keep us."""
        until = time.monotonic() + 2.0
        for fd in list(self.pipes):
            while time.monotonic() < until and self.copy(fd):
                pass
            if fd in self.pipes:
                self.close_pipe(fd)
        self.close_stdin()
        for sink in (self.out, self.err):
            if sink is not None:
                sink.close()

    # -- input

    def open_inbox(self) -> None:
        os.makedirs("inbox/delivered", mode=0o700, exist_ok=True)
        self.mail = True
        fd = libc.inotify_init1(IN_FLAGS)
        if fd >= 0 and libc.inotify_add_watch(fd, b"inbox", IN_MOVED_TO) >= 0:
            self.mail_fd = fd
            self.poll.register(fd, select.POLLIN)
            return
        if fd >= 0:
            os.close(fd)
        complain(f"no inotify ({os.strerror(ctypes.get_errno())}): the inbox is read once a second")
        self.mail_poll_at = time.monotonic() + 1.0

    def waiting(self) -> list[str]:
        try:
            with os.scandir("inbox") as entries:
                names = [e.name for e in entries if e.is_file(follow_symlinks=False)]
        except OSError:
            return []  # not there, or no directory any more
        return sorted(name for name in names if not name.startswith("."))

    def next_message(self) -> tuple[str, int, int] | None:
        for name in self.waiting():
            if name in self.sent or name in self.unreadable:
                continue
            try:
                fd = os.open(f"inbox/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                complain(f"inbox/{name} cannot be read: {error}")
                self.unreadable.add(name)
                continue
            if stat.S_ISREG(os.fstat(fd).st_mode):
                return name, fd, 0
            os.close(fd)
        return None

    def feed(self) -> None:
        """Write messages until the harness's pipe is full or the inbox is empty."""
        while self.stdin is not None and self.pid is not None:
            if self.message is None:
                self.message = self.next_message() if self.mail else None
            if self.message is None:
                self.mail = False
                self.poll.modify(self.stdin, 0)
                return
            name, fd, offset = self.message
            try:
                chunk = os.pread(fd, CHUNK, offset)
            except OSError as error:
                complain(f"inbox/{name} cannot be read: {error}")
                self.unreadable.add(name)
                self.drop_message()
                continue
            if not chunk:
                self.delivered(name)
                continue
            try:
                self.message = name, fd, offset + os.write(self.stdin, chunk)
            except BlockingIOError:
                self.poll.modify(self.stdin, select.POLLOUT)
                return
            except OSError:
                self.close_stdin()

    def delivered(self, name: str) -> None:
        self.drop_message()
        self.turn_over = False
        self.sent.add(name)
        try:
            os.rename(f"inbox/{name}", f"inbox/delivered/{name}")
        except OSError as error:
            complain(f"inbox/{name} was delivered and cannot be moved: {error}")
        self.idle_since = time.monotonic()
        self.wake()

    def drop_message(self) -> None:
        if self.message is not None:
            os.close(self.message[1])
            self.message = None

    def idle(self) -> bool:
        return self.turn_over and self.message is None and not self.mail

    def close_stdin(self) -> None:
        self.drop_message()
        if self.stdin is not None:
            self.poll.unregister(self.stdin)
            os.close(self.stdin)
            self.stdin = None

    # -- the end

    def asked_reason(self) -> str:
        return "interrupted" if os.path.exists("interrupt.json") else "terminated"

    def end(self, reason: str) -> None:
        self.reason, self.ending, self.phase = reason, True, "ending"
        self.beat()
        self.press()

    def press(self) -> None:
        """The next step of the interrupt sequence; when it is used up, KILL until it is gone."""
        name, wait = self.steps.pop(0) if self.steps else ("KILL", 0.5)
        self.step_at = time.monotonic() + wait
        number = getattr(signal, "SIG" + name)
        assert self.pid is not None
        if number in (signal.SIGTERM, signal.SIGKILL):
            for pid, (start, group) in self.tree().items():
                if group != self.pid:
                    send(pid, start, number)
        # Not reaped yet, so the number is still ours.
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            os.kill(self.pid, number)
        except PermissionError:
            complain(f"no permission to send SIG{name} to the harness")

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.pid:
                self.status = status
            elif pid == self.viewer:
                self.viewer_died()

    def tree(self) -> dict[int, tuple[int, int]]:
        return tree_of(os.getpid(), self.marker, self.viewer)

    def children(self) -> list[int]:
        """Our children but the viewer, also those that ended and were not reaped yet.

        As their subreaper we get every orphan of the tree, so while anything
        of it is alive this is not empty: also for a chain of processes that
        fork and exit faster than /proc can be listed.
        """
        try:
            with open(f"/proc/self/task/{os.getpid()}/children", "rb", buffering=0) as file:
                return [pid for pid in map(int, file.readall().split()) if pid != self.viewer]
        except FileNotFoundError:
            return []  # a kernel without CONFIG_PROC_CHILDREN: what can be listed must do

    def rest(self) -> dict[int, int]:
        """What is left of the tree: pid -> start ticks, 0 where it was too quick to be seen."""
        left = {pid: start for pid, (start, _) in self.tree().items()}
        self.reap()
        return {**dict.fromkeys(self.children(), 0), **left}

    def sweep(self) -> None:
        """End what the harness left running, and count it."""
        until = time.monotonic() + ALLOWANCE_S
        while self.rest() and time.monotonic() < until:
            self.turn(0.02)
        for number, patience in ((signal.SIGTERM, STRAY_TERM_S), (signal.SIGKILL, STRAY_KILL_S)):
            told: set[tuple[int, int]] = set()
            until = time.monotonic() + patience
            while (left := self.rest()) and time.monotonic() < until:
                for pid, start in left.items():
                    if start and (number == signal.SIGKILL or (pid, start) not in told):
                        send(pid, start, number)
                        told.add((pid, start))
                self.strays |= told
                if number == signal.SIGKILL:
                    self.kill_children()
                self.turn(0.02)
        if left:
            self.error = f"processes that could not be ended: {', '.join(map(str, sorted(left)))}"

    def kill_children(self) -> None:
        for _ in range(100):
            children = self.children()
            if not children:
                return
            for pid in children:
                facts = stat_of(pid)
                try:
                    os.kill(pid, signal.SIGKILL)  # not reaped yet: the number is still its own
                except PermissionError:
                    continue
                if facts is not None and facts[0] not in "ZXx":
                    self.strays.add((pid, facts[3]))
            self.reap()

    def record(self) -> None:
        code: int | None = None
        number: int | None = None
        if self.status is not None:
            result = os.waitstatus_to_exitcode(self.status)
            code, number = (result, None) if result >= 0 else (None, -result)
        sinks = [sink for sink in (self.out, self.err) if sink is not None]
        errors = [self.error, *(sink.account() for sink in sinks)]
        record: dict[str, object] = {
            "v": 1,
            "code": code,
            "signal": number,
            "reason": self.reason,
            "error": "; ".join(text for text in errors if text),
            "started_at": self.started_at,
            "ended_at": utc(),
            "wall_s": round(time.monotonic() - self.born, 3),
            "bytes": self.out.taken if self.out else 0,
            "dropped": sum(sink.dropped for sink in sinks),
            "strays": len(self.strays),
            "undelivered": len([name for name in self.waiting() if name not in self.sent]),
        }
        wait, give_up = 0.1, time.monotonic() + GIVE_UP_S
        while True:
            try:
                write_synced(".exit.tmp", encoded(record))
                os.rename(".exit.tmp", "exit.json")
                sync_directory()
                unlink_if_there("env.json")
                return
            except FileNotFoundError:
                raise  # the session's directory is gone: there is nobody to tell
            except OSError as error:
                if error.errno not in MAY_PASS and time.monotonic() > give_up:
                    complain(f"exit.json cannot be written: {error}")
                    return
                complain(f"exit.json cannot be written yet: {error}")
                until = time.monotonic() + wait
                while time.monotonic() < until:
                    self.turn(until - time.monotonic())
                wait = min(wait * 2, 5.0)

    def let_go(self) -> None:
        """Free the lock: only now exit.json counts. Nobody waits for the viewer to learn of the end."""
        fcntl.flock(self.lock, fcntl.LOCK_UN)
        try:
            os.ftruncate(self.lock, 0)  # changes nothing, but whoever watches the directory looks again
        except OSError as error:
            complain(f"lock cannot be touched: {error}")  # only a hint: who watches looks again anyway
        os.close(self.lock)

    def mirror(self) -> int:
        if self.status is None:
            return 127 if self.reason == "failed" else 0
        code = os.waitstatus_to_exitcode(self.status)
        return code if code >= 0 else 128 - code

    # -- the viewer

    def start_viewer(self) -> None:
        self.viewer_at = math.inf
        if not terminal_there():
            return
        env = {k: v for k, v in os.environ.items() if k in VIEWER_ENV or k.startswith("LC_")}
        self.viewer_born = time.monotonic()
        try:
            self.viewer = launch_process(self.viewer_argv, env, "/", [0, 0, 0], own=False)
        except (CannotStart, OSError) as error:
            complain(f"the viewer cannot be started: {error}")
            self.viewer_died()

    def viewer_died(self) -> None:
        self.viewer = None
        if self.over:
            return
        now = time.monotonic()
        self.viewer_failures = self.viewer_failures + 1 if now - self.viewer_born < 10.0 else 0
        self.viewer_at = now + min(60.0, 1.0 * 2 ** max(0, self.viewer_failures - 5))

    def end_viewer(self) -> None:
        """exit.json tells it; it draws its last lines and leaves, or is made to."""
        self.over = True
        if self.viewer is None and self.viewer_at == 0.0:
            self.start_viewer()  # the harness could not be started: it shows why
        self.viewer_at = math.inf
        shown = self.viewer is not None
        for number, patience in ((0, VIEWER_LEAVES_S), (signal.SIGTERM, 1.0), (signal.SIGKILL, 1.0)):
            if self.viewer is None:
                if shown:
                    time.sleep(LAST_LINES_S)
                return
            if number:
                os.kill(self.viewer, number)
            until = time.monotonic() + patience
            while self.viewer is not None and (left := until - time.monotonic()) > 0:
                self.turn(left)


def terminal_there() -> bool:
    try:
        termios.tcgetattr(0)
    except (termios.error, OSError):
        return False
    return True


def has_run() -> bool:
    """Whether an earlier run left something, also where its started.json was lost."""
    if any(os.path.lexists(name) for name in TRACES):
        return True
    # env.json is written before launch.json, and whoever passes or closes the gate removes it.
    return os.path.lexists("launch.json") and not os.path.lexists("env.json")


def take_gate() -> bool:
    """Make started.json, exclusively and whole. False: somebody was here before."""
    if has_run():
        return False
    facts = stat_of("self")
    assert facts is not None
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    temp = f".started-{os.getpid()}-{time.time_ns()}.tmp"
    record = {"v": 1, "by": "runner", "pid": os.getpid(), "start_ticks": facts[3], "boot_id": boot}
    try:
        write_synced(temp, encoded(record | {"at": utc()}))
        try:
            os.link(temp, "started.json")
        except FileExistsError:
            return False
        sync_directory()
        return True
    finally:
        unlink_if_there(temp)


def main(directory: str) -> int:
    os.umask(0o077)
    for name in UNMOVED:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    while (fd := os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)) < 3:
        pass  # 0, 1 and 2 must be taken, or a file of ours gets such a number
    os.close(fd)
    os.chdir(directory)
    lock = os.open("lock", os.O_RDWR | os.O_CREAT | PLAIN, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    log = os.open("runner.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | PLAIN, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    session = Session(lock)
    session.listen()
    if not take_gate():
        return 0
    return session.live()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
