"""Ed25519 keys of small order: one signature of theirs holds for any message."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from workseal.receipt.errors import PublicKeyError
from workseal.receipt.keys import PublicKey

# The curve of RFC 8032, section 5.1, in affine coordinates: slow, and short enough to be read.
P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
IDENTITY = (0, 1)
Point = tuple[int, int]


def add(a: Point, b: Point) -> Point:
    product = D * a[0] * b[0] * a[1] * b[1] % P
    x = (a[0] * b[1] + a[1] * b[0]) * pow(1 + product, -1, P)
    y = (a[1] * b[1] + a[0] * b[0]) * pow(1 - product, -1, P)
    return x % P, y % P


def multiple(number: int, point: Point) -> Point:
    result = IDENTITY
    while number:
        if number & 1:
            result = add(result, point)
        point, number = add(point, point), number >> 1
    return result


def on_the_curve(y: int) -> Point | None:
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    root = pow(square, (P + 3) // 8, P)
    for x in (root, root * pow(2, (P - 1) // 4, P) % P):
        if x * x % P == square:
            return x, y
    return None


def torsion() -> list[bytes]:
    """Return every encoding of every point whose order divides 8, made from the group itself."""
    order = 2**252 + 27742317777372353535851937790883648493
    points: set[Point] = set()
    y = 2
    while len(points) < 8:
        if (point := on_the_curve(y)) is not None:
            small = multiple(order, point)
            points |= {multiple(times, small) for times in range(8)}
        y += 1
    values = {y for _, y in points} | {y + P for _, y in points if y + P < 2**255}
    return sorted((y | sign << 255).to_bytes(32, "little") for y in values for sign in (0, 1))


def pem(raw: bytes) -> bytes:
    return Ed25519PublicKey.from_public_bytes(raw).public_bytes(
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    )


@pytest.mark.parametrize("raw", torsion(), ids=bytes.hex)
def test_a_key_of_small_order_is_refused(raw: bytes) -> None:
    with pytest.raises(PublicKeyError, match="small order"):
        PublicKey.from_pem(pem(raw))


def test_there_are_fourteen_of_them() -> None:
    assert len(torsion()) == 14


def test_a_real_key_is_accepted() -> None:
    raw = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    assert PublicKey.from_pem(pem(raw)).scheme == "ed25519"
