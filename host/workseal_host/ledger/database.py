"""The connections to one SQLite file: one that writes, one that reads.

Invariants: transactions run one at a time, durably (``synchronous=FULL`` in WAL
mode), and each to its end even when its caller is cancelled; the reading
connection sees committed rows only; any SQLite failure becomes a
:class:`LedgerError` that says what to do.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite

from workseal.state import sync_directory
from workseal_host.errors import LedgerError
from workseal_host.ledger.schema import APPLICATION_ID, MIGRATIONS

_Value = TypeVar("_Value")
# A journal mode is a change of the file: only once it is known to be a ledger.
_PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "trusted_schema = OFF")
_DAMAGED = (
    "the file is damaged: put it back from a backup, or move it away and start again. Either begins a new"
    " chain, which clients must be told of (`workseal keys forget WORKSPACE_ID`)"
)
_ADVICE = {
    "SQLITE_FULL": "the disk is full: make space in the state directory and try again",
    "SQLITE_READONLY": "it cannot be written: check the permissions of the state directory",
    "SQLITE_CANTOPEN": "it cannot be opened: check the permissions of the state directory",
    "SQLITE_IOERR": "the disk failed or is full: check it, make space, and start again",
    "SQLITE_CORRUPT": _DAMAGED,
    "SQLITE_NOTADB": _DAMAGED,
    "SQLITE_BUSY": "another program holds it: end that, and try again",
}


def _advice(error: sqlite3.Error) -> str:
    # Set by the interpreter for errors of SQLite itself, as an extended name such as SQLITE_IOERR_FSYNC.
    name = getattr(error, "sqlite_errorname", "")
    found = [advice for prefix, advice in _ADVICE.items() if name.startswith(prefix)]
    return found[0] if found else "check free space and permissions of the state directory"


@contextmanager
def ledger_errors(doing: str) -> Iterator[None]:
    """Turn failures of SQLite and of the file system into :class:`LedgerError`."""
    try:
        yield
    except sqlite3.Error as error:
        raise LedgerError(f"{doing}: {error}; {_advice(error)}") from error
    except OSError as error:
        raise LedgerError(f"{doing}: {error}; check the permissions of the state directory") from error


class Connection:
    """Statements on one connection."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._db = connection

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._db.in_transaction

    async def one(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """Return the first row; None where there is none."""
        async with self._db.execute(sql, parameters) as cursor:
            return await cursor.fetchone()

    async def all(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Return all rows."""
        return list(await self._db.execute_fetchall(sql, parameters))

    async def run(self, sql: str, parameters: Sequence[Any] = ()) -> int | None:
        """Run one statement and return the id of the row that it inserted, if it did."""
        async with self._db.execute(sql, parameters) as cursor:
            return cursor.lastrowid

    async def run_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run one statement for each row."""
        async with self._db.executemany(sql, rows):
            pass

    async def set_up(self, pragmas: Sequence[str]) -> None:
        """Apply pragmas."""
        for pragma in pragmas:
            await self.run(f"PRAGMA {pragma}")

    async def close(self) -> None:
        """Close the connection."""
        await self._db.close()


class Database:
    """The two connections. Make it with :meth:`open`."""

    def __init__(self, writer: Connection, reader: Connection, path: Path) -> None:
        self._path = path
        self._file = _identity(path)
        self._writer = writer
        self._reader = reader
        self._writing = asyncio.Lock()

    @classmethod
    async def open(cls, path: Path) -> Database:
        """Open a file with the newest schema, making it on first use.

        Raises:
            LedgerError: it cannot be used, is damaged, foreign, or of a newer version.
        """
        with ledger_errors(f"cannot open the ledger {path}"):
            _make_private(path)
            writer = await _connect(path, ())
            try:
                await _require_ledger(writer, path)
                await writer.set_up(_PRAGMAS)
                await _migrate(writer)
                reader = await _connect(path, ("query_only = ON", "trusted_schema = OFF"))
            except BaseException:
                await writer.close()
                raise
        return cls(writer, reader, path)

    @classmethod
    async def open_to_read(cls, path: Path) -> Database:
        """Open an existing file without changing anything, beside a running host or without one.

        Raises:
            LedgerError: it cannot be read, or is of another version.
        """
        with ledger_errors(f"cannot read the ledger {path}"):
            first = await _connect(path, ("query_only = ON", "trusted_schema = OFF"), read_only=True)
            try:
                version = (await first.one("PRAGMA user_version"))[0]
                application = (await first.one("PRAGMA application_id"))[0]
                if application != APPLICATION_ID:
                    raise LedgerError(f"{path} is a database, but no Workseal ledger")
                if version != len(MIGRATIONS):
                    raise LedgerError(
                        f"the ledger {path} is of version {version}, not {len(MIGRATIONS)}: a host of this"
                        " version brings an older one up to date when it starts"
                    )
                second = await _connect(path, ("query_only = ON", "trusted_schema = OFF"), read_only=True)
            except BaseException:
                await first.close()
                raise
        return cls(first, second, path)

    async def close(self) -> None:
        """Close both, once no transaction is under way."""
        async with self._writing:
            with ledger_errors("cannot close the ledger"):
                await self._reader.close()
                await self._writer.close()

    async def one(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """Return the first committed row; None where there is none."""
        with ledger_errors("cannot read the ledger"):
            return await self._reader.one(sql, parameters)

    async def all(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Return all committed rows."""
        with ledger_errors("cannot read the ledger"):
            return await self._reader.all(sql, parameters)

    @property
    def reader(self) -> Connection:
        """The connection that sees committed rows only."""
        return self._reader

    async def atomically(self, doing: str, work: Callable[[Connection], Awaitable[_Value]]) -> _Value:
        """Run one durable transaction: all of it or nothing.

        A caller that is cancelled (an RPC whose client went away) leaves it running: a
        transaction that was cut off half-way would stay open, and block every other one.

        Raises:
            LedgerError: it failed, and left nothing.
        """
        task = asyncio.ensure_future(self._transaction(doing, work))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    def _require_same_file(self, doing: str) -> None:
        """Refuse to write into a file that nobody will find again."""
        try:
            same = _identity(self._path) == self._file
        except FileNotFoundError:
            same = False
        if not same:
            raise LedgerError(
                f"{doing}: {self._path} was removed or replaced; put it back and restart the host"
            )

    async def _transaction(self, doing: str, work: Callable[[Connection], Awaitable[_Value]]) -> _Value:
        async with self._writing:
            with ledger_errors(doing):
                self._require_same_file(doing)
                await self._writer.run("BEGIN IMMEDIATE")
                try:
                    value = await work(self._writer)
                    await self._writer.run("COMMIT")
                except BaseException:
                    # Some failures of SQLite (disk full) roll back by themselves, others do not.
                    if self._writer.in_transaction:
                        await self._writer.run("ROLLBACK")
                    raise
        return value


def _identity(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


async def _connect(path: Path, pragmas: Sequence[str], *, read_only: bool = False) -> Connection:
    connection = Connection(await aiosqlite.connect(_uri(path, read_only), uri=True, isolation_level=None))
    try:
        await connection.set_up(pragmas)
    except BaseException:
        await connection.close()
        raise
    return connection


def _uri(path: Path, read_only: bool) -> str:
    return path.absolute().as_uri() + ("?mode=ro" if read_only else "")


def _make_private(path: Path) -> None:
    """Make the file where there is none, and readable by nobody else in any case."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
    sync_directory(path.parent)


async def _require_ledger(db: Connection, path: Path) -> None:
    version = (await db.one("PRAGMA user_version"))[0]
    application = (await db.one("PRAGMA application_id"))[0]
    tables = (await db.one("SELECT count(*) FROM sqlite_schema"))[0]
    if (version or tables) and application != APPLICATION_ID:
        raise LedgerError(f"{path} is a database, but no Workseal ledger: move it away and start again")
    if version > len(MIGRATIONS):
        raise LedgerError(
            f"the ledger {path} was written by a newer Workseal (version {version}); upgrade Workseal"
        )


async def _migrate(db: Connection) -> None:
    await db.run("BEGIN IMMEDIATE")
    version = (await db.one("PRAGMA user_version"))[0]
    for script in MIGRATIONS[version:]:
        for statement in _statements(script):
            await db.run(statement)
    await db.run(f"PRAGMA application_id = {APPLICATION_ID}")
    await db.run(f"PRAGMA user_version = {len(MIGRATIONS)}")
    await db.run("COMMIT")


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
