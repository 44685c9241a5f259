"""Log lines for a person: a command that somebody watches says what is wrong in words, not in JSON."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from workseal.cli.output import safe
from workseal_host.logs import describe_exception

_UNSAID = frozenset({"event", "level", "where", "logger"})


def configure_plain_logs() -> None:
    """Send warnings and errors to stderr as plain lines, and nothing below them."""
    structlog.configure(
        processors=[structlog.processors.add_log_level, describe_exception, plain_line],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.processors.add_log_level, describe_exception],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, plain_line],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(True)


def plain_line(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
    """Return a log line as a message (the last structlog processor)."""
    details = ", ".join(f"{name}: {value}" for name, value in sorted(event.items()) if name not in _UNSAID)
    level = event.get("level", "warning")
    text = f"{event.get('event', '')} ({details})" if details else str(event.get("event", ""))
    return f"workseal: {'warning' if level == 'warning' else 'error'}: {safe(text)}"
