"""Messages of the wire to the client's own types, and back.

Values of enums that this client does not know become ``unknown``: shown, never
acted upon.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from google.protobuf import duration_pb2

from workseal.calls import PathExpectation, Precondition, ToolCall
from workseal.errors import InvalidInputError
from workseal.results import (
    Accepted,
    CapturedStream,
    ChainEntry,
    EntryState,
    HostInfo,
    HostResult,
    ManifestEntry,
    Observation,
    Selector,
    ToolInfo,
    WorkspaceDigest,
)
from workseal.tools import ToolExecution
from workseal.transport.errors import protocol_error
from workseal.v1 import execution_pb2, host_pb2, receipt_pb2, workspace_pb2

_SCHEMES = {
    workspace_pb2.DIGEST_SCHEME_WORKSEAL_TREE_1: "workseal-tree/1",
    workspace_pb2.DIGEST_SCHEME_NONOKA_1: "nonoka/1",
}
_SCANS = {
    workspace_pb2.SCAN_LEVEL_FULL: "full",
    workspace_pb2.SCAN_LEVEL_STAT: "stat",
    workspace_pb2.SCAN_LEVEL_WATCH: "watch",
}
_TYPES = {
    workspace_pb2.ENTRY_TYPE_FILE: "file",
    workspace_pb2.ENTRY_TYPE_EXECUTABLE: "executable",
    workspace_pb2.ENTRY_TYPE_SYMLINK: "symlink",
    workspace_pb2.ENTRY_TYPE_DIRECTORY: "directory",
    workspace_pb2.ENTRY_TYPE_FIFO: "fifo",
    workspace_pb2.ENTRY_TYPE_SOCKET: "socket",
    workspace_pb2.ENTRY_TYPE_CHAR: "char",
    workspace_pb2.ENTRY_TYPE_BLOCK: "block",
    workspace_pb2.ENTRY_TYPE_UNREADABLE: "unreadable",
}
_KINDS = {
    receipt_pb2.RECEIPT_KIND_TOOL_EXECUTION: "tool-execution",
    receipt_pb2.RECEIPT_KIND_KEY_ROTATION: "key-rotation",
}
UNKNOWN = "unknown"
_V = TypeVar("_V")


def duration(seconds: float) -> duration_pb2.Duration:
    """Return a wire duration for seconds."""
    nanos = round(seconds * 1_000_000_000)
    return duration_pb2.Duration(seconds=nanos // 1_000_000_000, nanos=nanos % 1_000_000_000)


def _seconds(message: duration_pb2.Duration) -> float:
    return message.seconds + message.nanos / 1e9


def call_ref(call: ToolCall) -> execution_pb2.CallRef:
    """Return the wire form of a call's name."""
    return execution_pb2.CallRef(
        session_id=call.session_id, tool_call_id=call.tool_call_id, challenge=call.challenge or ""
    )


def side_effects(execution: ToolExecution) -> execution_pb2.SideEffects:
    """Return the wire form of a declaration."""
    return execution_pb2.SideEffects(
        read_only=execution.read_only,
        mutates_workspace=execution.mutates_workspace,
        exclusive=execution.exclusive,
        stateful_action=execution.stateful_action,
        pagination=execution.pagination,
    )


def scheme_value(name: str) -> workspace_pb2.DigestScheme.ValueType:
    """Return the wire value of a scheme's name; empty for the host's own.

    Raises:
        InvalidInputError: there is no such scheme.
    """
    return _value(_SCHEMES, name, "scheme") if name else workspace_pb2.DIGEST_SCHEME_UNSPECIFIED


def scan_value(name: str) -> workspace_pb2.ScanLevel.ValueType:
    """Return the wire value of a scan level's name; empty for the host's own.

    Raises:
        InvalidInputError: there is no such level.
    """
    return _value(_SCANS, name, "scan") if name else workspace_pb2.SCAN_LEVEL_UNSPECIFIED


def _value(table: Mapping[_V, str], name: str, field: str) -> _V:
    for value, known in table.items():
        if known == name:
            return value
    raise InvalidInputError(f"no {field} {name!r}: use one of {', '.join(table.values())}", field=field)


def precondition(wanted: Precondition) -> execution_pb2.Precondition:
    """Return the wire form of a precondition.

    Raises:
        InvalidInputError: an entry type does not exist.
    """
    return execution_pb2.Precondition(
        workspace_sha256=wanted.workspace_digest,
        paths=[_path_expectation(path) for path in wanted.paths],
    )


def _path_expectation(wanted: PathExpectation) -> execution_pb2.PathExpectation:
    message = execution_pb2.PathExpectation(path=wanted.path, absent=wanted.absent)
    if wanted.type:
        message.state.type = _value(_TYPES, wanted.type, "type")
        message.state.sha256 = wanted.digest
    return message


