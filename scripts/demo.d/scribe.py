"""A stand-in for a command-line agent, so that the demo needs no account and no network.

    python3 scribe.py BRIEF

It reads its brief as a real agent would, but knows one trick only: it writes
poem.txt, and forgets the last line unless the brief tells of a failed check.
"""

import sys
import time
from pathlib import Path

POEM = """\
They wait in line, each with a name,
and none goes twice, and none is lost;
the last to leave, the first that came:
one rename is what each has cost.
"""

brief = Path(sys.argv[1]).read_text()
print(f"scribe: the brief has {len(brief.split())} words; the first: {brief.split(chr(10))[0]}", flush=True)
again = "What the last attempt left open" in brief
if again:
    print("scribe: a check failed last time, so this time with all four lines", flush=True)
lines = POEM.splitlines(keepends=True)[: 4 if again else 3]
with open("poem.txt", "w") as file:
    for line in lines:
        time.sleep(1.5)
        file.write(line)
        print(f"scribe: {line.rstrip()}", flush=True)
print(f"I wrote poem.txt; it has {len(lines)} lines.")
