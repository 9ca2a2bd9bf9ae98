"""tmux as our terminal, on real servers with sockets of their own."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shutil
import signal
import socket as sockets
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from adapters.errors import TerminalError
from adapters.terminals.tmux import SOCKET_LIMIT, Tmux, socket_path
from adapters.testing import wait_for

CASE_40 = Path(__file__).resolve().parents[3] / "shared" / "cases" / "inputs" / "40_tmux_names.txt"
OWN_CASE_40 = [
    "demos.expanso.io",
    "fix: login",
    ".claude/main",
    "track 1",
    "run-1",
    "run-10",
    "-dash",
    "x" * 200,
    "Ü",
]
SECRET = "sk-tmux-51d0a6b2c4"
SLEEP = ["sleep", "600"]


@pytest.fixture
def place() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="mh-", dir="/tmp"))
    yield place
    # Every server of a test has its socket below this directory.
    for server in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess):
            if server.name().startswith("tmux") and any(str(place) in word for word in server.cmdline()):
                server.kill()
    shutil.rmtree(place)


@pytest.fixture
def tmux(place: Path) -> Tmux:
    return Tmux(place / "s")


def ask(tmux: Tmux, *words: str) -> str:
    done = subprocess.run(
        ["tmux", "-N", "-u", "-S", tmux.socket, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def server_pid(tmux: Tmux) -> int:
    return int(ask(tmux, "display-message", "-p", "#{pid}"))


def names(tmux: Tmux) -> list[tuple[str, str]]:
    return sorted((window.track, window.name) for window in tmux.windows())


@contextlib.contextmanager
def person(argv: list[str], **env: str) -> Iterator[tuple[int, int]]:
    """Somebody at a terminal who types this command; their side of it, and the process."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update({"TERM": "xterm-256color", **env})
        os.execvp(argv[0], argv)
    seen = threading.Thread(target=_swallow, args=(fd,), daemon=True)
    seen.start()
    try:
        yield fd, pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        seen.join(10)
        os.close(fd)


