"""The one place that turns gRPC errors into Workseal's.

Errors are told apart by status code and by the host's ``ErrorInfo`` reason,
never by message text. An error without the host's ErrorInfo was not made by
the host's code: the connection broke, or something stands in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

from workseal.errors import HostError, HostUnreachableError, KeyConflictError, QueueTimeoutError

DOMAIN = "workseal"
PROTOCOL = "PROTOCOL"
_DETAILS_KEY = "grpc-status-details-bin"
# What gRPC itself reports of a connection that broke, by implementation and moment.
_BROKEN = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
    }
)
_TRY_LATER = frozenset({"SHUTTING_DOWN", "TOO_MANY_CALLS", "LEDGER_UNAVAILABLE"})


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed RPC, taken apart.

    Args:
        code: status code.
        message: the host's words.
        reason: ErrorInfo reason of the host; empty when the host's code did not speak.
        metadata: ErrorInfo metadata, and the first malformed field as ``field``.
        retry_after_s: the least pause that the host asked for, in seconds.
    """

    code: grpc.StatusCode
    message: str
    reason: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    retry_after_s: float | None = None

    @property
    def is_break(self) -> bool:
        """Whether the connection broke, so that nobody knows how far the host got."""
        return not self.reason and self.code in _BROKEN

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self.is_break or self.reason in _TRY_LATER

    def to_error(self) -> HostError:
        """Return the error for the caller."""
        kind: type[HostError] = HostError
        message = self.message or f"the host answered {self.code.name}"
        if self.reason == "KEY_CONFLICT":
            kind = KeyConflictError
        elif self.reason == "QUEUE_TIMEOUT":
            kind = QueueTimeoutError
        elif self.is_break or (not self.reason and self.code is grpc.StatusCode.DEADLINE_EXCEEDED):
            kind = HostUnreachableError
            message += (
                "; whether the host acted is unknown: check that it runs, then ask again with the same key"
            )
        elif self.code is grpc.StatusCode.UNAUTHENTICATED and not self.reason:
            message = f"{message}: give the token that the host wrote to its token file"
        return kind(message, code=self.code.name, reason=self.reason, metadata=self.metadata)


def failure_of(error: grpc.aio.AioRpcError) -> Failure:
    """Take a failed RPC apart.

    Args:
        error: as raised by a call.

    Returns:
        What is known of it; details that are malformed or belong to another code are ignored.
    """
    failure = Failure(code=error.code(), message=error.details() or "")
    status = _status(error)
    if status is None or status.code != failure.code.value[0]:
        return failure
    reason, retry_after_s = "", None
    metadata: dict[str, str] = {}
    for detail in status.details:
        if (info := _unpack(detail, error_details_pb2.ErrorInfo)) and info.domain == DOMAIN:
            reason, metadata = info.reason, metadata | dict(info.metadata)
        elif (bad := _unpack(detail, error_details_pb2.BadRequest)) and bad.field_violations:
            metadata = {"field": bad.field_violations[0].field} | metadata
        elif retry := _unpack(detail, error_details_pb2.RetryInfo):
            retry_after_s = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
    return Failure(failure.code, failure.message, reason, metadata, retry_after_s)


def protocol_error(message: str) -> HostError:
    """Return the error for an answer that no host may give."""
    return HostError(f"{message}: the host does not follow the protocol", reason=PROTOCOL)


def _status(error: grpc.aio.AioRpcError) -> status_pb2.Status | None:
    for key, value in _pairs(error.trailing_metadata()):
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                return status_pb2.Status.FromString(value)
            except DecodeError:
                return None
    return None


def _pairs(metadata: Any) -> Iterator[tuple[str, str | bytes]]:
    yield from metadata or ()


def _unpack(detail: Any, kind: type[Message]) -> Any:
    message = kind()
    try:
        return message if detail.Unpack(message) else None
    except DecodeError:
        return None
