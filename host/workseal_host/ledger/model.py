"""What the ledger keeps, and the storage protocol that its engines implement.

Invariants of every engine:

- the idempotency key is unique among executions that hold it, by a constraint;
- a receipt, its output, the chain head and the execution's new state are one
  durable transaction, and the chain has no gap, fork or orphan;
- stored envelopes are bytes and never change;
- what is read was committed: a transaction under way is seen by nobody;
- a transaction goes to its end even when its caller is cancelled.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from workseal_host.ledger.states import ExecutionState
from workseal_host.workspace.model import Directory


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The newest chain entry.

    Attributes:
        chain_id: random id made with the ledger, hex.
        sequence: its position; 0 where there is none yet.
        payload_digest: hex SHA-256 of its payload; None where there is none yet.
        key_id: key that signed it; None where there is none yet.
        state: the workspace after the newest call; None before the first, or where it could not be seen.
        state_sequence: sequence of the newest call; 0 before the first.
    """

    chain_id: str
    sequence: int
    payload_digest: str | None
    key_id: str | None
    state: WorkspaceState | None
    state_sequence: int = 0


@dataclass(frozen=True, slots=True)
class WorkspaceState:
    """The workspace after a receipt.

    Attributes:
        scheme: name of the digest scheme that the tree was projected onto; others are never compared with it.
        tree_digest: digest of the stored tree object.
        policy_digest: hex digest of the ignore policy under which the tree was read.
        policy_rules: that policy in its stored form, to read the tree again under the same rules.
    """

    scheme: str
    tree_digest: bytes
    policy_digest: str
    policy_rules: bytes


@dataclass(frozen=True, slots=True)
class Claim:
    """A request for the right to run something once."""

    execution_id: str
    idempotency_key: str
    request_digest: str
    session_id: str
    tool_call_id: str
    tool: str
    mode: str
    request: bytes


@dataclass(frozen=True, slots=True)
class InFlight:
    """What must be durable before a tool may run: all that settling after a crash needs.

    Attributes:
        started_ns: wall clock, in ns.
        before: the workspace before.
        scan_level: how it was scanned.
        predicted: the effects that the tool itself predicts, as JSON; `null` where it cannot.
        processes: how its processes can be found again, as JSON.
        evidence: what else was seen before it ran, as JSON.
    """

    started_ns: int
    before: WorkspaceState
    scan_level: str
    predicted: bytes
    processes: bytes
    evidence: bytes


@dataclass(frozen=True, slots=True)
class ExecutionRow:
    """One execution as stored."""

    execution_id: str
    idempotency_key: str
    request_digest: str
    session_id: str
    tool_call_id: str
    tool: str
    mode: str
    state: ExecutionState
    attempt: int
    request: bytes
    in_flight: InFlight | None
    receipt_position: int | None


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """The kept part of one output stream."""

    head: bytes = b""
    tail: bytes = b""
    total_bytes: int = 0
    digest: str = ""
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class OutputRecord:
    """What a tool gave back."""

    result: bytes = b""
    stdout: StreamRecord = field(default_factory=StreamRecord)
    stderr: StreamRecord = field(default_factory=StreamRecord)


@dataclass(frozen=True, slots=True)
class NewReceipt:
    """A chain entry about to be stored."""

    sequence: int
    payload_digest: str
    envelope: bytes
    key_id: str
    kind: str
    session_id: str = ""
    execution_id: str = ""
    outcome: str = ""
    output: OutputRecord = field(default_factory=OutputRecord)
    changes: bytes = b""
    state: WorkspaceState | None = None


@dataclass(frozen=True, slots=True)
class ReceiptRow:
    """A chain entry as stored, without its output.

    ``position`` is its place among all entries of all chains of this ledger.
    """

    position: int
    sequence: int
    payload_digest: str
    envelope: bytes
    kind: str
    session_id: str
    execution_id: str
    outcome: str


class Ledger(Protocol):
    """Durable record of executions and the receipt chain of one workspace."""

    async def head(self) -> ChainHead:
        """Return the newest chain entry."""

    async def claim(self, claim: Claim) -> tuple[ExecutionRow, bool]:
        """Insert the key as *received*, or return who holds it.

        Returns:
            The row, and whether this call made it.

        Raises:
            KeyConflictError: the key is held by another request.
            LedgerError: the ledger cannot be written; nothing was claimed.
        """

    async def abandon(self, execution_id: str) -> None:
        """Give up a received execution; its key is free again."""

    async def mark_in_flight(self, execution_id: str, record: InFlight, trees: Sequence[Directory]) -> None:
        """Durably note that the tool may run from here on, and store the trees that the record names."""

    async def settle(
        self, execution_id: str, state: ExecutionState, receipt: NewReceipt, tree: Directory | None
    ) -> ReceiptRow:
        """Close an execution: receipt, output, chain head and state in one durable transaction."""

    async def append(self, receipt: NewReceipt) -> ReceiptRow:
        """Add a chain entry that belongs to no execution."""

    async def execution(self, *, execution_id: str = "", idempotency_key: str = "") -> ExecutionRow:
        """Return one execution; of a key, the newest.

        Raises:
            NotFoundError: there is none.
        """

    async def unsettled(self) -> Sequence[ExecutionRow]:
        """Return the executions that are not final, oldest first."""

    async def receipt(
        self,
        *,
        position: int = 0,
        sequence: int = 0,
        payload_digest: str = "",
        execution_id: str = "",
        idempotency_key: str = "",
    ) -> ReceiptRow:
        """Return one chain entry.

        Raises:
            NotFoundError: there is none.
        """

    async def receipts(
        self, *, after_sequence: int, limit: int, session_id: str = ""
    ) -> Sequence[ReceiptRow]:
        """Return chain entries in order of sequence."""

    async def output(self, receipt: ReceiptRow) -> OutputRecord:
        """Return what the tool of a receipt gave back."""

    def changes(self, receipt: ReceiptRow) -> AsyncIterator[bytes]:
        """Yield the full change list of a receipt in pieces."""

    async def load_tree(self, digest: bytes) -> Directory:
        """Return a stored tree.

        Raises:
            NotFoundError: it is not stored.
        """

    async def close(self) -> None:
        """Close the ledger."""
