"""`workseal serve`: the daemon."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click

from workseal_host.cli.boundary import fail
from workseal_host.cli.codes import NEGATIVE
from workseal_host.cli.common import socket_option, state_option

# Both before gRPC is imported. Children are started by exec alone: it must not act on forks.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
# Its C core writes plain text to stderr, where our lines are JSON.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


@click.command("serve")
@click.option(
    "--workspace",
    "-C",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    metavar="DIR",
    help="The directory to attest.",
)
@click.option(
    "--config",
    "config_file",
    envvar="WORKSEAL_CONFIG",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="workseal.toml; never read from the workspace.  [default: the one in the configuration directory]",
)
@click.option("--verbose", is_flag=True, help="Log more.")
@socket_option
@state_option
def serve_command(
    workspace: Path, config_file: Path | None, verbose: bool, socket_file: str | None, state: Path
) -> None:
    """Serve one workspace until told to stop.

    Prints one JSON line when it is ready: socket, workspace_id, chain_id,
    key_id, token_file, public_key_file, pid. Logs go to stderr. Exit 1 where
    another host serves the workspace already, or the workspace is lost.
    """
    from workseal_host.config import load_config  # noqa: PLC0415 - after the environment is set for gRPC
    from workseal_host.daemon import RootLostError, serve  # noqa: PLC0415
    from workseal_host.execution.orphans import harden_process  # noqa: PLC0415
    from workseal_host.logs import configure_logs  # noqa: PLC0415
    from workseal_host.place import AlreadyRunningError  # noqa: PLC0415

    configure_logs(verbose=verbose)
    harden_process()
    config = load_config(str(config_file) if config_file else None, workspace=str(workspace))
    try:
        asyncio.run(
            serve(
                workspace,
                state=state,
                config=config,
                socket_file=socket_file,
                announce=click.echo,
            )
        )
    except (AlreadyRunningError, RootLostError) as error:
        fail(str(error), NEGATIVE)
