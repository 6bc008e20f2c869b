import asyncio
from typing import Final, TypeVar

import msgspec

from dra_extender.model.api_json import decode_any

T = TypeVar("T")

_AT_ONCE: Final = 2**18


async def in_turns(decoder: "msgspec.json.Decoder[T]", data: bytes) -> T:
    """As `decode_any`; what is long is decoded beside the event loop, which gets its turns meanwhile."""
    if len(data) <= _AT_ONCE:
        return decode_any(decoder, data)
    return await asyncio.to_thread(decode_any, decoder, data)
