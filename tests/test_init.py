"""A workspace is made for its owner alone, and a daemon starts only where the protocol holds."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from daemon import workspace as ws
from daemon.config import Settings
from daemon.durable import Files
from daemon.errors import StartRefused, UsageError
from daemon.layout import Workspace
from daemon.workspace import check_start, create

HERE = Path(__file__).parents[1]


@pytest.fixture
def made(tmp_path: Path) -> Workspace:
    create(tmp_path / "ws")
    return Workspace(tmp_path / "ws")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path / "home")}


def git(root: Path, *args: str) -> str:
    return subprocess.run(["git", "-C", str(root), *args], capture_output=True, text=True, check=True).stdout


def snapshot(root: Path) -> dict[str, tuple[int, int, bytes]]:
    found = {}
    for path in sorted(root.rglob("*")):
        there = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(root))] = (
            there.st_mode,
            there.st_mtime_ns if path.is_file() else 0,
            content,
        )
    return found


# -- init --------------------------------------------------------------------------------------


def test_a_new_workspace_is_whole_and_private(tmp_path: Path, environ: dict[str, str]) -> None:
    before = os.umask(0)
    try:
        made = create(tmp_path / "a" / "ws")
    finally:
        os.umask(before)
    workspace = Workspace(tmp_path / "a" / "ws")
    assert made.root == workspace.root
    assert {"tracks/queued/", "megaharness.toml", ".gitignore", ".git/", "md-db/README.md"} <= set(made.paths)
    assert all(folder.is_dir() for folder in (*workspace.folders, workspace.tmp, workspace.displaced))
    open_to_others = [p for p in (workspace.root, *workspace.root.rglob("*")) if p.lstat().st_mode & 0o077]
    assert open_to_others == []
    assert Settings.load(workspace.settings) == Settings.parse(b"", workspace.settings)
    assert (workspace.mddb / "instructions" / "working-unattended.md").read_text().startswith("---\n")
    assert list(workspace.root.glob(".git/hooks/*")) == []
    check_start(workspace, environ)


def test_a_second_init_changes_nothing(made: Workspace) -> None:
    before = snapshot(made.root)
    assert create(made.root).paths == ()
    assert snapshot(made.root) == before


def test_what_a_person_has_stays_and_what_is_missing_comes(made: Workspace) -> None:
    made.settings.write_text("[limits]\nslots = 7\n")
    (made.mddb / "README.md").write_text("mine\n")
    (made.mddb / "instructions" / "working-unattended.md").unlink()
    shutil.rmtree(made.requests)
    assert create(made.root).paths == ("tracks/requests/",)
    assert made.settings.read_text() == "[limits]\nslots = 7\n"
    assert (made.mddb / "README.md").read_text() == "mine\n"


def test_an_unreadable_settings_file_is_not_replaced(made: Workspace) -> None:
    made.settings.unlink()
    made.settings.symlink_to("dangling")
    create(made.root)
    assert made.settings.is_symlink()


KEPT = [
    "megaharness.toml",
    "md-db/evals/2026-12.jsonl",
    "tracks/done/a.md",
    "tracks/failed/b.md.why.txt",
    "runs/r/run.md",
    "runs/r/questions/q.md",
    "runs/r/manifest.json",
]
OUT = [
    "sessions/s/events.jsonl",
    ".megaharness/log/daemon.jsonl",
    "tracks/queued/a.md",
    "tracks/active/a.md",
    "tracks/requests/r.json",
    "tracks/.displaced/x",
    "tracks/journal.jsonl",
    "runs/r/calls/p.jsonl",
    "runs/r/responses/p.jsonl",
]


def fill(root: Path, *others: str) -> set[str]:
    for name in (*KEPT, *OUT, *others):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return set(git(root, "ls-files", "--others", "--exclude-standard").split())


def test_only_what_belongs_there_goes_into_git(made: Workspace) -> None:
    seen = fill(made.root, "notes.txt")
    assert set(KEPT) <= seen
    assert not seen & {*OUT, "notes.txt"}


@pytest.mark.parametrize("ignored", ["*.o\n", None])
def test_a_directory_with_a_repository_of_its_own_keeps_all_of_it(
    tmp_path: Path, ignored: str | None
) -> None:
    root = tmp_path / "mine"
    root.mkdir(mode=0o755)
    git(tmp_path, "init", "-q", str(root))
    if ignored:
        (root / ".gitignore").write_text(ignored)
    (root / "main.c").touch()
    head = (root / ".git" / "HEAD").read_bytes()
    made = create(root)
    assert ".git/info/exclude" in made.paths
    assert ((root / ".gitignore").read_text() if ignored else (root / ".gitignore").exists()) == (
        ignored or False
    )
    assert (root / ".git" / "HEAD").read_bytes() == head
    seen = fill(root, "x.o")
    assert {*KEPT, "main.c"} <= seen
    assert not seen & set(OUT)
    assert ("x.o" in seen) == (ignored is None)
    assert create(root).paths == ()


def test_a_repository_around_it_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "-q")
    before = snapshot(tmp_path / ".git")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))
    create(tmp_path / "ws")
    monkeypatch.delenv("GIT_DIR")
    assert (tmp_path / "ws" / ".git").is_dir()
    assert snapshot(tmp_path / ".git") == before


def test_a_clone_of_our_own_code_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="own code") as refused:
        create(HERE)
    assert "--root" in refused.value.hint
    (tmp_path / "renamed").mkdir()
    shutil.copy(HERE / "pyproject.toml", tmp_path / "renamed")
    with pytest.raises(UsageError, match="own code"):
        create(tmp_path / "renamed")
    assert [p.name for p in (tmp_path / "renamed").iterdir()] == ["pyproject.toml"]


@pytest.mark.parametrize("content", ['[project]\nname = "mine"', "project = 1", "not toml", "\udcff"])
def test_another_project_is_none_of_ours(tmp_path: Path, content: str) -> None:
    (tmp_path / "pyproject.toml").write_text(content, errors="surrogateescape")
    assert "tracks/" in create(tmp_path).paths


def test_home_itself_and_a_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UsageError, match="should not become a workspace"):
        create(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="not a directory"):
        create(tmp_path / "file")
    with pytest.raises(UsageError, match="no workspace can be made"):
        create(tmp_path / "file" / "below")


def test_without_git_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="git is not installed"):
        create(tmp_path / "ws")
    monkeypatch.undo()
    create(tmp_path / "ws")
    assert (tmp_path / "ws" / "megaharness.toml").is_file()


# -- whether a daemon may start ----------------------------------------------------------------


def refusal(workspace: Workspace, environ: dict[str, str], files: Files | None = None) -> StartRefused:
    with pytest.raises(StartRefused) as refused:
        check_start(workspace, environ, files=files)
    assert refused.value.exit_code == 78
    return refused.value


def test_missing_folders_are_made_and_nothing_is_left_behind(
    made: Workspace, environ: dict[str, str]
) -> None:
    before = snapshot(made.root)
    shutil.rmtree(made.tracks)
    shutil.rmtree(made.machine)
    check_start(made, environ)
    assert snapshot(made.root) == before


def test_no_workspace_is_said_with_the_way_out(tmp_path: Path, environ: dict[str, str]) -> None:
    assert refusal(Workspace(tmp_path / "none"), environ).hint == f"mh init {tmp_path / 'none'}"
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "name", [".", "tracks", "tracks/queued", "tracks/.tmp", "sessions", ".megaharness", "megaharness.toml"]
)
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_a_folder_that_others_can_write_is_refused(
    made: Workspace, environ: dict[str, str], name: str, mode: int
) -> None:
    path = made.root / name
    path.chmod(path.stat().st_mode & 0o777 | mode)
    refused = refusal(made, environ)
    assert "run commands as you" in str(refused)
    assert refused.hint == f"chmod go-w {path}"
    path.chmod(path.stat().st_mode & 0o755)
    check_start(made, environ)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("name", [".", "tracks/active", "megaharness.toml"])
def test_what_belongs_to_another_is_refused(made: Workspace, environ: dict[str, str], name: str) -> None:
    os.chown(made.root / name, 12345, -1)
    assert "belongs to user 12345" in str(refusal(made, environ))


@pytest.mark.parametrize("instead", ["link", "file"])
def test_a_folder_that_is_none_is_refused(
    made: Workspace, environ: dict[str, str], tmp_path: Path, instead: str
) -> None:
    made.queued.rmdir()
    if instead == "link":
        (tmp_path / "elsewhere").mkdir()
        made.queued.symlink_to(tmp_path / "elsewhere")
        assert "symbolic link" in str(refusal(made, environ))
    else:
        made.queued.touch()
        assert "is in the way" in str(refusal(made, environ))


def test_a_state_directory_that_is_emptied_is_refused_unless_it_was_chosen(made: Workspace) -> None:
    refused = refusal(made, {"HOME": "/tmp/nobody"})
    assert "empties" in str(refused)
    assert "XDG_STATE_HOME" in refused.hint
    check_start(made, {"HOME": "/tmp/nobody", "XDG_STATE_HOME": "/tmp/nobody/state"})


class Broken(Files):
    """A file system on which one operation fails, or does what a plain rename does."""

    def __init__(self, **broken: int | Callable[[Path, Path], None]) -> None:
        super().__init__()
        self.broken = broken

    def before(self, name: str, *args: object) -> None:
        fault = self.broken.get(name)
        if isinstance(fault, int):
            raise OSError(fault, os.strerror(fault))

    def move(self, old: Path, new: Path) -> None:
        fault = self.broken.get("move")
        if callable(fault):
            fault(old, new)
        else:
            super().move(old, new)

    def exchange(self, one: Path, other: Path) -> None:
        fault = self.broken.get("exchange")
        if callable(fault):
            fault(one, other)
        else:
            super().exchange(one, other)


@pytest.mark.parametrize(
    "files",
    [
        Broken(move=errno.EINVAL),
        Broken(exchange=errno.EINVAL),
        Broken(exchange=errno.ENOSYS),
        Broken(move=os.rename),
        Broken(exchange=lambda one, other: None),
    ],
    ids=["no NOREPLACE", "no EXCHANGE", "old kernel", "overwrites", "does nothing"],
)
def test_renames_that_do_not_hold_are_refused(made: Workspace, environ: dict[str, str], files: Files) -> None:
    assert "rename" in str(refusal(made, environ, files))
    assert not any(made.tmp.iterdir())
    assert not any(made.displaced.iterdir())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("operation", ["create", "write", "fsync", "move", "exchange"])
def test_a_disk_in_trouble_is_no_reason_not_to_start(
    made: Workspace, environ: dict[str, str], operation: str, number: int
) -> None:
    check_start(made, environ, files=Broken(**{operation: number}))
    assert not any(made.tmp.iterdir())


def test_the_type_of_a_mount_is_the_kernels_word(made: Workspace, environ: dict[str, str]) -> None:
    kind = ws._mount_types()[ws._place(made.queued)[1]]
    argv = ["findmnt", "-no", "FSTYPE", "-T", str(made.queued)]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()[-1] == kind
    with pytest.raises(StartRefused, match=f"network file system \\({kind}\\)"):
        check_start(made, environ, network=frozenset({kind}))
    assert kind not in ws.NETWORK


def in_a_mount_namespace(script: str, made: Workspace, environ: dict[str, str]) -> str:
    """Run a shell script, then `check_start`, in namespaces of their own; what was said at the end."""
    code = """
