"""A client in another language, from the .proto alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import google.rpc
import pytest

from support.daemon import Daemon
from support.rpc import token_of

HERE = Path(__file__).parent / "node"
PROTO = Path(__file__).parents[2] / "proto"
# The .proto files of google.rpc, as googleapis-common-protos ships them.
GOOGLE = Path(next(iter(google.rpc.__path__))).parents[1]

needs_node = pytest.mark.skipif(
    not (shutil.which("node") and shutil.which("npm")) and not os.environ.get("CI"),
    reason="node and npm are not installed",
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client with its dependencies, installed as the lock file says."""
    directory = tmp_path_factory.mktemp("node") / "client"
    shutil.copytree(HERE, directory, ignore=shutil.ignore_patterns("node_modules"))
    subprocess.run(
        ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=directory,
        check=True,
        capture_output=True,
        timeout=100,
    )
    return directory


def run(program: Path, daemon: Daemon, command: str) -> dict[str, Any]:
    settings = {
        "socket": daemon.ready["socket"],
        "token": token_of(daemon),
        "publicKeyPem": Path(daemon.ready["public_key_file"]).read_text(),
        "command": command,
    }
    done = subprocess.run(
        ["node", "client.mjs", str(PROTO), str(GOOGLE)],
        cwd=program,
        input=json.dumps(settings),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@needs_node
def test_a_node_client_runs_a_tool_and_verifies_its_receipt(program: Path, daemon: Daemon) -> None:
    found = run(program, daemon, "echo from node; touch made")

    assert found["workspaceId"] == daemon.ready["workspace_id"]
    assert "write_file" in found["tools"]
    assert found["kinds"] == ["accepted", "output", "outcome"]
    assert found["output"] == "from node\n"
    assert (found["signatureIsGood"], found["tamperedIsGood"]) == (True, False)
    assert (found["payloadDigestIsGood"], found["waitedIsSame"]) == (True, True)
    predicate = found["statement"]["predicate"]
    assert predicate["call"]["challenge"] == found["challenge"]
    assert [entry["path"] for entry in predicate["workspace"]["created"]] == ["made"]
    assert predicate["workspace"]["changes"]["digest"]["sha256"] == found["changesDigest"]


@needs_node
def test_a_node_client_reads_error_details(program: Path, daemon: Daemon) -> None:
    found = run(program, daemon, "true")

    assert found["badRequest"]["code"] == "INVALID_ARGUMENT"
    [violation] = found["badRequest"]["google.rpc.BadRequest"]["field_violations"]
    assert violation["field"] == "scan"
    for name, code, reason in (
        ("badRequest", "INVALID_ARGUMENT", "INVALID_REQUEST"),
        ("notFound", "NOT_FOUND", "NOT_FOUND"),
        ("noToken", "UNAUTHENTICATED", "UNAUTHENTICATED"),
    ):
        info = found[name]["google.rpc.ErrorInfo"]
        assert (found[name]["code"], info["reason"], info["domain"]) == (code, reason, "workseal")


def test_the_lock_file_names_no_registry() -> None:
    assert "http" not in (HERE / "package-lock.json").read_text()
