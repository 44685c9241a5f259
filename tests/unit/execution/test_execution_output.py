"""Output capture: bounded, complete in its digest, valid at every cut."""

from __future__ import annotations

import hashlib
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workseal_host.execution.output import CapturedStream, StreamCapture, valid_end, valid_start


def capture(data: bytes, *, head: int, tail: int, step: int = 7) -> CapturedStream:
    stream = StreamCapture(head_limit=head, tail_limit=tail)
    for start in range(0, len(data), step):
        stream.feed(data[start : start + step])
    return stream.finish()


@given(
    data=st.binary(max_size=400), head=st.integers(1, 60), tail=st.integers(1, 60), step=st.integers(1, 90)
)
def test_head_tail_length_and_digest_are_those_of_the_stream(
    data: bytes, head: int, tail: int, step: int
) -> None:
    got = capture(data, head=head, tail=tail, step=step)
    assert got.total_bytes == len(data)
    assert got.digest == hashlib.sha256(data).digest()
    assert got.truncated == (len(data) > head + tail)
    if got.truncated:
        assert (got.head, got.tail) == (data[:head], data[-tail:])
    else:
        assert got.head + got.tail == data


@given(content=st.text(max_size=200), head=st.integers(4, 50), tail=st.integers(4, 50))
def test_text_of_valid_utf8_never_shows_a_split_character(content: str, head: int, tail: int) -> None:
    got = capture(content.encode(), head=head, tail=tail)
    assert got.text().count("\ufffd") <= content.count("\ufffd")
    assert "not valid UTF-8" not in got.text().removeprefix(content)


def test_text_counts_what_it_leaves_out_after_the_cut() -> None:
    got = capture("ab\u20accd\u20acef".encode(), head=3, tail=3)
    # The head ends and the tail starts inside a euro sign, so both are cut back.
    assert got.text() == "ab\n[... 8 bytes left out ...]\nef"


def test_text_says_that_bytes_were_replaced() -> None:
    assert "not valid UTF-8" in CapturedStream.of(b"ok\n\xf0\nafter\n").text()


def test_text_of_valid_bytes_is_the_bytes() -> None:
    assert CapturedStream.of("gr\u00fc\u00df\n".encode()).text() == "gr\u00fc\u00df\n"


def test_memory_is_bounded_by_the_limits() -> None:
    stream = StreamCapture(head_limit=1024, tail_limit=1024)
    chunk = b"y\n" * 32768
    tracemalloc.start()
    for _ in range(300):
        stream.feed(chunk)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * len(chunk)


@pytest.mark.parametrize(
    ("data", "end"),
    [
        pytest.param(b"abc", 3, id="ascii"),
        pytest.param(b"a\xe2\x82", 1, id="two-of-three"),
        pytest.param(b"a\xe2\x82\xac", 4, id="whole"),
        pytest.param(b"a\xff", 2, id="invalid-stays"),
        pytest.param(b"\x80\x80\x80\x80", 4, id="only-continuations"),
        pytest.param(b"", 0, id="empty"),
    ],
)
def test_valid_end(data: bytes, end: int) -> None:
    assert valid_end(data) == end


@pytest.mark.parametrize(
    ("data", "start"),
    [
        pytest.param(b"abc", 0, id="ascii"),
        pytest.param(b"\x82\xacx", 2, id="inside"),
        pytest.param(b"\x80\x80\x80\x80x", 0, id="not-a-character-anyway"),
    ],
)
def test_valid_start(data: bytes, start: int) -> None:
    assert valid_start(data) == start
