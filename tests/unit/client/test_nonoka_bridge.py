"""The nonoka integration against a stand-in runner; the real one is in ``tests/integration``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from resume_kit import TERMS, Kit

from fakes.host import TOKEN, FakeHost, Serving
from fakes.signing import refused
from workseal.client import HostClient
from workseal.errors import InvalidInputError, NotVerifiedError, ResumeError
from workseal.integrations.nonoka import VerifiedResume
from workseal.integrations.nonoka.shape import receipt_shape
from workseal.integrations.nonoka.turn import declared_execution, read_turn
from workseal.pending import CallOutcome, CallResult, ReceiptRef
from workseal.resume import RawResult, SignedResult
from workseal.tools import UNKNOWN_EXECUTION, ToolExecution


class Status(Enum):
    PAUSED = "paused"
    COMPLETED = "completed"


def tool(name: str, *, external: bool = True, read_only: bool = False, audit: bool | None = None) -> Any:
    execution = SimpleNamespace(
        read_only=read_only,
        mutates_workspace=not read_only,
        exclusive=False,
        stateful_action=False,
        pagination=False,
    )
    attested = (not read_only) if audit is None else audit
    return SimpleNamespace(
        name=name, external=external, execution=execution, requires_workspace_attestation=attested
    )


TOOLS = [tool("write_file"), tool("read_file", read_only=True), tool("local", external=False)]
AGENT = SimpleNamespace(tools=TOOLS)


def assistant(*calls: tuple[str, str]) -> dict[str, Any]:
    tool_calls = [{"id": i, "function": {"name": name, "arguments": '{"path": "a"}'}} for i, name in calls]
    return {"role": "assistant", "content": "", "metadata": {"tool_calls": tool_calls}}


def told(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "content": "x", "metadata": {"tool_call_id": call_id}}


def paused(*entries: dict[str, Any], turn: int = 1, status: Status = Status.PAUSED) -> Any:
    user = {"role": "user", "content": "do it", "metadata": {}}
    return SimpleNamespace(
        status=status,
        memory_entries=[user, *entries],
        turn_count=turn,
        start_time=datetime(2026, 1, 2, 3, 4, 5),
    )


@dataclass
class StandIn:
    """A runner that notes what it is given; also its own checkpoint store."""

    states: dict[str, Any] = field(default_factory=dict)
    given: list[dict[str, Any]] = field(default_factory=list)
    saved: int = 0

    @property
    def checkpoint_store(self) -> StandIn:
        return self

    async def load_session(self, session_id: str) -> Any:
        return self.states.get(session_id)

    async def save_session(self, session_id: str, state: Any) -> None:
        self.states[session_id] = state
        self.saved += 1

    async def resume_external_tools(
        self, agent: Any, deps: Any, session_id: str, results: dict[str, Any]
    ) -> AsyncIterator[str]:
        self.given.append(results)
        yield "final"


@pytest.fixture
def kit() -> Kit:
    return Kit()


@pytest.fixture
def runner() -> StandIn:
    return StandIn()


@pytest.fixture
def bridge(kit: Kit, runner: StandIn) -> VerifiedResume:
    return VerifiedResume(runner, kit.store, kit.verifier, TERMS)


async def resume(bridge: VerifiedResume, results: dict[str, Any]) -> list[Any]:
    return [event async for event in bridge.resume_external_tools(AGENT, None, "s", results)]


def test_pending_are_the_last_calls_without_an_answer() -> None:
    state = paused(
        assistant(("c1", "write_file")),
        told("c1"),
        assistant(("c1", "write_file"), ("c2", "local"), ("c3", "read_file")),
        told("c2"),
    )
    turn = read_turn("s", state, TOOLS)
    assert [call.tool_call_id for call in turn.calls] == ["c1", "c3"]
    assert [call.execution.accepts_unsigned for call in turn.calls] == [False, True]


def test_occurrence_is_stable_and_differs_by_turn_and_session_start() -> None:
    entry = assistant(("c1", "write_file"))
    one = read_turn("s", paused(entry), TOOLS).occurrence
    later = paused(entry)
    later.start_time = None
    assert read_turn("s", paused(entry), TOOLS).occurrence == one
    assert read_turn("s", paused(entry, turn=2), TOOLS).occurrence != one
    assert read_turn("s", later, TOOLS).occurrence != one


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(None, id="no-session"),
        pytest.param(paused(assistant(("c1", "write_file")), status=Status.COMPLETED), id="completed"),
        pytest.param(paused(), id="no-tool-calls"),
        pytest.param(paused(assistant(("c1", "write_file"), ("c2", "local"))), id="waits-for-approval"),
        pytest.param(paused(assistant(("c1", "gone"))), id="tool-is-gone"),
    ],
)
def test_sessions_that_wait_for_no_host_are_refused(state: Any) -> None:
    with pytest.raises(ResumeError):
        read_turn("s", state, TOOLS)


def test_calls_that_share_an_id_are_set_apart() -> None:
    turn = read_turn(
        "s", paused(assistant(("c1", "write_file"), ("c1", "read_file"), ("c2", "write_file"))), TOOLS
    )
    assert [call.tool_call_id for call in turn.calls] == ["c2"]
    assert turn.ambiguous == (("c1", "write_file"), ("c1", "read_file"))


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        pytest.param(None, UNKNOWN_EXECUTION, id="gone"),
        pytest.param(SimpleNamespace(), UNKNOWN_EXECUTION, id="undeclared"),
        pytest.param(tool("t", read_only=True), ToolExecution(read_only=True), id="read-only"),
        pytest.param(tool("t", read_only=True, audit=True), ToolExecution(), id="audited"),
        pytest.param(
            SimpleNamespace(
                execution=SimpleNamespace(read_only="false"), requires_workspace_attestation=False
            ),
            ToolExecution(),
            id="text-is-no-bool",
        ),
    ],
)
def test_declarations_are_taken_strictly(capability: Any, expected: ToolExecution) -> None:
    assert declared_execution(capability) == expected


async def test_verified_receipt_reaches_the_runner(bridge: VerifiedResume, kit: Kit, runner: StandIn) -> None:
    runner.states["s"] = paused(assistant(("c1", "write_file")))
    (call,) = await bridge.pending(AGENT, "s")
    assert await resume(bridge, {"c1": kit.answer(call)}) == ["final"]
    (given,) = runner.given
    assert given["c1"]["artifact_ref"].startswith("urn:workseal:receipt:sha256:")
    assert "attestation" not in given["c1"]


async def test_host_runs_what_the_session_waits_for(
    bridge: VerifiedResume, kit: Kit, runner: StandIn, tmp_path: Path
) -> None:
    runner.states["s"] = paused(assistant(("c1", "write_file"), ("c2", "read_file")))
    host, socket = FakeHost(kit.signer), str(tmp_path / "h.sock")
    async with Serving(host, socket), HostClient(socket, token=TOKEN) as client:
        events = [event async for event in bridge.run(AGENT, None, "s", client, timeout_s=5)]
    assert events == ["final"]
    assert host.runs == ["write_file", "read_file"]
    assert list(runner.given[0]) == ["c1", "c2"]


async def test_raw_result_of_a_read_only_call_is_bare_text(
    bridge: VerifiedResume, kit: Kit, runner: StandIn
) -> None:
    runner.states["s"] = paused(assistant(("c1", "read_file")))
    await resume(bridge, {"c1": RawResult("contents")})
    assert runner.given == [{"c1": "contents"}]


async def test_nothing_unverified_reaches_the_runner(
    bridge: VerifiedResume, kit: Kit, runner: StandIn
) -> None:
    runner.states["s"] = paused(assistant(("c1", "write_file")))
    await bridge.pending(AGENT, "s")
    for wrong in (SignedResult(b"{}", b""), RawResult("x"), {"workspace": {}}, True):
        with pytest.raises((NotVerifiedError, ResumeError)):
            await resume(bridge, {"c1": wrong})
    assert runner.given == []
    assert await kit.untouched("c1")


async def test_refused_call_never_has_exit_code_zero(
    bridge: VerifiedResume, kit: Kit, runner: StandIn
) -> None:
    runner.states["s"] = paused(assistant(("c1", "write_file")))
    (call,) = await bridge.pending(AGENT, "s")
    answer = SignedResult(kit.answer(call, refused).envelope)
    await resume(bridge, {"c1": answer})
    receipt = runner.given[0]["c1"]
    assert receipt["exit_code"] == 1
    assert receipt["result"].startswith("[workseal] Not run")
    assert receipt["effect"]["changed"] is False


async def test_dropped_turn_frees_its_ids(bridge: VerifiedResume, kit: Kit, runner: StandIn) -> None:
    runner.states["s"] = paused(assistant(("c1", "write_file")), turn=1)
    (old,) = await bridge.pending(AGENT, "s")
    runner.states["s"] = paused(assistant(("c1", "write_file")), turn=4)
    (new,) = await bridge.pending(AGENT, "s")
    assert new.challenge != old.challenge
    with pytest.raises(NotVerifiedError):
        await resume(bridge, {"c1": kit.answer(old)})
    assert runner.given == []


async def test_results_stored_before_a_crash_are_used_again(
    bridge: VerifiedResume, kit: Kit, runner: StandIn
) -> None:
    runner.states["s"] = paused(assistant(("c1", "write_file")))
    (call,) = await bridge.pending(AGENT, "s")
    await resume(bridge, {"c1": kit.answer(call)})
    await resume(bridge, {})
    assert runner.given[0] == runner.given[1]


async def test_turn_that_changes_meanwhile_is_not_resumed(
    bridge: VerifiedResume, kit: Kit, runner: StandIn
) -> None:
    runner.states["s"] = paused(assistant(("c1", "write_file")))
    (call,) = await bridge.pending(AGENT, "s")
    states = [runner.states["s"], paused(assistant(("c1", "write_file")), turn=9)]

    async def changing(session_id: str) -> Any:
        return states.pop(0)

    runner.load_session = changing  # type: ignore[method-assign]
    with pytest.raises(ResumeError, match="changed"):
        await resume(bridge, {"c1": kit.answer(call)})
    assert runner.given == []


async def test_calls_that_were_never_run_become_plain_tool_messages(
    bridge: VerifiedResume, kit: Kit, runner: StandIn
) -> None:
    entry = assistant(("c1", "write_file"), ("same", "write_file"), ("same", "write_file"))
    entry["metadata"]["tool_calls"][0]["function"]["arguments"] = "{"
    runner.states["s"] = paused(entry)
    await resume(bridge, {})
    added = runner.states["s"].memory_entries[2:]
    assert [message["metadata"]["tool_call_id"] for message in added] == ["same", "same", "c1"]
    assert all(message["role"] == "tool" for message in added)
    assert all(message["content"].startswith("[workseal] Not run") for message in added)
    assert runner.given == [{}]
    await resume(bridge, {})
    assert len(runner.states["s"].memory_entries) == 5


def test_result_without_a_receipt_has_no_receipt_shape() -> None:
    with pytest.raises(ResumeError):
        receipt_shape(CallResult(CallOutcome.COMPLETED, "x"))


def test_shape_is_checked_strictly() -> None:
    reference = ReceiptRef("w", "c", 1, "d" * 64)
    workspace = {"root": "/w", "before_digest": "a", "after_digest": "b", "created": "abc"}
    result = CallResult(CallOutcome.COMPLETED, "x", b"e", reference, {"workspace": workspace})
    with pytest.raises(InvalidInputError):
        receipt_shape(result)


def test_doubt_is_of_unknown_completeness_and_not_a_success() -> None:
    reference = ReceiptRef("w", "c", 1, "d" * 64)
    plain = {"exit_code": 0, "completeness": "complete"}
    shape = receipt_shape(CallResult(CallOutcome.IN_DOUBT, "x", b"e", reference, plain))
    assert shape == {"exit_code": 1, "completeness": "unknown"}
