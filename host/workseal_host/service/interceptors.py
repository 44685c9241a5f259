"""What happens around every call: token check, log line."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import structlog

from workseal_host.service.errors import abort_unauthenticated

log = structlog.get_logger("workseal.service")

_OPEN_METHODS = ("/grpc.health.v1.Health/",)


class TokenInterceptor(grpc.aio.ServerInterceptor):
    """Refuse every call without the host's token, health checks excepted.

    Args:
        token: the secret; compared in constant time, never logged.
    """

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any]]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """Pass the call on, or put a handler in its place that refuses it."""
        handler = await continuation(handler_call_details)
        if handler is None or self._is_allowed(handler_call_details):
            return handler
        log.warning("call refused", method=handler_call_details.method, reason="token missing or wrong")
        return _refusing(handler)

    def _is_allowed(self, details: grpc.HandlerCallDetails) -> bool:
        if details.method.startswith(_OPEN_METHODS):
            return True
        given = [value for key, value in details.invocation_metadata or () if key == "authorization"]
        values = [value.encode() if isinstance(value, str) else value for value in given]
        return len(values) == 1 and hmac.compare_digest(values[0], self._expected)


def _refusing(handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.RpcMethodHandler[Any, Any]:
    async def refuse(_: Any, context: grpc.aio.ServicerContext) -> None:
        await abort_unauthenticated(context)

    async def refuse_stream(_: Any, context: grpc.aio.ServicerContext) -> Any:
        await abort_unauthenticated(context)
        yield None

    if handler.request_streaming:
        make = grpc.stream_stream_rpc_method_handler
        return (
            make(refuse_stream)
            if handler.response_streaming
            else grpc.stream_unary_rpc_method_handler(refuse)
        )
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(refuse_stream)
    return grpc.unary_unary_rpc_method_handler(refuse)
