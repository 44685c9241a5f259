"""Between a nonoka runner and a host: nothing reaches nonoka unverified.

nonoka has no hook for receipts, so ``Runner.resume_external_tools`` is called
from here only, after every receipt was verified and every result stored. A
process may end at any point: the challenges are stored before the first
request, the results before nonoka sees them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from workseal.client import HostClient
from workseal.errors import ResumeError
from workseal.integrations.nonoka.shape import error_entry, receipt_shape
from workseal.integrations.nonoka.turn import Turn, declarations, read_turn
from workseal.pending import CallOutcome, CallResult, PendingCall, PendingCallStore
from workseal.receipt.verifier import ReceiptVerifier
from workseal.resume import ResultInput, ResumeTerms, resume_external_tools, run_pending

_AMBIGUOUS = (
    "[workseal] Not run: two calls of this turn have the same id, so their results could not be told apart. "
    "Make the calls again."
)


class NonokaRunner(Protocol):
    """What is needed of ``nonoka.Runner``."""

    @property
    def checkpoint_store(self) -> Any:
        """Its store of session states."""
        ...

    def resume_external_tools(
        self, agent: Any, deps: Any, session_id: str, results: dict[str, Any]
    ) -> AsyncIterator[Any]:
        """Inject results and go on."""
        ...


@dataclass(frozen=True, slots=True)
class VerifiedResume:
    """Resumes paused sessions of one runner.

    Args:
        runner: a nonoka ``Runner`` with a durable checkpoint store.
        store: pending calls and results; durable wherever the checkpoints are.
        verifier: checks the receipts.
        terms: what every receipt must fit.
    """

    runner: NonokaRunner
    store: PendingCallStore
    verifier: ReceiptVerifier
    terms: ResumeTerms

    async def pending(self, agent: Any, session_id: str) -> tuple[PendingCall, ...]:
        """Store the calls that a session paused for, with their challenges.

        Args:
            agent: the session's agent.
            session_id: the session.

        Returns:
            The calls that have no result yet.

        Raises:
            ResumeError: the session is not paused for external tools.
            StoreError: the store cannot be written.
        """
        await self._store_turn(agent, session_id)
        return await self.store.pending(session_id)

    async def run(
        self, agent: Any, deps: Any, session_id: str, client: HostClient, *, timeout_s: float | None = None
    ) -> AsyncIterator[Any]:
        """Have a host run what a session paused for, and resume it.

        Safe to call again after a crash at any point: nothing runs twice.

        Args:
            agent, deps, session_id: as for the runner.
            client: a connected client.
            timeout_s: when the host ends a tool, in seconds; ``None`` for the tool's own.

        Yields:
            The runner's events.

        Raises:
            ResumeError: the session is not paused for external tools.
            NotVerifiedError: a receipt does not hold; the session is still paused.
            HostError: the host did not do it; the session is still paused.
            StoreError: a durable record cannot be read or written.
        """
        await self._store_turn(agent, session_id)
        await run_pending(
            client,
            self.store,
            self.verifier,
            session_id,
            terms=self.terms,
            declarations=declarations(agent.tools),
            timeout_s=timeout_s,
        )
        async for event in self._continue(agent, deps, session_id):
            yield event

    async def resume_external_tools(
        self, agent: Any, deps: Any, session_id: str, results: Mapping[str, ResultInput]
    ) -> AsyncIterator[Any]:
        """Resume a session on receipts that were collected elsewhere.

        Args:
            agent, deps, session_id: as for the runner.
            results: answers by call id, for the calls of :meth:`pending`.

        Yields:
            The runner's events.

        Raises:
            ResumeError: an answer is of the wrong kind, of an unknown call, or missing.
            NotVerifiedError: a receipt does not hold; the session is still paused.
            StoreError: a durable record cannot be read or written.
        """
        await self._store_turn(agent, session_id)
        await resume_external_tools(
            self.store,
            self.verifier,
            session_id,
            results,
            terms=self.terms,
            declarations=declarations(agent.tools),
        )
        async for event in self._continue(agent, deps, session_id):
            yield event

    async def _store_turn(self, agent: Any, session_id: str) -> None:
        turn, _ = await self._read(agent, session_id)
        # What is pending from another turn was dropped by nonoka: its ids may come again.
        stale = [
            call.sequence
            for call in await self.store.pending(session_id)
            if call.occurrence != turn.occurrence
        ]
        if stale:
            await self.store.abandon(session_id, stale)
        await self.store.add(session_id, turn.calls)

    async def _read(self, agent: Any, session_id: str) -> tuple[Turn, Any]:
        state = await self.runner.checkpoint_store.load_session(session_id)
        return read_turn(session_id, state, agent.tools), state

    async def _continue(self, agent: Any, deps: Any, session_id: str) -> AsyncIterator[Any]:
        turn, state = await self._read(agent, session_id)
        stored = {
            settled.tool_call_id: settled.result
            for settled in await self.store.results(session_id)
            if settled.call.occurrence == turn.occurrence
        }
        if missing := tuple(call.tool_call_id for call in turn.calls if call.tool_call_id not in stored):
            raise ResumeError("the turn changed while its calls ran: resume it again", tool_call_ids=missing)
        await self._inject_errors(session_id, turn, state, stored)
        results = {
            call.tool_call_id: receipt_shape(stored[call.tool_call_id])
            for call in turn.calls
            if stored[call.tool_call_id].outcome is not CallOutcome.NOT_RUN
        }
        async for event in self.runner.resume_external_tools(agent, deps, session_id, results):
            yield event

    async def _inject_errors(
        self, session_id: str, turn: Turn, state: Any, stored: Mapping[str, CallResult]
    ) -> None:
        """Answer the calls that were never run, as nonoka answers calls of local tools."""
        entries = [error_entry(call_id, tool, _AMBIGUOUS) for call_id, tool in turn.ambiguous]
        entries += [
            error_entry(call.tool_call_id, call.tool, stored[call.tool_call_id].text)
            for call in turn.calls
            if stored[call.tool_call_id].outcome is CallOutcome.NOT_RUN
        ]
        if entries:
            state.memory_entries.extend(entries)
            await self.runner.checkpoint_store.save_session(session_id, state)
