"""The workspace lock: many readers or one writer, in order of arrival, whatever happens."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from workseal_host.coordination.lock import Ticket, WorkspaceLock
from workseal_host.coordination.waiting import granted
from workseal_host.errors import QueueTimeoutError


class LockMachine(RuleBasedStateMachine):
    """Enter and leave in any order; the model is a plain list of who came when."""

    tickets = Bundle("tickets")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.lock = WorkspaceLock()
        self.present: list[Ticket] = []

    def teardown(self) -> None:
        self.loop.close()

    @rule(target=tickets, exclusive=st.booleans())
    def enter(self, exclusive: bool) -> Ticket:
        async def enter() -> Ticket:
            return self.lock.enter(exclusive=exclusive)

        ticket = self.loop.run_until_complete(enter())
        self.present.append(ticket)
        return ticket

    @rule(ticket=consumes(tickets), twice=st.booleans())
    def leave(self, ticket: Ticket, twice: bool) -> None:
        self.lock.leave(ticket)
        if twice:
            self.lock.leave(ticket)
        self.present.remove(ticket)

    def holders(self) -> list[Ticket]:
        return [ticket for ticket in self.present if ticket.granted.done()]

    @invariant()
    def a_writer_is_alone(self) -> None:
        holders = self.holders()
        assert len(holders) <= 1 or not any(ticket.exclusive for ticket in holders)

    @invariant()
    def nobody_is_overtaken(self) -> None:
        assert self.present[: len(self.holders())] == self.holders()

    @invariant()
    def whoever_can_go_on_goes_on(self) -> None:
        holders = self.holders()
        waiting = self.present[len(holders) :]
        assert self.lock.queue_length == len(waiting)
        if waiting:
            assert holders
            assert waiting[0].exclusive or holders[0].exclusive


LockMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLock = LockMachine.TestCase


async def test_waiting_ends_when_the_lock_is_granted() -> None:
    lock = WorkspaceLock()
    first, second = lock.enter(exclusive=True), lock.enter(exclusive=True)
    waiting = asyncio.ensure_future(granted(second, lambda: None))
    await asyncio.sleep(0)
    assert not waiting.done()
    lock.leave(first)
    await asyncio.wait_for(waiting, 5)


@pytest.mark.parametrize("cause", ["deadline", "cancelled"])
async def test_waiting_ends_when_nobody_waits_any_longer(cause: str) -> None:
    lock = WorkspaceLock()
    lock.enter(exclusive=True)
    ticket = lock.enter(exclusive=False)
    cancelled = asyncio.Event()
    deadline = asyncio.get_running_loop().time() if cause == "deadline" else None
    if cause == "cancelled":
        cancelled.set()
    with pytest.raises(QueueTimeoutError):
        await asyncio.wait_for(granted(ticket, lambda: deadline, cancelled), 5)


async def test_a_lock_that_is_free_is_granted_even_after_the_deadline() -> None:
    ticket = WorkspaceLock().enter(exclusive=True)
    await granted(ticket, lambda: 0.0)
