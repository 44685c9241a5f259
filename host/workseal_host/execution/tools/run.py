"""The tool `run`: one command with the caller's own terminal, input and environment.

No daemon offers it: it exists in the process of `workseal run` alone. Names and
values of the environment are not recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from workseal_host.execution.inherited import run_inherited
from workseal_host.execution.tool import SideEffects, Tool, ToolContext, ToolResult

RUN_TOOL: Final = "run"
_SCHEMA: Final = {
    "type": "object",
    "additionalProperties": False,
    "required": ["argv"],
    "properties": {"argv": {"type": "array", "minItems": 1, "items": {"type": "string"}}},
}


class RunTool(Tool):
    """Run the caller's command as if the caller had started it.

    Args:
        timeout_s: when it is ended, in seconds.
    """

    def __init__(self, *, timeout_s: float) -> None:
        super().__init__(
            name=RUN_TOOL,
            description="Run a command with the caller's own terminal, input and environment.",
            schema=_SCHEMA,
            side_effects=SideEffects(),
            default_timeout_s=timeout_s,
        )

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Run it; the caller sees its output, the receipt its digests."""
        return await run_inherited(
            arguments["argv"],
            root=context.root,
            environment=context.environment,
            isolation=context.isolation,
            cancelled=context.cancelled,
            timeout_s=context.timeout_s,
        )
