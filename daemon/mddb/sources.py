"""Finds what people already have for their agents: in a repository, in a home directory, in a folder of rules.

Invariants:

- Nothing is written, and no program is run.
- Below a folder no link is followed that leads out of it, and each file is one source, however many names it has.
- What is meant for agents and cannot be taken is told, with the reason; other Markdown is counted.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Final

from daemon.durable import Files
from daemon.errors import DocumentError, NotNow, Problem
from daemon.mddb.importing import (
    INSTEAD_OF_AGENTS,
    READERS,
    SkillFile,
    Source,
    SourceKind,
    files_named,
    readable_text,
)
from daemon.spool.frontmatter import MAX_FILE

#: The most that is taken of one skill: files, bytes.
SKILL_FILES: Final = 200
SKILL_BYTES: Final = 10 << 20

_NAMED: Final[dict[str, SourceKind]] = {
    "CLAUDE.md": "claude",
    "CLAUDE.local.md": "claude",
    "AGENTS.md": "agents",
    "GEMINI.md": "gemini",
    "QWEN.md": "qwen",
    "copilot-instructions.md": "copilot",
    ".cursorrules": "cursorrules",
    ".windsurfrules": "windsurfrules",
    "SKILL.md": "skill",
}
#: Folders of Claude Code's below .claude, and in a plugin.
_FOLDERS: Final[dict[str, SourceKind]] = {"agents": "agent", "commands": "command", "rules": "claude-rule"}
#: Folders with a program's files: what lies in one is about the folder around it.
_CONFIGURATION = frozenset(
    (".claude", ".cursor", ".github", ".windsurf", ".codex", ".gemini", ".qwen", ".agents")
)
#: Below the home directory: what a program reads in all projects, and whose it is alone, if that can be said.
_PERSONAL: Final[dict[str, str]] = {
    ".claude": "",
    ".codex": "codex",
    ".gemini": "gemini",
    ".qwen": "qwen",
    ".pi": "pi",
    ".config/opencode": "opencode",
    ".cursor": "",
    ".copilot": "",
    ".codeium": "",
    ".windsurf": "",
    ".agents": "",
}
_SKIPPED = frozenset((".git", ".hg", ".svn", "node_modules", ".venv", "venv", "__pycache__", ".tox", ".nox"))
#: Below .claude: copies of repositories, of plugins that may not be in use, and what it keeps for itself.
_CLAUDES_OWN = frozenset(
    (
        "plugins",
        "projects",
        "worktrees",
        "file-history",
        "todos",
        "shell-snapshots",
        "backups",
        "cache",
        "debug",
    )
)
_TEXTS = frozenset((".md", ".markdown", ".txt"))
_TOO_MUCH = Problem(
    f"the folder of the skill has more than {SKILL_FILES} files or {SKILL_BYTES >> 20} MiB",
    hint="keep what an agent does not need elsewhere",
)
_FOR_ALL_NOTE = "it lies in no git repository, so it is told in every project"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A source, and the git repository that it is about; None: none, or all."""

    path: Path
    source: Source
    repository: Path | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A source that cannot be taken."""

    origin: str
    reasons: tuple[str, ...]


@dataclass(slots=True)
class Findings:
    """passed_over: how many Markdown files of folders are nothing known."""

    candidates: list[Candidate] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    passed_over: int = 0


def find(paths: Iterable[Path], home: Path, workspace: Path, files: Files) -> Findings:
    """All sources at these paths, in the order of their paths. `workspace`: is never a source."""
    search = _Search(home, workspace, files)
    for path in paths:
        search.look(Path(os.path.abspath(path)))
    return search.done()


def kind_by_place(path: PurePath) -> SourceKind | None:
    """What a file is, by its name and the folders that it lies in; None: nothing known."""
    if (kind := _NAMED.get(path.name)) is not None:
        return kind if kind != "copilot" or path.parent.name in (".github", ".copilot") else None
    if path.suffix == ".mdc":
        return "cursor-rule"
    if path.name.endswith(".instructions.md"):
        return "copilot-rule"
    folder = _folder_of_claude(path)
    if folder is None or path.suffix != ".md" or path.stem.lower() == "readme":
        return None
    return _FOLDERS[folder.name]


def _folder_of_claude(path: PurePath) -> PurePath | None:
    """The folder with agents, commands or rules that a file lies in."""
    for folder in path.parents:
        if folder.name in _FOLDERS:
            plugin = folder.name != "rules" and os.path.isfile(folder.parent / ".claude-plugin/plugin.json")
            if folder.parent.name == ".claude" or plugin:
                return folder
    return None


class _Search:
    def __init__(self, home: Path, workspace: Path, files: Files) -> None:
        self.home, self.workspace, self.files = home, workspace, files
        self.found = Findings()
        self.seen: dict[Path, Candidate] = {}

    def look(self, path: Path) -> None:
        """A path that a person named: it may be a link to anywhere."""
        real = Path(os.path.realpath(path))
        try:
            facts = os.stat(path)
        except OSError as error:
            self._refuse(path, f"cannot be read: {error.strerror or error}")
            return
        if real.is_relative_to(self.workspace):
            self._refuse(path, "it lies in the workspace itself")
        elif stat.S_ISDIR(facts.st_mode):
            self._walk(path)
        elif (kind := kind_by_place(path)) is not None:
            self._add(path, kind)
        elif path.suffix.lower() in _TEXTS:
            self._add(path, "plain")
        else:
            self._refuse(path, f"neither Markdown nor a file of a program that is known here ({path.name})")

    def done(self) -> Findings:
        self.found.candidates = _by_their_neighbours(_one_each(self.seen.values()))
        self.found.refused.sort(key=lambda each: each.origin)
        return self.found

    def _walk(self, top: Path) -> None:
        within = os.path.realpath(top)
        skills: set[Path] = set()

        def unreadable(error: OSError) -> None:
            self._refuse(Path(error.filename), f"cannot be looked into: {error.strerror or error}")

        for at, folders, names in os.walk(top, onerror=unreadable):
            folder = Path(at)
            if Path(os.path.realpath(folder)).is_relative_to(self.workspace):
                folders.clear()
                continue
            root = ".git" in folders or ".git" in names
            links = sorted(name for name in folders if (folder / name).is_symlink())
            folders[:] = sorted(name for name in folders if name not in links and not _skipped(folder / name))
            for name in links:
                self._link(folder / name, within)
            if folder.parent in skills or ("SKILL.md" in names and not root):
                skills.add(folder)  # all below is the skill's, but for other skills
                names = [name for name in names if name == "SKILL.md"]
            for name in sorted(names):
                path = folder / name
                kind = kind_by_place(path)
                if kind is None:
                    self.found.passed_over += path.suffix == ".md"
                elif _leads_out(path, within):
                    self._out(path, within)
                else:
                    self._add(path, kind)

    def _link(self, path: Path, within: str) -> None:
        """A link to a folder is not followed; one that leads out is told where agents' files may lie behind it."""
        near = {path.name, path.parent.name}
        telling = near & (_CONFIGURATION | _FOLDERS.keys() | {"skills"}) or (path / "SKILL.md").is_file()
        if telling and _leads_out(path, within):
            self._out(path, within)

    def _out(self, path: Path, within: str) -> None:
        self._refuse(
            path,
            f"a link that leads out of {self._origin(Path(within))}, to {os.path.realpath(path)} "
            "(name it, and it is imported)",
        )

    def _add(self, path: Path, kind: SourceKind) -> None:
        if path in self.seen:
            return
        source = Source(self._origin(path), kind, path.parent.name if kind == "skill" else path.stem, b"")
        notes: list[str] = []
        try:
            data, _ = self._read(path, MAX_FILE)
            if kind == "skill":
                skill_files = self._skill_files(path.parent, notes)
                source = replace(source, files=skill_files)
        except DocumentError as error:
            self._refuse(path, *map(str, error.problems))
            return
        except NotNow as error:
            self._refuse(path, str(error))
            return
        except OSError as error:
            self._refuse(path, f"cannot be read: {error.strerror or error}")
            return
        personal = self._personal(path)
        repository = None if personal is not None or kind == "plain" else self._repository(path)
        inside = _inside(path, kind, repository) if repository is not None else ""
        if repository is None and personal is None and kind not in ("plain", "skill", "agent", "command"):
            notes.append(_FOR_ALL_NOTE)
        source = replace(
            source,
            data=data,
            name=_name(path, kind, inside),
            inside=inside,
            own=personal or "",
            notes=tuple(notes),
        )
        real = Path(os.path.realpath(repository)) if repository is not None else None
        self.seen[path] = Candidate(path, source, real)

    def _skill_files(self, folder: Path, notes: list[str]) -> dict[str, SkillFile]:
        """All files of a skill but SKILL.md; what is left out is noted. Raises DocumentError: it is too much."""
        found: dict[str, SkillFile] = {}
        within, size, hidden = os.path.realpath(folder), 0, 0
        for at, folders, names in os.walk(folder, onerror=_raise):
            hidden += sum(name.startswith(".") and name != ".git" for name in (*folders, *names))
            taken = []
            for name in sorted(folders):
                path = Path(at, name)
                if path.is_symlink():
                    notes.append(f"not taken: {path.relative_to(folder)}, a link to a folder")
                elif os.path.lexists(path / "SKILL.md"):
                    # Wherever it lay in md-db it would be one.
                    notes.append(f"not taken with it: {path.relative_to(folder)}, a skill of its own")
                elif not name.startswith(".") and not _skipped(path):
                    taken.append(name)
            folders[:] = taken
            for name in sorted(names):
                path = Path(at, name)
                inner = path.relative_to(folder).as_posix()
                if name.startswith(".") or inner == "SKILL.md":
                    continue
                if path.is_symlink() and _leads_out(path, within):
                    notes.append(f"not taken: {inner}, a link that leads out of the skill")
                    continue
                if not path.is_file():
                    notes.append(f"not taken: {inner}, no regular file")
                    continue
                data, mode = self._read(path, SKILL_BYTES)
                size += len(data)
                found[os.fsencode(inner).decode("utf-8", "backslashreplace")] = SkillFile(
                    data, bool(mode & stat.S_IXUSR)
                )
                if len(found) >= SKILL_FILES or size > SKILL_BYTES:
                    raise DocumentError(_TOO_MUCH)
        if hidden:
            notes.append(f"not taken: {hidden} hidden files or folders")
        return found

    def _read(self, path: Path, limit: int) -> tuple[bytes, int]:
        with self.files.opened(Path(os.path.realpath(path))) as opened:
            return opened.read(limit), opened.stat.st_mode

    # -- where it stands

    def _personal(self, path: Path) -> str | None:
        """The harness in whose folder of the person a file lies, "" for any; None: it is not the person's alone."""
        for name, harness in _PERSONAL.items():
            if path.is_relative_to(self.home / name):
                return harness
        return None

    def _repository(self, path: Path) -> Path | None:
        """The nearest folder above with a .git; the home directory is no project, also where it is a repository."""
        for folder in path.parents:
            if folder == self.home:
                return None
            if os.path.lexists(folder / ".git"):
                return folder
        return None

    def _origin(self, path: Path) -> str:
        text = f"~/{path.relative_to(self.home)}" if path.is_relative_to(self.home) else str(path)
        return os.fsencode(text).decode("utf-8", "backslashreplace")

    def _refuse(self, path: Path, *reasons: str) -> None:
        refused = Refused(self._origin(path), reasons)
        if refused not in self.found.refused:
            self.found.refused.append(refused)


