"""Pending calls run on a host and resumed on what it signed, with crashes in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from resume_kit import TERMS, Kit, new

from fakes.host import TOKEN, WORKSPACE_ID, FakeHost, RpcFault, Serving
from fakes.signing import Signer, SigningKey, refused
from workseal.client import HostClient
from workseal.errors import HostError, HostUnreachableError, NotVerifiedError
from workseal.pending import CallOutcome, NewCall, PendingCall
from workseal.results import OutputChunk
from workseal.resume import ResumedCalls, run_pending
from workseal.retry import RetryPolicy
from workseal.v1 import execution_pb2


@pytest.fixture
def kit() -> Kit:
    return Kit()


@pytest.fixture
def host(kit: Kit) -> FakeHost:
    return FakeHost(kit.signer)


@pytest.fixture
async def client(host: FakeHost, tmp_path: Path) -> AsyncIterator[HostClient]:
    retry = RetryPolicy(max_attempts=3, initial_s=0.001)
    socket = str(tmp_path / "h.sock")
    async with Serving(host, socket), HostClient(socket, token=TOKEN, retry=retry) as client:
        yield client


async def run(client: HostClient, kit: Kit, session: str = "s", **options: object) -> ResumedCalls:
    options.setdefault("terms", TERMS)
    return await run_pending(client, kit.store, kit.verifier, session, **options)  # type: ignore[arg-type]


async def test_all_pending_calls_run_once_in_order(client: HostClient, host: FakeHost, kit: Kit) -> None:
    await kit.add(new("c1"), new("c2", "bash"))
    resumed = await run(client, kit)
    assert host.runs == ["write_file", "bash"]
    assert [settled.result.outcome for settled in resumed.results] == [CallOutcome.COMPLETED] * 2
    assert await kit.store.pending("s") == ()


async def test_request_carries_the_stored_challenge_and_declaration(
    client: HostClient, host: FakeHost, kit: Kit
) -> None:
    (call,) = await kit.add(new("c1"))
    await run(client, kit, timeout_s=5)
    (request,) = host.requests
    assert request.call.challenge == call.challenge
    assert request.idempotency_key == TERMS.request(call).key(WORKSPACE_ID)
    assert request.side_effects.mutates_workspace
    assert request.limits.timeout.seconds == 5
    assert "GetHostInfo" not in host.calls


async def test_again_after_everything_was_settled_asks_nothing(
    client: HostClient, host: FakeHost, kit: Kit
) -> None:
    await kit.add(new("c1"))
    first = await run(client, kit)
    asked = list(host.calls)
    again = await run(client, kit)
    assert (again.results, again.earlier) == ((), first.results)
    assert host.calls == asked


async def test_crash_of_the_client_at_any_point_repeats_nothing(
    client: HostClient, host: FakeHost, kit: Kit
) -> None:
    await kit.add(new("c1"), new("c2"))
    for point in ("before-claim", "after-accepted", "after-effect"):
        host.at(point, RpcFault(grpc.StatusCode.INTERNAL, "INTERNAL", message="crash"))
        with pytest.raises(HostError):
            await run(client, kit)
        assert await kit.untouched("c1", "c2")
    resumed = await run(client, kit)
    assert len(resumed.results) == 2
    assert host.runs == ["write_file", "write_file"]


async def test_unverified_receipt_stops_before_the_next_call_is_sent(
    client: HostClient, host: FakeHost, kit: Kit
) -> None:
    await kit.add(new("c1"), new("c2"))
    host.sign = Signer(SigningKey())
    with pytest.raises(NotVerifiedError) as caught:
        await run(client, kit)
    assert caught.value.check == "signature"
    assert host.runs == ["write_file"]
    assert await kit.untouched("c1", "c2")


async def test_result_other_than_the_signed_one_is_refused(
    client: HostClient, host: FakeHost, kit: Kit
) -> None:
    await kit.add(new("c1"))
    host.result = b"something else"
    with pytest.raises(NotVerifiedError) as caught:
        await run(client, kit)
    assert caught.value.check == "result"
    assert await kit.untouched("c1")


async def test_receipt_of_another_call_is_refused(client: HostClient, host: FakeHost, kit: Kit) -> None:
    await kit.add(new("c1"))
    kit.signer.changes.append(lambda p: replace(p, call=replace(p.call, tool_call_id="c9")))
    with pytest.raises(NotVerifiedError) as caught:
        await run(client, kit)
    assert caught.value.reason == "other-call"
    assert await kit.untouched("c1")


async def test_receipts_of_others_in_between_are_fetched_and_verified(
    client: HostClient, host: FakeHost, kit: Kit
) -> None:
    await kit.add(new("c1"))
    await run(client, kit)
    other = Kit(signer=kit.signer)
    await other.add(new("x1"), new("x2"), session="other")
    await run(client, other, "other")
    await kit.add(new("c2", turn="t2"))
    resumed = await run(client, kit)
    assert resumed.by_call_id["c2"].is_verified
    assert host.calls.count("ListReceipts") == 1
    head = kit.record.head(WORKSPACE_ID)
    assert head is not None
    assert head.sequence == 4


async def test_host_that_holds_a_receipt_in_between_back_is_refused(
    client: HostClient, host: FakeHost, kit: Kit
) -> None:
    await kit.add(new("c1"))
    await run(client, kit)
    other = Kit(signer=kit.signer)
    await other.add(new("x1"), session="other")
    await run(client, other, "other")
    del host.chain[1]
    await kit.add(new("c2", turn="t2"))
    with pytest.raises(NotVerifiedError) as caught:
        await run(client, kit)
    assert (caught.value.check, caught.value.reason) == ("before", "gap")
    assert [call.tool_call_id for call in await kit.store.pending("s")] == ["c2"]


async def test_refused_outcome_is_an_error_observation(client: HostClient, host: FakeHost, kit: Kit) -> None:
    await kit.add(new("c1"))
    kit.signer.changes.append(refused)
    host.result = b""
    resumed = await run(client, kit)
    assert resumed.by_call_id["c1"].outcome is CallOutcome.REFUSED


async def test_call_that_cannot_be_sent_is_never_sent(client: HostClient, host: FakeHost, kit: Kit) -> None:
    await kit.add(NewCall("c1", "bash", '{"n": 1e999}', occurrence="t1"), new("c2"))
    resumed = await run(client, kit)
    assert resumed.by_call_id["c1"].outcome is CallOutcome.NOT_RUN
    assert host.runs == ["write_file"]


async def test_request_that_the_host_will_never_take_does_not_leave_the_session_stuck(
    client: HostClient, host: FakeHost, kit: Kit
) -> None:
    await kit.add(new("c1", "no-such-tool"), new("c2"))
    resumed = await run(client, kit)
    result = resumed.by_call_id["c1"]
    assert (result.outcome, result.is_verified) == (CallOutcome.NOT_RUN, False)
    assert "the host says that it did not take the call" in result.text
    assert resumed.by_call_id["c2"].outcome is CallOutcome.COMPLETED


async def test_tool_that_ran_and_was_then_removed_is_not_reported_as_never_run(
    client: HostClient, host: FakeHost, kit: Kit
) -> None:
    await kit.add(new("c1"))
    host.at("after-effect", RpcFault(grpc.StatusCode.INTERNAL, "INTERNAL"))
    with pytest.raises(HostError):
        await run(client, kit)
    host.tools.discard("write_file")
    resumed = await run(client, kit)
    assert resumed.by_call_id["c1"].outcome is CallOutcome.COMPLETED
    assert host.runs == ["write_file"]


async def test_doubt_about_an_earlier_attempt_is_not_taken_for_never_run(
    client: HostClient, host: FakeHost, kit: Kit
) -> None:
    await kit.add(new("c1", "no-such-tool"))
    host.at("wait", RpcFault(grpc.StatusCode.INTERNAL, "INTERNAL"))
    with pytest.raises(HostError) as caught:
        await run(client, kit)
    assert caught.value.reason == "INTERNAL"
    assert await kit.untouched("c1")


async def test_other_limits_than_in_the_first_attempt_still_get_its_receipt(
    client: HostClient, host: FakeHost, kit: Kit
) -> None:
    await kit.add(new("c1"))
    host.at("after-effect", RpcFault(grpc.StatusCode.INTERNAL, "INTERNAL"))
    with pytest.raises(HostError):
        await run(client, kit, timeout_s=5)
    resumed = await run(client, kit, timeout_s=9)
    assert resumed.by_call_id["c1"].is_verified
    assert host.runs == ["write_file"]


async def test_host_that_is_away_leaves_everything_pending(kit: Kit, tmp_path: Path) -> None:
    await kit.add(new("c1"))
    retry = RetryPolicy(max_attempts=2, initial_s=0.001)
    async with HostClient(tmp_path / "nobody.sock", token=TOKEN, retry=retry) as client:
        with pytest.raises(HostUnreachableError):
            await run(client, kit)
    assert await kit.untouched("c1")


async def test_output_names_its_call(client: HostClient, host: FakeHost, kit: Kit) -> None:
    stdout = execution_pb2.OUTPUT_STREAM_STDOUT
    host.output = [execution_pb2.OutputChunk(stream=stdout, data=b"x")]
    await kit.add(new("c1"))
    heard: list[tuple[str, OutputChunk]] = []

    def hear(call: PendingCall, chunk: OutputChunk) -> None:
        heard.append((call.tool_call_id, chunk))

    await run(client, kit, on_output=hear)
    assert heard == [("c1", OutputChunk("stdout", 0, b"x"))]


async def test_two_processes_at_once_run_each_call_once_and_agree(
    client: HostClient, host: FakeHost, kit: Kit
) -> None:
    await kit.add(new("c1"), new("c2"))
    one, two = await asyncio.gather(run(client, kit), run(client, kit))
    assert host.runs == ["write_file", "write_file"]
    assert {settled.result.envelope for settled in (*one.results, *one.earlier)} == {
        settled.result.envelope for settled in (*two.results, *two.earlier)
    }
