"""Pause a nonoka session, have a host run its tool call, resume on the verified receipt.

Run it with a host on any workspace::

    pip install 'workseal[host,nonoka]'
    workseal serve --workspace /path/to/workspace --state-dir /path/to/state > ready.json &
    python examples/resume_with_nonoka.py ready.json

The model is a stub that asks for one file, so that no key and no network are needed.
Pins, record and pending calls live in the directory of ``ready.json``: keep it
outside the workspace.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # before nonoka is imported: no fetch

from nonoka import Agent, Runner
from nonoka.backends.checkpoint.sqlite import SQLiteCheckpointStore
from nonoka.core.execution import ToolExecution
from nonoka.core.external_tool import ExternalCapability
from nonoka.core.llm import LLMStreamChunk

from workseal import HostClient, ReceiptVerifier, ResumeTerms, SqlitePendingCallStore, SqliteRecord
from workseal.integrations.nonoka import VerifiedResume
from workseal.receipt.keys import PublicKey
from workseal.trust.pins import Pin, TrustState
from workseal.trust.store import MemoryTrustStore


class StubModel:
    """Asks for one file, then says what it was told."""

    async def chat_stream(self, messages: list[Any], *args: Any, **options: Any) -> Any:
        told = [message.content for message in messages if message.role.value == "tool"]
        if told:
            yield LLMStreamChunk(content_delta=f"The tool said: {told[-1]}", finish_reason="stop")
            return
        arguments = json.dumps({"path": "hello.txt", "content": "hello\n"})
        call = {"index": 0, "id": "call_1", "function": {"name": "write_file", "arguments": arguments}}
        yield LLMStreamChunk(tool_call_deltas=[call], finish_reason="stop")

    def count_tokens(self, messages: Any) -> int:
        return 1


def make_bridge(ready: dict[str, Any], state: Path) -> tuple[VerifiedResume, Runner, Agent[Any, Any]]:
    """Return what a process of the framework needs; everything durable lies in ``state``."""
    write = ExternalCapability(
        "write_file", "Write a file", {"type": "object"}, execution=ToolExecution(mutates_workspace=True)
    )
    agent: Agent[Any, Any] = Agent(model="stub", tools=[write])
    runner = Runner(memory=None, checkpoint=SQLiteCheckpointStore(db_path=str(state / "checkpoints.db")))
    runner._llm_cache["stub"] = StubModel()
    # In earnest the key comes over a channel that you trust, and is pinned with `workseal keys trust`.
    public = PublicKey.from_pem(Path(ready["public_key_file"]).read_bytes())
    verifier = ReceiptVerifier(
        MemoryTrustStore(TrustState(pins=(Pin(public),))), record=SqliteRecord(state / "record")
    )
    store = SqlitePendingCallStore(state / "pending.db")
    terms = ResumeTerms(workspace_id=ready["workspace_id"])
    return VerifiedResume(runner, store, verifier, terms), runner, agent


async def main(ready: dict[str, Any], state: Path) -> None:
    """Pause, run, resume."""
    session_id = f"example-{os.getpid()}"

    bridge, runner, agent = make_bridge(ready, state)
    async for event in runner.run_react_stream(agent, "Write hello.txt", None, session_id=session_id):
        print("pause: ", event.type)
    for call in await bridge.pending(agent, session_id):
        print("stored:", call.tool_call_id, call.tool, "challenge", call.challenge)

    # As if in another process: nothing of the first half is used any more.
    bridge, runner, agent = make_bridge(ready, state)
    async with HostClient(ready["socket"], token_file=ready["token_file"]) as client:
        async for event in bridge.run(agent, None, session_id, client):
            print("resume:", event.type, event.data.get("data", "") if event.type == "final" else "")
    for settled in await bridge.store.results(session_id):
        print("result:", settled.result.outcome, settled.result.plain["artifact_ref"])


if __name__ == "__main__":
    path = Path(sys.argv[1]).absolute()
    asyncio.run(main(json.loads(path.read_text().splitlines()[0]), path.parent))