def _raise(error: OSError) -> None:
    raise error


def _skipped(path: Path) -> bool:
    return (
        path.name in _SKIPPED
        or (path.parent.name == ".claude" and path.name in _CLAUDES_OWN)
        or os.path.isfile(path / "pyvenv.cfg")
    )


def _leads_out(path: Path, within: str) -> bool:
    return path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(within)


def _inside(path: Path, kind: SourceKind, repository: Path) -> str:
    """The folder of the repository that a file is about; "": all of it."""
    parts = list(path.relative_to(repository).parts[:-1])
    marks = [at for at, part in enumerate(parts) if part in _CONFIGURATION]
    if marks:
        parts = parts[: marks[0]]
    elif kind in ("cursor-rule", "copilot-rule"):
        return ""  # a collection of rules, in a folder of any name
    return os.fsencode("/".join(parts)).decode("utf-8", "backslashreplace")


def _name(path: Path, kind: SourceKind, inside: str) -> str:
    """What a source is called: what its program calls it, below its folder."""
    if kind == "skill":
        return path.parent.name
    stem = path.name.removesuffix(".md").removesuffix(".mdc").removesuffix(".instructions").lstrip(".")
    if kind == "plain":
        return path.stem
    folder: PurePath | None = _folder_of_claude(path)
    if kind in ("cursor-rule", "copilot-rule"):
        homes = {"cursor-rule": ".cursor/rules", "copilot-rule": ".github/instructions"}
        folder = next((each for each in path.parents if each.as_posix().endswith(homes[kind])), None)
    below = path.parent.relative_to(folder).parts if folder is not None else ()
    prefix = (inside,) if inside and kind not in ("agent", "command") else ()
    return "/".join((*prefix, *below, stem))


