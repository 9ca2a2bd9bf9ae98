"""Which blocks of a Markdown text are run, in which order, and where it stops."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.errors import BriefUnusable
from adapters.harnesses.shell import Shell
from adapters.harnesses.shell_driver import Unusable, blocks
from adapters.testing import Bench, DirectTerminal, wait_for


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(Shell(), DirectTerminal(), tmp_path)
    yield bench
    bench.clean_up()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("```sh\na\n```", [("sh", "a\n")]),
        ("```bash title=x\na\n\n b\n```\n", [("bash", "a\n\n b\n")]),
        ("``` Python\na\n```", [("python", "a\n")]),
        ("~~~sh\na\n```\n~~~", [("sh", "a\n```\n")]),
        ("~~~ `x`\n```sh\na\n```\n~~~", []),
        ("````sh\n```\n````", [("sh", "```\n")]),
        ("````markdown\n```sh\na\n```\n````", []),
        ("```sh\na\n`````", [("sh", "a\n")]),
        ("```sh\n    ```\n```", [("sh", "    ```\n")]),
        ("  ```sh\n  a\n    b\n c\n  ```", [("sh", "a\n  b\nc\n")]),
        ("1. list\n\n   ```sh\n   a\n   ```", [("sh", "a\n")]),
        ("```sh inline```", []),
        ("text ```sh\na\n```", []),
        ("> ```sh\n> a\n> ```", []),
        ("<!--\n```sh\na\n```\n-->\n```sh\nb\n```", [("sh", "b\n")]),
        ("<!-- one line -->\n```sh\nb\n```", [("sh", "b\n")]),
        ("\ufeff```sh\na\n```", [("sh", "a\n")]),
        ("```sh\r\na\r\nb\r\n```\r\n", [("sh", "a\nb\n")]),
        ("```sh\na\r\n```\n", [("sh", "a\r\n")]),
        ("```\na\n```\n```yaml\na\n```\n```shellcheck\n```\n```{.sh}\n```", []),
        ("```sh\n```", [("sh", "")]),
        ("# sh\n\nno block", []),
    ],
)
def test_blocks(text: str, found: list[tuple[str, str]]) -> None:
    runnable = [block for block in blocks(text.encode()) if block.runnable]
    assert [(block.language, block.code.decode()) for block in runnable] == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("one\n```sh\na\n", "line 2: this ```sh block is never closed"),
        ("10. list\n\n    ```sh\n    a\n    ```", "line 3: this ```sh block is indented by 4"),
        ("- list\n\n\t```bash\n\ta\n\t```", "line 3: this ```bash block is indented by 4"),
    ],
)
def test_what_is_unclear_is_not_guessed(bench: Bench, text: str, said: str) -> None:
    with pytest.raises(Unusable):
        blocks(text.encode())
    order = bench.order(text.encode())
    with pytest.raises(BriefUnusable, match=said):
        bench.spawn(order)
    assert [each.name for each in order.session.iterdir()] == ["brief.md"]


def test_nothing_to_run_is_refused_with_what_there_is(bench: Bench) -> None:
    with pytest.raises(BriefUnusable, match="no code block to run; it has zsh") as caught:
        bench.spawn(bench.order(b"# Title\n\n```zsh\nls\n```\n"))
    assert "```bash" in caught.value.hint


def test_blocks_run_in_order_with_their_interpreters_in_the_work_directory(bench: Bench) -> None:
    brief = b"""# Order

```sh
cd /; export A=1; echo one
```
```bash
shopt -q login_shell || [[ -z $A ]] && echo "two $PWD"
```
```python
import os, sys
assert __name__ == "__main__"
print("three", os.getcwd(), len(sys.argv))
```
"""
    order, ended = bench.run(brief)
    errors = (order.session / "stderr.log").read_text()
    assert ended.code == 0, errors
    assert bench.harness.collect(order.session).answer == (
        f"one\ntwo {order.workdir}\nthree {order.workdir} 1"
    )
    assert "$ block 2 of 3 (bash)" in errors


def test_python_imports_from_the_work_directory(bench: Bench) -> None:
    brief = b"```sh\necho 'answer = 42' > mine.py\n```\n```python\nimport mine\nprint(mine.answer)\n```\n"
    order, _ = bench.run(brief)
    assert bench.harness.collect(order.session).answer == "42"


def test_a_traceback_shows_the_line(bench: Bench) -> None:
    order, ended = bench.run(b"```python\nx = 1\nraise RuntimeError('no good')\n```\n")
    errors = (order.session / "stderr.log").read_text()
    assert ended.code == 1
    assert 'blocks/1.py", line 2' in errors
    assert "raise RuntimeError('no good')" in errors


def test_a_block_may_have_any_text_and_no_standard_input(bench: Bench) -> None:
    order, ended = bench.run(
        b"```bash\nread -r line || echo 'it''s $(touch x) `touch x` \"end\" of input'\n```\n"
    )
    assert ended.code == 0
    assert bench.harness.collect(order.session).answer == 'its $(touch x) `touch x` "end" of input'
    assert list(order.workdir.iterdir()) == []


def test_it_stops_at_the_first_that_fails(bench: Bench) -> None:
    order, ended = bench.run(b"```sh\necho one\n```\n```sh\nexit 3\n```\n```sh\necho three\n```\n")
    collected = bench.harness.collect(order.session)
    assert ended.code == 3
    assert collected.answer == "one"
    assert str(collected.termination) == "crash/exit_3"
    assert "block 2 of 3 (sh) failed: exit 3" in (order.session / "stderr.log").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSEGV, signal.SIGINT, signal.SIGPIPE])
def test_a_signal_is_passed_on(bench: Bench, number: signal.Signals) -> None:
    order, ended = bench.run(f"```sh\nkill -{number.value} $$\n```\n```sh\ntouch late\n```\n".encode())
    assert (ended.code, ended.signal) == (None, number)
    assert str(bench.harness.collect(order.session).termination) == f"crash/signal_{number.value}"
    assert not (order.workdir / "late").exists()
    assert list(order.workdir.glob("core*")) == []


def test_a_missing_interpreter_is_told(bench: Bench, tmp_path: Path) -> None:
    order = bench.order(b"```python\nprint(1)\n```\n")
    order.env["PATH"] = str(tmp_path)  # type: ignore[index]
    bench.spawn(order)
    assert bench.ended(order).code == 127
    assert "python3 or python is not installed here" in (order.session / "stderr.log").read_text()


def test_an_interrupted_block_is_the_last_even_if_it_ends_well(bench: Bench) -> None:
    brief = b"```bash\ntrap 'exit 0' INT\ntouch ready\nsleep 60 & wait\n```\n```sh\ntouch late\n```\n"
    order = bench.order(brief)
    bench.spawn(order)
    wait_for((order.workdir / "ready").exists, "the block")
    bench.harness.interrupt(order.session, "enough")
    assert bench.ended(order).reason == "interrupted"
    assert not (order.workdir / "late").exists()


def test_it_is_only_run_when_named_and_never_again_by_itself() -> None:
    can = Shell().capabilities()
    assert not any((can.steer, can.resume, can.feedback, can.prose, can.by_default))
