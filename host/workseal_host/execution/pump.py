"""Move bytes from a pipe to a consumer, as they come, in bounded memory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

_CHUNK_BYTES = 64 * 1024


class Pump:
    """Read a pipe until it ends, on the running event loop.

    Args:
        descriptor: read end of the pipe; closed by the pump.
        sink: gets every chunk, in order; must not block.
    """

    def __init__(self, descriptor: int, sink: Callable[[bytes], None]) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._sink = sink
        self._ended = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Start reading."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._readable)

    def _readable(self) -> None:
        # One chunk a turn: a tool that prints without end must not keep the loop from anything else.
        try:
            data = os.read(self._descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._sink(data)
        else:
            self.close()

    async def drain(self, limit_s: float) -> None:
        """Read what is still in the pipe, for at most ``limit_s`` seconds, then close it."""
        try:
            await asyncio.wait_for(self._ended.wait(), limit_s)
        except TimeoutError:
            self._read_rest()
        finally:
            self.close()

    def _read_rest(self) -> None:
        # A pipe that a foreign process holds open: what was written before now still belongs to the tool.
        for _ in range(16):
            try:
                data = os.read(self._descriptor, _CHUNK_BYTES)
            except OSError:
                return
            if not data:
                return
            self._sink(data)

    def close(self) -> None:
        """Stop reading; may be called again."""
        if self._ended.is_set():
            return
        self._ended.set()
        if self._loop is not None:
            self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
