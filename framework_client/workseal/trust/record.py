"""What was last verified, per workspace: the memory that makes a fork visible.

A host whose ledger was put back to an older state can sign a second history with
the same good key. Only somebody who remembers the first one can tell. The record
keeps (chain id, sequence, payload digest, after-digest) of what was verified, and
which call it was used for, durably.

It is bounded: of each workspace it keeps the last :data:`KEPT_ENTRIES` places of the
chain. What lies further back is refused as behind, so forgetting it opens nothing: a
receipt counts only for the call whose challenge it carries, whatever is remembered of it.

The first entry of a workspace is taken as it comes: position in the chain is
trusted on first use, keys never are.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Final, Protocol

from workseal.errors import NotVerifiedError, StoreError
from workseal.state import as_path, make_private_dir

#: Places of a chain that are remembered, up to the newest; about 30 MB.
KEPT_ENTRIES: Final = 100_000


@dataclass(frozen=True, slots=True)
class ChainEntry:
    """One verified entry of a chain.

    Args:
        chain_id: the chain.
        sequence: where in it.
        payload_digest: hex SHA-256 of the payload.
        previous_digest: of the payload before it; None for the first.
        after_digest: the workspace after it; None where that is not known.
        scheme: how that was digested.
        ignore_policy_digest: the rules that it was digested under.
        used_by: identity of the call that it was accepted for; None if for none yet.
    """

    chain_id: str
    sequence: int
    payload_digest: str
    previous_digest: str | None
    after_digest: str | None
    scheme: str | None
    ignore_policy_digest: str | None
    used_by: str | None = None


class VerifiedRecord(Protocol):
    """Keeps the verified entries of one chain per workspace."""

    def head(self, workspace_id: str) -> ChainEntry | None:
        """Return the entry with the highest sequence."""
        ...

    def at(self, workspace_id: str, sequence: int) -> ChainEntry | None:
        """Return the entry at a sequence."""
        ...

    def below(self, workspace_id: str, sequence: int) -> ChainEntry | None:
        """Return the last entry before a sequence."""
        ...

    def accept(self, workspace_id: str, entries: Sequence[ChainEntry]) -> None:
        """Keep entries, all or none.

        Raises:
            NotVerifiedError: check ``chain``; another entry, or another call that used
                it, came in between.
            StoreError: they cannot be written.
        """
        ...

    def forget(self, workspace_id: str) -> None:
        """Drop all that is known of a workspace: its next receipt starts anew.

        For the user to call, when a host's ledger was lost or replaced on purpose.
        """
        ...


def merge(known: ChainEntry | None, new: ChainEntry) -> ChainEntry:
    """Return what is known of one place after an entry was verified there.

    Raises:
        NotVerifiedError: reasons ``fork`` and ``already-used``.
    """
    if known is None:
        return new
    if (known.chain_id, known.payload_digest) != (new.chain_id, new.payload_digest):
        raise NotVerifiedError(
            f"another receipt is known at sequence {new.sequence}: the chain forked",
            check="chain",
            reason="fork",
        )
    if known.used_by and new.used_by and known.used_by != new.used_by:
        raise NotVerifiedError(
            "this receipt was already used for another call", check="chain", reason="already-used"
        )
    return replace(known, used_by=known.used_by or new.used_by)


def _same_chain(head: ChainEntry | None, entry: ChainEntry) -> None:
    if head is not None and head.chain_id != entry.chain_id:
        raise NotVerifiedError(
            "another chain is known for this workspace", check="chain", reason="chain-changed"
        )


class MemoryRecord:
    """A record that lasts as long as the process.

    Args:
        kept_entries: as :data:`KEPT_ENTRIES`.
    """

    def __init__(self, *, kept_entries: int = KEPT_ENTRIES) -> None:
        self._kept_entries = kept_entries
        self._entries: dict[str, dict[int, ChainEntry]] = {}

    def head(self, workspace_id: str) -> ChainEntry | None:
        known = self._entries.get(workspace_id)
        return known[max(known)] if known else None

    def at(self, workspace_id: str, sequence: int) -> ChainEntry | None:
        return self._entries.get(workspace_id, {}).get(sequence)

    def below(self, workspace_id: str, sequence: int) -> ChainEntry | None:
        known = self._entries.get(workspace_id, {})
        return known.get(max((number for number in known if number < sequence), default=-1))

    def accept(self, workspace_id: str, entries: Sequence[ChainEntry]) -> None:
        trial = dict(self._entries.get(workspace_id, {}))
        for entry in entries:
            _same_chain(self.head(workspace_id), entry)
            trial[entry.sequence] = merge(trial.get(entry.sequence), entry)
        if trial:
            first = max(trial) - self._kept_entries
            self._entries[workspace_id] = {number: entry for number, entry in trial.items() if number > first}

    def forget(self, workspace_id: str) -> None:
        self._entries.pop(workspace_id, None)


_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS verified (
    workspace_id TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    chain_id TEXT NOT NULL,
    payload_digest TEXT NOT NULL,
    previous_digest TEXT,
    after_digest TEXT,
    scheme TEXT,
    ignore_policy_digest TEXT,
    used_by TEXT,
    PRIMARY KEY (workspace_id, sequence)
) WITHOUT ROWID
"""
_COLUMNS: Final = (
    "chain_id, sequence, payload_digest, previous_digest, after_digest, scheme, ignore_policy_digest, used_by"
)
_HEAD: Final = f"SELECT {_COLUMNS} FROM verified WHERE workspace_id = ? ORDER BY sequence DESC LIMIT 1"  # noqa: S608 - constants
_AT: Final = f"SELECT {_COLUMNS} FROM verified WHERE workspace_id = ? AND sequence = ?"  # noqa: S608
_BELOW: Final = (
    f"SELECT {_COLUMNS} FROM verified WHERE workspace_id = ? AND sequence < ? ORDER BY sequence DESC LIMIT 1"  # noqa: S608
)
_PRUNE: Final = "DELETE FROM verified WHERE workspace_id = ? AND sequence <= ?"
_PUT: Final = f"INSERT OR REPLACE INTO verified (workspace_id, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608


