"""The embedded ledger: SQLite through aiosqlite.

The host's workspace lock keeps every other process out, so a transaction here
never waits for a stranger. Any SQLite failure becomes :class:`LedgerError`.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from workseal_host.errors import KeyConflictError, NotFoundError
from workseal_host.ledger.chain import add_entry, current_chain_id, read_head
from workseal_host.ledger.database import Connection, Database, ledger_errors
from workseal_host.ledger.model import (
    ChainHead,
    Claim,
    ExecutionRow,
    InFlight,
    NewReceipt,
    OutputRecord,
    ReceiptRow,
)
from workseal_host.ledger.rows import (
    EXECUTION_COLUMNS,
    OUTPUT_COLUMNS,
    RECEIPT_COLUMNS,
    execution_row,
    in_flight_values,
    output_record,
)
from workseal_host.ledger.states import ExecutionState, check_transition
from workseal_host.ledger.trees import TreeStore
from workseal_host.ledger.witness import Seen, Witness
from workseal_host.workspace.model import Directory

_EXECUTIONS = f"SELECT {EXECUTION_COLUMNS} FROM executions"  # noqa: S608 - constant columns
_RECEIPTS = f"SELECT {RECEIPT_COLUMNS} FROM receipts"  # noqa: S608 - constant columns


class SqliteLedger:
    """The ledger of one workspace in one SQLite file. Make it with :meth:`open`."""

    def __init__(self, database: Database, chain_id: str, witness: Witness) -> None:
        self._db = database
        self._chain_id = chain_id
        self._witness = witness
        self._trees = TreeStore()

    @classmethod
    async def open(cls, path: Path) -> SqliteLedger:
        """Open the ledger, making it on first use.

        Args:
            path: the database file; its directory must exist.

        Raises:
            LedgerError: the file cannot be used, is damaged, foreign, or of a newer version.
        """
        database = await Database.open(path)
        try:
            witness = Witness(path.with_name("head.json"))
            seen = witness.read()
            chain_id = await database.atomically(
                f"cannot open the ledger {path}", lambda db: current_chain_id(db, seen)
            )
        except BaseException:
            await database.close()
            raise
        return cls(database, chain_id, witness)

    @classmethod
    async def open_to_read(cls, path: Path) -> SqliteLedger:
        """Open an existing ledger for reading only; nothing of it is changed.

        Args:
            path: the database file.

        Raises:
            LedgerError: it cannot be read, or is of another version.
        """
        database = await Database.open_to_read(path)
        try:
            row = await database.one("SELECT value FROM meta WHERE name = 'chain_id'")
        except BaseException:
            await database.close()
            raise
        return cls(database, str(row[0]) if row else "", Witness(path.with_name("head.json")))

    @property
    def chain_id(self) -> str:
        """Random id of the chain, hex, made with the ledger."""
        return self._chain_id

    async def close(self) -> None:
        """Close the ledger."""
        await self._db.close()

    # -- executions -------------------------------------------------------

    async def claim(self, claim: Claim) -> tuple[ExecutionRow, bool]:
        """Insert the key as *received*, or return who holds it."""
        return await self._db.atomically("cannot claim the key", lambda db: _claim(db, claim))

    async def abandon(self, execution_id: str) -> None:
        """Give up a received execution; its key is free again."""
        await self._db.atomically(
            "cannot free the key", lambda db: _move(db, execution_id, ExecutionState.ABANDONED)
        )

    async def mark_in_flight(self, execution_id: str, record: InFlight, trees: Sequence[Directory]) -> None:
        """Durably note that the tool may run from here on."""

        async def mark(db: Connection) -> list[set[bytes]]:
            await _move(db, execution_id, ExecutionState.IN_FLIGHT)
            await db.run(
                "UPDATE executions SET started_ns = ?, before_scheme = ?, before_tree = ?, before_policy = ?,"
                " before_rules = ?, before_scan = ?, predicted = ?, processes = ?, evidence = ?"
                " WHERE execution_id = ?",
                (*in_flight_values(record), execution_id),
            )
            return [await self._trees.store(db, tree) for tree in trees]

        stored = await self._db.atomically("cannot mark the call in flight", mark)
        for digests, tree in zip(stored, trees, strict=True):
            self._trees.committed(digests, tree)

    async def execution(self, *, execution_id: str = "", idempotency_key: str = "") -> ExecutionRow:
        """Return one execution; of a key, the newest."""
        with ledger_errors("cannot read the ledger"):
            return await _execution(self._db.reader, execution_id, idempotency_key)

    async def unsettled(self) -> Sequence[ExecutionRow]:
        """Return the executions that are not final, oldest first."""
        rows = await self._db.all(f"{_EXECUTIONS} WHERE state IN ('received', 'in_flight') ORDER BY number")
        return [execution_row(row) for row in rows]

    # -- the chain --------------------------------------------------------

    async def head(self) -> ChainHead:
        """Return the newest chain entry."""
        with ledger_errors("cannot read the ledger"):
            return await read_head(self._db.reader, self._chain_id)

    async def settle(
        self, execution_id: str, state: ExecutionState, receipt: NewReceipt, tree: Directory | None
    ) -> ReceiptRow:
        """Close an execution: receipt, output, chain head and state in one durable transaction."""

        async def close(db: Connection) -> tuple[int, set[bytes]]:
            await _move(db, execution_id, state)
            position = await add_entry(db, self._chain_id, receipt)
            await db.run(
                "UPDATE executions SET receipt_position = ? WHERE execution_id = ?", (position, execution_id)
            )
            return position, await self._trees.store(db, tree) if tree is not None else set()

        position, stored = await self._db.atomically("cannot commit the receipt", close)
        if tree is not None:
            self._trees.committed(stored, tree)
        return self._committed(position, receipt)

    async def append(self, receipt: NewReceipt) -> ReceiptRow:
        """Add a chain entry that belongs to no execution."""
        position = await self._db.atomically(
            "cannot append to the chain", lambda db: add_entry(db, self._chain_id, receipt)
        )
        return self._committed(position, receipt)

    def _committed(self, position: int, receipt: NewReceipt) -> ReceiptRow:
        self._witness.write(Seen(self._chain_id, receipt.sequence, receipt.payload_digest))
        return ReceiptRow(
            position,
            receipt.sequence,
            receipt.payload_digest,
            receipt.envelope,
            receipt.kind,
            receipt.session_id,
            receipt.execution_id,
            receipt.outcome,
        )

    async def receipt(
        self,
        *,
        position: int = 0,
        sequence: int = 0,
        payload_digest: str = "",
        execution_id: str = "",
        idempotency_key: str = "",
    ) -> ReceiptRow:
        """Return one chain entry; by sequence, of the current chain."""
        if execution_id or idempotency_key:
            row = await self.execution(execution_id=execution_id, idempotency_key=idempotency_key)
            if row.receipt_position is None:
                raise NotFoundError("that execution has no receipt yet: WaitExecution waits for it")
            position = row.receipt_position
        condition, values = self._selection(position, sequence, payload_digest)
        found = await self._db.one(f"{_RECEIPTS} WHERE {condition}", values)
        if found is None:
            raise NotFoundError("no such receipt; ListReceipts lists the chain")
        return ReceiptRow(*found)

    def _selection(self, position: int, sequence: int, payload_digest: str) -> tuple[str, tuple[Any, ...]]:
        if position:
            return "position = ?", (position,)
        if payload_digest:
            return "payload_digest = ?", (payload_digest,)
        return "chain_id = ? AND sequence = ?", (self._chain_id, sequence)

    async def receipts(
        self, *, after_sequence: int, limit: int, session_id: str = ""
    ) -> Sequence[ReceiptRow]:
        """Return entries of the current chain in order of sequence."""
        condition, extra = (" AND session_id = ?", (session_id,)) if session_id else ("", ())
        rows = await self._db.all(
            f"{_RECEIPTS} WHERE chain_id = ? AND sequence > ?{condition} ORDER BY sequence LIMIT ?",
            (self._chain_id, after_sequence, *extra, limit),
        )
        return [ReceiptRow(*row) for row in rows]

    async def output(self, receipt: ReceiptRow) -> OutputRecord:
        """Return what the tool of a receipt gave back."""
        row = await self._db.one(
            f"SELECT {OUTPUT_COLUMNS} FROM outputs WHERE position = ?",  # noqa: S608 - constant columns
            (receipt.position,),
        )
        if row is None:
            raise NotFoundError("no such receipt; ListReceipts lists the chain")
        return output_record(row)

    async def changes(self, receipt: ReceiptRow) -> AsyncIterator[bytes]:
        """Yield the full change list of a receipt in pieces."""
        part = 0
        query = "SELECT body FROM change_parts WHERE position = ? AND part = ?"
        while (row := await self._db.one(query, (receipt.position, part))) is not None:
            yield zlib.decompress(row[0])
            part += 1

    async def load_tree(self, digest: bytes) -> Directory:
        """Return a stored tree."""
        with ledger_errors("cannot read a stored tree"):
            return await self._trees.load(self._db.reader, digest)


async def _claim(db: Connection, claim: Claim) -> tuple[ExecutionRow, bool]:
    held = await db.one(
        f"{_EXECUTIONS} WHERE idempotency_key = ? AND state NOT IN ('refused', 'abandoned')",
        (claim.idempotency_key,),
    )
    if held is not None:
        row = execution_row(held)
        if row.request_digest != claim.request_digest:
            raise KeyConflictError(
                "the idempotency key already names another request; use a new key for a new effect"
            )
        return row, False
    tried = await db.one(
        "SELECT count(*) FROM executions WHERE idempotency_key = ?", (claim.idempotency_key,)
    )
    await db.run(
        "INSERT INTO executions (execution_id, idempotency_key, request_digest, session_id, tool_call_id,"
        " tool, mode, request, state, attempt) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            claim.execution_id,
            claim.idempotency_key,
            claim.request_digest,
            claim.session_id,
            claim.tool_call_id,
            claim.tool,
            claim.mode,
            claim.request,
            ExecutionState.RECEIVED,
            tried[0] + 1,
        ),
    )
    return await _execution(db, claim.execution_id, ""), True


async def _execution(db: Connection, execution_id: str, idempotency_key: str) -> ExecutionRow:
    column, value = ("execution_id", execution_id) if execution_id else ("idempotency_key", idempotency_key)
    row = await db.one(f"{_EXECUTIONS} WHERE {column} = ? ORDER BY number DESC LIMIT 1", (value,))
    if row is None:
        raise NotFoundError("no such execution in this workspace's ledger")
    return execution_row(row)


async def _move(db: Connection, execution_id: str, state: ExecutionState) -> None:
    current = await _execution(db, execution_id, "")
    check_transition(current.state, state)
    await db.run("UPDATE executions SET state = ? WHERE execution_id = ?", (state, execution_id))
