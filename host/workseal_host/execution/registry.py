"""The tools of a host, by name.

Everything that a pipeline needs to run one is importable from here.
"""

from __future__ import annotations

from collections.abc import Iterable

from workseal_host.errors import ArgumentsError, ConfigError
from workseal_host.execution.tool import (
    DEFAULT_TIMEOUT_S,
    READ_ONLY,
    PredictedEffect,
    Prediction,
    ProcessIdentity,
    SideEffects,
    Tool,
    ToolContext,
    ToolResult,
)
from workseal_host.execution.tools.bash import BashTool
from workseal_host.execution.tools.command import CommandTool, CommandToolSpec
from workseal_host.execution.tools.delete_file import DeleteFileTool
from workseal_host.execution.tools.edit_file import EditFileTool
from workseal_host.execution.tools.read_file import ReadFileTool
from workseal_host.execution.tools.search_and_replace import SearchAndReplaceTool
from workseal_host.execution.tools.write_file import WriteFileTool
from workseal_host.execution.view import TreeView, WorkspaceView

__all__ = [
    "DEFAULT_TIMEOUT_S",
    "READ_ONLY",
    "CommandToolSpec",
    "PredictedEffect",
    "Prediction",
    "ProcessIdentity",
    "SideEffects",
    "Tool",
    "ToolContext",
    "ToolRegistry",
    "ToolResult",
    "TreeView",
    "WorkspaceView",
    "build_registry",
    "built_in_tools",
]


class ToolRegistry:
    """The tools of a host.

    Args:
        tools: the tools; each name once.

    Raises:
        ConfigError: two tools have one name.
    """

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.name in self._tools:
                raise ConfigError(
                    f"there are two tools named {tool.name!r}: rename one", key=f"tools.{tool.name}"
                )
            self._tools[tool.name] = tool

    def names(self) -> list[str]:
        """Return the names, sorted."""
        return sorted(self._tools)

    def get(self, name: str) -> Tool:
        """Return a tool.

        Raises:
            ArgumentsError: there is none of that name.
        """
        tool = self._tools.get(name)
        if tool is None:
            raise ArgumentsError(
                f"there is no such tool; this host has: {', '.join(self.names())}", field="/tool"
            )
        return tool


def built_in_tools(*, bash_timeout_s: float = DEFAULT_TIMEOUT_S) -> list[Tool]:
    """Return a new instance of every built-in tool.

    Args:
        bash_timeout_s: default time limit of ``bash`` in seconds.
    """
    return [
        BashTool(timeout_s=bash_timeout_s),
        DeleteFileTool(),
        EditFileTool(),
        ReadFileTool(),
        SearchAndReplaceTool(),
        WriteFileTool(),
    ]


def build_registry(
    command_tools: Iterable[CommandToolSpec] = (), *, bash_timeout_s: float = DEFAULT_TIMEOUT_S
) -> ToolRegistry:
    """Return the built-in tools and those of the configuration.

    Raises:
        ConfigError: a command tool is not valid, or has the name of another tool.
    """
    commands = [CommandTool(spec) for spec in command_tools]
    return ToolRegistry([*built_in_tools(bash_timeout_s=bash_timeout_s), *commands])
