"""What a tool printed: bounded in memory, complete in its digest.

Invariants:

- The SHA-256 and the length are over the *whole* raw stream, whatever is kept.
- Head and tail are raw bytes; nothing is decoded, cut at a line or normalised.
- Only the text view replaces bytes, and it says so.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

HEAD_BYTES = 32 * 1024
TAIL_BYTES = 32 * 1024
_INVALID_NOTE = "[bytes that are not valid UTF-8 are shown as \ufffd]"


@dataclass(frozen=True, slots=True)
class CapturedStream:
    """One output stream of a finished tool.

    Args:
        head: the first bytes, raw.
        tail: the last bytes, raw; never overlaps ``head``.
        total_bytes: length of the whole stream.
        digest: SHA-256 over the whole stream, 32 bytes.
        truncated: whether bytes between ``head`` and ``tail`` were left out.
    """

    head: bytes
    tail: bytes
    total_bytes: int
    digest: bytes
    truncated: bool

    @classmethod
    def of(cls, data: bytes) -> CapturedStream:
        """Return the stream that consists of ``data``, kept whole."""
        return cls(data, b"", len(data), hashlib.sha256(data).digest(), False)

    def text(self) -> str:
        """Return the text view: UTF-8, with what was left out or replaced named in lines of its own."""
        if not self.truncated:
            return _noted(self.head + self.tail)
        head = self.head[: valid_end(self.head)]
        tail = self.tail[valid_start(self.tail) :]
        left_out = self.total_bytes - len(head) - len(tail)
        shown = f"{_decode(head)}\n[... {left_out} bytes left out ...]\n{_decode(tail)}"
        return _with_note(shown, is_valid_utf8(head) and is_valid_utf8(tail))


class StreamCapture:
    """Collect one output stream in bounded memory.

    Args:
        head_limit: bytes to keep from the start.
        tail_limit: bytes to keep from the end.
    """

    def __init__(self, *, head_limit: int = HEAD_BYTES, tail_limit: int = TAIL_BYTES) -> None:
        self._head_limit = head_limit
        self._tail_limit = tail_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._hash = hashlib.sha256()
        self._total_bytes = 0

    @property
    def total_bytes(self) -> int:
        """Length of the stream so far: the offset of the next chunk."""
        return self._total_bytes

    def feed(self, data: bytes) -> None:
        """Take the next raw bytes of the stream."""
        self._hash.update(data)
        self._total_bytes += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        # Trim lazily: one copy per `tail_limit` bytes, and never more than twice the limit in memory.
        if len(self._tail) > 2 * self._tail_limit:
            del self._tail[: len(self._tail) - self._tail_limit]

    def finish(self) -> CapturedStream:
        """Return what was collected; the capture may go on afterwards."""
        tail = bytes(self._tail[max(0, len(self._tail) - self._tail_limit) :])
        kept = len(self._head) + len(tail)
        return CapturedStream(
            head=bytes(self._head),
            tail=tail,
            total_bytes=self._total_bytes,
            digest=self._hash.digest(),
            truncated=kept < self._total_bytes,
        )


def is_valid_utf8(data: bytes) -> bool:
    """Return whether ``data`` is valid UTF-8."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def valid_end(data: bytes) -> int:
    """Return where to cut ``data`` so that no character is split at its end.

    A sequence that is invalid anyway is not a split character and stays.
    """
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        return len(data) - back if _sequence_length(byte) > back else len(data)
    return len(data)


def valid_start(data: bytes) -> int:
    """Return where to cut ``data`` so that it does not start inside a character."""
    for position, byte in enumerate(data[:4]):
        if byte & 0xC0 != 0x80:
            return position
    return 0


def _sequence_length(lead: int) -> int:
    if lead >= 0xF8 or lead < 0xC0:
        return 1
    if lead >= 0xF0:
        return 4
    return 3 if lead >= 0xE0 else 2


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _with_note(text: str, valid: bool) -> str:
    if valid:
        return text
    separator = "" if text.endswith("\n") else "\n"
    return f"{text}{separator}{_INVALID_NOTE}"


def _noted(data: bytes) -> str:
    return _with_note(_decode(data), is_valid_utf8(data))
