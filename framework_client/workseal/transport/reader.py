"""What is read from a host: digests, manifests, changes, stored receipts."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

from workseal.errors import NotVerifiedError
from workseal.results import ChainEntry, HostResult, Manifest, Selector, WorkspaceDigest
from workseal.transport import convert
from workseal.transport.connection import Connection
from workseal.transport.errors import protocol_error
from workseal.v1 import host_pb2


class Reader(Connection):
    """The questions that change nothing. Every one may be asked again."""

    async def digest(self, *, scan: str = "", scheme: str = "", path: str = "") -> WorkspaceDigest:
        """Ask for the digest of the workspace now; the answer is not signed.

        Args:
            scan: ``full`` or ``stat``; empty for the host's own.
            scheme: digest scheme; empty for the host's own.
            path: a directory (escaped path) to digest instead of the root.

        Raises:
            HostError: as the host answered.
        """
        wire = self._wire
        message = await wire.unary(
            wire.stub.GetDigest,
            host_pb2.GetDigestRequest(
                scan=convert.scan_value(scan), scheme=convert.scheme_value(scheme), path=path
            ),
            host_pb2.GetDigestResponse,
            deadline_s=self._deadlines.scan_s,
        )
        return convert.workspace_digest(message.digest)

    async def manifest(self, *, scan: str = "", scheme: str = "") -> Manifest:
        """Ask for every entry of the workspace now; the answer is not signed.

        Args:
            scan: ``full`` or ``stat``; empty for the host's own.
            scheme: digest scheme; empty for the host's own.

        Raises:
            HostError: as the host answered.
        """
        wire = self._wire
        parts = await wire.collect(
            wire.stub.GetManifest,
            host_pb2.GetManifestRequest(scan=convert.scan_value(scan), scheme=convert.scheme_value(scheme)),
            host_pb2.GetManifestResponse,
            deadline_s=self._deadlines.scan_s,
        )
        if not parts or not parts[0].HasField("digest"):
            raise protocol_error("a manifest without its digest")
        entries = tuple(convert.manifest_entry(entry) for part in parts for entry in part.entries)
        return Manifest(convert.workspace_digest(parts[0].digest), entries)

    async def changes(self, selector: Selector, *, expected_digest: str) -> bytes:
        """Fetch the whole change list of a receipt.

        Args:
            selector: which receipt.
            expected_digest: hex SHA-256 from its *verified* ``workspace.changes.digest``.

        Returns:
            Lines of canonical JSON, each ended by a newline, proved to be the signed list.

        Raises:
            NotVerifiedError: the list is not the one that was signed.
            HostError: as the host answered.
        """
        wire = self._wire
        parts = await wire.collect(
            wire.stub.GetChanges,
            host_pb2.GetChangesRequest(receipt=convert.receipt_selector(selector)),
            host_pb2.GetChangesResponse,
            deadline_s=self._deadlines.scan_s,
        )
        lines = b"".join(part.lines for part in parts)
        if hashlib.sha256(lines).hexdigest() != expected_digest:
            raise NotVerifiedError(
                "the change list is not the one that the receipt names: do not use it",
                check="changes",
                reason="full-list-digest",
            )
        return lines

    async def receipt(self, selector: Selector) -> HostResult:
        """Fetch one stored receipt with what is kept of its output, not verified.

        Args:
            selector: which one.

        Raises:
            HostError: as the host answered.
        """
        wire = self._wire
        message = await wire.unary(
            wire.stub.GetReceipt,
            host_pb2.GetReceiptRequest(receipt=convert.receipt_selector(selector)),
            host_pb2.GetReceiptResponse,
            deadline_s=self._deadlines.call_s,
        )
        return convert.host_result(message.outcome)

    async def receipts(
        self, *, after_sequence: int = 0, session_id: str = "", page_size: int = 0
    ) -> AsyncIterator[ChainEntry]:
        """Iterate over the chain in order of sequence, not verified.

        Args:
            after_sequence: only entries with a higher sequence.
            session_id: only receipts of this session; empty for all entries.
            page_size: most entries per request; 0 for the host's own.

        Raises:
            HostError: as the host answered, or its pages do not advance.
        """
        wire = self._wire
        position, cursor = after_sequence, after_sequence
        while True:
            page = await wire.unary(
                wire.stub.ListReceipts,
                host_pb2.ListReceiptsRequest(
                    after_sequence=cursor, page_size=page_size, session_id=session_id
                ),
                host_pb2.ListReceiptsResponse,
                deadline_s=self._deadlines.call_s,
            )
            for receipt in page.receipts:
                if receipt.sequence <= position:
                    raise protocol_error("a chain that is not in order")
                position = receipt.sequence
                yield convert.chain_entry(receipt)
            if not page.next_after_sequence:
                return
            if page.next_after_sequence <= cursor or not page.receipts:
                raise protocol_error("pages that do not advance")
            cursor = page.next_after_sequence
