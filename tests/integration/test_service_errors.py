"""Errors of the service, as any gRPC client sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from support.daemon import Daemon
from support.rpc import call_message, connected, failure, outcome_of, token_of, tool_message, until
from workseal.v1 import execution_pb2, host_pb2, receipt_pb2, workspace_pb2

UNKNOWN = b"\xfa\x3f\x01a"  # field 1023 of type bytes, which no message has


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One host for all tests that leave it as it was."""
    base = tmp_path_factory.mktemp("service-errors")
    (base / "workspace").mkdir()
    daemon = Daemon(base / "workspace", base / "state").start()
    yield daemon
    daemon.remove()


def with_inner(field: int, message: Any) -> bytes:
    inner = message.SerializeToString() + UNKNOWN
    return bytes([field << 3 | 2, len(inner)]) + inner


def changed(message: Any, **fields: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    for name, value in fields.items():
        target = copy
        *path, last = name.split("__")
        for step in path:
            target = getattr(target, step)
        if hasattr(value, "DESCRIPTOR"):
            getattr(target, last).CopyFrom(value)
        else:
            setattr(target, last, value)
    return copy


EXECUTE = call_message("x", "true")
OBSERVE = host_pb2.BeginObservationRequest(call=EXECUTE.call, tool="editor", arguments_json=b"{}")

MALFORMED = [
    pytest.param("ExecuteTool", execution_pb2.ExecuteToolRequest(), "call.session_id", id="empty"),
    pytest.param(
        "ExecuteTool", changed(EXECUTE, call__tool_call_id="a\nb"), "call.tool_call_id", id="control"
    ),
    pytest.param(
        "ExecuteTool", changed(EXECUTE, call__session_id="s" * 257), "call.session_id", id="long-id"
    ),
    pytest.param("ExecuteTool", changed(EXECUTE, call__challenge="short"), "call.challenge", id="challenge"),
    pytest.param("ExecuteTool", changed(EXECUTE, tool=""), "tool", id="no-tool"),
    pytest.param("ExecuteTool", changed(EXECUTE, arguments_json=b"{"), "arguments_json", id="not-json"),
    pytest.param("ExecuteTool", changed(EXECUTE, arguments_json=b"[]"), "arguments_json", id="not-an-object"),
    pytest.param(
        "ExecuteTool", changed(EXECUTE, arguments_json=b'{"a":1,"a":1}'), "arguments_json", id="duplicate-key"
    ),
    pytest.param(
        "ExecuteTool",
        changed(EXECUTE, arguments_json=b'{"a":"\xff"}'),
        "arguments_json",
        id="arguments-not-utf8",
    ),
    pytest.param(
        "ExecuteTool", changed(EXECUTE, arguments_json=b'{"a":9007199254740993}'), "arguments_json", id="2^53"
    ),
    pytest.param("ExecuteTool", changed(EXECUTE, idempotency_key="short"), "idempotency_key", id="short-key"),
    *(
        pytest.param(
            "ExecuteTool",
            changed(EXECUTE, limits__timeout=Duration(**given)),
            "limits.timeout",
            id=f"timeout-{name}",
        )
        for name, given in {
            "zero": {},
            "negative": {"seconds": -1},
            "huge": {"seconds": 1 << 50},
            "nanos-too-many": {"seconds": 1, "nanos": 2_000_000_000},
            "mixed-signs": {"seconds": 1, "nanos": -5},
        }.items()
    ),
    pytest.param(
        "ExecuteTool",
        changed(EXECUTE, precondition__workspace_sha256="A" * 64),
        "precondition.workspace_sha256",
        id="digest-upper-case",
    ),
    *(
        pytest.param(
            "ExecuteTool",
            changed(EXECUTE, precondition=execution_pb2.Precondition(paths=[path])),
            field,
            id=f"path-{name}",
        )
        for name, field, path in [
            ("outside", "precondition.paths", execution_pb2.PathExpectation(path="../x")),
            ("not-escaped", "precondition.paths", execution_pb2.PathExpectation(path="a\x01")),
            (
                "absent-with-state",
                "precondition.paths",
                execution_pb2.PathExpectation(path="a", absent=True, state=workspace_pb2.EntryState(type=1)),
            ),
            (
                "unknown-type",
                "state.type",
                execution_pb2.PathExpectation(path="a", state=workspace_pb2.EntryState(type=77)),  # type: ignore[arg-type]
            ),
        ]
    ),
    pytest.param(
        "BeginObservation", changed(OBSERVE, ttl=Duration(seconds=86401)), "ttl", id="ttl-over-a-day"
    ),
    pytest.param("BeginObservation", changed(OBSERVE, ttl=Duration()), "ttl", id="ttl-zero"),
    pytest.param("EndObservation", host_pb2.EndObservationRequest(), "execution_id", id="end-of-nothing"),
    pytest.param(
        "EndObservation",
        host_pb2.EndObservationRequest(execution_id="x", result=b"\xff"),
        "result",
        id="claim-not-utf8",
    ),
    pytest.param(
        "EndObservation",
        host_pb2.EndObservationRequest(execution_id="x", exit_code=0, signal=9),
        "signal",
        id="exit-code-and-signal",
    ),
    pytest.param(
        "EndObservation",
        host_pb2.EndObservationRequest(execution_id="x", signal=-9),
        "signal",
        id="signal-range",
    ),
    pytest.param("WaitExecution", host_pb2.WaitExecutionRequest(), "execution.by", id="wait-for-nothing"),
    pytest.param("CancelExecution", host_pb2.CancelExecutionRequest(), "execution.by", id="cancel-nothing"),
    pytest.param(
        "CancelExecution",
        host_pb2.CancelExecutionRequest(execution=execution_pb2.ExecutionSelector(execution_id="")),
        "execution.by",
        id="empty-id",
    ),
    pytest.param("GetReceipt", host_pb2.GetReceiptRequest(), "receipt.by", id="no-receipt"),
    *(
        pytest.param(
            "GetChanges",
            host_pb2.GetChangesRequest(receipt=receipt_pb2.ReceiptSelector(**by)),
            "receipt.by",
            id=f"receipt-{name}",
        )
        for name, by in {
            "sequence-0": {"sequence": 0},
            "empty-key": {"idempotency_key": ""},
            "empty-id": {"execution_id": ""},
            "bad-hash": {"payload_sha256": "abc"},
        }.items()
    ),
    pytest.param("GetDigest", host_pb2.GetDigestRequest(scan=3), "scan", id="watch-level"),
    pytest.param("GetDigest", host_pb2.GetDigestRequest(scan=99), "scan", id="unknown-level"),  # type: ignore[arg-type]
    pytest.param("GetManifest", host_pb2.GetManifestRequest(scheme=99), "scheme", id="unknown-scheme"),  # type: ignore[arg-type]
    pytest.param("GetDigest", host_pb2.GetDigestRequest(path="a\\"), "path", id="path-not-escaped"),
    pytest.param("GetDigest", host_pb2.GetDigestRequest(path="a", scheme=2), "path", id="path-with-nonoka"),
]


@pytest.mark.parametrize(("method", "request_", "field"), MALFORMED)
async def test_a_malformed_request_names_its_field(
    shared: Daemon, method: str, request_: Any, field: str
) -> None:
    async with connected(shared) as rpc:
        failed = await failure(rpc.start(method, request_))
    assert (failed.code, failed.reason, failed.fields) == ("INVALID_ARGUMENT", "INVALID_REQUEST", [field])
    assert failed.details["ErrorInfo"].domain == "workseal"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(EXECUTE.SerializeToString() + UNKNOWN, id="unknown-field"),
        pytest.param(with_inner(1, EXECUTE.call), id="unknown-field-of-a-message-within"),
        pytest.param(
            with_inner(6, execution_pb2.Precondition(paths=[execution_pb2.PathExpectation(path="a")])),
            id="unknown-field-beside-a-list",
        ),
        pytest.param(b"\x12\x01\xff", id="text-that-is-not-utf8"),
        pytest.param(b"\x0a\x7f", id="cut-off"),
    ],
)
async def test_a_request_that_the_host_cannot_read_whole_is_refused(shared: Daemon, data: bytes) -> None:
    async with connected(shared) as rpc:
        raw = rpc.channel.unary_stream("/workseal.v1.HostService/ExecuteTool", request_serializer=bytes)
        failed = await failure(raw(data, metadata=rpc.metadata, timeout=30))
    assert (failed.code, failed.reason, failed.fields) == ("INVALID_ARGUMENT", "INVALID_REQUEST", ["request"])


