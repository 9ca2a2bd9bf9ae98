"""A stand-in for a command-line agent, so that the demo needs no account and no network.

    python3 scribe.py BRIEF

It reads its brief as a real agent would, but knows a few tricks only, by the file that the task asks for. Of
poem.txt it forgets the last line unless the brief tells of a failed check.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

POEM = """\
They wait in line, each with a name,
and none goes twice, and none is lost;
the last to leave, the first that came:
one rename is what each has cost.
"""

LEAP = '''\
def is_leap(year: int) -> bool:
    """Whether a year of the Gregorian calendar has a 29 February."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
'''
TEST_LEAP = """\
import unittest

from leap import is_leap


class LeapYears(unittest.TestCase):
    def test_every_fourth(self):
        self.assertTrue(is_leap(2024))
        self.assertFalse(is_leap(2025))

    def test_centuries(self):
        self.assertFalse(is_leap(1900))
        self.assertTrue(is_leap(2000))
"""

REPORT = """\
(no access to the web)

## Answer

Files, as long as one machine works on them: a rename is a transition, an editor is the user interface, and git is the
history. A database, when several machines take work from one queue.

## Findings

A rename within one file system happens whole or not at all (from memory).

## Open questions

How a network file system behaves when two machines rename at once.

## Sources

None was read in this session.
"""

NEWS = "# News\n\nThere is a function that knows leap years, and a list of primes.\n"


def say(text: str) -> None:
    print(f"scribe: {text}", flush=True)


def write(name: str, text: str) -> None:
    """Slowly, so that there is something to look at."""
    with open(name, "w") as file:
        for line in text.splitlines(keepends=True):
            time.sleep(1.5 if name == "poem.txt" else 0.1)
            file.write(line)
            if line.strip():
                say(line.rstrip())


def commit(message: str, *names: str) -> None:
    author = ["-c", "user.name=scribe", "-c", "user.email=scribe@localhost"]
    subprocess.run(["git", "add", *names], check=True)
    subprocess.run(["git", *author, "commit", "-qm", message], check=True)


def poem(brief: str) -> str:
    again = "What the last attempt left open" in brief
    if again:
        say("a check failed last time, so this time with all four lines")
    lines = POEM.splitlines(keepends=True)[: 4 if again else 3]
    write("poem.txt", "".join(lines))
    return f"I wrote poem.txt; it has {len(lines)} lines."


def leap(brief: str) -> str:
    write("leap.py", LEAP)
    write("test_leap.py", TEST_LEAP)
    commit("leap: a function that knows leap years", "leap.py", "test_leap.py")
    return "Wrote leap.py with is_leap(year), and two tests for it."


def report(brief: str) -> str:
    write("report.md", REPORT)
    return "Files, as long as one machine works on them. It stands in report.md."


def news(brief: str) -> str:
    write("NEWS.md", NEWS)
    return "Wrote NEWS.md."


TRICKS: dict[str, Callable[[str], str]] = {
    "poem.txt": poem,
    "leap.py": leap,
    "NEWS.md": news,
    "report.md": report,
}


def main(path: str) -> int:
    brief = Path(path).read_text()
    told, _, task = brief.partition("<task>\n")
    say(f"the brief has {len(brief.split())} words, {len(told.split())} of them from the database")
    say(f"the task: {task.partition(chr(10))[0]}")
    project_and_task = brief.rpartition("</instructions>\n")[2]
    for name, trick in TRICKS.items():
        if name in project_and_task:
            print(trick(brief))
            return 0
    print("BLOCKED: I know how to write " + ", ".join(TRICKS) + ". Which of them?")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
