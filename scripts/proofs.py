"""Runs the proofs of the queue protocol at a size given on the command line.

Each prints its method, the number of cases, the seconds, the floor and the
result; it exits with 1 when something broke or a floor was not reached.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.crash.cases import DEPTHS, METHODS, explore


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
    given = parser.parse_args()
    return 0 if enumeration(given.enumeration_depth, given.only or list(METHODS)) else 1


if __name__ == "__main__":
    sys.exit(main())
