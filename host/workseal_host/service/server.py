"""The gRPC server around the service: sockets, TLS, health, reflection.

Invariants: the Unix socket is of mode 0600 from its first moment; there is no
TCP without TLS; whoever may watch health learns nothing else.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from workseal.v1 import host_pb2
from workseal.v1.host_pb2_grpc import add_HostServiceServicer_to_server
from workseal_host.errors import ConfigError
from workseal_host.place import claim_socket
from workseal_host.service.interceptors import BoundaryInterceptor, TokenInterceptor
from workseal_host.service.servicer import HostServicer

SERVICE_NAME = host_pb2.DESCRIPTOR.services_by_name["HostService"].full_name
_MAX_MESSAGE_BYTES = 8 << 20
_OPTIONS = (
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    # A second server on the same TCP port must fail, not share it.
    ("grpc.so_reuseport", 0),
    # A tool can be silent for minutes: callers may ping, so that a dead connection shows.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)


@dataclass(frozen=True, slots=True)
class TlsListener:
    """A TCP listener; there is none without TLS.

    Attributes:
        address: host and port.
        certificate: PEM file of the server's chain.
        key: PEM file of its private key.
        client_ca: PEM file; clients must show a certificate from it. None: the token alone is asked for.
    """

    address: str
    certificate: Path
    key: Path
    client_ca: Path | None = None


class HostServer:
    """The listening server of one host.

    Args:
        servicer: the service.
        token: what every call must carry.
    """

    def __init__(self, servicer: HostServicer, token: str) -> None:
        interceptors = [TokenInterceptor(token), BoundaryInterceptor(SERVICE_NAME)]
        self._server = grpc.aio.server(interceptors=interceptors, options=_OPTIONS)
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        self._socket: Path | None = None
        self._socket_lock = -1
        add_HostServiceServicer_to_server(servicer, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            (SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )

    def listen_on_socket(self, path: Path) -> None:
        """Listen on a Unix socket of mode 0600, replacing one that a crash left behind.

        Raises:
            HostError: the path is taken, or cannot be used.
        """
        self._socket_lock = claim_socket(path)
        with _umask(0o177):
            # A gRPC address is a URI: unquoted, a `%41` in the path would be an `A`.
            self._add(f"unix:{quote(os.fsencode(path))}", None)
        self._socket = path

    def listen_on_tcp(self, listener: TlsListener) -> int:
        """Listen on TCP with TLS.

        Returns:
            The port.

        Raises:
            ConfigError: a file cannot be used, or the address is taken.
        """
        return self._add(listener.address, _credentials(listener))

    def _add(self, address: str, credentials: grpc.ServerCredentials | None) -> int:
        try:
            if credentials is None:
                return self._server.add_insecure_port(address)
            return self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise ConfigError(f"cannot listen on {address}: {error}; name another address") from error

    async def start(self) -> None:
        """Begin to answer."""
        await self._server.start()
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)

    async def say_stopping(self) -> None:
        """Tell health checks that the host is about to stop."""
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)

    async def stop(self, grace_s: float) -> None:
        """Stop answering and remove the socket."""
        await self._server.stop(grace_s)
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)
        if self._socket_lock >= 0:
            os.close(self._socket_lock)
            self._socket_lock = -1

    async def _set_health(self, status: int) -> None:
        for service in ("", SERVICE_NAME):
            await self._health.set(service, status)


@contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def _credentials(listener: TlsListener) -> grpc.ServerCredentials:
    """Read what TLS needs, and have it checked: gRPC would listen all the same, and fail every handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without a password the private key must not be encrypted: a daemon has nobody to ask.
        context.load_cert_chain(listener.certificate, listener.key, password="")
        if listener.client_ca is not None:
            context.load_verify_locations(listener.client_ca)
        chain = (listener.key.read_bytes(), listener.certificate.read_bytes())
        client_ca = listener.client_ca.read_bytes() if listener.client_ca is not None else None
    except ssl.SSLError as error:
        raise ConfigError(
            f"cert, key and client_ca must be PEM that fits together, the key unencrypted: {error.reason}",
            key="tls",
        ) from error
    except OSError as error:
        raise ConfigError(f"cannot read {error.filename}: {error.strerror}", key="tls") from error
    return grpc.ssl_server_credentials(
        [chain], root_certificates=client_ca, require_client_auth=client_ca is not None
    )
