"""One connection to a host: calls with token, deadline and safe repetition.

Every RPC of the service may be repeated: reads change nothing, and what acts
is named by an idempotency key. What is repeated, and how often, is decided
here and in ``attach`` alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import grpc.aio
from google.protobuf.message import Message

from workseal.retry import Attempts, RetryPolicy, Timing
from workseal.transport.channel import TlsConfig, Token, open_channel
from workseal.transport.errors import failure_of, protocol_error
from workseal.v1 import host_pb2_grpc

if TYPE_CHECKING:
    from workseal.v1.host_pb2_grpc import HostServiceAsyncStub

_Response = TypeVar("_Response", bound=Message)
_T = TypeVar("_T")
Method = Callable[..., Any]


class Wire:
    """An open connection.

    Args:
        target: from ``normalise_target``.
        token: the bearer token.
        tls: for TCP.
        policy: bounds of repetition.
        timing: clock, sleep and randomness.
    """

    def __init__(
        self, target: str, token: Token, tls: TlsConfig | None, policy: RetryPolicy, timing: Timing
    ) -> None:
        self._channel = open_channel(target, tls)
        self.stub: HostServiceAsyncStub = host_pb2_grpc.HostServiceStub(self._channel)
        self._metadata = token.metadata()
        self._policy = policy
        self._timing = timing

    async def close(self) -> None:
        """Close the connection; calls in flight end, tools go on."""
        await self._channel.close(grace=None)

    def attempts(self, deadline_s: float) -> Attempts:
        """Return fresh bounds for one request."""
        return Attempts(self._policy, self._timing, deadline_s)

    def start(self, method: Method, request: Message, timeout_s: float) -> Any:
        """Start one call and return it, to be awaited or read."""
        return method(request, timeout=timeout_s, metadata=self._metadata)

    async def unary(
        self, method: Method, request: Message, expected: type[_Response], *, deadline_s: float
    ) -> _Response:
        """Make a call with one answer, repeating it while that may help.

        Raises:
            HostError: as the host answered.
            HostUnreachableError: no answer within the deadline.
        """

        async def once(timeout_s: float) -> _Response:
            message = await self.start(method, request, timeout_s)
            return _expect(message, expected)

        return await self._repeat(once, deadline_s)

    async def collect(
        self, method: Method, request: Message, expected: type[_Response], *, deadline_s: float
    ) -> list[_Response]:
        """Read a whole stream, from its start again after a break.

        Raises:
            HostError: as the host answered.
            HostUnreachableError: no complete answer within the deadline.
        """

        async def once(timeout_s: float) -> list[_Response]:
            return [_expect(message, expected) async for message in self.start(method, request, timeout_s)]

        return await self._repeat(once, deadline_s)

    async def _repeat(self, once: Callable[[float], Awaitable[_T]], deadline_s: float) -> _T:
        attempts = self.attempts(deadline_s)
        while True:
            try:
                return await once(attempts.remaining_s)
            except grpc.aio.AioRpcError as error:
                failure = failure_of(error)
                if not failure.is_transient or not await attempts.again(failure.retry_after_s):
                    raise failure.to_error() from error


def _expect(message: object, expected: type[_Response]) -> _Response:
    if not isinstance(message, expected):
        raise protocol_error(f"an answer that is no {expected.__name__}")
    return message
