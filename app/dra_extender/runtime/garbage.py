"""Collections of cyclic garbage that are short, however much the process keeps.

Python's own collector visits every object of the caches from time to time, which stops the event loop for up to a second.  Here
each object is visited at most twice after it was made: by a collection of the objects made since the last look, and by one of the
objects that survived those.  Both start by number of objects, so that the time one takes does not grow with the rate of requests.
Survivors of both are never visited again: a cycle that lives for so long is kept.
"""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LOOK_SECONDS: Final = 0.1
NEW_OBJECTS: Final = 20_000
SURVIVING_OBJECTS: Final = 40_000


@contextmanager
def collected_in_short() -> Iterator[None]:
    """Prevent that a collection starts by itself inside the block."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def freeze() -> None:
    """Exempt every object that exists now from collections.

    What was old before is not visited: it is what modules have loaded, with hardly a cycle among it to free.
    """
    gc.collect(1)
    gc.freeze()


async def keep_collecting() -> None:
    """Collect whenever enough objects are new, until cancelled."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        collect_if_due()


def collect_if_due() -> int | None:
    """Collect if enough objects are new, and return the generation that was collected; otherwise return None."""
    if gc.get_count()[0] < NEW_OBJECTS:
        return None
    generation = int(len(gc.get_objects(1)) >= SURVIVING_OBJECTS)
    gc.collect(generation)
    return generation
