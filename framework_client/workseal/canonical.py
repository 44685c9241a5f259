"""Strict JSON in, canonical JSON out.

Strict means: UTF-8, no duplicate keys, no lone surrogates, no integer beyond
2^53-1 either way, no NaN or infinity, bounded size and depth. Canonical means
RFC 8785 (JSON Canonicalization Scheme).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import rfc8785

from workseal.errors import InvalidJsonError

MAX_SAFE_INTEGER = 2**53 - 1
MAX_DEPTH = 64

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]


def sha256_hex(data: bytes) -> str:
    """Return the lower-case hex SHA-256 of ``data``."""
    return hashlib.sha256(data).hexdigest()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise InvalidJsonError(f"duplicate key {key!r}: give each key once")
        result[key] = value
    return result


def _constant(name: str) -> Any:
    raise InvalidJsonError(f"{name} is not JSON: use null or a finite number")


def _integer(digits: str) -> int:
    if len(digits) > 17 or abs(value := int(digits)) > MAX_SAFE_INTEGER:
        raise InvalidJsonError("integer beyond 2^53-1: send it as a string")
    return value


def _number(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise InvalidJsonError("number out of range: send it as a string")
    return value


def _check(value: Any, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise InvalidJsonError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidJsonError("lone surrogate in a string: send valid Unicode") from error
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _check(key, depth + 1)
            _check(item, depth + 1)
    elif isinstance(value, Sequence):
        for item in value:
            _check(item, depth + 1)


def parse_json(data: bytes, *, max_bytes: int) -> Any:
    """Parse strict JSON.

    Args:
        data: UTF-8 text.
        max_bytes: longest accepted input in bytes.

    Returns:
        The value, of dict, list, str, int, float, bool and None.

    Raises:
        InvalidJsonError: with the reason and what to do.
    """
    if len(data) > max_bytes:
        raise InvalidJsonError(f"{len(data)} bytes of JSON where at most {max_bytes} are accepted")
    try:
        text = data.decode("utf-8")
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_int=_integer,
            parse_float=_number,
        )
    except UnicodeDecodeError as error:
        raise InvalidJsonError(f"not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise InvalidJsonError(f"not JSON at character {error.pos}: {error.msg}") from error
    except RecursionError as error:
        raise InvalidJsonError(f"nested deeper than {MAX_DEPTH} levels") from error
    _check(value)
    return value


def _is_simple(value: Any) -> bool:
    if value is None or isinstance(value, str | bool):
        return True
    if type(value) is int:
        return -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER
    if isinstance(value, list | tuple):
        return all(map(_is_simple, value))
    return isinstance(value, dict) and all(
        isinstance(key, str) and key.isascii() and _is_simple(item) for key, item in value.items()
    )


def canonical_json(value: Any) -> bytes:
    """Return the RFC 8785 form of a JSON value.

    Raises:
        InvalidJsonError: the value has no such form.
    """
    try:
        # Without fractions and with ASCII keys, the standard library's form is the canonical
        # one, a hundred times faster on long lists of paths: a tool decides how long they are.
        if _is_simple(value):
            text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
            return text.encode("utf-8")
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidJsonError(f"has no canonical JSON form: {error}") from error
