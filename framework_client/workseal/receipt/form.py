"""The JSON form of the predicates, field by field.

This table is the form: statements are written and read through it alone.
"""

from __future__ import annotations

from typing import Any, Final

from workseal.receipt import predicate as p
from workseal.receipt.codec import (
    Codec,
    DecodeError,
    Digest,
    EscapedText,
    Field,
    Flag,
    Integer,
    JsonObject,
    ListOf,
    Nullable,
    OneOf,
    Path,
    Record,
    Text,
    Time,
)

MAX_LISTED_CHANGES: Final = 5000
MAX_DIFFERENCES: Final = 1000
MAX_REASON_CHARACTERS: Final = 4096

_NAME: Final = Text(1, 1024)
_KEY_ID: Final = Text(1, 256)
_SIGNED: Final = Integer(-(2**31), 2**31 - 1)
_NOTE: Final = Text(0, MAX_REASON_CHARACTERS)

CALL: Final = Record(
    p.Call,
    Field("session_id", "sessionId", _NAME),
    Field("tool_call_id", "toolCallId", _NAME),
    Field("tool", "tool", _NAME),
    Field("arguments_digest", "argumentsDigest", Digest()),
    Field("idempotency_key", "idempotencyKey", _NAME),
    Field("attempt", "attempt", Integer(1)),
    Field("challenge", "challenge", Nullable(Text(1, 256))),
    Field("arguments", "arguments", JsonObject(), optional=True),
)

_STREAM: Final = Record(
    p.CapturedStreamDigest,
    Field("digest", "digest", Digest()),
    Field("bytes", "bytes", Integer()),
    Field("truncated", "truncated", Flag()),
)
_RESULT: Final = Record(
    p.ResultDigest, Field("digest", "digest", Digest()), Field("bytes", "bytes", Integer())
)

EXECUTION: Final = Record(
    p.Execution,
    Field("execution_id", "executionId", _NAME),
    Field("mode", "mode", OneOf(p.Mode)),
    Field("isolation", "isolation", OneOf(p.Isolation)),
    Field("attribution", "attribution", OneOf(p.Attribution)),
    Field("started_on", "startedOn", Time()),
    Field("finished_on", "finishedOn", Time()),
    Field("duration_ns", "durationNs", Integer()),
    Field("exit_code", "exitCode", Nullable(_SIGNED)),
    Field("signal", "signal", Nullable(_SIGNED)),
    Field("timed_out", "timedOut", Flag()),
    Field("cancelled", "cancelled", Flag()),
    Field("recovered", "recovered", Flag()),
    Field("leftover_processes", "leftoverProcesses", Integer()),
    Field("stdout", "stdout", Nullable(_STREAM)),
    Field("stderr", "stderr", Nullable(_STREAM)),
    Field("result", "result", Nullable(_RESULT)),
    Field("survivors", "survivors", Integer(), optional=True, default=0),
)

ENTRY_STATE: Final = Record(
    p.EntryState, Field("type", "type", OneOf(p.EntryType)), Field("digest", "digest", Digest())
)


class _Listed:
    """An entry of the lists ``created`` and ``deleted``: one state beside its path."""

    def __init__(self, kind: p.ChangeKind) -> None:
        self._kind = kind

    def encode(self, value: p.ChangedEntry) -> dict[str, Any]:
        state = value.after if self._kind is p.ChangeKind.CREATED else value.before
        if value.kind != self._kind or state is None:
            raise DecodeError(value.path, f"is not a {self._kind} entry with its state")
        return {"path": value.path, **ENTRY_STATE.encode(state)}

    def decode(self, value: Any, where: str) -> p.ChangedEntry:
        state = ENTRY_STATE.decode(value, where)
        path = Path().decode(value.get("path"), f"{where}.path")
        if self._kind is p.ChangeKind.CREATED:
            return p.ChangedEntry(path, self._kind, None, state)
        return p.ChangedEntry(path, self._kind, state, None)


class _Modified:
    """An entry of the list ``modified``: both states beside its path."""

    def encode(self, value: p.ChangedEntry) -> dict[str, Any]:
        if value.kind != p.ChangeKind.MODIFIED or value.before is None or value.after is None:
            raise DecodeError(value.path, "is not a modified entry with both states")
        return {
            "path": value.path,
            "before": ENTRY_STATE.encode(value.before),
            "after": ENTRY_STATE.encode(value.after),
        }

    def decode(self, value: Any, where: str) -> p.ChangedEntry:
        if not isinstance(value, dict):
            raise DecodeError(where, "is not an object")
        return p.ChangedEntry(
            Path().decode(value.get("path"), f"{where}.path"),
            p.ChangeKind.MODIFIED,
            ENTRY_STATE.decode(value.get("before"), f"{where}.before"),
            ENTRY_STATE.decode(value.get("after"), f"{where}.after"),
        )


CHANGE_LINE: Final = Record(
    p.ChangedEntry,
    Field("path", "path", Path()),
    Field("kind", "kind", OneOf(p.ChangeKind)),
    Field("before", "before", ENTRY_STATE, optional=True),
    Field("after", "after", ENTRY_STATE, optional=True),
)

_CHANGES: Final = Record(
    p.Changes,
    Field("created", "created", Integer()),
    Field("modified", "modified", Integer()),
    Field("deleted", "deleted", Integer()),
    Field("digest", "digest", Digest()),
    Field("complete", "complete", Flag()),
)

