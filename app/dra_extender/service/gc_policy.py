import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_COLLECT_SECONDS: Final = 30.0


class GcPolicy:
    """The cyclic garbage collector, kept from walking through the caches: a full collection stops everything for up to a second."""

    def freeze(self) -> None:
        """Take everything that exists now out of consideration."""
        gc.collect()
        gc.freeze()

    async def run(self) -> None:
        """Collect young cycles, which failed requests and ended tasks leave behind, now and then."""
        while True:
            await asyncio.sleep(_COLLECT_SECONDS)
            gc.collect(1)


@contextmanager
def quiet_collector() -> Iterator[GcPolicy]:
    """No collection happens by itself inside the block."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield GcPolicy()
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()
