"""Runs the proofs of the queue protocol at sizes given on the command line.

Each prints its method, the number of cases, the seconds, the floor and the
result; it exits with 1 when something broke or a floor was not reached.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.proofs.proof import Proof, everything, prove  # noqa: E402  # the tests are no package of ours


def size_of(text: str) -> tuple[str, int]:
    """``kills=500``"""
    name, _, number = text.partition("=")
    return name, int(number)


def listing(proofs: dict[str, Proof]) -> str:
    return "\n".join(
        f"  {proof.name:14} {proof.text}\n  {'':14} {proof.daily} / {proof.usual} / {proof.large} {proof.unit}"
        for proof in proofs.values()
    )


def main() -> int:
    proofs = everything()
    parser = argparse.ArgumentParser(
        prog="scripts/proofs",
        description=(__doc__ or "").splitlines()[0],
        epilog=f"proofs, and their sizes: daily / usual / large\n{listing(proofs)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", choices=list(proofs), help="this proof; may be repeated")
    parser.add_argument(
        "--size", action="append", type=size_of, default=[], metavar="NAME=N", help="of one proof"
    )
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument(
        "--daily", dest="which", action="store_const", const="daily", help="as in scripts/test"
    )
    sizes.add_argument(
        "--large",
        dest="which",
        action="store_const",
        const="large",
        help="as in docs/explanation/durability.md",
    )
    parser.add_argument("--seed", type=int, help="it is printed, so that a run can be repeated")
    given = parser.parse_args()
    asked = dict(given.size)
    if unknown := set(asked) - set(proofs):
        parser.error(f"there is no proof {', '.join(sorted(unknown))}; there are {', '.join(proofs)}")
    seed = given.seed if given.seed is not None else time.time_ns() % 100_000
    held = True
    for name in given.only or (list(asked) if asked and not given.which else list(proofs)):
        proof = proofs[name]
        if why := proof.obstacle():
            print(f"{name}: not run: {why}", flush=True)
            continue
        outcome = prove(proof, asked.get(name, getattr(proof, given.which or "usual")), seed)
        held = held and outcome.held
        print(outcome.line(), flush=True)
        for broken in outcome.report.broken[:20]:
            print(f"  {broken}", flush=True)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
