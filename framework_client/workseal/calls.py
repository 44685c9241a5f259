"""One tool call as the client names it.

Invariants: a challenge is 32 random bytes that nobody else can guess; the
digest of the arguments and the idempotency key depend on nothing but what they
are computed from, so that every retry of a call repeats both.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from workseal.canonical import canonical_json, parse_json, sha256_hex
from workseal.errors import InvalidInputError, InvalidJsonError

CHALLENGE_BYTES = 32
MAX_ID_BYTES = 256
MAX_ARGUMENTS_BYTES = 8 * 1024 * 1024

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]")


def new_challenge(random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> str:
    """Make the challenge of one pending call.

    Args:
        random_bytes: returns that many unpredictable bytes.

    Returns:
        32 bytes as base64url without padding (43 characters).
    """
    return base64.urlsafe_b64encode(random_bytes(CHALLENGE_BYTES)).rstrip(b"=").decode("ascii")


def check_challenge(challenge: str) -> str:
    """Return ``challenge`` where it is one.

    Raises:
        InvalidInputError: it is not 32 bytes in canonical base64url without padding.
    """
    if not _CHALLENGE.fullmatch(challenge):
        raise InvalidInputError(
            "a challenge is 32 bytes in base64url without padding: make it with new_challenge()",
            field="challenge",
        )
    return challenge


def check_id(value: str, name: str) -> str:
    """Return an id where the host would accept it.

    Args:
        value: the id.
        name: its field, for the message.

    Raises:
        InvalidInputError: it is empty, longer than 256 bytes, or holds control characters.
    """
    try:
        length = len(value.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"{name} holds a lone surrogate: send valid Unicode", field=name) from error
    if not 1 <= length <= MAX_ID_BYTES or _CONTROL.search(value):
        raise InvalidInputError(
            f"{name} has {length} bytes or control characters: give 1 to {MAX_ID_BYTES} bytes without any",
            field=name,
        )
    return value


def check_bytes(value: object, name: str) -> None:
    """Refuse what are not bytes, text above all: what is signed is bytes, and has one form only.

    Args:
        value: a receipt or a result, as it came.
        name: its field, for the message.

    Raises:
        InvalidInputError: they are not bytes.
    """
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidInputError(
            f"{name} is a {type(value).__name__}: give the bytes, as they came",
            field=name,
        )


def encode_arguments(arguments: Mapping[str, Any]) -> bytes:
    """Return the bytes in which arguments travel: their RFC 8785 form.

    Args:
        arguments: a JSON object; string keys, integers within 2^53-1.

    Raises:
        InvalidJsonError: they are not strict JSON, nested too deep or too large.
    """
    if not isinstance(arguments, Mapping):
        raise InvalidJsonError("arguments are not a JSON object", field="arguments")
    data = canonical_json(dict(arguments))
    # The host parses strictly, depth and size included: what it would refuse is not worth sending.
    parse_json(data, max_bytes=MAX_ARGUMENTS_BYTES)
    return data


def arguments_digest(arguments: Mapping[str, Any]) -> str:
    """Return the hex SHA-256 of the RFC 8785 form of the arguments.

    Raises:
        InvalidJsonError: as :func:`encode_arguments`.
    """
    return sha256_hex(encode_arguments(arguments))


def idempotency_key(workspace_id: str, session_id: str, tool_call_id: str, challenge: str | None) -> str:
    """Return the default key of a call: hex SHA-256 of RFC 8785 of the four, in this order."""
    return sha256_hex(canonical_json([workspace_id, session_id, tool_call_id, challenge]))


def own_key(workspace_id: str, session_id: str, key: str) -> str:
    """Return what a host makes of a caller's own key, so that it names one effect of one session only."""
    return sha256_hex(canonical_json([workspace_id, session_id, "own-key", key]))


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One request for one tool.

    Args:
        session_id: the framework's session.
        tool_call_id: the call as the model named it; models reuse these.
        tool: name of a tool of the host.
        arguments: a JSON object.
        challenge: from :func:`new_challenge`; ``None`` makes a receipt that proves no freshness.
        idempotency_key: names the intended effect, 16 to 256 printable ASCII characters; empty for the
            default key.

    Raises:
        InvalidInputError: an id or the challenge is malformed.
        InvalidJsonError: the arguments are not strict JSON.
    """

    session_id: str
    tool_call_id: str
    tool: str
    arguments: Mapping[str, Any] = field(repr=False)  # may hold secrets: keep them out of logs
    challenge: str | None = None
    idempotency_key: str = ""

    def __post_init__(self) -> None:
        for name in ("session_id", "tool_call_id", "tool"):
            check_id(getattr(self, name), name)
        if self.challenge is not None:
            check_challenge(self.challenge)
        if self.idempotency_key:
            check_id(self.idempotency_key, "idempotency_key")
        encode_arguments(self.arguments)

    @property
    def arguments_json(self) -> bytes:
        """The arguments as they travel."""
        return encode_arguments(self.arguments)

    @property
    def arguments_digest(self) -> str:
        """Hex SHA-256 of the arguments."""
        return sha256_hex(self.arguments_json)

    def key(self, workspace_id: str) -> str:
        """Return the idempotency key as the host's ledger and the receipt hold it."""
        default = idempotency_key(workspace_id, self.session_id, self.tool_call_id, self.challenge)
        if self.idempotency_key in ("", default):
            return default
        return own_key(workspace_id, self.session_id, self.idempotency_key)


@dataclass(frozen=True, slots=True)
class PathExpectation:
    """The state that a path must have.

    Args:
        path: in the escaped form.
        absent: whether it must not be there; then give neither type nor digest.
        type: its type; empty for any.
        digest: its hex SHA-256, together with its type; empty for any.

    Raises:
        InvalidInputError: a digest without a type, or a state of what must be absent.
    """

    path: str
    absent: bool = False
    type: str = ""
    digest: str = ""

    def __post_init__(self) -> None:
        # Otherwise the request could not carry it, and the host would check less than was asked.
        if self.digest and not self.type:
            raise InvalidInputError(
                "a digest is expected together with its type, such as file", field="digest"
            )
        if self.absent and self.type:
            raise InvalidInputError("a path that must be absent has neither type nor digest", field="absent")


@dataclass(frozen=True, slots=True)
class Precondition:
    """What must hold before a tool runs; unmet, the outcome is a ``refused`` receipt.

    Args:
        workspace_digest: hex SHA-256 under the host's scheme; empty for any.
        paths: states of named paths.
    """

    workspace_digest: str = ""
    paths: tuple[PathExpectation, ...] = ()
