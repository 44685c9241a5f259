"""What callers ask for: well-formed or refused with the field's name."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from workseal_host.errors import RequestError
from workseal_host.requests import CallRef, CallRequest, PathExpectation, Precondition, parse_arguments
from workseal_host.workspace.model import EntryType

CALL = CallRef("session", "call", "A" * 43)


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b"{",
        b'{"a": 1, "a": 2}',
        b'{"a": "\\ud800"}',
        b'{"a": 9007199254740992}',
        b'{"a": NaN}',
        b'{"a": "\xff"}',
        b'{"a": "' + b"x" * (2 << 20) + b'"}',
    ],
    ids=["list", "cut", "duplicate", "surrogate", "big", "nan", "not-utf8", "too-long"],
)
def test_arguments_are_one_strict_json_object(data: bytes) -> None:
    with pytest.raises(RequestError) as refused:
        parse_arguments(data)
    assert refused.value.field == "arguments_json"


def test_no_arguments_are_an_empty_object() -> None:
    assert parse_arguments(b"") == {}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"session_id": ""}, "call.session_id"),
        ({"session_id": "a\nb"}, "call.session_id"),
        ({"tool_call_id": "x" * 257}, "call.tool_call_id"),
        ({"challenge": "A" * 42}, "call.challenge"),
        ({"challenge": "A" * 42 + "B"}, "call.challenge"),
        ({"challenge": ""}, "call.challenge"),
    ],
)
def test_a_call_has_bounded_printable_ids_and_an_exact_challenge(fields: dict[str, str], field: str) -> None:
    with pytest.raises(RequestError) as refused:
        CallRef(**{"session_id": "s", "tool_call_id": "c", "challenge": None, **fields})
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"tool": ""}, "tool"),
        ({"idempotency_key": "short"}, "idempotency_key"),
        ({"idempotency_key": "with a space in it"}, "idempotency_key"),
        ({"timeout_s": 0.0}, "limits.timeout"),
        ({"timeout_s": float("nan")}, "limits.timeout"),
        ({"ttl_s": float("inf")}, "ttl"),
    ],
)
def test_a_request_names_the_field_that_is_wrong(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as refused:
        CallRequest(**{"call": CALL, "tool": "bash", "arguments": {}, **fields})
    assert refused.value.field == field


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a//b", "a/./b", "a/", "bad\\q"])
def test_an_expected_path_lies_in_the_workspace(path: str) -> None:
    with pytest.raises(RequestError):
        PathExpectation.of(path, absent=True, type_=None, digest="")


def test_an_absent_path_has_no_state() -> None:
    with pytest.raises(RequestError):
        PathExpectation.of("f", absent=True, type_=EntryType.FILE, digest="")


def test_an_expected_path_is_unescaped() -> None:
    assert PathExpectation.of(r"a\xff", absent=True, type_=None, digest="").path == b"a\xff"


@pytest.mark.parametrize("digest", ["0" * 63, "A" * 64, "sha256:" + "0" * 64])
def test_an_expected_digest_is_bare_hex(digest: str) -> None:
    with pytest.raises(RequestError):
        Precondition(workspace_digest=digest)


def test_the_default_key_is_the_documented_one() -> None:
    source = json.dumps(["workspace", "session", "call", "A" * 43], separators=(",", ":"))
    request = CallRequest(CALL, "bash", {})
    assert request.key("workspace") == hashlib.sha256(source.encode()).hexdigest()
    # Naming it is the same as leaving it out.
    named = CallRequest(CALL, "bash", {}, idempotency_key=request.key("workspace"))
    assert named.key("workspace") == request.key("workspace")
    assert request.key("another workspace") != request.key("workspace")
