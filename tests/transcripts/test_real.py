"""Figures of real sessions of the real programs are what the provider has billed.

The programs run against a scripted provider (`tests.provider`), which records
what it sent. Their session files and their streams are read as anybody's, and
each figure is compared with the bill: tokens by part, model calls, tools, the
share of sub-agents. Nothing of a session is kept.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from adapters.transcripts import account
from adapters.transcripts.account import Account, Figures
from adapters.transcripts.events import Event
from adapters.transcripts.formats import head_of, reader_of
from adapters.transcripts.reader import Reader
from adapters.transcripts.readers.claude_code import ClaudeCode
from adapters.transcripts.readers.codex import Exec, Rollout
from tests.harnesses.real import Claude, Codex, OpenCode
from tests.provider.script import Bill, Run, Step, Text, Thinking, Tool, Usage, fail, say
from tests.provider.server import Provider

pytestmark = pytest.mark.slow

#: Opens the prompt of a sub-agent, and so tells its requests from those of the main conversation.
SIDE = "SIDEWORK"


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as provider:
        yield provider


def events(kind: type[Reader], source: Path | bytes) -> list[Event]:
    data = source if isinstance(source, bytes) else source.read_bytes()
    name = "" if isinstance(source, bytes) else str(source)
    assert reader_of(head_of(name, data[:65536], len(data) <= 65536)) is kind
    reader = kind()
    return reader.feed(data) + reader.close()


def counted(
    kind: type[Reader], sources: Iterable[Path | bytes], others: frozenset[int] = frozenset()
) -> Account:
    """The account of these files, which says the same if they come in another order, and twice."""
    read = [events(kind, source) for source in sources]
    counted, again = Account(others), Account(others)
    for each in read:
        counted.add(each)
    for each in (*reversed(read), *read):
        again.add(each)
    assert measured(again.figures()) == measured(counted.figures())
    if counted.opened.forked is None:  # of two sessions in one account the first gives the name
        assert again.opened == counted.opened
    assert counted.figures().skipped_lines == 0
    return counted


def figures(kind: type[Reader], *sources: Path | bytes, others: frozenset[int] = frozenset()) -> Figures:
    return counted(kind, sources, others).figures()


def measured(found: Figures) -> tuple[object, ...]:
    """All of the figures that are numbers."""
    return (
        *(found.tokens, found.main, found.subagents, found.inherited),
        *(found.turns, found.turns_subagents, found.tool_calls, found.tool_calls_subagents),
        *(found.tool_errors, found.prompts, found.compactions, found.models, found.cost_reported),
        found.lower_bounds,
    )


def tokens(used: account.Usage | Usage) -> tuple[int, int, int, int, int]:
    """Input, what of it was cached and created, output, what of it was reasoning; unknown is 0."""
    parts = (used.input, used.cached, used.created, used.output, used.reasoning)
    a, b, c, d, e = (part or 0 for part in parts)
    return a, b, c, d, e


def agree(found: Figures, bill: Bill, *, calls: bool = True) -> None:
    """Everything that the bill knows is what was found, sub-agents' share included; `calls`: so are its calls."""
    assert tokens(found.tokens) == tokens(bill.usage)
    if not calls:
        return
    sides = tuple(charge for charge in bill.whole if charge.lane)
    assert tokens(found.main) == tokens(bill.of("").usage)
    assert tokens(found.subagents) == tokens(Bill(sides).usage)
    assert (found.turns, found.turns_subagents) == (bill.calls, len(sides))
    assert (found.tool_calls, found.tool_calls_subagents) == (bill.tools, Bill(sides).tools)
    assert found.lower_bounds == ()
    by_model = {share.name: share for share in found.models}
    assert set(by_model) == set(bill.models)
    for name, used in bill.models.items():
        assert tokens(by_model[name].usage) == tokens(used)
        assert by_model[name].calls == bill.of(model=name).calls
        assert (by_model[name].tokens.created_1h or 0) == used.created_1h


def agree_as_a_folder(path: Path, sessions_of: int, bill: Bill) -> None:
    """What `mh measure FOLDER` says: the rows add up to the total, and the total to the bill."""
    argv = [sys.executable, "-P", "-m", "daemon", "measure", "--json", str(path)]
    told = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
    rows, totals = told["sessions"], told["totals"]
    assert len(rows) == totals["sessions"] == sessions_of
    names = ("input", "cached", "cache_created", "output", "reasoning")
    assert tuple(totals["tokens"][name] or 0 for name in names) == tokens(bill.usage)
    for name in names:
        assert sum(row["tokens"][name] or 0 for row in rows) == totals["tokens"][name] or 0
    assert (totals["turns"], totals["tool_calls"]) == (bill.calls, bill.tools)


