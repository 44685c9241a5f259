"""Command lines with placeholders, filled without a shell.

``{name}`` stands for the argument of that name, in an element of its own or inside one; ``{{`` and ``}}`` are
literal braces. One element stays one element whatever the value holds. A value that begins with ``-`` could
be taken for an option, so it is refused where it would begin an element, unless a literal ``--`` came before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from workseal_host.errors import ArgumentsError, ConfigError

_PART = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}|[{}]")
_SCALARS = frozenset({"string", "integer", "number", "boolean"})
MAX_ELEMENT_BYTES = 128 * 1024 - 1


class ArgvTemplate:
    """A command line with placeholders.

    Args:
        elements: the program, which is literal, and its arguments.
        properties: the properties of the tool's schema.

    Raises:
        ConfigError: there is no program, a brace has no partner, or a placeholder names no scalar property.
    """

    def __init__(self, elements: Sequence[str], properties: Mapping[str, Any]) -> None:
        if not elements or not elements[0] or _names(elements[0], "argv.0"):
            raise ConfigError("argv begins with the program, written out without placeholders", key="argv")
        for index, element in enumerate(elements):
            if "\0" in element:
                raise ConfigError("holds NUL, which no program can be given", key=f"argv.{index}")
            for name in _names(element, f"argv.{index}"):
                _require_scalar(name, properties, f"argv.{index}")
        self._elements = tuple(elements)

    def fill(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the command line for valid arguments.

        An element with a placeholder whose argument is absent is left out.

        Raises:
            ArgumentsError: a value cannot be passed on, or could be taken for an option.
        """
        argv: list[str] = []
        options_possible = True
        for element in self._elements:
            names = _names(element, "argv")
            if any(name not in arguments for name in names):
                continue
            argv.append(_fill(element, arguments, options_possible=options_possible))
            if element == "--":
                options_possible = False
        return tuple(argv)


def _names(element: str, key: str) -> list[str]:
    names = []
    for match in _PART.finditer(element):
        if match.group() in ("{", "}"):
            raise ConfigError("a brace without partner: write {{ or }} for a literal one", key=key)
        if match.group(1):
            names.append(match.group(1))
    return names


def _require_scalar(name: str, properties: Mapping[str, Any], key: str) -> None:
    definition = properties.get(name)
    types = definition.get("type") if isinstance(definition, Mapping) else None
    listed = [types] if isinstance(types, str) else types
    if not isinstance(listed, list) or not listed or not set(listed) <= _SCALARS:
        raise ConfigError(
            f"placeholder {name!r} needs a property in the schema that is a text, number or boolean",
            key=key,
        )


def _fill(element: str, arguments: Mapping[str, Any], *, options_possible: bool) -> str:
    def part(match: re.Match[str]) -> str:
        name = match.group(1)
        return match.group()[0] if name is None else _text(arguments[name], f"/{name}")

    filled = _PART.sub(part, element)
    field = "".join(f"/{name}" for name in _names(element, "argv")[:1])
    if len(filled.encode("utf-8", "surrogatepass")) > MAX_ELEMENT_BYTES:
        raise ArgumentsError(f"{field} is longer than {MAX_ELEMENT_BYTES} bytes", field=field)
    # The filled element, not each value: an empty value may uncover the dash of the next one.
    if options_possible and filled.startswith("-") and not element.startswith("-"):
        raise ArgumentsError(f"{field} begins with '-', so it could pass for an option", field=field)
    return filled


def _text(value: Any, field: str) -> str:
    if isinstance(value, str):
        if "\0" in value:
            raise ArgumentsError(f"{field} holds NUL, which no program can be given", field=field)
        return value
    return json.dumps(value)