def _one_each(found: Iterable[Candidate]) -> Iterator[Candidate]:
    """One candidate for each file: links to it say what else it is."""
    groups: dict[str, list[Candidate]] = {}
    for each in sorted(found, key=lambda each: each.path):
        groups.setdefault(os.path.realpath(each.path), []).append(each)
    for real, group in groups.items():
        first = next((each for each in group if str(each.path) == real), group[0])
        others = [each for each in group if each is not first]
        also = tuple(each.source.kind for each in others if each.source.kind != first.source.kind)
        notes = tuple(f"{each.source.origin} is a link to it" for each in others)
        source = replace(first.source, also=also, notes=(*first.source.notes, *notes))
        yield replace(first, source=source)


def _by_their_neighbours(found: Iterable[Candidate]) -> list[Candidate]:
    """Who reads another file instead of an AGENTS.md beside it is not told both."""
    candidates = sorted(found, key=lambda each: each.path)
    by_path = {each.path: each for each in candidates}
    result = []
    for each in candidates:
        if each.source.kind == "agents" and not each.source.also:
            each = replace(each, source=_without_readers(each.path.parent, each.source, by_path))
        result.append(each)
    return result


def _without_readers(folder: Path, source: Source, by_path: dict[Path, Candidate]) -> Source:
    for name, kind in INSTEAD_OF_AGENTS.items():
        near = [by_path[path] for path in (folder / name, folder / ".claude" / name) if path in by_path]
        texts = [text for each in near if (text := _text(each.source.data)) is not None]
        if not texts:
            continue
        readers = READERS[kind]
        if any(PurePath(each).name == "AGENTS.md" for text in texts for each in files_named(text)):
            note = f"told to {readers[0]} too: its {name} names it"
        else:
            source = replace(source, excluded=(*source.excluded, *readers))
            note = f"not told to {' and '.join(readers)}: {name} is read instead"
        source = replace(source, notes=(*source.notes, note))
    return source


def _text(data: bytes) -> str | None:
    try:
        return readable_text(data)
    except DocumentError:
        return None  # it is refused when it is planned, with the reason
