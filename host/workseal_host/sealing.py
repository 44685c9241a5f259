"""Giving a receipt its place in the chain: sign, store, move the head.

One entry at a time: the head is read, the payload written and signed, and all
of it stored in one transaction before the next entry may begin. A key that was
replaced since the newest entry is retired first, by an entry that it signs itself.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from workseal.canonical import sha256_hex
from workseal.receipt import statement as form
from workseal.receipt.errors import ReceiptFormError
from workseal_host.assembly import Ids, assemble
from workseal_host.attestation.keyring import KeyRing
from workseal_host.attestation.signing import key_rotation, sign_payload
from workseal_host.coordination.live import Outcome
from workseal_host.errors import HostError, KeyRingError
from workseal_host.evidence.facts import Facts, Past
from workseal_host.execution.output import CapturedStream
from workseal_host.execution.tool import ToolResult
from workseal_host.ledger.model import ChainHead, Ledger, NewReceipt, OutputRecord, StreamRecord
from workseal_host.ledger.states import ExecutionState
from workseal_host.workspace.scheme import DigestScheme

log = structlog.get_logger("workseal.sealing")

_STATES = {
    "completed": ExecutionState.COMMITTED,
    "refused": ExecutionState.REFUSED,
    "inDoubt": ExecutionState.IN_DOUBT,
    "expired": ExecutionState.EXPIRED,
}


@dataclass(frozen=True, slots=True)
class _Signed:
    payload_digest: str
    envelope: bytes


class Sealer:
    """Sign receipts and commit them, in order.

    Args:
        ledger: where they go.
        keys: the host's signing keys.
        ids: who speaks, and of which workspace.
        clock: wall clock in ns.
    """

    def __init__(
        self, ledger: Ledger, keys: KeyRing, ids: Ids, *, clock: Callable[[], int] = time.time_ns
    ) -> None:
        self._clock = clock
        self._ledger = ledger
        self._keys = keys
        self._ids = ids
        self._sealing = asyncio.Lock()

    async def seal(self, facts: Facts) -> Outcome:
        """Sign what was seen, and commit it.

        Returns:
            The outcome, durable by now.

        Raises:
            LedgerError: it could not be committed; nobody saw the receipt.
            KeyRingError: it could not be signed.
            HostError: no receipt can be made of what was seen, not even of what is certain.
        """
        # A workspace or a tool may hold something that has no form. What may have run must have a receipt all
        # the same, or its row would be in the way of every later call: so it is told with less and less.
        for drop in (facts.drop_words, facts.drop_changes):
            try:
                return await self._seal(facts)
            except ReceiptFormError as error:
                log.exception("receipt cannot be built", execution_id=facts.execution_id)
                if not facts.was_marked:
                    raise HostError(f"no receipt can be built of this: {error}; nothing ran") from error
                facts.doubt(f"the receipt of what happened cannot be built: {error}")
                drop()
        try:
            return await self._seal(facts)
        except ReceiptFormError as error:
            raise HostError(f"no receipt can be built of this: {error}; report this") from error

    async def _seal(self, facts: Facts) -> Outcome:
        async with self._sealing:
            await self._retire_replaced_key()
            head = await self._ledger.head()
            past = await self._past(head, facts.before.scheme)
            # Building and signing may take long: many changes, a key in a KMS.
            receipt = await asyncio.to_thread(self._build, facts, past, head)
            row = await self._ledger.settle(
                facts.execution_id,
                _STATES[facts.outcome],
                receipt,
                facts.after.tree if facts.after else None,
            )
        return Outcome(row, receipt.output, replayed=False)

    async def _past(self, head: ChainHead, scheme: DigestScheme) -> Past:
        """Return what the chain says of the workspace, where that can be compared."""
        if head.state is None or head.state.scheme != scheme:
            return Past(None, head.state_sequence)
        return Past(await self._ledger.load_tree(head.state.tree_digest), head.state_sequence)

    def _build(self, facts: Facts, past: Past, head: ChainHead) -> NewReceipt:
        key_id = self._keys.current.key_id
        chain = form.Chain(head.chain_id, head.sequence + 1, head.payload_digest)
        assembled = assemble(facts, past, self._ids, chain=chain, key_id=key_id, issued_ns=self._clock())
        signed = self._sign(form.encode_statement(assembled.predicate), key_id)
        return NewReceipt(
            sequence=chain.sequence,
            payload_digest=signed.payload_digest,
            envelope=signed.envelope,
            key_id=key_id,
            kind="tool-execution",
            session_id=facts.request.call.session_id,
            execution_id=facts.execution_id,
            outcome=facts.outcome,
            output=_output(facts.result),
            changes=assembled.change_lines,
            state=facts.after.state if facts.after else None,
        )

    async def check_key(self) -> None:
        """Make sure that there is a key to sign with.

        Raises:
            KeyRingError: there is none now; nothing may run.
        """
        await asyncio.to_thread(self._keys.signer)

    async def catch_up(self) -> None:
        """Retire a key that was replaced while no host ran."""
        async with self._sealing:
            await self._retire_replaced_key()

    async def _retire_replaced_key(self) -> None:
        head = await self._ledger.head()
        if head.key_id is None:
            return
        order = [key.key_id for key in self._keys.keys]
        if head.key_id not in order:
            raise KeyRingError(
                f"the chain is signed with key {head.key_id}, which is not in the key ring: put it back"
            )
        start = order.index(head.key_id)
        for old, new in itertools.pairwise(order[start : order.index(self._keys.current.key_id) + 1]):
            await self._rotate(old, new)

    async def _rotate(self, old: str, new: str) -> None:
        head = await self._ledger.head()
        predicate = key_rotation(
            self._keys.public(old),
            self._keys.public(new),
            chain=form.Chain(head.chain_id, head.sequence + 1, head.payload_digest),
            workspace_id=self._ids.workspace_id,
            host=form.HostIdentity(self._ids.host_name, self._ids.host_version, old),
        )
        signed = await asyncio.to_thread(self._sign, form.encode_statement(predicate), old)
        await self._ledger.append(
            NewReceipt(
                sequence=head.sequence + 1,
                payload_digest=signed.payload_digest,
                envelope=signed.envelope,
                # What follows is signed with the new key.
                key_id=new,
                kind="key-rotation",
            )
        )

    def _sign(self, payload: bytes, key_id: str) -> _Signed:
        envelope = sign_payload(self._keys.signer(key_id), payload)
        return _Signed(sha256_hex(payload), envelope)


def _output(result: ToolResult | None) -> OutputRecord:
    if result is None:
        return OutputRecord()
    return OutputRecord(result.result, _record(result.stdout), _record(result.stderr))


def _record(stream: CapturedStream | None) -> StreamRecord:
    if stream is None:
        return StreamRecord()
    return StreamRecord(stream.head, stream.tail, stream.total_bytes, stream.digest.hex(), stream.truncated)
