"""Names become adapters: ours, a package's, or two lines of settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from adapters.errors import HarnessMisconfigured, HarnessUnknown
from adapters.fake import Fake
from adapters.harnesses.generic import Generic
from adapters.harnesses.shell import Shell
from adapters.registry import Registry


def package(monkeypatch: pytest.MonkeyPatch, path: Path, name: str, entry: str) -> None:
    """An installed package with one adapter, the way pip leaves it."""
    info = path / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[megaharness.adapters]\n{entry}\n")
    monkeypatch.syspath_prepend(str(path))


def test_built_ins_come_through_the_same_door() -> None:
    registry = Registry({})
    assert isinstance(registry.get("shell"), Shell)
    assert isinstance(registry.get("fake"), Fake)
    assert {"shell", "fake"} <= set(registry.names())
    assert "generic" not in registry.names()


def test_a_name_is_always_the_same_object() -> None:
    registry = Registry({})
    assert registry.get("shell") is registry.get("shell")


def test_two_lines_of_settings_make_a_harness() -> None:
    registry = Registry({"aider": {"argv": ["aider", "--message-file", "{brief}"]}})
    harness = registry.get("aider")
    assert isinstance(harness, Generic)
    assert harness.name == "aider"
    assert "aider" in registry.names()


def test_unknown_name_names_the_nearest_and_the_known() -> None:
    with pytest.raises(HarnessUnknown) as caught:
        Registry({"aider": {"argv": ["aider"]}}).get("adier")
    assert "did you mean 'aider'?" in str(caught.value)
    for known in ("aider", "fake", "shell"):
        assert known in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("name", ["", "generic", "../shell", "shell "])
def test_what_is_no_name_is_unknown(name: str) -> None:
    with pytest.raises(HarnessUnknown):
        Registry({}).get(name)


def test_settings_without_argv_and_adapter_say_what_is_missing() -> None:
    with pytest.raises(HarnessMisconfigured, match=r"\[harness\.shel\] has no argv.*did you mean 'shell'\?"):
        Registry({"shel": {"model": "x"}}).get("shel")


def test_settings_reach_the_adapter_of_that_name() -> None:
    with pytest.raises(HarnessMisconfigured, match=r"\[harness\.shell\] has no key 'argv'.*"):
        Registry({"shell": {"argv": ["bash"]}}).get("shell")


def test_an_adapter_of_another_package_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "their_adapter.py").write_text(
        "from adapters.fake import Fake\n\n\nclass Theirs(Fake):\n    name = 'theirs'\n"
    )
    package(monkeypatch, tmp_path, "theirs", "theirs = their_adapter:Theirs")
    registry = Registry({})
    assert "theirs" in registry.names()
    assert registry.get("theirs").name == "theirs"


def test_a_broken_package_is_an_error_only_when_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package(monkeypatch, tmp_path, "broken", "broken = no_such_module_anywhere:Adapter")
    registry = Registry({})
    assert isinstance(registry.get("shell"), Shell)
    with pytest.raises(HarnessMisconfigured, match="no_such_module_anywhere"):
        registry.get("broken")


def test_a_package_that_raises_is_told_as_its_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "raising_adapter.py").write_text(
        "class Raising:\n    def from_settings(name, settings):\n        1 / 0\n"
    )
    package(monkeypatch, tmp_path, "raising", "raising = raising_adapter:Raising")
    with pytest.raises(HarnessMisconfigured, match=r"raising_adapter:Raising.*ZeroDivisionError"):
        Registry({}).get("raising")


@pytest.mark.parametrize("name", ["a/b", "a b", "", "-x"])
def test_settings_of_a_name_that_no_track_can_write_are_refused(name: str) -> None:
    with pytest.raises(HarnessMisconfigured, match="cannot be named in a track"):
        Registry({name: {"argv": ["agent"]}}).get(name)


def test_two_packages_with_one_name_are_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package(monkeypatch, tmp_path / "a", "first", "twice = adapters.fake:Fake")
    package(monkeypatch, tmp_path / "b", "second", "twice = adapters.harnesses.shell:Shell")
    with pytest.raises(HarnessMisconfigured, match="2 packages bring an adapter 'twice'") as caught:
        Registry({}).get("twice")
    assert "first" in str(caught.value)
    assert "second" in str(caught.value)


def test_names_loads_no_adapter() -> None:
    code = "import sys; from adapters.registry import Registry; Registry({}).names(); print('adapters.fake' in sys.modules)"
    run = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
