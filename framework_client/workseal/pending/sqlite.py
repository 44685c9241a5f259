"""Pending calls in one SQLite file, shared by any number of processes.

Every operation is one transaction on a connection of its own, in a thread:
nothing is held between calls, so that a process may end at any moment.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import Any, TypeVar

from workseal.calls import new_challenge
from workseal.errors import InvalidInputError, ResumeError, StoreError
from workseal.pending.model import (
    CallOutcome,
    CallResult,
    NewCall,
    PendingCall,
    ReceiptRef,
    SettledCall,
    check_batch,
    reconcile,
)
from workseal.tools import ToolExecution

_T = TypeVar("_T")
_BUSY_S = 30.0
_COLUMNS = "session_id, sequence, occurrence, tool_call_id, tool, arguments_json, execution_json, challenge"

# One entry per version: statements that lead from the version before to it.
_MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE calls (
          session_id TEXT NOT NULL,
          sequence INTEGER NOT NULL,
          occurrence TEXT NOT NULL,
          tool_call_id TEXT NOT NULL,
          tool TEXT NOT NULL,
          arguments_json TEXT NOT NULL,
          execution_json TEXT NOT NULL,
          challenge TEXT NOT NULL,
          state TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'settled', 'abandoned')),
          result_json TEXT CHECK ((result_json IS NOT NULL) = (state = 'settled')),
          PRIMARY KEY (session_id, sequence),
          UNIQUE (session_id, occurrence, tool_call_id)
        )
        """,
        "CREATE UNIQUE INDEX one_pending ON calls (session_id, tool_call_id) WHERE state = 'pending'",
        # Whatever code comes later: a result, once stored, is never replaced.
        """
        CREATE TRIGGER settled_is_final BEFORE UPDATE ON calls WHEN OLD.state = 'settled'
        BEGIN SELECT RAISE(ABORT, 'a settled call is final'); END
        """,
    ),
)


