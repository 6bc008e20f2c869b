"""Time for whatever can go on in a test's event loop."""

import asyncio
from typing import Final

_TURNS: Final = 60
_SECONDS: Final = 0.001


async def turns() -> None:
    """Lets the event loop turn many times, over some hundredths of a second.

    One sleep of that length is one turn if the machine stops the process meanwhile: what needs several turns is half way then.
    """
    for _ in range(_TURNS):
        await asyncio.sleep(_SECONDS)