import sys
from pathlib import Path
from daemon.errors import StartRefused
from daemon.layout import Workspace
from daemon.workspace import check_start
try:
    check_start(Workspace(Path(sys.argv[1])))
    print("may start")
except StartRefused as refused:
    print(refused)
"""
    script = f'set -e; cd "$1"; {script}; exec "$2" -c "$3" "$1"'
    argv = ["unshare", "-rm", "bash", "-c", script, "bash", str(made.root), sys.executable, code]
    ran = subprocess.run(
        argv, env={**os.environ, **environ}, capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture
def _namespaces() -> None:
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no mount namespaces")


@pytest.mark.usefixtures("_namespaces")
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("true", "may start"),
        ("mount -t tmpfs -o mode=700 tmpfs tracks", "may start"),
        ("mount -t tmpfs -o mode=700 tmpfs tracks/done", "another file system or mount"),
        (
            "mkdir other; mount --bind other tracks/.displaced; chmod 700 other",
            "another file system or mount",
        ),
        ("mount --bind . .; mount -o remount,ro,bind .; cd .", "may start"),
        (
            "mount -t tmpfs -o mode=700 tmpfs tracks; mkdir tracks/queued; mount -o remount,ro tracks",
            "cannot be made",
        ),
    ],
    ids=[
        "as it is",
        "all on another",
        "one on another",
        "a bind mount",
        "read-only",
        "read-only, incomplete",
    ],
)
def test_real_mounts(made: Workspace, environ: dict[str, str], script: str, said: str) -> None:
    assert said in in_a_mount_namespace(script, made, environ)
