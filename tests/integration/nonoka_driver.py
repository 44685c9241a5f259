"""The process that runs nonoka for ``test_nonoka.py``: pauses sessions, or resumes them.

Apart from the tests because importing nonoka takes seconds and raises warnings
of its own. It writes one JSON object of results to its standard output.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nonoka import Agent, Runner
from nonoka.backends.checkpoint.sqlite import SQLiteCheckpointStore
from nonoka.core.execution import ToolExecution as NonokaExecution
from nonoka.core.external_tool import ExternalCapability
from nonoka.core.llm import LLMResponse, LLMStreamChunk

from workseal.client import HostClient
from workseal.errors import WorksealError
from workseal.integrations.nonoka import VerifiedResume
from workseal.pending import PendingCall, SqlitePendingCallStore
from workseal.receipt.keys import PublicKey
from workseal.receipt.verifier import ReceiptVerifier
from workseal.resume import RawResult, ResumeTerms, SignedResult, run_pending
from workseal.resume.run import fetch_between
from workseal.trust.pins import Pin, TrustState
from workseal.trust.record import SqliteRecord
from workseal.trust.store import MemoryTrustStore

BIG = 2**60


class StubModel:
    """Makes the calls that the prompt lists, then repeats what it was told of them."""

    def __init__(self) -> None:
        self.turns = 0

    def _answer(self, messages: list[Any]) -> tuple[str | None, list[dict[str, Any]] | None]:
        self.turns += 1
        told = [str(message.content) for message in messages if str(message.role.value) == "tool"]
        if told:
            return "told: " + " | ".join(told), None
        prompt = next(m.content for m in reversed(messages) if str(m.role.value) == "user")
        calls = [
            {
                "index": i,
                "id": call_id,
                "type": "function",
                "function": {"name": tool, "arguments": arguments},
            }
            for i, (call_id, tool, arguments) in enumerate(json.loads(prompt))
        ]
        return None, calls

    async def chat(self, messages: list[Any], *args: Any, **options: Any) -> LLMResponse:
        content, calls = self._answer(messages)
        return LLMResponse(content=content, tool_calls=calls)

    async def chat_stream(self, messages: list[Any], *args: Any, **options: Any) -> Any:
        content, calls = self._answer(messages)
        yield LLMStreamChunk(content_delta=content, tool_call_deltas=calls, finish_reason="stop")

    def count_tokens(self, messages: Any) -> int:
        return 1


def make_agent() -> Agent[Any, Any]:
    mutating = NonokaExecution(mutates_workspace=True, stateful_action=True)
    declared = {
        "bash": mutating,
        "write_file": mutating,
        "not_on_the_host": mutating,
        "read_file": NonokaExecution(read_only=True),
    }
    tools = [
        ExternalCapability(name, name, {"type": "object"}, execution=execution)
        for name, execution in declared.items()
    ]
    return Agent(model="stub", tools=tools)


def call(call_id: str, tool: str, **arguments: Any) -> list[str]:
    return [call_id, tool, json.dumps(arguments)]


SESSIONS: dict[str, list[list[str]]] = {
    "plain": [call("c1", "write_file", path="plain.txt", content="hello\n")],
    "two": [
        call("c1", "bash", command="echo one >> two.log; echo said-one"),
        call("c2", "bash", command="echo two >> two.log; exit 3"),
    ],
    "elsewhere": [
        call("c1", "bash", command="echo 1 >> elsewhere.log"),
        call("c2", "bash", command="echo 2 >> elsewhere.log"),
    ],
    "crash": [call("c1", "bash", command="echo x >> crash.log")],
    "unsendable": [
        ["c1", "bash", json.dumps({"command": "echo x >> unsendable.log", "n": BIG})],
        call("c2", "write_file", path="sent.txt", content="x"),
    ],
    "twins": [
        call("same", "bash", command="echo a >> twins.log"),
        call("same", "bash", command="echo b >> twins.log"),
    ],
    "unknown-tool": [call("c1", "not_on_the_host", x=1)],
    "read-only": [call("c1", "read_file", path="plain.txt")],
}


@dataclass
class World:
    """Everything that one process has."""

    config: Mapping[str, Any]
    model: StubModel = field(default_factory=StubModel)
    agent: Any = field(default_factory=make_agent)

    def __post_init__(self) -> None:
        state = Path(self.config["state"])
        self.checkpoints = SQLiteCheckpointStore(db_path=str(state / "checkpoints.db"))
        self.runner = Runner(memory=None, checkpoint=self.checkpoints)
        self.runner._llm_cache[self.agent.model] = self.model
        self.given: list[dict[str, Any]] = []
        self._watch()
        self.store = SqlitePendingCallStore(state / "pending.db")
        public = PublicKey.from_pem(Path(self.config["public_key_file"]).read_bytes())
        trust = MemoryTrustStore(TrustState(pins=(Pin(public),)))
        self.verifier = ReceiptVerifier(trust, record=SqliteRecord(state / "client"))
        self.terms = ResumeTerms(workspace_id=self.config["workspace_id"])
        self.bridge = VerifiedResume(self.runner, self.store, self.verifier, self.terms)

    def _watch(self) -> None:
        """Note whatever reaches nonoka."""
        resume = self.runner.resume_external_tools

        def watched(agent: Any, deps: Any, session_id: str, results: dict[str, Any]) -> Any:
            self.given.append(results)
            return resume(agent, deps, session_id, results)

        self.runner.resume_external_tools = watched  # type: ignore[method-assign]

    def client(self) -> HostClient:
        return HostClient(self.config["socket"], token_file=self.config["token_file"])

    async def status(self, session_id: str) -> str:
        state = await self.checkpoints.load_session(session_id)
        return "none" if state is None else str(state.status.value)

    async def answers(self, session_id: str) -> dict[str, SignedResult]:
        """Have the host run a session's calls, and keep the receipts to ourselves."""
        answers = {}
        async with self.client() as client:
            for pending in await self.bridge.pending(self.agent, session_id):
                answers[pending.tool_call_id] = await self._answer(client, pending)
        return answers

    async def _answer(self, client: HostClient, pending: PendingCall) -> SignedResult:
        result = await client.execute(self.terms.request(pending))
        between = await fetch_between(client, self.verifier, result.envelope)
        return SignedResult(result.envelope, result.result, between)

    async def attempt(self, events: Any) -> dict[str, Any]:
        """Consume a resume; report its final event or its error, and what reached nonoka."""
        before = len(self.given)
        report: dict[str, Any] = {"error": None, "final": None}
        try:
            async for event in events:
                if event.type == "final":
                    report["final"] = event.data
        except WorksealError as error:
            report["error"] = type(error).__name__
            report["check"] = getattr(error, "check", "")
            report["reason"] = getattr(error, "reason", "")
        report["given"] = self.given[before:]
        return report

    async def report(self, session_id: str, events: Any) -> dict[str, Any]:
        report = await self.attempt(events)
        state = await self.checkpoints.load_session(session_id)
        report["status"] = await self.status(session_id)
        report["trace"] = state.trace["tool_calls"]
        report["told"] = [entry for entry in state.memory_entries if entry["role"] == "tool"]
        return report


