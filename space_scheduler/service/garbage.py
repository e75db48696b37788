"""When Python looks for garbage in cycles: seldom, because it walks every waiting job, and all requests wait for that.

By itself it would whenever there are a quarter more objects than at the last look: beside a long queue every few
seconds, for 100 ms with twenty thousand jobs. Cycles that die young, nearly all, are found at once as ever.
"""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

_EVERY_S: Final = 900.0
_NEVER: Final = 1 << 30  # more rounds of the younger generations than there will be


@asynccontextmanager
async def looked_for_seldom(every_s: float = _EVERY_S) -> AsyncIterator[None]:
    """Look through everything once every ``every_s`` seconds, but for what there is already: that stays for long."""
    young, middle, old = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(young, middle, _NEVER)
    looking = asyncio.create_task(_look(every_s))
    try:
        yield
    finally:
        looking.cancel()
        gc.set_threshold(young, middle, old)
        gc.unfreeze()


async def _look(every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        gc.collect()
