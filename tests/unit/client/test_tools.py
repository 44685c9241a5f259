from __future__ import annotations

import pytest

from workseal.errors import InvalidInputError
from workseal.tools import (
    UNKNOWN_EXECUTION,
    Completeness,
    EffectAttestation,
    ExternalCapability,
    ExternalToolReceipt,
    ToolExecution,
    WorkspaceAttestation,
    stricter,
)

WORKSPACE = {"root": "/w", "before_digest": "a", "after_digest": "b"}


def test_undeclared_is_mutating_stateful_and_exclusive() -> None:
    unknown = ExternalCapability("t", "does things").execution
    assert unknown == UNKNOWN_EXECUTION
    assert (unknown.mutates_workspace, unknown.stateful_action, unknown.exclusive) == (True, True, True)
    assert not unknown.read_only


@pytest.mark.parametrize("value", ["false", 0, None, 1])
def test_declarations_are_bools(value: object) -> None:
    with pytest.raises(InvalidInputError):
        ToolExecution(read_only=value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("execution", "required"),
    [
        pytest.param(ToolExecution(read_only=True), False, id="read-only"),
        pytest.param(ToolExecution(read_only=True, pagination=True), False, id="read-only-in-pages"),
        pytest.param(ToolExecution(), True, id="nothing-declared"),
        pytest.param(ToolExecution(mutates_workspace=True), True, id="mutating"),
        pytest.param(ToolExecution(read_only=True, mutates_workspace=True), True, id="contradiction"),
        pytest.param(ToolExecution(read_only=True, stateful_action=True), True, id="stateful-contradiction"),
        pytest.param(UNKNOWN_EXECUTION, True, id="unknown"),
    ],
)
def test_receipt_is_required_unless_declared_read_only(execution: ToolExecution, required: bool) -> None:
    capability = ExternalCapability("t", "", execution=execution)
    assert capability.requires_workspace_attestation is required


def test_audit_can_ask_for_more_and_never_for_less() -> None:
    reads = ExternalCapability("t", "", execution=ToolExecution(read_only=True), audit_required=True)
    writes = ExternalCapability("t", "", execution=UNKNOWN_EXECUTION, audit_required=False)
    assert reads.requires_workspace_attestation
    assert writes.requires_workspace_attestation


def test_stricter_promises_no_more_than_either() -> None:
    read = ToolExecution(read_only=True)
    write = ToolExecution(mutates_workspace=True, pagination=True)
    assert stricter(read, write) == ToolExecution(mutates_workspace=True, pagination=True)
    assert stricter(read, read) == read


def test_schema_is_what_chat_models_take() -> None:
    schema = ExternalCapability("t", "d", {"type": "object"}).to_json_schema()
    assert schema == {
        "type": "function",
        "function": {"name": "t", "description": "d", "parameters": {"type": "object"}},
    }


def test_plain_form_is_parsed() -> None:
    receipt = ExternalToolReceipt.from_value(
        {
            "result": "ok",
            "exit_code": 0,
            "elapsed_seconds": 1,
            "workspace": WORKSPACE | {"created": ["x"]},
            "effect": {"changed": True},
            "truncated": True,
            "unknown": 1,
        }
    )
    assert receipt.workspace == WorkspaceAttestation("/w", "a", "b", created=("x",))
    assert receipt.effect == EffectAttestation(changed=True)
    assert receipt.elapsed_seconds == 1.0
    assert receipt.completeness is Completeness.PARTIAL


@pytest.mark.parametrize(
    ("value", "field"),
    [
        pytest.param("text", "receipt", id="no-object"),
        pytest.param({"exit_code": "0"}, "exit_code", id="exit-code-text"),
        pytest.param({"exit_code": True}, "exit_code", id="exit-code-bool"),
        pytest.param({"truncated": "false"}, "truncated", id="bool-text"),
        pytest.param({"elapsed_seconds": -1}, "elapsed_seconds", id="negative-time"),
        pytest.param({"elapsed_seconds": float("nan")}, "elapsed_seconds", id="nan-time"),
        pytest.param({"completeness": "whole"}, "completeness", id="unknown-completeness"),
        pytest.param({"result": {"x": 1}}, "result", id="result-object"),
        pytest.param({"effect": {}}, "changed", id="effect-without-changed"),
        pytest.param({"effect": {"changed": 1}}, "changed", id="effect-number"),
        pytest.param({"workspace": {}}, "root", id="workspace-empty"),
        pytest.param({"workspace": WORKSPACE | {"after_digest": ""}}, "after_digest", id="digest-empty"),
        pytest.param({"workspace": WORKSPACE | {"created": "abc"}}, "created", id="string-as-list"),
        pytest.param({"workspace": WORKSPACE | {"deleted": [1]}}, "deleted", id="numbers-as-paths"),
        pytest.param({"workspace": []}, "workspace", id="workspace-list"),
    ],
)
def test_other_forms_are_refused(value: object, field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        ExternalToolReceipt.from_value(value)
    assert caught.value.field == field


def test_typed_values_pass_through() -> None:
    receipt = ExternalToolReceipt(result="x", workspace=WorkspaceAttestation("/w", "a", "b"))
    assert ExternalToolReceipt.from_value(receipt) is receipt
    assert ExternalToolReceipt.from_value({"workspace": receipt.workspace}).workspace is receipt.workspace
    effect = EffectAttestation(changed=False)
    assert EffectAttestation.from_value(effect) is effect
