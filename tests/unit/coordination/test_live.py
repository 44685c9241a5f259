"""Listeners come and go; the execution does not care."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from workseal_host.coordination.live import Accepted, DigestReport, LiveExecution, Outcome, OutputChunk
from workseal_host.errors import LedgerError
from workseal_host.ledger.model import OutputRecord, ReceiptRow

ACCEPTED = Accepted("id", "key", DigestReport("workseal-tree/1", "0" * 64, "full", 0, (), (), "0" * 64))
OUTCOME = Outcome(
    ReceiptRow(1, 1, "0" * 64, b"{}", "tool-execution", "s", "id", "completed"),
    OutputRecord(),
    replayed=False,
)


async def collect(live: LiveExecution) -> list[object]:
    return [event async for event in live.events()]


async def test_a_late_listener_hears_that_it_began_and_how_it_ended() -> None:
    live = LiveExecution("id", queue_deadline=None)
    live.accept(ACCEPTED)
    live.output("stdout", 0, b"missed")
    listening = asyncio.ensure_future(collect(live))
    await asyncio.sleep(0)
    live.output("stdout", 6, b"heard")
    live.finish(OUTCOME)
    assert await listening == [ACCEPTED, OutputChunk("stdout", 6, b"heard"), OUTCOME]


async def test_a_slow_listener_misses_output_but_not_the_outcome() -> None:
    live = LiveExecution("id", queue_deadline=None)
    listening = live.events()
    first = asyncio.ensure_future(anext(listening))
    await asyncio.sleep(0)
    for number in range(64):
        live.output("stdout", number << 16, bytes(1 << 16))
    live.finish(OUTCOME)
    heard = [await first] + [event async for event in listening]
    assert heard[-1] == OUTCOME
    assert sum(len(event.data) for event in heard if isinstance(event, OutputChunk)) <= 1 << 20


async def test_a_listener_that_leaves_is_forgotten() -> None:
    live = LiveExecution("id", queue_deadline=None)
    live.accept(ACCEPTED)
    async with aclosing(live.events()) as events:
        assert await anext(events) == ACCEPTED
    assert not live._listeners


async def test_a_failure_reaches_every_listener() -> None:
    live = LiveExecution("id", queue_deadline=None)
    listening = [asyncio.ensure_future(collect(live)) for _ in range(2)]
    await asyncio.sleep(0)
    live.fail(LedgerError("disk full"))
    for each in listening:
        with pytest.raises(LedgerError):
            await each


async def test_waiting_for_the_outcome_can_be_cancelled_without_harm() -> None:
    live = LiveExecution("id", queue_deadline=None)
    waiting = asyncio.ensure_future(live.outcome())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    live.finish(OUTCOME)
    assert await live.outcome() == OUTCOME


@pytest.mark.parametrize(
    ("first", "second", "kept"), [(1.0, 2.0, 2.0), (2.0, 1.0, 2.0), (1.0, None, None), (None, 1.0, None)]
)
async def test_the_most_patient_caller_decides_how_long_to_queue(
    first: float | None, second: float | None, kept: float | None
) -> None:
    live = LiveExecution("id", queue_deadline=first)
    live.extend_queue(second)
    assert live.queue_deadline == kept