def played(*runs: Run) -> Bill:
    """The bill of these runs, which went as they were written."""
    bill = Bill()
    for run in runs:
        assert (run.bill.surprises, run.left) == ((), {})
        bill += run.bill
    return bill


# Claude Code


def bash(command: str) -> Tool:
    return Tool("Bash", {"command": command, "description": "a command"})


AGENT = Tool("Agent", {"description": "side", "prompt": f"{SIDE}: look", "subagent_type": "general-purpose"})
OTHER_MODEL = Tool(AGENT.name, {**AGENT.asked({}), "model": "haiku"})

#: Thinking, text and two tools in one message, of which one fails.
BLOCKS = Step(
    (Thinking("Two things."), Text("I begin."), bash("echo hi > out.txt"), bash("exit 3")),
    Usage(fresh=50, cached=900, created=1050, created_1h=50, output=100, reasoning=40),
)

LOOKS = (
    Step((Text("I look."), bash("ls")), Usage(fresh=300, created=20, created_1h=20, output=9)),
    Step((Thinking("Enough."), Text("Seen.")), Usage(fresh=400, cached=5, output=11, reasoning=4)),
)


def asks(agent: Tool = AGENT) -> Step:
    return Step((agent,), Usage(fresh=10, cached=2000, created=100, output=40))


@pytest.fixture
def claude(tmp_path: Path) -> Claude:
    return Claude(tmp_path)


def new() -> str:
    return str(uuid.uuid4())


def test_claude_blocks_tools_and_a_sub_agent_of_another_model(claude: Claude, provider: Provider) -> None:
    run = provider.play(
        "whole", [BLOCKS, asks(OTHER_MODEL), say("Done.", Usage(fresh=10, output=7))], {SIDE: LOOKS}
    )
    name = new()
    ran = claude.print(run, "--session-id", name, "go", CLAUDE_CODE_DISABLE_BACKGROUND_TASKS="1")
    assert ran.code == 0, ran.stderr
    bill = played(run)

    found = figures(ClaudeCode, *claude.session(name))
    agree(found, bill)
    assert len(found.models) == 2
    assert (found.prompts, found.tool_errors) == (1, 1)
    assert (found.opened.session, found.opened.version, found.opened.inside) == (name, "2.1.332", None)
    assert found.ending is not None
    assert found.ending.kind == "clean"

    stream = figures(ClaudeCode, ran.stdout)
    agree(stream, bill, calls=False)
    assert tokens(stream.main) == tokens(bill.of("").usage)
    assert (stream.tool_calls, stream.tool_calls_subagents, stream.tool_errors) == (4, 1, 1)
    # The last words of a sub-agent are not in the stream.
    assert (stream.turns, stream.lower_bounds) == (bill.calls - 1, ("turns",))
    assert stream.cost_reported == pytest.approx(found.cost_reported)
    assert {share.name: tokens(share.usage) for share in stream.models} == {
        name: tokens(used) for name, used in bill.models.items()
    }

    # Both witnesses in one account say it once.
    together = Account()
    for source in (*claude.session(name), ran.stdout):
        together.add(events(ClaudeCode, source))
    assert tokens(together.figures().tokens) == tokens(bill.usage)
    assert (together.figures().turns, together.figures().tool_calls) == (bill.calls, bill.tools)


