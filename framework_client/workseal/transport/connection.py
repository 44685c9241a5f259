"""An open connection to one host, with who it says it is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from workseal.errors import InvalidInputError
from workseal.results import HostInfo
from workseal.retry import RetryPolicy, Timing
from workseal.transport import convert
from workseal.transport.channel import TlsConfig, Token, normalise_target, read_token
from workseal.transport.wire import Wire
from workseal.v1 import host_pb2


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long the client waits for an answer, in seconds.

    Args:
        call_s: for what the host answers from its records.
        scan_s: for what makes it read the workspace, or wait for it.
        execute_s: for a tool without a time-out of its own in the request.
        grace_s: added to the tool's time-out where the request has one: queue, scans, ending it.
    """

    call_s: float = 30.0
    scan_s: float = 600.0
    execute_s: float = 1200.0
    grace_s: float = 600.0


class Connection:
    """What every use of a host needs: a target, a token, deadlines.

    Args and errors as for :class:`workseal.client.HostClient`.
    """

    def __init__(
        self,
        target: str | os.PathLike[str],
        *,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        tls: TlsConfig | None = None,
        deadlines: Deadlines | None = None,
        retry: RetryPolicy | None = None,
        timing: Timing | None = None,
    ) -> None:
        if (token is None) == (token_file is None):
            raise InvalidInputError("give either `token` or `token_file`", field="token")
        self._target = normalise_target(target)
        if tls is None and not self._target.startswith("unix:"):
            raise InvalidInputError("a host behind TCP needs `tls`", field="target")
        self._token = None if token is None else Token(token)
        self._token_file = token_file
        self._tls = tls
        self._deadlines = deadlines or Deadlines()
        self._retry = retry or RetryPolicy()
        self._timing = timing or Timing()
        self._open: Wire | None = None
        self._workspace_id = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._target!r})"

    async def __aenter__(self) -> Self:
        token = self._token
        if token is None and self._token_file is not None:
            token = read_token(self._token_file)
        if token is not None:
            self._open = Wire(self._target, token, self._tls, self._retry, self._timing)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is not None:
            wire, self._open = self._open, None
            await wire.close()

    @property
    def _wire(self) -> Wire:
        if self._open is None:
            raise InvalidInputError("not connected: use `async with HostClient(...) as client`")
        return self._open

    async def host_info(self) -> HostInfo:
        """Ask the host who it is. For display: no reason to trust its key.

        Raises:
            HostError: as the host answered.
        """
        wire = self._wire
        message = await wire.unary(
            wire.stub.GetHostInfo,
            host_pb2.GetHostInfoRequest(),
            host_pb2.GetHostInfoResponse,
            deadline_s=self._deadlines.call_s,
        )
        return convert.host_info(message)

    async def workspace_id(self) -> str:
        """Return the id that the host gives for its workspace, asked once."""
        if not self._workspace_id:
            self._workspace_id = (await self.host_info()).workspace_id
        return self._workspace_id
