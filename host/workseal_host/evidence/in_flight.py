"""What is written down before a tool may run, and read back after a crash. Pure.

The record holds no argument text and no content: only states, paths and digests.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workseal.canonical import canonical_json
from workseal.receipt import statement as form
from workseal_host.evidence.facts import Facts
from workseal_host.execution.tool import PredictedEffect
from workseal_host.ledger.model import InFlight
from workseal_host.requests import CallRequest
from workseal_host.workspace.diff import EntryState
from workseal_host.workspace.model import EntryType

# Paths that a scan could not settle: enough to tell, and a bound for the row.
_MAX_UNSETTLED = 10_000


def stored_request(request: CallRequest) -> bytes:
    """Return what settling after a crash needs of a request; no argument text, which may hold secrets."""
    return canonical_json(
        {
            "argumentsDigest": request.arguments_digest,
            "challenge": request.call.challenge,
            "observed": request.observed,
        }
    )


def in_flight_record(facts: Facts, *, boot_id: str) -> InFlight:
    """Return the record of a call that is about to run.

    Args:
        facts: what was seen up to now.
        boot_id: names the run of the machine's kernel: after a reboot no process is left.
    """
    scan = facts.before.scan
    evidence = {
        "bridge": facts.bridge.tree.digest.hex() if facts.bridge else None,
        "isolation": facts.isolation,
        "precondition": [str(facts.precondition.status), facts.precondition.expected],
        "readOnly": facts.read_only,
        "stateSequence": facts.state_sequence,
        "unreadable": [path.hex() for path in scan.unreadable[:_MAX_UNSETTLED]],
        "unstable": [path.hex() for path in scan.unstable[:_MAX_UNSETTLED]],
    }
    return InFlight(
        started_ns=facts.started_ns,
        before=facts.before.state,
        scan_level=str(scan.level),
        predicted=_encode_prediction(facts.predicted),
        processes=canonical_json({"bootId": boot_id}),
        evidence=canonical_json(evidence),
    )


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a record says beyond its columns.

    Attributes:
        bridge_tree: digest of the before-tree under the rules of the receipt before; None for no bridge.
        isolation: how the tool was isolated.
        precondition: what the receipt says of it.
        read_only: whether nothing was to change.
        state_sequence: sequence of the newest call's receipt then.
        unreadable: raw paths.
        unstable: raw paths.
        predicted: what the tool itself predicted; None where it could not.
        boot_id: the run of the kernel that it ran under.
    """

    bridge_tree: bytes | None
    isolation: str
    precondition: form.Precondition
    read_only: bool
    state_sequence: int
    unreadable: list[bytes]
    unstable: list[bytes]
    predicted: list[PredictedEffect] | None
    boot_id: str


def read_evidence(record: InFlight) -> Evidence:
    """Read a record back.

    Raises:
        ValueError: it is not one.
    """
    found: dict[str, Any] = json.loads(record.evidence)
    status, expected = found["precondition"]
    return Evidence(
        bridge_tree=bytes.fromhex(found["bridge"]) if found["bridge"] else None,
        isolation=found["isolation"],
        precondition=form.Precondition(form.PreconditionStatus(status), expected),
        read_only=found["readOnly"],
        state_sequence=found["stateSequence"],
        unreadable=[bytes.fromhex(path) for path in found["unreadable"]],
        unstable=[bytes.fromhex(path) for path in found["unstable"]],
        predicted=_decode_prediction(record.predicted),
        boot_id=json.loads(record.processes)["bootId"],
    )


def _encode_prediction(predicted: Sequence[PredictedEffect] | None) -> bytes:
    if predicted is None:
        return b"null"
    return canonical_json(
        [
            [effect.path.hex(), _encode_state(effect.before), _encode_state(effect.after)]
            for effect in predicted
        ]
    )


def _encode_state(state: EntryState | None) -> list[str] | None:
    return None if state is None else [str(state.type), state.digest.hex()]


def _decode_prediction(data: bytes) -> list[PredictedEffect] | None:
    found: list[Any] | None = json.loads(data)
    if found is None:
        return None
    return [
        PredictedEffect(bytes.fromhex(path), _decode_state(before), _decode_state(after))
        for path, before, after in found
    ]


def _decode_state(state: Sequence[str] | None) -> EntryState | None:
    return None if state is None else EntryState(EntryType(state[0]), bytes.fromhex(state[1]))
