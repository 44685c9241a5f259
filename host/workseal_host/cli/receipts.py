"""`workseal receipts`: read the chain of a workspace's host."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from workseal.errors import HostError, NotVerifiedError, WorksealError
from workseal.receipt.predicate import ToolExecutionPredicate
from workseal.receipt.verifier import AuditReport, ReceiptVerifier
from workseal.results import ChainEntry, HostResult, Selector
from workseal_host.cli.common import (
    NEGATIVE,
    echo_json,
    fail,
    json_option,
    maps_errors,
    socket_option,
    state_option,
    workspace_option,
)
from workseal_host.cli.connect import Located, locate, own_keys


@click.group("receipts")
def receipts_group() -> None:
    """List and show receipts. Every one is verified with this machine's own keys before it is shown."""


@receipts_group.command("list")
@click.option("--session", default="", help="Only receipts of this session.")
@click.option(
    "--after", "after_sequence", type=click.IntRange(min=0), default=0, help="Only higher sequences."
)
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True)
@json_option
@socket_option
@workspace_option
@state_option
@maps_errors
def list_command(
    workspace: Path,
    socket_file: str | None,
    state: Path,
    as_json: bool,
    session: str,
    after_sequence: int,
    limit: int,
) -> None:
    """List the chain. Exit 1 where an entry cannot be verified."""
    located = locate(state, workspace, socket_file)
    entries = asyncio.run(_entries(located, session, after_sequence, limit))
    verifier = ReceiptVerifier(own_keys(state))
    rows = [_row(entry, verifier.audit(entry.envelope)) for entry in entries]
    if as_json:
        echo_json(rows)
    else:
        _print_table(rows)
    if not all(row["verified"] for row in rows):
        sys.exit(NEGATIVE)


async def _entries(located: Located, session: str, after: int, limit: int) -> list[ChainEntry]:
    found: list[ChainEntry] = []
    async with located.client() as client:
        async for entry in client.receipts(
            after_sequence=after, session_id=session, page_size=min(limit, 1000)
        ):
            found.append(entry)
            if len(found) == limit:
                break
    return found


def _row(entry: ChainEntry, report: AuditReport) -> dict[str, Any]:
    row: dict[str, Any] = {
        "sequence": entry.sequence,
        "kind": entry.kind,
        "payload_digest": report.payload_digest,
        "verified": report.verified,
    }
    if report.error is not None:
        return {**row, "problem": str(report.error)}
    predicate = report.statement.predicate if report.statement else None
    if isinstance(predicate, ToolExecutionPredicate):
        changes = predicate.workspace.changes
        row |= {
            "session": predicate.call.session_id,
            "call": predicate.call.tool_call_id,
            "tool": predicate.call.tool,
            "outcome": str(predicate.outcome),
            "exit_code": predicate.execution.exit_code if predicate.execution else None,
            "created": changes.created,
            "modified": changes.modified,
            "deleted": changes.deleted,
        }
    return row


def _print_table(rows: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("sequence", "tool", "outcome", "exit", "+", "~", "-", "session", "call", "verified"):
        table.add_column(name)
    for row in rows:
        exit_code = row.get("exit_code")
        table.add_row(
            str(row["sequence"]),
            row.get("tool", row["kind"]),
            row.get("outcome", ""),
            "" if exit_code is None else str(exit_code),
            str(row.get("created", "")),
            str(row.get("modified", "")),
            str(row.get("deleted", "")),
            row.get("session", ""),
            row.get("call", ""),
            "yes" if row["verified"] else f"NO: {row['problem']}",
        )
    Console(markup=False, highlight=False).print(table)


@receipts_group.command("show")
@click.argument("receipt")
@click.option(
    "--output", "output_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the envelope."
)
@click.option("--changes", "with_changes", is_flag=True, help="Print the whole change list, proved.")
@json_option
@socket_option
@workspace_option
@state_option
@maps_errors
def show_command(
    receipt: str,
    workspace: Path,
    socket_file: str | None,
    state: Path,
    as_json: bool,
    output_file: Path | None,
    with_changes: bool,
) -> None:
    """Show one receipt, named by its sequence or by the SHA-256 of its payload."""
    located = locate(state, workspace, socket_file)
    selector = (
        Selector(sequence=int(receipt))
        if receipt.isdigit() and len(receipt) < 20
        else Selector(payload_digest=receipt)
    )
    found = asyncio.run(_receipt(located, selector))
    if output_file is not None:
        output_file.write_bytes(found.envelope)
    report = ReceiptVerifier(own_keys(state)).audit(found.envelope)
    if report.error is not None:
        raise report.error
    predicate = report.statement.predicate if report.statement else None
    if with_changes and isinstance(predicate, ToolExecutionPredicate):
        digest = predicate.workspace.changes.digest
        click.echo(asyncio.run(_changes(located, selector, digest)), nl=False)
        return
    entry = ChainEntry(found.envelope, found.sequence, found.payload_digest, "tool-execution")
    row = _row(entry, report)
    if as_json:
        echo_json(row)
        return
    for name, value in row.items():
        click.echo(f"{name:14} {value}")
    if isinstance(predicate, ToolExecutionPredicate):
        _print_changes(predicate)


def _print_changes(predicate: ToolExecutionPredicate) -> None:
    workspace = predicate.workspace
    for entry in (*workspace.created, *workspace.modified, *workspace.deleted):
        click.echo(f"{entry.kind}\t{entry.path}")
    if not workspace.changes.complete:
        click.echo("the receipt does not list all of them: `--changes` fetches and proves the rest", err=True)


async def _receipt(located: Located, selector: Selector) -> HostResult:
    async with located.client() as client:
        try:
            return await client.receipt(selector)
        except HostError as error:
            if error.code == "NOT_FOUND":
                fail("there is no such receipt", NEGATIVE)
            raise


async def _changes(located: Located, selector: Selector, digest: str) -> bytes:
    async with located.client() as client:
        return await client.changes(selector, expected_digest=digest)


__all__ = ["NotVerifiedError", "WorksealError", "receipts_group"]
