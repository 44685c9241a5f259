"""The gRPC service. Each handler: convert, call the domain, convert back.

Handlers raise the host's own errors; the boundary around them (see
:mod:`workseal_host.service.interceptors`) makes them a status. No message that
a host sends is larger than the 4 MiB that every gRPC client takes by default.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

from workseal.canonical import MAX_SAFE_INTEGER
from workseal.errors import InvalidInputError
from workseal.paths import escape_path, unescape_path
from workseal.v1 import execution_pb2, host_pb2, receipt_pb2
from workseal.v1.host_pb2_grpc import HostServiceServicer
from workseal_host.attestation.keyring import KeyRing
from workseal_host.coordination.live import Accepted, DigestReport, LiveExecution, Outcome
from workseal_host.errors import LedgerError, NotFoundError, RequestError
from workseal_host.execution.registry import ToolRegistry
from workseal_host.execution.tool import ToolResult
from workseal_host.ledger.model import Ledger, ReceiptRow
from workseal_host.observing import View
from workseal_host.pipeline import Pipeline
from workseal_host.requests import MAX_ARGUMENTS_BYTES
from workseal_host.service import convert, listing
from workseal_host.service.errors import Context
from workseal_host.workspace.model import Directory, count_entries, lookup
from workseal_host.workspace.scan import ScanLevel
from workseal_host.workspace.scheme import DigestScheme

_PAGE = 100
_MAX_PAGE = 1000
_MAX_CLAIM_BYTES = 1 << 20
_MAX_SIGNAL = 64
_NO_DEADLINE_S = 366 * 24 * 3600
# How long before the caller's deadline a queued call gives up: enough for the answer to arrive.
_ANSWER_S = 0.25
_ANSWER_PART = 0.2
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class HostIdentity:
    """What GetHostInfo says of the host."""

    version: str
    workspace_id: str
    root: str
    chain_id: str
    isolation: str
    scheme: DigestScheme
    level: ScanLevel


class HostServicer(HostServiceServicer):
    """The HostService of one workspace.

    Args:
        pipeline: runs and attests calls.
        ledger: where receipts are read from.
        registry: the tools.
        keys: the host's signing keys; only public parts are used.
        identity: who the host is.
    """

    def __init__(
        self,
        *,
        pipeline: Pipeline,
        ledger: Ledger,
        registry: ToolRegistry,
        keys: KeyRing,
        identity: HostIdentity,
    ) -> None:
        self._pipeline = pipeline
        self._ledger = ledger
        self._registry = registry
        self._keys = keys
        self._identity = identity

    async def GetHostInfo(
        self, request: host_pb2.GetHostInfoRequest, context: Context
    ) -> host_pb2.GetHostInfoResponse:
        """Describe the host."""
        head = await self._ledger.head()
        me = self._identity
        return host_pb2.GetHostInfoResponse(
            name="workseal-host",
            version=me.version,
            workspace_id=me.workspace_id,
            root=me.root,
            chain_id=me.chain_id,
            head_sequence=head.sequence,
            key_id=self._keys.current.key_id,
            public_key_pem=self._keys.current.public.pem,
            scheme=convert.SCHEMES[me.scheme],
            scan=convert.LEVELS[me.level],
            isolation=me.isolation,
            tools=convert.tool_messages(self._registry),
            max_arguments_bytes=MAX_ARGUMENTS_BYTES,
        )

    async def ExecuteTool(
        self, request: execution_pb2.ExecuteToolRequest, context: Context
    ) -> AsyncIterator[execution_pb2.ExecuteToolEvent]:
        """Run a tool once and attest it."""
        call = convert.call_request(request)
        found = await self._pipeline.execute(call, deadline=_deadline(context))
        async for message in _events(found):
            yield message

    async def WaitExecution(
        self, request: host_pb2.WaitExecutionRequest, context: Context
    ) -> AsyncIterator[execution_pb2.ExecuteToolEvent]:
        """Attach to an execution."""
        execution_id, key = _execution_selector(request.execution)
        async for message in _events(await self._pipeline.wait(execution_id=execution_id, key=key)):
            yield message

    async def CancelExecution(
        self, request: host_pb2.CancelExecutionRequest, context: Context
    ) -> host_pb2.CancelExecutionResponse:
        """Ask for an execution to be ended."""
        execution_id, key = _execution_selector(request.execution)
        row, cancelling = await self._pipeline.cancel(execution_id=execution_id, key=key)
        return host_pb2.CancelExecutionResponse(state=convert.STATES[row.state], cancelling=cancelling)

    async def BeginObservation(
        self, request: host_pb2.BeginObservationRequest, context: Context
    ) -> host_pb2.BeginObservationResponse:
        """Take the workspace for a call that somebody else runs."""
        call = convert.observation_request(request)
        found = await self._pipeline.begin_observation(call, deadline=_deadline(context))
        if isinstance(found, Outcome):
            return host_pb2.BeginObservationResponse(outcome=convert.outcome_message(found))
        return _begun(found)

    async def EndObservation(
        self, request: host_pb2.EndObservationRequest, context: Context
    ) -> host_pb2.EndObservationResponse:
        """Attest the interval of an observation."""
        outcome = await self._pipeline.end_observation(request.execution_id, _claimed(request))
        return host_pb2.EndObservationResponse(outcome=convert.outcome_message(outcome))

    async def GetDigest(
        self, request: host_pb2.GetDigestRequest, context: Context
    ) -> host_pb2.GetDigestResponse:
        """Digest the workspace, or a directory of it."""
        view = await self._look(request, context)
        report = _subdirectory(view, request.path) if request.path else view.report()
        return host_pb2.GetDigestResponse(digest=convert.digest_message(report))

    async def GetManifest(
        self, request: host_pb2.GetManifestRequest, context: Context
    ) -> AsyncIterator[host_pb2.GetManifestResponse]:
        """Stream every entry of the workspace."""
        view = await self._look(request, context)
        yield host_pb2.GetManifestResponse(digest=convert.digest_message(view.report()))
        for batch in listing.batches(listing.manifest_entries(view)):
            yield host_pb2.GetManifestResponse(entries=batch)

    async def _look(
        self,
        request: host_pb2.GetDigestRequest | host_pb2.GetManifestRequest,
        context: Context,
    ) -> View:
        return await self._pipeline.look(
            deadline=_deadline(context),
            level=convert.scan_level(request.scan),
            scheme=convert.digest_scheme(request.scheme),
        )

    async def GetChanges(
        self, request: host_pb2.GetChangesRequest, context: Context
    ) -> AsyncIterator[host_pb2.GetChangesResponse]:
        """Stream the whole change list of one receipt."""
        row = await self._receipt(request.receipt)
        rest = b""
        async for part in self._ledger.changes(row):
            lines, newline, rest = (rest + part).rpartition(b"\n")
            if newline:
                yield listing.changes_message(lines + newline)
        if rest:
            raise LedgerError("the stored change list breaks off; the ledger is damaged")

    async def GetReceipt(
        self, request: host_pb2.GetReceiptRequest, context: Context
    ) -> host_pb2.GetReceiptResponse:
        """Return one stored receipt with its output."""
        row = await self._receipt(request.receipt)
        outcome = Outcome(row, await self._ledger.output(row), replayed=True)
        return host_pb2.GetReceiptResponse(outcome=convert.outcome_message(outcome))

    async def ListReceipts(
        self, request: host_pb2.ListReceiptsRequest, context: Context
    ) -> host_pb2.ListReceiptsResponse:
        """List the chain, page by page."""
        size = min(request.page_size or _PAGE, _MAX_PAGE)
        rows = await self._ledger.receipts(
            after_sequence=min(request.after_sequence, MAX_SAFE_INTEGER),
            limit=size + 1,
            session_id=request.session_id,
        )
        page = listing.first_page(rows[:size])
        more = len(page) < len(rows)
        return host_pb2.ListReceiptsResponse(
            receipts=[convert.receipt_message(row) for row in page],
            next_after_sequence=page[-1].sequence if more else 0,
        )

    async def _receipt(self, selector: receipt_pb2.ReceiptSelector) -> ReceiptRow:
        return await self._ledger.receipt(**_receipt_selector(selector))


def _deadline(context: Context) -> float | None:
    """Return the loop time at which a call gives its place in the queue up; None for never.

    A little before the caller's own deadline: else its answer would come too
    late, and the caller could not tell that nothing ran.
    """
    remaining = context.time_remaining()
    # gRPC says "no deadline" with None or with a time centuries away.
    if remaining is None or remaining > _NO_DEADLINE_S:
        return None
    return asyncio.get_running_loop().time() + remaining - min(_ANSWER_S, remaining * _ANSWER_PART)


async def _events(found: LiveExecution | Outcome) -> AsyncIterator[execution_pb2.ExecuteToolEvent]:
    if isinstance(found, Outcome):
        yield convert.event_message(found)
        return
    async for event in found.events():
        yield convert.event_message(event)


def _execution_selector(selector: execution_pb2.ExecutionSelector) -> tuple[str, str]:
    by = selector.WhichOneof("by")
    if by == "execution_id" and selector.execution_id:
        return selector.execution_id, ""
    if by == "idempotency_key" and selector.idempotency_key:
        return "", selector.idempotency_key
    raise RequestError("set exactly one way to name the execution", field="execution.by")


def _receipt_selector(selector: receipt_pb2.ReceiptSelector) -> dict[str, Any]:
    match selector.WhichOneof("by"):
        case "sequence" if selector.sequence > 0:
            return {"sequence": min(selector.sequence, MAX_SAFE_INTEGER)}
        case "payload_sha256" if _SHA256.fullmatch(selector.payload_sha256):
            return {"payload_digest": selector.payload_sha256}
        case "execution_id" if selector.execution_id:
            return {"execution_id": selector.execution_id}
        case "idempotency_key" if selector.idempotency_key:
            return {"idempotency_key": selector.idempotency_key}
    raise RequestError(
        "set exactly one way to name the receipt, to a value; a hash is 64 lower-case hex digits",
        field="receipt.by",
    )


def _begun(accepted: Accepted) -> host_pb2.BeginObservationResponse:
    return host_pb2.BeginObservationResponse(
        execution_id=accepted.execution_id,
        idempotency_key=accepted.idempotency_key,
        before=convert.digest_message(accepted.before),
    )


def _claimed(request: host_pb2.EndObservationRequest) -> ToolResult:
    if not request.execution_id:
        raise RequestError("name the observation", field="execution_id")
    if len(request.result) > _MAX_CLAIM_BYTES:
        raise RequestError(f"a claimed result has at most {_MAX_CLAIM_BYTES} bytes", field="result")
    if not _is_utf8(request.result):
        raise RequestError("a claimed result is text in UTF-8", field="result")
    exit_code = request.exit_code if request.HasField("exit_code") else None
    signal = request.signal if request.HasField("signal") else None
    if signal is not None and (exit_code is not None or not 0 < signal <= _MAX_SIGNAL):
        raise RequestError(
            f"a signal is 1 to {_MAX_SIGNAL}, and what it ended has no exit code", field="signal"
        )
    return ToolResult(result=request.result, exit_code=exit_code, signal=signal)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _subdirectory(view: View, path: str) -> DigestReport:
    """Return the report of one directory of a view."""
    if view.scheme is not DigestScheme.WORKSEAL_TREE_1:
        raise RequestError("only workseal-tree/1 has digests of directories", field="path")
    try:
        raw = unescape_path(path)
    except InvalidInputError as error:
        raise RequestError(str(error), field="path") from error
    node = lookup(view.tree, raw)
    if not isinstance(node, Directory):
        raise NotFoundError("no such directory in the workspace")
    beneath = escape_path(raw) + "/"
    whole = view.report()
    return replace(
        whole,
        digest=node.digest.hex(),
        entries=count_entries(node),
        unreadable=tuple(item for item in whole.unreadable if item.startswith(beneath)),
        unstable=tuple(item for item in whole.unstable if item.startswith(beneath)),
    )