async def test_every_rpc_refuses_fields_that_it_does_not_know(shared: Daemon) -> None:
    async with connected(shared) as rpc:
        for method in host_pb2.DESCRIPTOR.services_by_name["HostService"].methods:
            make = rpc.channel.unary_stream if method.server_streaming else rpc.channel.unary_unary
            raw = make(f"/workseal.v1.HostService/{method.name}", request_serializer=bytes)
            failed = await failure(raw(UNKNOWN, metadata=rpc.metadata, timeout=30))
            assert (method.name, failed.reason) == (method.name, "INVALID_REQUEST")


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        pytest.param(
            "WaitExecution",
            host_pb2.WaitExecutionRequest(execution=execution_pb2.ExecutionSelector(execution_id="none")),
            id="execution",
        ),
        pytest.param(
            "CancelExecution",
            host_pb2.CancelExecutionRequest(
                execution=execution_pb2.ExecutionSelector(idempotency_key="none")
            ),
            id="key",
        ),
        pytest.param("EndObservation", host_pb2.EndObservationRequest(execution_id="none"), id="observation"),
        pytest.param(
            "GetReceipt",
            host_pb2.GetReceiptRequest(receipt=receipt_pb2.ReceiptSelector(sequence=(1 << 64) - 1)),
            id="sequence-beyond-all",
        ),
        pytest.param(
            "GetReceipt",
            host_pb2.GetReceiptRequest(receipt=receipt_pb2.ReceiptSelector(payload_sha256="0" * 64)),
            id="payload",
        ),
        pytest.param("GetDigest", host_pb2.GetDigestRequest(path="no/such/directory"), id="path"),
        pytest.param("GetDigest", host_pb2.GetDigestRequest(path="../workspace"), id="path-outside"),
    ],
)
async def test_what_is_not_there_is_not_found(shared: Daemon, method: str, request_: Any) -> None:
    async with connected(shared) as rpc:
        failed = await failure(rpc.start(method, request_))
    assert (failed.code, failed.reason) == ("NOT_FOUND", "NOT_FOUND")


