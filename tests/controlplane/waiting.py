import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import aiohttp

from tests.controlplane.apierror import ApiError

T = TypeVar("T")
POLL_SECONDS = 0.05
LONGEST_POLL_SECONDS = 0.4
GROWTH = 1.25
NOT_YET = (ApiError, aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError)


async def wait_for(
    predicate: Callable[[], Awaitable[T]],
    timeout: float,  # noqa: ASYNC109 - the sentence below needs to be said by the one who waits
    what: str,
) -> T:
    """The first truthy answer of `predicate`, asked again and again for at most `timeout` seconds, more rarely the longer it takes.

    A refusal (ApiError), a server that is away or ends in the middle of an answer, and a request that ran out of its own time
    count as "not yet". Raises TimeoutError with `what` and the last answer or failure.
    """
    last: object = "nothing"
    pause = POLL_SECONDS
    try:
        async with asyncio.timeout(timeout) as limit:
            while True:
                try:
                    answer = await predicate()
                except NOT_YET as error:
                    last = error
                    if limit.expired():
                        raise TimeoutError from error
                else:
                    if answer:
                        return answer
                    last = answer
                await asyncio.sleep(pause)
                pause = min(pause * GROWTH, LONGEST_POLL_SECONDS)
    except TimeoutError as error:
        raise TimeoutError(f"Waited {timeout:g} s in vain: {what}. Last seen: {last}") from error
