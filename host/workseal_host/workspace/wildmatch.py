"""Patterns as git matches them, as regular expressions over bytes.

Follows the rules that ``gitignore(5)`` states and ``git check-ignore`` shows, over
bytes: ``?`` is one byte. Every wildcard is translated so that the first possible
match is also the right one, and is then never reconsidered (atomic groups). So
matching takes time in proportion to the text, whatever the pattern: rules come
from the workspace, where a tool may have written them to hang the host.

A pattern that git finds malformed matches nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_ANY: Final = frozenset(range(256))
_SLASH: Final = ord("/")
_SPECIAL: Final = b"*?[\\"


def _bytes_where(*ranges: tuple[int, int]) -> frozenset[int]:
    return frozenset(byte for first, last in ranges for byte in range(first, last + 1))


_DIGIT: Final = _bytes_where((0x30, 0x39))
_UPPER: Final = _bytes_where((0x41, 0x5A))
_LOWER: Final = _bytes_where((0x61, 0x7A))
_SPACE: Final = frozenset(b" \t\n\r")
_PRINT: Final = _bytes_where((0x20, 0x7E))
# git's own table: ASCII only, and without the vertical tab and form feed in "space".
_CLASSES: Final = {
    b"alnum": _DIGIT | _UPPER | _LOWER,
    b"alpha": _UPPER | _LOWER,
    b"blank": frozenset(b" \t"),
    b"cntrl": _bytes_where((0, 0x1F), (0x7F, 0x7F)),
    b"digit": _DIGIT,
    b"graph": _PRINT - _SPACE,
    b"lower": _LOWER,
    b"print": _PRINT,
    b"punct": _PRINT - _SPACE - _DIGIT - _UPPER - _LOWER,
    b"space": _SPACE,
    b"upper": _UPPER,
    b"xdigit": _DIGIT | _bytes_where((0x41, 0x46), (0x61, 0x66)),
}


class _MalformedError(Exception):
    """The pattern can match nothing."""


@dataclass(frozen=True, slots=True)
class _Star:
    """``*``: any bytes up to the next slash."""


@dataclass(frozen=True, slots=True)
class _Deep:
    """``**`` between slashes: any bytes at all; with ``slash``, none or any that end in a slash."""

    slash: bool


_Token = bytes | _Star | _Deep  # bytes: a piece of regular expression that matches exactly one byte


def translate(pattern: bytes, *, path: bool) -> re.Pattern[bytes] | None:
    """Return a regular expression for use with ``fullmatch``.

    Args:
        pattern: without ``!``, without a trailing slash, without a leading slash.
        path: True for patterns with a slash, which match whole paths; else the pattern matches a single name.

    Returns:
        None if the pattern can match nothing.
    """
    literal = 0
    while literal < len(pattern) and pattern[literal] not in _SPECIAL:
        literal += 1
    try:
        tokens = _Tokenizer(pattern, literal, path).tokens()
    except _MalformedError:
        return None
    prefix = re.escape(pattern[:literal])
    return re.compile(prefix + _assemble(tokens), re.DOTALL)


class _Tokenizer:
    """Cuts the part of a pattern from its first wildcard on into tokens."""

    def __init__(self, pattern: bytes, start: int, path: bool) -> None:
        self._pattern = pattern
        self._start = start
        self._position = start
        self._path = path

    def tokens(self) -> list[_Token]:
        tokens: list[_Token] = []
        while self._position < len(self._pattern):
            byte = self._pattern[self._position : self._position + 1]
            if byte == b"*":
                tokens.append(self._stars())
            elif byte == b"?":
                self._position += 1
                tokens.append(_set(_ANY, self._path))
            elif byte == b"[":
                tokens.append(self._bracket())
            else:
                tokens.append(re.escape(self._literal()))
        return tokens

    def _peek(self, length: int = 1) -> bytes:
        return self._pattern[self._position : self._position + length]

    def _take(self) -> int:
        if self._position >= len(self._pattern):
            raise _MalformedError
        self._position += 1
        return self._pattern[self._position - 1]

    def _literal(self) -> bytes:
        byte = self._take()
        return bytes([self._take() if byte == ord("\\") else byte])

    def _stars(self) -> _Token:
        first = self._position
        while self._peek() == b"*":
            self._position += 1
        # git matches the literal prefix first and then looks at the rest alone, so a `**`
        # right after that prefix counts as if it stood at the start.
        opens = first == self._start or self._pattern[first - 1] == _SLASH
        closes = self._peek() in (b"", b"/") or self._peek(2) == b"\\/"
        if self._position - first < 2 or not (self._path and opens and closes):
            return _Star()
        if self._peek() == b"/":
            self._position += 1
            return _Deep(slash=True)
        return _Deep(slash=False)

    def _bracket(self) -> bytes:
        self._take()
        negated = self._peek() in (b"!", b"^")
        if negated:
            self._take()
        members: set[int] = set()
        previous: int | None = None
        while True:
            previous = self._member(members, previous)
            if self._peek() == b"]":
                self._take()
                break
        return _set(_ANY - members if negated else frozenset(members), self._path)

    def _member(self, members: set[int], previous: int | None) -> int | None:
        """Read one item of a bracket; return the byte that a following ``-`` would start from."""
        if self._peek() == b"-" and previous and self._peek(2)[1:] not in (b"", b"]"):
            self._take()
            members.update(range(previous, self._literal()[0] + 1))
            return None
        if self._peek(2) == b"[:":
            return self._class(members)
        byte = self._literal()[0]
        members.add(byte)
        return byte

    def _class(self, members: set[int]) -> int | None:
        end = self._pattern.find(b"]", self._position + 2)
        if end < 0:
            raise _MalformedError
        word = self._pattern[self._position + 2 : end]
        if not word.endswith(b":"):
            self._position += 1
            members.add(ord("["))
            return ord("[")
        if word[:-1] not in _CLASSES:
            raise _MalformedError
        members.update(_CLASSES[word[:-1]])
        self._position = end + 1
        return None


@lru_cache(maxsize=256)
def _set(members: frozenset[int], path: bool) -> bytes:
    """Return an expression for one byte of a set; in paths no wildcard matches a slash."""
    allowed = members - {_SLASH} if path else members
    if not allowed:
        return rb"(?!)"
    ranges: list[list[int]] = []
    for byte in sorted(allowed):
        if ranges and ranges[-1][1] == byte - 1:
            ranges[-1][1] = byte
        else:
            ranges.append([byte, byte])
    return b"[" + b"".join(b"\\x%02x-\\x%02x" % (first, last) for first, last in ranges) + b"]"


def _assemble(tokens: list[_Token]) -> bytes:
    """Join tokens into an expression that never backtracks over more than one piece.

    Between two ``**`` a pattern takes a fixed number of path components, so the first place where they
    fit is as good as any. Between two ``*`` the same holds of bytes within a component.
    """
    chunks: list[tuple[_Deep | None, list[bytes | _Star]]] = [(None, [])]
    for token in tokens:
        if isinstance(token, _Deep):
            chunks.append((token, []))
        else:
            chunks[-1][1].append(token)
    last = len(chunks) - 1
    return b"".join(_chunk(deep, pieces, last=index == last) for index, (deep, pieces) in enumerate(chunks))


def _chunk(deep: _Deep | None, pieces: list[bytes | _Star], *, last: bool) -> bytes:
    body = _component_pieces(pieces, last=last)
    if deep is None:
        return body
    if not deep.slash and last and not pieces:
        return b".*"
    # Components are tried one by one, from the nearest on.
    skip = b"(?:[^/]*+/)*?" if deep.slash else b"[^/]*+(?:/[^/]*+)*?"
    return b"(?>" + skip + body + b")"


def _component_pieces(pieces: list[bytes | _Star], *, last: bool) -> bytes:
    runs: list[list[bytes]] = [[]]
    for piece in pieces:
        if isinstance(piece, _Star):
            runs.append([])
        else:
            runs[-1].append(piece)
    end = rb"\Z" if last else b""
    parts = [b"".join(runs[0]) + (end if len(runs) == 1 else b"")]
    for index, run in enumerate(runs[1:], start=1):
        tail = b"".join(run) + (end if index == len(runs) - 1 else b"")
        parts.append(b"(?>[^/]*?" + tail + b")" if tail else b"[^/]*")
    return b"".join(parts)
