"""When ledger, keys, tool or workspace fail: the truth is told, and nothing is served over a gap."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from support.engines import Bench, ScriptedTool, changes, outside, predicate, reader
from workseal.receipt.errors import ReceiptFormError
from workseal_host.errors import (
    HostError,
    IsolationError,
    KeyRingError,
    LedgerError,
    RootReplacedError,
    WorkspaceError,
)
from workseal_host.execution.tool import ToolResult
from workseal_host.ledger.states import ExecutionState


class Fault:
    """Let a method fail a number of times.

    Args:
        method: the method.
        error: what it raises.
        times: how often.
        late: whether it fails only after its work is done.
    """

    def __init__(
        self, method: Callable[..., Awaitable[Any]], error: Exception, *, times: int = 1, late: bool = False
    ) -> None:
        self.method, self.error, self.left, self.late = method, error, times, late

    async def __call__(self, *args: Any, **how: Any) -> Any:
        fails, self.left = self.left > 0, max(0, self.left - 1)
        if fails and not self.late:
            raise self.error
        value = await self.method(*args, **how)
        if fails:
            raise self.error
        return value


def broken(method: Callable[..., Awaitable[Any]], **how: Any) -> Any:
    return Fault(method, LedgerError("disk full"), **how)


async def test_a_commit_that_fails_once_is_made_good_before_the_caller_hears(bench: Bench) -> None:
    engine = await bench.open()
    engine.ledger.settle = broken(engine.ledger.settle)
    outcome = await bench.run("bash", {"command": "echo 1 > f"})
    assert predicate(outcome).outcome == "completed"
    assert changes(outcome) == {"created": ["f"]}


async def test_a_commit_that_keeps_failing_is_an_error_and_blocks_what_follows(bench: Bench) -> None:
    engine = await bench.open()
    request = bench.request("bash", {"command": "echo 1 >> f"})
    engine.ledger.settle = broken(engine.ledger.settle, times=4)
    with pytest.raises(LedgerError):
        await bench.execute(request)
    # Two tries are used up. Nothing runs over the open row, not even a reader.
    for tool, arguments in (("bash", {"command": "echo 2 > g"}), ("read_file", {"path": "f"})):
        with pytest.raises(LedgerError):
            await bench.run(tool, arguments)
    assert not (bench.workspace / "g").exists()
    assert [row.state for row in await engine.ledger.unsettled()] == [ExecutionState.IN_FLIGHT]

    after = await bench.run("bash", {"command": "echo 3 > h"})
    outcome = await bench.execute(request)
    assert predicate(outcome).outcome == "completed"
    assert changes(outcome) == {"created": ["f"]}
    assert predicate(after).chain.sequence == predicate(outcome).chain.sequence + 1
    assert outside(after) == {}
    assert (bench.workspace / "f").read_text() == "1\n"


async def test_a_call_that_waits_meanwhile_does_not_run_over_an_open_row(bench: Bench) -> None:
    tool = ScriptedTool("slow").held()
    bench.tools.append(tool)
    engine = await bench.open()
    running = await bench.begin(bench.request("slow"))
    await tool.started.wait()
    waiting = await bench.begin(bench.request("bash", {"command": "echo 1 > f"}))
    engine.ledger.settle = broken(engine.ledger.settle, times=3)
    tool.release.set()
    with pytest.raises(LedgerError):
        await bench.outcome(running)
    with pytest.raises(LedgerError):
        await bench.outcome(waiting)
    assert not (bench.workspace / "f").exists()


async def test_a_commit_that_held_although_it_was_reported_as_failed(bench: Bench) -> None:
    engine = await bench.open()
    engine.ledger.settle = broken(engine.ledger.settle, late=True)
    request = bench.request("bash", {"command": "echo 1 > f"})
    outcome = await bench.execute(request)
    assert predicate(outcome).outcome == "completed"
    assert (await engine.ledger.head()).sequence == 1
    assert (await bench.execute(request)).receipt.envelope == outcome.receipt.envelope


async def test_a_mark_that_fails_frees_the_key(bench: Bench) -> None:
    engine = await bench.open()
    engine.ledger.mark_in_flight = broken(engine.ledger.mark_in_flight)
    request = bench.request("bash", {"command": "echo x >> f"})
    with pytest.raises(LedgerError):
        await bench.execute(request)
    assert not (bench.workspace / "f").exists()
    assert predicate(await bench.execute(request)).call.attempt == 2


async def test_a_mark_and_an_abandon_that_fail_leave_nothing_behind(bench: Bench) -> None:
    engine = await bench.open()
    engine.ledger.mark_in_flight = broken(engine.ledger.mark_in_flight)
    engine.ledger.abandon = broken(engine.ledger.abandon)
    request = bench.request("bash", {"command": "echo x >> f"})
    with pytest.raises(LedgerError, match="disk full"):
        await bench.execute(request)
    assert predicate(await bench.execute(request)).outcome == "completed"
    assert (bench.workspace / "f").read_text() == "x\n"
    assert not await engine.ledger.unsettled()


async def test_a_mark_that_held_although_it_was_reported_as_failed_is_in_doubt(bench: Bench) -> None:
    engine = await bench.open()
    engine.ledger.mark_in_flight = broken(engine.ledger.mark_in_flight, late=True)
    request = bench.request("bash", {"command": "echo x >> f"})
    outcome = await bench.execute(request)
    assert predicate(outcome).outcome == "inDoubt"
    assert changes(outcome) == {}
    assert not (bench.workspace / "f").exists()
    assert (await bench.execute(request)).replayed


async def test_a_row_that_stays_open_is_settled_by_the_next_host(bench: Bench) -> None:
    engine = await bench.open()
    request = bench.request("bash", {"command": "echo 1 >> f"})
    engine.ledger.settle = broken(engine.ledger.settle, times=100)
    with pytest.raises(LedgerError):
        await bench.execute(request)
    await bench.reopen()
    outcome = await bench.execute(request)
    assert predicate(outcome).outcome == "inDoubt"
    assert changes(outcome) == {"created": ["f"]}
    assert (bench.workspace / "f").read_text() == "1\n"


async def test_a_key_that_cannot_sign_leaves_the_row_open_until_it_can(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.open()

    def no_signer(*_: object) -> bytes:
        raise KeyRingError("the KMS is away")

    with monkeypatch.context() as patched:
        patched.setattr("workseal_host.sealing.sign_payload", no_signer)
        request = bench.request("bash", {"command": "echo 1 > f"})
        with pytest.raises(KeyRingError):
            await bench.execute(request)
        with pytest.raises(KeyRingError):
            await bench.run("bash", {"command": "true"})
    assert predicate(await bench.execute(request)).outcome == "completed"


async def test_a_result_that_fits_no_receipt_is_in_doubt(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.open()
    encode = "workseal_host.sealing.form.encode_statement"
    from workseal.receipt.statement import encode_statement

    def refuse_results(stated: Any) -> bytes:
        if stated.execution is not None and stated.execution.result is not None:
            raise ReceiptFormError("too strange", field="result")
        return encode_statement(stated)

    monkeypatch.setattr(encode, refuse_results)
    outcome = await bench.run("bash", {"command": "echo 1 > f"})
    assert predicate(outcome).outcome == "inDoubt"
    assert changes(outcome) == {"created": ["f"]}


async def test_changes_that_fit_no_receipt_are_in_doubt_and_in_nobodys_way(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.open()
    from workseal.receipt.statement import encode_statement

    def refuse_changes(stated: Any) -> bytes:
        if stated.workspace.changes.total:
            raise ReceiptFormError("too strange", field="changes")
        return encode_statement(stated)

    monkeypatch.setattr("workseal_host.sealing.form.encode_statement", refuse_changes)
    outcome = await bench.run("bash", {"command": "echo 1 > f"})
    stated = predicate(outcome)
    assert (stated.outcome, stated.workspace.after) == ("inDoubt", None)
    assert predicate(await bench.run("bash", {"command": "true"})).outcome == "completed"


async def test_a_refusal_that_fits_no_receipt_frees_its_key(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await bench.open()

    def refuse_all(stated: Any) -> bytes:
        raise ReceiptFormError("too strange", field="reason")

    with monkeypatch.context() as patched:
        patched.setattr("workseal_host.sealing.form.encode_statement", refuse_all)
        with pytest.raises(HostError, match="nothing ran"):
            await bench.run("no-such-tool")
    assert not await engine.ledger.unsettled()
    assert predicate(await bench.run("bash", {"command": "true"})).outcome == "completed"


@pytest.mark.parametrize(
    "error",
    [OSError("boom"), WorkspaceError("no space"), RuntimeError("a fault of ours")],
    ids=["system", "host", "unforeseen"],
)
async def test_a_tool_that_cannot_be_run_to_its_end_is_in_doubt(bench: Bench, error: Exception) -> None:
    def fail() -> None:
        (bench.workspace / "half").write_text("x")
        raise error

    bench.tools.append(ScriptedTool("failing", fail))
    await bench.open()
    request = bench.request("failing")
    outcome = await bench.execute(request)
    assert predicate(outcome).outcome == "inDoubt"
    assert changes(outcome) == {"created": ["half"]}
    assert (await bench.execute(request)).receipt.envelope == outcome.receipt.envelope


async def test_a_tool_that_was_not_started_is_refused_and_frees_its_key(bench: Bench) -> None:
    problem: list[Exception] = [IsolationError("no namespace; nothing ran")]

    def fail_once() -> None:
        if problem:
            raise problem.pop()
        (bench.workspace / "done").write_text("x")

    bench.tools.append(ScriptedTool("moody", fail_once))
    await bench.open()
    request = bench.request("moody")
    refused = predicate(await bench.execute(request))
    assert (refused.outcome, refused.execution) == ("refused", None)
    assert refused.reason.startswith("not-started")
    again = predicate(await bench.execute(request))
    assert (again.outcome, again.call.attempt) == ("completed", 2)


async def test_a_tool_that_was_not_started_is_closed_whatever_it_said(bench: Bench) -> None:
    def fail() -> None:
        raise IsolationError("not a text: \udcff")

    bench.tools.append(ScriptedTool("moody", fail))
    await bench.open()
    stated = predicate(await bench.run("moody"))
    assert (stated.outcome, stated.execution) == ("inDoubt", None)
    assert predicate(await bench.run("bash", {"command": "true"})).outcome == "completed"


async def test_what_nobody_saw_after_a_fault_of_the_host_is_not_stated(bench: Bench) -> None:
    def fail() -> None:
        raise RuntimeError("a fault")

    tool = ScriptedTool("tool", fail)
    bench.tools.append(tool)
    engine = await bench.open()
    look = engine.observer.look

    async def blind_after(**how: Any) -> Any:
        if tool.runs:
            raise WorkspaceError("too many open files", path=b"d")
        return await look(**how)

    engine.observer.look = blind_after
    stated = predicate(await bench.run("tool"))
    assert (stated.workspace.after, stated.workspace.ignore_policy_after) == (None, None)
    assert stated.execution is not None
    assert stated.execution.duration_ns > 0


async def test_nothing_runs_without_a_key_to_sign_with(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await bench.open()

    def no_key(*_: object) -> None:
        raise KeyRingError("others may read the private key")

    with monkeypatch.context() as patched:
        patched.setattr(type(engine.keys), "signer", no_key)
        with pytest.raises(KeyRingError):
            await bench.run("bash", {"command": "echo x > ran"})
    assert not (bench.workspace / "ran").exists()
    assert not await engine.ledger.unsettled()


async def test_processes_that_could_not_be_ended_put_the_call_in_doubt(bench: Bench) -> None:
    tool = ScriptedTool("tool")
    tool.result = ToolResult(b"", exit_code=0, survivors=True)
    bench.tools.append(tool)
    await bench.open()
    stated = predicate(await bench.run("tool"))
    assert stated.outcome == "inDoubt"
    assert stated.execution is not None
    assert stated.execution.survivors


@pytest.mark.parametrize("how", ["deleted", "replaced"])
async def test_a_root_that_goes_away_during_a_call_ends_the_host(bench: Bench, how: str) -> None:
    def act() -> None:
        shutil.rmtree(bench.workspace)
        if how == "replaced":
            bench.workspace.mkdir()

    bench.tools.append(ScriptedTool("tool", act))
    engine = await bench.open()
    stated = predicate(await bench.run("tool"))
    assert (stated.outcome, stated.workspace.after) == ("inDoubt", None)
    assert [item.rule for item in stated.policy.violations] == ["root-replaced"]
    assert engine.pipeline.root_replaced.is_set()
    with pytest.raises(RootReplacedError):
        await bench.run("bash", {"command": "true"})


async def test_a_root_that_goes_away_after_the_scan_leaves_no_after_digest(bench: Bench) -> None:
    engine = await bench.open()

    async def gone(view: object) -> object:
        raise RootReplacedError("the root is another directory")

    engine.observer.policy_after = gone
    stated = predicate(await bench.run("bash", {"command": "echo 1 > f"}))
    assert (stated.outcome, stated.workspace.after) == ("inDoubt", None)
    assert engine.pipeline.root_replaced.is_set()


async def test_a_root_that_goes_away_between_calls_ends_the_host(bench: Bench) -> None:
    engine = await bench.open()
    shutil.rmtree(bench.workspace)
    with pytest.raises(RootReplacedError):
        await bench.run("bash", {"command": "true"})
    assert engine.pipeline.root_replaced.is_set()
    assert not await engine.ledger.unsettled()


async def test_rules_that_cannot_be_read_before_a_call_refuse_it(bench: Bench) -> None:
    engine = await bench.open()
    (bench.workspace / ".worksealignore").mkdir()
    with pytest.raises(WorkspaceError):
        await bench.run("bash", {"command": "echo 1 > f"})
    assert not (bench.workspace / "f").exists()
    assert not await engine.ledger.unsettled()


async def test_rules_that_a_call_made_unreadable_are_a_violation(bench: Bench) -> None:
    await bench.open()
    outcome = await bench.run("bash", {"command": "mkdir .worksealignore; echo 1 > f"})
    stated = predicate(outcome)
    assert stated.workspace.after is not None
    assert stated.workspace.ignore_policy_after is None
    assert ("ignore-rules-unreadable") in [item.rule for item in stated.policy.violations]


async def test_a_workspace_that_cannot_be_seen_after_a_call_puts_it_in_doubt(bench: Bench) -> None:
    engine = await bench.open()
    look = engine.observer.look
    tool = ScriptedTool("tool")
    bench.tools.append(tool)
    engine = await bench.reopen()
    look = engine.observer.look

    async def blind_after(**how: Any) -> Any:
        if tool.runs:
            raise WorkspaceError("too many open files", path=b"d")
        return await look(**how)

    engine.observer.look = blind_after
    stated = predicate(await bench.run("tool"))
    assert (stated.outcome, stated.workspace.after) == ("inDoubt", None)
    assert "too many open files" in stated.reason


async def test_an_unready_ledger_does_not_stop_reading(bench: Bench) -> None:
    slow = reader("slow").held()
    bench.tools.append(slow)
    engine = await bench.open()
    engine.ledger.claim = Fault(engine.ledger.claim, LedgerError("disk full"))
    with pytest.raises(LedgerError):
        await bench.begin(bench.request("slow"))
    assert (await engine.pipeline.look()).entries == 0


async def test_a_damaged_record_of_a_call_in_flight_stops_the_start(bench: Bench) -> None:
    engine = await bench.open()
    engine.ledger.settle = broken(engine.ledger.settle, times=100)
    with pytest.raises(LedgerError):
        await bench.run("bash", {"command": "true"})
    await bench.close()
    connection = sqlite3.connect(engine.place.ledger)
    connection.execute("UPDATE executions SET evidence = x'00'")
    connection.commit()
    connection.close()
    with pytest.raises(LedgerError, match="backup"):
        await bench.open()
