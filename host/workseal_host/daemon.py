"""The daemon: an engine behind a socket, until it is told to stop."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import structlog

from workseal_host.config import HostConfig
from workseal_host.engine import Engine, open_engine
from workseal_host.service.server import HostServer, TlsListener
from workseal_host.service.servicer import HostIdentity, HostServicer
from workseal_host.version import host_version

log = structlog.get_logger("workseal.daemon")

_RPC_GRACE_S = 2.0


async def serve(
    workspace: str | Path,
    *,
    state: Path,
    config: HostConfig,
    socket_file: str | None = None,
    announce: Callable[[str], None],
) -> None:
    """Serve one workspace until SIGTERM, SIGINT or the loss of its root.

    Args:
        workspace: the directory.
        state: the state directory.
        config: the host's configuration.
        socket_file: where to listen; None for the default.
        announce: gets one JSON line when the host is ready.

    Raises:
        HostError: the host could not start.
    """
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    engine = await open_engine(workspace, state=state, config=config, socket_file=socket_file)
    try:
        server = _server(engine)
        port = _listen(server, engine)
        await server.start()
        announce(_ready_line(engine, port))
        log.info("serving", socket=str(engine.place.socket), isolation=engine.isolation.kind)
        await _until_told(stopping, engine)
        log.info("stopping", grace_s=config.shutdown_grace_s)
        await server.say_stopping()
        await engine.pipeline.stop(config.shutdown_grace_s)
        await server.stop(_RPC_GRACE_S)
    finally:
        await engine.close()


async def _until_told(stopping: asyncio.Event, engine: Engine) -> None:
    waits = [
        asyncio.ensure_future(stopping.wait()),
        asyncio.ensure_future(engine.pipeline.root_replaced.wait()),
    ]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


def _server(engine: Engine) -> HostServer:
    identity = HostIdentity(
        version=host_version(),
        workspace_id=engine.place.workspace_id,
        root=engine.root.path_text,
        chain_id=engine.ledger.chain_id,
        isolation=engine.isolation.kind,
        scheme=engine.observer.scheme,
        level=engine.observer.level,
    )
    servicer = HostServicer(
        pipeline=engine.pipeline,
        ledger=engine.ledger,
        registry=engine.registry,
        keys=engine.keys,
        identity=identity,
    )
    return HostServer(servicer, engine.place.token_file.read_text().strip())


def _listen(server: HostServer, engine: Engine) -> int | None:
    server.listen_on_socket(engine.place.socket)
    # Where callers of this user find it, whatever --socket said.
    (engine.place.directory / "socket").write_bytes(os.fsencode(engine.place.socket))
    tls = engine.config.tls
    if tls is None:
        return None
    client_ca = Path(tls.client_ca) if tls.client_ca else None
    return server.listen_on_tcp(
        TlsListener(tls.listen, Path(tls.certificate), Path(tls.private_key), client_ca)
    )


def _ready_line(engine: Engine, port: int | None) -> str:
    place = engine.place
    line = {
        "socket": str(place.socket),
        "workspace_id": place.workspace_id,
        "chain_id": engine.ledger.chain_id,
        "key_id": engine.keys.current.key_id,
        "token_file": str(place.token_file),
        "public_key_file": str(place.public_key_file),
        "pid": os.getpid(),
    }
    if port is not None:
        line["tcp_port"] = port
    return json.dumps(line)
