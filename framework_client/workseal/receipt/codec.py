"""One definition of a JSON form that both writes and reads it.

A codec turns a Python value into JSON and back. Reading is strict about what is
known: types, ranges, enumerated values, required fields. Unknown fields of an
object are passed over, which may never turn a refusal into an acceptance (the
monotonic principle of in-toto).

Writing does not validate; whoever writes reads back what was written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Generic, Protocol, TypeVar

from workseal.canonical import MAX_SAFE_INTEGER
from workseal.errors import InvalidInputError
from workseal.paths import unescape_path

_HEX_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:[0-5]\d(\.\d{1,9})?Z", re.ASCII)
TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%S"
_MISSING: Final = object()

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
E = TypeVar("E", bound=StrEnum)


class DecodeError(Exception):
    """JSON does not have the form; ``where`` is the dotted path of the field."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.where = where


class Codec(Protocol[T_co]):
    """Writes and reads one kind of value."""

    def encode(self, value: Any) -> Any:
        """Return the JSON of a value."""

    def decode(self, value: Any, where: str) -> T_co:
        """Return the value of some JSON, or raise :class:`DecodeError`."""


@dataclass(frozen=True)
class Text:
    """A string of bounded length in characters."""

    minimum: int = 1
    maximum: int = 1024

    def encode(self, value: str) -> str:
        return value

    def decode(self, value: Any, where: str) -> str:
        if not isinstance(value, str):
            raise DecodeError(where, "is not a string")
        if not self.minimum <= len(value) <= self.maximum:
            raise DecodeError(where, f"is not of {self.minimum} to {self.maximum} characters")
        return value


@dataclass(frozen=True)
class Integer:
    """An integer below 2^53; a boolean or a fraction is none."""

    minimum: int = 0
    maximum: int = MAX_SAFE_INTEGER

    def encode(self, value: int) -> int:
        return value

    def decode(self, value: Any, where: str) -> int:
        if type(value) is not int:  # `True` is an `int` to isinstance
            raise DecodeError(where, "is not an integer")
        if not self.minimum <= value <= self.maximum:
            raise DecodeError(where, f"is not from {self.minimum} to {self.maximum}")
        return value


@dataclass(frozen=True)
class Flag:
    """True or false, and nothing that could stand for them."""

    def encode(self, value: bool) -> bool:
        return value

    def decode(self, value: Any, where: str) -> bool:
        if not isinstance(value, bool):
            raise DecodeError(where, "is neither true nor false")
        return value


@dataclass(frozen=True)
class Digest:
    """A SHA-256 as a DigestSet, ``{"sha256": hex}``; in Python the hex string."""

    def encode(self, value: str) -> dict[str, str]:
        return {"sha256": value}

    def decode(self, value: Any, where: str) -> str:
        digest = value.get("sha256") if isinstance(value, dict) else None
        if not isinstance(digest, str) or not _HEX_DIGEST.fullmatch(digest):
            raise DecodeError(where, "holds no sha256 of 64 lower-case hex digits")
        return digest


@dataclass(frozen=True)
class Path:
    """A path below the root in the escaped form, in normal form."""

    def encode(self, value: str) -> str:
        return value

    def decode(self, value: Any, where: str) -> str:
        text = Text(maximum=4 * 65536).decode(value, where)
        try:
            raw = unescape_path(text)
        except InvalidInputError as error:
            raise DecodeError(where, "is not in the escaped form of paths") from error
        if b"\0" in raw or not {b"", b".", b".."}.isdisjoint(raw.split(b"/")):
            raise DecodeError(where, "is not a path below the root in normal form")
        return text


@dataclass(frozen=True)
class EscapedText:
    """Text in the escaped form of paths, of any shape (the root is absolute)."""

    maximum: int = 4 * 65536
    minimum: int = 1

    def encode(self, value: str) -> str:
        return value

    def decode(self, value: Any, where: str) -> str:
        text = Text(self.minimum, self.maximum).decode(value, where)
        try:
            unescape_path(text)
        except InvalidInputError as error:
            raise DecodeError(where, "is not in the escaped form of paths") from error
        return text