def selector(wanted: Selector) -> execution_pb2.ExecutionSelector:
    """Return the wire form of an execution's name.

    Raises:
        InvalidInputError: not exactly one of its two ways is given.
    """
    if wanted.sequence or wanted.payload_digest or bool(wanted.execution_id) == bool(wanted.idempotency_key):
        raise InvalidInputError("name an execution by execution_id or by idempotency_key", field="selector")
    if wanted.execution_id:
        return execution_pb2.ExecutionSelector(execution_id=wanted.execution_id)
    return execution_pb2.ExecutionSelector(idempotency_key=wanted.idempotency_key)


def receipt_selector(wanted: Selector) -> receipt_pb2.ReceiptSelector:
    """Return the wire form of a receipt's name.

    Raises:
        InvalidInputError: not exactly one of its ways is given.
    """
    ways: dict[str, Any] = {
        "sequence": wanted.sequence,
        "payload_sha256": wanted.payload_digest,
        "execution_id": wanted.execution_id,
        "idempotency_key": wanted.idempotency_key,
    }
    given = {name: value for name, value in ways.items() if value}
    if len(given) != 1:
        raise InvalidInputError("name a receipt in exactly one way", field="selector")
    return receipt_pb2.ReceiptSelector(**given)


def host_info(message: host_pb2.GetHostInfoResponse) -> HostInfo:
    """Convert what a host says of itself."""
    return HostInfo(
        name=message.name,
        version=message.version,
        workspace_id=message.workspace_id,
        root=message.root,
        chain_id=message.chain_id,
        head_sequence=message.head_sequence,
        key_id=message.key_id,
        public_key_pem=message.public_key_pem,
        scheme=_SCHEMES.get(message.scheme, UNKNOWN),
        scan=_SCANS.get(message.scan, UNKNOWN),
        isolation=message.isolation,
        tools=tuple(_tool_info(tool) for tool in message.tools),
        max_arguments_bytes=message.max_arguments_bytes,
    )


def _tool_info(message: host_pb2.ToolInfo) -> ToolInfo:
    effects = message.side_effects
    return ToolInfo(
        name=message.name,
        description=message.description,
        arguments_schema_json=message.arguments_schema_json,
        execution=ToolExecution(
            read_only=effects.read_only,
            mutates_workspace=effects.mutates_workspace,
            exclusive=effects.exclusive,
            stateful_action=effects.stateful_action,
            pagination=effects.pagination,
        ),
        default_timeout_s=_seconds(message.default_timeout),
    )


def host_result(message: execution_pb2.Outcome, *, execution_id: str = "") -> HostResult:
    """Convert an outcome.

    Raises:
        HostError: it has no receipt.
    """
    if not message.receipt.envelope or not message.receipt.sequence:
        raise protocol_error("an outcome without a receipt")
    return HostResult(
        envelope=message.receipt.envelope,
        sequence=message.receipt.sequence,
        payload_digest=message.receipt.payload_sha256,
        result=message.output.result,
        stdout=_stream(message.output.stdout),
        stderr=_stream(message.output.stderr),
        replayed=message.replayed,
        execution_id=execution_id,
    )


def _stream(message: Any) -> CapturedStream:
    return CapturedStream(
        head=message.head,
        tail=message.tail,
        total_bytes=message.total_bytes,
        digest=message.sha256,
        truncated=message.truncated,
    )


def chain_entry(message: receipt_pb2.Receipt) -> ChainEntry:
    """Convert an entry of the chain."""
    return ChainEntry(
        envelope=message.envelope,
        sequence=message.sequence,
        payload_digest=message.payload_sha256,
        kind=_KINDS.get(message.kind, UNKNOWN),
    )


def workspace_digest(message: workspace_pb2.WorkspaceDigest) -> WorkspaceDigest:
    """Convert a digest."""
    return WorkspaceDigest(
        scheme=_SCHEMES.get(message.scheme, UNKNOWN),
        digest=message.sha256,
        scan=_SCANS.get(message.scan, UNKNOWN),
        entries=message.entries,
        unreadable=tuple(message.unreadable),
        unstable=tuple(message.unstable),
        policy_digest=message.policy_sha256,
    )


def manifest_entry(message: workspace_pb2.ManifestEntry) -> ManifestEntry:
    """Convert an entry of a manifest."""
    state = EntryState(type=_TYPES.get(message.state.type, UNKNOWN), digest=message.state.sha256)
    return ManifestEntry(path=message.path, state=state)


def accepted(message: execution_pb2.Accepted) -> Accepted:
    """Convert the news that a call has begun."""
    return Accepted(
        execution_id=message.execution_id,
        idempotency_key=message.idempotency_key,
        before=workspace_digest(message.before),
    )


def observation(message: host_pb2.BeginObservationResponse) -> Observation:
    """Convert the begin of an observation.

    Raises:
        HostError: it has neither a begin nor an outcome.
    """
    outcome = host_result(message.outcome) if message.HasField("outcome") else None
    if outcome is None and not (message.execution_id and message.HasField("before")):
        raise protocol_error("an observation that neither began nor ended")
    return Observation(
        execution_id=message.execution_id,
        idempotency_key=message.idempotency_key,
        before=workspace_digest(message.before) if message.HasField("before") else None,
        outcome=outcome,
    )
