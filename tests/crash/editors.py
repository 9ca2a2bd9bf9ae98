"""Real editors and sync programs in the crash world: they have the file open, and save at a chosen operation.

The editor is a process of its own. A save that the daemon's lease keeps waiting is waited for by nobody: the world
goes on, and looks at each further operation whether the editor has come on.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from daemon.errors import DocumentError
from tests.crash.world import REAL, Life, Mutant, World, check

State = Literal["busy", "blocked", "saved", "failed"]
Opening = Literal["queued", "active", "requeued", "then"]

#: Seconds in which an editor that nothing keeps waiting must have saved.
HANGS = 20.0
#: Seconds after which one counts as kept waiting, where the kernel does not tell.
SLOW = 0.5
#: Points or steps for which some hold the file open before they write on.
HOLDS = 15
#: Steps after which an editor that keeps the daemon from its file saves: the chosen operation does not come.
STEPS = 40


class Editor(ABC):
    """One program with one file open. `home`: a directory of its own, outside the tracks."""

    def __init__(self, path: Path, home: Path) -> None:
        self.path = path
        self.home = home
        self.began = 0.0
        #: A lease of the daemon has kept it waiting.
        self.leased = False
        self.process = self.open()

    @abstractmethod
    def open(self) -> subprocess.Popen[bytes]:
        """Start it; the file has been read when this returns."""

    @abstractmethod
    def save(self, word: str) -> None:
        """Type a line at the end and begin to save."""

    @abstractmethod
    def ended(self) -> bool | None:
        """Whether the save succeeded; None: it goes on."""

    def go_on(self) -> bool:
        """Do what comes after a pause in the middle of a save; False: there is none."""
        return False

    def state(self) -> State:
        if (well := self.ended()) is not None:
            return "saved" if well else "failed"
        try:
            where = Path(f"/proc/{self.process.pid}/wchan").read_text()
        except OSError:
            where = ""
        if "break_lease" in where:
            self.leased = True
            return "blocked"
        if where in ("", "0") and time.monotonic() - self.began > SLOW:
            return "blocked"
        return "busy"

    def close(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def _until(condition: Callable[[], object], what: str) -> None:
    until = time.monotonic() + HANGS
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"waited for {what}")
        time.sleep(0.001)


class Terminal(Editor):
    """Typed into through a terminal, as a person does."""

    #: Typed in front of the word, and after it to save; the answer to a question; and to leave.
    keys: tuple[bytes, bytes, bytes] = (b"", b"", b"")
    done, question, refused = rb"", rb"", rb""

    @abstractmethod
    def argv(self) -> list[str]: ...

    def open(self) -> subprocess.Popen[bytes]:
        self._terminal, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 400, 0, 0))
        self._shown = b""
        process = subprocess.Popen(
            self.argv(),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={"PATH": os.environ["PATH"], "TERM": "linux", "HOME": str(self.home), "LANG": "C.UTF-8"},
            start_new_session=True,
        )
        os.close(theirs)
        _until(lambda: self._shows(rb"harness_id"), str(self.argv()))
        return process

    def save(self, word: str) -> None:
        before, after, _ = self.keys
        self._shown, self._asked = b"", False
        os.write(self._terminal, before + word.encode() + after)

    def ended(self) -> bool | None:
        if self._shows(self.done):
            os.write(self._terminal, self.keys[2])
            return True
        if not self._asked and self._shows(self.question):
            self._asked = True
            os.write(self._terminal, b"y")
        return False if self._shows(self.refused) else None

    def close(self) -> None:
        super().close()
        os.close(self._terminal)

    def _shows(self, pattern: bytes) -> bool:
        while select.select([self._terminal], [], [], 0)[0]:
            try:
                self._shown += os.read(self._terminal, 1 << 16)
            except OSError:  # it has ended
                break
        return re.search(pattern, self._shown) is not None


class Vim(Terminal):
    """`:set` options decide how it writes: into the file, or a new one after a rename."""

    settings = "backupcopy=auto writebackup"
    swap = False
    keys = (b"Go", b"\x1b:w!\r", b"\r:qa!\r")
    done, question, refused = rb"written", rb"\(y/n\)", rb"E[0-9]+:"

    def argv(self) -> list[str]:
        no_swap = [] if self.swap else ["-n"]
        return [
            "vim",
            "-u",
            "NONE",
            "-i",
            "NONE",
            "-N",
            *no_swap,
            "-c",
            f"set {self.settings}",
            str(self.path),
        ]


class VimInto(Vim):
    settings = "backupcopy=yes writebackup"


class VimIntoBare(Vim):
    settings = "backupcopy=yes nowritebackup"


class VimRenames(Vim):
    settings = "backupcopy=no writebackup"


class VimAutoBare(Vim):
    settings = "backupcopy=auto nowritebackup"


class VimSwap(Vim):
    """With its swap file, which is a lock: while it lies there nothing is taken."""

    swap = True


class Nano(Terminal):
    keys = (b"\x1b/", b"\n\x0f\r", b"\x18")
    done, question, refused = (
        rb"Wrote [0-9]+ lines?",
        rb"continue saving|OVERWRITE",
        rb"Error writing|Cancelled",
    )

    def argv(self) -> list[str]:
        return ["nano", "-I", str(self.path)]


class Script(Editor):
    """A shell script that has read the file ($2: with the new line in it) and writes it to $1 when told to."""

    script = ""

    def open(self) -> subprocess.Popen[bytes]:
        self._buffer = self.path.read_bytes()
        return subprocess.Popen(
            ["sh", "-c", f"read word; {self.script}", "sh", str(self.path), str(self.home / "buffer.md")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def save(self, word: str) -> None:
        (self.home / "buffer.md").write_bytes(self._buffer + f"\n{word}\n".encode())
        self._say(word)

    def ended(self) -> bool | None:
        code = self.process.poll()
        return None if code is None else code == 0

    def state(self) -> State:
        found = super().state()
        if found != "busy" or (self.home / "pause").exists():
            return "blocked" if found == "busy" else found
        # What the script calls waits in its place.
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        with contextlib.suppress(OSError):
            for child in self._below(children.read_text().split()):
                if "break_lease" in Path(f"/proc/{child}/wchan").read_text():
                    self.leased = True
                    return "blocked"
        return found

    def _below(self, pids: Sequence[str]) -> list[str]:
        found = list(pids)
        for pid in pids:
            with contextlib.suppress(OSError):
                found += self._below(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return found

    def _say(self, line: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{line}\n".encode())
            self.process.stdin.flush()


class Sed(Script):
    script = 'exec sed -i "\\$a $word" "$1"'


class Rsync(Script):
    script = 'exec rsync "$2" "$1"'


class RsyncInPlace(Script):
    script = 'exec rsync --inplace "$2" "$1"'


class Syncthing(Script):
    script = 'set -e; temp="${1%/*}/.syncthing.${1##*/}.tmp"; cp "$2" "$temp"; exec mv -f "$temp" "$1"'


class _Pausing(Script):
    def go_on(self) -> bool:
        pause = self.home / "pause"
        if not pause.exists():
            return False
        pause.unlink()
        self._say("on")
        return True


class Holder(_Pausing):
    """Opens the file to append, and writes much later."""

    script = 'set -e; exec 3>>"$1"; : >"${2%/*}/pause"; read on; printf "\\n%s\\n" "$word" >&3'


class Slow(_Pausing):
    """Truncates the file, writes a half, and later the other one."""

    script = (
        'set -e; half=$(($(wc -c <"$2") / 2)); exec 3>"$1"; head -c "$half" "$2" >&3; : >"${2%/*}/pause"; '
        'read on; tail -c +"$((half + 1))" "$2" >&3'
    )


def _lacks_result(line: str) -> bool:
    return "its result stands 0 times" in line or "its block says None" in line


EDITORS: tuple[type[Editor], ...] = (
    VimInto,
    VimIntoBare,
    VimRenames,
    Vim,
    VimAutoBare,
    VimSwap,
    Nano,
    Sed,
    Rsync,
    RsyncInPlace,
    Syncthing,
    Holder,
    Slow,
)


@dataclass(frozen=True)
class Plan:
    """Which program, and when it opens the file: as soon as it lies there, or (`then`) when it is told to save."""

    editor: type[Editor]
    opening: Opening

    def __str__(self) -> str:
        return f"{self.editor.__name__}, opened {self.opening}"


class Desk(World):
    """A world in which one real editor is at work on `stem`.md."""

    def __init__(self, root: Path, life: Life, stem: str, plan: Plan, mutant: Mutant = REAL) -> None:
        self.stem, self.plan = stem, plan
        self.word = f"typed into {stem}"
        self.editor: Editor | None = None
        self.opened_at: int | None = None
        self.told = False
        self.settled: State | None = None
        self.made_again = False
        self.kept_waiting = False
        self.over_the_move = False
        self._there = self._gone = False
        self._wait = 0
        self._steps = 0
        self._home = root.parent / "desk"
        self._home.mkdir()
        super().__init__(root, life, mutant)

    # the person

    def strike(self) -> None:
        """Save now."""
        if self.told:
            return
        if self.editor is None:
            self._open()
        if self.editor is None:
            return  # the file lies nowhere at this moment
        self.told = True
        self._there = self.exists(f"active/{self.stem}.md")
        self.made_again = self.editor.path.parent.name == "queued" and not self.editor.path.exists()
        self.queued.pop(self.editor.path.name, None)
        self.editor.began = time.monotonic()
        self.editor.save(self.word)
        self._wait = HOLDS
        self._tend()

    def on_point(self) -> None:
        super().on_point()
        if self.editor is None and not self.told and self._comes():
            self._open()
        if self.told and self.settled is None:
            if self._wait > 0:
                self._wait -= 1
            elif self.editor is not None and self.editor.go_on():
                self.editor.began = time.monotonic()
            self._tend()

    def _comes(self) -> bool:
        match self.plan.opening:
            case "then":
                return False
            case "requeued":
                return not self.deeds and self.exists(f"queued/{self.stem}.md")
        return self.exists(f"{self.plan.opening}/{self.stem}.md")

    def _open(self) -> None:
        for state in ("queued", "active", "done", "failed"):
            path = self.workspace.tracks / state / f"{self.stem}.md"
            if path.exists():
                self.editor = self.plan.editor(path, self._home)
                return

    def _tend(self) -> None:
        """Until the editor has saved, or something keeps it waiting."""
        assert self.editor is not None
        until = time.monotonic() + HANGS
        while (state := self.editor.state()) == "busy":
            if time.monotonic() > until:
                self.faults.append(f"{self.plan} hangs")
                state = "failed"
                break
            time.sleep(0.0005)
        if state == "blocked":
            self.kept_waiting |= self.editor.leased
            return
        self.settled = state
        self._gone = not self.exists(f"active/{self.stem}.md")
        if state == "saved":
            self.words.append((self.stem, self.word))
            self.saves[self.stem] += 1
        self.editor.close()

    # the world

    def step(self) -> None:
        self._steps += 1
        if not self.told and self._steps > STEPS:
            self.strike()
        super().step()

    def idle(self) -> bool:
        return super().idle() and not (self.told and self.settled is None)

    def _over_the_move(self) -> bool:
        """Whether a text from before the result was written over it while the file was moved to done/.

        Who holds the file open at that moment has the last word in it. The result stands in the session.
        """
        data = (self.workspace.done / f"{self.stem}.md").read_bytes()
        results = [
            path.read_bytes().strip() for path in self.workspace.sessions.glob(f"{self.stem}-*/result.md")
        ]
        return (
            self.settled == "saved"
            and self._there
            and self._gone
            and self.word.encode() in data
            and len(results) == self.life.expect[f"done/{self.stem}.md"]
            and all(results)
        )

    def close(self) -> None:
        if self.editor is not None and self.settled is None:
            self.editor.process.kill()
            self.editor.close()

    def wrong(self) -> list[str]:
        """What does not hold. A text that was saved to queued/ after it had been taken may be run once more."""
        if self.editor is not None and self.told and self.settled is None:
            self.faults.append(f"{self.plan} was never let go on")
        ran = sum(session.startswith(f"{self.stem}-") for session in self.stage.runs)
        place = f"done/{self.stem}.md"
        if self.made_again and ran == self.life.expect[place] + 1:
            self.life = replace(self.life, expect={**self.life.expect, place: ran})
        try:
            found = check(self)
            if any(map(_lacks_result, found)) and self._over_the_move():
                self.over_the_move = True
                found = [line for line in found if not _lacks_result(line)]
            return found
        except DocumentError as error:
            return [*self.faults, f"lost: half of a file is left: {error}"]
