"""The client of one host.

Every answer is handed on as the host gave it: nothing here is verified, and no
token ever leaves the call metadata. Each RPC has a deadline, apart from the
time-out of the tool; leaving a call never ends the tool.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from workseal.calls import Precondition, ToolCall
from workseal.errors import InvalidInputError, NotVerifiedError
from workseal.results import (
    Accepted,
    ChainEntry,
    HostInfo,
    HostResult,
    Manifest,
    Observation,
    OutputChunk,
    Selector,
    WorkspaceDigest,
)
from workseal.retry import RetryPolicy, Timing
from workseal.tools import ToolExecution
from workseal.transport import convert
from workseal.transport.attach import Listener, follow
from workseal.transport.channel import TlsConfig, Token, normalise_target, read_token
from workseal.transport.errors import protocol_error
from workseal.transport.wire import Wire
from workseal.v1 import execution_pb2, host_pb2

OnOutput = Callable[[OutputChunk], None]
OnAccepted = Callable[[Accepted], None]


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long the client waits for an answer, in seconds.

    Args:
        call_s: for what the host answers from its records.
        scan_s: for what makes it read the workspace, or wait for it.
        execute_s: for a tool without a time-out of its own in the request.
        grace_s: added to the tool's time-out where the request has one: queue, scans, ending it.
    """

    call_s: float = 30.0
    scan_s: float = 600.0
    execute_s: float = 1200.0
    grace_s: float = 600.0


