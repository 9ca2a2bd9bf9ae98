"""Runs the demo in a tmux of its own and draws two of its screens as SVG: the one view, and an attached pane.

python3 picture.py DIRECTORY
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

COLUMNS, ROWS = 126, 22
CELL, LINE, SIZE = 8.4, 18, 14  # pixels: a character's width, a line's height, the letters' size
FOREGROUND, BACKGROUND = "#d8dee9", "#1f2430"
COLOURS = ("#3b4252", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d8dee9")
BRIGHT = ("#6b7489", "#ff8f98", "#b5e890", "#ffd98a", "#8ac6ff", "#dfa0f0", "#7fdbe6", "#ffffff")


# -- ANSI -> SVG ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pen:
    """How characters are drawn until the next escape sequence."""

    colour: str | None = None
    ground: str | None = None
    bold: bool = False
    dim: bool = False
    reverse: bool = False


def colour(codes: Iterator[int]) -> str:
    """The colour after a 38 or 48: ``5;N`` of 256, or ``2;R;G;B``."""
    if next(codes) == 2:
        return "#{:02x}{:02x}{:02x}".format(*(next(codes) for _ in range(3)))
    number = next(codes)
    if number < 16:
        return (COLOURS + BRIGHT)[number]
    if number >= 232:
        return "#" + f"{8 + 10 * (number - 232):02x}" * 3
    cube = (0, 95, 135, 175, 215, 255)
    number -= 16
    return f"#{cube[number // 36]:02x}{cube[number // 6 % 6]:02x}{cube[number % 6]:02x}"


def turned(pen: Pen, text: str) -> Pen:
    """The pen after one SGR sequence."""
    codes = iter(int(code or 0) for code in re.split("[;:]", text))
    for code in codes:
        match code:
            case 0:
                pen = Pen()
            case 1 | 2:
                pen = replace(pen, bold=pen.bold or code == 1, dim=pen.dim or code == 2)
            case 22:
                pen = replace(pen, bold=False, dim=False)
            case 7 | 27:
                pen = replace(pen, reverse=code == 7)
            case 38:
                pen = replace(pen, colour=colour(codes))
            case 48:
                pen = replace(pen, ground=colour(codes))
            case 39 | 49:
                pen = replace(pen, **{"colour" if code == 39 else "ground": None})
            case _ if code in range(30, 38) or code in range(90, 98):
                pen = replace(pen, colour=(COLOURS if code < 90 else BRIGHT)[code % 10])
            case _ if code in range(40, 48) or code in range(100, 108):
                pen = replace(pen, ground=(COLOURS if code < 100 else BRIGHT)[code % 10])
    return pen


def runs(line: str, pen: Pen) -> tuple[list[tuple[int, str, Pen]], Pen]:
    """(column, text, pen) of every stretch of one line, and the pen at its end."""
    found, column = [], 0
    for piece in re.split(r"(\x1b\[[0-9;:]*m|\x1b[()][A-Z0-9]|[\x0e\x0f])", line):
        if piece.startswith("\x1b["):
            pen = turned(pen, piece[2:-1])
        elif piece and piece[0] not in "\x1b\x0e\x0f":
            found.append((column, piece, pen))
            column += len(piece)
    return found, pen


def svg(screen: str, title: str) -> str:
    lines = screen.rstrip("\n").split("\n")
    width, top = COLUMNS * CELL + 40, 44
    height = top + len(lines) * LINE + 20
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
        f'height="{height}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
        *(f'<circle cx="{22 + 18 * n}" cy="20" r="6" fill="{COLOURS[n + 1]}"/>' for n in range(3)),
        f'<g font-family="ui-monospace, \'DejaVu Sans Mono\', Menlo, Consolas, monospace" font-size="{SIZE}" '
        f'xml:space="preserve" fill="{FOREGROUND}">',
    ]
    pen = Pen()
    for number, line in enumerate(lines):
        found, pen = runs(line, pen)
        y = top + number * LINE
        for column, text, how in found:
            front, ground = how.colour, how.ground
            if how.reverse:
                front, ground = ground or BACKGROUND, front or FOREGROUND
            x, wide = 20 + column * CELL, len(text) * CELL
            if ground:
                out.append(f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{LINE}" fill="{ground}"/>')
            if text.strip():
                style = (f' fill="{front}"' if front else "") + (' font-weight="bold"' if how.bold else "")
                style += ' opacity="0.6"' if how.dim else ""
                out.append(
                    f'<text x="{x:.1f}" y="{y + 13}" textLength="{wide:.1f}"{style}>{escape(text)}</text>'
                )
    return "\n".join([*out, "</g>", "</svg>", ""])


# -- the demo on a screen ------------------------------------------------------------------------


def wait_for(condition: Callable[[], object], what: str, seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            sys.exit(f"error: waited {seconds:g} s for {what}")
        time.sleep(0.1)


class Screen:
    """A tmux server of its own; a window for each command."""

    def __init__(self, home: Path) -> None:
        self._socket = home / "tmux.sock"
        self._home = home
        self("new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), "-s", "picture", "sleep 600")
        self("set", "-g", "status", "off")
        self("set", "-g", "history-limit", "2000")

    def __call__(self, *words: str) -> str:
        environ = {**os.environ, "HOME": str(self._home), "XDG_STATE_HOME": f"{self._home}/.local/state"}
        environ.pop("TMUX", None)
        argv = ["tmux", "-u", "-f", "/dev/null", "-S", str(self._socket), *words]
        return subprocess.run(argv, env=environ, check=True, capture_output=True, text=True).stdout

    def window(self, name: str, *argv: str, then: str = "") -> None:
        # The sleep keeps the window as it is: tmux writes a line of its own into one whose command has ended.
        self("new-window", "-d", "-n", name, f"unset TMUX; {shlex.join(argv)}; {then} sleep 600")

    def text(self, name: str, *options: str) -> str:
        return self("capture-pane", "-p", *options, "-t", f"picture:={name}")


def main(out: Path) -> None:
    scripts = Path(__file__).resolve().parent
    mh = str(Path(sys.executable).parent / "mh")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mh-picture-") as temp:
        home = Path(temp)
        workspace = home / "demo-1"
        screen = Screen(home)

        def keep(name: str, window: str, command: str, title: str) -> None:
            shown = re.sub(r"[ \n]+\Z", "\n", screen.text(window, "-e").replace(str(home), "~"))
            (out / f"{name}.svg").write_text(svg(f"$ {command}\n{shown}", title))
            print(f"{out / name}.svg")

        try:
            screen.window("demo", f"{scripts}/demo", str(home), then="echo over;")
            wait_for(lambda: (workspace / "tracks/done/leap-years.md").exists(), "the first track to be done")
            wait_for(
                lambda: (workspace / "tracks/failed/wrong-sum.md").exists(), "the wrong track to have failed"
            )
            screen.window("attach", mh, "--root", str(workspace), "attach", "count-primes")
            wait_for(lambda: screen.text("attach").count("primes, the last") >= 9, "a pane with some output")
            screen.window("view", mh, "--root", str(workspace))
            wait_for(lambda: "DONE" in screen.text("view"), "the one view")
            keep("view", "view", "mh", "The one view: what needs you, what runs, waits and is done")
            keep(
                "attach",
                "attach",
                "mh attach count-primes",
                "mh attach count-primes: a running track in its tmux pane",
            )
            wait_for(
                lambda: screen.text("demo").rstrip().endswith("\nover"), "the demo to end and to clean up"
            )
        finally:
            screen("kill-server")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
