"""Requests: whatever lies in the folder, the loop gets a list."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from daemon.tracks.requests import LIMIT, BadRequest, Request, load, write


def test_written_and_loaded_in_order_of_arrival(tmp_path: Path) -> None:
    temps, folder = tmp_path / ".tmp", tmp_path / "requests"
    temps.mkdir()
    folder.mkdir()
    one = write(folder, temps, "interrupt", track="a", why="enough\nof \"it\" 'ü'")
    two = write(folder, temps, "down", pid=77, drain=True)
    assert load(folder) == [
        Request(one, "interrupt", track="a", why="enough\nof \"it\" 'ü'"),
        Request(two, "down", pid=77, drain=True),
    ]
    assert os.listdir(temps) == []
    assert one.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"verb": "interr',
        b"[]",
        b"null",
        b'"interrupt"',
        b"{}",
        b'{"verb": "explode"}',
        b'{"verb": null}',
        b'{"verb": ["interrupt"]}',
        b'{"verb": {"a": 1}}',
        b'{"verb": "down", "pid": "x"}',
        b'{"verb": "down", "pid": Infinity}',
        b'{"verb": "down", "pid": NaN}',
        b'{"verb": "down", "pid": [1]}',
        b'{"verb": "down", "pid": ' + b"9" * 10_000 + b"}",
        b"[" * 30_000,
        b'{"verb":' * 8_000,
        b'{"verb": "interrupt", "why": "' + b"x" * LIMIT + b'"}',
        b"\xff\xfe\x00",
        os.urandom(500),
    ],
)
def test_a_file_that_is_no_request_is_said_to_be_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "1.json").write_bytes(content)
    (tmp_path / "2.json").write_bytes(b'{"verb": "interrupt", "track": "a"}')
    bad, good = load(tmp_path)
    assert isinstance(bad, BadRequest)
    assert bad.path == tmp_path / "1.json"
    assert bad.why
    assert good == Request(tmp_path / "2.json", "interrupt", track="a")


def test_an_unknown_verb_names_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_bytes(b'{"verb": "explode"}')
    (bad,) = load(tmp_path)
    assert isinstance(bad, BadRequest)
    assert "explode" in bad.why
    assert "interrupt" in bad.why


def test_links_fifos_and_directories_are_never_opened_through(tmp_path: Path) -> None:
    folder = tmp_path / "requests"
    folder.mkdir()
    (tmp_path / "real.json").write_bytes(b'{"verb": "interrupt", "track": "a"}')
    (folder / "1.json").symlink_to(tmp_path / "real.json")
    (folder / "2.json").symlink_to("2.json")
    os.mkfifo(folder / "3.json")
    (folder / "4.json").mkdir()
    assert [type(found) for found in load(folder)] == [BadRequest] * 4


def test_temps_and_other_files_are_passed_over(tmp_path: Path) -> None:
    for name in (".1.json", "1.json.tmp", "1.txt"):
        (tmp_path / name).write_bytes(b'{"verb": "interrupt", "track": "a"}')
    assert load(tmp_path) == []
