"""``bash``: one shell command, byte for byte as it was asked for."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from workseal_host.errors import ArgumentsError
from workseal_host.execution.paths import parse_directory
from workseal_host.execution.process import Program, run_process
from workseal_host.execution.result_text import program_result
from workseal_host.execution.tool import DEFAULT_TIMEOUT_S, SideEffects, Tool, ToolContext, ToolResult

# Linux takes no longer single argument (MAX_ARG_STRLEN, execve(2)).
MAX_COMMAND_BYTES = 128 * 1024 - 1
MAX_TIMEOUT_MS = 24 * 3600 * 1000

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "minLength": 1, "description": "The command, as bash -c takes it."},
        "timeout_ms": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_TIMEOUT_MS,
            "description": "Milliseconds until the command and all its processes are ended.",
        },
        "cwd": {
            "type": "string",
            "description": "Directory to run in, relative to the workspace; the workspace itself by default.",
        },
    },
    "required": ["command"],
    "additionalProperties": False,
}


class BashTool(Tool):
    """Run a shell command in the workspace. What it changes cannot be predicted."""

    def __init__(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        super().__init__(
            name="bash",
            description=(
                "Run a shell command in the workspace. Standard input is empty and there is no terminal. "
                "Background processes are ended when the command ends."
            ),
            schema=_SCHEMA,
            side_effects=SideEffects(),
            default_timeout_s=timeout_s,
        )

    def _check(self, arguments: Mapping[str, Any]) -> None:
        command = arguments["command"]
        if "\0" in command:
            raise ArgumentsError("the command holds NUL, which no program can be given", field="/command")
        if len(command.encode("utf-8", "surrogatepass")) > MAX_COMMAND_BYTES:
            raise ArgumentsError(
                f"the command is longer than {MAX_COMMAND_BYTES} bytes: put it into a script",
                field="/command",
            )
        parse_directory(arguments.get("cwd", ""), field="/cwd")

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Run the command; see :meth:`Tool.run`."""
        if "timeout_ms" in arguments:
            context = replace(context, timeout_s=min(context.timeout_s, arguments["timeout_ms"] / 1000))
        shell = shutil.which("bash", path=context.environment.get("PATH")) or "/bin/sh"
        program = Program(
            argv=(shell, "-c", arguments["command"]),
            cwd=parse_directory(arguments.get("cwd", ""), field="/cwd"),
        )
        outcome = await run_process(program, context)
        return program_result(outcome, timeout_s=context.timeout_s)
