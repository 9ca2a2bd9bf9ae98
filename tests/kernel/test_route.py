"""Which harness a track gets, and what is said when it gets none."""

from __future__ import annotations

from dataclasses import dataclass, field

from adapters.errors import HarnessUnknown
from adapters.ports import Capabilities, Harness, Probe
from adapters.registry import Registry
from daemon.errors import Problem
from daemon.kernel.route import BELIEVE, NoRoute, Route, Router
from daemon.mddb.resolver import Context, DatabaseFault, Nothing
from daemon.tracks.track import Track


@dataclass
class Installed:
    """A harness of which only the probe is asked. Counts how often."""

    name: str
    found: bool = True
    by_default: bool = True
    probes: int = 0

    def probe(self) -> Probe:
        self.probes += 1
        return Probe(self.found, problem="" if self.found else f"{self.name} is not here", hint="install it")

    def capabilities(self) -> Capabilities:
        return Capabilities(by_default=self.by_default)


@dataclass
class Shelf:
    harnesses: dict[str, Installed] = field(default_factory=dict)

    def get(self, name: str) -> Harness:
        if name not in self.harnesses:
            raise HarnessUnknown(f"no harness {name!r}", "name another")
        return self.harnesses[name]  # type: ignore[return-value]


def shelf(*harnesses: Installed) -> Shelf:
    return Shelf({harness.name: harness for harness in harnesses})


def test_the_one_that_is_named_with_its_model() -> None:
    router = Router(shelf(Installed("a"), Installed("b", by_default=False)), ["a"])
    assert router.route(Track(harness_id="b", model_id="m"), 0.0) == Route("b", "m", "explicit")
    assert str(Route("b", "m", "explicit")) == "b/m"
    assert str(Route("b", None, "explicit")) == "b"


def test_the_named_one_or_none_never_another() -> None:
    router = Router(shelf(Installed("a"), Installed("b", found=False)), ["a"])
    assert router.route(Track(harness_id="b"), 0.0) == NoRoute("b is not here", "install it")
    assert router.route(Track(harness_id="c"), 0.0) == NoRoute("no harness 'c'", "name another")


def test_the_first_of_the_preferred_that_is_here() -> None:
    router = Router(shelf(Installed("a", found=False), Installed("b"), Installed("c")), ["x", "a", "b", "c"])
    assert router.route(Track(model_id="m"), 0.0) == Route("b", "m", "preference")


def test_one_that_is_never_chosen_by_itself_is_passed_over() -> None:
    router = Router(shelf(Installed("a", by_default=False), Installed("b")), ["a", "b"])
    assert router.route(Track(), 0.0) == Route("b", None, "preference")


def test_none_says_which_were_looked_for_and_what_to_do() -> None:
    answer = Router(shelf(Installed("a", found=False)), ["a", "x"]).route(Track(), 0.0)
    assert isinstance(answer, NoRoute)
    assert "a, x" in answer.why
    assert "harness_id" in answer.unblock
    answer = Router(shelf(), []).route(Track(), 0.0)
    assert isinstance(answer, NoRoute)
    assert "prefer" in answer.unblock


def test_an_answer_is_believed_for_a_while_and_then_asked_again() -> None:
    late = Installed("a", found=False)
    router = Router(shelf(late), ["a"])
    assert isinstance(router.route(Track(), 0.0), NoRoute)
    late.found = True
    assert isinstance(router.route(Track(), BELIEVE), NoRoute)
    assert late.probes == 1
    assert router.route(Track(), BELIEVE + 0.1) == Route("a", None, "preference")


def test_the_real_shelf_never_chooses_the_shell_or_the_fake() -> None:
    registry = Registry({})
    answer = Router(registry, ["shell", "fake"]).route(Track(), 0.0)
    assert isinstance(answer, NoRoute)
    assert Router(registry, []).route(Track(harness_id="fake"), 0.0) == Route("fake", None, "explicit")


@dataclass
class Forbids(Nothing):
    """A policy that forbids some harnesses, and a database in which something cannot be read."""

    harnesses: tuple[str, ...] = ()
    fault: bool = False

    def denied(self, context: Context, *, told: bool) -> str | None:
        if self.fault and told:
            raise DatabaseFault({"instructions/a.md": [Problem("is odd", line=3)]})
        return "so it is written" if context.harness_id in self.harnesses else None


def test_what_the_policy_forbids_is_passed_over_or_told() -> None:
    both = shelf(Installed("a"), Installed("b"))
    router = Router(both, ["a", "b"], Forbids(("a",)))
    assert router.route(Track(), 0.0) == Route("b", None, "preference")
    answer = router.route(Track(harness_id="a", model_id="m"), 0.0)
    assert isinstance(answer, NoRoute)
    assert answer.why == "the policy forbids a/m: so it is written"
    assert "router-policy.md" in answer.unblock
    none = Router(both, ["a", "b"], Forbids(("a", "b"))).route(Track(), 0.0)
    assert isinstance(none, NoRoute)
    assert none.why == "the policy forbids a: so it is written; b: so it is written"


def test_a_track_waits_while_what_it_has_to_be_told_cannot_be_read() -> None:
    answer = Router(shelf(Installed("a")), ["a"], Forbids(fault=True)).route(Track(), 0.0)
    assert isinstance(answer, NoRoute)
    assert "md-db/instructions/a.md: line 3: is odd" in answer.why
    scripts = Router(Registry(), [], Forbids(fault=True))
    assert scripts.route(Track(harness_id="shell"), 0.0) == Route("shell", None, "explicit")
