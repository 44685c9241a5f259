"""Executions that are under way, and those who listen to them.

An execution outlives its listeners: they come and go, it runs once. A listener
that reads too slowly misses output chunks (it sees the jump in their offsets),
never the outcome, and never holds the tool up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from workseal_host.ledger.model import OutputRecord, ReceiptRow

_BACKLOG_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class DigestReport:
    """A digest of the workspace, with how it came about."""

    scheme: str
    digest: str
    scan: str
    entries: int
    unreadable: tuple[str, ...]
    unstable: tuple[str, ...]
    policy_digest: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """The call has begun."""

    execution_id: str
    idempotency_key: str
    before: DigestReport


@dataclass(frozen=True, slots=True)
class OutputChunk:
    """A piece of raw output."""

    stream: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the host decided."""

    receipt: ReceiptRow
    output: OutputRecord
    replayed: bool


Event = Accepted | OutputChunk | Outcome


@dataclass(eq=False)
class _Listener:
    backlog: deque[Event] = field(default_factory=deque)
    backlog_bytes: int = 0
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, event: Event) -> None:
        size = len(event.data) if isinstance(event, OutputChunk) else 0
        if size and self.backlog_bytes + size > _BACKLOG_BYTES:
            return
        self.backlog_bytes += size
        self.backlog.append(event)
        self.woken.set()

    def take(self) -> Event | None:
        if not self.backlog:
            self.woken.clear()
            return None
        event = self.backlog.popleft()
        if isinstance(event, OutputChunk):
            self.backlog_bytes -= len(event.data)
        return event


class LiveExecution:
    """One execution under way.

    Attributes:
        execution_id: its id.
        queue_deadline: loop time at which it gives its place in the queue up; None for never.
        cancelled: set when its end was asked for.
        gave_up: whether it is on its way out without having run; nobody may join it any more.
        gone: set when it is over in every respect, its row and its lock included.
        finished: resolves with its outcome, or with why there is none.
    """

    def __init__(self, execution_id: str, *, queue_deadline: float | None) -> None:
        self.execution_id = execution_id
        self.queue_deadline = queue_deadline
        self.cancelled = asyncio.Event()
        self.gave_up = False
        self.gone = asyncio.Event()
        self.finished: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._accepted: Accepted | None = None
        self._listeners: set[_Listener] = set()
        # Nobody may be listening when it fails; that is not an unhandled error.
        self.finished.add_done_callback(lambda future: future.cancelled() or future.exception())

    def extend_queue(self, deadline: float | None) -> None:
        """Let a further caller keep the place in the queue for as long as it can wait."""
        if deadline is None or self.queue_deadline is None:
            self.queue_deadline = None
        else:
            self.queue_deadline = max(deadline, self.queue_deadline)

    def accept(self, accepted: Accepted) -> None:
        """Tell everybody that the call has begun."""
        self._accepted = accepted
        self._offer(accepted)

    def forget_acceptance(self) -> None:
        """Tell those who come from now on the outcome only: what they could begin is over."""
        self._accepted = None

    def output(self, stream: str, offset: int, data: bytes) -> None:
        """Pass a piece of output on."""
        self._offer(OutputChunk(stream, offset, data))

    def finish(self, outcome: Outcome) -> None:
        """Tell everybody the outcome."""
        self.finished.set_result(outcome)
        self._wake()

    def fail(self, error: BaseException) -> None:
        """Tell everybody that there will be no outcome now."""
        self.finished.set_exception(error)
        self._wake()

    async def outcome(self) -> Outcome:
        """Wait for the outcome; a caller that goes away cancels nothing.

        Raises:
            HostError: why there is none.
        """
        return await asyncio.shield(self.finished)

    def _offer(self, event: Event) -> None:
        for listener in self._listeners:
            listener.offer(event)

    def _wake(self) -> None:
        for listener in self._listeners:
            listener.woken.set()

    async def events(self) -> AsyncGenerator[Event]:
        """Yield what happens from now on; the outcome is last.

        Raises:
            HostError: why there is no outcome.
        """
        listener = _Listener()
        if self._accepted is not None:
            listener.offer(self._accepted)
        self._listeners.add(listener)
        try:
            while True:
                event = listener.take()
                if event is not None:
                    yield event
                elif self.finished.done():
                    yield self.finished.result()
                    return
                else:
                    await listener.woken.wait()
        finally:
            self._listeners.discard(listener)
