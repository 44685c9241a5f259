"""All errors that Workseal raises on purpose.

::

    WorksealError
    |- InvalidInputError            the caller gave something malformed
    |  '- InvalidJsonError          not strict JSON (duplicate keys, lone surrogates, large integers, ...)
    |- NotVerifiedError             a receipt was not shown to be good; `check` and `reason` say why
    |  '- CannotCheckError          it could not even be checked (no pinned key, no record, ...)
    |- HostError                    the host answered with an error; `reason` is its ErrorInfo reason
    |  |- HostUnreachableError      no answer at all
    |  |- KeyConflictError          the idempotency key names another request
    |  '- QueueTimeoutError         nothing ran, the key is free again
    |- ResumeError                  results do not fit the pending calls; nothing was changed
    '- StoreError                   a local durable record could not be read or written

Every message says what to do next. "Could not check" is a kind of "not
verified", so that one ``except NotVerifiedError`` is safe.
"""

from __future__ import annotations

from collections.abc import Mapping


class WorksealError(Exception):
    """Base of everything that Workseal raises on purpose."""


class InvalidInputError(WorksealError, ValueError):
    """The caller gave something malformed.

    Args:
        message: what is wrong, and what would be right.
        field: name of the malformed field, where there is one.
    """

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class InvalidJsonError(InvalidInputError):
    """Text is not the strict JSON that Workseal accepts."""


class NotVerifiedError(WorksealError):
    """A receipt was not shown to be good.

    Args:
        message: what was wrong, and what to do.
        check: name of the check that failed, as in ``docs/receipt.md``.
        reason: stable machine-readable reason within that check.
    """

    def __init__(self, message: str, *, check: str, reason: str) -> None:
        super().__init__(message)
        self.check = check
        self.reason = reason


class CannotCheckError(NotVerifiedError):
    """A receipt could not be checked, which counts as not verified."""


class HostError(WorksealError):
    """The host answered with an error.

    Args:
        message: the host's words.
        code: name of the gRPC status code, such as ``INVALID_ARGUMENT``.
        reason: the host's ErrorInfo reason, such as ``INVALID_REQUEST``; empty when it gave none.
        metadata: the host's ErrorInfo metadata.
    """

    def __init__(
        self, message: str, *, code: str = "", reason: str = "", metadata: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.metadata = dict(metadata or {})


class HostUnreachableError(HostError):
    """No answer came from the host. Whether it acted is unknown: ask again with the same key."""


class KeyConflictError(HostError):
    """The idempotency key already names another request; nothing was run."""


class QueueTimeoutError(HostError):
    """The deadline passed while the call waited; nothing was run and the key is free."""


class ResumeError(WorksealError):
    """Results do not fit the pending calls. Nothing was changed; all calls are still pending.

    Args:
        message: what does not fit.
        tool_call_ids: the calls concerned.
    """

    def __init__(self, message: str, *, tool_call_ids: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.tool_call_ids = tool_call_ids


class StoreError(WorksealError):
    """A local durable record could not be read or written."""
