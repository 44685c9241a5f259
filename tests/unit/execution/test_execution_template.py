"""Command lines with placeholders: one element stays one element, and no value becomes an option."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workseal_host.errors import ArgumentsError, ConfigError
from workseal_host.execution.template import ArgvTemplate

PROPERTIES: dict[str, Any] = {
    "s": {"type": "string"},
    "t": {"type": "string"},
    "n": {"type": "integer"},
    "b": {"type": "boolean"},
    "o": {"type": "object"},
    "any": {},
}


def fill(*elements: str, **arguments: Any) -> tuple[str, ...]:
    return ArgvTemplate(elements, PROPERTIES).fill(arguments)


@given(value=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=50))
def test_any_text_stays_one_element_unchanged(value: str) -> None:
    assert fill("p", "--", "{s}", "x={s}", s=value) == ("p", "--", value, f"x={value}")


@pytest.mark.parametrize(
    ("elements", "arguments", "argv"),
    [
        pytest.param(("p", "{n}", "{b}"), {"n": 3, "b": True}, ("p", "3", "true"), id="scalars"),
        pytest.param(("p", "{s}", "end"), {}, ("p", "end"), id="absent-is-left-out"),
        pytest.param(("p", "--x={s}"), {}, ("p",), id="absent-inside-is-left-out"),
        pytest.param(("p", "{{s}}"), {"s": "v"}, ("p", "{s}"), id="literal-braces"),
        pytest.param(("p", "--x={s}"), {"s": "-rf"}, ("p", "--x=-rf"), id="prefix-takes-a-dash"),
        pytest.param(("p", "--", "{s}"), {"s": "-rf"}, ("p", "--", "-rf"), id="after-double-dash"),
        pytest.param(("p", "{s}"), {"s": "{n} $(id) ; *"}, ("p", "{n} $(id) ; *"), id="nothing-is-expanded"),
    ],
)
def test_fill(elements: tuple[str, ...], arguments: dict[str, Any], argv: tuple[str, ...]) -> None:
    assert fill(*elements, **arguments) == argv


@pytest.mark.parametrize(
    ("elements", "arguments"),
    [
        pytest.param(("p", "{s}"), {"s": "--output=/etc/x"}, id="option"),
        pytest.param(("p", "{n}"), {"n": -5}, id="negative-number"),
        pytest.param(("p", "{s}{t}"), {"s": "", "t": "-rf"}, id="behind-an-empty-value"),
        pytest.param(("p", "{s}", "--"), {"s": "-x"}, id="double-dash-too-late"),
        pytest.param(("p", "{s}"), {"s": "a\0b"}, id="nul"),
        pytest.param(("p", "{s}"), {"s": "x" * 200_000}, id="too-long"),
    ],
)
def test_a_value_that_could_do_harm_is_refused(elements: tuple[str, ...], arguments: dict[str, Any]) -> None:
    with pytest.raises(ArgumentsError):
        fill(*elements, **arguments)


@pytest.mark.parametrize(
    "elements",
    [
        pytest.param((), id="empty"),
        pytest.param(("{s}",), id="program-from-arguments"),
        pytest.param(("p", "{unknown}"), id="unknown-name"),
        pytest.param(("p", "{o}"), id="not-a-scalar"),
        pytest.param(("p", "{any}"), id="untyped"),
        pytest.param(("p", "{"), id="lone-brace"),
        pytest.param(("p", "a\0"), id="nul"),
    ],
)
def test_a_template_that_is_wrong_is_refused_when_it_is_loaded(elements: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        ArgvTemplate(elements, PROPERTIES)
