"""Stopping a host: what runs is finished or ended, every row is closed, nothing is left."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import grpc
import psutil
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc

from support.daemon import Daemon
from support.rpc import Failed, Rpc, call_message, challenge, connected, failure, outcome_of, predicate, until
from workseal.v1 import execution_pb2, host_pb2

DaemonFactory = Callable[..., Daemon]


def tell(daemon: Daemon, number: signal.Signals = signal.SIGTERM) -> None:
    assert daemon.process is not None
    daemon.process.send_signal(number)


async def ended(daemon: Daemon) -> int:
    assert daemon.process is not None
    await asyncio.to_thread(daemon.process.wait, 30)
    return daemon.stop()


async def stored(daemon: Daemon, rpc: Rpc, execution_id: str) -> dict[str, object]:
    selector = execution_pb2.ExecutionSelector(execution_id=execution_id)
    outcome = await outcome_of(rpc.start("WaitExecution", host_pb2.WaitExecutionRequest(execution=selector)))
    return predicate(outcome.receipt.envelope)


async def test_a_running_tool_may_finish_within_the_grace_period(
    workspace: Path, daemons: DaemonFactory
) -> None:
    daemon = daemons(workspace, config="shutdown_grace_s = 20\n")
    async with connected(daemon) as rpc:
        stream = rpc.start(
            "ExecuteTool", call_message(1, "until [ -e go-on ]; do sleep 0.02; done; echo done")
        )
        await until(stream, "accepted")
        tell(daemon)
        late = await failure_once_stopping(rpc)
        assert (late.code, late.reason) == ("UNAVAILABLE", "SHUTTING_DOWN")
        assert late.details["RetryInfo"].HasField("retry_delay")
        (workspace / "go-on").touch()
        outcome = await outcome_of(stream)
    assert predicate(outcome.receipt.envelope)["execution"]["exitCode"] == 0
    assert await ended(daemon) == 0


async def failure_once_stopping(rpc: Rpc) -> Failed:
    """Wait until health says that the host is stopping, then ask for a call."""
    health = health_pb2_grpc.HealthStub(rpc.channel)
    async for answer in health.Watch(health_pb2.HealthCheckRequest()):
        if answer.status == health_pb2.HealthCheckResponse.NOT_SERVING:
            break
    return await failure(rpc.start("ExecuteTool", call_message("late", "touch late")))


async def test_a_tool_that_goes_on_is_ended_and_its_row_closed(
    workspace: Path, daemons: DaemonFactory
) -> None:
    daemon = daemons(workspace, config="shutdown_grace_s = 0.3\n")
    async with connected(daemon) as rpc:
        stream = rpc.start("ExecuteTool", call_message(1, "echo $$ > pid; exec sleep 600"))
        accepted = await until(stream, "accepted")
        queued = asyncio.ensure_future(failure(rpc.start("ExecuteTool", call_message(2, "touch ran"))))
        await asyncio.sleep(0)
        tell(daemon)
        outcome = await outcome_of(stream)
        assert (await queued).reason in ("QUEUE_TIMEOUT", "SHUTTING_DOWN")
    assert await ended(daemon) == 0
    execution = predicate(outcome.receipt.envelope)["execution"]
    assert (execution["cancelled"], execution["timedOut"]) == (True, False)
    assert not (workspace / "ran").exists()

    daemon.start()
    async with connected(daemon) as rpc:
        assert (await stored(daemon, rpc, accepted.execution_id))["outcome"] == "completed"
        chain = await rpc.start("ListReceipts", host_pb2.ListReceiptsRequest())
    assert len(chain.receipts) == 1


async def test_a_second_signal_hastens(workspace: Path, daemons: DaemonFactory) -> None:
    daemon = daemons(workspace, config="shutdown_grace_s = 3600\n")
    async with connected(daemon) as rpc:
        stream = rpc.start("ExecuteTool", call_message(1, "sleep 600"))
        await until(stream, "accepted")
        tell(daemon)
        await failure_once_stopping(rpc)
        tell(daemon, signal.SIGINT)
        outcome = await outcome_of(stream)
    assert await ended(daemon) == 0
    assert predicate(outcome.receipt.envelope)["execution"]["cancelled"]


async def test_an_open_observation_is_closed_as_expired(workspace: Path, daemons: DaemonFactory) -> None:
    daemon = daemons(workspace, config="shutdown_grace_s = 0.1\n")
    call = execution_pb2.CallRef(session_id="s", tool_call_id="o", challenge=challenge("o"))
    request = host_pb2.BeginObservationRequest(call=call, tool="editor", ttl=Duration(seconds=600))
    async with connected(daemon) as rpc:
        begun = await rpc.start("BeginObservation", request)
    (workspace / "edited").touch()
    tell(daemon)
    assert await ended(daemon) == 0
    daemon.start()
    async with connected(daemon) as rpc:
        body = await stored(daemon, rpc, begun.execution_id)
    assert body["outcome"] == "expired"


async def test_the_socket_is_gone_and_no_process_is_left(workspace: Path, daemons: DaemonFactory) -> None:
    daemon = daemons(workspace, config="shutdown_grace_s = 0\n")
    async with connected(daemon) as rpc:
        stream = rpc.start("ExecuteTool", call_message(1, "setsid sleep 600 & sleep 600"))
        await until(stream, "accepted")
        children = psutil.Process(daemon.ready["pid"]).children(recursive=True)
        assert children
        tell(daemon)
        await outcome_of(stream)
    assert await ended(daemon) == 0
    assert not Path(daemon.ready["socket"]).exists()
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


async def test_a_signal_during_the_start_ends_it_cleanly(workspace: Path, daemons: DaemonFactory) -> None:
    made = Daemon(workspace, workspace.parent / "state")
    for delay_s in (0.2, 0.6, 1.0):
        process = subprocess.Popen(
            made.command(),
            env=made.clean_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        await asyncio.sleep(delay_s)  # wherever it is by then
        process.terminate()
        _, said = await asyncio.to_thread(process.communicate, timeout=30)
        assert process.returncode in (0, -signal.SIGTERM)
        assert b"Traceback" not in said
    daemon = daemons(workspace)
    assert daemon.ready["pid"]
    shutil.rmtree(made.runtime_dir, ignore_errors=True)


async def test_a_root_that_a_tool_replaced_ends_the_host(workspace: Path, daemons: DaemonFactory) -> None:
    daemon = daemons(workspace, config='isolation = "none"\n')
    command = f"cd / && mv '{workspace}' '{workspace}.old' && mkdir '{workspace}'"
    async with connected(daemon) as rpc:
        outcome = await outcome_of(rpc.start("ExecuteTool", call_message(1, command)))
    body = predicate(outcome.receipt.envelope)
    assert body["outcome"] == "inDoubt"
    assert body["workspace"]["after"] is None
    assert [violation["rule"] for violation in body["policy"]["violations"]] == ["root-replaced"]
    assert await ended(daemon) == 1
    assert "root was deleted or replaced" in daemon.log_file.read_text()
    assert not Path(daemon.ready["socket"]).exists()


async def test_health_ends_with_the_host(daemon: Daemon) -> None:
    async with grpc.aio.insecure_channel(f"unix:{daemon.ready['socket']}") as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        first = await watch.read()
        tell(daemon)
        second = await watch.read()
    assert isinstance(first, health_pb2.HealthCheckResponse)
    assert isinstance(second, health_pb2.HealthCheckResponse)
    assert (first.status, second.status) == (
        health_pb2.HealthCheckResponse.SERVING,
        health_pb2.HealthCheckResponse.NOT_SERVING,
    )
    assert await ended(daemon) == 0


async def test_f39_no_secret_of_a_call_reaches_the_log(workspace: Path, daemons: DaemonFactory) -> None:
    canary = "sk-canary-123"
    daemon = daemons(workspace, arguments=("--verbose",), environment={"FAKE_API_KEY": canary})
    token = Path(daemon.ready["token_file"]).read_text().strip()
    broken = call_message(3, "true")
    broken.arguments_json = b'{"command": "' + canary.encode()
    unknown = call_message(4, canary)
    unknown.tool = canary
    async with connected(daemon) as rpc:
        await outcome_of(rpc.start("ExecuteTool", call_message(1, f"echo {canary}; echo {canary} >&2")))
        await outcome_of(rpc.start("ExecuteTool", unknown))
        await failure(rpc.start("ExecuteTool", broken))
        await failure(rpc.start("GetDigest", host_pb2.GetDigestRequest(path=canary)))
    async with connected(daemon, ("authorization", f"Bearer {canary}")) as rpc:
        await failure(rpc.start("GetHostInfo", host_pb2.GetHostInfoRequest()))
    daemon.stop()
    log = daemon.log_file.read_text()
    assert [line for line in log.splitlines() if json.loads(line)["event"] == "call failed"]
    assert canary not in log
    assert token not in log
