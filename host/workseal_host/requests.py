"""What callers ask for, in the host's own terms. Pure.

A request that is built here is well-formed: ids are bounded and printable, the
arguments are strict JSON, the challenge has its exact form. Whether the tool
likes its arguments is decided later, with a receipt.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from workseal.canonical import canonical_json, parse_json, sha256_hex
from workseal.errors import InvalidInputError
from workseal.paths import unescape_path
from workseal_host.errors import RequestError
from workseal_host.workspace.model import EntryType

MAX_ID_BYTES = 256
MAX_ARGUMENTS_BYTES = 2 * 1024 * 1024
MAX_TIMEOUT_S = 24 * 3600.0
MAX_OBSERVATION_S = 24 * 3600.0
DEFAULT_OBSERVATION_S = 600.0
MAX_PATH_EXPECTATIONS = 1000

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]")
_KEY = re.compile(r"[\x21-\x7e]{16,256}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class CallRef:
    """Names one tool call of one session."""

    session_id: str
    tool_call_id: str
    challenge: str | None

    def __post_init__(self) -> None:
        for name in ("session_id", "tool_call_id"):
            _check_id(getattr(self, name), f"call.{name}")
        if self.challenge is not None and not _CHALLENGE.fullmatch(self.challenge):
            raise RequestError(
                "the challenge must be 32 random bytes in base64url without padding (43 characters)",
                field="call.challenge",
            )


@dataclass(frozen=True, slots=True)
class PathExpectation:
    """The state that one path must have.

    Attributes:
        path: raw path below the root.
        absent: whether it must be absent.
        type: the type it must have; None for any.
        digest: the hex hash it must have; empty for any.
    """

    path: bytes
    absent: bool
    type: EntryType | None
    digest: str

    @classmethod
    def of(cls, path: str, *, absent: bool, type_: EntryType | None, digest: str) -> PathExpectation:
        """Build one from the escaped form of its path.

        Raises:
            RequestError: a part is malformed.
        """
        field = "precondition.paths"
        try:
            raw = unescape_path(path)
        except InvalidInputError as error:
            raise RequestError(str(error), field=field) from error
        if not raw or any(part in (b"", b".", b"..") for part in raw.split(b"/")):
            raise RequestError("a path must be relative, without empty, `.` or `..` components", field=field)
        if absent and (type_ is not None or digest):
            raise RequestError("a path that must be absent can have no state", field=field)
        if digest and not _SHA256.fullmatch(digest):
            raise RequestError("a hash must be 64 lower-case hex digits", field=field)
        return cls(raw, absent, type_, digest)


@dataclass(frozen=True, slots=True)
class Precondition:
    """What must hold before a tool runs."""

    workspace_digest: str = ""
    paths: tuple[PathExpectation, ...] = ()

    def __post_init__(self) -> None:
        if self.workspace_digest and not _SHA256.fullmatch(self.workspace_digest):
            raise RequestError(
                "the expected digest must be 64 lower-case hex digits, without a prefix",
                field="precondition.workspace_sha256",
            )
        if len(self.paths) > MAX_PATH_EXPECTATIONS:
            raise RequestError(f"at most {MAX_PATH_EXPECTATIONS} paths", field="precondition.paths")

    @property
    def is_requested(self) -> bool:
        """Whether anything is to be checked."""
        return bool(self.workspace_digest or self.paths)


@dataclass(frozen=True, slots=True)
class SideEffects:
    """The caller's own declaration; the host takes the stricter of it and its registry."""

    read_only: bool
    mutates_workspace: bool
    exclusive: bool
    stateful_action: bool
    pagination: bool


@dataclass(frozen=True, slots=True)
class CallRequest:
    """One tool call, asked for or announced.

    Attributes:
        call: which call it is.
        tool: name of the tool.
        arguments: its arguments, a JSON object.
        idempotency_key: the caller's own key; empty for the default.
        precondition: what must hold before it runs.
        timeout_s: when the tool is ended, in seconds; None for the tool's default.
        side_effects: the caller's declaration; None for the registry's.
        observed: whether somebody else runs it.
        ttl_s: how long an observation waits for its end, in seconds.
    """

    call: CallRef
    tool: str
    arguments: dict[str, Any]
    idempotency_key: str = ""
    precondition: Precondition = Precondition()
    timeout_s: float | None = None
    side_effects: SideEffects | None = None
    observed: bool = False
    ttl_s: float = DEFAULT_OBSERVATION_S

    def __post_init__(self) -> None:
        _check_id(self.tool, "tool")
        if self.idempotency_key and not _KEY.fullmatch(self.idempotency_key):
            raise RequestError(
                "an idempotency key is 16 to 256 printable ASCII characters without spaces",
                field="idempotency_key",
            )
        if self.timeout_s is not None and not 0 < self.timeout_s <= MAX_TIMEOUT_S:
            raise RequestError(
                f"a time-out is more than 0 and at most {MAX_TIMEOUT_S:.0f} s", field="limits.timeout"
            )
        if not 0 < self.ttl_s <= MAX_OBSERVATION_S:
            raise RequestError(
                f"an observation lasts more than 0 and at most {MAX_OBSERVATION_S:.0f} s", field="ttl"
            )

    @property
    def arguments_digest(self) -> str:
        """Hex SHA-256 of the canonical arguments."""
        return sha256_hex(canonical_json(self.arguments))

    @property
    def request_digest(self) -> str:
        """Hex SHA-256 of all that makes it this request and no other: key order does not matter."""
        expectations = [
            [path.path.hex(), path.absent, path.type and str(path.type), path.digest]
            for path in self.precondition.paths
        ]
        timeout_ms = None if self.timeout_s is None else round(self.timeout_s * 1000)
        return sha256_hex(
            canonical_json(
                {
                    "arguments": self.arguments,
                    "mode": "observed" if self.observed else "executed",
                    "paths": expectations,
                    "timeoutMs": timeout_ms,
                    "ttlMs": round(self.ttl_s * 1000) if self.observed else None,
                    "tool": self.tool,
                    "workspace": self.precondition.workspace_digest,
                }
            )
        )

    def key(self, workspace_id: str) -> str:
        """Return the idempotency key: the caller's own, bound to its session, or the default.

        Source: the default is SHA-256 of RFC 8785 of [workspace id, session id, tool_call_id, challenge].
        """
        call = self.call
        default = _digest([workspace_id, call.session_id, call.tool_call_id, call.challenge])
        if self.idempotency_key in ("", default):
            return default
        return _digest([workspace_id, call.session_id, "own-key", self.idempotency_key])


def _digest(parts: list[str | None]) -> str:
    return sha256_hex(canonical_json(parts))


def parse_arguments(data: bytes) -> dict[str, Any]:
    """Parse a call's arguments.

    Args:
        data: a JSON object in UTF-8; empty bytes mean an empty object.

    Raises:
        RequestError: they are not strict JSON, or not an object.
    """
    try:
        value = parse_json(data or b"{}", max_bytes=MAX_ARGUMENTS_BYTES)
    except InvalidInputError as error:
        raise RequestError(f"arguments: {error}", field="arguments_json") from error
    if not isinstance(value, dict):
        raise RequestError("arguments must be a JSON object", field="arguments_json")
    return value


def _check_id(value: str, field: str) -> None:
    size = len(value.encode("utf-8", "surrogatepass"))
    if not 1 <= size <= MAX_ID_BYTES or _CONTROL.search(value):
        raise RequestError(
            f"{field} must be 1 to {MAX_ID_BYTES} bytes without control characters", field=field
        )
