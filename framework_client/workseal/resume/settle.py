"""Resolve a batch of answers on a staging, then make it count.

Order of writing: the record of what was verified, then the results. A process
that ends in between verifies the same receipts again, which the record allows
for the same calls and for no others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from workseal.calls import arguments_digest
from workseal.errors import StoreError
from workseal.pending import CallResult, PendingCall, PendingCallStore, SettledCall
from workseal.receipt.policy import Expectation
from workseal.receipt.verifier import ReceiptVerifier
from workseal.resume.inputs import NotRun, RawResult, ResultInput, ResumeTerms, SignedResult
from workseal.resume.observe import observe_not_run, observe_raw, observe_receipt
from workseal.staging import Staging


@dataclass(frozen=True, slots=True)
class ResumedCalls:
    """What a resume made of a session's pending calls.

    Args:
        results: the calls that were pending, with their stored results, by sequence.
        earlier: the calls of the session that had a result already, by sequence.
    """

    results: tuple[SettledCall, ...]
    earlier: tuple[SettledCall, ...]

    @property
    def by_call_id(self) -> dict[str, CallResult]:
        """The results of the calls that were pending, by call id."""
        return {settled.tool_call_id: settled.result for settled in self.results}


class Batch:
    """The pending calls of one session on their way to results.

    Args:
        verifier: the verifier with the durable record.
        terms: what every receipt must fit.
    """

    def __init__(self, verifier: ReceiptVerifier, terms: ResumeTerms) -> None:
        self._staging = Staging(verifier)
        self._terms = terms
        self._before_digest = terms.before_digest
        self._results: dict[int, CallResult] = {}

    @property
    def verifier(self) -> ReceiptVerifier:
        """The verifier as the answers so far left it."""
        return self._staging.verifier

    async def resolve(self, call: PendingCall, answer: ResultInput, between: tuple[bytes, ...] = ()) -> None:
        """Verify one answer and keep its result; nothing is written.

        Args:
            call: the pending call.
            answer: what answers it.
            between: the receipts since the last verified one, by sequence.

        Raises:
            NotVerifiedError: the receipt does not hold.
        """
        if isinstance(answer, RawResult):
            self._results[call.sequence] = observe_raw(answer)
        elif isinstance(answer, NotRun):
            self._results[call.sequence] = observe_not_run(answer)
        else:
            signed = (
                answer if isinstance(answer, SignedResult) else SignedResult(answer.envelope, answer.result)
            )
            # In a thread: it reads pins and record, and computes.
            self._results[call.sequence] = await asyncio.to_thread(self._verify, call, signed, between)

    def _verify(self, call: PendingCall, signed: SignedResult, between: tuple[bytes, ...]) -> CallResult:
        receipt = self.verifier.verify(
            signed.envelope,
            self._expectation(call),
            result=signed.result,
            between=between or signed.between,
        )
        if self._terms.before_mode == "strict":
            self._before_digest = receipt.predicate.workspace.after
        return observe_receipt(receipt)

    def _expectation(self, call: PendingCall) -> Expectation:
        request, terms = self._terms.request(call), self._terms
        return Expectation(
            workspace_id=terms.workspace_id,
            chain_id=terms.chain_id,
            session_id=call.session_id,
            tool_call_id=call.tool_call_id,
            tool=call.tool,
            arguments_digest=arguments_digest(request.arguments),
            challenge=call.challenge,
            idempotency_key=request.idempotency_key,
            before_digest=self._before_digest,
            before_mode=terms.before_mode,
            max_age_s=terms.max_age_s,
            allow_observed=call.tool in terms.observed_tools,
        )

    async def commit(
        self, store: PendingCallStore, session_id: str, earlier: tuple[SettledCall, ...]
    ) -> ResumedCalls:
        """Make the batch count.

        Args:
            store: where the results go.
            session_id: the session.
            earlier: what had a result before the batch began.

        Raises:
            NotVerifiedError: another process recorded a different history meanwhile.
            ResumeError: another process gave one of the calls up meanwhile.
            StoreError: something cannot be written; the same batch may be resolved again.
        """
        await asyncio.to_thread(self._staging.commit)
        await store.settle(session_id, self._results)
        # Read back: where another process was faster, its result is the one that holds.
        stored: Mapping[int, SettledCall] = {
            settled.call.sequence: settled for settled in await store.results(session_id)
        }
        if not self._results.keys() <= stored.keys():
            raise StoreError("the store of pending calls lost a result that it had taken: check it")
        return ResumedCalls(tuple(stored[sequence] for sequence in sorted(self._results)), earlier)
