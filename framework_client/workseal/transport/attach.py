"""Follow one execution to its outcome, across dropped streams.

A stream that breaks says nothing about the tool. The next step is always one
that cannot run anything twice: wait for the execution by its key; where the
host knows no such key, nothing ran, and the same request with the same key is
sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from workseal.errors import HostError
from workseal.results import Accepted, HostResult, OutputChunk
from workseal.retry import Attempts
from workseal.transport import convert
from workseal.transport.errors import Failure, failure_of, protocol_error
from workseal.transport.wire import Wire
from workseal.v1 import execution_pb2, host_pb2

_STREAMS = {
    execution_pb2.OUTPUT_STREAM_STDOUT: "stdout",
    execution_pb2.OUTPUT_STREAM_STDERR: "stderr",
}
_CLOSE_S = 2.0
_ENDED_EARLY = Failure(grpc.StatusCode.UNAVAILABLE, "the stream ended before the outcome")


@dataclass(slots=True)
class Listener:
    """Hands on what is heard of an execution, each byte of output at most once.

    Args:
        on_output: called with each new piece of output.
        on_accepted: called once, when the call has begun.
    """

    on_output: Callable[[OutputChunk], None] | None = None
    on_accepted: Callable[[Accepted], None] | None = None
    execution_id: str = ""
    _delivered: dict[str, int] = field(default_factory=dict)

    def accepted(self, message: execution_pb2.Accepted) -> None:
        """Take the news that the call has begun."""
        first = not self.execution_id
        self.execution_id = message.execution_id
        if first and self.on_accepted is not None:
            self.on_accepted(convert.accepted(message))

    def output(self, message: execution_pb2.OutputChunk) -> None:
        """Take a piece of output; after re-attaching, the host may repeat some."""
        stream = _STREAMS.get(message.stream)
        if stream is None or self.on_output is None:
            return
        known = self._delivered.get(stream, 0)
        data = message.data[max(0, known - message.offset) :]
        if data:
            end = message.offset + len(message.data)
            self._delivered[stream] = end
            self.on_output(OutputChunk(stream, end - len(data), data))


async def follow(
    wire: Wire,
    request: execution_pb2.ExecuteToolRequest | None,
    selector: execution_pb2.ExecutionSelector,
    attempts: Attempts,
    listener: Listener,
) -> HostResult:
    """Start an execution, or attach to one, and return its outcome.

    Args:
        wire: the connection.
        request: what to execute, with its key; ``None`` only attaches.
        selector: names the execution.
        attempts: bounds of repetition.
        listener: what to tell meanwhile.

    Raises:
        HostError: as the host answered.
        HostUnreachableError: no outcome within the deadline.
    """
    waiting = request is None
    wait_request = host_pb2.WaitExecutionRequest(execution=selector)
    while True:
        if waiting or request is None:
            call = wire.start(wire.stub.WaitExecution, wait_request, attempts.remaining_s)
        else:
            call = wire.start(wire.stub.ExecuteTool, request, attempts.remaining_s)
        failure = await _attempt(call, listener)
        if isinstance(failure, HostResult):
            return failure
        unknown_key = waiting and request is not None and _is_free(failure)
        if not (unknown_key or failure.is_transient) or not await attempts.again(failure.retry_after_s):
            raise _error(failure, unknown_key)
        waiting = request is None or (not unknown_key and (waiting or failure.is_break))


def _is_free(failure: Failure) -> bool:
    """Whether the answer to a wait means that nothing runs under the key."""
    return failure.code is grpc.StatusCode.NOT_FOUND or failure.reason == "QUEUE_TIMEOUT"


def _error(failure: Failure, unknown_key: bool) -> HostError:
    return _ENDED_EARLY.to_error() if unknown_key else failure.to_error()


async def _attempt(call: Any, listener: Listener) -> HostResult | Failure:
    try:
        while isinstance(event := await call.read(), execution_pb2.ExecuteToolEvent):
            match event.WhichOneof("event"):
                case "accepted":
                    listener.accepted(event.accepted)
                case "output":
                    listener.output(event.output)
                case "outcome":
                    result = convert.host_result(event.outcome, execution_id=listener.execution_id)
                    await _finish(call)
                    return result
    except grpc.aio.AioRpcError as error:
        return failure_of(error)
    finally:
        call.cancel()  # no effect on a call that is over; never reaches the tool
    return _ENDED_EARLY


async def _finish(call: Any) -> None:
    """Let the host close the stream, and refuse anything after the outcome."""
    try:
        async with asyncio.timeout(_CLOSE_S):
            extra: Message | object = await call.read()
    except (TimeoutError, grpc.aio.AioRpcError):
        return  # the outcome is here; how the stream ends adds nothing to it
    if isinstance(extra, Message):
        raise protocol_error("an event after the outcome")
