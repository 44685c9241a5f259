"""What a client with a record can follow: each receipt continues the one before, or says what is between."""

from __future__ import annotations

import asyncio
import contextlib
import shutil

import pytest

from support.engines import Bench, changes, outside, predicate, reader
from workseal.errors import NotVerifiedError
from workseal_host.coordination.live import Accepted, Outcome
from workseal_host.execution.tool import ToolResult
from workseal_host.requests import CallRequest


async def run(bench: Bench, tool: str = "bash", **arguments: str) -> tuple[CallRequest, Outcome]:
    request = bench.request(tool, dict(arguments))
    return request, await bench.execute(request)


async def test_calls_in_a_row_account_for_each_other(bench: Bench) -> None:
    await bench.open()
    verifier = bench.verifier()
    for number in range(3):
        request, outcome = await run(bench, command=f"echo {number} > f")
        verified = await bench.verify(verifier, request, outcome)
        assert not verified.outside_changes


async def test_the_first_receipt_of_a_chain_knows_no_outside(bench: Bench) -> None:
    await bench.open()
    assert outside((await run(bench, command="true"))[1]) is None


async def test_a_change_between_calls_is_an_outside_change_of_the_next(bench: Bench) -> None:
    await bench.open()
    verifier = bench.verifier()
    await bench.verify(verifier, *await run(bench, command="echo 1 > f"))
    (bench.workspace / "mine.txt").write_text("mine")
    request, outcome = await run(bench, command="echo 2 > g")
    await bench.verify(verifier, request, outcome)
    assert outside(outcome) == {"created": ["mine.txt"]}
    assert changes(outcome) == {"created": ["g"]}


async def test_rules_changed_by_a_call_are_bridged_by_the_next(bench: Bench) -> None:
    await bench.open()
    verifier = bench.verifier()
    await bench.verify(verifier, *await run(bench, command="mkdir build; echo 1 > build/f; echo 1 > keep"))
    changing, changed = await run(bench, command="echo build > .worksealignore; echo 2 > build/f")
    await bench.verify(verifier, changing, changed)
    assert (
        predicate(changed).workspace.ignore_policy_after != predicate(changed).workspace.ignore_policy_before
    )
    assert changes(changed) == {"created": [".worksealignore"], "modified": ["build/f"]}

    request, outcome = await run(bench, command="echo 3 > build/f; echo 3 > g")
    await bench.verify(verifier, request, outcome)
    bridge = predicate(outcome).workspace.bridge
    assert bridge is not None
    assert bridge.digest == predicate(changed).workspace.after
    assert outside(outcome) == {}
    assert changes(outcome) == {"created": ["g"]}


async def test_rules_changed_outside_are_bridged_and_listed(bench: Bench) -> None:
    await bench.open()
    verifier = bench.verifier()
    await bench.verify(verifier, *await run(bench, command="mkdir build; echo 1 > build/f; echo 1 > keep"))
    (bench.workspace / ".worksealignore").write_text("build\n")
    (bench.workspace / "build" / "f").write_text("changed while it counted")
    request, outcome = await run(bench, "read_file", path=".worksealignore")
    await bench.verify(verifier, request, outcome)
    assert predicate(outcome).workspace.bridge is not None
    assert outside(outcome) == {"created": [".worksealignore"], "modified": ["build/f"]}
    # And the one after it needs no bridge any more.
    request, outcome = await run(bench, command="true")
    await bench.verify(verifier, request, outcome)
    assert predicate(outcome).workspace.bridge is None


async def test_rules_of_the_configuration_changed_between_two_hosts_are_bridged(bench: Bench) -> None:
    await bench.open()
    verifier = bench.verifier()
    await bench.verify(verifier, *await run(bench, command="mkdir out; echo 1 > out/f; echo 1 > g"))
    await bench.reopen(ignore=("out",))
    request, outcome = await run(bench, command="true")
    await bench.verify(verifier, request, outcome)
    assert predicate(outcome).workspace.bridge is not None
    assert outside(outcome) == {}


