"""Whose changes they are, and which rules they break."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from support.engines import Bench, ScriptedTool, changes, outside, predicate, reader
from workseal_host.coordination.live import Accepted, Outcome
from workseal_host.execution.tool import PredictedEffect, ToolResult
from workseal_host.execution.tools.edit_file import EditFileTool
from workseal_host.requests import SideEffects
from workseal_host.workspace.diff import EntryState
from workseal_host.workspace.model import EntryType


def file_state(content: bytes) -> EntryState:
    return EntryState(EntryType.FILE, hashlib.sha256(content).digest())


def writer(bench: Bench, *, also: dict[str, str] | None = None, content: str = "new") -> ScriptedTool:
    """Return a tool that predicts `f`, writes it, and lets somebody else write meanwhile."""

    def act() -> None:
        (bench.workspace / "f").write_text(content)
        for name, text in (also or {}).items():
            (bench.workspace / name).write_text(text)

    return ScriptedTool("tool", act, prediction=[PredictedEffect(b"f", None, file_state(b"new"))])


async def test_a_predicting_tool_is_credited_with_its_own_paths_only(bench: Bench) -> None:
    bench.tools.append(writer(bench, also={"mine": "x"}))
    await bench.open()
    outcome = await bench.run("tool")
    assert changes(outcome) == {"created": ["f"]}
    assert outside(outcome) == {"created": ["mine"]}
    stated = predicate(outcome)
    assert stated.execution is not None
    assert (stated.execution.attribution, stated.verification.status) == ("predicted", "passed")


async def test_what_was_there_before_and_came_meanwhile_are_both_outside(bench: Bench) -> None:
    bench.tools.append(writer(bench, also={"mine": "y", "more": "z"}))
    await bench.open()
    await bench.run("bash", {"command": "true"})
    (bench.workspace / "mine").write_text("x")
    outcome = await bench.run("tool")
    assert outside(outcome) == {"created": ["mine", "more"]}


async def test_a_predicted_path_that_somebody_else_wrote_too_fails_verification(bench: Bench) -> None:
    bench.tools.append(writer(bench, content="somebody else's"))
    await bench.open()
    stated = predicate(await bench.run("tool"))
    assert stated.verification.status == "failed"
    assert [item.path for item in stated.verification.failures] == ["f"]


async def test_only_outside_changes_during_a_call_leave_its_own_list_empty(bench: Bench) -> None:
    def act() -> None:
        (bench.workspace / "mine").write_text("x")

    bench.tools.append(ScriptedTool("tool", act, prediction=[]))
    await bench.open()
    verifier = bench.verifier()
    request = bench.request("tool")
    outcome = await bench.execute(request)
    await bench.verify(verifier, request, outcome)
    assert changes(outcome) == {}
    assert outside(outcome) == {"created": ["mine"]}


async def test_an_edit_that_succeeds_against_its_prediction_is_the_tools_and_fails_its_verification(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench.workspace / "f").write_text("old")
    await bench.open()
    predict = EditFileTool.predict

    def then_somebody_saves(tool: EditFileTool, *args: Any) -> Any:
        found = predict(tool, *args)
        (bench.workspace / "f").write_text("new words")
        return found

    monkeypatch.setattr(EditFileTool, "predict", then_somebody_saves)
    outcome = await bench.run("edit_file", {"path": "f", "old_string": "new", "new_string": "no"})
    stated = predicate(outcome)
    assert changes(outcome) == {"modified": ["f"]}
    assert stated.verification.status == "failed"


async def test_directories_made_for_a_file_belong_to_the_call(bench: Bench) -> None:
    await bench.open()
    outcome = await bench.run("write_file", {"path": "a/b/f", "content": "x"})
    assert changes(outcome) == {"created": ["a", "a/b", "a/b/f"]}


async def test_an_ignored_path_is_refused_before_anything_runs(bench: Bench) -> None:
    await bench.open()
    outcome = await bench.run("write_file", {"path": "node_modules/f", "content": "x"})
    assert predicate(outcome).outcome == "refused"
    assert not (bench.workspace / "node_modules").exists()


async def test_a_foreign_reader_that_writes_is_caught(bench: Bench) -> None:
    bench.tools.append(reader("liar", lambda: (bench.workspace / "f").write_text("x") and None))
    await bench.open()
    outcome = await bench.run("liar")
    stated = predicate(outcome)
    assert changes(outcome) == {"created": ["f"]}
    assert [(item.path, item.rule) for item in stated.policy.violations] == [("f", "read-only")]
    assert stated.execution is not None
    assert stated.execution.attribution == "interval"


async def test_a_call_declared_read_only_is_held_to_it(bench: Bench) -> None:
    await bench.open()
    declared = SideEffects(True, False, False, False, False)
    outcome = await bench.run("bash", {"command": "echo x > f"}, side_effects=declared)
    assert [item.rule for item in predicate(outcome).policy.violations] == ["read-only"]


async def test_a_person_who_saves_while_a_file_is_read_breaks_no_rule(bench: Bench) -> None:
    engine = await bench.open()
    (bench.workspace / "f").write_text("x")
    look = engine.observer.look
    looks = 0

    async def save_before_the_second_look(**how: object) -> object:
        nonlocal looks
        looks += 1
        if looks == 2:
            (bench.workspace / "mine").write_text("x")
        return await look(**how)

    engine.observer.look = save_before_the_second_look
    outcome = await bench.run("read_file", {"path": "f"})
    assert outside(outcome) == {"created": ["mine"]}
    assert predicate(outcome).policy.violations == ()


@pytest.mark.parametrize(
    "path",
    [
        ".worksealignore",
        "a/.worksealignore",
        ".opencode/plugin.js",
        "a/.claude/settings.json",
        ".Claude/x",
        "opencode.jsonc",
    ],
)
async def test_protected_paths_are_reported_at_any_depth_and_in_any_case(bench: Bench, path: str) -> None:
    await bench.open()
    (bench.workspace / "keep").write_text("x")
    directory = str(Path(path).parent)
    outcome = await bench.run("bash", {"command": f"mkdir -p '{directory}'; echo '#x' > '{path}'"})
    assert path in [item.path for item in predicate(outcome).policy.violations]


async def test_violations_carry_escaped_paths(bench: Bench) -> None:
    await bench.open()
    outcome = await bench.run(
        "bash", {"command": "mkdir .claude; printf x > \"$(printf '.claude/a\\377\\nb')\""}
    )
    assert r".claude/a\xff\x0ab" in [item.path for item in predicate(outcome).policy.violations]
    assert r".claude/a\xff\x0ab" in changes(outcome)["created"]


async def test_too_many_violations_are_counted_not_dropped(bench: Bench) -> None:
    await bench.open()
    command = "mkdir .claude; cd .claude; for i in $(seq 1200); do : > $i; done"
    violations = predicate(await bench.run("bash", {"command": command})).policy.violations
    assert len(violations) == 1000
    assert violations[-1].rule == "202 more"


async def test_an_observed_interval_is_credited_whole(bench: Bench) -> None:
    engine = await bench.open()
    begun = await engine.pipeline.begin_observation(bench.request("edit", observed=True))
    assert isinstance(begun, Accepted)
    (bench.workspace / "f").write_text("x")
    outcome = await engine.pipeline.end_observation(begun.execution_id, ToolResult(b"claimed", exit_code=0))
    again = await engine.pipeline.end_observation(begun.execution_id, ToolResult(b"other", exit_code=1))
    assert isinstance(outcome, Outcome)
    assert changes(outcome) == {"created": ["f"]}
    assert again.receipt.envelope == outcome.receipt.envelope
    stated = predicate(outcome)
    assert stated.execution is not None
    assert (stated.execution.mode, stated.execution.isolation) == ("observed", "none")


@pytest.mark.parametrize("included", [True, False])
async def test_argument_text_is_in_the_receipt_only_where_configured(bench: Bench, included: bool) -> None:
    await bench.open(include_arguments=included)
    outcome = await bench.run("bash", {"command": "true # CANARY"})
    found = predicate(outcome).call.arguments
    assert found == ({"command": "true # CANARY"} if included else None)


async def test_argument_text_is_nowhere_in_the_ledger(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    engine = await bench.open()
    await bench.run("bash", {"command": "true # CANARY-1"})
    await bench.run("bash", {"command": "true", "surplus": "CANARY-1"})
    await bench.run("write_file", {"path": "f", "content": "CANARY-1"})
    files = [file for file in bench.state.rglob("*") if file.is_file()]
    assert engine.place.ledger in files
    assert [file for file in files if b"CANARY-1" in file.read_bytes()] == []
    await bench.close()
    assert [file for file in files if file.exists() and b"CANARY-1" in file.read_bytes()] == []
    assert "CANARY-1" not in caplog.text
