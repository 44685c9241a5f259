"""Structured logs: JSON lines on stderr. Arguments, output and tokens are never logged.

What libraries log, and warnings, become such lines too. The text of an error
that nobody raised on purpose may quote what a caller sent: its type and where
it happened are logged, its text is not.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import MutableMapping
from typing import Any

import structlog

from workseal.errors import WorksealError

_SHARED: tuple[structlog.typing.Processor, ...] = (
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


def configure_logs(*, verbose: bool = False) -> None:
    """Send log lines to stderr as JSON.

    Args:
        verbose: whether debug lines are wanted.
    """
    renderer = structlog.processors.JSONRenderer(sort_keys=True)
    structlog.configure(
        processors=[*_SHARED, describe_exception, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if verbose else logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*_SHARED, structlog.stdlib.add_logger_name, describe_exception],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(True)


def describe_exception(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace an exception by what may be logged of it (a structlog processor)."""
    given = event.pop("exc_info", None)
    if isinstance(given, tuple):
        error = given[1]
    else:
        error = given if isinstance(given, BaseException) else sys.exc_info()[1] if given else None
    if error is not None:
        event["error"] = _describe(error)
        event["where"] = [
            f"{frame.filename}:{frame.lineno} {frame.name}"
            for frame in traceback.extract_tb(error.__traceback__)
        ]
    return event


def _describe(error: BaseException) -> str:
    kind = type(error).__name__
    if isinstance(error, WorksealError):
        return f"{kind}: {error}"
    if isinstance(error, OSError) and error.strerror:
        return f"{kind}: {error.strerror}"
    return kind
