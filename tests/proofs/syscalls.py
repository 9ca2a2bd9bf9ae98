"""Kill -9 at every system call that changes a file: of the daemon, and of the real runner (tests/crash/killed.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.proofs.proof import Proof, Report

ROOT = Path(__file__).resolve().parents[2]


def _proof(name: str, what: str, text: str, *, daily: int, floor: int) -> Proof:
    def run(size: int, seed: int) -> Report:
        # A process of its own, because it forks and a test runner has threads.
        done = subprocess.run(
            [sys.executable, "-m", "tests.crash.killed", what, str(size), str(seed)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            check=True,
        )
        found = json.loads(done.stdout)
        kills = found["kills"]
        notes = ["kills at " + ", ".join(f"{call} {count}" for call, count in sorted(kills.items()))]
        if "readings" in found:
            notes.append(
                "then read as " + ", ".join(f"{k} {n}" for k, n in sorted(found["readings"].items()))
            )
        return Report(sum(kills.values()), found["broken"], notes)

    return Proof(
        name=name,
        text=text,
        unit="per cent of all calls",
        daily=daily,
        usual=50,
        large=100,
        run=run,
        floor=lambda size: floor * size // 100,
        needs={"strace": "strace"},
    )


PROOFS = (
    _proof(
        "syscalls", "daemon", "the daemon killed at its n-th system call of each kind", daily=4, floor=4200
    ),
    _proof(
        "syscalls-runner",
        "runner",
        "the runner killed at its n-th system call of each kind",
        daily=8,
        floor=150,
    ),
)
