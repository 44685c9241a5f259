"""Closing what a crash left open. The crash is a ledger whose receipts cannot be committed any more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.engines import Bench, ScriptedTool, changes, outside, predicate, reader
from workseal_host.coordination.remains import boot_id, end_remains
from workseal_host.errors import LedgerError
from workseal_host.execution.isolation import SUPERVISOR
from workseal_host.ledger.states import ExecutionState
from workseal_host.requests import CallRequest
from workseal_host.workspace.scheme import DigestScheme


async def crash_during(bench: Bench, request: CallRequest) -> None:
    """Let a call run, and the host end before its receipt is committed."""

    async def never(*_: object, **__: object) -> None:
        raise LedgerError("the power is gone")

    bench.engine.ledger.settle = never
    with pytest.raises(LedgerError):
        await bench.execute(request)
    await bench.close()


async def test_a_call_in_flight_is_in_doubt_with_its_evidence(bench: Bench) -> None:
    await bench.open()
    verifier = bench.verifier()
    before = bench.request("bash", {"command": "echo 1 > f"})
    await bench.verify(verifier, before, await bench.execute(before))
    (bench.workspace / "mine").write_text("x")
    request = bench.request("bash", {"command": "echo 2 > f"})
    await crash_during(bench, request)
    await bench.open()
    outcome = await bench.execute(request)
    await bench.verify(verifier, request, outcome)
    stated = predicate(outcome)
    assert (stated.outcome, stated.reason) == ("inDoubt", "the host ended while the call was in flight")
    assert changes(outcome) == {"modified": ["f"]}
    assert outside(outcome) == {"created": ["mine"]}
    assert stated.execution is not None
    assert (stated.execution.isolation, stated.execution.result) == ("none", None)
    assert stated.workspace.after == (await bench.engine.observer.look()).digest
    after = bench.request("bash", {"command": "true"})
    verified = await bench.verify(verifier, after, await bench.execute(after))
    assert not verified.outside_changes


async def test_f23_every_retry_gets_the_same_answer_and_nothing_runs_again(bench: Bench) -> None:
    await bench.open()
    request = bench.request("bash", {"command": "echo x >> log"})
    await crash_during(bench, request)
    answers = []
    for _ in range(2):
        await bench.open()
        answers += [await bench.execute(request), await bench.execute(request)]
        await bench.close()
    assert len({answer.receipt.envelope for answer in answers}) == 1
    assert (bench.workspace / "log").read_text() == "x\n"


async def test_the_same_durable_state_leads_to_the_same_decision(bench: Bench) -> None:
    await bench.open()
    request = bench.request("write_file", {"path": "f", "content": "x"})
    await crash_during(bench, request)
    shutil.copytree(bench.state, bench.base / "saved", ignore=shutil.ignore_patterns("*.lock"))
    decisions = []
    for _ in range(2):
        await bench.open()
        stated = predicate(await bench.execute(request))
        decisions.append((stated.outcome, stated.reason, stated.workspace, stated.verification, stated.chain))
        await bench.close()
        shutil.rmtree(bench.state)
        shutil.copytree(bench.base / "saved", bench.state)
    assert decisions[0] == decisions[1]


async def test_what_the_tool_predicted_outlives_the_crash(bench: Bench) -> None:
    await bench.open()
    request = bench.request("write_file", {"path": "f", "content": "x"})
    await crash_during(bench, request)
    (bench.workspace / "mine").write_text("while no host ran")
    await bench.open()
    outcome = await bench.execute(request)
    assert changes(outcome) == {"created": ["f"]}
    assert outside(outcome) == {"created": ["mine"]}
    assert predicate(outcome).verification.status == "passed"


async def test_rules_are_bridged_across_a_crash(bench: Bench) -> None:
    await bench.open()
    verifier = bench.verifier()
    first = bench.request("bash", {"command": "mkdir build; echo 1 > build/f; echo 1 > keep"})
    await bench.verify(verifier, first, await bench.execute(first))
    (bench.workspace / ".worksealignore").write_text("build\n")
    request = bench.request("bash", {"command": "echo '#' >> .worksealignore; echo 2 > f"})
    await crash_during(bench, request)
    await bench.open()
    outcome = await bench.execute(request)
    await bench.verify(verifier, request, outcome)
    assert predicate(outcome).workspace.bridge is not None
    assert outside(outcome) == {"created": [".worksealignore"]}
    assert changes(outcome) == {"modified": [".worksealignore"], "created": ["f"]}
    last = bench.request("bash", {"command": "true"})
    await bench.verify(verifier, last, await bench.execute(last))


async def test_the_scheme_of_the_record_counts_not_that_of_the_new_configuration(bench: Bench) -> None:
    await bench.open(scheme="nonoka/1")
    request = bench.request("bash", {"command": "mkdir empty; echo 1 > f"})
    await crash_during(bench, request)
    await bench.open(scheme="workseal-tree/1")
    outcome = await bench.execute(request)
    view = await bench.engine.observer.look(scheme=DigestScheme.NONOKA_1)
    stated = predicate(outcome).workspace
    assert (stated.scheme, stated.after) == ("nonoka/1", view.digest)
    assert changes(outcome) == {"created": ["f"]}


async def test_rules_of_the_host_are_kept_across_a_crash(bench: Bench) -> None:
    bench.tools.append(reader("liar", lambda: (bench.workspace / "opencode.json").write_text("{}") and None))
    await bench.open()
    request = bench.request("liar")
    await crash_during(bench, request)
    await bench.open()
    rules = [item.rule for item in predicate(await bench.execute(request)).policy.violations]
    assert rules == ["read-only", "protected:opencode.json*"]


async def test_several_readers_in_flight_are_settled_one_after_another(bench: Bench) -> None:
    tools = [reader(name).held() for name in ("one", "two")]
    bench.tools += tools
    engine = await bench.open()
    verifier = bench.verifier()
    requests = [bench.request(tool.name) for tool in tools]
    running = []
    for tool, request in zip(tools, requests, strict=True):
        running.append(await bench.begin(request))
        await tool.started.wait()
        (bench.workspace / tool.name).write_text("x")

    async def never(*_: object, **__: object) -> None:
        raise LedgerError("the power is gone")

    engine.ledger.settle = never
    for tool, live in zip(tools, running, strict=True):
        tool.release.set()
        with pytest.raises(LedgerError):
            await bench.outcome(live)
    await bench.reopen()
    for request in requests:
        await bench.verify(verifier, request, await bench.execute(request))
    last = bench.request("bash", {"command": "true"})
    await bench.verify(verifier, last, await bench.execute(last))


async def test_a_received_call_never_ran_and_its_key_is_free(bench: Bench) -> None:
    tool = ScriptedTool("slow").held()
    bench.tools.append(tool)
    engine = await bench.open()
    request = bench.request("bash", {"command": "echo x >> log"})

    async def never(*_: object, **__: object) -> None:
        raise LedgerError("the power is gone")

    engine.ledger.mark_in_flight = never
    engine.ledger.abandon = never
    with pytest.raises(LedgerError):
        await bench.execute(request)
    assert [row.state for row in await engine.ledger.unsettled()] == [ExecutionState.RECEIVED]
    engine = await bench.reopen()
    assert not await engine.ledger.unsettled()
    assert predicate(await bench.execute(request)).outcome == "completed"
    assert (bench.workspace / "log").read_text() == "x\n"


@pytest.fixture
def straggler(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like the supervisor of execution `0123abcd`."""
    script = tmp_path / "execution" / "supervisor.py"
    script.parent.mkdir()
    script.write_text("import time\nprint(flush=True)\ntime.sleep(60)\n")
    started = subprocess.Popen(
        [sys.executable, str(script), "3", "4", "5", "0123abcd"], stdout=subprocess.PIPE
    )
    assert started.stdout is not None
    started.stdout.readline()
    yield started
    started.kill()
    started.wait()
    started.stdout.close()


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_what_is_left_of_an_execution_is_ended(
    straggler: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workseal_host.coordination.remains._PATIENCE_S", 0.05)
    assert end_remains("0123abcd", boot=boot_id())
    assert straggler.wait(5) != 0


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_other_executions_and_other_boots_are_left_alone(
    straggler: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workseal_host.coordination.remains._PATIENCE_S", 0.05)
    assert end_remains("89abcdef", boot=boot_id())
    assert end_remains("0123abcd", boot="another boot")
    assert straggler.poll() is None


def test_supervisors_are_known_by_the_script_that_they_run() -> None:
    script = os.fsencode(SUPERVISOR)
    assert script.endswith(b"/execution/supervisor.py")
