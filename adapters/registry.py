"""From a harness's name to its adapter.

Adapters are found by the entry point group ``megaharness.adapters``, ours as
anybody's. A ``[harness.NAME]`` table of the settings is handed to the adapter
of that name; with an ``argv`` and without an adapter of that name it makes a
command-line harness, see `adapters.harnesses.generic`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from adapters.errors import AdapterError, HarnessMisconfigured, HarnessUnknown
from adapters.ports import Harness

GROUP = "megaharness.adapters"
GENERIC = "generic"

# In `harness_id: name/model` the name ends at the slash.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Registry:
    """Resolves names; loads an adapter only when its name is asked for."""

    def __init__(self, harness_settings: Mapping[str, Mapping[str, object]] | None = None) -> None:
        """harness_settings: the ``[harness.*]`` tables, by name."""
        self._settings = dict(harness_settings or {})
        self._made: dict[str, Harness] = {}

    def names(self) -> list[str]:
        """All harnesses that can be named in a track, sorted; installed or not."""
        return sorted((set(self._entries) - {GENERIC}) | set(self._settings))

    def get(self, name: str) -> Harness:
        """The harness of this name, always the same object.

        Raises `HarnessUnknown`, or `HarnessMisconfigured` when its settings
        cannot work or its package cannot be loaded.
        """
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> Harness:
        settings = self._settings.get(name, {})
        if name in self._entries and name != GENERIC:
            return self._load(name, name, settings)
        if name in self._settings and not _NAME.fullmatch(name):
            raise HarnessMisconfigured(
                f"[harness.{name!r}] cannot be named in a track", "use letters, digits and any of . _ -"
            )
        if "argv" in settings:
            return self._load(GENERIC, name, settings)
        if name in self._settings:
            raise HarnessMisconfigured(
                f"[harness.{name}] has no argv, and no adapter has that name{nearest(name, self._entries)}",
                f'add argv = ["{name}", "{{brief}}"], or install the package that has the adapter',
            )
        raise HarnessUnknown(
            f"no harness {name!r}{nearest(name, self.names())}; known: {', '.join(self.names())}",
            f"a command-line agent needs only its command: [harness.{name or 'NAME'}] argv = [...]",
        )

    def _load(self, entry: str, name: str, settings: Mapping[str, object]) -> Harness:
        choices = self._entries.get(entry, [])
        if not choices:
            raise HarnessMisconfigured(
                f"the adapter {entry!r} is not registered",
                "megaHarness is not installed in this environment: pip install -e .",
            )
        if len(choices) > 1:
            offers = ", ".join(f"{each.value} of {each.dist.name if each.dist else '?'}" for each in choices)
            raise HarnessMisconfigured(
                f"{len(choices)} packages bring an adapter {entry!r}: {offers}", "uninstall all but one"
            )
        try:
            return cast(Harness, choices[0].load().from_settings(name, settings))
        except AdapterError:
            raise
        except Exception as error:  # a package of somebody else's: it may raise anything
            raise HarnessMisconfigured(
                f"the adapter {entry!r} ({choices[0].value}) cannot be loaded: {error!r}",
                "reinstall the package that brings it, or uninstall it",
            ) from error

    @cached_property
    def _entries(self) -> dict[str, list[EntryPoint]]:
        found: dict[str, list[EntryPoint]] = {}
        for entry in entry_points(group=GROUP):
            same = found.setdefault(entry.name, [])
            # An editable install can show its own metadata twice.
            if entry.value not in {each.value for each in same}:
                same.append(entry)
        return found


def nearest(word: str, words: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or nothing if no word is near."""
    near = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""