def test_claude_sub_agents_side_by_side_and_inside_each_other(claude: Claude, provider: Provider) -> None:
    def agent(marker: str) -> Tool:
        return Tool(AGENT.name, {**AGENT.asked({}), "prompt": f"{marker}: look"})

    run = provider.play(
        "deep",
        [
            Step((agent("ONE"), agent("TWO")), Usage(fresh=10, output=40)),
            say("Done.", Usage(fresh=1, output=1)),
        ],
        {
            "ONE": [
                Step((agent("DEEP"),), Usage(fresh=100, output=10)),
                say("One.", Usage(fresh=200, output=20)),
            ],
            "TWO": [
                Step((bash("ls"),), Usage(fresh=300, output=30)),
                say("Two.", Usage(fresh=400, output=40)),
            ],
            "DEEP": [
                Step((bash("ls"),), Usage(fresh=1000, output=50)),
                say("Deep.", Usage(fresh=2000, output=60)),
            ],
        },
    )
    name = new()
    ran = claude.print(run, "--session-id", name, "go", CLAUDE_CODE_DISABLE_BACKGROUND_TASKS="1")
    assert ran.code == 0, ran.stderr
    assert len(claude.session(name)) == 4
    agree(figures(ClaudeCode, *claude.session(name)), played(run))
    stream = figures(ClaudeCode, ran.stdout)
    agree(stream, run.bill, calls=False)
    # The stream shows the inner agent's start, and nothing that it did.
    assert (stream.tool_calls, stream.lower_bounds) == (run.bill.tools - 1, ("turns", "tool_calls"))


def test_claude_a_sub_agent_in_the_background_makes_two_results(claude: Claude, provider: Provider) -> None:
    last = [say("I wait.", Usage(fresh=10, cached=2100, output=7)), say("Done.", Usage(fresh=11, output=8))]
    run = provider.play("background", [asks(), *last], {SIDE: LOOKS})
    name = new()
    ran = claude.print(run, "--session-id", name, "go")
    assert ran.code == 0, ran.stderr
    bill = played(run)
    found = figures(ClaudeCode, *claude.session(name))
    agree(found, bill)
    assert found.prompts == 1
    stream = figures(ClaudeCode, ran.stdout)
    agree(stream, bill, calls=False)
    assert stream.counts["results"] == 2


def test_claude_resume_and_fork(claude: Claude, provider: Provider) -> None:
    """Parent and fork together are the bill; each stream is what its own process was billed."""
    name, fork_name = new(), new()
    first = provider.play("first", [BLOCKS, asks(), say("Done.", Usage(fresh=10, output=7))], {SIDE: LOOKS})
    more = provider.play("more", [say("More.", Usage(fresh=3, cached=2200, created=30, output=5))])
    forked = provider.play(
        "fork",
        [
            Step((bash("exit 4"),), Usage(fresh=4, cached=2300, created=40, output=6, reasoning=1)),
            say("Forked.", Usage(fresh=5, cached=2400, output=8)),
        ],
    )
    # The parent goes on as the fork began: with the same usage.
    on = provider.play("on", [say("On.", Usage(fresh=4, cached=2300, created=40, output=6, reasoning=1))])
    streams = {}
    for run, args in (
        (first, ("--session-id", name, "go")),
        (more, ("--resume", name, "again")),
        (forked, ("--resume", name, "--fork-session", "--session-id", fork_name, "fork")),
        (on, ("--resume", name, "on")),
    ):
        ran = claude.print(run, *args, CLAUDE_CODE_DISABLE_BACKGROUND_TASKS="1")
        assert ran.code == 0, ran.stderr
        streams[run.name] = ran.stdout

    files, fork_files = claude.session(name), claude.session(fork_name)
    parent = counted(ClaudeCode, files)
    agree(parent.figures(), played(first, more, on))
    assert (parent.figures().prompts, parent.figures().inherited.input) == (3, None)

    copied = tokens((first.bill.of("") + more.bill).usage)
    for others in (frozenset[int](), frozenset(parent.made(named_only=False))):
        fork = figures(ClaudeCode, *fork_files, others=others)
        agree(fork, played(forked))
        assert tokens(fork.inherited) == copied
        assert (fork.opened.session, fork.opened.forked, fork.tool_errors) == (fork_name, name, 1)
    assert fork.prompts == 1

    family = figures(ClaudeCode, *files, *fork_files)
    agree(family, played(first, more, forked, on))
    assert (family.prompts, family.tool_errors) == (4, 2)

    for run in (first, more, forked, on):
        agree(figures(ClaudeCode, streams[run.name]), run.bill, calls=not run.bill.of(SIDE).calls)
    costs = [figures(ClaudeCode, stream).cost_reported or 0 for stream in streams.values()]
    assert figures(
        ClaudeCode, streams["first"], streams["more"], streams["on"]
    ).cost_reported == pytest.approx(sum(costs) - costs[2])
    assert parent.figures().cost_reported == pytest.approx(sum(costs) - costs[2])
    agree_as_a_folder(claude.config / "projects", 2, played(first, more, forked, on))


