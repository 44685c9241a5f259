"""From the host's errors to gRPC status with rich details. The only place that does it.

Every status carries google.rpc.ErrorInfo; the reasons are listed in `host.proto`.
What a caller did not cause is logged here, and told to it without details.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import grpc
import structlog
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from workseal_host.errors import (
    ArgumentsError,
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

#: What gRPC hands to every handler. A text: the class takes no parameters at run time.
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

DOMAIN = "workseal"
_DETAILS_KEY = "grpc-status-details-bin"
# Status and details travel as metadata, of which gRPC takes 8 KiB by default: the text is in it three
# times, once percent-encoded. A longer one would arrive as an error about metadata.
_MAX_TEXT_BYTES = 600


@dataclass(frozen=True, slots=True)
class MappedError:
    """A gRPC status before it is sent.

    Args:
        code: the status code.
        reason: reason of its ErrorInfo.
        message: text for people.
        details: further details.
    """

    code: grpc.StatusCode
    reason: str
    message: str
    details: tuple[Message, ...] = ()


def _clipped(text: str) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= _MAX_TEXT_BYTES:
        return data.decode("utf-8")
    return data[:_MAX_TEXT_BYTES].decode("utf-8", "ignore") + "..."


def _retry(seconds: float) -> error_details_pb2.RetryInfo:
    delay = duration_pb2.Duration()
    delay.FromNanoseconds(int(seconds * 1e9))
    return error_details_pb2.RetryInfo(retry_delay=delay)


def _violation(kind: str, subject: str, description: str) -> error_details_pb2.PreconditionFailure:
    violation = error_details_pb2.PreconditionFailure.Violation(
        type=kind, subject=subject, description=description
    )
    return error_details_pb2.PreconditionFailure(violations=[violation])


def _bad_request(field: str, description: str) -> error_details_pb2.BadRequest:
    violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=description)
    return error_details_pb2.BadRequest(field_violations=[violation])


def map_error(error: HostError) -> MappedError:  # noqa: PLR0911 - one row per kind of error
    """Return the status that an error of the host becomes."""
    text = _clipped(str(error))
    code = grpc.StatusCode
    match error:
        case RequestError():
            details = (_bad_request(error.field, text),)
            return MappedError(code.INVALID_ARGUMENT, "INVALID_REQUEST", text, details)
        case ArgumentsError():
            details = (_bad_request("arguments_json", text),)
            return MappedError(code.INVALID_ARGUMENT, "INVALID_REQUEST", text, details)
        case NotFoundError():
            return MappedError(code.NOT_FOUND, "NOT_FOUND", text)
        case KeyConflictError():
            return MappedError(code.ALREADY_EXISTS, "KEY_CONFLICT", text)
        case QueueTimeoutError():
            return MappedError(code.DEADLINE_EXCEEDED, "QUEUE_TIMEOUT", text, (_retry(1),))
        case BusyError():
            return _busy(error, text)
        case RootReplacedError():
            return _failed_precondition("ROOT_REPLACED", "", text)
        case WorkspaceError():
            return _failed_precondition("WORKSPACE_UNREADABLE", _clipped(error.path_text), text)
        case StateError():
            return _failed_precondition("WRONG_STATE", "", text)
        case LedgerError():
            log.error("ledger unavailable", error=str(error))
            return MappedError(code.UNAVAILABLE, "LEDGER_UNAVAILABLE", text)
    log.error("the host cannot go on with a call", kind=type(error).__name__, error=str(error))
    return MappedError(code.INTERNAL, "INTERNAL", text)


def _busy(error: BusyError, text: str) -> MappedError:
    retry = (_retry(error.retry_after_s),)
    if error.stopping:
        return MappedError(grpc.StatusCode.UNAVAILABLE, "SHUTTING_DOWN", text, retry)
    return MappedError(grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_CALLS", text, retry)


def _failed_precondition(reason: str, subject: str, text: str) -> MappedError:
    detail = _violation(reason, subject, text)
    return MappedError(grpc.StatusCode.FAILED_PRECONDITION, reason, text, (detail,))


def map_unforeseen() -> MappedError:
    """Return the status of an error that nobody raised on purpose: its text is not for callers."""
    return MappedError(grpc.StatusCode.INTERNAL, "INTERNAL", "a fault of the host; its log has the details")


def map_malformed() -> MappedError:
    """Return the status of a request that is not even a message of its type."""
    text = "the request is not a valid message of its type: check the .proto, and that all text is UTF-8"
    return MappedError(
        grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", text, (_bad_request("request", text),)
    )


def map_unauthenticated() -> MappedError:
    """Return the status of a call that has no valid token."""
    message = "token missing or wrong: send `authorization: Bearer <token>` from the host's token file"
    return MappedError(grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED", message)


def _packed(message: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


async def abort(context: Context, mapped: MappedError) -> NoReturn:
    """End a call with a status and its details."""
    info = error_details_pb2.ErrorInfo(reason=mapped.reason, domain=DOMAIN)
    status = status_pb2.Status(
        code=mapped.code.value[0],
        message=mapped.message,
        details=[_packed(detail) for detail in (info, *mapped.details)],
    )
    await context.abort(mapped.code, mapped.message, ((_DETAILS_KEY, status.SerializeToString()),))
    raise RuntimeError("abort returned")
