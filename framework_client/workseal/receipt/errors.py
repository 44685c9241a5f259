"""Errors of the receipt form.

::

    NotVerifiedError
    '- MalformedReceiptError     bytes are not a receipt in the strict form
    InvalidInputError
    |- ReceiptFormError          a receipt cannot be made of these values
    '- PublicKeyError            a public key cannot be used

Whatever bytes come in, reading them ends in a receipt or in
:class:`MalformedReceiptError`.
"""

from __future__ import annotations

from workseal.errors import InvalidInputError, NotVerifiedError


class MalformedReceiptError(NotVerifiedError):
    """The bytes are not a receipt in the strict form of ``docs/receipt.md``."""


class ReceiptFormError(InvalidInputError):
    """A receipt cannot be made of these values; ``field`` says where."""


class PublicKeyError(InvalidInputError):
    """A public key is malformed, or of a kind that Workseal does not accept."""
