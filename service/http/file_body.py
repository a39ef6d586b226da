"""Request bodies that become files of the data folder."""

import asyncio
from collections.abc import Callable

from starlette.requests import Request

from service.http.body_stream import BLOCK, announced_size, receiving
from service.store.room import Room
from service.store.uploads import Upload


async def receive_file(
    request: Request, upload: Upload, room: Room, *, on_block: Callable[[int], object] = lambda _: None
) -> None:
    """Write the body of a request to disk in blocks, as it arrives.

    Each block is written in a thread, because hashing and disk access must not block the event loop.

    Args:
        request: the request.
        upload: the file.
        room: the disk space of the data folder.
        on_block: called after each full block with the number of bytes so far, but not after a smaller last one.

    Raises:
        TooLarge, InsufficientStorage, DiskFull: the file is beyond a limit.
        IncompleteBody: the client disconnected.
    """

    def write(block: memoryview) -> None:
        room.check(len(block))
        upload.write(block)
        room.grew(len(block))

    async def take(block: memoryview) -> None:
        await asyncio.to_thread(write, block)
        if len(block) >= BLOCK:
            on_block(upload.size)

    async with receiving(request) as body:
        if size := announced_size(request):
            upload.check_size(size)
            await asyncio.to_thread(room.check, size)
        await body.each(take)
