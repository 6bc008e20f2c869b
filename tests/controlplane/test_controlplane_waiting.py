import asyncio

import aiohttp
import pytest

from tests.controlplane.waiting import wait_for


@pytest.mark.parametrize("failure", [TimeoutError(), aiohttp.ClientPayloadError()])
async def test_request_that_ends_without_an_answer_is_made_again(failure: Exception) -> None:
    failures = [failure]

    async def answered() -> bool:
        if failures:
            raise failures.pop()
        return True

    assert await wait_for(answered, 60.0, "it answers")


async def test_wait_ends_although_each_request_runs_out_of_its_own_time() -> None:
    async def never() -> bool:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()
        return True

    with pytest.raises(TimeoutError, match=r"^Waited 0\.1 s in vain: it answers\. Last seen: "):
        await wait_for(never, 0.1, "it answers")


async def test_wait_ends_in_the_middle_of_a_request() -> None:
    async def never() -> bool:
        await asyncio.Event().wait()
        return True

    with pytest.raises(TimeoutError, match=r"^Waited 0\.1 s in vain: it answers\. Last seen: nothing"):
        await wait_for(never, 0.1, "it answers")
