"""The host on TCP: only with TLS, with the token, and with client certificates where they are asked for."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from support.daemon import Daemon, DaemonFailedError
from support.rpc import token_of
from workseal.calls import ToolCall, new_challenge
from workseal.client import HostClient
from workseal.errors import HostError, HostUnreachableError
from workseal.retry import RetryPolicy
from workseal.transport.channel import TlsConfig

DaemonFactory = Callable[..., Daemon]
ONCE = RetryPolicy(max_attempts=1)


@dataclass(frozen=True)
class Issued:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )


def issue(name: str, *, issuer: Issued | None = None) -> Issued:
    """Make a certificate: an authority's own, or one that it issued for loopback."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    signer = issuer or Issued(None, key)  # type: ignore[arg-type]
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if issuer is not None:
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False).add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
    return Issued(builder.sign(signer.key, hashes.SHA256()), key)


@pytest.fixture(scope="module")
def authority() -> Issued:
    return issue("authority")


@pytest.fixture
def configured(tmp_path: Path, authority: Issued) -> Callable[..., str]:
    """Write certificate files; return a configuration that uses them."""

    def make(*, client_ca: bytes | None = None, key: bytes | None = None) -> str:
        directory = tmp_path / "tls"
        directory.mkdir(exist_ok=True)
        server = issue("server", issuer=authority)
        files = {"cert": server.pem, "key": key or server.key_pem}
        if client_ca is not None:
            files["client_ca"] = client_ca
        lines = ["[tls]", 'listen = "127.0.0.1:0"']
        for name, data in files.items():
            (directory / f"{name}.pem").write_bytes(data)
            lines.append(f'{name} = "{directory / name}.pem"')
        return "\n".join(lines) + "\n"

    return make


def client_of(daemon: Daemon, tls: TlsConfig, *, token: str | None = None) -> HostClient:
    target = f"127.0.0.1:{daemon.ready['tcp_port']}"
    return HostClient(target, token=token or token_of(daemon), tls=tls, retry=ONCE)


async def test_a_call_over_tls_is_attested(
    workspace: Path, daemons: DaemonFactory, configured: Callable[..., str], authority: Issued
) -> None:
    daemon = daemons(workspace, config=configured())
    call = ToolCall("session", "call", "bash", {"command": "touch made"}, new_challenge())
    async with client_of(daemon, TlsConfig(authority.pem)) as client:
        result = await client.execute(call)
    async with daemon.client() as client:  # the Unix socket stays
        assert (await client.host_info()).head_sequence == result.sequence == 1
    assert (workspace / "made").exists()


async def test_tls_does_not_replace_the_token(
    workspace: Path, daemons: DaemonFactory, configured: Callable[..., str], authority: Issued
) -> None:
    daemon = daemons(workspace, config=configured())
    async with client_of(daemon, TlsConfig(authority.pem), token="x" * 43) as client:
        with pytest.raises(HostError) as caught:
            await client.host_info()
    assert caught.value.reason == "UNAUTHENTICATED"


async def test_nobody_speaks_without_tls(
    workspace: Path, daemons: DaemonFactory, configured: Callable[..., str]
) -> None:
    daemon = daemons(workspace, config=configured())
    target = f"127.0.0.1:{daemon.ready['tcp_port']}"
    async with grpc.aio.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)]) as channel:
        health = channel.unary_unary("/grpc.health.v1.Health/Check")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health(b"", timeout=10)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_host_with_another_authority_is_not_believed(
    workspace: Path, daemons: DaemonFactory, configured: Callable[..., str]
) -> None:
    daemon = daemons(workspace, config=configured())
    async with client_of(daemon, TlsConfig(issue("someone else").pem)) as client:
        with pytest.raises(HostUnreachableError):
            await client.host_info()


@pytest.mark.parametrize("shown", ["right", "none", "of-another-authority"])
async def test_mutual_tls_asks_for_a_certificate_of_its_authority(
    workspace: Path,
    daemons: DaemonFactory,
    configured: Callable[..., str],
    authority: Issued,
    shown: str,
) -> None:
    clients = issue("client authority")
    daemon = daemons(workspace, config=configured(client_ca=clients.pem))
    signer = clients if shown == "right" else authority
    own = issue("client", issuer=signer)
    tls = TlsConfig(authority.pem) if shown == "none" else TlsConfig(authority.pem, own.key_pem, own.pem)
    async with client_of(daemon, tls) as client:
        if shown == "right":
            assert (await client.host_info()).workspace_id == daemon.ready["workspace_id"]
        else:
            with pytest.raises(HostUnreachableError):
                await client.host_info()


@pytest.mark.parametrize("key", ["of-another", "garbage", "encrypted"])
def test_a_key_that_cannot_be_used_stops_the_start(
    workspace: Path, daemons: DaemonFactory, configured: Callable[..., str], key: str
) -> None:
    made = ec.generate_private_key(ec.SECP256R1())
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if key == "encrypted":
        encryption = serialization.BestAvailableEncryption(b"password")
    pem = made.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    with pytest.raises(DaemonFailedError) as caught:
        daemons(workspace, config=configured(key=b"garbage" if key == "garbage" else pem))
    assert "exit 2" in str(caught.value)
    assert "PEM" in str(caught.value)


def test_a_port_that_is_taken_stops_the_start_and_leaves_no_socket(
    workspace: Path, tmp_path: Path, daemons: DaemonFactory, configured: Callable[..., str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    socket = tmp_path / "run" / "s"
    config = configured()
    first = daemons(other, config=config)
    taken = config.replace("127.0.0.1:0", f"127.0.0.1:{first.ready['tcp_port']}")
    with pytest.raises(DaemonFailedError) as caught:
        daemons(workspace, state=tmp_path / "state-2", config=taken, arguments=("--socket", str(socket)))
    assert "exit 2" in str(caught.value)
    assert "cannot listen" in str(caught.value)
    assert socket.parent.exists()
    assert not socket.exists()