def test_claude_partial_messages_have_the_final_counts(claude: Claude, provider: Provider) -> None:
    run = provider.play("partial", [BLOCKS, say("Done.", Usage(fresh=10, output=7))])
    ran = claude.print(run, "--include-partial-messages", "go")
    assert ran.code == 0, ran.stderr
    agree(figures(ClaudeCode, ran.stdout), played(run))
    # Without the result, as when it is killed, the deltas alone say it.
    killed = b"".join(line for line in ran.stdout.splitlines(True) if b'"type":"result"' not in line)
    assert killed != ran.stdout
    agree(figures(ClaudeCode, killed), run.bill)


def test_claude_killed_in_a_tool_and_resumed(claude: Claude, provider: Provider) -> None:
    """Who is killed writes no cost-state, and who goes on knows nothing of what that process used: the rows do."""
    name = new()
    # A tool starts before its row is written: this one waits for it.
    command = "until grep -qs WRITTEN $CLAUDE_CONFIG_DIR/projects/*/*.jsonl; do sleep 0.02; done; kill -KILL $CLAUDE_PID"
    killed = provider.play("killed", [BLOCKS, Step((bash(command),), Usage(fresh=10, output=4))])
    ran = claude.print(killed, "--session-id", name, "go")
    assert ran.code == -signal.SIGKILL
    for source in (claude.session(name), [ran.stdout]):
        found = figures(ClaudeCode, *source)
        assert (found.turns, found.tool_calls, found.ending) == (2, 3, None)
        assert found.tokens.input == played(killed).usage.input
    agree(figures(ClaudeCode, *claude.session(name)), killed.bill)
    assert "output" in figures(ClaudeCode, ran.stdout).lower_bounds
    more = provider.play("more", [say("On.", Usage(fresh=3, cached=2200, created=30, output=5))])
    ran = claude.print(more, "--resume", name, "on")
    assert ran.code == 0, ran.stderr
    agree(figures(ClaudeCode, *claude.session(name)), played(killed, more))
    agree(figures(ClaudeCode, ran.stdout), more.bill)


def test_claude_at_its_limit_of_turns(claude: Claude, provider: Provider) -> None:
    rounds = [Step((bash("true"),), Usage(fresh=4, cached=23 * n, output=6)) for n in (1, 2)]
    run = provider.play("turns", rounds)
    name = new()
    ran = claude.print(run, "--session-id", name, "--max-turns", "2", "go")
    assert ran.code == 1
    stream = figures(ClaudeCode, ran.stdout)
    for found in (stream, figures(ClaudeCode, *claude.session(name))):
        agree(found, played(run))
    assert stream.ending is not None
    assert (stream.ending.kind, stream.ending.code) == ("budget", "turns")


def test_claude_compacted(claude: Claude, provider: Provider) -> None:
    """The call that makes the summary leaves no row, but is counted; a fork then begins with the summary."""
    name, fork_name = new(), new()
    first = provider.play("first", [BLOCKS, say("Done.", Usage(fresh=10, output=7))])
    summary = provider.play(
        "summary", [say("<summary>It went well.</summary>", Usage(fresh=70, cached=700, output=90))]
    )
    after = provider.play("after", [say("On.", Usage(fresh=3, cached=50, output=5))])
    forked = provider.play("fork", [say("Forked.", Usage(fresh=4, cached=60, output=6))])
    for run, args in (
        (first, ("--session-id", name, "go")),
        (summary, ("--resume", name, "/compact")),
        (after, ("--resume", name, "on")),
        (forked, ("--resume", name, "--fork-session", "--session-id", fork_name, "fork")),
    ):
        ran = claude.print(run, *args)
        assert ran.code == 0, ran.stderr
        stream = figures(ClaudeCode, ran.stdout)
        agree(stream, played(run), calls=run is not summary)
        assert stream.compactions == (run is summary)
    parent = counted(ClaudeCode, claude.session(name))
    found = parent.figures()
    agree(found, played(first, summary, after), calls=False)
    assert tokens(found.main) == tokens((first.bill + after.bill).usage)
    assert (found.turns, found.compactions, found.lower_bounds) == (3, 1, ("turns",))
    agree(
        figures(ClaudeCode, *claude.session(fork_name), others=frozenset(parent.made(named_only=False))),
        played(forked),
    )
    agree(figures(ClaudeCode, *claude.session(fork_name)), played(forked))


