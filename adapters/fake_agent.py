"""The program behind the harness `fake`: an agent that does what its brief says, to the letter.

    python -I -S fake_agent.py

It speaks the way stream-JSON agents do. Standard input: one JSON object a
line, ``{"type": "user", "text": ...}``; the first is the brief. Standard
output: ``{"type": "say", "text": ...}`` and at the end of each turn
``{"type": "result", ...}``. When standard input ends it exits with 0.

A turn carries out the directives of the text's last ```fake block, one a line
(a brief holds the task and what was replied to it; what was said last counts);
a message without such a block is answered by ``got: <text>``. Messages that
arrive during a turn are answered at the next directive that listens.
`Agent` has one method for each directive, and its docstring is the reference.

Standard library only; it runs under ``-I -S``.
"""

from __future__ import annotations

import json
import os
import queue
import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

TURN_END = r'^\{"type": "result"'

_BLOCK = re.compile(r"^```fake[ \t]*\r?\n(.*?)^```[ \t]*\r?$", re.DOTALL | re.MULTILINE)


def directives(text: str) -> list[str] | None:
    """The lines of the last ```fake block; None if there is none."""
    blocks = _BLOCK.findall(text)
    if not blocks:
        return None
    return [line for raw in blocks[-1].split("\n") if (line := raw.strip()) and not line.startswith("#")]


