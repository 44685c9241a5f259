"""The one text form of paths: in receipts, manifests, output and expectations.

A path is raw bytes. Its text form is UTF-8 in which every byte of invalid
UTF-8, every byte of a C0 or C1 control and DEL is ``\\xHH``, and a backslash is
``\\\\``. The form is lossless: :func:`unescape_path` gives back the bytes, and it
accepts nothing but what :func:`escape_path` makes.
"""

from __future__ import annotations

import re

from workseal.errors import InvalidInputError

_ESCAPE = re.compile(r"\\(\\|x[0-9a-f]{2})")
_MUST_ESCAPE = re.compile(r"[\x00-\x1f\x7f-\x9f\\\udc80-\udcff]")


def _escape_char(match: re.Match[str]) -> str:
    char = match.group()
    if char == "\\":
        return "\\\\"
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


def escape_path(raw: bytes) -> str:
    """Return the text form of a raw path.

    Args:
        raw: path bytes; components joined by ``/``.

    Returns:
        Text without control characters, equal for equal bytes only.
    """
    return _MUST_ESCAPE.sub(_escape_char, raw.decode("utf-8", "surrogateescape"))


def _plain_bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"path {text!r} holds a lone surrogate; escape the byte as \\xHH") from error


def unescape_path(text: str) -> bytes:
    """Return the raw bytes of a path in text form.

    Args:
        text: what :func:`escape_path` returned.

    Raises:
        InvalidInputError: the text is not in the exact form that ``escape_path`` makes.
    """
    parts: list[bytes] = []
    position = 0
    if _MUST_ESCAPE.search(text) is None:  # most paths: nothing to undo, nothing to find wrong
        return _plain_bytes(text)
    try:
        for match in _ESCAPE.finditer(text):
            parts.append(text[position : match.start()].encode("utf-8"))
            body = match.group(1)
            parts.append(b"\\" if body == "\\" else bytes([int(body[1:], 16)]))
            position = match.end()
        parts.append(text[position:].encode("utf-8"))
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"path {text!r} holds a lone surrogate; escape the byte as \\xHH") from error
    raw = b"".join(parts)
    if escape_path(raw) != text:
        raise InvalidInputError(
            f"path {text!r} is not in escaped form: write a backslash as \\\\ and control or non-UTF-8 bytes as \\xHH"
        )
    return raw
