"""Observations: their time, its renewal, and who ends them."""

from __future__ import annotations

import asyncio

from workseal_host.coordination.live import LiveExecution
from workseal_host.coordination.observations import Observations
from workseal_host.execution.tool import ToolResult

CLAIM = ToolResult(b"claimed", exit_code=0)


def opened(ttl_s: float) -> tuple[Observations, LiveExecution]:
    live = LiveExecution("one", queue_deadline=None)
    observations = Observations()
    observations.open(live, ttl_s)
    return observations, live


async def test_without_a_word_the_time_runs_out() -> None:
    observations, _ = opened(0.01)
    assert await observations.wait("one") is None


async def test_the_first_end_counts() -> None:
    observations, live = opened(60)
    assert observations.end("one", CLAIM) is live
    observations.end("one", ToolResult(b"other", exit_code=1))
    assert await observations.wait("one") == CLAIM


async def test_a_renewal_moves_the_end_of_the_time() -> None:
    observations, _ = opened(0.05)
    waiting = asyncio.create_task(observations.wait("one"))
    observations.renew("one", 60)
    await asyncio.sleep(0.2)
    assert not waiting.done()
    observations.end("one", CLAIM)
    assert await waiting == CLAIM


async def test_a_renewal_never_shortens_the_time() -> None:
    observations, _ = opened(60)
    waiting = asyncio.create_task(observations.wait("one"))
    observations.renew("one", 0.001)
    await asyncio.sleep(0.05)
    assert not waiting.done()
    observations.end("one", CLAIM)
    await waiting


async def test_giving_up_ends_the_wait() -> None:
    observations, live = opened(60)
    live.cancelled.set()
    assert await observations.wait("one") is None


async def test_what_is_not_under_way_is_neither_renewed_nor_ended() -> None:
    observations = Observations()
    observations.renew("none", 60)
    assert observations.end("none", CLAIM) is None
