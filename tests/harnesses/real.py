"""The pinned real programs, each in a place of its own: nothing of the person's is read or written.

A place has a home, a configuration and a work directory; the environment is
an allow-list; nothing is asked of the network but the provider on 127.0.0.1;
standard input is empty. What is started here is ended here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.provider.script import Run

PROGRAMS = Path(__file__).resolve().parents[2] / ".harnesses" / "bin"

#: Seconds after which a program is ended; one run takes two at most.
PATIENCE = 100


@dataclass(frozen=True, slots=True)
class Ran:
    """How a run ended and what it wrote."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stdout.splitlines()]


class Place:
    """Directories of one program, and its runs in them."""

    def __init__(self, path: Path, program: str) -> None:
        self.program = PROGRAMS / program
        if not self.program.exists():
            pytest.skip(f"{program} is not in .harnesses: scripts/test installs it")
        self.home, self.config, self.work = (path / name for name in ("home", "config", "work"))
        for each in (self.home, self.config, self.work, path / "tmp"):
            each.mkdir(parents=True)
        self.env = {
            "HOME": str(self.home),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "TMPDIR": str(path / "tmp"),
        }

    def run(self, *args: str, env: Mapping[str, str] | None = None, stdin: bytes = b"") -> Ran:
        """Run the program to its end, which must come by itself."""
        process = subprocess.Popen(
            [self.program, *args],
            cwd=self.work,
            env={**self.env, **(env or {})},
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(stdin or None, timeout=PATIENCE)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        return Ran(process.returncode, out, err.decode(errors="replace"))


class Claude(Place):
    """Claude Code."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "claude")
        self.env |= {
            "CLAUDE_CONFIG_DIR": str(self.config),
            "CLAUDE_CODE_TMPDIR": str(path / "tmp"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "CLAUDE_CODE_MAX_RETRIES": "1",
            "ANTHROPIC_API_KEY": "sk-test-000",
            "IS_SANDBOX": "1",
        }

    def print(self, run: Run, *args: str, **env: str) -> Ran:
        """``claude -p``, its stream on standard output."""
        return self.run(
            *("-p", "--output-format", "stream-json", "--verbose"),
            *("--model", "claude-opus-5-5", "--dangerously-skip-permissions"),
            *args,
            env={"ANTHROPIC_BASE_URL": run.address, **env},
        )

    def session(self, name: str) -> list[Path]:
        """The files of a session: its own, then those of its sub-agents."""
        (own,) = self.config.glob(f"projects/*/{name}.jsonl")
        return [own, *sorted(own.with_suffix("").glob("subagents/**/*.jsonl"))]


class Codex(Place):
    """Codex."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "codex")
        self.env |= {"CODEX_HOME": str(self.config), "MOCK_KEY": "fake"}
        (self.config / "config.toml").write_text(
            'model = "mock-model"\n'
            'model_provider = "mock"\n'
            "check_for_update_on_startup = false\n"
            'approval_policy = "never"\n'
            "[analytics]\nenabled = false\n"
            "[feedback]\nenabled = false\n"
            "[features]\nplugins = false\nunbounded_connection_retries = false\n"
        )

    def exec(self, run: Run, *args: str) -> Ran:
        """``codex exec --json``."""
        provider = (
            f'{{name="Mock",base_url="{run.address}/v1",env_key="MOCK_KEY",wire_api="responses",'
            "request_max_retries=1,stream_max_retries=1}"
        )
        return self.run(
            *("exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
            *("-c", f"model_providers.mock={provider}"),
            *args,
        )

    def rollout(self, thread: str) -> Path:
        (path,) = self.config.glob(f"sessions/*/*/*/rollout-*-{thread}.jsonl")
        return path


class OpenCode(Place):
    """OpenCode."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "opencode")
        models = {"mock-model": {"name": "Mock", "limit": {"context": 128000, "output": 8192}}}
        options = {"baseURL": "{env:MOCK_URL}", "apiKey": "fake"}
        provider = {"npm": "@ai-sdk/openai-compatible", "name": "Mock", "options": options, "models": models}
        settings = {
            "autoupdate": False,
            "share": "disabled",
            "model": "mock/mock-model",
            "small_model": "mock/mock-model",
            "enabled_providers": ["mock"],
            "provider": {"mock": provider},
        }
        (self.config / "opencode.json").write_text(json.dumps(settings))
        self.env |= {
            **{f"XDG_{name}_HOME": str(self.home / name) for name in ("CONFIG", "DATA", "STATE", "CACHE")},
            "OPENCODE_CONFIG": str(self.config / "opencode.json"),
            **{
                f"OPENCODE_DISABLE_{name}": "1"
                for name in ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "SHARE", "DEFAULT_PLUGINS")
            },
        }

    def prompt(self, run: Run, text: str, *args: str) -> Ran:
        """``opencode run``: a title spares the call that makes one."""
        env = {"MOCK_URL": f"{run.address}/v1"}
        return self.run("run", "--format", "json", "--auto", *args, env=env, stdin=text.encode())
