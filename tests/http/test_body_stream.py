"""A body is read in blocks, up to the last byte that arrived."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from starlette.requests import ClientDisconnect

from service.http.body_stream import BLOCK, Body
from service.trace.errors import IncompleteBody


async def pieces(*content: bytes, leaves: bool = False, stalls: bool = False) -> AsyncGenerator[bytes]:
    for piece in content:
        yield piece
    if leaves:
        raise ClientDisconnect
    if stalls:
        await asyncio.Event().wait()


async def read(body: Body, into: list[bytes]) -> None:
    async for block in body.blocks():
        into += [bytes(block)]


def test_blocks_have_a_fixed_size_and_no_byte_is_lost() -> None:
    piece, blocks = bytes(range(256)) * 256, list[bytes]()
    asyncio.run(read(Body(pieces(*[piece] * 40), None), blocks))
    assert b"".join(blocks) == piece * 40
    assert [len(block) for block in blocks] == [BLOCK, BLOCK, 8 * len(piece)]


def test_bytes_before_a_disconnect_are_yielded() -> None:
    blocks: list[bytes] = []
    with pytest.raises(IncompleteBody):
        asyncio.run(read(Body(pieces(b"some", b"thing", leaves=True), None), blocks))
    assert blocks == [b"something"]


def test_client_that_stalls_counts_as_disconnected() -> None:
    blocks: list[bytes] = []
    with pytest.raises(IncompleteBody, match="No byte arrived"):
        asyncio.run(read(Body(pieces(b"something", stalls=True), 0.001), blocks))
    assert blocks == [b"something"]
