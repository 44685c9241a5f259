"""Speaking to a host over plain gRPC: what any client sees, without this project's own one."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from support.daemon import Daemon
from workseal.v1 import execution_pb2
from workseal.v1.host_pb2_grpc import HostServiceStub

_DETAILS = {
    kind.DESCRIPTOR.full_name: kind
    for kind in (
        error_details_pb2.ErrorInfo,
        error_details_pb2.BadRequest,
        error_details_pb2.PreconditionFailure,
        error_details_pb2.RetryInfo,
    )
}


def token_of(daemon: Daemon) -> str:
    """Return the token of a host."""
    return Path(daemon.ready["token_file"]).read_text().strip()


@dataclass
class Rpc:
    """A plain connection to a host."""

    channel: grpc.aio.Channel
    metadata: tuple[tuple[str, str], ...]
    stub: Any = field(init=False)

    def __post_init__(self) -> None:
        self.stub = HostServiceStub(self.channel)

    def start(self, method: str, request: Message, *, timeout: float = 60) -> Any:
        """Start a call of the host's service."""
        return getattr(self.stub, method)(request, metadata=self.metadata, timeout=timeout)


@contextlib.asynccontextmanager
async def connected(daemon: Daemon, *metadata: tuple[str, str]) -> AsyncIterator[Rpc]:
    """Connect with the host's token, or with the metadata given."""
    given = metadata or (("authorization", f"Bearer {token_of(daemon)}"),)
    async with grpc.aio.insecure_channel(f"unix:{daemon.ready['socket']}") as channel:
        yield Rpc(channel, given)


@dataclass(frozen=True)
class Failed:
    """How a call failed: code, message, details by message name."""

    code: str
    message: str
    details: dict[str, Any]

    @property
    def reason(self) -> str:
        """The reason of its ErrorInfo; empty where there is none."""
        info = self.details.get("ErrorInfo")
        return "" if info is None else info.reason

    @property
    def fields(self) -> list[str]:
        """The fields that its BadRequest names."""
        return [item.field for item in self.details["BadRequest"].field_violations]


async def failure(call: Awaitable[Any] | AsyncIterator[Any]) -> Failed:
    """Return how a call fails; a call that does not fail fails the test."""
    try:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return describe(error)
    raise AssertionError("the call did not fail")


def describe(error: grpc.aio.AioRpcError) -> Failed:
    """Return the parts of an error."""
    details: dict[str, Any] = {}
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for packed in status_pb2.Status.FromString(value).details:
                message = _DETAILS[packed.TypeName()]()
                packed.Unpack(message)
                details[packed.TypeName().rpartition(".")[2]] = message
    return Failed(error.code().name, error.details() or "", details)


def call_message(number: int | str, command: str, **more: Any) -> execution_pb2.ExecuteToolRequest:
    """Return a request to run a shell command."""
    return tool_message(number, "bash", {"command": command}, **more)


def tool_message(
    number: int | str, tool: str, arguments: dict[str, Any], **more: Any
) -> execution_pb2.ExecuteToolRequest:
    """Return a request to run a tool."""
    return execution_pb2.ExecuteToolRequest(
        call=execution_pb2.CallRef(
            session_id="session", tool_call_id=f"call-{number}", challenge=challenge(number)
        ),
        tool=tool,
        arguments_json=json.dumps(arguments).encode(),
        **more,
    )


def challenge(seed: int | str) -> str:
    """Return a challenge that is the same for the same seed."""
    return base64.urlsafe_b64encode(hashlib.sha256(str(seed).encode()).digest()).rstrip(b"=").decode()


def predicate(envelope: bytes) -> dict[str, Any]:
    """Return the predicate of an envelope, unverified."""
    statement: dict[str, Any] = json.loads(base64.b64decode(json.loads(envelope)["payload"]))
    found: dict[str, Any] = statement["predicate"]
    return found


async def outcome_of(events: AsyncIterator[Any]) -> execution_pb2.Outcome:
    """Return the outcome of a stream of events."""
    found = None
    async for event in events:
        if event.WhichOneof("event") == "outcome":
            found = event.outcome
    assert found is not None
    return found


async def until(events: AsyncIterator[Any], kind: str) -> Any:
    """Return the first event of a kind; the stream goes on."""
    async for event in events:
        if event.WhichOneof("event") == kind:
            return getattr(event, kind)
    raise AssertionError(f"no {kind} event")
