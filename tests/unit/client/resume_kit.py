"""A session with pending calls, and receipts for them, without a host."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from fakes.host import WORKSPACE_ID
from fakes.signing import Change, Signer, SigningKey
from workseal.pending import MemoryPendingCallStore, NewCall, PendingCall
from workseal.receipt.verifier import ReceiptVerifier
from workseal.resume import ResumedCalls, ResumeTerms, SignedResult, resume_external_tools
from workseal.tools import ToolExecution
from workseal.trust.record import MemoryRecord
from workseal.v1 import execution_pb2

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
TERMS = ResumeTerms(workspace_id=WORKSPACE_ID)
READ = ToolExecution(read_only=True)


def new(
    call_id: str, tool: str = "write_file", *, turn: str = "t1", execution: ToolExecution | None = None
) -> NewCall:
    arguments = {"path": call_id}
    if execution is None:
        return NewCall(call_id, tool, arguments, occurrence=turn)
    return NewCall(call_id, tool, arguments, occurrence=turn, execution=execution)


@dataclass
class Kit:
    """Store, key, record and verifier of one client, and the signer of its host."""

    signer: Signer = field(default_factory=lambda: Signer(SigningKey()))
    store: MemoryPendingCallStore = field(default_factory=MemoryPendingCallStore)
    record: MemoryRecord = field(default_factory=MemoryRecord)

    def __post_init__(self) -> None:
        self.trust = self.signer.key.trust()
        self.verifier = ReceiptVerifier(self.trust, record=self.record, clock=lambda: NOW)

    async def add(self, *calls: NewCall, session: str = "s") -> tuple[PendingCall, ...]:
        return await self.store.add(session, calls)

    def request(self, call: PendingCall) -> execution_pb2.ExecuteToolRequest:
        sent = TERMS.request(call)
        return execution_pb2.ExecuteToolRequest(
            call=execution_pb2.CallRef(
                session_id=sent.session_id, tool_call_id=sent.tool_call_id, challenge=sent.challenge or ""
            ),
            tool=sent.tool,
            arguments_json=sent.arguments_json,
            idempotency_key=sent.idempotency_key,
        )

    def answer(self, call: PendingCall, change: Change | None = None) -> SignedResult:
        if change is not None:
            self.signer.changes.append(change)
        envelope = self.signer(self.request(call), 0)
        return SignedResult(envelope, self.signer.result)

    async def resume(self, results: object, *, session: str = "s", **options: object) -> ResumedCalls:
        options.setdefault("terms", TERMS)
        return await resume_external_tools(
            self.store,
            self.verifier,
            session,
            results,  # type: ignore[arg-type]
            **options,  # type: ignore[arg-type]
        )

    async def untouched(self, *call_ids: str, session: str = "s") -> bool:
        """Whether these calls are still pending, and nothing was recorded."""
        pending = [call.tool_call_id for call in await self.store.pending(session)]
        return pending == list(call_ids) and self.record.head(WORKSPACE_ID) is None
