"""Descriptors that are closed on leaving a block, unless somebody else has taken them over."""

from __future__ import annotations

import os
import tempfile
from types import TracebackType


class Descriptors:
    """Own raw descriptors for the length of a ``with`` block; none of them is inheritable."""

    def __init__(self) -> None:
        self._owned: set[int] = set()

    def __enter__(self) -> Descriptors:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for descriptor in self._owned:
            os.close(descriptor)
        self._owned.clear()

    def pipe(self) -> tuple[int, int]:
        """Return (read end, write end) of a new pipe."""
        ends = os.pipe()
        self._owned.update(ends)
        return ends

    def memory_file(self, data: bytes) -> int:
        """Return a descriptor at the start of a nameless file with ``data``."""
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("workseal")
        else:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        self._owned.add(descriptor)
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor

    def own(self, descriptor: int) -> int:
        """Take over a descriptor, and return it."""
        self._owned.add(descriptor)
        return descriptor

    def give_away(self, descriptor: int) -> int:
        """Hand a descriptor to another owner, and return it."""
        self._owned.discard(descriptor)
        return descriptor
