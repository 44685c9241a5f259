"""The twelve checks of a receipt, in their order.

Each is load-bearing: for each there is a forged receipt that only it refuses.
"""

from __future__ import annotations

from typing import Final

from workseal.receipt.checks.content import (
    check_age,
    check_call,
    check_challenge,
    check_changes,
    check_policy,
    check_result,
)
from workseal.receipt.checks.context import Check
from workseal.receipt.checks.history import check_before, check_chain
from workseal.receipt.checks.origin import (
    check_form,
    check_signature,
    check_statement,
    check_workspace,
)

CHECKS: Final[tuple[tuple[str, Check], ...]] = (
    ("form", check_form),
    ("signature", check_signature),
    ("statement", check_statement),
    ("policy", check_policy),
    ("workspace", check_workspace),
    ("call", check_call),
    ("challenge", check_challenge),
    ("age", check_age),
    ("before", check_before),
    ("changes", check_changes),
    ("result", check_result),
    ("chain", check_chain),
)

#: What a receipt in between must hold: it is of somebody else's call.
BETWEEN_CHECKS: Final = frozenset(
    {"form", "signature", "statement", "workspace", "before", "changes", "chain"}
)
