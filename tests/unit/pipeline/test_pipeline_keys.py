"""One key, one execution: claims, joins, conflicts, the queue and cancellation."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest

from support.engines import SETTLED_S, Bench, ScriptedTool, predicate, reader
from workseal.calls import new_challenge
from workseal_host.coordination import calls
from workseal_host.coordination.live import Accepted, LiveExecution, Outcome
from workseal_host.errors import (
    BusyError,
    KeyConflictError,
    NotFoundError,
    QueueTimeoutError,
    WorkspaceError,
)
from workseal_host.execution.tool import READ_ONLY, ToolResult
from workseal_host.ledger.model import Claim, ExecutionRow
from workseal_host.ledger.states import ExecutionState
from workseal_host.leftovers import Leftovers
from workseal_host.requests import CallRef, Precondition, SideEffects
from workseal_host.workspace.scan import Scanner

OWN_KEY = "my-own-key-000001"


async def test_a_repeated_call_returns_the_stored_bytes(bench: Bench) -> None:
    await bench.open()
    request = bench.request("bash", {"command": "echo x >> log"})
    first, again = await bench.execute(request), await bench.execute(request)
    assert (bench.workspace / "log").read_text() == "x\n"
    assert again.receipt.envelope == first.receipt.envelope
    assert again.output == first.output
    assert (first.replayed, again.replayed) == (False, True)


async def test_the_order_of_argument_keys_does_not_matter(bench: Bench) -> None:
    await bench.open()
    request = bench.request("write_file", {"path": "f", "content": "1"})
    await bench.execute(request)
    again = await bench.execute(replace(request, arguments={"content": "1", "path": "f"}))
    assert again.replayed


@pytest.mark.parametrize(
    "change",
    [
        {"arguments": {"path": "f", "content": "2"}},
        {"tool": "bash"},
        {"timeout_s": 5.0},
        {"precondition": Precondition(workspace_digest="0" * 64)},
        {"observed": True},
    ],
    ids=["arguments", "tool", "limits", "precondition", "mode"],
)
async def test_another_request_under_the_same_key_is_a_conflict(
    bench: Bench, change: dict[str, object]
) -> None:
    await bench.open()
    request = bench.request("write_file", {"path": "f", "content": "1"}, idempotency_key=OWN_KEY)
    await bench.execute(request)
    with pytest.raises(KeyConflictError):
        await bench.execute(replace(request, **change))
    assert (bench.workspace / "f").read_text() == "1"
    assert (await bench.engine.ledger.head()).sequence == 1
    assert not await bench.engine.ledger.unsettled()


async def test_an_own_key_belongs_to_its_session(bench: Bench) -> None:
    await bench.open()
    here = bench.request("bash", {"command": "echo x >> log"}, idempotency_key=OWN_KEY)
    there = replace(here, call=CallRef("another session", here.call.tool_call_id, here.call.challenge))
    await bench.execute(here)
    assert not (await bench.execute(there)).replayed
    assert (bench.workspace / "log").read_text() == "x\nx\n"


async def test_an_own_key_holds_across_calls_of_a_session(bench: Bench) -> None:
    await bench.open()
    one = bench.request("bash", {"command": "echo x >> log"}, idempotency_key=OWN_KEY)
    other = bench.request("bash", {"command": "echo x >> log"}, idempotency_key=OWN_KEY)
    await bench.execute(one)
    assert (await bench.execute(other)).replayed


async def test_an_own_key_cannot_name_another_calls_default_key(bench: Bench) -> None:
    await bench.open()
    victim = bench.request("bash", {"command": "true"})
    default = victim.key(bench.engine.place.workspace_id)
    request = bench.request("bash", {"command": "echo x > f"}, idempotency_key=default)
    assert request.key(bench.engine.place.workspace_id) != default


async def test_another_challenge_is_another_occurrence(bench: Bench) -> None:
    await bench.open()
    request = bench.request("bash", {"command": "echo x >> log"})
    await bench.execute(request)
    call = replace(request.call, challenge=new_challenge())
    assert not (await bench.execute(replace(request, call=call))).replayed


async def test_a_refusal_leaves_the_key_free_and_counts_attempts(bench: Bench) -> None:
    await bench.open()
    (bench.workspace / "f").write_text("1")
    request = bench.request(
        "write_file", {"path": "f", "content": "2"}, precondition=Precondition(workspace_digest="0" * 64)
    )
    first, second = await bench.execute(request), await bench.execute(request)
    assert [predicate(first).call.attempt, predicate(second).call.attempt] == [1, 2]
    assert predicate(second).outcome == "refused"
    assert predicate(second).execution is None
    assert first.receipt.envelope != second.receipt.envelope
    # Waiting for it by its key gives the newest decision.
    waited = await bench.engine.pipeline.wait(key=request.key(bench.engine.place.workspace_id))
    assert isinstance(waited, Outcome)
    assert waited.receipt.envelope == second.receipt.envelope


async def test_duplicates_join_the_running_execution(bench: Bench) -> None:
    tool = ScriptedTool("slow").held()
    bench.tools.append(tool)
    await bench.open()
    request = bench.request("slow")
    found = [await bench.engine.pipeline.execute(request) for _ in range(32)]
    assert len({id(each) for each in found}) == 1
    tool.release.set()
    outcomes = [await bench.outcome(each) for each in found if isinstance(each, LiveExecution)]
    assert len({outcome.receipt.envelope for outcome in outcomes}) == 1
    assert tool.runs == 1


async def test_a_caller_that_goes_away_cancels_nothing(bench: Bench) -> None:
    tool = ScriptedTool("slow", lambda: (bench.workspace / "f").write_text("x")).held()
    bench.tools.append(tool)
    await bench.open()
    request = bench.request("slow")
    caller = asyncio.ensure_future(bench.execute(request))
    await tool.started.wait()
    caller.cancel()
    tool.release.set()
    assert (await bench.execute(request)).replayed in (True, False)
    assert tool.runs == 1


@pytest.mark.parametrize("steps", range(12))
async def test_a_caller_that_goes_away_while_claiming_blocks_nobody(bench: Bench, steps: int) -> None:
    await bench.open()
    request = bench.request("bash", {"command": "echo x >> log"})
    caller = asyncio.ensure_future(bench.execute(request))
    for _ in range(steps):
        await asyncio.sleep(0)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    assert predicate(await bench.run("bash", {"command": "true"})).outcome == "completed"
    await bench.execute(request)
    assert (bench.workspace / "log").read_text() == "x\n"


async def test_a_deadline_in_the_queue_leaves_the_key_free(bench: Bench) -> None:
    tool = ScriptedTool("slow").held()
    bench.tools.append(tool)
    await bench.open()
    running = await bench.begin(bench.request("slow"))
    await tool.started.wait()
    request = bench.request("bash", {"command": "echo x >> log"})
    with pytest.raises(QueueTimeoutError):
        await bench.execute(request, deadline=asyncio.get_running_loop().time() + 0.01)
    tool.release.set()
    await bench.outcome(running)
    outcome = await bench.execute(request)
    assert predicate(outcome).call.attempt == 2
    assert (bench.workspace / "log").read_text() == "x\n"


async def test_a_joiner_keeps_the_place_for_as_long_as_it_can_wait(bench: Bench) -> None:
    tool = ScriptedTool("slow").held()
    bench.tools.append(tool)
    await bench.open()
    running = await bench.begin(bench.request("slow"))
    await tool.started.wait()
    request = bench.request("bash", {"command": "true"})
    now = asyncio.get_running_loop().time()
    impatient = await bench.engine.pipeline.execute(request, deadline=now + 0.05)
    patient = await bench.engine.pipeline.execute(request)
    assert patient is impatient
    await asyncio.sleep(0.1)
    tool.release.set()
    await bench.outcome(running)
    assert isinstance(patient, LiveExecution)
    assert predicate(await bench.outcome(patient)).outcome == "completed"


async def test_a_call_that_comes_while_its_key_is_given_up_starts_anew(bench: Bench) -> None:
    tool = ScriptedTool("slow").held()
    bench.tools.append(tool)
    engine = await bench.open()
    running = await bench.begin(bench.request("slow"))
    await tool.started.wait()
    request = bench.request("bash", {"command": "true"})
    queued = await bench.begin(request)
    abandon, claim = engine.ledger.abandon, engine.ledger.claim
    giving_up, answered = asyncio.Event(), asyncio.Event()

    async def claim_just_before(wanted: Claim) -> tuple[ExecutionRow, bool]:
        engine.ledger.claim = claim
        found = await claim(wanted)
        await engine.pipeline.cancel(execution_id=queued.execution_id)
        await giving_up.wait()
        answered.set()
        return found

    async def abandon_just_after(execution_id: str) -> None:
        giving_up.set()
        await answered.wait()
        await abandon(execution_id)

    engine.ledger.claim, engine.ledger.abandon = claim_just_before, abandon_just_after
    late = asyncio.ensure_future(bench.execute(request))
    with pytest.raises(QueueTimeoutError):
        await bench.outcome(queued)
    tool.release.set()
    await bench.outcome(running)
    assert predicate(await late).outcome == "completed"


async def test_cancelling_in_the_queue_means_that_nothing_ran(bench: Bench) -> None:
    tool = ScriptedTool("slow").held()
    bench.tools.append(tool)
    engine = await bench.open()
    running = await bench.begin(bench.request("slow"))
    await tool.started.wait()
    request = bench.request("bash", {"command": "echo x >> log"})
    queued = await bench.begin(request)
    row, cancelling = await engine.pipeline.cancel(execution_id=queued.execution_id)
    assert (row.state, cancelling) == (ExecutionState.RECEIVED, True)
    with pytest.raises(QueueTimeoutError):
        await bench.outcome(queued)
    row = await engine.ledger.execution(execution_id=queued.execution_id)
    assert row.state is ExecutionState.ABANDONED
    with pytest.raises(QueueTimeoutError):
        await engine.pipeline.wait(execution_id=queued.execution_id)
    tool.release.set()
    await bench.outcome(running)
    assert not (bench.workspace / "log").exists()


async def test_cancelling_before_the_mark_means_that_nothing_ran(bench: Bench) -> None:
    engine = await bench.open()
    look = engine.observer.look
    live: list[str] = []

    async def cancel_while_looking(**how: object) -> object:
        for execution_id in live:
            await engine.pipeline.cancel(execution_id=execution_id)
        return await look(**how)

    engine.observer.look = cancel_while_looking
    found = await engine.pipeline.execute(bench.request("bash", {"command": "echo x > f"}))
    assert isinstance(found, LiveExecution)
    live.append(found.execution_id)
    with pytest.raises(QueueTimeoutError):
        await bench.outcome(found)
    assert not (bench.workspace / "f").exists()
    assert (await engine.ledger.head()).sequence == 0


async def test_cancelling_a_running_tool_is_signed(bench: Bench) -> None:
    tool = ScriptedTool("slow").held()
    bench.tools.append(tool)
    engine = await bench.open()
    running = await bench.begin(bench.request("slow"))
    await tool.started.wait()
    await engine.pipeline.cancel(execution_id=running.execution_id)
    stated = predicate(await bench.outcome(running))
    assert stated.outcome == "completed"
    assert stated.execution is not None
    assert stated.execution.cancelled
    row, cancelling = await engine.pipeline.cancel(execution_id=running.execution_id)
    assert (row.state, cancelling) == (ExecutionState.COMMITTED, False)


@pytest.mark.parametrize(
    ("registered", "declared", "waits"),
    [
        (READ_ONLY, None, False),
        (None, SideEffects(True, False, False, False, False), True),
        (READ_ONLY, SideEffects(True, False, True, False, False), True),
        (READ_ONLY, SideEffects(False, True, False, False, False), True),
        (replace(READ_ONLY, exclusive=True), None, True),
    ],
    ids=[
        "read-only",
        "declared-read-only",
        "declared-exclusive",
        "declared-mutating",
        "registered-exclusive",
    ],
)
async def test_the_stricter_declaration_decides_whether_a_call_is_alone(
    bench: Bench, registered: object, declared: SideEffects | None, waits: bool
) -> None:
    holder = reader("holder").held()
    tool = ScriptedTool("tool", side_effects=registered)
    bench.tools += [holder, tool]
    await bench.open()
    held = await bench.begin(bench.request("holder"))
    await holder.started.wait()
    live = await bench.begin(bench.request("tool", side_effects=declared))
    if not waits:
        await bench.outcome(live)
    assert tool.runs == (0 if waits else 1)
    holder.release.set()
    await bench.outcome(held)
    await bench.outcome(live)
    assert tool.runs == 1


async def test_what_is_refused_waits_for_no_reader(bench: Bench) -> None:
    holder = reader("holder").held()
    bench.tools.append(holder)
    await bench.open()
    held = await bench.begin(bench.request("holder"))
    await holder.started.wait()
    unknown = await bench.run("no-such-tool")
    malformed = await bench.run("write_file", {"path": 7})
    assert [predicate(each).outcome for each in (unknown, malformed)] == ["refused", "refused"]
    holder.release.set()
    await bench.outcome(held)


async def test_too_many_waiting_calls_are_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = ScriptedTool("slow").held()
    bench.tools.append(tool)
    engine = await bench.open()
    monkeypatch.setattr(engine.pipeline._calls, "_max_queue", 1)
    running = await bench.begin(bench.request("slow"))
    await tool.started.wait()
    waiting = await bench.begin(bench.request("bash", {"command": "true"}))
    with pytest.raises(BusyError):
        await bench.run("bash", {"command": "true"})
    tool.release.set()
    await bench.outcome(running)
    await bench.outcome(waiting)


async def test_stopping_ends_what_runs_and_gives_up_what_waits(bench: Bench) -> None:
    tool = ScriptedTool("slow").held()
    bench.tools.append(tool)
    engine = await bench.open()
    running = await bench.begin(bench.request("slow"))
    await tool.started.wait()
    waiting = await bench.begin(bench.request("bash", {"command": "true"}))
    await engine.pipeline.stop(0)
    assert predicate(await bench.outcome(running)).outcome == "completed"
    with pytest.raises(BusyError) as busy:
        await bench.outcome(waiting)
    assert busy.value.stopping
    with pytest.raises(BusyError):
        await bench.run("bash", {"command": "true"})
    assert not await engine.ledger.unsettled()


async def test_an_observation_that_nobody_ends_expires(bench: Bench) -> None:
    engine = await bench.open()
    observed = bench.request("edit", observed=True, ttl_s=0.01)
    begun = await engine.pipeline.begin_observation(observed)
    assert not isinstance(begun, Outcome)
    over = await engine.pipeline.wait(execution_id=begun.execution_id)
    stated = predicate(over if isinstance(over, Outcome) else await bench.outcome(over))
    assert (stated.outcome, stated.reason) == ("expired", "no-end-was-told")


async def test_an_observation_that_is_cancelled_expires_at_once(bench: Bench) -> None:
    engine = await bench.open()
    begun = await engine.pipeline.begin_observation(bench.request("edit", observed=True))
    assert not isinstance(begun, Outcome)
    await engine.pipeline.cancel(execution_id=begun.execution_id)
    over = await engine.pipeline.wait(execution_id=begun.execution_id)
    stated = predicate(over if isinstance(over, Outcome) else await bench.outcome(over))
    assert (stated.outcome, stated.reason) == ("expired", "cancelled")


async def test_an_observation_asked_for_again_is_the_same_one(bench: Bench) -> None:
    engine = await bench.open()
    observed = bench.request("edit", observed=True)
    begun = await engine.pipeline.begin_observation(observed)
    again = await engine.pipeline.begin_observation(observed)
    assert begun == again


@pytest.mark.parametrize("how", ["ended", "cancelled"])
async def test_an_observation_that_is_over_is_not_begun_again(bench: Bench, how: str) -> None:
    engine = await bench.open()
    observed = bench.request("edit", observed=True)
    begun = await engine.pipeline.begin_observation(observed)
    assert isinstance(begun, Accepted)
    look, looking, release = engine.observer.look, asyncio.Event(), asyncio.Event()

    async def slow(**how: Any) -> Any:
        looking.set()
        await release.wait()
        return await look(**how)

    engine.observer.look = slow
    ends = []
    if how == "ended":
        claimed = ToolResult(b"", exit_code=0)
        ends.append(asyncio.create_task(engine.pipeline.end_observation(begun.execution_id, claimed)))
    else:
        await engine.pipeline.cancel(execution_id=begun.execution_id)
    await asyncio.wait_for(looking.wait(), SETTLED_S)
    again = asyncio.create_task(engine.pipeline.begin_observation(observed))
    await asyncio.wait({again}, timeout=0.1)
    release.set()
    assert isinstance(await asyncio.wait_for(again, SETTLED_S), Outcome)
    await asyncio.gather(*ends)


async def test_a_scan_whose_caller_went_away_is_waited_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await bench.open()
    entered, release = threading.Semaphore(0), threading.Event()
    scan, begun = Scanner.scan, []

    def slow(*args: Any, **how: Any) -> Any:
        begun.append(release.is_set())
        entered.release()
        release.wait(SETTLED_S)
        return scan(*args, **how)

    monkeypatch.setattr(Scanner, "scan", slow)
    gone = asyncio.create_task(engine.pipeline.look())
    await asyncio.to_thread(entered.acquire, timeout=SETTLED_S)
    gone.cancel()
    following = asyncio.create_task(engine.pipeline.look())
    await asyncio.wait({gone, following}, timeout=0.1)
    release.set()
    await asyncio.wait_for(following, SETTLED_S)
    assert begun == [False, True]


async def test_a_host_that_stopped_looks_no_more(bench: Bench) -> None:
    engine = await bench.open()
    await engine.pipeline.stop(0)
    (bench.workspace / "f").write_text("1")
    with pytest.raises(WorkspaceError, match="stopp"):
        await engine.pipeline.look()


async def test_stopping_does_not_wait_for_a_claim_that_looks_for_ever(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await bench.open()
    monkeypatch.setattr(calls, "_PATIENCE_S", 0.05)
    closing, stopped = asyncio.Event(), asyncio.Event()

    async def look_for_ever() -> None:
        closing.set()
        await stopped.wait()

    monkeypatch.setattr(Leftovers, "close_all", lambda _: look_for_ever())
    monkeypatch.setattr(engine.observer, "stop", stopped.set)
    claim = asyncio.create_task(engine.pipeline.execute(bench.request("bash", {"command": "true"})))
    await asyncio.wait_for(closing.wait(), SETTLED_S)
    await asyncio.wait_for(engine.pipeline.stop(0), SETTLED_S)
    with pytest.raises(BusyError):
        await claim


async def test_what_does_not_exist_is_not_found(bench: Bench) -> None:
    engine = await bench.open()
    with pytest.raises(NotFoundError):
        await engine.pipeline.wait(execution_id="0" * 32)
    with pytest.raises(NotFoundError):
        await engine.pipeline.cancel(key="nothing")