_PATHS: Final = ListOf(Path())
_OUTSIDE: Final = Record(
    p.OutsideChanges,
    Field("created", "created", _PATHS),
    Field("modified", "modified", _PATHS),
    Field("deleted", "deleted", _PATHS),
    Field("complete", "complete", Flag(), optional=True, default=True),
)
_BRIDGE: Final = Record(
    p.Bridge, Field("ignore_policy", "ignorePolicy", Digest()), Field("digest", "digest", Digest())
)


def _entries(codec: Codec[p.ChangedEntry]) -> ListOf[p.ChangedEntry]:
    return ListOf(codec, MAX_LISTED_CHANGES)


WORKSPACE: Final = Record(
    p.Workspace,
    Field("id", "id", _NAME),
    Field("root", "root", EscapedText()),
    Field("scheme", "scheme", OneOf(p.Scheme)),
    Field("scan_before", "scan.before", OneOf(p.ScanLevel)),
    Field("scan_after", "scan.after", Nullable(OneOf(p.ScanLevel))),
    Field("ignore_policy_before", "ignorePolicy.before", Digest()),
    Field("ignore_policy_after", "ignorePolicy.after", Nullable(Digest())),
    Field("before", "before", Digest()),
    Field("after", "after", Nullable(Digest())),
    Field("created", "created", _entries(_Listed(p.ChangeKind.CREATED))),
    Field("modified", "modified", _entries(_Modified())),
    Field("deleted", "deleted", _entries(_Listed(p.ChangeKind.DELETED))),
    Field("changes", "changes", _CHANGES),
    Field("unreadable", "unreadable", _PATHS),
    Field("unstable", "unstable", _PATHS),
    Field("outside_changes", "outsideChanges", Nullable(_OUTSIDE)),
    Field("bridge", "bridge", Nullable(_BRIDGE), optional=True),
    Field("unreadable_omitted", "omitted.unreadable", Integer(), optional=True, default=0),
    Field("unstable_omitted", "omitted.unstable", Integer(), optional=True, default=0),
)

_EFFECT: Final = Record(
    p.Effect,
    Field("probe", "probe", _NAME),
    Field("before", "before", Nullable(Digest())),
    Field("after", "after", Nullable(Digest())),
    Field("changed", "changed", Flag()),
)
_DIFFERENCE: Final = Record(
    p.Difference,
    Field("path", "path", Path()),
    Field("expected", "expected", Nullable(ENTRY_STATE)),
    Field("found", "found", Nullable(ENTRY_STATE)),
)
_DIFFERENCES: Final = ListOf(_DIFFERENCE, MAX_DIFFERENCES)
_PRECONDITION: Final = Record(
    p.Precondition,
    Field("status", "status", OneOf(p.PreconditionStatus)),
    Field("expected", "expected", Nullable(Digest())),
    Field("differences", "differences", _DIFFERENCES),
    Field("complete", "complete", Flag(), optional=True, default=True),
)
_VERIFICATION: Final = Record(
    p.Verification,
    Field("status", "status", OneOf(p.VerificationStatus)),
    Field("summary", "summary", _NOTE),
    Field("failures", "failures", _DIFFERENCES),
    Field("complete", "complete", Flag(), optional=True, default=True),
)
_VIOLATION: Final = Record(
    p.PolicyViolation,
    Field("path", "path", EscapedText(minimum=0)),
    Field("rule", "rule", _NAME),
)
_POLICY: Final = Record(
    p.Policy,
    Field("violations", "violations", ListOf(_VIOLATION)),
    Field("restored", "restored", _PATHS),
)
CHAIN: Final = Record(
    p.Chain,
    Field("id", "id", _NAME),
    Field("sequence", "sequence", Integer(1)),
    Field("previous", "previous", Nullable(Digest())),
)
_HOST: Final = Record(
    p.HostIdentity,
    Field("name", "name", _NAME),
    Field("version", "version", _NAME),
    Field("key_id", "keyId", _KEY_ID),
)

TOOL_EXECUTION: Final = Record(
    p.ToolExecutionPredicate,
    Field("outcome", "outcome", OneOf(p.Outcome)),
    Field("reason", "reason", _NOTE),
    Field("call", "call", CALL),
    Field("execution", "execution", Nullable(EXECUTION)),
    Field("workspace", "workspace", WORKSPACE),
    Field("chain", "chain", CHAIN),
    Field("host", "host", _HOST),
    Field("effects", "effects", ListOf(_EFFECT, 1000)),
    Field("precondition", "precondition", _PRECONDITION),
    Field("verification", "verification", _VERIFICATION),
    Field("policy", "policy", _POLICY),
    Field("issued_on", "issuedOn", Time(), optional=True),
)

_NEW_KEY: Final = Record(
    p.NewKey,
    Field("key_id", "keyId", _KEY_ID),
    Field("key_type", "keyType", _NAME),
    Field("scheme", "scheme", _NAME),
    Field("public", "public", Text(1, 16384)),
)
KEY_ROTATION: Final = Record(
    p.KeyRotationPredicate,
    Field("chain", "chain", CHAIN),
    Field("workspace_id", "workspaceId", _NAME),
    Field("old_key_id", "oldKeyId", _KEY_ID),
    Field("new_key", "newKey", _NEW_KEY),
    Field("host", "host", _HOST),
    Field("issued_on", "issuedOn", Time(), optional=True),
)
