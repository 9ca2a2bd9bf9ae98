"""Sessions in tmux: a private server, one tmux session per track, one window per session of it.

What this file keeps:

1. The server is started by our own argv under a clean environment, in a
   session of its own, with our configuration alone. No other call starts one (-N).
2. tmux executes ``#(command)`` inside names and directories, and takes a
   trailing ``;`` for its own separator: only slugs [a-z0-9-] become names,
   ``-c`` is always ``/``, and a ``;`` at the end of a word is escaped.
3. A target is never a prefix: ``=track:`` for a session, ``@number`` for a window.
4. Every call has a timeout: a server that hangs is a `TerminalError`, never a
   hang; one that is not there is an empty list.

Measured on tmux 3.3a; works from 3.2 on.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from adapters.errors import TerminalError
from adapters.ports import Window

SOCKET_LIMIT = 107  # sun_path holds 108 bytes, one of them is the final NUL
CLEAN = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM")

CONFIG = r"""# Written by megaHarness at every start of its tmux server; changes are lost.
set -s exit-empty off
set -s escape-time 10
set -s default-terminal tmux-256color
set -g update-environment ""
set -g default-shell /bin/sh
set -g default-command ""
set -g remain-on-exit on
set -g history-limit 20000
set -g set-titles off
set -g allow-rename off
set -g automatic-rename off
set -g mouse on

# No key is ours but one: what a person types goes to the viewer. The default
# mouse menus are gone too, they can kill and respawn.
set -g prefix None
set -g prefix2 None
unbind-key -a -T prefix
unbind-key -a -T root
bind-key -T root C-q detach-client
bind-key -T copy-mode C-q detach-client
bind-key -T copy-mode-vi C-q detach-client
bind-key -T root MouseDown1Status select-window -t =
bind-key -T root WheelUpStatus previous-window
bind-key -T root WheelDownStatus next-window
bind-key -T root MouseDown1Pane send-keys -M
bind-key -T root MouseDrag1Pane \
    if-shell -F "#{||:#{pane_in_mode},#{mouse_any_flag}}" { send-keys -M } { copy-mode -M }
bind-key -T root WheelUpPane \
    if-shell -F "#{||:#{pane_in_mode},#{mouse_any_flag}}" { send-keys -M } { copy-mode -e }

