"""What `workseal verify` asks beyond the receipt's own checks: success, and how several files hang together.

Pure. Only statements that were verified come in here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from workseal.receipt.predicate import (
    Execution,
    KeyRotationPredicate,
    Outcome,
    ToolExecutionPredicate,
    VerificationStatus,
)
from workseal.receipt.statement import Statement


@dataclass(frozen=True, slots=True)
class Demand:
    """What a verified receipt must say besides.

    Args:
        outcome: the outcome that it must have; None for any.
        success: whether the call must have succeeded.
        of_a_call: whether something of a tool call was asked for, which a key rotation cannot answer.
    """

    outcome: Outcome | None = None
    success: bool = False
    of_a_call: bool = False


def shortcoming(statement: Statement, demand: Demand) -> str | None:
    """Return the first thing that was demanded and does not hold; None where all of it does."""
    predicate = statement.predicate
    if isinstance(predicate, KeyRotationPredicate):
        asked = demand.of_a_call or demand.success or demand.outcome is not None
        return "it is a key rotation, not the receipt of a tool call" if asked else None
    if demand.outcome is not None and predicate.outcome is not demand.outcome:
        return f"outcome {predicate.outcome}, not {demand.outcome}"
    return next(_failures(predicate), None) if demand.success else None


def _failures(predicate: ToolExecutionPredicate) -> Iterator[str]:
    if predicate.outcome is not Outcome.COMPLETED or predicate.execution is None:
        yield f"outcome {predicate.outcome}"
        return
    yield from _ends(predicate.execution)
    for violation in predicate.policy.unrestored:
        yield f"policy violation: {violation.path or '.'} breaks the rule {violation.rule}"
    if predicate.verification.status is VerificationStatus.FAILED:
        yield f"read-back failed: {predicate.verification.summary}"


def _ends(execution: Execution) -> Iterator[str]:
    if execution.timed_out:
        yield "the tool's time was up"
    if execution.cancelled:
        yield "the tool was cancelled"
    if execution.signal is not None:
        yield f"signal {execution.signal} ended the tool"
    if execution.exit_code != 0:
        known = execution.exit_code is not None
        yield f"exit code {execution.exit_code}" if known else "the exit code is not known"


@dataclass(frozen=True, slots=True)
class Links:
    """How the verified receipts of one chain hang together.

    Args:
        chain_id: the chain.
        broken: what cannot be in one chain; empty where nothing is.
        gaps: what was not given and so could not be compared.
    """

    chain_id: str
    broken: tuple[str, ...]
    gaps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """One verified receipt: its signed place, and the hex SHA-256 of its payload."""

    statement: Statement
    payload_digest: str


def links_of(receipts: Sequence[Placed]) -> Iterator[Links]:
    """Compare the receipts of each chain with their neighbours; one receipt alone has none."""
    chains: dict[tuple[str, str], dict[str, Placed]] = {}
    for item in receipts:
        key = (item.statement.workspace_id, item.statement.chain.id)
        chains.setdefault(key, {})[item.payload_digest] = item
    for (_, chain_id), found in chains.items():
        if len(found) > 1:
            ordered = sorted(found.values(), key=lambda item: item.statement.chain.sequence)
            yield _links(chain_id, ordered)


def _links(chain_id: str, ordered: Sequence[Placed]) -> Links:
    broken, gaps = [], []
    for first, second in pairwise(ordered):
        before, after = first.statement.chain.sequence, second.statement.chain.sequence
        if before == after:
            broken.append(f"two different receipts have the sequence {after}: the chain forked")
        elif before + 1 < after:
            gaps.append(f"nothing given between {before} and {after}: that link was not compared")
        elif second.statement.chain.previous != first.payload_digest:
            broken.append(f"{after} does not follow {before}: the chain forked")
    return Links(chain_id, tuple(broken), tuple(gaps))
