"""A session file of two gigabytes: what it takes is bounded by its calls, not by its bytes."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.transcripts.claude import answered, assistant, prompt
from tests.transcripts.counting import lines

BYTES = 2 * 1024**3
#: The program with everything imported takes some 50 MB of it; each call with its tool and prompt 900 bytes more.
PEAK = 120 * 1024**2


def block() -> bytes:
    """Half a megabyte of a session; `@@@@@@@@` stands for a number of eight digits."""
    out = b""
    for n in range(40):
        key = f"msg_@@@@@@@@{n:02}"
        out += lines(
            prompt("p" * 2000, f"p@@@@@@@@{n:02}"),
            assistant(key, f"req_@@@@@@@@{n:02}", output=1, stop=None, cached=9, session="big"),
            assistant(
                key, f"req_@@@@@@@@{n:02}", output=7, cached=9, tool=f"toolu_@@@@@@@@{n:02}", session="big"
            ),
            answered(f"toolu_@@@@@@@@{n:02}") | {"toolUseResult": {"stdout": "o" * 9000}},
        )
    return out


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "big.jsonl"
    part = block()
    count = 0
    try:
        with path.open("wb") as file:
            while file.tell() < BYTES:
                file.write(part.replace(b"@@@@@@@@", b"%08d" % count))
                count += 1
            # One line of 200 MB is dropped and said.
            file.write(b'{"type":"user","message":"' + b"x" * (200 * 1024**2) + b'"}\n')
            file.write(json.dumps(assistant("last", "last", output=3, session="big")).encode())
        told = tmp_path / "told.json"
        with told.open("wb") as out:
            ran = subprocess.Popen(
                [sys.executable, "-m", "daemon", "measure", "--json", str(path)],
                stdout=out,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2 * 1024**3, 2 * 1024**3)),
            )
            # Its own peak: that of all children would be that of the largest program of any test.
            _, status, used = os.wait4(ran.pid, 0)
            ran.returncode = os.waitstatus_to_exitcode(status)
    finally:
        path.unlink(missing_ok=True)
    assert ran.returncode == 0
    peak = used.ru_maxrss * 1024
    (one,) = json.loads(told.read_bytes())["sessions"]
    calls = 40 * count + 1
    assert (one["turns"], one["tool_calls"]) == (calls, 40 * count)
    assert one["tokens"]["output"] == 7 * 40 * count + 3
    (skipped,) = one["skipped"]
    assert skipped["line"] == 40 * count * 4 + 1
    assert "bytes long" in skipped["why"]
    assert peak < PEAK + calls * 1100, f"{peak / 1e6:.0f} MB for {calls} calls"
    print(f"{peak / 1e6:.0f} MB for {calls} calls of {BYTES / 1e9:.1f} GB")