async def test_a_page_after_the_end_of_all_numbers_is_empty(shared: Daemon) -> None:
    async with connected(shared) as rpc:
        page = await rpc.start("ListReceipts", host_pb2.ListReceiptsRequest(after_sequence=(1 << 64) - 1))
    assert (list(page.receipts), page.next_after_sequence) == ([], 0)


async def test_f27_the_same_key_with_another_request_is_a_conflict(shared: Daemon) -> None:
    async with connected(shared) as rpc:
        await outcome_of(rpc.start("ExecuteTool", call_message("f27", "true")))
        failed = await failure(rpc.start("ExecuteTool", call_message("f27", "false")))
    assert (failed.code, failed.reason) == ("ALREADY_EXISTS", "KEY_CONFLICT")


async def test_a_deadline_that_passes_in_the_queue_says_so_and_frees_the_key(shared: Daemon) -> None:
    async with connected(shared) as rpc:
        holding = rpc.start("ExecuteTool", call_message("holder", "until [ -e go-on ]; do sleep 0.02; done"))
        await until(holding, "accepted")
        queued = call_message("queued", "echo ran >> queued.txt")
        failed = await failure(rpc.start("ExecuteTool", queued, timeout=1))
        assert (failed.code, failed.reason) == ("DEADLINE_EXCEEDED", "QUEUE_TIMEOUT")
        assert failed.details["RetryInfo"].HasField("retry_delay")

        (shared.workspace / "go-on").touch()
        await outcome_of(holding)
        outcome = await outcome_of(rpc.start("ExecuteTool", queued))
    assert not outcome.replayed
    assert (shared.workspace / "queued.txt").read_text() == "ran\n"


