"""What Ctrl-C, TERM and HUP mean while a command of the caller's runs.

::

    before    nothing has begun: leave, and nothing runs
    running   Ctrl-C is the command's (it has the terminal); TERM and HUP end the command
    sealing   the command is over: what it changed is sealed first

So whatever the command changed ends up in a receipt. What the caller has ignored
(`nohup`, a background job) stays ignored.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Final

from workseal_host.cli.boundary import say

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Phase(Enum):
    """How far the call is."""

    BEFORE = auto()
    RUNNING = auto()
    SEALING = auto()


class Interruptions:
    """The state of one call, as signals see it.

    Args:
        leave: called with every signal that comes before anything has begun.
    """

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave = leave
        self._cancelled: asyncio.Event | None = None
        self.phase = Phase.BEFORE

    def running(self, cancelled: asyncio.Event) -> None:
        """Note that the command runs from here on; the event ends it."""
        self._cancelled = cancelled
        self.phase = Phase.RUNNING

    def sealing(self) -> None:
        """Note that the command is over."""
        self.phase = Phase.SEALING

    def take(self, number: signal.Signals) -> None:
        """React to a signal."""
        if self.phase is Phase.BEFORE:
            self._leave()
        elif self.phase is Phase.SEALING:
            say("the command is over; its receipt is being made, one moment")
        elif number is not signal.SIGINT and self._cancelled is not None:
            self._cancelled.set()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Take the signals for as long as this lasts. Needs a running loop in the main thread."""
        loop = asyncio.get_running_loop()
        taken = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        for number in taken:
            loop.add_signal_handler(number, self.take, number)
        try:
            yield
        finally:
            for number in taken:
                loop.remove_signal_handler(number)
