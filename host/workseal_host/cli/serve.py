"""`workseal serve`: the daemon."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click

from workseal_host.cli.common import NEGATIVE, fail, maps_errors, socket_option, state_option
from workseal_host.config import load_config
from workseal_host.errors import RootReplacedError
from workseal_host.execution.orphans import harden_process
from workseal_host.logs import configure_logs
from workseal_host.place import AlreadyRunningError

# Children are started by exec alone; gRPC must not act on forks. Both before gRPC is imported.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
# Its C core writes plain text to stderr, where our lines are JSON.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


@click.command("serve")
@click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="The directory to attest.",
)
@click.option(
    "--config",
    "config_file",
    envvar="WORKSEAL_CONFIG",
    type=click.Path(dir_okay=False, path_type=Path),
    help="workseal.toml; never read from the workspace. [default: the user's configuration directory]",
)
@click.option("--verbose", is_flag=True, help="Log more.")
@socket_option
@state_option
@maps_errors
def serve_command(
    workspace: Path, config_file: Path | None, verbose: bool, socket_file: str | None, state: Path
) -> None:
    """Serve one workspace until told to stop.

    Prints one JSON line when it is ready: socket, workspace_id, chain_id,
    key_id, token_file, public_key_file, pid. Logs go to stderr.
    """
    from workseal_host.daemon import serve  # noqa: PLC0415 - after the environment is set for gRPC

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
                announce=lambda line: click.echo(line),
            )
        )
    except (AlreadyRunningError, RootReplacedError) as error:
        fail(str(error), NEGATIVE)
