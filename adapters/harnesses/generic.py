"""Any command-line agent, from two lines of the settings.

    [harness.aider]
    argv = ["aider", "--yes", "--message-file", "{brief}"]

Placeholders: ``{brief}`` the path of the brief, ``{workdir}``, ``{model}``,
``{session}`` the session's id. A literal brace is doubled. Without
``{brief}`` the brief is the program's standard input. Nothing passes through
a shell; a pipeline is a script of your own.

With ``{instructions}``, the path of a file, what the database tells an agent
is there and not in the brief: for programs with a system prompt of their own.
With ``{skills}``, the path of a folder, skills are placed there as folders
and not written out. Both are there also when they are empty.

Further keys: ``model``, used when a track names none, and ``env``, a table of
variables that the program gets besides the allowed ones.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from adapters import session
from adapters.command import CommandHarness, check_settings
from adapters.errors import BriefUnusable, HarnessMisconfigured
from adapters.ports import Capabilities, Order
from adapters.registry import nearest

PLACEHOLDERS = ("brief", "workdir", "model", "session", "instructions", "skills")

_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@dataclass
class Generic(CommandHarness):
    """A command whose arguments come from ``[harness.NAME]``."""

    name: str
    program: str
    arguments: Sequence[str] = ()
    model: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_settings(cls, name: str, settings: Mapping[str, object]) -> Self:
        """Raises `HarnessMisconfigured` with the key, what is wrong with it and what would be right."""
        check_settings(name, settings, ("argv", "model", "env"))
        argv = settings.get("argv")
        where = f"[harness.{name}]"
        if not isinstance(argv, list) or not argv or not all(isinstance(each, str) for each in argv):
            raise HarnessMisconfigured(
                f"{where} argv must be a list of texts, not {argv!r}", f'argv = ["{name}", "{{brief}}"]'
            )
        for argument in argv:
            if "\0" in argument:
                raise HarnessMisconfigured(f"{where} argv: {argument!r} holds a NUL")
            _placeholders(where, argument)
        program = argv[0]
        if _placeholders(where, program) or not program:
            raise HarnessMisconfigured(
                f"{where} argv: the program is {program!r}; it cannot be empty or a placeholder"
            )
        if "/" in program and not program.startswith(("/", "~/")):
            raise HarnessMisconfigured(
                f"{where} argv: the program {program!r} is a relative path, and each track has its own place",
                "write a name that is on the PATH, or an absolute path",
            )
        model = settings.get("model")
        if model is not None and not isinstance(model, str):
            raise HarnessMisconfigured(f"{where} model must be a text, not {model!r}")
        env = settings.get("env", {})
        if not isinstance(env, Mapping) or not all(isinstance(value, str) for value in env.values()):
            raise HarnessMisconfigured(f"{where} env must be a table of texts, not {env!r}")
        return cls(name, program, argv[1:], model, env)

    def capabilities(self) -> Capabilities:
        return replace(self.can, instructions="instructions" in self._used(), skills="skills" in self._used())

    def _used(self) -> set[str]:
        return {name for argument in self.arguments for name in _placeholders(self.name, argument)}

    def command(self, order: Order) -> session.Launch:
        model = order.model or self.model
        used = self._used()
        if "model" in used and model is None:
            raise HarnessMisconfigured(
                f"[harness.{self.name}] argv needs a {{model}}, and this track names none",
                f"write harness_id: {self.name}/MODEL in the track, or a model in [harness.{self.name}]",
            )
        if "model" not in used and order.model is not None:
            raise HarnessMisconfigured(
                f"the track asks for model {order.model!r}, and [harness.{self.name}] argv has no {{model}}",
                f"add {{model}} to argv, or write harness_id: {self.name}",
            )
        if model is not None and model.startswith("-"):
            raise BriefUnusable(f"the model {model!r} would be read as an option", "name a model")
        values = {
            "brief": str(order.brief.absolute()),
            "workdir": str(order.workdir.absolute()),
            "model": model or "",
            "session": order.session_id,
            "instructions": str((order.instructions or Path(os.devnull)).absolute()),
            "skills": str((order.skills or order.session / "skills").absolute()),
        }
        return session.Launch(
            [self.program, *(_fill(argument, values) for argument in self.arguments)],
            env=self.env,
            stdin="null" if "brief" in used else "brief",
        )


def _placeholders(where: str, argument: str) -> list[str]:
    """The placeholders of one argument. Raises `HarnessMisconfigured` for one that is none."""
    found = []
    for piece in _PIECE.finditer(argument):
        if piece[0] in ("{{", "}}"):
            continue
        name = piece[1]
        if name not in PLACEHOLDERS:
            known = ", ".join(f"{{{each}}}" for each in PLACEHOLDERS)
            raise HarnessMisconfigured(
                f"{where} argv: {piece[0]!r} in {argument!r} is no placeholder"
                f"{nearest(name or '', PLACEHOLDERS)}",
                f"placeholders are {known}; a literal brace is doubled: {{{{ or }}}}",
            )
        found.append(name)
    return found


def _fill(argument: str, values: Mapping[str, str]) -> str:
    def fill(piece: re.Match[str]) -> str:
        return piece[0][0] if piece[1] is None else values[piece[1]]

    return _PIECE.sub(fill, argument)