class SqlitePendingCallStore:
    """A :class:`~workseal.pending.PendingCallStore` in a SQLite file.

    Args:
        path: the file; made with mode 0600 where it does not exist. Keep it outside the workspace.
        random_bytes: source of challenges.
    """

    def __init__(
        self, path: str | os.PathLike[str], random_bytes: Callable[[int], bytes] = secrets.token_bytes
    ) -> None:
        self._path = os.fspath(path)
        self._random_bytes = random_bytes

    async def add(self, session_id: str, calls: Sequence[NewCall]) -> tuple[PendingCall, ...]:
        """Store calls; as in the protocol."""
        check_batch(session_id, calls)
        return await asyncio.to_thread(
            self._transact, lambda db: tuple(self._add_one(db, session_id, call) for call in calls)
        )

    async def pending(self, session_id: str) -> tuple[PendingCall, ...]:
        """Return the calls without a result."""
        query = f"SELECT {_COLUMNS} FROM calls WHERE session_id = ? AND state = 'pending' ORDER BY sequence"  # noqa: S608
        return await asyncio.to_thread(
            self._transact, lambda db: tuple(_call(row) for row in db.execute(query, (session_id,)))
        )

    async def settle(self, session_id: str, results: Mapping[int, CallResult]) -> tuple[int, ...]:
        """Store results; as in the protocol."""
        encoded = {sequence: _encode_result(result) for sequence, result in sorted(results.items())}
        return await asyncio.to_thread(self._transact, lambda db: _settle(db, session_id, encoded))

    async def abandon(self, session_id: str, sequences: Sequence[int]) -> None:
        """Give pending calls up."""
        statement = (
            "UPDATE calls SET state = 'abandoned' WHERE session_id = ? AND sequence = ? AND state = 'pending'"
        )
        rows = [(session_id, sequence) for sequence in sequences]
        await asyncio.to_thread(self._transact, lambda db: db.executemany(statement, rows))

    async def results(self, session_id: str) -> tuple[SettledCall, ...]:
        """Return the calls with a result."""
        query = (
            f"SELECT {_COLUMNS}, result_json FROM calls "  # noqa: S608
            "WHERE session_id = ? AND state = 'settled' ORDER BY sequence"
        )
        return await asyncio.to_thread(
            self._transact,
            lambda db: tuple(
                SettledCall(_call(row[:-1]), _decode_result(row[-1]))
                for row in db.execute(query, (session_id,))
            ),
        )

    def _transact(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            with closing(self._connect()) as db, _transaction(db):
                _migrate(db)
                return work(db)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"the store of pending calls {self._path!r} cannot be used: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        # Created here and not by SQLite: the challenges must be private whatever the umask.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        db = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
        db.execute("PRAGMA synchronous = FULL")
        return db

    def _add_one(self, db: sqlite3.Connection, session_id: str, call: NewCall) -> PendingCall:
        known = _find(
            db, "occurrence = ? AND tool_call_id = ?", session_id, call.occurrence, call.tool_call_id
        )
        other = _find(db, "tool_call_id = ? AND state = 'pending'", session_id, call.tool_call_id)
        if (stored := reconcile(call, known, other)) is not None:
            return stored
        last = db.execute("SELECT MAX(sequence) FROM calls WHERE session_id = ?", (session_id,)).fetchone()[0]
        row = (
            session_id,
            (last or 0) + 1,
            call.occurrence,
            call.tool_call_id,
            call.tool,
            call.arguments_json,
            json.dumps(asdict(call.execution)),
            new_challenge(self._random_bytes),
        )
        db.execute(f"INSERT INTO calls ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)  # noqa: S608
        return _call(row)


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _migrate(db: sqlite3.Connection) -> None:
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version > len(_MIGRATIONS):
        raise StoreError(
            f"the store of pending calls has version {version}, this Workseal knows {len(_MIGRATIONS)}: "
            "use the newer Workseal that made it"
        )
    for number, statements in enumerate(_MIGRATIONS[version:], start=version + 1):
        for statement in statements:
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {number}")


def _find(db: sqlite3.Connection, condition: str, session_id: str, *values: str) -> PendingCall | None:
    query = f"SELECT {_COLUMNS} FROM calls WHERE session_id = ? AND {condition}"  # noqa: S608
    row = db.execute(query, (session_id, *values)).fetchone()
    return None if row is None else _call(row)


def _settle(db: sqlite3.Connection, session_id: str, results: Mapping[int, str]) -> tuple[int, ...]:
    settled = []
    for sequence, encoded in results.items():
        row = db.execute(
            "SELECT state FROM calls WHERE session_id = ? AND sequence = ?", (session_id, sequence)
        ).fetchone()
        if row is None or row[0] == "abandoned":
            raise ResumeError(f"session {session_id!r} has no call {sequence} to settle")
        if row[0] == "pending":
            db.execute(
                "UPDATE calls SET state = 'settled', result_json = ? WHERE session_id = ? AND sequence = ?",
                (encoded, session_id, sequence),
            )
            settled.append(sequence)
    return tuple(settled)


def _call(row: Sequence[Any]) -> PendingCall:
    try:
        execution = ToolExecution(**json.loads(row[6]))
    except (ValueError, TypeError, InvalidInputError) as error:
        raise StoreError("the store of pending calls holds a malformed row: restore it") from error
    session_id, sequence, occurrence, tool_call_id, tool, arguments_json = row[:6]
    return PendingCall(
        session_id, sequence, occurrence, tool_call_id, tool, arguments_json, execution, row[7]
    )


def _encode_result(result: CallResult) -> str:
    envelope = None if result.envelope is None else base64.b64encode(result.envelope).decode("ascii")
    receipt = None if result.receipt is None else asdict(result.receipt)
    return json.dumps(
        {
            "outcome": result.outcome.value,
            "text": result.text,
            "envelope": envelope,
            "receipt": receipt,
            "plain": dict(result.plain),
            "is_claim": result.is_claim,
        }
    )


def _decode_result(text: str) -> CallResult:
    try:
        value = json.loads(text)
        envelope, receipt = value["envelope"], value["receipt"]
        return CallResult(
            outcome=CallOutcome(value["outcome"]),
            text=value["text"],
            envelope=None if envelope is None else base64.b64decode(envelope, validate=True),
            receipt=None if receipt is None else ReceiptRef(**receipt),
            plain=value["plain"],
            is_claim=value["is_claim"],
        )
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError("the store of pending calls holds a malformed result: restore it") from error
