"""Structured logs: JSON lines on stderr. Arguments, output and tokens are never logged."""

from __future__ import annotations

import logging
import sys

import structlog


def configure_logs(*, verbose: bool = False) -> None:
    """Send log lines to stderr as JSON.

    Args:
        verbose: whether debug lines are wanted.
    """
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(sort_keys=True),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if verbose else logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
