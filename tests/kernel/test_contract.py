"""Checks as they are really run: processes, files, time limits."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.session import reap
from adapters.testing import marked, wait_for
from daemon.durable import Files
from daemon.kernel.contract import TAIL, TRIES, Bench, Cancelled, Receipt, load_receipt, verify
from daemon.kernel.starting import environment
from daemon.tracks.track import Changed, Check, Clean, Contains, Exists, Prose, Run

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(tmp_path: Path, session_id: str) -> Bench:
    workdir, session = tmp_path / "work dir ü", tmp_path / "session"
    workdir.mkdir()
    (session / "receipts").mkdir(parents=True)
    return Bench(
        workdir=workdir,
        session=session,
        session_id=session_id,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        commit="0" * 40,
        uncommitted=(),
        changed=(),
        timeout=20.0,
        publish=Files().publish,
        reap=reap,
        cancelled=threading.Event(),
    )


def one(check: Check, bench: Bench) -> Receipt:
    (receipt,) = verify([check], bench)
    return receipt


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()[0] not in (b"Z", b"X")
    except FileNotFoundError:
        return False


# --- run ------------------------------------------------------------------------------------------------


def test_exit_codes_and_signals_are_told_apart(bench: Bench) -> None:
    good, bad, killed, number = verify(
        [Run("true"), Run("echo no; exit 7"), Run("kill -9 $$"), Run("exit 137")], bench
    )
    assert (good.passed, good.exit, good.signal, good.detail) == (True, 0, None, "")
    assert (bad.passed, bad.exit, bad.signal, bad.detail, bad.tail) == (False, 7, None, "exit 7", "no\n")
    assert (killed.passed, killed.exit, killed.signal) == (False, None, 9)
    assert "SIGKILL" in killed.detail
    assert (number.passed, number.exit, number.signal) == (False, 137, None)


def test_a_signal_without_a_name(bench: Bench) -> None:
    receipt = one(Run("kill -s 40 $$"), bench)
    assert (receipt.passed, receipt.signal) == (False, 40)
    assert "40" in receipt.detail


def fresh(bench: Bench, name: str) -> Path:
    session = bench.session.parent / name
    (session / "receipts").mkdir(parents=True)
    return session


def test_it_runs_in_the_work_directory_without_input_with_stderr(bench: Bench) -> None:
    receipt = one(Run("pwd; cat; echo err >&2; [[ -n bash ]]"), bench)
    assert receipt.passed
    assert receipt.tail == f"{bench.workdir}\nerr\n"


@pytest.mark.parametrize("command", ["-x", "--version", "-c true", "--"])
def test_a_command_that_begins_with_a_dash_is_a_command_and_no_option(bench: Bench, command: str) -> None:
    receipt = one(Run(command), bench)
    assert receipt.passed is False
    assert receipt.exit is not None
    assert "bash" in receipt.tail


@pytest.mark.parametrize("command", ["echo \0", "echo \ud800"])
def test_a_command_that_no_process_can_have_fails(bench: Bench, command: str) -> None:
    receipt = one(Run(command), bench)
    assert receipt.passed is False
    assert "could not be started" in receipt.detail


def test_without_a_work_directory_it_fails(bench: Bench) -> None:
    os.rmdir(bench.workdir)
    receipt = one(Run("true"), bench)
    assert receipt.passed is False
    assert "could not be started" in receipt.detail


def test_the_environment_is_an_allow_list(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    names = (
        "CLAUDECODE",
        "TMUX",
        "TMUX_PANE",
        "ANTHROPIC_API_KEY",
        "NOTIFY_SOCKET",
        "GIT_DIR",
        "PYTHONPATH",
        "BASH_ENV",
    )
    for name in names:
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("LC_TIME", "C")
    env = environment({"MINE": "set"}, ("ANTHROPIC_API_KEY",))
    receipt = one(Run("env -0 | tr '\\0' '\\n' | sort"), replace(bench, env=env))
    seen = {line.partition("=")[0] for line in receipt.tail.splitlines()}
    assert seen & set(names) == {"ANTHROPIC_API_KEY"}
    assert {"PATH", "HOME", "LC_TIME", "MINE", "MEGAHARNESS_SESSION"} <= seen
    assert f"MEGAHARNESS_SESSION={bench.session_id}" in receipt.tail


SPAWNS = {
    "plain": "sleep 600 & echo $! >> pids; wait",
    "setsid": "setsid sleep 600 & echo $! >> pids; wait",
    "nohup": "nohup sleep 600 >/dev/null 2>&1 & echo $! >> pids; wait",
    "double fork": "(setsid sh -c 'sleep 600 & echo $! >> pids; echo $$ >> pids; wait' &) ; sleep 600",
    "deaf": "trap '' TERM INT HUP; setsid sh -c 'trap \"\" TERM HUP; echo $$ >> pids; sleep 600; sleep 600'; sleep 600",
    "no marker": "env -i sleep 600 & echo $! >> pids; wait",
    "no marker, own session": "env -i setsid sleep 600 & echo $! >> pids; wait",
    "stopped": "sh -c 'echo $$ >> pids; kill -STOP $$'; sleep 600",
}


@pytest.mark.parametrize("command", SPAWNS.values(), ids=SPAWNS.keys())
def test_a_timeout_ends_the_whole_tree(bench: Bench, command: str) -> None:
    began = time.monotonic()
    receipt = one(Run(command), replace(bench, timeout=0.7))
    assert (receipt.passed, receipt.timed_out) == (False, True)
    assert "longer than" in receipt.detail
    assert time.monotonic() - began < 60  # it hangs, or it does not: no measure of speed
    pids = [int(line) for line in (bench.workdir / "pids").read_text().split()]
    assert pids
    assert not [pid for pid in pids if alive(pid)]
    assert marked(bench.session_id) == []


LEAVES = {
    "plain": "sleep 600 & echo $! > pids",
    "setsid": "setsid sleep 600 & echo $! > pids",
    "nohup": "nohup sleep 600 >/dev/null 2>&1 & echo $! > pids",
    "no marker": "env -i sleep 600 & echo $! > pids",
    "a daemon": "(setsid sh -c 'sleep 600 & echo $! > pids' &); while ! [ -s pids ]; do sleep 0.01; done",
}


@pytest.mark.parametrize("command", LEAVES.values(), ids=LEAVES.keys())
def test_what_a_check_leaves_running_is_ended_and_holds_nothing_up(bench: Bench, command: str) -> None:
    began = time.monotonic()
    receipt = one(Run(command), bench)
    assert receipt.passed
    assert time.monotonic() - began < 60  # it hangs, or it does not: no measure of speed
    assert not alive(int((bench.workdir / "pids").read_text()))


HIDES = {
    "own session": "env -i setsid sh -c 'echo $$ > pids; exec sleep 600' & while ! [ -s pids ]; do sleep 0.01; done",
    "its parent has gone": "(env -i setsid sh -c '(sleep 600 & echo $! > pids) &' &); while ! [ -s pids ]; do sleep 0.01; done",
    "deaf": "env -i setsid sh -c 'trap \"\" TERM HUP INT; echo $$ > pids; sleep 600; sleep 600' & while ! [ -s pids ]; do sleep 0.01; done",
    "stopped": "env -i setsid sh -c 'echo $$ > pids; kill -STOP $$' & while ! [ -s pids ]; do sleep 0.01; done",
}


@pytest.mark.parametrize("command", HIDES.values(), ids=HIDES.keys())
def test_a_process_that_has_dropped_the_marker_is_ended_too(bench: Bench, command: str) -> None:
    began = time.monotonic()
    receipt = one(Run(command), bench)
    assert receipt.passed
    assert time.monotonic() - began < 60  # it hangs, or it does not: no measure of speed
    assert not alive(int((bench.workdir / "pids").read_text()))


# --- checks that turn against what runs them --------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "number"), [("KILL", 9), ("TERM", 15), ("HUP", 1), ("INT", 2), ("USR1", 10)]
)
def test_a_check_that_ends_its_parent_has_failed_and_ends_nothing_else(
    bench: Bench, name: str, number: int
) -> None:
    receipt = one(Run(f"echo $$ > pids; kill -{name} $PPID; sleep 600"), bench)
    assert (receipt.passed, receipt.exit, receipt.signal, receipt.timed_out) == (False, None, number, False)
    assert "its supervisor was" in receipt.detail
    assert f"SIG{name}" in receipt.detail
    assert not alive(int((bench.workdir / "pids").read_text()))
    assert marked(bench.session_id) == []
    assert load_receipt(bench.session / "receipts" / "01.json", 1) is not None


def test_what_a_check_started_that_ended_its_parent_is_ended(bench: Bench) -> None:
    receipt = one(Run("setsid sleep 600 & echo $! > pids; kill -9 $PPID"), bench)
    assert receipt.passed is False
    assert not alive(int((bench.workdir / "pids").read_text()))


@pytest.mark.parametrize("command", ["kill -STOP $PPID; sleep 600", "kill -STOP $PPID; kill -STOP $$"])
def test_a_check_that_stops_its_parent_takes_no_longer_than_its_time(bench: Bench, command: str) -> None:
    began = time.monotonic()
    receipt = one(Run(command), replace(bench, timeout=0.7))
    assert (receipt.passed, receipt.timed_out) == (False, True)
    assert time.monotonic() - began < 60  # it hangs, or it does not: no measure of speed
    assert marked(bench.session_id) == []


def test_a_check_begins_with_the_usual_signals_and_no_descriptors_of_ours(bench: Bench) -> None:
    # Into a file and not through a pipe, which would be a descriptor of the shell itself for a moment.
    receipt = one(Run("grep -E 'Sig(Ign|Blk)' /proc/self/status; ls /proc/$$/fd > fds; cat fds"), bench)
    assert (bench.workdir / "fds").read_text().split()[:1] == ["0"]
    # 32 and 33 are the C library's own: posix_spawn has them ignored.
    masks = {"0" * 16, "0000000180000000"}
    assert set(receipt.tail.split()) <= {"SigBlk:", "SigIgn:", "0", "1", "2", "255"} | masks


DAEMON = """
import os, sys, threading
from pathlib import Path
from adapters.session import reap
from daemon.durable import Files
from daemon.kernel.contract import Bench, verify
from daemon.tracks.track import Run
work, session, name, command = sys.argv[1:]
bench = Bench(Path(work), Path(session), name, dict(os.environ), "", (), (), 60.0, Files().publish, reap, threading.Event())
verify([Run(command)], bench)
"""


def daemon(bench: Bench, command: str) -> subprocess.Popen[bytes]:
    """Another process that runs the check, as the daemon does."""
    argv = [str(bench.workdir), str(bench.session), bench.session_id, command]
    return subprocess.Popen([sys.executable, "-c", DAEMON, *argv], cwd=Path(__file__).parents[2])


def test_when_the_daemon_is_killed_its_check_is_ended(bench: Bench) -> None:
    process = daemon(bench, "env -i setsid sh -c 'echo $$ > pids; exec sleep 600'; sleep 600")
    pids = bench.workdir / "pids"
    wait_for(lambda: pids.exists() and pids.read_text(), "the check")
    process.kill()
    process.wait()
    wait_for(
        lambda: not alive(int(pids.read_text())) and marked(bench.session_id) == [], "the end of the check"
    )


def test_a_check_that_ends_the_daemon_again_and_again_has_failed(bench: Bench) -> None:
    command = "echo x >> ran; read -r _ _ _ above _ < /proc/$PPID/stat; kill -9 $above; sleep 600"
    for _ in range(TRIES):
        assert daemon(bench, command).wait() == -9
        wait_for(lambda: marked(bench.session_id) == [], "the end of the check")
    receipt = one(Run(command), bench)
    assert receipt.passed is False
    assert f"the daemon ended {TRIES} times while it ran" in receipt.detail
    assert (bench.workdir / "ran").read_text() == "x\n" * TRIES
    assert one(Run(command), bench).passed is False


@pytest.mark.parametrize(
    "left", [b'{"tries": 1}', b'{"tries": true}', b'{"tries": "many"}', b"[]", b"{", b""]
)
def test_begun_once_or_unreadably_it_is_run(bench: Bench, left: bytes) -> None:
    (bench.session / "receipts" / "01.started").write_bytes(left)
    assert one(Run("true"), bench).passed
    assert [path.name for path in (bench.session / "receipts").iterdir()] == ["01.json"]


def test_output_without_end_fills_no_memory(bench: Bench) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    receipt = one(Run("yes $(printf 'x%.0s' {1..200}) | head -c 400000000; echo the end"), bench)
    assert receipt.passed
    assert receipt.tail.endswith("the end\n")
    assert len(receipt.tail) == TAIL
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # KiB


def test_bytes_that_are_no_text_become_a_receipt(bench: Bench) -> None:
    receipt = one(
        Run("head -c 20000 /dev/urandom; printf '\\xff\\xfe\\x00\\x1b[31m\\xed\\xa0\\x80 end'"), bench
    )
    assert receipt.passed
    assert receipt.tail.endswith(" end")
    assert load_receipt(bench.session / "receipts" / "01.json", 1) == replace(
        receipt, seconds=round(receipt.seconds, 3)
    )


# --- the others -----------------------------------------------------------------------------------------


def tree(workdir: Path, *paths: str) -> None:
    for path in paths:
        (workdir / path).parent.mkdir(parents=True, exist_ok=True)
        (workdir / path).write_text("x")


@pytest.mark.parametrize(
    ("glob", "there"),
    [
        ("a.txt", True),
        ("*.txt", True),
        ("*.TXT", False),
        ("**/*.py", True),
        ("src/**", True),
        ("src/*.py", False),
        ("src/**/c d.py", True),
        ("src/deep", True),
        ("src/deep/", True),
        ("{nothing,a}.txt", True),
        ("{nothing,none}.txt", False),
        (".hidden", True),
        (".h*", True),
        ("**/.env", True),
        ("with space/*", True),
        ("[a].txt", True),
        ("loop/**/*.nothing", False),
        ("**/deep/**/*.nothing", False),
        (".git/HEAD", False),
        (".git/**", False),
        ("*.lock", False),
        ("{1..100000}", False),
        ("[", False),
        ("a" * 5000, False),
    ],
)
def test_exists(bench: Bench, glob: str, there: bool) -> None:
    tree(
        bench.workdir,
        "a.txt",
        "src/deep/c d.py",
        ".hidden",
        "x/.env",
        "with space/b",
        ".git/HEAD",
        ".git/x.lock",
    )
    (bench.workdir / "loop").symlink_to(".")
    (bench.workdir / "src" / "up").symlink_to("..")
    assert one(Exists(glob), bench).passed is there


def test_only_gits_own_files_are_no_work(bench: Bench) -> None:
    tree(bench.workdir, ".git/HEAD")
    assert one(Exists("*"), bench).passed is False
    tree(bench.workdir, ".gitignore")
    assert one(Exists("*"), replace(bench, session=fresh(bench, "two"))).passed


@pytest.mark.parametrize(
    ("glob", "touched"),
    [
        ("docs/**", True),
        ("docs/*", False),
        ("**/*.md", True),
        ("*.md", False),
        ("{src,docs}/**", True),
        ("with space.txt", True),
        (".dot/**", True),
        ("docs", False),
        ("new\nline", True),
        ("\udcff*", True),
        ("{1..100000}", False),
    ],
)
def test_changed(bench: Bench, glob: str, touched: bool) -> None:
    changed = ["docs/a/b.md", "with space.txt", ".dot/x", "new\nline", "\udcff.bin"]
    assert one(Changed(glob), replace(bench, changed=changed)).passed is touched


def test_clean(bench: Bench) -> None:
    assert one(Clean(), bench).passed
    receipt = one(Clean(), replace(bench, uncommitted=["a", "b\n"], session=fresh(bench, "two")))
    assert receipt.passed is False
    assert "2 paths" in receipt.detail


def test_what_nobody_knows_is_not_met(bench: Bench) -> None:
    unknown = replace(bench, uncommitted=None, changed=None)
    assert [receipt.passed for receipt in verify([Clean(), Changed("**")], unknown)] == [False, False]


@pytest.mark.parametrize(
    ("file", "pattern", "found"),
    [
        ("a.md", "round(ing)?", True),
        ("a.md", "^second", True),
        ("a.md", "third", False),
        ("a.md", "-x", True),
        ("-dash", "x", True),
        ("none.md", "x", False),
        ("dir", "x", False),
        ("fifo", "x", False),
        ("bytes", "end", True),
        ("a.md", "ü", True),
    ],
)
def test_contains(bench: Bench, file: str, pattern: str, found: bool) -> None:
    (bench.workdir / "a.md").write_text("rounding\nsecond -x ü\n", encoding="utf-8")
    (bench.workdir / "-dash").write_text("x")
    (bench.workdir / "dir").mkdir()
    os.mkfifo(bench.workdir / "fifo")
    (bench.workdir / "bytes").write_bytes(b"\xff\xfe\x00 end")
    assert one(Contains(file, pattern), bench).passed is found


def test_a_regular_expression_without_end_is_ended_by_the_time_limit(bench: Bench) -> None:
    (bench.workdir / "a").write_text("a" * 40 + "b")
    began = time.monotonic()
    receipt = one(Contains("a", "(a+)+$"), replace(bench, timeout=0.7))
    assert (receipt.passed, receipt.timed_out) == (False, True)
    assert time.monotonic() - began < 60  # it hangs, or it does not: no measure of speed


#: A pattern that takes longer than anybody waits for in a deep tree, or in one long path.
ENDLESS = {"exists": Exists("**/*/" * 9 + "nope"), "changed": Changed("**/a/" * 12 + "b")}


@pytest.fixture
def deep(bench: Bench) -> Bench:
    for number in range(40):
        (bench.workdir / str(number) / "/".join("abcdefghijklmnop")).mkdir(parents=True)
    return replace(bench, changed=["a/" * 40 + "c"])


@pytest.mark.parametrize("check", ENDLESS.values(), ids=ENDLESS.keys())
def test_a_pattern_without_end_is_ended_by_the_time_limit(deep: Bench, check: Check) -> None:
    receipt = one(check, replace(deep, timeout=0.7))
    assert (receipt.passed, receipt.timed_out) == (False, True)
    assert "longer than" in receipt.detail


@pytest.mark.parametrize("check", ENDLESS.values(), ids=ENDLESS.keys())
def test_a_pattern_without_end_is_ended_when_it_is_cancelled(deep: Bench, check: Check) -> None:
    threading.Timer(0.5, deep.cancelled.set).start()
    with pytest.raises(Cancelled):
        one(check, deep)
    assert list((deep.session / "receipts").iterdir()) == []


def test_a_pattern_is_looked_for_by_this_python_alone(bench: Bench) -> None:
    (bench.workdir / "wcmatch.py").write_text("import sys; sys.exit(0)")
    env = {"PATH": "/nowhere", "PYTHONPATH": str(bench.workdir)}
    receipts = verify([Exists("*.none"), Changed("*.none")], replace(bench, env=env, changed=["a", "b"]))
    assert [receipt.detail for receipt in receipts] == [
        "nothing matches",
        "files changed: 2, none of them matches",
    ]
    assert [receipt.exit for receipt in receipts] == [None, None]


def test_a_pattern_that_is_none_says_what_is_wrong(bench: Bench) -> None:
    receipt = one(Exists("{1..100000}"), bench)
    assert receipt.passed is False
    assert receipt.detail.startswith("it could not be looked for: ")
    assert "limit" in receipt.detail.lower()


def test_prose_is_not_judged_and_leaves_no_receipt(bench: Bench) -> None:
    assert one(Prose("it is nice"), bench).passed is None
    assert list((bench.session / "receipts").iterdir()) == []


# --- all of them ----------------------------------------------------------------------------------------


def test_clean_is_judged_first_and_the_order_is_that_of_the_contract(bench: Bench) -> None:
    order: list[str] = []

    def publish(path: Path, data: bytes, *, mode: int = 0o600) -> None:
        order.append(path.name)
        Files().publish(path, data, mode=mode)

    receipts = verify([Run("true"), Prose("nice"), Clean(), Run("false")], replace(bench, publish=publish))
    assert [receipt.number for receipt in receipts] == [1, 2, 3, 4]
    assert [receipt.passed for receipt in receipts] == [True, None, True, False]
    assert order == ["03.json", "01.started", "01.json", "04.started", "04.json"]


def test_a_receipt_that_is_there_is_not_made_again(bench: Bench) -> None:
    checks: Sequence[Check] = [Run("echo x >> ran"), Run("echo y >> ran")]
    first = verify(checks, bench)
    (bench.session / "receipts" / "02.json").write_bytes(b'{"passed": tr')  # torn by a crash: made again
    second = verify(checks, bench)
    assert (bench.workdir / "ran").read_text() == "x\ny\ny\n"
    assert [receipt.passed for receipt in second] == [receipt.passed for receipt in first]


def test_a_receipt_of_another_contract_says_nothing(bench: Bench) -> None:
    verify([Run("true")], bench)
    (receipt,) = verify([Run("false")], bench)
    assert receipt.passed is False


def test_what_is_left_of_an_earlier_try_does_not_work_beside_the_next(bench: Bench) -> None:
    """The daemon and what ended its checks were both killed."""
    script = "trap '' TERM; echo $$ > pid; sleep 600; sleep 600"
    env = {**bench.env, "MEGAHARNESS_SESSION": bench.session_id}
    left = subprocess.Popen(["bash", "-c", script], cwd=bench.workdir, env=env, start_new_session=True)
    wait_for(lambda: (bench.workdir / "pid").exists() and (bench.workdir / "pid").read_text(), "the old one")
    (bench.session / "receipts" / "01.started").write_text('{"tries": 1}')
    threading.Thread(target=left.wait, daemon=True).start()
    assert one(Run("! kill -0 $(cat pid)"), bench).passed


def test_a_supervisor_that_the_system_kills_costs_no_verdict(bench: Bench) -> None:
    receipt = one(Run("echo x >> ran; [ $(wc -l < ran) = 2 ] || { kill -9 $PPID; sleep 600; }"), bench)
    assert receipt.passed
    assert (bench.workdir / "ran").read_text() == "x\nx\n"


def test_one_that_is_killed_twice_may_have_been_the_system(bench: Bench) -> None:
    receipt = one(Run("echo x >> ran; kill -9 $PPID; sleep 600"), bench)
    assert receipt.passed is False
    assert (bench.workdir / "ran").read_text() == "x\nx\n"
    assert "killed twice" in receipt.detail
    assert "by the system" in receipt.detail


@pytest.mark.parametrize(
    "command", ["sleep 600", "setsid sleep 600; true", "yes", "trap '' TERM; sleep 600; sleep 600"]
)
def test_cancelling_ends_the_check_and_leaves_no_receipt(bench: Bench, command: str) -> None:
    raised: list[BaseException] = []

    def work() -> None:
        try:
            verify([Run("true"), Run(command), Run("touch never")], bench)
        except Cancelled as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    wait_for(
        lambda: (bench.session / "receipts" / "01.json").exists() and marked(bench.session_id),
        "the second check",
    )
    bench.cancelled.set()
    thread.join(10)
    assert not thread.is_alive()
    assert len(raised) == 1
    assert marked(bench.session_id) == []
    assert [path.name for path in (bench.session / "receipts").iterdir()] == ["01.json"]
    assert not (bench.workdir / "never").exists()


def test_cancelled_before_it_began_runs_nothing(bench: Bench) -> None:
    bench.cancelled.set()
    with pytest.raises(Cancelled):
        verify([Run("touch never")], bench)
    assert not (bench.workdir / "never").exists()


def test_every_check_leaves_no_descriptor_behind(bench: Bench) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    one(Run("true"), bench)
    before = count()
    for number in range(5):
        one(Run("sleep 600 & true"), replace(bench, session=fresh(bench, f"s{number}")))
    assert count() == before


def test_this_python_is_what_searches(bench: Bench) -> None:
    """`contains` must not depend on a python that the check's PATH happens to have."""
    (bench.workdir / "a").write_text("x")
    assert Path(sys.executable).is_absolute()
    assert one(Contains("a", "x"), replace(bench, env={"PATH": "/nowhere"})).passed