@pytest.mark.parametrize(
    ("failure", "kind", "code"),
    [
        (fail(401), "auth", "401"),
        (fail(403), "auth", "403"),
        (fail(429, retry_after=3600), "limit", "429"),
        (fail(500), "provider", "500"),
    ],
    ids=["401", "403", "429", "500"],
)
def test_claude_refused(claude: Claude, provider: Provider, failure: Step, kind: str, code: str) -> None:
    run = provider.play("refused", [failure] * 6)
    name = new()
    ran = claude.print(run, "--session-id", name, "go")
    assert ran.code == 1
    assert (run.bill.calls, run.bill.surprises) == (0, ())
    for found in (figures(ClaudeCode, ran.stdout), figures(ClaudeCode, *claude.session(name))):
        agree(found, run.bill)
        assert found.ending is not None
        assert (found.ending.kind, found.ending.code) == (kind, code)


def test_claude_tried_again(claude: Claude, provider: Provider) -> None:
    run = provider.play("again", [fail(500), BLOCKS, say("Done.", Usage(fresh=10, output=7))])
    name = new()
    ran = claude.print(run, "--session-id", name, "go")
    assert ran.code == 0, ran.stderr
    for found in (figures(ClaudeCode, ran.stdout), figures(ClaudeCode, *claude.session(name))):
        agree(found, played(run))


def test_claude_a_stream_that_breaks_off_is_tried_again(claude: Claude, provider: Provider) -> None:
    """Of the broken one the program counts what it had read when it broke, if anything: no row says so."""
    run = provider.play(
        "cut", [Step(BLOCKS.blocks, BLOCKS.usage, cut=True), BLOCKS, say("Done.", Usage(fresh=10, output=7))]
    )
    name = new()
    ran = claude.print(run, "--session-id", name, "go")
    assert ran.code == 0, ran.stderr
    bill = played(run)
    (broken,) = (charge.usage for charge in bill.charges if charge.cut)
    stream, found = figures(ClaudeCode, ran.stdout), figures(ClaudeCode, *claude.session(name))
    assert stream.tokens == found.tokens
    if found.tokens.input == bill.usage.input:
        agree(stream, bill)
        agree(found, bill)
        return
    # A result counts it in its turn, a session file in cost-state alone.
    assert tokens(found.main) == tokens(bill.usage)
    for each in (found.tokens, stream.tokens, stream.main):
        assert tokens(each)[:3] == tokens(bill.usage + broken)[:3]
        assert (each.output or 0) >= bill.usage.output
    for both in (stream, found):
        assert (both.turns, both.tool_calls, both.lower_bounds) == (bill.calls, bill.tools, ("turns",))


# Codex


def shell(command: str) -> Tool:
    return Tool("exec_command", {"cmd": command})


def spawned(body: object) -> dict[str, object]:
    """The arguments that wait for the sub-agent of the last answer."""
    assert isinstance(body, dict)
    answers = [item["output"] for item in body["input"] if item.get("type") == "function_call_output"]
    return {"targets": [json.loads(answers[-1])["agent_id"]], "timeout_ms": 60000}


TOOLS = Step(
    (Thinking("Two things."), Text("I begin."), shell("echo hi > out.txt"), shell("exit 3")),
    Usage(fresh=50, cached=900, created=150, output=100, reasoning=30),
)


@pytest.fixture
def codex(tmp_path: Path) -> Codex:
    return Codex(tmp_path)


def thread_of(stream: bytes) -> str:
    return str(json.loads(stream.splitlines()[0])["thread_id"])


def test_codex_tools_and_reasoning(codex: Codex, provider: Provider) -> None:
    run = provider.play("tools", [TOOLS, say("Done.", Usage(fresh=10, cached=2100, output=7, reasoning=2))])
    ran = codex.exec(run, "go")
    assert ran.code == 0, ran.stderr
    bill = played(run)
    found = figures(Rollout, codex.rollout(thread_of(ran.stdout)))
    agree(found, bill)
    assert (found.prompts, found.tool_errors, found.opened.version) == (1, 1, "0.171.0")
    stream = figures(Exec, ran.stdout)
    agree(stream, bill, calls=False)
    assert (stream.turns, stream.tool_calls, stream.tool_errors) == (None, 2, 1)
    assert stream.ending is not None
    assert stream.ending.kind == "clean"


