from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest

from workseal.calls import (
    PathExpectation,
    ToolCall,
    arguments_digest,
    check_challenge,
    idempotency_key,
    new_challenge,
)
from workseal.errors import InvalidInputError, InvalidJsonError


def test_challenge_is_32_bytes_in_base64url() -> None:
    challenge = new_challenge(lambda count: bytes(range(count)))
    assert base64.urlsafe_b64decode(challenge + "=") == bytes(range(32))
    assert check_challenge(challenge) == challenge


def test_challenges_differ() -> None:
    assert new_challenge() != new_challenge()


@pytest.mark.parametrize(
    "challenge",
    [
        pytest.param("", id="empty"),
        pytest.param("A" * 42, id="short"),
        pytest.param("A" * 44, id="long"),
        pytest.param("A" * 43 + "=", id="padded"),
        pytest.param("A" * 42 + "B", id="loose-last-bits"),
        pytest.param("+" * 43, id="other-alphabet"),
        pytest.param("A" * 43 + "\n", id="newline"),
    ],
)
def test_other_challenges_are_refused(challenge: str) -> None:
    with pytest.raises(InvalidInputError):
        check_challenge(challenge)
    with pytest.raises(InvalidInputError):
        ToolCall("s", "c", "t", {}, challenge)


def test_arguments_digest_is_of_the_canonical_form() -> None:
    expected = hashlib.sha256(b'{"a":2,"b":[1,null]}').hexdigest()
    assert arguments_digest({"b": [1, None], "a": 2}) == expected
    assert ToolCall("s", "c", "t", {"a": 2, "b": [1.0, None]}).arguments_digest == expected


def test_key_is_of_the_four_names_in_order() -> None:
    assert idempotency_key("w", "s", "c", None) == hashlib.sha256(b'["w","s","c",null]').hexdigest()
    challenge = new_challenge()
    expected = hashlib.sha256(f'["w","s","c","{challenge}"]'.encode()).hexdigest()
    assert ToolCall("s", "c", "t", {}, challenge).key("w") == expected


def test_f27_key_differs_by_session_workspace_call_and_challenge() -> None:
    keys = {
        idempotency_key(workspace, session, call, challenge)
        for workspace in "wv"
        for session in "st"
        for call in "cd"
        for challenge in (None, "x")
    }
    assert len(keys) == 16


def test_given_key_holds() -> None:
    own = ToolCall("s", "c", "t", {}, idempotency_key="my-own-key-0001")
    assert own.key("w") == hashlib.sha256(b'["w","s","own-key","my-own-key-0001"]').hexdigest()
    assert ToolCall("s", "c", "t", {}, idempotency_key=own.key("w")).key("w") != own.key("w")


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"n": 2**53}, id="integer"),
        pytest.param({"n": float("nan")}, id="nan"),
        pytest.param({"s": "\ud800"}, id="surrogate"),
        pytest.param({1: "x"}, id="key"),
        pytest.param({"b": b"x"}, id="bytes"),
        pytest.param([1], id="list"),
    ],
)
def test_arguments_that_are_no_strict_json_are_refused(arguments: object) -> None:
    with pytest.raises(InvalidJsonError):
        ToolCall("s", "c", "t", arguments)  # type: ignore[arg-type]


def test_arguments_nested_too_deep_are_refused() -> None:
    value: object = 0
    for _ in range(200):
        value = [value]
    with pytest.raises(InvalidJsonError):
        ToolCall("s", "c", "t", {"deep": value})


@pytest.mark.parametrize("field", ["session_id", "tool_call_id", "tool"])
@pytest.mark.parametrize("value", ["", "x" * 257, "a\nb", "a\x85b", "\ud800"])
def test_ids_that_the_host_would_refuse_are_refused(field: str, value: str) -> None:
    names = {"session_id": "s", "tool_call_id": "c", "tool": "t"} | {field: value}
    with pytest.raises(InvalidInputError) as caught:
        ToolCall(**names, arguments={})
    assert caught.value.field == field


def test_arguments_do_not_show_in_the_repr() -> None:
    assert "canary" not in repr(ToolCall("s", "c", "t", {"key": "canary"}))


@pytest.mark.parametrize(
    "state",
    [
        {"digest": "f" * 64},
        {"absent": True, "digest": "f" * 64},
        {"absent": True, "type": "file"},
    ],
    ids=["digest-alone", "absent-with-digest", "absent-with-type"],
)
def test_an_expectation_that_no_request_can_carry_is_refused(state: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        PathExpectation("a", **state)
