"""What a host answers, as the client hands it on. None of it is verified.

Only the bytes of an ``envelope`` carry authority, and only once a
``ReceiptVerifier`` has checked them; everything else here is an index into
them, output that goes with them, or for display.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from workseal.calls import check_bytes
from workseal.tools import ToolExecution


@dataclass(frozen=True, slots=True)
class CapturedStream:
    """The kept part of one output stream.

    Args:
        head: the first bytes.
        tail: the last bytes, where the stream was too long to keep whole.
        total_bytes: length of the whole stream.
        digest: hex SHA-256 of the whole stream.
        truncated: whether bytes between head and tail were left out.
    """

    head: bytes = b""
    tail: bytes = b""
    total_bytes: int = 0
    digest: str = ""
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class HostResult:
    """The outcome of one call as the host delivered it: not verified.

    Args:
        envelope: the signed receipt, exactly as stored.
        sequence: where the host says that it stands in the chain.
        payload_digest: hex SHA-256 that the host gives for its payload.
        result: what the tool gave back, UTF-8 text for the model.
        stdout, stderr: the kept output.
        replayed: whether it is the stored outcome of an earlier request.
        execution_id: names the execution; empty where the host gave none.

    Raises:
        InvalidInputError: the envelope or the result is not bytes.
    """

    envelope: bytes
    sequence: int
    payload_digest: str = ""
    result: bytes = b""
    stdout: CapturedStream = field(default_factory=CapturedStream)
    stderr: CapturedStream = field(default_factory=CapturedStream)
    replayed: bool = False
    execution_id: str = ""

    def __post_init__(self) -> None:
        check_bytes(self.envelope, "envelope")
        check_bytes(self.result, "result")


@dataclass(frozen=True, slots=True)
class ChainEntry:
    """One entry of the chain as the host delivered it: not verified.

    Args:
        envelope: the signed bytes.
        sequence: where the host says that it stands.
        payload_digest: hex SHA-256 that the host gives for its payload.
        kind: ``tool-execution``, ``key-rotation`` or ``unknown``.
    """

    envelope: bytes
    sequence: int
    payload_digest: str
    kind: str


@dataclass(frozen=True, slots=True)
class OutputChunk:
    """A piece of raw output while the tool runs.

    Args:
        stream: ``stdout`` or ``stderr``.
        offset: position of ``data`` in the whole stream; a jump means that bytes were left out.
        data: the bytes.
    """

    stream: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ToolInfo:
    """One tool that a host offers; ``default_timeout_s`` in seconds."""

    name: str
    description: str
    arguments_schema_json: bytes
    execution: ToolExecution
    default_timeout_s: float


@dataclass(frozen=True, slots=True)
class HostInfo:
    """What a host says of itself. For display: no reason to trust its key."""

    name: str
    version: str
    workspace_id: str
    root: str
    chain_id: str
    head_sequence: int
    key_id: str
    public_key_pem: str
    scheme: str
    scan: str
    isolation: str
    tools: tuple[ToolInfo, ...]
    max_arguments_bytes: int


@dataclass(frozen=True, slots=True)
class WorkspaceDigest:
    """The workspace as a host says that it is now: not signed.

    Args:
        scheme: digest scheme.
        digest: lower-case hex SHA-256.
        scan: scan level.
        entries: number of entries.
        unreadable: escaped paths that could not be read.
        unstable: escaped paths that changed while they were read.
        policy_digest: hex SHA-256 of the ignore policy.
    """

    scheme: str
    digest: str
    scan: str
    entries: int
    unreadable: tuple[str, ...]
    unstable: tuple[str, ...]
    policy_digest: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """A call has begun.

    Args:
        execution_id: names the execution.
        idempotency_key: the key that it holds.
        before: the workspace before the call.
    """

    execution_id: str
    idempotency_key: str
    before: WorkspaceDigest


@dataclass(frozen=True, slots=True)
class EntryState:
    """Type and hex SHA-256 of one path at one moment."""

    type: str
    digest: str


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One entry of a manifest; ``path`` in the escaped form."""

    path: str
    state: EntryState


@dataclass(frozen=True, slots=True)
class Manifest:
    """Every entry of the workspace, sorted by raw path bytes, and the digest over all."""

    digest: WorkspaceDigest
    entries: tuple[ManifestEntry, ...]


@dataclass(frozen=True, slots=True)
class Observation:
    """A tool call that somebody else is about to run.

    Args:
        execution_id: names it in ``end_observation``; empty when ``outcome`` is set.
        idempotency_key: the key that it holds.
        before: the workspace before the call; ``None`` when ``outcome`` is set.
        outcome: the host refused, or replays what it stored; then nothing may be run.
    """

    execution_id: str
    idempotency_key: str
    before: WorkspaceDigest | None
    outcome: HostResult | None


@dataclass(frozen=True, slots=True)
class Selector:
    """Names one execution or receipt; exactly one way must be set.

    Args:
        execution_id: the id of an execution.
        idempotency_key: its key.
        sequence: position in the chain, from 1 (receipts only).
        payload_digest: hex SHA-256 of a receipt's payload (receipts only).
    """

    execution_id: str = ""
    idempotency_key: str = ""
    sequence: int = 0
    payload_digest: str = ""
