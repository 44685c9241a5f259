"""A real engine in this process: real ledger, keys and scans, and tools that do what a test says."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workseal.calls import new_challenge
from workseal.receipt.envelope import parse_envelope
from workseal.receipt.keys import PublicKey
from workseal.receipt.policy import AcceptancePolicy, Expectation
from workseal.receipt.predicate import ToolExecutionPredicate
from workseal.receipt.statement import parse_statement
from workseal.receipt.verifier import ReceiptVerifier, VerifiedReceipt
from workseal.trust.pins import Pin, TrustState
from workseal.trust.store import MemoryTrustStore
from workseal_host.config import HostConfig
from workseal_host.coordination.live import LiveExecution, Outcome
from workseal_host.engine import Engine, open_engine
from workseal_host.execution.registry import ToolRegistry, built_in_tools
from workseal_host.execution.tool import READ_ONLY, Prediction, SideEffects, Tool, ToolContext, ToolResult
from workseal_host.execution.view import WorkspaceView
from workseal_host.requests import CallRef, CallRequest

ANY_OBJECT = {"type": "object"}
SETTLED_S = 20.0


class ScriptedTool(Tool):
    """A tool that calls a function in this process; what it is declared to do is up to the test.

    Args:
        name: its name.
        action: what a run does.
        side_effects: as declared.
        prediction: what it predicts; None where it cannot.
    """

    def __init__(
        self,
        name: str,
        action: Callable[[], None] = lambda: None,
        *,
        side_effects: SideEffects | None = None,
        prediction: Prediction | None = None,
    ) -> None:
        super().__init__(
            name=name, description=name, schema=ANY_OBJECT, side_effects=side_effects or SideEffects()
        )
        self.action = action
        self.prediction = prediction
        self.runs = 0
        self.started = asyncio.Event()
        self.release = asyncio.Event()
        self.release.set()
        self.result = ToolResult(b"done\n", exit_code=0)

    def held(self) -> ScriptedTool:
        """Let a run wait after its action until ``release`` is set."""
        self.release.clear()
        return self

    def predict(self, arguments: Mapping[str, Any], view: WorkspaceView) -> Prediction | None:
        return super().predict(arguments, view) if self.prediction is None else self.prediction

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        self.runs += 1
        self.started.set()
        self.action()
        waits = [asyncio.ensure_future(self.release.wait()), asyncio.ensure_future(context.cancelled.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return replace(self.result, cancelled=context.cancelled.is_set())


def reader(name: str, action: Callable[[], None] = lambda: None) -> ScriptedTool:
    """Return a tool that is declared to change nothing, whatever its action does."""
    return ScriptedTool(name, action, side_effects=READ_ONLY)


@dataclass
class Bench:
    """One workspace, and engines on it, one after another.

    Attributes:
        base: an empty directory.
        config: how the next engine is configured.
        tools: added to the built-in ones.
    """

    base: Path
    config: HostConfig = field(default_factory=lambda: HostConfig(isolation="none", scan="full"))
    tools: list[Tool] = field(default_factory=list)
    _engine: Engine | None = None
    _calls: int = 0

    def __post_init__(self) -> None:
        self.workspace.mkdir(exist_ok=True)
        self.state.mkdir(exist_ok=True)

    @property
    def workspace(self) -> Path:
        """The directory."""
        return self.base / "workspace"

    @property
    def state(self) -> Path:
        """The state directory."""
        return self.base / "state"

    @property
    def engine(self) -> Engine:
        """The engine that is open."""
        assert self._engine is not None
        return self._engine

    async def open(self, **changes: Any) -> Engine:
        """Open an engine; `changes` are configuration for it and those after it."""
        self.config = replace(self.config, **changes)
        registry = ToolRegistry([*built_in_tools(), *self.tools])
        self._engine = await open_engine(
            self.workspace,
            state=self.state,
            config=self.config,
            registry=registry,
            environment={"PATH": os.environ["PATH"]},
        )
        return self._engine

    async def close(self) -> None:
        """Stop and close the engine, if one is open."""
        if self._engine is not None:
            await self._engine.pipeline.stop(0)
            await self._engine.close()
            self._engine = None

    async def reopen(self, **changes: Any) -> Engine:
        """Close the engine and open another one."""
        await self.close()
        return await self.open(**changes)

    def request(self, tool: str, arguments: dict[str, Any] | None = None, **fields: Any) -> CallRequest:
        """Return a request of a new call."""
        self._calls += 1
        call = fields.pop("call", None) or CallRef("session", f"call-{self._calls}", new_challenge())
        return CallRequest(call, tool, arguments or {}, **fields)

    async def execute(self, request: CallRequest, *, deadline: float | None = None) -> Outcome:
        """Run a call to its outcome."""
        found = await self.engine.pipeline.execute(request, deadline=deadline)
        return found if isinstance(found, Outcome) else await self.outcome(found)

    async def outcome(self, live: LiveExecution) -> Outcome:
        """Wait for an outcome."""
        return await asyncio.wait_for(live.outcome(), SETTLED_S)

    async def run(self, tool: str, arguments: dict[str, Any] | None = None, **fields: Any) -> Outcome:
        """Run a new call to its outcome."""
        return await self.execute(self.request(tool, arguments, **fields))

    async def begin(self, request: CallRequest) -> LiveExecution:
        """Start a call and return while it runs or waits."""
        found = await self.engine.pipeline.execute(request)
        assert isinstance(found, LiveExecution)
        return found

    def verifier(self) -> ReceiptVerifier:
        """Return a verifier that has pinned the present key and seen nothing yet."""
        public = PublicKey.from_pem(self.engine.keys.current.public.pem)
        policy = AcceptancePolicy(allow_observed=True, allow_unstable=True)
        return ReceiptVerifier(MemoryTrustStore(TrustState(pins=(Pin(public),))), policy)

    async def verify(
        self, verifier: ReceiptVerifier, request: CallRequest, outcome: Outcome
    ) -> VerifiedReceipt:
        """Verify as a client does: with its record, and with what lies between fetched."""
        receipts = await self.engine.ledger.receipts(after_sequence=0, limit=1000)
        gap = verifier.gap(outcome.receipt.envelope)
        return verifier.verify(
            outcome.receipt.envelope,
            Expectation(
                workspace_id=self.engine.place.workspace_id,
                session_id=request.call.session_id,
                tool_call_id=request.call.tool_call_id,
                tool=request.tool,
                arguments_digest=request.arguments_digest,
                challenge=request.call.challenge,
            ),
            result=outcome.output.result,
            between=[row.envelope for row in receipts if row.sequence in gap],
        )


def predicate(outcome: Outcome) -> ToolExecutionPredicate:
    """Return what a receipt states."""
    found = parse_statement(parse_envelope(outcome.receipt.envelope).payload).predicate
    assert isinstance(found, ToolExecutionPredicate)
    return found


def paths(entries: Iterable[Any]) -> list[str]:
    """Return the paths of changed entries, or the paths themselves."""
    return [entry if isinstance(entry, str) else entry.path for entry in entries]


def changes(outcome: Outcome) -> dict[str, list[str]]:
    """Return a receipt's own changes by kind, kinds without any left out."""
    found = predicate(outcome).workspace
    return _listed(found)


def outside(outcome: Outcome) -> dict[str, list[str]] | None:
    """Return a receipt's outside changes by kind, kinds without any left out; None for not known."""
    found = predicate(outcome).workspace.outside_changes
    return None if found is None else _listed(found)


def _listed(holder: Any) -> dict[str, list[str]]:
    kinds = ("created", "modified", "deleted")
    return {kind: paths(getattr(holder, kind)) for kind in kinds if getattr(holder, kind)}
