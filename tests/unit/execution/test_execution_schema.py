"""Arguments against their schema: named faults, no echoed values, nothing fetched."""

from __future__ import annotations

from typing import Any

import pytest

from workseal_host.errors import ArgumentsError, ConfigError
from workseal_host.execution.registry import built_in_tools
from workseal_host.execution.schema import ArgumentsSchema

SECRET = "sk-canary-123"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 1},
        "mode": {"enum": ["a", "b"]},
        "list": {"type": "array", "items": {"type": "string", "maxLength": 3}},
        "a/b~c": {"type": "string"},
    },
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "field", "words"),
    [
        pytest.param({}, "", "missing: n", id="missing"),
        pytest.param({"n": SECRET}, "/n", "type integer", id="type"),
        pytest.param({"n": True}, "/n", "type integer", id="bool-is-no-integer"),
        pytest.param({"n": 0}, "/n", "minimum 1", id="minimum"),
        pytest.param({"n": 1, "mode": SECRET}, "/mode", "one of a, b", id="enum"),
        pytest.param({"n": 1, SECRET: 1}, "", "does not know", id="unknown-name"),
        pytest.param({"n": 1, "list": ["x", SECRET]}, "/list/1", "maxLength 3", id="nested"),
        pytest.param({"n": 1, "a/b~c": 1}, "/a~1b~0c", "type string", id="pointer-escapes"),
    ],
)
def test_a_fault_names_field_and_rule_but_no_value(arguments: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(ArgumentsError) as caught:
        ArgumentsSchema(SCHEMA).validate(arguments)
    assert caught.value.field == field
    assert words in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "key"),
    [
        pytest.param({"type": "array"}, "schema.type", id="not-an-object"),
        pytest.param(
            {"type": "object", "properties": {"x": {"type": "strng"}}}, "schema.properties.x.type", id="bad"
        ),
        pytest.param(
            {"type": "object", "properties": {"x": {"$ref": "https://schema.invalid/x"}}},
            "schema.properties.x.$ref",
            id="remote",
        ),
        pytest.param(
            {"type": "object", "allOf": [{"$ref": "file:///etc/passwd"}]}, "schema.allOf.0.$ref", id="file"
        ),
    ],
)
def test_a_schema_that_is_wrong_or_leads_outside_is_refused(schema: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ArgumentsSchema(schema)
    assert caught.value.key == key


def test_a_reference_within_the_schema_works() -> None:
    schema = ArgumentsSchema(
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/s"}}, "$defs": {"s": {"type": "string"}}}
    )
    with pytest.raises(ArgumentsError):
        schema.validate({"x": 1})


@pytest.mark.parametrize("tool", built_in_tools(), ids=lambda tool: tool.name)
def test_built_in_tools_describe_every_argument_and_take_no_other(tool: Any) -> None:
    assert tool.schema["additionalProperties"] is False
    assert all(definition["description"] for definition in tool.schema["properties"].values())
    assert tool.description
