"""The boundary between the service and gRPC: what leaves it, and what is logged."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog

import workseal_host.errors as errors
from support.rpc import Failed, Rpc, failure
from workseal.v1 import host_pb2
from workseal.v1.host_pb2_grpc import HostServiceServicer
from workseal_host.logs import describe_exception
from workseal_host.service.errors import map_error
from workseal_host.service.server import HostServer

CANARY = "sk-canary-123"
TOKEN = "t" * 43
PROTO = Path(__file__).parents[2] / "proto" / "workseal" / "v1" / "host.proto"


class Raising(HostServiceServicer):
    """A service whose every call raises."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def GetHostInfo(self, request: Any, context: Any) -> Any:
        raise self._error

    async def GetManifest(self, request: Any, context: Any) -> AsyncIterator[Any]:
        yield host_pb2.GetManifestResponse()
        raise self._error


async def failed_with(error: Exception, directory: Path, method: str = "GetHostInfo") -> Failed:
    """Serve a raising service, and return how a call of it fails."""
    server = HostServer(Raising(error), TOKEN)  # type: ignore[arg-type]
    server.listen_on_socket(directory / "s")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"unix:{directory}/s") as channel:
            rpc = Rpc(channel, (("authorization", f"Bearer {TOKEN}"),))
            return await failure(rpc.start(method, getattr(host_pb2, f"{method}Request")()))
    finally:
        await server.stop(0)


@pytest.fixture
def logged() -> Any:
    """What is logged meanwhile."""
    with structlog.testing.capture_logs(processors=[describe_exception]) as lines:
        yield lines


MAPPED = [
    (errors.RequestError("text", field="a.b"), "INVALID_ARGUMENT", "INVALID_REQUEST", {"BadRequest"}),
    (errors.ArgumentsError("text", field="/a"), "INVALID_ARGUMENT", "INVALID_REQUEST", {"BadRequest"}),
    (errors.NotFoundError("text"), "NOT_FOUND", "NOT_FOUND", set()),
    (errors.KeyConflictError("text"), "ALREADY_EXISTS", "KEY_CONFLICT", set()),
    (errors.QueueTimeoutError("text"), "DEADLINE_EXCEEDED", "QUEUE_TIMEOUT", {"RetryInfo"}),
    (errors.BusyError("text"), "RESOURCE_EXHAUSTED", "TOO_MANY_CALLS", {"RetryInfo"}),
    (errors.BusyError("text", stopping=True), "UNAVAILABLE", "SHUTTING_DOWN", {"RetryInfo"}),
    (errors.RootReplacedError("text"), "FAILED_PRECONDITION", "ROOT_REPLACED", {"PreconditionFailure"}),
    (
        errors.IgnoreRulesError("text", path=b"a\xff"),
        "FAILED_PRECONDITION",
        "WORKSPACE_UNREADABLE",
        {"PreconditionFailure"},
    ),
    (errors.StateError("text"), "FAILED_PRECONDITION", "WRONG_STATE", {"PreconditionFailure"}),
    (errors.LedgerError("text"), "UNAVAILABLE", "LEDGER_UNAVAILABLE", set()),
    (errors.KeyRingError("text"), "INTERNAL", "INTERNAL", set()),
    (errors.IsolationError("text"), "INTERNAL", "INTERNAL", set()),
]


@pytest.mark.parametrize(
    ("error", "code", "reason", "details"), [pytest.param(*row, id=type(row[0]).__name__) for row in MAPPED]
)
async def test_every_error_has_its_code_reason_and_details(
    tmp_path: Path, logged: Any, error: Exception, code: str, reason: str, details: set[str]
) -> None:
    failed = await failed_with(error, tmp_path)
    assert (failed.code, failed.reason, failed.message) == (code, reason, "text")
    assert set(failed.details) == {"ErrorInfo", *details}


def test_every_reason_is_listed_in_the_contract() -> None:
    listed = dict(re.findall(r"^//   ([A-Z_]+) +([A-Z_]+) ", PROTO.read_text(), re.MULTILINE))
    made = {
        mapped.reason: mapped.code.name
        for error, *_ in MAPPED
        if (mapped := map_error(error)).reason  # type: ignore[arg-type]
    }
    assert listed == {**made, "UNAUTHENTICATED": "UNAUTHENTICATED"}


@pytest.mark.parametrize("method", ["GetHostInfo", "GetManifest"])
async def test_an_unforeseen_error_tells_the_caller_nothing_and_the_log_where(
    tmp_path: Path, logged: Any, method: str
) -> None:
    failed = await failed_with(KeyError(CANARY), tmp_path, method)
    assert (failed.code, failed.reason) == ("INTERNAL", "INTERNAL")
    assert CANARY not in failed.message
    [line] = [line for line in logged if line["event"] == "unforeseen error"]
    assert (line["error"], line["method"]) == ("KeyError", method)
    assert any("test_service_boundary" in frame for frame in line["where"])
    assert CANARY not in json.dumps(logged)


async def test_a_long_text_is_cut_to_what_metadata_takes(tmp_path: Path) -> None:
    failed = await failed_with(errors.WorkspaceError("\u20ac" * 5000, path=b"\xff" * 4000), tmp_path)
    assert failed.reason == "WORKSPACE_UNREADABLE"
    assert failed.message.startswith("\u20ac\u20ac")
    assert len(failed.message.encode()) < 1000


def test_what_libraries_log_and_warn_becomes_json_without_secrets() -> None:
    code = (
        "import logging, warnings, structlog\n"
        "from workseal_host.logs import configure_logs\n"
        "configure_logs()\n"
        "structlog.get_logger('x').info('ours', number=1)\n"
        "logging.getLogger('library').error('theirs')\n"
        "logging.getLogger('library').info('not shown')\n"
        "warnings.warn('careful')\n"
        "try:\n"
        f"    raise KeyError('{CANARY}')\n"
        "except KeyError:\n"
        "    logging.getLogger('library').exception('failed')\n"
        "    structlog.get_logger('x').exception('ours failed')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["event"] for line in lines[:2]] == ["ours", "theirs"]
    assert [line["level"] for line in lines] == ["info", "error", "warning", "error", "error"]
    assert [line.get("error") for line in lines[3:]] == ["KeyError", "KeyError"]
    assert done.stdout == ""
    assert CANARY not in done.stderr
