"""A workspace with tools to run in it, without a daemon."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from workseal_host.execution.environment import allowed_environment
from workseal_host.execution.isolation import Isolation, detect
from workseal_host.execution.registry import (
    CommandToolSpec,
    Prediction,
    ToolContext,
    ToolResult,
    TreeView,
    build_registry,
)
from workseal_host.workspace.diff import Change, diff
from workseal_host.workspace.root import WorkspaceRoot
from workseal_host.workspace.scan import ScanLevel, Scanner, ScanResult

NO_ISOLATION = Isolation("none")

needs_bubblewrap = pytest.mark.skipif(
    shutil.which("bwrap") is None and "CI" not in os.environ, reason="bubblewrap is not installed"
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")


class Toolbox:
    """One workspace below ``base``, and the tools of a host that serves it.

    Args:
        base: an empty directory; the workspace is ``base/workspace``.
        isolation: how tools are isolated.
        command_tools: tools of the configuration.
    """

    def __init__(
        self,
        base: Path,
        *,
        isolation: Isolation = NO_ISOLATION,
        command_tools: Sequence[CommandToolSpec] = (),
    ) -> None:
        self.path = base / "workspace"
        self.path.mkdir(exist_ok=True)
        self.root = WorkspaceRoot.open(self.path)
        self.isolation = isolation
        self.registry = build_registry(command_tools)
        self.environment = allowed_environment(os.environ)

    def scan(self) -> ScanResult:
        """Scan the workspace in full."""
        return Scanner(self.root).scan(ScanLevel.FULL)

    def view(self) -> TreeView:
        """Return what tools may know of the workspace now."""
        result = self.scan()
        return TreeView(self.root, result.tree, result.policy.is_ignored)

    def context(self, **changes: Any) -> ToolContext:
        """Return a context for one run."""
        values: dict[str, Any] = {
            "root": self.root,
            "environment": self.environment,
            "isolation": self.isolation,
            "timeout_s": 20.0,
        }
        return ToolContext(**{**values, **changes})

    async def run(self, name: str, arguments: Mapping[str, Any], **changes: Any) -> ToolResult:
        """Validate and run a tool."""
        tool = self.registry.get(name)
        tool.validate(arguments)
        return await tool.run(arguments, self.context(**changes))

    async def bash(self, command: str, **changes: Any) -> ToolResult:
        """Run a shell command."""
        return await self.run("bash", {"command": command}, **changes)

    async def predicted_and_seen(
        self, name: str, arguments: Mapping[str, Any]
    ) -> tuple[Prediction | None, list[Change], ToolResult]:
        """Predict, run, and compare the tree before with the tree after."""
        before = self.scan()
        prediction = self.registry.get(name).predict(arguments, self.view())
        result = await self.run(name, arguments, view=self.view())
        return prediction, diff(before.tree, self.scan().tree), result


def bubblewrap(base: Path, *names: str) -> Isolation:
    """Return bubblewrap with directories below ``base`` masked; they are created."""
    for name in names:
        (base / name).mkdir(parents=True, exist_ok=True)
    return detect("bubblewrap", masked_dirs=[str(base / name) for name in names])


def text(result: ToolResult) -> str:
    """Return what the model reads."""
    return result.result.decode()


async def until(condition: Callable[[], bool], *, limit_s: float = 10.0) -> None:
    """Wait for something that nothing announces; fail after ``limit_s``."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("waited in vain")
        await asyncio.sleep(0.01)


def processes_named(marker: str) -> list[int]:
    """Return the processes whose command line holds ``marker``."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                command = Path(f"/proc/{name}/cmdline").read_bytes()
            except OSError:
                continue
            if marker.encode() in command:
                found.append(int(name))
    return found
