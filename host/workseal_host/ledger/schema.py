"""The SQLite form of the ledger, with its migrations.

``PRAGMA user_version`` counts the migrations that were applied. A ledger of a
newer version than this program knows is refused, never guessed at, and so is a
database that is not a ledger.
"""

from __future__ import annotations

from typing import Final

#: In the header of every ledger (`PRAGMA application_id`): the letters WSL1.
APPLICATION_ID: Final = 0x57534C31

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE meta (
        name  TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE receipts (
        position       INTEGER PRIMARY KEY,
        chain_id       TEXT NOT NULL,
        sequence       INTEGER NOT NULL CHECK (sequence > 0),
        payload_digest TEXT NOT NULL UNIQUE,
        envelope       BLOB NOT NULL,
        key_id         TEXT NOT NULL,
        kind           TEXT NOT NULL,
        session_id     TEXT NOT NULL,
        execution_id   TEXT NOT NULL,
        outcome        TEXT NOT NULL,
        scheme         TEXT,
        tree_digest    BLOB,
        policy_digest  TEXT,
        policy_rules   BLOB,
        UNIQUE (chain_id, sequence)
    ) STRICT;
    CREATE INDEX receipts_by_session ON receipts (chain_id, session_id, sequence);

    CREATE TABLE outputs (
        position         INTEGER PRIMARY KEY REFERENCES receipts (position),
        result           BLOB NOT NULL,
        stdout_head      BLOB NOT NULL,
        stdout_tail      BLOB NOT NULL,
        stdout_total     INTEGER NOT NULL,
        stdout_digest    TEXT NOT NULL,
        stdout_truncated INTEGER NOT NULL,
        stderr_head      BLOB NOT NULL,
        stderr_tail      BLOB NOT NULL,
        stderr_total     INTEGER NOT NULL,
        stderr_digest    TEXT NOT NULL,
        stderr_truncated INTEGER NOT NULL
    ) STRICT;

    CREATE TABLE change_parts (
        position INTEGER NOT NULL REFERENCES receipts (position),
        part     INTEGER NOT NULL,
        body     BLOB NOT NULL,
        PRIMARY KEY (position, part)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE executions (
        number           INTEGER PRIMARY KEY AUTOINCREMENT,
        execution_id     TEXT NOT NULL UNIQUE,
        idempotency_key  TEXT NOT NULL,
        request_digest   TEXT NOT NULL,
        session_id       TEXT NOT NULL,
        tool_call_id     TEXT NOT NULL,
        tool             TEXT NOT NULL,
        mode             TEXT NOT NULL,
        state            TEXT NOT NULL,
        attempt          INTEGER NOT NULL,
        request          BLOB NOT NULL,
        started_ns       INTEGER,
        before_scheme    TEXT,
        before_tree      BLOB,
        before_policy    TEXT,
        before_rules     BLOB,
        before_scan      TEXT,
        predicted        BLOB,
        processes        BLOB,
        evidence         BLOB,
        receipt_position INTEGER REFERENCES receipts (position)
    ) STRICT;
    CREATE UNIQUE INDEX one_holder_per_key ON executions (idempotency_key)
        WHERE state NOT IN ('refused', 'abandoned');
    CREATE INDEX executions_by_key ON executions (idempotency_key, number);
    CREATE INDEX unsettled_executions ON executions (number) WHERE state IN ('received', 'in_flight');

    CREATE TABLE trees (
        digest BLOB PRIMARY KEY,
        body   BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    """,
)
