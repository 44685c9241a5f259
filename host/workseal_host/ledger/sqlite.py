"""The embedded ledger: SQLite through aiosqlite.

One connection, one writer at a time, ``synchronous=FULL`` in WAL mode. The
host's workspace lock keeps every other process out, so a transaction here never
waits for a stranger. Any SQLite failure becomes :class:`LedgerError`.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sqlite3
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any

import aiosqlite

from workseal_host.errors import KeyConflictError, LedgerError, NotFoundError
from workseal_host.ledger.model import (
    ChainHead,
    Claim,
    ExecutionRow,
    InFlight,
    NewReceipt,
    OutputRecord,
    ReceiptRow,
    StreamRecord,
    WorkspaceState,
)
from workseal_host.ledger.schema import MIGRATIONS
from workseal_host.ledger.states import ExecutionState, check_transition
from workseal_host.ledger.trees import load_tree, store_tree
from workseal_host.ledger.witness import Seen, Witness
from workseal_host.workspace.model import Directory

_CHANGE_PART_BYTES = 1 << 20
_EXECUTION_COLUMNS = (
    "execution_id, idempotency_key, request_digest, session_id, tool_call_id, tool, mode, state, attempt, request,"
    " started_ns, before_tree, before_policy, before_rules, before_scan, predicted, processes, receipt_position"
)
_RECEIPT_COLUMNS = "position, sequence, payload_digest, envelope, kind, session_id, execution_id, outcome"


@contextmanager
def _ledger_errors(doing: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise LedgerError(
            f"{doing}: {error}. Check free space and permissions of the state directory"
        ) from error


def _execution_row(row: Sequence[Any]) -> ExecutionRow:
    in_flight = None
    if row[10] is not None:
        state = WorkspaceState(row[11], row[12], row[13])
        in_flight = InFlight(row[10], state, row[14], row[15], row[16])
    return ExecutionRow(
        execution_id=row[0],
        idempotency_key=row[1],
        request_digest=row[2],
        session_id=row[3],
        tool_call_id=row[4],
        tool=row[5],
        mode=row[6],
        state=ExecutionState(row[7]),
        attempt=row[8],
        request=row[9],
        in_flight=in_flight,
        receipt_position=row[17],
    )


class SqliteLedger:
    """The ledger of one workspace in one SQLite file. Make it with :meth:`open`."""

    def __init__(self, connection: aiosqlite.Connection, chain_id: str, witness: Witness) -> None:
        self._db = connection
        self._chain_id = chain_id
        self._witness = witness
        self._writing = asyncio.Lock()
        self._known_trees: set[bytes] = set()

    @classmethod
    async def open(cls, path: Path) -> SqliteLedger:
        """Open the ledger, making it on first use.

        Args:
            path: the database file; its directory must exist.

        Raises:
            LedgerError: the file cannot be used, is damaged, or is of a newer version.
        """
        with _ledger_errors(f"cannot open the ledger {path}"):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            os.fchmod(descriptor, 0o600)
            os.close(descriptor)
            db = await aiosqlite.connect(path, isolation_level=None)
            try:
                await _prepare(db, path)
                witness = Witness(path.with_name("head.json"))
                chain_id = await _chain_id(db, witness.read())
            except BaseException:
                await db.close()
                raise
        return cls(db, chain_id, witness)

    @property
    def chain_id(self) -> str:
        """Random id of the chain, hex, made with the ledger."""
        return self._chain_id

    async def close(self) -> None:
        """Close the ledger."""
        with _ledger_errors("cannot close the ledger"):
            await self._db.close()

    @asynccontextmanager
    async def _transaction(self, doing: str) -> AsyncIterator[aiosqlite.Connection]:
        async with self._writing:
            with _ledger_errors(doing):
                await self._db.execute("BEGIN IMMEDIATE")
                try:
                    yield self._db
                    await self._db.execute("COMMIT")
                except BaseException:
                    if self._db.in_transaction:
                        await self._db.execute("ROLLBACK")
                    raise

    async def _one(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        with _ledger_errors("cannot read the ledger"):
            async with self._db.execute(sql, parameters) as cursor:
                return await cursor.fetchone()

    async def _all(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        with _ledger_errors("cannot read the ledger"):
            return list(await self._db.execute_fetchall(sql, parameters))

    # -- executions -------------------------------------------------------

    async def claim(self, claim: Claim) -> tuple[ExecutionRow, bool]:
        """Insert the key as *received*, or return who holds it."""
        async with self._transaction("cannot claim the key") as db:
            held = await self._holder(claim.idempotency_key)
            if held is not None:
                if held.request_digest != claim.request_digest:
                    raise KeyConflictError(
                        "the idempotency key already names another request; use a new key for a new effect"
                    )
                return held, False
            row = await self._one(
                "SELECT count(*) FROM executions WHERE idempotency_key = ?", (claim.idempotency_key,)
            )
            await db.execute(
                "INSERT INTO executions (execution_id, idempotency_key, request_digest, session_id, tool_call_id,"
                " tool, mode, state, attempt, request) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*astuple(claim)[:7], ExecutionState.RECEIVED, row[0] + 1, claim.request),
            )
            return await self.execution(execution_id=claim.execution_id), True

    async def _holder(self, key: str) -> ExecutionRow | None:
        row = await self._one(
            f"SELECT {_EXECUTION_COLUMNS} FROM executions"  # noqa: S608 - constant columns
            " WHERE idempotency_key = ? AND state NOT IN ('refused', 'abandoned')",
            (key,),
        )
        return None if row is None else _execution_row(row)

    async def _move(self, execution_id: str, state: ExecutionState) -> None:
        current = await self.execution(execution_id=execution_id)
        check_transition(current.state, state)
        await self._db.execute(
            "UPDATE executions SET state = ? WHERE execution_id = ? AND state = ?",
            (state, execution_id, current.state),
        )

    async def abandon(self, execution_id: str) -> None:
        """Give up a received execution; its key is free again."""
        async with self._transaction("cannot free the key"):
            await self._move(execution_id, ExecutionState.ABANDONED)

    async def mark_in_flight(self, execution_id: str, record: InFlight, tree: Directory) -> None:
        """Durably note that the tool may run from here on."""
        async with self._transaction("cannot mark the call in flight") as db:
            await self._move(execution_id, ExecutionState.IN_FLIGHT)
            await db.execute(
                "UPDATE executions SET started_ns = ?, before_tree = ?, before_policy = ?, before_rules = ?,"
                " before_scan = ?, predicted = ?, processes = ? WHERE execution_id = ?",
                (
                    record.started_ns,
                    *astuple(record.before),
                    record.scan_level,
                    record.predicted,
                    record.processes,
                    execution_id,
                ),
            )
            new = await store_tree(db, tree, self._known_trees)
        self._known_trees |= new

    async def execution(self, *, execution_id: str = "", idempotency_key: str = "") -> ExecutionRow:
        """Return one execution; of a key, the newest."""
        column, value = (
            ("execution_id", execution_id) if execution_id else ("idempotency_key", idempotency_key)
        )
        row = await self._one(
            f"SELECT {_EXECUTION_COLUMNS} FROM executions WHERE {column} = ?"  # noqa: S608 - constant names
            " ORDER BY number DESC LIMIT 1",
            (value,),
        )
        if row is None:
            raise NotFoundError("no such execution")
        return _execution_row(row)

    async def unsettled(self) -> Sequence[ExecutionRow]:
        """Return the executions that are not final, oldest first."""
        rows = await self._all(
            f"SELECT {_EXECUTION_COLUMNS} FROM executions"  # noqa: S608 - constant columns
            " WHERE state IN ('received', 'in_flight') ORDER BY number"
        )
        return [_execution_row(row) for row in rows]

    # -- the chain --------------------------------------------------------

    async def head(self) -> ChainHead:
        """Return the newest chain entry."""
        newest = await self._one(
            "SELECT sequence, payload_digest, key_id FROM receipts WHERE chain_id = ?"
            " ORDER BY sequence DESC LIMIT 1",
            (self._chain_id,),
        )
        state = await self._one(
            "SELECT tree_digest, policy_digest, policy_rules FROM receipts"
            " WHERE chain_id = ? AND kind = 'tool-execution' ORDER BY sequence DESC LIMIT 1",
            (self._chain_id,),
        )
        known = WorkspaceState(*state) if state is not None and state[0] is not None else None
        if newest is None:
            return ChainHead(self._chain_id, 0, None, None, None)
        return ChainHead(self._chain_id, newest[0], newest[1], newest[2], known)

    async def settle(
        self, execution_id: str, state: ExecutionState, receipt: NewReceipt, tree: Directory | None
    ) -> ReceiptRow:
        """Close an execution: receipt, output, chain head and state in one durable transaction."""
        new: set[bytes] = set()
        async with self._transaction("cannot commit the receipt") as db:
            await self._move(execution_id, state)
            position = await self._insert(receipt)
            await db.execute(
                "UPDATE executions SET receipt_position = ? WHERE execution_id = ?",
                (position, execution_id),
            )
            if tree is not None:
                new = await store_tree(db, tree, self._known_trees)
        self._known_trees |= new
        return self._committed(position, receipt)

    async def append(self, receipt: NewReceipt) -> ReceiptRow:
        """Add a chain entry that belongs to no execution."""
        async with self._transaction("cannot append to the chain"):
            position = await self._insert(receipt)
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

    async def _insert(self, receipt: NewReceipt) -> int:
        row = await self._one(
            "SELECT coalesce(max(sequence), 0) FROM receipts WHERE chain_id = ?", (self._chain_id,)
        )
        if receipt.sequence != row[0] + 1:
            raise LedgerError(f"the chain is at {row[0]}, so {receipt.sequence} cannot follow; start again")
        state = astuple(receipt.state) if receipt.state else (None, None, None)
        cursor = await self._db.execute(
            "INSERT INTO receipts VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                self._chain_id,
                receipt.sequence,
                receipt.payload_digest,
                receipt.envelope,
                receipt.key_id,
                receipt.kind,
                receipt.session_id,
                receipt.execution_id,
                receipt.outcome,
                *state,
            ),
        )
        position = cursor.lastrowid
        if position is None:
            raise LedgerError("the ledger did not say where it put the receipt")
        output = receipt.output
        await self._db.execute(
            "INSERT INTO outputs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (position, output.result, *astuple(output.stdout), *astuple(output.stderr)),
        )
        for part, start in enumerate(range(0, len(receipt.changes), _CHANGE_PART_BYTES)):
            body = zlib.compress(receipt.changes[start : start + _CHANGE_PART_BYTES], 1)
            await self._db.execute("INSERT INTO change_parts VALUES (?, ?, ?)", (position, part, body))
        return position

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
                raise NotFoundError("that execution has no receipt yet")
            position = row.receipt_position
        if position:
            condition, values = "position = ?", (position,)
        elif payload_digest:
            condition, values = "payload_digest = ?", (payload_digest,)
        else:
            condition, values = "chain_id = ? AND sequence = ?", (self._chain_id, sequence)
        found = await self._one(
            f"SELECT {_RECEIPT_COLUMNS} FROM receipts WHERE {condition}",  # noqa: S608 - constant texts
            values,
        )
        if found is None:
            raise NotFoundError("no such receipt")
        return ReceiptRow(*found)

    async def receipts(
        self, *, after_sequence: int, limit: int, session_id: str = ""
    ) -> Sequence[ReceiptRow]:
        """Return entries of the current chain in order of sequence."""
        condition, extra = (" AND session_id = ?", (session_id,)) if session_id else ("", ())
        rows = await self._all(
            f"SELECT {_RECEIPT_COLUMNS} FROM receipts WHERE chain_id = ? AND sequence > ?{condition}"  # noqa: S608
            " ORDER BY sequence LIMIT ?",
            (self._chain_id, after_sequence, *extra, limit),
        )
        return [ReceiptRow(*row) for row in rows]

    async def output(self, receipt: ReceiptRow) -> OutputRecord:
        """Return what the tool of a receipt gave back."""
        row = await self._one("SELECT * FROM outputs WHERE position = ?", (receipt.position,))
        if row is None:
            raise NotFoundError("no such receipt")
        return OutputRecord(row[1], _stream(row[2:7]), _stream(row[7:12]))

    async def changes(self, receipt: ReceiptRow) -> AsyncIterator[bytes]:
        """Yield the full change list of a receipt in pieces."""
        part = 0
        while True:
            row = await self._one(
                "SELECT body FROM change_parts WHERE position = ? AND part = ?", (receipt.position, part)
            )
            if row is None:
                return
            yield zlib.decompress(row[0])
            part += 1

    async def load_tree(self, digest: bytes) -> Directory:
        """Return a stored tree."""
        with _ledger_errors("cannot read a stored tree"):
            return await load_tree(self._db, digest)


def _stream(row: Sequence[Any]) -> StreamRecord:
    return StreamRecord(row[0], row[1], row[2], row[3], bool(row[4]))


async def _prepare(db: aiosqlite.Connection, path: Path) -> None:
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "trusted_schema = OFF"):
        await db.execute(f"PRAGMA {pragma}")
    async with db.execute("PRAGMA user_version") as cursor:
        row = await cursor.fetchone()
    version = row[0] if row else 0
    if version > len(MIGRATIONS):
        raise LedgerError(
            f"the ledger {path} was written by a newer Workseal (version {version}); upgrade Workseal"
        )
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        await db.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {number}; COMMIT;")


async def _chain_id(db: aiosqlite.Connection, seen: Seen | None) -> str:
    """Return the id of the current chain; a new one where the ledger is new, or older than what was last seen.

    A ledger that was put back from a backup lacks receipts that somebody may
    hold: going on in the same chain would give their sequence out twice.
    """
    await db.execute("BEGIN IMMEDIATE")
    async with db.execute("SELECT value FROM meta WHERE name = 'chain_id'") as cursor:
        row = await cursor.fetchone()
    chain_id = str(row[0]) if row else ""
    if not chain_id or (seen is not None and not await _has(db, chain_id, seen)):
        chain_id = secrets.token_hex(16)
        await db.execute("INSERT OR REPLACE INTO meta VALUES ('chain_id', ?)", (chain_id,))
    await db.execute("COMMIT")
    return chain_id


async def _has(db: aiosqlite.Connection, chain_id: str, seen: Seen) -> bool:
    if seen.chain_id != chain_id:
        return False
    query = "SELECT 1 FROM receipts WHERE chain_id = ? AND sequence = ? AND payload_digest = ?"
    async with db.execute(query, (chain_id, seen.sequence, seen.payload_digest)) as cursor:
        return await cursor.fetchone() is not None
