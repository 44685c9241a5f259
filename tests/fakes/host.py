"""A host without a workspace: a real gRPC server on a Unix socket, with faults on demand.

It keeps the contract of idempotency (one run per key, stored outcome replayed,
conflict on another request) and counts runs, so that tests can say "ran once".
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2

from workseal.v1 import execution_pb2, host_pb2, host_pb2_grpc, receipt_pb2, workspace_pb2

TOKEN = "fake-token-0123456789"
WORKSPACE_ID = "0" * 31 + "1"
CHAIN_ID = "c" * 32

Hook = Callable[[], Awaitable[None]]
Sign = Callable[[execution_pb2.ExecuteToolRequest, int], bytes]


class RpcFault(Exception):
    """What a hook raises to end the RPC with an error of the host."""

    def __init__(
        self,
        code: grpc.StatusCode,
        reason: str = "",
        *,
        message: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message or reason)
        self.code = code
        self.reason = reason
        self.retry_after_s = retry_after_s


class EndStream(Exception):
    """What a hook raises to end a stream without an outcome and without an error."""


def pack(message: Any) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


async def abort(context: grpc.aio.ServicerContext, fault: RpcFault) -> None:
    details = []
    if fault.reason:
        details.append(pack(error_details_pb2.ErrorInfo(reason=fault.reason, domain="workseal")))
    if fault.reason == "INVALID_REQUEST":
        violation = error_details_pb2.BadRequest.FieldViolation(field="tool", description="no such tool")
        details.append(pack(error_details_pb2.BadRequest(field_violations=[violation])))
    if fault.retry_after_s is not None:
        nanos = int(fault.retry_after_s * 1e9)
        delay = duration_pb2.Duration(seconds=nanos // 10**9, nanos=nanos % 10**9)
        details.append(pack(error_details_pb2.RetryInfo(retry_delay=delay)))
    status = status_pb2.Status(code=fault.code.value[0], message=str(fault), details=details)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    await context.abort(fault.code, str(fault))


@dataclass
class Execution:
    """One claimed key."""

    request: execution_pb2.ExecuteToolRequest
    execution_id: str
    outcome: execution_pb2.Outcome | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)


class FakeHost(host_pb2_grpc.HostServiceServicer):
    """Serves one made-up workspace.

    Points for hooks: ``before-claim``, ``before-accepted``, ``after-accepted``, ``output``,
    ``after-effect``, ``wait``, ``info``, ``list``. Each hook put there is used once, in order.
    """

    def __init__(self, sign: Sign | None = None) -> None:
        self.hooks: dict[str, deque[Hook]] = defaultdict(deque)
        self.calls: list[str] = []
        self.requests: list[execution_pb2.ExecuteToolRequest] = []
        self.executions: dict[str, Execution] = {}
        self.runs: list[str] = []
        self.chain: list[receipt_pb2.Receipt] = []
        self.result = b"done\n"
        self.output: list[execution_pb2.OutputChunk] = []
        self.change_lines: list[bytes] = []
        self.next_after: list[int] = []
        self.sign = sign or (lambda request, sequence: f"envelope {sequence}".encode())
        self.tools = {"bash", "write_file", "read_file"}
        self._tasks: set[asyncio.Task[None]] = set()

    def at(self, point: str, hook: Hook | Exception) -> None:
        """Put a hook, or an exception to raise, at a point."""

        async def raise_it() -> None:
            raise hook  # type: ignore[misc]

        self.hooks[point].append(raise_it if isinstance(hook, Exception) else hook)

    async def _pass(self, point: str) -> None:
        if self.hooks[point]:
            await self.hooks[point].popleft()()

    def append(self, envelope: bytes) -> receipt_pb2.Receipt:
        """Add an entry to the chain."""
        receipt = receipt_pb2.Receipt(
            envelope=envelope,
            sequence=len(self.chain) + 1,
            payload_sha256=hashlib.sha256(envelope).hexdigest(),
            kind=receipt_pb2.RECEIPT_KIND_TOOL_EXECUTION,
        )
        self.chain.append(receipt)
        return receipt

    async def ExecuteTool(
        self, request: execution_pb2.ExecuteToolRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[execution_pb2.ExecuteToolEvent]:
        async with self._guard("ExecuteTool", context):
            self.requests.append(request)
            await self._pass("before-claim")
            if request.tool not in self.tools:
                raise RpcFault(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
            execution = self.executions.get(request.idempotency_key)
            if execution is not None and execution.request != request:
                raise RpcFault(grpc.StatusCode.ALREADY_EXISTS, "KEY_CONFLICT")
            if execution is None:
                execution = Execution(request, f"x{len(self.executions) + 1}")
                self.executions[request.idempotency_key] = execution
                # Apart from the RPC: a dropped stream must not end the tool.
                task = asyncio.get_running_loop().create_task(self._run(execution))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            async for event in self._events(execution):
                yield event

    async def WaitExecution(
        self, request: host_pb2.WaitExecutionRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[execution_pb2.ExecuteToolEvent]:
        async with self._guard("WaitExecution", context):
            await self._pass("wait")
            execution = self.executions.get(request.execution.idempotency_key)
            if execution is None:
                raise RpcFault(grpc.StatusCode.NOT_FOUND, "NOT_FOUND")
            async for event in self._events(execution):
                yield event

    async def _run(self, execution: Execution) -> None:
        self.runs.append(execution.request.tool)
        await self._pass("run")
        receipt = self.append(self.sign(execution.request, len(self.chain) + 1))
        execution.outcome = execution_pb2.Outcome(
            receipt=receipt, output=receipt_pb2.ToolOutput(result=self.result)
        )
        execution.done.set()

    async def _events(self, execution: Execution) -> AsyncIterator[execution_pb2.ExecuteToolEvent]:
        replayed = execution.done.is_set()
        if not replayed:
            await self._pass("before-accepted")
            accepted = execution_pb2.Accepted(
                execution_id=execution.execution_id, idempotency_key=execution.request.idempotency_key
            )
            yield execution_pb2.ExecuteToolEvent(accepted=accepted)
            await self._pass("after-accepted")
            for chunk in self.output:
                yield execution_pb2.ExecuteToolEvent(output=chunk)
            await self._pass("output")
            await execution.done.wait()
            await self._pass("after-effect")
        outcome = execution_pb2.Outcome()
        if execution.outcome is not None:
            outcome.CopyFrom(execution.outcome)
        outcome.replayed = replayed
        yield execution_pb2.ExecuteToolEvent(outcome=outcome)
        await self._pass("after-outcome")
        if self.hooks["extra-event"]:
            yield execution_pb2.ExecuteToolEvent(outcome=outcome)

    async def GetHostInfo(
        self, request: host_pb2.GetHostInfoRequest, context: grpc.aio.ServicerContext
    ) -> host_pb2.GetHostInfoResponse:
        async with self._guard("GetHostInfo", context):
            await self._pass("info")
            return host_pb2.GetHostInfoResponse(
                name="workseal-host",
                version="0",
                workspace_id=WORKSPACE_ID,
                chain_id=CHAIN_ID,
                scheme=workspace_pb2.DIGEST_SCHEME_WORKSEAL_TREE_1,
                scan=workspace_pb2.SCAN_LEVEL_STAT,
                tools=[host_pb2.ToolInfo(name=name) for name in sorted(self.tools)],
            )
        raise AssertionError

    async def ListReceipts(
        self, request: host_pb2.ListReceiptsRequest, context: grpc.aio.ServicerContext
    ) -> host_pb2.ListReceiptsResponse:
        async with self._guard("ListReceipts", context):
            await self._pass("list")
            size = request.page_size or 100
            rest = [entry for entry in self.chain if entry.sequence > request.after_sequence]
            following = rest[size - 1].sequence if len(rest) > size else 0
            if self.next_after:
                following = self.next_after.pop(0)
            return host_pb2.ListReceiptsResponse(receipts=rest[:size], next_after_sequence=following)
        raise AssertionError

    async def GetChanges(
        self, request: host_pb2.GetChangesRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[host_pb2.GetChangesResponse]:
        async with self._guard("GetChanges", context):
            for index, lines in enumerate(self.change_lines):
                yield host_pb2.GetChangesResponse(lines=lines)
                await self._pass(f"changes-{index}")

    async def GetDigest(
        self, request: host_pb2.GetDigestRequest, context: grpc.aio.ServicerContext
    ) -> host_pb2.GetDigestResponse:
        async with self._guard("GetDigest", context):
            digest = workspace_pb2.WorkspaceDigest(
                scheme=request.scheme or workspace_pb2.DIGEST_SCHEME_WORKSEAL_TREE_1,
                scan=request.scan or workspace_pb2.SCAN_LEVEL_STAT,
                sha256="d" * 64,
            )
            return host_pb2.GetDigestResponse(digest=digest)
        raise AssertionError

    async def GetManifest(
        self, request: host_pb2.GetManifestRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[host_pb2.GetManifestResponse]:
        async with self._guard("GetManifest", context):
            await self._pass("manifest")
            digest = workspace_pb2.WorkspaceDigest(sha256="d" * 64)
            state = workspace_pb2.EntryState(type=workspace_pb2.ENTRY_TYPE_FILE, sha256="e" * 64)
            first = workspace_pb2.ManifestEntry(path="a", state=state)
            second = workspace_pb2.ManifestEntry(path="b", state=state)
            yield host_pb2.GetManifestResponse(digest=digest, entries=[first])
            yield host_pb2.GetManifestResponse(entries=[second])

    async def GetReceipt(
        self, request: host_pb2.GetReceiptRequest, context: grpc.aio.ServicerContext
    ) -> host_pb2.GetReceiptResponse:
        async with self._guard("GetReceipt", context):
            receipt = self.chain[request.receipt.sequence - 1]
            return host_pb2.GetReceiptResponse(outcome=execution_pb2.Outcome(receipt=receipt))
        raise AssertionError

    async def CancelExecution(
        self, request: host_pb2.CancelExecutionRequest, context: grpc.aio.ServicerContext
    ) -> host_pb2.CancelExecutionResponse:
        async with self._guard("CancelExecution", context):
            return host_pb2.CancelExecutionResponse(cancelling=True)
        raise AssertionError

    async def BeginObservation(
        self, request: host_pb2.BeginObservationRequest, context: grpc.aio.ServicerContext
    ) -> host_pb2.BeginObservationResponse:
        async with self._guard("BeginObservation", context):
            before = workspace_pb2.WorkspaceDigest(sha256="d" * 64)
            return host_pb2.BeginObservationResponse(
                execution_id="o1", idempotency_key=request.idempotency_key, before=before
            )
        raise AssertionError

    async def EndObservation(
        self, request: host_pb2.EndObservationRequest, context: grpc.aio.ServicerContext
    ) -> host_pb2.EndObservationResponse:
        async with self._guard("EndObservation", context):
            outcome = execution_pb2.Outcome(receipt=self.append(b"observed"))
            return host_pb2.EndObservationResponse(outcome=outcome)
        raise AssertionError

    def _guard(self, name: str, context: grpc.aio.ServicerContext) -> _Guard:
        return _Guard(self, name, context)


class _Guard:
    """Checks the token, and turns faults into answers."""

    def __init__(self, host: FakeHost, name: str, context: grpc.aio.ServicerContext) -> None:
        self._host, self._name, self._context = host, name, context

    async def __aenter__(self) -> None:
        self._host.calls.append(self._name)
        metadata = dict(self._context.invocation_metadata() or ())
        if metadata.get("authorization") != f"Bearer {TOKEN}":
            await abort(
                self._context,
                RpcFault(grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED", message="no token"),
            )

    async def __aexit__(self, kind: Any, value: BaseException | None, trace: Any) -> bool:
        if isinstance(value, RpcFault):
            await abort(self._context, value)
        return isinstance(value, EndStream)


class Serving:
    """A fake host behind a socket, as an async context manager."""

    def __init__(self, host: FakeHost, socket: str) -> None:
        self.host, self.socket = host, socket
        self._server: grpc.aio.Server | None = None

    async def __aenter__(self) -> Serving:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start to serve (again)."""
        server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
        host_pb2_grpc.add_HostServiceServicer_to_server(self.host, server)
        server.add_insecure_port(f"unix:{self.socket}")
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Stop at once, cutting every stream."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(None)
