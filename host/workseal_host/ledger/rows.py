"""Rows of the SQLite ledger, to and from the model. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from typing import Any, Final

from workseal_host.ledger.model import (
    ExecutionRow,
    InFlight,
    NewReceipt,
    OutputRecord,
    StreamRecord,
    WorkspaceState,
)
from workseal_host.ledger.states import ExecutionState

EXECUTION_COLUMNS: Final = (
    "execution_id, idempotency_key, request_digest, session_id, tool_call_id, tool, mode, state, attempt,"
    " request, receipt_position, started_ns, before_scheme, before_tree, before_policy, before_rules,"
    " before_scan, predicted, processes, evidence"
)
RECEIPT_COLUMNS: Final = (
    "position, sequence, payload_digest, envelope, kind, session_id, execution_id, outcome"
)
OUTPUT_COLUMNS: Final = (
    "result, stdout_head, stdout_tail, stdout_total, stdout_digest, stdout_truncated,"
    " stderr_head, stderr_tail, stderr_total, stderr_digest, stderr_truncated"
)


def execution_row(row: Sequence[Any]) -> ExecutionRow:
    """Read a row of ``EXECUTION_COLUMNS``."""
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
        receipt_position=row[10],
        in_flight=None
        if row[11] is None
        else InFlight(row[11], WorkspaceState(*row[12:16]), row[16], row[17], row[18], row[19]),
    )


def in_flight_values(record: InFlight) -> tuple[Any, ...]:
    """Return the values of ``started_ns`` to ``evidence``."""
    return (
        record.started_ns,
        *astuple(record.before),
        record.scan_level,
        record.predicted,
        record.processes,
        record.evidence,
    )


def receipt_values(chain_id: str, receipt: NewReceipt) -> tuple[Any, ...]:
    """Return the values of a new row of receipts, from ``chain_id`` on."""
    return (
        chain_id,
        receipt.sequence,
        receipt.payload_digest,
        receipt.envelope,
        receipt.key_id,
        receipt.kind,
        receipt.session_id,
        receipt.execution_id,
        receipt.outcome,
        *(astuple(receipt.state) if receipt.state else (None,) * 4),
    )


def output_values(output: OutputRecord) -> tuple[Any, ...]:
    """Return the values of ``OUTPUT_COLUMNS``."""
    return (output.result, *astuple(output.stdout), *astuple(output.stderr))


def output_record(row: Sequence[Any]) -> OutputRecord:
    """Read a row of ``OUTPUT_COLUMNS``."""
    return OutputRecord(row[0], _stream(row[1:6]), _stream(row[6:11]))


def _stream(row: Sequence[Any]) -> StreamRecord:
    return StreamRecord(row[0], row[1], row[2], row[3], bool(row[4]))
