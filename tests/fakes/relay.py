"""A relay between a client and a host's socket that can cut all connections."""

from __future__ import annotations

import asyncio
import contextlib


class Relay:
    """Forwards bytes between two Unix sockets until it is told to cut."""

    def __init__(self, listen: str, forward: str) -> None:
        self.listen, self.forward = listen, forward
        self.connections = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Relay:
        self._server = await asyncio.start_unix_server(self._accept, self.listen)
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._server is not None:
            self._server.close()
        await self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def cut(self) -> None:
        """Break every connection, as a dropped network does."""
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        far_reader, far_writer = await asyncio.open_unix_connection(self.forward)
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            self._writers.add(sink)
            task = asyncio.create_task(self._pump(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, OSError):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        self._writers.discard(sink)
        sink.transport.abort()
