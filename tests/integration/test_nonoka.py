"""The real nonoka: pause in one process, the host executes, resume in another.

Two processes serve all tests of this file: importing nonoka takes seconds.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.daemon import Daemon

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("nonoka") is None and not os.environ.get("CI"),
        reason="nonoka is not installed",
    ),
    pytest.mark.slow,
    pytest.mark.timeout(180),
]
Report = dict[str, Any]


def _drive(mode: str, config: Report) -> Report:
    driver = Path(__file__).with_name("nonoka_driver.py")
    process = subprocess.run(
        [sys.executable, str(driver), mode, json.dumps(config)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        check=False,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    report: Report = json.loads(process.stdout.splitlines()[-1])
    return report


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Report]:
    base = tmp_path_factory.mktemp("nonoka")
    (base / "workspace").mkdir()
    (base / "framework").mkdir()
    daemon = Daemon(base / "workspace", base / "state").start()
    try:
        config = daemon.ready | {"state": str(base / "framework")}
        paused = _drive("pause", config)
        resumed = _drive("resume", config)
        yield {"paused": paused, "resumed": resumed, "workspace": daemon.workspace}
    finally:
        daemon.kill()


def scenario(world: Report, name: str) -> Report:
    report: Report = world["resumed"][name]
    assert "crashed" not in report, report["crashed"]
    return report


def read(world: Report, name: str) -> str:
    path: Path = world["workspace"] / name
    return path.read_text() if path.exists() else ""


def test_sessions_pause_with_their_challenges_stored(world: Report) -> None:
    for report in world["paused"].values():
        assert report["paused"]
        assert report["status"] == "paused"
    challenges = [one for report in world["paused"].values() for one in report["challenges"]]
    assert len(set(challenges)) == len(challenges) == 10


def test_session_completes_on_a_verified_receipt(world: Report) -> None:
    report = scenario(world, "plain")
    assert (report["error"], report["status"]) == (None, "completed")
    assert report["final"]["success"]
    assert read(world, "plain.txt") == "hello\n"


def test_nonoka_gets_its_exact_receipt_shape(world: Report) -> None:
    (given,) = scenario(world, "plain")["given"]
    receipt = given["c1"]
    assert set(receipt) == {
        "result",
        "exit_code",
        "elapsed_seconds",
        "workspace",
        "effect",
        "host",
        "artifact_ref",
        "output_kind",
        "original_bytes",
        "truncated",
        "completeness",
    }
    assert receipt["workspace"]["created"] == ["plain.txt"]
    assert receipt["workspace"]["root"] == str(world["workspace"])
    assert receipt["effect"]["changed"] is True


def test_reference_of_the_receipt_is_in_trace_and_memory(world: Report) -> None:
    report = scenario(world, "plain")
    reference = report["given"][0]["c1"]["artifact_ref"]
    assert reference.startswith("urn:workseal:receipt:sha256:")
    assert report["told"][0]["metadata"]["artifact_ref"] == reference
    assert report["trace"][0]["external_receipt"]["artifact_ref"] == reference
    assert report["trace"][0]["workspace_audit"] == "verified"


def test_completed_session_is_not_resumed_and_costs_no_model_turn(world: Report) -> None:
    report = scenario(world, "completed")
    assert (report["error"], report["turns"], report["given"]) == ("ResumeError", 0, [])


def test_several_calls_run_in_order_and_a_failing_tool_is_a_result(world: Report) -> None:
    report = scenario(world, "two")
    assert read(world, "two.log") == "one\ntwo\n"
    (given,) = report["given"]
    assert (given["c1"]["exit_code"], given["c2"]["exit_code"]) == (0, 3)
    assert report["status"] == "completed"
    assert "said-one" in report["final"]["data"]


@pytest.mark.parametrize(
    ("name", "error", "check"),
    [
        ("forged", "NotVerifiedError", "signature"),
        ("swapped", "NotVerifiedError", "call"),
        ("replayed", "NotVerifiedError", "call"),
        ("missing", "ResumeError", ""),
        ("other-result", "NotVerifiedError", "result"),
        ("garbage", "ResumeError", ""),
        ("approval", "ResumeError", ""),
        ("raw", "ResumeError", ""),
    ],
)
def test_wrong_receipts_are_refused_before_nonoka_sees_them(
    world: Report, name: str, error: str, check: str
) -> None:
    report = scenario(world, "elsewhere")[name]
    assert (report["error"], report["check"]) == (error, check)
    assert report["given"] == []
    assert report["told"] == []
    assert report["status"] == "paused"


def test_session_stays_resumable_after_every_refusal(world: Report) -> None:
    report = scenario(world, "elsewhere")["right"]
    assert (report["error"], report["status"]) == (None, "completed")
    assert read(world, "elsewhere.log") == "1\n2\n"


def test_crash_before_nonoka_had_the_results_repeats_nothing(world: Report) -> None:
    report = scenario(world, "crash")
    assert (report["error"], report["status"]) == (None, "completed")
    assert read(world, "crash.log") == "x\n"


def test_call_that_cannot_be_sent_is_an_error_and_never_verified(world: Report) -> None:
    report = scenario(world, "unsendable")
    assert (report["error"], report["status"]) == (None, "completed")
    assert read(world, "unsendable.log") == ""
    assert read(world, "sent.txt") == "x"
    told = {entry["metadata"]["tool_call_id"]: entry["content"] for entry in report["told"]}
    assert told["c1"].startswith("[workseal] Not run: the call could not be sent")
    audits = {entry["id"]: entry.get("workspace_audit") for entry in report["trace"]}
    assert audits["c2"] == "verified"
    assert audits["c1"] != "verified"


def test_calls_of_one_turn_with_one_id_are_errors_and_none_runs(world: Report) -> None:
    report = scenario(world, "twins")
    assert (report["error"], report["status"], report["given"]) == (None, "completed", [{}])
    assert read(world, "twins.log") == ""
    assert len([entry for entry in report["told"] if "same id" in entry["content"]]) == 2


def test_call_that_the_host_refuses_does_not_leave_the_session_stuck(world: Report) -> None:
    report = scenario(world, "unknown_tool")
    assert (report["error"], report["status"]) == (None, "completed")
    receipt = report["given"][0]["c1"]
    assert receipt["result"].startswith("[workseal] Not run: the host refused this call")
    assert receipt["exit_code"] != 0
    assert receipt["workspace"]["before_digest"] == receipt["workspace"]["after_digest"]


def test_raw_result_of_a_read_only_call_is_passed_on_as_text(world: Report) -> None:
    report = scenario(world, "read_only")
    assert (report["status"], report["given"]) == ("completed", [{"c1": "contents"}])
    assert report["trace"][0].get("workspace_audit") != "verified"
