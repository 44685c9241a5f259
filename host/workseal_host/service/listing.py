"""Long lists as messages of bounded size: every gRPC client takes 4 MiB by default."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from workseal.paths import escape_path
from workseal.receipt.statement import ChangedEntry, parse_change_lines
from workseal.v1 import host_pb2, workspace_pb2
from workseal_host.ledger.model import ReceiptRow
from workseal_host.observing import View
from workseal_host.service import convert
from workseal_host.workspace.manifest import iter_entries
from workseal_host.workspace.model import Directory, EntryType
from workseal_host.workspace.scheme import DigestScheme

_MAX_PAGE_BYTES = 2 << 20
_MAX_BATCH_BYTES = 1 << 20
_ENTRIES_PER_MESSAGE = 1000


def manifest_entries(view: View) -> Iterator[workspace_pb2.ManifestEntry]:
    """Yield every entry that the scheme of a view counts, sorted by raw path bytes."""
    for path, node in iter_entries(view.tree):
        if view.scheme is DigestScheme.NONOKA_1 and isinstance(node, Directory):
            continue
        state = workspace_pb2.EntryState(type=convert.ENTRY_TYPES[node.type], sha256=node.digest.hex())
        yield workspace_pb2.ManifestEntry(path=escape_path(path), state=state)


def batches(
    entries: Iterable[workspace_pb2.ManifestEntry],
) -> Iterator[list[workspace_pb2.ManifestEntry]]:
    """Group entries into messages of bounded size; escaped paths can be long."""
    batch: list[workspace_pb2.ManifestEntry] = []
    size = 0
    for entry in entries:
        if batch and (len(batch) == _ENTRIES_PER_MESSAGE or size >= _MAX_BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += entry.ByteSize()
    if batch:
        yield batch


def changes_message(lines: bytes) -> host_pb2.GetChangesResponse:
    """Return whole lines of a change list, with the same changes typed."""
    entries = parse_change_lines(lines)
    return host_pb2.GetChangesResponse(lines=lines, changes=[_change(entry) for entry in entries])


def _change(entry: ChangedEntry) -> workspace_pb2.Change:
    change = workspace_pb2.Change(kind=convert.CHANGE_KINDS[entry.kind], path=entry.path)
    for side, state in (("before", entry.before), ("after", entry.after)):
        if state is not None:
            getattr(change, side).CopyFrom(
                workspace_pb2.EntryState(type=convert.ENTRY_TYPES[EntryType(state.type)], sha256=state.digest)
            )
    return change


def first_page(rows: Iterable[ReceiptRow]) -> list[ReceiptRow]:
    """Keep a page below the message limit; at least one row."""
    page: list[ReceiptRow] = []
    size = 0
    for row in rows:
        size += len(row.envelope)
        if page and size > _MAX_PAGE_BYTES:
            break
        page.append(row)
    return page
