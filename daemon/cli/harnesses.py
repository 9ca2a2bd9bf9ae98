"""What is wrong with the harnesses of the settings, as far as it can be seen without running one."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from adapters.errors import AdapterError
from adapters.registry import Registry

if TYPE_CHECKING:
    from daemon.config import Settings


def faults(settings: Settings, registry: Registry) -> Iterator[tuple[str, AdapterError]]:
    """(name, why) of every harness whose settings can never work; one that is not installed is none."""
    names = registry.names()
    for name in names:
        try:
            registry.get(name)
        except AdapterError as error:
            yield name, error
    for name in settings.prefer:
        if name not in names:
            yield name, AdapterError("is preferred and not known", "correct prefer in megaharness.toml")


def lacking(settings: Settings, environ: Collection[str]) -> Iterator[tuple[str, str]]:
    """(name, sentence) of every harness that is to get a variable that is not in the environment; names only."""
    for name, table in settings.harness.items():
        missing = [each for each in table.pass_env if each not in environ and each not in table.env]
        if missing:
            verb = "is" if len(missing) == 1 else "are"
            yield name, f"pass_env names {', '.join(missing)}, which {verb} not in the daemon's environment"
