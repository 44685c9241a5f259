"""Workseal in one run: attested calls, a resumed session, a receipt verified, forgeries refused.

Starts a real host on a small workspace in a temporary directory and stops it at the end.
The exit code is 0 only when everything came out as it should: a forgery that is accepted,
a file that is not as it was written, or a host that does not stop in order make it 1.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workseal import (
    Expectation,
    HostClient,
    MemoryTrustStore,
    NewCall,
    NotVerifiedError,
    ReceiptVerifier,
    ResumeTerms,
    SqlitePendingCallStore,
    ToolCall,
    VerifiedReceipt,
    new_challenge,
    run_pending,
)
from workseal.receipt.keys import PublicKey
from workseal.trust import Pin, TrustState

START_TIMEOUT_S = 30
STOP_TIMEOUT_S = 30
APP = 'def greet(name):\n    return "Hello " + name\n'
COLOURS = {"green": "32", "red": "31", "yellow": "33", "dim": "2", "bold": "1"}


class DemoFailedError(Exception):
    """Something did not come out as it should."""


def paint(text: str, colour: str) -> str:
    """Return text in a colour, where a person with colours watches."""
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        return text
    return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m"


def title(text: str) -> None:
    """Print the title of a step."""
    print(f"\n{paint(text, 'bold')}", flush=True)


def require(condition: bool, message: str) -> None:
    """Fail the demo unless something holds."""
    if not condition:
        raise DemoFailedError(message)


@contextlib.contextmanager
def running_host(workspace: Path, place: Path) -> Iterator[dict[str, Any]]:
    """Start a host, yield its ready line, stop it."""
    (place / "run").mkdir(mode=0o700)
    command = [sys.executable, "-m", "workseal_host", "serve"]
    command += ["--workspace", str(workspace), "--state-dir", str(place / "state")]
    environment = {
        **os.environ,
        "XDG_RUNTIME_DIR": str(place / "run"),
        "XDG_CONFIG_HOME": str(place / "none"),
    }
    environment.pop("WORKSEAL_CONFIG", None)
    with (place / "host.log").open("wb") as log:
        host = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment)
    try:
        with host.stdout or contextlib.nullcontext() as pipe:
            readable = pipe is not None and select.select([pipe], [], [], START_TIMEOUT_S)[0]
            line = pipe.readline() if pipe is not None and readable else b""
        require(bool(line), f"the host did not start:\n{(place / 'host.log').read_text()}")
        yield json.loads(line)
        host.send_signal(signal.SIGTERM)
        require(host.wait(STOP_TIMEOUT_S) == 0, "the host did not stop in order")
    finally:
        if host.poll() is None:
            host.kill()
            host.wait()


def show(verified: VerifiedReceipt) -> None:
    """Print what a verified receipt says."""
    predicate = verified.predicate
    execution, seen = predicate.execution, predicate.workspace
    ended = "" if execution is None or execution.exit_code is None else f", exit code {execution.exit_code}"
    isolation = "" if execution is None else f", isolation {execution.isolation}"
    print(f"  {paint('verified', 'green')} {predicate.call.tool}: {predicate.outcome}{ended}{isolation}")
    marks = {"created": ("+", "green"), "modified": ("~", "yellow"), "deleted": ("-", "red")}
    for entry in (*seen.created, *seen.modified, *seen.deleted):
        sign, colour = marks[str(entry.kind)]
        print(paint(f"    {sign} {entry.path}", colour))
    before, after = seen.before[:12], (seen.after or "")[:12]
    print(paint(f"    receipt {predicate.chain.sequence}: workspace {before} -> {after}", "dim"))


def expectation(workspace_id: str, call: ToolCall) -> Expectation:
    """Return what a receipt must say to be the answer to a call."""
    return Expectation(
        workspace_id=workspace_id,
        session_id=call.session_id,
        tool_call_id=call.tool_call_id,
        tool=call.tool,
        arguments_digest=call.arguments_digest,
        challenge=call.challenge,
    )


def make_call(call_id: str, tool: str, **arguments: Any) -> ToolCall:
    """Return a call with a fresh challenge."""
    return ToolCall("demo", call_id, tool, arguments, new_challenge())


def tampered(envelope: bytes) -> bytes:
    """Return a receipt whose first created file got another digest; its signature stays as it was."""
    form = json.loads(envelope)
    statement = json.loads(base64.b64decode(form["payload"]))
    statement["predicate"]["workspace"]["created"][0]["digest"]["sha256"] = "0" * 64
    form["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    return json.dumps(form).encode()


def must_refuse(
    verifier: ReceiptVerifier, what: str, envelope: bytes, wanted: Expectation, result: bytes
) -> None:
    """Print why a receipt is refused; fail the demo if it is not."""
    try:
        verifier.verify(envelope, wanted, result=result)
    except NotVerifiedError as error:
        print(f"  {paint('refused', 'red')} {what}")
        print(paint(f"    check {error.check}, reason {error.reason}: {error}", "dim"))
        return
    raise DemoFailedError(f"{what} was accepted")


async def calls_and_forgeries(client: HostClient, verifier: ReceiptVerifier, workspace_id: str) -> None:
    """Run three calls, verify their receipts, then try two receipts that must not pass."""
    title("Three tool calls; the host runs them, digests the workspace before and after, and signs")
    calls = (
        make_call("call-1", "write_file", path="docs/notes.md", content="# Notes\n"),
        make_call(
            "call-2", "bash", command="mkdir -p build && cp src/app.py build/ && rm old.txt && ls build"
        ),
        make_call("call-3", "edit_file", path="src/app.py", old_string="Hello ", new_string="Good morning, "),
    )
    results = []
    for call in calls:
        result = await client.execute(call)
        show(verifier.verify(result.envelope, expectation(workspace_id, call), result=result.result))
        results.append(result)

    title("Receipts that must not pass")
    first, second = results[0], results[1]
    wanted = expectation(workspace_id, calls[0])
    must_refuse(
        verifier, "the first receipt, one digest changed", tampered(first.envelope), wanted, first.result
    )
    must_refuse(verifier, "a genuine receipt, of another call", second.envelope, wanted, second.result)


async def pause_and_resume(
    client: HostClient, verifier: ReceiptVerifier, workspace_id: str, database: Path
) -> None:
    """Store two pending calls as a framework would, and resume on what the host signed."""
    title("A session paused for two calls; it resumes on their receipts alone")
    store = SqlitePendingCallStore(database)
    command = "grep -c 'Good morning' src/app.py"
    await store.add(
        "session-1",
        [
            NewCall("call-1", "bash", {"command": command}, occurrence="turn-1/1"),
            NewCall("call-2", "bash", {"command": "exit 3"}, occurrence="turn-1/2"),
        ],
    )
    terms = ResumeTerms(workspace_id=workspace_id)
    resumed = await run_pending(client, store, verifier, "session-1", terms=terms)
    for call_id, result in resumed.by_call_id.items():
        code = result.plain["exit_code"]
        print(f"  {paint('resumed', 'green')} {call_id}: {result.outcome}, exit code {code}")
        for line in result.text.splitlines():
            print(paint(f"    | {line}", "dim"))
    require(resumed.by_call_id["call-1"].text == "1\n", "call-1 did not see the edit")
    require(not await store.pending("session-1"), "calls are still pending")
    again = await run_pending(client, store, verifier, "session-1", terms=terms)
    require(not again.results, "a settled call was run again")


async def talk(ready: dict[str, Any], place: Path) -> None:
    """Play the part of a framework."""
    # The key is pinned from the host's own file: never from what the host says over the wire.
    public = PublicKey.from_pem(Path(ready["public_key_file"]).read_text())  # noqa: ASYNC240
    verifier = ReceiptVerifier(MemoryTrustStore(TrustState(pins=(Pin(public),))))
    async with HostClient(ready["socket"], token_file=ready["token_file"]) as client:
        await calls_and_forgeries(client, verifier, ready["workspace_id"])
        await pause_and_resume(client, verifier, ready["workspace_id"], place / "pending.sqlite3")


def main() -> int:
    """Run the demo and return its exit code."""
    with tempfile.TemporaryDirectory(prefix="workseal-demo-") as directory:
        place = Path(directory)
        workspace = place / "project"
        (workspace / "src").mkdir(parents=True)
        (workspace / "src" / "app.py").write_text(APP)
        (workspace / "old.txt").write_text("no longer needed\n")
        try:
            with running_host(workspace, place) as ready:
                title("A host serves a small workspace")
                print(f"  key {ready['key_id'][:16]}..., chain {ready['chain_id'][:16]}...")
                asyncio.run(talk(ready, place))
                require(
                    (workspace / "docs/notes.md").read_text() == "# Notes\n", "docs/notes.md is not there"
                )
                require(not (workspace / "old.txt").exists(), "old.txt is still there")
        except (DemoFailedError, NotVerifiedError) as error:
            print(f"\n{paint('failed', 'red')}: {error}", file=sys.stderr)
            return 1
    print(f"\n{paint('All as it should be.', 'green')} The host has stopped, the workspace is gone.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
