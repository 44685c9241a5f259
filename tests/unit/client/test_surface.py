"""The public names, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import workseal
from support.environment import unmeasured

PUBLIC = {
    "AcceptancePolicy",
    "CallResult",
    "CannotCheckError",
    "Deadlines",
    "Expectation",
    "ExternalCapability",
    "ExternalToolReceipt",
    "FileTrustStore",
    "HostClient",
    "HostError",
    "HostInfo",
    "HostResult",
    "HostUnreachableError",
    "InvalidInputError",
    "InvalidJsonError",
    "KeyConflictError",
    "MemoryPendingCallStore",
    "MemoryRecord",
    "MemoryTrustStore",
    "NewCall",
    "NotRun",
    "NotVerifiedError",
    "OutputChunk",
    "PathExpectation",
    "PendingCall",
    "PendingCallStore",
    "Precondition",
    "QueueTimeoutError",
    "RawResult",
    "ReceiptVerifier",
    "ResumeError",
    "ResumeTerms",
    "ResumedCalls",
    "RetryPolicy",
    "Selector",
    "SignedResult",
    "SqlitePendingCallStore",
    "SqliteRecord",
    "StoreError",
    "TlsConfig",
    "ToolCall",
    "ToolExecution",
    "TrustStore",
    "UNKNOWN_EXECUTION",
    "VerifiedReceipt",
    "WorksealError",
    "WorkspaceAttestation",
    "arguments_digest",
    "new_challenge",
    "resume_external_tools",
    "run_pending",
}


def _python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], env=unmeasured(), capture_output=True, text=True, timeout=60, check=True
    ).stdout


def test_public_names_are_pinned() -> None:
    assert set(workseal.__all__) == PUBLIC
    assert len(workseal.__all__) == len(PUBLIC)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_loads(name: str) -> None:
    assert getattr(workseal, name) is not None
    assert name in dir(workseal)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        workseal.no_such_name  # noqa: B018


def test_import_loads_neither_grpc_nor_cryptography() -> None:
    heavy = ("grpc", "cryptography", "google.protobuf", "sqlite3", "asyncio")
    code = f"import sys, workseal; print([name for name in {heavy!r} if name in sys.modules])"
    assert _python(code) == "[]\n"


def test_nonoka_integration_loads_without_nonoka() -> None:
    code = "import sys, workseal.integrations.nonoka; print('nonoka' in sys.modules)"
    assert _python(code) == "False\n"


def test_client_loads_nothing_of_the_host() -> None:
    code = (
        "import sys, workseal; [getattr(workseal, name) for name in workseal.__all__]; "
        "foreign = ('workseal_host', 'aiosqlite', 'grpc_status'); "
        "print([name for name in sys.modules if name.startswith(foreign)])"
    )
    assert _python(code) == "[]\n"
