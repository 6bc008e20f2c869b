import asyncio
from dataclasses import replace

from dra_extender.kube.client.errors import CallFailed
from dra_extender.kube.client.transport import ApiCall, ApiTransport


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
        except CallFailed as failed:
            pause = failed.retry_after
            if not (failed.busy and pause) or loop.time() + pause >= end:
                raise failed.as_cluster_error() from failed
        await asyncio.sleep(pause)
        attempt = replace(call, seconds=end - loop.time())
