"""What can be said of chain entries, and showing it.

Nothing of an entry is shown before its signature by a key of this machine's own ring
was found good; where a source says something else than the signed bytes, the bytes hold.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from workseal.cli.output import safe
from workseal.cli.summary import summary_lines, summary_value
from workseal.receipt.changes import prove_changes
from workseal.receipt.policy import Expectation
from workseal.receipt.predicate import KeyRotationPredicate, ToolExecutionPredicate
from workseal.receipt.statement import Statement
from workseal_host.cli.receipt_source import Entry, ReceiptSource
from workseal_host.cli.trusted import own_verifier

_COUNTS: Final = ("created", "modified", "deleted")
_IDS: Final = ("session_id", "tool_call_id")
_COLUMNS: Final = ("sequence", "tool", "outcome", "exit_code", *_COUNTS, *_IDS, "verified")

_CHANGES: Final = "changes"
#: The same for a person, in 80 columns.
_SHOWN: Final = ("sequence", "tool", "outcome", "exit_code", _CHANGES, *_IDS, "verified")
_WHOLE: Final = frozenset({"sequence", "outcome", "exit_code", _CHANGES})
_HEADINGS: Final = {"sequence": "#", "exit_code": "exit", "session_id": "session", "tool_call_id": "call"}


@dataclass(frozen=True, slots=True)
class Audited:
    """One entry with what the audit found.

    Attributes:
        sequence: signed where it is verified, else as the source says.
        kind: the same.
        envelope: the bytes.
        payload_digest: hex SHA-256 of the payload; empty where it could not be read.
        statement: what it states; None where that is not verified.
        problem: why it is not good; empty where it is.
    """

    sequence: int
    kind: str
    envelope: bytes
    payload_digest: str
    statement: Statement | None
    problem: str


class Audit:
    """Verify entries one after the other, and that each follows the one before.

    Args:
        state: the state directory whose keys must have signed.
        workspace_id: the workspace that the entries must be of.
        whole_chain: whether entries are given without gaps.
    """

    def __init__(self, state: Path, workspace_id: str, *, whole_chain: bool) -> None:
        self._verifier = own_verifier(state)
        self._expectation = Expectation(workspace_id=workspace_id)
        self._whole_chain = whole_chain
        self._last: Audited | None = None

    def entry(self, entry: Entry) -> Audited:
        """Verify the next entry."""
        report = self._verifier.audit(entry.envelope, self._expectation)
        statement = report.statement
        sequence, kind, problem = (
            entry.sequence,
            entry.kind,
            "" if report.error is None else str(report.error),
        )
        if statement is not None:
            kind = (
                "key-rotation" if isinstance(statement.predicate, KeyRotationPredicate) else "tool-execution"
            )
            sequence = statement.chain.sequence
            if sequence != entry.sequence:
                problem = problem or f"it is kept as number {entry.sequence}"
            problem = problem or self._gap(statement)
        audited = Audited(sequence, kind, entry.envelope, report.payload_digest, statement, problem)
        self._last = audited
        return audited

    def _gap(self, statement: Statement) -> str:
        last, chain = self._last, statement.chain
        if last is None or last.statement is None or chain.id != last.statement.chain.id:
            return ""
        if chain.sequence == last.sequence + 1:
            follows = chain.previous == last.payload_digest
            return "" if follows else f"it does not follow number {last.sequence}: the chain is broken"
        return f"entries are missing after number {last.sequence}" if self._whole_chain else ""


async def fetch_changes(source: ReceiptSource, name: str, audited: Audited) -> bytes:
    """Fetch the full change list of a receipt and show that it is the signed one.

    Args:
        source: where the receipt is from.
        name: the receipt in that source.
        audited: the receipt, verified.

    Returns:
        JSON Lines; nothing for a key rotation.

    Raises:
        NotVerifiedError: it is another list.
    """
    predicate = None if audited.statement is None else audited.statement.predicate
    if not isinstance(predicate, ToolExecutionPredicate):
        return b""
    lines = await source.changes(name, predicate.workspace.changes.digest)
    prove_changes(predicate, lines)
    return lines


def row_of(audited: Audited) -> dict[str, Any]:
    """Return an entry as one row of a list."""
    row: dict[str, Any] = {
        "sequence": audited.sequence,
        "kind": audited.kind,
        "payload_digest": audited.payload_digest,
        "verified": not audited.problem,
    }
    if audited.problem:
        row["problem"] = audited.problem
    predicate = None if audited.statement is None else audited.statement.predicate
    if isinstance(predicate, ToolExecutionPredicate):
        changes, execution = predicate.workspace.changes, predicate.execution
        row |= {
            "session_id": predicate.call.session_id,
            "tool_call_id": predicate.call.tool_call_id,
            "tool": predicate.call.tool,
            "outcome": str(predicate.outcome),
            "exit_code": execution.exit_code if execution else None,
            "signal": execution.signal if execution else None,
            "created": changes.created,
            "modified": changes.modified,
            "deleted": changes.deleted,
        }
    return row


def value_of(audited: Audited) -> dict[str, Any]:
    """Return a verified receipt as one object."""
    summary = summary_value(audited.statement) if audited.statement is not None else {}
    return row_of(audited) | summary


def print_receipt(audited: Audited) -> None:
    """Print a verified receipt for a person."""
    click.echo(f"receipt {audited.sequence}: verified, payload sha256:{audited.payload_digest}")
    if audited.statement is not None:
        for line in summary_lines(audited.statement):
            click.echo(safe(line))


def print_table(rows: Sequence[dict[str, Any]]) -> None:
    """Print rows: a table for a person, tab-separated lines for a program."""
    if not sys.stdout.isatty():
        for cells in (_COLUMNS, *([_cell(row, name) for name in _COLUMNS] for row in rows)):
            click.echo("\t".join(cells))
        return
    from rich.console import Console  # noqa: PLC0415 - only for a person
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    shown = Table(box=None, pad_edge=False)
    for name in _SHOWN:
        # What is short and says most stays whole; ids fold where the terminal is narrow.
        shown.add_column(_HEADINGS.get(name, name), no_wrap=name in _WHOLE, overflow="fold")
    for row in rows:
        # As Text: an id must not be read as markup.
        shown.add_row(*(Text(_changes(row) if name == _CHANGES else _cell(row, name)) for name in _SHOWN))
    Console(highlight=False).print(shown)


def _changes(row: dict[str, Any]) -> str:
    if "created" not in row:
        return ""
    return f"+{row['created']} ~{row['modified']} -{row['deleted']}"


def _cell(row: dict[str, Any], name: str) -> str:
    if name == "verified":
        return "yes" if row["verified"] else f"NO: {safe(row['problem'])}"
    value = row.get(name, row["kind"] if name == "tool" else None)
    return "" if value is None else safe(str(value))
