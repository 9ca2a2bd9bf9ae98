"""Runs the proofs of the queue protocol at a size given on the command line.

Each prints its method, the number of cases, the seconds, the floor and the
result; it exits with 1 when something broke or a floor was not reached.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.crash.cases import DEPTHS, METHODS, explore  # noqa: E402  # the tests are no package of ours


def enumeration(depth: int, names: list[str]) -> bool:
    """Stop, refuse or save at every file operation of several lives. True: all of it held."""
    held = True
    for name in names:
        method = METHODS[name]
        tally = explore(method, depth)
        floor = method.floors[depth - 1]
        good = not tally.broken and tally.cases >= floor
        held = held and good
        print(
            f"{name}: {method.text}: {tally.cases} cases, {tally.seconds:.1f} s, floor {floor}: "
            f"{'held' if good else f'{len(tally.broken)} BROKEN' if tally.broken else 'TOO FEW'}",
            flush=True,
        )
        for broken in tally.broken[:20]:
            print(f"  {broken}", flush=True)
    return held


def kills(count: int, seed: int | None) -> bool:
    """kill -9 of the real daemon, again and again. True: every track ended once."""
    environ = {**os.environ, "MEGAHARNESS_KILLS": str(count)}
    if seed is not None:
        environ["MEGAHARNESS_SEED"] = str(seed)
    test = "tests/e2e/test_crash.py::test_kill_9_again_and_again_at_any_moment"
    argv = [sys.executable, "-m", "pytest", "-q", "-s", "--timeout", "0", test]
    began = time.monotonic()
    held = subprocess.run(argv, cwd=ROOT, env=environ, check=False).returncode == 0
    print(
        f"kill -9: {count} cases, {time.monotonic() - began:.1f} s: {'held' if held else 'BROKEN'}",
        flush=True,
    )
    return held


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/proofs", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--enumeration-depth",
        type=int,
        choices=DEPTHS,
        default=2,
        help="1: a sample (a minute); 2: every operation, and a sample of crashes inside the recovery "
        "(some minutes); 3: every pair of operations (hours). Default: 2",
    )
    parser.add_argument("--only", action="append", choices=list(METHODS), help="this method; may be repeated")
    parser.add_argument(
        "--kills",
        type=int,
        default=100,
        metavar="N",
        help="how often the real daemon is killed with -9 at a random moment, with real tmux and runners; "
        "0: not at all. Default: 100",
    )
    parser.add_argument(
        "--seed", type=int, help="of those moments; it is printed, so that a run can be repeated"
    )
    given = parser.parse_args()
    held = enumeration(given.enumeration_depth, given.only or list(METHODS))
    if given.kills and not given.only:
        held = kills(given.kills, given.seed) and held
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
