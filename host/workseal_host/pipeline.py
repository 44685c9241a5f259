"""The order of the stages of one execution. The only place that knows it.

::

    validate -> look up and claim -> lock -> scan before -> precondition
      -> mark in flight -> execute -> scan after -> verify -> sign -> commit

An execution runs in a task of its own: a caller that goes away never cancels it.
Whatever happens after *in flight* ends in a signed outcome. Where that cannot be
committed, the row stays in flight, and nothing else is served before it is closed:
by this process as soon as the ledger works again, or by the next one at its start.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from typing import Any

import structlog

from workseal_host.coordination.calls import Call, Calls
from workseal_host.coordination.live import Accepted, LiveExecution, Outcome
from workseal_host.coordination.lock import WorkspaceLock
from workseal_host.coordination.observations import Observations
from workseal_host.coordination.waiting import granted
from workseal_host.errors import BusyError, HostError, QueueTimeoutError, RootReplacedError, StateError
from workseal_host.evidence.facts import Facts
from workseal_host.execution.isolation import Isolation
from workseal_host.execution.registry import ToolRegistry
from workseal_host.execution.tool import ToolResult
from workseal_host.ledger.model import ExecutionRow, Ledger
from workseal_host.ledger.states import ExecutionState
from workseal_host.leftovers import Leftovers
from workseal_host.observing import Observer, View
from workseal_host.requests import CallRequest
from workseal_host.sealing import Sealer
from workseal_host.stages import Clock, Settings, Stages

__all__ = ["Clock", "Pipeline", "Settings"]

log = structlog.get_logger("workseal.pipeline")


class Pipeline:
    """Run tool calls on one workspace, once each, and attest them."""

    def __init__(
        self,
        *,
        observer: Observer,
        registry: ToolRegistry,
        isolation: Isolation,
        ledger: Ledger,
        sealer: Sealer,
        workspace_id: str,
        settings: Settings,
        clock: Clock | None = None,
        new_id: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        self._observer = observer
        self._ledger = ledger
        self._sealer = sealer
        self._lock = WorkspaceLock()
        clock = clock or Clock()
        self._leftovers = Leftovers(ledger, sealer, observer, wall_ns=clock.wall_ns)
        self._observations = Observations()
        self._calls = Calls(
            ledger,
            self._leftovers,
            self._lock,
            workspace_id=workspace_id,
            max_queue=settings.max_queue,
            new_id=new_id,
        )
        self._stages = Stages(
            observer=observer,
            registry=registry,
            isolation=isolation,
            ledger=ledger,
            settings=settings,
            clock=clock,
        )
        #: Set when the root is not the directory any more that was opened: the host must stop.
        self.root_replaced = self._stages.root_replaced

    # -- the order ------------------------------------------------------------

    async def _run(self, call: Call) -> None:
        self._stages.validate(call)
        facts = await self._up_to_decision(call)
        if facts.outcome != "refused":
            await self._stages.mark_in_flight(call, facts)
            await self._stages.execute(call, facts)
            if facts.ran:
                await self._stages.look_after(facts)
        call.live.finish(await self._sealer.seal(facts))

    async def _observe(self, call: Call) -> None:
        self._stages.validate(call)
        facts = await self._up_to_decision(call)
        if facts.outcome != "refused":
            execution_id = call.live.execution_id
            self._observations.open(call.live, call.request.ttl_s)
            try:
                await self._stages.mark_in_flight(call, facts)
                facts.result = await self._observations.wait(execution_id)
                if facts.result is None:
                    facts.outcome, facts.reason = "expired", self._why_expired(call)
                await self._stages.look_after(facts)
            finally:
                self._observations.close(execution_id)
        call.live.finish(await self._sealer.seal(facts))

    def _why_expired(self, call: Call) -> str:
        if self._calls.stopping:
            return "host-stopped"
        return "cancelled" if call.live.cancelled.is_set() else "no-end-was-told"

    async def _up_to_decision(self, call: Call) -> Facts:
        await self._enter(call, exclusive=self._stages.is_exclusive(call))
        rules_changed = await self._stages.look_before(call)
        if rules_changed and call.ticket is not None and not call.ticket.exclusive:
            # The first call after a change of the rules is alone, so that those that overlap agree on them.
            self._lock.leave(call.ticket)
            await self._enter(call, exclusive=True)
            rules_changed = await self._stages.look_before(call)
        facts = call.facts
        if facts is None:
            raise StateError("nothing was seen before the call; report this")
        if rules_changed:
            await self._stages.bridge(facts)
        await self._stages.decide(call, facts)
        await self._sealer.check_key()
        self._give_up_if_cancelled(call, facts)
        return facts

    async def _enter(self, call: Call, *, exclusive: bool) -> None:
        """Wait for the workspace. A deadline that passes here means that nothing ran."""
        call.ticket = self._lock.enter(exclusive=exclusive)
        try:
            await granted(call.ticket, lambda: call.live.queue_deadline, call.live.cancelled)
        except QueueTimeoutError:
            # At once: from here on nobody may join it.
            call.live.gave_up = True
            if self._calls.stopping:
                raise BusyError(
                    "the host is stopping; nothing ran, ask the next one", stopping=True
                ) from None
            raise
        # A call that was in flight when the ledger failed comes first: its changes are not ours.
        await self._leftovers.close_all()
        call.row = await self._ledger.execution(execution_id=call.row.execution_id)
        if call.row.state is not ExecutionState.RECEIVED:
            raise StateError(f"the execution became {call.row.state} while it waited; ask again")

    def _give_up_if_cancelled(self, call: Call, facts: Facts) -> None:
        if facts.outcome == "refused" or not call.live.cancelled.is_set():
            return
        call.live.gave_up = True
        if self._calls.stopping:
            raise BusyError("the host is stopping; nothing ran, ask the next one", stopping=True)
        raise QueueTimeoutError("cancelled before it began; nothing ran, the key is free")

    # -- what callers may ask for -----------------------------------------

    async def execute(
        self, request: CallRequest, *, deadline: float | None = None
    ) -> LiveExecution | Outcome:
        """Run a tool once, join its running execution, or return its stored outcome.

        Args:
            request: the call.
            deadline: loop time until which the caller is willing to queue; None for ever.

        Raises:
            KeyConflictError, BusyError, LedgerError, RootReplacedError: nothing ran.
        """
        self._refuse_if_replaced()
        found = await self._calls.claim(request, deadline, self._run)
        return found if isinstance(found, LiveExecution) else await self.stored_outcome(found)

    async def begin_observation(
        self, request: CallRequest, *, deadline: float | None = None
    ) -> Accepted | Outcome:
        """Take the workspace for a call that somebody else runs; asked again, hold it for longer.

        Returns:
            What the workspace was, or the outcome where the call was refused or is over.
        """
        self._refuse_if_replaced()
        found = await self._calls.claim(request, deadline, self._observe)
        if not isinstance(found, LiveExecution):
            return await self.stored_outcome(found)
        self._observations.renew(found.execution_id, request.ttl_s)
        async with contextlib.aclosing(found.events()) as events:
            async for event in events:
                if isinstance(event, Accepted | Outcome):
                    return event
        raise StateError("the observation ended without an outcome; ask again")

    async def end_observation(self, execution_id: str, claimed: ToolResult) -> Outcome:
        """Attest the interval of an observation; ending it twice returns the same outcome.

        Raises:
            NotFoundError: there is no such observation.
            StateError: the execution is not an observation.
        """
        live = self._observations.end(execution_id, claimed)
        if live is not None:
            return await live.outcome()
        row = await self._ledger.execution(execution_id=execution_id)
        if row.mode != "observed":
            raise StateError("that execution is not an observation; use WaitExecution")
        live = self._calls.live(execution_id)
        return await live.outcome() if live is not None else await self.stored_outcome(row)

    async def wait(self, *, execution_id: str = "", key: str = "") -> LiveExecution | Outcome:
        """Return the running execution, or the stored outcome of one that is over.

        Raises:
            NotFoundError: there is no such execution.
        """
        row = await self._ledger.execution(execution_id=execution_id, idempotency_key=key)
        return await self._calls.running(row) or await self.stored_outcome(row)

    async def cancel(self, *, execution_id: str = "", key: str = "") -> tuple[ExecutionRow, bool]:
        """Ask for an execution to be ended.

        One that still waits for the workspace is given up; an observation ends as expired.

        Returns:
            Its row, and whether its end is under way.

        Raises:
            NotFoundError: there is no such execution.
        """
        row = await self._ledger.execution(execution_id=execution_id, idempotency_key=key)
        live = await self._calls.running(row)
        if live is not None:
            live.cancelled.set()
        return row, live is not None

    async def look(self, *, deadline: float | None = None, **how: Any) -> View:
        """Scan the workspace while no tool changes it.

        Args:
            deadline: loop time until which the caller is willing to queue; None for ever.
            how: see :meth:`Observer.look`.
        """
        ticket = self._lock.enter(exclusive=False)
        try:
            await granted(ticket, lambda: deadline)
            return await self._observer.look(**how)
        except RootReplacedError:
            self.root_replaced.set()
            raise
        finally:
            self._lock.leave(ticket)

    async def stored_outcome(self, row: ExecutionRow) -> Outcome:
        """Return the outcome of an execution that is over.

        Raises:
            QueueTimeoutError: it was given up in the queue.
            LedgerError: it could not be closed.
        """
        if not row.state.is_final:
            # Its commit failed, or it ended since the row was read.
            await self._leftovers.close_all()
            row = await self._ledger.execution(execution_id=row.execution_id)
        if row.receipt_position is None:
            raise QueueTimeoutError("that execution was given up in the queue; nothing ran, ask again")
        receipt = await self._ledger.receipt(position=row.receipt_position)
        return Outcome(receipt, await self._ledger.output(receipt), replayed=True)

    async def stop(self, grace_s: float) -> None:
        """Take no more calls; let running ones finish, then end them. Every row is closed after.

        Args:
            grace_s: how long they may go on, in seconds.
        """
        await self._calls.stop(grace_s, self._observer.stop)
        try:
            await self._leftovers.close_all()
        except HostError as error:
            log.warning("a row stays open and is settled at the next start", error=str(error))
        # Somebody may still ask for a digest, and the process could not end before that scan does.
        self._observer.stop()

    def _refuse_if_replaced(self) -> None:
        if self.root_replaced.is_set():
            raise RootReplacedError("the workspace's root was replaced; restart the host on the new one")
