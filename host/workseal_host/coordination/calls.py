"""Claiming keys, and the executions that are under way.

Invariants: one live execution per claimed key; an execution runs in a task of its
own, which no caller can cancel; whatever ends that task, its row is closed (or kept
as a leftover), whoever waits is told, and the workspace is given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from workseal_host.coordination.live import LiveExecution
from workseal_host.coordination.lock import Ticket, WorkspaceLock
from workseal_host.errors import BusyError, HostError, StateError
from workseal_host.evidence.facts import Facts
from workseal_host.evidence.in_flight import stored_request
from workseal_host.execution.tool import Tool
from workseal_host.ledger.model import Claim, ExecutionRow, Ledger
from workseal_host.ledger.states import ExecutionState
from workseal_host.leftovers import Leftovers
from workseal_host.requests import CallRequest

log = structlog.get_logger("workseal.calls")

# Each try waits for an execution that is about to end, so that more than a few mean a fault.
_MAX_TRIES = 10

# How long running calls may take to end once they were told to, before a scan of theirs is stopped.
_PATIENCE_S = 10.0

Run = Callable[["Call"], Awaitable[None]]


@dataclass(slots=True)
class Call:
    """One call on its way through the stages.

    Attributes:
        request: what was asked for.
        row: its row in the ledger.
        live: who listens.
        tool: what is to run; None for an unknown tool.
        refusal: why it may not run, as reason and explanation.
        ticket: its place in the queue.
        facts: what was seen up to now.
    """

    request: CallRequest
    row: ExecutionRow
    live: LiveExecution
    tool: Tool | None = None
    refusal: tuple[str, str] | None = None
    ticket: Ticket | None = None
    facts: Facts | None = None


class Calls:
    """Claim keys and keep the executions that are under way.

    Args:
        ledger: where keys are claimed.
        leftovers: what could not be closed; nothing is claimed over it.
        lock: the workspace.
        workspace_id: part of every default key.
        max_queue: how many calls may wait for the workspace.
        new_id: makes execution ids.
    """

    def __init__(
        self,
        ledger: Ledger,
        leftovers: Leftovers,
        lock: WorkspaceLock,
        *,
        workspace_id: str,
        max_queue: int,
        new_id: Callable[[], str],
    ) -> None:
        self._ledger = ledger
        self._leftovers = leftovers
        self._lock = lock
        self._workspace_id = workspace_id
        self._max_queue = max_queue
        self._new_id = new_id
        self._claiming = asyncio.Lock()
        self._live: dict[str, LiveExecution] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.stopping = False

    def live(self, execution_id: str) -> LiveExecution | None:
        """Return an execution that is under way."""
        return self._live.get(execution_id)

    async def running(self, row: ExecutionRow) -> LiveExecution | None:
        """Return who runs the execution of a row that was just read; None for one that is over.

        A claim is durable a moment before its execution is under way: that moment is waited out.
        """
        live = self._live.get(row.execution_id)
        if live is None and row.state is ExecutionState.RECEIVED:
            async with self._claiming:
                live = self._live.get(row.execution_id)
        return live

    async def claim(
        self, request: CallRequest, deadline: float | None, run: Run
    ) -> LiveExecution | ExecutionRow:
        """Start an execution, join the one that holds its key, or return the row of one that is over.

        Args:
            request: the call.
            deadline: loop time until which the caller is willing to queue; None for ever.
            run: the stages.

        Raises:
            KeyConflictError, BusyError, LedgerError: nothing ran.
        """
        # A caller that goes away half-way must not leave a key claimed that nobody runs.
        task = asyncio.ensure_future(self._claim(request, deadline, run))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def _claim(
        self, request: CallRequest, deadline: float | None, run: Run
    ) -> LiveExecution | ExecutionRow:
        # One at a time, so that a duplicate finds either no row or a row with its live execution.
        async with self._claiming:
            for _ in range(_MAX_TRIES):
                await self._leftovers.close_all()
                self._check_capacity()
                row, is_new = await self._ledger.claim(self._claim_of(request))
                if is_new:
                    return self._start(request, row, deadline, run)
                found = await self._held(row, deadline)
                if found is not None:
                    return found
        raise StateError("the key is held by an execution that nobody runs; restart the host to settle it")

    async def _held(self, row: ExecutionRow, deadline: float | None) -> LiveExecution | ExecutionRow | None:
        """Return who holds a key; None where it has become free, so that it can be claimed again."""
        live = self._live.get(row.execution_id)
        if live is None:
            # It may have ended since the row was read.
            row = await self._ledger.execution(execution_id=row.execution_id)
            return row if row.state.is_final and row.state.holds_key else None
        if not live.gave_up:
            live.extend_queue(deadline)
            return live
        # Its own deadline has passed, this caller's has not: wait until the key is free.
        await live.gone.wait()
        return None

    def _claim_of(self, request: CallRequest) -> Claim:
        return Claim(
            execution_id=self._new_id(),
            idempotency_key=request.key(self._workspace_id),
            request_digest=request.request_digest,
            session_id=request.call.session_id,
            tool_call_id=request.call.tool_call_id,
            tool=request.tool,
            mode="observed" if request.observed else "executed",
            request=stored_request(request),
        )

    def _check_capacity(self) -> None:
        if self.stopping:
            raise BusyError("the host is stopping; nothing ran, ask the next one", stopping=True)
        if self._lock.queue_length >= self._max_queue:
            raise BusyError("too many calls wait for the workspace; nothing ran, ask again later")

    def _start(
        self, request: CallRequest, row: ExecutionRow, deadline: float | None, run: Run
    ) -> LiveExecution:
        live = LiveExecution(row.execution_id, queue_deadline=deadline)
        self._live[row.execution_id] = live
        task = asyncio.create_task(self._guard(Call(request, row, live), run), name=row.execution_id)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return live

    async def _guard(self, call: Call, run: Run) -> None:
        """Run the stages; whatever happens, close the row, tell who waits, give the workspace back."""
        try:
            await run(call)
        except Exception as error:  # the boundary of a task: nobody above could handle it
            if not isinstance(error, HostError):
                log.exception("execution failed", execution_id=call.row.execution_id)
            await self._close(call, error)
        finally:
            if call.ticket is not None:
                self._lock.leave(call.ticket)
            self._live.pop(call.row.execution_id, None)
            call.live.gone.set()

    async def _close(self, call: Call, error: Exception) -> None:
        call.live.gave_up = True
        self._leftovers.add(call.row.execution_id, call.facts, error)
        try:
            outcome = await self._leftovers.close(call.row.execution_id)
        except Exception as problem:  # whoever waits must be told, whatever went wrong
            if not isinstance(problem, HostError):
                log.exception("closing failed", execution_id=call.row.execution_id)
            log.warning("row cannot be closed yet", execution_id=call.row.execution_id, error=str(problem))
            outcome = None
        if outcome is None:
            call.live.fail(error)
        else:
            call.live.finish(outcome)

    async def stop(self, grace_s: float, stop_looking: Callable[[], None]) -> None:
        """Take no more calls; let running ones finish for a while, then end them.

        Args:
            grace_s: how long they may go on, in seconds.
            stop_looking: ends a scan that does not come to its end.
        """
        self.stopping = True
        # A claim that is under way may still start one; it may also wait for somebody who looks.
        claims = asyncio.ensure_future(self._no_claim())
        await asyncio.wait({claims}, timeout=grace_s + _PATIENCE_S)
        if not claims.done():
            stop_looking()
        await claims
        if self._tasks and grace_s > 0:
            await asyncio.wait(self._tasks, timeout=grace_s)
        for live in self._live.values():
            live.cancelled.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_PATIENCE_S)
        if self._tasks:
            # What is left is looking at the workspace, and that may take for ever.
            stop_looking()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _no_claim(self) -> None:
        async with self._claiming:
            pass
