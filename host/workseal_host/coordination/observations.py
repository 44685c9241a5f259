"""Calls that somebody else runs: they hold the workspace until their end is told, or their time is up."""

from __future__ import annotations

import asyncio
from typing import Any

from workseal_host.coordination.live import LiveExecution
from workseal_host.execution.tool import ToolResult


class Observations:
    """The observations that are under way."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[LiveExecution, asyncio.Future[ToolResult]]] = {}

    def open(self, live: LiveExecution) -> asyncio.Future[ToolResult]:
        """Let the end of an observation be told.

        Returns:
            What is claimed, once it is.
        """
        ended: asyncio.Future[ToolResult] = asyncio.get_running_loop().create_future()
        self._open[live.execution_id] = (live, ended)
        return ended

    def end(self, execution_id: str, claimed: ToolResult) -> LiveExecution | None:
        """Tell the end; the first one counts.

        Returns:
            The execution, whose outcome follows; None where none is under way.
        """
        live, ended = self._open.get(execution_id, (None, None))
        if ended is not None and not ended.done():
            ended.set_result(claimed)
        return live

    async def wait(
        self, live: LiveExecution, ended: asyncio.Future[ToolResult], ttl_s: float
    ) -> ToolResult | None:
        """Wait for the end.

        Args:
            live: the observation.
            ended: what :meth:`open` returned.
            ttl_s: how long, in seconds.

        Returns:
            What is claimed; None where no end was told in time.
        """
        stopped = asyncio.ensure_future(live.cancelled.wait())
        either: set[asyncio.Future[Any]] = {ended, stopped}
        try:
            await asyncio.wait(either, timeout=ttl_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        return ended.result() if ended.done() else None

    def close(self, execution_id: str) -> None:
        """Forget one; doing it twice is harmless."""
        self._open.pop(execution_id, None)
