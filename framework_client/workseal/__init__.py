"""Workseal: resume an agent only on receipts that were checked.

The public names below are loaded when first used, so that ``import workseal``
costs next to nothing and pulls in neither gRPC nor cryptography.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workseal.calls import PathExpectation, Precondition, ToolCall, arguments_digest, new_challenge
    from workseal.client import Deadlines, HostClient
    from workseal.errors import (
        CannotCheckError,
        HostError,
        HostUnreachableError,
        InvalidInputError,
        InvalidJsonError,
        KeyConflictError,
        NotVerifiedError,
        QueueTimeoutError,
        ResumeError,
        StoreError,
        WorksealError,
    )
    from workseal.pending import (
        CallResult,
        MemoryPendingCallStore,
        NewCall,
        PendingCall,
        PendingCallStore,
        SqlitePendingCallStore,
    )
    from workseal.receipt.policy import AcceptancePolicy, Expectation
    from workseal.receipt.verifier import ReceiptVerifier, VerifiedReceipt
    from workseal.results import HostInfo, HostResult, OutputChunk, Selector
    from workseal.resume import (
        NotRun,
        RawResult,
        ResumedCalls,
        ResumeTerms,
        SignedResult,
        resume_external_tools,
        run_pending,
    )
    from workseal.retry import RetryPolicy
    from workseal.tools import (
        UNKNOWN_EXECUTION,
        ExternalCapability,
        ExternalToolReceipt,
        ToolExecution,
        WorkspaceAttestation,
    )
    from workseal.transport.channel import TlsConfig
    from workseal.trust.record import MemoryRecord, SqliteRecord
    from workseal.trust.store import FileTrustStore, MemoryTrustStore, TrustStore

_HOME = {
    "workseal.calls": ("PathExpectation", "Precondition", "ToolCall", "arguments_digest", "new_challenge"),
    "workseal.client": ("Deadlines", "HostClient"),
    "workseal.errors": (
        "CannotCheckError",
        "HostError",
        "HostUnreachableError",
        "InvalidInputError",
        "InvalidJsonError",
        "KeyConflictError",
        "NotVerifiedError",
        "QueueTimeoutError",
        "ResumeError",
        "StoreError",
        "WorksealError",
    ),
    "workseal.pending": (
        "CallResult",
        "MemoryPendingCallStore",
        "NewCall",
        "PendingCall",
        "PendingCallStore",
        "SqlitePendingCallStore",
    ),
    "workseal.receipt.policy": ("AcceptancePolicy", "Expectation"),
    "workseal.receipt.verifier": ("ReceiptVerifier", "VerifiedReceipt"),
    "workseal.results": ("HostInfo", "HostResult", "OutputChunk", "Selector"),
    "workseal.resume": (
        "NotRun",
        "RawResult",
        "ResumeTerms",
        "ResumedCalls",
        "SignedResult",
        "resume_external_tools",
        "run_pending",
    ),
    "workseal.retry": ("RetryPolicy",),
    "workseal.tools": (
        "UNKNOWN_EXECUTION",
        "ExternalCapability",
        "ExternalToolReceipt",
        "ToolExecution",
        "WorkspaceAttestation",
    ),
    "workseal.transport.channel": ("TlsConfig",),
    "workseal.trust.record": ("MemoryRecord", "SqliteRecord"),
    "workseal.trust.store": ("FileTrustStore", "MemoryTrustStore", "TrustStore"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [  # noqa: F822, RUF100 - defined by __getattr__
    "UNKNOWN_EXECUTION",
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
    "VerifiedReceipt",
    "WorksealError",
    "WorkspaceAttestation",
    "arguments_digest",
    "new_challenge",
    "resume_external_tools",
    "run_pending",
]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'workseal' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