async def test_a_tree_that_cannot_be_observed_is_a_failed_precondition(daemon: Daemon) -> None:
    (daemon.workspace / ".worksealignore").mkdir()
    async with connected(daemon) as rpc:
        failed = await failure(rpc.start("ExecuteTool", call_message(1, "touch ran")))
    assert (failed.code, failed.reason) == ("FAILED_PRECONDITION", "WORKSPACE_UNREADABLE")
    [violation] = failed.details["PreconditionFailure"].violations
    assert (violation.type, violation.subject) == ("WORKSPACE_UNREADABLE", ".worksealignore")
    assert not (daemon.workspace / "ran").exists()


async def test_an_error_about_a_very_long_path_still_arrives(shared: Daemon) -> None:
    long_path = "/".join(["\u20ac" * 80] * 16) + "\x01"
    async with connected(shared) as rpc:
        failed = await failure(rpc.start("GetDigest", host_pb2.GetDigestRequest(path=long_path)))
    assert (failed.code, failed.reason, failed.fields) == ("INVALID_ARGUMENT", "INVALID_REQUEST", ["path"])


async def test_a_tool_that_refuses_its_arguments_is_no_rpc_error(shared: Daemon) -> None:
    async with connected(shared) as rpc:
        outcome = await outcome_of(rpc.start("ExecuteTool", tool_message("bad", "write_file", {"path": 1})))
    assert outcome.receipt.envelope
    assert outcome.output.result == b""


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param([], id="none"),
        pytest.param([("authorization", "Bearer ")], id="empty"),
        pytest.param([("authorization", "Bearer {token}x")], id="longer"),
        pytest.param([("authorization", "Bearer {cut}")], id="shorter"),
        pytest.param([("authorization", "{token}")], id="no-scheme"),
        pytest.param([("authorization", "Basic {token}")], id="other-scheme"),
        pytest.param([("authorization", "Bearer  {token}")], id="two-spaces"),
        pytest.param([("authorization", "Bearer {token}")] * 2, id="twice"),
        pytest.param([("authorization", "Bearer {token}"), ("authorization", "Bearer x")], id="two-headers"),
        pytest.param([("x-authorization", "Bearer {token}")], id="other-header"),
    ],
)
async def test_a_call_without_exactly_the_token_is_refused(
    shared: Daemon, metadata: list[tuple[str, str]]
) -> None:
    token = token_of(shared)
    given = [(key, value.format(token=token, cut=token[:-1])) for key, value in metadata]
    async with connected(shared, *(given or [("x", "y")])) as rpc:
        failed = await failure(rpc.start("GetHostInfo", host_pb2.GetHostInfoRequest()))
    assert (failed.code, failed.reason) == ("UNAUTHENTICATED", "UNAUTHENTICATED")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_the_name_of_the_scheme_has_no_case(shared: Daemon, scheme: str) -> None:
    async with connected(shared, ("authorization", f"{scheme} {token_of(shared)}")) as rpc:
        info = await rpc.start("GetHostInfo", host_pb2.GetHostInfoRequest())
    assert info.workspace_id == shared.ready["workspace_id"]


async def test_a_method_that_does_not_exist_is_only_told_to_those_with_the_token(shared: Daemon) -> None:
    codes = []
    async with connected(shared) as rpc:
        raw = rpc.channel.unary_unary("/workseal.v1.HostService/NoSuchMethod")
        for metadata in (rpc.metadata, ()):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await raw(b"", metadata=metadata, timeout=30)
            codes.append(caught.value.code().name)
    assert codes == ["UNIMPLEMENTED", "UNAUTHENTICATED"]


async def test_a_request_over_the_limit_harms_nobody_else(shared: Daemon) -> None:
    async with connected(shared) as rpc:
        large = call_message("large", "true")
        large.arguments_json = b" " * (9 << 20)
        refused, info = await asyncio.gather(
            failure(rpc.start("ExecuteTool", large)),
            rpc.start("GetHostInfo", host_pb2.GetHostInfoRequest()),
        )
    assert refused.code == "RESOURCE_EXHAUSTED"
    assert info.max_arguments_bytes < 9 << 20
