"""`workseal status` and `workseal healthcheck`: is there a host, and how is it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click
import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from workseal_host.cli.common import (
    UNREACHABLE,
    echo_json,
    json_option,
    maps_errors,
    socket_option,
    state_option,
    workspace_option,
)
from workseal_host.cli.connect import Located, locate

_HEALTH_TIMEOUT_S = 5.0


@click.command("status")
@json_option
@socket_option
@workspace_option
@state_option
@maps_errors
def status_command(workspace: Path, socket_file: str | None, state: Path, as_json: bool) -> None:
    """Show the host of a workspace: identity, chain, isolation, tools. Exit 3 where there is none."""
    found = asyncio.run(_status(locate(state, workspace, socket_file)))
    if as_json:
        echo_json(found)
        return
    for name, value in found.items():
        click.echo(f"{name:14} {', '.join(value) if isinstance(value, list) else value}")


async def _status(located: Located) -> dict[str, Any]:
    async with located.client() as client:
        info = await client.host_info()
    return {
        "root": info.root,
        "socket": str(located.socket),
        "version": info.version,
        "workspace_id": info.workspace_id,
        "chain_id": info.chain_id,
        "head_sequence": info.head_sequence,
        "key_id": info.key_id,
        "scheme": info.scheme,
        "scan": info.scan,
        "isolation": info.isolation,
        "tools": [tool.name for tool in info.tools],
    }


@click.command("healthcheck")
@socket_option
@workspace_option
@state_option
@maps_errors
def healthcheck_command(workspace: Path, socket_file: str | None, state: Path) -> None:
    """Ask the host's health service. Exit 0 serving, 3 not serving or unreachable; needs no token."""
    located = locate(state, workspace, socket_file)
    with grpc.insecure_channel(f"unix:{located.socket}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=_HEALTH_TIMEOUT_S)
        except grpc.RpcError:
            click.echo("unreachable")
            sys.exit(UNREACHABLE)
    serving = answer.status == health_pb2.HealthCheckResponse.SERVING
    click.echo("serving" if serving else "not serving")
    sys.exit(0 if serving else UNREACHABLE)
