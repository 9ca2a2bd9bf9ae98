"""Shows the eval rows of a finished demo, and ends with 1 unless everything came out as it should.

python3 outcome.py WORKSPACE
"""

import json
import subprocess
import sys
from pathlib import Path

# track -> its sessions' terminations, in order
EXPECTED = {
    "announce": ["clean"],
    "count-primes": ["clean"],
    "files-or-database": ["clean"],
    "leap-years": ["clean"],
    "poem": ["incomplete", "clean"],
    "wrong-sum": ["incomplete"],
}
DONE = {"announce.md", "count-primes.md", "files-or-database.md", "leap-years.md", "poem.md"}
#: What came from the database: a document that these were told, by their kind, project or phase.
TOLD = {
    ("announce", 1): "instructions/kind-docs.md",
    ("files-or-database", 1): "projects/research.md",
    ("leap-years", 1): "instructions/completion-contract.md",
    ("poem", 1): "instructions/working-unattended.md",
    ("poem", 2): "instructions/trying-again.md",
}
FAILED = {"mistyped.md", "wrong-sum.md"}


def main(workspace: Path) -> int:
    rows = [
        json.loads(line)
        for file in sorted((workspace / "md-db" / "evals").glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    rows.sort(key=lambda row: (row["track_id"], row["attempt"]))
    for row in rows:
        contract = row["contract"]
        seconds = f"{row['wall_s']:5.1f} s" if row["wall_s"] is not None else "      -"
        print(
            f"    {row['track_id']:17} attempt {row['attempt']}  {row['harness_id']:7} {row['termination']:11}"
            f" {contract['passed']} of {contract['checks']} checks {seconds}  {row['session_id']}"
        )
    faults = list(_faults(workspace, rows))
    for fault in faults:
        print(f"not as expected: {fault}", file=sys.stderr)
    return 1 if faults else 0


def _faults(workspace: Path, rows: list[dict]):
    tracks = workspace / "tracks"
    for folder, expected in (("queued", set()), ("active", set()), ("done", DONE), ("failed", FAILED)):
        there = {path.name for path in (tracks / folder).glob("*.md")}
        if there != expected:
            yield f"tracks/{folder} holds {sorted(there)}, not {sorted(expected)}"
    if not (tracks / "failed" / "mistyped.md.why.txt").is_file():
        yield "mistyped.md has no reason beside it"
    if len({row["session_id"] for row in rows}) != len(rows):
        yield "a session has two eval rows"
    ended: dict[str, list[str]] = {}
    for row in rows:
        ended.setdefault(row["track_id"], []).append(row["termination"])
    if ended != EXPECTED:
        yield f"the sessions ended as {ended}, not as {EXPECTED}"
    sessions = {path.name for path in (workspace / "sessions").iterdir()}
    if sessions != {row["session_id"] for row in rows}:
        yield f"sessions without an eval row, or rows without a session: {sorted(sessions)}"
    for session in sorted(sessions):
        if not (workspace / "sessions" / session / "settled").is_file():
            yield f"{session} is not settled"
    for (track, attempt), path in TOLD.items():
        answer = _resolve(workspace, track, attempt)
        told = [each["path"] for each in answer["record"]["told"]]
        if path not in told:
            yield f"{track}, attempt {attempt}, was not told {path}, but {told}"
        if answer["rebuilt"] is not True:
            yield f"what {track} was told in attempt {attempt} cannot be built again: {answer['doubt']}"
    for log in workspace.glob("sessions/count-primes-*/events.jsonl"):
        lines = log.read_text().splitlines()
        numbers = [int(line.split(":")[0].removeprefix("up to").replace(",", "")) for line in lines[:-1]]
        if numbers != list(range(4000, 100_001, 4000)):
            yield f"count-primes lost or repeated lines: {numbers}"


def _resolve(workspace: Path, track: str, attempt: int) -> dict:
    argv = [sys.executable, "-m", "daemon", "--root", str(workspace), "resolve", track]
    ran = subprocess.run([*argv, "--attempt", str(attempt), "--json"], stdout=subprocess.PIPE, check=True)
    return json.loads(ran.stdout)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
