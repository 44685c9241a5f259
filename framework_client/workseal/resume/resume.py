"""Resume a session on receipts that somebody else collected."""

from __future__ import annotations

from collections.abc import Mapping

from workseal.pending import PendingCall, PendingCallStore
from workseal.receipt.envelope import parse_envelope
from workseal.receipt.errors import MalformedReceiptError
from workseal.receipt.statement import parse_statement
from workseal.receipt.verifier import ReceiptVerifier
from workseal.results import HostResult
from workseal.resume.inputs import ResultInput, ResumeTerms, SignedResult, match_results
from workseal.resume.settle import Batch, ResumedCalls
from workseal.tools import ToolExecution

__all__ = ["ResumedCalls", "resume_external_tools"]


async def resume_external_tools(
    store: PendingCallStore,
    verifier: ReceiptVerifier,
    session_id: str,
    results: Mapping[str, ResultInput],
    *,
    terms: ResumeTerms,
    declarations: Mapping[str, ToolExecution] | None = None,
) -> ResumedCalls:
    """Turn answers to all pending calls of a session into stored, verified results.

    Either every pending call gets its result or nothing changes, the record of
    what was verified included. Calls that cannot have been sent need no answer.

    Args:
        store: the pending calls.
        verifier: checks the receipts.
        session_id: the session.
        results: answers by call id; of calls that have a result already they are passed over.
        terms: what every receipt must fit.
        declarations: tools by name, as declared now; the stricter of this and what was stored holds.

    Returns:
        The results as they are stored.

    Raises:
        ResumeError: an answer is of the wrong kind, of an unknown call, or missing.
        NotVerifiedError: a receipt does not hold; ``check`` and ``reason`` say why.
        StoreError: a durable record cannot be read or written.
    """
    pending = await store.pending(session_id)
    earlier = await store.results(session_id)
    settled_ids = {settled.call.tool_call_id for settled in earlier}
    pairs = match_results(pending, settled_ids, results, declarations)
    batch = Batch(verifier, terms)
    for call, answer in sorted(pairs, key=_place):
        await batch.resolve(call, answer)
    return await batch.commit(store, session_id, earlier)


def _place(pair: tuple[PendingCall, ResultInput]) -> tuple[int, int]:
    """Order by place in the chain: each receipt is the last verified one for the next.

    Read from bytes that are not verified yet: it decides the order of checks, and nothing else.
    """
    call, answer = pair
    if not isinstance(answer, SignedResult | HostResult):
        return 0, call.sequence
    try:
        return parse_statement(parse_envelope(answer.envelope).payload).chain.sequence, call.sequence
    except MalformedReceiptError:
        return 0, call.sequence
