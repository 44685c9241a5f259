"""All errors of the host.

::

    HostError
    |- WorkspaceError               the tree cannot be observed; `path` says where
    |  |- RootReplacedError         the root is not the directory that was opened
    |  |- IgnoreRulesError          the ignore rules cannot be read, or leave nothing
    |  |- DigestSchemeError         the scheme cannot represent this tree
    |  '- PathEscapesError          a path leads outside the workspace
    |- RequestError                 the request is malformed; `field` says where
    |- ArgumentsError               a tool refuses its arguments; `field` says where
    |- ConfigError                  the host's configuration is wrong; `key` says where
    |- IsolationError               tools cannot be isolated as configured
    |- LedgerError                  the ledger cannot be read or written
    |- KeyRingError                 the signing keys cannot be used
    |- NotFoundError                no such receipt, execution or path
    |- KeyConflictError             the idempotency key names another request
    |- QueueTimeoutError            the deadline passed in the queue; nothing ran
    |- BusyError                    too many calls wait, or the host is stopping; nothing ran
    '- StateError                   the execution is not in a state that allows this

Every message says what to do next. The service maps them to gRPC in one place.
"""

from __future__ import annotations

from workseal.errors import WorksealError
from workseal.paths import escape_path


class HostError(WorksealError):
    """Base of everything that the host raises on purpose."""


class WorkspaceError(HostError):
    """The workspace cannot be observed, so nothing may run.

    Args:
        message: what is wrong, and what to do.
        path: raw path below the root, where one is concerned.
    """

    def __init__(self, message: str, *, path: bytes = b"") -> None:
        super().__init__(message)
        self.path = path

    @property
    def path_text(self) -> str:
        """The path in the escaped form."""
        return escape_path(self.path)


class RootReplacedError(WorkspaceError):
    """The root is not the directory that was opened: the host must stop serving."""


class IgnoreRulesError(WorkspaceError):
    """The ignore rules cannot be read, or they leave nothing of the workspace."""


class DigestSchemeError(WorkspaceError):
    """The digest scheme cannot represent this tree."""


class PathEscapesError(WorkspaceError):
    """A path leads outside the workspace, or through a link."""


class RequestError(HostError):
    """The request is malformed.

    Args:
        message: what is wrong, and what would be right.
        field: name of the field in the request message.
    """

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class ArgumentsError(HostError):
    """A tool refuses its arguments.

    Args:
        message: what is wrong, and what would be right.
        field: JSON pointer of the argument; empty for the whole object.
    """

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class ConfigError(HostError):
    """The host's configuration is wrong.

    Args:
        message: what is wrong, and what would be right.
        key: dotted key in ``workseal.toml``.
    """

    def __init__(self, message: str, *, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class IsolationError(HostError):
    """Tools cannot be isolated as configured."""


class LedgerError(HostError):
    """The ledger cannot be read or written."""


class KeyRingError(HostError):
    """The signing keys cannot be used."""


class NotFoundError(HostError):
    """There is no such receipt, execution or path."""


class KeyConflictError(HostError):
    """The idempotency key already names another request."""


class QueueTimeoutError(HostError):
    """The deadline passed while the call waited; nothing ran."""


class BusyError(HostError):
    """Nothing ran; try again later.

    Args:
        message: why.
        retry_after_s: when to try again, in seconds.
        stopping: whether the host is about to stop.
    """

    def __init__(self, message: str, *, retry_after_s: float = 1.0, stopping: bool = False) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.stopping = stopping


class StateError(HostError):
    """The execution is not in a state that allows this."""