class HostClient:
    """A connection to one host; use it as ``async with HostClient(...) as client``.

    Args:
        target: path of the host's socket, ``unix:`` URI, or ``host:port`` with ``tls``.
        token: the bearer token; or
        token_file: file to read it from when connecting.
        tls: how to authenticate a host behind TCP.
        deadlines: how long to wait.
        retry: when to ask again.
        timing: clock, sleep and randomness.

    Raises:
        InvalidInputError: not exactly one of ``token`` and ``token_file``, a bad target, or TCP without TLS.
    """

    def __init__(
        self,
        target: str | os.PathLike[str],
        *,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        tls: TlsConfig | None = None,
        deadlines: Deadlines | None = None,
        retry: RetryPolicy | None = None,
        timing: Timing | None = None,
    ) -> None:
        if (token is None) == (token_file is None):
            raise InvalidInputError("give either `token` or `token_file`", field="token")
        self._target = normalise_target(target)
        if tls is None and not self._target.startswith("unix:"):
            raise InvalidInputError("a host behind TCP needs `tls`", field="target")
        self._token = None if token is None else Token(token)
        self._token_file = token_file
        self._tls = tls
        self._deadlines = deadlines or Deadlines()
        self._retry = retry or RetryPolicy()
        self._timing = timing or Timing()
        self._open: Wire | None = None
        self._workspace_id = ""

    def __repr__(self) -> str:
        return f"HostClient({self._target!r})"

    async def __aenter__(self) -> Self:
        token = self._token
        if token is None and self._token_file is not None:
            token = read_token(self._token_file)
        if token is not None:
            self._open = Wire(self._target, token, self._tls, self._retry, self._timing)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is not None:
            wire, self._open = self._open, None
            await wire.close()

    @property
    def _wire(self) -> Wire:
        if self._open is None:
            raise InvalidInputError("not connected: use `async with HostClient(...) as client`")
        return self._open

    async def host_info(self) -> HostInfo:
        """Ask the host who it is. For display: no reason to trust its key.

        Raises:
            HostError: as the host answered.
        """
        wire = self._wire
        message = await wire.unary(
            wire.stub.GetHostInfo,
            host_pb2.GetHostInfoRequest(),
            host_pb2.GetHostInfoResponse,
            deadline_s=self._deadlines.call_s,
        )
        return convert.host_info(message)

    async def workspace_id(self) -> str:
        """Return the id that the host gives for its workspace, asked once."""
        if not self._workspace_id:
            self._workspace_id = (await self.host_info()).workspace_id
        return self._workspace_id

    async def idempotency_key(self, call: ToolCall) -> str:
        """Return the key under which this host runs a call.

        Args:
            call: its own key holds; else the default one of this workspace.
        """
        return call.idempotency_key or call.key(await self.workspace_id())

    async def execute(
        self,
        call: ToolCall,
        *,
        timeout_s: float | None = None,
        deadline_s: float | None = None,
        execution: ToolExecution | None = None,
        precondition: Precondition | None = None,
        on_output: OnOutput | None = None,
        on_accepted: OnAccepted | None = None,
    ) -> HostResult:
        """Have a tool run once, and return its outcome however often this is asked.

        A dropped connection re-attaches; the same call again replays the stored
        outcome. The request must then be the same, time-out and precondition included.

        Args:
            call: what to run.
            timeout_s: when the host ends the tool, in seconds; ``None`` for the tool's own.
            deadline_s: how long to wait here, in seconds; passing it never ends the tool.
            execution: the caller's declaration; the host takes the stricter of it and its own.
            precondition: what must hold, else the outcome is a ``refused`` receipt.
            on_output: called with output while the tool runs.
            on_accepted: called once when it has begun.

        Returns:
            The outcome, not verified.

        Raises:
            KeyConflictError: the key names another request.
            QueueTimeoutError: the deadline passed in the queue; nothing ran.
            HostUnreachableError: no outcome within the deadline; ask again.
            HostError: the host did not do it, or cannot prove it.
        """
        if timeout_s is not None and not timeout_s > 0:
            raise InvalidInputError("a time-out is a positive number of seconds", field="timeout_s")
        key = await self.idempotency_key(call)
        request = execution_pb2.ExecuteToolRequest(
            call=convert.call_ref(call),
            tool=call.tool,
            arguments_json=call.arguments_json,
            idempotency_key=key,
            side_effects=None if execution is None else convert.side_effects(execution),
            precondition=None if precondition is None else convert.precondition(precondition),
            limits=None if timeout_s is None else execution_pb2.Limits(timeout=convert.duration(timeout_s)),
        )
        return await self._follow(
            request,
            Selector(idempotency_key=key),
            deadline_s if deadline_s is not None else self._execution_deadline(timeout_s),
            Listener(on_output, on_accepted),
        )

    async def wait(
        self,
        selector: Selector,
        *,
        deadline_s: float | None = None,
        on_output: OnOutput | None = None,
    ) -> HostResult:
        """Attach to an execution and return its outcome, not verified.

        Args:
            selector: its id or key.
            deadline_s: how long to wait, in seconds.
            on_output: called with output from now on.

        Raises:
            HostError: as the host answered; code ``NOT_FOUND``: nothing ran under that name.
            HostUnreachableError: no outcome within the deadline.
        """
        deadline_s = deadline_s if deadline_s is not None else self._execution_deadline(None)
        return await self._follow(None, selector, deadline_s, Listener(on_output))

    async def cancel(self, selector: Selector) -> bool:
        """Ask for an execution to be ended; it still gets a receipt.

        Args:
            selector: its id or key.

        Returns:
            Whether it was asked for in time.

        Raises:
            HostError: as the host answered.
        """
        wire = self._wire
        message = await wire.unary(
            wire.stub.CancelExecution,
            host_pb2.CancelExecutionRequest(execution=convert.selector(selector)),
            host_pb2.CancelExecutionResponse,
            deadline_s=self._deadlines.call_s,
        )
        return message.cancelling

    async def begin_observation(
        self, call: ToolCall, *, ttl_s: float | None = None, precondition: Precondition | None = None
    ) -> Observation:
        """Say that somebody else is about to run a tool.

        Args:
            call: what will be run; the tool need not be one of the host's.
            ttl_s: how long the host waits for the end, in seconds; ``None`` for its own.
            precondition: what must hold.

        Raises:
            HostError: as the host answered.
        """
        wire = self._wire
        message = await wire.unary(
            wire.stub.BeginObservation,
            host_pb2.BeginObservationRequest(
                call=convert.call_ref(call),
                tool=call.tool,
                arguments_json=call.arguments_json,
                idempotency_key=await self.idempotency_key(call),
                precondition=None if precondition is None else convert.precondition(precondition),
                ttl=None if ttl_s is None else convert.duration(ttl_s),
            ),
            host_pb2.BeginObservationResponse,
            deadline_s=self._deadlines.scan_s,
        )
        return convert.observation(message)

    async def end_observation(
        self,
        execution_id: str,
        *,
        result: bytes = b"",
        exit_code: int | None = None,
        signal: int | None = None,
    ) -> HostResult:
        """Say that the tool has ended, and return the attested interval, not verified.

        Args:
            execution_id: from ``begin_observation``.
            result: what it returned, UTF-8; the receipt marks it as the caller's claim.
            exit_code: what its exit code was; ``None``: unknown.
            signal: what ended it; ``None``: none.

        Raises:
            HostError: as the host answered.
        """
        wire = self._wire
        message = await wire.unary(
            wire.stub.EndObservation,
            host_pb2.EndObservationRequest(
                execution_id=execution_id, result=result, exit_code=exit_code, signal=signal
            ),
            host_pb2.EndObservationResponse,
            deadline_s=self._deadlines.scan_s,
        )
        return convert.host_result(message.outcome, execution_id=execution_id)

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
            if page.next_after_sequence <= cursor:
                raise protocol_error("pages that do not advance")
            cursor = page.next_after_sequence

    def _execution_deadline(self, timeout_s: float | None) -> float:
        if timeout_s is None:
            return self._deadlines.execute_s
        return timeout_s + self._deadlines.grace_s

    async def _follow(
        self,
        request: execution_pb2.ExecuteToolRequest | None,
        selector: Selector,
        deadline_s: float,
        listener: Listener,
    ) -> HostResult:
        wire = self._wire
        return await follow(wire, request, convert.selector(selector), wire.attempts(deadline_s), listener)
