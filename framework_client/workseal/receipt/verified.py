"""What checking a receipt gives: a verified receipt, or a report.

Nobody but :class:`workseal.receipt.verifier.ReceiptVerifier` makes a
:class:`VerifiedReceipt`: having one means that every check held.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from enum import StrEnum
from typing import Final

from workseal.errors import NotVerifiedError
from workseal.receipt.predicate import (
    Mode,
    Outcome,
    OutsideChanges,
    ToolExecutionPredicate,
    VerificationStatus,
)
from workseal.receipt.statement import Statement

#: Held by the verifier alone.
TOKEN: Final = object()


class CheckStatus(StrEnum):
    """What became of one check."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What became of one check, in words."""

    name: str
    status: CheckStatus
    detail: str


@dataclass(frozen=True)
class VerifiedReceipt:
    """A receipt for which every check held. Only :class:`ReceiptVerifier` makes one.

    Args:
        envelope: the bytes that were verified.
        statement: what they state.
        payload_digest: hex SHA-256 of the payload; names the receipt.
        key_id: the pinned key that signed it.
        result: the text for the model, as it was signed; None where there is none.
        between: the statements of others since the last verified receipt.
        checks: what each check found.
    """

    envelope: bytes
    statement: Statement
    payload_digest: str
    key_id: str
    result: bytes | None
    between: tuple[Statement, ...]
    checks: tuple[CheckReport, ...]
    token: InitVar[object]

    def __post_init__(self, token: object) -> None:
        if token is not TOKEN:
            raise TypeError("a receipt is verified by ReceiptVerifier.verify only")

    @property
    def predicate(self) -> ToolExecutionPredicate:
        """The outcome of the call."""
        predicate = self.statement.predicate
        if not isinstance(predicate, ToolExecutionPredicate):
            raise TypeError("not the receipt of a tool call")
        return predicate

    @property
    def outcome(self) -> Outcome:
        """What became of the call."""
        return self.predicate.outcome

    @property
    def done(self) -> bool:
        """Whether the call may count as done.

        Completed, with nothing that was to be read back missing, and no forbidden
        change left in place. The tool's exit code is part of its result and does not
        matter here.
        """
        predicate = self.predicate
        return (
            predicate.outcome is Outcome.COMPLETED
            and predicate.verification.status is not VerificationStatus.FAILED
            and not predicate.policy.unrestored
        )

    @property
    def claimed(self) -> bool:
        """Whether the result is only what the caller of an observation claimed."""
        execution = self.predicate.execution
        return execution is not None and execution.mode is Mode.OBSERVED

    @property
    def outside_changes(self) -> OutsideChanges | None:
        """What changed and is ascribed to nobody."""
        return self.predicate.workspace.outside_changes


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What can be said of a receipt without using it.

    Args:
        checks: what became of each check, in order.
        statement: what it states, if it is verified; else None.
        payload_digest: hex SHA-256 of the payload; empty if it could not be read.
        key_id: the key that the envelope names; empty if it could not be read.
        error: the first check that did not hold; None if verified.
    """

    checks: tuple[CheckReport, ...]
    statement: Statement | None
    payload_digest: str
    key_id: str
    error: NotVerifiedError | None

    @property
    def verified(self) -> bool:
        """Whether nothing that could be checked was wrong, the signature included."""
        return self.error is None
