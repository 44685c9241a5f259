"""The daemon: an engine behind a socket, until it is told to stop.

Invariants: it announces itself only when it answers; when it has ended, no tool
of it runs, every row that it could close is closed, and its socket is gone.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import structlog

from workseal.state import write_private_file
from workseal_host.config import HostConfig
from workseal_host.engine import Engine, open_engine
from workseal_host.errors import HostError
from workseal_host.place import read_token
from workseal_host.service.server import HostServer, TlsListener
from workseal_host.service.servicer import HostIdentity, HostServicer
from workseal_host.version import host_version

log = structlog.get_logger("workseal.daemon")

_RPC_GRACE_S = 2.0


class RootLostError(HostError):
    """The root was deleted or replaced while the host served it, so it stopped."""


async def serve(
    workspace: str | Path,
    *,
    state: Path,
    config: HostConfig,
    socket_file: str | None = None,
    announce: Callable[[str], None],
) -> None:
    """Serve one workspace until SIGTERM, SIGINT or the loss of its root.

    A second signal ends running tools at once.

    Args:
        workspace: the directory.
        state: the state directory.
        config: the host's configuration.
        socket_file: where to listen; None for the default.
        announce: gets one JSON line when the host is ready.

    Raises:
        RootLostError: the root was lost while the host served it; all rows are closed.
        HostError: the host could not start.
    """
    told = _Told()
    engine = await open_engine(workspace, state=state, config=config, socket_file=socket_file)
    try:
        await _serve(engine, told, announce)
    finally:
        await engine.close()
    if engine.pipeline.root_replaced.is_set():
        raise RootLostError(
            "the workspace's root was deleted or replaced, so the host stopped: start it on the new one"
        )


async def _serve(engine: Engine, told: _Told, announce: Callable[[str], None]) -> None:
    server = _server(engine)
    try:
        if not told.once.is_set():
            port = _listen(server, engine)
            await server.start()
            announce(_ready_line(engine, port))
            log.info("serving", socket=str(engine.place.socket), isolation=engine.isolation.kind)
            if engine.isolation.reason:
                log.warning("tools run without a sandbox", reason=engine.isolation.reason)
            await _first(told.once, engine.pipeline.root_replaced)
        await _wind_down(server, engine, told)
    finally:
        # Also after a failed start: a socket that nobody serves must not stay.
        await server.stop(_RPC_GRACE_S)


class _Told:
    """Whether the process was told to stop: once, and again.

    Set up before anything else, so that a signal during the start is not lost.
    """

    def __init__(self) -> None:
        self.once = asyncio.Event()
        self.twice = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._hear)

    def _hear(self) -> None:
        (self.twice if self.once.is_set() else self.once).set()


async def _wind_down(server: HostServer, engine: Engine, told: _Told) -> None:
    """Let running tools finish within the grace period, or end them; every row is closed after."""
    grace_s = engine.config.shutdown_grace_s
    log.info("stopping", grace_s=grace_s)
    await server.say_stopping()
    stopping = asyncio.ensure_future(engine.pipeline.stop(grace_s))
    hastened = asyncio.ensure_future(told.twice.wait())
    await asyncio.wait({stopping, hastened}, return_when=asyncio.FIRST_COMPLETED)
    if not stopping.done():
        log.info("told again: ending what runs")
        await engine.pipeline.stop(0)
    hastened.cancel()
    await stopping


async def _first(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
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
    return HostServer(servicer, read_token(engine.place.token_file))


def _listen(server: HostServer, engine: Engine) -> int | None:
    server.listen_on_socket(engine.place.socket)
    # Where callers of this user find it, whatever --socket said.
    write_private_file(engine.place.directory / "socket", os.fsencode(engine.place.socket))
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
