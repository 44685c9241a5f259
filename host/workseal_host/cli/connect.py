"""Talking to a host from the command line."""

from __future__ import annotations

from workseal.client import HostClient
from workseal_host.cli.locate import Located


def client_of(located: Located) -> HostClient:
    """Return a client for a host, not yet connected.

    Raises:
        HostUnreachableError: nobody listens there.
    """
    located.check()
    return HostClient(located.socket, token_file=located.token_file)
