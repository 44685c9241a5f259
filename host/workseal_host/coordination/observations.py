"""Calls that somebody else runs: they hold the workspace until their end is told, or their time is up.

Whoever is alive may ask for more time, by announcing the same call again; so a short
time is enough, and a caller that was killed does not keep the workspace for long.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from workseal_host.coordination.live import LiveExecution
from workseal_host.execution.tool import ToolResult


@dataclass(slots=True)
class _Open:
    live: LiveExecution
    ended: asyncio.Future[ToolResult]
    expires: float


class Observations:
    """The observations that are under way."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def open(self, live: LiveExecution, ttl_s: float) -> None:
        """Let the end of an observation be told from now on.

        Args:
            live: the observation.
            ttl_s: how long its end is waited for, in seconds.
        """
        loop = asyncio.get_running_loop()
        self._open[live.execution_id] = _Open(live, loop.create_future(), loop.time() + ttl_s)

    def renew(self, execution_id: str, ttl_s: float) -> None:
        """Wait for the end longer, counted from now; of what is not under way, do nothing."""
        found = self._open.get(execution_id)
        if found is not None:
            found.expires = max(found.expires, asyncio.get_running_loop().time() + ttl_s)

    def end(self, execution_id: str, claimed: ToolResult) -> LiveExecution | None:
        """Tell the end; the first one counts.

        Returns:
            The execution, whose outcome follows; None where none is under way.
        """
        found = self._open.get(execution_id)
        if found is None:
            return None
        if not found.ended.done():
            found.ended.set_result(claimed)
            # Announced again, it must not pass for one that still holds the workspace.
            found.live.forget_acceptance()
        return found.live

    async def wait(self, execution_id: str) -> ToolResult | None:
        """Wait for the end of an open observation.

        Returns:
            What is claimed; None where no end was told in time, or it was given up.
        """
        found = self._open[execution_id]
        given_up = asyncio.ensure_future(found.live.cancelled.wait())
        either: set[asyncio.Future[Any]] = {found.ended, given_up}
        loop = asyncio.get_running_loop()
        try:
            # The time may be renewed while we wait.
            while not (found.ended.done() or given_up.done()) and found.expires > loop.time():
                await asyncio.wait(
                    either, timeout=found.expires - loop.time(), return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            given_up.cancel()
            found.live.forget_acceptance()
        return found.ended.result() if found.ended.done() else None

    def close(self, execution_id: str) -> None:
        """Forget one; doing it twice is harmless."""
        self._open.pop(execution_id, None)
