"""Waiting for the workspace, as long as somebody is willing to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from workseal_host.coordination.lock import Ticket
from workseal_host.errors import QueueTimeoutError

# The deadline may move while we wait, when further callers join.
_LOOK_AGAIN_S = 1.0


async def granted(
    ticket: Ticket, deadline: Callable[[], float | None], cancelled: asyncio.Event | None = None
) -> None:
    """Wait until a ticket holds the workspace.

    Args:
        ticket: a place in the queue.
        deadline: loop time until which to wait, asked again and again; None for ever.
        cancelled: set to give up.

    Raises:
        QueueTimeoutError: nobody waits any longer; nothing ran.
    """
    loop = asyncio.get_running_loop()
    given_up = asyncio.ensure_future((cancelled or asyncio.Event()).wait())
    either: set[asyncio.Future[Any]] = {ticket.granted, given_up}
    try:
        while not ticket.granted.done():
            until = deadline()
            if given_up.done():
                raise QueueTimeoutError("cancelled in the queue; nothing ran, the key is free")
            if until is not None and until <= loop.time():
                raise QueueTimeoutError("gave up waiting for the workspace; nothing ran, the key is free")
            pause = _LOOK_AGAIN_S if until is None else min(_LOOK_AGAIN_S, until - loop.time())
            await asyncio.wait(either, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
    finally:
        given_up.cancel()
