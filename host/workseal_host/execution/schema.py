"""Arguments against their JSON Schema (draft 2020-12).

Invariants: a schema refers to nothing outside itself, so that checking arguments never opens a file or a
connection; an error names the field and the rule, never the value, because a value may be a secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError

from workseal_host.errors import ArgumentsError, ConfigError

_REFERENCES = ("$ref", "$dynamicRef")
_MAX_FAULTS = 100


class ArgumentsSchema:
    """A checked JSON Schema for the arguments of a tool.

    Args:
        schema: the schema; its type must be ``object``.

    Raises:
        ConfigError: the schema is not valid, or refers to something outside itself.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        if schema.get("type") != "object":
            raise ConfigError(
                'the schema of a tool describes an object: give it type = "object"', key="schema.type"
            )
        _refuse_references(schema, "schema")
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            key = ".".join(str(part) for part in ("schema", *error.absolute_path))
            raise ConfigError(f"not a valid JSON Schema (draft 2020-12): {error.message}", key=key) from error
        self._validator = Draft202012Validator(dict(schema))

    def validate(self, arguments: Mapping[str, Any]) -> None:
        """Check arguments.

        Raises:
            ArgumentsError: for the first of its faults, in the order of the arguments' paths.
        """
        if not isinstance(arguments, Mapping):
            raise ArgumentsError("the arguments must be a JSON object")
        # Not all of them: arguments of a few megabytes can hold millions of faults.
        errors = islice(self._validator.iter_errors(dict(arguments)), _MAX_FAULTS)
        first = min(errors, key=lambda error: list(map(str, error.path)), default=None)
        if first is not None:
            raise _arguments_error(first)


def _refuse_references(value: Any, key: str) -> None:
    if isinstance(value, Mapping):
        for name, item in value.items():
            if name in _REFERENCES and not str(item).startswith("#"):
                raise ConfigError(
                    "references lead outside the schema: use only those that begin with '#'",
                    key=f"{key}.{name}",
                )
            _refuse_references(item, f"{key}.{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_references(item, f"{key}.{index}")


def pointer(parts: Iterable[Any]) -> str:
    """Return the JSON pointer (RFC 6901) of a path of keys and indexes."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def _arguments_error(error: ValidationError) -> ArgumentsError:
    field = pointer(error.absolute_path)
    return ArgumentsError(f"{_rule(error)} ({field or 'the arguments'})", field=field)


def _rule(error: ValidationError) -> str:
    rule = str(error.validator)
    limit: Any = error.validator_value
    schema: Any = error.schema
    instance: Any = error.instance
    match rule:
        case "required":
            missing = sorted(name for name in limit if name not in instance)
            return f"missing: {', '.join(missing)}"
        case "additionalProperties":
            # Names of arguments that the schema does not know come from the caller: not echoed either.
            known = ", ".join(schema.get("properties", {})) or "none"
            return f"an argument that the tool does not know; it knows: {known}"
        case "type":
            return f"must be of type {limit if isinstance(limit, str) else ' or '.join(limit)}"
        case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "minLength" | "maxLength":
            return f"breaks the rule {rule} {limit}"
        case "enum":
            return f"must be one of {', '.join(map(str, limit))}"
        case _:
            return f"breaks the rule {rule} of the tool's schema"