def test_codex_resume_and_fork(codex: Codex, provider: Provider) -> None:
    """Each file is what its own calls were billed; a stream goes on from the total of its thread's past."""
    first = provider.play("first", [TOOLS, say("Done.", Usage(fresh=10, cached=2100, output=7, reasoning=2))])
    more = provider.play("more", [say("More.", Usage(fresh=3, cached=2200, created=30, output=5))])
    forked = provider.play(
        "fork",
        [
            Step((shell("exit 4"),), Usage(fresh=4, cached=2300, created=40, output=6, reasoning=1)),
            say("Forked.", Usage(fresh=5, cached=2400, output=8)),
        ],
    )
    # The parent goes on as the fork began: with the same usage, and so to the same total.
    on = provider.play("on", [say("On.", Usage(fresh=4, cached=2300, created=40, output=6, reasoning=1))])
    ran = codex.exec(first, "go")
    assert ran.code == 0, ran.stderr
    thread = thread_of(ran.stdout)
    streams = {"first": ran.stdout}
    for run, args in (
        (more, ("resume", thread, "again")),
        (forked, ("fork", thread, "fork")),
        (on, ("resume", thread, "on")),
    ):
        ran = codex.exec(run, *args)
        assert ran.code == 0, ran.stderr
        streams[run.name] = ran.stdout
    fork_thread = thread_of(streams["fork"])

    parent = counted(Rollout, [codex.rollout(thread)])
    agree(parent.figures(), played(first, more, on))
    assert (parent.figures().prompts, parent.figures().tool_errors) == (3, 1)
    for others in (frozenset[int](), frozenset(parent.made(named_only=False))):
        fork = figures(Rollout, codex.rollout(fork_thread), others=others)
        agree(fork, played(forked))
        assert (fork.prompts, fork.tool_errors) == (1, 1)
        assert (fork.opened.session, fork.opened.forked) == (fork_thread, thread)
    agree(
        figures(Rollout, codex.rollout(thread), codex.rollout(fork_thread)), played(first, more, forked, on)
    )

    for past, run in (((), first), ((first,), more), ((first, more), forked), ((first, more), on)):
        agree(figures(Exec, streams[run.name]), played(*past, run), calls=False)
    agree_as_a_folder(codex.config / "sessions", 2, played(first, more, forked, on))
    # All streams of the thread in one account: its total, once.
    agree(
        figures(Exec, streams["first"], streams["more"], streams["on"]), played(first, more, on), calls=False
    )


def test_codex_killed_in_a_tool_and_resumed(codex: Codex, provider: Provider) -> None:
    killed = provider.play("killed", [TOOLS, Step((shell("kill -KILL $PPID"),), Usage(fresh=10, output=4))])
    ran = codex.exec(killed, "go")
    assert ran.code == -signal.SIGKILL
    rollout = codex.rollout(thread_of(ran.stdout))
    found = figures(Rollout, rollout)
    agree(found, played(killed))
    assert found.ending is None
    assert figures(Exec, ran.stdout).tokens.input is None
    more = provider.play("more", [say("On.", Usage(fresh=3, cached=2200, created=30, output=5))])
    ran = codex.exec(more, "resume", thread_of(ran.stdout), "on")
    assert ran.code == 0, ran.stderr
    agree(figures(Rollout, rollout), played(killed, more))
    # Its total goes on from the last count that the killed process had written, which was before its last call.
    stream = figures(Exec, ran.stdout)
    assert tokens(stream.tokens) == tokens(TOOLS.usage + more.bill.usage)


def test_codex_compacted(codex: Codex, provider: Provider) -> None:
    run = provider.play(
        "compact",
        [
            Step((shell("true"),), Usage(fresh=10000, output=9)),
            say("It went well.", Usage(fresh=70, cached=700, output=90)),
            say("Done.", Usage(fresh=3, cached=50, output=5)),
        ],
    )
    ran = codex.exec(run, "-c", "model_auto_compact_token_limit=3000", "go")
    assert ran.code == 0, ran.stderr
    found = figures(Rollout, codex.rollout(thread_of(ran.stdout)))
    agree(found, played(run))
    assert found.compactions == 1
    agree(figures(Exec, ran.stdout), run.bill, calls=False)