# --- something else stands where a receipt belongs ----------------------------------------------------------


def test_a_receipt_that_cannot_be_kept_is_still_a_verdict(bench: Bench) -> None:
    def publish(path: Path, data: bytes, *, mode: int = 0o600) -> None:
        if path.suffix == ".json":
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        Files().publish(path, data, mode=mode)

    good, bad = verify([Run("true"), Run("exit 3")], replace(bench, publish=publish))
    assert good.passed
    assert "could not be kept" in good.detail
    assert bad.passed is False
    assert bad.detail.startswith("exit 3; its receipt could not be kept")


def test_a_check_whose_begin_cannot_be_kept_is_not_run(bench: Bench) -> None:
    def publish(path: Path, data: bytes, *, mode: int = 0o600) -> None:
        if path.suffix == ".started":
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        Files().publish(path, data, mode=mode)

    receipt = one(Run("touch never"), replace(bench, publish=publish))
    assert receipt.passed is False
    assert "could not be kept" in receipt.detail
    assert not (bench.workdir / "never").exists()


def test_without_a_directory_for_receipts_everything_is_judged(bench: Bench) -> None:
    (bench.session / "receipts").rmdir()
    (bench.session / "receipts").write_text("a file")
    ran, there = verify([Run("true"), Exists("*")], bench)
    assert (ran.passed, there.passed) == (False, False)
    assert "could not be kept" in ran.detail


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT])
def test_a_disk_that_takes_nothing_is_no_verdict(bench: Bench, number: int) -> None:
    def publish(path: Path, data: bytes, *, mode: int = 0o600) -> None:
        raise OSError(number, os.strerror(number), str(path))

    for check in (Run("true"), Exists("*")):
        with pytest.raises(OSError) as raised:
            verify([check], replace(bench, publish=publish))
        assert raised.value.errno == number


@pytest.mark.parametrize(
    "left",
    [
        b"{}",
        b"[]",
        b'{"passed": "yes"}',
        b'{"passed": null}',
        b'{"passed": 1}',
        b'{"passed": true, "seconds": "long", "exit": [], "signal": {}, "tail": 7, "detail": null}',
        b'{"passed": true, "seconds": NaN}',
        b'{"passed": true, "seconds": 1e999}',
    ],
)
def test_garbage_in_a_receipt_is_made_again_or_read_past(bench: Bench, left: bytes) -> None:
    (bench.session / "receipts" / "01.json").write_bytes(left)
    receipt = one(Run("true"), bench)
    assert (receipt.passed, receipt.signal) == (True, None)
    assert 0 <= receipt.seconds < 20
