"""The text that a model reads of a program that ended."""

from __future__ import annotations

import signal

from workseal_host.execution.process import ProcessOutcome
from workseal_host.execution.tool import ToolResult


def signal_name(number: int) -> str:
    """Return a signal's name, or its number where the system has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def status_lines(outcome: ProcessOutcome, *, timeout_s: float) -> list[str]:
    """Return one line per thing that the output does not show; none for an ordinary success."""
    lines = []
    if outcome.start_failure is not None:
        lines.append(f"[not started: {outcome.start_failure.text}]")
    if outcome.timed_out:
        lines.append(f"[timed out after {timeout_s:g} s and was ended]")
    if outcome.cancelled:
        lines.append("[cancelled, and ended]")
    if outcome.signal is not None:
        lines.append(f"[ended by {signal_name(outcome.signal)}]")
    if outcome.exit_code:
        lines.append(f"[exit code {outcome.exit_code}]")
    if outcome.leftover_processes:
        one = outcome.leftover_processes == 1
        still = "process still ran and was" if one else "processes still ran and were"
        lines.append(f"[{outcome.leftover_processes} background {still} ended]")
    if outcome.survivors:
        lines.append("[something that it started may still be running]")
    return lines


def program_text(outcome: ProcessOutcome, *, timeout_s: float) -> str:
    """Return standard output, then standard error, then what the status lines say."""
    parts = [outcome.stdout.text()]
    if outcome.stderr.total_bytes:
        parts += ["[stderr]\n", outcome.stderr.text()]
    parts += [line + "\n" for line in status_lines(outcome, timeout_s=timeout_s)]
    text = ""
    for part in parts:
        text += part if not text or text.endswith("\n") or not part else "\n" + part
    return text


def program_result(outcome: ProcessOutcome, *, timeout_s: float) -> ToolResult:
    """Return the tool result of a program that ended."""
    failed_to_start = outcome.start_failure is not None
    return ToolResult(
        result=program_text(outcome, timeout_s=timeout_s).encode(),
        # As a shell does for a command that it cannot start.
        exit_code=127 if failed_to_start else outcome.exit_code,
        signal=outcome.signal,
        timed_out=outcome.timed_out,
        cancelled=outcome.cancelled,
        stdout=outcome.stdout,
        stderr=outcome.stderr,
        leftover_processes=outcome.leftover_processes,
        survivors=outcome.survivors,
    )
