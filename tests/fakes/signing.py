"""Real, signed receipts for a host that did nothing, made with a key in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from securesystemslib.signer import CryptoSigner

from fakes.host import CHAIN_ID, WORKSPACE_ID
from workseal.canonical import canonical_json, parse_json, sha256_hex
from workseal.receipt.envelope import PAYLOAD_TYPE, Envelope, encode_envelope, pae
from workseal.receipt.keys import PublicKey
from workseal.receipt.statement import (
    Attribution,
    Call,
    Chain,
    ChangedEntry,
    ChangeKind,
    EntryState,
    EntryType,
    Execution,
    HostIdentity,
    Isolation,
    KeyRotationPredicate,
    Mode,
    Outcome,
    ResultDigest,
    ScanLevel,
    Scheme,
    ToolExecutionPredicate,
    Workspace,
    encode_statement,
    summarize_changes,
)
from workseal.trust.pins import Pin, TrustState
from workseal.trust.store import MemoryTrustStore
from workseal.v1 import execution_pb2

RULES = sha256_hex(b"rules")
Change = Callable[[ToolExecutionPredicate], ToolExecutionPredicate]


def state_digest(number: int) -> str:
    return hashlib.sha256(f"state {number}".encode()).hexdigest()


class SigningKey:
    """A key pair in memory."""

    def __init__(self) -> None:
        self._signer: Any = CryptoSigner.generate_ed25519()
        key = self._signer._private_key.public_key()
        self.public = PublicKey.from_pem(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))

    def sign(self, payload: bytes) -> bytes:
        signature = self._signer.sign(pae(PAYLOAD_TYPE, payload))
        raw = bytes.fromhex(signature.signature)
        return encode_envelope(Envelope(payload, PAYLOAD_TYPE, self.public.key_id, raw))

    def trust(self) -> MemoryTrustStore:
        return MemoryTrustStore(TrustState(pins=(Pin(self.public),)))


class Signer:
    """Signs one receipt after another, each for one request.

    Give ``changes`` to alter the predicate of the next receipts, in order.
    """

    def __init__(self, key: SigningKey | None = None, result: bytes = b"done\n") -> None:
        self.key = key or SigningKey()
        self.result = result
        self.changes: list[Change] = []
        self.workspace_id = WORKSPACE_ID
        self.sequence = 0
        self.previous: str | None = None
        self.state = state_digest(0)

    def __call__(self, request: execution_pb2.ExecuteToolRequest, sequence: int) -> bytes:
        predicate = self.predicate(request)
        if self.changes:
            predicate = self.changes.pop(0)(predicate)
        return self.sign(predicate)

    def sign(self, predicate: ToolExecutionPredicate | KeyRotationPredicate) -> bytes:
        payload = encode_statement(predicate)
        self.sequence += 1
        self.previous = sha256_hex(payload)
        if isinstance(predicate, ToolExecutionPredicate):
            self.state = predicate.workspace.after or self.state
        return self.key.sign(payload)

    def predicate(self, request: execution_pb2.ExecuteToolRequest) -> ToolExecutionPredicate:
        arguments = parse_json(request.arguments_json, max_bytes=1 << 20)
        call = Call(
            session_id=request.call.session_id,
            tool_call_id=request.call.tool_call_id,
            tool=request.tool,
            arguments_digest=sha256_hex(canonical_json(arguments)),
            idempotency_key=request.idempotency_key,
            attempt=1,
            challenge=request.call.challenge or None,
        )
        return ToolExecutionPredicate(
            outcome=Outcome.COMPLETED,
            reason="",
            call=call,
            execution=self._execution(),
            workspace=self._workspace(),
            chain=Chain(CHAIN_ID, self.sequence + 1, self.previous),
            host=HostIdentity("workseal-host", "0", self.key.public.key_id),
        )

    def _execution(self) -> Execution:
        return Execution(
            execution_id="x",
            mode=Mode.EXECUTED,
            isolation=Isolation.BUBBLEWRAP,
            attribution=Attribution.INTERVAL,
            started_on="2026-03-04T05:06:06.000000Z",
            finished_on="2026-03-04T05:06:06.250000Z",
            duration_ns=250_000_000,
            exit_code=0,
            signal=None,
            timed_out=False,
            cancelled=False,
            recovered=False,
            leftover_processes=0,
            stdout=None,
            stderr=None,
            result=ResultDigest(sha256_hex(self.result), len(self.result)),
        )

    def _workspace(self) -> Workspace:
        state = EntryState(EntryType.FILE, sha256_hex(b"content"))
        summary = summarize_changes(
            [ChangedEntry(f"file{self.sequence + 1}", ChangeKind.CREATED, None, state)]
        )
        return Workspace(
            id=self.workspace_id,
            root="/home/user/project",
            scheme=Scheme.WORKSEAL_TREE_1,
            scan_before=ScanLevel.STAT,
            scan_after=ScanLevel.STAT,
            ignore_policy_before=RULES,
            ignore_policy_after=RULES,
            before=self.state,
            after=state_digest(self.sequence + 1),
            created=summary.created,
            modified=summary.modified,
            deleted=summary.deleted,
            changes=summary.changes,
        )


def without_changes(predicate: ToolExecutionPredicate) -> ToolExecutionPredicate:
    """Say that nothing changed."""
    summary = summarize_changes([])
    workspace = replace(
        predicate.workspace,
        after=predicate.workspace.before,
        created=(),
        modified=(),
        deleted=(),
        changes=summary.changes,
    )
    return replace(predicate, workspace=workspace)


def refused(predicate: ToolExecutionPredicate) -> ToolExecutionPredicate:
    """Say that the host refused the call."""
    return replace(without_changes(predicate), outcome=Outcome.REFUSED, reason="precondition", execution=None)
