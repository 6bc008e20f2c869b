import asyncio
import random
from collections.abc import Callable
from dataclasses import replace

from dra_extender.kube.client.errors import ApiCallError
from dra_extender.kube.client.transport import ApiCall, ApiTransport

SHORTEST = 0.2
LONGEST = 30.0


class Backoff:
    """How long to wait before trying again: doubles with each failure in a row, between 0.2 and 30 s, with jitter.

    The jitter takes away up to half, so that many clients that failed together do not come back together.
    """

    def __init__(
        self, chance: Callable[[], float] = random.random, *, shortest: float = SHORTEST, longest: float = LONGEST
    ) -> None:
        self._chance = chance
        self._shortest = shortest
        self._longest = longest
        self.failures = 0

    def next(self, at_least: float = 0.0) -> float:
        """Seconds to wait after one more failure; never less than the server asked for (`Retry-After`)."""
        # The exponent is bounded because a float overflows after about a thousand failures.
        full = min(self._longest, self._shortest * 2.0 ** min(self.failures, 20))
        self.failures += 1
        return max(at_least, self._shortest, full * (1.0 - self._chance() / 2.0))

    def reset(self) -> None:
        """It works again."""
        self.failures = 0


async def perform(transport: ApiTransport, call: ApiCall) -> bytes:
    """Send a request on behalf of a use case; the body of the answer.

    A server that is too busy does nothing and says when to come again (429 with `Retry-After`); that is done, as other clients of
    Kubernetes do, as long as all tries together take no longer than one may.

    Raises:
        ClusterError: of the kind that says what the caller can do.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + call.seconds
    attempt = call
    while True:
        try:
            return await transport.send(attempt)
        except ApiCallError as failed:
            pause = failed.retry_after
            if not (failed.busy and pause) or loop.time() + pause >= end:
                raise failed.as_cluster_error() from failed
        await asyncio.sleep(pause)
        attempt = replace(call, seconds=end - loop.time())
