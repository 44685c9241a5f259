"""Putting the host together: one configuration in, one engine out.

The engine is everything but the network: ledger, keys, isolation, tools,
pipeline. The daemon serves it; the command line can use it without a daemon.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from workseal.state import write_private_file
from workseal_host.assembly import Ids
from workseal_host.attestation.keyring import KeyRing
from workseal_host.config import HostConfig
from workseal_host.execution.environment import allowed_environment
from workseal_host.execution.isolation import Isolation, detect
from workseal_host.execution.registry import ToolRegistry
from workseal_host.ledger.sqlite import SqliteLedger
from workseal_host.observing import Observer
from workseal_host.pipeline import Clock, Pipeline, Settings
from workseal_host.place import Place, take_place
from workseal_host.sealing import Sealer
from workseal_host.settlement import settle_all
from workseal_host.version import HOST_NAME, host_version
from workseal_host.workspace.limits import ScanLimits
from workseal_host.workspace.root import WorkspaceRoot
from workseal_host.workspace.scan import ScanLevel, Scanner
from workseal_host.workspace.scheme import DigestScheme
from workseal_host.workspace.statcache import MemoryStatCache

log = structlog.get_logger("workseal.engine")


@dataclass(frozen=True, slots=True)
class Engine:
    """A host without its network."""

    root: WorkspaceRoot
    place: Place
    config: HostConfig
    keys: KeyRing
    ledger: SqliteLedger
    isolation: Isolation
    registry: ToolRegistry
    observer: Observer
    sealer: Sealer
    pipeline: Pipeline

    async def close(self) -> None:
        """Close the ledger, then give the workspace's lock back, whatever became of the ledger."""
        try:
            await self.ledger.close()
        finally:
            self.root.close()
            self.place.release()


async def open_engine(
    workspace: str | Path,
    *,
    state: Path,
    config: HostConfig,
    socket_file: str | None = None,
    listens: bool = True,
    registry: ToolRegistry | None = None,
    environment: Mapping[str, str] | None = None,
) -> Engine:
    """Lock a workspace and bring up everything that attests calls on it.

    Executions that a crash left open are settled before this returns.

    Args:
        workspace: the directory.
        state: the state directory.
        config: the host's configuration.
        socket_file: where the daemon will listen; None for the default.
        listens: whether there will be a daemon.
        registry: the tools; None for those of the configuration.
        environment: what tools see; None for the allowed part of this process's own.

    Raises:
        HostError: something of it cannot be used; nothing is left locked.
    """
    root = WorkspaceRoot.open(workspace)
    try:
        place = take_place(state, root, socket_file=socket_file, listens=listens)
    except BaseException:
        root.close()
        raise
    try:
        return await _bring_up(
            root,
            place,
            config,
            registry if registry is not None else config.registry(),
            environment if environment is not None else allowed_environment(os.environ, config.environment),
        )
    except BaseException:
        root.close()
        place.release()
        raise


async def _bring_up(
    root: WorkspaceRoot,
    place: Place,
    config: HostConfig,
    registry: ToolRegistry,
    environment: Mapping[str, str],
) -> Engine:
    # Where a former host listened. Only a host that listens now may be found.
    (place.directory / "socket").unlink(missing_ok=True)
    keys = KeyRing.open(place.state)
    # A key that cannot sign is found now, not when a tool has run.
    await asyncio.to_thread(keys.signer)
    write_private_file(place.public_key_file, keys.current.public.pem.encode())
    isolation = isolation_of(config, place.private_dirs())
    await asyncio.to_thread(isolation.check_start, root.path)
    scanner = Scanner(
        root,
        config_patterns=config.ignore,
        cache=MemoryStatCache(),
        limits=ScanLimits.of(max_file_bytes=config.max_file_bytes, timeout_s=config.scan_timeout_s),
    )
    observer = Observer(root, scanner, DigestScheme(config.scheme), ScanLevel(config.scan))
    ledger = await SqliteLedger.open(place.ledger)
    try:
        sealer = Sealer(ledger, keys, Ids(place.workspace_id, root.path_text, HOST_NAME, host_version()))
        clock = Clock()
        await _settle(ledger, observer, sealer, clock, config)
        pipeline = Pipeline(
            observer=observer,
            registry=registry,
            isolation=isolation,
            ledger=ledger,
            sealer=sealer,
            workspace_id=place.workspace_id,
            settings=Settings(
                protected_paths=config.protected_paths,
                include_arguments=config.include_arguments,
                environment=environment,
                head_bytes=config.output_head_bytes,
                tail_bytes=config.output_tail_bytes,
            ),
            clock=clock,
        )
    except BaseException:
        await ledger.close()
        raise
    return Engine(root, place, config, keys, ledger, isolation, registry, observer, sealer, pipeline)


async def _settle(
    ledger: SqliteLedger, observer: Observer, sealer: Sealer, clock: Clock, config: HostConfig
) -> None:
    """Close what a crash left open, before anything else may run."""
    in_doubt = await settle_all(ledger, observer, sealer, clock, protected=config.protected_paths)
    await sealer.catch_up()
    if in_doubt:
        log.warning("executions left by a crash are in doubt", count=in_doubt)


def isolation_of(config: HostConfig, private_dirs: Sequence[Path]) -> Isolation:
    """Find out how tools are isolated here.

    Args:
        config: how they are to be.
        private_dirs: directories of the host's own; no tool may see them.

    Raises:
        IsolationError: it does not work as configured.
    """
    return detect(
        config.isolation,
        masked_dirs=[str(path) for path in private_dirs],
        masked_files=_private_files(config),
        writable_paths=config.writable_paths,
    )


def _private_files(config: HostConfig) -> list[str]:
    """Return the single files of the host's that no tool may read: their directories may hold anything."""
    files = [config.source] if config.source else []
    if config.tls is not None:
        files.append(config.tls.private_key)
    return files
