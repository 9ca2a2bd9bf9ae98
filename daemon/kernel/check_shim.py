"""Run one check's command, say how it ended, and end whatever it leaves running.

Started as ``python -I -S check_shim.py <descriptor> <command> ...``, in a
session of its own: standard library only, nothing of ours can be imported.
It stands between the daemon and the command, so that ``$PPID`` in a check
is not the daemon, and it is the subreaper of the command's tree, so that
nothing escapes by a cleared environment or a session of its own.

On the descriptor, a pipe to the daemon, it writes one line as soon as the
command has ended: ``exit N``, ``signal N`` or ``failed WORDS``. When the
other end of the pipe is closed, the daemon is gone and the tree is ended.
"""

import ctypes
import os
import select
import signal
import sys
import time

TERM_S = 2.0
KILL_S = 3.0
PR_SET_CHILD_SUBREAPER = 36
#: What tells it to end. Handled, not ignored: a handler is not inherited by the command.
TOLD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def stat_of(pid: int) -> tuple[int, int] | None:
    """(parent, start ticks)."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.readall().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return int(fields[1]), int(fields[19])


def tree() -> dict[int, int]:
    """Everything under us: pid -> start ticks."""
    starts: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (facts := stat_of(int(name))):
            children.setdefault(facts[0], []).append(int(name))
            starts[int(name)] = facts[1]
    found: dict[int, int] = {}
    queue = [os.getpid()]
    while queue:
        for pid in children.pop(queue.pop(), ()):
            found[pid] = starts[pid]
            queue.append(pid)
    return found


def send(pid: int, start: int, number: int) -> None:
    """Signal that very process, or nobody."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # The descriptor first, then the look: what it names cannot change any more.
        facts = stat_of(pid)
        if facts is not None and facts[1] == start:
            signal.pidfd_send_signal(fd, number)
    except (ProcessLookupError, PermissionError):
        pass  # it ended, or became another user's
    finally:
        os.close(fd)


class Shim:
    def __init__(self, report: int) -> None:
        self.report = report
        self.told = 0
        self.child = 0
        self.status: int | None = None
        self.wake, wake = os.pipe()
        for fd in (self.wake, wake):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for number in TOLD:
            signal.signal(number, self.tell)

    def tell(self, number: int, frame: object) -> None:
        self.told = number

    def say(self, words: str) -> None:
        try:
            os.write(self.report, words.encode("utf-8", "backslashreplace") + b"\n")
        except BrokenPipeError:
            pass  # the daemon is gone

    def reap(self) -> bool:
        """Take in what has ended. Whether any of the tree is left: its orphans come to us, so then we have a child."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.child:
                self.status = status

    def run(self, command: list[str]) -> bool:
        """Whether it came to an end of its own, of which the daemon knows now."""
        usual = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
        try:
            self.child = os.posix_spawnp(
                command[0], command, os.environ, setpgroup=0, setsigmask=(), setsigdef=usual
            )
        except OSError as error:
            self.say(f"failed {error.strerror}: {command[0]}")
            return True
        ends = select.poll()
        ends.register(self.wake, select.POLLIN)
        ends.register(self.report, 0)  # only that its other end was closed
        while not self.told:
            self.reap()
            if self.status is not None:
                code = os.waitstatus_to_exitcode(self.status)
                self.say(f"exit {code}" if code >= 0 else f"signal {-code}")
                return True
            for fd, _ in ends.poll():
                if fd == self.report:
                    return False
                try:
                    os.read(self.wake, 512)
                except BlockingIOError:
                    pass
        return False

    def sweep(self) -> None:
        """TERM once for each process, KILL after a short grace."""
        patient = time.monotonic() + TERM_S
        asked: set[tuple[int, int]] = set()
        while self.reap() and (now := time.monotonic()) < patient + KILL_S:
            for process in tree().items():
                if now >= patient:
                    send(*process, signal.SIGKILL)
                elif process not in asked:
                    send(*process, signal.SIGTERM)
                    asked.add(process)
            time.sleep(0.02)


def main() -> None:
    report = int(sys.argv[1])
    os.set_inheritable(report, False)
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    shim = Shim(report)
    ended = shim.run(sys.argv[2:])
    shim.sweep()
    if shim.told and not ended:
        # As any program that was told to end, so that the daemon sees by what.
        signal.signal(shim.told, signal.SIG_DFL)
        os.kill(os.getpid(), shim.told)


if __name__ == "__main__":
    main()