@dataclass(frozen=True)
class Time:
    """An RFC 3339 time in UTC, ending in ``Z``, with at most nine decimals."""

    def encode(self, value: str) -> str:
        return value

    def decode(self, value: Any, where: str) -> str:
        if isinstance(value, str) and _TIME.fullmatch(value):
            try:
                datetime.strptime(value[:19], TIME_FORMAT)
            except ValueError:
                pass
            else:
                return value
        raise DecodeError(where, "is not an RFC 3339 time in UTC that ends in Z")


@dataclass(frozen=True)
class JsonObject:
    """Any JSON object, taken as it is."""

    def encode(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return dict(value)

    def decode(self, value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise DecodeError(where, "is not an object")
        return value


@dataclass(frozen=True)
class OneOf(Generic[E]):
    """A member of an enumeration; unknown values are refused, never guessed at."""

    kind: type[E]

    def encode(self, value: str) -> str:
        return str(value)

    def decode(self, value: Any, where: str) -> E:
        if not isinstance(value, str) or value not in self.kind.__members__.values():
            raise DecodeError(where, f"is none of {', '.join(self.kind)}")
        return self.kind(value)


@dataclass(frozen=True)
class Nullable(Generic[T]):
    """A value or ``null``."""

    inner: Codec[T]

    def encode(self, value: Any) -> Any:
        return None if value is None else self.inner.encode(value)

    def decode(self, value: Any, where: str) -> T | None:
        return None if value is None else self.inner.decode(value, where)


@dataclass(frozen=True)
class ListOf(Generic[T]):
    """A list of bounded length; in Python a tuple."""

    inner: Codec[T]
    maximum: int = 100_000

    def encode(self, value: Sequence[Any]) -> list[Any]:
        return [self.inner.encode(item) for item in value]

    def decode(self, value: Any, where: str) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise DecodeError(where, "is not a list")
        if len(value) > self.maximum:
            raise DecodeError(where, f"has more than {self.maximum} items")
        return tuple(self.inner.decode(item, f"{where}[{index}]") for index, item in enumerate(value))


@dataclass(frozen=True)
class Field:
    """One field of a record.

    Args:
        attribute: name of the dataclass attribute.
        name: JSON name; ``a.b`` is field ``b`` of the object in field ``a``.
        codec: how the value is written and read.
        optional: whether the field may be missing. It is then left out when the
            attribute has its default.
        default: value of the attribute when the field is missing.
    """

    attribute: str
    name: str
    codec: Codec[Any]
    optional: bool = False
    default: Any = None

    def read(self, source: Mapping[str, Any], where: str) -> Any:
        """Return the attribute's value out of the record's JSON."""
        value: Any = source
        for part in self.name.split("."):
            if value is None and self.optional:
                return self.default
            if not isinstance(value, dict):
                raise DecodeError(f"{where}.{self.name}", "is not in an object")
            value = value.get(part, _MISSING)
            if value is _MISSING:
                if self.optional:
                    return self.default
                raise DecodeError(f"{where}.{self.name}", "is missing")
        return self.codec.decode(value, f"{where}.{self.name}")

    def write(self, target: dict[str, Any], value: Any) -> None:
        """Put the attribute's value into the record's JSON."""
        if self.optional and value == self.default:
            return
        *parents, last = self.name.split(".")
        for parent in parents:
            target = target.setdefault(parent, {})
        target[last] = self.codec.encode(value)


class Record(Generic[T]):
    """A JSON object; in Python a dataclass.

    Args:
        kind: the dataclass.
        fields: its fields, one for each attribute.
    """

    def __init__(self, kind: type[T], *fields: Field) -> None:
        self._kind = kind
        self._fields = fields

    def encode(self, value: T) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for field in self._fields:
            field.write(result, getattr(value, field.attribute))
        return result

    def decode(self, value: Any, where: str) -> T:
        if not isinstance(value, dict):
            raise DecodeError(where, "is not an object")
        return self._kind(**{field.attribute: field.read(value, where) for field in self._fields})
