"""Following executions and observations over plain gRPC."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from support.daemon import Daemon
from support.rpc import (
    Rpc,
    call_message,
    challenge,
    connected,
    failure,
    outcome_of,
    predicate,
    token_of,
    until,
)
from workseal.v1 import execution_pb2, host_pb2, workspace_pb2

WAIT_FOR_GO = "until [ -e go-on ]; do sleep 0.02; done"


def by_id(execution_id: str) -> execution_pb2.ExecutionSelector:
    return execution_pb2.ExecutionSelector(execution_id=execution_id)


def observation(number: int | str, **more: Any) -> host_pb2.BeginObservationRequest:
    call = execution_pb2.CallRef(session_id="s", tool_call_id=f"o-{number}", challenge=challenge(number))
    return host_pb2.BeginObservationRequest(call=call, tool="editor", arguments_json=b'{"file":"a"}', **more)


async def end(rpc: Rpc, execution_id: str, **claim: Any) -> host_pb2.EndObservationResponse:
    answer: host_pb2.EndObservationResponse = await rpc.start(
        "EndObservation", host_pb2.EndObservationRequest(execution_id=execution_id, **claim)
    )
    return answer


async def cancelled_once_known(rpc: Rpc, request: host_pb2.CancelExecutionRequest) -> Any:
    while True:
        try:
            return await rpc.start("CancelExecution", request)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise


async def test_a_stream_is_accepted_then_output_then_one_outcome(daemon: Daemon) -> None:
    async with connected(daemon) as rpc:
        request = call_message(1, "printf out; printf err >&2; exit 3")
        events = [event async for event in rpc.start("ExecuteTool", request)]
        digest = await rpc.start("GetDigest", host_pb2.GetDigestRequest())
    kinds = [event.WhichOneof("event") for event in events]
    assert (kinds[0], kinds[-1], set(kinds[1:-1])) == ("accepted", "outcome", {"output"})
    assert events[0].accepted.before.sha256 == digest.digest.sha256
    output = {event.output.stream: event.output.data for event in events[1:-1]}
    assert output == {
        execution_pb2.OUTPUT_STREAM_STDOUT: b"out",
        execution_pb2.OUTPUT_STREAM_STDERR: b"err",
    }
    outcome = events[-1].outcome
    assert outcome.output.stdout.sha256 == hashlib.sha256(b"out").hexdigest()
    execution = predicate(outcome.receipt.envelope)["execution"]
    assert (execution["exitCode"], execution["signal"]) == (3, None)
    assert execution["executionId"] == events[0].accepted.execution_id


async def test_a_second_request_with_the_same_key_replays_the_stored_bytes(daemon: Daemon) -> None:
    async with connected(daemon) as rpc:
        first = await outcome_of(rpc.start("ExecuteTool", call_message(1, "echo x >> log")))
        events = [event async for event in rpc.start("ExecuteTool", call_message(1, "echo x >> log"))]
    assert [event.WhichOneof("event") for event in events] == ["outcome"]
    assert (first.replayed, events[0].outcome.replayed) == (False, True)
    assert events[0].outcome.receipt == first.receipt
    assert events[0].outcome.output == first.output
    assert (daemon.workspace / "log").read_text() == "x\n"


async def test_f26_concurrent_duplicates_run_once_and_answer_alike(daemon: Daemon) -> None:
    async with connected(daemon) as rpc:
        outcomes = await asyncio.gather(
            *(
                outcome_of(rpc.start("ExecuteTool", call_message(1, "echo x >> log; sleep 0.2")))
                for _ in range(20)
            )
        )
    assert (daemon.workspace / "log").read_text() == "x\n"
    assert len({outcome.receipt.envelope for outcome in outcomes}) == 1


async def test_f26_a_deadline_of_the_rpc_does_not_end_the_tool(daemon: Daemon) -> None:
    async with connected(daemon) as rpc:
        request = call_message(1, f"{WAIT_FOR_GO}; echo x >> log")
        stream = rpc.start("ExecuteTool", request, timeout=1.0)
        accepted = await until(stream, "accepted")
        assert (await failure(stream)).code == "DEADLINE_EXCEEDED"
        again = rpc.start("ExecuteTool", request)
        assert (await until(again, "accepted")).execution_id == accepted.execution_id
        (daemon.workspace / "go-on").touch()
        outcome = await outcome_of(again)
    assert predicate(outcome.receipt.envelope)["execution"]["exitCode"] == 0
    assert (daemon.workspace / "log").read_text() == "x\n"


async def test_a_dropped_stream_does_not_end_the_tool_and_waiting_re_attaches(daemon: Daemon) -> None:
    async with connected(daemon) as rpc:
        stream = rpc.start("ExecuteTool", call_message(1, f"{WAIT_FOR_GO}; echo late"))
        accepted = await until(stream, "accepted")
        stream.cancel()
    async with connected(daemon) as rpc:
        wait = rpc.start(
            "WaitExecution", host_pb2.WaitExecutionRequest(execution=by_id(accepted.execution_id))
        )
        assert (await until(wait, "accepted")).execution_id == accepted.execution_id
        (daemon.workspace / "go-on").touch()
        assert (await until(wait, "output")).data == b"late\n"
        outcome = await outcome_of(wait)
        stored = [
            event
            async for event in rpc.start(
                "WaitExecution",
                host_pb2.WaitExecutionRequest(
                    execution=execution_pb2.ExecutionSelector(idempotency_key=accepted.idempotency_key)
                ),
            )
        ]
    assert predicate(outcome.receipt.envelope)["execution"]["exitCode"] == 0
    assert [event.outcome.receipt for event in stored] == [outcome.receipt]
    assert stored[0].outcome.replayed


async def test_cancelling_ends_the_tool_and_the_receipt_says_so(daemon: Daemon) -> None:
    async with connected(daemon) as rpc:
        stream = rpc.start("ExecuteTool", call_message(1, "touch begun; sleep 600"))
        accepted = await until(stream, "accepted")
        cancel = host_pb2.CancelExecutionRequest(execution=by_id(accepted.execution_id))
        answer = await rpc.start("CancelExecution", cancel)
        outcome = await outcome_of(stream)
        late = await rpc.start("CancelExecution", cancel)
    assert (answer.state, answer.cancelling) == (execution_pb2.EXECUTION_STATE_IN_FLIGHT, True)
    assert (late.state, late.cancelling) == (execution_pb2.EXECUTION_STATE_COMMITTED, False)
    execution = predicate(outcome.receipt.envelope)["execution"]
    assert (execution["cancelled"], execution["timedOut"], execution["exitCode"]) == (True, False, None)
    assert execution["signal"] in (9, 15)


async def test_the_four_ways_to_end_are_four_different_things(daemon: Daemon) -> None:
    requests = {
        "exit": call_message(1, "exit 7"),
        "signal": call_message(2, "kill -KILL $$"),
        "timeout": call_message(
            3, "sleep 600", limits=execution_pb2.Limits(timeout=Duration(nanos=300_000_000))
        ),
    }
    found = {}
    async with connected(daemon) as rpc:
        for name, request in requests.items():
            outcome = await outcome_of(rpc.start("ExecuteTool", request))
            execution = predicate(outcome.receipt.envelope)["execution"]
            found[name] = (execution["exitCode"], execution["timedOut"], execution["cancelled"])
            assert (execution["signal"] is None) == (name == "exit")
    assert found == {
        "exit": (7, False, False),
        "signal": (None, False, False),
        "timeout": (None, True, False),
    }


async def test_cancelling_in_the_queue_runs_nothing(daemon: Daemon) -> None:
    async with connected(daemon) as rpc:
        holder = rpc.start("ExecuteTool", call_message(1, WAIT_FOR_GO))
        accepted = await until(holder, "accepted")
        workspace_id = daemon.ready["workspace_id"]
        queued = call_message(2, "touch ran")
        key = hashlib.sha256(f'["{workspace_id}","session","call-2","{challenge(2)}"]'.encode()).hexdigest()
        waiting = asyncio.ensure_future(failure(rpc.start("ExecuteTool", queued)))
        cancel = host_pb2.CancelExecutionRequest(
            execution=execution_pb2.ExecutionSelector(idempotency_key=key)
        )
        answer = await cancelled_once_known(rpc, cancel)
        failed = await waiting
        (daemon.workspace / "go-on").touch()
        await outcome_of(holder)
    assert accepted.idempotency_key != key
    assert (answer.state, answer.cancelling) == (execution_pb2.EXECUTION_STATE_RECEIVED, True)
    assert failed.reason == "QUEUE_TIMEOUT"
    assert not (daemon.workspace / "ran").exists()


async def test_a_slow_reader_does_not_hold_the_tool_up(daemon: Daemon) -> None:
    async with connected(daemon) as rpc:
        slow = rpc.start("ExecuteTool", call_message(1, "head -c 60000000 /dev/zero"))
        accepted = await until(slow, "accepted")
        # Nothing is read from `slow` until the tool has ended, as another caller learns.
        wait = host_pb2.WaitExecutionRequest(execution=by_id(accepted.execution_id))
        outcome = await outcome_of(rpc.start("WaitExecution", wait))
        offsets, heard = [], 0
        async for event in slow:
            if event.WhichOneof("event") == "output":
                offsets.append(event.output.offset)
                heard += len(event.output.data)
            else:
                assert event.outcome.receipt == outcome.receipt
    assert offsets == sorted(offsets)
    assert heard < 60_000_000
    stdout = predicate(outcome.receipt.envelope)["execution"]["stdout"]
    assert (stdout["bytes"], stdout["digest"]["sha256"]) == (
        60_000_000,
        hashlib.sha256(bytes(60_000_000)).hexdigest(),
    )


async def test_an_observation_attests_what_somebody_else_did(daemon: Daemon) -> None:
    async with connected(daemon) as rpc:
        begun = await rpc.start("BeginObservation", observation(1))
        (daemon.workspace / "edited").write_text("by an editor")
        ended = await end(rpc, begun.execution_id, result=b"saved", exit_code=0)
        again = await end(rpc, begun.execution_id, result=b"something else", exit_code=1)
    body = predicate(ended.outcome.receipt.envelope)
    assert (body["outcome"], body["execution"]["mode"], body["execution"]["isolation"]) == (
        "completed",
        "observed",
        "none",
    )
    assert [entry["path"] for entry in body["workspace"]["created"]] == ["edited"]
    assert body["workspace"]["before"]["sha256"] == begun.before.sha256
    assert body["execution"]["result"]["digest"]["sha256"] == hashlib.sha256(b"saved").hexdigest()
    # The host heard none of its output, and claims none.
    assert (body["execution"]["stdout"], body["execution"]["stderr"]) == (None, None)
    assert again.outcome.receipt == ended.outcome.receipt
    assert again.outcome.replayed


async def test_other_calls_queue_behind_an_observation(daemon: Daemon) -> None:
    async with connected(daemon) as rpc:
        first = await rpc.start("BeginObservation", observation(1))
        call = rpc.start("ExecuteTool", call_message(3, "true"), timeout=0.5)
        assert (await failure(call)).reason == "QUEUE_TIMEOUT"
        assert (await failure(rpc.start("BeginObservation", observation(2), timeout=0.5))).reason == (
            "QUEUE_TIMEOUT"
        )
        await end(rpc, first.execution_id)
        after = await rpc.start("BeginObservation", observation(2))
        await end(rpc, after.execution_id)
    assert after.execution_id != first.execution_id


async def test_an_observation_that_never_ends_expires(daemon: Daemon) -> None:
    async with connected(daemon) as rpc:
        begun = await rpc.start("BeginObservation", observation(1, ttl=Duration(nanos=200_000_000)))
        (daemon.workspace / "late").touch()
        wait = host_pb2.WaitExecutionRequest(execution=by_id(begun.execution_id))
        outcome = await outcome_of(rpc.start("WaitExecution", wait))
        ended = await end(rpc, begun.execution_id, exit_code=0)
        again = await rpc.start("BeginObservation", observation(1, ttl=Duration(nanos=200_000_000)))
    assert predicate(outcome.receipt.envelope)["outcome"] == "expired"
    assert ended.outcome.receipt == outcome.receipt
    assert again.outcome.receipt == outcome.receipt
    assert not again.execution_id


async def test_an_observation_whose_precondition_fails_is_refused(daemon: Daemon) -> None:
    wanted = execution_pb2.Precondition(
        paths=[
            execution_pb2.PathExpectation(
                path="must-be-there", state=workspace_pb2.EntryState(type=workspace_pb2.ENTRY_TYPE_FILE)
            )
        ]
    )
    async with connected(daemon) as rpc:
        refused = await rpc.start("BeginObservation", observation(1, precondition=wanted))
        (daemon.workspace / "must-be-there").touch()
        begun = await rpc.start("BeginObservation", observation(1, precondition=wanted))
        await end(rpc, begun.execution_id)
    assert not refused.execution_id
    body = predicate(refused.outcome.receipt.envelope)
    assert (body["outcome"], body["execution"]) == ("refused", None)
    assert begun.execution_id


async def test_an_execution_is_not_ended_as_an_observation(daemon: Daemon) -> None:
    async with connected(daemon) as rpc:
        outcome = await outcome_of(rpc.start("ExecuteTool", call_message(1, "true")))
        execution_id = predicate(outcome.receipt.envelope)["execution"]["executionId"]
        ended = await failure(
            rpc.start("EndObservation", host_pb2.EndObservationRequest(execution_id=execution_id))
        )
    assert (ended.code, ended.reason) == ("FAILED_PRECONDITION", "WRONG_STATE")


async def test_a_cancelled_observation_gives_the_workspace_back(daemon: Daemon) -> None:
    async with connected(daemon) as rpc:
        begun = await rpc.start("BeginObservation", observation(1))
        cancelled = await rpc.start(
            "CancelExecution", host_pb2.CancelExecutionRequest(execution=by_id(begun.execution_id))
        )
        await outcome_of(rpc.start("ExecuteTool", call_message(1, "true")))
        ended = await end(rpc, begun.execution_id)
    body = predicate(ended.outcome.receipt.envelope)
    assert cancelled.cancelling
    assert (body["outcome"], body["reason"]) == ("expired", "cancelled")


@pytest.mark.parametrize("scheme", [1, 2], ids=["workseal-tree/1", "nonoka/1"])
async def test_digest_and_manifest_agree(daemon: Daemon, scheme: int) -> None:
    (daemon.workspace / "a").mkdir()
    (daemon.workspace / "a" / "b").write_text("b")
    (daemon.workspace / "a" / "empty").mkdir()
    async with connected(daemon) as rpc:
        digest = await rpc.start("GetDigest", host_pb2.GetDigestRequest(scheme=scheme, scan=1))  # type: ignore[arg-type]
        parts = [
            part
            async for part in rpc.start("GetManifest", host_pb2.GetManifestRequest(scheme=scheme))  # type: ignore[arg-type]
        ]
    assert parts[0].digest.sha256 == digest.digest.sha256
    assert (digest.digest.scheme, digest.digest.scan) == (scheme, workspace_pb2.SCAN_LEVEL_FULL)
    paths = [entry.path for part in parts for entry in part.entries]
    assert paths == (["a", "a/b", "a/empty"] if scheme == 1 else ["a/b"])


async def test_a_directory_has_a_digest_of_its_own(daemon: Daemon) -> None:
    (daemon.workspace / "a" / "b").mkdir(parents=True)
    (daemon.workspace / "c").mkdir()
    async with connected(daemon) as rpc:
        found = {
            path: (await rpc.start("GetDigest", host_pb2.GetDigestRequest(path=path))).digest
            for path in ("", "a", "a/b", "c")
        }
    assert {path: digest.entries for path, digest in found.items()} == {"": 3, "a": 1, "a/b": 0, "c": 0}
    assert found["a/b"].sha256 == found["c"].sha256 == hashlib.sha256(b"workseal-tree/1\0").hexdigest()


async def test_a_manifest_of_long_names_comes_in_messages_that_every_client_takes(daemon: Daemon) -> None:
    # Every byte of these names is escaped, to four times its length.
    directory = daemon.workspace / ("\x01" * 250)
    directory.mkdir()
    for number in range(3000):
        (directory / ("\x02" * 240 + str(number))).touch()
    async with connected(daemon) as rpc:
        parts = [part async for part in rpc.start("GetManifest", host_pb2.GetManifestRequest())]
    assert sum(len(part.entries) for part in parts) == 3001
    assert max(part.ByteSize() for part in parts) < 1.5 * (1 << 20)


async def test_the_chain_is_listed_page_by_page(daemon: Daemon) -> None:
    async with connected(daemon) as rpc:
        for number in range(5):
            await outcome_of(rpc.start("ExecuteTool", call_message(number, f"touch {number}")))
        seen, after = [], 0
        while True:
            page = await rpc.start(
                "ListReceipts", host_pb2.ListReceiptsRequest(after_sequence=after, page_size=2)
            )
            seen.append([receipt.sequence for receipt in page.receipts])
            after = page.next_after_sequence
            if not after:
                break
        nobody = await rpc.start("ListReceipts", host_pb2.ListReceiptsRequest(session_id="nobody"))
        everything = await rpc.start("ListReceipts", host_pb2.ListReceiptsRequest(page_size=(1 << 32) - 1))
    assert seen == [[1, 2], [3, 4], [5]]
    assert not nobody.receipts
    assert len(everything.receipts) == 5


async def test_health_is_open_and_reflection_is_not(daemon: Daemon) -> None:
    async with grpc.aio.insecure_channel(f"unix:{daemon.ready['socket']}") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        for service in ("", "workseal.v1.HostService"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        asked = [reflection_pb2.ServerReflectionRequest(list_services="")]
        refused = await failure(reflection.ServerReflectionInfo(iter(asked), timeout=10))
        bearer = (("authorization", f"Bearer {token_of(daemon)}"),)
        answers = [
            item async for item in reflection.ServerReflectionInfo(iter(asked), metadata=bearer, timeout=10)
        ]
    assert (refused.code, refused.reason) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
    names = {service.name for service in answers[0].list_services_response.service}
    assert names >= {"workseal.v1.HostService", "grpc.health.v1.Health"}


async def test_no_rpc_answers_without_the_token(daemon: Daemon) -> None:
    async with connected(daemon, ("x", "y")) as rpc:
        for method in host_pb2.DESCRIPTOR.services_by_name["HostService"].methods:
            request = getattr(host_pb2, method.input_type.name, None) or getattr(
                execution_pb2, method.input_type.name
            )
            failed = await failure(rpc.start(method.name, request()))
            assert (method.name, failed.code, failed.reason) == (
                method.name,
                "UNAUTHENTICATED",
                "UNAUTHENTICATED",
            )
