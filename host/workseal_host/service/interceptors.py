"""What happens around every call: token, form of the request, error mapping, log line.

Invariants: without the host's token nothing is answered but health checks, not
even whether a method exists; a request that is malformed, or that asks for
something this host does not know, never reaches a handler; every error of the
service leaves through :mod:`workseal_host.service.errors`. No log line holds
anything that a caller sent but the name of a known method.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeAlias

import grpc
import structlog
from google.protobuf.message import DecodeError, Message

from workseal_host.errors import HostError, RequestError
from workseal_host.service.errors import (
    Context,
    MappedError,
    abort,
    map_error,
    map_malformed,
    map_unauthenticated,
    map_unforeseen,
)

log = structlog.get_logger("workseal.service")

# A text: the class takes no parameters at run time.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Continuation: TypeAlias = Callable[[grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any]"]]

_OPEN_SERVICE = "/grpc.health.v1.Health/"
# What a request becomes that could not be parsed.
_MALFORMED = object()


class TokenInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Refuse every call without the host's token, health checks excepted.

    Args:
        token: the secret; compared in constant time, never logged.
    """

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        """Pass the call on, or put a handler in its place that refuses it."""
        handler = await continuation(handler_call_details)
        if self._is_allowed(handler_call_details):
            return handler
        known = None if handler is None else handler_call_details.method
        log.warning("call refused", method=known, reason="token missing or wrong")
        return _refusing(handler)

    def _is_allowed(self, details: grpc.HandlerCallDetails) -> bool:
        if details.method.startswith(_OPEN_SERVICE):
            return True
        given = [value for key, value in details.invocation_metadata or () if key == "authorization"]
        # Two headers: which one counts would be a matter of taste, so neither does.
        if len(given) != 1:
            return False
        value = given[0].encode() if isinstance(given[0], str) else given[0]
        # The scheme's name is case-insensitive (RFC 9110, section 11.1); the token is not.
        scheme, _, token = value.partition(b" ")
        return hmac.compare_digest(token, self._token) and scheme.lower() == b"bearer"


def _refusing(handler: Handler | None) -> Handler:
    async def refuse(_: Any, context: Context) -> None:
        await abort(context, map_unauthenticated())

    async def refuse_stream(_: Any, context: Context) -> AsyncIterator[Any]:
        await refuse(_, context)
        yield None

    if handler is None or not (handler.request_streaming or handler.response_streaming):
        return grpc.unary_unary_rpc_method_handler(refuse)
    if not handler.request_streaming:
        return grpc.unary_stream_rpc_method_handler(refuse_stream)
    if handler.response_streaming:
        return grpc.stream_stream_rpc_method_handler(refuse_stream)
    return grpc.stream_unary_rpc_method_handler(refuse)


class BoundaryInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Stand between gRPC and the handlers of one service, whose requests are all unary.

    Args:
        service: full name of the service; calls of others pass untouched.
    """

    def __init__(self, service: str) -> None:
        self._prefix = f"/{service}/"

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        """Put the boundary around the handler."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not method.startswith(self._prefix):
            return handler
        return _bounded(handler, method.removeprefix(self._prefix))


def _bounded(handler: Any, method: str) -> Handler:
    async def unary(request: Any, context: Context) -> Any:
        async with _boundary(context, method):
            return await handler.unary_unary(await _well_formed(request, context), context)

    async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
        async with (
            _boundary(context, method),
            # Closed at once when the caller leaves, not when memory is cleaned up.
            aclosing(handler.unary_stream(await _well_formed(request, context), context)) as answers,
        ):
            async for answer in answers:
                yield answer

    parse = _forgiving(handler.request_deserializer)
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(stream, parse, handler.response_serializer)
    return grpc.unary_unary_rpc_method_handler(unary, parse, handler.response_serializer)


def _forgiving(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Parse, but leave the refusal to the handler: gRPC's own would say INTERNAL and nothing else."""

    def parse_or_mark(data: bytes) -> Any:
        try:
            return parse(data)
        except (DecodeError, ValueError):  # protobuf in pure Python lets UnicodeDecodeError through
            return _MALFORMED

    return parse_or_mark


async def _well_formed(request: Any, context: Context) -> Any:
    if request is _MALFORMED:
        await abort(context, map_malformed())
    refuse_unknown_fields(request)
    return request


def refuse_unknown_fields(message: Message) -> None:
    """Refuse a request with fields that this host does not know, at any depth.

    A newer client may ask for a condition or limit there; going on without it
    would be failing open.

    Raises:
        RequestError: there are such fields.
    """
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    if known.ByteSize() != message.ByteSize():
        raise RequestError(
            "the request has fields that this host does not know; upgrade the host", field="request"
        )


@asynccontextmanager
async def _boundary(context: Context, method: str) -> AsyncIterator[None]:
    """Map errors, and log how the call ended."""
    started_ns = time.monotonic_ns()
    try:
        yield
    except HostError as error:
        mapped = map_error(error)
    except grpc.aio.AbortError:
        raise
    except Exception:  # the one boundary: details go to the log, never to the caller
        log.exception("unforeseen error", method=method)
        mapped = map_unforeseen()
    else:
        log.debug("call answered", method=method, duration_ms=_since_ms(started_ns))
        return
    _log_error(method, mapped, started_ns)
    await abort(context, mapped)


def _log_error(method: str, mapped: MappedError, started_ns: int) -> None:
    # Not the message: it may quote the request.
    log.info("call failed", method=method, reason=mapped.reason, duration_ms=_since_ms(started_ns))


def _since_ms(started_ns: int) -> int:
    return (time.monotonic_ns() - started_ns) // 1_000_000
