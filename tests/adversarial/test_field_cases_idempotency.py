"""Field cases of keys, crashes and concurrency, through the real daemon."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from support.daemon import Daemon, DaemonFactory, DaemonFailedError
from workseal import NotVerifiedError, ReceiptVerifier
from workseal.calls import ToolCall, new_challenge
from workseal.errors import HostError, HostUnreachableError, KeyConflictError
from workseal.receipt.envelope import parse_envelope
from workseal.receipt.policy import Expectation
from workseal.receipt.predicate import ToolExecutionPredicate
from workseal.receipt.statement import parse_statement
from workseal.receipt.verifier import VerifiedReceipt
from workseal.results import HostResult

IMPATIENT_S = 1.0


def call(name: str, command: str, *, session: str = "session", **fields: Any) -> ToolCall:
    return ToolCall(session, name, "bash", {"command": command}, new_challenge(), **fields)


async def execute(daemon: Daemon, wanted: ToolCall, **how: Any) -> HostResult:
    async with daemon.client() as client:
        return await client.execute(wanted, **how)


async def verify(
    daemon: Daemon, verifier: ReceiptVerifier, wanted: ToolCall, result: HostResult
) -> VerifiedReceipt:
    expectation = Expectation(
        workspace_id=daemon.ready["workspace_id"],
        session_id=wanted.session_id,
        tool_call_id=wanted.tool_call_id,
        tool=wanted.tool,
        arguments_digest=wanted.arguments_digest,
        challenge=wanted.challenge,
    )
    return verifier.verify(result.envelope, expectation, result=result.result)


def outcome_of(result: HostResult) -> str:
    predicate = parse_statement(parse_envelope(result.envelope).payload).predicate
    assert isinstance(predicate, ToolExecutionPredicate)
    return predicate.outcome


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_f5_names_that_are_not_utf8_reach_the_receipt_and_come_back(daemon: Daemon) -> None:
    verifier = ReceiptVerifier(daemon.trust())
    wanted = call("1", r"printf x > $(printf 'bad-\377.txt'); printf x > $(printf 'bad-\376.txt')")
    verified = await verify(daemon, verifier, wanted, await execute(daemon, wanted))
    assert [entry.path for entry in verified.predicate.workspace.created] == [
        r"bad-\xfe.txt",
        r"bad-\xff.txt",
    ]
    assert os.listdir(os.fsencode(daemon.workspace)).count(b"bad-\xff.txt") == 1


async def test_f23_a_killed_host_never_runs_the_call_again(daemons: DaemonFactory, workspace: Path) -> None:
    daemon = daemons(workspace)
    verifier = ReceiptVerifier(daemon.trust())
    wanted = call("c1", "echo x >> log; sleep 30; echo late >> log")
    with_answer = asyncio.ensure_future(execute(daemon, wanted, deadline_s=60))
    await until((workspace / "log").exists)
    daemon.kill()
    daemon.start()
    # The client that was cut off asks again by itself, and so does everybody else.
    answers = [await with_answer, await execute(daemon, wanted), await execute(daemon, wanted)]
    assert len({answer.envelope for answer in answers}) == 1
    verified = await verify(daemon, verifier, wanted, answers[0])
    assert (verified.outcome, verified.done) == ("inDoubt", False)
    assert [entry.path for entry in verified.predicate.workspace.created] == ["log"]
    assert (workspace / "log").read_text() == "x\n"
    # Under a new occurrence the caller may decide to run it.
    assert outcome_of(await execute(daemon, call("c1", "echo y >> log"))) == "completed"


@pytest.mark.parametrize("isolation", ["auto", "none"])
async def test_f23_what_the_killed_host_left_running_is_over_before_the_scan(
    daemons: DaemonFactory, workspace: Path, isolation: str
) -> None:
    daemon = daemons(workspace, config=f'isolation = "{isolation}"\n')
    stubborn = "trap '' TERM HUP; while :; do date +%N >> log; sleep 0.01; done"
    wanted = call("c1", f'setsid bash -c "{stubborn}" & setsid bash -c "{stubborn}"')
    running = asyncio.ensure_future(execute(daemon, wanted, deadline_s=60))
    await until((workspace / "log").exists)
    daemon.kill()
    daemon.start()
    size = (workspace / "log").stat().st_size
    assert outcome_of(await running) == "inDoubt"
    await asyncio.sleep(0.3)
    assert (workspace / "log").stat().st_size == size
    next_one = await execute(daemon, call("c2", "true"))
    verifier = ReceiptVerifier(daemon.trust())
    await verify(daemon, verifier, wanted, await running)
    assert outcome_of(next_one) == "completed"


async def test_f26_concurrent_duplicates_run_once(daemon: Daemon) -> None:
    wanted = call("c1", "echo x >> log; sleep 0.5")
    answers = await asyncio.gather(*(execute(daemon, wanted) for _ in range(32)))
    assert (daemon.workspace / "log").read_text() == "x\n"
    assert len({(answer.envelope, answer.result) for answer in answers}) == 1


async def test_f26_a_retry_after_an_early_deadline_joins(daemon: Daemon) -> None:
    wanted = call("c1", "echo x >> log; sleep 2")
    with pytest.raises(HostUnreachableError):
        await execute(daemon, wanted, deadline_s=IMPATIENT_S)
    assert outcome_of(await execute(daemon, wanted)) == "completed"
    assert (daemon.workspace / "log").read_text() == "x\n"


async def test_f26_a_second_host_on_the_workspace_does_not_start(daemon: Daemon) -> None:
    second = Daemon(daemon.workspace, daemon.state)
    try:
        with pytest.raises(DaemonFailedError):
            second.start()
    finally:
        second.remove()
    assert outcome_of(await execute(daemon, call("c1", "true"))) == "completed"


async def test_f27_a_key_names_one_request_of_one_session(daemon: Daemon) -> None:
    key = "an-idempotency-key-of-mine"
    write = ToolCall(
        "session",
        "1",
        "write_file",
        {"path": "a.txt", "content": "one"},
        new_challenge(),
        idempotency_key=key,
    )
    first = await execute(daemon, write)
    with pytest.raises(KeyConflictError):
        await execute(daemon, replace(write, arguments={"path": "a.txt", "content": "two"}))
    assert (daemon.workspace / "a.txt").read_text() == "one"
    reordered = await execute(daemon, replace(write, arguments={"content": "one", "path": "a.txt"}))
    assert reordered.envelope == first.envelope
    elsewhere = await execute(daemon, replace(write, session_id="another"))
    assert elsewhere.envelope != first.envelope


async def test_f40_a_receipt_answers_one_call_only(daemon: Daemon) -> None:
    wanted = call("c1", "true", session="A")
    result = await execute(daemon, wanted)
    verifier = ReceiptVerifier(daemon.trust())
    for other in (
        replace(wanted, session_id="B"),
        replace(wanted, tool_call_id="c2"),
        replace(wanted, challenge=new_challenge()),
    ):
        with pytest.raises(NotVerifiedError):
            await verify(daemon, verifier, other, result)
    await verify(daemon, verifier, wanted, result)


async def test_f47_calls_of_two_sessions_get_what_is_theirs(daemon: Daemon) -> None:
    one, other = call("1", "sleep 0.5; echo a > a.ts", session="A"), call("1", "echo b > b.ts", session="B")
    results = await asyncio.gather(execute(daemon, one), execute(daemon, other))
    created = {}
    verifier = ReceiptVerifier(daemon.trust())
    pairs = sorted(zip((one, other), results, strict=True), key=lambda pair: pair[1].sequence)
    for wanted, result in pairs:
        verified = await verify(daemon, verifier, wanted, result)
        assert not verified.outside_changes
        created[wanted.session_id] = [entry.path for entry in verified.predicate.workspace.created]
    assert created == {"A": ["a.ts"], "B": ["b.ts"]}


@dataclass
class FaultyDaemon(Daemon):
    """A host that kills itself at one step, until `fault` is taken away."""

    fault: tuple[str, str] | None = None

    def command(self) -> list[str]:
        command = super().command()
        if self.fault is None:
            return command
        script = Path(__file__).parents[1] / "support" / "faulty_host.py"
        return [sys.executable, str(script), *self.fault, *command[3:]]


@pytest.mark.parametrize(
    "fault",
    [(method, when) for method in ("claim", "mark_in_flight", "settle") for when in ("before", "after")],
    ids="-".join,
)
async def test_f59_the_session_goes_on_wherever_the_host_was_killed(
    tmp_path: Path, workspace: Path, fault: tuple[str, str]
) -> None:
    daemon = FaultyDaemon(workspace, tmp_path / "state", fault=fault)
    try:
        daemon.start()
        verifier = ReceiptVerifier(daemon.trust())
        wanted = call("c1", "echo x >> log")
        with pytest.raises((HostUnreachableError, HostError)):
            await execute(daemon, wanted, deadline_s=IMPATIENT_S)
        daemon.kill()
        daemon.fault = None
        daemon.start()
        result = await execute(daemon, wanted)
        verified = await verify(daemon, verifier, wanted, result)
        expected = {
            "claim": ("completed", "x\n"),
            # After the mark nothing can be known any more: in doubt, although nothing ran.
            "mark_in_flight": ("completed", "x\n") if fault[1] == "before" else ("inDoubt", ""),
            "settle": ("inDoubt", "x\n") if fault[1] == "before" else ("completed", "x\n"),
        }[fault[0]]
        log = (workspace / "log").read_text() if (workspace / "log").exists() else ""
        assert (str(verified.outcome), log) == expected
        assert (await execute(daemon, wanted)).envelope == result.envelope
        for number in range(3):
            later = call(f"later-{number}", "true")
            await verify(daemon, verifier, later, await execute(daemon, later))
    finally:
        daemon.remove()
