"""The client of one host.

Every answer is handed on as the host gave it: nothing here is verified, and no
token ever leaves the call metadata. Each RPC has a deadline, apart from the
time-out of the tool; leaving a call never ends the tool.
"""

from __future__ import annotations

from collections.abc import Callable

from workseal.calls import Precondition, ToolCall
from workseal.errors import InvalidInputError
from workseal.results import Accepted, HostResult, Observation, OutputChunk, Selector
from workseal.tools import ToolExecution
from workseal.transport import convert
from workseal.transport.attach import Listener, follow
from workseal.transport.connection import Deadlines
from workseal.transport.reader import Reader
from workseal.v1 import execution_pb2, host_pb2

__all__ = ["Deadlines", "HostClient"]

OnOutput = Callable[[OutputChunk], None]
OnAccepted = Callable[[Accepted], None]


def _require_call(call: object) -> None:
    """Refuse what looks like a call; a stored one is easily given by mistake."""
    if not isinstance(call, ToolCall):
        raise InvalidInputError(
            f"a {type(call).__name__} cannot be sent: give a ToolCall; of a PendingCall, call.to_tool_call()",
            field="call",
        )


class HostClient(Reader):
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

    async def idempotency_key(self, call: ToolCall) -> str:
        """Return the key under which this host runs a call.

        Args:
            call: its own key holds; else the default one of this workspace.
        """
        return call.key(await self.workspace_id())

    async def execute(
        self,
        call: ToolCall,
        *,
        timeout_s: float | None = None,
        deadline_s: float | None = None,
        execution: ToolExecution | None = None,
        precondition: Precondition | None = None,
        workspace_id: str = "",
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
            workspace_id: the workspace that the call is for; empty: the host is asked for its own.
            on_output: called with output while the tool runs.
            on_accepted: called once when it has begun.

        Returns:
            The outcome, not verified.

        Raises:
            InvalidInputError: ``call`` is no ``ToolCall``, or the time-out is not positive.
            KeyConflictError: the key names another request.
            QueueTimeoutError: the deadline passed in the queue; nothing ran.
            HostUnreachableError: no outcome within the deadline; ask again.
            HostError: the host did not do it, or cannot prove it.
        """
        _require_call(call)
        if timeout_s is not None and not timeout_s > 0:
            raise InvalidInputError("a time-out is a positive number of seconds", field="timeout_s")
        key = call.key(workspace_id) if workspace_id else await self.idempotency_key(call)
        request = execution_pb2.ExecuteToolRequest(
            call=convert.call_ref(call),
            tool=call.tool,
            arguments_json=call.arguments_json,
            idempotency_key=call.idempotency_key or key,
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
            InvalidInputError: ``call`` is no ``ToolCall``.
            HostError: as the host answered.
        """
        _require_call(call)
        wire = self._wire
        message = await wire.unary(
            wire.stub.BeginObservation,
            host_pb2.BeginObservationRequest(
                call=convert.call_ref(call),
                tool=call.tool,
                arguments_json=call.arguments_json,
                idempotency_key=call.idempotency_key or await self.idempotency_key(call),
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
