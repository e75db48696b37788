"""Coroutines that go on side by side, and are ended together."""

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, Final

_AGAIN_S: Final = 1.0


async def first_ended(*work: Coroutine[Any, Any, object]) -> None:
    """Run these until one of them ends, and end the others. Raises what that one has raised."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        next(task for task in tasks if task.done()).result()
    finally:
        await ended(tasks)


async def ends_within(limit_s: float, work: Awaitable[object]) -> bool:
    """Whether something ends within so many seconds; else it is cancelled."""
    try:
        async with asyncio.timeout(limit_s):
            await work
        return True
    except TimeoutError:
        return False


async def ended(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel them until they have ended, whatever they raise; again each second, as a cancellation may get lost."""
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=_AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)
