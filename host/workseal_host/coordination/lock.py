"""The workspace lock: shared or exclusive, first come first served.

A waiting writer is never overtaken by a later reader, so neither side starves.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class Ticket:
    """A place in the queue, or the lock itself once ``granted`` is done."""

    exclusive: bool
    granted: asyncio.Future[None] = field(repr=False)


class WorkspaceLock:
    """Grant the workspace to many readers or one writer, in order of arrival."""

    def __init__(self) -> None:
        self._waiting: deque[Ticket] = deque()
        self._holders: set[Ticket] = set()

    @property
    def queue_length(self) -> int:
        """Number of tickets that wait."""
        return len(self._waiting)

    def enter(self, *, exclusive: bool) -> Ticket:
        """Take a place in the queue.

        Returns:
            A ticket; await its ``granted``, and give it to :meth:`leave` in any case.
        """
        ticket = Ticket(exclusive, asyncio.get_running_loop().create_future())
        self._waiting.append(ticket)
        self._grant()
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Give the lock, or the place in the queue, back. Doing it twice is harmless."""
        self._holders.discard(ticket)
        if ticket in self._waiting:
            self._waiting.remove(ticket)
            ticket.granted.cancel()
        self._grant()

    def _grant(self) -> None:
        while self._waiting and self._fits(self._waiting[0]):
            ticket = self._waiting.popleft()
            self._holders.add(ticket)
            if not ticket.granted.done():
                ticket.granted.set_result(None)

    def _fits(self, ticket: Ticket) -> bool:
        if not self._holders:
            return True
        return not ticket.exclusive and not any(holder.exclusive for holder in self._holders)
