"""The proof by system calls can fail, and nothing that counts goes round `Files`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

#: What the daemon changes without `Files`, and why it may.
OUTSIDE = {
    "openat .megaharness/daemon.json.tmp": "a rendering of the last tick",
    "write .megaharness/daemon.json.tmp": "a rendering of the last tick",
    "rename .megaharness/daemon.json": "a rendering of the last tick",
    "mkdir sessions/*/inbox": "the adapters' own, made again where it is missing",
    "mkdir sessions/*/inbox/delivered": "the adapters' own, made again where it is missing",
    "mkdir sessions/*/inbox/text": "the adapters' own, made again where it is missing",
    "fsync sessions/*/inbox": "the adapters' own: a message for the agent, as the viewer writes it too",
    "fsync sessions/*/inbox/text": "the same",
    **{
        f"{call} sessions/*/{place}/.tmp": "the same"
        for place in ("inbox", "inbox/text")
        for call in ("openat", "write", "fsync")
    },
    "rename sessions/*/inbox/<message>": "the same",
    "rename sessions/*/inbox/text/<message>.json": "the same",
    "openat sessions/*/.tmp": "the adapters' own: whoever stops a session can be another process",
    "write sessions/*/.tmp": "the same",
    "fsync sessions/*/.tmp": "the same",
    "link sessions/*/interrupt.json": "the same",
    "link sessions/*/started.json": "the same: the start gate, closed",
    "unlink sessions/*/.tmp": "the same",
    "unlink sessions/*/env.json": "the same",
    "fsync sessions/*": "the same",
    "mkdir places/*": "the track's place of work, as the crash world plays it",
}


def killed(
    *args: str, code: str = "from tests.crash.killed import main; import sys; main(*sys.argv[1:])"
) -> object:
    if shutil.which("strace") is None:
        assert not os.environ.get("CI"), "strace is missing"
        pytest.skip("strace is not installed")
    done = subprocess.run(
        [sys.executable, "-c", code, *args], cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=110
    )
    return json.loads(done.stdout)


def test_what_the_daemon_changes_it_changes_through_one_class() -> None:
    found = killed("bypasses")["found"]  # type: ignore[index]
    general = {_general(call) for call in found}
    assert general == set(OUTSIDE)


def _general(call: str) -> str:
    name, _, path = call.partition(" ")
    parts = path.split("/")
    if parts[0] in ("sessions", "places"):
        parts[1] = "*"
    return re.sub("[0-9]{20}-[0-9a-f]{8}", "<message>", f"{name} {'/'.join(parts)}")


BROKEN = """
import json
from pathlib import Path
from dataclasses import replace
from tests.crash import killed
from tests.crash.world import REAL, StepFiles


class InPlace(StepFiles):
    \"\"\"Writes a file where it stands, in two pieces, without a word to whoever counts the operations.\"\"\"

    def publish(self, path: Path, data: bytes, *, mode: int = 0o600) -> None:
        with open(path, "wb", buffering=0) as file:
            file.write(data[: len(data) // 2])
            file.write(data[len(data) // 2 :])


life, mutant = killed.lives()[0], replace(REAL, files=InPlace)
found = [killed.kill_daemon(life, "write", when, mutant) for when in range(1, 20)]
print(json.dumps([wrong for killed, wrong in found if killed and wrong]))
"""


def test_a_file_that_is_written_where_it_stands_is_found() -> None:
    assert killed(code=BROKEN)
