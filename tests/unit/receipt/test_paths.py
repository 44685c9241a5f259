"""The escaped form of paths: exact both ways, and cheap whatever a tool calls its files."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workseal.errors import InvalidInputError
from workseal.paths import escape_path, unescape_path


def described(raw: bytes) -> str:
    """The form as it is described, one character at a time."""
    parts = []
    for char in raw.decode("utf-8", "surrogateescape"):
        point = ord(char)
        if char == "\\":
            parts.append("\\\\")
        elif point < 0x20 or 0x7F <= point < 0xA0 or 0xDC80 <= point <= 0xDCFF:
            parts += [f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape")]
        else:
            parts.append(char)
    return "".join(parts)


TRICKY = st.sampled_from(
    [b"\\", b"x41", b"\\x41", b"\xc2\x80", b"\xff", b"\n", b"a", b"/", "\u00e9".encode()]
)


@given(st.binary(max_size=40) | st.lists(TRICKY, max_size=12).map(b"".join))
def test_the_form_is_the_described_one_and_leads_back(raw: bytes) -> None:
    text = escape_path(raw)
    assert text == described(raw)
    assert unescape_path(text) == raw


ESCAPES = st.sampled_from(
    [
        "\\",
        "\\\\",
        "\\x0a",
        "\\x0A",
        "\\x41",
        "\\n",
        "\\u0041",
        "\\N{DIGIT ONE}",
        "\\101",
        "\\\n",
        "a",
        "\x80",
        "\udc80",
        "\U0001f600",
    ]
)


@given(st.text(max_size=20) | st.lists(ESCAPES, max_size=6).map("".join))
def test_only_what_escaping_makes_is_read(text: str) -> None:
    try:
        raw = unescape_path(text)
    except InvalidInputError:
        return
    assert escape_path(raw) == text


@pytest.mark.parametrize(
    "text",
    ["a\\", "\\x", "\\x0A", "\\x41", "\\n", "\\u0041", "\\N{DIGIT ONE}", "\\101", "a\nb", "\x85", "\udc80"],
    ids=ascii,
)
def test_another_spelling_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="path"):
        unescape_path(text)


@pytest.mark.parametrize("byte", [b"\x01", b"\xff", b"\\"], ids=["control", "not-utf8", "backslash"])
def test_a_long_path_of_escapes_alone_costs_little(byte: bytes) -> None:
    raw = byte * (4 * 1024 * 1024)
    started = time.process_time()
    assert unescape_path(escape_path(raw)) == raw
    # A call for each escape took some 20 s.
    assert time.process_time() - started < 6
