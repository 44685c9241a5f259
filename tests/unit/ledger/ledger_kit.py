"""Claims, records, receipts and trees for ledger tests."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable

from workseal_host.ledger.model import Claim, InFlight, NewReceipt, OutputRecord, StreamRecord, WorkspaceState
from workseal_host.ledger.sqlite import SqliteLedger
from workseal_host.ledger.states import ExecutionState
from workseal_host.workspace.model import Directory, EntryType, Leaf

Reopen = Callable[[], Awaitable[SqliteLedger]]


def claim(name: str = "1", *, key: str = "key", request: str = "request") -> Claim:
    return Claim(f"execution-{name}", key, request, "session", "call", "bash", "executed", b"{}")


def leaf(content: bytes) -> Leaf:
    return Leaf(EntryType.FILE, hashlib.sha256(content).digest())


def tree(**files: bytes) -> Directory:
    return Directory({name.encode(): leaf(content) for name, content in files.items()})


def state(of: Directory) -> WorkspaceState:
    return WorkspaceState("workseal-tree/1", of.digest, "p" * 64, b"rules")


def in_flight(of: Directory) -> InFlight:
    return InFlight(1, state(of), "full", b"null", b"{}", b"{}")


def receipt(
    sequence: int, *, of: Directory | None = None, name: str = "1", changes: bytes = b""
) -> NewReceipt:
    return NewReceipt(
        sequence=sequence,
        payload_digest=hashlib.sha256(f"{name}/{sequence}".encode()).hexdigest(),
        envelope=f"envelope {name}/{sequence}".encode(),
        key_id="key-id",
        kind="tool-execution",
        session_id="session",
        execution_id=f"execution-{name}",
        outcome="completed",
        output=OutputRecord(b"result", StreamRecord(b"head", b"tail", 10, "d" * 64, truncated=True)),
        changes=changes,
        state=state(of) if of is not None else None,
    )


async def run(ledger: SqliteLedger, sequence: int, *, name: str = "1", of: Directory | None = None) -> None:
    """Bring one execution from its claim to its receipt."""
    after = of if of is not None else tree(f=name.encode())
    await ledger.claim(claim(name, key=f"key-{name}"))
    await ledger.mark_in_flight(f"execution-{name}", in_flight(after), [after])
    await ledger.settle(
        f"execution-{name}", ExecutionState.COMMITTED, receipt(sequence, of=after, name=name), after
    )
