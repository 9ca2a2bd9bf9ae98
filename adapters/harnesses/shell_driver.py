"""Runs the code blocks of a Markdown file, one after the other.

    python -I -S shell_driver.py BRIEF.md

A block is a fence with three or more backticks or tildes, as CommonMark
defines it, whose first word is a key of `LANGUAGES`. Everything else is text,
also blocks inside an HTML comment, a quotation or a longer fence. Each block
is written to ``blocks/`` beside the brief, byte for byte, and its interpreter
gets that path: no code passes through another shell's quoting.

The first block that fails is the last, and its end is ours: the same exit
code, or death by the same signal. Blocks share the directory and nothing
else, neither variables nor ``cd``.

Standard library only, so that it starts under ``-I -S`` whatever the
environment of the work directory is.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# A script of Python has its own directory as the first place of imports; a
# block is meant to run in the work directory, as `python -c` does.
_PYTHON = (
    "import sys; __file__ = sys.argv.pop(1); exec(compile(open(__file__, 'rb').read(), __file__, 'exec'))"
)

LANGUAGES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # first word of the fence: programs of which the first installed one is taken, its arguments
    "sh": (("sh",), ()),
    "shell": (("sh",), ()),
    "bash": (("bash",), ()),
    "python": (("python3", "python"), ("-u", "-c", _PYTHON)),
    "python3": (("python3", "python"), ("-u", "-c", _PYTHON)),
}

# The rest of a line after backticks holds no backtick: that would be inline code.
_FENCE = re.compile(rb"( *)(`{3,}(?=[^`]*$)|~{3,})[ \t]*([^\s{]*)")


class Unusable(Exception):
    """The brief cannot be run as it is. Has the line, counted from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


@dataclass(frozen=True, slots=True)
class Block:
    """One block: the first word of its fence, its code, the line of its fence (from 1)."""

    language: str
    code: bytes
    line: int

    @property
    def runnable(self) -> bool:
        return self.language in LANGUAGES


def blocks(brief: bytes) -> list[Block]:
    """All fenced blocks in order, also those that are not run. Raises `Unusable`."""
    lines = brief.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    found: list[Block] = []
    at = 0
    while at < len(lines):
        line = lines[at].rstrip(b"\r")
        at += 1
        if re.match(rb" {0,3}<!--", line):
            while b"-->" not in line and at < len(lines):
                line = lines[at]
                at += 1
            continue
        fence = _FENCE.match(line.expandtabs(4))
        if fence is None:
            continue
        indent, mark, word = len(fence[1]), fence[2], fence[3].decode("utf-8", "replace").lower()
        if indent > 3:
            # Code that shows a fence, or a fence in a list? Running the first
            # and skipping the second are both wrong, so nothing is guessed.
            if word in LANGUAGES:
                raise Unusable(at, f"this ```{word} block is indented by {indent}; at most 3 spaces, please")
            continue
        opened = at
        close = re.compile(rb" {0,3}" + re.escape(mark) + re.escape(mark[:1]) + rb"*[ \t]*\r?$")
        code: list[bytes] = []
        while at < len(lines) and not close.match(lines[at]):
            code.append(_body(lines[at], indent, crlf=lines[opened - 1].endswith(b"\r")))
            at += 1
        if at == len(lines) and word in LANGUAGES:
            raise Unusable(opened, f"this ```{word} block is never closed")
        at += 1
        found.append(Block(word, b"".join(each + b"\n" for each in code), opened))
    return found


def _body(line: bytes, indent: int, *, crlf: bool) -> bytes:
    if crlf:
        line = line.removesuffix(b"\r")
    leading = len(line) - len(line.lstrip(b" "))
    return line[min(indent, leading) :]


def command(block: Block, file: Path) -> list[str]:
    """The interpreter's argv for a block saved as `file`. FileNotFoundError: none is installed."""
    programs, arguments = LANGUAGES[block.language]
    for program in programs:
        found = shutil.which(program)
        if found:
            return [found, *arguments, str(file)]
    raise FileNotFoundError(f"{' or '.join(programs)} is not installed here")


class Stop:
    """Remembers that we were told to end, so that no further block is begun."""

    signal: int | None = None

    def __call__(self, number: int, _frame: object) -> None:
        self.signal = number


def run(brief: Path) -> int:
    """Run the blocks; the exit status of the one that failed, negative for a signal, else 0."""
    stop = Stop()
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, stop)
    runnable = [block for block in blocks(brief.read_bytes()) if block.runnable]
    if not runnable:
        print(f"no block to run in {brief}", file=sys.stderr, flush=True)
        return 2
    folder = brief.parent / "blocks"
    folder.mkdir(exist_ok=True)
    for number, block in enumerate(runnable, 1):
        if stop.signal is not None:
            return -stop.signal
        where = f"block {number} of {len(runnable)} ({block.language})"
        print(f"$ {where}", file=sys.stderr, flush=True)
        file = folder / f"{number}.{'py' if block.language.startswith('python') else 'sh'}"
        file.write_bytes(block.code)
        try:
            argv = command(block, file)
        except FileNotFoundError as missing:
            print(f"{where}: {missing}", file=sys.stderr, flush=True)
            return 127
        status = subprocess.Popen(argv, stdin=subprocess.DEVNULL).wait()
        if status:
            ended = f"signal {-status}" if status < 0 else f"exit {status}"
            print(f"{where} failed: {ended}", file=sys.stderr, flush=True)
            return status
    return -stop.signal if stop.signal is not None else 0


def end(status: int) -> None:
    """End as the block did: a signal is passed on as death by that signal."""
    if status >= 0:
        sys.exit(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if -status not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
    sys.exit(128 - status)  # only for a signal whose default is not death


if __name__ == "__main__":
    end(run(Path(sys.argv[1])))
