"""What the checks of one receipt share.

A check is a function of a :class:`Context`. It returns what it found, raises
:class:`NotVerifiedError` with its own reason, or :class:`NotAsked` when nothing was
given to check against.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from workseal.errors import CannotCheckError, NotVerifiedError
from workseal.receipt.envelope import Envelope
from workseal.receipt.errors import MalformedReceiptError
from workseal.receipt.policy import AcceptancePolicy, Expectation
from workseal.receipt.predicate import KeyRotationPredicate, ToolExecutionPredicate
from workseal.receipt.statement import Statement, parse_statement
from workseal.trust.pins import Position, TrustState
from workseal.trust.record import ChainEntry, VerifiedRecord, merge


class NotAsked(Exception):  # noqa: N818 - not an error: an audit goes on
    """There was nothing to check against.

    Args:
        what: what was not given.
        needed: whether accepting a receipt for use needs it.
        compared: what was given and holds; empty where nothing was.
    """

    def __init__(self, what: str, *, needed: bool = True, compared: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.needed = needed
        self.compared = compared


class ChainView:
    """A record, and the entries that would be added to it; nothing is written."""

    def __init__(self, record: VerifiedRecord, workspace_id: str) -> None:
        self._record = record
        self._workspace_id = workspace_id
        self._added: dict[int, ChainEntry] = {}
        self._order: list[int] = []

    @property
    def added(self) -> list[ChainEntry]:
        """The entries that would be added, by sequence."""
        return [self._added[sequence] for sequence in self._order]

    def add(self, entry: ChainEntry) -> None:
        """Add an entry; one that is used for a call stays that call's.

        Raises:
            NotVerifiedError: as :func:`merge`.
        """
        merged = merge(self.at(entry.sequence), entry)
        if entry.sequence not in self._added:
            insort(self._order, entry.sequence)
        self._added[entry.sequence] = merged

    def at(self, sequence: int) -> ChainEntry | None:
        """Return the entry at a sequence."""
        return self._added.get(sequence) or self._record.at(self._workspace_id, sequence)

    def below(self, sequence: int) -> ChainEntry | None:
        """Return the last entry before a sequence."""
        index = bisect_left(self._order, sequence)
        added = self._added[self._order[index - 1]] if index else None
        return _later(added, self._record.below(self._workspace_id, sequence))

    def head(self) -> ChainEntry | None:
        """Return the entry with the highest sequence."""
        added = self._added[self._order[-1]] if self._order else None
        return _later(added, self._record.head(self._workspace_id))


def _later(first: ChainEntry | None, second: ChainEntry | None) -> ChainEntry | None:
    if first is None or second is None:
        return first or second
    return first if first.sequence >= second.sequence else second


@dataclass
class Context:
    """One receipt on its way through the checks."""

    data: bytes
    expectation: Expectation
    policy: AcceptancePolicy
    trust: TrustState
    record: VerifiedRecord | None
    view: ChainView | None
    result: bytes | None
    now: Callable[[], datetime]
    envelope: Envelope | None = None
    statement: Statement | None = None
    _unreadable: MalformedReceiptError | None = field(default=None, repr=False)

    def signed(self) -> Envelope:
        """Return the envelope, which check ``form`` has read."""
        if self.envelope is None:
            raise CannotCheckError("the envelope was not read", check="form", reason="not-read")
        return self.envelope

    def read(self) -> Statement:
        """Return the statement; only after the signature over it was found good.

        Raises:
            MalformedReceiptError: it cannot be read.
        """
        if self.statement is None:
            if self._unreadable is not None:
                raise self._unreadable
            try:
                self.statement = parse_statement(self.signed().payload)
            except MalformedReceiptError as error:
                self._unreadable = error
                raise
        return self.statement

    def position(self) -> Position:
        """Return where the receipt stands."""
        statement = self.read()
        return Position(statement.workspace_id, statement.chain.id, statement.chain.sequence)

    def execution(self) -> ToolExecutionPredicate:
        """Return the predicate of a tool call.

        Raises:
            NotAsked: the receipt is a key rotation.
        """
        predicate = self.read().predicate
        if isinstance(predicate, KeyRotationPredicate):
            raise NotAsked("a key rotation has no such thing", needed=False)
        return predicate

    def chain_view(self) -> ChainView:
        """Return what is known of the receipt's chain.

        Raises:
            NotAsked: there is no record to compare with.
        """
        if self.view is None:
            if self.record is None:
                raise NotAsked("no record of what was verified before")
            self.view = ChainView(self.record, self.read().workspace_id)
        return self.view


Check = Callable[[Context], str]


def fail(check: str, reason: str, message: str) -> NotVerifiedError:
    """Return the error of a check that did not hold."""
    return NotVerifiedError(message, check=check, reason=reason)
