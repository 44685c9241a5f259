"""From the host's errors to gRPC status with rich details. The only place that does it.

Every status carries google.rpc.ErrorInfo; the reasons are listed in `host.proto`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NoReturn

import grpc
import structlog
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from workseal_host.errors import (
    BusyError,
    HostError,
    KeyConflictError,
    LedgerError,
    NotFoundError,
    QueueTimeoutError,
    RequestError,
    RootReplacedError,
    StateError,
    WorkspaceError,
)

log = structlog.get_logger("workseal.service")

DOMAIN = "workseal"
_DETAILS_KEY = "grpc-status-details-bin"


@dataclass(frozen=True, slots=True)
class _Mapped:
    code: grpc.StatusCode
    reason: str
    message: str
    details: tuple[Message, ...] = ()


def _retry(seconds: float) -> error_details_pb2.RetryInfo:
    delay = duration_pb2.Duration()
    delay.FromNanoseconds(int(seconds * 1e9))
    return error_details_pb2.RetryInfo(retry_delay=delay)


def _violation(kind: str, subject: str, description: str) -> error_details_pb2.PreconditionFailure:
    violation = error_details_pb2.PreconditionFailure.Violation(
        type=kind, subject=subject, description=description
    )
    return error_details_pb2.PreconditionFailure(violations=[violation])


def _bad_request(error: RequestError) -> error_details_pb2.BadRequest:
    violation = error_details_pb2.BadRequest.FieldViolation(field=error.field, description=str(error))
    return error_details_pb2.BadRequest(field_violations=[violation])


def _map(error: HostError) -> _Mapped:  # noqa: PLR0911 - one row per kind of error
    text = str(error)
    code = grpc.StatusCode
    match error:
        case RequestError():
            return _Mapped(code.INVALID_ARGUMENT, "INVALID_REQUEST", text, (_bad_request(error),))
        case NotFoundError():
            return _Mapped(code.NOT_FOUND, "NOT_FOUND", text)
        case KeyConflictError():
            return _Mapped(code.ALREADY_EXISTS, "KEY_CONFLICT", text)
        case QueueTimeoutError():
            return _Mapped(code.DEADLINE_EXCEEDED, "QUEUE_TIMEOUT", text, (_retry(1),))
        case BusyError() if error.stopping:
            return _Mapped(code.UNAVAILABLE, "SHUTTING_DOWN", text, (_retry(error.retry_after_s),))
        case BusyError():
            return _Mapped(code.RESOURCE_EXHAUSTED, "TOO_MANY_CALLS", text, (_retry(error.retry_after_s),))
        case RootReplacedError():
            return _Mapped(
                code.FAILED_PRECONDITION, "ROOT_REPLACED", text, (_violation("ROOT_REPLACED", "", text),)
            )
        case WorkspaceError():
            detail = _violation("WORKSPACE_UNREADABLE", error.path_text, text)
            return _Mapped(code.FAILED_PRECONDITION, "WORKSPACE_UNREADABLE", text, (detail,))
        case StateError():
            return _Mapped(
                code.FAILED_PRECONDITION, "WRONG_STATE", text, (_violation("WRONG_STATE", "", text),)
            )
        case LedgerError():
            return _Mapped(code.UNAVAILABLE, "LEDGER_UNAVAILABLE", text)
    return _Mapped(code.INTERNAL, "INTERNAL", text)


def _packed(message: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


async def _abort(context: grpc.aio.ServicerContext, mapped: _Mapped) -> NoReturn:
    info = error_details_pb2.ErrorInfo(reason=mapped.reason, domain=DOMAIN)
    status = status_pb2.Status(
        code=mapped.code.value[0],
        message=mapped.message,
        details=[_packed(detail) for detail in (info, *mapped.details)],
    )
    await context.abort(mapped.code, mapped.message, ((_DETAILS_KEY, status.SerializeToString()),))
    raise RuntimeError("abort returned")


async def abort_unauthenticated(context: grpc.aio.ServicerContext) -> NoReturn:
    """End a call that has no valid token."""
    message = "token missing or wrong: send `authorization: Bearer <token>` from the host's token file"
    await _abort(context, _Mapped(grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED", message))


@asynccontextmanager
async def mapped_errors(context: grpc.aio.ServicerContext) -> AsyncIterator[None]:
    """Turn errors of the host into gRPC status; anything unforeseen becomes INTERNAL without its text."""
    try:
        yield
    except HostError as error:
        await _abort(context, _map(error))
    except grpc.aio.AbortError:
        raise
    except Exception:  # the one boundary: details go to the log, never to the caller
        log.exception("unforeseen error")
        mapped = _Mapped(grpc.StatusCode.INTERNAL, "INTERNAL", "a fault of the host; its log has the details")
        await _abort(context, mapped)
