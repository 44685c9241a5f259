"""A host under load: many callers, much output, many files. All bounds are the host's own figures."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from pathlib import Path

import psutil
import pytest
from google.protobuf.duration_pb2 import Duration

from support.daemon import Daemon
from support.rpc import Rpc, call_message, connected, outcome_of, predicate, until
from workseal.calls import ToolCall, new_challenge
from workseal.receipt.policy import Expectation
from workseal.receipt.verifier import ReceiptVerifier
from workseal.v1 import execution_pb2, host_pb2, receipt_pb2

MIB = 1 << 20


async def test_32_concurrent_callers_get_serialised_individually_correct_receipts(daemon: Daemon) -> None:
    calls = [
        ToolCall(
            f"session-{number % 4}",
            f"call-{number}",
            "bash",
            {"command": f"echo {number} > file-{number}"},
            new_challenge(),
        )
        for number in range(32)
    ]

    async def run(call: ToolCall) -> tuple[ToolCall, bytes, bytes]:
        async with daemon.client() as client:
            result = await client.execute(call)
            return call, result.envelope, result.result

    done = await asyncio.gather(*(run(call) for call in calls))
    verifier = ReceiptVerifier(daemon.trust())
    order = sorted(done, key=lambda item: predicate(item[1])["chain"]["sequence"])
    assert [predicate(envelope)["chain"]["sequence"] for _, envelope, _ in order] == list(range(1, 33))
    before = None
    for call, envelope, result in order:
        verified = verifier.verify(
            envelope,
            Expectation(
                workspace_id=daemon.ready["workspace_id"],
                session_id=call.session_id,
                tool_call_id=call.tool_call_id,
                tool=call.tool,
                arguments_digest=call.arguments_digest,
                challenge=call.challenge,
            ),
            result=result,
        )
        workspace = verified.predicate.workspace
        number = call.tool_call_id.removeprefix("call-")
        assert [entry.path for entry in workspace.created] == [f"file-{number}"]
        assert (workspace.modified, workspace.deleted) == ((), ())
        assert before is None or workspace.before == before
        before = workspace.after


async def peak_rss(daemon: Daemon, until_done: asyncio.Future[object]) -> int:
    process = psutil.Process(daemon.ready["pid"])
    peak = 0
    while not until_done.done():
        peak = max(peak, process.memory_info().rss)
        await asyncio.wait([until_done], timeout=0.02)
    return peak


async def run_measured(
    daemon: Daemon, rpc: Rpc, request: execution_pb2.ExecuteToolRequest
) -> tuple[int, object]:
    running = asyncio.ensure_future(outcome_of(rpc.start("ExecuteTool", request)))
    peak = await peak_rss(daemon, running)
    return peak, await running


@pytest.mark.parametrize(
    ("command", "least_bytes"),
    [
        pytest.param("head -c 2000000000 /dev/zero", 8 * MIB, id="zeros"),
        pytest.param("yes", 8 * MIB, id="yes"),
        pytest.param("yes >&2 & yes", 8 * MIB, id="both-streams"),
    ],
)
async def test_f20_memory_of_the_host_stays_bounded_while_a_tool_prints(
    daemon: Daemon, command: str, least_bytes: int
) -> None:
    limits = execution_pb2.Limits(timeout=Duration(seconds=3))
    async with connected(daemon) as rpc:
        await outcome_of(rpc.start("ExecuteTool", call_message("warm", "echo warm")))
        idle = psutil.Process(daemon.ready["pid"]).memory_info().rss
        peak, outcome = await run_measured(daemon, rpc, call_message(1, command, limits=limits))
    assert isinstance(outcome, execution_pb2.Outcome)
    execution = predicate(outcome.receipt.envelope)["execution"]
    assert execution["stdout"]["bytes"] > least_bytes
    assert execution["stdout"]["truncated"]
    assert peak - idle < 48 * MIB
    assert outcome.ByteSize() < 4 * MIB


async def test_f20_the_end_is_kept_and_the_digest_is_of_all(daemon: Daemon) -> None:
    async with connected(daemon) as rpc:
        outcome = await outcome_of(
            rpc.start("ExecuteTool", call_message(1, "head -c 50000000 /dev/zero | tr '\\0' a; echo END"))
        )
    assert outcome.output.result.endswith(b"END\n")
    assert outcome.output.stdout.sha256 == hashlib.sha256(b"a" * 50_000_000 + b"END\n").hexdigest()


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_25000_files_in_one_call_fit_and_the_rest_is_served_and_proved(daemon: Daemon) -> None:
    command = "mkdir many && cd many && seq -f 'file-%05.0f' 1 25000 | xargs touch"
    async with connected(daemon) as rpc:
        outcome = await outcome_of(rpc.start("ExecuteTool", call_message(1, command)))
        sequence = outcome.receipt.sequence
        selector = receipt_pb2.ReceiptSelector(sequence=sequence)
        parts = [part async for part in rpc.start("GetChanges", host_pb2.GetChangesRequest(receipt=selector))]
    workspace = predicate(outcome.receipt.envelope)["workspace"]
    assert outcome.ByteSize() < 4 * MIB
    assert len(workspace["created"]) == 5000
    assert workspace["changes"]["complete"] is False
    assert workspace["changes"]["created"] == 25_001
    lines = b"".join(part.lines for part in parts)
    assert hashlib.sha256(lines).hexdigest() == workspace["changes"]["digest"]["sha256"]
    assert [json.loads(line)["path"] for line in lines.splitlines()] == [
        change.path for part in parts for change in part.changes
    ]
    assert lines.count(b"\n") == 25_001
    assert max(part.ByteSize() for part in parts) < 4 * MIB


def threads_and_descriptors(pid: int) -> tuple[int, int]:
    return len(os.listdir(f"/proc/{pid}/task")), len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
async def test_f56_streaming_clients_and_many_spawns_leave_no_thread_descriptor_or_noise(
    daemon: Daemon,
) -> None:
    async def client(number: int, calls: int) -> None:
        async with connected(daemon) as rpc:
            for index in range(calls):
                outcome = await outcome_of(
                    rpc.start("ExecuteTool", call_message(f"{number}-{index}", "true"))
                )
                assert predicate(outcome.receipt.envelope)["execution"]["exitCode"] == 0

    await asyncio.gather(*(client(100 + number, 3) for number in range(8)))
    threads, descriptors = threads_and_descriptors(daemon.ready["pid"])
    await asyncio.gather(*(client(number, 20) for number in range(8)))
    async with connected(daemon) as rpc:  # the others' connections are closed by now, as the host sees it
        await rpc.start("GetHostInfo", host_pb2.GetHostInfoRequest())
        threads_after, descriptors_after = threads_and_descriptors(daemon.ready["pid"])
    # Worker threads are made on demand up to a fixed number, and connections close a little later.
    assert threads_after <= threads + 8
    assert descriptors_after <= descriptors + 8
    for line in daemon.log_file.read_text().splitlines():
        assert json.loads(line)["level"] in ("debug", "info")


async def test_the_output_of_one_call_never_reaches_the_listener_of_another(daemon: Daemon) -> None:
    async with connected(daemon) as rpc:
        first = rpc.start("ExecuteTool", call_message(1, "until [ -e go-on ]; do sleep 0.02; done; echo one"))
        await until(first, "accepted")
        second = rpc.start("ExecuteTool", call_message(2, "echo two"))
        (daemon.workspace / "go-on").touch()
        outcomes = await asyncio.gather(outcome_of(first), outcome_of(second))
    assert [outcome.output.stdout.head for outcome in outcomes] == [b"one\n", b"two\n"]
