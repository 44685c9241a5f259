"""Where a host is, and how to talk to it.

Invariants: TCP only under TLS; the token is read once, at connect, and never
shows in a repr, a log or an error.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from urllib.parse import quote, unquote_to_bytes

import grpc
import grpc.aio

from workseal.errors import InvalidInputError

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
MAX_SOCKET_PATH_BYTES = 107  # sun_path of Linux, less its NUL; macOS has 103
_MAX_TOKEN_BYTES = 4096
_TOKEN = re.compile(r"[\x21-\x7e]+")

_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", 64 * 1024),
    # Retries are ours: gRPC's own would not know which calls are safe.
    ("grpc.enable_retries", 0),
    # gRPC would answer from its own back-off for up to two minutes after a host came back.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A proxy from the environment must never see a call.
    ("grpc.enable_http_proxy", 0),
    # Clients share no connection, so that closing one never breaks another.
    ("grpc.use_local_subchannel_pool", 1),
)


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS for hosts behind TCP.

    Args:
        root_certificates: PEM of the accepted authorities; ``None`` for gRPC's default set.
        private_key: PEM of the client's key, for mutual TLS.
        certificate_chain: PEM of the client's certificate, for mutual TLS.
    """

    root_certificates: bytes | None = None
    private_key: bytes | None = field(default=None, repr=False)
    certificate_chain: bytes | None = None


class Token:
    """A bearer token that does not show itself.

    Args:
        value: the token; surrounding white space is dropped.

    Raises:
        InvalidInputError: it is empty, too long, or not printable ASCII.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        value = value.strip()
        if not _TOKEN.fullmatch(value) or len(value) > _MAX_TOKEN_BYTES:
            raise InvalidInputError(
                "the token is empty, too long or not printable ASCII: give the one in the host's token file",
                field="token",
            )
        self._value = value

    def __repr__(self) -> str:
        return "Token(...)"

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the call metadata that carries the token."""
        return (("authorization", f"Bearer {self._value}"),)


def read_token(path: str | os.PathLike[str]) -> Token:
    """Read a token file.

    Raises:
        InvalidInputError: the file cannot be read or holds no token.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_TOKEN_BYTES + 2)
        return Token(data.decode("ascii"))
    except OSError as error:
        raise InvalidInputError(
            f"token file {os.fspath(path)!r} cannot be read ({error.strerror}): "
            "give the `token_file` that the host printed",
            field="token_file",
        ) from error
    except UnicodeDecodeError:
        # Not chained: the error would carry bytes of the token.
        raise InvalidInputError(f"token file {os.fspath(path)!r} is not ASCII", field="token_file") from None


def normalise_target(target: str | os.PathLike[str]) -> str:
    """Return a gRPC target for a socket path, ``unix:`` URI or TCP address.

    Raises:
        InvalidInputError: it is empty, or a socket path too long for the platform.
    """
    text = os.fspath(target)
    path = _socket_path(text)
    if path is None:
        if not text:
            raise InvalidInputError("no target: give a socket path or host:port", field="target")
        return text
    path = os.path.abspath(path)
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        raise InvalidInputError(
            f"socket path of {len(os.fsencode(path))} bytes where at most {MAX_SOCKET_PATH_BYTES} work: "
            "choose a shorter one",
            field="target",
        )
    # A target is a URI: unquoted, a `%41` in the path would be an `A`.
    return f"unix:{quote(os.fsencode(path))}"


def _socket_path(text: str) -> str | None:
    if text.startswith("unix://"):
        return os.fsdecode(unquote_to_bytes(text.removeprefix("unix://")))
    if text.startswith("unix:"):
        return os.fsdecode(unquote_to_bytes(text.removeprefix("unix:")))
    return text if "/" in text and "://" not in text and not re.match(r"[a-z-]+:", text) else None


def open_channel(target: str, tls: TlsConfig | None) -> grpc.aio.Channel:
    """Open a channel; connecting happens with the first call.

    Args:
        target: from :func:`normalise_target`.
        tls: how to authenticate a TCP host; ``None`` for Unix sockets.

    Raises:
        InvalidInputError: TCP without TLS.
    """
    if tls is not None:
        credentials = grpc.ssl_channel_credentials(
            tls.root_certificates, tls.private_key, tls.certificate_chain
        )
        return grpc.aio.secure_channel(target, credentials, options=_OPTIONS)
    if not target.startswith("unix:"):
        raise InvalidInputError(
            "TCP without TLS would show the token to the network: give `tls` or use the Unix socket",
            field="target",
        )
    return grpc.aio.insecure_channel(target, options=_OPTIONS)
