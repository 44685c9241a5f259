"""The one text form of paths: in receipts, manifests, output and expectations.

A path is raw bytes. Its text form is UTF-8 in which every byte of invalid
UTF-8, every byte of a C0 or C1 control and DEL is ``\\xHH``, and a backslash is
``\\\\``. The form is lossless: :func:`unescape_path` gives back the bytes, and it
accepts nothing but what :func:`escape_path` makes.
"""

from __future__ import annotations

import re
from typing import Final

from workseal.errors import InvalidInputError

_MUST_ESCAPE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\\\udc80-\udcff]")
_ESCAPED: Final = re.compile(r"(?:[^\\]++|\\\\|\\x[0-9a-f]{2})*+")


def _escapes() -> dict[int, str]:
    """Return code point to escape; a byte of invalid UTF-8 is decoded as U+DC00 plus its value."""
    points = (*range(0x20), *range(0x7F, 0xA0), *range(0xDC80, 0xDD00))
    escapes = {
        point: "".join(f"\\x{byte:02x}" for byte in chr(point).encode("utf-8", "surrogateescape"))
        for point in points
    }
    return {**escapes, ord("\\"): "\\\\"}


_ESCAPES: Final = _escapes()


def escape_path(raw: bytes) -> str:
    """Return the text form of a raw path.

    Args:
        raw: path bytes; components joined by ``/``.

    Returns:
        Text without control characters, equal for equal bytes only.
    """
    text = raw.decode("utf-8", "surrogateescape")
    # Both ways by table, not by a call for each escape: a tool decides how many there are.
    return text if _MUST_ESCAPE.search(text) is None else text.translate(_ESCAPES)


def unescape_path(text: str) -> bytes:
    """Return the raw bytes of a path in text form.

    Args:
        text: what :func:`escape_path` returned.

    Raises:
        InvalidInputError: the text is not in the exact form that ``escape_path`` makes.
    """
    try:
        raw = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"path {text!r} holds a lone surrogate; escape the byte as \\xHH") from error
    if _MUST_ESCAPE.search(text) is None:  # most paths: nothing to undo, nothing to find wrong
        return raw
    if _ESCAPED.fullmatch(text) is not None:
        # Of the escapes that this codec knows only those two are left; all other bytes stay as they are.
        raw = raw.decode("unicode_escape").encode("latin-1")
        if escape_path(raw) == text:
            return raw
    raise InvalidInputError(
        f"path {text!r} is not in escaped form: write a backslash as \\\\ "
        "and control or non-UTF-8 bytes as \\xHH"
    )
