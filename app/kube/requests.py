from app.kube.errors import CallFailed
from app.kube.transport import Call, Transport


async def perform(transport: Transport, call: Call) -> bytes:
    """Send a request on behalf of a use case; the body of the answer.

    Raises:
        ClusterError: of the kind that says what the caller can do.
    """
    try:
        return await transport.send(call)
    except CallFailed as failed:
        raise failed.as_cluster_error() from failed
