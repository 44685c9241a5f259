"""One call through a real gRPC server, with faults at every moment."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest
from client_kit import Connect

from fakes.host import EndStream, FakeHost, RpcFault, Serving
from fakes.relay import Relay
from workseal.calls import ToolCall, new_challenge
from workseal.errors import (
    HostError,
    HostUnreachableError,
    InvalidInputError,
    KeyConflictError,
    QueueTimeoutError,
)
from workseal.pending import MemoryPendingCallStore, NewCall
from workseal.results import OutputChunk, Selector
from workseal.retry import RetryPolicy
from workseal.v1 import execution_pb2

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def call(**changes: object) -> ToolCall:
    values = {"session_id": "s", "tool_call_id": "c1", "tool": "bash", "arguments": {"command": "true"}}
    values["challenge"] = new_challenge()
    return ToolCall(**(values | changes))  # type: ignore[arg-type]


async def test_returns_the_outcome(host: FakeHost, connect: Connect) -> None:
    async with connect() as client:
        result = await client.execute(call())
    assert (result.envelope, result.sequence, result.result) == (b"envelope 1", 1, b"done\n")
    assert not result.replayed
    assert result.execution_id == "x1"


async def test_sends_arguments_as_canonical_json_and_the_default_key(
    host: FakeHost, connect: Connect
) -> None:
    one = call(arguments={"b": 1, "a": "ä"})
    async with connect() as client:
        await client.execute(one, timeout_s=2.5)
        key = await client.idempotency_key(one)
    assert host.requests[0].arguments_json == '{"a":"ä","b":1}'.encode()
    assert host.requests[0].idempotency_key == key
    assert host.requests[0].call.challenge == one.challenge
    assert host.requests[0].limits.timeout.seconds == 2
    assert host.requests[0].limits.timeout.nanos == 500_000_000


async def test_f27_reordered_arguments_are_the_same_request(host: FakeHost, connect: Connect) -> None:
    challenge = new_challenge()
    async with connect() as client:
        await client.execute(call(arguments={"b": 1, "a": 2}, challenge=challenge))
        again = await client.execute(call(arguments={"a": 2, "b": 1}, challenge=challenge))
    assert again.replayed
    assert host.runs == ["bash"]


async def test_f27_same_key_with_other_arguments_is_a_conflict_and_is_not_retried(
    host: FakeHost, connect: Connect
) -> None:
    one = call()
    async with connect() as client:
        await client.execute(one)
        with pytest.raises(KeyConflictError) as caught:
            await client.execute(call(arguments={"command": "false"}, challenge=one.challenge))
    assert caught.value.reason == "KEY_CONFLICT"
    assert host.calls.count("ExecuteTool") == 2
    assert host.runs == ["bash"]


async def test_f26_concurrent_duplicates_run_once_and_get_the_same_receipt(
    host: FakeHost, connect: Connect
) -> None:
    one = call()
    async with connect() as client:
        results = await asyncio.gather(*(client.execute(one) for _ in range(20)))
    assert {result.envelope for result in results} == {b"envelope 1"}
    assert host.runs == ["bash"]


async def test_f26_after_the_deadline_a_retry_joins_the_running_execution(
    host: FakeHost, connect: Connect
) -> None:
    release = asyncio.Event()
    host.at("run", _waits(release))
    one = call()
    async with connect() as client:
        with pytest.raises(HostUnreachableError) as caught:
            await client.execute(one, deadline_s=0.2)
        assert caught.value.code == "DEADLINE_EXCEEDED"
        release.set()
        result = await client.execute(one)
    assert result.envelope == b"envelope 1"
    assert host.runs == ["bash"]


@pytest.mark.parametrize(
    ("point", "expected_calls"),
    [
        pytest.param("before-claim", ["ExecuteTool", "WaitExecution", "ExecuteTool"], id="before-claim"),
        pytest.param("before-accepted", ["ExecuteTool", "WaitExecution"], id="before-accepted"),
        pytest.param("after-accepted", ["ExecuteTool", "WaitExecution"], id="after-accepted"),
        pytest.param("after-effect", ["ExecuteTool", "WaitExecution"], id="after-effect"),
    ],
)
async def test_cut_connection_re_attaches_and_runs_once(
    point: str,
    expected_calls: list[str],
    host: FakeHost,
    serving: Serving,
    connect: Connect,
    tmp_path: Path,
) -> None:
    async with Relay(str(tmp_path / "r.sock"), serving.socket) as relay:

        async def cut() -> None:
            await relay.cut()
            raise EndStream

        async with connect(relay.listen) as client:
            await client.workspace_id()
            host.at(point, cut)
            result = await client.execute(call())
    assert result.envelope == b"envelope 1"
    assert host.runs == ["bash"]
    assert [name for name in host.calls if name != "GetHostInfo"] == expected_calls


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(RpcFault(UNAVAILABLE, message="socket closed"), id="unavailable"),
        pytest.param(RpcFault(grpc.StatusCode.UNKNOWN, message="stream removed"), id="unknown"),
        pytest.param(RpcFault(grpc.StatusCode.INTERNAL, message="rst"), id="internal-of-the-transport"),
        pytest.param(EndStream(), id="clean-end-without-outcome"),
    ],
)
async def test_broken_stream_after_accepted_waits_for_the_outcome(
    fault: Exception, host: FakeHost, connect: Connect
) -> None:
    host.at("after-accepted", fault)
    async with connect() as client:
        result = await client.execute(call())
    assert result.sequence == 1
    assert host.runs == ["bash"]
    assert host.calls.count("WaitExecution") == 1


async def test_host_restart_between_attempts_is_survived(
    host: FakeHost, serving: Serving, connect: Connect
) -> None:
    restarted: list[asyncio.Task[None]] = []

    async def restart() -> None:
        await serving.stop()
        await asyncio.sleep(0.05)
        await serving.start()

    async def crash() -> None:
        restarted.append(asyncio.create_task(restart()))
        await asyncio.Event().wait()

    host.at("after-accepted", crash)
    async with connect(retry=RetryPolicy(max_attempts=20, initial_s=0.02, max_s=0.1)) as client:
        result = await client.execute(call())
    await restarted[0]
    assert result.sequence == 1
    assert host.runs == ["bash"]


@pytest.mark.parametrize("reason", ["SHUTTING_DOWN", "TOO_MANY_CALLS", "LEDGER_UNAVAILABLE"])
async def test_try_later_sends_the_same_request_again(reason: str, host: FakeHost, connect: Connect) -> None:
    host.at("before-claim", RpcFault(UNAVAILABLE, reason, retry_after_s=0.01))
    async with connect() as client:
        result = await client.execute(call())
    assert result.sequence == 1
    assert host.calls.count("ExecuteTool") == 2
    assert host.calls.count("WaitExecution") == 0
    assert host.requests[0] == host.requests[1]


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        pytest.param("INVALID_ARGUMENT", "INVALID_REQUEST", HostError, id="invalid"),
        pytest.param("ALREADY_EXISTS", "KEY_CONFLICT", KeyConflictError, id="conflict"),
        pytest.param("DEADLINE_EXCEEDED", "QUEUE_TIMEOUT", QueueTimeoutError, id="queue"),
        pytest.param("FAILED_PRECONDITION", "ROOT_REPLACED", HostError, id="root-replaced"),
        pytest.param("INTERNAL", "INTERNAL", HostError, id="internal-of-the-host"),
        pytest.param("RESOURCE_EXHAUSTED", "", HostError, id="exhausted-of-the-transport"),
        pytest.param("UNIMPLEMENTED", "", HostError, id="unimplemented"),
        pytest.param("PERMISSION_DENIED", "", HostError, id="denied"),
    ],
)
async def test_final_errors_are_not_retried(
    code: str, reason: str, error: type[HostError], host: FakeHost, connect: Connect
) -> None:
    host.at("before-claim", RpcFault(grpc.StatusCode[code], reason))
    async with connect() as client:
        with pytest.raises(error) as caught:
            await client.execute(call())
    assert (caught.value.code, caught.value.reason) == (code, reason)
    assert type(caught.value) is error
    assert host.calls.count("ExecuteTool") == 1


async def test_invalid_argument_names_the_field(host: FakeHost, connect: Connect) -> None:
    async with connect() as client:
        with pytest.raises(HostError) as caught:
            await client.execute(call(tool="no-such-tool"))
    assert caught.value.metadata == {"field": "tool"}


async def test_attempts_are_bounded(host: FakeHost, connect: Connect) -> None:
    for _ in range(10):
        host.at("before-claim", RpcFault(UNAVAILABLE))
        host.at("wait", RpcFault(UNAVAILABLE))
    async with connect(retry=RetryPolicy(max_attempts=3, initial_s=0.001)) as client:
        with pytest.raises(HostUnreachableError):
            await client.execute(call())
    assert host.calls.count("ExecuteTool") + host.calls.count("WaitExecution") == 3
    assert host.runs == []


async def test_a_host_that_forgets_every_key_is_given_up(host: FakeHost, connect: Connect) -> None:
    for _ in range(10):
        host.at("before-claim", RpcFault(UNAVAILABLE))
    async with connect(retry=RetryPolicy(max_attempts=4, initial_s=0.001)) as client:
        with pytest.raises(HostUnreachableError):
            await client.execute(call())
    assert host.calls.count("ExecuteTool") + host.calls.count("WaitExecution") == 4


async def test_no_host_is_unreachable_within_the_deadline(tmp_path: Path, connect: Connect) -> None:
    async with connect(str(tmp_path / "nobody.sock")) as client:
        with pytest.raises(HostUnreachableError) as caught:
            await client.execute(call(), deadline_s=1)
    assert "ask again with the same key" in str(caught.value)


@pytest.mark.parametrize(
    "outcome",
    [
        pytest.param(execution_pb2.Outcome(), id="empty"),
        pytest.param(execution_pb2.Outcome(replayed=True), id="without-receipt"),
    ],
)
async def test_outcome_without_receipt_is_refused(
    outcome: execution_pb2.Outcome, host: FakeHost, connect: Connect
) -> None:
    async def forge() -> None:
        for execution in host.executions.values():
            execution.outcome = outcome

    host.at("after-effect", forge)
    async with connect() as client:
        with pytest.raises(HostError) as caught:
            await client.execute(call())
    assert caught.value.reason == "PROTOCOL"


async def test_event_after_the_outcome_is_refused(host: FakeHost, connect: Connect) -> None:
    host.at("extra-event", EndStream())
    async with connect() as client:
        with pytest.raises(HostError) as caught:
            await client.execute(call())
    assert caught.value.reason == "PROTOCOL"


async def test_break_after_the_outcome_loses_nothing(host: FakeHost, connect: Connect) -> None:
    host.at("after-outcome", RpcFault(UNAVAILABLE))
    async with connect() as client:
        result = await client.execute(call())
    assert result.sequence == 1
    assert host.calls.count("WaitExecution") == 0


async def test_result_of_many_megabytes_arrives(host: FakeHost, connect: Connect) -> None:
    host.result = b"x" * (12 * 1024 * 1024)
    async with connect() as client:
        result = await client.execute(call())
    assert result.result == host.result


async def test_result_beyond_the_size_limit_is_an_error_not_a_retry(host: FakeHost, connect: Connect) -> None:
    host.result = b"x" * (17 * 1024 * 1024)
    async with connect() as client:
        with pytest.raises(HostError) as caught:
            await client.execute(call())
    assert caught.value.code == "RESOURCE_EXHAUSTED"
    assert host.runs == ["bash"]


async def test_output_is_delivered_once_across_a_re_attachment(host: FakeHost, connect: Connect) -> None:
    stdout = execution_pb2.OUTPUT_STREAM_STDOUT
    host.output = [
        execution_pb2.OutputChunk(stream=stdout, offset=0, data=b"abc"),
        execution_pb2.OutputChunk(stream=stdout, offset=3, data=b"def"),
    ]
    host.at("output", RpcFault(UNAVAILABLE))
    heard: list[OutputChunk] = []
    async with connect() as client:
        await client.execute(call(), on_output=heard.append)
    assert heard == [OutputChunk("stdout", 0, b"abc"), OutputChunk("stdout", 3, b"def")]


async def test_overlapping_output_is_cut_and_gaps_are_kept(host: FakeHost, connect: Connect) -> None:
    stderr = execution_pb2.OUTPUT_STREAM_STDERR
    host.output = [
        execution_pb2.OutputChunk(stream=stderr, offset=0, data=b"abcd"),
        execution_pb2.OutputChunk(stream=stderr, offset=2, data=b"cdef"),
        execution_pb2.OutputChunk(stream=stderr, offset=100, data=b"z"),
        execution_pb2.OutputChunk(offset=0, data=b"of no stream"),
    ]
    heard: list[OutputChunk] = []
    async with connect() as client:
        await client.execute(call(), on_output=heard.append)
    assert heard == [
        OutputChunk("stderr", 0, b"abcd"),
        OutputChunk("stderr", 4, b"ef"),
        OutputChunk("stderr", 100, b"z"),
    ]


async def test_accepted_is_told_once(host: FakeHost, connect: Connect) -> None:
    host.at("after-accepted", RpcFault(UNAVAILABLE))
    heard: list[str] = []
    async with connect() as client:
        await client.execute(call(), on_accepted=lambda accepted: heard.append(accepted.execution_id))
    assert heard == ["x1"]


async def test_leaving_a_call_does_not_end_the_tool(host: FakeHost, connect: Connect) -> None:
    release, accepted = asyncio.Event(), asyncio.Event()
    host.at("run", _waits(release))
    one = call()
    async with connect() as client:
        task = asyncio.create_task(client.execute(one, on_accepted=lambda _: accepted.set()))
        await asyncio.wait_for(accepted.wait(), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        release.set()
        result = await client.execute(one)
    assert result.sequence == 1
    assert host.runs == ["bash"]


async def test_wait_of_an_unknown_key_is_not_found(host: FakeHost, connect: Connect) -> None:
    async with connect() as client:
        with pytest.raises(HostError) as caught:
            await client.wait(Selector(idempotency_key="k"))
    assert caught.value.code == "NOT_FOUND"
    assert host.runs == []


async def test_wait_returns_a_stored_outcome(host: FakeHost, connect: Connect) -> None:
    one = call()
    async with connect() as client:
        await client.execute(one)
        result = await client.wait(Selector(idempotency_key=await client.idempotency_key(one)))
    assert result.replayed
    assert result.envelope == b"envelope 1"


def _waits(event: asyncio.Event):  # type: ignore[no-untyped-def]
    async def hook() -> None:
        await event.wait()

    return hook


@pytest.mark.parametrize("method", ["execute", "begin_observation"])
async def test_a_stored_call_is_refused_with_the_way_to_send_it(
    host: FakeHost, connect: Connect, method: str
) -> None:
    (stored,) = await MemoryPendingCallStore().add("s", [NewCall("c1", "bash", {}, occurrence="t1")])
    async with connect() as client:
        with pytest.raises(InvalidInputError, match=r"PendingCall, call\.to_tool_call\(\)"):
            await getattr(client, method)(stored)
    assert host.requests == []