@pytest.mark.parametrize("fork", [False, True], ids=["alone", "forked"])
def test_codex_sub_agent(codex: Codex, provider: Provider, fork: bool) -> None:
    """Its thread may begin with a copy of its parent's history, which holds no usage."""
    space = "multi_agent_v1"
    run = provider.play(
        "agent",
        [
            Step(
                (Tool(f"{space}/spawn_agent", {"message": f"{SIDE}: look", "fork_context": fork}),),
                Usage(fresh=10, output=40, reasoning=3),
            ),
            Step((Tool(f"{space}/wait_agent", spawned),), Usage(fresh=20, cached=100, output=4)),
            say("Done.", Usage(fresh=10, cached=200, output=7)),
        ],
        {
            SIDE: [
                Step((shell("ls"),), Usage(fresh=300, output=9)),
                say("Seen.", Usage(fresh=400, cached=5, output=11)),
            ]
        },
    )
    ran = codex.exec(run, "go")
    assert ran.code == 0, ran.stderr
    bill = played(run)
    rollouts = sorted(codex.config.glob("sessions/*/*/*/*.jsonl"))
    assert len(rollouts) == 2
    found = figures(Rollout, *rollouts)
    agree(found, bill)
    assert (found.opened.session, found.opened.inside, found.prompts) == (thread_of(ran.stdout), None, 1)
    stream = figures(Exec, ran.stdout)
    agree(stream, bill.of(""), calls=False)
    assert {"input", "output"} <= set(stream.lower_bounds)
    assert stream.tool_calls == 2


@pytest.mark.parametrize(
    ("failure", "kind", "code"),
    [
        (fail(401), "auth", "401"),
        (fail(403), "auth", "403"),
        (fail(429), "limit", "429"),
        (fail(500), "provider", None),
    ],
    ids=["401", "403", "429", "500"],
)
def test_codex_refused(codex: Codex, provider: Provider, failure: Step, kind: str, code: str | None) -> None:
    run = provider.play("refused", [failure] * 8)
    ran = codex.exec(run, "go")
    assert ran.code == 1
    assert (run.bill.calls, run.bill.surprises) == (0, ())
    for found in (figures(Exec, ran.stdout), figures(Rollout, codex.rollout(thread_of(ran.stdout)))):
        agree(found, run.bill, calls=False)
        assert found.ending is not None
        assert found.ending.kind == kind
        assert code in (None, found.ending.code)


def test_codex_a_stream_that_breaks_off_is_tried_again(codex: Codex, provider: Provider) -> None:
    run = provider.play(
        "again", [Step(TOOLS.blocks, TOOLS.usage, cut=True), TOOLS, say("Done.", Usage(fresh=1, output=1))]
    )
    ran = codex.exec(run, "go")
    assert ran.code == 0, ran.stderr
    agree(figures(Rollout, codex.rollout(thread_of(ran.stdout))), played(run))
    agree(figures(Exec, ran.stdout), run.bill, calls=False)


# OpenCode


def test_opencode_says_of_each_step_what_was_billed(tmp_path: Path, provider: Provider) -> None:
    """Its input leaves out what was cached, its output what was reasoning; a resumed stream has its own steps alone."""
    opencode = OpenCode(tmp_path)
    command = Tool("bash", {"command": "echo hi", "description": "a command"})
    first = provider.play(
        "tool",
        [
            Step(
                (Thinking("One thing."), Text("I begin."), command), Usage(50, 900, output=100, reasoning=30)
            ),
            say("Done.", Usage(10, 2100, output=7, reasoning=2)),
        ],
    )
    ran = opencode.prompt(first, "go on", "--title", "T")
    assert ran.code == 0, ran.stderr
    more = provider.play("more", [say("More.", Usage(3, 2200, output=5, reasoning=1))])
    again = opencode.prompt(more, "again", "-s", ran.events[0]["sessionID"])
    assert again.code == 0, again.stderr
    for run, stream in ((first, ran), (more, again)):
        steps = [event["part"]["tokens"] for event in stream.events if event["type"] == "step_finish"]
        said = [
            Usage(
                fresh=each["input"],
                cached=each["cache"]["read"],
                created=each["cache"]["write"],
                output=each["output"] + each["reasoning"],
                reasoning=each["reasoning"],
            )
            for each in steps
        ]
        assert sum(said, Usage()) == played(run).usage
        assert len(steps) == run.bill.calls
        kind = reader_of(head_of("", stream.stdout, whole=True))
        assert kind is not None
        agree(figures(kind, stream.stdout), run.bill, calls=False)
    # Its database has both, as one session.
    agree_as_a_folder(opencode.home / "DATA" / "opencode", 1, played(first, more))
