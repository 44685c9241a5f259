"""Connecting, and everything that is asked of a host besides running tools."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from pathlib import Path

import grpc
import pytest
from client_kit import Connect

from fakes.host import CHAIN_ID, TOKEN, WORKSPACE_ID, EndStream, FakeHost, RpcFault, Serving
from workseal.calls import PathExpectation, Precondition, ToolCall
from workseal.client import Deadlines, HostClient
from workseal.errors import HostError, HostUnreachableError, InvalidInputError, NotVerifiedError
from workseal.results import EntryState, ManifestEntry, Selector
from workseal.retry import RetryPolicy
from workseal.transport.channel import TlsConfig, Token, normalise_target, open_channel

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


async def test_host_info(connect: Connect) -> None:
    async with connect() as client:
        info = await client.host_info()
    assert (info.name, info.workspace_id, info.chain_id) == ("workseal-host", WORKSPACE_ID, CHAIN_ID)
    assert (info.scheme, info.scan) == ("workseal-tree/1", "stat")
    assert [tool.name for tool in info.tools] == ["bash", "read_file", "write_file"]


async def test_workspace_id_is_asked_once(host: FakeHost, connect: Connect) -> None:
    async with connect() as client:
        assert [await client.workspace_id() for _ in range(3)] == [WORKSPACE_ID] * 3
    assert host.calls == ["GetHostInfo"]


async def test_reads_are_repeated_while_the_host_is_unavailable(host: FakeHost, connect: Connect) -> None:
    host.at("info", RpcFault(UNAVAILABLE))
    host.at("info", RpcFault(UNAVAILABLE, "SHUTTING_DOWN", retry_after_s=0.01))
    async with connect() as client:
        assert (await client.host_info()).workspace_id == WORKSPACE_ID
    assert host.calls == ["GetHostInfo"] * 3


async def test_slow_host_meets_the_deadline(host: FakeHost, connect: Connect) -> None:
    host.at("info", asyncio.Event().wait)  # type: ignore[arg-type]
    async with connect(deadlines=Deadlines(call_s=0.1)) as client:
        with pytest.raises(HostUnreachableError) as caught:
            await client.host_info()
    assert caught.value.code == "DEADLINE_EXCEEDED"
    assert host.calls == ["GetHostInfo"]


async def test_digest(connect: Connect) -> None:
    async with connect() as client:
        digest = await client.digest(scan="full", scheme="nonoka/1")
    assert (digest.digest, digest.scan, digest.scheme) == ("d" * 64, "full", "nonoka/1")


@pytest.mark.parametrize("options", [{"scan": "deep"}, {"scheme": "md5"}])
async def test_unknown_names_are_refused_before_asking(
    options: dict[str, str], host: FakeHost, connect: Connect
) -> None:
    async with connect() as client:
        with pytest.raises(InvalidInputError, match="use one of"):
            await client.digest(**options)
    assert host.calls == []


async def test_manifest_starts_anew_after_a_break(host: FakeHost, connect: Connect) -> None:
    host.at("manifest", RpcFault(UNAVAILABLE))
    async with connect() as client:
        manifest = await client.manifest()
    state = EntryState("file", "e" * 64)
    assert manifest.entries == (ManifestEntry("a", state), ManifestEntry("b", state))
    assert manifest.digest.digest == "d" * 64


async def test_manifest_without_digest_is_refused(host: FakeHost, connect: Connect) -> None:
    host.at("manifest", EndStream())
    async with connect() as client:
        with pytest.raises(HostError) as caught:
            await client.manifest()
    assert caught.value.reason == "PROTOCOL"


async def test_changes_are_proved_against_the_digest(host: FakeHost, connect: Connect) -> None:
    host.change_lines = [b'{"path":"a"}\n', b'{"path":"b"}\n']
    whole = b"".join(host.change_lines)
    async with connect() as client:
        lines = await client.changes(Selector(sequence=1), expected_digest=hashlib.sha256(whole).hexdigest())
    assert lines == whole


async def test_changes_that_were_altered_are_refused(host: FakeHost, connect: Connect) -> None:
    host.change_lines = [b'{"path":"a"}\n']
    async with connect() as client:
        with pytest.raises(NotVerifiedError) as caught:
            await client.changes(Selector(sequence=1), expected_digest="0" * 64)
    assert (caught.value.check, caught.value.reason) == ("changes", "full-list-digest")


async def test_changes_cut_off_in_the_middle_are_fetched_again(host: FakeHost, connect: Connect) -> None:
    host.change_lines = [b"1\n", b"2\n"]
    host.at("changes-0", RpcFault(UNAVAILABLE))
    async with connect() as client:
        lines = await client.changes(
            Selector(sequence=1), expected_digest=hashlib.sha256(b"1\n2\n").hexdigest()
        )
    assert lines == b"1\n2\n"


async def test_receipts_are_paged_in_order(host: FakeHost, connect: Connect) -> None:
    for number in range(7):
        host.append(f"e{number}".encode())
    async with connect() as client:
        entries = [entry async for entry in client.receipts(after_sequence=2, page_size=2)]
    assert [entry.sequence for entry in entries] == [3, 4, 5, 6, 7]
    assert entries[0].envelope == b"e2"
    assert entries[0].kind == "tool-execution"


async def test_pages_that_do_not_advance_end_in_an_error(host: FakeHost, connect: Connect) -> None:
    host.append(b"e")
    host.next_after = [1, 1]
    async with connect() as client:
        with pytest.raises(HostError) as caught:
            _ = [entry async for entry in client.receipts()]
    assert caught.value.reason == "PROTOCOL"


async def test_chain_out_of_order_is_refused(host: FakeHost, connect: Connect) -> None:
    host.append(b"e").sequence = 5
    host.append(b"f")
    async with connect() as client:
        with pytest.raises(HostError) as caught:
            _ = [entry async for entry in client.receipts()]
    assert caught.value.reason == "PROTOCOL"


async def test_receipt(host: FakeHost, connect: Connect) -> None:
    host.append(b"e")
    async with connect() as client:
        assert (await client.receipt(Selector(sequence=1))).envelope == b"e"


@pytest.mark.parametrize(
    "selector",
    [
        pytest.param(Selector(), id="none"),
        pytest.param(Selector(sequence=1, execution_id="x"), id="two"),
    ],
)
async def test_receipt_needs_exactly_one_name(selector: Selector, host: FakeHost, connect: Connect) -> None:
    async with connect() as client:
        with pytest.raises(InvalidInputError):
            await client.receipt(selector)
    assert host.calls == []


@pytest.mark.parametrize(
    "selector",
    [
        pytest.param(Selector(), id="none"),
        pytest.param(Selector(sequence=1), id="sequence"),
        pytest.param(Selector(execution_id="x", idempotency_key="k"), id="two"),
    ],
)
async def test_execution_needs_exactly_one_name(selector: Selector, connect: Connect) -> None:
    async with connect() as client:
        with pytest.raises(InvalidInputError):
            await client.cancel(selector)


async def test_cancel(connect: Connect) -> None:
    async with connect() as client:
        assert await client.cancel(Selector(execution_id="x"))


async def test_observation(connect: Connect) -> None:
    call = ToolCall("s", "c", "edit", {})
    async with connect() as client:
        observation = await client.begin_observation(call, ttl_s=5)
        result = await client.end_observation(observation.execution_id, result=b"r", exit_code=0)
    assert observation.before is not None
    assert observation.idempotency_key == call.key(WORKSPACE_ID)
    assert result.envelope == b"observed"


async def test_precondition_travels(host: FakeHost, connect: Connect) -> None:
    paths = (PathExpectation("gone", absent=True), PathExpectation("a", type="file", digest="f" * 64))
    async with connect() as client:
        await client.execute(ToolCall("s", "c", "bash", {}), precondition=Precondition("a" * 64, paths))
    sent = host.requests[0].precondition
    assert sent.workspace_sha256 == "a" * 64
    assert [(path.path, path.absent, path.state.sha256) for path in sent.paths] == [
        ("gone", True, ""),
        ("a", False, "f" * 64),
    ]


async def test_time_out_must_be_positive(connect: Connect) -> None:
    async with connect() as client:
        with pytest.raises(InvalidInputError):
            await client.execute(ToolCall("s", "c", "bash", {}), timeout_s=0)


async def test_token_is_read_from_the_file_at_connect(serving: Serving, tmp_path: Path) -> None:
    client = HostClient(serving.socket, token_file=tmp_path / "token")
    (tmp_path / "token").write_text(TOKEN + "\n")
    async with client:
        await client.host_info()


async def test_wrong_token_is_refused_once_and_shows_nowhere(
    serving: Serving, host: FakeHost, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    client = HostClient(serving.socket, token="canary-token")
    async with client:
        with pytest.raises(HostError) as caught:
            await client.host_info()
    assert caught.value.code == "UNAUTHENTICATED"
    shown = repr(client) + repr(caught.value) + repr(caught.value.__cause__) + caplog.text
    assert "canary" not in shown
    assert host.calls == ["GetHostInfo"]


def test_token_does_not_show_itself() -> None:
    assert "canary" not in repr(Token("canary"))


@pytest.mark.parametrize("content", [b"", b"\n", b"a b", b"a\x00", b"x" * 5000, b"caf\xc3\xa9", b"a\nb"])
async def test_files_without_a_token_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(InvalidInputError):
        async with HostClient("/x/y.sock", token_file=tmp_path / "token"):
            pass


async def test_missing_token_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="nowhere"):
        async with HostClient("/x/y.sock", token_file=tmp_path / "nowhere"):
            pass


@pytest.mark.parametrize("options", [{}, {"token": "a", "token_file": "b"}])
def test_exactly_one_token_is_needed(options: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError):
        HostClient("/x/y.sock", **options)


async def test_client_must_be_entered() -> None:
    with pytest.raises(InvalidInputError, match="async with"):
        await HostClient("/x/y.sock", token="t").host_info()


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/run/h.sock", "unix:/run/h.sock"),
        ("unix:/run/h.sock", "unix:/run/h.sock"),
        ("unix:///run/h.sock", "unix:/run/h.sock"),
        ("/run/../run//h.sock", "unix:/run/h.sock"),
        ("example.test:443", "example.test:443"),
        ("dns:///example.test:443", "dns:///example.test:443"),
    ],
)
def test_targets(target: str, expected: str) -> None:
    assert normalise_target(target) == expected


@pytest.mark.parametrize("target", ["", "/" + "x" * 107])
def test_bad_targets_are_refused(target: str) -> None:
    with pytest.raises(InvalidInputError):
        normalise_target(target)


@pytest.mark.parametrize("target", ["example.test:443", "127.0.0.1:1", "dns:///x:1", "unix-abstract:x"])
async def test_tcp_without_tls_is_refused(target: str) -> None:
    with pytest.raises(InvalidInputError):
        HostClient(target, token="t")
    with pytest.raises(InvalidInputError, match="TLS"):
        open_channel(target, None)


async def test_tcp_with_tls_opens_a_secure_channel() -> None:
    client = HostClient("127.0.0.1:1", token="t", tls=TlsConfig(), retry=RetryPolicy(max_attempts=1))
    async with client:
        with pytest.raises(HostUnreachableError):
            await client.host_info()


def test_private_key_does_not_show() -> None:
    assert "canary" not in repr(TlsConfig(private_key=b"canary"))
