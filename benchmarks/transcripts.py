"""How quick transcripts are measured: beside the parsers alone, and beside another counter on the same folder.

The parsers alone (orjson, msgspec) read the same file line by line and use nothing of it: no reader in this language
can be quicker than the one it stands on. The other counter, ccusage, is a compiled program that looks for patterns
before it parses, and so passes over lines that are written in another way (docs/explanation/measuring.md).
"""

from __future__ import annotations

import gc
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import orjson

from adapters.transcripts.account import Account
from adapters.transcripts.follow import Following
from adapters.transcripts.reader import PIECE, Reader
from adapters.transcripts.readers.claude_code import ClaudeCode
from adapters.transcripts.readers.codex import Rollout
from benchmarks.figure import Figure
from tests.transcripts.claude import answered, assistant, prompt
from tests.transcripts.counting import lines

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT.parent / "shared/corpus"
CCUSAGE = ROOT / ".peers/node_modules/@ccusage/ccusage-linux-x64/bin/ccusage"

#: Real sessions of the corpus, whole ones.
REAL: dict[str, tuple[type[Reader], tuple[str, ...]]] = {
    "Claude Code": (
        ClaudeCode,
        ("a_claude/marot*.jsonl", "a_claude/d-kimuson*fe5e1c67*", "a_claude/jnarowski*full*"),
    ),
    "Codex": (Rollout, ("b_codex/yoavf*", "b_codex/jnarowski*full*", "b_codex/lanegrid*codex_session*")),
}


def own() -> bytes:
    """A session for machines that have no corpus."""
    rows = [prompt("p" * 2000)]
    for n in range(200):
        rows += [
            assistant(f"m{n}", f"r{n}", output=1, stop=None),
            assistant(f"m{n}", f"r{n}", output=9, tool=f"t{n}"),
            answered(f"t{n}") | {"toolUseResult": {"stdout": "line of output\n" * 150}},
        ]
    return lines(*rows)


def sample(patterns: tuple[str, ...]) -> bytes:
    """Whole real sessions one after the other, without the lines that a parser alone refuses."""
    if not CORPUS.is_dir():
        return own()
    out = []
    for pattern in patterns:
        for path in sorted(CORPUS.glob(pattern)):
            for row in path.read_bytes().split(b"\n"):
                try:
                    orjson.loads(row)
                except orjson.JSONDecodeError:
                    continue
                out.append(row + b"\n")
    return b"".join(out)


def alone(path: Path, decode: Callable[[bytes], object]) -> float:
    start = time.perf_counter()
    with path.open("rb") as file:
        for row in file:
            decode(row)
    return time.perf_counter() - start


def ours(path: Path, reader: type[Reader]) -> float:
    gc.disable()  # as the command does
    try:
        start = time.perf_counter()
        account, one = Account(), reader(False)
        with path.open("rb", buffering=0) as file:
            while data := file.read(PIECE):
                account.add(one.feed(data))
        account.add(one.close())
        account.figures()
        return time.perf_counter() - start
    finally:
        gc.enable()


def measure(megabytes: int, rounds: int) -> list[Figure]:
    figures = []
    with tempfile.TemporaryDirectory(prefix="mh-bench-") as folder:
        home = Path(folder)
        for name, (reader, patterns) in REAL.items():
            path = home / "session.jsonl"
            data = sample(patterns)
            path.write_bytes(data * max(1, megabytes * 1_000_000 // len(data)))
            figures += _parsers(name, path, reader, rounds)
        figures += _following(home / "following.jsonl")
        figures += _command(home, megabytes, rounds)
    return figures


def _parsers(name: str, path: Path, reader: type[Reader], rounds: int) -> list[Figure]:
    size = path.stat().st_size / 1e6
    decode = msgspec.json.Decoder().decode
    took: dict[str, list[float]] = {"orjson alone": [], "msgspec alone": [], "measured": []}
    for _ in range(rounds):  # one after the other, so that a busy moment meets all of them
        took["orjson alone"].append(alone(path, orjson.loads))
        took["msgspec alone"].append(alone(path, decode))
        took["measured"].append(ours(path, reader))
    group = f"transcripts of {name} ({size:.0f} MB)"
    rates = {what: size / statistics.median(seconds) for what, seconds in took.items()}
    out = []
    for what, rate in rates.items():
        ratio = statistics.median(o / m for o, m in zip(took["orjson alone"], took[what], strict=True))
        wanted = what == "measured"
        out.append(
            Figure(
                group,
                what,
                "MB/s",
                rate,
                ratio=ratio,
                target="half of orjson alone" if wanted else "",
                holds=ratio >= 0.5 if wanted else None,
                note="ratio to orjson alone",
            )
        )
    return out


def _following(path: Path) -> list[Figure]:
    """What one more line costs, beside a short file and beside a long one."""
    rows = own().split(b"\n")[:-1]
    out = []
    for count in (1, 100):
        path.write_bytes((b"\n".join(rows) + b"\n") * count)
        following = Following(path, ClaudeCode)
        following.look()
        took = []
        for n in range(200):
            with path.open("ab") as file:
                file.write(lines(assistant(f"new{count}-{n}", f"new{n}")))
            start = time.perf_counter()
            following.look()
            following.figures()
            took.append((time.perf_counter() - start) * 1e6)
        size = path.stat().st_size / 1e6
        out.append(
            Figure(
                "following a growing file",
                f"one more line after {size:.1f} MB",
                "us",
                statistics.median(took),
            )
        )
    return out


def _command(home: Path, megabytes: int, rounds: int) -> list[Figure]:
    """The whole command beside the other one, each as a process on the same folder of sessions."""
    projects = home / "claude" / "projects" / "p"
    projects.mkdir(parents=True)
    data = sample(REAL["Claude Code"][1])
    count = max(2, megabytes * 1_000_000 // len(data))
    for n in range(count):
        # Each a session of its own: the other counter drops what has the ids of another file.
        mark = b"%06d" % n
        (projects / f"{n}.jsonl").write_bytes(
            data.replace(b'"msg_', b'"msg_' + mark).replace(b'"req_', b'"req_' + mark)
        )
    size = sum(each.stat().st_size for each in projects.iterdir()) / 1e6
    environ = {**os.environ, "HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / "claude")}
    commands = {"mh measure": [sys.executable, "-P", "-m", "daemon", "measure", "--json", str(projects)]}
    if CCUSAGE.exists():
        commands["ccusage 20.0.24"] = [str(CCUSAGE), "claude", "session", "--json", "--offline"]
    took: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, argv in commands.items():
            start = time.perf_counter()
            subprocess.run(
                argv, env=environ, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            took[name].append(time.perf_counter() - start)
    shutil.rmtree(projects)
    group = f"a folder of {count} sessions ({size:.0f} MB), whole commands"
    base = statistics.median(took[next(reversed(took))])
    return [
        Figure(
            group,
            name,
            "s",
            statistics.median(seconds),
            ratio=statistics.median(seconds) / base,
            note="ratio to the last",
        )
        for name, seconds in took.items()
    ]
