"""`workseal verify`: what can be said of receipts, with given or pinned keys only.

Nothing of a receipt's content is shown before the receipt is verified, and nothing
that is printed can act on the terminal.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from workseal.calls import check_challenge
from workseal.canonical import parse_json
from workseal.cli.answers import Demand, Placed, links_of, shortcoming
from workseal.cli.keys import read_public_key
from workseal.cli.output import error_words, print_error, print_lines
from workseal.cli.summary import summary_lines, summary_value
from workseal.errors import InvalidInputError, NotVerifiedError, StoreError
from workseal.receipt.envelope import MAX_ENVELOPE_BYTES, parse_envelope
from workseal.receipt.keys import PublicKey
from workseal.receipt.policy import AcceptancePolicy, Expectation
from workseal.receipt.predicate import Isolation, KeyRotationPredicate, Outcome
from workseal.receipt.verifier import AuditReport, CheckReport, CheckStatus, ReceiptVerifier
from workseal.state import state_dir
from workseal.trust import FileTrustStore, MemoryTrustStore, Pin, SqliteRecord, TrustState

if TYPE_CHECKING:
    _SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]

_VERIFIED, _NOT_VERIFIED, _UNREADABLE = 0, 1, 2
_MAX_RING_BYTES: Final = 4 * 1024 * 1024
#: Which option accepts what a check refused.
_REMEDIES: Final = {
    ("policy", "mode"): "--allow-observed accepts it",
    ("policy", "unstable"): "--allow-unstable accepts it",
}


def add_parser(commands: _SubParsers) -> None:
    """Add the command `verify`."""
    parser = commands.add_parser(
        "verify",
        help="check receipts against given or pinned keys",
        description="Check receipts against given or pinned keys only, and say which checks ran. "
        "Exit code: 0 verified, 1 not verified, 2 usage or unreadable file; of several files the worst.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a receipt; - for stdin")
    parser.add_argument("--key", action="append", default=[], metavar="PUB.pem", help="check with this key")
    parser.add_argument("--session", metavar="ID", help="the session that made the call")
    parser.add_argument("--call", metavar="ID", help="the tool call id")
    parser.add_argument("--tool", metavar="NAME", help="the tool that was called")
    parser.add_argument("--arguments-digest", metavar="HEX", help="SHA-256 of RFC 8785 of the arguments")
    parser.add_argument("--challenge", type=_challenge, metavar="C", help="the challenge of the call")
    parser.add_argument("--workspace", metavar="ID", help="the workspace id")
    parser.add_argument("--chain", metavar="ID", help="the chain id")
    parser.add_argument("--before", metavar="DIGEST", help="the workspace digest before the call")
    parser.add_argument("--max-age", type=_seconds, metavar="SECONDS", help="oldest acceptable receipt")
    parser.add_argument("--result", metavar="FILE", help="the result that came with the receipt")
    parser.add_argument(
        "--record",
        action="store_true",
        help="compare with what the client library verified and recorded on this machine; "
        "verify itself records nothing",
    )
    parser.add_argument("--allow-observed", action="store_true", help="accept what somebody else ran")
    parser.add_argument(
        "--allow-unstable", action="store_true", help="accept files that would not hold still"
    )
    parser.add_argument("--require-isolation", action="store_true", help="refuse isolation none")
    parser.add_argument(
        "--outcome", choices=[str(item) for item in Outcome], metavar="O", help="only this outcome"
    )
    parser.add_argument(
        "--require-success",
        action="store_true",
        help="refuse what is verified but no success: another outcome, another exit code than 0, a signal, "
        "time-out or cancellation, a policy violation that was not put back, a failed read-back",
    )
    parser.add_argument("--state-dir", metavar="DIR", help="where pins are kept")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each file")
    parser.set_defaults(run=run)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:  # NaN too
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0 on")
    return seconds


def _challenge(text: str) -> str:
    try:
        return check_challenge(text)
    except InvalidInputError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no challenge: give the 43 characters of 32 bytes in base64url without padding"
        ) from None


def run_verify(arguments: Sequence[str]) -> int:
    """Run `workseal verify ARGUMENTS...`, for the host's command line to hand on.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog="workseal")
    add_parser(parser.add_subparsers(dest="command", required=True))
    options = parser.parse_args(["verify", *arguments])
    return int(options.run(options))


def run(options: argparse.Namespace) -> int:
    """Check all files.

    Returns:
        The worst exit code of them.
    """
    try:
        state = state_dir(options.state_dir)
        keys = [read_public_key(path) for path in options.key]
        trust = MemoryTrustStore(_trust_of(keys) if keys else FileTrustStore(state).state())
        expectation = _expectation(options)
        result = _read(options.result, limit=-1) if options.result is not None else None
    except (OSError, InvalidInputError, StoreError) as error:
        print_error(error_words(error))
        return _UNREADABLE
    verifier = ReceiptVerifier(trust, _policy(options), SqliteRecord(state))
    demand, worst = _demand(options), _VERIFIED
    placed: list[Placed] = []
    for name in options.files:
        try:
            data = _read(name, limit=MAX_ENVELOPE_BYTES + 1)
            report = verifier.audit(data, expectation, result=result, with_record=options.record)
        except (OSError, StoreError) as error:
            words = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else error
            print_error(f"{name}: {words}")
            worst = max(worst, _UNREADABLE)
            continue
        _follow(trust, report)
        lacking = None
        if report.statement is not None:
            placed.append(Placed(report.statement, report.payload_digest))
            lacking = shortcoming(report.statement, demand)
        _show(options, name, report, _note(report, data, state), lacking)
        good = report.verified and lacking is None
        worst = max(worst, _VERIFIED if good else _NOT_VERIFIED)
    return max(worst, _show_links(placed, as_json=options.json))