class SqliteRecord:
    """A record in ``trust/verified.sqlite3`` of the state directory.

    Every write is on disk before it returns. Safe to use from several threads and
    processes at once.

    Args:
        state_dir: the state directory, as it stands (``~`` is not expanded); made when something is
            first accepted.
        kept_entries: as :data:`KEPT_ENTRIES`.

    Raises:
        InvalidInputError: it is no path.
    """

    def __init__(self, state_dir: str | os.PathLike[str], *, kept_entries: int = KEPT_ENTRIES) -> None:
        self._state_dir = as_path(state_dir, "state_dir")
        self._kept_entries = kept_entries
        self._path = self._state_dir / "trust" / "verified.sqlite3"

    def head(self, workspace_id: str) -> ChainEntry | None:
        return self._one(_HEAD, workspace_id)

    def at(self, workspace_id: str, sequence: int) -> ChainEntry | None:
        return self._one(_AT, workspace_id, sequence)

    def below(self, workspace_id: str, sequence: int) -> ChainEntry | None:
        return self._one(_BELOW, workspace_id, sequence)

    def accept(self, workspace_id: str, entries: Sequence[ChainEntry]) -> None:
        make_private_dir(self._state_dir)
        make_private_dir(self._path.parent)
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            head = _entry(connection.execute(_HEAD, (workspace_id,)).fetchone())
            for entry in entries:
                _same_chain(head, entry)
                known = _entry(connection.execute(_AT, (workspace_id, entry.sequence)).fetchone())
                merged = merge(known, entry)
                if merged != known:
                    connection.execute(_PUT, (workspace_id, *_row(merged)))
            newest = max((entry.sequence for entry in (*entries, *([head] if head else []))), default=0)
            connection.execute(_PRUNE, (workspace_id, newest - self._kept_entries))
            connection.execute("COMMIT")

    def forget(self, workspace_id: str) -> None:
        if self._path.exists():
            with self._connection() as connection:
                connection.execute("DELETE FROM verified WHERE workspace_id = ?", (workspace_id,))

    def _one(self, query: str, *arguments: str | int) -> ChainEntry | None:
        if not self._path.exists():
            return None
        with self._connection() as connection:
            return _entry(connection.execute(query, arguments).fetchone())

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            if not self._path.exists():
                self._path.touch(mode=0o600)
                self._path.chmod(0o600)
            # One short connection for each use: no lock is held between them, and threads need no care.
            with closing(sqlite3.connect(self._path, timeout=30, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute(_SCHEMA)
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"cannot use the record {self._path}: {error}") from error


def _row(entry: ChainEntry) -> tuple[str | int | None, ...]:
    return (
        entry.chain_id,
        entry.sequence,
        entry.payload_digest,
        entry.previous_digest,
        entry.after_digest,
        entry.scheme,
        entry.ignore_policy_digest,
        entry.used_by,
    )


def _entry(
    row: tuple[str, int, str, str | None, str | None, str | None, str | None, str | None] | None,
) -> ChainEntry | None:
    return None if row is None else ChainEntry(*row)