async def test_a_restart_of_the_host_is_not_seen_in_the_chain(bench: Bench) -> None:
    await bench.open()
    verifier = bench.verifier()
    await bench.verify(verifier, *await run(bench, command="echo 1 > f"))
    await bench.reopen()
    request, outcome = await run(bench, command="echo 2 > f")
    verified = await bench.verify(verifier, request, outcome)
    assert predicate(outcome).chain.sequence == 2
    assert not verified.outside_changes


@pytest.mark.parametrize("while_running", [False, True], ids=["no-host-ran", "host-runs"])
async def test_a_key_rotation_in_between_is_followed(bench: Bench, while_running: bool) -> None:
    await bench.open()
    verifier = bench.verifier()
    await bench.verify(verifier, *await run(bench, command="echo 1 > f"))
    if while_running:
        bench.engine.keys.rotate()
    else:
        from workseal_host.attestation.keyring import KeyRing

        await bench.close()
        KeyRing.open(bench.state).rotate()
        await bench.open()
    (bench.workspace / "mine").write_text("x")
    request, outcome = await run(bench, command="true")
    await bench.verify(verifier, request, outcome)
    assert predicate(outcome).chain.sequence == 3
    assert outside(outcome) == {"created": ["mine"]}


async def test_an_unseen_state_in_between_leaves_outside_changes_unknown(bench: Bench) -> None:
    await bench.open()
    verifier = bench.verifier()
    await bench.verify(verifier, *await run(bench, command="echo 1 > f"))
    # A root that was away during the call, and is the same one again after it.
    request, outcome = await run(bench, command="cd ..; mv workspace away; mkdir workspace")
    await bench.verify(verifier, request, outcome)
    assert predicate(outcome).workspace.after is None
    await bench.close()
    shutil.rmtree(bench.workspace)
    (bench.base / "away").rename(bench.workspace)
    await bench.open()
    request, outcome = await run(bench, command="echo 2 > f")
    await bench.verify(verifier, request, outcome)
    assert outside(outcome) is None


async def test_an_observation_in_between_is_accounted_for(bench: Bench) -> None:
    await bench.open()
    verifier = bench.verifier()
    await bench.verify(verifier, *await run(bench, command="echo 1 > f"))
    observed = bench.request("edit", {"file": "f"}, observed=True)
    begun = await bench.engine.pipeline.begin_observation(observed)
    assert isinstance(begun, Accepted)
    (bench.workspace / "f").write_text("edited elsewhere")
    ended = await bench.engine.pipeline.end_observation(begun.execution_id, ToolResult(b"ok", exit_code=None))
    await bench.verify(verifier, observed, ended)
    assert changes(ended) == {"modified": ["f"]}
    await bench.verify(verifier, *await run(bench, command="echo 3 > f"))


async def test_the_whole_chain_under_nonoka_rules(bench: Bench) -> None:
    await bench.open(scheme="nonoka/1")
    verifier = bench.verifier()
    await bench.verify(
        verifier, *await run(bench, command="mkdir -p d/e; echo 1 > d/f; echo coverage > .worksealignore")
    )
    (bench.workspace / "mine").write_text("x")
    (bench.workspace / "empty").mkdir()
    await bench.reopen()
    request, outcome = await run(bench, "write_file", path="new/g", content="2")
    await bench.verify(verifier, request, outcome)
    assert outside(outcome) == {"created": ["mine"]}
    assert changes(outcome) == {"created": ["new/g"]}


async def test_another_scheme_than_before_is_not_compared(bench: Bench) -> None:
    await bench.open(scheme="nonoka/1")
    await run(bench, command="mkdir d; echo 1 > f")
    await bench.reopen(scheme="workseal-tree/1")
    _, outcome = await run(bench, command="true")
    assert outside(outcome) is None
    assert predicate(outcome).workspace.bridge is None