set -g status on
set -g status-interval 0
set -g status-left-length 60
set -g status-left " #{session_name}  "
set -g status-right " Ctrl-Q leaves "
set -g status-style "bg=default,fg=default,reverse"
set -g window-status-format " #{=-14:window_name} "
set -g window-status-current-format " #{=-14:window_name}* "
"""

_SLUG = re.compile(r"[a-z0-9-]+")
_NO_SERVER = ("no server running", "error connecting to", "server exited", "lost server")
_FIELDS = (
    "session_name",
    "window_id",
    "pane_id",
    "pane_pid",
    "pane_dead",
    "session_attached",
    "window_name",
)


class _NoServer(Exception):
    pass


class _Refused(Exception):
    """tmux answered, and said no; the text is its own."""


@dataclass(frozen=True, slots=True)
class Description:
    """What the server holds, for a person who looks for a fault."""

    alive: bool
    socket: str
    version: str
    sessions: tuple[str, ...] = ()
    windows: int = 0
    clients: tuple[str, ...] = ()


def socket_path(root: Path, environ: Mapping[str, str] = os.environ, *, fallback: Path | None = None) -> Path:
    """Where the server of this workspace listens: short enough, and in a place of our own.

    Raises `TerminalError` when the place is somebody else's.
    """
    name = f"mh-{hashlib.sha256(os.fsencode(os.path.realpath(root))).hexdigest()[:12]}.sock"
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if (
        os.path.isabs(runtime)
        and len(os.fsencode(f"{runtime}/{name}")) <= SOCKET_LIMIT
        and is_private(runtime)
    ):
        return Path(runtime, name)
    if fallback is None:
        fallback = Path(f"/tmp/mh-{os.getuid()}")  # anybody can guess it: looked at before it is used
    with contextlib.suppress(FileExistsError):
        fallback.mkdir(mode=0o700)
    if not is_private(fallback):
        raise TerminalError(
            f"{fallback} is not a directory that only you can use, so tmux cannot listen there",
            "set XDG_RUNTIME_DIR to an existing directory of your own with mode 0700",
        )
    return fallback / name


def is_private(directory: str | Path) -> bool:
    """Whether only we can make files there: a real directory, ours, closed to everybody else."""
    try:
        found = os.lstat(directory)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


class Tmux:
    """The terminal port on a private tmux server.

    socket: see `socket_path`. conf: where our configuration is written
    (default: beside the socket). timeout: seconds for one call.
    """

    def __init__(
        self, socket: Path, conf: Path | None = None, *, timeout: float = 5.0, program: str = "tmux"
    ) -> None:
        self.socket = socket
        self.conf = conf if conf is not None else socket.with_suffix(".conf")
        self.timeout = timeout
        self.program = program
        if len(os.fsencode(socket)) > SOCKET_LIMIT:
            raise ValueError(f"{str(socket)!r} is longer than {SOCKET_LIMIT} bytes: use socket_path()")

    # -- the port -----------------------------------------------------------

    def ensure(self) -> None:
        """Start the server if it is not there. Raises `TerminalError`."""
        try:
            self._ask("display-message", "-p", "ok")
        except _NoServer:
            self._start()
        except _Refused as refused:
            raise self._trouble(refused) from refused

    def open(self, track: str, name: str, argv: Sequence[str]) -> None:
        """Run argv in a window of that name; nothing happens if it is there and alive.

        In a dead one it is run again: its command ended before it did
        anything, or it looks at the start gate and leaves.
        """
        _check(track, name)
        # A single word would go through a shell.
        words = list(argv) if len(argv) > 1 else ["env", "--", *argv]
        command = ["-c", "/", "--", *map(_escaped, words)]
        problem: Exception | None = None
        with self._one_at_a_time():
            for _ in range(5):
                # Not at first: nearly always it is there, and each question is a process.
                if isinstance(problem, _NoServer):
                    self.ensure()
                try:
                    # Nearly always it is the track's first window: what is refused then is looked at.
                    there = [] if problem is None else self._windows()
                    for window, number in there:
                        if (window.track, window.name) == (track, name):
                            if window.dead:
                                self._ask("respawn-window", "-t", number, *command)
                            return
                    if any(window.track == track for window, _ in there):
                        self._ask("new-window", "-t", f"={track}:", "-n", name, *command)
                    else:
                        size = ["-x", "200", "-y", "50"]
                        self._ask("new-session", "-d", "-s", track, *size, "-n", name, *command)
                except (_NoServer, _Refused) as error:
                    problem = error  # it was closed, or the server died, between two calls: look again
                else:
                    return
        raise self._trouble(problem) from problem

    def windows(self) -> list[Window]:
        """All windows; [] when there is no server."""
        try:
            return [window for window, _ in self._windows()]
        except _NoServer:
            return []
        except _Refused as refused:
            raise self._trouble(refused) from refused

    def close(self, track: str, name: str) -> None:
        """Close a window; nothing happens if it is gone. The track's session ends with its last one."""
        _check(track, name)
        try:
            for window, number in self._windows():
                if window.track == track and window.name == name:
                    self._ask("kill-window", "-t", number)
        except _NoServer:
            return
        except _Refused as refused:
            if "can't find" not in str(refused):
                raise self._trouble(refused) from refused

    def attach_argv(self, track: str, name: str | None = None) -> list[str]:
        """The command that shows this track to a person, outside of any tmux."""
        _check(track, name if name is not None else "-")
        target = f"={track}:" if name is None else f"={track}:={name}"
        return [self.program, "-N", "-u", "-S", str(self.socket), "attach-session", "-t", target]

    # -- beyond the port ----------------------------------------------------

    def nested_argv(self, track: str, name: str | None = None) -> list[str]:
        """The command that shows this track in a new window of the tmux a person is in."""
        inner = ["env", "-u", "TMUX", "-u", "TMUX_PANE", *self.attach_argv(track, name)]
        return [self.program, "new-window", "-n", track, "--", *map(_escaped, inner)]

    def kill_server(self) -> None:
        """End the server and every window; nothing happens if it is not there. Sessions go on."""
        try:
            self._ask("kill-server")
        except _NoServer:
            return
        except _Refused as refused:
            raise self._trouble(refused) from refused

    def describe(self) -> Description:
        """What the server holds; starts none. Raises `TerminalError` when it hangs."""
        version = self._run([self.program, "-V"]).stdout.strip()
        try:
            # libtmux waits for ever: ask first whether somebody answers.
            self._ask("display-message", "-p", "ok")
        except _NoServer:
            return Description(False, str(self.socket), version)
        except _Refused as refused:
            raise self._trouble(refused) from refused
        import libtmux
        import libtmux.exc

        server = libtmux.Server(socket_path=str(self.socket), config_file=str(self.conf))
        try:
            return Description(
                True,
                str(self.socket),
                version,
                tuple(session.session_name or "" for session in server.sessions),
                len(server.windows),
                tuple(client.client_name or "" for client in server.clients),
            )
        except libtmux.exc.LibTmuxException as error:
            raise self._trouble(error) from error

    # -- tmux itself --------------------------------------------------------

    def _windows(self) -> list[tuple[Window, str]]:
        # A colon cannot stand in a session's name, and the window's name comes
        # last; a tab would become "_" for a client without UTF-8.
        try:
            listing = self._ask("list-panes", "-a", "-F", ":".join(f"#{{{field}}}" for field in _FIELDS))
        except _Refused as refused:
            if str(refused) != "no current target":  # what it says when there is no session at all
                raise
            return []
        found: dict[str, Window] = {}
        for line in listing.splitlines():
            track, number, pane, pid, dead, attached, name = line.split(":", len(_FIELDS) - 1)
            found.setdefault(
                number, Window(track, name, pane, int(pid or 0), dead == "1", attached not in ("", "0"))
            )
        return [(window, number) for number, window in found.items()]

    def _start(self) -> None:
        temp = self.conf.with_name(f".{self.conf.name}.{secrets.token_hex(4)}")
        try:
            temp.touch(0o600)
            temp.write_text(CONFIG)
            temp.rename(self.conf)
        except OSError as error:
            raise TerminalError(
                f"the tmux configuration {self.conf} cannot be written: {error.strerror}"
            ) from error
        # Two that start at once: tmux has a lock of its own, the second one finds the server.
        done = self._run(
            [self.program, "-u", "-S", str(self.socket), "-f", str(self.conf), "start-server"], clean=True
        )
        if done.returncode != 0:
            raise self._trouble(_Refused(done.stderr.strip()))
        until = time.monotonic() + self.timeout
        while True:
            try:
                self._ask("display-message", "-p", "ok")
            except _NoServer as error:
                if time.monotonic() > until:
                    raise self._trouble(error) from error
                time.sleep(0.01)
            except _Refused as refused:
                raise self._trouble(refused) from refused
            else:
                return

    def _ask(self, *words: str) -> str:
        done = self._run([self.program, "-N", "-u", "-S", str(self.socket), *words], clean=True)
        if done.returncode == 0:
            return done.stdout
        said = done.stderr.strip()
        if said.startswith(_NO_SERVER):
            raise _NoServer(said)
        raise _Refused(said)

    def _run(self, argv: list[str], *, clean: bool = False) -> subprocess.CompletedProcess[str]:
        """One call of tmux. In a session of its own: whatever ends ours does not end a server it starts."""
        try:
            return subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                env=_clean_environment() if clean else None,
                cwd="/",
                umask=0o077,
                start_new_session=True,
                timeout=self.timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise TerminalError(
                f"tmux did not answer within {self.timeout:g} s ({self.socket})",
                "sessions go on without it; look whether its server is stopped or the machine overloaded",
            ) from late
        except FileNotFoundError as missing:
            raise TerminalError("tmux is not installed", "sudo apt-get install tmux") from missing
        except OSError as error:
            raise TerminalError(f"tmux cannot be started: {error}") from error

    def _trouble(self, error: Exception | None) -> TerminalError:
        said = str(error) or "it gave no reason"
        hint = "see `megaharness doctor`"
        if "protocol version mismatch" in said:
            hint = "tmux was upgraded while its server ran: sessions go on, a new server shows them again"
        if "too long" in said:
            hint = "the path of the workspace is too long for tmux: choose a shorter one"
        return TerminalError(f"tmux refused ({self.socket}): {said}", hint)

    @contextlib.contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        """Two that open the same window at once: the second one finds it."""
        lock = self.socket.with_suffix(".lock-open")
        try:
            fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise TerminalError(f"{lock} cannot be opened: {error.strerror}") from error
        try:
            until = time.monotonic() + 2 * self.timeout
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise TerminalError(f"another process holds {lock} for too long") from None
                    time.sleep(0.01)
            yield
        finally:
            os.close(fd)


def _clean_environment() -> dict[str, str]:
    """What a server may know. It hands its environment to every pane, and `show-environment -g` shows it."""
    kept = {k: v for k, v in os.environ.items() if k in CLEAN or k.startswith("LC_")}
    return {"PATH": os.defpath, "TERM": "xterm-256color", **kept}


def _check(track: str, name: str) -> None:
    for each in (track, name):
        if not _SLUG.fullmatch(each):
            raise ValueError(f"{each!r} cannot be a name in tmux: only a-z, 0-9 and - are safe there")
    if name.isdigit():
        raise ValueError(f"{name!r} cannot be a window's name: tmux takes it for an index, even after =")


def _escaped(word: str) -> str:
    return word[:-1] + "\\;" if word.endswith(";") else word
