"""`workseal status` and `workseal healthcheck`: is there a host, and how is it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from workseal.cli.output import safe
from workseal_host.cli.codes import UNREACHABLE
from workseal_host.cli.common import echo_json, host_options, json_option
from workseal_host.cli.locate import Located, locate

_HEALTH_TIMEOUT_S = 5.0


@click.command("status")
@json_option
@host_options
def status_command(workspace: Path, socket_file: str | None, state: Path, as_json: bool) -> None:
    """Show the host of a workspace: identity, chain, isolation, tools. Exit 3 where there is none.

    What it says of its key is for display: `workseal keys export` on its machine has the key.
    """
    found = asyncio.run(_status(locate(state, workspace, socket_file)))
    if as_json:
        echo_json(found)
        return
    for name, value in found.items():
        text = ", ".join(value) if isinstance(value, list) else str(value)
        click.echo(f"{name:14} {safe(text)}")


async def _status(located: Located) -> dict[str, Any]:
    from workseal_host.cli.connect import client_of  # noqa: PLC0415 - gRPC

    async with client_of(located) as client:
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
@json_option
@host_options
def healthcheck_command(workspace: Path, socket_file: str | None, state: Path, as_json: bool) -> None:
    """Ask the host's health service. Exit 0 serving, 3 not serving or unreachable. Needs no token."""
    located = locate(state, workspace, socket_file)
    located.check()
    answer = _health(located)
    if as_json:
        echo_json({"status": answer, "socket": str(located.socket)})
    else:
        click.echo(answer)
    sys.exit(0 if answer == "serving" else UNREACHABLE)


def _health(located: Located) -> str:
    import grpc  # noqa: PLC0415 - only where somebody listens
    from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: PLC0415

    with grpc.insecure_channel(f"unix:{located.socket}") as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=_HEALTH_TIMEOUT_S
            )
        except grpc.RpcError:
            return "unreachable"
    return "serving" if answer.status == health_pb2.HealthCheckResponse.SERVING else "not serving"
