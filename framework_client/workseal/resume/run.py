"""Run a session's pending calls on a host, and resume on what it signed.

Safe to call again after a crash at any point: the challenges are stored, so
every request repeats its key, and the host replays instead of running twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from workseal.client import HostClient
from workseal.errors import HostError, InvalidInputError, KeyConflictError
from workseal.pending import PendingCall, PendingCallStore
from workseal.receipt.verifier import ReceiptVerifier
from workseal.results import HostResult, OutputChunk, Selector
from workseal.resume.inputs import NotRun, ResumeTerms, effective_execution
from workseal.resume.settle import Batch, ResumedCalls
from workseal.tools import ToolExecution

OnCallOutput = Callable[[PendingCall, OutputChunk], None]


async def run_pending(
    client: HostClient,
    store: PendingCallStore,
    verifier: ReceiptVerifier,
    session_id: str,
    *,
    terms: ResumeTerms,
    declarations: Mapping[str, ToolExecution] | None = None,
    timeout_s: float | None = None,
    on_output: OnCallOutput | None = None,
) -> ResumedCalls:
    """Have a host run all pending calls of a session, verify what it signed, store the results.

    Each receipt is verified before the next call is sent; the results are stored together.

    Args:
        client: a connected client.
        store: the pending calls.
        verifier: checks the receipts.
        session_id: the session.
        terms: what every receipt must fit.
        declarations: tools by name, as declared now.
        timeout_s: when the host ends a tool, in seconds; ``None`` for the tool's own.
        on_output: called with output while tools run.

    Returns:
        The results as they are stored.

    Raises:
        NotVerifiedError: a receipt does not hold; all calls are still pending.
        HostError: the host did not do it; all calls are still pending.
        StoreError: a durable record cannot be read or written.
    """
    pending = await store.pending(session_id)
    earlier = await store.results(session_id)
    batch = Batch(verifier, terms)
    runner = _Runner(client, terms, declarations, timeout_s, on_output)
    for call in pending:
        answer = await runner.run(call)
        between: tuple[bytes, ...] = ()
        if isinstance(answer, HostResult):
            between = await fetch_between(client, batch.verifier, answer.envelope)
        await batch.resolve(call, answer, between)
    return await batch.commit(store, session_id, earlier)


async def fetch_between(client: HostClient, verifier: ReceiptVerifier, envelope: bytes) -> tuple[bytes, ...]:
    """Fetch the receipts between the last verified one and another.

    Args:
        client: a connected client.
        verifier: knows what was verified last.
        envelope: the later receipt.

    Returns:
        What the host delivered, by sequence; nothing of it is verified.

    Raises:
        NotVerifiedError: the receipt is malformed, or too many lie between.
        HostError: as the host answered.
    """
    missing = verifier.gap(envelope)
    if not missing:
        return ()
    found = []
    async for entry in client.receipts(after_sequence=missing.start - 1):
        if entry.sequence >= missing.stop:
            break
        found.append(entry.envelope)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Runner:
    """Asks a host for pending calls, one at a time."""

    client: HostClient
    terms: ResumeTerms
    declarations: Mapping[str, ToolExecution] | None
    timeout_s: float | None
    on_output: OnCallOutput | None

    async def run(self, call: PendingCall) -> HostResult | NotRun:
        """Return the host's outcome, or that the call was never run."""
        try:
            request = self.terms.request(call)
        except InvalidInputError as error:
            return NotRun(f"the call could not be sent: {error}")
        selector = Selector(idempotency_key=request.idempotency_key)
        hear = None if self.on_output is None else partial(self.on_output, call)
        try:
            return await self.client.execute(
                request,
                timeout_s=self.timeout_s,
                execution=effective_execution(call, self.declarations),
                workspace_id=self.terms.workspace_id,
                on_output=hear,
            )
        except KeyConflictError:
            # An earlier attempt had other limits. Its receipt is checked against this call as any other.
            return await self.client.wait(selector, on_output=hear)
        except HostError as error:
            if not _never_taken(error):
                raise
            return await self._earlier_attempt(selector, error)

    async def _earlier_attempt(self, selector: Selector, error: HostError) -> HostResult | NotRun:
        """Find out whether an earlier attempt at the call got further than this one."""
        try:
            return await self.client.wait(selector)
        except HostError as missing:
            if missing.code != "NOT_FOUND":
                raise
        return NotRun(f"the host says that it did not take the call: {error}")


def _never_taken(error: HostError) -> bool:
    """Whether asking again cannot help: the request itself is at fault."""
    too_large = error.code == "RESOURCE_EXHAUSTED" and not error.reason
    return error.reason == "INVALID_REQUEST" or too_large