async def test_overlapping_readers_never_report_a_change_backwards(bench: Bench) -> None:
    slow, quick = reader("slow").held(), reader("quick")
    bench.tools += [slow, quick]
    await bench.open()
    verifier = bench.verifier()
    await bench.verify(verifier, *await run(bench, command="echo 1 > f"))
    first = bench.request("slow")
    running = await bench.begin(first)
    await slow.started.wait()
    (bench.workspace / "mine").write_text("x")
    second, over = await run(bench, "quick")
    slow.release.set()
    late = await bench.outcome(running)

    await bench.verify(verifier, second, over)
    assert outside(over) == {"created": ["mine"]}
    await bench.verify(verifier, first, late)
    # Its before-scan is older than what the entry before it saw: created, not deleted.
    assert outside(late) == {"created": ["mine"]}
    assert predicate(late).workspace.before != predicate(over).workspace.after
    await bench.verify(verifier, *await run(bench, command="true"))


async def test_overlapping_readers_see_what_came_and_went(bench: Bench) -> None:
    slow, quick = reader("slow").held(), reader("quick")
    bench.tools += [slow, quick]
    await bench.open()
    verifier = bench.verifier()
    await bench.verify(verifier, *await run(bench, command="echo 1 > f"))
    first = bench.request("slow")
    running = await bench.begin(first)
    await slow.started.wait()
    (bench.workspace / "mine").write_text("x")
    second, over = await run(bench, "quick")
    (bench.workspace / "mine").unlink()
    slow.release.set()
    late = await bench.outcome(running)
    await bench.verify(verifier, second, over)
    await bench.verify(verifier, first, late)
    assert outside(late) == {"created": ["mine"]}


async def test_the_first_reader_after_a_change_of_rules_is_alone(bench: Bench) -> None:
    slow, quick = reader("slow").held(), reader("quick")
    bench.tools += [slow, quick]
    await bench.open()
    verifier = bench.verifier()
    await bench.verify(verifier, *await run(bench, command="echo 1 > f; echo 1 > keep"))
    (bench.workspace / ".worksealignore").write_text("f\n")
    first = bench.request("slow")
    running = await bench.begin(first)
    await slow.started.wait()
    second = bench.request("quick")
    waiting = await bench.begin(second)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(quick.started.wait(), 0.2)
    assert quick.runs == 0
    slow.release.set()
    outcomes = [await bench.outcome(running), await bench.outcome(waiting)]
    for request, outcome in zip((first, second), outcomes, strict=True):
        await bench.verify(verifier, request, outcome)
    assert [outside(outcome) for outcome in outcomes] == [{"created": [".worksealignore"]}, {}]


async def test_a_restored_ledger_begins_a_new_chain(bench: Bench) -> None:
    await bench.open()
    verifier = bench.verifier()
    await bench.verify(verifier, *await run(bench, command="echo 1 > f"))
    ledger = bench.engine.place.ledger
    await bench.close()
    shutil.copy(ledger, bench.base / "backup")
    await bench.open()
    await run(bench, command="echo 2 > f")
    await bench.close()
    for suffix in ("-wal", "-shm"):
        ledger.with_name(ledger.name + suffix).unlink(missing_ok=True)
    shutil.copy(bench.base / "backup", ledger)
    await bench.open()
    request, outcome = await run(bench, command="echo 3 > f")
    assert predicate(outcome).chain.sequence == 1
    assert predicate(outcome).chain.previous is None
    assert outside(outcome) is None
    with pytest.raises(NotVerifiedError) as refused:
        await bench.verify(verifier, request, outcome)
    assert refused.value.reason == "chain-changed"


async def test_a_deleted_ledger_begins_a_new_chain(bench: Bench) -> None:
    engine = await bench.open()
    await run(bench, command="echo 1 > f")
    chain_id = engine.ledger.chain_id
    await bench.close()
    for file in engine.place.ledger.parent.glob("ledger*"):
        file.unlink()
    engine = await bench.open()
    _, outcome = await run(bench, command="true")
    assert engine.ledger.chain_id != chain_id
    assert predicate(outcome).chain.sequence == 1
    assert outside(outcome) is None