def _demand(options: argparse.Namespace) -> Demand:
    named = (options.session, options.call, options.tool, options.arguments_digest, options.challenge)
    return Demand(
        outcome=Outcome(options.outcome) if options.outcome else None,
        success=options.require_success,
        of_a_call=any(value is not None for value in named),
    )


def _show_links(placed: Sequence[Placed], *, as_json: bool) -> int:
    """Say how the files hang together: in words, on stderr where stdout is one object for each file.

    Returns:
        The exit code.
    """
    code = _VERIFIED
    for links in links_of(placed):
        words = [f"chain {links.chain_id}: NOT LINKED: {text}" for text in links.broken]
        words += [f"chain {links.chain_id}: note: {text}" for text in links.gaps]
        if not words:
            words = [f"chain {links.chain_id}: linked, each receipt names the one before it"]
        if links.broken:
            code = _NOT_VERIFIED
        if not as_json:
            print_lines(words)
        elif links.broken or links.gaps:
            for text in words:
                print_error(text)
    return code


def _trust_of(keys: Sequence[PublicKey]) -> TrustState:
    return TrustState(pins=tuple(Pin(key) for key in keys))


def _follow(trust: MemoryTrustStore, report: AuditReport) -> None:
    """Let a verified rotation count for the files after it, in this run only."""
    if report.statement is not None and isinstance(entry := report.statement.predicate, KeyRotationPredicate):
        trust.update(lambda state: state.rotated(entry))


def _expectation(options: argparse.Namespace) -> Expectation:
    return Expectation(
        workspace_id=options.workspace,
        session_id=options.session,
        tool_call_id=options.call,
        tool=options.tool,
        arguments_digest=_digest(options.arguments_digest),
        challenge=options.challenge,
        chain_id=options.chain,
        before_digest=_digest(options.before),
        before_mode="accounted" if options.before is None else "strict",
        max_age_s=options.max_age,
    )


def _digest(text: str | None) -> str | None:
    if text is None:
        return None
    digest = text.removeprefix("sha256:")
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise InvalidInputError(
            f"{text!r} is no digest: give 64 lower-case hex digits, with or without sha256: before them"
        )
    return digest


def _policy(options: argparse.Namespace) -> AcceptancePolicy:
    isolations = frozenset(Isolation) - {Isolation.NONE} if options.require_isolation else None
    return AcceptancePolicy(
        allow_observed=options.allow_observed,
        allow_unstable=options.allow_unstable,
        isolations=isolations,
    )


def _read(name: str, *, limit: int) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read(limit)
    with open(name, "rb") as file:
        return file.read(limit)


def _note(report: AuditReport, data: bytes, state: Path) -> str | None:
    """Return what can be said of a signature by nobody that is trusted."""
    if report.error is None or report.error.reason != "key-not-pinned":
        return None
    try:
        envelope = parse_envelope(data)
    except NotVerifiedError:
        return None
    for key in _ring_keys(state):
        if key.key_id == envelope.key_id:
            if key.verifies(envelope.signature, envelope.pae()):
                return "signature intact, signer unknown"
            return "signature broken, signer unknown"
    return "signature not checked, signer unknown"


def _ring_keys(state: Path) -> list[PublicKey]:
    # Public halves of a host's keys on this machine: enough to say that bytes are
    # unchanged, never a reason to trust.
    try:
        with open(state / "keys" / "ring.json", "rb") as file:
            value = parse_json(file.read(_MAX_RING_BYTES), max_bytes=_MAX_RING_BYTES)
        return [PublicKey.from_pem(item["public"]) for item in value["keys"]]
    except (OSError, InvalidInputError, LookupError, TypeError, AttributeError):
        return []


def _show(
    options: argparse.Namespace, name: str, report: AuditReport, note: str | None, lacking: str | None
) -> None:
    error = report.error
    if options.json:
        print_lines([json.dumps(_value(name, report, note, lacking), sort_keys=True)])
        return
    if error is not None:
        print_lines([f"{name}: NOT VERIFIED: {note or _message(error)} [{error.check}/{error.reason}]"])
        if note is not None:
            print_lines([f"  {error}"])
    elif lacking is not None:
        print_lines([f"{name}: verified, but NOT WHAT WAS ASKED FOR: {lacking}"])
    else:
        print_lines([f"{name}: verified"])
    print_lines(_check_lines(report.checks))
    if report.statement is not None:
        print_lines(f"  {line}" for line in summary_lines(report.statement))


def _message(error: NotVerifiedError) -> str:
    remedy = _REMEDIES.get((error.check, error.reason))
    return f"{error}; {remedy}" if remedy else str(error)


def _check_lines(checks: Sequence[CheckReport]) -> Iterator[str]:
    for check in checks:
        if check.status is not CheckStatus.NOT_RUN:
            yield f"  {check.status:<8} {check.name:<10} {check.detail}"
    left = [check.name for check in checks if check.status is CheckStatus.NOT_RUN]
    if left:
        yield f"  {CheckStatus.NOT_RUN:<8} {', '.join(left)}: an earlier check did not hold"


def _value(name: str, report: AuditReport, note: str | None, lacking: str | None) -> dict[str, Any]:
    error = report.error
    return {
        "file": name,
        "verified": report.verified,
        "check": error.check if error else None,
        "reason": error.reason if error else None,
        "message": _message(error) if error else None,
        "note": note,
        "shortcoming": lacking,
        "key_id": report.key_id or None,
        "payload_digest": report.payload_digest or None,
        "checks": [
            {"name": check.name, "status": str(check.status), "detail": check.detail}
            for check in report.checks
        ],
        "receipt": summary_value(report.statement) if report.statement is not None else None,
    }
