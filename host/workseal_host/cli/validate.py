"""`workseal validate`: check the configuration exactly as `serve` loads it."""

from __future__ import annotations

import os
from pathlib import Path

import click

from workseal.cli.output import safe
from workseal_host.cli.common import echo_json, json_option, socket_option, state_option
from workseal_host.config import HostConfig, load_config
from workseal_host.errors import ConfigError, IsolationError


@click.command("validate")
@click.argument("config_file", required=False, type=click.Path(path_type=Path), metavar="[FILE]")
@click.option(
    "--workspace",
    "-C",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="The workspace to be served: a file in there is refused, and a tool must be able to start in it.",
)
@socket_option
@state_option
@json_option
def validate_command(
    *,
    config_file: Path | None,
    workspace: Path | None,
    socket_file: str | None,
    state: Path,
    as_json: bool,
) -> None:
    """Check workseal.toml: FILE, else $WORKSEAL_CONFIG, else the one in the configuration directory.

    Exit 0 where it is good, 2 with the key and what to do where it is not.
    """
    try:
        config = load_config(
            str(config_file) if config_file else None, workspace=str(workspace) if workspace else None
        )
        _check_isolation(config, state, workspace, socket_file)
    except (ConfigError, IsolationError) as error:
        if as_json:
            key = error.key if isinstance(error, ConfigError) else ""
            echo_json({"valid": False, "key": key or None, "message": str(error)})
        raise
    tools = list(config.registry().names())
    if as_json:
        echo_json({"valid": True, "file": config.source, "tools": tools})
        return
    where = safe(config.source or "no file, the defaults")
    click.echo(f"{where}: good, {len(tools)} tools ({', '.join(tools)})")


def _check_isolation(
    config: HostConfig, state: Path, workspace: Path | None, socket_file: str | None
) -> None:
    """Find out whether a host could isolate its tools so; nothing is made.

    Raises:
        ConfigError: the socket cannot be there.
        IsolationError: it could not.
    """
    from workseal_host.engine import isolation_of  # noqa: PLC0415 - loads the whole host
    from workseal_host.place import planned_private_dirs  # noqa: PLC0415

    root = os.fsencode(os.path.realpath(workspace or Path()))
    try:
        private = planned_private_dirs(state, root, socket_file)
    except ConfigError:
        if workspace is not None:
            raise
        private = (state,)  # no workspace is named, so no socket has to have a place yet
    isolation = isolation_of(config, private)
    if workspace is not None:
        isolation.check_start(root)
