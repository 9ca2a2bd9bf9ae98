"""[harness.NAME] argv = [...]: what is filled in, and what is refused with a way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.errors import AdapterError, HarnessMisconfigured
from adapters.harnesses.generic import Generic
from adapters.ports import Order
from adapters.testing import Bench, DirectTerminal


def order(tmp_path: Path, model: str | None = None) -> Order:
    return Order(tmp_path / "s-1", "s-1", "s", 1, "t", tmp_path / "work", model)


def make(**settings: object) -> Generic:
    return Generic.from_settings("mine", settings)


def test_placeholders_are_filled_in(tmp_path: Path) -> None:
    argv = ["agent", "--in={workdir}", "{brief}", "--id", "{session}", "-m", "{model}", '{{"a": {{}}}}']
    launch = make(argv=argv).command(order(tmp_path, "gpt-5"))
    brief = str(tmp_path / "s-1" / "brief.md")
    assert launch.argv == ["agent", f"--in={tmp_path}/work", brief, "--id", "s-1", "-m", "gpt-5", '{"a": {}}']
    assert launch.stdin == "null"


def test_without_a_brief_in_argv_it_is_standard_input(tmp_path: Path) -> None:
    assert make(argv=["agent", "-"]).command(order(tmp_path)).stdin == "brief"


def test_what_is_filled_in_is_not_read_again(tmp_path: Path) -> None:
    launch = make(argv=["agent", "{model}"]).command(order(tmp_path, "{brief}{{$(touch x)"))
    assert launch.argv == ["agent", "{brief}{{$(touch x)"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "argv must be a list of texts"),
        ({"argv": []}, "argv must be a list of texts"),
        ({"argv": "aider {brief}"}, "argv must be a list of texts, not 'aider {brief}'"),
        ({"argv": ["agent", 7]}, "argv must be a list of texts"),
        ({"argv": ["agent", "{breif}"]}, r"'{breif}' in '{breif}' is no placeholder; did you mean 'brief'\?"),
        ({"argv": ["agent", "{}"]}, "'{}' in '{}' is no placeholder"),
        ({"argv": ["agent", "{brief!r}"]}, "no placeholder"),
        ({"argv": ["agent", '{"a": 1}']}, "no placeholder"),
        ({"argv": ["agent", "}"]}, "'}' in '}' is no placeholder"),
        ({"argv": ["agent", "a\0b"]}, "NUL"),
        ({"argv": ["{workdir}/run"]}, "cannot be empty or a placeholder"),
        ({"argv": [""]}, "cannot be empty or a placeholder"),
        ({"argv": ["./agent"]}, "relative path"),
        ({"argv": ["agent"], "agrv": []}, r"no key 'agrv'; did you mean 'argv'\?"),
        ({"argv": ["agent"], "model": 5}, "model must be a text"),
        ({"argv": ["agent"], "env": {"A": 1}}, "env must be a table of texts"),
        ({"argv": ["agent"], "env": "A=1"}, "env must be a table of texts"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(HarnessMisconfigured, match=said) as caught:
        make(**settings)
    assert "[harness.mine]" in str(caught.value)


def test_a_model_that_nobody_names_is_an_error_with_both_ways_out(tmp_path: Path) -> None:
    with pytest.raises(HarnessMisconfigured, match="this track names none") as caught:
        make(argv=["agent", "{model}"]).command(order(tmp_path))
    assert "mine/MODEL" in caught.value.hint
    assert make(argv=["agent", "{model}"], model="std").command(order(tmp_path)).argv == ["agent", "std"]


def test_a_model_that_would_be_ignored_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HarnessMisconfigured, match="has no \\{model\\}"):
        make(argv=["agent"]).command(order(tmp_path, "gpt-5"))


def test_a_model_that_is_an_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="read as an option"):
        make(argv=["agent", "{model}"]).command(order(tmp_path, "--yolo"))


def test_the_answer_is_the_plain_end_of_what_it_printed(tmp_path: Path) -> None:
    harness = Generic.from_settings("mine", {"argv": ["bash"], "env": {"GREETING": "grüße"}})
    bench = Bench(harness, DirectTerminal(), tmp_path)
    script = 'for i in $(seq 5000); do echo "line $i"; done; printf "\\033[32m%s\\033[0m\\n" "$GREETING"\n'
    order, _ = bench.run(script.encode())
    answer = harness.collect(order.session).answer
    assert answer is not None
    assert answer.endswith("line 5000\ngrüße")
    assert answer.startswith("line ")
    assert len(answer) <= 4000


def test_silence_is_no_answer(tmp_path: Path) -> None:
    harness = make(argv=["bash"])
    order, _ = Bench(harness, DirectTerminal(), tmp_path).run(b"echo only an error >&2\n")
    assert harness.collect(order.session).answer is None


@pytest.mark.parametrize("written", ["path", "name"])
def test_a_program_that_is_there_is_not_to_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    agent = tmp_path / "my agent"
    agent.write_text("#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    harness = make(argv=[str(agent) if written == "path" else agent.name])
    probe = harness.probe()
    assert not probe.found
    assert probe.problem == f"mine: the program {agent} is there and cannot be executed"
    assert probe.hint == f"chmod +x '{agent}'"
    agent.chmod(0o755)
    assert harness.probe().found
    agent.unlink()
    assert "install it" in harness.probe().hint


def test_the_program_is_looked_for_where_it_will_run(tmp_path: Path) -> None:
    """The PATH of the order, not ours."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "my-agent").write_text("#!/bin/sh\necho found\n")
    (tools / "my-agent").chmod(0o755)
    harness = make(argv=["my-agent"])
    assert not harness.probe().found
    bench = Bench(harness, DirectTerminal(), tmp_path)
    order = bench.order(b"")
    order.env["PATH"] = f"{tools}:{order.env['PATH']}"  # type: ignore[index]
    bench.spawn(order)
    assert bench.ended(order).code == 0
    assert harness.collect(order.session).answer == "found"
