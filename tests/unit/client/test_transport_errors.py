"""What a failed RPC says, taken apart strictly."""

from __future__ import annotations

import grpc
import grpc.aio
import pytest
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2

from fakes.host import pack
from workseal.errors import HostError, HostUnreachableError
from workseal.transport.errors import failure_of

INVALID = grpc.StatusCode.INVALID_ARGUMENT


def rpc_error(
    *details: any_pb2.Any, code: grpc.StatusCode = INVALID, status_code: int | None = None, raw: bytes = b""
) -> grpc.aio.AioRpcError:
    status = status_pb2.Status(code=code.value[0] if status_code is None else status_code, details=details)
    trailing = grpc.aio.Metadata(
        ("other", "x"), ("grpc-status-details-bin", raw or status.SerializeToString())
    )
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, "message", None)


def info(reason: str = "INVALID_REQUEST", domain: str = "workseal") -> any_pb2.Any:
    return pack(error_details_pb2.ErrorInfo(reason=reason, domain=domain, metadata={"k": "v"}))


def test_details_are_read() -> None:
    violation = error_details_pb2.BadRequest.FieldViolation(field="tool")
    bad = pack(error_details_pb2.BadRequest(field_violations=[violation]))
    retry = pack(error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=1, nanos=500_000_000)))
    failure = failure_of(rpc_error(info(), bad, retry))
    assert failure.reason == "INVALID_REQUEST"
    assert failure.metadata == {"k": "v", "field": "tool"}
    assert failure.retry_after_s == 1.5


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(rpc_error(info(domain="somebody.else")), id="other-domain"),
        pytest.param(rpc_error(info(), status_code=5), id="details-of-another-code"),
        pytest.param(rpc_error(raw=b"\xff\xff\xff"), id="malformed-status"),
        pytest.param(
            rpc_error(
                any_pb2.Any(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=b"\xff\xff\xff")
            ),
            id="malformed-detail",
        ),
        pytest.param(rpc_error(pack(status_pb2.Status())), id="unknown-detail"),
        pytest.param(rpc_error(), id="no-details"),
    ],
)
def test_what_is_not_the_hosts_is_ignored(error: grpc.aio.AioRpcError) -> None:
    failure = failure_of(error)
    assert (failure.reason, failure.metadata, failure.retry_after_s) == ("", {}, None)
    assert type(failure.to_error()) is HostError


def test_error_without_message_names_its_code() -> None:
    error = grpc.aio.AioRpcError(INVALID, grpc.aio.Metadata(), grpc.aio.Metadata(), None, None)
    assert "INVALID_ARGUMENT" in str(failure_of(error).to_error())


@pytest.mark.parametrize(
    ("code", "reason", "is_break"),
    [
        (grpc.StatusCode.UNAVAILABLE, "", True),
        (grpc.StatusCode.CANCELLED, "", True),
        (grpc.StatusCode.INTERNAL, "", True),
        (grpc.StatusCode.INTERNAL, "INTERNAL", False),
        (grpc.StatusCode.NOT_FOUND, "", False),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "", False),
    ],
)
def test_only_what_the_transport_reports_is_a_break(
    code: grpc.StatusCode, reason: str, is_break: bool
) -> None:
    details = [info(reason)] if reason else []
    assert failure_of(rpc_error(*details, code=code)).is_break is is_break


def test_passed_deadline_says_that_nobody_knows() -> None:
    error = failure_of(rpc_error(code=grpc.StatusCode.DEADLINE_EXCEEDED)).to_error()
    assert type(error) is HostUnreachableError
    assert "ask again with the same key" in str(error)


def test_missing_token_without_a_host_says_what_to_do() -> None:
    error = failure_of(rpc_error(code=grpc.StatusCode.UNAUTHENTICATED)).to_error()
    assert "token file" in str(error)