def _swallow(fd: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(fd, 65536):
            pass


# --- windows ----------------------------------------------------------------


def test_one_tmux_session_per_track_and_one_window_per_session(tmux: Tmux) -> None:
    assert tmux.windows() == []
    tmux.open("one", "one-1-aaaaaaaaaaaa", SLEEP)
    tmux.open("one", "one-2-bbbbbbbbbbbb", SLEEP)
    tmux.open("two", "two-1-cccccccccccc", SLEEP)
    assert names(tmux) == [
        ("one", "one-1-aaaaaaaaaaaa"),
        ("one", "one-2-bbbbbbbbbbbb"),
        ("two", "two-1-cccccccccccc"),
    ]
    assert ask(tmux, "display-message", "-p", "-t", "=one:", "#{window_name} #{window_width}") == (
        "one-2-bbbbbbbbbbbb 200"
    )
    for window in tmux.windows():
        process = psutil.Process(window.pid)
        assert process.cmdline() == SLEEP
        assert process.cwd() == "/"
        assert (window.dead, window.watched) == (False, False)
    tmux.close("one", "one-2-bbbbbbbbbbbb")
    tmux.close("one", "one-2-bbbbbbbbbbbb")
    tmux.close("two", "two-1-cccccccccccc")
    tmux.close("three", "three-1-dddddddddddd")
    assert names(tmux) == [("one", "one-1-aaaaaaaaaaaa")]
    tmux.close("one", "one-1-aaaaaaaaaaaa")
    assert tmux.windows() == []
    assert psutil.pid_exists(server_pid(tmux))  # without a session it stays


def test_opening_twice_opens_once(tmux: Tmux) -> None:
    for _ in range(3):
        tmux.open("one", "one-1-a", SLEEP)
    assert names(tmux) == [("one", "one-1-a")]


def test_opening_at_once_opens_once(place: Path) -> None:
    problems: list[BaseException] = []

    def open_both(number: int) -> None:
        try:
            Tmux(place / "s").open("one", f"one-{number % 2}-a", SLEEP)
        except BaseException as error:  # noqa: BLE001 - whatever a thread raised fails the test
            problems.append(error)

    threads = [threading.Thread(target=open_both, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert names(Tmux(place / "s")) == [("one", "one-0-a"), ("one", "one-1-a")]


def test_in_a_dead_window_the_command_is_run_again(tmux: Tmux, place: Path) -> None:
    # A runner that died before it took the start gate: the session could never start again.
    ran = place / "ran"
    for times in (1, 2):
        tmux.open("one", "one-1-a", ["sh", "-c", f"echo ran >> {ran}"])
        wait_for(lambda: [w.dead for w in tmux.windows()] == [True], "the end")
        assert ran.read_text() == "ran\n" * times
    tmux.close("one", "one-1-a")
    assert tmux.windows() == []


def test_only_slugs_are_names(tmux: Tmux) -> None:
    given = CASE_40.read_text().splitlines() if CASE_40.exists() else OWN_CASE_40
    opened = []
    for name in given:
        if re.fullmatch("[a-z0-9-]+", name):
            tmux.open(name, f"{name}-1-a", SLEEP)
            opened.append((name, f"{name}-1-a"))
            continue
        for track, window in ((name, "fine"), ("fine", name)):
            with pytest.raises(ValueError, match="cannot be a name in tmux"):
                tmux.open(track, window, SLEEP)
            with pytest.raises(ValueError, match="cannot be a name in tmux"):
                tmux.close(track, window)
            with pytest.raises(ValueError, match="cannot be a name in tmux"):
                tmux.attach_argv(track, window)
    assert {"run-1", "run-10", "-dash"} <= {track for track, _ in opened}
    assert names(tmux) == sorted(opened)
    tmux.close("run-1", "run-1-1-a")
    assert ("run-10", "run-10-1-a") in names(tmux)
    tmux.close("run-1", "run-1-1-a")
    assert names(tmux) == sorted(set(opened) - {("run-1", "run-1-1-a")})


@pytest.mark.parametrize(
    "name", ["", "a\n", "a b", "#(touch x)", "A", "a;", "=a", "é", "a\t", "$1", "@1", "%1"]
)
def test_what_tmux_could_take_for_something_else_is_refused(tmux: Tmux, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a name"):
        tmux.open(name, "fine", SLEEP)


def test_a_window_named_like_an_index_is_refused(tmux: Tmux) -> None:
    with pytest.raises(ValueError, match="index"):
        tmux.open("one", "1", SLEEP)


@pytest.mark.parametrize("name", ["-", "--", "-t", "-1", "0", "1", "7", "1-2", "last", "x" * 66])
def test_slugs_that_look_like_something_else_are_names(tmux: Tmux, name: str) -> None:
    first = f"{name}-" if name.isdigit() else name
    tmux.open("other", "other-1", SLEEP)
    tmux.open(name, first, SLEEP)
    tmux.open(name, f"{name}-2", SLEEP)
    assert names(tmux) == sorted([("other", "other-1"), (name, first), (name, f"{name}-2")])
    with person(tmux.attach_argv(name, first)):
        wait_for(lambda: [w.track for w in tmux.windows() if w.watched] == [name] * 2, "the person")
        assert ask(tmux, "display-message", "-p", "-t", f"={name}:", "#{window_name}") == first
    tmux.close(name, first)
    assert names(tmux) == sorted([("other", "other-1"), (name, f"{name}-2")])


def test_words_of_a_command_arrive_as_they_are(tmux: Tmux, place: Path) -> None:
    words = ["a b", "", "x;", ";", "\\;", "a\\", "$(touch " + str(place / "bad") + ")", "#(touch bad)", "`id`", "'\"", "~",
             "-t", "é\n漢", "#{pane_id}", "{", "}", "%if", "a;b"]  # fmt: skip
    out = place / "out"
    code = f"import sys; open({str(out) + '.tmp'!r}, 'w').write(repr(sys.argv[1:])); import os; os.rename({str(out) + '.tmp'!r}, {str(out)!r})"
    tmux.open("one", "one-1-a", [sys.executable, "-c", code, *words])
    wait_for(out.exists, "the command")
    assert out.read_text() == repr(words)
    tmux.open("one", "one-2-a", [sys.executable, "-c", code, *reversed(words)])
    wait_for(lambda: out.read_text() == repr(words[::-1]), "the second command")
    assert not (place / "bad").exists()


def test_a_workspace_full_of_metacharacters_executes_nothing(place: Path) -> None:
    bad = place / "bad"
    odd = place / f"#(touch {bad}0) '\"; touch {bad}1; $(touch {bad}2) `touch {bad}3` {{}} é"
    odd.mkdir(parents=True)
    tmux = Tmux(place / "s", odd / "tmux.conf;")
    script = odd / "script;"
    script.write_text("#!/bin/sh\nsleep 600\n")
    script.chmod(0o755)
    tmux.open("one", "one-1-a", [str(script)])
    tmux.open("one", "one-2-a", ["sh", str(script)])
    wait_for(lambda: all(psutil.Process(w.pid).children() for w in tmux.windows()), "the scripts")
    with person(tmux.attach_argv("one")):
        wait_for(lambda: all(w.watched for w in tmux.windows()), "the person")
        time.sleep(0.2)  # nothing to wait for: #() would be run by the drawing of the status line
    assert len(tmux.windows()) == 2
    assert not list(place.glob("bad*"))


# --- the server -------------------------------------------------------------


def test_the_server_knows_no_secret_of_its_starter(
    tmux: Tmux, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", SECRET)
    monkeypatch.setenv("SSH_AUTH_SOCK", SECRET)  # tmux would update this one from each client
    monkeypatch.setenv("DISPLAY", SECRET)
    tmux.open("one", "one-1-a", ["sh", "-c", f"env > {place}/env; sleep 600"])
    tmux.open("one", "one-2-a", SLEEP)
    assert SECRET not in ask(tmux, "show-environment", "-g")
    with person(tmux.attach_argv("one")):  # whose client has the secrets too
        wait_for(lambda: any(w.watched for w in tmux.windows()), "the person")
    assert SECRET not in ask(tmux, "show-environment", "-t", "=one:")
    assert SECRET not in str(psutil.Process(server_pid(tmux)).environ())
    wait_for(
        lambda: "TMUX_PANE" in ((place / "env").read_text() if (place / "env").exists() else ""), "the pane"
    )
    got = {line.split("=")[0] for line in (place / "env").read_text().splitlines()}
    allowed = {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TERM",
        "TMUX",
        "TMUX_PANE",
    }
    assert {name for name in got if not name.startswith("LC_")} <= allowed | {
        "PWD", "SHLVL", "_", "OLDPWD", "TERM_PROGRAM", "TERM_PROGRAM_VERSION",
    }  # fmt: skip


def test_a_persons_own_tmux_and_settings_do_not_matter(
    tmux: Tmux, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / ".tmux.conf").write_text(f"run-shell 'touch {place}/read'\nset -g @mine yes\n")
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("TMUX", "/nowhere/socket,1,0")
    monkeypatch.setenv("TMUX_TMPDIR", "/nowhere")
    tmux.open("one", "one-1-a", SLEEP)
    assert names(tmux) == [("one", "one-1-a")]
    assert not (place / "read").exists()
    assert ask(tmux, "show-options", "-gqv", "@mine") == ""


def test_our_settings_are_in_force(tmux: Tmux) -> None:
    tmux.open("one", "one-1-a", SLEEP)
    shown = ask(tmux, "show-options", "-g") + "\n" + ask(tmux, "show-options", "-s")
    shown += "\n" + ask(tmux, "show-options", "-gw")
    for line in ("prefix None", "prefix2 None", "mouse on", "exit-empty off", "remain-on-exit on", "set-titles off",
                 "history-limit 20000", "allow-rename off", "automatic-rename off",
                 "default-terminal tmux-256color"):  # fmt: skip
        assert line in shown.splitlines(), line
    assert "#(" not in shown
    keys = ask(tmux, "list-keys")
    assert not re.search(r"-T prefix ", keys)
    assert re.search(r"-T root +C-q +detach-client", keys)
    assert not re.search(r"-T root .*(kill|respawn|display-menu|new-window|run-shell|command-prompt)", keys)


def test_the_server_outlives_the_process_group_of_its_starter(tmux: Tmux, place: Path) -> None:
    root = Path(sys.modules[Tmux.__module__].__file__ or "").parents[2]
    code = (
        "import sys, time, pathlib; from adapters.terminals.tmux import Tmux;"
        "Tmux(pathlib.Path(sys.argv[1])).open('one', 'one-1-a', ['sleep', '600']); print('open', flush=True); time.sleep(60)"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", code, tmux.socket], cwd=root, stdout=subprocess.PIPE, start_new_session=True
    )
    assert starter.stdout is not None
    assert starter.stdout.readline() == b"open\n"
    os.killpg(starter.pid, signal.SIGKILL)
    starter.wait()
    starter.stdout.close()
    assert names(tmux) == [("one", "one-1-a")]


def test_a_dead_server_is_an_empty_list_and_a_new_one_is_started(tmux: Tmux) -> None:
    tmux.open("one", "one-1-a", SLEEP)
    first = server_pid(tmux)
    os.kill(first, signal.SIGKILL)
    wait_for(
        lambda: psutil.pid_exists(first) is False or psutil.Process(first).status() == "zombie", "its death"
    )
    assert tmux.windows() == []
    tmux.close("one", "one-1-a")
    tmux.kill_server()
    assert not tmux.describe().alive
    tmux.ensure()
    assert server_pid(tmux) != first
    assert tmux.windows() == []


def test_looking_starts_no_server(tmux: Tmux, place: Path) -> None:
    assert tmux.windows() == []
    tmux.close("one", "one-1-a")
    assert not tmux.describe().alive
    tmux.kill_server()
    with pytest.raises(Exception, match="error connecting"):
        tmux._ask("new-session", "-d")  # it died between two calls: its settings would be the person's
    assert list(place.iterdir()) == []


def test_a_server_that_hangs_is_an_error_and_not_a_hang(place: Path) -> None:
    tmux = Tmux(place / "s", timeout=0.3)
    tmux.open("one", "one-1-a", SLEEP)
    pid = server_pid(tmux)
    os.kill(pid, signal.SIGSTOP)
    try:
        for call in (
            tmux.windows,
            tmux.ensure,
            tmux.describe,
            tmux.kill_server,
            lambda: tmux.open("one", "one-2-a", SLEEP),
            lambda: tmux.close("one", "one-1-a"),
        ):
            before = time.monotonic()
            with pytest.raises(TerminalError, match="did not answer") as caught:
                call()
            assert caught.value.hint
            assert time.monotonic() - before < 60  # it hangs, or it does not: no measure of speed
    finally:
        os.kill(pid, signal.SIGCONT)


def test_what_is_not_tmux_is_an_error(place: Path) -> None:
    (place / "s").mkdir()
    with pytest.raises(TerminalError):
        Tmux(place / "s").open("one", "one-1-a", SLEEP)
    with sockets.socket(sockets.AF_UNIX) as other:
        other.bind(str(place / "mute"))
        other.listen()
        with pytest.raises(TerminalError, match="did not answer"):
            Tmux(place / "mute", timeout=0.2).windows()


def test_without_tmux_there_is_a_hint(place: Path) -> None:
    tmux = Tmux(place / "s", program="mh-no-such-tmux")
    for call in (tmux.ensure, tmux.windows, tmux.describe):
        with pytest.raises(TerminalError, match="not installed") as caught:
            call()
        assert "apt-get install tmux" in caught.value.hint


def test_a_command_too_long_for_tmux_is_an_error(tmux: Tmux) -> None:
    with pytest.raises(TerminalError, match="too long"):
        tmux.open("one", "one-1-a", ["echo", "x" * 30_000])


def test_a_window_of_somebody_else_is_shown_as_it_is(tmux: Tmux) -> None:
    tmux.open("one", "one-1-a", SLEEP)
    ask(tmux, "new-window", "-d", "-t", "=one:", "-n", "odd: name\there", "sleep", "600")
    assert len(tmux.windows()) == 2
    assert ("one", "one-1-a") in names(tmux)


# --- people -----------------------------------------------------------------


def test_a_person_watches_and_leaves_with_ctrl_q(tmux: Tmux) -> None:
    tmux.open("one", "one-1-a", SLEEP)
    tmux.open("one-more", "one-more-1-a", SLEEP)
    with person(tmux.attach_argv("one")) as (fd, pid):
        wait_for(lambda: [w.track for w in tmux.windows() if w.watched] == ["one"], "the person")
        description = tmux.describe()
        assert sorted(description.sessions) == ["one", "one-more"]
        assert (description.windows, len(description.clients)) == (2, 1)
        assert description.version.startswith("tmux ")
        os.write(fd, b"\x02d\x02x\x02c")  # the usual prefix and what it would do

        def left() -> bool:
            with contextlib.suppress(OSError):
                os.write(fd, b"\x11")  # again: keys that come at once are a paste to tmux
            return os.waitpid(pid, os.WNOHANG)[0] == pid

        wait_for(left, "the person to leave")
    wait_for(lambda: not any(w.watched for w in tmux.windows()), "nobody to be there")
    assert len(tmux.windows()) == 2


def test_from_a_persons_own_tmux_it_is_a_window_there(tmux: Tmux, place: Path) -> None:
    tmux.open("one", "one-1-a", SLEEP)
    theirs = Tmux(place / "theirs")
    theirs.open("work", "shell", SLEEP)
    socket = f"{theirs.socket},{server_pid(theirs)},0"
    subprocess.run(tmux.nested_argv("one"), env={**os.environ, "TMUX": socket}, check=True)
    wait_for(lambda: [w.watched for w in tmux.windows()] == [True], "the nested client")
    assert names(theirs) == [("work", "one"), ("work", "shell")]


def test_an_attach_to_a_track_that_is_gone_starts_nothing(tmux: Tmux, place: Path) -> None:
    with person(tmux.attach_argv("one")) as (_, pid):
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    tmux.open("one-10", "one-10-1-a", SLEEP)
    with person(tmux.attach_argv("one")) as (_, pid):
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1


# --- the socket's place -----------------------------------------------------


def test_the_socket_lies_in_the_runtime_directory(place: Path) -> None:
    path = socket_path(place / "ws", {"XDG_RUNTIME_DIR": str(place)})
    assert re.fullmatch(r"mh-[0-9a-f]{12}\.sock", path.name)
    assert path.parent == place
    assert socket_path(place / "ws", {"XDG_RUNTIME_DIR": str(place)}) == path
    assert socket_path(place / "other", {"XDG_RUNTIME_DIR": str(place)}) != path
    (place / "link").symlink_to(place / "ws")
    assert socket_path(place / "link", {"XDG_RUNTIME_DIR": str(place)}) == path


def test_a_runtime_directory_that_will_not_do_is_not_used(place: Path) -> None:
    long = place / ("x" * 80)
    long.mkdir(mode=0o700)
    open_to_all = place / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    link = place / "link"
    link.symlink_to(place)
    expected = Path(f"/tmp/mh-{os.getuid()}")
    for runtime in ("", "relative", str(place / "missing"), str(long), str(open_to_all), str(link)):
        path = socket_path(place / ("deep/" * 60), {"XDG_RUNTIME_DIR": runtime})
        assert path.parent == expected, runtime
        assert len(os.fsencode(path)) <= SOCKET_LIMIT
    found = os.lstat(expected)
    assert stat.S_ISDIR(found.st_mode)
    assert found.st_uid == os.getuid()
    assert found.st_mode & 0o077 == 0


def test_a_place_of_somebody_else_is_refused(place: Path) -> None:
    theirs = place / "theirs"
    for prepare in (lambda: theirs.mkdir(mode=0o777), lambda: theirs.symlink_to(place), theirs.touch):
        prepare()
        if theirs.is_dir() and not theirs.is_symlink():
            theirs.chmod(0o777)
        with pytest.raises(TerminalError, match="not a directory that only you can use") as caught:
            socket_path(place / "ws", {}, fallback=theirs)
        assert "XDG_RUNTIME_DIR" in caught.value.hint
        if theirs.is_symlink() or theirs.is_file():
            theirs.unlink()
        else:
            theirs.rmdir()


def test_a_socket_path_that_is_too_long_is_a_bug(place: Path) -> None:
    with pytest.raises(ValueError, match="107 bytes"):
        Tmux(place / ("x" * 107))
