"""`workseal receipts`: audit and show the chain of a workspace."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workseal_host.cli.boundary import fail, say
from workseal_host.cli.codes import NEGATIVE
from workseal_host.cli.common import echo_json, host_options, json_option
from workseal_host.cli.output_file import OutputFile

if TYPE_CHECKING:
    from workseal_host.cli.receipt_audit import Audit, Audited
    from workseal_host.cli.receipt_source import ReceiptSource


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which entries to list; without ``after`` the newest."""

    session: str
    after: int | None
    limit: int


@click.group("receipts")
def receipts_group() -> None:
    """List, audit and show receipts. Each is verified with this machine's own keys before it is shown.

    Where no host runs, they are read from the ledger itself.
    """


@receipts_group.command("list")
@click.option("--session", default="", metavar="ID", help="Only receipts of this session.")
@click.option(
    "--after",
    "after_sequence",
    type=click.IntRange(min=0),
    metavar="N",
    help="Only entries after this sequence, from there on.  [default: the newest ones]",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    help="How many at most.",
)
@json_option
@host_options
def list_command(
    *,
    workspace: Path,
    socket_file: str | None,
    state: Path,
    as_json: bool,
    session: str,
    after_sequence: int | None,
    limit: int,
) -> None:
    """List entries of the chain, oldest first. Exit 1 where one does not verify or does not follow."""
    from workseal_host.cli.receipt_audit import print_table, row_of  # noqa: PLC0415 - cryptography

    found, more = asyncio.run(_list(state, workspace, socket_file, _Wanted(session, after_sequence, limit)))
    rows = [row_of(audited) for audited in found]
    if as_json:
        echo_json(rows)
    else:
        print_table(rows)
    if more:
        say(f"there are more: --after {found[-1].sequence if found else 0}, or a higher --limit")
    if any(audited.problem for audited in found):
        sys.exit(NEGATIVE)


async def _list(
    state: Path, workspace: Path, socket_file: str | None, wanted: _Wanted
) -> tuple[list[Audited], bool]:
    from workseal_host.cli.receipt_audit import Audit  # noqa: PLC0415
    from workseal_host.cli.receipt_source import open_source  # noqa: PLC0415

    async with open_source(state, workspace, socket_file) as source:
        audit = Audit(state, source.workspace_id, whole_chain=not wanted.session)
        if wanted.after is not None:
            return await _first(source, audit, wanted, wanted.after)
        # Of one session the newest can only be found from the start.
        start = 0 if wanted.session else max(0, await source.head_sequence() - wanted.limit)
        newest: deque[Audited] = deque(maxlen=wanted.limit)
        async for entry in source.entries(after_sequence=start, session_id=wanted.session):
            newest.append(audit.entry(entry))
        return list(newest), False


async def _first(
    source: ReceiptSource, audit: Audit, wanted: _Wanted, after: int
) -> tuple[list[Audited], bool]:
    found: list[Audited] = []
    async for entry in source.entries(after_sequence=after, session_id=wanted.session):
        if len(found) == wanted.limit:
            return found, True
        found.append(audit.entry(entry))
    return found, False


@receipts_group.command("show")
@click.argument("receipt")
@click.option(
    "--output",
    "output_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the receipt itself, for `workseal verify` and for others.",
)
@click.option(
    "--changes", "with_changes", is_flag=True, help="Print the full list of changes as JSON Lines, proved."
)
@json_option
@host_options
def show_command(
    *,
    receipt: str,
    workspace: Path,
    socket_file: str | None,
    state: Path,
    as_json: bool,
    output_file: Path | None,
    with_changes: bool,
) -> None:
    """Show one receipt, named by its sequence or by the SHA-256 of its payload.

    Exit 1 where there is none, or it does not verify.
    """
    target = None if output_file is None else OutputFile.find(output_file)
    audited, lines = asyncio.run(_show(state, workspace, socket_file, receipt, with_changes=with_changes))
    if audited.problem:
        fail(f"receipt {receipt} is not verified: {audited.problem}", NEGATIVE)
    if target is not None:
        target.write(audited.envelope)
    if with_changes:
        click.echo(lines, nl=False)
        return
    from workseal_host.cli.receipt_audit import print_receipt, value_of  # noqa: PLC0415

    if as_json:
        echo_json(value_of(audited))
    else:
        print_receipt(audited)


async def _show(
    state: Path, workspace: Path, socket_file: str | None, name: str, *, with_changes: bool
) -> tuple[Audited, bytes]:
    from workseal_host.cli.receipt_audit import Audit, fetch_changes  # noqa: PLC0415
    from workseal_host.cli.receipt_source import open_source  # noqa: PLC0415
    from workseal_host.errors import NotFoundError  # noqa: PLC0415

    async with open_source(state, workspace, socket_file) as source:
        try:
            entry = await source.receipt(name)
            audited = Audit(state, source.workspace_id, whole_chain=False).entry(entry)
            if not with_changes or audited.problem:
                return audited, b""
            return audited, await fetch_changes(source, name, audited)
        except NotFoundError as error:
            fail(str(error), NEGATIVE)
