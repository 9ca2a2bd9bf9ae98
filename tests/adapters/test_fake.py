"""The fake does what the brief says: each directive, in a real session."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters import session
from adapters.fake import Fake
from adapters.fake_agent import directives, known
from adapters.ports import Collected, Ended, Order, Running
from adapters.testing import Bench, DirectTerminal, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(Fake(), DirectTerminal(), tmp_path)
    yield bench
    bench.clean_up()


def fake(*lines: str) -> bytes:
    return "\n".join(["# Play", "```fake", *lines, "```", ""]).encode()


def play(bench: Bench, *lines: str) -> tuple[Order, Ended, Collected]:
    order, ended = bench.run(fake(*lines))
    return order, ended, bench.harness.collect(order.session)


def test_directives_are_read_from_the_last_block_only() -> None:
    text = "x\n```fake\nsay one\n```\n```fake\n\n# a comment\n say two \r\n```\n```sh\nsay no\n```"
    assert directives(text) == ["say two"]
    assert directives("say no") is None


def test_it_says_and_ends(bench: Bench) -> None:
    _, ended, collected = play(bench, "say one", "say grüße 漢字")
    assert ended.code == 0
    assert collected.answer == "grüße 漢字"
    assert str(collected.termination) == "clean"
    assert collected.usage.turns == 1
    assert collected.usage.input_tokens is None


def test_it_lies_about_being_done(bench: Bench) -> None:
    order, _, collected = play(bench, "result All tests pass, I am done.")
    assert collected.answer == "All tests pass, I am done."
    assert list(order.workdir.iterdir()) == []


def test_it_reports_usage_and_a_termination_of_its_own(bench: Bench) -> None:
    _, ended, collected = play(bench, "usage 120 40 0.25", "end limit five_hour")
    assert ended.code == 0
    assert str(collected.termination) == "limit/five_hour"
    usage = collected.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cost_usd) == (120, 40, 0.25)


def test_a_death_outweighs_what_it_reported(bench: Bench) -> None:
    _, _, collected = play(bench, "end limit five_hour", "say x", "exit 5")
    assert str(collected.termination) == "crash/exit_5"


def test_it_asks_and_ends(bench: Bench) -> None:
    order, ended, collected = play(bench, "ask Which table?", "write late x")
    assert ended.code == 0
    assert collected.answer == "Which table?"
    assert not (order.workdir / "late").exists()


def test_it_writes_files(bench: Bench) -> None:
    order, _, _ = play(bench, "write a/b.txt grüße", "append log one", "append log two", "keep brief")
    assert (order.workdir / "a" / "b.txt").read_text() == "grüße\n"
    assert (order.workdir / "log").read_text() == "one\ntwo\n"
    assert (order.workdir / "brief").read_bytes() == order.brief.read_bytes()


def test_garbage_and_huge_lines_do_not_hide_the_answer(bench: Bench) -> None:
    order, _, collected = play(
        bench, "garbage 5000", "huge 3000000", "print no json", "err oops", "say the answer"
    )
    assert collected.answer == "the answer"
    assert (order.session / "stderr.log").read_text() == "oops\n"
    assert (order.session / "events.jsonl").stat().st_size > 3_000_000


def test_silence_is_no_answer(bench: Bench) -> None:
    _, ended, collected = play(bench, "sleep 0.01")
    assert ended.code == 0
    assert collected.answer is None


def test_a_brief_without_a_block_is_answered(bench: Bench) -> None:
    order, ended = bench.run(b"- [ ] do the thing\n")
    assert ended.code == 0
    assert bench.harness.collect(order.session).answer == "got: a brief without a fake block"


def test_an_unknown_directive_is_told(bench: Bench) -> None:
    order, ended, _ = play(bench, "sya hello")
    assert ended.code == 64
    errors = (order.session / "stderr.log").read_text()
    assert "unknown directive 'sya'" in errors
    assert all(word in errors for word in known())


def test_it_hangs_and_ignores_signals_until_it_is_killed(bench: Bench) -> None:
    order = bench.order(fake("ignore INT TERM", "say ready", "hang"))
    bench.spawn(order)
    wait_for(lambda: b"ready" in _stream(order), "the harness")
    bench.harness.interrupt(order.session, "enough")
    ended = bench.ended(order)
    assert (ended.signal, ended.reason) == (9, "interrupted")


@pytest.mark.parametrize("kind", ["plain", "nohup", "setsid", "double", "bare", "stubborn"])
def test_no_child_outlives_the_session(bench: Bench, kind: str, request: pytest.FixtureRequest) -> None:
    nap = f"3{request.node.callspec.indices['kind']}7.25"
    _, ended, _ = play(bench, f"spawn {kind} {nap}", "say done")
    assert ended.code == 0
    assert ended.strays >= 1
    assert subprocess.run(["pgrep", "-f", f"sleep {nap}"], capture_output=True, check=False).stdout == b""


def test_messages_are_answered_during_a_turn_and_after_it(bench: Bench) -> None:
    order = bench.order(fake("say ready", "read", "read", "say turn over"))
    bench.spawn(order)
    wait_for(lambda: b"ready" in _stream(order), "the harness")
    for text in ("first ü", "second", "third", "fourth"):
        session.message(order.session, bench.harness.encode(text), text, "test")
    wait_for(lambda: b"got: first \xc3\xbc" in _stream(order), "an answer during the turn")
    assert bench.ended(order).code == 0
    stream = _stream(order)
    assert stream.index(b"first") < stream.index(b"second") < stream.index(b"third") < stream.index(b"fourth")
    assert len(session.delivered(order.session)) == 5
    collected = bench.harness.collect(order.session)
    assert collected.answer == "got: fourth"
    assert collected.usage.turns is not None
    assert collected.usage.turns > 1


def test_it_waits_silently_without_an_end(bench: Bench) -> None:
    order = bench.order(fake("say ready", "hang"))
    bench.spawn(order)
    wait_for(lambda: b"ready" in _stream(order), "the harness")
    assert isinstance(bench.harness.status(order.session), Running)


def _stream(order: Order) -> bytes:
    try:
        return (order.session / "events.jsonl").read_bytes()
    except FileNotFoundError:
        return b""