class Agent:
    """Has one method for each directive; the words after it are its arguments."""

    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.text = ""
        self.said = ""
        self.result_text: str | None = None
        self.usage_: dict[str, float] = {}
        self.end_: dict[str, str] = {}
        self.turns = 0
        self.input_ended = False

    # -- directives ---------------------------------------------------------

    def do_say(self, rest: str) -> None:
        """say TEXT: one message in the stream."""
        self.said = rest
        self.emit({"type": "say", "text": rest})

    def do_result(self, rest: str) -> None:
        """result TEXT: what the turn ends with; true or not. Without it: the last thing said."""
        self.result_text = rest

    def do_usage(self, rest: str) -> None:
        """usage INPUT OUTPUT [USD]: tokens and money that the result reports."""
        names = ("input_tokens", "output_tokens", "cost_usd")
        numbers = (float(each) if "." in each else int(each) for each in rest.split())
        self.usage_ = dict(zip(names, numbers, strict=False))

    def do_end(self, rest: str) -> None:
        """end KIND [CODE]: the result reports this termination, such as ``limit five_hour``."""
        kind, _, code = rest.partition(" ")
        self.end_ = {"kind": kind, "code": code}

    def do_ask(self, rest: str) -> NoReturn:
        """ask TEXT: says the question and ends, as an agent does that needs a person."""
        self.do_say(rest)
        self.finish_turn()
        sys.exit(0)

    def do_print(self, rest: str) -> None:
        """print TEXT: a line on standard output that is no JSON."""
        self.write(rest.encode() + b"\n")

    def do_err(self, rest: str) -> None:
        """err TEXT: a line on standard error."""
        print(rest, file=sys.stderr, flush=True)

    def do_lines(self, rest: str) -> None:
        """lines N [SECONDS]: N messages with that pause between them."""
        count, _, pause = rest.partition(" ")
        for number in range(1, int(count) + 1):
            self.do_say(f"line {number} of {count}")
            if pause:
                self.do_sleep(pause)

    def do_huge(self, rest: str) -> None:
        """huge N: one message of N characters."""
        self.do_say("x" * int(rest))

    def do_garbage(self, rest: str) -> None:
        """garbage N: N bytes of anything, control sequences among them, the same each time."""
        noise = random.Random(int(rest)).randbytes(int(rest))
        self.write(b"\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b(0\xff\xfe\xc3" + noise + b"\n")

    def do_sleep(self, rest: str) -> None:
        """sleep SECONDS: silent, but it answers messages."""
        until = time.monotonic() + float(rest)
        while (left := until - time.monotonic()) > 0:
            try:
                self.answer(self.messages.get(timeout=left))
            except queue.Empty:
                return
            if self.input_ended:
                time.sleep(max(0.0, until - time.monotonic()))

    def do_read(self, rest: str) -> None:
        """read: waits for the next message and answers it."""
        if not self.input_ended:
            self.answer(self.messages.get())

    def do_hang(self, rest: str) -> None:
        """hang: for ever, and deaf."""
        while True:
            time.sleep(3600)

    def do_busy(self, rest: str) -> None:
        """busy SECONDS: silent, but it uses the processor."""
        until = time.monotonic() + float(rest)
        while time.monotonic() < until:
            pass

    def do_ignore(self, rest: str) -> None:
        """ignore INT TERM ...: these signals do nothing to it from here on."""
        for name in rest.split():
            signal.signal(signal.Signals[f"SIG{name}"], signal.SIG_IGN)

    def do_spawn(self, rest: str) -> None:
        """spawn KIND SECONDS: leaves a process behind: plain, nohup, setsid, double, bare, stubborn.

        double: its parent is gone. bare: a session of its own and an empty
        environment. stubborn: ignores every signal that can be ignored.
        """
        kind, _, seconds = rest.partition(" ")
        nap = ["sleep", str(float(seconds))]
        match kind:
            case "plain":
                subprocess.Popen(nap)
            case "nohup":
                subprocess.Popen(["nohup", *nap], stderr=subprocess.DEVNULL)
            case "setsid":
                subprocess.Popen(nap, start_new_session=True)
            case "double":
                subprocess.Popen(["sh", "-c", '"$@" &', "sh", *nap]).wait()
            case "bare":
                subprocess.Popen(["/bin/sleep", nap[1]], start_new_session=True, env={})
            case "stubborn":
                trap = "trap '' INT TERM HUP QUIT; \"$@\"; exit"
                subprocess.Popen(["sh", "-c", trap, "sh", *nap], start_new_session=True)
            case _:
                raise ValueError(f"spawn {kind!r}: one of plain, nohup, setsid, double, bare, stubborn")

    def do_write(self, rest: str) -> None:
        """write PATH TEXT: a file in the work directory."""
        path, _, text = rest.partition(" ")
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text + "\n", encoding="utf-8")

    def do_append(self, rest: str) -> None:
        """append PATH TEXT: one line more in a file of the work directory."""
        path, _, text = rest.partition(" ")
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text + "\n")

    def do_keep(self, rest: str) -> None:
        """keep PATH: writes the text of this turn there, byte for byte as it came."""
        Path(rest).write_bytes(self.text.encode("utf-8", "surrogateescape"))

    def do_exit(self, rest: str) -> NoReturn:
        """exit CODE: at once, without a result."""
        os._exit(int(rest))

    def do_signal(self, rest: str) -> None:
        """signal NUMBER: sends it to itself."""
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), int(rest))

    # -- turns --------------------------------------------------------------

    def live(self) -> None:
        """Turn after turn, until standard input ends."""
        threading.Thread(target=self.listen, daemon=True).start()
        while not self.input_ended:
            message = self.messages.get()
            if message is None:
                self.input_ended = True
            else:
                self.turn(message)

    def listen(self) -> None:
        # Not sys.stdin: at exit the interpreter would wait for the lock that its reader holds.
        pending = bytearray()
        while data := os.read(0, 1 << 16):
            pending += data
            *lines, pending = pending.split(b"\n")
            for line in lines:
                self.messages.put(json.loads(line)["text"])
        self.messages.put(None)

    def turn(self, text: str) -> None:
        self.text, self.said, self.result_text = text, "", None
        todo = directives(text)
        if todo is None:
            self.answer(text if self.turns else "a brief without a fake block")
        for line in todo or []:
            word, _, rest = line.partition(" ")
            act = getattr(self, f"do_{word}", None)
            if act is None:
                print(f"fake: unknown directive {word!r}; known: {', '.join(known())}", file=sys.stderr)
                sys.exit(64)
            act(rest.strip())
        self.finish_turn()

    def answer(self, message: str | None) -> None:
        if message is None:
            self.input_ended = True
        else:
            self.do_say(f"got: {message}")

    def finish_turn(self) -> None:
        self.turns += 1
        text = self.said if self.result_text is None else self.result_text
        self.emit({"type": "result", "text": text, "turns": self.turns, **self.usage_, **self.end_})

    def emit(self, event: dict[str, object]) -> None:
        self.write(json.dumps(event, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n")

    def write(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def known() -> list[str]:
    """The directives, sorted."""
    return sorted(name.removeprefix("do_") for name in vars(Agent) if name.startswith("do_"))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # it dies of it, and not of an exception
    Agent().live()
