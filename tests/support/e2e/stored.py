"""Objects put into etcd directly, as an API server of an earlier release has left them there."""

import base64
import json
import uuid
from typing import Final

import aiohttp

from tests.controlplane.cluster import ControlPlane
from tests.controlplane.objects import Object

_SECONDS: Final = 60.0


async def put_slice(cluster: ControlPlane, published: Object) -> None:
    """Store a slice that this API server refuses to create; it serves and watches it all the same."""
    metadata = {"uid": str(uuid.uuid4()), "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1}
    stored = {**published, "metadata": {**published["metadata"], **metadata}}
    entry = {"key": f"/registry/resourceslices/{stored['metadata']['name']}", "value": json.dumps(stored)}
    encoded = {name: base64.b64encode(text.encode()).decode() for name, text in entry.items()}
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(f"{cluster.layout.etcd_url}/v3/kv/put", json=encoded) as answer,
    ):
        answer.raise_for_status()
