"""A witness beside the ledger: the newest chain entry that was committed.

It is written after each commit and never read but at the start. A ledger that
lacks what the witness saw was put back from a backup. The witness may lag behind
after a crash; it can never be ahead of an honest ledger.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import structlog

log = structlog.get_logger("workseal.ledger")


@dataclass(frozen=True, slots=True)
class Seen:
    """One chain entry."""

    chain_id: str
    sequence: int
    payload_digest: str


class Witness:
    """The witness file of one ledger.

    Args:
        path: where it lies, in the ledger's private directory.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Seen | None:
        """Return what was last seen; None where that is not known."""
        with suppress(OSError, ValueError, TypeError):
            return Seen(**json.loads(self._path.read_bytes()))
        return None

    def write(self, seen: Seen) -> None:
        """Note a committed entry. A failure is logged: it only weakens the check of a restored ledger."""
        temporary = self._path.with_suffix(".new")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            with open(os.open(temporary, flags, 0o600), "w", encoding="ascii") as file:
                json.dump(asdict(seen), file)
            os.replace(temporary, self._path)
        except OSError as error:
            log.warning("cannot write the witness", path=str(self._path), error=str(error))