async def pause(world: World) -> dict[str, Any]:
    report = {}
    for session_id, calls in SESSIONS.items():
        events = world.runner.run_react_stream(world.agent, json.dumps(calls), None, session_id=session_id)
        final = [event.data async for event in events if event.type == "final"][-1]
        pending = await world.bridge.pending(world.agent, session_id)
        report[session_id] = {
            "paused": bool(final.get("requires_external_execution")),
            "status": await world.status(session_id),
            "challenges": [call.challenge for call in pending],
        }
    return report


async def run(world: World, session_id: str) -> dict[str, Any]:
    async with world.client() as client:
        return await world.report(session_id, world.bridge.run(world.agent, None, session_id, client))


async def plain(world: World) -> dict[str, Any]:
    return await run(world, "plain")


async def completed(world: World) -> dict[str, Any]:
    turns = world.model.turns
    report = await run(world, "plain")
    return report | {"turns": world.model.turns - turns}


async def two(world: World) -> dict[str, Any]:
    return await run(world, "two")


async def elsewhere(world: World) -> dict[str, Any]:
    """Everything that must be refused before nonoka sees it, then the right thing."""
    answers = await world.answers("elsewhere")
    foreign = (await world.store.results("plain"))[0].result.envelope
    one, two = answers["c1"], answers["c2"]
    forged = SignedResult(one.envelope.replace(b'"payload":"', b'"payload":"AAAA'), one.result, one.between)
    garbage = {
        "result": "done",
        "exit_code": "0",
        "workspace": {"root": "/nowhere", "before_digest": "garbage", "after_digest": "garbage"},
    }
    wrong: dict[str, dict[str, Any]] = {
        "forged": {"c1": forged, "c2": two},
        "swapped": {"c1": two, "c2": one},
        "replayed": {"c1": SignedResult(foreign or b"", b""), "c2": two},
        "missing": {"c1": one},
        "other-result": {"c1": SignedResult(one.envelope, b"other", one.between), "c2": two},
        "garbage": {"c1": garbage, "c2": garbage},
        "approval": {"c1": True, "c2": True},
        "raw": {"c1": RawResult("done"), "c2": RawResult("done")},
    }
    report: dict[str, Any] = {}
    for name, results in wrong.items():
        events = world.bridge.resume_external_tools(world.agent, None, "elsewhere", results)
        report[name] = await world.report("elsewhere", events)
    events = world.bridge.resume_external_tools(world.agent, None, "elsewhere", answers)
    report["right"] = await world.report("elsewhere", events)
    return report


async def crash(world: World) -> dict[str, Any]:
    """The process ended after the results were stored, before nonoka had them."""
    await world.bridge.pending(world.agent, "crash")
    async with world.client() as client:
        await run_pending(client, world.store, world.verifier, "crash", terms=world.terms)
    return await run(world, "crash")


async def unsendable(world: World) -> dict[str, Any]:
    return await run(world, "unsendable")


async def twins(world: World) -> dict[str, Any]:
    return await run(world, "twins")


async def unknown_tool(world: World) -> dict[str, Any]:
    return await run(world, "unknown-tool")


async def read_only(world: World) -> dict[str, Any]:
    results = {"c1": RawResult("contents")}
    events = world.bridge.resume_external_tools(world.agent, None, "read-only", results)
    return await world.report("read-only", events)


SCENARIOS: tuple[Callable[[World], Awaitable[dict[str, Any]]], ...] = (
    plain,
    completed,
    two,
    elsewhere,
    crash,
    unsendable,
    twins,
    unknown_tool,
    read_only,
)


async def resume(world: World) -> dict[str, Any]:
    report = {}
    for scenario in SCENARIOS:
        try:
            report[scenario.__name__] = await scenario(world)
        except Exception:
            report[scenario.__name__] = {"crashed": traceback.format_exc()}
    return report


async def main() -> None:
    world = World(json.loads(sys.argv[2]))
    report = await (pause(world) if sys.argv[1] == "pause" else resume(world))
    await world.checkpoints.close()
    sys.stdout.write(json.dumps(report, default=str) + "\n")


asyncio.run(main())
