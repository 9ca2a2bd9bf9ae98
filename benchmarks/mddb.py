"""How quick the database is read and asked: beside the plain reading of its files, and beside the usual parser of them.

The documents are made: of the sizes of real ones (`SIZES`), most with clauses. The peer, python-frontmatter, reads the
same files with its own handler and PyYAML, as tools for notes and static sites do; it knows no clauses, so its figure
is that of reading alone.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import frontmatter

from benchmarks.figure import Figure
from daemon.durable import Files
from daemon.mddb import schema
from daemon.mddb.library import Library, Unrecorded
from daemon.mddb.resolver import Context

#: Bytes of the text of instructions and skills that people publish: most are short.
SIZES = (300, 500, 800, 1200, 1600, 2400, 3500, 5000, 8000, 14000)
HERE = Context("claude-code", "claude-opus-4-6", "project-3", "fix")

_CLAUSES = (
    "harness_id: claude-code",
    "harness_id: [codex, openhands]",
    'model_id: "gpt-5*"',
    "kind: [fix, docs]",
    "kind: {not: docs}",
    "phase: [resume, retry]",
    "project_id: project-%d",
)


def fill(root: Path, count: int) -> int:
    """Make a database of `count` documents; returns its bytes."""
    chance = random.Random(7)
    total = 0
    for n in range(count):
        chosen = chance.sample(_CLAUSES, chance.choice((0, 1, 1, 2, 2, 3)))
        names = {each.partition(":")[0]: each for each in chosen}
        lines = "".join(f"  {each.replace('%d', str(n % 40))}\n" for each in names.values())
        clauses = f"applies_when:\n{lines}" if lines else ""
        sentence = f"Write the test of part {n} first, and run it before you say that it is done.\n"
        size = chance.choice(SIZES)
        text = (
            f"---\nversion: 1.{n % 10}\ntitle: Document {n}\ntags: [team, rules]\n{clauses}---\n"
            f"# Document {n}\n\n{sentence * (size // len(sentence) + 1)}"
        )
        place = f"skills/skill-{n}/SKILL.md" if n % 10 == 0 else f"instructions/team-{n % 25}/document-{n}.md"
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        total += len(text)
    return total


def measure(count: int, rounds: int) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="mh-bench-") as folder:
        root = Path(folder) / "md-db"
        size = fill(root, count)
        time.sleep(0.05)  # what has changed a moment ago is waited for
        paths = sorted(str(path) for path in root.rglob("*.md"))
        group = f"a database of {count:,} documents ({size / 1e6:.0f} MB)"
        return [*_first(group, root, paths, rounds), *_again(group, root, paths, rounds)]


def _first(group: str, root: Path, paths: list[str], rounds: int) -> list[Figure]:
    def plain() -> None:
        for path in paths:
            with open(path, "rb") as file:
                file.read()

    def parsed() -> None:
        for path in paths:
            with open(path, "rb") as file:
                schema.parse(os.path.relpath(path, root), "", file.read())

    def peer() -> None:
        for path in paths:
            frontmatter.load(path)

    ways: dict[str, Callable[[], object]] = {
        "plain reading": plain,
        "python-frontmatter": peer,
        "reading and parsing as ours": parsed,
        "the first resolve": lambda: Library(root, Files(), Unrecorded()).resolve(HERE),
    }
    took = _took(ways, rounds)
    beside = Figure(
        group,
        "the first resolve, beside python-frontmatter",
        "ms",
        statistics.median(took["the first resolve"]),
        ratio=_ratio(took, "the first resolve", "python-frontmatter"),
        note="ratio to python-frontmatter",
    )
    return [*_figures(group, took, "plain reading"), beside]


def _again(group: str, root: Path, paths: list[str], rounds: int) -> list[Figure]:
    library = Library(root, Files(), Unrecorded())
    library.resolve(HERE)
    changing = Path(paths[0])
    text, number = changing.read_text(), iter(range(1_000_000))

    def looked_at() -> None:
        for path in paths:
            os.stat(path)

    def changed() -> float:
        changing.write_text(f"{text}{next(number)}\n")
        time.sleep(0.05)
        start = time.perf_counter()
        library.resolve(HERE)
        return time.perf_counter() - start

    ways: dict[str, Callable[[], object]] = {
        "os.stat of all files": looked_at,
        "resolve, nothing changed": lambda: library.resolve(HERE),
        "resolve, nothing changed, a new context": lambda: library.resolve(
            replace(HERE, model_id=f"model-{next(number)}")
        ),
        "resolve, one document changed": changed,
    }
    return _figures(group, _took(ways, rounds * 3), "os.stat of all files")


def _took(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each way, one after the other, so that a busy moment meets all of them."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            own = way()
            seconds = own if isinstance(own, float) else time.perf_counter() - start
            took[name].append(seconds * 1000)
    return took


def _ratio(took: Mapping[str, list[float]], name: str, base: str) -> float:
    return statistics.median(own / other for own, other in zip(took[name], took[base], strict=True))


def _figures(group: str, took: Mapping[str, list[float]], base: str) -> list[Figure]:
    return [
        Figure(
            group,
            name,
            "ms",
            statistics.median(each),
            ratio=_ratio(took, name, base),
            note=f"ratio to {base}",
        )
        for name, each in took.items()
    ]
