"""The command that keeps a session: ``python -I -S keep.py <session directory>``; the work is `runner.py`'s.

Python compiles the file that it is started with anew each time, and keeps the
bytecode of what is imported. So the runner is imported, from here, and the
harness starts some 10 ms sooner.
"""

import os
import sys

# At the end: what the standard library has is never looked for among our files. And not for longer than it takes.
sys.path.append(os.path.dirname(os.path.abspath(__file__)))
runner = __import__("runner")  # the sibling alone, without its package and all that this needs
sys.path.pop()

if __name__ == "__main__":
    sys.exit(runner.main(sys.argv[1]))
