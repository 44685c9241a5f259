"""The receipt chain in SQLite: its id, its head, and adding to it."""

from __future__ import annotations

import secrets
import zlib
from typing import Final

import structlog

from workseal_host.errors import LedgerError
from workseal_host.ledger.database import Connection
from workseal_host.ledger.model import ChainHead, NewReceipt, WorkspaceState
from workseal_host.ledger.rows import output_values, receipt_values
from workseal_host.ledger.witness import Seen

log = structlog.get_logger("workseal.ledger")

_CHANGE_PART_BYTES: Final = 1 << 20


async def current_chain_id(db: Connection, seen: Seen | None) -> str:
    """Return the id of the current chain; a new one where the ledger is new, or older than was last seen.

    A ledger that was put back from a backup lacks receipts that somebody may
    hold: going on in the same chain would give their sequence out twice.

    Args:
        db: connection with a transaction under way.
        seen: the newest entry that the witness knows.
    """
    row = await db.one("SELECT value FROM meta WHERE name = 'chain_id'")
    chain_id = str(row[0]) if row else ""
    if not chain_id or (seen is not None and not await _has(db, chain_id, seen)):
        if seen is not None:
            log.warning(
                "the ledger lacks what was committed last: a new chain begins",
                lost_chain=seen.chain_id,
                lost_sequence=seen.sequence,
            )
        chain_id = secrets.token_hex(16)
        await db.run("INSERT OR REPLACE INTO meta VALUES ('chain_id', ?)", (chain_id,))
    return chain_id


async def _has(db: Connection, chain_id: str, seen: Seen) -> bool:
    if seen.chain_id != chain_id:
        return False
    query = "SELECT 1 FROM receipts WHERE chain_id = ? AND sequence = ? AND payload_digest = ?"
    return await db.one(query, (chain_id, seen.sequence, seen.payload_digest)) is not None


async def read_head(db: Connection, chain_id: str) -> ChainHead:
    """Return the newest entry, and the workspace after the newest call."""
    # One statement, so that both are of the same moment.
    row = await db.one(
        "SELECT head.sequence, head.payload_digest, head.key_id, call.sequence,"
        " call.scheme, call.tree_digest, call.policy_digest, call.policy_rules"
        " FROM (SELECT * FROM receipts WHERE chain_id = ?1 ORDER BY sequence DESC LIMIT 1) AS head"
        " LEFT JOIN (SELECT * FROM receipts WHERE chain_id = ?1 AND kind = 'tool-execution'"
        " ORDER BY sequence DESC LIMIT 1) AS call",
        (chain_id,),
    )
    if row is None:
        return ChainHead(chain_id, 0, None, None, None)
    state = WorkspaceState(row[4], bytes(row[5]), row[6], bytes(row[7])) if row[5] is not None else None
    return ChainHead(chain_id, row[0], row[1], row[2], state, row[3] or 0)


async def add_entry(db: Connection, chain_id: str, receipt: NewReceipt) -> int:
    """Add an entry with its output and change list, within the caller's transaction.

    Returns:
        Its position.

    Raises:
        LedgerError: it does not follow the newest entry.
    """
    row = await db.one("SELECT coalesce(max(sequence), 0) FROM receipts WHERE chain_id = ?", (chain_id,))
    newest = row[0]
    if receipt.sequence != newest + 1:
        raise LedgerError(f"the chain is at {newest}, so {receipt.sequence} cannot follow; try again")
    position = await db.run(
        "INSERT INTO receipts VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        receipt_values(chain_id, receipt),
    )
    if position is None:
        raise LedgerError("the ledger did not say where it put the receipt; start again")
    await db.run(
        "INSERT INTO outputs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (position, *output_values(receipt.output)),
    )
    for part, start in enumerate(range(0, len(receipt.changes), _CHANGE_PART_BYTES)):
        body = zlib.compress(receipt.changes[start : start + _CHANGE_PART_BYTES], 1)
        await db.run("INSERT INTO change_parts VALUES (?, ?, ?)", (position, part, body))
    return position
