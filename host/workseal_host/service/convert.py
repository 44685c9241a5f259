"""Between proto messages and the host's own terms. The only place that does it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from google.protobuf.duration_pb2 import Duration

from workseal.canonical import canonical_json
from workseal.receipt.statement import bound_paths
from workseal.v1 import execution_pb2, host_pb2, receipt_pb2, workspace_pb2
from workseal_host.coordination.live import Accepted, DigestReport, Event, Outcome, OutputChunk
from workseal_host.errors import RequestError
from workseal_host.execution.registry import Tool, ToolRegistry
from workseal_host.ledger.model import OutputRecord, ReceiptRow, StreamRecord
from workseal_host.ledger.states import ExecutionState
from workseal_host.requests import (
    DEFAULT_OBSERVATION_S,
    CallRef,
    CallRequest,
    PathExpectation,
    Precondition,
    SideEffects,
    parse_arguments,
)
from workseal_host.workspace.model import EntryType
from workseal_host.workspace.scan import ScanLevel
from workseal_host.workspace.scheme import DigestScheme

SCHEMES = {
    DigestScheme.WORKSEAL_TREE_1: workspace_pb2.DIGEST_SCHEME_WORKSEAL_TREE_1,
    DigestScheme.NONOKA_1: workspace_pb2.DIGEST_SCHEME_NONOKA_1,
}
LEVELS = {
    ScanLevel.FULL: workspace_pb2.SCAN_LEVEL_FULL,
    ScanLevel.STAT: workspace_pb2.SCAN_LEVEL_STAT,
    ScanLevel.WATCH: workspace_pb2.SCAN_LEVEL_WATCH,
}
ENTRY_TYPES = {
    EntryType.FILE: workspace_pb2.ENTRY_TYPE_FILE,
    EntryType.EXECUTABLE: workspace_pb2.ENTRY_TYPE_EXECUTABLE,
    EntryType.SYMLINK: workspace_pb2.ENTRY_TYPE_SYMLINK,
    EntryType.DIRECTORY: workspace_pb2.ENTRY_TYPE_DIRECTORY,
    EntryType.FIFO: workspace_pb2.ENTRY_TYPE_FIFO,
    EntryType.SOCKET: workspace_pb2.ENTRY_TYPE_SOCKET,
    EntryType.CHAR: workspace_pb2.ENTRY_TYPE_CHAR,
    EntryType.BLOCK: workspace_pb2.ENTRY_TYPE_BLOCK,
    EntryType.UNREADABLE: workspace_pb2.ENTRY_TYPE_UNREADABLE,
}
CHANGE_KINDS = {
    "created": workspace_pb2.CHANGE_KIND_CREATED,
    "modified": workspace_pb2.CHANGE_KIND_MODIFIED,
    "deleted": workspace_pb2.CHANGE_KIND_DELETED,
}
STATES = {
    ExecutionState.RECEIVED: execution_pb2.EXECUTION_STATE_RECEIVED,
    ExecutionState.IN_FLIGHT: execution_pb2.EXECUTION_STATE_IN_FLIGHT,
    ExecutionState.COMMITTED: execution_pb2.EXECUTION_STATE_COMMITTED,
    ExecutionState.REFUSED: execution_pb2.EXECUTION_STATE_REFUSED,
    ExecutionState.IN_DOUBT: execution_pb2.EXECUTION_STATE_IN_DOUBT,
    ExecutionState.EXPIRED: execution_pb2.EXECUTION_STATE_EXPIRED,
    ExecutionState.ABANDONED: execution_pb2.EXECUTION_STATE_ABANDONED,
}
STREAMS = {
    "stdout": execution_pb2.OUTPUT_STREAM_STDOUT,
    "stderr": execution_pb2.OUTPUT_STREAM_STDERR,
}
_NS_PER_S = 10**9
_Term = TypeVar("_Term")
RECEIPT_KINDS = {
    "tool-execution": receipt_pb2.RECEIPT_KIND_TOOL_EXECUTION,
    "key-rotation": receipt_pb2.RECEIPT_KIND_KEY_ROTATION,
}


# -- requests ---------------------------------------------------------------


def call_request(message: execution_pb2.ExecuteToolRequest) -> CallRequest:
    """Build a call from its message.

    Raises:
        RequestError: a field is malformed.
    """
    return CallRequest(
        call=_call_ref(message.call),
        tool=message.tool,
        arguments=parse_arguments(message.arguments_json),
        idempotency_key=message.idempotency_key,
        precondition=_precondition(message.precondition),
        timeout_s=_seconds(message.limits.timeout, "limits.timeout")
        if message.limits.HasField("timeout")
        else None,
        side_effects=_side_effects(message.side_effects) if message.HasField("side_effects") else None,
    )


def observation_request(message: host_pb2.BeginObservationRequest) -> CallRequest:
    """Build an observed call from its message.

    Raises:
        RequestError: a field is malformed.
    """
    return CallRequest(
        call=_call_ref(message.call),
        tool=message.tool,
        arguments=parse_arguments(message.arguments_json),
        idempotency_key=message.idempotency_key,
        precondition=_precondition(message.precondition),
        observed=True,
        ttl_s=_seconds(message.ttl, "ttl") if message.HasField("ttl") else DEFAULT_OBSERVATION_S,
    )


def _call_ref(message: execution_pb2.CallRef) -> CallRef:
    return CallRef(message.session_id, message.tool_call_id, message.challenge or None)


def _precondition(message: execution_pb2.Precondition) -> Precondition:
    paths = tuple(
        PathExpectation.of(
            item.path,
            absent=item.absent,
            type_=entry_type(item.state.type) if item.HasField("state") else None,
            digest=item.state.sha256,
        )
        for item in message.paths
    )
    return Precondition(message.workspace_sha256, paths)


def _side_effects(message: execution_pb2.SideEffects) -> SideEffects:
    return SideEffects(
        message.read_only,
        message.mutates_workspace,
        message.exclusive,
        message.stateful_action,
        message.pagination,
    )


def _seconds(duration: Duration, field: str) -> float:
    """Return a duration in seconds. Source of the rule: google/protobuf/duration.proto."""
    if abs(duration.nanos) >= _NS_PER_S or duration.seconds * duration.nanos < 0:
        raise RequestError(
            "a duration has less than 10^9 nanos, of the same sign as its seconds", field=field
        )
    return duration.seconds + duration.nanos / 1e9


def _reversed(table: Mapping[_Term, int], value: int, field: str, what: str) -> _Term:
    for key, number in table.items():
        if number == value:
            return key
    raise RequestError(f"unknown {what} {value}; upgrade the host, or ask for another", field=field)


def entry_type(value: int) -> EntryType:
    """Return the entry type of an enum value, refusing unknown ones."""
    return _reversed(ENTRY_TYPES, value, "state.type", "entry type")


def scan_level(value: int) -> ScanLevel | None:
    """Return the scan level of an enum value; None where it is not stated."""
    if not value:
        return None
    found = _reversed(LEVELS, value, "scan", "scan level")
    if found is ScanLevel.WATCH:
        raise RequestError("this host has no watcher; ask for STAT or FULL", field="scan")
    return found


def digest_scheme(value: int) -> DigestScheme | None:
    """Return the scheme of an enum value; None where it is not stated."""
    if not value:
        return None
    return _reversed(SCHEMES, value, "scheme", "digest scheme")


# -- answers ------------------------------------------------------------------


def digest_message(report: DigestReport) -> workspace_pb2.WorkspaceDigest:
    """Return a digest as its message, with lists of paths that fit it."""
    unreadable, unreadable_omitted = bound_paths(report.unreadable)
    unstable, unstable_omitted = bound_paths(report.unstable)
    return workspace_pb2.WorkspaceDigest(
        scheme=SCHEMES[DigestScheme(report.scheme)],
        sha256=report.digest,
        scan=LEVELS[ScanLevel(report.scan)],
        entries=report.entries,
        unreadable=unreadable,
        unstable=unstable,
        policy_sha256=report.policy_digest,
        unreadable_omitted=unreadable_omitted,
        unstable_omitted=unstable_omitted,
    )


def receipt_message(row: ReceiptRow) -> receipt_pb2.Receipt:
    """Return a chain entry as its message."""
    return receipt_pb2.Receipt(
        envelope=row.envelope,
        sequence=row.sequence,
        payload_sha256=row.payload_digest,
        kind=RECEIPT_KINDS[row.kind],
    )


def outcome_message(outcome: Outcome) -> execution_pb2.Outcome:
    """Return an outcome as its message."""
    return execution_pb2.Outcome(
        receipt=receipt_message(outcome.receipt),
        output=_output(outcome.output),
        replayed=outcome.replayed,
    )


def event_message(event: Event) -> execution_pb2.ExecuteToolEvent:
    """Return an event as its message."""
    if isinstance(event, Accepted):
        accepted = execution_pb2.Accepted(
            execution_id=event.execution_id,
            idempotency_key=event.idempotency_key,
            before=digest_message(event.before),
        )
        return execution_pb2.ExecuteToolEvent(accepted=accepted)
    if isinstance(event, OutputChunk):
        chunk = execution_pb2.OutputChunk(stream=STREAMS[event.stream], offset=event.offset, data=event.data)
        return execution_pb2.ExecuteToolEvent(output=chunk)
    return execution_pb2.ExecuteToolEvent(outcome=outcome_message(event))


def _output(output: OutputRecord) -> receipt_pb2.ToolOutput:
    return receipt_pb2.ToolOutput(
        result=output.result, stdout=_stream(output.stdout), stderr=_stream(output.stderr)
    )


def _stream(stream: StreamRecord) -> receipt_pb2.CapturedStream:
    return receipt_pb2.CapturedStream(
        head=stream.head,
        tail=stream.tail,
        total_bytes=stream.total_bytes,
        sha256=stream.digest,
        truncated=stream.truncated,
    )


def tool_messages(registry: ToolRegistry) -> list[host_pb2.ToolInfo]:
    """Return the registered tools as messages, by name."""
    return [_tool(registry.get(name)) for name in registry.names()]


def _tool(tool: Tool) -> host_pb2.ToolInfo:
    effects = tool.side_effects
    timeout = Duration()
    timeout.FromNanoseconds(int(tool.default_timeout_s * 1e9))
    return host_pb2.ToolInfo(
        name=tool.name,
        description=tool.description,
        arguments_schema_json=canonical_json(tool.schema),
        side_effects=execution_pb2.SideEffects(
            read_only=effects.read_only,
            mutates_workspace=effects.mutates_workspace,
            exclusive=effects.exclusive,
            stateful_action=effects.stateful_action,
            pagination=effects.pagination,
        ),
        default_timeout=timeout,
    )
