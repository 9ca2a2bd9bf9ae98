"""``python -m daemon`` is `mh`."""

from daemon.cli import main

main()
