"""Printing what came from elsewhere without letting it act on the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable


def safe(text: str) -> str:
    """Return text in which nothing controls a terminal, bidirectional marks included."""
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def print_lines(lines: Iterable[str]) -> None:
    """Print a result."""
    for line in lines:
        sys.stdout.write(safe(line) + "\n")


def error_words(error: Exception) -> str:
    """Return what a person needs to know of an error; of a system's, without its number."""
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return f"{where}cannot be read: {error.strerror}"
    return str(error)


def print_error(message: str) -> None:
    """Print a message that is no result."""
    sys.stderr.write(f"workseal: {safe(message)}\n")
