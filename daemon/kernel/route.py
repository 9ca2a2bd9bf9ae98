"""Which harness and model a track gets, and why.

For now: the one that the track names, else the first of ``prefer`` that is
installed. A router with rules takes this place later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from adapters.errors import AdapterError
from adapters.ports import Harness, Probe
from daemon.mddb.resolver import Context, DatabaseFault, Nothing, Resolver

#: Seconds for which an answer about an installed program is believed.
BELIEVE = 20.0
#: Seconds after which a track is looked at again that waits for a document to be mended.
UNREADABLE_AGAIN = 3.0
_ANOTHER = "name another in the file (harness_id:), or change md-db/instructions/router-policy.md"


@dataclass(frozen=True, slots=True)
class Route:
    """by: ``explicit`` (the track says so) or ``preference`` (the settings say so)."""

    harness: str
    model: str | None
    by: str

    def __str__(self) -> str:
        return f"{self.harness}/{self.model}" if self.model else self.harness


@dataclass(frozen=True, slots=True)
class NoRoute:
    """again_s: after how many seconds it is looked at again, when no event tells of an end; None: as usual."""

    why: str
    unblock: str
    again_s: float | None = None


class Harnesses(Protocol):
    def get(self, name: str) -> Harness: ...


class Asking(Protocol):
    """What of a track its way depends on."""

    @property
    def harness_id(self) -> str | None: ...
    @property
    def model_id(self) -> str | None: ...
    @property
    def project_id(self) -> str | None: ...
    @property
    def kind(self) -> str | None: ...


class Router:
    """resolver: knows the policy, and whether what a track would be told can be read."""

    def __init__(self, harnesses: Harnesses, prefer: Sequence[str], resolver: Resolver | None = None) -> None:
        self._harnesses = harnesses
        self._prefer = prefer
        self._resolver = resolver or Nothing()
        self._probes: dict[str, tuple[float, Probe]] = {}

    def route(self, track: Asking, mono: float) -> Route | NoRoute:
        """Raises OSError where the disk refuses the database."""
        try:
            return self._route(track, mono)
        except DatabaseFault as fault:
            return NoRoute(f"what it has to be told cannot be read:\n{fault}", fault.hint, UNREADABLE_AGAIN)

    def _route(self, track: Asking, mono: float) -> Route | NoRoute:
        denials = []
        if track.harness_id is not None:
            probe = self._probe(track.harness_id, mono)
            if not probe.found:
                return NoRoute(probe.problem, probe.hint)
            if denial := self._denied(track.harness_id, track):
                return NoRoute(f"the policy forbids {denial}", _ANOTHER)
            return Route(track.harness_id, track.model_id, "explicit")
        for name in self._prefer:
            if self._probe(name, mono).found and self._harnesses.get(name).capabilities().by_default:
                if denial := self._denied(name, track):
                    denials.append(denial)
                    continue
                return Route(name, track.model_id, "preference")
        if denials:
            return NoRoute(f"the policy forbids {'; '.join(denials)}", _ANOTHER)
        if not self._prefer:
            return NoRoute(
                "no harness is named, and the settings prefer none",
                'name one in the file (harness_id: shell), or set prefer = ["NAME"] in megaharness.toml',
            )
        return NoRoute(
            f"none of the preferred harnesses is installed here: {', '.join(self._prefer)}",
            "install one, name another in the file (harness_id:), or change prefer in megaharness.toml",
        )

    def _denied(self, harness: str, track: Asking) -> str | None:
        """What is forbidden, and why; None: it is not."""
        context = Context(harness, track.model_id or "", track.project_id or "", track.kind or "")
        prose = self._harnesses.get(harness).capabilities().prose
        why = self._resolver.denied(context, told=prose)
        return f"{Route(harness, track.model_id, '')}: {why}" if why is not None else None

    def _probe(self, name: str, mono: float) -> Probe:
        known = self._probes.get(name)
        if known is None or mono - known[0] > BELIEVE:
            try:
                probe = self._harnesses.get(name).probe()
            except AdapterError as error:
                probe = Probe(False, problem=str(error), hint=error.hint)
            self._probes[name] = known = (mono, probe)
        return known[1]
