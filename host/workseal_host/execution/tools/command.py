"""Command tools: programs that the host's configuration offers under a name of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workseal_host.errors import ArgumentsError, ConfigError
from workseal_host.execution.paths import parse_directory
from workseal_host.execution.process import Program, run_process
from workseal_host.execution.result_text import program_result
from workseal_host.execution.template import ArgvTemplate
from workseal_host.execution.tool import DEFAULT_TIMEOUT_S, SideEffects, Tool, ToolContext, ToolResult


@dataclass(frozen=True, slots=True)
class CommandToolSpec:
    """One ``[tools.NAME]`` of the configuration.

    Args:
        name: name of the tool.
        description: for the model.
        argv: the program and its arguments, with placeholders.
        schema: JSON Schema of the arguments.
        side_effects: what it is declared to do.
        timeout_s: its time limit in seconds.
        network: whether it keeps the machine's network; False needs isolation to be enforced.
        cwd: directory below the workspace to run in.
        confined: whether it is declared to have effects in the workspace alone.
    """

    name: str
    description: str
    argv: tuple[str, ...]
    schema: Mapping[str, Any]
    side_effects: SideEffects = field(default_factory=SideEffects)
    timeout_s: float = DEFAULT_TIMEOUT_S
    network: bool = True
    cwd: str = ""
    confined: bool = False


class CommandTool(Tool):
    """Run a configured program; its arguments come on standard input as JSON and in its placeholders.

    Args:
        spec: its configuration.

    Raises:
        ConfigError: the schema or the command line is not valid; the key is relative to the tool.
    """

    def __init__(self, spec: CommandToolSpec) -> None:
        super().__init__(
            name=spec.name,
            description=spec.description,
            schema=spec.schema,
            side_effects=spec.side_effects,
            default_timeout_s=spec.timeout_s,
            confined=spec.confined,
        )
        self.network = spec.network
        self._template = ArgvTemplate(spec.argv, spec.schema.get("properties", {}))
        try:
            self._cwd = parse_directory(spec.cwd, field="cwd")
        except ArgumentsError as error:
            raise ConfigError(str(error), key="cwd") from error

    def _check(self, arguments: Mapping[str, Any]) -> None:
        self._template.fill(arguments)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Run the program; see :meth:`Tool.run`."""
        program = Program(
            argv=self._template.fill(arguments),
            cwd=self._cwd,
            stdin=json.dumps(dict(arguments), ensure_ascii=False).encode() + b"\n",
            network=self.network,
        )
        outcome = await run_process(program, context)
        return program_result(outcome, timeout_s=context.timeout_s)
