"""A real host that is killed at one step of its ledger: `faulty_host.py METHOD WHEN COMMAND...`.

METHOD is a method of the ledger, WHEN is `before` or `after` its work, COMMAND the
arguments of `workseal`. The process kills itself the first time it gets there.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from workseal.cli import main
from workseal_host.ledger.sqlite import SqliteLedger


def _install(method: str, when: str) -> None:
    real = getattr(SqliteLedger, method)

    async def faulty(self: SqliteLedger, *args: Any, **how: Any) -> Any:
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        value = await real(self, *args, **how)
        if when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    setattr(SqliteLedger, method, faulty)


if __name__ == "__main__":
    _, chosen, moment, *command = sys.argv
    _install(chosen, moment)
    sys.argv = ["workseal", *command]
    sys.exit(main())
