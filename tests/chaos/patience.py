import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import aiohttp

from tests.controlplane.apierror import ApiError

T = TypeVar("T")
PATIENCE_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.3
_SERVER_ERROR = 500
_TOO_MANY = 429


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """The answer of the API server, however often it is away meanwhile; its refusals are raised."""
    end = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        try:
            return await call()
        except (aiohttp.ClientError, TimeoutError, OSError, ApiError) as problem:
            final = isinstance(problem, ApiError) and problem.status < _SERVER_ERROR and problem.status != _TOO_MANY
            if final or asyncio.get_running_loop().time() > end:
                raise
        await asyncio.sleep(PAUSE_SECONDS)


async def unless(status: int, call: Callable[[], Awaitable[T]]) -> T | None:
    """As `patiently`; None where the API server answers this status: it is done already, or there is nothing to do it to."""
    try:
        return await patiently(call)
    except ApiError as refused:
        if refused.status != status:
            raise
        return None
