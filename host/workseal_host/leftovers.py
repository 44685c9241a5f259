"""Executions of this process whose row could not be closed.

Nothing is served over one of them. As long as the process lives it still knows
what it saw, so what is signed later is what would have been signed at once; a
process that ends before leaves the row to :mod:`.settlement`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from workseal_host.coordination.live import Outcome
from workseal_host.errors import HostError, WorkspaceError
from workseal_host.evidence.facts import Facts
from workseal_host.ledger.model import ExecutionRow, Ledger
from workseal_host.ledger.states import ExecutionState
from workseal_host.observing import Observer
from workseal_host.sealing import Sealer

log = structlog.get_logger("workseal.leftovers")


@dataclass(frozen=True, slots=True)
class _Leftover:
    facts: Facts | None
    error: Exception


class Leftovers:
    """Close rows that could not be closed when they should have been.

    Args:
        ledger: whose rows.
        sealer: signs what was seen.
        observer: looks at the workspace where nobody has after the tool.
        wall_ns: wall clock in ns.
    """

    def __init__(
        self,
        ledger: Ledger,
        sealer: Sealer,
        observer: Observer,
        *,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._wall_ns = wall_ns
        self._ledger = ledger
        self._sealer = sealer
        self._observer = observer
        self._left: dict[str, _Leftover] = {}
        self._closing = asyncio.Lock()

    def add(self, execution_id: str, facts: Facts | None, error: Exception) -> None:
        """Note an execution that failed on its way.

        Args:
            execution_id: which.
            facts: what was seen of it; None where it never got so far.
            error: what went wrong.
        """
        self._left[execution_id] = _Leftover(facts, error)

    async def close_all(self) -> None:
        """Close whatever is left.

        Raises:
            HostError: one of them cannot be closed; nothing may run now.
        """
        for execution_id in list(self._left):
            await self.close(execution_id)

    async def close(self, execution_id: str) -> Outcome | None:
        """Close one execution.

        Returns:
            Its outcome, where it had begun; None where nothing ran and its key is free again.

        Raises:
            HostError: it cannot be closed.
        """
        async with self._closing:
            left = self._left.get(execution_id)
            if left is None:
                return None
            outcome = await self._close(execution_id, left)
            del self._left[execution_id]
            return outcome

    async def _close(self, execution_id: str, left: _Leftover) -> Outcome | None:
        row = await self._ledger.execution(execution_id=execution_id)
        if row.state is ExecutionState.RECEIVED:
            await self._ledger.abandon(execution_id)
            return None
        if row.state.is_final:
            # The commit held although it was reported as failed.
            return await self._stored(row)
        if left.facts is None:
            raise HostError(
                f"execution {execution_id} is in flight and nothing is known of it; restart the host"
            )
        return await self._seal(left.facts, left.error)

    async def _stored(self, row: ExecutionRow) -> Outcome | None:
        if row.receipt_position is None:
            return None
        receipt = await self._ledger.receipt(position=row.receipt_position)
        return Outcome(receipt, await self._ledger.output(receipt), replayed=True)

    async def _seal(self, facts: Facts, error: Exception) -> Outcome:
        if not facts.finished_ns:
            await self._look_after(facts, error)
        return await self._sealer.seal(facts)

    async def _look_after(self, facts: Facts, error: Exception) -> None:
        facts.doubt(f"the host failed while the call was in flight: {type(error).__name__}")
        facts.finished_ns = max(self._wall_ns(), facts.started_ns)
        facts.duration_ns = facts.finished_ns - facts.started_ns
        # Until somebody looks they are those from before the call, and nobody saw that they still hold.
        facts.after, facts.after_policy_digest = None, None
        try:
            facts.after = await self._observer.look(policy=facts.before.policy)
            facts.after_policy_digest = (await self._observer.policy_after(facts.after)).digest
        except WorkspaceError as problem:
            log.warning("the workspace cannot be observed", error=str(problem))
