"""One call through the real daemon, over its real socket, into a resumed session."""

from __future__ import annotations

import pytest

from support.daemon import Daemon
from workseal import MemoryPendingCallStore, NewCall, NotVerifiedError, ReceiptVerifier
from workseal.calls import ToolCall, new_challenge
from workseal.receipt.policy import Expectation
from workseal.resume import ResumeTerms, run_pending


async def test_a_session_resumes_on_what_the_host_did(daemon: Daemon) -> None:
    store = MemoryPendingCallStore()
    arguments = {"path": "hello.txt", "content": "hello\n"}
    await store.add("session", [NewCall("call-1", "write_file", arguments, occurrence="turn-1")])

    async with daemon.client() as client:
        terms = ResumeTerms(workspace_id=await client.workspace_id())
        resumed = await run_pending(client, store, ReceiptVerifier(daemon.trust()), "session", terms=terms)

    assert (daemon.workspace / "hello.txt").read_text() == "hello\n"
    assert {name: result.outcome for name, result in resumed.by_call_id.items()} == {"call-1": "completed"}
    assert not await store.pending("session")


async def test_a_tampered_receipt_is_refused(daemon: Daemon) -> None:
    call = ToolCall("session", "call-1", "bash", {"command": "echo x > f"}, new_challenge())
    async with daemon.client() as client:
        result = await client.execute(call)
        workspace_id = await client.workspace_id()
    expectation = Expectation(
        workspace_id=workspace_id,
        session_id=call.session_id,
        tool_call_id=call.tool_call_id,
        tool=call.tool,
        arguments_digest=call.arguments_digest,
        challenge=call.challenge,
    )
    verifier = ReceiptVerifier(daemon.trust())
    tampered = result.envelope.replace(b'"payload":"e', b'"payload":"f', 1)
    assert tampered != result.envelope

    with pytest.raises(NotVerifiedError):
        verifier.verify(tampered, expectation, result=result.result)

    verified = verifier.verify(result.envelope, expectation, result=result.result)
    assert [entry.path for entry in verified.predicate.workspace.created] == ["f"]
